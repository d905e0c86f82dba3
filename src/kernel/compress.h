/* Gradients in fewer bits: the arithmetic of compressed exchange.
 *
 *   int8   a block of WEFT_QUANT_BLOCK elements shares one f32 scale, its largest magnitude / 127.
 *          What rounding loses is kept in `residual` and added the next time (error feedback), so
 *          that nothing is lost over many steps.
 *   f16    all elements share a power of two that brings the largest magnitude of all ranks near
 *          the top of f16's range: small gradients do not vanish, large ones do not overflow.
 *
 * bf16 has f32's range and is a plain cast (kernel/compute.h). As there, functions run in the order
 * of the stream, on copies of their arguments; pointers are device memory. */
#ifndef WEFT_KERNEL_COMPRESS_H
#define WEFT_KERNEL_COMPRESS_H

#include <stdint.h>

#include <weft/status.h>
#include <weft/types.h>

#define WEFT_QUANT_BLOCK 256

/* x = in + residual; out and scales are x in 8 bits; residual = x - what they stand for. A block
 * with a value that is not finite gets a scale of NaN, so that it stays visible on the other side,
 * and a residual of 0. */
typedef struct weft_quantize {
    int64_t count; /* a multiple of the block */
    const float *in;
    float *residual; /* count */
    int8_t *out;     /* count */
    float *scales;   /* count / block */
} weft_quantize_t;

/* out = sum over `parts` of what they stand for, part p being `stride` bytes behind part p - 1, in
 * f32 and in the order of the parts. */
typedef struct weft_dequantize {
    int64_t count; /* a multiple of the block */
    int parts;
    int64_t stride;
    const int8_t *in;
    const float *scales; /* of part 0 */
    float *out;
} weft_dequantize_t;

/* out = the largest magnitude; infinity if a value is not finite. */
typedef struct weft_peak {
    int64_t count;
    const float *in;
    float *out; /* 1 */
} weft_peak_t;

/* to_f16: out = in x s rounded to f16; from_f16: out = in / s. s is the power of two for which
 * *peak x sum_of x s is in (16384, 32768], 1 for a peak of 0, and NaN for one that is not
 * finite. */
typedef struct weft_f16 {
    int64_t count;
    const void *in;
    void *out;
    const float *peak; /* 1, in device memory */
    int sum_of;        /* how many of these will be added up */
} weft_f16_t;

#define WEFT_COMPRESS_TABLE(X)                                                                     \
    X(quantize, weft_quantize_t)                                                                   \
    X(dequantize, weft_dequantize_t)                                                               \
    X(peak, weft_peak_t)                                                                           \
    X(to_f16, weft_f16_t)                                                                          \
    X(from_f16, weft_f16_t)

typedef struct weft_compress_ops {
    const char *kind; /* "cpu", "cuda" */
#define WEFT_COMPRESS_SLOT(name, args_t)                                                           \
    weft_status_t (*name)(const args_t *args, weft_stream_h stream);
    WEFT_COMPRESS_TABLE(WEFT_COMPRESS_SLOT)
#undef WEFT_COMPRESS_SLOT
} weft_compress_ops_t;

/* The table for the devices of this process. Both give the same bits. */
weft_status_t weft__compress_ops(const weft_compress_ops_t **table_p);

#endif
