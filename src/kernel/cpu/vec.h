/* What all instruction sets share: vector types of VEC_BYTES bytes and the arithmetic that the
 * compilers' own vector operators already express well.
 *
 * Included by vec_none.h, vec_avx2.h and vec_avx512.h, which define VEC_BYTES first and add what
 * the operators cannot say: minima, conversions of halves, stores past the cache, partial vectors.
 * Everything is inlined with a constant type and operation, so that the switches vanish. */
#ifndef WEFT_KERNEL_CPU_VEC_H
#define WEFT_KERNEL_CPU_VEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <weft/types.h>

#define INLINE static inline __attribute__((always_inline, unused))

/* Before a loop over the vectors of an array: unrolled, the array becomes registers. Clang unrolls
 * in time by itself, and too late when told to. */
#if defined(__clang__)
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* After a streaming store of less than a cache line. Lines are gathered in a few buffers, and go to
 * memory in one piece only if their parts come one after another: the compiler must not mix them
 * (a copy was four times slower when it did). */
#define VEC_IN_ORDER() __asm__ volatile("" ::: "memory")

#define VEC_TYPE(element) element __attribute__((vector_size(VEC_BYTES)))

/* vec_t is a bag of bits; a cast to one of the others says what they mean. */
typedef VEC_TYPE(long long) vec_t;
typedef VEC_TYPE(double) vec_f64_t;
typedef VEC_TYPE(float) vec_f32_t;
typedef VEC_TYPE(int8_t) vec_i8_t;
typedef VEC_TYPE(uint8_t) vec_u8_t;
typedef VEC_TYPE(uint16_t) vec_u16_t;
typedef VEC_TYPE(int32_t) vec_i32_t;
typedef VEC_TYPE(uint32_t) vec_u32_t;
typedef VEC_TYPE(int64_t) vec_i64_t;
typedef VEC_TYPE(uint64_t) vec_u64_t;

/* Buffers are only aligned to their elements, and their owner may see them as any type. */
typedef long long vec_any_t __attribute__((vector_size(VEC_BYTES), aligned(1), may_alias));

INLINE vec_t vec_load(const void *from)
{
    return (vec_t) * (const vec_any_t *)from;
}

INLINE void vec_store(void *to, vec_t value)
{
    *(vec_any_t *)to = (vec_any_t)value;
}

/* mask ? a : b, where each lane of mask is all ones or all zeros */
INLINE vec_t vec_select(vec_t mask, vec_t a, vec_t b)
{
    return (a & mask) | (b & ~mask);
}

INLINE vec_t vec_add(vec_t a, vec_t b, weft_dtype_t type)
{
    switch (type) {
    case WEFT_F64:
        return (vec_t)((vec_f64_t)a + (vec_f64_t)b);
    case WEFT_I8:
    case WEFT_U8:
        return (vec_t)((vec_u8_t)a + (vec_u8_t)b);
    case WEFT_I32:
    case WEFT_U32:
        return (vec_t)((vec_u32_t)a + (vec_u32_t)b);
    case WEFT_I64:
    case WEFT_U64:
        return (vec_t)((vec_u64_t)a + (vec_u64_t)b);
    default: /* f32, and the halves, which are widened to it */
        return (vec_t)((vec_f32_t)a + (vec_f32_t)b);
    }
}

INLINE vec_t vec_mul(vec_t a, vec_t b, weft_dtype_t type)
{
    switch (type) {
    case WEFT_F64:
        return (vec_t)((vec_f64_t)a * (vec_f64_t)b);
    case WEFT_I8:
    case WEFT_U8:
        return (vec_t)((vec_u8_t)a * (vec_u8_t)b);
    case WEFT_I32:
    case WEFT_U32:
        return (vec_t)((vec_u32_t)a * (vec_u32_t)b);
    case WEFT_I64:
    case WEFT_U64:
        return (vec_t)((vec_u64_t)a * (vec_u64_t)b);
    default:
        return (vec_t)((vec_f32_t)a * (vec_f32_t)b);
    }
}

/* Floating types only. */
INLINE vec_t vec_scale(vec_t a, double factor, weft_dtype_t type)
{
    return type == WEFT_F64 ? (vec_t)((vec_f64_t)a * factor)
                            : (vec_t)((vec_f32_t)a * (float)factor);
}

INLINE vec_t vec_div(vec_t a, double divisor, weft_dtype_t type)
{
    return type == WEFT_F64 ? (vec_t)((vec_f64_t)a / divisor)
                            : (vec_t)((vec_f32_t)a / (float)divisor);
}

/* f32 lanes rounded to bf16, to nearest even, in the high 16 bits of each lane. Right for every NaN
 * that can occur where invalid operations give 0x7fc00000 or 0xffc00000, as x86 and Arm do: a NaN
 * that came from a bf16 has no low bits, so nothing is carried out of it. */
INLINE vec_t vec_round_bf16(vec_t value)
{
    vec_u32_t bits = (vec_u32_t)value;
    return (vec_t)(bits + (((bits >> 16) & 1) + 0x7fff));
}

#endif
