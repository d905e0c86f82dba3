/* The plan of a run: what the configuration asks for, checked, shown, and what it takes of
 * memory. */
#ifndef WEFT_TRAIN_RUN_PLAN_H
#define WEFT_TRAIN_RUN_PLAN_H

#include <stdio.h>

#include "parallel/worker.h"
#include "train/setup.h"

/* The plan that a resolved configuration asks for, and all that a worker needs to know but its
 * stream and timeline. */
weft_plan_t weft__run_plan(const weft_train_config_t *config);
weft_worker_options_t weft__run_plan_options(const weft_setup_t *setup);

/* Is it data parallelism and nothing else? */
bool weft__run_plan_plain(const weft_train_config_t *config);

/* WEFT_ERR_INVALID with the reason and the nearest plan, if it cannot work. */
weft_status_t weft__run_plan_check(const weft_setup_t *setup);

/* Add to the sentence of `status`, why ranks cannot be arranged as asked for, how they can. */
weft_status_t weft__run_plan_suggest(const weft_setup_t *setup, weft_status_t status);

/* Before a run, what --dry-run shows: model and batch, the mesh as a picture, and the memory that
 * each rank is going to need. */
weft_status_t weft__run_plan_print(const weft_setup_t *setup, FILE *out);

/* After it: what each rank was predicted to need, and what was measured (bytes, by rank). */
weft_status_t weft__run_plan_print_memory(const weft_setup_t *setup, const weft_mesh_t *mesh,
                                          FILE *out, const double *measured);

/* As numbers: device memory of all ranks and of the one that needs most, and what all have on the
 * host. Ranks of a stage count as alike. */
weft_status_t weft__run_plan_bytes(const weft_setup_t *setup, uint64_t *all_p, uint64_t *most_p,
                                   uint64_t *host_p);

/* Residuals of compressed gradients of all ranks, likewise. */
weft_status_t weft__run_plan_residuals(const weft_setup_t *setup, uint64_t *bytes_p);

#endif
