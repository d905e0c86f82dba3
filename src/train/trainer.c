/* The memory of a rank: see trainer.h. */
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/log.h"
#include "base/try.h"
#include "train/planned.h"
#include "train/residuals.h"

int64_t weft__trainer_sequences(const weft_trainer_t *trainer)
{
    return (int64_t)trainer->config->micro_batch * trainer->config->accumulate;
}

static weft_dp_options_t dp_options(const weft_train_config_t *config)
{
    return (weft_dp_options_t){.bucket_bytes = config->bucket,
                               .overlap = config->overlap,
                               .naive = strcmp(config->dp_style, "naive") == 0,
                               .fresh = true,
                               .compress = (weft_compress_t)weft__compress_named(config->compress)};
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

static weft_status_t open_model(weft_trainer_t *t)
{
    weft_slice_t slice = weft__setup_slice(t->setup);
    weft_dp_options_t options = dp_options(t->config);
    WEFT_TRY(weft__model_create(&t->setup->model, &slice, t->setup->type, WEFT_F32, &t->model));
    WEFT_TRY(
        weft__dp_create(t->model, t->compute, t->comm, &options, t->stream, t->timeline, &t->dp));
    t->naive = options.naive && t->size > 1;
    t->params = calloc((size_t)t->model->param_count, sizeof(void *));
    t->runs = calloc((size_t)t->model->param_count, sizeof(weft_run_t));
    if (t->params == NULL || t->runs == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d parameters", t->model->param_count);
    }
    t->run_count = weft__layout_runs(weft__dp_layout(t->dp), t->model, t->runs);
    return WEFT_OK;
}

static weft_status_t zeroed(void **memory_p, size_t bytes)
{
    WEFT_TRY(weft_malloc(memory_p, bytes));
    return weft_memset(*memory_p, 0, bytes, NULL);
}

static weft_status_t open_weights(weft_trainer_t *t)
{
    const weft_layout_t *layout = weft__dp_layout(t->dp);
    size_t total = (size_t)layout->total, element = weft_dtype_size(t->model->type);
    WEFT_TRY(zeroed(&t->weights, total * element));
    weft__layout_views(layout, t->weights, element, t->params);
    if (!weft__dp_updates(t->dp)) {
        return WEFT_OK; /* naive: rank 0 has the only optimizer */
    }
    if (t->model->type != WEFT_F32) {
        WEFT_TRY(zeroed((void **)&t->master, total * sizeof(float)));
    }
    WEFT_TRY(zeroed((void **)&t->m, total * sizeof(float)));
    return zeroed((void **)&t->v, total * sizeof(float));
}

static weft_status_t open_activations(weft_trainer_t *t)
{
    t->shape = WEFT_SHAPE(t->config->micro_batch, t->config->length);
    WEFT_TRY(weft_malloc(&t->acts_memory, weft__acts_bytes(t->model, &t->shape)));
    WEFT_TRY(weft_malloc(&t->scratch_memory, weft__scratch_bytes(t->model, t->compute, &t->shape)));
    WEFT_TRY(weft__acts_carve(t->model, &t->shape, t->acts_memory, &t->acts));
    t->pass = weft__pass_make(t->model, t->compute, &t->shape);
    weft__scratch_carve(t->model, t->compute, &t->shape, t->scratch_memory, &t->pass.scratch);
    t->pass.params = t->params;
    t->pass.grads = weft__dp_grads(t->dp);
    t->pass.stream = t->stream;
    t->pass.seed = (uint64_t)t->config->seed;
    t->pass.grad_ready = weft__dp_ready;
    t->pass.grad_ready_arg = t->dp;
    return WEFT_OK;
}

static weft_status_t open_small_buffers(weft_trainer_t *t)
{
    size_t tokens = (size_t)weft__trainer_sequences(t) * (size_t)t->config->length;
    WEFT_TRY(weft_malloc((void **)&t->norm, 2 * sizeof(float)));
    WEFT_TRY(weft_malloc((void **)&t->vote_memory, (size_t)(t->size + 1) * sizeof(weft_vote_t)));
    WEFT_TRY(weft_host_malloc((void **)&t->votes, (size_t)(t->size + 1) * sizeof(weft_vote_t)));
    for (int i = 0; i < WEFT_FLIGHTS; i++) {
        WEFT_TRY(weft_event_create(&t->flights[i].start));
        WEFT_TRY(weft_event_create(&t->flights[i].end));
        WEFT_TRY(weft_host_malloc((void **)&t->flights[i].losses, tokens * sizeof(float)));
        WEFT_TRY(weft_host_malloc((void **)&t->flights[i].norm, 2 * sizeof(float)));
    }
    if (t->naive) {
        size_t copies = t->rank == 0 ? (size_t)t->size + 1 : 1;
        WEFT_TRY(weft_malloc((void **)&t->scattered, 2 * copies * tokens * sizeof(int32_t)));
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
    t->part = t->rank;
    t->parts = t->size;
    if (weft__planned(t->config)) {
        WEFT_TRY(weft__planned_open(t));
    } else {
        WEFT_TRY(open_model(t));
        WEFT_TRY(open_weights(t));
        WEFT_TRY(open_activations(t));
    }
    WEFT_TRY(open_small_buffers(t));
    return weft__weights_start(t);
}

weft_status_t weft__trainer_open(weft_setup_t *setup, weft_comm_h comm, weft_trace_t *trace,
                                 weft_trainer_t *trainer)
{
    *trainer = (weft_trainer_t){
        .setup = setup, .config = setup->config, .comm = comm, .trace = trace};
    return open_all(trainer);
}

static void free_host(void *memory)
{
    if (memory != NULL) {
        weft_host_free(memory);
    }
}

static void drop_event(weft_event_h event)
{
    if (event != NULL) {
        weft_event_destroy(event);
    }
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
    weft__dp_destroy(t->dp);
    weft__timeline_destroy(t->timeline);
    for (int i = 0; i < WEFT_FLIGHTS; i++) {
        drop_event(t->flights[i].start);
        drop_event(t->flights[i].end);
        free_host(t->flights[i].losses);
        free_host(t->flights[i].norm);
    }
    free_host(t->votes);
    void *const memory[] = {t->weights, t->master,      t->m,
                            t->v,       t->acts_memory, t->scratch_memory,
                            t->norm,    t->vote_memory, t->scattered};
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
        weft_free(memory[i]);
    }
    weft__acts_cleanup(&t->acts);
    weft__model_destroy(t->model);
    free(t->params);
    free(t->runs);
    *t = (weft_trainer_t){0};
}
