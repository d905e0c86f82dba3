/* The model state of one slice on one rank: weights, gradients, optimizer state, shared with the
 * data-parallel ranks as the stage of ZeRO says.
 *
 *   stage       weights            gradients          optimizer     after an update, weights are
 *   0           all                all                all           the same everywhere
 *   1, 2        all                all (*)            shards        handed out (gather.c)
 *   3           shards             all (*)            shards        gathered before use (gather.c)
 *   naive       all                all                rank 0's      broadcast (naive.c)
 *
 *   (*) with one micro-batch, or `lean`, stages 2 and 3 keep shards only, and full gradients of
 *       a few buckets on their way (grads.c)
 *
 * What ranks do with each other's gradients and updates is a table (weft_exchange_ops_t), one per
 * way. A rank's shards lie one behind the other: that of bucket b starts at buckets[b].first /
 * shards. */
#ifndef WEFT_PARALLEL_ZERO_H
#define WEFT_PARALLEL_ZERO_H

#include <weft/comm.h>
#include <weft/device.h>

#include "parallel/compression.h"
#include "parallel/memory.h"
#include "parallel/meter.h"
#include "parallel/pieces.h"
#include "parallel/plan.h"

typedef struct weft_zero weft_zero_t;
typedef struct weft_gather weft_gather_t;
typedef struct weft_grads weft_grads_t;

/* How data-parallel ranks share the state of a slice. All slots are called by all of them alike. */
typedef struct weft_exchange_ops {
    const char *name; /* of the call for gradients, in traces */

    /* Required. The gradients of `bucket` are complete on the communication stream: queue there
     * what leaves their sums over all ranks where the owners of pieces look for them. */
    weft_status_t (*gradients)(weft_zero_t *zero, int bucket, weft_stream_h comm_stream);

    /* Optional. The compute stream has updated the weights of the pieces that this rank owns: queue
     * what brings them to ranks that will use them. `norm`: as weft__optimizer_norm, on those who
     * own any. */
    weft_status_t (*updated)(weft_zero_t *zero, float *norm);
} weft_exchange_ops_t;

extern const weft_exchange_ops_t weft__exchange_sum;     /* stage 0 */
extern const weft_exchange_ops_t weft__exchange_scatter; /* stages 1 to 3 */
extern const weft_exchange_ops_t weft__exchange_lean;    /* stages 2 and 3, by way of slots */
extern const weft_exchange_ops_t weft__exchange_naive;   /* the baseline: rank 0 does it all */

/* Which pieces' optimizer state a rank has, and updates. */
typedef enum weft_own { WEFT_OWN_ALL, WEFT_OWN_SHARDS, WEFT_OWN_NONE } weft_own_t;

struct weft_zero {
    const weft_model_t *model;
    const weft_compute_t *compute;
    weft_stream_h stream;      /* of computation */
    weft_timeline_t *timeline; /* or NULL */
    weft_meter_t *meter;
    const weft_exchange_ops_t *exchange;
    weft_own_t own;
    int stage;       /* 0 where there is one data-parallel rank */
    int rank, ranks; /* data-parallel */
    int shards;      /* of a bucket: one per rank, unless each tensor has a bucket */
    bool lean;       /* gradients of all parameters never exist together */
    bool offload;    /* m, v and master are on the host */
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
    double *squares; /* set by the optimizer: of gradients by piece; NULL: others count them */

    float *m, *v;  /* NULL where none is owned, as is */
    float *master; /* ... and where weights are f32 and not offloaded */
};

typedef struct weft_zero_options {
    const weft_plan_t *plan;
    size_t bucket_bytes; /* of f32 gradients; 0: without ZeRO, a bucket for each tensor */
    bool overlap;
    bool naive;               /* stage 0 only */
    weft_compress_t compress; /* of gradients on their way; they are f32 then */
    weft_piece_rules_t rules;
    int dp_index;
    weft_comm_h dp_comm, weights_comm; /* NULL with a dry ledger */
    weft_stream_h stream;
    weft_meter_t *meter;
    weft_timeline_t *timeline;
} weft_zero_options_t;

/* The layout that a slice has under a plan. */
weft_status_t weft__zero_layout(const weft_model_t *model, const weft_zero_options_t *options,
                                weft_layout_t *layout_p);

/* Describe and allocate; everything is zero. The struct must not move afterwards. */
weft_status_t weft__zero_open(weft_zero_t *zero, const weft_model_t *model,
                              const weft_compute_t *compute, const weft_zero_options_t *options,
                              weft_ledger_t *ledger);
void weft__zero_close(weft_zero_t *zero);

/* Does this rank update the piece? */
static inline bool weft__zero_owns(const weft_zero_t *zero, const weft_piece_t *piece)
{
    return zero->own == WEFT_OWN_ALL ||
           (zero->own == WEFT_OWN_SHARDS && piece->shard == zero->rank);
}

/* Where a piece is in each kind of memory; it must be owned. */
void *weft__zero_weights(const weft_zero_t *zero, const weft_piece_t *piece);
void *weft__zero_grads(const weft_zero_t *zero, const weft_piece_t *piece);
int64_t weft__zero_state(const weft_zero_t *zero, const weft_piece_t *piece);

/* Queue the sums of squares of the gradients of a bucket, or of WEFT_ALL_BUCKETS: of those pieces
 * that this rank owns and the norm counts, and that are open (weft__piece_open), or are not. */
#define WEFT_ALL_BUCKETS (-1)
weft_status_t weft__zero_square(const weft_zero_t *zero, int bucket, bool open,
                                weft_stream_h stream);

/* What of a parameter is stored here: f32 values of kind `what` of its first `count` local
 * elements, on the host. put takes what belongs to this rank, of all elements. get writes what this
 * rank has and leaves the rest alone; with stage 0 and for weights below stage 3 that is all. */
typedef enum weft_state_kind {
    WEFT_STATE_WEIGHTS, /* f32, from the master copy where there is one */
    WEFT_STATE_M,
    WEFT_STATE_V
} weft_state_kind_t;

weft_status_t weft__zero_put(weft_zero_t *zero, int param, weft_state_kind_t what,
                             const float *local);
weft_status_t weft__zero_get(const weft_zero_t *zero, int param, weft_state_kind_t what,
                             int64_t count, float *local);
/* Does the first data-parallel rank have all of it? */
bool weft__zero_whole(const weft_zero_t *zero, weft_state_kind_t what);

/* ---- weights (gather.c) ------------------------------------------------------------------- */

weft_status_t weft__gather_open(weft_zero_t *zero, weft_comm_h comm, bool overlap,
                                weft_ledger_t *ledger, weft_gather_t **gather_p);
void weft__gather_close(weft_gather_t *gather);

/* The compute stream may use the weights of `bucket` from here on, until drop. Nothing to do with
 * stage 0. `next` (-1: none) is the bucket that will be needed after this one; it is gathered
 * meanwhile. */
weft_status_t weft__gather_need(weft_zero_t *zero, int bucket, int next);
weft_status_t weft__gather_drop(weft_zero_t *zero, int bucket);

/* The compute stream may use all weights that this rank keeps. */
weft_status_t weft__gather_settle(weft_zero_t *zero);

/* Weights have been updated: hand them out (stages 1 and 2), forget what was gathered (3). `norm`
 * is not looked at: all ranks have it. Nothing to do with stage 0. */
weft_status_t weft__gather_updated(weft_zero_t *zero, float *norm);

/* ---- gradients (grads.c) --------------------------------------------------------------------
 *
 * When backward has completed the last gradient of a bucket, the bucket's exchange is queued on a
 * communication stream, behind an event of the compute stream, and runs while backward goes on.
 * Behind it, while the bucket is in the cache, are the sums of its squares:
 *
 *     compute   forward | backward: head, block L-1 | block L-2 | ... | embedding | wait |
 * optimizer comm stream                          | bucket 0 | bucket 1 | ...         | last |
 *
 * Gradients are summed, not averaged: with the same loss_scale on all ranks, 1 / tokens of the
 * whole batch, the sum is the mean, and no pass over memory is spent on a division. Without overlap
 * all buckets come after backward, on the compute stream. */

weft_status_t weft__grads_open(weft_zero_t *zero, const weft_zero_options_t *options,
                               weft_ledger_t *ledger, weft_grads_t **grads_p);
void weft__grads_close(weft_grads_t *grads);

/* Start a step: gradients are zero, but for those that the first pass writes (model.h). */
weft_status_t weft__grads_begin(weft_zero_t *zero);

/* Start the backward pass of a micro-batch; `last`: it completes the gradients. */
void weft__grads_micro(weft_zero_t *zero, bool last);

/* Should a pass write gradients? Of the head, whose matrix has its gradient from forward, in the
 * first forward pass; of blocks in the first backward pass. Lean ones are exchanged after every
 * pass. */
static inline bool weft__grads_fresh(const weft_zero_t *zero, bool backward, bool first)
{
    return zero->lean ? backward : first;
}

/* Gradients of a bucket may be added to from here on, until all of the bucket's have been told to
 * weft__grads_ready (for weft_pass_t.grad_ready) in this micro-batch. */
weft_status_t weft__grads_use(weft_zero_t *zero, int bucket);
void weft__grads_ready(void *zero, int first, int count);

/* Let the compute stream wait for all sums. Errors of calls that failed meanwhile, a rank that died
 * among them. */
weft_status_t weft__grads_finish(weft_zero_t *zero);

/* The communicator of gradients. */
weft_comm_h weft__grads_comm(const weft_zero_t *zero);

/* Residuals of compressed gradients, as weft__compression_residuals has them; complete between
 * steps. */
float *weft__grads_residuals(const weft_zero_t *zero, int64_t *count_p);

#endif
