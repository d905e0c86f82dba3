/* What a backend offers, and which of them carries out the calls of a communicator.
 *
 * A backend is a folder of comm/, a const table, and a line in backends.c:
 *
 *     shm     ranks of one host, on virtual GPUs
 *     cuda    ranks of one host, on GPUs that reach each other's memory
 *     nccl    ranks on GPUs of any hosts
 *
 * The first that the ranks can use is theirs. */
#ifndef WEFT_COMM_BACKENDS_H
#define WEFT_COMM_BACKENDS_H

#include "boot/store.h"
#include "comm/comm.h"
#include "comm/reach.h"

/* ---- who wants to communicate ------------------------------------------------------------ */

/* Where a rank is. */
typedef struct weft_member {
    uint64_t host;
    uint8_t gpu[16]; /* as CUDA names it; all 0: a virtual GPU */
} weft_member_t;

/* This process, on `device`. */
weft_status_t weft__member_here(int device, weft_member_t *member_p);

/* The ranks of a communicator to be, as far as they are known. */
typedef struct weft_members {
    int size;
    bool apart;                /* they are known to be on several hosts */
    const weft_member_t *list; /* [size]; NULL: they have not said where they are */
} weft_members_t;

/* Where they find each other. */
typedef struct weft_rendezvous {
    char key[64]; /* that no other communicator has */
    bool local;   /* one thread brings up all ranks, rank 0 first: no store is needed */
    bool of_job;  /* the job's store; else the one below */
    char host[64];
    int port;
    uint8_t secret[WEFT_SECRET_BYTES];
    weft_store_conn_t *store; /* open while a rank enters; rank 0 has it until all have settled */
    struct weft_segment **shared; /* local: what rank 0 has made for all, or who split them off */
    bool oversubscribed;          /* they are split off those that have more ranks than cores */
} weft_rendezvous_t;

/* ---- the table --------------------------------------------------------------------------- */

typedef enum weft_probe { WEFT_PROBE_NO, WEFT_PROBE_DEPENDS, WEFT_PROBE_YES } weft_probe_t;

#define WEFT_BACKEND_ABI 2
typedef struct weft_backend_ops {
    uint32_t abi;       /* required: WEFT_BACKEND_ABI at compile time */
    const char *name;   /* required: in logs */
    const char *engine; /* required: the value of WEFT_ENGINE that asks for it, on GPUs */
    bool by_store;      /* its ranks meet by way of a store, also those of one process */

    /* Optional: the version of what it needs beside Weft, or why that is not there. */
    void (*about)(char *text, size_t room);

    /* Required. Can these ranks use it? DEPENDS: on where they are, which they have not said. */
    weft_probe_t (*probe)(const weft_members_t *members);

    /* Joining, in steps so that one thread can bring up several ranks: all make one before any
     * makes the next. A failure breaks the communicator for all; the caller then closes it, if it
     * has a ctx. enter, required: take the place of `rank`; comm has ctx, rank and size from here
     * on. meet, required: all have entered; wait for that, and connect to them. settle, optional:
     * all have met; wait for that. */
    weft_status_t (*enter)(weft_comm_h comm, weft_rendezvous_t *at, int rank, int size);
    weft_status_t (*meet)(weft_comm_h comm);
    weft_status_t (*settle)(weft_comm_h comm, weft_rendezvous_t *at);

    /* Required. Make the communicator of those that gave `color` (>= 0); nothing for a negative
     * one. Collective. Fills rank, size, backend and ctx of `child`. */
    weft_status_t (*split)(void *ctx, int color, int key, weft_comm_h child);

    /* Carry out one collective, or `n` sends and receives at once in any order that makes progress;
     * block until they are done. Called in order, by one thread at a time. On error the
     * communicator must be broken for all its ranks. Required without `launch`. */
    weft_status_t (*collective)(void *ctx, const weft_call_t *call);
    weft_status_t (*exchange)(void *ctx, const weft_call_t *calls, int n);

    /* The same for one collective with blocks of fewer bytes than its tuner.small. Required with
     * `collective`. */
    weft_status_t (*small)(void *ctx, const weft_call_t *call);

    /* For backends that queue work on streams themselves, in place of those two. Queue `n` calls on
     * `stream` and return, or with NULL carry them out: one collective, several all-reduces of one
     * type and operation, or sends and receives that may run in any order. Called as they are. */
    weft_status_t (*launch)(void *ctx, const weft_call_t *calls, int n, weft_stream_h stream);

    /* Optional, beside `launch`: how many of the first of `n` all-reduces that may be fused run as
     * one; the same on all ranks. Without it, all. */
    int (*fuses)(void *ctx, const weft_call_t *calls, int n);

    /* Optional. The calling thread launches for several communicators in between: what it launches
     * may start at the end only. Outermost groups alone; a failure of start runs nothing. */
    weft_status_t (*group_start)(void);
    weft_status_t (*group_end)(void);

    /* Optional: how a call would be carried out, for --explain; else the tuner says. */
    weft_choice_t (*choose)(void *ctx, weft_coll_t coll, size_t bytes);

    /* Optional: time `coll` by every way there is and keep from which sizes on which is faster. */
    weft_status_t (*tune)(void *ctx, weft_coll_t coll, weft_tune_time_fn time, void *arg,
                          weft_tuned_t *tuned_p);

    /* Optional: see comm/reach.h. The first two together: a number for memory that all ranks can
     * reach once it returns, and where such memory of `rank` is here. */
    weft_status_t (*publish)(void *ctx, const void *ptr, size_t bytes, uint64_t *ref_p);
    void *(*locate)(void *ctx, int rank, uint64_t ref);
    void (*gpu)(void *ctx, weft_reach_gpu_t *gpu_p);
    weft_status_t (*gpu_failed)(void *ctx, int error, const char *what);
    void (*observe)(void *ctx, weft_reach_observer_t *observer, bool comes);

    /* Required, any thread: WEFT_OK or what broke the communicator, and its sentence. */
    weft_status_t (*error)(void *ctx, const char **text_p);

    /* Required: the same as this thread's error. The caller passes it on, so that from now on calls
     * return WEFT_ERR_BROKEN. */
    weft_status_t (*told)(void *ctx);

    /* Required, any thread: break the communicator for all ranks, unless it is broken already. */
    void (*fail)(void *ctx, weft_status_t status, int culprit, const char *text);

    /* Required, any thread: the same because the caller wants it. Nobody has been told. */
    void (*abort)(void *ctx);

    /* Required. This rank leaves; frees ctx; never fails. */
    void (*close)(void *ctx);
} weft_backend_ops_t;

extern const weft_backend_ops_t weft__backend_shm, weft__backend_cuda, weft__backend_nccl;

/* The backend for these ranks. *backend_p is NULL if that depends on where they are, and they are
 * not listed. WEFT_ERR_UNSUPPORTED if there is none, WEFT_ERR_INVALID if WEFT_ENGINE is nothing
 * that is known. */
weft_status_t weft__backend_choose(const weft_members_t *members,
                                   const weft_backend_ops_t **backend_p);

/* The one with that name; NULL: there is none. */
const weft_backend_ops_t *weft__backend_named(const char *name);

#endif
