/* Compression, built for any CPU. */

#include "kernel/cpu/compress_impl.h"

const weft_compress_inner_t weft__compress_none = {
    .name = "none",
    .quantize = quantize,
    .dequantize = dequantize,
    .peak = peak,
    .to_f16 = to_f16,
    .from_f16 = from_f16,
};
