/* put, get, and their relatives.
 *
 * A put has arrived when it returns: it is a copy. So the non-blocking calls are the blocking ones,
 * and quiet has nothing to wait for but the processor's own stores. */
#include "symm/shmem/api.h"
#include "symm/shmem/copy.h"

/* Global variables, nothing, mistakes. Apart, so that the way to the heap is short and needs no
 * frame. */
static __attribute__((noinline)) void put_elsewhere(void *dest, const void *source, size_t bytes,
                                                    int pe, const char *call)
{
    if (bytes > 0) {
        weft__shmem_copy(weft__shmem_remote(dest, bytes, pe, call), source, bytes);
    }
}

static __attribute__((noinline)) void get_elsewhere(void *dest, const void *source, size_t bytes,
                                                    int pe, const char *call)
{
    if (bytes > 0) {
        weft__shmem_copy(dest, weft__shmem_remote(source, bytes, pe, call), bytes);
    }
}

FAST void put(void *dest, const void *source, size_t bytes, int pe, const char *call)
{
    if (weft__shmem_in_heap(dest, bytes, pe)) {
        weft__shmem_copy((char *)dest + weft__shmem.peers[pe].heap, source, bytes);
    } else {
        put_elsewhere(dest, source, bytes, pe, call);
    }
}

FAST void get(void *dest, const void *source, size_t bytes, int pe, const char *call)
{
    if (weft__shmem_in_heap(source, bytes, pe)) {
        weft__shmem_copy(dest, (const char *)source + weft__shmem.peers[pe].heap, bytes);
    } else {
        get_elsewhere(dest, source, bytes, pe, call);
    }
}

static void check_stride(ptrdiff_t dst, ptrdiff_t sst, const char *call)
{
    if (dst < 1 || sst < 1) {
        weft__shmem_die("%s on PE %d: strides are 1 or more, not dst %td and sst %td", call,
                        weft__shmem.me, dst, sst);
    }
}

static void iput(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems,
                 size_t size, int pe, const char *call)
{
    if (nelems > 0) {
        check_stride(dst, sst, call);
        void *to = weft__shmem_remote(dest, weft__shmem_reach(dst, nelems, size), pe, call);
        weft__shmem_copy_strided(to, dst, source, sst, nelems, size);
    }
}

static void iget(void *dest, const void *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems,
                 size_t size, int pe, const char *call)
{
    if (nelems > 0) {
        check_stride(dst, sst, call);
        const void *from = weft__shmem_remote(source, weft__shmem_reach(sst, nelems, size), pe,
                                              call);
        weft__shmem_copy_strided(dest, dst, from, sst, nelems, size);
    }
}

static inline void put_signal(void *dest, const void *source, size_t bytes, uint64_t *sig_addr,
                              uint64_t signal, int sig_op, int pe, const char *call)
{
    uint64_t *flag = weft__shmem_remote(sig_addr, sizeof(*sig_addr), pe, call);
    put(dest, source, bytes, pe, call);
    /* Partner: the acquire of whoever waits for the signal. */
    if (likely(sig_op == SHMEM_SIGNAL_SET)) {
        __atomic_store_n(flag, signal, __ATOMIC_RELEASE);
    } else if (sig_op == SHMEM_SIGNAL_ADD) {
        __atomic_fetch_add(flag, signal, __ATOMIC_RELEASE);
    } else {
        weft__shmem_die("%s on PE %d: sig_op %d is neither SHMEM_SIGNAL_SET nor SHMEM_SIGNAL_ADD",
                        call, weft__shmem.me, sig_op);
    }
}

/* A scalar is stored by one instruction where the machine has one: whoever polls it sees all or
 * nothing. It comes after all stores before it, as every store does on x86; others may order it as
 * they like. */
#define STORE(pointer, value)                                                                      \
    do {                                                                                           \
        if (sizeof(value) <= 8) {                                                                  \
            *(volatile __typeof__(value) *)(pointer) = (value);                                    \
        } else {                                                                                   \
            memcpy((pointer), &(value), sizeof(value));                                            \
        }                                                                                          \
    } while (0)

/* ---- entry points ------------------------------------------------------------------------- */

#define LIST(...) __VA_ARGS__

/* Both forms of a call; `pe` is translated for a context. `parameters` in brackets. */
#define DEFINE_CTX(result, name, parameters, statement)                                            \
    DEFINE(result, name, LIST parameters)                                                          \
    {                                                                                              \
        statement;                                                                                 \
    }                                                                                              \
    DEFINE(result, ctx_##name, shmem_ctx_t ctx, LIST parameters)                                   \
    {                                                                                              \
        pe = weft__shmem_ctx_pe(ctx, pe, CALL);                                                    \
        statement;                                                                                 \
    }

#define BLOCK(type) (type * dest, const type *source, size_t nelems, int pe)
#define STRIDES(type)                                                                              \
    (type * dest, const type *source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe)
#define SIGNAL(type)                                                                               \
    (type * dest, const type *source, size_t nelems, uint64_t *sig_addr, uint64_t signal,          \
     int sig_op, int pe)

#define PUT(size) put(dest, source, weft__shmem_bytes(nelems, size), pe, CALL)
#define GET(size) get(dest, source, weft__shmem_bytes(nelems, size), pe, CALL)
#define PUT_SIGNAL(size)                                                                           \
    put_signal(dest, source, weft__shmem_bytes(nelems, size), sig_addr, signal, sig_op, pe, CALL)

/* shmem_<prefix>put<bits> and so on: either a type stands in front, or a size behind. */
#define DEFINE_BLOCKS(prefix, bits, type, size)                                                    \
    DEFINE_CTX(void, prefix##put##bits, BLOCK(type), PUT(size))                                    \
    DEFINE_CTX(void, prefix##get##bits, BLOCK(type), GET(size))                                    \
    DEFINE_CTX(void, prefix##put##bits##_nbi, BLOCK(type), PUT(size))                              \
    DEFINE_CTX(void, prefix##get##bits##_nbi, BLOCK(type), GET(size))                              \
    DEFINE_CTX(void, prefix##put##bits##_signal, SIGNAL(type), PUT_SIGNAL(size))                   \
    DEFINE_CTX(void, prefix##put##bits##_signal_nbi, SIGNAL(type), PUT_SIGNAL(size))
#define DEFINE_STRIDED(prefix, bits, type, size)                                                   \
    DEFINE_CTX(void, prefix##iput##bits, STRIDES(type),                                            \
               iput(dest, source, dst, sst, nelems, size, pe, CALL))                               \
    DEFINE_CTX(void, prefix##iget##bits, STRIDES(type),                                            \
               iget(dest, source, dst, sst, nelems, size, pe, CALL))

#define DEFINE_SIZE(bits, size)                                                                    \
    DEFINE_BLOCKS(, bits, void, size)                                                              \
    DEFINE_STRIDED(, bits, void, size)
#define DEFINE_TYPE(name, type)                                                                    \
    DEFINE_CTX(void, name##_p, (type * dest, type value, int pe),                                  \
               STORE(weft__shmem_remote(dest, sizeof(type), pe, CALL), value))                     \
    DEFINE_CTX(type, name##_g, (const type *source, int pe),                                       \
               return *(volatile type *)weft__shmem_remote(source, sizeof(type), pe, CALL))        \
    DEFINE_BLOCKS(name##_, , type, sizeof(type))                                                   \
    DEFINE_STRIDED(name##_, , type, sizeof(type))

SHMEM_TYPES_RMA(DEFINE_TYPE)
SHMEM_SIZES(DEFINE_SIZE)
DEFINE_BLOCKS(, mem, void, 1)

/* ---- order -------------------------------------------------------------------------------- */

DEFINE(void, fence, void)
{
    atomic_thread_fence(memory_order_acq_rel);
}

DEFINE(void, quiet, void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

/* Of SHMEM_CTX_INVALID nothing is asked. */
static void check_ctx(shmem_ctx_t ctx, const char *call)
{
    if (unlikely(ctx != SHMEM_CTX_DEFAULT && ctx != SHMEM_CTX_INVALID &&
                 ctx->magic != WEFT_SHMEM_CTX_MAGIC)) {
        weft__shmem_bad_ctx(call, ctx);
    }
}

DEFINE(void, ctx_fence, shmem_ctx_t ctx)
{
    check_ctx(ctx, CALL);
    atomic_thread_fence(memory_order_acq_rel);
}

DEFINE(void, ctx_quiet, shmem_ctx_t ctx)
{
    check_ctx(ctx, CALL);
    atomic_thread_fence(memory_order_seq_cst);
}
