/* ctest: timeout=120 */
/* Norms, embedding, activations, RoPE, dropout, classifier, casts: forward against plain references
 * in double, backward against derivatives of those by finite differences. Fresh numbers every
 * run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "kernel/numbers.h"

#define LIMIT 1e-5

/* ---- norms -------------------------------------------------------------------------------- */

enum { NORM_ROWS = 35, NORM_WIDTH = 21 };

typedef struct norm_case {
    bool rms;
    double *x, *weight, *bias, *dout;
    double out[NORM_ROWS * NORM_WIDTH];
} norm_case_t;

static double norm_reference(void *arg)
{
    norm_case_t *c = arg;
    for (int r = 0; r < NORM_ROWS; r++) {
        const double *x = c->x + r * NORM_WIDTH;
        double mean = 0, square = 0;
        for (int i = 0; i < NORM_WIDTH && !c->rms; i++) {
            mean += x[i] / NORM_WIDTH;
        }
        for (int i = 0; i < NORM_WIDTH; i++) {
            square += (x[i] - mean) * (x[i] - mean) / NORM_WIDTH;
        }
        for (int i = 0; i < NORM_WIDTH; i++) {
            double y = (x[i] - mean) / sqrt(square + 1e-5);
            c->out[r * NORM_WIDTH + i] = y * c->weight[i] + (c->rms ? 0 : c->bias[i]);
        }
    }
    return numbers_dot(c->out, c->dout, NORM_ROWS * NORM_WIDTH);
}

static void check_norm_slopes(norm_case_t *c, const double *residual, numbers_t *dx, numbers_t *dw,
                              numbers_t *db, const double *dw_before)
{
    double slope[NORM_ROWS * NORM_WIDTH];
    numbers_slope(norm_reference, c, c->x, NORM_ROWS * NORM_WIDTH, slope);
    for (int i = 0; i < NORM_ROWS * NORM_WIDTH; i++) {
        slope[i] += residual[i];
    }
    numbers_check("a norm's dx", dx, slope, LIMIT);
    numbers_slope(norm_reference, c, c->weight, NORM_WIDTH, slope);
    for (int i = 0; i < NORM_WIDTH; i++) {
        slope[i] += dw_before[i];
    }
    numbers_check("a norm's dweight", dw, slope, LIMIT);
    if (!c->rms) {
        numbers_slope(norm_reference, c, c->bias, NORM_WIDTH, slope);
        numbers_check("a norm's dbias", db, slope, LIMIT);
    }
}

/* With a residual sum in front of it; the sum is then what backward takes. */
static void norm_of(uint64_t seed, weft_dtype_t type, bool rms)
{
    enum { COUNT = NORM_ROWS * NORM_WIDTH };
    const weft_compute_t *table = numbers_table();
    numbers_t x = numbers_random(seed, "x", COUNT, type, 1),
              y = numbers_random(seed, "y", COUNT, type, 1),
              w = numbers_random(seed, "w", NORM_WIDTH, type, 2),
              b = numbers_random(seed, "b", NORM_WIDTH, type, 1),
              dout = numbers_random(seed, "dout", COUNT, type, 1),
              dres = numbers_random(seed, "dres", COUNT, type, 1),
              dw = numbers_random(seed, "dw", NORM_WIDTH, WEFT_F32, 1),
              db = numbers_zero(NORM_WIDTH, WEFT_F32), sum = numbers_garbage(COUNT, type),
              out = numbers_garbage(COUNT, type), dx = numbers_garbage(COUNT, type);
    float mean[NORM_ROWS], rstd[NORM_ROWS];
    weft_norm_t args = {.type = type,
                        .grad_type = WEFT_F32,
                        .rms = rms,
                        .rows = NORM_ROWS,
                        .width = NORM_WIDTH,
                        .eps = 1e-5f,
                        .x = x.data,
                        .branch = y.data,
                        .sum = sum.data,
                        .weight = w.data,
                        .bias = rms ? NULL : b.data,
                        .out = out.data,
                        .mean = rms ? NULL : mean,
                        .rstd = rstd};
    numbers_ok(table->norm_forward(&args, NULL));
    for (int i = 0; i < COUNT; i++) {
        x.values[i] += y.values[i];
    }
    numbers_check("residual + branch", &sum, x.values, LIMIT);
    norm_case_t c = {
        .rms = rms, .x = sum.values, .weight = w.values, .bias = b.values, .dout = dout.values};
    norm_reference(&c);
    numbers_check("a norm", &out, c.out, LIMIT);

    args.x = sum.data;
    args.branch = NULL;
    args.dout = dout.data;
    args.dresidual = dres.data;
    args.dx = dx.data;
    args.dweight = dw.data;
    args.dbias = rms ? NULL : db.data;
    args.work = malloc(table->norm_work(&args));
    numbers_ok(table->norm_backward(&args, NULL));
    check_norm_slopes(&c, dres.values, &dx, &dw, &db, dw.values);
    free(args.work);
    numbers_t *all[] = {&x, &y, &w, &b, &dout, &dres, &dw, &db, &sum, &out, &dx};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        numbers_free(all[i]);
    }
}

static void norms_of_both_kinds(uint64_t seed, weft_dtype_t type)
{
    norm_of(seed, type, false);
    norm_of(seed, type, true);
}

static void norms(void **state)
{
    (void)state;
    numbers_everywhere(norms_of_both_kinds);
}

/* ---- activations -------------------------------------------------------------------------- */

enum { ROWS = 7, WIDTH = 19, COUNT = ROWS * WIDTH };

typedef struct act_case {
    double *x, *dout;
    double out[COUNT];
} act_case_t;

static double gelu_reference(void *arg)
{
    act_case_t *c = arg;
    for (int i = 0; i < COUNT; i++) {
        double x = c->x[i];
        c->out[i] = 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    }
    return numbers_dot(c->out, c->dout, COUNT);
}

static double swiglu_reference(void *arg)
{
    act_case_t *c = arg;
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < WIDTH; i++) {
            double gate = c->x[r * 2 * WIDTH + i], up = c->x[r * 2 * WIDTH + WIDTH + i];
            c->out[r * WIDTH + i] = gate / (1 + exp(-gate)) * up;
        }
    }
    return numbers_dot(c->out, c->dout, COUNT);
}

static void activations_of(uint64_t seed, weft_dtype_t type)
{
    const weft_compute_t *table = numbers_table();
    numbers_t x = numbers_random(seed, "x", 2 * COUNT, type, 6);
    numbers_t dout = numbers_random(seed, "dout", COUNT, type, 1);
    numbers_t out = numbers_garbage(COUNT, type), din = numbers_garbage(COUNT, type);
    numbers_t wide = numbers_garbage(2 * COUNT, type);
    double slope[2 * COUNT];
    act_case_t c = {.x = x.values, .dout = dout.values};

    weft_gelu_t gelu = {type, COUNT, x.data, out.data, dout.data, din.data};
    numbers_ok(table->gelu_forward(&gelu, NULL));
    numbers_ok(table->gelu_backward(&gelu, NULL));
    gelu_reference(&c);
    numbers_check("gelu", &out, c.out, LIMIT);
    numbers_slope(gelu_reference, &c, x.values, COUNT, slope);
    numbers_check("gelu's slope", &din, slope, LIMIT);

    weft_swiglu_t swiglu = {type, ROWS, WIDTH, x.data, out.data, dout.data, wide.data};
    numbers_ok(table->swiglu_forward(&swiglu, NULL));
    numbers_ok(table->swiglu_backward(&swiglu, NULL));
    swiglu_reference(&c);
    numbers_check("swiglu", &out, c.out, LIMIT);
    numbers_slope(swiglu_reference, &c, x.values, 2 * COUNT, slope);
    numbers_check("swiglu's slope", &wide, slope, LIMIT);
    numbers_free(&x);
    numbers_free(&dout);
    numbers_free(&out);
    numbers_free(&din);
    numbers_free(&wide);
}

static void activations(void **state)
{
    (void)state;
    numbers_everywhere(activations_of);
}

/* Where exponentials over- and underflow. */
static void gelu_of_extremes(void **state)
{
    const float in[] = {-1e30f, -50.0f, -12.0f, 12.0f, 50.0f, 1e30f, 0.0f, -0.0f};
    float out[8];
    weft_gelu_t args = {.type = WEFT_F32, .count = 8, .in = in, .out = out};
    (void)state;
    numbers_ok(numbers_table()->gelu_forward(&args, NULL));
    for (int i = 0; i < 8; i++) {
        float expected = in[i] > 0 ? in[i] : 0.0f;
        assert_true(fabsf(out[i] - expected) <= 1e-6f * expected + 1e-36f * fabsf(in[i]));
    }
}

/* ---- RoPE --------------------------------------------------------------------------------- */

static void rope_of(uint64_t seed, weft_dtype_t type)
{
    enum { B = 2, T = 5, H = 3, G = 1, D = 6, FIRST = 3, ROW = (H + 2 * G) * D };
    numbers_t x = numbers_random(seed, "qkv", B * T * ROW, type, 1);
    double expected[B * T * ROW], kept[B * T * ROW];
    for (int i = 0; i < B * T * ROW; i++) {
        kept[i] = expected[i] = x.values[i];
    }
    for (int row = 0; row < B * T; row++) {
        for (int head = 0; head < H + G; head++) {
            for (int i = 0; i < D / 2; i++) {
                int at = row * ROW + head * D + i;
                double angle = (FIRST + row % T) * pow(500.0, -2.0 * i / D);
                double a = kept[at], b = kept[at + D / 2];
                expected[at] = a * cos(angle) - b * sin(angle);
                expected[at + D / 2] = b * cos(angle) + a * sin(angle);
            }
        }
    }
    weft_rope_t args = {.type = type,
                        .batch = B,
                        .seq = T,
                        .heads = H,
                        .kv_heads = G,
                        .head_dim = D,
                        .position_first = FIRST,
                        .theta = 500,
                        .qkv = x.data};
    numbers_ok(numbers_table()->rope(&args, NULL));
    numbers_check("rope", &x, expected, LIMIT);
    args.inverse = true; /* a rotation: its gradient turns back */
    numbers_ok(numbers_table()->rope(&args, NULL));
    numbers_check("rope and back", &x, kept, LIMIT);
    numbers_free(&x);
}

static void rope(void **state)
{
    (void)state;
    numbers_everywhere(rope_of);
}

/* ---- embedding ---------------------------------------------------------------------------- */

/* A table that holds tokens 4 to 10 only; others give no row and no gradient. */
static void embed_of(uint64_t seed, weft_dtype_t type)
{
    enum { B = 3, T = 6, C = 37, V = 7, FIRST = 4, POSITION = 2 };
    const weft_compute_t *table = numbers_table();
    int32_t tokens[B * T];
    numbers_t w = numbers_random(seed, "w", V * C, type, 1);
    numbers_t p = numbers_random(seed, "p", (T + POSITION) * C, type, 1);
    numbers_t dout = numbers_random(seed, "dout", B * T * C, type, 1);
    numbers_t dw = numbers_random(seed, "dw", V * C, WEFT_F32, 1);
    numbers_t dp = numbers_zero((T + POSITION) * C, WEFT_F32);
    numbers_t out = numbers_garbage(B * T * C, type);
    double sums[V * C], position_sums[(T + POSITION) * C] = {0}, expected[B * T * C];
    for (int i = 0; i < V * C; i++) {
        sums[i] = dw.values[i];
    }
    for (int row = 0; row < B * T; row++) {
        int id = (int)(weft__rng_at(seed, (uint64_t)row) % 15);
        tokens[row] = id;
        for (int i = 0; i < C; i++) {
            bool here = id >= FIRST && id < FIRST + V;
            expected[row * C + i] = (here ? w.values[(id - FIRST) * C + i] : 0) +
                                    p.values[(POSITION + row % T) * C + i];
            if (here) {
                sums[(id - FIRST) * C + i] += dout.values[row * C + i];
            }
            position_sums[(POSITION + row % T) * C + i] += dout.values[row * C + i];
        }
    }
    weft_embed_t args = {.type = type,
                         .grad_type = WEFT_F32,
                         .batch = B,
                         .seq = T,
                         .width = C,
                         .position_first = POSITION,
                         .vocab_first = FIRST,
                         .vocab_count = V,
                         .tokens = tokens,
                         .table = w.data,
                         .positions = p.data,
                         .out = out.data,
                         .dout = dout.data,
                         .dtable = dw.data,
                         .dpositions = dp.data};
    numbers_ok(table->embed_forward(&args, NULL));
    numbers_ok(table->embed_backward(&args, NULL));
    numbers_check("embedding", &out, expected, LIMIT);
    numbers_check("gradient of the embedding", &dw, sums, LIMIT);
    numbers_check("gradient of positions", &dp, position_sums, LIMIT);
    numbers_t *all[] = {&w, &p, &dout, &dw, &dp, &out};
    for (int i = 0; i < 6; i++) {
        numbers_free(all[i]);
    }
}

static void embedding(void **state)
{
    (void)state;
    numbers_everywhere(embed_of);
}

/* ---- classifier --------------------------------------------------------------------------- */

enum { CLASS_ROWS = 9, VOCAB = 45, VOCAB_STRIDE = 53 };

typedef struct class_case {
    double *logits;
    const int32_t *targets;
    double losses[CLASS_ROWS], lse[CLASS_ROWS];
} class_case_t;

static double class_reference(void *arg)
{
    class_case_t *c = arg;
    double total = 0;
    for (int r = 0; r < CLASS_ROWS; r++) {
        double sum = 0;
        for (int i = 0; i < VOCAB; i++) {
            sum += exp(c->logits[r * VOCAB_STRIDE + i]);
        }
        c->lse[r] = log(sum);
        c->losses[r] = c->targets[r] < 0 ? 0
                                         : c->lse[r] - c->logits[r * VOCAB_STRIDE + c->targets[r]];
        total += c->losses[r];
    }
    return total;
}

/* A vocabulary cut in two, as tensor parallelism does, gives the same gradient. */
static void check_slices(class_case_t *c, weft_dtype_t type, uint64_t seed, const double *slope)
{
    enum { CUT = 20 };
    const weft_compute_t *table = numbers_table();
    numbers_t x = numbers_random(seed, "logits", CLASS_ROWS * VOCAB_STRIDE, type, 4);
    float stats[2][CLASS_ROWS * 3], lse[CLASS_ROWS];
    /* The slices share one array; the second one's padding is the array's. */
    weft_classify_t args = {.type = type, .rows = 1, .targets = c->targets, .scale = 0.25f};
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < CLASS_ROWS; r++) {
            for (int half = 0; half < 2; half++) {
                int at = r * VOCAB_STRIDE + half * CUT;
                args.vocab = half ? VOCAB - CUT : CUT;
                args.ld = half ? VOCAB_STRIDE - CUT : CUT;
                args.vocab_first = half * CUT;
                args.logits = (char *)x.data + at * (int)weft_dtype_size(type);
                args.targets = c->targets + r;
                args.stats = stats[half] + 3 * r;
                args.lse = lse + r;
                numbers_ok(pass == 0 ? table->classify_stats(&args, NULL)
                                     : table->classify_finish(&args, NULL));
            }
            const float *a = stats[0] + 3 * r, *b = stats[1] + 3 * r;
            double all = (double)a[1] * exp((double)a[0]) + (double)b[1] * exp((double)b[0]);
            lse[r] = (float)log(all);
            assert_true(fabs(lse[r] - c->lse[r]) < 1e-5 * fabs(c->lse[r]) + 1e-5);
            if (c->targets[r] >= 0 && pass == 0) {
                assert_true(fabs(lse[r] - a[2] - b[2] - c->losses[r]) < 1e-4);
            }
        }
    }
    numbers_check("gradient of sliced logits", &x, slope, LIMIT);
    numbers_free(&x);
}

static void classify_of(uint64_t seed, weft_dtype_t type)
{
    numbers_t x = numbers_random(seed, "logits", CLASS_ROWS * VOCAB_STRIDE, type, 4);
    double *logits = malloc((size_t)x.count * sizeof(*logits));
    double slope[CLASS_ROWS * VOCAB_STRIDE];
    int32_t targets[CLASS_ROWS];
    float losses[CLASS_ROWS];
    for (int64_t i = 0; i < x.count; i++) {
        logits[i] = x.values[i];
    }
    for (int r = 0; r < CLASS_ROWS; r++) {
        targets[r] = r == 4 ? -1 : (int32_t)(weft__rng_at(seed, (uint64_t)r) % VOCAB);
    }
    class_case_t c = {.logits = logits, .targets = targets};
    numbers_slope(class_reference, &c, logits, x.count, slope);
    class_reference(&c);
    for (int i = 0; i < CLASS_ROWS * VOCAB_STRIDE; i++) {
        slope[i] = targets[i / VOCAB_STRIDE] < 0 || i % VOCAB_STRIDE >= VOCAB ? 0 : slope[i] / 4;
    }
    weft_classify_t args = {.type = type,
                            .rows = CLASS_ROWS,
                            .vocab = VOCAB,
                            .ld = VOCAB_STRIDE,
                            .logits = x.data,
                            .targets = targets,
                            .losses = losses};
    for (int pass = 0; pass < 2; pass++) { /* first without a gradient, which changes no logits */
        args.scale = pass == 0 ? 0.0f : 0.25f;
        numbers_ok(numbers_table()->classify(&args, NULL));
        for (int r = 0; r < CLASS_ROWS; r++) {
            assert_true(fabs(losses[r] - c.losses[r]) < 1e-5 * (1 + fabs(c.losses[r])));
        }
        numbers_check("logits", &x, pass == 0 ? logits : slope, LIMIT);
    }
    check_slices(&c, type, seed, slope);
    numbers_free(&x);
    free(logits);
}

static void classifier(void **state)
{
    (void)state;
    numbers_everywhere(classify_of);
}

/* Logits as large as f32 allows give a finite loss. */
static void classifier_of_extremes(void **state)
{
    float logits[3] = {3e38f, -3e38f, 0.0f}, loss;
    const int32_t target = 0;
    weft_classify_t args = {.type = WEFT_F32,
                            .rows = 1,
                            .vocab = 3,
                            .ld = 3,
                            .logits = logits,
                            .targets = &target,
                            .losses = &loss,
                            .scale = 1.0f};
    (void)state;
    numbers_ok(numbers_table()->classify(&args, NULL));
    assert_true(loss == 0.0f && logits[0] == 0.0f && logits[1] == 0.0f && logits[2] == 0.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(activations),
        cmocka_unit_test(gelu_of_extremes),
        cmocka_unit_test(rope),
        cmocka_unit_test(embedding),
        cmocka_unit_test(classifier),
        cmocka_unit_test(classifier_of_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
