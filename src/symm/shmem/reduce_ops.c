/* What reductions do with two elements, for every type and operation. Types that the kernels know
 * are theirs; the loops here are for the others, and for a few elements, where a call of a kernel
 * would take longer than the work. */
#include "symm/shmem/reduce.h"

/* clang-format off */
#define KERNEL_TYPE(type)                                                                          \
    _Generic((type *)0,                                                                            \
        char *: (char)-1 < 0 ? WEFT_I8 : WEFT_U8,                                                  \
        signed char *: WEFT_I8,                                                                    \
        unsigned char *: WEFT_U8,                                                                  \
        int *: WEFT_I32,                                                                           \
        unsigned *: WEFT_U32,                                                                      \
        long *: sizeof(long) == 8 ? WEFT_I64 : WEFT_I32,                                           \
        unsigned long *: sizeof(long) == 8 ? WEFT_U64 : WEFT_U32,                                  \
        long long *: WEFT_I64,                                                                     \
        unsigned long long *: WEFT_U64,                                                            \
        float *: WEFT_F32,                                                                         \
        double *: WEFT_F64,                                                                        \
        default: WEFT_DTYPE_COUNT)
/* clang-format on */

#define DEFINE_OP(name, type, op, kernel_type, kernel_op, expression)                              \
    static void combine_##name##_##op(void *into, const void *with, size_t count)                  \
    {                                                                                              \
        type *to = into;                                                                           \
        const type *from = with;                                                                   \
        for (size_t i = 0; i < count; i++) {                                                       \
            type a = to[i], b = from[i];                                                           \
            to[i] = (type)(expression);                                                            \
        }                                                                                          \
    }                                                                                              \
    const weft_shmem_reduction_t weft__shmem_##name##_##op = {sizeof(type), kernel_type,           \
                                                              kernel_op, combine_##name##_##op};

/* Integers wrap, so they are computed without a sign. */
#define DEFINE_WRAPPED_SUM(name, type, op)                                                         \
    DEFINE_OP(name, type, op, KERNEL_TYPE(type), WEFT_SUM, 0ull + a + b)
#define DEFINE_WRAPPED_PROD(name, type, op)                                                        \
    DEFINE_OP(name, type, op, KERNEL_TYPE(type), WEFT_PROD, 1ull * a * b)
#define DEFINE_SUM(name, type, op) DEFINE_OP(name, type, op, KERNEL_TYPE(type), WEFT_SUM, a + b)
#define DEFINE_PROD(name, type, op) DEFINE_OP(name, type, op, KERNEL_TYPE(type), WEFT_PROD, a *b)
#define DEFINE_MIN(name, type, op)                                                                 \
    DEFINE_OP(name, type, op, KERNEL_TYPE(type), WEFT_MIN, b < a ? b : a)
#define DEFINE_MAX(name, type, op)                                                                 \
    DEFINE_OP(name, type, op, KERNEL_TYPE(type), WEFT_MAX, a < b ? b : a)
#define DEFINE_AND(name, type, op) DEFINE_OP(name, type, op, WEFT_DTYPE_COUNT, WEFT_SUM, a &b)
#define DEFINE_OR(name, type, op) DEFINE_OP(name, type, op, WEFT_DTYPE_COUNT, WEFT_SUM, a | b)
#define DEFINE_XOR(name, type, op) DEFINE_OP(name, type, op, WEFT_DTYPE_COUNT, WEFT_SUM, a ^ b)

WEFT_SHMEM_INTEGER(DEFINE_WRAPPED_SUM, sum)
WEFT_SHMEM_INTEGER(DEFINE_WRAPPED_PROD, prod)
WEFT_SHMEM_REAL(DEFINE_SUM, sum)
WEFT_SHMEM_REAL(DEFINE_PROD, prod)
WEFT_SHMEM_COMPLEX(DEFINE_SUM, sum)
WEFT_SHMEM_COMPLEX(DEFINE_PROD, prod)
WEFT_SHMEM_NUMBER(DEFINE_MIN, min)
WEFT_SHMEM_NUMBER(DEFINE_MAX, max)
WEFT_SHMEM_INTEGER(DEFINE_AND, and)
WEFT_SHMEM_INTEGER(DEFINE_OR, or)
WEFT_SHMEM_INTEGER(DEFINE_XOR, xor)
