/* ctest: timeout=120 serial */
/* Gradients in fewer bits on the GPU: the bits of the CPU, for numbers of all sizes, for blocks of
 * zeros, of very small numbers, and of some that are not finite. */
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weft/weft.h>

#include "base/rng.h"
#include "gpu/gpu.h"
#include "kernel/cpu/compress.h"

#include <cmocka.h>

enum { BLOCKS = 1003, COUNT = BLOCKS * WEFT_QUANT_BLOCK, PARTS = 3 };

static const weft_compress_ops_t *cpu = &weft__compress_cpu, *gpu;
static uint64_t seed, drawn;

static void check(weft_status_t status)
{
    if (status != WEFT_OK) {
        fail_msg("%s", weft_last_error());
    }
}

static void *host(size_t bytes)
{
    void *memory = calloc(1, bytes);
    assert_non_null(memory);
    return memory;
}

static void *device(size_t bytes, const void *from)
{
    void *memory;
    check(weft_malloc(&memory, bytes));
    check(from ? weft_memcpy(memory, from, bytes, NULL) : weft_memset(memory, 0x55, bytes, NULL));
    return memory;
}

/* Compares, and frees. */
static void same(const char *what, void *on_host, void *on_device, size_t bytes)
{
    uint8_t *back = host(bytes);
    check(weft_memcpy(back, on_device, bytes, NULL));
    for (size_t i = 0; i < bytes; i++) {
        if (back[i] != ((uint8_t *)on_host)[i]) {
            fail_msg("%s: byte %zu is %02x, not %02x (seed %llu)", what, i, back[i],
                     ((uint8_t *)on_host)[i], (unsigned long long)seed);
        }
    }
    free(back);
    free(on_host);
    check(weft_free(on_device));
}

static float draw(void)
{
    return (float)(weft__rng_at(seed, drawn++) >> 40) / (1 << 23) - 1.0f;
}

/* Blocks whose sizes range over all exponents, and odd ones among them. */
static float *draw_numbers(bool finite)
{
    float *x = host(COUNT * sizeof(float));
    for (int b = 0; b < BLOCKS; b++) {
        int exponent = b % 260 - 140;
        for (int i = 0; i < WEFT_QUANT_BLOCK; i++) {
            x[b * WEFT_QUANT_BLOCK + i] = b % 97 == 5 ? 0.0f : ldexpf(draw(), exponent);
        }
        if (!finite && b % 101 == 7) {
            x[b * WEFT_QUANT_BLOCK + 77] = b % 2 ? INFINITY : NAN;
        }
    }
    return x;
}

static void quantized_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    float *in = draw_numbers(false), *residual = draw_numbers(true);
    weft_quantize_t c = {COUNT, in, residual, host(COUNT), host(BLOCKS * sizeof(float))};
    weft_quantize_t g = {COUNT, device(COUNT * sizeof(float), in),
                         device(COUNT * sizeof(float), residual), device(COUNT, NULL),
                         device(BLOCKS * sizeof(float), NULL)};
    check(cpu->quantize(&c, NULL));
    check(gpu->quantize(&g, NULL));
    same("values", c.out, g.out, COUNT);
    same("residual", residual, g.residual, COUNT * sizeof(float));
    same("scales", c.scales, g.scales, BLOCKS * sizeof(float));
    free(in);
    check(weft_free((void *)(uintptr_t)g.in));
}

static void sums_of_quantized_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    size_t piece = COUNT + BLOCKS * sizeof(float), bytes = PARTS * piece;
    char *pieces = host(bytes);
    for (int p = 0; p < PARTS; p++) {
        float *in = draw_numbers(p > 0), *residual = host(COUNT * sizeof(float));
        weft_quantize_t quantize = {COUNT, in, residual, (int8_t *)pieces + p * piece,
                                    (float *)(void *)(pieces + p * piece + COUNT)};
        check(cpu->quantize(&quantize, NULL));
        free(in);
        free(residual);
    }
    char *there = device(bytes, pieces);
    weft_dequantize_t c = {COUNT,
                           PARTS,
                           (int64_t)piece,
                           (int8_t *)pieces,
                           (float *)(void *)(pieces + COUNT),
                           host(COUNT * sizeof(float))};
    weft_dequantize_t g = {COUNT,
                           PARTS,
                           (int64_t)piece,
                           (int8_t *)there,
                           (float *)(void *)(there + COUNT),
                           device(COUNT * sizeof(float), NULL)};
    check(cpu->dequantize(&c, NULL));
    check(gpu->dequantize(&g, NULL));
    for (int i = 0; i < COUNT; i++) { /* one NaN is as good as another */
        c.out[i] = isnan(c.out[i]) ? 0.0f : c.out[i];
    }
    float *back = host(COUNT * sizeof(float));
    check(weft_memcpy(back, g.out, COUNT * sizeof(float), NULL));
    for (int i = 0; i < COUNT; i++) {
        back[i] = isnan(back[i]) ? 0.0f : back[i];
    }
    check(weft_memcpy(g.out, back, COUNT * sizeof(float), NULL));
    free(back);
    same("sums", c.out, g.out, COUNT * sizeof(float));
    free(pieces);
    check(weft_free(there));
}

static void peaks_are_found(void **state)
{
    (void)state;
    for (int finite = 0; finite < 2; finite++) {
        float *in = draw_numbers(finite);
        weft_peak_t c = {COUNT - 3, in, host(sizeof(float))};
        weft_peak_t g = {COUNT - 3, device(COUNT * sizeof(float), in), device(sizeof(float), NULL)};
        check(cpu->peak(&c, NULL));
        check(gpu->peak(&g, NULL));
        assert_true(finite ? *c.out > 0 && isfinite(*c.out) : isinf(*c.out));
        same("peak", c.out, g.out, sizeof(float));
        free(in);
        check(weft_free((void *)(uintptr_t)g.in));
    }
}

static void halves_have_the_bits_of_the_cpu(void **state)
{
    (void)state;
    for (int turn = 0; turn < 40; turn++) {
        float top = turn == 0 ? 0.0f : ldexpf(turn % 3 ? 1.0f + draw() / 2 : 1.0f, turn * 6 - 120);
        float *in = host(COUNT * sizeof(float));
        for (int i = 0; i < COUNT; i++) {
            in[i] = ldexpf(draw() * top, -(i % 40));
        }
        float *peak = device(sizeof(top), &top), *from = device(COUNT * sizeof(float), in);
        weft_f16_t c = {COUNT - 1, in, host(COUNT * 2), &top, 1 + turn % 8};
        weft_f16_t g = {COUNT - 1, from, device(COUNT * 2, c.out), peak, c.sum_of};
        check(cpu->to_f16(&c, NULL));
        check(gpu->to_f16(&g, NULL));
        weft_f16_t c_back = {COUNT - 1, c.out, in, &top, c.sum_of};
        weft_f16_t g_back = {COUNT - 1, g.out, from, peak, c.sum_of};
        check(cpu->from_f16(&c_back, NULL));
        check(gpu->from_f16(&g_back, NULL));
        same("halves", c.out, g.out, COUNT * 2);
        same("from halves", in, from, COUNT * sizeof(float));
        check(weft_free(peak));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantized_has_the_bits_of_the_cpu),
        cmocka_unit_test(sums_of_quantized_have_the_bits_of_the_cpu),
        cmocka_unit_test(peaks_are_found),
        cmocka_unit_test(halves_have_the_bits_of_the_cpu),
    };
    gpu_start(argc, argv, false);
    seed = (uint64_t)time(NULL);
    if (weft__compress_ops(&gpu) != WEFT_OK) {
        print_message("%s\n", weft_last_error());
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
