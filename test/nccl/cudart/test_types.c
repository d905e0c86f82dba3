/* CUDA's small floating point types on the host: every number there and back, and rounding to the
 * nearest, ties to even, against a search over all numbers of the type. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/cudart/cudart.h"

#include <weft/cudart/cuda_bf16.h>
#include <weft/cudart/cuda_fp16.h>
#include <weft/cudart/cuda_fp8.h>

typedef struct type {
    const char *name;
    unsigned count; /* of positive patterns, the infinite one included where there is one */
    float (*to_float)(unsigned bits);
    unsigned (*from_float)(float value);
    unsigned (*from_double)(double value);
    unsigned sign, nan;
} type_t;

static float half_out(unsigned bits)
{
    return __half2float(__ushort_as_half((unsigned short)bits));
}
static unsigned half_in(float value)
{
    return __half_as_ushort(__float2half(value));
}
static unsigned half_in_double(double value)
{
    return __half_as_ushort(__double2half(value));
}
static float bf16_out(unsigned bits)
{
    return __bfloat162float(__ushort_as_bfloat16((unsigned short)bits));
}
static unsigned bf16_in(float value)
{
    return __bfloat16_as_ushort(__float2bfloat16(value));
}
static unsigned bf16_in_double(double value)
{
    return __bfloat16_as_ushort(__double2bfloat16(value));
}
static float e4m3_out(unsigned bits)
{
    return weft_cudart_fp8_to_float((__nv_fp8_storage_t)bits, __NV_E4M3);
}
static unsigned e4m3_in(float value)
{
    return __nv_cvt_float_to_fp8(value, __NV_NOSAT, __NV_E4M3);
}
static unsigned e4m3_in_double(double value)
{
    return __nv_cvt_double_to_fp8(value, __NV_NOSAT, __NV_E4M3);
}
static float e5m2_out(unsigned bits)
{
    return weft_cudart_fp8_to_float((__nv_fp8_storage_t)bits, __NV_E5M2);
}
static unsigned e5m2_in(float value)
{
    return __nv_cvt_float_to_fp8(value, __NV_NOSAT, __NV_E5M2);
}
static unsigned e5m2_in_double(double value)
{
    return __nv_cvt_double_to_fp8(value, __NV_NOSAT, __NV_E5M2);
}

static const type_t types[] = {
    {"half", 0x7C01, half_out, half_in, half_in_double, 0x8000, 0x7FFF},
    {"bf16", 0x7F81, bf16_out, bf16_in, bf16_in_double, 0x8000, 0x7FFF},
    {"e4m3", 0x7F, e4m3_out, e4m3_in, e4m3_in_double, 0x80, 0x7F},
    {"e5m2", 0x7D, e5m2_out, e5m2_in, e5m2_in_double, 0x80, 0x7E},
};

static void expect(const type_t *type, double value, unsigned wanted)
{
    unsigned got = type->from_double(value), negative = type->from_double(-value);
    if (got != wanted || negative != (wanted | type->sign)) {
        fail_msg("%s of %.17g: %x and %x, not %x", type->name, value, got, negative, wanted);
    }
    if ((double)(float)value == value && type->from_float((float)value) != wanted) {
        fail_msg("%s of %.17gf: %x, not %x", type->name, value, type->from_float((float)value),
                 wanted);
    }
}

static void numbers_round_to_the_nearest(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        const type_t *type = &types[t];
        for (unsigned i = 0; i + 1 < type->count; i++) {
            double low = type->to_float(i), high = type->to_float(i + 1);
            if (isinf(high)) { /* where the next number would be */
                high = 2 * low - (double)type->to_float(i - 1);
            }
            double middle = (low + high) / 2;
            assert_true(low < high);
            expect(type, low, i);
            expect(type, middle, i + (i & 1)); /* even */
            expect(type, nextafter(middle, low), i);
            expect(type, nextafter(middle, high), i + 1);
        }
    }
}

static void what_is_no_number_or_too_large(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        assert_int_equal(types[t].from_float(nanf("")), types[t].nan);
        assert_true(isnan(types[t].to_float(types[t].nan)));
    }
    assert_int_equal(half_in(INFINITY), 0x7C00);
    assert_int_equal(half_in(65520), 0x7C00);
    assert_int_equal(half_in(65519), 0x7BFF);
    assert_int_equal(e4m3_in(INFINITY), 0x7F);
    assert_int_equal(e4m3_in(465), 0x7F);
    assert_int_equal(e4m3_in(464), 0x7E);
    assert_int_equal(__nv_cvt_float_to_fp8(1e30f, __NV_SATFINITE, __NV_E4M3), 0x7E);
    assert_int_equal(__nv_cvt_float_to_fp8(-INFINITY, __NV_SATFINITE, __NV_E5M2), 0xFB);
    assert_int_equal(e5m2_in(1e30f), 0x7C);
}

static void vectors_have_cudas_sizes(void **state)
{
    (void)state;
    assert_int_equal(sizeof(float4), 16);
    assert_int_equal(sizeof(float3), 12);
    assert_int_equal(sizeof(double2), 16);
    assert_int_equal(sizeof(uchar4), 4);
    assert_int_equal(sizeof(ulonglong2), 16);
    assert_int_equal(sizeof(__half2), 4);
    assert_int_equal(sizeof(dim3), 12);
    float4 v = make_float4(1, 2, 3, 4);
    assert_true(v.w == 4 && make_int3(1, 2, 3).z == 3);
    assert_true(__high2float(__floats2half2_rn(1, 2)) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_round_to_the_nearest),
        cmocka_unit_test(what_is_no_number_or_too_large),
        cmocka_unit_test(vectors_have_cudas_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
