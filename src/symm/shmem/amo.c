/* Atomics: the processor's own, on the other PE's memory. The non-blocking forms have the result
 * when they return. */
#include "symm/shmem/api.h"

#define AT(pointer, type) ((type *)weft__shmem_remote(pointer, sizeof(type), pe, CALL))

/* All four forms: of a call that returns what was there, the blocking one, and the one that stores
 * it to *fetch; each with and without a context. __VA_ARGS__: its parameters before pe. */
#define DEFINE_FORM(result, name, statement, ...)                                                  \
    DEFINE(result, name, __VA_ARGS__, int pe)                                                      \
    {                                                                                              \
        statement;                                                                                 \
    }                                                                                              \
    DEFINE(result, ctx_##name, shmem_ctx_t ctx, __VA_ARGS__, int pe)                               \
    {                                                                                              \
        pe = weft__shmem_ctx_pe(ctx, pe, CALL);                                                    \
        statement;                                                                                 \
    }
#define DEFINE_FETCHING(name, type, value_of, ...)                                                 \
    DEFINE_FORM(type, name, return value_of, __VA_ARGS__)                                          \
    DEFINE_FORM(void, name##_nbi, *fetch = value_of, type * fetch, __VA_ARGS__)

/* Any type of 4 or 8 bytes, also float and double. */
#define LOAD(type)                                                                                 \
    ({                                                                                             \
        type now;                                                                                  \
        __atomic_load(AT(source, type), &now, __ATOMIC_SEQ_CST);                                   \
        now;                                                                                       \
    })
#define STORE(type) __atomic_store(AT(dest, type), &value, __ATOMIC_SEQ_CST)
#define SWAP(type)                                                                                 \
    ({                                                                                             \
        type before;                                                                               \
        __atomic_exchange(AT(dest, type), &value, &before, __ATOMIC_SEQ_CST);                      \
        before;                                                                                    \
    })
#define COMPARE_SWAP(type)                                                                         \
    ({                                                                                             \
        type before = cond;                                                                        \
        __atomic_compare_exchange_n(AT(dest, type), &before, value, 0, __ATOMIC_SEQ_CST,           \
                                    __ATOMIC_SEQ_CST);                                             \
        before;                                                                                    \
    })

#define DEFINE_EXTENDED(name, type)                                                                \
    DEFINE_FETCHING(name##_atomic_fetch, type, LOAD(type), const type *source)                     \
    DEFINE_FETCHING(name##_atomic_swap, type, SWAP(type), type *dest, type value)                  \
    DEFINE_FORM(void, name##_atomic_set, STORE(type), type *dest, type value)
SHMEM_TYPES_AMO_EXTENDED(DEFINE_EXTENDED)

#define FETCH(op, type, operand) __atomic_fetch_##op(AT(dest, type), operand, __ATOMIC_SEQ_CST)
#define UPDATE(op, type, operand) (void)FETCH(op, type, operand)

#define DEFINE_STANDARD(name, type)                                                                \
    DEFINE_FETCHING(name##_atomic_compare_swap, type, COMPARE_SWAP(type), type *dest, type cond,   \
                    type value)                                                                    \
    DEFINE_FETCHING(name##_atomic_fetch_inc, type, FETCH(add, type, 1), type *dest)                \
    DEFINE_FETCHING(name##_atomic_fetch_add, type, FETCH(add, type, value), type *dest,            \
                    type value)                                                                    \
    DEFINE_FORM(void, name##_atomic_inc, UPDATE(add, type, 1), type *dest)                         \
    DEFINE_FORM(void, name##_atomic_add, UPDATE(add, type, value), type *dest, type value)
SHMEM_TYPES_AMO(DEFINE_STANDARD)

#define DEFINE_BITS(name, type, op)                                                                \
    DEFINE_FETCHING(name##_atomic_fetch_##op, type, FETCH(op, type, value), type *dest,            \
                    type value)                                                                    \
    DEFINE_FORM(void, name##_atomic_##op, UPDATE(op, type, value), type *dest, type value)
#define DEFINE_BITWISE(name, type)                                                                 \
    DEFINE_BITS(name, type, and)                                                                   \
    DEFINE_BITS(name, type, or)                                                                    \
    DEFINE_BITS(name, type, xor)
SHMEM_TYPES_AMO_BITWISE(DEFINE_BITWISE)

/* ---- deprecated names --------------------------------------------------------------------- */

#define DEFINE_OLD_EXTENDED(name, type)                                                            \
    DEFINE(type, name##_fetch, const type *source, int pe)                                         \
    {                                                                                              \
        return LOAD(type);                                                                         \
    }                                                                                              \
    DEFINE(void, name##_set, type *dest, type value, int pe)                                       \
    {                                                                                              \
        STORE(type);                                                                               \
    }                                                                                              \
    DEFINE(type, name##_swap, type *dest, type value, int pe)                                      \
    {                                                                                              \
        return SWAP(type);                                                                         \
    }
SHMEM_TYPES_OLD_AMO_EXTENDED(DEFINE_OLD_EXTENDED)

#define DEFINE_OLD(name, type)                                                                     \
    DEFINE(type, name##_cswap, type *dest, type cond, type value, int pe)                          \
    {                                                                                              \
        return COMPARE_SWAP(type);                                                                 \
    }                                                                                              \
    DEFINE(type, name##_finc, type *dest, int pe)                                                  \
    {                                                                                              \
        return FETCH(add, type, 1);                                                                \
    }                                                                                              \
    DEFINE(type, name##_fadd, type *dest, type value, int pe)                                      \
    {                                                                                              \
        return FETCH(add, type, value);                                                            \
    }                                                                                              \
    DEFINE(void, name##_inc, type *dest, int pe)                                                   \
    {                                                                                              \
        UPDATE(add, type, 1);                                                                      \
    }                                                                                              \
    DEFINE(void, name##_add, type *dest, type value, int pe)                                       \
    {                                                                                              \
        UPDATE(add, type, value);                                                                  \
    }
SHMEM_TYPES_OLD_AMO(DEFINE_OLD)
