/* Timed loops of all ranks, of collectives and of pairs. */
#ifndef WEFT_BENCH_TIMED_H
#define WEFT_BENCH_TIMED_H

#include <stddef.h>

#include <weft/weft.h>

typedef struct weft_timed {
    weft_comm_h comm;
    weft_status_t (*loop)(void *ctx, int iters); /* returns when all of it has happened */
    void *ctx;
    double target_ns; /* length of a timed loop */
    int least;        /* iterations of one */
    int unit;         /* ... are rounded up to a multiple of it */
} weft_timed_t;

/* Nanoseconds of an iteration, by the slowest rank; the same on all. */
weft_status_t weft__timed_loop(const weft_timed_t *timed, int iters, double *ns_p);

/* Warm up, and find out how many iterations fill a timed loop; the same on all ranks. */
weft_status_t weft__timed_fit(const weft_timed_t *timed, int *iters_p);

/* Wrong results over all ranks. */
weft_status_t weft__timed_wrong(weft_comm_h comm, size_t wrong, size_t *all_p);

#endif
