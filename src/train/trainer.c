/* What a rank is made of: see trainer.h. */
#include "train/trainer.h"

#include <string.h>

#include <weft/device.h>

#include "base/log.h"
#include "train/residuals.h"
#include "train/run_plan.h"

int64_t weft__trainer_sequences(const weft_trainer_t *trainer)
{
    return (int64_t)trainer->config->micro_batch * trainer->config->accumulate;
}

/* On a GPU the host must not wait for its own calls; on a virtual GPU a hand-off to a stream's
 * thread would cost more than it brings, as the caller has nothing else to do. */
static weft_status_t open_streams(weft_trainer_t *t)
{
    if (strcmp(t->setup->device, "cuda") != 0) {
        return WEFT_OK;
    }
    WEFT_TRY(weft_stream_create(&t->stream));
    return weft_stream_create(&t->side);
}

static weft_status_t open_worker(weft_trainer_t *t)
{
    weft_worker_options_t options = weft__run_plan_options(t->setup);
    options.stream = t->stream;
    options.timeline = t->timeline;
    return weft__worker_create(&options, t->comm, t->compute, &t->worker);
}

static weft_status_t open_stats(weft_trainer_t *t)
{
    WEFT_TRY(
        weft_malloc((void **)&t->stats_memory, (size_t)(t->size + 1) * sizeof(weft_step_stats_t)));
    WEFT_TRY(
        weft_host_malloc((void **)&t->stats, (size_t)(t->size + 1) * sizeof(weft_step_stats_t)));
    for (int i = 0; i < WEFT_INFLIGHT_STEPS; i++) {
        WEFT_TRY(weft_event_create(&t->inflight[i].start));
        WEFT_TRY(weft_event_create(&t->inflight[i].end));
    }
    return WEFT_OK;
}

static weft_status_t open_all(weft_trainer_t *t)
{
    WEFT_TRY(weft_comm_rank(t->comm, &t->rank));
    WEFT_TRY(weft_comm_size(t->comm, &t->size));
    WEFT_TRY(weft__compute(&t->compute));
    WEFT_TRY(open_streams(t));
    WEFT_TRY(weft__timeline_create(t->trace, &t->timeline));
    WEFT_TRY(open_worker(t));
    WEFT_TRY(open_stats(t));
    WEFT_TRY(weft__weights_start(t));
    return weft__residuals_open(t);
}

weft_status_t weft__trainer_open(weft_setup_t *setup, weft_comm_h comm, weft_trace_t *trace,
                                 weft_trainer_t *trainer)
{
    *trainer = (weft_trainer_t){
        .setup = setup, .config = setup->config, .comm = comm, .trace = trace};
    return open_all(trainer);
}

void weft__trainer_close(weft_trainer_t *t)
{
    weft__residuals_close(t);
    weft__worker_destroy(t->worker);
    if (t->stream != NULL) {
        weft_stream_destroy(t->stream);
        weft_stream_destroy(t->side);
    }
    weft__feed_close(t->feed);
    weft__timeline_destroy(t->timeline);
    for (int i = 0; i < WEFT_INFLIGHT_STEPS; i++) {
        weft_event_destroy(t->inflight[i].start);
        weft_event_destroy(t->inflight[i].end);
    }
    weft_host_free(t->stats);
    weft_free(t->stats_memory);
    *t = (weft_trainer_t){0};
}
