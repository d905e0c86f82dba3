/* Benchmarks: collectives, in the manner and with the columns of nccl-tests, and pairs of one-sided
 * and two-sided ways (pair.h). */
#ifndef WEFT_BENCH_BENCH_H
#define WEFT_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <weft/weft.h>

#include "topo/machine.h"

typedef struct weft_bench {
    const char
        *collective; /* a name of the table, "sendrecv" or "p2p", "copy", "all", or a pair's */
    size_t min, max; /* bytes; pairs: 0 is their own */
    double factor;
    weft_dtype_t type;
    weft_op_t op;
    int root;
    int iters;    /* 0: as many as fill about 30 ms */
    int repeat;   /* timed loops per size; the median is printed */
    bool check;   /* verify values */
    bool explain; /* say which algorithm and why */
    bool graph;   /* GPUs: calls are replayed from a graph */
    bool tune;    /* GPUs: find and save the sizes at which to change from one way to another */
    bool advise;  /* say which of two ways is faster, size by size */
    bool threads;
    const char *json;     /* file, or NULL */
    char *const *command; /* as it was typed, ended by NULL: for the file */
    weft_machine_t machine;
} weft_bench_t;

/* What can be measured: name i, NULL after the last. */
const char *weft__bench_name(int i);

/* Measure, as one rank of `comm`; called by all of them. Rank 0 prints the table and writes the
 * JSON file. *wrong_p: wrong elements over all ranks and sizes. */
weft_status_t weft__bench_run(const weft_bench_t *bench, weft_comm_h comm, size_t *wrong_p);

#endif
