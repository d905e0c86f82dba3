/* Pairs about links and calls: which memory, which order, which algorithm, how many calls
 * (docs/pairs.md). */
#ifndef WEFT_BENCH_WAYS_WAYS_H
#define WEFT_BENCH_WAYS_WAYS_H

#include "bench/pair.h"

extern const weft_pair_t weft__pair_peer, weft__pair_places, weft__pair_algorithms,
    weft__pair_one_shot, weft__pair_cold_state;
extern const weft_pair_t weft__pair_small_calls, weft__pair_registered, weft__pair_pinned;

/* Data of this rank for a seed, into memory of the device; the same numbers as weft__pair_value. */
weft_status_t weft__ways_fill(const weft_pair_run_t *run, void *device, float *host, uint64_t seed);

/* How many elements at `device` are not the values of `rank`, or their sum over all ranks if it is
 * below 0; waits for the stream. */
weft_status_t weft__ways_compare(const weft_pair_run_t *run, const void *device, float *host,
                                 uint64_t seed, int rank, size_t *wrong_p);

#endif
