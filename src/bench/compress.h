/* The pairs that measure compression of gradients, alone and with its communication. */
#ifndef WEFT_BENCH_COMPRESS_H
#define WEFT_BENCH_COMPRESS_H

#include "bench/pair.h"

extern const weft_pair_t weft__pair_compress_bf16, weft__pair_compress_fp16,
    weft__pair_compress_int8;
extern const weft_pair_t weft__pair_exchange_bf16, weft__pair_exchange_fp16,
    weft__pair_exchange_int8;
extern const weft_pair_t weft__pair_quantized_bf16, weft__pair_quantized_fp16,
    weft__pair_quantized_int8;

#endif
