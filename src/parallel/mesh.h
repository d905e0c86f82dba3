/* The ranks of a job as a grid with an axis for each kind of parallelism (plan.h), and
 * communicators along the axes.
 *
 * Each rank has a place: its indices, of which the one along the innermost axis (weft__axis_order)
 * counts fastest,
 *
 *     place = (pp index x dp + dp index) x tp + tp index
 *
 * chosen so that inner axes are on faster links (places.h); where links are alike and the job's
 * ranks are in the order of hosts and devices, place is rank. */
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
    int size[WEFT_AXES], index[WEFT_AXES]; /* of each axis; this rank's along it */
    int rank, ranks;                       /* in `world` */
    weft_comm_h world;                     /* not owned */
    weft_comm_h comm[WEFT_AXES]; /* ranks that differ along this axis only; rank is the index. NULL
                                  * along chains, which have edges. With dp alone and no ZeRO, dp's
                                  * is `world`, and the others are NULL */
    weft_comm_h weights_comm; /* dp once more, for weights that travel beside gradients; or NULL */
    weft_comm_h ends_comm;    /* first and last stage, for tied embeddings; NULL elsewhere */
    weft_edge_t before, after;
    int *rank_at;            /* rank in `world` of each place */
    uint8_t near[WEFT_AXES]; /* the slowest link along each axis, as weft_near_t */
} weft_mesh_t;

/* Where each rank stands, without communicators: `rank_at` has the rank of each place; NULL: place
 * is rank. */
weft_status_t weft__mesh_arrange(const weft_plan_t *plan, int rank, int size, const int *rank_at,
                                 weft_mesh_t *mesh_p);

/* Arrange the ranks of `world`, which must outlive the mesh, and split it. `tied`: the model's
 * embedding and head share a matrix. Collective. */
weft_status_t weft__mesh_create(const weft_plan_t *plan, bool tied, weft_comm_h world,
                                weft_mesh_t *mesh_p);

/* Free it; not collective. `broken`: communicators are aborted, which ends what waits in them here
 * and on other ranks. */
void weft__mesh_destroy(weft_mesh_t *mesh, bool broken);

/* The place of a rank. */
int weft__mesh_place(const weft_mesh_t *mesh, int rank);

/* The indices of a place. */
void weft__mesh_index(const weft_mesh_t *mesh, int place, int index[WEFT_AXES]);

/* The rank in `world` at these indices. */
int weft__mesh_rank(const weft_mesh_t *mesh, const int index[WEFT_AXES]);

/* WEFT_OK, or the first error that broke one of the communicators, with its sentence and with the
 * ranks of `world` that are meant. */
weft_status_t weft__mesh_error(const weft_mesh_t *mesh);

/* The grid as lines of text: a line per pipeline stage, brackets around tp; and the links that it
 * is on, as far as they are known. Returns text. */
const char *weft__mesh_picture(const weft_mesh_t *mesh, char *text, size_t room);

#endif
