/* Which way a communicator goes: whether shared memory brings its ranks together (and then, on GPUs, our
 * own kernels carry the data), or NCCL does. */
#ifndef WEFT_COMM_ROUTE_H
#define WEFT_COMM_ROUTE_H

#include <stdbool.h>

#include "boot/store.h"
#include "topo/gpu.h"

typedef enum weft_route {
    WEFT_ROUTE_HOST, /* one host: shared memory */
    WEFT_ROUTE_NCCL, /* GPUs of several hosts or out of each other's reach, or the setting asks for it */
    WEFT_ROUTE_VOTE /* GPUs: it depends on where the ranks are */
} weft_route_t;

/* Which GPU a rank is on, as CUDA names it; all 0 on virtual GPUs. */
typedef struct weft_route_gpu {
    uint8_t uuid[16];
} weft_route_gpu_t;

weft_route_gpu_t weft__route_gpu(int device);

/* What this process's settings say; the same on all ranks, or they will not meet. WEFT_ERR_INVALID if
 * WEFT_ENGINE is nothing that is known. */
weft_status_t weft__route(weft_route_t *route_p);

/* Where that is a vote: every rank casts its own (rank 0 first, if one thread casts several), then
 * learns what all of them came to. `key` is the communicator's. A rank that gives up waiting takes its vote
 * back, and may try again. */
weft_status_t weft__route_vote(weft_store_conn_t *store, const char *key, int rank, int size,
                               weft_route_gpu_t gpu, int timeout_ms);
weft_status_t weft__route_count(weft_store_conn_t *store, const char *key, int rank, int size,
                                int timeout_ms, weft_route_t *route_p);

/* Do these GPUs, of one host, reach each other's memory, for all that is known? Asks the driver if they are
 * several; and what it says then. */
bool weft__route_reach(const weft_route_gpu_t *gpus, int n);
bool weft__route_reach_by(const weft_gpus_t *known, const weft_route_gpu_t *gpus, int n);

#endif
