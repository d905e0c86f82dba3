/* Making communicators. */
#ifndef WEFT_COMM_INIT_H
#define WEFT_COMM_INIT_H

#include "comm/backends.h"

/* A rank that is about to join, maybe deferred by a group. */
typedef struct weft_joiner {
    weft_comm_h *comm_p; /* where the caller wants the handle */
    weft_comm_h comm;
    int nranks, rank;
    bool apart; /* some ranks are known to be on other hosts */
    weft_rendezvous_t at;
} weft_joiner_t;

/* Let all of them join, those that are rank 0 first; all or none get handles. */
weft_status_t weft__comm_join_all(weft_joiner_t *joiners, int n);

/* A handle with `config` (may be NULL) applied, on `device`; still without a backend. */
weft_status_t weft__comm_create(const weft_comm_config_t *config, int device, weft_comm_h *comm_p);

/* Close the backend, if there is one, and give the handle back. */
void weft__comm_release(weft_comm_h comm);

#endif
