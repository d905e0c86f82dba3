/* Every pair, in the order in which weft bench --help names them. */
#include "bench/compress.h"
#include "bench/pair.h"
#include "bench/patterns/patterns.h"
#include "bench/rma.h"
#include "bench/ways/ways.h"

const weft_pair_t *const weft__pairs[] = {
    &weft__pair_put,
    &weft__pair_get,
    &weft__pair_put_signal,
    &weft__pair_fetch_add,
    &weft__pair_add,
    &weft__pair_cswap,
    &weft__pair_one_word,
    &weft__pair_barrier,
    &weft__pair_lock,
    &weft__pair_lock_all,
    &weft__pair_halo,
    &weft__pair_balance,
    &weft__pair_handoff,
    &weft__pair_handoff_get,
    &weft__pair_handoff_both,
    &weft__pair_lookup,
    &weft__pair_kv,
    &weft__pair_gradient,
    &weft__pair_gradient_slices,
    &weft__pair_spread,
    &weft__pair_gemm_column,
    &weft__pair_gemm_row,
    &weft__pair_server,
    &weft__pair_async,
    &weft__pair_swap,
    &weft__pair_peer,
    &weft__pair_places,
    &weft__pair_algorithms,
    &weft__pair_one_shot,
    &weft__pair_cold_state,
    &weft__pair_small_calls,
    &weft__pair_registered,
    &weft__pair_pinned,
    &weft__pair_compress_bf16,
    &weft__pair_compress_fp16,
    &weft__pair_compress_int8,
    &weft__pair_exchange_bf16,
    &weft__pair_exchange_fp16,
    &weft__pair_exchange_int8,
    NULL,
};
