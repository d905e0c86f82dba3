/* Columns of float8, in plain C: a column is some elements of every source, widened to f32 in an
 * array that the compiler keeps in vectors. Included by column_impl.h, whose kernels these stand
 * beside; what is said of columns there holds here. */
#ifndef WEFT_KERNEL_CPU_FLOAT8_IMPL_H
#define WEFT_KERNEL_CPU_FLOAT8_IMPL_H

#include "base/float8.h"

#define FLOAT8_COLUMN 64 /* elements: a cache line of each source */

INLINE bool is_float8(weft_dtype_t type)
{
    return type == WEFT_F8E4M3 || type == WEFT_F8E5M2;
}

INLINE float apply_f32(float a, float b, weft_op_t op)
{
    switch (op) {
    case WEFT_PROD:
        return a * b;
    case WEFT_MIN:
        return a < b ? a : b;
    case WEFT_MAX:
        return a > b ? a : b;
    default:
        return a + b;
    }
}

/* Elements [at, at + n), n <= FLOAT8_COLUMN. */
INLINE void float8_column(const pass_t *pass, const void *const *srcs, int nsrc, void *const *dsts,
                          int ndst, size_t at, size_t n, weft_dtype_t type, weft_op_t op)
{
    const int fraction = type == WEFT_F8E4M3 ? WEFT_E4M3 : WEFT_E5M2;
    const float factor = (float)pass->factor;
    float v[FLOAT8_COLUMN];
    uint8_t codes[FLOAT8_COLUMN];

    if (pass->from_f32) {
        memcpy(v, (const float *)srcs[0] + at, n * sizeof(*v));
    } else {
        const uint8_t *from = (const uint8_t *)srcs[0] + at;
        for (size_t i = 0; i < n; i++) {
            v[i] = weft__float8_widen(from[i], fraction);
        }
    }
    for (int k = 1; k < nsrc; k++) {
        const uint8_t *from = (const uint8_t *)srcs[k] + at;
        for (size_t i = 0; i < n; i++) {
            v[i] = apply_f32(v[i], weft__float8_widen(from[i], fraction), op);
        }
    }
    if (pass->division != DIVIDE_NOT) {
        for (size_t i = 0; i < n; i++) {
            v[i] = pass->division == DIVIDE_BY ? v[i] / factor : v[i] * factor;
        }
    }
    if (pass->to_f32) {
        for (int k = 0; k < ndst; k++) {
            memcpy((float *)dsts[k] + at, v, n * sizeof(*v));
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        codes[i] = weft__float8_narrow(v[i], fraction);
    }
    for (int k = 0; k < ndst; k++) {
        memcpy((uint8_t *)dsts[k] + at, codes, n);
    }
}

INLINE void float8_range(const pass_t *pass, const void *const *srcs, int nsrc, void *const *dsts,
                         int ndst, size_t begin, size_t end, weft_dtype_t type, weft_op_t op)
{
    size_t at = begin;
    for (; end - at >= FLOAT8_COLUMN; at += FLOAT8_COLUMN) {
        float8_column(pass, srcs, nsrc, dsts, ndst, at, FLOAT8_COLUMN, type, op);
    }
    if (at < end) {
        float8_column(pass, srcs, nsrc, dsts, ndst, at, end - at, type, op);
    }
}

#define DEFINE_FLOAT8(TYPE, OP)                                                                    \
    static void range_##TYPE##_##OP(const pass_t *pass, size_t begin, size_t end)                  \
    {                                                                                              \
        float8_range(pass, pass->srcs, pass->nsrc, pass->dsts, pass->ndst, begin, end,             \
                     WEFT_##TYPE, WEFT_##OP);                                                      \
    }                                                                                              \
    static void tiny_##TYPE##_##OP(void *const *dsts, int ndst, const void *const *srcs, int nsrc, \
                                   size_t count)                                                   \
    {                                                                                              \
        const pass_t plain = {0};                                                                  \
        float8_range(&plain, srcs, nsrc, dsts, ndst, 0, count, WEFT_##TYPE, WEFT_##OP);            \
    }

#define DEFINE_ALL_FLOAT8(TYPE)                                                                    \
    DEFINE_FLOAT8(TYPE, SUM)                                                                       \
    DEFINE_FLOAT8(TYPE, PROD)                                                                      \
    DEFINE_FLOAT8(TYPE, MIN)                                                                       \
    DEFINE_FLOAT8(TYPE, MAX)
DEFINE_ALL_FLOAT8(F8E4M3)
DEFINE_ALL_FLOAT8(F8E5M2)

#define KERNEL_FLOAT8(TYPE, OP)                                                                    \
    {                                                                                              \
        .tiny = tiny_##TYPE##_##OP, .narrow = range_##TYPE##_##OP, .wide = range_##TYPE##_##OP,    \
        .wide_21 = range_##TYPE##_##OP, .wide_22 = range_##TYPE##_##OP, .step = FLOAT8_COLUMN      \
    }
#define KERNELS_FLOAT8(TYPE)                                                                       \
    [WEFT_##TYPE] = {                                                                              \
        [WEFT_SUM] = KERNEL_FLOAT8(TYPE, SUM), [WEFT_PROD] = KERNEL_FLOAT8(TYPE, PROD),            \
        [WEFT_MIN] = KERNEL_FLOAT8(TYPE, MIN), [WEFT_MAX] = KERNEL_FLOAT8(TYPE, MAX),              \
        [WEFT_AVG] = KERNEL_FLOAT8(TYPE, SUM), /* and a division */                                \
    }

#endif
