/* OpenSHMEM's names without types, for C11: shmem_put(dest, source, n, pe) is shmem_long_put if
 * dest points to long, and shmem_put(ctx, dest, ...) is shmem_ctx_long_put.
 *
 * <shmem.h> includes this; SHMEM_NO_GENERIC keeps it out. A type that a call does not take ends in
 * "too many arguments to function shmem_type_not_supported". */
#ifndef WEFT_SHMEM_GENERIC_H
#define WEFT_SHMEM_GENERIC_H

#include <shmem.h>

#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L

void shmem_type_not_supported(void); /* is nowhere defined */

/* Every distinct type once, since int32_t and the like are names of others: X(name, type, call). */
#define SHMEM_C11_AMO(X, call)                                                                     \
    X(int, int, call)                                                                              \
    X(long, long, call)                                                                            \
    X(longlong, long long, call)                                                                   \
    X(uint, unsigned int, call)                                                                    \
    X(ulong, unsigned long, call)                                                                  \
    X(ulonglong, unsigned long long, call)
#define SHMEM_C11_AMO_EXTENDED(X, call)                                                            \
    SHMEM_C11_AMO(X, call)                                                                         \
    X(float, float, call)                                                                          \
    X(double, double, call)
#define SHMEM_C11_AMO_BITWISE(X, call)                                                             \
    X(uint, unsigned int, call)                                                                    \
    X(ulong, unsigned long, call)                                                                  \
    X(ulonglong, unsigned long long, call)                                                         \
    X(int32, int32_t, call)                                                                        \
    X(int64, int64_t, call)
#define SHMEM_C11_WAIT(X, call)                                                                    \
    SHMEM_C11_AMO(X, call)                                                                         \
    X(short, short, call)                                                                          \
    X(ushort, unsigned short, call)
#define SHMEM_C11_INTEGER(X, call)                                                                 \
    SHMEM_C11_WAIT(X, call)                                                                        \
    X(char, char, call)                                                                            \
    X(schar, signed char, call)                                                                    \
    X(uchar, unsigned char, call)
#define SHMEM_C11_RMA(X, call)                                                                     \
    SHMEM_C11_INTEGER(X, call)                                                                     \
    X(float, float, call)                                                                          \
    X(double, double, call)                                                                        \
    X(longdouble, long double, call)
#define SHMEM_C11_ARITHMETIC(X, call)                                                              \
    SHMEM_C11_RMA(X, call)                                                                         \
    X(complexf, float _Complex, call)                                                              \
    X(complexd, double _Complex, call)
/* clang-format off */
#define SHMEM_C11_ROW(name, type, call)                                                            \
    type *: shmem_##name##_##call, const type *: shmem_##name##_##call,                            \
            volatile type *: shmem_##name##_##call,
#define SHMEM_C11_CTX_ROW(name, type, call)                                                        \
    type *: shmem_ctx_##name##_##call, const type *: shmem_ctx_##name##_##call,                    \
            volatile type *: shmem_ctx_##name##_##call,
/* clang-format on */

#define SHMEM_C11_FIRST_OF(first, ...) first
#define SHMEM_C11_SECOND_OF(first, second, ...) second
#define SHMEM_C11_FIRST(...) SHMEM_C11_FIRST_OF(__VA_ARGS__, 0)
#define SHMEM_C11_SECOND(...) SHMEM_C11_SECOND_OF(__VA_ARGS__, 0, 0)

/* By the type that a pointer points to; or, after a context, the pointer after it. */
/* clang-format off */
#define SHMEM_C11_PICK(types, call, pointer)                                                       \
    _Generic((pointer), types(SHMEM_C11_ROW, call) default: shmem_type_not_supported)
#define SHMEM_C11_PICK_CTX(types, call, first, second)                                             \
    _Generic((first),                                                                              \
        shmem_ctx_t: _Generic((second),                                                            \
            types(SHMEM_C11_CTX_ROW, call) default: shmem_type_not_supported),                     \
        types(SHMEM_C11_ROW, call) default: shmem_type_not_supported)
/* clang-format on */

/* SHMEM_C11_CALL: the pointer is the first argument. _CTX: it may come after a context. _TEAM: it
 * comes after a team. */
#define SHMEM_C11_CALL(types, call, ...)                                                           \
    SHMEM_C11_PICK(types, call, SHMEM_C11_FIRST(__VA_ARGS__))(__VA_ARGS__)
#define SHMEM_C11_CTX(types, call, ...)                                                            \
    SHMEM_C11_PICK_CTX(types, call, SHMEM_C11_FIRST(__VA_ARGS__), SHMEM_C11_SECOND(__VA_ARGS__))   \
    (__VA_ARGS__)
#define SHMEM_C11_TEAM(types, call, ...)                                                           \
    SHMEM_C11_PICK(types, call, SHMEM_C11_SECOND(__VA_ARGS__))(__VA_ARGS__)

/* put and get */
#define shmem_p(...) SHMEM_C11_CTX(SHMEM_C11_RMA, p, __VA_ARGS__)
#define shmem_g(...) SHMEM_C11_CTX(SHMEM_C11_RMA, g, __VA_ARGS__)
#define shmem_put(...) SHMEM_C11_CTX(SHMEM_C11_RMA, put, __VA_ARGS__)
#define shmem_get(...) SHMEM_C11_CTX(SHMEM_C11_RMA, get, __VA_ARGS__)
#define shmem_put_nbi(...) SHMEM_C11_CTX(SHMEM_C11_RMA, put_nbi, __VA_ARGS__)
#define shmem_get_nbi(...) SHMEM_C11_CTX(SHMEM_C11_RMA, get_nbi, __VA_ARGS__)
#define shmem_iput(...) SHMEM_C11_CTX(SHMEM_C11_RMA, iput, __VA_ARGS__)
#define shmem_iget(...) SHMEM_C11_CTX(SHMEM_C11_RMA, iget, __VA_ARGS__)
#define shmem_put_signal(...) SHMEM_C11_CTX(SHMEM_C11_RMA, put_signal, __VA_ARGS__)
#define shmem_put_signal_nbi(...) SHMEM_C11_CTX(SHMEM_C11_RMA, put_signal_nbi, __VA_ARGS__)

/* atomics */
#define shmem_atomic_fetch(...) SHMEM_C11_CTX(SHMEM_C11_AMO_EXTENDED, atomic_fetch, __VA_ARGS__)
#define shmem_atomic_set(...) SHMEM_C11_CTX(SHMEM_C11_AMO_EXTENDED, atomic_set, __VA_ARGS__)
#define shmem_atomic_swap(...) SHMEM_C11_CTX(SHMEM_C11_AMO_EXTENDED, atomic_swap, __VA_ARGS__)
#define shmem_atomic_fetch_nbi(...)                                                                \
    SHMEM_C11_CTX(SHMEM_C11_AMO_EXTENDED, atomic_fetch_nbi, __VA_ARGS__)
#define shmem_atomic_swap_nbi(...)                                                                 \
    SHMEM_C11_CTX(SHMEM_C11_AMO_EXTENDED, atomic_swap_nbi, __VA_ARGS__)
#define shmem_atomic_compare_swap(...)                                                             \
    SHMEM_C11_CTX(SHMEM_C11_AMO, atomic_compare_swap, __VA_ARGS__)
#define shmem_atomic_fetch_inc(...) SHMEM_C11_CTX(SHMEM_C11_AMO, atomic_fetch_inc, __VA_ARGS__)
#define shmem_atomic_fetch_add(...) SHMEM_C11_CTX(SHMEM_C11_AMO, atomic_fetch_add, __VA_ARGS__)
#define shmem_atomic_inc(...) SHMEM_C11_CTX(SHMEM_C11_AMO, atomic_inc, __VA_ARGS__)
#define shmem_atomic_add(...) SHMEM_C11_CTX(SHMEM_C11_AMO, atomic_add, __VA_ARGS__)
#define shmem_atomic_compare_swap_nbi(...)                                                         \
    SHMEM_C11_CTX(SHMEM_C11_AMO, atomic_compare_swap_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_inc_nbi(...)                                                            \
    SHMEM_C11_CTX(SHMEM_C11_AMO, atomic_fetch_inc_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_add_nbi(...)                                                            \
    SHMEM_C11_CTX(SHMEM_C11_AMO, atomic_fetch_add_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_and(...)                                                                \
    SHMEM_C11_CTX(SHMEM_C11_AMO_BITWISE, atomic_fetch_and, __VA_ARGS__)
#define shmem_atomic_fetch_or(...)                                                                 \
    SHMEM_C11_CTX(SHMEM_C11_AMO_BITWISE, atomic_fetch_or, __VA_ARGS__)
#define shmem_atomic_fetch_xor(...)                                                                \
    SHMEM_C11_CTX(SHMEM_C11_AMO_BITWISE, atomic_fetch_xor, __VA_ARGS__)
#define shmem_atomic_and(...) SHMEM_C11_CTX(SHMEM_C11_AMO_BITWISE, atomic_and, __VA_ARGS__)
#define shmem_atomic_or(...) SHMEM_C11_CTX(SHMEM_C11_AMO_BITWISE, atomic_or, __VA_ARGS__)
#define shmem_atomic_xor(...) SHMEM_C11_CTX(SHMEM_C11_AMO_BITWISE, atomic_xor, __VA_ARGS__)
#define shmem_atomic_fetch_and_nbi(...)                                                            \
    SHMEM_C11_CTX(SHMEM_C11_AMO_BITWISE, atomic_fetch_and_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_or_nbi(...)                                                             \
    SHMEM_C11_CTX(SHMEM_C11_AMO_BITWISE, atomic_fetch_or_nbi, __VA_ARGS__)
#define shmem_atomic_fetch_xor_nbi(...)                                                            \
    SHMEM_C11_CTX(SHMEM_C11_AMO_BITWISE, atomic_fetch_xor_nbi, __VA_ARGS__)

/* waiting */
#define shmem_wait_until(...) SHMEM_C11_CALL(SHMEM_C11_WAIT, wait_until, __VA_ARGS__)
#define shmem_test(...) SHMEM_C11_CALL(SHMEM_C11_WAIT, test, __VA_ARGS__)
#define shmem_wait_until_all(...) SHMEM_C11_CALL(SHMEM_C11_WAIT, wait_until_all, __VA_ARGS__)
#define shmem_wait_until_any(...) SHMEM_C11_CALL(SHMEM_C11_WAIT, wait_until_any, __VA_ARGS__)
#define shmem_wait_until_some(...) SHMEM_C11_CALL(SHMEM_C11_WAIT, wait_until_some, __VA_ARGS__)
#define shmem_test_all(...) SHMEM_C11_CALL(SHMEM_C11_WAIT, test_all, __VA_ARGS__)
#define shmem_test_any(...) SHMEM_C11_CALL(SHMEM_C11_WAIT, test_any, __VA_ARGS__)
#define shmem_test_some(...) SHMEM_C11_CALL(SHMEM_C11_WAIT, test_some, __VA_ARGS__)
#define shmem_wait_until_all_vector(...)                                                           \
    SHMEM_C11_CALL(SHMEM_C11_WAIT, wait_until_all_vector, __VA_ARGS__)
#define shmem_wait_until_any_vector(...)                                                           \
    SHMEM_C11_CALL(SHMEM_C11_WAIT, wait_until_any_vector, __VA_ARGS__)
#define shmem_wait_until_some_vector(...)                                                          \
    SHMEM_C11_CALL(SHMEM_C11_WAIT, wait_until_some_vector, __VA_ARGS__)
#define shmem_test_all_vector(...) SHMEM_C11_CALL(SHMEM_C11_WAIT, test_all_vector, __VA_ARGS__)
#define shmem_test_any_vector(...) SHMEM_C11_CALL(SHMEM_C11_WAIT, test_any_vector, __VA_ARGS__)
#define shmem_test_some_vector(...) SHMEM_C11_CALL(SHMEM_C11_WAIT, test_some_vector, __VA_ARGS__)

/* collectives */
#define shmem_broadcast(...) SHMEM_C11_TEAM(SHMEM_C11_RMA, broadcast, __VA_ARGS__)
#define shmem_collect(...) SHMEM_C11_TEAM(SHMEM_C11_RMA, collect, __VA_ARGS__)
#define shmem_fcollect(...) SHMEM_C11_TEAM(SHMEM_C11_RMA, fcollect, __VA_ARGS__)
#define shmem_alltoall(...) SHMEM_C11_TEAM(SHMEM_C11_RMA, alltoall, __VA_ARGS__)
#define shmem_alltoalls(...) SHMEM_C11_TEAM(SHMEM_C11_RMA, alltoalls, __VA_ARGS__)
#define shmem_and_reduce(...) SHMEM_C11_TEAM(SHMEM_C11_INTEGER, and_reduce, __VA_ARGS__)
#define shmem_or_reduce(...) SHMEM_C11_TEAM(SHMEM_C11_INTEGER, or_reduce, __VA_ARGS__)
#define shmem_xor_reduce(...) SHMEM_C11_TEAM(SHMEM_C11_INTEGER, xor_reduce, __VA_ARGS__)
#define shmem_max_reduce(...) SHMEM_C11_TEAM(SHMEM_C11_RMA, max_reduce, __VA_ARGS__)
#define shmem_min_reduce(...) SHMEM_C11_TEAM(SHMEM_C11_RMA, min_reduce, __VA_ARGS__)
#define shmem_sum_reduce(...) SHMEM_C11_TEAM(SHMEM_C11_ARITHMETIC, sum_reduce, __VA_ARGS__)
#define shmem_prod_reduce(...) SHMEM_C11_TEAM(SHMEM_C11_ARITHMETIC, prod_reduce, __VA_ARGS__)

/* shmem_sync(team), or the old one with an active set */
/* clang-format off */
#define shmem_sync(...)                                                                            \
    _Generic((SHMEM_C11_FIRST(__VA_ARGS__)), shmem_team_t: shmem_team_sync, default: shmem_sync)(  \
        __VA_ARGS__)
/* clang-format on */

/* deprecated: here for all types of the calls that replace them */
#define shmem_fetch(...) SHMEM_C11_CALL(SHMEM_C11_AMO_EXTENDED, atomic_fetch, __VA_ARGS__)
#define shmem_set(...) SHMEM_C11_CALL(SHMEM_C11_AMO_EXTENDED, atomic_set, __VA_ARGS__)
#define shmem_swap(...) SHMEM_C11_CALL(SHMEM_C11_AMO_EXTENDED, atomic_swap, __VA_ARGS__)
#define shmem_cswap(...) SHMEM_C11_CALL(SHMEM_C11_AMO, atomic_compare_swap, __VA_ARGS__)
#define shmem_finc(...) SHMEM_C11_CALL(SHMEM_C11_AMO, atomic_fetch_inc, __VA_ARGS__)
#define shmem_fadd(...) SHMEM_C11_CALL(SHMEM_C11_AMO, atomic_fetch_add, __VA_ARGS__)
#define shmem_inc(...) SHMEM_C11_CALL(SHMEM_C11_AMO, atomic_inc, __VA_ARGS__)
#define shmem_add(...) SHMEM_C11_CALL(SHMEM_C11_AMO, atomic_add, __VA_ARGS__)

#endif
#endif
