/* Vectors of 16 bytes in plain C: every 64-bit CPU has them, and the compiler splits them for one
 * that has not. Halves are converted by integer arithmetic that gives the very bits of F16C. */
#ifndef WEFT_KERNEL_CPU_VEC_NONE_H
#define WEFT_KERNEL_CPU_VEC_NONE_H

#define VEC_BYTES 16
#define VEC_MASKED 0
#define VEC_WIDE 8      /* vectors in flight in the long loops: what the registers can hold */
#define VEC_WIDE_HALF 8 /* the same for halves: their column is a whole cache line then */

#include "kernel/cpu/vec.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#define VEC_STREAMS 1
#else
#define VEC_STREAMS 0
#endif

typedef vec_t half_t; /* four halves in the low 8 bytes */

/* `to` is aligned to VEC_BYTES. */
INLINE void vec_stream(void *to, vec_t value)
{
#if VEC_STREAMS
    _mm_stream_si128((__m128i *)to, (__m128i)value);
    VEC_IN_ORDER();
#else
    vec_store(to, value);
#endif
}

INLINE void vec_fence(void)
{
#if VEC_STREAMS
    _mm_sfence();
#endif
}

/* The low `bytes` (1, 2, 4 or 8, a constant); the rest is zero. */
INLINE vec_t vec_load_low(const void *from, size_t bytes)
{
    uint64_t low = 0;
    switch (bytes) {
    case 8: {
        memcpy(&low, from, 8);
        return (vec_t)(vec_u64_t){low};
    }
    case 4: {
        uint32_t value;
        memcpy(&value, from, 4);
        return (vec_t)(vec_u32_t){value};
    }
    case 2: {
        uint16_t value;
        memcpy(&value, from, 2);
        return (vec_t)(vec_u16_t){value};
    }
    default: {
        uint8_t value;
        memcpy(&value, from, 1);
        return (vec_t)(vec_u8_t){value};
    }
    }
}

INLINE void vec_store_low(void *to, vec_t value, size_t bytes)
{
    switch (bytes) {
    case 8: {
        uint64_t low = ((vec_u64_t)value)[0];
        memcpy(to, &low, 8);
        break;
    }
    case 4: {
        uint32_t low = ((vec_u32_t)value)[0];
        memcpy(to, &low, 4);
        break;
    }
    case 2: {
        uint16_t low = ((vec_u16_t)value)[0];
        memcpy(to, &low, 2);
        break;
    }
    default: {
        uint8_t low = ((vec_u8_t)value)[0];
        memcpy(to, &low, 1);
        break;
    }
    }
}

INLINE half_t half_load(const void *from)
{
    return vec_load_low(from, 8);
}

INLINE void half_store(void *to, half_t value)
{
    vec_store_low(to, value, 8);
}

INLINE half_t half_load_low(const void *from, size_t bytes)
{
    return vec_load_low(from, bytes);
}

INLINE void half_store_low(void *to, half_t value, size_t bytes)
{
    vec_store_low(to, value, bytes);
}

/* Four 16-bit values to four 32-bit lanes. */
INLINE vec_u32_t half_spread(half_t halves)
{
    vec_u16_t zero = {0};
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (vec_u32_t)__builtin_shufflevector(zero, (vec_u16_t)halves, 0, 8, 1, 9, 2, 10, 3, 11);
#else
    return (vec_u32_t)__builtin_shufflevector((vec_u16_t)halves, zero, 0, 8, 1, 9, 2, 10, 3, 11);
#endif
}

/* The high 16 bits of each lane of a, then of b. */
INLINE vec_t half_gather(vec_t a, vec_t b)
{
#if defined(__SSE2__)
    /* shifted down with their sign, so that the saturating pack takes them as they are */
    return (vec_t)_mm_packs_epi32((__m128i)((vec_i32_t)a >> 16), (__m128i)((vec_i32_t)b >> 16));
#elif __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return (vec_t)__builtin_shufflevector((vec_u16_t)a, (vec_u16_t)b, 0, 2, 4, 6, 8, 10, 12, 14);
#else
    return (vec_t)__builtin_shufflevector((vec_u16_t)a, (vec_u16_t)b, 1, 3, 5, 7, 9, 11, 13, 15);
#endif
}

INLINE vec_t half_widen_bf16(half_t halves)
{
    return (vec_t)(half_spread(halves) << 16);
}

/* A CPU may have NaNs of its own: none is rounded, or it could become an infinity or a number. */
INLINE vec_t round_bf16(vec_t value)
{
    vec_i32_t size = (vec_i32_t)value & 0x7fffffff;
    return vec_select((vec_t)(size > 0x7f800000), value, vec_round_bf16(value));
}

/* Two vectors of f32 to one of halves. */
INLINE vec_t half_join_bf16(vec_t a, vec_t b)
{
    return half_gather(round_bf16(a), round_bf16(b));
}

INLINE half_t half_narrow_bf16(vec_t value)
{
    return half_join_bf16(value, value);
}

/* Sizes without their sign are compared as signed numbers, the only order that SSE2 knows. */
INLINE vec_t half_widen_f16(half_t halves)
{
    vec_u32_t bits = half_spread(halves);
    vec_u32_t sign = (bits & 0x8000) << 16;
    vec_i32_t size = (vec_i32_t)bits & 0x7fff;
    vec_i32_t normal = (size << 13) + (112 << 23);
    /* An infinity or a NaN, whose exponent is 112 short still; a NaN becomes quiet. */
    vec_i32_t quiet = (size > 0x7c00) & 0x00400000;
    vec_i32_t special = (normal + (112 << 23)) | quiet;
    /* Not (size << 13) scaled up: that is subnormal, which a flush-to-zero mode would lose. */
    vec_f32_t tiny = __builtin_convertvector(size, vec_f32_t) * 0x1p-24f;
    vec_t out = vec_select((vec_t)(size > 0x7bff), (vec_t)special, (vec_t)normal);
    out = vec_select((vec_t)(size < 0x400), (vec_t)tiny, out);
    return out | (vec_t)sign;
}

/* The result is in the high 16 bits of each lane. */
INLINE vec_t round_f16(vec_t value)
{
    vec_u32_t bits = (vec_u32_t)value;
    vec_i32_t size = (vec_i32_t)bits & 0x7fffffff;
    vec_i32_t normal = (size - (112 << 23) + (((size >> 13) & 1) + 0xfff)) >> 13;
    vec_i32_t nan = ((size >> 13) & 0x3ff) | 0x7e00;
    /* 0.5 has its last bit where a subnormal half has: the addition rounds there. */
    vec_i32_t tiny = (vec_i32_t)((vec_f32_t)size + 0.5f) - 0x3f000000;
    vec_i32_t infinity = (size & 0) + 0x7c00;
    vec_t out = vec_select((vec_t)(size < 0x38800000), (vec_t)tiny, (vec_t)normal);
    out = vec_select((vec_t)(size > 0x477fefff), (vec_t)infinity, out); /* 65520 and above */
    out = vec_select((vec_t)(size > 0x7f800000), (vec_t)nan, out);
    return (vec_t)(((vec_u32_t)out << 16) | (bits & 0x80000000));
}

INLINE vec_t half_join_f16(vec_t a, vec_t b)
{
    return half_gather(round_f16(a), round_f16(b));
}

INLINE half_t half_narrow_f16(vec_t value)
{
    return half_join_f16(value, value);
}

#define VEC_LESS(a, b, kind) ((vec_t)((kind)(a) < (kind)(b)))

/* a < b ? a : b, lane by lane */
INLINE vec_t vec_min(vec_t a, vec_t b, weft_dtype_t type)
{
    switch (type) {
    case WEFT_F64:
        return vec_select(VEC_LESS(a, b, vec_f64_t), a, b);
    case WEFT_I8:
        return vec_select(VEC_LESS(a, b, vec_i8_t), a, b);
    case WEFT_U8:
        return vec_select(VEC_LESS(a, b, vec_u8_t), a, b);
    case WEFT_I32:
        return vec_select(VEC_LESS(a, b, vec_i32_t), a, b);
    case WEFT_U32:
        return vec_select(VEC_LESS(a, b, vec_u32_t), a, b);
    case WEFT_I64:
        return vec_select(VEC_LESS(a, b, vec_i64_t), a, b);
    case WEFT_U64:
        return vec_select(VEC_LESS(a, b, vec_u64_t), a, b);
    default:
        return vec_select(VEC_LESS(a, b, vec_f32_t), a, b);
    }
}

/* a > b ? a : b, lane by lane */
INLINE vec_t vec_max(vec_t a, vec_t b, weft_dtype_t type)
{
    switch (type) {
    case WEFT_F64:
        return vec_select(VEC_LESS(b, a, vec_f64_t), a, b);
    case WEFT_I8:
        return vec_select(VEC_LESS(b, a, vec_i8_t), a, b);
    case WEFT_U8:
        return vec_select(VEC_LESS(b, a, vec_u8_t), a, b);
    case WEFT_I32:
        return vec_select(VEC_LESS(b, a, vec_i32_t), a, b);
    case WEFT_U32:
        return vec_select(VEC_LESS(b, a, vec_u32_t), a, b);
    case WEFT_I64:
        return vec_select(VEC_LESS(b, a, vec_i64_t), a, b);
    case WEFT_U64:
        return vec_select(VEC_LESS(b, a, vec_u64_t), a, b);
    default:
        return vec_select(VEC_LESS(b, a, vec_f32_t), a, b);
    }
}

#endif
