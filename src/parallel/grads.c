/* Gradients of one slice: when they are exchanged, and where they are; see zero.h.
 *
 * The order of buckets is the same on all ranks, that of the layout, whatever the order in which
 * backward completes gradients. Stage 0 all-reduces each bucket; stages 1 to 3 reduce-scatter it:
 * with full gradients in place, so that afterwards a rank's shards of them are sums; lean ones from
 * a slot into the rank's shards. Both in fewer bits if asked (compression.h).
 *
 * Slots, as for weights in gather.c: buckets of blocks share two, of which one is filled by
 * backward while the other is on its way; each end has its own. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/device.h"
#include "parallel/zero.h"

enum { BLOCK_SLOTS = 2 };

typedef struct slot {
    int bucket; /* -1: none */
    bool open;  /* is being added to */
    bool block;
    char *memory;
    uint64_t turn;     /* when it was opened last */
    weft_event_h sent; /* on the communication stream: its contents have been reduced */
} slot_t;

struct weft_grads {
    weft_comm_h comm;
    bool overlap;
    weft_stream_h comm_stream;       /* of communication; the compute stream without overlap */
    weft_compression_t *compression; /* NULL: gradients travel as they are */
    weft_run_t *added;               /* what a fresh pass adds to, so that it has to be 0 before */
    int added_count;

    weft_event_h *filled; /* by bucket: backward has completed it */
    weft_event_h summed;  /* all buckets of the step */
    int *missing;         /* by bucket: gradients that have still to come in this micro-batch */
    int next;             /* the first bucket not yet under way */
    bool exchanges;       /* this micro-batch does, */
    bool last;            /* and completes the gradients */
    weft_status_t status; /* the first failure inside backward, which cannot return it ... */
    char sentence[512];   /* ... and what it said */

    /* lean */
    int slot_count;
    slot_t *slots;
    uint64_t turns;
    int *slot_of; /* by bucket: of ends; -1 for blocks */
    bool *begun;  /* by bucket: shards hold sums of this step already */
    char *more;   /* sums of one more micro-batch, of the largest shard */
};

/* ---- ways to exchange a bucket ------------------------------------------------------------ */

static size_t grad_size(const weft_zero_t *zero)
{
    return weft_dtype_size(zero->model->grad_type);
}

static weft_status_t sum(weft_zero_t *zero, int bucket, weft_stream_h comm_stream)
{
    const weft_bucket_t *b = &zero->layout.buckets[bucket];
    const weft_grads_t *grads = zero->grads;
    char *all = zero->all_grads + (size_t)b->first * grad_size(zero);
    return grads->compression != NULL
               ? weft__compression_allreduce(grads->compression, bucket,
                                             (float *)(void *)zero->all_grads, comm_stream)
               : weft_allreduce(all, all, (size_t)b->count, zero->model->grad_type, WEFT_SUM,
                                grads->comm, comm_stream);
}

/* This rank's part of the sum of a bucket, whose gradients are at `all`, into `out`. */
static weft_status_t scatter(const weft_zero_t *zero, int bucket, char *all, char *out,
                             weft_stream_h comm_stream)
{
    const weft_grads_t *grads = zero->grads;
    size_t count = (size_t)(zero->layout.buckets[bucket].count / zero->ranks);
    return grads->compression != NULL
               ? weft__compression_scatter(grads->compression, bucket, (float *)(void *)all,
                                           (float *)(void *)out, comm_stream)
               : weft_reduce_scatter(all, out, count, zero->model->grad_type, WEFT_SUM, grads->comm,
                                     comm_stream);
}

static weft_status_t scatter_in_place(weft_zero_t *zero, int bucket, weft_stream_h comm_stream)
{
    const weft_bucket_t *b = &zero->layout.buckets[bucket];
    size_t element = grad_size(zero), count = (size_t)(b->count / zero->ranks);
    char *all = zero->all_grads + (size_t)b->first * element;
    return scatter(zero, bucket, all, all + (size_t)zero->rank * count * element, comm_stream);
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

static weft_status_t scatter_slot(weft_zero_t *zero, int bucket, weft_stream_h comm_stream)
{
    weft_grads_t *grads = zero->grads;
    const weft_bucket_t *b = &zero->layout.buckets[bucket];
    slot_t *slot = slot_with(grads, bucket);
    char *shard = zero->grad_shards + (size_t)(b->first / zero->ranks) * grad_size(zero);
    int64_t count = b->count / zero->ranks;
    bool first = !grads->begun[bucket];
    WEFT_TRY(scatter(zero, bucket, slot->memory, first ? shard : grads->more, comm_stream));
    if (!first) {
        weft_dropout_t add = {.type = zero->model->grad_type,
                              .rows = 1,
                              .width = count,
                              .in = grads->more,
                              .residual = shard,
                              .out = shard};
        WEFT_TRY(zero->compute->dropout(&add, comm_stream));
    }
    grads->begun[bucket] = true;
    slot->open = false;
    return weft_event_record(slot->sent, comm_stream);
}

const weft_exchange_ops_t weft__exchange_sum = {.name = "all-reduce", .gradients = sum};

const weft_exchange_ops_t weft__exchange_scatter = {
    .name = "reduce-scatter", .gradients = scatter_in_place, .updated = weft__gather_updated};

const weft_exchange_ops_t weft__exchange_lean = {
    .name = "reduce-scatter", .gradients = scatter_slot, .updated = weft__gather_updated};

/* ---- making one --------------------------------------------------------------------------- */

static weft_status_t add_slot(weft_grads_t *grads, size_t bytes, bool block, weft_ledger_t *ledger)
{
    slot_t *slot = &grads->slots[grads->slot_count++];
    slot->bucket = -1;
    slot->block = block;
    WEFT_TRY(weft__ledger_malloc(ledger, WEFT_MEMORY_BUFFERS, bytes, &slot->memory));
    return ledger->dry ? WEFT_OK : weft_event_create(&slot->sent);
}

static weft_status_t make_slots(weft_zero_t *zero, weft_grads_t *grads, weft_ledger_t *ledger)
{
    const weft_layout_t *layout = &zero->layout;
    int64_t block = 0, largest = 0;
    int blocks = 0;
    for (int b = 0; b < layout->bucket_count; b++) {
        int64_t size = layout->buckets[b].count;
        bool has_blocks = weft__layout_has_blocks(layout, zero->model, b);
        blocks += has_blocks;
        block = has_blocks && size > block ? size : block;
        largest = size > largest ? size : largest;
    }
    for (int i = 0; i < BLOCK_SLOTS && i < blocks; i++) {
        WEFT_TRY(add_slot(grads, (size_t)block * grad_size(zero), true, ledger));
    }
    for (int b = 0; b < layout->bucket_count; b++) {
        grads->slot_of[b] = -1;
        if (!weft__layout_has_blocks(layout, zero->model, b)) {
            grads->slot_of[b] = grads->slot_count;
            WEFT_TRY(
                add_slot(grads, (size_t)layout->buckets[b].count * grad_size(zero), false, ledger));
        }
    }
    return weft__ledger_malloc(ledger, WEFT_MEMORY_BUFFERS,
                               (size_t)(largest / zero->ranks) * grad_size(zero), &grads->more);
}

static weft_status_t make_lean(weft_zero_t *zero, weft_grads_t *grads, weft_ledger_t *ledger)
{
    size_t buckets = (size_t)zero->layout.bucket_count;
    grads->slots = calloc(buckets + BLOCK_SLOTS, sizeof(*grads->slots));
    grads->slot_of = calloc(buckets + 1, sizeof(int));
    grads->begun = calloc(buckets + 1, sizeof(bool));
    if (grads->slots == NULL || grads->slot_of == NULL || grads->begun == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe %d buckets of gradients",
                          zero->layout.bucket_count);
    }
    return make_slots(zero, grads, ledger);
}

static weft_status_t make_buckets(weft_zero_t *zero, weft_grads_t *grads)
{
    size_t buckets = (size_t)zero->layout.bucket_count;
    grads->filled = calloc(buckets + 1, sizeof(weft_event_h));
    grads->missing = calloc(buckets + 1, sizeof(int));
    grads->added = calloc((size_t)zero->layout.param_count + 1, sizeof(weft_run_t));
    if (grads->filled == NULL || grads->missing == NULL || grads->added == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe %d buckets of gradients",
                          zero->layout.bucket_count);
    }
    grads->added_count = weft__layout_added(&zero->layout, zero->model, grads->added);
    return WEFT_OK;
}

static weft_status_t make_streams(weft_zero_t *zero, weft_grads_t *grads)
{
    grads->comm_stream = zero->stream;
    if (grads->overlap) {
        WEFT_TRY(weft__comm_stream_create(&grads->comm_stream));
    }
    for (int i = 0; i < zero->layout.bucket_count; i++) {
        WEFT_TRY(weft_event_create(&grads->filled[i]));
    }
    return weft_event_create(&grads->summed);
}

static weft_status_t make_all(weft_zero_t *zero, const weft_zero_options_t *options,
                              weft_ledger_t *ledger, weft_grads_t *grads)
{
    bool compresses = zero->ranks > 1 && options->compress != WEFT_COMPRESS_NONE;
    WEFT_TRY(make_buckets(zero, grads));
    if (zero->lean) {
        WEFT_TRY(make_lean(zero, grads, ledger));
    }
    if (compresses) {
        ledger->bytes[WEFT_MEMORY_BUFFERS] += weft__compression_bytes(
            options->compress, zero->stage > 0, &zero->layout, zero->ranks);
    }
    if (ledger->dry) {
        return WEFT_OK;
    }
    if (compresses) {
        WEFT_TRY(weft__compression_create(options->compress, zero->stage > 0, &zero->layout,
                                          zero->compute, options->dp_comm, &grads->compression));
    }
    return make_streams(zero, grads);
}

weft_status_t weft__grads_open(weft_zero_t *zero, const weft_zero_options_t *options,
                               weft_ledger_t *ledger, weft_grads_t **grads_p)
{
    weft_grads_t *grads = calloc(1, sizeof(*grads));
    if (grads == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the exchange of gradients");
    }
    grads->comm = options->dp_comm;
    /* Slots are emptied while backward goes on. */
    grads->overlap = zero->ranks > 1 && (zero->lean || (options->overlap && !options->naive));
    *grads_p = grads; /* its owner closes it, after a failure too */
    return make_all(zero, options, ledger, grads);
}

void weft__grads_close(weft_grads_t *grads)
{
    if (grads == NULL) {
        return;
    }
    if (grads->overlap && grads->comm_stream != NULL) {
        weft_stream_destroy(grads->comm_stream); /* first: what is queued on it uses the rest */
    }
    weft__compression_destroy(grads->compression);
    for (weft_event_h *filled = grads->filled; filled != NULL && *filled != NULL; filled++) {
        weft_event_destroy(*filled);
    }
    for (int i = 0; i < grads->slot_count; i++) {
        weft_free(grads->slots[i].memory);
        weft_event_destroy(grads->slots[i].sent);
    }
    weft_event_destroy(grads->summed);
    weft_free(grads->more);
    free(grads->slots);
    free(grads->slot_of);
    free(grads->begun);
    free(grads->filled);
    free(grads->missing);
    free(grads->added);
    free(grads);
}

weft_comm_h weft__grads_comm(const weft_zero_t *zero)
{
    return zero->grads->comm;
}

float *weft__grads_residuals(const weft_zero_t *zero, int64_t *count_p)
{
    return weft__compression_residuals(zero->grads->compression, count_p);
}

/* ---- a step ------------------------------------------------------------------------------- */

/* Make zero what a fresh pass does not write in a part of the layout, which lies at `memory`. */
static weft_status_t clear(const weft_zero_t *zero, char *memory, int64_t first, int64_t count)
{
    const weft_grads_t *grads = zero->grads;
    size_t element = grad_size(zero);
    for (int i = 0; i < grads->added_count; i++) {
        int64_t from = grads->added[i].first, to = from + grads->added[i].count;
        from = from > first ? from : first;
        to = to < first + count ? to : first + count;
        if (from < to) {
            WEFT_TRY(weft_memset(memory + (size_t)(from - first) * element, 0,
                                 (size_t)(to - from) * element, zero->stream));
        }
    }
    return WEFT_OK;
}

weft_status_t weft__grads_begin(weft_zero_t *zero)
{
    weft_grads_t *grads = zero->grads;
    grads->next = 0;
    grads->exchanges = grads->last = false;
    grads->status = WEFT_OK;
    for (int b = 0; b < zero->layout.bucket_count && zero->lean; b++) {
        grads->begun[b] = false;
    }
    return zero->lean ? WEFT_OK : clear(zero, zero->all_grads, 0, zero->layout.total);
}

void weft__grads_micro(weft_zero_t *zero, bool last)
{
    weft_grads_t *grads = zero->grads;
    grads->last = last;
    grads->exchanges = last || zero->lean;
    grads->next = 0;
    for (int i = 0; i < zero->layout.bucket_count; i++) {
        grads->missing[i] = zero->layout.buckets[i].param_count;
    }
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
    /* The head's is opened by forward and again by backward, which does not write it. */
    return slot->block
               ? clear(zero, slot->memory, b->first, b->count)
               : weft_memset(slot->memory, 0, (size_t)b->count * grad_size(zero), zero->stream);
}

static weft_status_t exchange(weft_zero_t *zero, int bucket)
{
    weft_stream_h comm_stream = zero->grads->comm_stream;
    int64_t bytes = zero->layout.buckets[bucket].count * (int64_t)grad_size(zero);
    if (zero->ranks == 1) {
        return WEFT_OK;
    }
    int span = weft__timeline_begin(zero->timeline, WEFT_TRACK_COMM, zero->exchange->name, bytes,
                                    comm_stream);
    weft_status_t status = zero->exchange->gradients(zero, bucket, comm_stream);
    weft__timeline_end(zero->timeline, span, comm_stream);
    return status;
}

static weft_status_t start_bucket(weft_zero_t *zero, int bucket)
{
    weft_grads_t *grads = zero->grads;
    WEFT_TRY(weft_event_record(grads->filled[bucket], zero->stream));
    WEFT_TRY(weft_stream_wait(grads->comm_stream, grads->filled[bucket]));
    WEFT_TRY(exchange(zero, bucket));
    if (grads->last) {
        weft__compute_threads(1); /* beside backward, which has the cores */
        weft_status_t status = weft__zero_square(zero, bucket, false, grads->comm_stream);
        weft__compute_threads(0);
        WEFT_TRY(status);
    }
    return bucket + 1 == zero->layout.bucket_count
               ? weft_event_record(grads->summed, grads->comm_stream)
               : WEFT_OK;
}

static void remember_failure(weft_grads_t *grads, weft_status_t status)
{
    if (grads->status == WEFT_OK && status != WEFT_OK) {
        grads->status = status;
        snprintf(grads->sentence, sizeof(grads->sentence), "%s", weft_last_error());
    }
}

void weft__grads_ready(void *arg, int first, int count)
{
    weft_zero_t *zero = arg;
    weft_grads_t *grads = zero->grads;
    if (!grads->exchanges) {
        return;
    }
    for (int i = first; i < first + count; i++) {
        grads->missing[zero->layout.bucket_of[i]]--;
    }
    /* In the order of the buckets, whatever the order of the gradients: all ranks must agree. */
    while (grads->overlap && grads->next < zero->layout.bucket_count &&
           grads->missing[grads->next] == 0 && grads->status == WEFT_OK) {
        remember_failure(grads, start_bucket(zero, grads->next));
        grads->next++;
    }
}

weft_status_t weft__grads_finish(weft_zero_t *zero)
{
    weft_grads_t *grads = zero->grads;
    const char *sentence;
    if (grads->status != WEFT_OK) {
        weft__error_restore(grads->sentence);
        return grads->status;
    }
    int stretch = weft__meter_begin(zero->meter, WEFT_STRETCH_EXCHANGE);
    if (grads->overlap) {
        WEFT_TRY(weft_stream_wait(zero->stream, grads->summed));
    }
    for (int i = 0; i < zero->layout.bucket_count && !grads->overlap; i++) {
        WEFT_TRY(exchange(zero, i));
    }
    weft__meter_end(zero->meter, stretch);
    if (!grads->overlap) {
        WEFT_TRY(weft__zero_square(zero, WEFT_ALL_BUCKETS, false, zero->stream));
    }
    weft_status_t broken = weft_comm_error(grads->comm, &sentence);
    return broken == WEFT_OK ? WEFT_OK : weft__fail(broken, "%s", sentence);
}
