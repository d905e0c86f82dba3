/* ctest: timeout=120 */
/* Attention: forward against a plain reference in double, backward against its derivatives by
 * finite differences, and generation with a cache against the whole sequence at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/numbers.h"

typedef struct attention_case {
    int64_t batch, seq;
    int heads, kv_heads, head_dim;
    weft_mask_t mask;
    double *qkv, *dout;
    double *out, *lse, *p; /* p: seq */
} attention_case_t;

/* 0, or 1 / (1 - rate), as compute.h defines it. */
static double keep(const attention_case_t *c, int64_t b, int h, int64_t t, int64_t key)
{
    const weft_mask_t *mask = &c->mask;
    if (mask->rate == 0) {
        return 1;
    }
    int64_t row = ((mask->row0 + b) * mask->width + mask->column0 + h) * c->seq + t;
    uint64_t index = (uint64_t)(row * c->seq + key), at = index / 4;
    const uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), 0, 0};
    const uint32_t keys[2] = {(uint32_t)mask->key, (uint32_t)(mask->key >> 32)};
    uint32_t words[4];
    weft__philox(counter, keys, words);
    return words[index % 4] >= (double)mask->rate * 4294967296.0 ? 1 / (1 - (double)mask->rate) : 0;
}

static void reference_query(attention_case_t *c, int64_t b, int h, int64_t t)
{
    int d = c->head_dim, g = h / (c->heads / c->kv_heads);
    int64_t stride = (c->heads + 2 * c->kv_heads) * d;
    const double *base = c->qkv + b * c->seq * stride, *q = base + t * stride + h * d;
    double *out = c->out + ((b * c->seq + t) * c->heads + h) * d, sum = 0;
    memset(out, 0, (size_t)d * sizeof(*out));
    for (int64_t key = 0; key <= t; key++) {
        const double *k = base + key * stride + (c->heads + g) * d;
        c->p[key] = exp(numbers_dot(q, k, d) / sqrt(d));
        sum += c->p[key];
    }
    for (int64_t key = 0; key <= t; key++) {
        const double *v = base + key * stride + (c->heads + c->kv_heads + g) * d;
        double p = c->p[key] / sum * keep(c, b, h, t, key);
        for (int i = 0; i < d; i++) {
            out[i] += p * v[i];
        }
    }
    c->lse[(b * c->heads + h) * c->seq + t] = log(sum);
}

static double reference(void *arg)
{
    attention_case_t *c = arg;
    for (int64_t b = 0; b < c->batch; b++) {
        for (int h = 0; h < c->heads; h++) {
            for (int64_t t = 0; t < c->seq; t++) {
                reference_query(c, b, h, t);
            }
        }
    }
    return numbers_dot(c->out, c->dout, c->batch * c->seq * c->heads * c->head_dim);
}

/* The same derivatives by their formulas, for sizes that are too large for differences. */
static void reference_slopes(attention_case_t *c, double *dqkv)
{
    int d = c->head_dim, share = c->heads / c->kv_heads;
    int64_t stride = (c->heads + 2 * c->kv_heads) * d;
    double scale = 1 / sqrt(d);
    memset(dqkv, 0, (size_t)(c->batch * c->seq * stride) * sizeof(*dqkv));
    for (int64_t at = 0; at < c->batch * c->heads * c->seq; at++) {
        int64_t t = at % c->seq, b = at / c->seq / c->heads;
        int h = (int)(at / c->seq % c->heads), g = h / share;
        int64_t base = b * c->seq * stride, q = base + t * stride + h * d;
        int64_t out = ((b * c->seq + t) * c->heads + h) * d;
        double delta = numbers_dot(c->out + out, c->dout + out, d);
        for (int64_t key = 0; key <= t; key++) {
            int64_t k = base + key * stride + (c->heads + g) * d, v = k + c->kv_heads * d;
            double p = exp(numbers_dot(c->qkv + q, c->qkv + k, d) * scale - c->lse[at]);
            double m = keep(c, b, h, t, key);
            double ds = p * (numbers_dot(c->dout + out, c->qkv + v, d) * m - delta) * scale;
            for (int i = 0; i < d; i++) {
                dqkv[q + i] += ds * c->qkv[k + i];
                dqkv[k + i] += ds * c->qkv[q + i];
                dqkv[v + i] += p * m * c->dout[out + i];
            }
        }
    }
}

/* With dropout, unless the key is 0. */
static attention_case_t sizes(int64_t batch, int64_t seq, int heads, int kv_heads, int head_dim,
                              uint64_t key)
{
    attention_case_t c = {
        .batch = batch, .seq = seq, .heads = heads, .kv_heads = kv_heads, .head_dim = head_dim};
    if (key != 0) {
        c.mask = (weft_mask_t){.rate = 0.3f, .key = key, .row0 = 5, .column0 = 2, .width = 9};
    }
    return c;
}

static void check_attention(uint64_t seed, weft_dtype_t type, attention_case_t c, bool differences)
{
    const weft_compute_t *table = numbers_table();
    int64_t stride = (c.heads + 2 * c.kv_heads) * c.head_dim, rows = c.batch * c.seq;
    int64_t count = rows * stride, outs = rows * c.heads * c.head_dim;
    numbers_t qkv = numbers_random(seed, "qkv", count, type, 1.5);
    numbers_t dout = numbers_random(seed, "dout", outs, type, 1);
    numbers_t out = numbers_garbage(outs, type), dqkv = numbers_garbage(count, type);
    numbers_t lse = numbers_garbage(rows * c.heads, WEFT_F32);
    double *slope = malloc((size_t)count * sizeof(*slope));
    c.qkv = qkv.values;
    c.dout = dout.values;
    c.out = malloc((size_t)outs * sizeof(double));
    c.lse = malloc((size_t)(rows * c.heads) * sizeof(double));
    c.p = malloc((size_t)c.seq * sizeof(double));
    weft_attention_t args = {.type = type,
                             .batch = c.batch,
                             .seq = c.seq,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .head_dim = c.head_dim,
                             .scale = 1.0f / sqrtf((float)c.head_dim),
                             .qkv = qkv.data,
                             .out = out.data,
                             .lse = lse.data,
                             .mask = c.mask,
                             .dout = dout.data,
                             .dqkv = dqkv.data};
    args.work = malloc(table->attention_work(&args) + 1);
    numbers_ok(table->attention_forward(&args, NULL));
    numbers_ok(table->attention_backward(&args, NULL));
    reference(&c);
    numbers_check("attention", &out, c.out, 1e-5);
    numbers_check("attention's lse", &lse, c.lse, 1e-5);
    reference_slopes(&c, slope);
    numbers_check("attention's gradient", &dqkv, slope, 2e-5);
    if (differences) {
        numbers_slope(reference, &c, c.qkv, count, slope);
        numbers_check("attention's slope", &dqkv, slope, 2e-5);
    }
    free(args.work);
    free(slope);
    free(c.out);
    free(c.lse);
    free(c.p);
    numbers_t *all[] = {&qkv, &dout, &out, &dqkv, &lse};
    for (int i = 0; i < 5; i++) {
        numbers_free(all[i]);
    }
}

static void small_ones(uint64_t seed, weft_dtype_t type)
{
    check_attention(seed, type, sizes(2, 7, 2, 2, 5, 0), true);
    check_attention(seed, type, sizes(1, 6, 4, 2, 3, seed), true);
}

/* Across the edges of tiles, 64 queries and 128 keys, and vectors of 16. */
static void large_ones(uint64_t seed, weft_dtype_t type)
{
    check_attention(seed, type, sizes(1, 64, 1, 1, 16, 0), false);
    check_attention(seed, type, sizes(1, 65, 2, 1, 17, 0), false);
    check_attention(seed, type, sizes(1, 197, 3, 1, 24, 0), false);
    check_attention(seed, type, sizes(2, 130, 2, 2, 8, seed), false);
}

static void gradients_match_finite_differences(void **state)
{
    (void)state;
    numbers_everywhere(small_ones);
}

static void tiles_of_all_shapes(void **state)
{
    (void)state;
    numbers_everywhere(large_ones);
}

/* Scores far apart: the running maximum moves, nothing overflows. */
static void attention_of_extremes(void **state)
{
    enum { T = 150 };
    float qkv[T * 3], out[T], lse[T];
    (void)state;
    for (int t = 0; t < T; t++) {
        qkv[3 * t] = 1000.0f;
        qkv[3 * t + 1] = (float)t; /* the newest key always wins, by far */
        qkv[3 * t + 2] = (float)t;
    }
    weft_attention_t args = {.type = WEFT_F32,
                             .batch = 1,
                             .seq = T,
                             .heads = 1,
                             .kv_heads = 1,
                             .head_dim = 1,
                             .scale = 1,
                             .qkv = qkv,
                             .out = out,
                             .lse = lse};
    numbers_ok(numbers_table()->attention_forward(&args, NULL));
    for (int t = 0; t < T; t++) {
        assert_true(out[t] == (float)t && lse[t] == 1000.0f * (float)t);
    }
}

/* A prompt of 5, then tokens one by one and two at a time; in a ragged batch the second sequence
 * has other lengths, and slots are not in order. */
static void decode_case(uint64_t seed, weft_dtype_t type, bool ragged)
{
    enum { B = 2, T = 12, H = 4, G = 2, D = 6, CAPACITY = 15, ROW = (H + 2 * G) * D };
    static const int steps[2][2][5] = {{{5, 1, 1, 2, 3}, {5, 1, 1, 2, 3}},
                                       {{5, 1, 1, 2, 3}, {1, 4, 3, 1, 3}}};
    const weft_compute_t *table = numbers_table();
    size_t size = weft_dtype_size(type);
    numbers_t qkv = numbers_random(seed, "qkv", B * T * ROW, type, 1.5);
    numbers_t keys = numbers_garbage(B * CAPACITY * G * D, type);
    numbers_t values = numbers_garbage(B * CAPACITY * G * D, type);
    numbers_t out = numbers_garbage(B * T * H * D, type);
    double expected[B * T * H * D], lse[B * H * T], p[T], none[B * T * H * D] = {0};
    attention_case_t c = sizes(B, T, H, G, D, 0);
    c.qkv = qkv.values;
    c.dout = none;
    c.out = expected;
    c.lse = lse;
    c.p = p;
    reference(&c);
    char *in = malloc(B * T * ROW * size), *got = malloc(B * T * H * D * size);
    int past[B] = {0};
    for (int i = 0; i < 5; i++) {
        int length[B] = {steps[ragged][0][i], steps[ragged][1][i]}, row[B] = {0, length[0]};
        weft_sequence_t list[B] = {{0, length[0], past[0], 1}, {row[1], length[1], past[1], 0}};
        weft_sequences_t batch = {B, length[0] + length[1], list};
        for (int b = 0; b < B; b++) {
            memcpy(in + (size_t)(row[b] * ROW) * size,
                   (char *)qkv.data + (size_t)((b * T + past[b]) * ROW) * size,
                   (size_t)(length[b] * ROW) * size);
        }
        weft_decode_t args = {.type = type,
                              .batch = ragged ? 1 : B,
                              .seq = ragged ? batch.rows : length[0],
                              .past = ragged ? 0 : past[0],
                              .ragged = ragged ? &batch : NULL,
                              .capacity = CAPACITY,
                              .heads = H,
                              .kv_heads = G,
                              .head_dim = D,
                              .scale = 1.0f / sqrtf(D),
                              .qkv = in,
                              .keys = keys.data,
                              .values = values.data,
                              .out = got};
        numbers_ok(table->decode(&args, NULL));
        for (int b = 0; b < B; past[b] += length[b], b++) {
            memcpy((char *)out.data + (size_t)((b * T + past[b]) * H * D) * size,
                   got + (size_t)(row[b] * H * D) * size, (size_t)(length[b] * H * D) * size);
        }
    }
    numbers_check("attention with a cache", &out, expected, 1e-5);
    free(in);
    free(got);
    numbers_t *all[] = {&qkv, &keys, &values, &out};
    for (int i = 0; i < 4; i++) {
        numbers_free(all[i]);
    }
}

static void decode_dense(uint64_t seed, weft_dtype_t type)
{
    decode_case(seed, type, false);
}

static void decode_ragged(uint64_t seed, weft_dtype_t type)
{
    decode_case(seed, type, true);
}

static void decoding(void **state)
{
    (void)state;
    numbers_everywhere(decode_dense);
    numbers_everywhere(decode_ragged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(tiles_of_all_shapes),
        cmocka_unit_test(attention_of_extremes),
        cmocka_unit_test(decoding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
