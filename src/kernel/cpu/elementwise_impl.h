/* Kernels that work element by element: activations, dropout, casts, AdamW, sums of squares. */
#ifndef WEFT_KERNEL_CPU_ELEMENTWISE_IMPL_H
#define WEFT_KERNEL_CPU_ELEMENTWISE_IMPL_H

#include "base/rng.h"
#include "kernel/cpu/lanes.h"

/* Make `name`, which chooses between the types of storage, from name_of(args, first, end, type). */
#define BY_TYPE(name, args_t)                                                                      \
    static void name(const args_t *args, int64_t first, int64_t end)                               \
    {                                                                                              \
        if (args->type == WEFT_F32) {                                                              \
            name##_of(args, first, end, WEFT_F32);                                                 \
        } else if (args->type == WEFT_BF16) {                                                      \
            name##_of(args, first, end, WEFT_BF16);                                                \
        } else {                                                                                   \
            name##_of(args, first, end, WEFT_F16);                                                 \
        }                                                                                          \
    }

/* ---- GELU and SwiGLU --------------------------------------------------------------------- */

INLINE void gelu_forward_of(const weft_gelu_t *args, int64_t first, int64_t end, weft_dtype_t type)
{
    for (int64_t i = first; i < end; i += LANES) {
        store(args->out, i, end - i, gelu_lanes(load(args->in, i, end - i, type)), type);
    }
}
BY_TYPE(gelu_forward, weft_gelu_t)

INLINE void gelu_backward_of(const weft_gelu_t *args, int64_t first, int64_t end, weft_dtype_t type)
{
    for (int64_t i = first; i < end; i += LANES) {
        lanes_t slope = gelu_slope(load(args->in, i, end - i, type));
        store(args->din, i, end - i, load(args->dout, i, end - i, type) * slope, type);
    }
}
BY_TYPE(gelu_backward, weft_gelu_t)

INLINE void swiglu_forward_of(const weft_swiglu_t *args, int64_t first, int64_t end,
                              weft_dtype_t type)
{
    int64_t n = args->width;
    for (int64_t row = first; row < end; row++) {
        for (int64_t i = 0; i < n; i += LANES) {
            lanes_t gate = load(args->in, row * 2 * n + i, n - i, type);
            lanes_t up = load(args->in, row * 2 * n + n + i, n - i, type);
            store(args->out, row * n + i, n - i, gate * sigmoid_lanes(gate) * up, type);
        }
    }
}
BY_TYPE(swiglu_forward, weft_swiglu_t)

INLINE void swiglu_backward_of(const weft_swiglu_t *args, int64_t first, int64_t end,
                               weft_dtype_t type)
{
    int64_t n = args->width;
    for (int64_t row = first; row < end; row++) {
        for (int64_t i = 0; i < n; i += LANES) {
            lanes_t gate = load(args->in, row * 2 * n + i, n - i, type);
            lanes_t up = load(args->in, row * 2 * n + n + i, n - i, type);
            lanes_t dout = load(args->dout, row * n + i, n - i, type);
            lanes_t s = sigmoid_lanes(gate);
            lanes_t dgate = dout * up * s * (1.0f + gate * (1.0f - s));
            store(args->din, row * 2 * n + i, n - i, dgate, type);
            store(args->din, row * 2 * n + n + i, n - i, dout * gate * s, type);
        }
    }
}
BY_TYPE(swiglu_backward, weft_swiglu_t)

/* ---- dropout ----------------------------------------------------------------------------- */

/* Factors for `count` elements from index `index` on: 0, or 1 / (1 - rate). */
static void mask_factors(const weft_mask_t *mask, int64_t index, int64_t count, float *factors)
{
    const uint32_t key[2] = {(uint32_t)mask->key, (uint32_t)(mask->key >> 32)};
    const uint32_t limit = (uint32_t)((double)mask->rate * 4294967296.0);
    const float keep = 1.0f / (1.0f - mask->rate);
    for (int64_t i = 0; i < count;) {
        uint64_t at = (uint64_t)(index + i) / 4;
        const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), 0, 0};
        uint32_t words[4];
        weft__philox(counter, key, words);
        for (int lane = (int)((index + i) % 4); lane < 4 && i < count; lane++, i++) {
            factors[i] = words[lane] >= limit ? keep : 0.0f;
        }
    }
}

/* mask(branch) of one row at columns from `column` on, at most LANES of them. */
INLINE lanes_t masked(const weft_mask_t *mask, int64_t row, int64_t column, int64_t left, lanes_t x)
{
    float factors[LANES] = {0};
    lanes_t factor;
    if (mask->rate == 0.0f) {
        return x;
    }
    mask_factors(mask, (mask->row0 + row) * mask->width + mask->column0 + column,
                 left < LANES ? left : LANES, factors);
    memcpy(&factor, factors, sizeof(factor));
    return x * factor;
}

INLINE void dropout_of(const weft_dropout_t *args, int64_t first, int64_t end, weft_dtype_t type)
{
    int64_t n = args->width;
    for (int64_t row = first; row < end; row++) {
        for (int64_t i = 0; i < n; i += LANES) {
            lanes_t x = load(args->in, row * n + i, n - i, type);
            x = masked(&args->mask, row, i, n - i, x);
            if (args->residual != NULL) {
                x += load(args->residual, row * n + i, n - i, type);
            }
            store(args->out, row * n + i, n - i, x, type);
        }
    }
}
BY_TYPE(dropout, weft_dropout_t)

/* ---- casts ------------------------------------------------------------------------------- */

INLINE void cast_of(const weft_cast_t *args, int64_t first, int64_t end, weft_dtype_t in_type,
                    weft_dtype_t out_type)
{
    for (int64_t i = first; i < end; i += LANES) {
        store(args->out, i, end - i, load(args->in, i, end - i, in_type), out_type);
    }
}

INLINE void cast_from(const weft_cast_t *args, int64_t first, int64_t end, weft_dtype_t in_type)
{
    if (args->out_type == WEFT_F32) {
        cast_of(args, first, end, in_type, WEFT_F32);
    } else if (args->out_type == WEFT_BF16) {
        cast_of(args, first, end, in_type, WEFT_BF16);
    } else {
        cast_of(args, first, end, in_type, WEFT_F16);
    }
}

static void cast(const weft_cast_t *args, int64_t first, int64_t end)
{
    if (args->in_type == WEFT_F32) {
        cast_from(args, first, end, WEFT_F32);
    } else if (args->in_type == WEFT_BF16) {
        cast_from(args, first, end, WEFT_BF16);
    } else {
        cast_from(args, first, end, WEFT_F16);
    }
}

/* ---- AdamW ------------------------------------------------------------------------------- */

INLINE void adamw_of(const weft_adamw_t *args, int64_t first, int64_t end, weft_dtype_t type,
                     weft_dtype_t grad_type)
{
    const float scale = args->grad_scale != NULL ? *args->grad_scale : 1.0f;
    const double step = (double)args->step;
    const float correct1 = (float)(1.0 / (1.0 - pow((double)args->beta1, step)));
    const float correct2 = (float)(1.0 / (1.0 - pow((double)args->beta2, step)));
    const float b1 = args->beta1, b2 = args->beta2;
    float *w = args->master != NULL ? args->master : args->param;
    if (scale == 0.0f) {
        return;
    }
    for (int64_t i = first; i < end; i += LANES) {
        int64_t left = end - i;
        lanes_t g = load(args->grad, i, left, grad_type) * scale;
        lanes_t m = load(args->m, i, left, WEFT_F32) * b1 + g * (1.0f - b1);
        lanes_t v = load(args->v, i, left, WEFT_F32) * b2 + g * g * (1.0f - b2);
        lanes_t x = load(w, i, left, WEFT_F32);
        lanes_t move = m * correct1 / (sqrt_lanes(v * correct2) + args->eps);
        x -= args->lr * (move + args->decay * x);
        store(args->m, i, left, m, WEFT_F32);
        store(args->v, i, left, v, WEFT_F32);
        store(w, i, left, x, WEFT_F32);
        if (args->master != NULL) {
            store(args->param, i, left, x, type);
        }
    }
}

static void adamw(const weft_adamw_t *args, int64_t first, int64_t end)
{
    if (args->type == WEFT_F32 && args->grad_type == WEFT_F32) {
        adamw_of(args, first, end, WEFT_F32, WEFT_F32);
    } else if (args->type == WEFT_F32) {
        adamw_of(args, first, end, WEFT_F32, WEFT_BF16);
    } else if (args->type == WEFT_F16 && args->grad_type == WEFT_F32) {
        adamw_of(args, first, end, WEFT_F16, WEFT_F32);
    } else if (args->type == WEFT_F16) {
        adamw_of(args, first, end, WEFT_F16, WEFT_F16);
    } else if (args->grad_type == WEFT_F32) {
        adamw_of(args, first, end, WEFT_BF16, WEFT_F32);
    } else {
        adamw_of(args, first, end, WEFT_BF16, WEFT_BF16);
    }
}

/* ---- sums of squares --------------------------------------------------------------------- */

/* The order of the sum is that of the chunk alone, not of the vectors: eight sums, element i in
 * number i % 8, then those in order. So all tables give the same bits (squares of f32 are exact in
 * f64), and with them all plans. */
INLINE void sumsq_of(const weft_sumsq_t *args, int64_t first, int64_t end, weft_dtype_t type)
{
    for (int64_t chunk = first; chunk < end; chunk++) {
        int64_t from = chunk * WEFT_SUMSQ_CHUNK, to = from + WEFT_SUMSQ_CHUNK;
        double sums[8] = {0}, total = 0;
        to = to < args->count ? to : args->count;
        int64_t i = from;
        for (; i + 8 <= to; i += 8) {
            for (int j = 0; j < 8; j++) {
                double x = (double)load_one(args->in, i + j, type);
                sums[j] += x * x;
            }
        }
        for (int j = 0; i + j < to; j++) {
            double x = (double)load_one(args->in, i + j, type);
            sums[j] += x * x;
        }
        for (int j = 0; j < 8; j++) {
            total += sums[j];
        }
        args->partial[chunk] = total;
    }
}
BY_TYPE(sumsq, weft_sumsq_t)

#endif
