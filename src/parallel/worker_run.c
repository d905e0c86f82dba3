/* Micro-batches through the pipeline, in the order of the schedule.
 *
 * Each entry of the schedule is prepared before the one in front of it runs: its room is taken and
 * what it will receive is asked for, so that messages travel while the rank computes. */
#include "base/log.h"
#include "parallel/worker_parts.h"

static size_t message_count(const weft_worker_t *w)
{
    return (size_t)(w->shape.norm_rows * w->o.model.width);
}

static size_t micro_tokens(const weft_worker_t *w)
{
    return (size_t)(w->shape.batch * w->shape.seq);
}

static weft_act_slot_t *place_with(weft_chunk_t *chunk, int micro)
{
    for (int i = 0; i < chunk->place_count; i++) {
        if (chunk->places[i].micro == micro) {
            return &chunk->places[i];
        }
    }
    return NULL;
}

/* ---- preparing ---------------------------------------------------------------------------- */

static weft_status_t prepare_forward(weft_worker_t *w, weft_chunk_t *chunk, const weft_action_t *op,
                                     bool *done_p)
{
    weft_act_slot_t *place = place_with(chunk, -1);
    *done_p = place != NULL;
    if (place == NULL) {
        return WEFT_OK;
    }
    place->micro = op->micro;
    return chunk->first
               ? WEFT_OK
               : weft__pipeline_receive(&w->pipeline, WEFT_FORWARD_IN, place->acts.x,
                                        message_count(w), w->o.type, place->freed, place->arrived);
}

static weft_status_t prepare_backward(weft_worker_t *w, weft_chunk_t *chunk, bool *done_p)
{
    weft_dx_t *dx = &w->dx[w->backwards++ % w->dx_count];
    *done_p = true;
    return chunk->last ? WEFT_OK
                       : weft__pipeline_receive(&w->pipeline, WEFT_BACKWARD_IN, dx->memory,
                                                message_count(w), w->o.type, dx->sent, dx->arrived);
}

/* Prepare the schedule up to entry `upto` as far as there is room. */
static weft_status_t prepare(weft_worker_t *w, int upto)
{
    for (bool done = true; done && w->prepared <= upto && w->prepared < w->op_count;) {
        const weft_action_t *op = &w->ops[w->prepared];
        weft_chunk_t *chunk = &w->chunks[op->chunk];
        WEFT_TRY(op->backward ? prepare_backward(w, chunk, &done)
                              : prepare_forward(w, chunk, op, &done));
        w->prepared += done;
    }
    return WEFT_OK;
}

static int begin_span(weft_worker_t *w, const char *name)
{
    return weft__timeline_begin(w->o.timeline, WEFT_TRACK_COMPUTE, name, -1, w->o.stream);
}

static void end_span(weft_worker_t *w, int span)
{
    weft__timeline_end(w->o.timeline, span, w->o.stream);
}

/* ---- running ------------------------------------------------------------------------------ */

/* Let the compute stream wait for a message. */
static weft_status_t await(weft_worker_t *w, weft_event_h arrived)
{
    int stretch = weft__meter_begin(&w->meter, WEFT_STRETCH_PIPELINE);
    weft_status_t status = weft_stream_wait(w->o.stream, arrived);
    weft__meter_end(&w->meter, stretch);
    return status;
}

static weft_status_t fetch_tokens(weft_worker_t *w, const weft_chunk_t *chunk,
                                  weft_act_slot_t *place)
{
    size_t tokens = micro_tokens(w), bytes = tokens * sizeof(int32_t);
    size_t at = (size_t)place->micro * tokens;
    if (chunk->model->slice.embed) {
        WEFT_TRY(weft_memcpy(place->acts.tokens, w->tokens + at, bytes, w->o.stream));
    }
    return chunk->model->slice.head
               ? weft_memcpy(place->acts.targets, w->targets + at, bytes, w->o.stream)
               : WEFT_OK;
}

static void set_pass(weft_worker_t *w, weft_chunk_t *chunk, int micro)
{
    const weft_plan_t *plan = &w->o.plan;
    chunk->pass.training = w->training;
    chunk->pass.step = w->step;
    chunk->pass.loss_scale = w->loss_scale;
    chunk->pass.sample_first = ((int64_t)w->mesh.index[WEFT_AXIS_DATA] * plan->micro_batches +
                                micro) *
                               plan->micro_batch;
}

static weft_status_t release(weft_worker_t *w, weft_act_slot_t *place)
{
    place->micro = -1;
    return weft_event_record(place->freed, w->o.stream);
}

static weft_status_t forward(weft_worker_t *w, weft_chunk_t *chunk, const weft_action_t *op)
{
    weft_act_slot_t *place = place_with(chunk, op->micro);
    size_t tokens = micro_tokens(w);
    set_pass(w, chunk, op->micro);
    WEFT_TRY(fetch_tokens(w, chunk, place));
    /* What was computed here before may still be leaving, if it was not kept for backward. */
    WEFT_TRY(weft_stream_wait(w->o.stream, place->sent));
    if (!chunk->first) {
        WEFT_TRY(await(w, place->arrived));
    }
    chunk->pass.fresh = weft__grads_fresh(&chunk->zero, false, chunk->forwards++ == 0);
    int span = begin_span(w, "forward");
    WEFT_TRY(weft__chunk_forward(w, chunk, place));
    end_span(w, span);
    if (chunk->last) {
        WEFT_TRY(weft_memcpy(w->losses + (size_t)op->micro * tokens, place->acts.head.losses,
                             tokens * sizeof(float), w->o.stream));
    } else {
        WEFT_TRY(weft__pipeline_send(&w->pipeline, WEFT_FORWARD_OUT,
                                     place->acts.outs[chunk->model->slice.layer_count - 1],
                                     message_count(w), w->o.type, place->sent));
    }
    return w->training ? WEFT_OK : release(w, place);
}

static weft_status_t backward(weft_worker_t *w, weft_chunk_t *chunk, const weft_action_t *op,
                              weft_dx_t *dx)
{
    weft_act_slot_t *place = place_with(chunk, op->micro);
    set_pass(w, chunk, op->micro);
    WEFT_TRY(weft_stream_wait(w->o.stream, dx->sent));
    if (!chunk->last) {
        WEFT_TRY(await(w, dx->arrived));
    }
    chunk->pass.scratch.dx = dx->memory;
    chunk->pass.fresh = weft__grads_fresh(&chunk->zero, true, chunk->backwards++ == 0);
    weft__grads_micro(&chunk->zero, chunk->backwards == w->o.plan.micro_batches);
    int span = begin_span(w, "backward");
    WEFT_TRY(weft__chunk_backward(w, chunk, place));
    end_span(w, span);
    /* The next message to come here waits until this one has left, or is used up. */
    WEFT_TRY(chunk->first ? weft_event_record(dx->sent, w->o.stream)
                          : weft__pipeline_send(&w->pipeline, WEFT_BACKWARD_OUT, dx->memory,
                                                message_count(w), w->o.type, dx->sent));
    return release(w, place);
}

static weft_status_t run_all(weft_worker_t *w)
{
    int64_t backwards = 0;
    for (int i = 0; i < w->op_count; i++) {
        const weft_action_t *op = &w->ops[i];
        weft_chunk_t *chunk = &w->chunks[op->chunk];
        WEFT_TRY(prepare(w, i + 1));
        if (w->prepared <= i) {
            return weft__fail(WEFT_ERR_INVALID, "no room for the activations of micro-batch %d",
                              op->micro);
        }
        WEFT_TRY(op->backward ? backward(w, chunk, op, &w->dx[backwards++ % w->dx_count])
                              : forward(w, chunk, op));
    }
    return WEFT_OK;
}

weft_status_t weft__worker_run(weft_worker_t *w, bool training)
{
    w->training = training;
    w->ops = training ? w->train_ops : w->eval_ops;
    w->op_count = training ? w->train_count : w->eval_count;
    w->prepared = 0;
    w->backwards = 0;
    for (int i = 0; i < w->chunk_count; i++) {
        w->chunks[i].forwards = w->chunks[i].backwards = 0;
    }
    int stretch = weft__meter_begin(&w->meter, WEFT_STRETCH_RUN);
    WEFT_TRY(run_all(w));
    weft__meter_end(&w->meter, stretch);
    return WEFT_OK;
}
