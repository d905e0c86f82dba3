/* Weights under ZeRO: gathered before use (stage 3), handed out after the update (1 and 2).
 *
 * Stage 3 gathers a bucket into a slot. Buckets of blocks share two slots: one is used while the
 * next is filled on a stream of its own. Each end of the model has a slot to itself.
 *
 *     comm      | gather l+1 |         | gather l+2 |
 *     compute   | block l       | block l+1       | block l+2
 *
 * What a slot holds stays valid until the slot is needed or the weights are updated, so the last
 * blocks of forward are there when backward starts. */
#include <stdlib.h>

#include "base/log.h"
#include "device/device.h"
#include "parallel/zero.h"

enum { BLOCK_SLOTS = 2 };

typedef struct slot {
    int bucket; /* held or on its way; -1: none */
    bool used;  /* between need and drop */
    bool block; /* for buckets of blocks; else for one bucket only */
    char *memory;
    weft_event_h gathered; /* on the communication stream */
    weft_event_h released; /* on the compute stream: its last use */
} slot_t;

struct weft_gather {
    weft_comm_h comm;
    weft_stream_h
        comm_stream; /* NULL without overlap and with a dry ledger: the compute stream is used */
    bool overlap;
    int slot_count;
    slot_t *slots;
    int *slot_of;         /* by bucket: of ends; -1 for blocks */
    weft_event_h *there;  /* stages 1 and 2, by bucket: handed out */
    weft_event_h updated; /* on the compute stream: this rank's shards are new */
    bool pending;         /* stages 1 and 2: weights have been handed out */
};

/* ---- making one --------------------------------------------------------------------------- */

static int64_t largest_block_bucket(const weft_zero_t *zero, int *count_p)
{
    int64_t most = 0;
    *count_p = 0;
    for (int b = 0; b < zero->layout.bucket_count; b++) {
        if (weft__layout_has_blocks(&zero->layout, zero->model, b)) {
            int64_t size = zero->layout.buckets[b].count;
            most = size > most ? size : most;
            ++*count_p;
        }
    }
    return most;
}

static weft_status_t add_slot(weft_gather_t *gather, const weft_zero_t *zero, int64_t elements,
                              bool block, weft_ledger_t *ledger)
{
    slot_t *slot = &gather->slots[gather->slot_count++];
    size_t bytes = (size_t)elements * weft_dtype_size(zero->model->type);
    slot->bucket = -1;
    slot->block = block;
    WEFT_TRY(weft__ledger_malloc(ledger, WEFT_MEMORY_BUFFERS, bytes, &slot->memory));
    if (ledger->dry) {
        return WEFT_OK;
    }
    WEFT_TRY(weft_event_create(&slot->gathered));
    return weft_event_create(&slot->released);
}

static weft_status_t make_slots(weft_gather_t *gather, const weft_zero_t *zero,
                                weft_ledger_t *ledger)
{
    int blocks;
    int64_t size = largest_block_bucket(zero, &blocks);
    for (int i = 0; i < BLOCK_SLOTS && i < blocks; i++) {
        WEFT_TRY(add_slot(gather, zero, size, true, ledger));
    }
    for (int b = 0; b < zero->layout.bucket_count; b++) {
        gather->slot_of[b] = -1;
        if (!weft__layout_has_blocks(&zero->layout, zero->model, b)) {
            gather->slot_of[b] = gather->slot_count;
            WEFT_TRY(add_slot(gather, zero, zero->layout.buckets[b].count, false, ledger));
        }
    }
    return WEFT_OK;
}

static weft_status_t make_all(weft_gather_t *gather, const weft_zero_t *zero, weft_ledger_t *ledger)
{
    size_t buckets = (size_t)zero->layout.bucket_count;
    gather->slots = calloc(buckets + BLOCK_SLOTS, sizeof(*gather->slots));
    gather->slot_of = calloc(buckets + 1, sizeof(int));
    gather->there = calloc(buckets + 1, sizeof(weft_event_h));
    if (gather->slots == NULL || gather->slot_of == NULL || gather->there == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe %d buckets of weights",
                          zero->layout.bucket_count);
    }
    if (!ledger->dry) {
        WEFT_TRY(weft_event_create(&gather->updated));
    }
    if (!ledger->dry && gather->overlap) {
        WEFT_TRY(weft__comm_stream_create(&gather->comm_stream));
    }
    for (int b = 0; b < zero->layout.bucket_count && zero->stage < 3 && !ledger->dry; b++) {
        WEFT_TRY(weft_event_create(&gather->there[b]));
    }
    return zero->stage == 3 ? make_slots(gather, zero, ledger) : WEFT_OK;
}

weft_status_t weft__gather_open(weft_zero_t *zero, weft_comm_h comm, bool overlap,
                                weft_ledger_t *ledger, weft_gather_t **gather_p)
{
    weft_gather_t *gather = calloc(1, sizeof(*gather));
    if (gather == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for ZeRO");
    }
    gather->comm = comm;
    gather->overlap = overlap;
    *gather_p = gather; /* its owner closes it, after a failure too */
    return make_all(gather, zero, ledger);
}

void weft__gather_close(weft_gather_t *gather)
{
    if (gather == NULL) {
        return;
    }
    weft_stream_destroy(gather->comm_stream); /* first: what is queued on it uses the rest */
    for (int i = 0; i < gather->slot_count; i++) {
        weft_free(gather->slots[i].memory);
        weft_event_destroy(gather->slots[i].gathered);
        weft_event_destroy(gather->slots[i].released);
    }
    for (weft_event_h *there = gather->there; there != NULL && *there != NULL; there++) {
        weft_event_destroy(*there);
    }
    weft_event_destroy(gather->updated);
    free(gather->slots);
    free(gather->slot_of);
    free(gather->there);
    free(gather);
}

/* ---- stage 3 ------------------------------------------------------------------------------ */

static weft_stream_h stream_of(const weft_zero_t *zero)
{
    return zero->gather->overlap ? zero->gather->comm_stream : zero->stream;
}

static slot_t *find_slot(const weft_gather_t *gather, int bucket)
{
    for (int i = 0; i < gather->slot_count; i++) {
        if (gather->slots[i].bucket == bucket) {
            return &gather->slots[i];
        }
    }
    return NULL;
}

/* A slot that may be overwritten, other than the one that holds `keep`; NULL if all are used. */
static slot_t *free_slot(const weft_gather_t *gather, int bucket, int keep)
{
    slot_t *found = NULL;
    if (gather->slot_of[bucket] >= 0) {
        return &gather->slots[gather->slot_of[bucket]];
    }
    for (int i = 0; i < gather->slot_count; i++) {
        slot_t *slot = &gather->slots[i];
        if (slot->block && !slot->used && (keep < 0 || slot->bucket != keep) &&
            (found == NULL || slot->bucket < 0)) {
            found = slot;
        }
    }
    return found;
}

/* `count` weights of each rank, on the communication stream. */
static weft_status_t all_gather(const weft_zero_t *zero, const void *mine, void *all, size_t count)
{
    weft_stream_h comm_stream = stream_of(zero);
    weft_dtype_t type = zero->model->type;
    int64_t bytes = (int64_t)(count * (size_t)zero->ranks * weft_dtype_size(type));
    int span = weft__timeline_begin(zero->timeline, WEFT_TRACK_WEIGHTS, "all-gather", bytes,
                                    comm_stream);
    weft_status_t status = weft_allgather(mine, all, count, type, zero->gather->comm, comm_stream);
    weft__timeline_end(zero->timeline, span, comm_stream);
    return status;
}

static weft_status_t start(weft_zero_t *zero, int bucket, slot_t *slot)
{
    const weft_bucket_t *b = &zero->layout.buckets[bucket];
    size_t element = weft_dtype_size(zero->model->type);
    size_t count = (size_t)(b->count / zero->ranks);
    const char *mine = (char *)zero->weights + (size_t)(b->first / zero->ranks) * element;
    weft_stream_h comm_stream = stream_of(zero);
    slot->bucket = bucket;
    WEFT_TRY(weft_stream_wait(comm_stream, slot->released));
    WEFT_TRY(all_gather(zero, mine, slot->memory, count));
    return weft_event_record(slot->gathered, comm_stream);
}

static void set_views(weft_zero_t *zero, int bucket, const slot_t *slot)
{
    const weft_bucket_t *b = &zero->layout.buckets[bucket];
    size_t element = weft_dtype_size(zero->model->type);
    for (int i = b->param_first; i < b->param_first + b->param_count; i++) {
        zero->params[i] = slot->memory + (size_t)(zero->layout.offset[i] - b->first) * element;
    }
}

static weft_status_t need_gathered(weft_zero_t *zero, int bucket, int next)
{
    weft_gather_t *gather = zero->gather;
    slot_t *slot = find_slot(gather, bucket);
    bool there = slot != NULL;
    if (!there) {
        slot = free_slot(gather, bucket, next);
        slot = slot != NULL ? slot : free_slot(gather, bucket, -1);
        if (slot == NULL) {
            return weft__fail(WEFT_ERR_INVALID,
                              "more than %d buckets of weights are in use at once", BLOCK_SLOTS);
        }
    }
    int stretch = weft__meter_begin(zero->meter, WEFT_STRETCH_WEIGHTS);
    if (!there) {
        WEFT_TRY(start(zero, bucket, slot));
    }
    slot->used = true;
    WEFT_TRY(weft_stream_wait(zero->stream, slot->gathered));
    weft__meter_end(zero->meter, stretch);
    set_views(zero, bucket, slot);
    if (next >= 0 && next != bucket && gather->overlap && find_slot(gather, next) == NULL) {
        slot_t *other = free_slot(gather, next, bucket);
        return other != NULL && !other->used ? start(zero, next, other) : WEFT_OK;
    }
    return WEFT_OK;
}

weft_status_t weft__gather_need(weft_zero_t *zero, int bucket, int next)
{
    if (zero->stage == 3) {
        return need_gathered(zero, bucket, next);
    }
    if (zero->stage == 0 || !zero->gather->pending) {
        return WEFT_OK;
    }
    int stretch = weft__meter_begin(zero->meter, WEFT_STRETCH_WEIGHTS);
    weft_status_t status = weft_stream_wait(zero->stream, zero->gather->there[bucket]);
    weft__meter_end(zero->meter, stretch);
    return status;
}

weft_status_t weft__gather_settle(weft_zero_t *zero)
{
    for (int b = 0; b < zero->layout.bucket_count && zero->stage > 0 && zero->stage < 3; b++) {
        WEFT_TRY(weft_stream_wait(zero->stream, zero->gather->there[b]));
    }
    return WEFT_OK;
}

weft_status_t weft__gather_drop(weft_zero_t *zero, int bucket)
{
    slot_t *slot = zero->stage == 3 ? find_slot(zero->gather, bucket) : NULL;
    if (slot == NULL) {
        return WEFT_OK;
    }
    slot->used = false;
    return weft_event_record(slot->released, zero->stream);
}

/* ---- after an update ---------------------------------------------------------------------- */

static weft_status_t hand_out(weft_zero_t *zero, int bucket)
{
    const weft_bucket_t *b = &zero->layout.buckets[bucket];
    size_t element = weft_dtype_size(zero->model->type);
    size_t count = (size_t)(b->count / zero->ranks);
    char *all = (char *)zero->weights + (size_t)b->first * element;
    weft_stream_h comm_stream = stream_of(zero);
    WEFT_TRY(all_gather(zero, all + (size_t)zero->rank * count * element, all, count));
    return weft_event_record(zero->gather->there[bucket], comm_stream);
}

weft_status_t weft__gather_updated(weft_zero_t *zero, float *norm)
{
    weft_gather_t *gather = zero->gather;
    (void)norm;
    if (zero->stage == 0) {
        return WEFT_OK;
    }
    for (int i = 0; i < gather->slot_count; i++) {
        gather->slots[i].bucket = -1;
    }
    WEFT_TRY(weft_event_record(gather->updated, zero->stream));
    WEFT_TRY(weft_stream_wait(stream_of(zero), gather->updated));
    if (zero->stage == 3) {
        return WEFT_OK;
    }
    /* From the last bucket on: it holds what forward uses first. */
    int stretch = gather->overlap ? -1 : weft__meter_begin(zero->meter, WEFT_STRETCH_EXCHANGE);
    for (int b = zero->layout.bucket_count - 1; b >= 0; b--) {
        WEFT_TRY(hand_out(zero, b));
    }
    weft__meter_end(zero->meter, stretch);
    gather->pending = true;
    return WEFT_OK;
}
