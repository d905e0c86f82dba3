/* Symmetric heaps on virtual GPUs: other ranks' memory is mapped here, so a call is a few
 * instructions of the calling thread, or of the stream's worker. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/device.h"
#include "symm/shmem/copy.h"
#include "symm/symm.h"

typedef _Atomic uint64_t word_t;

/* ---- waiting ---------------------------------------------------------------------------- */

static bool holds(uint64_t word, int cmp, uint64_t value)
{
    switch (cmp) {
    case WEFT_CMP_EQ:
        return word == value;
    case WEFT_CMP_NE:
        return word != value;
    case WEFT_CMP_GT:
        return word > value;
    case WEFT_CMP_GE:
        return word >= value;
    case WEFT_CMP_LT:
        return word < value;
    default:
        return word <= value;
    }
}

static bool signal_ready(const void *arg)
{
    const weft_symm_call_t *call = arg;
    /* Partner: the release in run_signal and run_atomic of whoever changes the word. */
    return holds(atomic_load_explicit((word_t *)call->word, memory_order_acquire), call->op,
                 call->value);
}

static void describe_signal(const void *arg, char *text, size_t room)
{
    static const char *const signs[] = {"==", "!=", ">", ">=", "<", "<="};
    const weft_symm_call_t *call = arg;
    snprintf(text, room, "a signal (the word at offset %td of its heap %s %" PRIu64 ")",
             (char *)call->word - call->symm->base, signs[call->op], call->value);
}

static weft_status_t run_wait(const weft_symm_call_t *call)
{
    if (signal_ready(call)) {
        return WEFT_OK;
    }
    weft_reach_wait_t wait = {.ready = signal_ready, .arg = call, .describe = describe_signal};
    return weft__reach_await(call->symm->comm, &wait);
}

/* ---- the rest --------------------------------------------------------------------------- */

static void run_signal(const weft_symm_call_t *call)
{
    word_t *word = (word_t *)call->word;
    if (call->bytes > 0) {
        weft__shmem_copy(call->dst, call->src, call->bytes);
    }
    /* Partner: the acquire load in signal_ready of the rank that waits. */
    if (call->op == WEFT_SIGNAL_SET) {
        atomic_store_explicit(word, call->value, memory_order_release);
    } else {
        atomic_fetch_add_explicit(word, call->value, memory_order_release);
    }
}

/* Partners: all calls on the same word, those of this function and signal_ready. */
static void run_atomic(const weft_symm_call_t *call)
{
    word_t *word = (word_t *)call->word;
    uint64_t old = call->expected;
    switch ((weft_symm_atomic_t)call->op) {
    case WEFT_ATOMIC_SET:
        atomic_store_explicit(word, call->value, memory_order_release);
        break;
    case WEFT_ATOMIC_ADD:
        old = atomic_fetch_add(word, call->value);
        break;
    case WEFT_ATOMIC_AND:
        old = atomic_fetch_and(word, call->value);
        break;
    case WEFT_ATOMIC_OR:
        old = atomic_fetch_or(word, call->value);
        break;
    case WEFT_ATOMIC_XOR:
        old = atomic_fetch_xor(word, call->value);
        break;
    case WEFT_ATOMIC_FETCH:
        old = atomic_load_explicit(word, memory_order_acquire);
        break;
    case WEFT_ATOMIC_SWAP:
        old = atomic_exchange(word, call->value);
        break;
    case WEFT_ATOMIC_CSWAP:
        atomic_compare_exchange_strong(word, &old, call->value);
        break;
    }
    if (call->old_p) {
        *call->old_p = old;
    }
}

/* Later stores of this thread come after earlier ones, for everybody: an exchange on a word of
 * one's own is a full fence that all sanitizers understand. */
static void run_fence(void)
{
    static _Thread_local _Atomic int own;
    atomic_exchange(&own, 0);
}

static weft_status_t run(const weft_symm_call_t *call)
{
    switch (call->kind) {
    case WEFT_SYMM_COPY:
        weft__shmem_copy(call->dst, call->src, call->bytes);
        break;
    case WEFT_SYMM_SIGNAL:
        run_signal(call);
        break;
    case WEFT_SYMM_WAIT:
        return run_wait(call);
    case WEFT_SYMM_ATOMIC:
        run_atomic(call);
        break;
    case WEFT_SYMM_FENCE:
        run_fence();
        break;
    }
    return WEFT_OK;
}

static weft_status_t run_queued(void *arg)
{
    weft_status_t status = run(arg);
    free(arg);
    return status;
}

static weft_status_t cpu_call(const weft_symm_call_t *call, weft_stream_h stream)
{
    if (!stream) {
        return run(call);
    }
    if (!weft__stream_exists(stream)) {
        return weft__fail(WEFT_ERR_INVALID, "a call on a symmetric heap: " WEFT_STREAM_GONE);
    }
    weft_symm_call_t *queued = malloc(sizeof(*queued));
    if (!queued) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to queue a call on a symmetric heap");
    }
    *queued = *call;
    weft_status_t status = weft__stream_push(stream, run_queued, queued);
    if (status != WEFT_OK) {
        free(queued);
    }
    return status;
}

static weft_status_t cpu_open(weft_symm_h symm)
{
    (void)symm;
    weft__shmem_copy_init();
    return WEFT_OK;
}

static void cpu_close(weft_symm_h symm)
{
    (void)symm;
}

static weft_status_t cpu_view(weft_symm_h symm, weft_symm_view_t *view)
{
    (void)symm;
    (void)view;
    return WEFT_OK;
}

static weft_status_t cpu_error(weft_symm_h symm)
{
    return weft__reach_broken(symm->comm);
}

const weft_symm_ops_t weft__symm_cpu = {
    .open = cpu_open, .close = cpu_close, .call = cpu_call, .view = cpu_view, .error = cpu_error};
