/* The shm backend: ranks of one host, as processes or threads, over shared memory. */
#ifndef WEFT_COMM_SHM_SHM_H
#define WEFT_COMM_SHM_SHM_H

#include "comm/comm.h"
#include "comm/shm/segment.h"

/* Another rank, as seen from here. */
typedef struct weft_peer {
    weft_rank_block_t *block;
    intptr_t delta; /* add to an address of that rank's heap to reach it here; 0 in one process */
    bool near;      /* same process: all of its memory can be reached */
    bool heap_open; /* its heap is mapped: to be closed */
    bool watched;   /* pidfd is to be closed */
    int pid, pidfd; /* its process, and what weft__proc_open gave for it; -1 if not watched */
} weft_peer_t;

/* How far this rank is with another one's two channels. */
typedef struct weft_lane {
    uint64_t sent, acked;     /* fragments posted to it; those we know it took */
    uint64_t got;             /* fragments taken from it */
    uint64_t met_out, met_in; /* large messages to and from it */
} weft_lane_t;

typedef struct weft_shm {
    weft_segment_t *segment;
    weft_rank_block_t *me;
    weft_peer_t *peers; /* [size], this rank included */
    int rank, size, device;
    weft_comm_h comm;
    bool crowded;     /* there are more ranks than cores */
    bool one_process; /* every rank is a thread of this process */
    int spin;         /* polls before yielding */
    bool naps;        /* no membarrier here: sleep in short naps instead of waiting for the bell */

    const weft_kernels_t *kernels;
    size_t chunk; /* the setting */

    uint64_t seq;                  /* calls announced */
    uint64_t verified;             /* calls below this number were compared with all ranks */
    uint64_t last_sig, last_count; /* of the last call announced */
    int repeats;                   /* how often in a row it was made before */
    bool together;                 /* in the current call everybody waits for everybody */
    uint64_t window;               /* windows opened */
    uint64_t calls;                /* collectives made */
    const struct weft_shm *parent; /* while it is being split from one */
    const weft_call_t *current;    /* for error texts: the one in progress, as the caller made it */
    _Atomic bool told; /* a call of this rank has returned the error that broke the communicator;
                        * relaxed: an abort from another thread writes it as well */

    char
        *bounce; /* staging: chunks of src and dst, from this rank's heap; made when first needed */
    size_t bounce_bytes;
    uint32_t shared;    /* flags that all ranks set for the call that was announced */
    char **pointers;    /* [3 x size]: src, dst, tmp of the open window */
    weft_lane_t *lanes; /* [size]: where sends to and receives from each rank stand */
} weft_shm_t;

/* Joining, in three steps so that one thread can bring up several ranks: take the place of `rank`
 * in the segment (owned from here on, also on failure) and become comm->ctx; map the others'
 * memory once all are there; wait until all have done so. A failure breaks the communicator; the
 * caller then closes it. */
weft_status_t weft__shm_enter(weft_segment_t *segment, int rank, weft_comm_h comm);
weft_status_t weft__shm_meet(weft_comm_h comm);
weft_status_t weft__shm_settle(weft_comm_h comm);

/* All three. */
weft_status_t weft__shm_join(weft_segment_t *segment, int rank, weft_comm_h comm);

/* ---- calls ------------------------------------------------------------------------------ */

/* Announce `call`, with the first `bytes` of its source as payload or, if 0, with the addresses of
 * its buffers; wait for all ranks to announce the same and check that they did. */
weft_status_t weft__shm_announce(weft_shm_t *shm, const weft_call_t *call, weft_algo_t algo,
                                 size_t bytes);

/* The slot in which `peer` announces call `number`, and that of the current call. */
static inline weft_slot_t *weft__shm_slot_of(const weft_shm_t *shm, int peer, uint64_t number)
{
    return &shm->peers[peer].block->slot[number % WEFT_SLOTS];
}

static inline weft_slot_t *weft__shm_slot(const weft_shm_t *shm, int peer)
{
    return weft__shm_slot_of(shm, peer, shm->seq);
}

/* As weft__shm_announce by one-shot, but wait only for `peer` (-1: for nobody). Comparing with the
 * others is left to a later call. Only where nothing is needed from them. */
weft_status_t weft__shm_announce_to(weft_shm_t *shm, const weft_call_t *call, size_t bytes,
                                    int peer);

/* The payload of the current call in that slot. */
static inline char *weft__slot_payload(weft_slot_t *slot)
{
    return slot->bytes <= WEFT_INLINE_BYTES ? slot->u.data : slot->payload;
}

weft_status_t weft__shm_collective(void *ctx, const weft_call_t *call);
weft_status_t weft__shm_exchange(void *ctx, const weft_call_t *calls, int n);
weft_status_t weft__shm_split(void *ctx, int color, int key, weft_comm_h child);
weft_status_t weft__shm_error(void *ctx, const char **text_p);
void weft__shm_abort(void *ctx);
void weft__shm_close(void *ctx);

/* One call by the one-shot path; payload <= WEFT_SLOT_BYTES. (oneshot.c) */
weft_status_t weft__shm_oneshot(weft_shm_t *shm, const weft_call_t *call);

/* A call in pieces: through bounce buffers (staged), or as many one-shots. (stage.c) */
weft_status_t weft__shm_pieces(weft_shm_t *shm, const weft_call_t *call, weft_algo_t algo);
/* A piece of a call, as made by weft__shm_pieces. (collective.c) */
weft_status_t weft__shm_run_piece(weft_shm_t *shm, const weft_call_t *piece, weft_algo_t algo);

/* Blocks of different sizes. (stage.c) */
weft_status_t weft__shm_alltoallv(weft_shm_t *shm, const weft_call_t *call);

/* One call on everybody's own buffers, which have been announced; `algorithm` may be NULL: just
 * synchronize. Ends the call. (window.c) */
weft_status_t weft__shm_in_window(weft_shm_t *shm, const weft_call_t *call, weft_store_t store,
                                  weft_algo_fn algorithm);
weft_status_t weft__shm_window(weft_shm_t *shm, const weft_call_t *call, weft_choice_t choice);

/* Can every rank reach [ptr, ptr + bytes) of this one? */
bool weft__shm_shared(const weft_shm_t *shm, const void *ptr, size_t bytes);

/* An address that rank `peer` announced, as it is valid here. */
static inline char *weft__shm_reach(const weft_shm_t *shm, int peer, uint64_t address)
{
    return address ? (char *)(uintptr_t)address + shm->peers[peer].delta : NULL;
}

/* Before and after touching others' buffers. If it is false, they may be gone: do not touch them. */
static inline bool weft__shm_touch(weft_shm_t *shm)
{
    /* Partner: weft__shm_drain, whose membarrier takes the place of a fence here. */
    atomic_store_explicit(&shm->me->inside, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    return atomic_load_explicit(&shm->segment->head->broken, memory_order_acquire) == 0;
}

static inline void weft__shm_untouch(weft_shm_t *shm)
{
    atomic_store_explicit(&shm->me->inside, 0, memory_order_release);
}

/* ---- signatures ------------------------------------------------------------------------- */

void weft__sig_describe(uint64_t sig, uint64_t count, char *text, size_t room);
/* What to say of two different calls besides: groups may read alike. */
const char *weft__sig_besides(const char *ours, const char *theirs);

/* ---- errors (fault.c) ------------------------------------------------------------------- */

/* Break the communicator, unless somebody else did; in either case make the first error this
 * thread's and return its status. */
weft_status_t weft__shm_break(weft_shm_t *shm, weft_status_t status, int culprit,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The error that broke it, as this thread's error. */
weft_status_t weft__shm_broken(weft_shm_t *shm);

/* A call on a broken communicator: the first error if this rank does not know it yet, from then on
 * WEFT_ERR_BROKEN and that error's sentence. */
weft_status_t weft__shm_refuse(weft_shm_t *shm);

/* Ranks disagree about announced call `number`: quote both. */
weft_status_t weft__shm_mismatch(weft_shm_t *shm, int peer, uint64_t number);

/* A call has failed and its caller may free the buffers: wait until no other rank touches them. */
void weft__shm_drain(weft_shm_t *shm);

/* `peer` keeps us waiting: has it died or left? WEFT_OK if not. */
weft_status_t weft__shm_check_peer(weft_shm_t *shm, int peer, const _Atomic uint64_t *word,
                                   uint64_t target);

/* The timeout passed: name who is missing. */
weft_status_t weft__shm_late(weft_shm_t *shm, int peer);

/* The same as a warning, from one rank of those that wait, long before that (WEFT_WARN_AFTER). */
void weft__shm_warn_late(weft_shm_t *shm, int peer, double waited);

#endif
