/* ctest: timeout=120
 * Reductions: every table, type and operation against a plain reference, bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernel/kernel.h"
#include "kernel/reference.h"

#define MOST 80 /* sources or destinations */

/* One call, with where its buffers lie. */
typedef struct call {
    const weft_kernels_t *table;
    weft_dtype_t type;
    weft_op_t op;
    int nsrc, ndst;
    size_t count;
    weft_store_t store;
    size_t misalign[2]; /* elements above a multiple of 64 bytes: sources, destinations */
    bool spread;        /* every destination lies differently */
} call_t;

static void fail_call(const call_t *call, int dst, size_t at, const void *is, const void *want)
{
    size_t size = weft_dtype_size(call->type);
    uint64_t a = 0, b = 0;
    memcpy(&a, (const char *)is + at * size, size);
    memcpy(&b, (const char *)want + at * size, size);
    fail_msg("%s: %s %s of %zu, %d to %d, %s, misaligned %zu and %zu%s: dst %d[%zu] is %#llx, "
             "not %#llx",
             call->table->name, weft_dtype_name(call->type), weft_op_name(call->op), call->count,
             call->nsrc, call->ndst, call->store == WEFT_STORE_STREAM ? "stream" : "cached",
             call->misalign[0], call->misalign[1], call->spread ? " and on" : "", dst, at,
             (unsigned long long)a, (unsigned long long)b);
}

static void check_dst(const call_t *call, int dst, const void *is, const void *want)
{
    size_t at = reference_differs(is, want, call->count, call->type);
    if (at < call->count) {
        fail_call(call, dst, at, is, want);
    }
}

/* Sources and expected result, shared by all calls on the same values. */
typedef struct values {
    weft_dtype_t type;
    size_t count;
    int nsrc;
    unsigned char *srcs[MOST];
    const void *const_srcs[MOST];
    unsigned char *want;
} values_t;

static void *must_alloc(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

static void values_create(values_t *values, weft_dtype_t type, size_t count, int nsrc)
{
    size_t bytes = count * weft_dtype_size(type);
    *values = (values_t){.type = type, .count = count, .nsrc = nsrc};
    for (int k = 0; k < nsrc; k++) {
        values->srcs[k] = must_alloc(bytes);
        values->const_srcs[k] = values->srcs[k];
        reference_fill(values->srcs[k], count, type, 100 + (uint64_t)k, 64);
    }
    values->want = must_alloc(bytes);
}

static void values_destroy(values_t *values)
{
    for (int k = 0; k < values->nsrc; k++) {
        free(values->srcs[k]);
    }
    free(values->want);
}

static void check_call(const call_t *call, const values_t *values)
{
    const size_t size = weft_dtype_size(call->type), bytes = call->count * size;
    box_t src_boxes[MOST], dst_boxes[MOST];
    const void *srcs[MOST];
    void *dsts[MOST];

    for (int k = 0; k < call->nsrc; k++) {
        src_boxes[k] = box_create(bytes, (call->misalign[0] + (size_t)k) * size);
        memcpy(src_boxes[k].data, values->srcs[k], bytes);
        srcs[k] = src_boxes[k].data;
    }
    for (int d = 0; d < call->ndst; d++) {
        size_t misalign = call->misalign[1] + (call->spread ? 3 * (size_t)d : 0);
        dst_boxes[d] = box_create(bytes, misalign * size);
        dsts[d] = dst_boxes[d].data;
    }
    call->table->reduce(dsts, call->ndst, srcs, call->nsrc, call->count, call->type, call->op,
                        call->store);
    for (int d = 0; d < call->ndst; d++) {
        check_dst(call, d, dsts[d], values->want);
        assert_true(box_intact(&dst_boxes[d]));
        box_destroy(&dst_boxes[d]);
    }
    for (int k = 0; k < call->nsrc; k++) {
        assert_memory_equal(srcs[k], values->srcs[k], bytes);
        assert_true(box_intact(&src_boxes[k]));
        box_destroy(&src_boxes[k]);
    }
}

/* Small counts lie in all ways; large ones take turns, one way a call. */
static void check_ways(call_t call, const values_t *values)
{
    static const struct {
        size_t src, dst;
        bool spread;
    } ways[] = {{0, 0, false}, {1, 1, false}, {0, 3, true}, {5, 0, true}, {2, 7, false}};
    static unsigned turn;
    const unsigned all = sizeof(ways) / sizeof(ways[0]);
    unsigned first = call.count > 2000 ? turn++ % all : 0;
    unsigned end = call.count > 2000 ? first + 1 : all;

    for (unsigned i = first; i < end; i++) {
        call.misalign[0] = ways[i].src;
        call.misalign[1] = ways[i].dst;
        call.spread = ways[i].spread;
        check_call(&call, values);
    }
}

static void check_values(const values_t *values, weft_op_t op)
{
    static const int ndsts[] = {1, 2, 3};
    for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
        for (int d = 0; d < 3; d++) {
            for (weft_store_t store = WEFT_STORE_CACHED; store <= WEFT_STORE_STREAM; store++) {
                call_t call = {.table = *table, .type = values->type, .op = op};
                call.nsrc = values->nsrc;
                call.ndst = ndsts[d];
                call.count = values->count;
                call.store = store;
                check_ways(call, values);
            }
        }
    }
}

static void reduce_all_types_ops_shapes_and_counts(void **state)
{
    static const int nsrcs[] = {1, 2, 3, 5, 8};
    static const size_t counts[] = {0, 1, 3, 15, 16, 17, 1000, 65537};
    (void)state;
    for (weft_dtype_t type = 0; type < WEFT_DTYPE_COUNT; type++) {
        for (int s = 0; s < 5; s++) {
            for (int c = 0; c < 8; c++) {
                values_t values;
                values_create(&values, type, counts[c], nsrcs[s]);
                for (weft_op_t op = 0; op < WEFT_OP_COUNT; op++) {
                    reference_reduce(values.want, values.const_srcs, values.nsrc, values.count,
                                     type, op);
                    check_values(&values, op);
                }
                values_destroy(&values);
            }
        }
    }
}

/* More streams than one pass takes go through a scratch, in f32 for halves. */
static void reduce_of_many_streams(void **state)
{
    static const struct {
        int nsrc, ndst;
    } shapes[] = {{32, 32}, {33, 1}, {64, 2}, {80, 3}, {2, 33}, {1, 40}, {80, 80}};
    (void)state;
    for (weft_dtype_t type = 0; type < WEFT_DTYPE_COUNT; type++) {
        for (size_t shape = 0; shape < sizeof(shapes) / sizeof(shapes[0]); shape++) {
            for (weft_op_t op = 0; op < WEFT_OP_COUNT; op++) {
                values_t values;
                values_create(&values, type, 2500, shapes[shape].nsrc);
                reference_reduce(values.want, values.const_srcs, values.nsrc, values.count, type,
                                 op);
                for (const weft_kernels_t *const *table = reference_tables(); *table; table++) {
                    call_t call = {.table = *table, .type = type, .op = op, .spread = true};
                    call.nsrc = values.nsrc;
                    call.ndst = shapes[shape].ndst;
                    call.count = values.count;
                    call.store = (weft_store_t)(shape % 2);
                    check_call(&call, &values);
                }
                values_destroy(&values);
            }
        }
    }
}

/* Large enough for the prefetching loops, small enough for every offset of a line. */
static void reduce_streams_whatever_the_alignment(void **state)
{
    (void)state;
    values_t values;
    values_create(&values, WEFT_F32, 40000, 2);
    reference_reduce(values.want, values.const_srcs, 2, values.count, WEFT_F32, WEFT_SUM);
    for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
        for (size_t misalign = 0; misalign < 256; misalign++) {
            call_t call = {.table = *table, .type = WEFT_F32, .op = WEFT_SUM};
            call.nsrc = 2;
            call.ndst = 2;
            call.count = misalign % 2 == 0 ? values.count : 100 + misalign;
            call.store = WEFT_STORE_STREAM;
            call.misalign[0] = misalign / 16;
            call.misalign[1] = misalign % 16;
            call.spread = misalign % 3 == 0;
            check_call(&call, &values);
        }
    }
    values_destroy(&values);
}

/* Destinations d is source (first + d) mod nsrc, as in an all-reduce in place. */
static void check_in_place(call_t call, const values_t *values, int first)
{
    const size_t size = weft_dtype_size(call.type), bytes = call.count * size;
    box_t boxes[MOST];
    const void *srcs[MOST];
    void *dsts[MOST];
    for (int k = 0; k < call.nsrc; k++) {
        boxes[k] = box_create(bytes, (call.misalign[0] + (size_t)k * call.spread) * size);
        memcpy(boxes[k].data, values->srcs[k], bytes);
        srcs[k] = boxes[k].data;
    }
    for (int d = 0; d < call.ndst; d++) {
        dsts[d] = boxes[(first + d) % call.nsrc].data;
    }
    call.table->reduce(dsts, call.ndst, srcs, call.nsrc, call.count, call.type, call.op,
                       call.store);
    for (int k = 0; k < call.nsrc; k++) {
        bool written = (k - first + call.nsrc) % call.nsrc < call.ndst;
        check_dst(&call, k, srcs[k], written ? values->want : values->srcs[k]);
        assert_true(box_intact(&boxes[k]));
        box_destroy(&boxes[k]);
    }
}

static void reduce_in_place_on_any_source(void **state)
{
    static const size_t counts[] = {1, 7, 100, 3001};
    static const int nsrcs[] = {2, 3, 8, 40};
    (void)state;
    for (weft_dtype_t type = 0; type < WEFT_DTYPE_COUNT; type++) {
        for (int c = 0; c < 16; c++) {
            int nsrc = nsrcs[c / 4];
            for (weft_op_t op = 0; op < WEFT_OP_COUNT; op++) {
                values_t values;
                values_create(&values, type, counts[c % 4], nsrc);
                reference_reduce(values.want, values.const_srcs, nsrc, values.count, type, op);
                for (const weft_kernels_t *const *table = reference_tables(); *table; table++) {
                    for (int variant = 0; variant < 8; variant++) {
                        call_t call = {.table = *table, .type = type, .op = op, .nsrc = nsrc};
                        call.count = values.count;
                        call.ndst = variant % 2 == 0 ? nsrc : 1;
                        call.store = (weft_store_t)(variant / 2 % 2);
                        call.spread = variant >= 4;
                        call.misalign[0] = (size_t)variant % 3;
                        check_in_place(call, &values, (variant * 3 + c) % nsrc);
                    }
                }
                values_destroy(&values);
            }
        }
    }
}

/* The reference itself is held to what the mathematics says. */
static void sums_and_averages_are_near_the_exact_ones(void **state)
{
    static const double precision[] = {
        [WEFT_F64] = 0x1p-52, [WEFT_F32] = 0x1p-23, [WEFT_F16] = 0x1p-10, [WEFT_BF16] = 0x1p-7};
    enum { COUNT = 1000, SRCS = 8 };
    (void)state;
    for (weft_dtype_t type = WEFT_F64; type <= WEFT_BF16; type++) {
        unsigned char *srcs[SRCS];
        const void *const_srcs[SRCS];
        void *dst = must_alloc(COUNT * 8);
        for (int k = 0; k < SRCS; k++) {
            const_srcs[k] = srcs[k] = must_alloc(COUNT * 8);
            reference_fill(srcs[k], COUNT, type, 7 + (uint64_t)k, 0);
        }
        for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
            for (int average = 0; average < 2; average++) {
                (*table)->reduce(&dst, 1, const_srcs, SRCS, COUNT, type,
                                 average ? WEFT_AVG : WEFT_SUM, WEFT_STORE_CACHED);
                for (size_t i = 0; i < COUNT; i++) {
                    long double sum = 0, sizes = 0;
                    for (int k = 0; k < SRCS; k++) {
                        long double x = reference_value(srcs[k], i, type);
                        sum += x;
                        sizes += fabsl(x);
                    }
                    long double divisor = average ? SRCS : 1;
                    /* SRCS roundings of the sum in f32 or better, one of the result */
                    long double bound = sizes / divisor * SRCS *
                                            (type == WEFT_F64 ? 0x1p-52L : 0x1p-23L) +
                                        fabsl(sum) / divisor * precision[type];
                    long double is = reference_value(dst, i, type);
                    assert_true(fabsl(is - sum / divisor) <= bound);
                }
            }
        }
        for (int k = 0; k < SRCS; k++) {
            free(srcs[k]);
        }
        free(dst);
    }
}

/* ---- halves: every value ---------------------------------------------------------------- */

enum { HALVES = 65536 };

static void check_halves(weft_dtype_t type, weft_op_t op, const uint16_t *a, const uint16_t *b)
{
    static uint16_t want[HALVES], is[HALVES];
    const void *srcs[] = {a, b};
    reference_reduce(want, srcs, 2, HALVES, type, op);
    for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
        call_t call = {.table = *table, .type = type, .op = op, .nsrc = 2, .count = HALVES};
        memset(is, 0x55, sizeof(is));
        (*table)->combine(is, a, b, HALVES, type, op);
        check_dst(&call, 0, is, want);
    }
}

static void halves_convert_exactly_and_round_to_even(void **state)
{
    static const uint16_t others_f16[] = {0x8000, 0x3c01, 0x0001, 0x1001, 0x77ff,
                                          0x0fff, 0x7bff, 0x8400, 0x7c00, 0x7d00};
    static const uint16_t others_bf16[] = {0x8000, 0x3f81, 0x0001, 0x2081, 0x7eff,
                                           0x1fff, 0x7f7f, 0x8080, 0x7f80, 0x7fa0};
    static uint16_t all[HALVES], other[HALVES];
    (void)state;
    for (int i = 0; i < HALVES; i++) {
        all[i] = (uint16_t)i;
    }
    for (int o = 0; o < 10; o++) {
        for (weft_dtype_t type = WEFT_F16; type <= WEFT_BF16; type++) {
            for (int i = 0; i < HALVES; i++) {
                other[i] = type == WEFT_F16 ? others_f16[o] : others_bf16[o];
            }
            for (weft_op_t op = WEFT_SUM; op <= WEFT_MAX; op++) {
                check_halves(type, op, all, other);
                check_halves(type, op, other, all);
            }
        }
    }
}

/* MIN and MAX compute nothing: the tables agree on every bit, be it a NaN's. */
static void minima_and_maxima_are_the_same_nans_in_all_tables(void **state)
{
    enum { COUNT = 5000 };
    (void)state;
    for (weft_dtype_t type = WEFT_F64; type <= WEFT_BF16; type++) {
        size_t bytes = COUNT * weft_dtype_size(type);
        values_t values;
        values_create(&values, type, COUNT, 2);
        reference_fill(values.srcs[0], COUNT, type, 1, 2);
        reference_fill(values.srcs[1], COUNT, type, 2, 2);
        void *is = must_alloc(bytes);
        for (weft_op_t op = WEFT_MIN; op <= WEFT_MAX; op++) {
            const weft_kernels_t *const *table = reference_tables();
            (*table)->combine(values.want, values.srcs[0], values.srcs[1], COUNT, type, op);
            for (table++; *table != NULL; table++) {
                (*table)->combine(is, values.srcs[0], values.srcs[1], COUNT, type, op);
                assert_memory_equal(is, values.want, bytes);
            }
        }
        free(is);
        values_destroy(&values);
    }
}

/* x + (-0) is x: what went through f32 and back must be as it was, but for quieted NaNs. */
static void halves_survive_the_way_through_f32(void **state)
{
    static uint16_t all[HALVES], zero[HALVES], is[HALVES];
    (void)state;
    for (int i = 0; i < HALVES; i++) {
        all[i] = (uint16_t)i;
        zero[i] = 0x8000;
    }
    for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
        for (weft_dtype_t type = WEFT_F16; type <= WEFT_BF16; type++) {
            uint16_t infinity = type == WEFT_F16 ? 0x7c00 : 0x7f80;
            uint16_t quiet = type == WEFT_F16 ? 0x0200 : 0x0040;
            (*table)->combine(is, all, zero, HALVES, type, WEFT_SUM);
            for (int i = 0; i < HALVES; i++) {
                bool nan = (i & 0x7fff) > infinity;
                assert_int_equal(is[i], nan ? all[i] | quiet : all[i]);
            }
        }
    }
}

/* ---- combine and finish ----------------------------------------------------------------- */

static void combine_in_all_types_and_places(void **state)
{
    static const size_t counts[] = {0, 1, 2, 5, 31, 64, 1000, 33333};
    (void)state;
    for (weft_dtype_t type = 0; type < WEFT_DTYPE_COUNT; type++) {
        size_t size = weft_dtype_size(type);
        for (weft_op_t op = 0; op < WEFT_OP_COUNT; op++) {
            for (int c = 0; c < 8; c++) {
                values_t values;
                values_create(&values, type, counts[c], 2);
                /* combine leaves the division of an average to finish */
                reference_reduce(values.want, values.const_srcs, 2, counts[c], type,
                                 op == WEFT_AVG ? WEFT_SUM : op);
                for (const weft_kernels_t *const *table = reference_tables(); *table; table++) {
                    for (int place = 0; place < 3; place++) { /* apart, on a, on b */
                        call_t call = {.table = *table, .type = type, .op = op, .nsrc = 2};
                        call.count = counts[c];
                        box_t a = box_create(counts[c] * size, size);
                        box_t b = box_create(counts[c] * size, 2 * size);
                        box_t out = box_create(counts[c] * size, 0);
                        memcpy(a.data, values.srcs[0], counts[c] * size);
                        memcpy(b.data, values.srcs[1], counts[c] * size);
                        box_t *dst = place == 0 ? &out : place == 1 ? &a : &b;
                        (*table)->combine(dst->data, a.data, b.data, counts[c], type, op);
                        check_dst(&call, 0, dst->data, values.want);
                        assert_true(box_intact(&a) && box_intact(&b) && box_intact(&out));
                        box_destroy(&a);
                        box_destroy(&b);
                        box_destroy(&out);
                    }
                }
                values_destroy(&values);
            }
        }
    }
}

static void check_finish(weft_dtype_t type, const void *src, size_t count, int n)
{
    size_t bytes = count * weft_dtype_size(type);
    void *want = must_alloc(bytes);
    box_t dst = box_create(bytes, weft_dtype_size(type));
    if (n == 1) {
        memcpy(want, src, bytes);
    } else {
        reference_divide(want, src, count, type, n);
    }
    for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
        call_t call = {.table = *table, .type = type, .op = WEFT_AVG, .nsrc = n, .count = count};
        (*table)->finish(dst.data, src, count, type, WEFT_AVG, n);
        check_dst(&call, 0, dst.data, want);
        memcpy(dst.data, src, bytes);
        (*table)->finish(dst.data, dst.data, count, type, WEFT_AVG, n);
        check_dst(&call, 0, dst.data, want);
        memset(dst.data, 0, bytes);
        (*table)->finish(dst.data, src, count, type, WEFT_MAX, n);
        assert_memory_equal(dst.data, src, bytes);
        assert_true(box_intact(&dst));
    }
    box_destroy(&dst);
    free(want);
}

/* Among them some whose reciprocal is a little small, in f32 (41, 47, 55) or in f64 (49, 103,
 * 107). */
static const int divisors[] = {
    1,        2,     3,     4,     5,       6,        7,       8,          10,
    41,       47,    49,    55,    64,      98,       100,     103,        107,
    127,      128,   129,   161,   255,     256,      257,     1000,       4096,
    49 * 103, 65535, 65536, 65537, 1 << 20, 16777217, 1 << 30, 2147483646, 2147483647};

static void finish_divides_towards_zero(void **state)
{
    enum { COUNT = 4999 };
    (void)state;
    for (weft_dtype_t type = 0; type < WEFT_DTYPE_COUNT; type++) {
        unsigned char *src = must_alloc(COUNT * 8);
        for (size_t d = 0; d < sizeof(divisors) / sizeof(divisors[0]); d++) {
            reference_fill(src, COUNT, type, d, 8);
            check_finish(type, src, COUNT, divisors[d]);
            check_finish(type, src, d % 20, divisors[d]);
        }
        free(src);
    }
}

/* The quotients next to multiples of the divisor are where a reciprocal would go wrong. */
static void finish_is_exact_next_to_multiples(void **state)
{
    static uint64_t wide[3072];
    static uint32_t narrow[3072];
    static uint8_t bytes[256];
    (void)state;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
    }
    for (size_t d = 0; d < sizeof(divisors) / sizeof(divisors[0]); d++) {
        uint64_t n = (uint64_t)divisors[d];
        for (uint64_t i = 0; i < 1024; i++) {
            uint64_t quotient = UINT64_MAX / n >> (i % 63), low = UINT32_MAX / n >> (i % 31);
            for (uint64_t near = 0; near < 3; near++) {
                wide[3 * i + near] = quotient * n + near - 1;
                narrow[3 * i + near] = (uint32_t)(low * n + near - 1);
            }
        }
        check_finish(WEFT_I64, wide, 3072, divisors[d]);
        check_finish(WEFT_U64, wide, 3072, divisors[d]);
        check_finish(WEFT_I32, narrow, 3072, divisors[d]);
        check_finish(WEFT_U32, narrow, 3072, divisors[d]);
        check_finish(WEFT_I8, bytes, 256, divisors[d]);
        check_finish(WEFT_U8, bytes, 256, divisors[d]);
    }
}

/* ---- the ends of memory ----------------------------------------------------------------- */

/* A page between two that cannot be touched. */
static unsigned char *fenced_page(void)
{
    unsigned char *pages = mmap(NULL, 3 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + 4096, 4096, PROT_READ | PROT_WRITE), 0);
    return pages + 4096;
}

static void reduce_touches_nothing_outside_its_buffers(void **state)
{
    enum { SRCS = 3, DSTS = 2 };
    unsigned char *pages[SRCS + DSTS];
    (void)state;
    for (int i = 0; i < SRCS + DSTS; i++) {
        pages[i] = fenced_page();
    }
    for (const weft_kernels_t *const *table = reference_tables(); *table != NULL; table++) {
        for (weft_dtype_t type = 0; type < WEFT_DTYPE_COUNT; type++) {
            for (size_t count = 1; count <= 300; count++) {
                size_t bytes = count * weft_dtype_size(type);
                size_t at_end = 4096 - bytes;
                const void *srcs[SRCS];
                void *dsts[DSTS];
                for (int i = 0; i < SRCS + DSTS; i++) {
                    unsigned char *at = pages[i] + ((count + (size_t)i) % 3 == 0 ? 0 : at_end);
                    if (i < SRCS) {
                        reference_fill(at, count, type, count, 0);
                        srcs[i] = at;
                    } else {
                        dsts[i - SRCS] = at;
                    }
                }
                unsigned char want[4096];
                int nsrc = 1 + (int)count % SRCS;
                reference_reduce(want, srcs, nsrc, count, type, WEFT_SUM);
                (*table)->reduce(dsts, DSTS, srcs, nsrc, count, type, WEFT_SUM,
                                 (weft_store_t)(count % 2));
                call_t call = {.table = *table, .type = type, .count = count, .nsrc = nsrc};
                check_dst(&call, 0, dsts[0], want);
                check_dst(&call, 1, dsts[1], want);
            }
        }
    }
    for (int i = 0; i < SRCS + DSTS; i++) {
        munmap(pages[i] - 4096, 3 * 4096);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reduce_all_types_ops_shapes_and_counts),
        cmocka_unit_test(reduce_of_many_streams),
        cmocka_unit_test(reduce_streams_whatever_the_alignment),
        cmocka_unit_test(reduce_in_place_on_any_source),
        cmocka_unit_test(sums_and_averages_are_near_the_exact_ones),
        cmocka_unit_test(halves_convert_exactly_and_round_to_even),
        cmocka_unit_test(minima_and_maxima_are_the_same_nans_in_all_tables),
        cmocka_unit_test(halves_survive_the_way_through_f32),
        cmocka_unit_test(combine_in_all_types_and_places),
        cmocka_unit_test(finish_divides_towards_zero),
        cmocka_unit_test(finish_is_exact_next_to_multiples),
        cmocka_unit_test(reduce_touches_nothing_outside_its_buffers),
    };
    return cmocka_run_group_tests_name("kernel/reduce", tests, NULL, NULL);
}
