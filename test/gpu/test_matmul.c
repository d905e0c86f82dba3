/* ctest: timeout=300 serial */
/* Matrix products on the GPU against the CPU's: all transpositions, strides, endings, types. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <weft/weft.h>

#include "gpu/gpu.h"
#include "gpu/twins.h"
#include "kernel/compute.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef enum ending {
    PLAIN,
    BIAS,
    GELU,
    GELU_NO_AUX,
    DGELU,
    ADD,
    ADD_IN_PLACE,
    ACCUMULATE,
    BIAS_GRAD,
    GRAD_F32,
    ENDINGS
} ending_t;

static const char *const ending_names[] = {
    "plain", "bias",         "gelu",       "gelu without aux", "dgelu",
    "add",   "add in place", "accumulate", "bias_grad",        "f32 gradient"};

static const int64_t sizes[][3] = {{1, 1, 1},  {65, 33, 17},    {128, 96, 64},
                                   {8, 24, 8}, {257, 768, 384}, {100, 520, 1000}};

/* Where bias or add come after the product in a kernel of their own, the product p is rounded to 16
 * bits before: y = p (1 + d) + bias + add with |d| <= 2^-9 (bf16). That is off by up to 2^-9 |p|,
 * and |p| <= |y| + |bias| + |add|: relative to y alone there is no bound, since terms may cancel
 * (they do, with one element of each). GELU's slope of at most 1.13 changes nothing that 2^-6 does
 * not cover. */
static double magnitude_of(ending_t ending)
{
    double bias = ending == BIAS || ending == GELU || ending == GELU_NO_AUX || ending == ADD;
    return bias + (ending == ADD || ending == ADD_IN_PLACE ? 1.0 : 0.0);
}

static void product(twins_t *twins, weft_dtype_t type, const int64_t *size, int trans,
                    ending_t ending, int gap)
{
    bool grad = ending == BIAS_GRAD || ending == GRAD_F32;
    weft_matmul_t cpu = {.type = type,
                         .c_type = ending == GRAD_F32 ? WEFT_F32 : type,
                         .m = size[0],
                         .n = size[1],
                         .k = size[2],
                         .trans_a = trans & 1,
                         .trans_b = (trans & 2) != 0 && !grad,
                         .accumulate = ending == ACCUMULATE || grad};
    int64_t a_rows = cpu.trans_a ? cpu.k : cpu.m, a_columns = cpu.trans_a ? cpu.m : cpu.k;
    int64_t b_rows = cpu.trans_b ? cpu.n : cpu.k, b_columns = cpu.trans_b ? cpu.k : cpu.n;
    cpu.lda = gap > 0 ? a_columns + gap : 0;
    cpu.ldb = gap > 0 ? b_columns + gap : 0;
    cpu.ldc = gap > 0 ? cpu.n + gap : 0;
    weft_matmul_t gpu = cpu;
    twin_note("%s, %lld x %lld x %lld, transposed %d, gap %d, %s", weft_dtype_name(type),
              (long long)cpu.m, (long long)cpu.n, (long long)cpu.k, trans, gap,
              ending_names[ending]);
    TWIN(a, twin_input(twins, a_rows * (a_columns + gap), type, 1));
    TWIN(b, twin_input(twins, b_rows * (b_columns + gap), type, 1));
    TWIN(c, twin_result(twins, cpu.m * (cpu.n + gap), cpu.c_type, 1));
    if (ending == BIAS || ending == GELU || ending == GELU_NO_AUX || ending == ADD) {
        TWIN(bias, twin_input(twins, cpu.n, type, 1));
    }
    if (ending == ADD) {
        TWIN(add, twin_input(twins, cpu.m * (cpu.n + gap), type, 1));
    }
    if (ending == ADD_IN_PLACE) {
        cpu.add = cpu.c, gpu.add = gpu.c;
    }
    if (ending == GELU) {
        TWIN(aux, twin_result(twins, cpu.m * (cpu.n + gap), type, 1));
    }
    if (ending == DGELU) {
        TWIN(aux, twin_input(twins, cpu.m * (cpu.n + gap), type, 3));
    }
    if (grad) {
        TWIN(bias_grad, twin_result(twins, cpu.n, cpu.c_type, 1));
    }
    cpu.epilogue = ending == GELU || ending == GELU_NO_AUX ? WEFT_EPILOGUE_GELU
                   : ending == DGELU                       ? WEFT_EPILOGUE_DGELU
                                                           : WEFT_EPILOGUE_NONE;
    gpu.epilogue = cpu.epilogue;
    twin_magnitude(magnitude_of(ending));
    TWIN_RUN(twins, matmul, 2e-5);
}

/* Sums beyond f16 are infinite, not its largest number. One term each, so that both sides have the
 * same. */
static void overflow(twins_t *twins, bool bias)
{
    weft_matmul_t cpu = {.type = WEFT_F16, .c_type = WEFT_F16, .m = 64, .n = 72, .k = 1}, gpu = cpu;
    twin_note("f16, products that overflow%s", bias ? ", with a bias" : "");
    TWIN(a, twin_input(twins, cpu.m, WEFT_F16, 3000));
    TWIN(b, twin_input(twins, cpu.n, WEFT_F16, 100));
    TWIN(c, twin_result(twins, cpu.m * cpu.n, WEFT_F16, 1));
    if (bias) {
        TWIN(bias, twin_input(twins, cpu.n, WEFT_F16, 0));
    }
    TWIN_RUN(twins, matmul, 0);
}

int main(int argc, char **argv)
{
    twins_t twins = {.cpu = &weft__compute_cpu, .seed = (uint64_t)time(NULL)};
    const char *seed = getenv("WEFT_TEST_SEED");
    if (seed != NULL) {
        twins.seed = strtoull(seed, NULL, 10);
    }
    gpu_start(argc, argv, false);
    printf("WEFT_TEST_SEED=%llu\n", (unsigned long long)twins.seed);
    twin_check(weft__compute(&twins.gpu));
    twin_check(weft_stream_create(&twins.stream));
    for (size_t i = 0; i < COUNT(sizes); i++) {
        for (int trans = 0; trans < 4; trans++) {
            for (int ending = 0; ending < ENDINGS; ending++) {
                product(&twins, WEFT_F32, sizes[i], trans, (ending_t)ending, trans == 1 ? 3 : 0);
                product(&twins, WEFT_BF16, sizes[i], trans, (ending_t)ending, trans == 2 ? 8 : 0);
                product(&twins, WEFT_F16, sizes[i], trans, (ending_t)ending, trans == 2 ? 8 : 0);
            }
        }
    }
    overflow(&twins, false);
    overflow(&twins, true);
    twin_check(weft_stream_destroy(twins.stream));
    return twin_summary() == 0 ? 0 : 1;
}
