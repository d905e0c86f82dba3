/* How training scales: throughput and efficiency at 1, 2, 4, ... ranks, weak and strong, and of
 * other plans on all ranks; what the lost time is made of (scaling/lost.h); and what helps where
 * communication takes too much of a step.
 *
 * One job does it all: a point with fewer ranks than the job has runs on the first of them, while
 * the others sleep. Points are measured in rounds, each round in another order, so that what
 * changes on the machine meanwhile meets them all alike; the median round of a point counts. */
#ifndef WEFT_BENCH_SCALING_H
#define WEFT_BENCH_SCALING_H

#include <stdbool.h>

#include <weft/comm.h>

#include "train/setup.h"

#define WEFT_SCALING_ROUNDS_MOST 64

typedef struct weft_scaling {
    const weft_setup_t *base;         /* of --benchmark, for all ranks of the job */
    const weft_train_config_t *asked; /* its configuration as typed: what is left open in it is
                                       * resolved anew for each point */
    int batch;                        /* sequences of a rank and step */
    bool weak, strong, plans;         /* which points */
    bool remedies;                    /* try them */
    double limit;                     /* share of communication in a step above which it should */
    int steps, rounds;                /* timed, of each point */
    const char *json;                 /* NULL: no file */
    char *const *command;             /* as typed */
} weft_scaling_t;

/* Rank 0 prints, and writes the file. All ranks of the job's communicator call it. */
weft_status_t weft__scaling_run(const weft_scaling_t *scaling, weft_comm_h comm);

#endif
