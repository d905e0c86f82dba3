/* weft train --benchmark, once its options are read. */
#ifndef WEFT_CLI_TRAIN_BENCHMARK_H
#define WEFT_CLI_TRAIN_BENCHMARK_H

#include "train/setup.h"

/* Start the ranks of the setup, unless this process is one, and let them train on made-up tokens.
 * `typed`: the command line, ended by NULL. Returns the exit status; what went wrong has been
 * said. */
int weft__train_benchmark(weft_setup_t *setup, char **typed);

#endif
