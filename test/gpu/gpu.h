/* Tests on real GPUs: the functions of test/comm, and what only GPUs have.
 *
 * Where they cannot run they say why and end with 77. With WEFT_TEST_DEVICE=cpu they run on virtual
 * GPUs instead, but for what those do not have: a way to try a new test without a GPU. */
#ifndef WEFT_TEST_GPU_GPU_H
#define WEFT_TEST_GPU_GPU_H

#include "comm/harness.h"

/* The first thing in main: ranks of all teams from here on live on GPUs. Does not return where
 * there is none, or, with `processes`, where processes cannot share one. argv[1], if given, says
 * which tests to run. */
void gpu_start(int argc, char **argv, bool processes);

/* May ranks be processes? If not it says so. */
bool gpu_processes(void);

/* Do virtual GPUs stand in for real ones? */
bool gpu_virtual(void);

/* For a team: the functions that `arg` lists, ended by NULL, one after the other. Processes take a
 * while to start on a GPU. */
void gpu_in_a_row(team_t *team);

#endif
