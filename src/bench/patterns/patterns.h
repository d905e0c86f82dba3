/* Patterns of communication, each one-sided and two-sided (docs/patterns.md). */
#ifndef WEFT_BENCH_PATTERNS_PATTERNS_H
#define WEFT_BENCH_PATTERNS_PATTERNS_H

#include "bench/pair.h"

extern const weft_pair_t weft__pair_halo, weft__pair_balance, weft__pair_handoff,
    weft__pair_handoff_get, weft__pair_handoff_both, weft__pair_lookup, weft__pair_kv,
    weft__pair_gradient, weft__pair_gradient_slices, weft__pair_spread, weft__pair_gemm_column,
    weft__pair_gemm_row, weft__pair_server, weft__pair_async, weft__pair_swap;

#endif
