/* The update of one rank's weights: see optimizer.h. */
#include "parallel/optimizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct weft_optimizer {
    weft_zero_t *const *zeros;
    int count;
    const weft_mesh_t *mesh;
    const weft_compute_t *compute;
    weft_stream_h stream;
    double *squares; /* of all places of the mesh (but for dp), one behind the other */
    int64_t all;     /* how many there are */
    int64_t mine;    /* where this rank's start */
    float *norm;     /* 2 */
    bool alone;      /* this rank's are all that count, if it has any */
    weft_offload_t *offload;
};

/* ---- making one --------------------------------------------------------------------------- */

static int64_t own_squares(const weft_optimizer_t *o)
{
    int64_t sum = 0;
    for (int i = 0; i < o->count; i++) {
        sum += o->zeros[i]->pieces.squares;
    }
    return sum;
}

/* Where everybody's sums are: those of the first data-parallel rank of each place count. */
static weft_status_t find_places(weft_optimizer_t *o)
{
    const weft_mesh_t *mesh = o->mesh;
    int64_t own = own_squares(o);
    if (mesh->world == NULL) { /* a dry ledger: about as many everywhere */
        o->all = own * (weft__axes_ranks(mesh->size) / mesh->size[WEFT_AXIS_DATA]);
        return WEFT_OK;
    }
    int64_t *counts = calloc((size_t)mesh->ranks, sizeof(*counts));
    if (counts == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the norm of %d ranks", mesh->ranks);
    }
    weft_status_t status = weft_allgather(&own, counts, 1, WEFT_I64, mesh->world, NULL);
    int own_index[WEFT_AXES];
    memcpy(own_index, mesh->index, sizeof(own_index));
    own_index[WEFT_AXIS_DATA] = 0;
    int speaker = weft__mesh_rank(mesh, own_index);
    for (int place = 0; place < mesh->ranks; place++) {
        int index[WEFT_AXES], rank = mesh->rank_at[place];
        weft__mesh_index(mesh, place, index);
        if (index[WEFT_AXIS_DATA] == 0) {
            o->mine = rank == speaker ? o->all : o->mine;
            o->all += counts[rank];
        }
    }
    free(counts);
    return status;
}

/* Where all data-parallel ranks have the same gradients, one speaks for them, unless each is
 * alone. */
static void share_squares(const weft_optimizer_t *o)
{
    double *squares = o->squares + o->mine;
    bool speaks = o->alone || o->zeros[0]->own == WEFT_OWN_SHARDS ||
                  o->mesh->index[WEFT_AXIS_DATA] == 0;
    for (int i = 0; i < o->count && speaks && o->squares != NULL; i++) {
        o->zeros[i]->squares = squares;
        squares += o->zeros[i]->pieces.squares;
    }
}

static weft_status_t make_all(weft_optimizer_t *o, weft_ledger_t *ledger)
{
    WEFT_TRY(find_places(o));
    WEFT_TRY(weft__ledger_malloc(ledger, WEFT_MEMORY_BUFFERS, (size_t)o->all * sizeof(double),
                                 &o->squares));
    WEFT_TRY(weft__ledger_malloc(ledger, WEFT_MEMORY_BUFFERS, 2 * sizeof(float), &o->norm));
    share_squares(o);
    return o->zeros[0]->offload ? weft__offload_create(o->zeros, o->count, ledger, &o->offload)
                                : WEFT_OK;
}

weft_status_t weft__optimizer_create(weft_zero_t *const *zeros, int count, const weft_mesh_t *mesh,
                                     weft_ledger_t *ledger, weft_optimizer_t **optimizer_p)
{
    weft_optimizer_t *o = calloc(1, sizeof(*o));
    if (o == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for an optimizer");
    }
    o->zeros = zeros;
    o->count = count;
    o->mesh = mesh;
    o->compute = zeros[0]->compute;
    o->stream = zeros[0]->stream;
    o->alone = zeros[0]->own != WEFT_OWN_SHARDS &&
               weft__axes_ranks(mesh->size) == mesh->size[WEFT_AXIS_DATA];
    weft_status_t status = make_all(o, ledger);
    if (status != WEFT_OK) {
        weft__optimizer_destroy(o);
        return status;
    }
    *optimizer_p = o;
    return WEFT_OK;
}

void weft__optimizer_destroy(weft_optimizer_t *o)
{
    if (o != NULL) {
        weft__offload_destroy(o->offload);
        weft_free(o->squares);
        weft_free(o->norm);
        free(o);
    }
}

const float *weft__optimizer_norm(const weft_optimizer_t *o)
{
    return o->norm;
}

/* ---- what dp has left open ---------------------------------------------------------------- */

/* Piece by piece, under stage 0 too: a call's order of summation depends on its count. */
static weft_status_t complete(const weft_optimizer_t *o, const weft_zero_t *zero)
{
    for (int i = 0; i < zero->pieces.count; i++) {
        const weft_piece_t *piece = &zero->pieces.list[i];
        if (!weft__zero_owns(zero, piece)) {
            continue;
        }
        void *grads = weft__zero_grads(zero, piece);
        weft_dtype_t type = zero->model->grad_type;
        size_t count = (size_t)piece->count;
        if (piece->partial) {
            WEFT_TRY(weft_allreduce(grads, grads, count, type, WEFT_SUM,
                                    o->mesh->comm[WEFT_AXIS_TENSOR], o->stream));
        }
        if (piece->rounded) {
            WEFT_TRY(weft_broadcast(grads, grads, count, type, 0, o->mesh->comm[WEFT_AXIS_TENSOR],
                                    o->stream));
        }
        if (piece->tied) {
            WEFT_TRY(
                weft_allreduce(grads, grads, count, type, WEFT_SUM, o->mesh->ends_comm, o->stream));
        }
    }
    return WEFT_OK;
}

/* ---- norm --------------------------------------------------------------------------------- */

static weft_status_t find_norm(const weft_optimizer_t *o, const weft_hyper_t *hyper)
{
    /* Of pieces that were open until now; grads.c has those of the others. */
    for (int i = 0; i < o->count; i++) {
        WEFT_TRY(weft__zero_square(o->zeros[i], WEFT_ALL_BUCKETS, true, o->stream));
    }
    if (!o->alone) {
        int stretch = weft__meter_begin(o->zeros[0]->meter, WEFT_STRETCH_NORM);
        WEFT_TRY(weft_allreduce(o->squares, o->squares, (size_t)o->all, WEFT_F64, WEFT_SUM,
                                o->mesh->world, o->stream));
        weft__meter_end(o->zeros[0]->meter, stretch);
    }
    float scale = (float)(1.0 / weft__hyper_scale(hyper));
    weft_clip_t clip = {o->squares, o->all, scale, hyper->max_norm, o->norm};
    return o->compute->clip(&clip, o->stream);
}

weft_status_t weft__optimizer_begin(weft_optimizer_t *o)
{
    return o->alone ? WEFT_OK
                    : weft_memset(o->squares, 0, (size_t)o->all * sizeof(double), o->stream);
}

/* ---- update ------------------------------------------------------------------------------- */

weft_adamw_t weft__optimizer_args(const weft_zero_t *zero, const weft_piece_t *piece,
                                  const weft_hyper_t *hyper, const float *norm)
{
    int64_t at = weft__zero_state(zero, piece);
    return (weft_adamw_t){.type = zero->model->type,
                          .grad_type = zero->model->grad_type,
                          .count = piece->count,
                          .param = weft__zero_weights(zero, piece),
                          .master = zero->master != NULL ? zero->master + at : NULL,
                          .grad = weft__zero_grads(zero, piece),
                          .m = zero->m + at,
                          .v = zero->v + at,
                          .grad_scale = norm + 1,
                          .lr = hyper->lr,
                          .beta1 = hyper->beta1,
                          .beta2 = hyper->beta2,
                          .eps = hyper->eps,
                          .decay = piece->decay ? hyper->decay : 0.0f,
                          .step = hyper->step};
}

static weft_status_t update(const weft_optimizer_t *o, const weft_zero_t *zero,
                            const weft_hyper_t *hyper)
{
    weft_adamw_t list[WEFT_LIST_MOST];
    int count = 0;
    for (int i = 0; i < zero->pieces.count; i++) {
        const weft_piece_t *piece = &zero->pieces.list[i];
        if (!weft__zero_owns(zero, piece)) {
            continue;
        }
        list[count++] = weft__optimizer_args(zero, piece, hyper, o->norm);
        if (count == WEFT_LIST_MOST) {
            WEFT_TRY(o->compute->adamw_list(list, count, o->stream));
            count = 0;
        }
    }
    return o->compute->adamw_list(list, count, o->stream);
}

weft_status_t weft__optimizer_run(weft_optimizer_t *o, const weft_hyper_t *hyper)
{
    int stretch = weft__meter_begin(o->zeros[0]->meter, WEFT_STRETCH_NORM);
    for (int i = 0; i < o->count; i++) {
        WEFT_TRY(complete(o, o->zeros[i]));
    }
    weft__meter_end(o->zeros[0]->meter, stretch);
    WEFT_TRY(find_norm(o, hyper));
    if (o->offload != NULL) {
        WEFT_TRY(weft__offload_run(o->offload, hyper, o->norm));
    }
    for (int i = 0; i < o->count; i++) {
        if (o->offload == NULL) {
            WEFT_TRY(update(o, o->zeros[i], hyper));
        }
        if (o->zeros[i]->exchange->updated != NULL) {
            WEFT_TRY(o->zeros[i]->exchange->updated(o->zeros[i], o->norm));
        }
    }
    return WEFT_OK;
}
