/* The control segment of one communicator: what its ranks on a host share. It has no name in any
 * file system (a memfd, opened through /proc/<pid>/fd), so nothing can be left behind.
 *
 *     +--------------------+
 *     | head               |  size of the communicator, first error
 *     +--------------------+
 *     | block of rank 0    |  who it is; doorbell; slots; then what the backend wants
 *     | ...                |
 *     | block of rank N-1  |
 *     +--------------------+
 *     | pair 0 -> 0        |  what the backend wants for each ordered pair
 *     | pair 0 -> 1        |
 *     | ...                |
 *     +--------------------+
 *
 * A rank writes its own block and reads the others'. Pages are only backed once touched, so what is
 * not used costs nothing.
 *
 * Slots: call number k is announced in slot k % WEFT_SLOTS (announce.c). Most calls wait for
 * everybody's announcement before they end, so a rank that announces k+1 has finished k. A rank
 * that needs nothing from the others may go on and compare their announcements later, but is never
 * more than WEFT_LAG calls ahead of those it has compared. So before it overwrites slot k -
 * WEFT_SLOTS it has seen everybody's k - WEFT_LAG, hence nobody still reads the slot, and by the
 * same rule nobody's announcement is overwritten before all have compared it. No acknowledgement is
 * needed. */
#ifndef WEFT_COMM_HOST_SEGMENT_H
#define WEFT_COMM_HOST_SEGMENT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

#include "comm/comm.h"
#include "device/device.h"

#define WEFT_SLOTS 32
#define WEFT_LAG (WEFT_SLOTS / 2)

#define WEFT_INLINE_BYTES 32 /* payload that fits into the flag's own cache line */

/* Where a rank stands. TAKEN: somebody joins as this rank. JOINED: its identity is written. READY:
 * it has mapped all others' memory. LEFT: it destroyed its handle. */
enum { WEFT_RANK_ABSENT, WEFT_RANK_TAKEN, WEFT_RANK_JOINED, WEFT_RANK_READY, WEFT_RANK_LEFT };

/* One cache line that announces a call, and carries its data if that is small. */
typedef struct weft_slot {
    _Alignas(128) _Atomic uint64_t seq; /* call number + 1; released by post, acquired by wait */
    _Atomic uint64_t count;             /* relaxed: read after seq, or for an error text */
    _Atomic uint64_t sig;               /* relaxed: weft__sig_pack of the call */
    uint16_t flags;                     /* the backend's */
    uint16_t repeats; /* calls before it that were the same, one after the other */
    uint32_t bytes;   /* of the payload */
    union {
        char data[WEFT_INLINE_BYTES];
        struct {
            uint64_t src, dst; /* addresses in the owner's process */
        } at;
    } u;
    char payload[WEFT_SLOT_BYTES];
} weft_slot_t;

typedef struct weft_rank_block {
    /* All but state is written once, before state becomes JOINED (released; acquired by the others
     * in join.c). */
    _Alignas(128) _Atomic uint64_t state;
    int32_t pid;
    cpu_set_t cpus;      /* where the rank may run when it joined */
    bool oversubscribed; /* it belongs to a job or communicator with more ranks than cores */

    /* Doorbell: whoever sleeps until this rank does something counts itself in `sleepers` and waits
     * on `wake`; the rank rings after every flag it writes (wait.h has the ordering). */
    _Alignas(128) _Atomic uint32_t sleepers;
    _Atomic uint32_t wake;

    /* For error texts, relaxed: the number of the collective it is in or was in last, and of the
     * last one that went in chunks, with signature and count of the whole. */
    _Atomic uint64_t call, whole_call, whole_sig, whole_count;

    /* Not 0 while the rank may read or write others' buffers. Stored before it looks at `broken`;
     * whoever broke the communicator reads it after a membarrier (weft__host_drain). */
    _Atomic uint32_t inside;

    /* For a backend: how far the rank is in a call. Here, and not in the backend's part, as it
     * would cost one more page to look up in every call. */
    _Alignas(128) _Atomic uint64_t progress;

    _Alignas(128) weft_slot_t slot[WEFT_SLOTS];
} weft_rank_block_t;

/* Bytes that a backend has behind the block of each rank, which it fills before the rank is JOINED,
 * and for each ordered pair, on pages of their own. */
typedef struct weft_layout {
    size_t rank_bytes, pair_bytes;
} weft_layout_t;

typedef struct weft_segment_head {
    uint64_t magic, id, bytes;
    weft_layout_t layout;
    uint32_t size;
    /* 0 whole, 1 somebody writes the error, 2 broken. CAS 0 -> 1 by the first to fail, released as
     * 2 by it; acquired by everyone who looks. */
    _Alignas(64) _Atomic uint32_t broken;
    int32_t status, culprit;
    char text[WEFT_ERROR_TEXT];
} weft_segment_head_t;

/* What a rank needs to find the segment; plain bytes, sent through the rendezvous. */
typedef struct weft_segment_handle {
    uint64_t id, bytes;
    uint64_t host; /* hash of boot id and pid name space: who can open it at all */
    int32_t pid, fd;
} weft_segment_handle_t;

typedef struct weft_segment {
    weft_segment_head_t *head;
    weft_segment_handle_t handle;
    int fd;   /* the creator keeps it open until all have joined; -1 elsewhere and after */
    int refs; /* ranks of this process; under the table's lock */
    struct weft_segment *next;
} weft_segment_t;

/* Make a segment for `size` ranks. */
weft_status_t weft__segment_create(int size, weft_layout_t layout, weft_segment_t **segment_p);

/* Map the segment of `handle`, once per process. */
weft_status_t weft__segment_open(const weft_segment_handle_t *handle, weft_segment_t **segment_p);
weft_segment_t *weft__segment_share(weft_segment_t *segment);
void weft__segment_close(weft_segment_t *segment);

/* No further rank will open it: close the descriptor. */
void weft__segment_seal(weft_segment_t *segment);

/* Break the communicator for all its ranks, unless it is broken already. (fault.c) */
void weft__segment_break(weft_segment_t *segment, weft_status_t status, int culprit,
                         const char *text);

weft_rank_block_t *weft__segment_block(const weft_segment_t *segment, int rank);

/* What is the backend's behind that block, aligned to 128 bytes, and for a pair. */
void *weft__segment_rank(const weft_segment_t *segment, int rank);
void *weft__segment_pair(const weft_segment_t *segment, int from, int to);

#endif
