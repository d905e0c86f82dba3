/* Causal attention, one head at a time, in tiles of QUERIES x KEYS scores (Dao et al.: the softmax
 * is kept as a running maximum and sum, and rescaled when the maximum moves). Everything is f32 in
 * the thread's scratch; keys and values are also kept transposed where a product runs along D. */
#ifndef WEFT_KERNEL_CPU_ATTENTION_IMPL_H
#define WEFT_KERNEL_CPU_ATTENTION_IMPL_H

#include "kernel/cpu/elementwise_impl.h"
#include "kernel/cpu/tile_impl.h"

enum { QUERIES = 64, KEYS = 128, AHEAD_TOKENS = 8 };

/* ---- bringing a head into scratch -------------------------------------------------------- */

typedef struct head_source {
    const void *base;
    weft_dtype_t type;
    int64_t stride; /* elements from token to token */
    int64_t tokens, width;
} head_source_t;

/* Ask for a head of one token: it is a few lines in a page of its own, so nothing else would. */
INLINE void ask_for_row(const head_source_t *from, int64_t t)
{
    const char *row = element(from->base, t * from->stride, from->type);
    for (int64_t d = 0; d < from->width; d += from->type == WEFT_F32 ? 16 : 32) {
        __builtin_prefetch(row + d * (from->type == WEFT_F32 ? 4 : 2));
    }
}

/* to[t][d] = from[t][d] x scale */
INLINE void take_rows(const head_source_t *from, float scale, float *to)
{
    for (int64_t t = 0; t < from->tokens; t++) {
        if (t + AHEAD_TOKENS < from->tokens) {
            ask_for_row(from, t + AHEAD_TOKENS);
        }
        for (int64_t d = 0; d < from->width; d += LANES) {
            int64_t at = t * from->stride + d, left = from->width - d;
            lanes_t x = from->type == WEFT_F32    ? load(from->base, at, left, WEFT_F32)
                        : from->type == WEFT_BF16 ? load(from->base, at, left, WEFT_BF16)
                                                  : load(from->base, at, left, WEFT_F16);
            store(to, t * from->width + d, from->width - d, x * scale, WEFT_F32);
        }
    }
}

/* to[t][d] in another tensor's row, from scratch. */
INLINE void put_row(void *to, int64_t at, const float *from, int64_t width, float scale,
                    weft_dtype_t type)
{
    for (int64_t d = 0; d < width; d += LANES) {
        lanes_t x = load(from, d, width - d, WEFT_F32) * scale;
        if (type == WEFT_F32) {
            store(to, at + d, width - d, x, WEFT_F32);
        } else if (type == WEFT_BF16) {
            store(to, at + d, width - d, x, WEFT_BF16);
        } else {
            store(to, at + d, width - d, x, WEFT_F16);
        }
    }
}

/* ---- what forward and backward share ------------------------------------------------------ */

typedef struct head_place {
    int64_t b;
    int h, g;                 /* query head, key/value head */
    int64_t stride;           /* of qkv */
    int64_t q_at, k_at, v_at; /* of token 0, in elements of qkv */
    int64_t out_at;           /* of token 0 in out */
} head_place_t;

static head_place_t place_head(const weft_attention_t *a, int64_t b, int h)
{
    int64_t d = a->head_dim, stride = (a->heads + 2 * a->kv_heads) * d;
    int g = h / (a->heads / a->kv_heads);
    int64_t base = b * a->seq * stride;
    return (head_place_t){.b = b,
                          .h = h,
                          .g = g,
                          .stride = stride,
                          .q_at = base + h * d,
                          .k_at = base + (a->heads + g) * d,
                          .v_at = base + (a->heads + a->kv_heads + g) * d,
                          .out_at = (b * a->seq * a->heads + h) * d};
}

static head_source_t source_of(const weft_attention_t *a, const head_place_t *place, int64_t at)
{
    return (head_source_t){element(a->qkv, at, a->type), a->type, place->stride, a->seq,
                           a->head_dim};
}

/* Dropout factors of the probabilities of query t for keys [key, key + count). */
static void probability_mask(const weft_attention_t *a, const head_place_t *place, int64_t t,
                             int64_t key, int64_t count, float *factors)
{
    int64_t head = (a->mask.row0 + place->b) * a->mask.width + a->mask.column0 + place->h;
    mask_factors(&a->mask, (head * a->seq + t) * a->seq + key, count, factors);
}

static int64_t padded(int64_t count)
{
    return (count + 15) / 16 * 16;
}

/* The stride of what is transposed: an odd number of vectors, or else the rows that one product
 * reads at a time would compete for a few sets of the first-level cache. */
static int64_t ld_of(int64_t count)
{
    return padded(count) | 16;
}

static size_t attention_scratch(const weft_attention_t *a, bool backward)
{
    int64_t t = ld_of(a->seq), d = padded(a->head_dim);
    int64_t floats = backward ? 7 * t * d + 2 * QUERIES * KEYS + 2 * QUERIES * d
                              : 3 * t * d + QUERIES * KEYS + QUERIES * d;
    return (size_t)(floats + 4 * QUERIES + KEYS) * sizeof(float);
}

/* Cut `count` floats off scratch, in whole vectors. */
static float *cut(float **scratch, int64_t count)
{
    float *from = *scratch;
    *scratch += padded(count);
    return from;
}

/* ---- forward ----------------------------------------------------------------------------- */

typedef struct softmax_row {
    float max, sum;
} softmax_row_t;

/* One row of scores becomes probabilities under the running maximum; returns what the row's earlier
 * sums are to be multiplied with. Only the first `valid` of `count` keys are seen. */
INLINE float softmax_step(softmax_row_t *row, float *s, int64_t valid, int64_t count)
{
    lanes_t max = splat(row->max), sum = {0};
    for (int64_t i = 0; i < valid; i += LANES) {
        lanes_t x = load(s, i, valid - i, WEFT_F32);
        max = max_lanes(max, valid - i < LANES ? keep_left(x, valid - i, -INFINITY) : x);
    }
    float new_max = max_of_lanes(max);
    for (int64_t i = 0; i < valid; i += LANES) {
        lanes_t p = exp_lanes(load(s, i, valid - i, WEFT_F32) - new_max);
        sum += valid - i < LANES ? keep_left(p, valid - i, 0.0f) : p;
        store(s, i, valid - i, p, WEFT_F32);
    }
    memset(s + valid, 0, (size_t)(count - valid) * sizeof(*s));
    float shrink = row->max == -INFINITY ? 0.0f : expf(row->max - new_max);
    row->sum = row->sum * shrink + sum_lanes(sum);
    row->max = new_max;
    return shrink;
}

typedef struct forward_head {
    const weft_attention_t *args;
    head_place_t place;
    float *q, *kt, *v; /* T x D, D x T, T x D */
    float *s;          /* QUERIES x KEYS */
    float *o;          /* QUERIES x D */
    float *factors;    /* KEYS */
    int64_t ld_t;      /* of kt */
} forward_head_t;

/* Softmax over one tile of scores, rescaling o where the maximum moved. */
static void forward_rows(const forward_head_t *f, softmax_row_t *rows, int64_t query,
                         int64_t queries, int64_t key, int64_t keys)
{
    int64_t d = f->args->head_dim;
    for (int64_t r = 0; r < queries; r++) {
        float *s = f->s + r * KEYS;
        int64_t valid = query + r - key + 1;
        valid = valid < keys ? valid : keys;
        float shrink = softmax_step(&rows[r], s, valid, keys);
        if (shrink != 1.0f && key > 0) {
            for (int64_t i = 0; i < d; i += LANES) {
                lanes_t o = load(f->o, r * d + i, d - i, WEFT_F32) * shrink;
                store(f->o, r * d + i, d - i, o, WEFT_F32);
            }
        }
        if (f->args->mask.rate > 0.0f) {
            probability_mask(f->args, &f->place, query + r, key, valid, f->factors);
            for (int64_t i = 0; i < valid; i++) {
                s[i] *= f->factors[i];
            }
        }
    }
}

static void forward_block(const forward_head_t *f, int64_t query, int64_t queries)
{
    const weft_attention_t *a = f->args;
    int64_t d = a->head_dim;
    softmax_row_t rows[QUERIES];
    for (int64_t r = 0; r < queries; r++) {
        rows[r] = (softmax_row_t){-INFINITY, 0};
    }
    for (int64_t key = 0; key < query + queries; key += KEYS) {
        int64_t keys = query + queries - key < KEYS ? query + queries - key : KEYS;
        tile(&(weft_tile_t){queries, keys, d, f->q + query * d, d, 1, f->kt + key, f->ld_t, f->s,
                            KEYS, false, NULL, 0});
        forward_rows(f, rows, query, queries, key, keys);
        tile(&(weft_tile_t){queries, d, keys, f->s, KEYS, 1, f->v + key * d, d, f->o, d, key > 0,
                            NULL, 0});
    }
    for (int64_t r = 0; r < queries; r++) {
        int64_t t = query + r;
        put_row(a->out, f->place.out_at + t * a->heads * d, f->o + r * d, d, 1.0f / rows[r].sum,
                a->type);
        a->lse[(f->place.b * a->heads + f->place.h) * a->seq + t] = rows[r].max + logf(rows[r].sum);
    }
}

static void attention_forward(const weft_attention_t *a, int64_t head, void *scratch)
{
    float *space = scratch;
    int64_t t = a->seq, d = a->head_dim;
    forward_head_t f = {.args = a,
                        .place = place_head(a, head / a->heads, (int)(head % a->heads)),
                        .q = cut(&space, t * d),
                        .v = cut(&space, t * d),
                        .kt = cut(&space, ld_of(t) * d),
                        .s = cut(&space, QUERIES * KEYS),
                        .o = cut(&space, QUERIES * d),
                        .factors = cut(&space, KEYS),
                        .ld_t = ld_of(t)};
    head_source_t q = source_of(a, &f.place, f.place.q_at);
    head_source_t k = source_of(a, &f.place, f.place.k_at);
    head_source_t v = source_of(a, &f.place, f.place.v_at);
    take_rows(&k, 1.0f, f.q); /* q's place is free until it is taken itself */
    transpose(f.q, d, t, d, f.kt, f.ld_t);
    take_rows(&q, a->scale, f.q);
    take_rows(&v, 1.0f, f.v);
    for (int64_t query = 0; query < t; query += QUERIES) {
        forward_block(&f, query, t - query < QUERIES ? t - query : QUERIES);
    }
}

/* ---- decoding: few queries against a cache ------------------------------------------------ */

/* Sequence `number` of the batch, dense or not. */
static weft_sequence_t decode_sequence(const weft_decode_t *a, int64_t number)
{
    return a->ragged != NULL ? a->ragged->list[number]
                             : (weft_sequence_t){number * a->seq, a->seq, a->past, number};
}

static void decode_append(const weft_decode_t *a, int64_t row)
{
    int64_t d = a->head_dim, size = a->type == WEFT_F32 ? 4 : 2, kv = a->kv_heads * d;
    int64_t position = weft__row_position(a->ragged, row, a->seq, a->past);
    int64_t slot = a->ragged != NULL ? weft__sequence_of(a->ragged, row)->slot : row / a->seq;
    const char *keys = (const char *)a->qkv + (row * (a->heads * d + 2 * kv) + a->heads * d) * size;
    int64_t at = (slot * a->capacity + position) * kv * size;
    memcpy((char *)a->keys + at, keys, (size_t)(kv * size));
    memcpy((char *)a->values + at, keys + kv * size, (size_t)(kv * size));
}

INLINE float dot(const void *a, int64_t a_at, const void *b, int64_t b_at, int64_t n,
                 weft_dtype_t type)
{
    lanes_t sum = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        sum += load(a, a_at + i, n - i, type) * load(b, b_at + i, n - i, type);
    }
    return sum_lanes(sum);
}

INLINE void decode_query(const weft_decode_t *a, const weft_sequence_t *sequence, int64_t t, int h,
                         float *s, weft_dtype_t type)
{
    int64_t d = a->head_dim, kv = a->kv_heads * d, count = sequence->position + t + 1;
    int64_t g = h / (a->heads / a->kv_heads), token = sequence->row + t;
    int64_t q_at = token * (a->heads * d + 2 * kv) + h * d;
    int64_t cache_at = sequence->slot * a->capacity * kv + g * d;
    float *o = s + padded(count);
    for (int64_t p = 0; p < count; p++) {
        s[p] = a->scale * dot(a->qkv, q_at, a->keys, cache_at + p * kv, d, type);
    }
    softmax_row_t row = {-INFINITY, 0};
    softmax_step(&row, s, count, count);
    memset(o, 0, (size_t)d * sizeof(*o));
    for (int64_t p = 0; p < count; p++) {
        for (int64_t i = 0; i < d; i += LANES) {
            lanes_t sum = load(o, i, d - i, WEFT_F32);
            sum += s[p] * load(a->values, cache_at + p * kv + i, d - i, type);
            store(o, i, d - i, sum, WEFT_F32);
        }
    }
    put_row(a->out, (token * a->heads + h) * d, o, d, 1.0f / row.sum, type);
}

static void decode(const weft_decode_t *a, int64_t head, void *scratch)
{
    weft_sequence_t sequence = decode_sequence(a, head / a->heads);
    int h = (int)(head % a->heads);
    for (int64_t t = 0; t < sequence.length; t++) {
        if (a->type == WEFT_F32) {
            decode_query(a, &sequence, t, h, scratch, WEFT_F32);
        } else if (a->type == WEFT_BF16) {
            decode_query(a, &sequence, t, h, scratch, WEFT_BF16);
        } else {
            decode_query(a, &sequence, t, h, scratch, WEFT_F16);
        }
    }
}

#endif
