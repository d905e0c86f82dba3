/* Who has come to a call that NCCL carries out. Our own kernels see that for themselves; of NCCL's nobody
 * learns why they do not end, so the watch compares what ranks say on their cards that they have called. */
#ifndef WEFT_COMM_CUDA_ARRIVALS_H
#define WEFT_COMM_CUDA_ARRIVALS_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/cuda/launch.h"

typedef struct weft_arrival {
    uint64_t calls;      /* that a rank has made so far */
    uint64_t sig, count; /* of the last one */
} weft_arrival_t;

/* What was seen last, and since when. Starts as {0}, and again whenever nothing is waited for. */
typedef struct weft_arrivals {
    weft_arrival_t seen[WEFT_CUDA_RANKS];
    uint64_t since[WEFT_CUDA_RANKS]; /* ns */
} weft_arrivals_t;

/* Rank `rank` waits in call number `call`, its latest of NCCL's, and `ranks` have come so far. Returns the
 * rank to blame, or -1: one that has not made the call, and none since timeout_ns (0: none is ever late), or
 * one that has made another call of that number (*mismatch_p). The latter is only said when it has been so
 * for half a second, or for 50 ms if the call has `failed`, which needs a reason soon: numbers and calls are
 * not read at the same instant. */
int weft__arrivals_judge(weft_arrivals_t *arrivals, const weft_arrival_t *ranks, int size, int rank,
                         uint64_t call, uint64_t timeout_ns, bool failed, uint64_t now,
                         bool *mismatch_p);

#endif
