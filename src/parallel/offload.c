/* The optimizer on the host: see optimizer.h. */
#include <stdlib.h>

#include "base/log.h"
#include "kernel/compute.h"
#include "parallel/optimizer.h"

enum { FEEDS = 2, STEPS = 2 };
#define SEGMENT ((int64_t)1 << 20) /* elements */

/* The arguments of an update live here until it ran: of a step, and of the one before, in turn. */
typedef struct job {
    weft_adamw_t args;
    weft_status_t status;
} job_t;

/* Some neighbouring elements of a piece. */
typedef struct segment {
    const weft_zero_t *zero;
    const weft_piece_t *piece;
    int64_t from, count; /* in the piece */
    job_t jobs[STEPS];
} segment_t;

typedef struct feed {
    weft_stream_h stream;
    weft_event_h done;
    char *grads; /* on the host, SEGMENT elements each */
    char *weights;
} feed_t;

struct weft_offload {
    weft_stream_h stream; /* of computation */
    segment_t *segments;
    int count;
    int turn; /* which of the jobs is next */
    feed_t feeds[FEEDS];
    float *norm; /* 2, on the host */
    weft_event_h ready;
};

/* ---- making one --------------------------------------------------------------------------- */

static int cut_pieces(weft_zero_t *const *zeros, int count, segment_t *segments)
{
    int found = 0;
    for (int s = 0; s < count; s++) {
        for (int i = 0; i < zeros[s]->pieces.count; i++) {
            const weft_piece_t *piece = &zeros[s]->pieces.list[i];
            int64_t all = weft__zero_owns(zeros[s], piece) ? piece->count : 0;
            for (int64_t at = 0; at < all; at += SEGMENT, found++) {
                int64_t left = all - at;
                segment_t segment = {.zero = zeros[s], .piece = piece, .from = at, .count = left};
                segment.count = left < SEGMENT ? left : SEGMENT;
                if (segments != NULL) {
                    segments[found] = segment;
                }
            }
        }
    }
    return found;
}

static weft_status_t make_feed(feed_t *feed, size_t element, weft_ledger_t *ledger)
{
    WEFT_TRY(weft__ledger_malloc(ledger, WEFT_MEMORY_HOST, SEGMENT * sizeof(float), &feed->grads));
    WEFT_TRY(
        weft__ledger_malloc(ledger, WEFT_MEMORY_HOST, (size_t)SEGMENT * element, &feed->weights));
    if (ledger->dry) {
        return WEFT_OK;
    }
    WEFT_TRY(weft_event_create(&feed->done));
    return weft_stream_create(&feed->stream);
}

static weft_status_t make_all(weft_offload_t *offload, weft_zero_t *const *zeros, int count,
                              weft_ledger_t *ledger)
{
    offload->count = cut_pieces(zeros, count, NULL);
    offload->segments = calloc((size_t)offload->count + 1, sizeof(segment_t));
    if (offload->segments == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe %d segments of weights",
                          offload->count);
    }
    cut_pieces(zeros, count, offload->segments);
    for (int i = 0; i < FEEDS; i++) {
        WEFT_TRY(make_feed(&offload->feeds[i], weft_dtype_size(zeros[0]->model->type), ledger));
    }
    WEFT_TRY(weft__ledger_malloc(ledger, WEFT_MEMORY_HOST, 2 * sizeof(float), &offload->norm));
    return ledger->dry ? WEFT_OK : weft_event_create(&offload->ready);
}

weft_status_t weft__offload_create(weft_zero_t *const *zeros, int count, weft_ledger_t *ledger,
                                   weft_offload_t **offload_p)
{
    weft_offload_t *offload = calloc(1, sizeof(*offload));
    if (offload == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for an optimizer on the host");
    }
    offload->stream = zeros[0]->stream;
    weft_status_t status = make_all(offload, zeros, count, ledger);
    if (status != WEFT_OK) {
        weft__offload_destroy(offload);
        return status;
    }
    *offload_p = offload;
    return WEFT_OK;
}

void weft__offload_destroy(weft_offload_t *offload)
{
    if (offload == NULL) {
        return;
    }
    for (int i = 0; i < FEEDS; i++) {
        feed_t *feed = &offload->feeds[i];
        weft_stream_destroy(feed->stream);
        weft_event_destroy(feed->done);
        weft_host_free(feed->grads);
        weft_host_free(feed->weights);
    }
    weft_event_destroy(offload->ready);
    weft_host_free(offload->norm);
    free(offload->segments);
    free(offload);
}

/* ---- an update ---------------------------------------------------------------------------- */

static void update(void *arg)
{
    job_t *job = arg;
    job->status = weft__compute_cpu.adamw(&job->args, NULL);
}

static weft_status_t queue(const weft_offload_t *offload, segment_t *segment, const feed_t *feed,
                           const weft_hyper_t *hyper)
{
    const weft_zero_t *zero = segment->zero;
    const weft_piece_t *piece = segment->piece;
    size_t element = weft_dtype_size(zero->model->type), count = (size_t)segment->count;
    size_t grad = weft_dtype_size(zero->model->grad_type);
    weft_adamw_t args = weft__optimizer_args(zero, piece, hyper, offload->norm);
    const char *grads = (const char *)args.grad + (size_t)segment->from * grad;
    char *weights = (char *)args.param + (size_t)segment->from * element;
    args.count = segment->count;
    args.param = feed->weights; /* the host's copies */
    args.grad = feed->grads;
    args.master += segment->from;
    args.m += segment->from;
    args.v += segment->from;
    segment->jobs[offload->turn].args = args;
    WEFT_TRY(weft_memcpy(feed->grads, grads, count * grad, feed->stream));
    /* A step that is skipped leaves these as they are. */
    WEFT_TRY(weft_memcpy(feed->weights, weights, count * element, feed->stream));
    WEFT_TRY(weft_stream_call(feed->stream, update, &segment->jobs[offload->turn]));
    return weft_memcpy(weights, feed->weights, count * element, feed->stream);
}

weft_status_t weft__offload_run(weft_offload_t *offload, const weft_hyper_t *hyper,
                                const float *norm)
{
    offload->turn = (offload->turn + 1) % STEPS;
    for (int i = 0; i < offload->count; i++) {
        /* Of the step before the last; its sentence is gone. */
        WEFT_TRY(offload->segments[i].jobs[offload->turn].status);
    }
    WEFT_TRY(weft_memcpy(offload->norm, norm, 2 * sizeof(float), offload->stream));
    WEFT_TRY(weft_event_record(offload->ready, offload->stream));
    for (int i = 0; i < FEEDS; i++) {
        WEFT_TRY(weft_stream_wait(offload->feeds[i].stream, offload->ready));
    }
    for (int i = 0; i < offload->count; i++) {
        WEFT_TRY(queue(offload, &offload->segments[i], &offload->feeds[i % FEEDS], hyper));
    }
    for (int i = 0; i < FEEDS; i++) {
        WEFT_TRY(weft_event_record(offload->feeds[i].done, offload->feeds[i].stream));
        WEFT_TRY(weft_stream_wait(offload->stream, offload->feeds[i].done));
    }
    return WEFT_OK;
}
