/* The shm backend: ranks of one host on virtual GPUs, whose memory all of them map. */
#ifndef WEFT_COMM_SHM_SHM_H
#define WEFT_COMM_SHM_SHM_H

#include "comm/coll/window.h"
#include "comm/host/host.h"
#include "comm/shm/channel.h"

/* What this backend has behind the block of each rank in the segment. */
typedef struct weft_shm_block {
    /* Written before the rank is JOINED. */
    uint64_t heap_base; /* of the heap below, in the owner's process */
    weft_heap_handle_t heap;
    uint64_t chunk; /* its WEFT_CHUNK: all must have the same */
    _Alignas(128) char tmp[WEFT_TMP_BYTES];
} weft_shm_block_t;

/* In the slots of calls: the buffers can be reached by ranks of other processes. */
#define WEFT_SLOT_SRC_SHARED 1u
#define WEFT_SLOT_DST_SHARED 2u
#define WEFT_SLOT_ALL_SHARED (WEFT_SLOT_SRC_SHARED | WEFT_SLOT_DST_SHARED)

/* The memory of another rank. */
typedef struct weft_shm_peer {
    weft_shm_block_t *block;
    intptr_t delta; /* add to an address of that rank's heap to reach it here; 0 in one process */
    bool heap_open; /* its heap is mapped: to be closed */
} weft_shm_peer_t;

/* How far this rank is with another one's two channels. */
typedef struct weft_channel_state {
    uint64_t sent, acked;     /* fragments posted to it; those we know it took */
    uint64_t got;             /* fragments taken from it */
    uint64_t met_out, met_in; /* large messages to and from it */
} weft_channel_state_t;

typedef struct weft_shm {
    weft_host_t *host;
    weft_shm_block_t *me;
    weft_shm_peer_t *peers;   /* [size], this rank included */
    weft_channel_t *channels; /* [size x size] */
    int rank, size, device;
    weft_comm_h comm;
    const weft_kernels_t *kernels;
    size_t chunk;    /* the setting */
    uint64_t window; /* windows opened */
    char
        *bounce; /* staging: chunks of src and dst, from this rank's heap; made when first needed */
    size_t bounce_bytes;
    uint32_t shared;              /* flags that all ranks set for the call that was announced */
    char **pointers;              /* [3 x size]: src, dst, tmp of the open window */
    weft_channel_state_t *states; /* [size]: where sends to and receives from each rank stand */
} weft_shm_t;

/* Announce `call` with the addresses of its buffers, and learn those of the others.
 * (collective.c) */
weft_status_t weft__shm_announce(weft_shm_t *shm, const weft_call_t *call, weft_algo_t algo);

weft_status_t weft__shm_collective(void *ctx, const weft_call_t *call);
weft_status_t weft__shm_exchange(void *ctx, const weft_call_t *calls, int n);

/* One call by the one-shot path; payload <= WEFT_SLOT_BYTES. (oneshot.c) */
weft_status_t weft__shm_oneshot(weft_shm_t *shm, const weft_call_t *call);
weft_status_t weft__shm_small(void *ctx, const weft_call_t *call); /* with all that is around it */

/* A call in chunks: through bounce buffers (staged), or as many one-shots. (staging.c) */
weft_status_t weft__shm_chunks(weft_shm_t *shm, const weft_call_t *call, weft_choice_t choice);

/* Where a rank itself finds its own part of a call's buffers, if that is not where others would.
 * NULL: it is. */
typedef struct weft_shm_own {
    char *src, *dst;
} weft_shm_own_t;

/* A chunk of a call, by the same algorithm as the whole. (collective.c) */
weft_status_t weft__shm_run_chunk(weft_shm_t *shm, const weft_call_t *chunk, weft_algo_t algo,
                                  const weft_shm_own_t *own);

/* Blocks of different sizes. (staging.c) */
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

static inline weft_channel_t *weft__shm_channel(const weft_shm_t *shm, int from, int to)
{
    return &shm->channels[(size_t)from * (size_t)shm->size + (size_t)to];
}

#endif
