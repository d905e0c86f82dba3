/* The ranks of one host, as processes or threads: who they are, who is alive, how they wait for
 * each other and tell each other what they call. Backends of one host stand on it; comm->host is
 * what they and others ask.
 *
 *     find.c      the segment in which the ranks meet
 *     join.c      joining and leaving
 *     announce.c  calls that all ranks make, compared; announce.h for small ones
 *     split.c     communicators of some of the ranks
 *     wait.c      spin, yield, sleep
 *     fault.c     errors that concern all ranks */
#ifndef WEFT_COMM_HOST_HOST_H
#define WEFT_COMM_HOST_HOST_H

#include "comm/backends.h"
#include "comm/host/segment.h"
#include "comm/watch.h"

/* Another rank, as seen from here. */
typedef struct weft_peer {
    weft_rank_block_t *block;
    bool near;      /* same process: all of its memory can be reached */
    bool watched;   /* pidfd is to be closed */
    int pid, pidfd; /* its process, and what weft__proc_open gave for it; -1 if not watched */
} weft_peer_t;

typedef struct weft_host {
    weft_segment_t *segment;
    weft_rank_block_t *me;
    weft_peer_t *peers; /* [size], this rank included */
    weft_seen_t *seen;  /* [size]: what the watch is told */
    int rank, size;
    weft_comm_h comm;
    bool oversubscribed; /* there are more ranks than cores */
    bool one_process;    /* every rank is a thread of this process */
    int spin;            /* polls before yielding */
    bool naps; /* no membarrier here: sleep in short naps instead of waiting for the bell */
    const weft_kernels_t *kernels;

    uint64_t seq;                   /* calls announced */
    uint64_t verified;              /* calls below this number were compared with all ranks */
    uint64_t last_sig, last_count;  /* of the last call announced */
    int repeats;                    /* how often in a row it was made before */
    bool together;                  /* in the current call everybody waits for everybody */
    uint64_t calls;                 /* collectives made */
    const struct weft_host *parent; /* while it is being split from one */
    const weft_call_t *current; /* for error texts: the one in progress, as the caller made it */
    _Atomic bool told; /* a call of this rank has returned the error that broke the communicator;
                        * relaxed: an abort from another thread writes it as well */
} weft_host_t;

/* ---- joining (find.c, join.c), in the steps of a backend ---------------------------------- */

/* Take the place of `rank` in the segment where the ranks of `at` meet; rank 0 makes it. comm->host
 * is there from here on, also on failure, unless there is no memory or no segment. */
weft_status_t weft__host_enter(weft_comm_h comm, weft_rendezvous_t *at, int rank, int size,
                               weft_layout_t layout);
/* Let the others see it, and what the backend has written in its part. */
void weft__host_introduce(weft_host_t *host);

/* Wait until all are introduced, and look at them. Then, when the backend has done the same: */
weft_status_t weft__host_meet(weft_host_t *host);
void weft__host_ready(weft_host_t *host);

/* Wait until all are ready. */
weft_status_t weft__host_settle(weft_host_t *host, const weft_rendezvous_t *at);

/* This thread's error keeps the rank from joining: tell all. Returns `status`, or the error that
 * came first. */
weft_status_t weft__host_fail_joining(weft_host_t *host, weft_status_t status);

/* This rank leaves; frees `host`, and ends comm->host. NULL is allowed. */
void weft__host_leave(weft_host_t *host);

/* The segment of a communicator. Owned by the caller. (find.c) */
weft_status_t weft__host_find(weft_comm_h comm, const weft_rendezvous_t *at, int rank, int size,
                              weft_layout_t layout, weft_segment_t **segment_p);
/* All have joined: whoever comes now is told so, instead of looking for a segment without a
 * name. */
void weft__host_close_door(const weft_rendezvous_t *at);

/* Watch the process of a rank before that has joined. */
void weft__host_watch(weft_peer_t *peer, int pid);

/* What backends of one host have in their tables. */
weft_status_t weft__host_split(weft_host_t *host, int color, int key, weft_comm_h child);
weft_status_t weft__host_error(const weft_host_t *host, const char **text_p);
void weft__host_abort(weft_host_t *host);

static inline bool weft__host_is_broken(const weft_host_t *host)
{
    return atomic_load_explicit(&host->segment->head->broken, memory_order_acquire) != 0;
}

/* ---- calls (announce.c) ------------------------------------------------------------------- */

/* The slot in which `peer` announces call `number`, and that of the current call. */
static inline weft_slot_t *weft__host_slot_of(const weft_host_t *host, int peer, uint64_t number)
{
    return &host->peers[peer].block->slot[number % WEFT_SLOTS];
}

static inline weft_slot_t *weft__host_slot(const weft_host_t *host, int peer)
{
    return weft__host_slot_of(host, peer, host->seq);
}

/* The payload of the current call in that slot. */
static inline char *weft__slot_payload(weft_slot_t *slot)
{
    return slot->bytes <= WEFT_INLINE_BYTES ? slot->u.data : slot->payload;
}

/* A collective begins. */
static inline void weft__host_begin(weft_host_t *host, const weft_call_t *call)
{
    host->current = call;
    atomic_store_explicit(&host->me->call, ++host->calls, memory_order_relaxed);
}

/* Announce `call`, with the first `bytes` of its source as payload or, if 0, with what the caller
 * has written into the slot; wait for all ranks to announce the same and check that they did. The
 * caller then reads their slots, and ends the call with host->seq++. */
weft_status_t weft__host_announce(weft_host_t *host, const weft_call_t *call, weft_algo_t algo,
                                  size_t bytes);

/* The rare ways of announce.h. Too far ahead of the others: wait for them. Compare every call from
 * the first that was not compared to `through`, which rank `p` has announced. */
weft_status_t weft__verify_far(weft_host_t *host);
weft_status_t weft__verify_each(weft_host_t *host, int p, uint64_t through);

/* `bytes` of every rank to all, at most WEFT_SLOT_BYTES. `first`: a call of its own, else part of
 * the last. */
weft_status_t weft__host_gather(weft_host_t *host, bool first, const void *mine, void *all,
                                size_t bytes);

/* Before and after touching others' buffers. If it is false, they may be gone: do not touch
 * them. */
static inline bool weft__host_touch(weft_host_t *host)
{
    /* Partner: weft__host_drain, whose membarrier takes the place of a fence here. */
    atomic_store_explicit(&host->me->inside, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    return !weft__host_is_broken(host);
}

static inline void weft__host_untouch(weft_host_t *host)
{
    atomic_store_explicit(&host->me->inside, 0, memory_order_release);
}

/* ---- errors (fault.c) ------------------------------------------------------------------- */

/* Break the communicator, unless somebody else did; in either case make the first error this
 * thread's and return its status. */
weft_status_t weft__host_break(weft_host_t *host, weft_status_t status, int culprit,
                               const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The same with what the watch has to say. */
weft_status_t weft__host_break_with(weft_host_t *host, const weft_fault_t *fault);

/* The error that broke it, as this thread's error. */
weft_status_t weft__host_broken(weft_host_t *host);

/* A call on a broken communicator: the first error if this rank does not know it yet, from then on
 * WEFT_ERR_BROKEN and that error's sentence. */
weft_status_t weft__host_refuse(weft_host_t *host);

/* Ranks disagree about announced call `number`: quote both. */
weft_status_t weft__host_mismatch(weft_host_t *host, int peer, uint64_t number);

/* `peer` sends, in the current call, something else than this rank expects. */
weft_status_t weft__host_differs(weft_host_t *host, int peer, uint64_t sig, uint64_t count,
                                 uint64_t own_count);

/* A call has failed and its caller may free the buffers: wait until no other rank touches them. */
void weft__host_drain(weft_host_t *host);

/* For reports to the watch: joined, left or ended. Costs a system call. */
weft_state_t weft__host_state(const weft_host_t *host, int rank);

/* What this rank waits for: a word that `peer` owns, to be at least `target`. */
typedef struct weft_host_wait {
    int peer;
    const _Atomic uint64_t *word;
    uint64_t target;
} weft_host_wait_t;

/* It has waited for so long: is somebody dead, has left, or is late? Breaks the communicator if so;
 * WEFT_OK if not. */
weft_status_t weft__host_look(weft_host_t *host, const weft_host_wait_t *wait, uint64_t waited_ns);

/* Say who is late as a warning, from one rank of those that wait, long before that
 * (WEFT_WARN_AFTER). */
void weft__host_warn(weft_host_t *host, const weft_host_wait_t *wait, uint64_t waited_ns);

#endif
