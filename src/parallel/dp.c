/* Data parallelism: see dp.h. */
#include "parallel/dp.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/try.h"
#include "device/device.h"

typedef struct stretch {
    weft_event_h start, end;
} stretch_t;

struct weft_dp {
    const weft_model_t *model;
    const weft_compute_t *compute;
    weft_comm_h comm;
    int rank, ranks;
    weft_dp_options_t options;
    weft_stream_h stream; /* of backward */
    weft_stream_h lane;   /* of communication; `stream` itself without overlap */
    weft_timeline_t *timeline;

    weft_layout_t layout;
    float *memory;
    double *squares;
    void **grads;
    weft_squeeze_t *squeeze;
    weft_run_t *added; /* what a fresh pass adds to, so that it has to be 0 before */
    int added_count;

    weft_event_h *filled;                    /* by bucket: backward has completed it */
    weft_event_h summed;                     /* all buckets of the step */
    stretch_t wait[2], give[2];              /* of a step and of the one before, in turn */
    int *missing; /* by bucket: gradients that have still to come in this micro-batch */
    int next;     /* the first bucket not yet under way */
    bool last;    /* this micro-batch exchanges */
    int64_t step;
    weft_status_t status; /* the first failure inside backward, which cannot return it ... */
    char sentence[512];   /* ... and what it said */
};

/* ---- making one ------------------------------------------------------------------------------ */

static weft_status_t make_layout(const weft_model_t *model, const weft_dp_options_t *options,
                                 int ranks, weft_layout_t *layout_p)
{
    return weft__layout_create(model, (int64_t)(options->bucket_bytes / sizeof(float)),
                               weft__squeeze_align(options->compress, ranks), layout_p);
}

static size_t squares_bytes(const weft_layout_t *layout)
{
    return (size_t)(layout->total / WEFT_SUMSQ_CHUNK) * sizeof(double);
}

weft_status_t weft__dp_bytes(const weft_model_t *model, const weft_dp_options_t *options, int ranks,
                             size_t *bytes_p)
{
    weft_layout_t layout;
    WEFT_TRY(make_layout(model, options, ranks, &layout));
    *bytes_p = (size_t)layout.total * sizeof(float) + squares_bytes(&layout);
    if (ranks > 1) {
        *bytes_p += weft__squeeze_bytes(options->compress, false, &layout, ranks);
    }
    weft__layout_destroy(&layout);
    return WEFT_OK;
}

weft_status_t weft__dp_residual_bytes(const weft_model_t *model, const weft_dp_options_t *options,
                                      int ranks, size_t *bytes_p)
{
    weft_layout_t layout;
    WEFT_TRY(make_layout(model, options, ranks, &layout));
    *bytes_p = ranks > 1 ? weft__squeeze_residual_bytes(options->compress, false, &layout, ranks)
                         : 0;
    weft__layout_destroy(&layout);
    return WEFT_OK;
}

/* All that lies between gradients that are written, and what fills up buckets too: a scale of compressed
 * gradients that was no number may have got there. */
static void find_added(weft_dp_t *dp)
{
    int64_t at = 0;
    for (int i = dp->layout.param_count - 1; i >= 0; i--) { /* as they lie in memory */
        if (weft__grad_is_written(dp->model, i)) {
            int64_t first = dp->layout.offset[i];
            if (first > at) {
                dp->added[dp->added_count++] = (weft_run_t){.first = at, .count = first - at};
            }
            at = first + dp->model->params[i].count;
        }
    }
    if (dp->layout.total > at) {
        dp->added[dp->added_count++] = (weft_run_t){.first = at, .count = dp->layout.total - at};
    }
}

static weft_status_t make_host_arrays(weft_dp_t *dp)
{
    if (dp->options.layout != NULL) {
        dp->layout = *dp->options.layout;
    } else {
        WEFT_TRY(make_layout(dp->model, &dp->options, dp->ranks, &dp->layout));
    }
    dp->grads = calloc((size_t)dp->layout.param_count, sizeof(void *));
    dp->filled = calloc((size_t)dp->layout.bucket_count, sizeof(weft_event_h));
    dp->missing = calloc((size_t)dp->layout.bucket_count, sizeof(int));
    dp->added = calloc((size_t)dp->layout.param_count + 1, sizeof(weft_run_t));
    if (dp->grads == NULL || dp->filled == NULL || dp->missing == NULL || dp->added == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe %d buckets of gradients",
                          dp->layout.bucket_count);
    }
    find_added(dp);
    return WEFT_OK;
}

static weft_status_t make_stretch(stretch_t *stretch)
{
    WEFT_TRY(weft_event_create(&stretch->start));
    return weft_event_create(&stretch->end);
}

static weft_status_t make_events(weft_dp_t *dp)
{
    for (int i = 0; i < dp->layout.bucket_count; i++) {
        WEFT_TRY(weft_event_create(&dp->filled[i]));
    }
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(make_stretch(&dp->wait[i]));
        WEFT_TRY(make_stretch(&dp->give[i]));
    }
    return weft_event_create(&dp->summed);
}

static weft_status_t make_all(weft_dp_t *dp)
{
    WEFT_TRY(weft_comm_rank(dp->comm, &dp->rank));
    WEFT_TRY(weft_comm_size(dp->comm, &dp->ranks));
    dp->options.overlap = dp->options.overlap && dp->ranks > 1 && !dp->options.naive;
    WEFT_TRY(make_host_arrays(dp));
    if (dp->options.layout == NULL) {
        WEFT_TRY(weft_malloc((void **)&dp->memory, (size_t)dp->layout.total * sizeof(float)));
        WEFT_TRY(weft_malloc((void **)&dp->squares, squares_bytes(&dp->layout)));
    } else {
        dp->memory = dp->options.memory;
    }
    if (dp->memory != NULL) {
        weft__layout_views(&dp->layout, dp->memory, sizeof(float), dp->grads);
    }
    if (dp->ranks > 1 && dp->options.exchange == NULL) {
        WEFT_TRY(weft__squeeze_create(dp->options.compress, false, &dp->layout, dp->compute,
                                      dp->comm, &dp->squeeze));
    }
    if (dp->options.overlap) {
        WEFT_TRY(weft__lane_create(&dp->lane));
    }
    return make_events(dp);
}

weft_status_t weft__dp_create(const weft_model_t *model, const weft_compute_t *compute,
                              weft_comm_h comm, const weft_dp_options_t *options,
                              weft_stream_h stream, weft_timeline_t *timeline, weft_dp_t **dp_p)
{
    weft_dp_t *dp = calloc(1, sizeof(*dp));
    if (dp == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for data parallelism");
    }
    dp->model = model;
    dp->compute = compute;
    dp->comm = comm;
    dp->options = *options;
    dp->stream = stream;
    dp->timeline = timeline;
    weft_status_t status = make_all(dp);
    if (status == WEFT_OK && !dp->options.overlap) {
        dp->lane = stream;
    }
    if (status != WEFT_OK) {
        weft__dp_destroy(dp);
        return status;
    }
    *dp_p = dp;
    return WEFT_OK;
}

static void drop_event(weft_event_h event)
{
    if (event != NULL) {
        weft_event_destroy(event);
    }
}

static void drop_stretch(const stretch_t *stretch)
{
    drop_event(stretch->start);
    drop_event(stretch->end);
}

void weft__dp_destroy(weft_dp_t *dp)
{
    if (dp == NULL) {
        return;
    }
    if (dp->options.overlap && dp->lane != NULL) {
        weft_stream_destroy(dp->lane); /* first: what is queued on it uses the rest */
    }
    weft__squeeze_destroy(dp->squeeze);
    for (int i = 0; dp->filled != NULL && i < dp->layout.bucket_count; i++) {
        drop_event(dp->filled[i]);
    }
    for (int i = 0; i < 2; i++) {
        drop_stretch(&dp->wait[i]);
        drop_stretch(&dp->give[i]);
    }
    drop_event(dp->summed);
    weft_free(dp->squares);
    free(dp->grads);
    free(dp->filled);
    free(dp->missing);
    free(dp->added);
    if (dp->options.layout == NULL) {
        weft_free(dp->memory);
        weft__layout_destroy(&dp->layout);
    }
    free(dp);
}

const weft_layout_t *weft__dp_layout(const weft_dp_t *dp)
{
    return &dp->layout;
}

float *weft__dp_memory(const weft_dp_t *dp)
{
    return dp->memory;
}

const double *weft__dp_squares(const weft_dp_t *dp)
{
    return dp->squares;
}

void *const *weft__dp_grads(const weft_dp_t *dp)
{
    return dp->grads;
}

float *weft__dp_residuals(const weft_dp_t *dp, int64_t *count_p)
{
    return weft__squeeze_residuals(dp->squeeze, count_p);
}

bool weft__dp_updates(const weft_dp_t *dp)
{
    return !dp->options.naive || dp->rank == 0;
}

/* ---- a step ----------------------------------------------------------------------------------- */

static weft_status_t clear(const weft_dp_t *dp)
{
    if (!dp->options.fresh) {
        return weft_memset(dp->memory, 0, (size_t)dp->layout.total * sizeof(float), dp->stream);
    }
    for (int i = 0; i < dp->added_count; i++) {
        WEFT_TRY(weft_memset(dp->memory + dp->added[i].first, 0,
                             (size_t)dp->added[i].count * sizeof(float), dp->stream));
    }
    return WEFT_OK;
}

weft_status_t weft__dp_begin(weft_dp_t *dp, int64_t step)
{
    dp->step = step;
    dp->next = 0;
    dp->last = false;
    dp->status = WEFT_OK;
    return dp->memory == NULL ? WEFT_OK : clear(dp);
}

void weft__dp_micro(weft_dp_t *dp, bool last)
{
    dp->last = last;
    dp->next = 0;
    for (int i = 0; i < dp->layout.bucket_count; i++) {
        dp->missing[i] = dp->layout.buckets[i].param_count;
    }
}

/* The sum of one bucket, on the lane. */
static weft_status_t exchange(weft_dp_t *dp, int bucket)
{
    const weft_bucket_t *b = &dp->layout.buckets[bucket];
    const weft_dp_options_t *o = &dp->options;
    int64_t bytes = b->count *
                    (int64_t)weft_dtype_size(o->exchange ? dp->model->grad_type : WEFT_F32);
    const char *name = o->exchange_name != NULL ? o->exchange_name
                       : o->naive               ? "reduce"
                                                : "all-reduce";
    if (dp->ranks == 1) {
        return o->exchange != NULL ? o->exchange(o->exchange_arg, bucket, dp->lane) : WEFT_OK;
    }
    int span = weft__timeline_begin(dp->timeline, WEFT_TRACK_COMM, name, bytes, dp->lane);
    weft_status_t status;
    if (o->exchange != NULL) {
        status = o->exchange(o->exchange_arg, bucket, dp->lane);
    } else if (o->naive) {
        float *x = dp->memory + b->first;
        status = weft_reduce(x, x, (size_t)b->count, WEFT_F32, WEFT_SUM, 0, dp->comm, dp->lane);
    } else {
        status = weft__squeeze_allreduce(dp->squeeze, bucket, dp->memory, dp->lane);
    }
    weft__timeline_end(dp->timeline, span, dp->lane);
    return status;
}

static weft_status_t square(weft_dp_t *dp, int bucket)
{
    const weft_bucket_t *b = &dp->layout.buckets[bucket];
    weft_sumsq_t sumsq = {.type = WEFT_F32,
                          .count = b->count,
                          .in = dp->memory + b->first,
                          .partial = dp->squares + b->first / WEFT_SUMSQ_CHUNK};
    return dp->compute->sumsq(&sumsq, dp->lane);
}

/* Beside backward, which has the cores: one thread is enough for what is in the cache. */
static weft_status_t square_beside(weft_dp_t *dp, int bucket)
{
    if (dp->squares == NULL) {
        return WEFT_OK;
    }
    weft__compute_threads(1);
    weft_status_t status = square(dp, bucket);
    weft__compute_threads(0);
    return status;
}

static weft_status_t start_bucket(weft_dp_t *dp, int bucket)
{
    WEFT_TRY(weft_event_record(dp->filled[bucket], dp->stream));
    WEFT_TRY(weft_stream_wait(dp->lane, dp->filled[bucket]));
    WEFT_TRY(exchange(dp, bucket));
    WEFT_TRY(square_beside(dp, bucket));
    return bucket + 1 == dp->layout.bucket_count ? weft_event_record(dp->summed, dp->lane)
                                                 : WEFT_OK;
}

static void remember_failure(weft_dp_t *dp, weft_status_t status)
{
    if (dp->status == WEFT_OK && status != WEFT_OK) {
        dp->status = status;
        snprintf(dp->sentence, sizeof(dp->sentence), "%s", weft_last_error());
    }
}

void weft__dp_ready(void *arg, int first, int count)
{
    weft_dp_t *dp = arg;
    if (!dp->last) {
        return;
    }
    for (int i = first; i < first + count; i++) {
        dp->missing[dp->layout.bucket_of[i]]--;
    }
    /* In the order of the buckets, whatever the order of the gradients: all ranks must agree. */
    while (dp->options.overlap && dp->next < dp->layout.bucket_count &&
           dp->missing[dp->next] == 0 && dp->status == WEFT_OK) {
        remember_failure(dp, start_bucket(dp, dp->next));
        dp->next++;
    }
}

weft_status_t weft__dp_finish(weft_dp_t *dp)
{
    const char *sentence;
    if (dp->status != WEFT_OK) {
        weft__error_restore(dp->sentence);
        return dp->status;
    }
    WEFT_TRY(weft_event_record(dp->wait[dp->step & 1].start, dp->stream));
    if (dp->options.overlap) {
        WEFT_TRY(weft_stream_wait(dp->stream, dp->summed));
    } else {
        for (int i = 0; i < dp->layout.bucket_count; i++) {
            WEFT_TRY(exchange(dp, i));
        }
    }
    WEFT_TRY(weft_event_record(dp->wait[dp->step & 1].end, dp->stream));
    bool squares = dp->squares != NULL && !dp->options.overlap;
    for (int i = 0; i < dp->layout.bucket_count && squares; i++) {
        WEFT_TRY(square(dp, i));
    }
    weft_status_t broken = weft_comm_error(dp->comm, &sentence);
    return broken == WEFT_OK ? WEFT_OK : weft__fail(broken, "%s", sentence);
}

static double seconds_of(const stretch_t *stretch)
{
    double ms;
    return weft_event_elapsed(stretch->start, stretch->end, &ms) == WEFT_OK ? ms / 1e3 : 0.0;
}

double weft__dp_exposed(const weft_dp_t *dp, int64_t step)
{
    bool gives = dp->options.naive && dp->ranks > 1;
    return seconds_of(&dp->wait[step & 1]) + (gives ? seconds_of(&dp->give[step & 1]) : 0.0);
}

weft_status_t weft__dp_hand_out(weft_dp_t *dp, void *weights, weft_dtype_t type)
{
    if (!dp->options.naive || dp->ranks == 1) {
        return WEFT_OK;
    }
    int64_t bytes = dp->layout.total * (int64_t)weft_dtype_size(type);
    const stretch_t *give = &dp->give[dp->step & 1];
    int span = weft__timeline_begin(dp->timeline, WEFT_TRACK_WEIGHTS, "broadcast of weights", bytes,
                                    dp->stream);
    WEFT_TRY(weft_event_record(give->start, dp->stream));
    WEFT_TRY(
        weft_broadcast(weights, weights, (size_t)dp->layout.total, type, 0, dp->comm, dp->stream));
    weft__timeline_end(dp->timeline, span, dp->stream);
    return weft_event_record(give->end, dp->stream);
}
