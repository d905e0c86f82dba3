/* What a worker is made of: see worker.h. */
#include "parallel/worker.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "parallel/worker_parts.h"

weft_slice_t weft__stage_slice(const weft_worker_options_t *options, int stage, int part)
{
    const weft_plan_t *plan = &options->plan;
    int stages = plan->pp * plan->virtual_stages;
    weft_slice_t slice = {.embed = stage == 0,
                          .head = stage == stages - 1,
                          .part = part,
                          .parts = plan->tp,
                          .vocab_multiple = options->vocab_multiple};
    weft__plan_layers(options->model.layers, stages, stage, &slice.layer_first, &slice.layer_count);
    return slice;
}

/* ---- sizes -------------------------------------------------------------------------------- */

static weft_shape_t shape_of(const weft_worker_options_t *options, const weft_compute_t *compute)
{
    const weft_plan_t *plan = &options->plan;
    weft_shape_t shape = WEFT_SHAPE(plan->micro_batch, plan->length);
    int64_t rows = shape.batch * shape.seq;
    int64_t words = (options->model.vocab + plan->tp - 1) / plan->tp;
    shape.head_rows = weft__head_chunk(compute, rows, words);
    shape.norm_rows = plan->sequence_parallel ? rows / plan->tp : rows;
    return shape;
}

static weft_keep_t keep_of(const weft_plan_t *plan)
{
    static const weft_keep_t keeps[] = {[WEFT_RECOMPUTE_NONE] = WEFT_KEEP_ALL,
                                        [WEFT_RECOMPUTE_SELECTIVE] = WEFT_KEEP_NO_ATTENTION,
                                        [WEFT_RECOMPUTE_FULL] = WEFT_KEEP_INPUTS};
    return keeps[plan->recompute];
}

static size_t row_bytes(const weft_worker_t *w)
{
    return (size_t)w->o.model.width * weft_dtype_size(w->o.type);
}

/* ---- schedules ---------------------------------------------------------------------------- */

static weft_status_t make_ops(const weft_worker_t *w, bool training, weft_action_t **ops_p,
                              int *count_p)
{
    *count_p = weft__schedule_length(&w->o.plan, training);
    *ops_p = calloc((size_t)*count_p, sizeof(weft_action_t));
    if (*ops_p == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a schedule of %d entries", *count_p);
    }
    weft__schedule_fill(&w->o.plan, w->mesh.index[WEFT_AXIS_PIPELINE], training, *ops_p);
    return WEFT_OK;
}

/* ---- slices ------------------------------------------------------------------------------- */

static weft_status_t make_event(const weft_worker_t *w, weft_event_h *event_p)
{
    return w->ledger.dry ? WEFT_OK : weft_event_create(event_p);
}

static weft_status_t make_place(weft_worker_t *w, weft_chunk_t *chunk, weft_act_slot_t *place)
{
    size_t rows = (size_t)(w->shape.batch * w->shape.seq);
    place->micro = -1;
    WEFT_TRY(weft__ledger_malloc(&w->ledger, WEFT_MEMORY_ACTIVATIONS,
                                 weft__kept_bytes(chunk->model, &w->shape, chunk->keep),
                                 &place->memory));
    if (chunk->model->slice.head && w->o.plan.sequence_parallel) {
        WEFT_TRY(weft__ledger_malloc(&w->ledger, WEFT_MEMORY_ACTIVATIONS, rows * row_bytes(w),
                                     &place->head_x));
    }
    WEFT_TRY(make_event(w, &place->arrived));
    WEFT_TRY(make_event(w, &place->sent));
    WEFT_TRY(make_event(w, &place->freed));
    return weft__kept_carve(chunk->model, &w->shape, chunk->keep, place->memory, w->again,
                            &place->acts);
}

static weft_status_t make_places(weft_worker_t *w, weft_chunk_t *chunk, int index)
{
    int count = weft__schedule_depth(w->train_ops, w->train_count, index);
    chunk->places = calloc((size_t)count, sizeof(weft_act_slot_t));
    if (chunk->places == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe %d micro-batches", count);
    }
    for (; chunk->place_count < count; chunk->place_count++) {
        weft_status_t status = make_place(w, chunk, &chunk->places[chunk->place_count]);
        if (status != WEFT_OK) {
            chunk->place_count++;
            return status;
        }
    }
    return WEFT_OK;
}

weft_zero_options_t weft__worker_store(const weft_worker_options_t *o)
{
    return (weft_zero_options_t){.plan = &o->plan,
                                 .bucket_bytes = o->bucket_bytes,
                                 .overlap = o->overlap,
                                 .naive = o->naive,
                                 .compress = o->compress,
                                 .stream = o->stream,
                                 .timeline = o->timeline};
}

static weft_status_t make_store(weft_worker_t *w, weft_chunk_t *chunk)
{
    const weft_plan_t *plan = &w->o.plan;
    bool tied = w->o.model.tied && plan->pp > 1;
    bool rounds = w->o.compress == WEFT_COMPRESS_FP16 || w->o.compress == WEFT_COMPRESS_INT8;
    weft_zero_options_t options = weft__worker_store(&w->o);
    options.rules = (weft_piece_rules_t){.skip_whole = w->mesh.index[WEFT_AXIS_TENSOR] > 0,
                                         .skip_tokens = tied && !chunk->first,
                                         .partial = plan->sequence_parallel,
                                         .rounded = plan->tp > 1 && rounds,
                                         .tied = tied};
    options.dp_index = w->mesh.index[WEFT_AXIS_DATA];
    options.dp_comm = w->mesh.comm[WEFT_AXIS_DATA];
    options.weights_comm = w->mesh.weights_comm;
    options.meter = &w->meter;
    return weft__zero_open(&chunk->zero, chunk->model, w->compute, &options, &w->ledger);
}

static void set_pass(weft_worker_t *w, weft_chunk_t *chunk)
{
    const weft_plan_t *plan = &w->o.plan;
    chunk->pass = weft__pass_make(chunk->model, w->compute, &w->shape);
    chunk->pass.params = chunk->zero.params;
    chunk->pass.grads = chunk->zero.grad_views;
    chunk->pass.stream = w->o.stream;
    chunk->pass.row_bias = w->mesh.index[WEFT_AXIS_TENSOR] == 0;
    chunk->pass.fuse_residual = chunk->pass.fuse_residual && plan->tp == 1;
    chunk->pass.seed = w->o.seed;
    chunk->pass.row_first = plan->sequence_parallel
                                ? w->mesh.index[WEFT_AXIS_TENSOR] * w->shape.norm_rows
                                : 0;
    chunk->pass.grad_ready = weft__grads_ready;
    chunk->pass.grad_ready_arg = &chunk->zero;
    if (w->scratch != NULL) {
        weft__scratch_carve(chunk->model, w->compute, &w->shape, w->scratch, &chunk->pass.scratch);
    }
    if (plan->pp == 1) {
        w->dx[0].memory = chunk->pass.scratch.dx;
    }
}

/* ---- memory that slices share ------------------------------------------------------------- */

static weft_status_t make_dx(weft_worker_t *w)
{
    size_t bytes = (size_t)w->shape.norm_rows * row_bytes(w);
    for (w->dx_count = 0; w->dx_count < (w->o.plan.pp > 1 ? DX_MOST : 1); w->dx_count++) {
        weft_dx_t *dx = &w->dx[w->dx_count];
        if (w->o.plan.pp > 1) { /* without neighbours, that of scratch memory will do (set_pass) */
            WEFT_TRY(weft__ledger_malloc(&w->ledger, WEFT_MEMORY_BUFFERS, bytes, &dx->memory));
        }
        WEFT_TRY(make_event(w, &dx->arrived));
        WEFT_TRY(make_event(w, &dx->sent));
    }
    return WEFT_OK;
}

static weft_status_t make_shared(weft_worker_t *w)
{
    size_t again = 0, scratch = 0, rows = (size_t)(w->shape.batch * w->shape.seq);
    for (int i = 0; i < w->chunk_count; i++) {
        const weft_chunk_t *chunk = &w->chunks[i];
        size_t a = weft__again_bytes(chunk->model, &w->shape, chunk->keep);
        size_t s = weft__scratch_bytes(chunk->model, w->compute, &w->shape);
        again = a > again ? a : again;
        scratch = s > scratch ? s : scratch;
    }
    if (again > 0) {
        WEFT_TRY(weft__ledger_malloc(&w->ledger, WEFT_MEMORY_ACTIVATIONS, again, &w->again));
    }
    if (w->o.plan.recompute == WEFT_RECOMPUTE_FULL) {
        WEFT_TRY(
            weft__ledger_malloc(&w->ledger, WEFT_MEMORY_BUFFERS, rows * row_bytes(w), &w->spare));
    }
    WEFT_TRY(weft__ledger_malloc(&w->ledger, WEFT_MEMORY_BUFFERS, scratch, &w->scratch));
    return make_dx(w);
}

static weft_status_t make_host(weft_worker_t *w)
{
    size_t tokens = (size_t)w->o.plan.micro_batches * (size_t)(w->shape.batch * w->shape.seq);
    for (int i = 0; i < STEPS_MOST; i++) {
        weft_outcome_t *out = &w->outcomes[i];
        WEFT_TRY(weft__ledger_malloc(&w->ledger, WEFT_MEMORY_HOST, tokens * sizeof(float),
                                     &out->losses));
        WEFT_TRY(weft__ledger_malloc(&w->ledger, WEFT_MEMORY_HOST, 2 * sizeof(float), &out->norm));
        WEFT_TRY(make_event(w, &out->end));
    }
    return WEFT_OK;
}

/* ---- all of it ---------------------------------------------------------------------------- */

static weft_status_t describe(weft_worker_t *w)
{
    const weft_plan_t *plan = &w->o.plan;
    weft_slice_t whole = WEFT_SLICE_WHOLE(&w->o.model), cut = whole;
    cut.parts = plan->tp;
    cut.vocab_multiple = w->o.vocab_multiple;
    WEFT_TRY(weft__model_create(&w->o.model, &whole, w->o.type, w->o.grad_type, &w->whole));
    WEFT_TRY(weft__model_create(&w->o.model, &cut, w->o.type, w->o.grad_type, &w->cut));
    w->chunks = calloc((size_t)plan->virtual_stages, sizeof(weft_chunk_t));
    w->zeros = calloc((size_t)plan->virtual_stages, sizeof(weft_zero_t *));
    if (w->chunks == NULL || w->zeros == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d slices", plan->virtual_stages);
    }
    for (; w->chunk_count < plan->virtual_stages; w->chunk_count++) {
        weft_chunk_t *chunk = &w->chunks[w->chunk_count];
        int stage = weft__stage_of(plan, w->mesh.index[WEFT_AXIS_PIPELINE], w->chunk_count);
        weft_slice_t slice = weft__stage_slice(&w->o, stage, w->mesh.index[WEFT_AXIS_TENSOR]);
        chunk->first = slice.embed;
        chunk->last = slice.head;
        chunk->keep = keep_of(plan);
        w->zeros[w->chunk_count] = &chunk->zero;
        WEFT_TRY(weft__model_create(&w->o.model, &slice, w->o.type, w->o.grad_type, &chunk->model));
    }
    return WEFT_OK;
}

static weft_status_t make_tensor(weft_worker_t *w)
{
    weft_tensor_options_t options = {.part = w->mesh.index[WEFT_AXIS_TENSOR],
                                     .parts = w->o.plan.tp,
                                     .sequence = w->o.plan.sequence_parallel && w->o.plan.tp > 1,
                                     .comm = w->mesh.comm[WEFT_AXIS_TENSOR],
                                     .stream = w->o.stream,
                                     .meter = &w->meter,
                                     .overlap_bytes = w->o.overlap ? w->o.overlap_bytes : SIZE_MAX,
                                     .gather_bytes = w->o.overlap ? w->o.gather_bytes : SIZE_MAX,
                                     .head_rows = w->shape.head_rows};
    return weft__tensor_create(&options, &w->ledger, &w->tensor);
}

static weft_status_t make_all(weft_worker_t *w)
{
    w->shape = shape_of(&w->o, w->compute);
    WEFT_TRY(describe(w));
    WEFT_TRY(make_ops(w, true, &w->train_ops, &w->train_count));
    WEFT_TRY(make_ops(w, false, &w->eval_ops, &w->eval_count));
    WEFT_TRY(make_shared(w));
    WEFT_TRY(make_host(w));
    WEFT_TRY(make_tensor(w));
    for (int i = 0; i < w->chunk_count; i++) {
        WEFT_TRY(make_places(w, &w->chunks[i], i));
        WEFT_TRY(make_store(w, &w->chunks[i]));
        set_pass(w, &w->chunks[i]);
    }
    if (!w->ledger.dry) {
        WEFT_TRY(weft__pipeline_create(&w->mesh, w->o.stream, w->o.timeline, &w->pipeline));
    }
    return weft__optimizer_create(w->zeros, w->chunk_count, &w->mesh, &w->ledger, &w->optimizer);
}

static weft_worker_t *new_worker(const weft_worker_options_t *options,
                                 const weft_compute_t *compute)
{
    weft_worker_t *w = calloc(1, sizeof(*w));
    if (w != NULL) {
        w->o = *options;
        w->o.plan.sequence_parallel = options->plan.sequence_parallel && options->plan.tp > 1;
        w->compute = compute;
        weft__meter_open(&w->meter, options->stream, options->timeline);
    }
    return w;
}

weft_status_t weft__worker_create(const weft_worker_options_t *options, weft_comm_h comm,
                                  const weft_compute_t *compute, weft_worker_t **worker_p)
{
    weft_worker_t *w = new_worker(options, compute);
    if (w == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a worker");
    }
    weft_status_t status = weft__mesh_create(&w->o.plan, options->model.tied, comm, &w->mesh);
    status = status == WEFT_OK ? make_all(w) : status;
    if (status != WEFT_OK) {
        w->failed = true;
        weft__worker_destroy(w);
        return status;
    }
    *worker_p = w;
    return WEFT_OK;
}

weft_status_t weft__worker_predict(const weft_worker_options_t *options,
                                   const weft_compute_t *compute, int place,
                                   weft_ledger_t *ledger_p)
{
    const weft_plan_t *plan = &options->plan;
    weft_worker_t *w = new_worker(options, compute);
    if (w == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a worker");
    }
    w->ledger.dry = true;
    weft_status_t status = weft__mesh_arrange(plan, place, plan->dp * plan->pp * plan->tp, NULL,
                                              &w->mesh);
    status = status == WEFT_OK ? make_all(w) : status;
    *ledger_p = w->ledger;
    weft__worker_destroy(w);
    return status;
}

/* ---- freeing ------------------------------------------------------------------------------ */

static void free_chunk(weft_chunk_t *chunk)
{
    for (int i = 0; i < chunk->place_count; i++) {
        weft_act_slot_t *place = &chunk->places[i];
        weft__acts_cleanup(&place->acts);
        weft_free(place->memory);
        weft_free(place->head_x);
        weft_event_destroy(place->arrived);
        weft_event_destroy(place->sent);
        weft_event_destroy(place->freed);
    }
    free(chunk->places);
    weft__zero_close(&chunk->zero);
    weft__model_destroy(chunk->model);
}

void weft__worker_destroy(weft_worker_t *w)
{
    if (w == NULL) {
        return;
    }
    if (w->failed) {
        weft__mesh_destroy(&w->mesh, true); /* ends what communication streams wait for */
    }
    weft_stream_synchronize(w->o.stream);
    weft__pipeline_destroy(&w->pipeline);
    weft__optimizer_destroy(w->optimizer);
    weft__tensor_destroy(w->tensor);
    for (int i = 0; w->chunks != NULL && i < w->o.plan.virtual_stages; i++) {
        free_chunk(&w->chunks[i]);
    }
    for (int i = 0; i < DX_MOST; i++) {
        weft_free(w->o.plan.pp > 1 ? w->dx[i].memory : NULL);
        weft_event_destroy(w->dx[i].arrived);
        weft_event_destroy(w->dx[i].sent);
    }
    weft_free(w->again);
    weft_free(w->spare);
    weft_free(w->scratch);
    for (int i = 0; i < STEPS_MOST; i++) {
        weft_host_free(w->outcomes[i].losses);
        weft_host_free(w->outcomes[i].norm);
        weft_event_destroy(w->outcomes[i].end);
    }
    weft__meter_close(&w->meter);
    weft__model_destroy(w->whole);
    weft__model_destroy(w->cut);
    free(w->train_ops);
    free(w->eval_ops);
    free(w->chunks);
    free(w->zeros);
    weft__mesh_destroy(&w->mesh, false);
    free(w);
}

const weft_mesh_t *weft__worker_mesh(const weft_worker_t *w)
{
    return &w->mesh;
}

const weft_model_t *weft__worker_whole(const weft_worker_t *w)
{
    return w->whole;
}

const weft_ledger_t *weft__worker_ledger(const weft_worker_t *w)
{
    return &w->ledger;
}
