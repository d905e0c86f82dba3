/* The nccl backend, for those who make communicators. */
#ifndef WEFT_COMM_NCCL_BACKEND_H
#define WEFT_COMM_NCCL_BACKEND_H

#include "boot/store.h"
#include "comm/comm.h"

extern const weft_backend_ops_t weft__backend_nccl;

/* Where the ranks of a communicator meet: a store, and a name in it that no other communicator has. */
typedef struct weft_nccl_road {
    bool of_job; /* the job's store; else the one below */
    char host[64];
    int port;
    uint8_t secret[WEFT_SECRET_BYTES];
    char key[64];
} weft_nccl_road_t;

/* Joining, in two steps so that one thread can bring up several ranks (rank 0 first): take the place
 * of `rank` and become comm->ctx; wait for the others. A failure breaks the communicator for all; the
 * caller then closes it. */
weft_status_t weft__nccl_comm_enter(weft_comm_h comm, const weft_nccl_road_t *road, int rank,
                                    int size);
weft_status_t weft__nccl_comm_meet(weft_comm_h comm);

#endif
