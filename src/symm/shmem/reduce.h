/* Reductions, for teams and active sets alike. */
#ifndef WEFT_SYMM_SHMEM_REDUCE_H
#define WEFT_SYMM_SHMEM_REDUCE_H

#include <weft/types.h>

#include "symm/shmem/group.h"

/* An operation on a type. */
typedef struct weft_shmem_reduction {
    size_t size;       /* of an element */
    weft_dtype_t type; /* of the kernels; WEFT_DTYPE_COUNT: they have no such type or operation */
    weft_op_t op;
    void (*combine)(void *into, const void *with, size_t count); /* into[i] = into[i] op with[i] */
} weft_shmem_reduction_t;

/* dest[i] of every member = source[i] of member 0 op member 1 op ..., in this order on all of them.
 * dest may be source. */
void weft__shmem_reduce(weft_shmem_team_t *team, void *dest, const void *source, size_t count,
                        const weft_shmem_reduction_t *reduction, const char *call);

/* Every distinct type once (int32_t and the like are other types' names): X(name, type, op). */
#define WEFT_SHMEM_INTEGER(X, op)                                                                  \
    X(char, char, op)                                                                              \
    X(schar, signed char, op)                                                                      \
    X(short, short, op)                                                                            \
    X(int, int, op)                                                                                \
    X(long, long, op)                                                                              \
    X(longlong, long long, op)                                                                     \
    X(uchar, unsigned char, op)                                                                    \
    X(ushort, unsigned short, op)                                                                  \
    X(uint, unsigned, op)                                                                          \
    X(ulong, unsigned long, op)                                                                    \
    X(ulonglong, unsigned long long, op)
#define WEFT_SHMEM_REAL(X, op)                                                                     \
    X(float, float, op)                                                                            \
    X(double, double, op)                                                                          \
    X(longdouble, long double, op)
#define WEFT_SHMEM_COMPLEX(X, op)                                                                  \
    X(complexf, float _Complex, op)                                                                \
    X(complexd, double _Complex, op)

#define WEFT_SHMEM_NUMBER(X, op)                                                                   \
    WEFT_SHMEM_INTEGER(X, op)                                                                      \
    WEFT_SHMEM_REAL(X, op)
#define WEFT_SHMEM_ANY(X, op)                                                                      \
    WEFT_SHMEM_NUMBER(X, op)                                                                       \
    WEFT_SHMEM_COMPLEX(X, op)

/* The types that each operation takes. */
#define WEFT_SHMEM_TYPES_sum(X) WEFT_SHMEM_ANY(X, sum)
#define WEFT_SHMEM_TYPES_prod(X) WEFT_SHMEM_ANY(X, prod)
#define WEFT_SHMEM_TYPES_min(X) WEFT_SHMEM_NUMBER(X, min)
#define WEFT_SHMEM_TYPES_max(X) WEFT_SHMEM_NUMBER(X, max)
#define WEFT_SHMEM_TYPES_and(X) WEFT_SHMEM_INTEGER(X, and)
#define WEFT_SHMEM_TYPES_or(X) WEFT_SHMEM_INTEGER(X, or)
#define WEFT_SHMEM_TYPES_xor(X) WEFT_SHMEM_INTEGER(X, xor)

#define WEFT_SHMEM_DECLARE(name, type, op)                                                         \
    extern HIDDEN const weft_shmem_reduction_t weft__shmem_##name##_##op;
WEFT_SHMEM_TYPES_sum(WEFT_SHMEM_DECLARE) WEFT_SHMEM_TYPES_prod(WEFT_SHMEM_DECLARE)
    WEFT_SHMEM_TYPES_min(WEFT_SHMEM_DECLARE) WEFT_SHMEM_TYPES_max(WEFT_SHMEM_DECLARE)
        WEFT_SHMEM_TYPES_and(WEFT_SHMEM_DECLARE) WEFT_SHMEM_TYPES_or(WEFT_SHMEM_DECLARE)
            WEFT_SHMEM_TYPES_xor(WEFT_SHMEM_DECLARE)

/* The reduction `op` of a C type. */
/* clang-format off */
#define WEFT_SHMEM_PICK(name, type, op) type *: &weft__shmem_##name##_##op,
#define WEFT_SHMEM_REDUCTION(op, type)                                                             \
    _Generic((type *)0, WEFT_SHMEM_TYPES_##op(WEFT_SHMEM_PICK)                                     \
             default: (const weft_shmem_reduction_t *)0)
/* clang-format on */

/* The entry points of a type, each made by the including file's DEFINE_REDUCTION(name, op,
 * type). */
#define DEFINE_ARITHMETIC(name, type)                                                              \
    DEFINE_REDUCTION(name, sum, type)                                                              \
    DEFINE_REDUCTION(name, prod, type)
#define DEFINE_REAL(name, type)                                                                    \
    DEFINE_ARITHMETIC(name, type)                                                                  \
    DEFINE_REDUCTION(name, min, type)                                                              \
    DEFINE_REDUCTION(name, max, type)
#define DEFINE_INTEGER(name, type)                                                                 \
    DEFINE_REAL(name, type)                                                                        \
    DEFINE_REDUCTION(name, and, type)                                                              \
    DEFINE_REDUCTION(name, or, type)                                                               \
    DEFINE_REDUCTION(name, xor, type)

#endif
