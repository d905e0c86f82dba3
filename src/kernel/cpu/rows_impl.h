/* Kernels that work row by row: norms, embeddings, RoPE, the classifier, sums of columns. */
#ifndef WEFT_KERNEL_CPU_ROWS_IMPL_H
#define WEFT_KERNEL_CPU_ROWS_IMPL_H

#include "kernel/cpu/elementwise_impl.h"

/* ---- norms ------------------------------------------------------------------------------- */

/* x = residual + mask(branch) of one row, if there is a branch; returns where x is. */
INLINE const void *norm_input(const weft_norm_t *args, int64_t row, weft_dtype_t type)
{
    int64_t n = args->width;
    if (args->branch == NULL) {
        return args->x;
    }
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_t x = load(args->branch, row * n + i, n - i, type);
        x = masked(&args->mask, row, i, n - i, x) + load(args->x, row * n + i, n - i, type);
        store(args->sum, row * n + i, n - i, x, type);
    }
    return args->sum;
}

/* Mean and variance about it (RMSNorm: 0 and mean square), in two passes over the cached row. */
INLINE float norm_statistics(const weft_norm_t *args, const void *x, int64_t row, weft_dtype_t type,
                             float *mean_p)
{
    int64_t n = args->width;
    lanes_t sum = {0}, squares = {0};
    float mean = 0;
    if (!args->rms) {
        for (int64_t i = 0; i < n; i += LANES) {
            sum += load(x, row * n + i, n - i, type);
        }
        mean = sum_lanes(sum) / (float)n;
    }
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_t d = load(x, row * n + i, n - i, type) - mean;
        d = n - i < LANES ? keep_left(d, n - i, 0.0f) : d;
        squares += d * d;
    }
    *mean_p = mean;
    return 1.0f / sqrtf(sum_lanes(squares) / (float)n + args->eps);
}

INLINE void norm_forward_of(const weft_norm_t *args, int64_t first, int64_t end, weft_dtype_t type)
{
    int64_t n = args->width;
    for (int64_t row = first; row < end; row++) {
        const void *x = norm_input(args, row, type);
        float mean, rstd = norm_statistics(args, x, row, type, &mean);
        for (int64_t i = 0; i < n; i += LANES) {
            lanes_t y = (load(x, row * n + i, n - i, type) - mean) * rstd;
            y *= load(args->weight, i, n - i, type);
            if (args->bias != NULL) {
                y += load(args->bias, i, n - i, type);
            }
            store(args->out, row * n + i, n - i, y, type);
        }
        args->rstd[row] = rstd;
        if (!args->rms) {
            args->mean[row] = mean;
        }
    }
}
BY_TYPE(norm_forward, weft_norm_t)

/* With y = (x - mean) rstd and g = dout weight: dx = rstd (g - mean(g) - y mean(g y)); RMSNorm has
 * no mean(g). */
INLINE void norm_backward_row(const weft_norm_t *args, int64_t row, weft_dtype_t type, float *dw,
                              float *db)
{
    int64_t n = args->width, at = row * n;
    float mean = args->rms ? 0.0f : args->mean[row], rstd = args->rstd[row];
    lanes_t sum_g = {0}, sum_gy = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_t y = (load(args->x, at + i, n - i, type) - mean) * rstd;
        lanes_t dout = load(args->dout, at + i, n - i, type);
        lanes_t g = dout * load(args->weight, i, n - i, type);
        sum_g += g;
        sum_gy += g * y;
        store(dw, i, n - i, load(dw, i, n - i, WEFT_F32) + dout * y, WEFT_F32);
        if (args->dbias != NULL) {
            store(db, i, n - i, load(db, i, n - i, WEFT_F32) + dout, WEFT_F32);
        }
    }
    float mean_g = args->rms ? 0.0f : sum_lanes(sum_g) / (float)n;
    float mean_gy = sum_lanes(sum_gy) / (float)n;
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_t y = (load(args->x, at + i, n - i, type) - mean) * rstd;
        lanes_t g = load(args->dout, at + i, n - i, type) * load(args->weight, i, n - i, type);
        lanes_t dx = rstd * (g - mean_g - y * mean_gy);
        if (args->dresidual != NULL) {
            dx += load(args->dresidual, at + i, n - i, type);
        }
        store(args->dx, at + i, n - i, dx, type);
    }
}

static void norm_backward(const weft_norm_t *args, int64_t first, int64_t end, float *partial)
{
    memset(partial, 0, 2 * (size_t)args->width * sizeof(*partial));
    for (int64_t row = first; row < end; row++) {
        if (args->type == WEFT_F32) {
            norm_backward_row(args, row, WEFT_F32, partial, partial + args->width);
        } else if (args->type == WEFT_BF16) {
            norm_backward_row(args, row, WEFT_BF16, partial, partial + args->width);
        } else {
            norm_backward_row(args, row, WEFT_F16, partial, partial + args->width);
        }
    }
}

/* ---- embedding --------------------------------------------------------------------------- */

INLINE void embed_forward_of(const weft_embed_t *args, int64_t first, int64_t end,
                             weft_dtype_t type)
{
    int64_t n = args->width;
    for (int64_t row = first; row < end; row++) {
        int64_t id = args->tokens[row] - args->vocab_first;
        int64_t position = weft__row_position(args->ragged, row, args->seq, args->position_first);
        bool here = id >= 0 && id < args->vocab_count;
        for (int64_t i = 0; i < n; i += LANES) {
            lanes_t x = here ? load(args->table, id * n + i, n - i, type) : splat(0);
            if (args->positions != NULL) {
                x += load(args->positions, position * n + i, n - i, type);
            }
            store(args->out, row * n + i, n - i, x, type);
        }
    }
}
BY_TYPE(embed_forward, weft_embed_t)

/* Each thread has some columns of all rows, so that rows with the same token are added in order and
 * by one thread. */
INLINE void embed_backward_of(const weft_embed_t *args, int64_t first, int64_t end,
                              weft_dtype_t type, weft_dtype_t grad_type)
{
    int64_t n = args->width, rows = args->batch * args->seq;
    for (int64_t row = 0; row < rows; row++) {
        int64_t id = args->tokens[row] - args->vocab_first;
        int64_t position = args->position_first + row % args->seq;
        bool here = id >= 0 && id < args->vocab_count;
        for (int64_t i = first; i < end; i += LANES) {
            lanes_t g = load(args->dout, row * n + i, end - i, type);
            if (here) {
                lanes_t sum = load(args->dtable, id * n + i, end - i, grad_type) + g;
                store(args->dtable, id * n + i, end - i, sum, grad_type);
            }
            if (args->dpositions != NULL) {
                lanes_t sum = load(args->dpositions, position * n + i, end - i, grad_type) + g;
                store(args->dpositions, position * n + i, end - i, sum, grad_type);
            }
        }
    }
}

static void embed_backward(const weft_embed_t *args, int64_t first, int64_t end)
{
    if (args->type == WEFT_F32) {
        embed_backward_of(args, first, end, WEFT_F32, WEFT_F32);
    } else if (args->type == WEFT_F16 && args->grad_type == WEFT_F32) {
        embed_backward_of(args, first, end, WEFT_F16, WEFT_F32);
    } else if (args->type == WEFT_F16) {
        embed_backward_of(args, first, end, WEFT_F16, WEFT_F16);
    } else if (args->grad_type == WEFT_F32) {
        embed_backward_of(args, first, end, WEFT_BF16, WEFT_F32);
    } else {
        embed_backward_of(args, first, end, WEFT_BF16, WEFT_BF16);
    }
}

/* ---- RoPE -------------------------------------------------------------------------------- */

INLINE void rope_row(const weft_rope_t *args, const float *cosines, int64_t row, weft_dtype_t type)
{
    int64_t d = args->head_dim, half = d / 2;
    int64_t at = row * (args->heads + 2 * args->kv_heads) * d;
    const float *sines = cosines + half;
    for (int head = 0; head < args->heads + args->kv_heads; head++, at += d) {
        for (int64_t i = 0; i < half; i += LANES) {
            lanes_t c = load(cosines, i, half - i, WEFT_F32);
            lanes_t s = load(sines, i, half - i, WEFT_F32);
            lanes_t a = load(args->qkv, at + i, half - i, type);
            lanes_t b = load(args->qkv, at + half + i, half - i, type);
            s = args->inverse ? -s : s;
            store(args->qkv, at + i, half - i, a * c - b * s, type);
            store(args->qkv, at + half + i, half - i, b * c + a * s, type);
        }
    }
}

static void rope(const weft_rope_t *args, const float *table, int64_t first, int64_t end)
{
    for (int64_t row = first; row < end; row++) {
        const float *cosines = table + row % args->seq * args->head_dim;
        if (args->type == WEFT_F32) {
            rope_row(args, cosines, row, WEFT_F32);
        } else if (args->type == WEFT_BF16) {
            rope_row(args, cosines, row, WEFT_BF16);
        } else {
            rope_row(args, cosines, row, WEFT_F16);
        }
    }
}

/* ---- classifier -------------------------------------------------------------------------- */

INLINE float row_max(const void *row, int64_t n, weft_dtype_t type)
{
    lanes_t max = splat(-INFINITY);
    for (int64_t i = 0; i < n; i += LANES) {
        max = max_lanes(max, keep_left(load(row, i, n - i, type), n - i, -INFINITY));
    }
    return max_of_lanes(max);
}

/* Sum of exp(x - shift). */
INLINE float row_exp_sum(const void *row, int64_t n, float shift, weft_dtype_t type)
{
    lanes_t sum = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_t e = exp_lanes(load(row, i, n - i, type) - shift);
        sum += n - i < LANES ? keep_left(e, n - i, 0.0f) : e;
    }
    return sum_lanes(sum);
}

/* logits = (exp(logits - lse) - [target]) scale, and 0 in the padding. */
INLINE void row_gradient(const weft_classify_t *args, void *row, int64_t target, float lse,
                         float scale, weft_dtype_t type)
{
    int64_t n = args->vocab;
    float here = 0;
    if (target >= 0 && target < n) {
        here = load_one(row, target, type);
    }
    for (int64_t i = 0; i < n; i += LANES) {
        lanes_t e = scale == 0.0f ? splat(0) : exp_lanes(load(row, i, n - i, type) - lse) * scale;
        store(row, i, n - i, e, type);
    }
    if (target >= 0 && target < n) {
        lanes_t e = (exp_lanes(splat(here) - lse) - 1.0f) * scale;
        store(row, target, 1, e, type);
    }
    memset(element(row, n, type), 0, (size_t)(args->ld - n) * (type == WEFT_F32 ? 4 : 2));
}

INLINE void classify_of(const weft_classify_t *args, int64_t first, int64_t end, weft_dtype_t type)
{
    for (int64_t r = first; r < end; r++) {
        void *row = element(args->logits, r * args->ld, type);
        int64_t target = args->targets[r];
        float max = row_max(row, args->vocab, type);
        float lse = max + logf(row_exp_sum(row, args->vocab, max, type));
        args->losses[r] = target >= 0 ? lse - load_one(row, target, type) : 0.0f;
        if (args->scale != 0.0f) {
            row_gradient(args, row, target, lse, target >= 0 ? args->scale : 0.0f, type);
        }
    }
}
BY_TYPE(classify, weft_classify_t)

INLINE void classify_stats_of(const weft_classify_t *args, int64_t first, int64_t end,
                              weft_dtype_t type)
{
    for (int64_t r = first; r < end; r++) {
        const void *row = element(args->logits, r * args->ld, type);
        int64_t target = args->targets[r] - args->vocab_first;
        float *stats = args->stats + 3 * r;
        stats[0] = row_max(row, args->vocab, type);
        stats[1] = row_exp_sum(row, args->vocab, stats[0], type);
        stats[2] = target >= 0 && target < args->vocab ? load_one(row, target, type) : 0.0f;
    }
}
BY_TYPE(classify_stats, weft_classify_t)

INLINE void classify_finish_of(const weft_classify_t *args, int64_t first, int64_t end,
                               weft_dtype_t type)
{
    for (int64_t r = first; r < end; r++) {
        void *row = element(args->logits, r * args->ld, type);
        float scale = args->targets[r] >= 0 ? args->scale : 0.0f;
        row_gradient(args, row, args->targets[r] - args->vocab_first, args->lse[r], scale, type);
    }
}
BY_TYPE(classify_finish, weft_classify_t)

/* ---- sums of columns --------------------------------------------------------------------- */

INLINE void column_sums_of(const void *in, int64_t ld, int64_t row, int64_t row_end, int64_t first,
                           int64_t end, float *sums, weft_dtype_t type)
{
    for (int64_t c = first; c < end; c += 4 * LANES) {
        lanes_t sum[4] = {{0}};
        for (int64_t r = row; r < row_end; r++) {
            for (int v = 0; v < 4 && c + v * LANES < end; v++) {
                sum[v] += load(in, r * ld + c + v * LANES, end - c - v * LANES, type);
            }
        }
        for (int v = 0; v < 4 && c + v * LANES < end; v++) {
            store(sums, c - first + v * LANES, end - c - v * LANES, sum[v], WEFT_F32);
        }
    }
}

static void column_sums(const void *in, int64_t ld, weft_dtype_t type, int64_t row, int64_t row_end,
                        int64_t first, int64_t end, float *sums)
{
    if (type == WEFT_F32) {
        column_sums_of(in, ld, row, row_end, first, end, sums, WEFT_F32);
    } else if (type == WEFT_BF16) {
        column_sums_of(in, ld, row, row_end, first, end, sums, WEFT_BF16);
    } else {
        column_sums_of(in, ld, row, row_end, first, end, sums, WEFT_F16);
    }
}

static void add_partials(const float *partial, int64_t parts, int64_t stride, void *out,
                         weft_dtype_t type, int64_t count)
{
    for (int64_t i = 0; i < count; i += LANES) {
        lanes_t sum = load(partial, i, count - i, WEFT_F32);
        for (int64_t p = 1; p < parts; p++) {
            sum += load(partial, p * stride + i, count - i, WEFT_F32);
        }
        store(out, i, count - i, load(out, i, count - i, type) + sum, type);
    }
}

#endif
