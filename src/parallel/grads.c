/* Gradients of one slice: who sums them, and where they are.
 *
 * The order of buckets, the overlap with backward and errors are dp's (dp.h). Stage 0 sums by dp's
 * own all-reduce, or where gradients have 16 bits by a plain one. Stages 1 to 3 reduce-scatter each
 * bucket, in fewer bits if asked (squeeze.h): with full gradients in place, so that afterwards a
 * rank's shards of them are sums; lean ones from a slot into the rank's shards.
 *
 * Slots, as for weights in gather.c: buckets of blocks share two, of which one is filled by
 * backward while the other is on its way; each end has its own. */
#include <stdlib.h>

#include "base/log.h"
#include "base/try.h"
#include "parallel/zero.h"

enum { BLOCK_SLOTS = 2 };

typedef struct slot {
    int bucket; /* -1: none */
    bool open;  /* is being added to */
    bool block;
    char *memory;
    uint64_t turn;     /* when it was opened last */
    weft_event_h sent; /* on the lane: its contents have been reduced */
} slot_t;

struct weft_grads {
    weft_dp_t *dp;
    weft_comm_h comm;
    weft_squeeze_t *squeeze; /* stages 1 to 3, compressed; else NULL */
    /* lean */
    int slot_count;
    slot_t *slots;
    uint64_t turns;
    int *slot_of; /* by bucket: of ends; -1 for blocks */
    bool *summed; /* by bucket: shards hold sums of this step already */
    char *more;   /* sums of one more micro-batch, of the largest shard */
};

/* ---- exchange of a bucket, called by dp --------------------------------------------------------------- */

static size_t grad_size(const weft_zero_t *zero)
{
    return weft_dtype_size(zero->model->grad_type);
}

/* This rank's part of the sum of a bucket, whose gradients are at `all`, into `out`. */
static weft_status_t scatter(const weft_zero_t *zero, int bucket, char *all, char *out,
                             weft_stream_h lane)
{
    const weft_grads_t *grads = zero->grads;
    size_t count = (size_t)(zero->layout.buckets[bucket].count / zero->ranks);
    return grads->squeeze != NULL
               ? weft__squeeze_scatter(grads->squeeze, bucket, (float *)(void *)all,
                                       (float *)(void *)out, lane)
               : weft_reduce_scatter(all, out, count, zero->model->grad_type, WEFT_SUM, grads->comm,
                                     lane);
}

static weft_status_t scatter_in_place(void *arg, int bucket, weft_stream_h lane)
{
    weft_zero_t *zero = arg;
    const weft_bucket_t *b = &zero->layout.buckets[bucket];
    size_t element = grad_size(zero), count = (size_t)(b->count / zero->ranks);
    char *all = zero->all_grads + (size_t)b->first * element;
    return scatter(zero, bucket, all, all + (size_t)zero->rank * count * element, lane);
}

static weft_status_t sum_in_place(void *arg, int bucket, weft_stream_h lane)
{
    weft_zero_t *zero = arg;
    const weft_bucket_t *b = &zero->layout.buckets[bucket];
    char *all = zero->all_grads + (size_t)b->first * grad_size(zero);
    return zero->ranks == 1 ? WEFT_OK
                            : weft_allreduce(all, all, (size_t)b->count, zero->model->grad_type,
                                             WEFT_SUM, zero->grads->comm, lane);
}

static slot_t *slot_with(const weft_grads_t *grads, int bucket)
{
    for (int i = 0; i < grads->slot_count; i++) {
        if (grads->slots[i].bucket == bucket) {
            return &grads->slots[i];
        }
    }
    return NULL;
}

static weft_status_t scatter_slot(void *arg, int bucket, weft_stream_h lane)
{
    weft_zero_t *zero = arg;
    weft_grads_t *grads = zero->grads;
    const weft_bucket_t *b = &zero->layout.buckets[bucket];
    slot_t *slot = slot_with(grads, bucket);
    char *shard = zero->grad_shards + (size_t)(b->first / zero->ranks) * grad_size(zero);
    int64_t count = b->count / zero->ranks;
    bool first = !grads->summed[bucket];
    WEFT_TRY(scatter(zero, bucket, slot->memory, first ? shard : grads->more, lane));
    if (!first) {
        weft_dropout_t add = {.type = zero->model->grad_type,
                              .rows = 1,
                              .width = count,
                              .in = grads->more,
                              .residual = shard,
                              .out = shard};
        WEFT_TRY(zero->compute->dropout(&add, lane));
    }
    grads->summed[bucket] = true;
    slot->open = false;
    return weft_event_record(slot->sent, lane);
}

/* ---- making one ----------------------------------------------------------------------------------------- */

static weft_status_t add_slot(weft_grads_t *grads, size_t bytes, bool block, weft_bill_t *bill)
{
    slot_t *slot = &grads->slots[grads->slot_count++];
    slot->bucket = -1;
    slot->block = block;
    WEFT_TRY(weft__bill_malloc(bill, WEFT_MEMORY_BUFFERS, bytes, &slot->memory));
    return bill->dry ? WEFT_OK : weft_event_create(&slot->sent);
}

static weft_status_t make_slots(weft_zero_t *zero, weft_grads_t *grads, weft_bill_t *bill)
{
    const weft_layout_t *layout = &zero->layout;
    int64_t block = 0, largest = 0;
    int blocks = 0;
    for (int b = 0; b < layout->bucket_count; b++) {
        int64_t size = layout->buckets[b].count;
        bool has_blocks = weft__units_has_blocks(zero->model, layout, b);
        blocks += has_blocks;
        block = has_blocks && size > block ? size : block;
        largest = size > largest ? size : largest;
    }
    for (int i = 0; i < BLOCK_SLOTS && i < blocks; i++) {
        WEFT_TRY(add_slot(grads, (size_t)block * grad_size(zero), true, bill));
    }
    for (int b = 0; b < layout->bucket_count; b++) {
        grads->slot_of[b] = -1;
        if (!weft__units_has_blocks(zero->model, layout, b)) {
            grads->slot_of[b] = grads->slot_count;
            WEFT_TRY(
                add_slot(grads, (size_t)layout->buckets[b].count * grad_size(zero), false, bill));
        }
    }
    return weft__bill_malloc(bill, WEFT_MEMORY_BUFFERS,
                             (size_t)(largest / zero->ranks) * grad_size(zero), &grads->more);
}

static weft_status_t make_lean(weft_zero_t *zero, weft_grads_t *grads, weft_bill_t *bill)
{
    size_t buckets = (size_t)zero->layout.bucket_count;
    grads->slots = calloc(buckets + BLOCK_SLOTS, sizeof(*grads->slots));
    grads->slot_of = calloc(buckets + 1, sizeof(int));
    grads->summed = calloc(buckets + 1, sizeof(bool));
    if (grads->slots == NULL || grads->slot_of == NULL || grads->summed == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe %d buckets of gradients",
                          zero->layout.bucket_count);
    }
    return make_slots(zero, grads, bill);
}

static weft_status_t make_all(weft_zero_t *zero, const weft_zero_options_t *options,
                              weft_bill_t *bill, weft_grads_t *grads)
{
    bool plain = zero->stage == 0 && zero->model->grad_type == WEFT_F32;
    weft_dp_options_t dp = {.overlap = options->overlap || zero->lean,
                            .compress = zero->stage == 0 ? options->compress : WEFT_COMPRESS_NONE,
                            .layout = &zero->layout,
                            .memory = plain ? (float *)(void *)zero->all_grads : NULL,
                            .exchange = plain              ? NULL
                                        : zero->stage == 0 ? sum_in_place
                                        : zero->lean       ? scatter_slot
                                                           : scatter_in_place,
                            .exchange_arg = zero,
                            .exchange_name = zero->stage > 0 ? "reduce-scatter" : NULL};
    if (zero->lean) {
        WEFT_TRY(make_lean(zero, grads, bill));
    }
    bool squeezes = zero->stage > 0 && options->compress != WEFT_COMPRESS_NONE;
    if ((plain && zero->ranks > 1) || squeezes) {
        bill->bytes[WEFT_MEMORY_BUFFERS] += weft__squeeze_bytes(options->compress, zero->stage > 0,
                                                                &zero->layout, zero->ranks);
    }
    if (squeezes && !bill->dry) {
        WEFT_TRY(weft__squeeze_create(options->compress, true, &zero->layout, zero->compute,
                                      options->dp_comm, &grads->squeeze));
    }
    return bill->dry ? WEFT_OK
                     : weft__dp_create(zero->model, zero->compute, options->dp_comm, &dp,
                                       zero->stream, options->timeline, &grads->dp);
}

weft_status_t weft__grads_open(weft_zero_t *zero, const weft_zero_options_t *options,
                               weft_bill_t *bill, weft_grads_t **grads_p)
{
    weft_grads_t *grads = calloc(1, sizeof(*grads));
    if (grads == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the exchange of gradients");
    }
    grads->comm = options->dp_comm;
    *grads_p = grads; /* its owner closes it, after a failure too */
    return make_all(zero, options, bill, grads);
}

void weft__grads_close(weft_grads_t *grads)
{
    if (grads == NULL) {
        return;
    }
    weft__dp_destroy(grads->dp); /* first: what is queued on its stream uses the rest */
    weft__squeeze_destroy(grads->squeeze);
    for (int i = 0; i < grads->slot_count; i++) {
        weft_free(grads->slots[i].memory);
        if (grads->slots[i].sent != NULL) {
            weft_event_destroy(grads->slots[i].sent);
        }
    }
    weft_free(grads->more);
    free(grads->slots);
    free(grads->slot_of);
    free(grads->summed);
    free(grads);
}

/* ---- a step --------------------------------------------------------------------------------------------- */

float *weft__grads_residuals(const weft_zero_t *zero, int64_t *count_p)
{
    const weft_grads_t *grads = zero->grads;
    return grads->squeeze != NULL ? weft__squeeze_residuals(grads->squeeze, count_p)
                                  : weft__dp_residuals(grads->dp, count_p);
}

weft_status_t weft__grads_begin(weft_zero_t *zero, int64_t step)
{
    for (int b = 0; b < zero->layout.bucket_count && zero->lean; b++) {
        zero->grads->summed[b] = false;
    }
    WEFT_TRY(weft__dp_begin(zero->grads->dp, step));
    return zero->lean || weft__dp_memory(zero->grads->dp) != NULL
               ? WEFT_OK
               : weft_memset(zero->all_grads, 0, (size_t)zero->layout.total * grad_size(zero),
                             zero->stream);
}

void weft__grads_micro(weft_zero_t *zero, bool last)
{
    weft__dp_micro(zero->grads->dp, last || zero->lean);
}

/* The one that was sent first is free first. */
static slot_t *slot_for(weft_grads_t *grads, int bucket)
{
    slot_t *found = NULL;
    if (grads->slot_of[bucket] >= 0) {
        return &grads->slots[grads->slot_of[bucket]];
    }
    for (int i = 0; i < grads->slot_count; i++) {
        slot_t *slot = &grads->slots[i];
        if (slot->block && !slot->open && (found == NULL || slot->turn < found->turn)) {
            found = slot;
        }
    }
    return found;
}

weft_status_t weft__grads_use(weft_zero_t *zero, int bucket)
{
    weft_grads_t *grads = zero->grads;
    const weft_bucket_t *b = &zero->layout.buckets[bucket];
    slot_t *slot = zero->lean ? slot_with(grads, bucket) : NULL;
    if (!zero->lean || (slot != NULL && slot->open)) {
        return WEFT_OK;
    }
    if (slot != NULL) {
        slot->bucket = -1; /* of an earlier micro-batch */
    }
    slot = slot_for(grads, bucket);
    if (slot == NULL) {
        return weft__fail(WEFT_ERR_INVALID, "more than %d buckets of gradients are open at once",
                          BLOCK_SLOTS);
    }
    slot->bucket = bucket;
    slot->open = true;
    slot->turn = ++grads->turns;
    for (int i = b->param_first; i < b->param_first + b->param_count; i++) {
        zero->grad_views[i] = slot->memory +
                              (size_t)(zero->layout.offset[i] - b->first) * grad_size(zero);
    }
    WEFT_TRY(weft_stream_wait(zero->stream, slot->sent));
    return weft_memset(slot->memory, 0, (size_t)b->count * grad_size(zero), zero->stream);
}

void weft__grads_ready(void *arg, int first, int count)
{
    const weft_zero_t *zero = arg;
    weft__dp_ready(zero->grads->dp, first, count);
}

weft_status_t weft__grads_finish(weft_zero_t *zero)
{
    return weft__dp_finish(zero->grads->dp);
}

double weft__grads_exposed(const weft_zero_t *zero, int64_t step)
{
    return weft__dp_exposed(zero->grads->dp, step);
}
