/* The pairs that measure single calls. */
#ifndef WEFT_BENCH_RMA_H
#define WEFT_BENCH_RMA_H

#include "bench/pair.h"

extern const weft_pair_t weft__pair_put, weft__pair_get, weft__pair_put_signal;
extern const weft_pair_t weft__pair_fetch_add, weft__pair_add, weft__pair_cswap,
    weft__pair_one_word;
extern const weft_pair_t weft__pair_barrier, weft__pair_lock, weft__pair_lock_all;

#endif
