/* Columns, and with them one kernel for each type and operation.
 * Included by reduce_impl.h.
 *
 * The idea: a *column* is a few vectors of every source at the same place.
 *
 *     srcs[0]  ....[####]........      One column is loaded from each source in turn and combined
 *     srcs[1]  ....[####]........      in registers, then stored to each destination in turn:
 *     srcs[n]  ....[####]........      nothing is written twice, and no scratch is read back.
 *     dsts[d]  ....[####]........
 *
 * A column is whole cache lines (256 bytes where the registers allow), because with many streams
 * at equal offsets of their pages all of them fall into the same few cache sets: a line that is
 * visited twice is gone the second time. Reads and streaming stores also overlap better at this
 * grain than in blocks of KiB (measured: 15 to 40% for 2 to 16 sources).
 *
 * A column is complete in registers before its first store, so a destination may be a source. */
#ifndef WEFT_KERNEL_CPU_COLUMN_IMPL_H
#define WEFT_KERNEL_CPU_COLUMN_IMPL_H

#include "kernel/cpu/copy_impl.h"

/* What AVG does to a sum of a floating type. The reciprocal of a power of two is exact: a product
 * with it is rounded as the division would be, and is several times faster. */
typedef enum division { DIVIDE_NOT, DIVIDE_BY, DIVIDE_AS_PRODUCT } division_t;

/* One pass over some elements of all its streams. */
typedef struct pass {
    void *const *dsts;
    const void *const *srcs;
    int ndst, nsrc;
    bool stream, prefetch;
    bool from_f32; /* halves and float8 only: srcs[0] is f32 already */
    bool to_f32;   /* halves and float8 only: destinations are f32 */
    division_t division;
    double factor; /* the divisor, or its reciprocal */
} pass_t;

/* The elements [begin, end) */
typedef void (*pass_fn_t)(const pass_t *pass, size_t begin, size_t end);

typedef struct kernel {
    /* elements [0, count) and no more than `step` of them; AVG is a sum here */
    void (*tiny)(void *const *dsts, int ndst, const void *const *srcs, int nsrc, size_t count);
    pass_fn_t narrow;  /* any number of elements */
    pass_fn_t wide;    /* multiples of `step` elements */
    pass_fn_t wide_21; /* the same for two sources and one destination */
    pass_fn_t wide_22; /* the same for two of each */
    size_t step;
} kernel_t;

#include "kernel/cpu/float8_impl.h"

INLINE bool is_half(weft_dtype_t type)
{
    return type == WEFT_F16 || type == WEFT_BF16;
}

INLINE bool is_float(weft_dtype_t type)
{
    return type == WEFT_F64 || type == WEFT_F32 || is_half(type) || is_float8(type);
}

/* Is it reduced in f32, and rounded to its own type once? */
INLINE bool is_widened(weft_dtype_t type)
{
    return is_half(type) || is_float8(type);
}

INLINE size_t size_of(weft_dtype_t type)
{
    static const unsigned char sizes[] = {
#define SIZE_ROW(name, text, bytes) [name] = bytes,
        WEFT_DTYPE_TABLE(SIZE_ROW)
#undef SIZE_ROW
    };
    return sizes[type];
}

/* Elements of a vector in registers: halves are f32 there. */
INLINE size_t lanes_of(weft_dtype_t type)
{
    return VEC_BYTES / (is_half(type) ? 4 : size_of(type));
}

INLINE int width_of(weft_dtype_t type)
{
    return is_half(type) ? VEC_WIDE_HALF : VEC_WIDE;
}

/* ---- one vector in and out -------------------------------------------------------------- */

/* The functions take `lanes`: 0 is a whole vector. Without masks a part is a constant 2^k. */

INLINE vec_t load_plain(const char *from, size_t lanes, size_t size)
{
    if (lanes == 0) {
        return vec_load(from);
    }
#if VEC_MASKED
    return vec_load_lanes(from, lanes, size);
#else
    return vec_load_low(from, lanes * size);
#endif
}

INLINE void store_plain(char *to, vec_t value, size_t lanes, size_t size)
{
    if (lanes == 0) {
        vec_store(to, value);
        return;
    }
#if VEC_MASKED
    vec_store_lanes(to, value, lanes, size);
#else
    vec_store_low(to, value, lanes * size);
#endif
}

INLINE half_t load_half(const char *from, size_t lanes)
{
    if (lanes == 0) {
        return half_load(from);
    }
#if VEC_MASKED
    return half_load_lanes(from, lanes);
#else
    return half_load_low(from, lanes * 2);
#endif
}

INLINE void store_half(char *to, half_t value, size_t lanes)
{
    if (lanes == 0) {
        half_store(to, value);
        return;
    }
#if VEC_MASKED
    half_store_lanes(to, value, lanes);
#else
    half_store_low(to, value, lanes * 2);
#endif
}

INLINE vec_t load(const char *from, size_t lanes, weft_dtype_t type)
{
    switch (type) {
    case WEFT_F16:
        return half_widen_f16(load_half(from, lanes));
    case WEFT_BF16:
        return half_widen_bf16(load_half(from, lanes));
    default:
        return load_plain(from, lanes, size_of(type));
    }
}

INLINE vec_t apply(vec_t a, vec_t b, weft_dtype_t type, weft_op_t op)
{
    switch (op) {
    case WEFT_PROD:
        return vec_mul(a, b, type);
    case WEFT_MIN:
        return vec_min(a, b, type);
    case WEFT_MAX:
        return vec_max(a, b, type);
    default:
        return vec_add(a, b, type);
    }
}

/* ---- columns ---------------------------------------------------------------------------- */

#define WIDEST (VEC_WIDE > VEC_WIDE_HALF ? VEC_WIDE : VEC_WIDE_HALF)

INLINE bool is_aligned(const void *to, size_t bytes)
{
    return ((uintptr_t)to & (bytes - 1)) == 0;
}

INLINE void put_plain(void *const *dsts, int ndst, size_t offset, const vec_t *v, size_t lanes,
                      size_t size, int width, bool stream)
{
    for (int k = 0; k < ndst; k++) {
        char *to = (char *)dsts[k] + offset;
        if (lanes == 0 && stream && is_aligned(to, VEC_BYTES)) {
            UNROLL
            for (int i = 0; i < width; i++) {
                vec_stream(to + i * VEC_BYTES, v[i]);
            }
        } else {
            UNROLL
            for (int i = 0; i < width; i++) {
                store_plain(to + i * VEC_BYTES, v[i], lanes, size);
            }
        }
    }
}

/* Halves go out two vectors of f32 at a time, in whole vectors; one alone is a tail. */
INLINE void put_half(void *const *dsts, int ndst, size_t offset, const vec_t *v, size_t lanes,
                     weft_dtype_t type, int width, bool stream)
{
    if (width == 1) {
        half_t halves = type == WEFT_F16 ? half_narrow_f16(v[0]) : half_narrow_bf16(v[0]);
        for (int k = 0; k < ndst; k++) {
            store_half((char *)dsts[k] + offset, halves, lanes);
        }
        return;
    }
    vec_t joined[WIDEST / 2];
    UNROLL
    for (int i = 0; i < width / 2; i++) {
        joined[i] = type == WEFT_F16 ? half_join_f16(v[2 * i], v[2 * i + 1])
                                     : half_join_bf16(v[2 * i], v[2 * i + 1]);
    }
    put_plain(dsts, ndst, offset, joined, 0, 2, width / 2, stream);
}

/* `width` vectors of every stream from element `at` on; `lanes` as above (then width is 1). */
INLINE void column(const pass_t *pass, const void *const *srcs, int nsrc, void *const *dsts,
                   int ndst, size_t at, size_t lanes, int width, weft_dtype_t type, weft_op_t op)
{
    const size_t step = is_half(type) ? VEC_BYTES / 2 : VEC_BYTES;
    const size_t offset = at * size_of(type);
    vec_t v[WIDEST];

    if (is_half(type) && pass->from_f32) {
        UNROLL
        for (int i = 0; i < width; i++) {
            v[i] = load_plain((const char *)srcs[0] + at * 4 + i * VEC_BYTES, lanes, 4);
        }
    } else {
        UNROLL
        for (int i = 0; i < width; i++) {
            v[i] = load((const char *)srcs[0] + offset + i * step, lanes, type);
        }
    }
    for (int k = 1; k < nsrc; k++) {
        const char *from = (const char *)srcs[k] + offset;
        UNROLL
        for (int i = 0; i < width; i++) {
            v[i] = apply(v[i], load(from + i * step, lanes, type), type, op);
        }
    }
    if (is_float(type) && op == WEFT_SUM && pass->division == DIVIDE_BY) {
        UNROLL
        for (int i = 0; i < width; i++) {
            v[i] = vec_div(v[i], pass->factor, type);
        }
    } else if (is_float(type) && op == WEFT_SUM && pass->division == DIVIDE_AS_PRODUCT) {
        UNROLL
        for (int i = 0; i < width; i++) {
            v[i] = vec_scale(v[i], pass->factor, type);
        }
    }
    if (!is_half(type)) {
        put_plain(dsts, ndst, offset, v, lanes, size_of(type), width, pass->stream);
    } else if (pass->to_f32) {
        put_plain(dsts, ndst, at * 4, v, lanes, 4, width, false);
    } else {
        put_half(dsts, ndst, offset, v, lanes, type, width, pass->stream);
    }
}

/* The lines that the column `AHEAD` bytes further on will read. */
INLINE void prefetch(const void *const *srcs, int nsrc, size_t offset, size_t bytes)
{
    for (int k = 0; k < nsrc; k++) {
        for (size_t line = 0; line < bytes; line += LINE) {
            __builtin_prefetch((const char *)srcs[k] + offset + AHEAD + line);
        }
    }
}

INLINE void wide(const pass_t *pass, const void *const *srcs, int nsrc, void *const *dsts, int ndst,
                 size_t begin, size_t end, weft_dtype_t type, weft_op_t op)
{
    const size_t step = lanes_of(type) * (size_t)width_of(type);
    const bool ahead = pass->prefetch;
    for (size_t at = begin; at < end; at += step) {
        if (ahead) {
            prefetch(srcs, nsrc, at * size_of(type), step * size_of(type));
        }
        column(pass, srcs, nsrc, dsts, ndst, at, 0, width_of(type), type, op);
    }
}

INLINE void narrow(const pass_t *pass, const void *const *srcs, int nsrc, void *const *dsts,
                   int ndst, size_t at, size_t end, weft_dtype_t type, weft_op_t op)
{
#define COLUMN(lanes) column(pass, srcs, nsrc, dsts, ndst, at, lanes, 1, type, op)
    const size_t lanes = lanes_of(type);
    for (; end - at >= lanes; at += lanes) {
        COLUMN(0);
    }
#if VEC_MASKED
    if (at < end) {
        COLUMN(end - at);
    }
#else
#define PART(n)                                                                                    \
    if (lanes > (n) && ((end - at) & (n)) != 0) {                                                  \
        COLUMN(n);                                                                                 \
        at += (n);                                                                                 \
    }
    PART(16)
    PART(8)
    PART(4)
    PART(2)
    PART(1)
#undef PART
#endif
#undef COLUMN
}

/* ---- one kernel for each type and operation --------------------------------------------- */

#define DEFINE(TYPE, OP)                                                                           \
    static void narrow_##TYPE##_##OP(const pass_t *pass, size_t begin, size_t end)                 \
    {                                                                                              \
        narrow(pass, pass->srcs, pass->nsrc, pass->dsts, pass->ndst, begin, end, WEFT_##TYPE,      \
               WEFT_##OP);                                                                         \
    }                                                                                              \
    static void tiny_##TYPE##_##OP(void *const *dsts, int ndst, const void *const *srcs, int nsrc, \
                                   size_t count)                                                   \
    {                                                                                              \
        const pass_t plain = {0};                                                                  \
        narrow(&plain, srcs, nsrc, dsts, ndst, 0, count, WEFT_##TYPE, WEFT_##OP);                  \
    }                                                                                              \
    static void wide_##TYPE##_##OP(const pass_t *pass, size_t begin, size_t end)                   \
    {                                                                                              \
        wide(pass, pass->srcs, pass->nsrc, pass->dsts, pass->ndst, begin, end, WEFT_##TYPE,        \
             WEFT_##OP);                                                                           \
    }

/* Sums of two, to one and to two destinations, are what two ranks and every step of a ring or tree
 * do: with the numbers of streams known they are 1.3 to 1.7 times as fast in the first-level cache.
 * They copy their pointers, so that the compiler knows that no store changes them. */
#define DEFINE_PAIRS(TYPE)                                                                         \
    static void wide_21_##TYPE(const pass_t *pass, size_t begin, size_t end)                       \
    {                                                                                              \
        const void *srcs[] = {pass->srcs[0], pass->srcs[1]};                                       \
        void *dsts[] = {pass->dsts[0]};                                                            \
        wide(pass, srcs, 2, dsts, 1, begin, end, WEFT_##TYPE, WEFT_SUM);                           \
    }                                                                                              \
    static void wide_22_##TYPE(const pass_t *pass, size_t begin, size_t end)                       \
    {                                                                                              \
        const void *srcs[] = {pass->srcs[0], pass->srcs[1]};                                       \
        void *dsts[] = {pass->dsts[0], pass->dsts[1]};                                             \
        wide(pass, srcs, 2, dsts, 2, begin, end, WEFT_##TYPE, WEFT_SUM);                           \
    }

#define DEFINE_ORDER(TYPE)                                                                         \
    DEFINE(TYPE, MIN)                                                                              \
    DEFINE(TYPE, MAX)
#define DEFINE_ALL(TYPE)                                                                           \
    DEFINE(TYPE, SUM)                                                                              \
    DEFINE(TYPE, PROD)                                                                             \
    DEFINE_PAIRS(TYPE)                                                                             \
    DEFINE_ORDER(TYPE)

/* Sums and products that wrap do not know signs. */
DEFINE_ALL(F64)
DEFINE_ALL(F32)
DEFINE_ALL(F16)
DEFINE_ALL(BF16)
DEFINE_ORDER(I8)
DEFINE_ALL(U8)
DEFINE_ORDER(I32)
DEFINE_ALL(U32)
DEFINE_ORDER(I64)
DEFINE_ALL(U64)

#define KERNEL(TYPE, OP, WIDE_21, WIDE_22, SIZE, WIDTH)                                            \
    {                                                                                              \
        .tiny = tiny_##TYPE##_##OP, .narrow = narrow_##TYPE##_##OP, .wide = wide_##TYPE##_##OP,    \
        .wide_21 = WIDE_21, .wide_22 = WIDE_22, .step = (WIDTH)*VEC_BYTES / (SIZE)                 \
    }
#define KERNEL_SUM(TYPE, SIZE, WIDTH) KERNEL(TYPE, SUM, wide_21_##TYPE, wide_22_##TYPE, SIZE, WIDTH)
#define KERNEL_OTHER(TYPE, OP, SIZE, WIDTH)                                                        \
    KERNEL(TYPE, OP, wide_##TYPE##_##OP, wide_##TYPE##_##OP, SIZE, WIDTH)
#define KERNELS(TYPE, WRAPS_AS, SIZE, WIDTH)                                                       \
    [WEFT_##TYPE] = {                                                                              \
        [WEFT_SUM] = KERNEL_SUM(WRAPS_AS, SIZE, WIDTH),                                            \
        [WEFT_PROD] = KERNEL_OTHER(WRAPS_AS, PROD, SIZE, WIDTH),                                   \
        [WEFT_MIN] = KERNEL_OTHER(TYPE, MIN, SIZE, WIDTH),                                         \
        [WEFT_MAX] = KERNEL_OTHER(TYPE, MAX, SIZE, WIDTH),                                         \
        [WEFT_AVG] = KERNEL_SUM(WRAPS_AS, SIZE, WIDTH), /* and a division */                       \
    }

static const kernel_t kernels[WEFT_DTYPE_COUNT][WEFT_OP_COUNT] = {
    KERNELS(F64, F64, 8, VEC_WIDE),
    KERNELS(F32, F32, 4, VEC_WIDE),
    KERNELS(F16, F16, 4, VEC_WIDE_HALF),
    KERNELS(BF16, BF16, 4, VEC_WIDE_HALF),
    KERNELS(I8, U8, 1, VEC_WIDE),
    KERNELS(U8, U8, 1, VEC_WIDE),
    KERNELS(I32, U32, 4, VEC_WIDE),
    KERNELS(U32, U32, 4, VEC_WIDE),
    KERNELS(I64, U64, 8, VEC_WIDE),
    KERNELS(U64, U64, 8, VEC_WIDE),
    KERNELS_FLOAT8(F8E4M3),
    KERNELS_FLOAT8(F8E5M2),
};

#endif
