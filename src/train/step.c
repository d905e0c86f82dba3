/* One step, and validation. */
#include <math.h>
#include <string.h>

#include <weft/device.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/try.h"
#include "train/planned.h"

/* ---- tokens --------------------------------------------------------------------------------------- */

static size_t local_tokens(const weft_trainer_t *t)
{
    return (size_t)weft__trainer_sequences(t) * (size_t)t->config->length;
}

/* Naive: rank 0 has fetched the whole batch and hands everybody its part. */
static weft_status_t scatter_tokens(weft_trainer_t *t, uint64_t step, const int32_t **inputs_p,
                                    const int32_t **targets_p)
{
    const int32_t *sources[2] = {NULL, NULL};
    size_t tokens = local_tokens(t), all = tokens * (size_t)t->size;
    if (t->rank == 0) {
        WEFT_TRY(weft__feed_take(t->feed, step, &sources[0], &sources[1]));
    }
    for (int i = 0; i < 2; i++) {
        int32_t *here = t->scattered + (size_t)i * tokens;
        int32_t *from = t->scattered + 2 * tokens + (size_t)i * all;
        if (t->rank == 0) {
            WEFT_TRY(weft_memcpy(from, sources[i], all * sizeof(int32_t), t->stream));
        }
        WEFT_TRY(weft_scatter(t->rank == 0 ? from : NULL, here, tokens, WEFT_I32, 0, t->comm,
                              t->stream));
    }
    *inputs_p = t->scattered;
    *targets_p = t->scattered + tokens;
    return WEFT_OK;
}

static weft_status_t take_tokens(weft_trainer_t *t, uint64_t step, const int32_t **inputs_p,
                                 const int32_t **targets_p)
{
    uint64_t first = t->setup->resumed ? t->setup->loaded.state.step : 0;
    uint64_t start = weft__now_ns();
    weft_status_t status = t->naive ? scatter_tokens(t, step - first, inputs_p, targets_p)
                                    : weft__feed_take(t->feed, step - first, inputs_p, targets_p);
    weft__trace_span(t->trace, WEFT_TRACK_DATA, "take tokens", start, weft__now_ns(),
                     (int64_t)step + 1, -1);
    return status;
}

/* ---- forward and backward ---------------------------------------------------------------------------- */

static weft_status_t micro_batch(weft_trainer_t *t, int index, const int32_t *inputs,
                                 const int32_t *targets, weft_flight_t *flight)
{
    size_t tokens = (size_t)t->shape.batch * (size_t)t->shape.seq;
    size_t at = (size_t)index * tokens;
    WEFT_TRY(weft_memcpy(t->acts.tokens, inputs + at, tokens * sizeof(int32_t), t->stream));
    WEFT_TRY(weft_memcpy(t->acts.targets, targets + at, tokens * sizeof(int32_t), t->stream));
    t->pass.fresh = index == 0;
    t->pass.sample_first = (int64_t)t->rank * weft__trainer_sequences(t) + index * t->shape.batch;
    int span = weft__timeline_begin(t->timeline, WEFT_TRACK_COMPUTE, "forward", -1, t->stream);
    WEFT_TRY(weft__model_forward(&t->pass, &t->acts));
    weft__timeline_end(t->timeline, span, t->stream);
    WEFT_TRY(
        weft_memcpy(flight->losses + at, t->acts.head.losses, tokens * sizeof(float), t->stream));
    weft__dp_micro(t->dp, index + 1 == t->config->accumulate);
    span = weft__timeline_begin(t->timeline, WEFT_TRACK_COMPUTE, "backward", -1, t->stream);
    WEFT_TRY(weft__model_backward(&t->pass, &t->acts));
    weft__timeline_end(t->timeline, span, t->stream);
    return WEFT_OK;
}

/* ---- the optimizer ------------------------------------------------------------------------------------ */

static weft_status_t clip(weft_trainer_t *t, double scale)
{
    int64_t total = weft__dp_layout(t->dp)->total;
    weft_clip_t norm = {.partial = weft__dp_squares(t->dp),
                        .count = total / WEFT_SUMSQ_CHUNK,
                        .scale = (float)(1.0 / scale),
                        .max_norm = (float)t->config->clip,
                        .norm = t->norm};
    return t->compute->clip(&norm, t->stream);
}

static weft_adamw_t update_of(const weft_trainer_t *t, const weft_run_t *run,
                              const weft_flight_t *flight)
{
    size_t element = weft_dtype_size(t->model->type);
    return (weft_adamw_t){.type = t->model->type,
                          .grad_type = WEFT_F32,
                          .count = run->count,
                          .param = (char *)t->weights + (size_t)run->first * element,
                          .master = t->master != NULL ? t->master + run->first : NULL,
                          .grad = weft__dp_memory(t->dp) + run->first,
                          .m = t->m + run->first,
                          .v = t->v + run->first,
                          .grad_scale = t->norm + 1,
                          .lr = (float)flight->lr,
                          .beta1 = (float)t->config->beta1,
                          .beta2 = (float)t->config->beta2,
                          .eps = (float)t->config->eps,
                          .decay = run->decay ? (float)t->config->weight_decay : 0.0f,
                          .step = weft__trainer_updates(t, flight->step)};
}

static weft_status_t update(weft_trainer_t *t, const weft_flight_t *flight)
{
    weft_adamw_t list[WEFT_ADAMW_MOST];
    int count = 0;
    for (int i = 0; i < t->run_count; i++) {
        list[count++] = update_of(t, &t->runs[i], flight);
        if (count == WEFT_ADAMW_MOST || i + 1 == t->run_count) {
            WEFT_TRY(t->compute->adamw_list(list, count, t->stream));
            count = 0;
        }
    }
    return WEFT_OK;
}

static weft_status_t optimize(weft_trainer_t *t, weft_flight_t *flight)
{
    int span = weft__timeline_begin(t->timeline, WEFT_TRACK_COMPUTE, "optimizer", -1, t->stream);
    if (weft__dp_updates(t->dp)) {
        WEFT_TRY(clip(t, flight->loss_scale));
        WEFT_TRY(update(t, flight));
        WEFT_TRY(weft_memcpy(flight->norm, t->norm, 2 * sizeof(float), t->stream));
    } else {
        flight->norm[0] = NAN; /* only rank 0 knows it */
    }
    weft__timeline_end(t->timeline, span, t->stream);
    return weft__dp_hand_out(t->dp, t->weights, t->model->type);
}

static weft_status_t run_step(weft_trainer_t *t, const int32_t *inputs, const int32_t *targets,
                              weft_flight_t *flight)
{
    if (t->worker != NULL) {
        return weft__planned_queue(t, inputs, targets, flight);
    }
    WEFT_TRY(weft__dp_begin(t->dp, (int64_t)flight->step));
    for (int i = 0; i < t->config->accumulate; i++) {
        WEFT_TRY(micro_batch(t, i, inputs, targets, flight));
    }
    WEFT_TRY(weft__dp_finish(t->dp));
    return optimize(t, flight);
}

weft_status_t weft__step_queue(weft_trainer_t *t, uint64_t step, weft_flight_t *flight)
{
    const int32_t *inputs, *targets;
    flight->there = true;
    flight->step = step;
    flight->lr = weft__train_lr(t->config, step);
    flight->loss_scale = t->state.loss_scale;
    /* The sum over all ranks and micro-batches is then the mean over the tokens of the batch. */
    t->pass.loss_scale = (float)flight->loss_scale /
                         ((float)t->config->batch * (float)t->config->length);
    t->pass.step = step;
    t->pass.training = true;
    WEFT_TRY(weft_event_record(flight->start, t->stream));
    weft__timeline_step(t->timeline, (int64_t)step + 1); /* as they are counted in the output */
    int span = weft__timeline_begin(t->timeline, WEFT_TRACK_STEP, "step", -1, t->stream);
    WEFT_TRY(take_tokens(t, step, &inputs, &targets));
    WEFT_TRY(run_step(t, inputs, targets, flight));
    weft__timeline_end(t->timeline, span, t->stream);
    return weft_event_record(flight->end, t->stream);
}

/* ---- what came of it ------------------------------------------------------------------------------------ */

static double sum_of(const float *values, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)values[i];
    }
    return sum;
}

/* Of this rank's own time: steps do not begin and end everywhere at once. */
static double share_of(const weft_flight_t *flight, double seconds)
{
    double ms;
    bool known = weft_event_elapsed(flight->start, flight->end, &ms) == WEFT_OK && ms > 0.0;
    return known ? seconds / (ms / 1e3) : 0.0;
}

/* What this rank has to say about a step. */
static weft_vote_t vote_on(const weft_trainer_t *t, const weft_flight_t *flight)
{
    const weft_worker_result_t *result = &flight->result;
    if (t->worker != NULL) {
        return (weft_vote_t){
            .loss = result->loss_sum,
            .norm = result->norm,
            .exposed = share_of(flight, result->tensor_s + result->pipeline_s + result->exchange_s),
            .run = result->run_s,
            .waited = result->pipeline_s,
            .tensor = result->tensor_s,
            .exchange = result->exchange_s,
            .update = result->update_s};
    }
    return (weft_vote_t){
        .loss = sum_of(flight->losses, local_tokens(t)),
        .norm = (double)flight->norm[0],
        .exposed = share_of(flight, weft__dp_exposed(t->dp, (int64_t)flight->step))};
}

weft_status_t weft__step_settle(weft_trainer_t *t, weft_flight_t *flight, int stop)
{
    int device;
    weft_pool_stats_t pool;
    uint64_t first = t->setup->resumed ? t->setup->loaded.state.step : 0;
    WEFT_TRY(weft_event_synchronize(flight->end));
    flight->there = false;
    if (t->feed != NULL) {
        weft__feed_done(t->feed, flight->step - first);
    }
    weft__timeline_collect(t->timeline);
    WEFT_TRY(weft_comm_device(t->comm, &device));
    WEFT_TRY(weft_pool_stats(device, &pool));
    weft_vote_t vote = vote_on(t, flight);
    vote.memory = (double)pool.in_use_peak;
    vote.stop = stop;
    return weft__vote(t, &vote);
}

/* ---- validation -------------------------------------------------------------------------------------------- */

weft_status_t weft__step_samples(const weft_trainer_t *t, uint64_t first, uint64_t end,
                                 int64_t count, int32_t *inputs, int32_t *targets)
{
    size_t length = (size_t)t->config->length;
    for (int64_t i = 0; i < count; i++, inputs += length, targets += length) {
        uint64_t sample = first + (uint64_t)i;
        if (sample >= end) { /* no sample left: tokens that count for nothing */
            memset(inputs, 0, length * sizeof(int32_t));
            memset(targets, 0xff, length * sizeof(int32_t));
        } else if (t->setup->eval_data != NULL) {
            WEFT_TRY(weft__data_sample(t->setup->eval_data, sample, inputs, targets));
        } else {
            WEFT_TRY(weft__data_validation(t->setup->data, sample, inputs, targets));
        }
    }
    return WEFT_OK;
}

static weft_status_t validate_batch(weft_trainer_t *t, uint64_t first, uint64_t end,
                                    int32_t *inputs, double *sum_p)
{
    size_t tokens = (size_t)t->shape.batch * (size_t)t->shape.seq, bytes = tokens * sizeof(int32_t);
    float *losses = (float *)inputs + 2 * tokens;
    WEFT_TRY(weft__step_samples(t, first, end, t->shape.batch, inputs, inputs + tokens));
    WEFT_TRY(weft_memcpy(t->acts.tokens, inputs, bytes, t->stream));
    WEFT_TRY(weft_memcpy(t->acts.targets, inputs + tokens, bytes, t->stream));
    WEFT_TRY(weft__model_forward(&t->pass, &t->acts));
    WEFT_TRY(weft_memcpy(losses, t->acts.head.losses, tokens * sizeof(float), t->stream));
    WEFT_TRY(weft_stream_synchronize(t->stream));
    *sum_p += sum_of(losses, tokens);
    return WEFT_OK;
}

/* How many samples a validation looks at: what was asked for, or all there are. */
static uint64_t validation_samples(const weft_trainer_t *t)
{
    weft_data_info_t info;
    uint64_t asked = (uint64_t)t->config->eval_batches * (uint64_t)t->config->batch;
    weft__data_info(t->setup->eval_data != NULL ? t->setup->eval_data : t->setup->data, &info);
    uint64_t there = t->setup->eval_data != NULL ? info.windows : info.validation_windows;
    return asked < there ? asked : there;
}

/* The sum over this rank's share of the samples. */
static weft_status_t validate_share(weft_trainer_t *t, uint64_t samples, double *sum_p)
{
    uint64_t begin, end;
    size_t tokens = (size_t)t->shape.batch * (size_t)t->shape.seq;
    int32_t *host;
    weft__data_share(samples, t->rank, t->size, &begin, &end);
    WEFT_TRY(weft_host_malloc((void **)&host, 3 * tokens * sizeof(int32_t)));
    weft_status_t status = WEFT_OK;
    t->pass.training = false;
    for (uint64_t at = begin; at < end && status == WEFT_OK; at += (uint64_t)t->shape.batch) {
        status = validate_batch(t, at, end, host, sum_p);
    }
    t->pass.training = true;
    weft_host_free(host);
    return status;
}

weft_status_t weft__step_validate(weft_trainer_t *t, double *loss_p)
{
    uint64_t samples = validation_samples(t);
    weft_vote_t vote = {0};
    *loss_p = NAN;
    if (samples == 0) {
        return WEFT_OK;
    }
    WEFT_TRY(t->worker != NULL ? weft__planned_validate(t, samples, &vote.loss)
                               : validate_share(t, samples, &vote.loss));
    WEFT_TRY(weft__vote(t, &vote));
    double sum = 0.0;
    for (int i = 0; i < t->size; i++) {
        sum += t->votes[i].loss;
    }
    *loss_p = sum / ((double)samples * t->config->length);
    return WEFT_OK;
}
