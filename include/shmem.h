/* OpenSHMEM 1.5 on Weft: processes of one host that read and write each other's memory.
 *
 *     #include <shmem.h>
 *
 *     static long counter;                 // static and global variables are symmetric
 *
 *     int main(void)
 *     {
 *         shmem_init();
 *         shmem_long_atomic_inc(&counter, 0);            // the counter of PE 0
 *         shmem_barrier_all();
 *         ...
 *         shmem_finalize();
 *     }
 *
 *     oshcc prog.c -o prog && oshrun -np 4 ./prog
 *
 * What each call does is defined by the specification (openshmem.org); docs/conformance.md says
 * where Weft goes beyond it, and what it does where the specification leaves something open. Every
 * misuse that can be seen (a wrong PE, an address that is not symmetric, a heap that is too small)
 * is one sentence that names the call and the PE. Variables of the environment:
 * SHMEM_SYMMETRIC_SIZE (the heap of a PE, 512M unless set), SHMEM_VERSION, SHMEM_INFO, SHMEM_DEBUG.
 *
 * Reading this file: SHMEM_API(int, my_pe, void) declares `int shmem_my_pe(void)`, and with it the
 * entry pshmem_my_pe that profilers call. SHMEM_CTX_API declares two: shmem_X(...) on the default
 * context and shmem_ctx_X(shmem_ctx_t ctx, ...). The macros with (name, type) are applied to every
 * type of a table of <weft/shmem_types.h>. In C11 all typed calls are also there without the type
 * in their name, shmem_put(...): <weft/shmem_generic.h>. */
#ifndef SHMEM_H
#define SHMEM_H

#include <weft/shmem_types.h>

#ifdef __cplusplus
#include <complex>
typedef std::complex<float> shmem_complexf_t;
typedef std::complex<double> shmem_complexd_t;
extern "C" {
#else
typedef float _Complex shmem_complexf_t;
typedef double _Complex shmem_complexd_t;
#endif

#define SHMEM_API(result, name, ...)                                                               \
    result shmem_##name(__VA_ARGS__);                                                              \
    result pshmem_##name(__VA_ARGS__);
#define SHMEM_CTX_API(result, name, ...)                                                           \
    SHMEM_API(result, name, __VA_ARGS__)                                                           \
    SHMEM_API(result, ctx_##name, shmem_ctx_t ctx, __VA_ARGS__)

/* ---- set-up, queries ---------------------------------------------------------------------- */

SHMEM_API(void, init, void)
SHMEM_API(int, init_thread, int requested, int *provided) /* every level is provided */
SHMEM_API(void, query_thread, int *provided)
SHMEM_API(void, finalize, void)
void shmem_global_exit(int status) __attribute__((__noreturn__));
void pshmem_global_exit(int status) __attribute__((__noreturn__));

SHMEM_API(int, my_pe, void)
SHMEM_API(int, n_pes, void)
SHMEM_API(int, pe_accessible, int pe)
SHMEM_API(int, addr_accessible, const void *addr, int pe)
SHMEM_API(void *, ptr, const void *dest, int pe) /* NULL: not symmetric, or no such PE */
SHMEM_API(void, info_get_version, int *major, int *minor)
SHMEM_API(void, info_get_name, char *name)
SHMEM_API(void, pcontrol, int level, ...)

/* ---- the symmetric heap ------------------------------------------------------------------- */

/* All PEs call them with the same arguments, which is checked. NULL, and a sentence on stderr, if
 * there is not enough room. */
SHMEM_API(void *, malloc, size_t size)
SHMEM_API(void *, malloc_with_hints, size_t size, long hints)
SHMEM_API(void *, calloc, size_t count, size_t size)
SHMEM_API(void *, align, size_t alignment, size_t size)
SHMEM_API(void *, realloc, void *ptr, size_t size)
SHMEM_API(void, free, void *ptr)

/* ---- teams, contexts ---------------------------------------------------------------------- */

SHMEM_API(int, team_my_pe, shmem_team_t team)
SHMEM_API(int, team_n_pes, shmem_team_t team)
SHMEM_API(int, team_get_config, shmem_team_t team, long config_mask, shmem_team_config_t *config)
SHMEM_API(int, team_translate_pe, shmem_team_t src_team, int src_pe, shmem_team_t dest_team)
SHMEM_API(int, team_split_strided, shmem_team_t parent_team, int start, int stride, int size,
          const shmem_team_config_t *config, long config_mask, shmem_team_t *new_team)
SHMEM_API(int, team_split_2d, shmem_team_t parent_team, int xrange,
          const shmem_team_config_t *xaxis_config, long xaxis_mask, shmem_team_t *xaxis_team,
          const shmem_team_config_t *yaxis_config, long yaxis_mask, shmem_team_t *yaxis_team)
SHMEM_API(void, team_destroy, shmem_team_t team)
SHMEM_API(void *, team_ptr, shmem_team_t team, const void *dest, int pe) /* of 1.6 */

SHMEM_API(int, ctx_create, long options, shmem_ctx_t *ctx)
SHMEM_API(int, team_create_ctx, shmem_team_t team, long options, shmem_ctx_t *ctx)
SHMEM_API(void, ctx_destroy, shmem_ctx_t ctx)
SHMEM_API(int, ctx_get_team, shmem_ctx_t ctx, shmem_team_t *team)

/* ---- put and get -------------------------------------------------------------------------- */

#define SHMEM_RMA_API(name, type)                                                                  \
    SHMEM_CTX_API(void, name##_p, type *dest, type value, int pe)                                  \
    SHMEM_CTX_API(type, name##_g, const type *source, int pe)                                      \
    SHMEM_CTX_API(void, name##_put, type *dest, const type *source, size_t nelems, int pe)         \
    SHMEM_CTX_API(void, name##_get, type *dest, const type *source, size_t nelems, int pe)         \
    SHMEM_CTX_API(void, name##_put_nbi, type *dest, const type *source, size_t nelems, int pe)     \
    SHMEM_CTX_API(void, name##_get_nbi, type *dest, const type *source, size_t nelems, int pe)     \
    SHMEM_CTX_API(void, name##_iput, type *dest, const type *source, ptrdiff_t dst, ptrdiff_t sst, \
                  size_t nelems, int pe)                                                           \
    SHMEM_CTX_API(void, name##_iget, type *dest, const type *source, ptrdiff_t dst, ptrdiff_t sst, \
                  size_t nelems, int pe)                                                           \
    SHMEM_CTX_API(void, name##_put_signal, type *dest, const type *source, size_t nelems,          \
                  uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)                         \
    SHMEM_CTX_API(void, name##_put_signal_nbi, type *dest, const type *source, size_t nelems,      \
                  uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)
SHMEM_TYPES_RMA(SHMEM_RMA_API)

/* Elements of 1 byte ("mem"), or of so many bits. */
#define SHMEM_BLOCK_API(bits)                                                                      \
    SHMEM_CTX_API(void, put##bits, void *dest, const void *source, size_t nelems, int pe)          \
    SHMEM_CTX_API(void, get##bits, void *dest, const void *source, size_t nelems, int pe)          \
    SHMEM_CTX_API(void, put##bits##_nbi, void *dest, const void *source, size_t nelems, int pe)    \
    SHMEM_CTX_API(void, get##bits##_nbi, void *dest, const void *source, size_t nelems, int pe)    \
    SHMEM_CTX_API(void, put##bits##_signal, void *dest, const void *source, size_t nelems,         \
                  uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)                         \
    SHMEM_CTX_API(void, put##bits##_signal_nbi, void *dest, const void *source, size_t nelems,     \
                  uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)
#define SHMEM_SIZE_API(bits, bytes)                                                                \
    SHMEM_BLOCK_API(bits)                                                                          \
    SHMEM_CTX_API(void, iput##bits, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst,  \
                  size_t nelems, int pe)                                                           \
    SHMEM_CTX_API(void, iget##bits, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst,  \
                  size_t nelems, int pe)
SHMEM_BLOCK_API(mem)
SHMEM_SIZES(SHMEM_SIZE_API)

SHMEM_API(uint64_t, signal_fetch, const uint64_t *sig_addr)

/* ---- atomics ------------------------------------------------------------------------------ */

#define SHMEM_AMO_EXTENDED_API(name, type)                                                         \
    SHMEM_CTX_API(type, name##_atomic_fetch, const type *source, int pe)                           \
    SHMEM_CTX_API(void, name##_atomic_set, type *dest, type value, int pe)                         \
    SHMEM_CTX_API(type, name##_atomic_swap, type *dest, type value, int pe)                        \
    SHMEM_CTX_API(void, name##_atomic_fetch_nbi, type *fetch, const type *source, int pe)          \
    SHMEM_CTX_API(void, name##_atomic_swap_nbi, type *fetch, type *dest, type value, int pe)
SHMEM_TYPES_AMO_EXTENDED(SHMEM_AMO_EXTENDED_API)

#define SHMEM_AMO_API(name, type)                                                                  \
    SHMEM_CTX_API(type, name##_atomic_compare_swap, type *dest, type cond, type value, int pe)     \
    SHMEM_CTX_API(type, name##_atomic_fetch_inc, type *dest, int pe)                               \
    SHMEM_CTX_API(type, name##_atomic_fetch_add, type *dest, type value, int pe)                   \
    SHMEM_CTX_API(void, name##_atomic_inc, type *dest, int pe)                                     \
    SHMEM_CTX_API(void, name##_atomic_add, type *dest, type value, int pe)                         \
    SHMEM_CTX_API(void, name##_atomic_compare_swap_nbi, type *fetch, type *dest, type cond,        \
                  type value, int pe)                                                              \
    SHMEM_CTX_API(void, name##_atomic_fetch_inc_nbi, type *fetch, type *dest, int pe)              \
    SHMEM_CTX_API(void, name##_atomic_fetch_add_nbi, type *fetch, type *dest, type value, int pe)
SHMEM_TYPES_AMO(SHMEM_AMO_API)

#define SHMEM_AMO_BITWISE_API(name, type)                                                          \
    SHMEM_CTX_API(type, name##_atomic_fetch_and, type *dest, type value, int pe)                   \
    SHMEM_CTX_API(type, name##_atomic_fetch_or, type *dest, type value, int pe)                    \
    SHMEM_CTX_API(type, name##_atomic_fetch_xor, type *dest, type value, int pe)                   \
    SHMEM_CTX_API(void, name##_atomic_and, type *dest, type value, int pe)                         \
    SHMEM_CTX_API(void, name##_atomic_or, type *dest, type value, int pe)                          \
    SHMEM_CTX_API(void, name##_atomic_xor, type *dest, type value, int pe)                         \
    SHMEM_CTX_API(void, name##_atomic_fetch_and_nbi, type *fetch, type *dest, type value, int pe)  \
    SHMEM_CTX_API(void, name##_atomic_fetch_or_nbi, type *fetch, type *dest, type value, int pe)   \
    SHMEM_CTX_API(void, name##_atomic_fetch_xor_nbi, type *fetch, type *dest, type value, int pe)
SHMEM_TYPES_AMO_BITWISE(SHMEM_AMO_BITWISE_API)

/* ---- order, waiting ----------------------------------------------------------------------- */

SHMEM_API(void, fence, void)
SHMEM_API(void, quiet, void)
SHMEM_API(void, ctx_fence, shmem_ctx_t ctx)
SHMEM_API(void, ctx_quiet, shmem_ctx_t ctx)

#define SHMEM_WAIT_API(name, type)                                                                 \
    SHMEM_API(void, name##_wait_until, type *ivar, int cmp, type cmp_value)                        \
    SHMEM_API(int, name##_test, type *ivar, int cmp, type cmp_value)
SHMEM_TYPES_WAIT(SHMEM_WAIT_API)

/* Of an array, less the elements whose status is not 0 (NULL: none): one value to compare all with,
 * or (`_vector`) one for each. */
#define SHMEM_WAIT_MANY_API(name, type, suffix, value)                                             \
    SHMEM_API(void, name##_wait_until_all##suffix, type *ivars, size_t nelems, const int *status,  \
              int cmp, type value)                                                                 \
    SHMEM_API(size_t, name##_wait_until_any##suffix, type *ivars, size_t nelems,                   \
              const int *status, int cmp, type value)                                              \
    SHMEM_API(size_t, name##_wait_until_some##suffix, type *ivars, size_t nelems, size_t *indices, \
              const int *status, int cmp, type value)                                              \
    SHMEM_API(int, name##_test_all##suffix, type *ivars, size_t nelems, const int *status,         \
              int cmp, type value)                                                                 \
    SHMEM_API(size_t, name##_test_any##suffix, type *ivars, size_t nelems, const int *status,      \
              int cmp, type value)                                                                 \
    SHMEM_API(size_t, name##_test_some##suffix, type *ivars, size_t nelems, size_t *indices,       \
              const int *status, int cmp, type value)
#define SHMEM_WAIT_SET_API(name, type)                                                             \
    SHMEM_WAIT_MANY_API(name, type, , cmp_value)                                                   \
    SHMEM_WAIT_MANY_API(name, type, _vector, *cmp_values)
SHMEM_TYPES_WAIT(SHMEM_WAIT_SET_API)

SHMEM_API(uint64_t, signal_wait_until, uint64_t *sig_addr, int cmp, uint64_t cmp_value)

/* ---- locks: the first to come is the first to be served ----------------------------------- */

SHMEM_API(void, set_lock, long *lock)
SHMEM_API(int, test_lock, long *lock)
SHMEM_API(void, clear_lock, long *lock)

/* ---- collectives -------------------------------------------------------------------------- */

SHMEM_API(void, barrier_all, void)
SHMEM_API(void, sync_all, void)
SHMEM_API(int, team_sync, shmem_team_t team)

#define SHMEM_COLLECTIVE_API(prefix, suffix, type)                                                 \
    SHMEM_API(int, prefix##broadcast##suffix, shmem_team_t team, type *dest, const type *source,   \
              size_t nelems, int PE_root)                                                          \
    SHMEM_API(int, prefix##collect##suffix, shmem_team_t team, type *dest, const type *source,     \
              size_t nelems)                                                                       \
    SHMEM_API(int, prefix##fcollect##suffix, shmem_team_t team, type *dest, const type *source,    \
              size_t nelems)                                                                       \
    SHMEM_API(int, prefix##alltoall##suffix, shmem_team_t team, type *dest, const type *source,    \
              size_t nelems)                                                                       \
    SHMEM_API(int, prefix##alltoalls##suffix, shmem_team_t team, type *dest, const type *source,   \
              ptrdiff_t dst, ptrdiff_t sst, size_t nelems)
#define SHMEM_COLLECTIVE_TYPED_API(name, type) SHMEM_COLLECTIVE_API(name##_, , type)
SHMEM_TYPES_RMA(SHMEM_COLLECTIVE_TYPED_API)
SHMEM_COLLECTIVE_API(, mem, void)

#define SHMEM_REDUCE_API(name, op, type)                                                           \
    SHMEM_API(int, name##_##op##_reduce, shmem_team_t team, type *dest, const type *source,        \
              size_t nreduce)
#define SHMEM_REDUCE_BITWISE_API(name, type)                                                       \
    SHMEM_REDUCE_API(name, and, type)                                                              \
    SHMEM_REDUCE_API(name, or, type)                                                               \
    SHMEM_REDUCE_API(name, xor, type)
#define SHMEM_REDUCE_ORDER_API(name, type)                                                         \
    SHMEM_REDUCE_API(name, max, type)                                                              \
    SHMEM_REDUCE_API(name, min, type)
#define SHMEM_REDUCE_ARITHMETIC_API(name, type)                                                    \
    SHMEM_REDUCE_API(name, sum, type)                                                              \
    SHMEM_REDUCE_API(name, prod, type)
SHMEM_TYPES_INTEGER(SHMEM_REDUCE_BITWISE_API)
SHMEM_TYPES_INTEGER(SHMEM_REDUCE_ORDER_API)
SHMEM_TYPES_REAL(SHMEM_REDUCE_ORDER_API)
SHMEM_TYPES_INTEGER(SHMEM_REDUCE_ARITHMETIC_API)
SHMEM_TYPES_REAL(SHMEM_REDUCE_ARITHMETIC_API)
SHMEM_REDUCE_ARITHMETIC_API(complexf, shmem_complexf_t)
SHMEM_REDUCE_ARITHMETIC_API(complexd, shmem_complexd_t)

/* ---- deprecated --------------------------------------------------------------------------- */

void start_pes(int npes);
int _my_pe(void);
int _num_pes(void);
void *shmalloc(size_t size);
void *shmemalign(size_t alignment, size_t size);
void *shrealloc(void *ptr, size_t size);
void shfree(void *ptr);

#define SHMEM_OLD_AMO_EXTENDED_API(name, type)                                                     \
    SHMEM_API(type, name##_fetch, const type *source, int pe)                                      \
    SHMEM_API(void, name##_set, type *dest, type value, int pe)                                    \
    SHMEM_API(type, name##_swap, type *dest, type value, int pe)
SHMEM_TYPES_OLD_AMO_EXTENDED(SHMEM_OLD_AMO_EXTENDED_API)

#define SHMEM_OLD_AMO_API(name, type)                                                              \
    SHMEM_API(type, name##_cswap, type *dest, type cond, type value, int pe)                       \
    SHMEM_API(type, name##_finc, type *dest, int pe)                                               \
    SHMEM_API(type, name##_fadd, type *dest, type value, int pe)                                   \
    SHMEM_API(void, name##_inc, type *dest, int pe)                                                \
    SHMEM_API(void, name##_add, type *dest, type value, int pe)
SHMEM_TYPES_OLD_AMO(SHMEM_OLD_AMO_API)

/* Wait until the variable differs from a value. */
#define SHMEM_OLD_WAIT_API(name, type) SHMEM_API(void, name##_wait, type *ivar, type cmp_value)
SHMEM_TYPES_WAIT(SHMEM_OLD_WAIT_API)
SHMEM_API(void, wait, long *ivar, long cmp_value)
SHMEM_API(void, wait_until, long *ivar, int cmp, long cmp_value)

/* Collectives on active sets: PE_size PEs, from PE_start on, 2^logPE_stride apart. pSync and pWrk
 * are not used. */
SHMEM_API(void, barrier, int PE_start, int logPE_stride, int PE_size, long *pSync)
SHMEM_API(void, sync, int PE_start, int logPE_stride, int PE_size, long *pSync)

#define SHMEM_OLD_COLLECTIVE_API(bits)                                                             \
    SHMEM_API(void, broadcast##bits, void *dest, const void *source, size_t nelems, int PE_root,   \
              int PE_start, int logPE_stride, int PE_size, long *pSync)                            \
    SHMEM_API(void, collect##bits, void *dest, const void *source, size_t nelems, int PE_start,    \
              int logPE_stride, int PE_size, long *pSync)                                          \
    SHMEM_API(void, fcollect##bits, void *dest, const void *source, size_t nelems, int PE_start,   \
              int logPE_stride, int PE_size, long *pSync)                                          \
    SHMEM_API(void, alltoall##bits, void *dest, const void *source, size_t nelems, int PE_start,   \
              int logPE_stride, int PE_size, long *pSync)                                          \
    SHMEM_API(void, alltoalls##bits, void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, \
              size_t nelems, int PE_start, int logPE_stride, int PE_size, long *pSync)
SHMEM_OLD_COLLECTIVE_API(32)
SHMEM_OLD_COLLECTIVE_API(64)

#define SHMEM_TO_ALL_API(name, op, type)                                                           \
    SHMEM_API(void, name##_##op##_to_all, type *dest, const type *source, int nreduce,             \
              int PE_start, int logPE_stride, int PE_size, type *pWrk, long *pSync)
#define SHMEM_TO_ALL_BITWISE_API(name, type)                                                       \
    SHMEM_TO_ALL_API(name, and, type)                                                              \
    SHMEM_TO_ALL_API(name, or, type)                                                               \
    SHMEM_TO_ALL_API(name, xor, type)
#define SHMEM_TO_ALL_ORDER_API(name, type)                                                         \
    SHMEM_TO_ALL_API(name, max, type)                                                              \
    SHMEM_TO_ALL_API(name, min, type)
#define SHMEM_TO_ALL_ARITHMETIC_API(name, type)                                                    \
    SHMEM_TO_ALL_API(name, sum, type)                                                              \
    SHMEM_TO_ALL_API(name, prod, type)
SHMEM_TYPES_TO_ALL_INTEGER(SHMEM_TO_ALL_BITWISE_API)
SHMEM_TYPES_TO_ALL_INTEGER(SHMEM_TO_ALL_ORDER_API)
SHMEM_TYPES_REAL(SHMEM_TO_ALL_ORDER_API)
SHMEM_TYPES_TO_ALL_INTEGER(SHMEM_TO_ALL_ARITHMETIC_API)
SHMEM_TYPES_REAL(SHMEM_TO_ALL_ARITHMETIC_API)
SHMEM_TO_ALL_ARITHMETIC_API(complexf, shmem_complexf_t)
SHMEM_TO_ALL_ARITHMETIC_API(complexd, shmem_complexd_t)

#ifdef __cplusplus
}
#endif

#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L &&           \
    !defined(SHMEM_NO_GENERIC)
#include <weft/shmem_generic.h>
#endif

#endif
