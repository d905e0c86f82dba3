/* Compression against plain definitions, for every instruction set that this CPU has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/rng.h"
#include "kernel/cpu/compress.h"
#include "kernel/kernel.h"

#define BLOCKS 9
#define COUNT (BLOCKS * WEFT_QUANT_BLOCK)

static uint64_t seed;

/* Numbers of very different sizes, block by block. */
static void fill(float *out, uint64_t salt)
{
    for (int i = 0; i < COUNT; i++) {
        double unit = (double)(weft__rng_at(seed + salt, (uint64_t)i) >> 11) * 0x1p-53 - 0.5;
        out[i] = (float)ldexp(unit, -(i / WEFT_QUANT_BLOCK) * 15);
    }
    memset(out + 3 * WEFT_QUANT_BLOCK, 0, WEFT_QUANT_BLOCK * sizeof(float));
}

static const weft_compress_inner_t *table_at(int i)
{
#if defined(__x86_64__)
    static const weft_compress_inner_t *const all[] = {&weft__compress_none, &weft__compress_avx2,
                                                       &weft__compress_avx512};
#else
    static const weft_compress_inner_t *const all[] = {&weft__compress_none};
#endif
    if (i >= (int)(sizeof(all) / sizeof(all[0]))) {
        return NULL;
    }
    return weft__kernels_named(all[i]->name) != NULL ? all[i] : &weft__compress_none;
}

static void quantized_is_within_half_a_unit_and_the_rest_is_kept(void **state)
{
    static float in[COUNT], residual[COUNT], before[COUNT], back[COUNT], scales[BLOCKS];
    static int8_t out[COUNT];
    (void)state;
    const weft_compress_inner_t *table;
    for (int k = 0; (table = table_at(k)) != NULL; k++) {
        fill(in, 1);
        fill(residual, 2);
        memcpy(before, residual, sizeof(before));
        weft_quantize_t quantize = {COUNT, in, residual, out, scales};
        table->quantize(&quantize);
        weft_dequantize_t dequantize = {COUNT, 1, 0, out, scales, back};
        table->dequantize(&dequantize);
        for (int i = 0; i < COUNT; i++) {
            float x = in[i] + before[i], unit = scales[i / WEFT_QUANT_BLOCK];
            assert_true(fabsf(x - back[i]) <= unit * 0.5001f);
            assert_true(x - back[i] == residual[i]); /* to the bit: nothing is lost */
        }
    }
}

static void all_instruction_sets_give_the_same_bits(void **state)
{
    static float in[COUNT], residual[2][COUNT], scales[2][BLOCKS];
    static int8_t out[2][COUNT];
    (void)state;
    const weft_compress_inner_t *table;
    for (int k = 0; (table = table_at(k)) != NULL; k++) {
        const weft_compress_inner_t *both[2] = {&weft__compress_none, table};
        fill(in, 3);
        for (int i = 0; i < 2; i++) {
            fill(residual[i], 4);
            weft_quantize_t quantize = {COUNT, in, residual[i], out[i], scales[i]};
            both[i]->quantize(&quantize);
        }
        assert_memory_equal(out[0], out[1], sizeof(out[0]));
        assert_memory_equal(residual[0], residual[1], sizeof(residual[0]));
        assert_memory_equal(scales[0], scales[1], sizeof(scales[0]));
    }
}

static void pieces_of_many_ranks_add_up_in_order(void **state)
{
    enum { RANKS = 5, PIECE = COUNT + BLOCKS * (int)sizeof(float) };
    static float in[RANKS][COUNT], residual[COUNT], sum[COUNT], one[COUNT], expected[COUNT];
    static _Alignas(4) char pieces[RANKS][PIECE];
    (void)state;
    memset(expected, 0, sizeof(expected));
    for (int r = 0; r < RANKS; r++) {
        fill(in[r], 10 + (uint64_t)r);
        memset(residual, 0, sizeof(residual));
        weft_quantize_t quantize = {COUNT, in[r], residual, (int8_t *)pieces[r],
                                    (float *)(pieces[r] + COUNT)};
        weft__compress_none.quantize(&quantize);
        weft_dequantize_t alone = {COUNT, 1, 0, (int8_t *)pieces[r], (float *)(pieces[r] + COUNT),
                                   one};
        weft__compress_none.dequantize(&alone);
        for (int i = 0; i < COUNT; i++) {
            expected[i] += one[i];
        }
    }
    const weft_compress_inner_t *table;
    for (int k = 0; (table = table_at(k)) != NULL; k++) {
        weft_dequantize_t all = {
            COUNT, RANKS, PIECE, (int8_t *)pieces[0], (float *)(pieces[0] + COUNT), sum};
        table->dequantize(&all);
        assert_memory_equal(sum, expected, sizeof(sum));
    }
}

static void a_value_that_is_not_finite_stays_visible(void **state)
{
    static float in[COUNT], residual[COUNT], back[COUNT], scales[BLOCKS], top;
    static int8_t out[COUNT];
    const float bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (int b = 0; b < 3; b++) {
        fill(in, 5);
        memset(residual, 0, sizeof(residual));
        in[WEFT_QUANT_BLOCK + 7] = bad[b];
        weft_quantize_t quantize = {COUNT, in, residual, out, scales};
        weft_dequantize_t dequantize = {COUNT, 1, 0, out, scales, back};
        weft_peak_t peak = {COUNT, in, &top};
        table_at(1)->quantize(&quantize);
        table_at(1)->dequantize(&dequantize);
        table_at(1)->peak(&peak);
        assert_true(isnan(back[WEFT_QUANT_BLOCK]) && isnan(back[2 * WEFT_QUANT_BLOCK - 1]));
        assert_true(isfinite(back[0]) && isfinite(back[2 * WEFT_QUANT_BLOCK]));
        assert_true(residual[WEFT_QUANT_BLOCK] == 0.0f);
        assert_true(isinf(top));
    }
}

/* The nearest half, ties to even, by trying all of them. */
static float nearest_half(float value)
{
    static float halves[0x7c01];
    if (halves[1] == 0.0f) {
        for (int i = 0; i <= 0x7c00; i++) {
            halves[i] = weft__f16_to_f32((uint16_t)i);
        }
    }
    float magnitude = fabsf(value);
    int low = 0, high = 0x7bff;
    while (low < high) { /* the largest half that is not above it */
        int middle = (low + high + 1) / 2;
        if (halves[middle] <= magnitude) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    double below = halves[low], above = low < 0x7bff ? halves[low + 1] : 65536.0;
    double middle = (below + above) / 2;
    bool up = magnitude > middle || (magnitude == middle && (low & 1) != 0);
    return copysignf(up ? (low < 0x7bff ? (float)above : INFINITY) : (float)below, value);
}

static void halves_are_the_nearest_ones(void **state)
{
    static float in[COUNT], back[COUNT];
    static uint16_t out[COUNT];
    float one = 1.0f;
    (void)state;
    const weft_compress_inner_t *table;
    for (int k = 0; (table = table_at(k)) != NULL; k++) {
        for (int i = 0; i < COUNT; i++) { /* all exponents that matter, and ties */
            uint64_t bits = weft__rng_at(seed + 6, (uint64_t)i);
            double fraction = i % 3 == 0 ? (double)(bits % 4096) / 4096
                                         : (double)(bits >> 11) * 0x1p-53;
            in[i] = (float)ldexp((i & 1 ? -1.0 : 1.0) * (1 + fraction), (int)(bits % 45) - 28);
        }
        weft_f16_t narrow = {COUNT - 3, in, out, &one, 1}; /* not a multiple of a vector */
        weft_f16_t widen = {COUNT - 3, out, back, &one, 1};
        table->to_f16(&narrow, 1.0f);
        table->from_f16(&widen, 1.0f);
        for (int i = 0; i < COUNT - 3; i++) {
            assert_true(back[i] == nearest_half(in[i]));
        }
        table->to_f16(&narrow, NAN); /* what cannot be sent becomes NaN everywhere */
        table->from_f16(&widen, NAN);
        assert_true(isnan(back[0]) && isnan(back[COUNT - 4]));
    }
}

static void f16_uses_its_range_whatever_the_size_of_gradients(void **state)
{
    const weft_compress_ops_t *ops;
    static float in[COUNT], back[COUNT];
    static uint16_t out[COUNT];
    (void)state;
    assert_int_equal(weft__compress_ops(&ops), WEFT_OK);
    for (int exponent = -120; exponent <= 120; exponent += 30) {
        float top;
        for (int i = 0; i < COUNT; i++) {
            double unit = (double)(weft__rng_at(seed + 7, (uint64_t)i) >> 11) * 0x1p-53 + 0.5;
            in[i] = (float)ldexp(unit, exponent);
        }
        weft_peak_t peak = {COUNT, in, &top};
        weft_f16_t narrow = {COUNT, in, out, &top, 8}, widen = {COUNT, out, back, &top, 8};
        assert_int_equal(ops->peak(&peak, NULL), WEFT_OK);
        assert_int_equal(ops->to_f16(&narrow, NULL), WEFT_OK);
        assert_int_equal(ops->from_f16(&widen, NULL), WEFT_OK);
        for (int i = 0; i < COUNT; i++) {
            assert_true(fabsf(back[i] - in[i]) <= in[i] * 0x1p-11f);
            assert_true(fabsf(weft__f16_to_f32(out[i])) * 8 <= 32768.0f);
        }
    }
}

int main(void)
{
    assert_int_equal(weft__random_bytes(&seed, sizeof(seed)), WEFT_OK);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantized_is_within_half_a_unit_and_the_rest_is_kept),
        cmocka_unit_test(all_instruction_sets_give_the_same_bits),
        cmocka_unit_test(pieces_of_many_ranks_add_up_in_order),
        cmocka_unit_test(a_value_that_is_not_finite_stays_visible),
        cmocka_unit_test(halves_are_the_nearest_ones),
        cmocka_unit_test(f16_uses_its_range_whatever_the_size_of_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
