/* The nccl backend: a communicator whose calls all go to NCCL, for ranks on several hosts or where
 * it is asked for.
 *
 * NCCL says little when something goes wrong: a peer that died is noticed by its network, if at
 * all, and a late one never. So every rank has a watcher, a thread that looks
 *
 *     at NCCL                 for errors it has found,
 *     at this rank's calls    for one that has been under way for too long,
 *     at the store            for what others found, and for ranks that are gone: the store itself
 *                             says so when a rank's connection ends.
 *
 * The first error offered to the store is the communicator's, on all ranks. Whoever learns of it
 * aborts the engine, which ends what waits on the GPU and inside NCCL. */
#ifndef WEFT_COMM_NCCL_MEMBER_H
#define WEFT_COMM_NCCL_MEMBER_H

#include "comm/backends.h"
#include "comm/nccl/nccl.h"
#include "comm/watch.h"
#include "device/cuda.h"

#define WEFT_NCCL_INFLIGHT 32

/* One or more launches on a stream, between two CUDA events. */
typedef struct weft_nccl_inflight {
    void *start, *end; /* events; made when first used */
    void *stream;
    bool used;
    bool open;            /* `end` is yet to be recorded: at the end of the thread's group */
    uint64_t first, last; /* calls, as counted by member->calls */
    uint64_t since;       /* when it was first seen to run; 0: not yet */
    weft_call_t call;     /* the first one, to describe it */
} weft_nccl_inflight_t;

/* Launches on the stream of the last in-flight record, since it took off, that no event marks. Two
 * events cost as much as a small collective, so an in-flight record takes off once in a while, and
 * the watcher or whoever needs it marks what trails behind. */
typedef struct weft_nccl_unmarked {
    weft_cuda_past_t past; /* .stream NULL: there is none */
    uint64_t first, last;
    weft_call_t call; /* the first one */
} weft_nccl_unmarked_t;

/* An error, as it lies in the store. */
typedef struct weft_nccl_verdict {
    int32_t status;
    char text[WEFT_ERROR_TEXT];
} weft_nccl_verdict_t;

/* What the store keeps of a rank that died: the last will of its connection. */
typedef struct weft_nccl_death {
    int32_t rank, pid;
    char host[64];
} weft_nccl_death_t;

typedef struct weft_nccl_member {
    weft_comm_h comm;
    int rank, size, timeout_ms;
    weft_nccl_binding_t binding;
    weft_nccl_t *engine;
    weft_rendezvous_t road;
    unsigned splits; /* made so far: names the next ones */
    void *stream;    /* for calls on the NULL stream */

    /* The watcher's alone while it runs; NULL if there is none (any more). */
    weft_store_conn_t *store;
    int server; /* the rank whose process serves the store; -1: another process, or not known */
    uint64_t lost_ns;   /* when the store was lost; 0: it was not */
    uint64_t posted;    /* calls, when this rank last said where it is */
    uint64_t posted_ns; /* when that was */
    int64_t left;       /* ranks that had left when last looked, and in which call that was */
    uint64_t left_call;

    pthread_t watcher;
    bool watching;
    pthread_mutex_t lock;   /* of all below but the atomics */
    pthread_cond_t wake;    /* the watcher: there is something to do at once */
    pthread_cond_t settled; /* others: `aborted` became true */
    bool stop;
    weft_nccl_verdict_t
        claim; /* an error of this rank's, for the watcher to offer; status 0: none */
    /* Released by the watcher once `verdict` is written, acquired by whoever makes a call. */
    _Atomic bool broken;
    bool aborted; /* and nothing runs any more */
    weft_nccl_verdict_t verdict;
    _Atomic bool told; /* a call of this rank has returned it; relaxed, as in shm */

    uint64_t calls; /* collectives made, and the last one */
    weft_call_t last;
    uint64_t since; /* when the call in progress in a thread of this rank began; 0: none */
    weft_call_t current;
    weft_nccl_inflight_t inflight[WEFT_NCCL_INFLIGHT];
    int newest;
    const weft_nccl_inflight_t
        *tail;            /* the last one that took off, NULL if it is known to be done */
    uint64_t took_off;    /* when that was */
    uint64_t unmarked_ns; /* for how long others may trail behind it */
    weft_nccl_unmarked_t unmarked;
    struct weft_nccl_member *next_pending; /* in the thread's group */
    bool pending;
} weft_nccl_member_t;

/* ---- errors (watch.c) ------------------------------------------------------------------- */

weft_status_t weft__nccl_watch_start(weft_nccl_member_t *member);
void weft__nccl_watch_stop(weft_nccl_member_t *member);

/* This thread's error breaks the communicator, unless another one did before (WEFT_OK: one did).
 * Returns when the engine is aborted, with the error that counts as this thread's. */
weft_status_t weft__nccl_claim(weft_nccl_member_t *member, weft_status_t status);

/* A call on a broken communicator: the error if this rank does not know it yet, from then on
 * WEFT_ERR_BROKEN. */
weft_status_t weft__nccl_refuse(weft_nccl_member_t *member);

/* Offer an error, and learn which one counts. Without a store it is the one offered. */
void weft__nccl_offer(weft_nccl_member_t *member, const weft_nccl_verdict_t *mine,
                      weft_nccl_verdict_t *verdict_p);
/* Has somebody offered one? Or has a rank died, while this one was `waiting`, its rank aside? Then
 * that is offered. */
bool weft__nccl_look(weft_nccl_member_t *member, const weft_waiting_t *waiting,
                     weft_nccl_verdict_t *verdict_p);

/* Tell the others, by way of the store, that this rank leaves. */
void weft__nccl_say_left(weft_nccl_member_t *member);

/* "<key of the communicator>/<name>" */
void weft__nccl_key(const weft_nccl_member_t *member, const char *name, char *key, size_t room);

/* ---- meeting (meet.c) ------------------------------------------------------------------- */

/* The member of `rank`, as ctx of `comm`; NULL if there is no memory. */
weft_nccl_member_t *weft__nccl_member_create(weft_comm_h comm, const weft_rendezvous_t *road,
                                             const weft_nccl_binding_t *binding, int rank,
                                             int size);

/* The first step of joining, after that; weft__nccl_comm_meet is the second. Their slots in the
 * table. */
weft_status_t weft__nccl_member_enter(weft_nccl_member_t *member);
weft_status_t weft__nccl_comm_enter(weft_comm_h comm, weft_rendezvous_t *at, int rank, int size);
weft_status_t weft__nccl_comm_meet(weft_comm_h comm);

weft_status_t weft__nccl_comm_split(void *ctx, int color, int key, weft_comm_h child);

/* ---- calls on their way (inflight.c) ------------------------------------------------------ */

/* Before and after a launch on `stream`: keeps the order of calls, and marks where this one is,
 * unless it may trail behind another on `handle`, its stream (NULL: it may not). *record_p may be
 * NULL. Not while a graph is captured. 0 or a CUDA error. */
int weft__nccl_depart(weft_nccl_member_t *member, const weft_call_t *call, void *stream,
                      weft_stream_h handle, weft_nccl_inflight_t **record_p);
int weft__nccl_arrive(weft_nccl_member_t *member, weft_nccl_inflight_t *record);

/* All that was launched so far is known to be done. */
void weft__nccl_landed(weft_nccl_member_t *member);

/* The oldest call that is under way: what, its numbers, since when. False if there is none. Those
 * that wait for their turn on the GPU do not count, but for what was queued between an in-flight
 * record and its trail. */
typedef struct weft_nccl_sight {
    weft_call_t call;
    uint64_t first, last, since;
} weft_nccl_sight_t;
bool weft__nccl_oldest(weft_nccl_member_t *member, weft_nccl_sight_t *sight_p);

/* Is everything done that was put on streams? */
bool weft__nccl_idle(weft_nccl_member_t *member);

void weft__nccl_free_inflight(weft_nccl_member_t *member);

/* ---- host memory (stage.c) -------------------------------------------------------------- */

typedef struct weft_nccl_copy {
    void *to;
    const void *from;
    size_t bytes;
} weft_nccl_copy_t;

/* Calls whose buffers GPUs reach, in place of some whose buffers they do not. */
typedef struct weft_nccl_staging {
    weft_call_t *calls;
    void **memory; /* ours */
    int used;
    weft_nccl_copy_t *back; /* results, once the calls are done */
    int backs;
    void *stream;
    weft_nccl_member_t *member;
    struct weft_nccl_staging *next; /* in the thread's group */
} weft_nccl_staging_t;

/* *staging_p is NULL if there is nothing to do. Else launch its calls on `stream`, bring back the
 * results, wait for the stream, free it. */
weft_status_t weft__nccl_staging_in(weft_nccl_member_t *member, const weft_call_t *calls, int n,
                                    void *stream, weft_nccl_staging_t **staging_p);
weft_status_t weft__nccl_staging_out(const weft_nccl_staging_t *staging);
void weft__nccl_staging_free(weft_nccl_staging_t *staging);

#endif
