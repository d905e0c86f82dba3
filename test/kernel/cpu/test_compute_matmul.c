/* ctest: timeout=120 */
/* Matrix products in all layouts, with every ending, against plain sums in double; by the BLAS that
 * WEFT_BLAS names and by our own product. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/cpu/blas.h"
#include "kernel/cpu/inner.h"
#include "kernel/numbers.h"

typedef struct product_case {
    int64_t m, n, k;
    bool trans_a, trans_b, bias, add, accumulate, bias_grad, f32_out;
    weft_epilogue_t epilogue;
    int64_t gap; /* behind every row */
} product_case_t;

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
}

typedef struct operands {
    numbers_t a, b, c, bias, add, aux, bias_grad;
    int64_t lda, ldb, ldc;
} operands_t;

static double dot_of(const product_case_t *p, const operands_t *o, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t q = 0; q < p->k; q++) {
        sum += o->a.values[p->trans_a ? q * o->lda + i : i * o->lda + q] *
               o->b.values[p->trans_b ? j * o->ldb + q : q * o->ldb + j];
    }
    return sum;
}

/* What c, aux and bias_grad must be; elements in gaps stay what they were. */
static void expect(const product_case_t *p, const operands_t *o, double *c, double *aux,
                   double *bias_grad)
{
    memcpy(c, o->c.values, (size_t)o->c.count * sizeof(*c));
    memcpy(aux, o->aux.values, (size_t)o->aux.count * sizeof(*aux));
    for (int64_t i = 0; i < p->m; i++) {
        for (int64_t j = 0; j < p->n; j++) {
            int64_t at = i * o->ldc + j;
            double y = dot_of(p, o, i, j) + (p->bias ? o->bias.values[j] : 0) +
                       (p->add ? o->add.values[at] : 0) + (p->accumulate ? c[at] : 0);
            if (p->epilogue == WEFT_EPILOGUE_GELU) {
                aux[at] = y;
                y = gelu(y);
            } else if (p->epilogue == WEFT_EPILOGUE_DGELU) {
                y *= gelu_slope(o->aux.values[at]);
            }
            c[at] = y;
        }
    }
    for (int64_t j = 0; j < p->n && p->bias_grad; j++) {
        bias_grad[j] = o->bias_grad.values[j];
        for (int64_t q = 0; q < p->k; q++) {
            bias_grad[j] += o->b.values[q * o->ldb + j];
        }
    }
}

static operands_t make_operands(const product_case_t *p, uint64_t seed, weft_dtype_t type)
{
    weft_dtype_t c_type = p->f32_out ? WEFT_F32 : type;
    operands_t o = {.lda = (p->trans_a ? p->m : p->k) + p->gap,
                    .ldb = (p->trans_b ? p->k : p->n) + p->gap,
                    .ldc = p->n + p->gap};
    o.a = numbers_random(seed, "a", (p->trans_a ? p->k : p->m) * o.lda, type, 1);
    o.b = numbers_random(seed, "b", (p->trans_b ? p->n : p->k) * o.ldb, type, 1);
    o.c = numbers_random(seed, "c", p->m * o.ldc, c_type, 1);
    o.bias = numbers_random(seed, "bias", p->n, type, 1);
    o.add = numbers_random(seed, "add", p->m * o.ldc, type, 1);
    o.aux = numbers_random(seed, "aux", p->m * o.ldc, type, 1);
    o.bias_grad = numbers_random(seed, "bias_grad", p->n, c_type, 1);
    return o;
}

static void check_case(const product_case_t *p, uint64_t seed, weft_dtype_t type)
{
    operands_t o = make_operands(p, seed, type);
    double *c = malloc((size_t)o.c.count * sizeof(*c)), *aux = malloc((size_t)o.aux.count * 8);
    double *bias_grad = malloc((size_t)p->n * sizeof(*bias_grad));
    weft_matmul_t args = {.type = type,
                          .c_type = o.c.type,
                          .m = p->m,
                          .n = p->n,
                          .k = p->k,
                          .a = o.a.data,
                          .b = o.b.data,
                          .c = o.c.data,
                          .trans_a = p->trans_a,
                          .trans_b = p->trans_b,
                          .lda = p->gap ? o.lda : 0,
                          .ldb = p->gap ? o.ldb : 0,
                          .ldc = p->gap ? o.ldc : 0,
                          .bias = p->bias ? o.bias.data : NULL,
                          .add = p->add ? o.add.data : NULL,
                          .aux = p->epilogue ? o.aux.data : NULL,
                          .bias_grad = p->bias_grad ? o.bias_grad.data : NULL,
                          .epilogue = p->epilogue,
                          .accumulate = p->accumulate};
    expect(p, &o, c, aux, bias_grad);
    numbers_ok(numbers_table()->matmul(&args, NULL));
    numbers_check("a product", &o.c, c, 1e-6);
    if (p->epilogue == WEFT_EPILOGUE_GELU) {
        numbers_check("what went into gelu", &o.aux, aux, 1e-6);
    }
    if (p->bias_grad) {
        numbers_check("gradient of a bias", &o.bias_grad, bias_grad, 1e-5);
    }
    numbers_t *all[] = {&o.a, &o.b, &o.c, &o.bias, &o.add, &o.aux, &o.bias_grad};
    for (int i = 0; i < 7; i++) {
        numbers_free(all[i]);
    }
    free(c);
    free(aux);
    free(bias_grad);
}

static void products_of(uint64_t seed, weft_dtype_t type)
{
    static const int64_t sizes[][3] = {{1, 3, 1}, {5, 67, 3}, {97, 51, 70}, {40, 130, 200}};
    for (int size = 0; size < 4; size++) {
        product_case_t p = {.m = sizes[size][0], .n = sizes[size][1], .k = sizes[size][2]};
        for (int layout = 0; layout < 4; layout++) {
            p.trans_a = layout & 1;
            p.trans_b = layout & 2;
            p.gap = layout == 2 ? 3 : 0;
            check_case(&p, seed, type);
        }
        product_case_t up = p, down = p, slope = p, weight = p;
        up.trans_a = down.trans_a = slope.trans_a = false;
        up.bias = down.bias = down.add = true;
        up.epilogue = WEFT_EPILOGUE_GELU;
        slope.epilogue = WEFT_EPILOGUE_DGELU;
        weight.trans_a = true;
        weight.trans_b = false;
        weight.accumulate = weight.bias_grad = weight.f32_out = true;
        check_case(&up, seed, type);
        check_case(&down, seed, type);
        check_case(&slope, seed, type);
        check_case(&weight, seed, type);
    }
}

static void products(void **state)
{
    (void)state;
    numbers_everywhere(products_of);
}

/* The result may be where the residual was. */
static void adds_in_place(void **state)
{
    float a[6] = {1, 2, 3, 4, 5, 6}, b[3] = {1, 1, 1}, c[2] = {10, 20};
    weft_matmul_t args = {.type = WEFT_F32,
                          .c_type = WEFT_F32,
                          .m = 2,
                          .n = 1,
                          .k = 3,
                          .a = a,
                          .b = b,
                          .c = c,
                          .add = c,
                          .accumulate = false};
    (void)state;
    numbers_ok(numbers_table()->matmul(&args, NULL));
    assert_true(c[0] == 16 && c[1] == 35);
}

/* Larger than every block of our own product; checked by a random vector: (a b) x = a (b x). */
static void many_blocks(uint64_t seed)
{
    enum { M = 301, N = 1405, K = 777 };
    numbers_t a = numbers_random(seed, "a", M * K, WEFT_F32, 1);
    numbers_t b = numbers_random(seed, "b", K * N, WEFT_F32, 1);
    numbers_t x = numbers_random(seed, "x", N, WEFT_F32, 1);
    numbers_t c = numbers_garbage(M * N, WEFT_F32);
    double bx[K] = {0};
    for (int q = 0; q < K; q++) {
        bx[q] = numbers_dot(b.values + (size_t)q * N, x.values, N);
    }
    for (int layout = 0; layout < 4; layout++) {
        /* The same numbers read as their transpose are another matrix, so only as they are. */
        weft_own_product_t args = {.m = M,
                                   .n = N,
                                   .k = K,
                                   .a = a.data,
                                   .lda = K,
                                   .b = b.data,
                                   .ldb = N,
                                   .c = c.data,
                                   .ldc = N,
                                   .add = layout > 0,
                                   .scratch = aligned_alloc(64, WEFT_OWN_SCRATCH)};
        weft__inner()->product(&args);
        free(args.scratch);
        numbers_read(&c);
        for (int i = 0; i < M; i++) {
            double expected = numbers_dot(a.values + (size_t)i * K, bx, K) * (layout + 1);
            double got = numbers_dot(c.values + (size_t)i * N, x.values, N);
            assert_true(fabs(got - expected) < 2e-2);
        }
    }
    numbers_free(&a);
    numbers_free(&b);
    numbers_free(&x);
    numbers_free(&c);
}

/* For the two best tables of inner loops: one that packs floats, and AMX. Small ones have gone
 * through all. */
static void with_best_tables(void (*test)(uint64_t seed))
{
    uint64_t seed = numbers_seed();
    for (const weft_inner_t *const *table = numbers_inner_tables(); *table != NULL; table++) {
        if (table[1] == NULL || table[2] == NULL) {
            weft__inner_use(*table);
            test(seed);
        }
    }
    weft__inner_use(NULL);
}

static void own_product_of_many_blocks(void **state)
{
    (void)state;
    with_best_tables(many_blocks);
}

/* Times one, a number stays what it is but for its last bit: no part is lost that AMX cuts floats
 * into. */
static void times_one(uint64_t seed)
{
    enum { N = 96 };
    numbers_t one = numbers_zero(N * N, WEFT_F32);
    numbers_t x = numbers_random(seed, "x", N * N, WEFT_F32, 3);
    numbers_t c = numbers_garbage(N * N, WEFT_F32);
    for (int i = 0; i < N; i++) {
        ((float *)one.data)[i * N + i] = 1;
    }
    for (int side = 0; side < 2; side++) {
        weft_own_product_t args = {.m = N,
                                   .n = N,
                                   .k = N,
                                   .a = side ? x.data : one.data,
                                   .lda = N,
                                   .b = side ? one.data : x.data,
                                   .ldb = N,
                                   .c = c.data,
                                   .ldc = N,
                                   .scratch = aligned_alloc(64, WEFT_OWN_SCRATCH)};
        weft__inner()->product(&args);
        free(args.scratch);
        numbers_read(&c);
        for (int i = 0; i < N * N; i++) {
            assert_true(fabs(c.values[i] - x.values[i]) <= 0x1p-23 * fabs(x.values[i]));
        }
    }
    numbers_free(&one);
    numbers_free(&x);
    numbers_free(&c);
}

static void own_product_by_one_loses_nothing(void **state)
{
    (void)state;
    with_best_tables(times_one);
}

/* Shapes that are packed once for all threads, in one go and in several, that are cut into blocks,
 * and into parts of k: right by the test of above, and of our own product the same bits for every
 * number of threads. */
static void same_bits(uint64_t seed)
{
    static const int64_t sizes[][3] = {{150, 4100, 1050}, {333, 100, 390}, {31, 90, 6301}};
    for (int size = 0; size < 3; size++) {
        int64_t m = sizes[size][0], n = sizes[size][1], k = sizes[size][2];
        numbers_t a = numbers_random(seed, "a", m * k, WEFT_F32, 1);
        numbers_t b = numbers_random(seed, "b", k * n, WEFT_F32, 1);
        numbers_t x = numbers_random(seed, "x", n, WEFT_F32, 1);
        numbers_t bias = numbers_random(seed, "bias", n, WEFT_F32, 1);
        numbers_t before = numbers_random(seed, "c", m * n, WEFT_F32, 1), c[3];
        numbers_t sums = numbers_random(seed, "sums", n, WEFT_F32, 1);
        double *column = calloc((size_t)n, sizeof(*column));
        bool onto = size == 2;
        double *bx = malloc((size_t)k * sizeof(*bx));
        for (int64_t q = 0; q < k; q++) {
            bx[q] = numbers_dot(b.values + q * n, x.values, n);
            for (int64_t j = 0; j < n; j++) {
                column[j] += 3 * b.values[q * n + j]; /* the product is taken three times */
            }
        }
        for (int i = 0; i < 3; i++) {
            c[i] = numbers_garbage(m * n, WEFT_F32);
            weft_matmul_t args = {.type = WEFT_F32, .c_type = WEFT_F32, .m = m, .n = n, .k = k};
            args.a = a.data;
            args.b = b.data;
            args.c = c[i].data;
            args.bias = onto ? NULL : bias.data;
            args.accumulate = onto;
            args.bias_grad = onto ? sums.data : NULL;
            memcpy(c[i].data, before.data, (size_t)(m * n) * sizeof(float));
            weft__compute_threads(i == 0 ? 1 : 2 * i + 1);
            numbers_ok(numbers_table()->matmul(&args, NULL));
            if (weft__blas_sgemm() == NULL) {
                assert_memory_equal(c[i].data, c[0].data, (size_t)(m * n) * sizeof(float));
            }
        }
        weft__compute_threads(0);
        numbers_read(&c[2]);
        for (int64_t i = 0; i < m; i++) {
            double expected = numbers_dot(a.values + i * k, bx, k) +
                              numbers_dot(onto ? before.values + i * n : bias.values, x.values, n);
            double got = numbers_dot(c[2].values + i * n, x.values, n);
            assert_true(fabs(got - expected) < 5e-2);
        }
        for (int64_t j = 0; j < n && onto; j++) {
            column[j] += sums.values[j];
        }
        if (onto) {
            numbers_check("gradient of a bias over parts", &sums, column, 1e-5);
        }
        numbers_t *all[] = {&a, &b, &x, &bias, &before, &sums, &c[0], &c[1], &c[2]};
        for (int i = 0; i < 9; i++) {
            numbers_free(all[i]);
        }
        free(column);
        free(bx);
    }
}

static void threads_do_not_change_bits(void **state)
{
    (void)state;
    with_best_tables(same_bits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(adds_in_place),
        cmocka_unit_test(own_product_of_many_blocks),
        cmocka_unit_test(own_product_by_one_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
