/* Steps of a worker: training and validation. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "parallel/worker_parts.h"

/* A rank that failed in the middle keeps others waiting until it is destroyed. If communication
 * failed, say who is meant. */
static weft_status_t note(weft_worker_t *w, weft_status_t status)
{
    if (status == WEFT_OK) {
        return WEFT_OK;
    }
    char sentence[1024];
    snprintf(sentence, sizeof(sentence), "%s", weft_last_error());
    weft_status_t broken = weft__mesh_error(&w->mesh);
    w->failed = true;
    if (broken == WEFT_OK) {
        weft__error_restore(sentence);
    }
    return broken != WEFT_OK ? broken : status;
}

/* Where the next step, or a validation, leaves what the host reads. */
static weft_outcome_t *begin(weft_worker_t *w, const int32_t *tokens, const int32_t *targets)
{
    int turn = (int)(w->queued % STEPS_MOST);
    weft__meter_step(&w->meter, turn);
    w->tokens = tokens;
    w->targets = targets;
    w->losses = w->outcomes[turn].losses;
    return &w->outcomes[turn];
}

static weft_status_t update(weft_worker_t *w, const weft_hyper_t *hyper)
{
    int stretch = weft__meter_begin(&w->meter, WEFT_STRETCH_UPDATE);
    for (int i = 0; i < w->chunk_count; i++) {
        WEFT_TRY(weft__grads_finish(&w->chunks[i].zero));
    }
    int span = weft__timeline_begin(w->o.timeline, WEFT_TRACK_COMPUTE, "optimizer", -1,
                                    w->o.stream);
    WEFT_TRY(weft__optimizer_run(w->optimizer, hyper));
    weft__timeline_end(w->o.timeline, span, w->o.stream);
    weft__meter_end(&w->meter, stretch);
    return WEFT_OK;
}

static weft_status_t queue(weft_worker_t *w, const weft_worker_input_t *input)
{
    const weft_plan_t *plan = &w->o.plan;
    double tokens = (double)plan->dp * plan->micro_batches * (double)plan->micro_batch *
                    (double)plan->length;
    if (w->queued - w->settled == STEPS_MOST) {
        return weft__fail(WEFT_ERR_INVALID, "%d steps are under way: settle one first", STEPS_MOST);
    }
    const weft_outcome_t *out = begin(w, input->tokens, input->targets);
    w->loss_scale = (float)(weft__hyper_scale(&input->hyper) / tokens);
    w->step = input->step;
    w->queued++;
    WEFT_TRY(weft__optimizer_begin(w->optimizer));
    for (int i = 0; i < w->chunk_count; i++) {
        WEFT_TRY(weft__grads_begin(&w->chunks[i].zero));
    }
    WEFT_TRY(weft__worker_run(w, true));
    WEFT_TRY(update(w, &input->hyper));
    WEFT_TRY(
        weft_memcpy(out->norm, weft__optimizer_norm(w->optimizer), 2 * sizeof(float), w->o.stream));
    return weft_event_record(out->end, w->o.stream);
}

weft_status_t weft__worker_queue(weft_worker_t *w, const weft_worker_input_t *input)
{
    return note(w, queue(w, input));
}

/* The last stage knows the losses; one tensor-parallel rank tells. */
static double sum_losses(const weft_worker_t *w, const float *losses)
{
    const weft_plan_t *plan = &w->o.plan;
    size_t count = (size_t)plan->micro_batches * (size_t)(w->shape.batch * w->shape.seq);
    double sum = 0.0;
    if (w->mesh.index[WEFT_AXIS_PIPELINE] != plan->pp - 1 || w->mesh.index[WEFT_AXIS_TENSOR] != 0) {
        return 0.0;
    }
    for (size_t i = 0; i < count; i++) {
        sum += (double)losses[i];
    }
    return sum;
}

static weft_status_t settle(weft_worker_t *w, weft_worker_result_t *result)
{
    double seconds[WEFT_STRETCHES];
    int turn = (int)(w->settled % STEPS_MOST);
    const weft_outcome_t *out = &w->outcomes[turn];
    if (w->settled == w->queued) {
        return weft__fail(WEFT_ERR_INVALID, "no step is under way");
    }
    WEFT_TRY(weft_event_synchronize(out->end));
    WEFT_TRY(weft__mesh_error(&w->mesh));
    w->settled++;
    weft__meter_take(&w->meter, turn, seconds);
    *result = (weft_worker_result_t){.loss_sum = sum_losses(w, out->losses),
                                     .norm = (double)out->norm[0],
                                     .finite = isfinite(out->norm[0]),
                                     .run_s = seconds[WEFT_STRETCH_RUN],
                                     .pipeline_s = seconds[WEFT_STRETCH_PIPELINE],
                                     .tensor_s = seconds[WEFT_STRETCH_TENSOR],
                                     .weights_s = seconds[WEFT_STRETCH_WEIGHTS],
                                     .exchange_s = seconds[WEFT_STRETCH_EXCHANGE],
                                     .norm_s = seconds[WEFT_STRETCH_NORM],
                                     .update_s = seconds[WEFT_STRETCH_UPDATE]};
    return WEFT_OK;
}

weft_status_t weft__worker_settle(weft_worker_t *w, weft_worker_result_t *result_p)
{
    return note(w, settle(w, result_p));
}

static weft_status_t evaluate(weft_worker_t *w, const int32_t *tokens, const int32_t *targets,
                              double *loss_sum_p)
{
    const weft_outcome_t *out = begin(w, tokens, targets);
    WEFT_TRY(weft__worker_run(w, false));
    WEFT_TRY(weft_event_record(out->end, w->o.stream));
    WEFT_TRY(weft_event_synchronize(out->end));
    WEFT_TRY(weft__mesh_error(&w->mesh));
    *loss_sum_p = sum_losses(w, out->losses);
    return WEFT_OK;
}

weft_status_t weft__worker_evaluate(weft_worker_t *w, const int32_t *tokens, const int32_t *targets,
                                    double *loss_sum_p)
{
    return note(w, evaluate(w, tokens, targets, loss_sum_p));
}
