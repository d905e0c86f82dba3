/* Inside of an engine, for its own files. */
#ifndef WEFT_COMM_NCCL_ENGINE_H
#define WEFT_COMM_NCCL_ENGINE_H

#include <pthread.h>

#include "comm/comm.h"
#include "comm/nccl/nccl.h"

struct weft_nccl_join;

struct weft_nccl {
    const weft_nccl_api_t *api;
    weft_nccl_binding_t binding;
    bool adds_float8; /* on this rank's GPU; older versions do not on any */
    int rank, size;
    struct weft_nccl_join *join; /* under way, or NULL */

    pthread_mutex_t lock;
    pthread_cond_t outside; /* `inside` became false */
    int refs;               /* the owner, and threads that split it */
    bool inside;            /* a thread is inside NCCL with it */
    bool aborted;           /* nobody enters NCCL with it any more */
    weft_nccl_comm_h comm;  /* NULL before joining and after aborting */
    weft_status_t status;   /* what broke it, and the sentence: written once */
    char text[WEFT_ERROR_TEXT];

    /* Of the launching thread alone. */
    bool grouped; /* launched since the thread's group was opened */
    struct weft_nccl *next_grouped;
    void *word;                     /* device memory: what barriers reduce */
    char *scratch;                  /* device memory, for calls in place */
    size_t scratch_bytes;           /* that there are */
    size_t scratch_used;            /* by calls of the open group */
    struct weft_nccl_block *blocks; /* all that was scratch once: kept, it may be in use */
    struct weft_nccl_known *known;  /* memory that NCCL was told of */
};

/* Enter NCCL with the engine's communicator, and leave. Refused if the engine is broken. */
weft_status_t weft__nccl_begin(weft_nccl_t *nccl);
void weft__nccl_end(weft_nccl_t *nccl);

/* Break the engine for a result of NCCL's, unless it is broken; returns the status and makes the
 * sentence this thread's. `what` is NCCL's function. */
weft_status_t weft__nccl_break(weft_nccl_t *nccl, weft_nccl_result_t result, const char *what);

/* The same for an error that this thread has. */
void weft__nccl_keep_error(weft_nccl_t *nccl, weft_status_t status);

/* Wait while NCCL says that a call is in progress; only between begin and end. */
weft_nccl_result_t weft__nccl_settle(weft_nccl_t *nccl, weft_nccl_result_t result);

/* Free what launches made; nothing on the GPU uses it any more. */
void weft__nccl_free_scratch(weft_nccl_t *nccl);

/* ---- registered memory (register.c) ------------------------------------------------------- */

/* Tell NCCL of a call's buffers if the program has registered them (weft_register,
 * WEFT_NCCL_REGISTER=1), once for each piece; between begin and end. What it thinks of that is its
 * own affair: they work either way. */
void weft__nccl_introduce(weft_nccl_t *nccl, const weft_call_t *call);
/* NCCL forgets with its communicator; this is what remembers what it was told. */
void weft__nccl_forget(weft_nccl_t *nccl);

/* ---- joining (join.c) ------------------------------------------------------------------- */

/* A call of NCCL's that waits for other ranks, in a thread of its own. Whoever comes last, the
 * thread or the one who started it, frees it, and with it what it made in vain. */
typedef struct weft_nccl_join weft_nccl_join_t;

typedef struct weft_nccl_request {
    const weft_nccl_api_t *api;
    weft_nccl_binding_t binding;
    weft_nccl_id_t id; /* ncclCommInitRank */
    int rank, size;
    weft_nccl_t *parent; /* ncclCommSplit, if not NULL; inside NCCL until the thread ends */
    int color, key;
} weft_nccl_request_t;

typedef struct weft_nccl_joined {
    weft_nccl_result_t result;
    weft_nccl_comm_h comm; /* NULL if it failed, or for no color */
    void *word;
    weft_status_t status; /* of what surrounds NCCL's call */
    char text[512];       /* why it failed */
} weft_nccl_joined_t;

weft_status_t weft__nccl_join_start(const weft_nccl_request_t *request, weft_nccl_join_t **join_p);
/* False after timeout_ms; else *joined_p is the caller's and the join is gone. */
bool weft__nccl_join_wait(weft_nccl_join_t *join, int timeout_ms, weft_nccl_joined_t *joined_p);
void weft__nccl_join_leave(weft_nccl_join_t *join);

/* The owner, or a thread that split it, is done with the engine. */
void weft__nccl_release(weft_nccl_t *nccl);

#endif
