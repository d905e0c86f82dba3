/* The CPU's table of compression. The loops are bound by memory and run on the stream's own thread,
 * so that they do not take cores from the backward pass they run beside. */
#include "kernel/cpu/compress.h"

#include <math.h>
#include <string.h>

#include "kernel/cpu/launch.h"
#include "kernel/kernel.h"

static const weft_compress_inner_t *inner(void)
{
#if defined(__x86_64__)
    const char *name = weft__kernels()->name;
    if (strcmp(name, weft__compress_avx512.name) == 0) {
        return &weft__compress_avx512;
    }
    if (strcmp(name, weft__compress_avx2.name) == 0) {
        return &weft__compress_avx2;
    }
#endif
    return &weft__compress_none;
}

static float f16_scale(const weft_f16_t *args)
{
    float top = *args->peak * (float)args->sum_of;
    int exponent;
    if (!isfinite(top)) {
        return NAN;
    }
    if (top == 0.0f) {
        return 1.0f;
    }
    float fraction = frexpf(top, &exponent); /* top = fraction x 2^exponent, fraction in [1/2, 1) */
    exponent = 15 - exponent + (fraction == 0.5f);
    return ldexpf(1.0f, exponent > 126 ? 126 : exponent);
}

static weft_status_t run_quantize(const void *args)
{
    inner()->quantize(args);
    return WEFT_OK;
}

static weft_status_t run_dequantize(const void *args)
{
    inner()->dequantize(args);
    return WEFT_OK;
}

static weft_status_t run_peak(const void *args)
{
    inner()->peak(args);
    return WEFT_OK;
}

static weft_status_t run_to_f16(const void *args)
{
    inner()->to_f16(args, f16_scale(args));
    return WEFT_OK;
}

static weft_status_t run_from_f16(const void *args)
{
    inner()->from_f16(args, f16_scale(args));
    return WEFT_OK;
}

#define ON_STREAM(name, args_t)                                                                    \
    static weft_status_t name##_on_stream(const args_t *args, weft_stream_h stream)                \
    {                                                                                              \
        return weft__kernel_launch(run_##name, args, sizeof(*args), stream);                       \
    }
WEFT_COMPRESS_TABLE(ON_STREAM)

#define ROW(name, args_t) .name = name##_on_stream,
const weft_compress_ops_t weft__compress_cpu = {.kind = "cpu", WEFT_COMPRESS_TABLE(ROW)};
