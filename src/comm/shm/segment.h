/* The control segment of one communicator: flags, small payloads and channels, shared by all its
 * ranks. It has no name in any file system (a memfd, opened through /proc/<pid>/fd), so nothing can
 * be left behind.
 *
 *     +--------------------+
 *     | head               |  size of the communicator, first error
 *     +--------------------+
 *     | block of rank 0    |  who it is; doorbell; progress; slots; scratch
 *     | ...                |
 *     | block of rank N-1  |
 *     +--------------------+
 *     | channel 0 -> 0     |  one per ordered pair: sends and receives (p2p.c)
 *     | channel 0 -> 1     |
 *     | ...                |
 *     +--------------------+
 *
 * A rank writes its own block and reads the others'. Pages are only backed once touched, so unused
 * channels cost nothing.
 *
 * Slots: call number k is announced in slot k % WEFT_SLOTS. Most calls wait for everybody's
 * announcement before they end, so a rank that announces k+1 has finished k. A rank that needs
 * nothing from the others may go on and compare their announcements later, but is never more than
 * WEFT_LAG calls ahead of those it has compared. So before it overwrites slot k - WEFT_SLOTS it has
 * seen everybody's k - WEFT_LAG, hence nobody still reads the slot, and by the same rule nobody's
 * announcement is overwritten before all have compared it. No acknowledgement is needed. */
#ifndef WEFT_COMM_SHM_SEGMENT_H
#define WEFT_COMM_SHM_SEGMENT_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>

#include "comm/coll/window.h"
#include "comm/comm.h"
#include "device/device.h"

#define WEFT_SLOTS 32
#define WEFT_LAG (WEFT_SLOTS / 2)

#define WEFT_CARD_BYTES ((size_t)24 << 10)
#define WEFT_INLINE_BYTES 32 /* payload that fits into the flag's own cache line */

/* Where a rank stands. TAKEN: somebody joins as this rank. JOINED: its identity is written. READY:
 * it has mapped all others' memory. LEFT: it destroyed its handle. */
enum { WEFT_RANK_ABSENT, WEFT_RANK_TAKEN, WEFT_RANK_JOINED, WEFT_RANK_READY, WEFT_RANK_LEFT };

/* The buffers of a call can be reached by ranks of other processes. */
#define WEFT_SLOT_SRC_SHARED 1u
#define WEFT_SLOT_DST_SHARED 2u

/* One cache line that announces a call, and carries its data if that is small. */
typedef struct weft_slot {
    _Alignas(128) _Atomic uint64_t seq; /* call number + 1; released by post, acquired by wait */
    _Atomic uint64_t count;             /* relaxed: read after seq, or for an error text */
    _Atomic uint64_t sig;               /* relaxed: weft__sig_pack of the call */
    uint32_t flags;
    uint32_t bytes; /* of the payload */
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
    int32_t pid, device;
    uint64_t heap_base; /* of the heap below, in the owner's process */
    weft_heap_handle_t heap;
    cpu_set_t cpus; /* where the rank may run when it joined */
    uint64_t chunk; /* its WEFT_CHUNK: all must have the same */
    bool crowded;   /* it belongs to a job or communicator with more ranks than cores */

    /* Doorbell: whoever sleeps until this rank does something counts itself in `sleepers` and waits
     * on `wake`; the rank rings after every flag it writes (wait.h has the ordering). */
    _Alignas(128) _Atomic uint32_t sleepers;
    _Atomic uint32_t wake;

    /* For error texts, relaxed: the number of the collective it is in or was in last, and of the last
     * one that went in pieces, with signature and count of the whole. */
    _Atomic uint64_t call, whole_call, whole_sig, whole_count;

    /* Not 0 while the rank may read or write others' buffers. Stored before it looks at `broken`;
     * whoever broke the communicator reads it after a membarrier (weft__shm_drain). */
    _Atomic uint32_t inside;

    /* How far the rank is inside a window: window number << 24 | step. Released by signal,
     * acquired by wait. */
    _Alignas(128) _Atomic uint64_t progress;

    _Alignas(128) weft_slot_t slot[WEFT_SLOTS];
    _Alignas(128) char tmp[WEFT_TMP_BYTES];

    /* For a transport that carries the data in place of this one: what its ranks tell each other. */
    _Alignas(128) char card[WEFT_CARD_BYTES];

    /* Moves the blocks of neighbouring ranks apart modulo the page size, so that the flags of all
     * ranks do not compete for one set of the first-level cache. */
    _Alignas(128) char apart[128];
} weft_rank_block_t;

/* Head of the segment. */
typedef struct weft_segment_head {
    uint64_t magic, id, bytes;
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
weft_status_t weft__segment_create(int size, weft_segment_t **segment_p);

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

/* A hash of what must be equal for two processes to share memory through /proc. */
weft_status_t weft__host_id(uint64_t *id_p);

/* ---- channels: sends and receives, see p2p.c --------------------------------------------- */

#define WEFT_FRAG_BYTES ((size_t)8 << 10)
#define WEFT_FRAGS 8

#define WEFT_FRAG_INLINE 96

/* The flag of one message, or of one fragment of a staged one, with the data if that fits into the
 * pair of cache lines that processors fetch together. Written by the sender. */
typedef struct weft_frag {
    _Alignas(
        128) _Atomic uint64_t seq; /* fragment number + 1; released by post, acquired by recv */
    uint64_t count;                /* of the whole message */
    uint64_t sig;
    uint32_t kind;
    uint32_t bytes; /* in this fragment */
    union {
        char data[WEFT_FRAG_INLINE];
        struct {
            uint64_t src; /* address of the message in the sender's process */
            uint32_t shared;
        } at;
    } u;
} weft_frag_t;

typedef struct weft_channel {
    weft_frag_t frag[WEFT_FRAGS];
    _Alignas(128) _Atomic uint64_t consumed; /* fragments taken: released by the receiver, acquired
                                              * by the sender when the ring looks full */
    /* The meeting of a large message: the receiver writes all of this, `clear` last. */
    _Alignas(128) _Atomic uint64_t clear; /* number of the message it is ready for; released by it,
                                           * acquired by the sender */
    uint64_t dst;
    uint32_t shared;
    /* Pieces of that message: claimed by CAS on `next`, counted in `done` (acquire-release on both
     * sides). Both hold message << 32 | piece, so a late claim for an old message fails. */
    _Alignas(128) _Atomic uint64_t next;
    _Alignas(128) _Atomic uint64_t done;
    _Alignas(4096) char payload[WEFT_FRAGS][WEFT_FRAG_BYTES];
} weft_channel_t;

weft_channel_t *weft__segment_channel(const weft_segment_t *segment, int from, int to);

#endif
