/* One step, and validation. */
#include <math.h>
#include <string.h>

#include <weft/device.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/trainer.h"

/* ---- a step ------------------------------------------------------------------------------- */

/* As the feed counts: from the first step of this run on. */
static uint64_t fed(const weft_trainer_t *t, uint64_t step)
{
    return step - (t->setup->resumed ? t->setup->loaded.state.step : 0);
}

static weft_status_t take_tokens(weft_trainer_t *t, weft_inflight_step_t *queued,
                                 weft_worker_input_t *input)
{
    uint64_t start = weft__now_ns();
    weft_status_t status = weft__feed_take(t->feed, fed(t, queued->step), &input->tokens,
                                           &input->targets);
    uint64_t end = weft__now_ns();
    queued->data_s = (double)(end - start) / 1e9;
    weft__trace_span(t->trace, WEFT_TRACK_DATA, "take tokens", start, end,
                     (int64_t)queued->step + 1, -1);
    return status;
}

static weft_worker_input_t input_of(const weft_trainer_t *t, const weft_inflight_step_t *queued)
{
    const weft_train_config_t *config = t->config;
    return (weft_worker_input_t){.step = queued->step,
                                 .hyper = {.lr = (float)queued->lr,
                                           .beta1 = (float)config->beta1,
                                           .beta2 = (float)config->beta2,
                                           .eps = (float)config->eps,
                                           .decay = (float)config->weight_decay,
                                           .max_norm = (float)config->clip,
                                           .loss_scale = (float)queued->loss_scale,
                                           /* updates: steps, less those that were skipped */
                                           .step = (int64_t)(queued->step + 1 - t->state.skipped)}};
}

weft_status_t weft__step_queue(weft_trainer_t *t, uint64_t step, weft_inflight_step_t *queued)
{
    queued->there = true;
    queued->step = step;
    queued->lr = weft__train_lr(t->config, step);
    queued->loss_scale = t->state.loss_scale;
    weft_worker_input_t input = input_of(t, queued);
    WEFT_TRY(weft_event_record(queued->start, t->stream));
    weft__timeline_step(t->timeline, (int64_t)step + 1); /* as they are counted in the output */
    int span = weft__timeline_begin(t->timeline, WEFT_TRACK_STEP, "step", -1, t->stream);
    WEFT_TRY(take_tokens(t, queued, &input));
    WEFT_TRY(weft__worker_queue(t->worker, &input));
    weft__timeline_end(t->timeline, span, t->stream);
    return weft_event_record(queued->end, t->stream);
}

/* From the end of the step before on, or from its own start where that was not right before. */
static double step_seconds(const weft_trainer_t *t, const weft_inflight_step_t *queued)
{
    const weft_inflight_step_t *before =
        &t->inflight[(queued->step + WEFT_INFLIGHT_STEPS - 1) % WEFT_INFLIGHT_STEPS];
    double ms = NAN;
    weft_event_h from = t->paused ? queued->start : before->end;
    return weft_event_elapsed(from, queued->end, &ms) == WEFT_OK ? ms / 1e3 : NAN;
}

/* Of this rank's own time: steps do not begin and end everywhere at once. */
static double share_of(const weft_inflight_step_t *queued, double seconds)
{
    double ms;
    bool known = weft_event_elapsed(queued->start, queued->end, &ms) == WEFT_OK && ms > 0.0;
    return known ? seconds / (ms / 1e3) : 0.0;
}

/* On a GPU the host takes tokens and tells statistics while the step before computes. */
static double unhidden(const weft_trainer_t *t, double seconds)
{
    return t->stream == NULL ? seconds : 0.0;
}

weft_status_t weft__step_settle(weft_trainer_t *t, weft_inflight_step_t *queued, int stop)
{
    int device;
    weft_pool_stats_t pool;
    weft_worker_result_t result;
    WEFT_TRY(weft__worker_settle(t->worker, &result));
    WEFT_TRY(weft_event_synchronize(queued->end));
    queued->there = false;
    weft__feed_done(t->feed, fed(t, queued->step));
    weft__timeline_collect(t->timeline);
    WEFT_TRY(weft_comm_device(t->comm, &device));
    WEFT_TRY(weft_pool_stats(device, &pool));
    double exposed = result.tensor_s + result.pipeline_s + result.weights_s + result.exchange_s +
                     result.norm_s;
    weft_step_stats_t mine = {.loss = result.loss_sum,
                              .grad_norm = result.norm,
                              .exposed = share_of(queued, exposed),
                              .run = result.run_s,
                              .waited = result.pipeline_s,
                              .tensor = result.tensor_s,
                              .weights = result.weights_s,
                              .exchange = result.exchange_s,
                              .update = result.update_s,
                              .norm = result.norm_s,
                              .data = unhidden(t, queued->data_s),
                              .told = t->paused ? 0.0 : unhidden(t, t->told_s),
                              .step = step_seconds(t, queued),
                              .memory = (double)pool.in_use_peak,
                              .stop = stop};
    return weft__step_stats_gather(t, &mine);
}

/* ---- validation --------------------------------------------------------------------------- */

/* Samples [first, first + count) of the validation data; those from `end` on are tokens that count
 * for nothing. */
static weft_status_t take_samples(const weft_trainer_t *t, uint64_t first, uint64_t end,
                                  size_t count, int32_t *inputs, int32_t *targets)
{
    size_t length = (size_t)t->config->length;
    for (size_t i = 0; i < count; i++, inputs += length, targets += length) {
        uint64_t sample = first + i;
        if (sample >= end) {
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

/* How many samples a validation looks at: what was asked for, or all there are. */
static uint64_t validation_samples(const weft_trainer_t *t)
{
    weft_data_info_t info;
    uint64_t asked = (uint64_t)t->config->eval_batches * (uint64_t)t->config->batch;
    weft__data_info(t->setup->eval_data != NULL ? t->setup->eval_data : t->setup->data, &info);
    uint64_t there = t->setup->eval_data != NULL ? info.windows : info.validation_windows;
    return asked < there ? asked : there;
}

/* Whole batches, so that all ranks do the same; what is too much counts for nothing. */
static weft_status_t validate(weft_trainer_t *t, uint64_t samples, int32_t *host, double *sum_p)
{
    size_t mine = (size_t)weft__trainer_sequences(t), tokens = mine * (size_t)t->config->length;
    uint64_t part = (uint64_t)weft__worker_mesh(t->worker)->index[WEFT_AXIS_DATA] * mine;
    for (uint64_t at = 0; at < samples; at += (uint64_t)t->config->batch) {
        double sum;
        WEFT_TRY(take_samples(t, at + part, samples, mine, host, host + tokens));
        WEFT_TRY(weft__worker_evaluate(t->worker, host, host + tokens, &sum));
        *sum_p += sum;
    }
    return WEFT_OK;
}

weft_status_t weft__step_validate(weft_trainer_t *t, double *loss_p)
{
    size_t tokens = (size_t)weft__trainer_sequences(t) * (size_t)t->config->length;
    uint64_t samples = validation_samples(t);
    weft_step_stats_t mine = {0};
    int32_t *host;
    *loss_p = NAN;
    if (samples == 0) {
        return WEFT_OK;
    }
    WEFT_TRY(weft_host_malloc((void **)&host, 2 * tokens * sizeof(int32_t)));
    weft_status_t status = validate(t, samples, host, &mine.loss);
    weft_host_free(host);
    WEFT_TRY(status);
    WEFT_TRY(weft__step_stats_gather(t, &mine));
    double sum = 0.0;
    for (int i = 0; i < t->size; i++) {
        sum += t->stats[i].loss;
    }
    *loss_p = sum / ((double)samples * t->config->length);
    return WEFT_OK;
}
