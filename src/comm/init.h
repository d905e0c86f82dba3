/* Making communicators. */
#ifndef WEFT_COMM_INIT_H
#define WEFT_COMM_INIT_H

#include "comm/comm.h"
#include "comm/route.h"

/* A rank that is about to join: weft_comm_init_rank, maybe deferred by a group. */
typedef struct weft_joiner {
    weft_comm_h *comm_p; /* where the caller wants the handle */
    weft_comm_h comm;
    weft_unique_id_t id;
    int nranks, rank;
    struct weft_store_conn *store; /* rank 0 keeps it until all are there */
    weft_route_t route;
} weft_joiner_t;

/* Let all of them join, those that are rank 0 first; all or none get handles. */
weft_status_t weft__comm_join_all(weft_joiner_t *joiners, int n);

/* A handle with `config` (may be NULL) applied, on `device`; still without a backend. */
weft_status_t weft__comm_create(const weft_comm_config_t *config, int device, weft_comm_h *comm_p);

/* Close the backend, if there is one, and give the handle back. */
void weft__comm_release(weft_comm_h comm);

#endif
