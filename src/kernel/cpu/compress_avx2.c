/* Compression, built with the options of the table "avx2". */
#if defined(__x86_64__)
#include "kernel/cpu/compress_impl.h"

const weft_compress_inner_t weft__compress_avx2 = {
    .name = "avx2",
    .quantize = quantize,
    .dequantize = dequantize,
    .peak = peak,
    .to_f16 = to_f16,
    .from_f16 = from_f16,
};

#else
typedef int nothing_t; /* a file must declare something */
#endif
