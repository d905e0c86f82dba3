/* Backward of attention_impl.h: the probabilities of a tile are computed again from the scores and
 * the saved logarithm of their sum. With P the probabilities, M the dropout factors:
 *
 *   dV = (P M)^T dO      dP = (dO V^T) M      dS = P (dP - rowsum(dO O))      dQ = dS K      dK =
 *                                                                                            dS^T Q
 *
 * where K's gradient and Q's both carry the scale of the scores. One thread has a key/value head
 * and all query heads that use it, so that dK and dV have one writer and one order of sums. */
#ifndef WEFT_KERNEL_CPU_ATTENTION_BACKWARD_IMPL_H
#define WEFT_KERNEL_CPU_ATTENTION_BACKWARD_IMPL_H

#include "kernel/cpu/attention_impl.h"

typedef struct backward_group {
    const weft_attention_t *args;
    head_place_t place; /* of the query head at hand */
    float *q;           /* T x D, scaled */
    float *k, *kt, *vt; /* T x D, D x T, D x T */
    float *dk, *dv;     /* T x D */
    float *p, *dp;      /* QUERIES x KEYS */
    float *dout, *dq;   /* QUERIES x D */
    float *delta;       /* QUERIES: rowsum(dO O) */
    float *factors;     /* KEYS */
    int64_t ld_t;       /* of kt and vt */
} backward_group_t;

/* One row of a tile: scores and dO V^T become P M and dS. */
INLINE void backward_row(const backward_group_t *f, int64_t query, int64_t r, int64_t key,
                         int64_t keys)
{
    const weft_attention_t *a = f->args;
    float *p = f->p + r * KEYS, *dp = f->dp + r * KEYS;
    float lse = a->lse[(f->place.b * a->heads + f->place.h) * a->seq + query + r];
    int64_t valid = query + r - key + 1;
    bool dropped = a->mask.rate > 0.0f;
    valid = valid < keys ? valid : keys;
    if (dropped) {
        probability_mask(a, &f->place, query + r, key, valid, f->factors);
    }
    for (int64_t i = 0; i < valid; i += LANES) {
        int64_t left = valid - i;
        lanes_t prob = exp_lanes(load(p, i, left, WEFT_F32) - lse);
        lanes_t factor = dropped ? load(f->factors, i, left, WEFT_F32) : splat(1);
        lanes_t ds = prob * (load(dp, i, left, WEFT_F32) * factor - f->delta[r]);
        store(p, i, left, prob * factor, WEFT_F32);
        store(dp, i, left, ds, WEFT_F32);
    }
    memset(p + valid, 0, (size_t)(keys - valid) * sizeof(*p));
    memset(dp + valid, 0, (size_t)(keys - valid) * sizeof(*dp));
}

static void backward_tile(const backward_group_t *f, int64_t query, int64_t queries, int64_t key)
{
    int64_t d = f->args->head_dim;
    int64_t keys = query + queries - key < KEYS ? query + queries - key : KEYS;
    const float *q = f->q + query * d;
    tile(&(weft_tile_t){queries, keys, d, q, d, 1, f->kt + key, f->ld_t, f->p, KEYS, false, NULL,
                        0});
    tile(&(weft_tile_t){queries, keys, d, f->dout, d, 1, f->vt + key, f->ld_t, f->dp, KEYS, false,
                        NULL, 0});
    for (int64_t r = 0; r < queries; r++) {
        backward_row(f, query, r, key, keys);
    }
    tile(&(weft_tile_t){keys, d, queries, f->p, 1, KEYS, f->dout, d, f->dv + key * d, d, true, NULL,
                        0});
    tile(&(weft_tile_t){keys, d, queries, f->dp, 1, KEYS, q, d, f->dk + key * d, d, true, NULL, 0});
    tile(&(weft_tile_t){queries, d, keys, f->dp, KEYS, 1, f->k + key * d, d, f->dq, d, key > 0,
                        NULL, 0});
}

/* dO of some rows into scratch, and delta. */
static void backward_load(const backward_group_t *f, int64_t query, int64_t queries)
{
    const weft_attention_t *a = f->args;
    int64_t d = a->head_dim, stride = a->heads * d;
    int64_t at = f->place.out_at + query * stride;
    head_source_t dout = {element(a->dout, at, a->type), a->type, stride, queries, d};
    take_rows(&dout, 1.0f, f->dout);
    for (int64_t r = 0; r < queries; r++) {
        int64_t row = at + r * stride;
        f->delta[r] = a->type == WEFT_F32    ? dot(a->dout, row, a->out, row, d, WEFT_F32)
                      : a->type == WEFT_BF16 ? dot(a->dout, row, a->out, row, d, WEFT_BF16)
                                             : dot(a->dout, row, a->out, row, d, WEFT_F16);
    }
}

static void backward_head(const backward_group_t *f)
{
    const weft_attention_t *a = f->args;
    int64_t t = a->seq, d = a->head_dim;
    head_source_t q = source_of(a, &f->place, f->place.q_at);
    take_rows(&q, a->scale, f->q);
    for (int64_t query = 0; query < t; query += QUERIES) {
        int64_t queries = t - query < QUERIES ? t - query : QUERIES;
        backward_load(f, query, queries);
        for (int64_t key = 0; key < query + queries; key += KEYS) {
            backward_tile(f, query, queries, key);
        }
        for (int64_t r = 0; r < queries; r++) {
            put_row(a->dqkv, f->place.q_at + (query + r) * f->place.stride, f->dq + r * d, d,
                    a->scale, a->type);
        }
    }
}

static void attention_backward(const weft_attention_t *a, int64_t group, void *scratch)
{
    float *space = scratch;
    int64_t t = a->seq, d = a->head_dim, b = group / a->kv_heads;
    int share = a->heads / a->kv_heads, first = (int)(group % a->kv_heads) * share;
    backward_group_t f = {.args = a,
                          .place = place_head(a, b, first),
                          .q = cut(&space, t * d),
                          .k = cut(&space, t * d),
                          .kt = cut(&space, ld_of(t) * d),
                          .vt = cut(&space, ld_of(t) * d),
                          .dk = cut(&space, t * d),
                          .dv = cut(&space, t * d),
                          .p = cut(&space, QUERIES * KEYS),
                          .dp = cut(&space, QUERIES * KEYS),
                          .dout = cut(&space, QUERIES * d),
                          .dq = cut(&space, QUERIES * d),
                          .delta = cut(&space, QUERIES),
                          .factors = cut(&space, KEYS),
                          .ld_t = ld_of(t)};
    head_source_t k = source_of(a, &f.place, f.place.k_at);
    head_source_t v = source_of(a, &f.place, f.place.v_at);
    take_rows(&v, 1.0f, f.k); /* only for a moment */
    transpose(f.k, d, t, d, f.vt, f.ld_t);
    take_rows(&k, 1.0f, f.k);
    transpose(f.k, d, t, d, f.kt, f.ld_t);
    memset(f.dk, 0, (size_t)(t * d) * sizeof(float));
    memset(f.dv, 0, (size_t)(t * d) * sizeof(float));
    for (int h = first; h < first + share; h++) {
        f.place = place_head(a, b, h);
        backward_head(&f);
    }
    for (int64_t i = 0; i < t; i++) {
        put_row(a->dqkv, f.place.k_at + i * f.place.stride, f.dk + i * d, d, 1.0f, a->type);
        put_row(a->dqkv, f.place.v_at + i * f.place.stride, f.dv + i * d, d, 1.0f, a->type);
    }
}

#endif
