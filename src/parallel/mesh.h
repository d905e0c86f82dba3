/* The ranks of a job as a grid of dp x pp x tp, with a communicator for each direction.
 *
 * Each rank has a place,
 *
 *     place = (pp index x dp + dp index) x tp + tp index
 *
 * chosen so that tp is on the fastest links, then dp, then pp (places.h); where links are alike and the
 * job's ranks are in the order of hosts and devices, place is rank. */
#ifndef WEFT_PARALLEL_MESH_H
#define WEFT_PARALLEL_MESH_H

#include <weft/comm.h>

#include "parallel/plan.h"

/* One direction between neighbouring stages. Rank 0 is the earlier stage. Forward and backward have
 * communicators of their own, so that neither ever waits for the other. */
typedef struct weft_edge {
    weft_comm_h forward, backward; /* NULL: there is no such neighbour */
} weft_edge_t;

typedef struct weft_mesh {
    int dp, pp, tp;                   /* sizes */
    int dp_index, pp_index, tp_index; /* this rank's */
    int rank, size;                   /* in `world` */
    weft_comm_h world;                /* not owned */
    weft_comm_h tp_comm, dp_comm;     /* this rank's row in each direction; rank is its index. With
                                       * dp alone and no ZeRO, dp's is `world`, and tp's is NULL */
    weft_comm_h weights_comm; /* dp once more, for weights that travel beside gradients; or NULL */
    weft_comm_h ends_comm;    /* first and last stage, for tied embeddings; NULL elsewhere */
    weft_edge_t before, after;
    int *rank_at; /* rank in `world` of each place */
    uint8_t tp_near, dp_near, pp_near; /* the slowest link in each direction, as weft_near_t */
} weft_mesh_t;

/* Where each rank stands, without communicators: `rank_at` has the rank of each place; NULL: place is
 * rank. */
weft_status_t weft__mesh_arrange(const weft_plan_t *plan, int rank, int size, const int *rank_at,
                                 weft_mesh_t *mesh_p);

/* Arrange the ranks of `world`, which must outlive the mesh, and split it. `tied`: the model's
 * embedding and head share a matrix. Collective. */
weft_status_t weft__mesh_create(const weft_plan_t *plan, bool tied, weft_comm_h world,
                                weft_mesh_t *mesh_p);

/* Free it; not collective. `broken`: communicators are aborted, which ends what waits in them here and
 * on other ranks. */
void weft__mesh_destroy(weft_mesh_t *mesh, bool broken);

/* The place of a rank. */
int weft__mesh_place(const weft_mesh_t *mesh, int rank);

/* The rank in `world` at these indices. */
int weft__mesh_rank(const weft_mesh_t *mesh, int dp_index, int pp_index, int tp_index);

/* WEFT_OK, or the first error that broke one of the communicators, with its sentence and with the
 * ranks of `world` that are meant. */
weft_status_t weft__mesh_error(const weft_mesh_t *mesh);

/* The grid as lines of text: a line per pipeline stage, brackets around tp; and the links that it is
 * on, as far as they are known. Returns text. */
const char *weft__mesh_picture(const weft_mesh_t *mesh, char *text, size_t room);

#endif
