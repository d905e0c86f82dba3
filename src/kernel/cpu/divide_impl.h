/* Integer division by the number of ranks, in place, rounding towards zero.
 *
 * The divisor is the same for all elements, so each is multiplied by its reciprocal. For 8 and 32
 * bits that is done in a floating type with room to spare: x + 0.5 lies at least 0.5 / n away from
 * any multiple of n, and the rounding errors of the product are far less than that. For 64 bits it
 * is a 65-bit reciprocal in integers. The compiler vectorizes the loops: with one pointer there is
 * nothing to alias. */
#ifndef WEFT_KERNEL_CPU_DIVIDE_IMPL_H
#define WEFT_KERNEL_CPU_DIVIDE_IMPL_H

#include <stdint.h>

#include <weft/types.h>

typedef int8_t any_i8_t __attribute__((may_alias));
typedef uint8_t any_u8_t __attribute__((may_alias));
typedef int32_t any_i32_t __attribute__((may_alias));
typedef uint32_t any_u32_t __attribute__((may_alias));
typedef int64_t any_i64_t __attribute__((may_alias));
typedef uint64_t any_u64_t __attribute__((may_alias));

static void divide_i8(any_i8_t *data, size_t count, int n)
{
    float inverse = 1.0f / (float)n;
    for (size_t i = 0; i < count; i++) {
        float x = data[i];
        data[i] = (int8_t)(int32_t)((x + (x < 0 ? -0.5f : 0.5f)) * inverse);
    }
}

static void divide_u8(any_u8_t *data, size_t count, int n)
{
    float inverse = 1.0f / (float)n;
    for (size_t i = 0; i < count; i++) {
        data[i] = (uint8_t)(int32_t)(((float)data[i] + 0.5f) * inverse);
    }
}

static void divide_i32(any_i32_t *data, size_t count, int n)
{
    double inverse = 1.0 / n;
    for (size_t i = 0; i < count; i++) {
        double x = data[i];
        data[i] = (int32_t)((x + (x < 0 ? -0.5 : 0.5)) * inverse);
    }
}

/* n >= 2, so that the quotient fits an int32_t: CPUs convert to that at once. */
static void divide_u32(any_u32_t *data, size_t count, int n)
{
    double inverse = 1.0 / n;
    for (size_t i = 0; i < count; i++) {
        data[i] = (uint32_t)(int32_t)(((double)data[i] + 0.5) * inverse);
    }
}

/* 2^64 + magic is the reciprocal, scaled by 2^(64 + shift + 1) and rounded up. */
typedef struct reciprocal {
    uint64_t magic;
    int shift;
} reciprocal_t;

static reciprocal_t reciprocal_of(int n)
{
    int bits = 32 - __builtin_clz((unsigned)n - 1); /* 2^bits >= n; n >= 2 */
    unsigned __int128 rest = (unsigned __int128)(((uint64_t)1 << bits) - (unsigned)n) << 64;
    return (reciprocal_t){.magic = (uint64_t)(rest / (unsigned)n) + 1, .shift = bits - 1};
}

INLINE uint64_t divide_one(uint64_t x, reciprocal_t by)
{
    uint64_t high = (uint64_t)(((unsigned __int128)by.magic * x) >> 64);
    return (((x - high) >> 1) + high) >> by.shift;
}

static void divide_i64(any_i64_t *data, size_t count, int n)
{
    reciprocal_t by = reciprocal_of(n);
    for (size_t i = 0; i < count; i++) {
        uint64_t sign = (uint64_t)(data[i] >> 63);
        uint64_t size = ((uint64_t)data[i] ^ sign) - sign;
        data[i] = (int64_t)((divide_one(size, by) ^ sign) - sign);
    }
}

static void divide_u64(any_u64_t *data, size_t count, int n)
{
    reciprocal_t by = reciprocal_of(n);
    for (size_t i = 0; i < count; i++) {
        data[i] = divide_one(data[i], by);
    }
}

/* `type` is an integer type. */
static void divide(void *data, size_t count, weft_dtype_t type, int n)
{
    if (n == 1) {
        return;
    }
    switch (type) {
    case WEFT_I8:
        divide_i8(data, count, n);
        break;
    case WEFT_U8:
        divide_u8(data, count, n);
        break;
    case WEFT_I32:
        divide_i32(data, count, n);
        break;
    case WEFT_U32:
        divide_u32(data, count, n);
        break;
    case WEFT_I64:
        divide_i64(data, count, n);
        break;
    case WEFT_U64:
        divide_u64(data, count, n);
        break;
    default:
        break;
    }
}

#endif
