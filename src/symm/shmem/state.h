/* OpenSHMEM: what a PE knows, and how it reaches the memory of another.
 *
 * Each PE has one anonymous file, which all others map:
 *
 *     | control | heap                          | data                  |
 *       flags     shmem_malloc, an arena          .data and .bss of the program
 *
 * The data part is also mapped over the program's own variables (segment.c), so that they are
 * symmetric. An address is then in the heap, or in the data, or not symmetric at all; and the same
 * object of PE p lies `peers[p].heap` or `peers[p].data` bytes further on, here. Two comparisons and
 * an addition are all that a put adds to a store.
 *
 * Programs may link us statically. Our own variables then lie in the data part as well, which is
 * harmless: nobody writes to them but we. */
#ifndef WEFT_SYMM_SHMEM_STATE_H
#define WEFT_SYMM_SHMEM_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHMEM_NO_GENERIC 1
#include <shmem.h>

#include <weft/status.h>

#include "kernel/kernel.h"
#include "symm/shmem/control.h"

/* The way from a call to memory is to be a few instructions, whatever the compiler thinks of its length. */
#define FAST static inline __attribute__((always_inline))
#define HIDDEN __attribute__((visibility("hidden")))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define WEFT_SHMEM_PES_MAX 4096     /* what weft run starts at most */
#define WEFT_SHMEM_APART INTPTR_MIN /* of a PE that runs another program: its data is not ours */

typedef struct weft_shmem_peer {
    ptrdiff_t heap, data; /* from an address here to the same object of that PE */
    weft_shmem_control_t *control;
    int pid, pidfd;
} weft_shmem_peer_t;

typedef struct weft_shmem_span {
    uintptr_t base;
    size_t bytes;
} weft_shmem_span_t;

typedef struct weft_shmem_state {
    int me, pes; /* pes: 0 before shmem_init and after shmem_finalize */
    weft_shmem_span_t heap, data;
    bool joined; /* all of `peers` are mapped */
    const weft_kernels_t *kernels;
    int spin;                   /* polls before a core is given away */
    bool crowded;               /* more PEs than cores */
    _Atomic int dead;           /* 1 + a PE that ended too early; set by the watch */
    _Atomic bool exiting;       /* somebody here has begun to end the process */
    weft_shmem_control_t *mine; /* peers[me].control */
    int thread_level;
    weft_shmem_peer_t peers[WEFT_SHMEM_PES_MAX]; /* in place: one load less on the way of a put */
} weft_shmem_state_t;

extern HIDDEN weft_shmem_state_t weft__shmem;

/* ---- the end of the job (watch.c) ---------------------------------------------------------------- */

/* End all PEs with `status`. */
_Noreturn void weft__shmem_end(int status);

/* Say what is wrong, unless another PE was first, and end all PEs with status 1. */
_Noreturn void weft__shmem_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for one kind of mistake each. */
_Noreturn void weft__shmem_bad_pe(const char *call, int pe, int pes);
_Noreturn void weft__shmem_bad_address(const char *call, const void *address, size_t bytes, int pe);
_Noreturn void weft__shmem_peer_died(const char *call);

weft_status_t weft__shmem_watch_start(void);
void weft__shmem_watch_stop(void);

/* ---- addresses ----------------------------------------------------------------------------------- */

FAST bool weft__shmem_within(const weft_shmem_span_t *span, const void *address, size_t bytes)
{
    uintptr_t offset = (uintptr_t)address - span->base;
    return offset < span->bytes && bytes <= span->bytes - offset;
}

/* Where `bytes` at the symmetric `address` of PE `pe` are here. Ends the job if there is no such PE, or
 * the address is not symmetric. */
FAST void *weft__shmem_remote(const void *address, size_t bytes, int pe, const char *call)
{
    const weft_shmem_state_t *s = &weft__shmem;
    if (unlikely((unsigned)pe >= (unsigned)s->pes)) {
        weft__shmem_bad_pe(call, pe, s->pes);
    }
    const weft_shmem_peer_t *peer = &s->peers[pe];
    if (likely(weft__shmem_within(&s->heap, address, bytes))) {
        return (char *)(uintptr_t)address + peer->heap;
    }
    if (unlikely(!weft__shmem_within(&s->data, address, bytes) || peer->data == WEFT_SHMEM_APART)) {
        weft__shmem_bad_address(call, address, bytes, pe);
    }
    return (char *)(uintptr_t)address + peer->data;
}

/* For what must be symmetric although it is only looked at here. */
FAST void weft__shmem_check(const void *address, size_t bytes, const char *call)
{
    const weft_shmem_state_t *s = &weft__shmem;
    if (unlikely(!weft__shmem_within(&s->heap, address, bytes) &&
                 !weft__shmem_within(&s->data, address, bytes))) {
        weft__shmem_bad_address(call, address, bytes, s->me);
    }
}

#endif
