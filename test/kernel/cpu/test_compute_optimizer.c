/* AdamW, gradient norm and clipping, dropout, casts, initial values, streams: against plain
 * references. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "device/device.h"
#include "kernel/numbers.h"
#include "kernel/reference.h"

enum { COUNT = 20011 }; /* several tasks and a ragged end */

/* ---- AdamW -------------------------------------------------------------------------------- */

static void adamw_of(uint64_t seed, weft_dtype_t type)
{
    numbers_t w = numbers_random(seed, "w", COUNT, type, 1);
    numbers_t g = numbers_random(seed, "g", COUNT, type, 1);
    numbers_t m = numbers_random(seed, "m", COUNT, WEFT_F32, 1);
    numbers_t v = numbers_random(seed, "v", COUNT, WEFT_F32, 1);
    numbers_t master = numbers_random(seed, "w", COUNT, type, 1);
    double *nm = malloc(sizeof(double) * COUNT), *nv = malloc(sizeof(double) * COUNT);
    double *nw = malloc(sizeof(double) * COUNT);
    float *wide = malloc(sizeof(float) * COUNT), scale = 0.5f;
    for (int i = 0; i < COUNT; i++) {
        ((float *)v.data)[i] = fabsf(((float *)v.data)[i]); /* means of squares */
        double grad = g.values[i] * 0.5, x = w.values[i];
        nm[i] = 0.9 * m.values[i] + 0.1 * grad;
        nv[i] = 0.95 * fabs(v.values[i]) + 0.05 * grad * grad;
        double move = nm[i] / (1 - pow(0.9, 3)) / (sqrt(nv[i] / (1 - pow(0.95, 3))) + 1e-8);
        nw[i] = x - 0.01 * (move + 0.1 * x);
        wide[i] = (float)x;
    }
    weft_adamw_t args = {.type = type,
                         .grad_type = type,
                         .count = COUNT,
                         .param = w.data,
                         .master = type == WEFT_F32 ? NULL : wide,
                         .grad = g.data,
                         .m = m.data,
                         .v = v.data,
                         .grad_scale = &scale,
                         .lr = 0.01f,
                         .beta1 = 0.9f,
                         .beta2 = 0.95f,
                         .eps = 1e-8f,
                         .decay = 0.1f,
                         .step = 3};
    scale = 0.0f; /* a skipped step */
    numbers_ok(numbers_table()->adamw(&args, NULL));
    numbers_check("a skipped step's w", &w, master.values, 0);
    scale = 0.5f;
    numbers_ok(numbers_table()->adamw(&args, NULL));
    numbers_check("adamw's w", &w, nw, 1e-5);
    numbers_check("adamw's m", &m, nm, 1e-5);
    numbers_check("adamw's v", &v, nv, 1e-5);
    for (int i = 0; i < COUNT && type != WEFT_F32; i++) {
        assert_true(fabs(wide[i] - nw[i]) < 1e-5);
    }
    free(nm);
    free(nv);
    free(nw);
    free(wide);
    numbers_t *all[] = {&w, &g, &m, &v, &master};
    for (int i = 0; i < 5; i++) {
        numbers_free(all[i]);
    }
}

static void adamw(void **state)
{
    (void)state;
    numbers_everywhere(adamw_of);
}

/* ---- gradient norm ------------------------------------------------------------------------ */

static double first_partials[8];

static void norm_of(uint64_t seed, weft_dtype_t type)
{
    numbers_t x = numbers_random(seed, "x", COUNT, type, 3);
    double partial[8], expected = sqrt(numbers_dot(x.values, x.values, COUNT));
    float norm[2];
    weft_sumsq_t args = {type, COUNT, x.data, partial};
    int64_t chunks = (COUNT + WEFT_SUMSQ_CHUNK - 1) / WEFT_SUMSQ_CHUNK;
    numbers_ok(numbers_table()->sumsq(&args, NULL));
    weft_clip_t clip = {partial, chunks, 0.25f, 1.0f, norm};
    numbers_ok(numbers_table()->clip(&clip, NULL));
    assert_true(fabs(norm[0] - expected / 4) < 1e-6 * expected);
    assert_true(fabs((double)norm[1] - 0.25 / (expected / 4)) < 1e-6);
    clip.max_norm = 0;
    numbers_ok(numbers_table()->clip(&clip, NULL));
    assert_true(norm[1] == 0.25f);
    /* The same bits from every table and number of threads. */
    if (type == WEFT_F32 && first_partials[0] == 0) {
        memcpy(first_partials, partial, sizeof(double) * (size_t)chunks);
    }
    if (type == WEFT_F32) {
        assert_memory_equal(first_partials, partial, sizeof(double) * (size_t)chunks);
    }
    numbers_free(&x);
}

static void gradient_norm(void **state)
{
    (void)state;
    numbers_everywhere(norm_of);
}

static void a_norm_that_is_not_finite_skips_the_step(void **state)
{
    double partial[2] = {1.0, NAN};
    float norm[2];
    weft_clip_t clip = {partial, 2, 1.0f, 1.0f, norm};
    (void)state;
    numbers_ok(numbers_table()->clip(&clip, NULL));
    assert_true(isnan(norm[0]) && norm[1] == 0.0f);
}

/* ---- dropout ------------------------------------------------------------------------------ */

/* A tensor cut by rows and columns has the masks of the whole. */
static void dropout_of(uint64_t seed, weft_dtype_t type)
{
    enum { ROWS = 40, WIDTH = 51, ALL = ROWS * WIDTH, ROW = 13, COLUMN = 7, SOME = 30 };
    const weft_compute_t *table = numbers_table();
    numbers_t x = numbers_random(seed, "x", ALL, type, 1);
    numbers_t res = numbers_random(seed, "res", ALL, type, 1);
    numbers_t whole = numbers_garbage(ALL, type), part = numbers_garbage(SOME, type);
    uint64_t key = weft__mask_key(seed, "site", 7);
    weft_dropout_t args = {
        type, ROWS, WIDTH, x.data, res.data, whole.data, {0.25f, key, 100, 0, WIDTH}};
    numbers_ok(table->dropout(&args, NULL));
    numbers_read(&whole);
    int dropped = 0;
    for (int i = 0; i < ALL; i++) {
        double kept = res.values[i] + x.values[i] / 0.75, got = whole.values[i];
        double limit = type == WEFT_F32 ? 1e-6 : 2e-2;
        if (fabs(got - res.values[i]) <= limit) {
            dropped++;
        } else {
            assert_true(fabs(got - kept) <= limit);
        }
    }
    assert_in_range(dropped, ALL / 4 - 150, ALL / 4 + 150); /* 7 deviations */
    weft_dropout_t cut = {type,
                          1,
                          SOME,
                          (char *)x.data + (ROW * WIDTH + COLUMN) * (int)weft_dtype_size(type),
                          (char *)res.data + (ROW * WIDTH + COLUMN) * (int)weft_dtype_size(type),
                          part.data,
                          {0.25f, key, 100 + ROW, COLUMN, WIDTH}};
    numbers_ok(table->dropout(&cut, NULL));
    numbers_check("a part of what dropout gave", &part, whole.values + ROW * WIDTH + COLUMN, 0);
    assert_true(weft__mask_key(seed, "site", 8) != key && weft__mask_key(seed, "other", 7) != key);
    numbers_t *all[] = {&x, &res, &whole, &part};
    for (int i = 0; i < 4; i++) {
        numbers_free(all[i]);
    }
}

static void dropout(void **state)
{
    (void)state;
    numbers_everywhere(dropout_of);
}

/* ---- casts and initial values ------------------------------------------------------------- */

static void cast_of(uint64_t seed, weft_dtype_t type)
{
    numbers_t x = numbers_random(seed, "x", COUNT, WEFT_F32, 1);
    numbers_t exact = numbers_random(seed, "x", COUNT, type, 1), y = numbers_garbage(COUNT, type);
    weft_cast_t args = {WEFT_F32, type, COUNT, x.data, y.data};
    numbers_ok(numbers_table()->cast(&args, NULL));
    assert_memory_equal(y.data, exact.data, COUNT * weft_dtype_size(type));
    weft_cast_t back = {type, WEFT_F32, COUNT, y.data, x.data};
    numbers_ok(numbers_table()->cast(&back, NULL));
    numbers_check("a cast and back", &x, exact.values, 0);
    numbers_free(&x);
    numbers_free(&y);
    numbers_free(&exact);
}

static void casts(void **state)
{
    (void)state;
    numbers_everywhere(cast_of);
}

/* All numbers of f16, those half way between two of them, and their neighbours: as a table of
 * arithmetic on values has them. */
static void every_f16(uint64_t seed, weft_dtype_t type)
{
    enum { ALL = 1 << 16, NEAR = 5 };
    if (type != WEFT_F16) {
        return;
    }
    (void)seed;
    uint16_t *halves = malloc(ALL * NEAR * sizeof(*halves)), expected;
    float *floats = malloc(ALL * NEAR * sizeof(*floats)), *wide = malloc(ALL * sizeof(*wide));
    for (int i = 0; i < ALL; i++) {
        halves[i] = (uint16_t)i;
    }
    weft_cast_t widen = {WEFT_F16, WEFT_F32, ALL, halves, wide};
    numbers_ok(numbers_table()->cast(&widen, NULL));
    for (int i = 0; i < ALL; i++) {
        double value = reference_value(halves, (size_t)i, WEFT_F16);
        float next = (float)reference_value(halves, (size_t)((i + 1) % ALL), WEFT_F16);
        assert_true((double)wide[i] == value || (isnan(wide[i]) && isnan(value)));
        float middle = (i & 0x7fff) == 0x7bff ? copysignf(65520, wide[i]) : (wide[i] + next) / 2;
        floats[NEAR * i] = wide[i];
        floats[NEAR * i + 1] = middle;
        floats[NEAR * i + 2] = nextafterf(middle, 0);
        floats[NEAR * i + 3] = nextafterf(middle, 1e30f);
        floats[NEAR * i + 4] = wide[i] * 1.0e5f;
    }
    weft_cast_t narrow = {WEFT_F32, WEFT_F16, ALL * NEAR, floats, halves};
    numbers_ok(numbers_table()->cast(&narrow, NULL));
    for (int i = 0; i < ALL * NEAR; i++) {
        reference_put(&expected, 0, WEFT_F16, floats[i]);
        bool nan = isnan(floats[i]) && (halves[i] & 0x7fff) > 0x7c00;
        if (halves[i] != expected && !nan) {
            fail_msg("%s: %a is %04x and not %04x", weft__inner()->name, (double)floats[i],
                     halves[i], expected);
        }
    }
    free(halves);
    free(floats);
    free(wide);
}

static void casts_of_every_f16(void **state)
{
    (void)state;
    numbers_everywhere(every_f16);
}

static void normal_numbers(void **state)
{
    enum { MANY = 200000, FROM = 12345, SOME = 777 };
    float *all = malloc(MANY * sizeof(float)), part[SOME];
    double sum = 0, squares = 0, fourth = 0;
    uint64_t key = weft__name_key(numbers_seed(), "w");
    (void)state;
    numbers_ok(weft__fill_normal(key, 0, MANY, 2.0f, all));
    numbers_ok(weft__fill_normal(key, FROM, SOME, 2.0f, part));
    assert_memory_equal(all + FROM, part, sizeof(part));
    for (int i = 0; i < MANY; i++) {
        double x = (double)all[i] / 2;
        sum += x / MANY;
        squares += x * x / MANY;
        fourth += x * x * x * x / MANY;
    }
    /* Seven deviations of each mean. */
    assert_true(fabs(sum) < 0.016 && fabs(squares - 1) < 0.023 && fabs(fourth - 3) < 0.16);
    free(all);
}

/* ---- streams ------------------------------------------------------------------------------ */

static void kernels_run_in_the_order_of_a_stream(void **state)
{
    weft_stream_h stream;
    float x[1000], y[1000];
    (void)state;
    for (int i = 0; i < 1000; i++) {
        x[i] = (float)i;
    }
    numbers_ok(weft_stream_create(&stream));
    for (int i = 0; i < 64; i++) { /* doubles 64 times: y = x + x, x = y */
        weft_dropout_t add = {
            .type = WEFT_F32, .rows = 10, .width = 100, .in = x, .residual = x, .out = y};
        weft_cast_t copy = {WEFT_F32, WEFT_F32, 1000, y, x};
        numbers_ok(numbers_table()->dropout(&add, stream));
        numbers_ok(numbers_table()->cast(&copy, stream));
    }
    numbers_ok(weft_stream_synchronize(stream));
    for (int i = 0; i < 1000; i++) {
        assert_true(x[i] == ldexpf((float)i, 64));
    }
    numbers_ok(weft_stream_destroy(stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw),
        cmocka_unit_test(gradient_norm),
        cmocka_unit_test(a_norm_that_is_not_finite_skips_the_step),
        cmocka_unit_test(dropout),
        cmocka_unit_test(casts),
        cmocka_unit_test(casts_of_every_f16),
        cmocka_unit_test(normal_numbers),
        cmocka_unit_test(kernels_run_in_the_order_of_a_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
