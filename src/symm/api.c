/* Puts, gets, signals and atomics: arguments are checked here, once, and become a call. */
#include "base/log.h"
#include "symm/symm.h"

static weft_status_t check_local(const char *who, const char *what, const void *ptr, size_t bytes)
{
    return ptr || bytes == 0 ? WEFT_OK
                             : weft__fail(WEFT_ERR_INVALID, "weft_%s: %s is NULL", who, what);
}

static weft_status_t check_word(weft_symm_h symm, const char *who, const uint64_t *word, int rank)
{
    WEFT_TRY(weft__symm_check(symm, who));
    WEFT_TRY(weft__symm_check_range(symm, who, "the word", word, 8, rank));
    WEFT_TRY(weft__symm_check_live(symm, who, "the word", word, 8));
    if (((uintptr_t)word & 7) != 0) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: the word at %p is not aligned to 8 bytes",
                          who, (const void *)word);
    }
    return WEFT_OK;
}

/* A copy: `remote` is the symmetric side of it. */
static weft_status_t check_copy(weft_symm_h symm, const char *who, const void *remote,
                                const void *local, size_t bytes, int rank)
{
    bool put = who[5] == 'p'; /* symm_put..., symm_get */
    WEFT_TRY(weft__symm_check(symm, who));
    WEFT_TRY(weft__symm_check_range(symm, who, put ? "dst" : "src", remote, bytes, rank));
    WEFT_TRY(weft__symm_check_live(symm, who, put ? "dst" : "src", remote, bytes));
    return check_local(who, put ? "src" : "dst", local, bytes);
}

weft_status_t weft_symm_put(weft_symm_h symm, void *dst, const void *src, size_t bytes, int rank,
                            weft_stream_h stream)
{
    weft_status_t status = check_copy(symm, "symm_put", dst, src, bytes, rank);
    if (status != WEFT_OK || bytes == 0) {
        return status;
    }
    weft_symm_call_t call = {.symm = symm,
                             .kind = WEFT_SYMM_COPY,
                             .dst = weft__symm_at(symm, dst, rank),
                             .src = src,
                             .bytes = bytes};
    return symm->ops->call(&call, stream);
}

weft_status_t weft_symm_get(weft_symm_h symm, void *dst, const void *src, size_t bytes, int rank,
                            weft_stream_h stream)
{
    weft_status_t status = check_copy(symm, "symm_get", src, dst, bytes, rank);
    if (status != WEFT_OK || bytes == 0) {
        return status;
    }
    weft_symm_call_t call = {.symm = symm,
                             .kind = WEFT_SYMM_COPY,
                             .dst = dst,
                             .src = weft__symm_at(symm, src, rank),
                             .bytes = bytes};
    return symm->ops->call(&call, stream);
}

static weft_status_t order(weft_symm_h symm, const char *who, weft_stream_h stream)
{
    WEFT_TRY(weft__symm_check(symm, who));
    weft_symm_call_t call = {.symm = symm, .kind = WEFT_SYMM_FENCE};
    return symm->ops->call(&call, stream);
}

weft_status_t weft_symm_fence(weft_symm_h symm, weft_stream_h stream)
{
    return order(symm, "symm_fence", stream);
}

weft_status_t weft_symm_quiet(weft_symm_h symm, weft_stream_h stream)
{
    return order(symm, "symm_quiet", stream);
}

weft_status_t weft_symm_barrier(weft_symm_h symm, weft_stream_h stream)
{
    WEFT_TRY(order(symm, "symm_barrier", stream));
    return weft_barrier(symm->comm, stream);
}

/* ---- signals ---------------------------------------------------------------------------- */

static weft_status_t check_signal(weft_symm_h symm, const char *who, const uint64_t *signal,
                                  weft_signal_op_t op, int rank)
{
    WEFT_TRY(check_word(symm, who, signal, rank));
    if (op != WEFT_SIGNAL_SET && op != WEFT_SIGNAL_ADD) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: %d is no weft_signal_op_t", who, (int)op);
    }
    return WEFT_OK;
}

weft_status_t weft_symm_put_signal(weft_symm_h symm, void *dst, const void *src, size_t bytes,
                                   uint64_t *signal, uint64_t value, weft_signal_op_t op, int rank,
                                   weft_stream_h stream)
{
    WEFT_TRY(check_copy(symm, "symm_put_signal", dst, src, bytes, rank));
    WEFT_TRY(check_signal(symm, "symm_put_signal", signal, op, rank));
    weft_symm_call_t call = {.symm = symm,
                             .kind = WEFT_SYMM_SIGNAL,
                             .op = (int)op,
                             .dst = weft__symm_at(symm, dst, rank),
                             .src = src,
                             .bytes = bytes,
                             .word = weft__symm_at(symm, signal, rank),
                             .value = value};
    return symm->ops->call(&call, stream);
}

weft_status_t weft_symm_signal_op(weft_symm_h symm, uint64_t *signal, uint64_t value,
                                  weft_signal_op_t op, int rank, weft_stream_h stream)
{
    WEFT_TRY(check_signal(symm, "symm_signal_op", signal, op, rank));
    weft_symm_call_t call = {.symm = symm,
                             .kind = WEFT_SYMM_SIGNAL,
                             .op = (int)op,
                             .word = weft__symm_at(symm, signal, rank),
                             .value = value};
    return symm->ops->call(&call, stream);
}

weft_status_t weft_symm_signal_wait(weft_symm_h symm, const uint64_t *signal, weft_cmp_t cmp,
                                    uint64_t value, weft_stream_h stream)
{
    WEFT_TRY(check_word(symm, "symm_signal_wait", signal, 0));
    if ((unsigned)cmp > WEFT_CMP_LE) {
        return weft__fail(WEFT_ERR_INVALID, "weft_symm_signal_wait: %d is no weft_cmp_t", (int)cmp);
    }
    weft_symm_call_t call = {.symm = symm,
                             .kind = WEFT_SYMM_WAIT,
                             .op = (int)cmp,
                             .word = (uint64_t *)signal,
                             .value = value};
    return symm->ops->call(&call, stream);
}

/* ---- atomics ---------------------------------------------------------------------------- */

static weft_status_t atomic_call(weft_symm_h symm, const char *who, weft_symm_atomic_t op,
                                 const uint64_t *target, uint64_t expected, uint64_t value,
                                 uint64_t *old_p, int rank, weft_stream_h stream)
{
    WEFT_TRY(check_word(symm, who, target, rank));
    weft_symm_call_t call = {.symm = symm,
                             .kind = WEFT_SYMM_ATOMIC,
                             .op = (int)op,
                             .word = weft__symm_at(symm, target, rank),
                             .value = value,
                             .expected = expected,
                             .old_p = old_p};
    return symm->ops->call(&call, stream);
}

static weft_status_t fetch_call(weft_symm_h symm, const char *who, weft_symm_atomic_t op,
                                const uint64_t *target, uint64_t expected, uint64_t value,
                                uint64_t *old_p, int rank, weft_stream_h stream)
{
    WEFT_TRY(check_local(who, "the place for the old value", old_p, 8));
    return atomic_call(symm, who, op, target, expected, value, old_p, rank, stream);
}

/* The pair of calls of an operation: without and with the old value. */
#define ATOMIC_PAIR(name, OP)                                                                      \
    weft_status_t weft_symm_atomic_##name(weft_symm_h symm, uint64_t *target, uint64_t value,      \
                                          int rank, weft_stream_h stream)                          \
    {                                                                                              \
        return atomic_call(symm, "symm_atomic_" #name, OP, target, 0, value, NULL, rank, stream);  \
    }                                                                                              \
    weft_status_t weft_symm_atomic_fetch_##name(weft_symm_h symm, uint64_t *target,                \
                                                uint64_t value, uint64_t *old_p, int rank,         \
                                                weft_stream_h stream)                              \
    {                                                                                              \
        return fetch_call(symm, "symm_atomic_fetch_" #name, OP, target, 0, value, old_p, rank,     \
                          stream);                                                                 \
    }

ATOMIC_PAIR(add, WEFT_ATOMIC_ADD)
ATOMIC_PAIR(and, WEFT_ATOMIC_AND)
ATOMIC_PAIR(or, WEFT_ATOMIC_OR)
ATOMIC_PAIR(xor, WEFT_ATOMIC_XOR)

weft_status_t weft_symm_atomic_set(weft_symm_h symm, uint64_t *target, uint64_t value, int rank,
                                   weft_stream_h stream)
{
    return atomic_call(symm, "symm_atomic_set", WEFT_ATOMIC_SET, target, 0, value, NULL, rank,
                       stream);
}

weft_status_t weft_symm_atomic_fetch(weft_symm_h symm, const uint64_t *target, uint64_t *old_p,
                                     int rank, weft_stream_h stream)
{
    return fetch_call(symm, "symm_atomic_fetch", WEFT_ATOMIC_FETCH, target, 0, 0, old_p, rank,
                      stream);
}

weft_status_t weft_symm_atomic_swap(weft_symm_h symm, uint64_t *target, uint64_t value,
                                    uint64_t *old_p, int rank, weft_stream_h stream)
{
    return fetch_call(symm, "symm_atomic_swap", WEFT_ATOMIC_SWAP, target, 0, value, old_p, rank,
                      stream);
}

weft_status_t weft_symm_atomic_cswap(weft_symm_h symm, uint64_t *target, uint64_t expected,
                                     uint64_t value, uint64_t *old_p, int rank,
                                     weft_stream_h stream)
{
    return fetch_call(symm, "symm_atomic_cswap", WEFT_ATOMIC_CSWAP, target, expected, value, old_p,
                      rank, stream);
}
