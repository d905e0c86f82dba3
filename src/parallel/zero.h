/* The model state of one slice on one rank: weights, gradients, optimizer state, spread over the
 * data-parallel ranks as the stage of ZeRO says.
 *
 *   stage       weights            gradients          optimizer     files
 *   0           all                all                all
 *   1, 2        all                all (*)            shards        gather.c: handed out after the update,
 *   3           shards, gathered   all (*)            shards        gathered before use
 *
 *   (*) with one micro-batch, or `lean`, stages 2 and 3 keep shards only, and full gradients of a few
 *       buckets on their way (grads.c)
 *
 * A rank's shards lie one behind the other: that of bucket b starts at buckets[b].first / ranks. */
#ifndef WEFT_PARALLEL_ZERO_H
#define WEFT_PARALLEL_ZERO_H

#include <weft/comm.h>
#include <weft/device.h>

#include "parallel/dp.h"
#include "parallel/memory.h"
#include "parallel/plan.h"
#include "parallel/units.h"

typedef struct weft_gather weft_gather_t;
typedef struct weft_grads weft_grads_t;

typedef struct weft_zero {
    const weft_model_t *model;
    const weft_compute_t *compute;
    weft_stream_h stream; /* of computation */
    weft_timeline_t *timeline; /* or NULL */
    int stage;            /* 0 where there is one data-parallel rank */
    int rank, ranks;      /* data-parallel */
    bool lean;            /* gradients of all parameters never exist together */
    bool offload;         /* m, v and master are on the host */
    weft_layout_t layout;
    weft_pieces_t pieces;
    int64_t state_count; /* elements of m, v and master */

    void *weights;
    void **params; /* by index, for weft_pass_t; with stage 3 only while their bucket is gathered */
    weft_gather_t *gather; /* NULL with stage 0 */

    char *all_grads;   /* the whole layout, of the model's grad_type; NULL if lean */
    char *grad_shards; /* lean */
    void **grad_views; /* by index, for weft_pass_t; lean: only while their bucket is open */
    weft_grads_t *grads;

    float *m, *v;
    float *master; /* NULL where weights are f32 and not offloaded */
} weft_zero_t;

typedef struct weft_zero_options {
    const weft_plan_t *plan;
    size_t bucket_bytes; /* of f32 gradients */
    bool overlap;
    weft_compress_t compress; /* of gradients on their way; they are f32 then */
    weft_piece_rules_t rules;
    int dp_index;
    weft_comm_h dp_comm, weights_comm; /* NULL with a dry bill */
    weft_stream_h stream;
    weft_timeline_t *timeline;
} weft_zero_options_t;

/* Describe and allocate; everything is zero. The struct must not move afterwards. */
weft_status_t weft__zero_open(weft_zero_t *zero, const weft_model_t *model,
                              const weft_compute_t *compute, const weft_zero_options_t *options,
                              weft_bill_t *bill);
void weft__zero_close(weft_zero_t *zero);

/* Does this rank update the piece? */
static inline bool weft__zero_owns(const weft_zero_t *zero, const weft_piece_t *piece)
{
    return zero->stage == 0 || piece->shard == zero->rank;
}

/* Where a piece is in each kind of memory; it must be owned. */
void *weft__zero_weights(const weft_zero_t *zero, const weft_piece_t *piece);
void *weft__zero_grads(const weft_zero_t *zero, const weft_piece_t *piece);
int64_t weft__zero_state(const weft_zero_t *zero, const weft_piece_t *piece);

/* What of a parameter is stored here: f32 values of kind `what` of all of its local elements, on the
 * host. put takes what belongs to this rank. get writes what this rank has and leaves the rest
 * alone; with stage 0 and for weights below stage 3 that is all. */
typedef enum weft_state_kind {
    WEFT_STATE_WEIGHTS, /* f32, from the master copy where there is one */
    WEFT_STATE_M,
    WEFT_STATE_V
} weft_state_kind_t;

weft_status_t weft__zero_put(weft_zero_t *zero, int param, weft_state_kind_t what,
                             const float *local);
weft_status_t weft__zero_get(const weft_zero_t *zero, int param, weft_state_kind_t what,
                             float *local);
/* Does this rank alone have all of it? */
bool weft__zero_whole(const weft_zero_t *zero, weft_state_kind_t what);

/* ---- weights (gather.c) -------------------------------------------------------------------------- */

weft_status_t weft__gather_open(weft_zero_t *zero, weft_comm_h comm, bool overlap,
                                weft_bill_t *bill, weft_gather_t **gather_p);
void weft__gather_close(weft_gather_t *gather);

/* The compute stream may use the weights of `bucket` from here on, until drop. Nothing to do with
 * stage 0. `next` (-1: none) is the bucket that will be needed after this one; it is gathered
 * meanwhile. */
weft_status_t weft__gather_need(weft_zero_t *zero, int bucket, int next);
weft_status_t weft__gather_drop(weft_zero_t *zero, int bucket);

/* The compute stream may use all weights that this rank keeps. */
weft_status_t weft__gather_settle(weft_zero_t *zero);

/* Weights have been updated: hand them out (stages 1 and 2), forget what was gathered (3). */
weft_status_t weft__gather_updated(weft_zero_t *zero);

/* ---- gradients (grads.c) -------------------------------------------------------------------------- */

weft_status_t weft__grads_open(weft_zero_t *zero, const weft_zero_options_t *options,
                               weft_bill_t *bill, weft_grads_t **grads_p);
void weft__grads_close(weft_grads_t *grads);

/* As weft__dp_begin and so on; gradients of a bucket may be added to from `use` on, until all of the
 * bucket's have been told to weft__grads_ready in this micro-batch. */
weft_status_t weft__grads_begin(weft_zero_t *zero, int64_t step);
void weft__grads_micro(weft_zero_t *zero, bool last);
weft_status_t weft__grads_use(weft_zero_t *zero, int bucket);
void weft__grads_ready(void *zero, int first, int count);
weft_status_t weft__grads_finish(weft_zero_t *zero);
double weft__grads_exposed(const weft_zero_t *zero, int64_t step);
float *weft__grads_residuals(const weft_zero_t *zero, int64_t *count_p);

#endif
