/* Steps of a worker: training and validation. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/try.h"
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

static weft_status_t queue(weft_worker_t *w, const weft_worker_input_t *input)
{
    const weft_plan_t *plan = &w->o.plan;
    double tokens = (double)plan->dp * plan->micro_batches * (double)plan->micro_batch *
                    (double)plan->length;
    w->loss_scale = (float)(weft__hyper_scale(&input->hyper) / tokens);
    w->step = input->step;
    w->tokens = input->tokens;
    w->targets = input->targets;
    for (int i = 0; i < w->chunk_count; i++) {
        WEFT_TRY(weft__grads_begin(&w->chunks[i].zero, (int64_t)input->step));
    }
    WEFT_TRY(weft__worker_run(w, true));
    int stretch = weft__meter_begin(&w->meter, WEFT_STRETCH_UPDATE);
    for (int i = 0; i < w->chunk_count; i++) {
        WEFT_TRY(weft__grads_finish(&w->chunks[i].zero));
    }
    int span = weft__timeline_begin(w->o.timeline, WEFT_TRACK_COMPUTE, "optimizer", -1,
                                    w->o.stream);
    WEFT_TRY(weft__optimizer_run(w->optimizer, &input->hyper));
    weft__timeline_end(w->o.timeline, span, w->o.stream);
    weft__meter_end(&w->meter, stretch);
    WEFT_TRY(
        weft_memcpy(w->norm, weft__optimizer_norm(w->optimizer), 2 * sizeof(float), w->o.stream));
    return weft_event_record(w->end, w->o.stream);
}

weft_status_t weft__worker_queue(weft_worker_t *w, const weft_worker_input_t *input)
{
    return note(w, queue(w, input));
}

/* The last stage knows the losses; one tensor-parallel rank tells. */
static double own_losses(const weft_worker_t *w)
{
    const weft_plan_t *plan = &w->o.plan;
    size_t count = (size_t)plan->micro_batches * (size_t)(w->shape.batch * w->shape.seq);
    double sum = 0.0;
    if (w->mesh.pp_index != plan->pp - 1 || w->mesh.tp_index != 0) {
        return 0.0;
    }
    for (size_t i = 0; i < count; i++) {
        sum += (double)w->losses[i];
    }
    return sum;
}

static weft_status_t settle(weft_worker_t *w, weft_worker_result_t *result)
{
    double seconds[WEFT_STRETCHES];
    WEFT_TRY(weft_event_synchronize(w->end));
    WEFT_TRY(weft__mesh_error(&w->mesh));
    weft__meter_take(&w->meter, seconds);
    *result = (weft_worker_result_t){.loss_sum = own_losses(w),
                                     .norm = (double)w->norm[0],
                                     .finite = isfinite(w->norm[0]),
                                     .run_s = seconds[WEFT_STRETCH_RUN],
                                     .pipeline_s = seconds[WEFT_STRETCH_PIPELINE],
                                     .tensor_s = seconds[WEFT_STRETCH_TENSOR],
                                     .update_s = seconds[WEFT_STRETCH_UPDATE]};
    for (int i = 0; i < w->chunk_count; i++) {
        result->exchange_s += weft__grads_exposed(&w->chunks[i].zero, (int64_t)w->step);
    }
    return WEFT_OK;
}

weft_status_t weft__worker_settle(weft_worker_t *w, weft_worker_result_t *result_p)
{
    return note(w, settle(w, result_p));
}

static weft_status_t evaluate(weft_worker_t *w, const int32_t *tokens, const int32_t *targets,
                              double *loss_sum_p)
{
    double seconds[WEFT_STRETCHES];
    w->tokens = tokens;
    w->targets = targets;
    WEFT_TRY(weft__worker_run(w, false));
    WEFT_TRY(weft_event_record(w->end, w->o.stream));
    WEFT_TRY(weft_event_synchronize(w->end));
    WEFT_TRY(weft__mesh_error(&w->mesh));
    weft__meter_take(&w->meter, seconds);
    *loss_sum_p = own_losses(w);
    return WEFT_OK;
}

weft_status_t weft__worker_evaluate(weft_worker_t *w, const int32_t *tokens, const int32_t *targets,
                                    double *loss_sum_p)
{
    return note(w, evaluate(w, tokens, targets, loss_sum_p));
}
