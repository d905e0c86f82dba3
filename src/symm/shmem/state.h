/* OpenSHMEM: what a PE knows, and how it reaches the memory of another.
 *
 * Each PE has one anonymous file, which all others map:
 *
 *     | control | heap                          | data                  |
 *       flags     shmem_malloc, an arena          .data and .bss of the program
 *
 * The data part is also mapped over the program's own variables (segment.c), so that they are
 * symmetric. An address is then in the heap, or in the data, or not symmetric at all; and the same
 * object of PE p lies `peers[p].heap` or `peers[p].data` bytes further on, here. Two comparisons
 * and an addition are all that a put adds to a store.
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

#include "boot/job.h"
#include "kernel/kernel.h"
#include "symm/shmem/control.h"

/* The way from a call to memory is to be a few instructions, whatever the compiler thinks of its
 * length. */
#define FAST static inline __attribute__((always_inline))
#ifdef WEFT_SHARED_TESTS /* see CMakeLists.txt */
#define HIDDEN
#else
#define HIDDEN __attribute__((visibility("hidden")))
#endif
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

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
    _Atomic size_t copy_range; /* see copy.h */
    bool joined;               /* all of `peers` are mapped */
    const weft_kernels_t *kernels;
    int spin;                   /* polls before a core is given away */
    bool oversubscribed;        /* more PEs than cores */
    int timeout_ms;             /* WEFT_TIMEOUT where it is set; 0: wait for ever */
    _Atomic int dead;           /* 1 + a PE that ended too early; set by the watch */
    _Atomic bool exiting;       /* somebody here has begun to end the process */
    weft_shmem_control_t *mine; /* peers[me].control */
    int thread_level;
    weft_shmem_peer_t peers[WEFT_MAX_RANKS]; /* in place: one load less on the way of a put */
    bool shares_core[WEFT_MAX_RANKS];        /* may run where we run */
} weft_shmem_state_t;

extern HIDDEN weft_shmem_state_t weft__shmem;

/* ---- the end of the job (watch.c) --------------------------------------------------------- */

/* End all PEs with `status`. */
_Noreturn void weft__shmem_end(int status);

/* Say what is wrong, unless another PE was first, and end all PEs with status 1. */
_Noreturn void weft__shmem_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for one kind of mistake each. */
_Noreturn void weft__shmem_bad_pe(const char *call, int pe, int pes);
_Noreturn void weft__shmem_bad_address(const char *call, const void *address, size_t bytes, int pe);
_Noreturn void weft__shmem_gone(const char *call, int pe, bool left); /* left, or died */

weft_status_t weft__shmem_watch_start(void);
void weft__shmem_watch_stop(void);

/* ---- addresses ---------------------------------------------------------------------------- */

/* Bytes of `count` elements. Where there is no such number, one that no check lets through. */
FAST size_t weft__shmem_bytes(size_t count, size_t size)
{
    size_t bytes;
    return unlikely(__builtin_mul_overflow(count, size, &bytes)) ? SIZE_MAX : bytes;
}

/* From the first of `count` elements (1 or more), `stride` of them apart, to the end of the last
 * one. */
FAST size_t weft__shmem_reach(ptrdiff_t stride, size_t count, size_t size)
{
    size_t before = weft__shmem_bytes(count - 1, (size_t)stride);
    return weft__shmem_bytes(before < SIZE_MAX ? before + 1 : before, size);
}

FAST bool weft__shmem_within(const weft_shmem_span_t *span, const void *address, size_t bytes)
{
    uintptr_t offset = (uintptr_t)address - span->base;
    return offset < span->bytes && bytes <= span->bytes - offset;
}

/* What nearly all calls are about: a PE that there is, and memory of the heap. */
FAST bool weft__shmem_in_heap(const void *address, size_t bytes, int pe)
{
    const weft_shmem_state_t *s = &weft__shmem;
    return likely((unsigned)pe < (unsigned)s->pes) &&
           likely(weft__shmem_within(&s->heap, address, bytes));
}

/* Where `bytes` at the symmetric `address` of PE `pe` are here. Ends the job if there is no such
 * PE, or the address is not symmetric. */
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
