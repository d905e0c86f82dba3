/* State of a worker without its plan: initial weights, whole tensors out and in. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "parallel/agree.h"
#include "parallel/worker_parts.h"

static weft_status_t host_floats(int64_t count, float **memory_p)
{
    *memory_p = malloc((size_t)(count > 0 ? count : 1) * sizeof(float));
    return *memory_p != NULL
               ? WEFT_OK
               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a tensor of %lld elements",
                            (long long)count);
}

/* The first data-parallel rank makes them for all: ranks may share cores. */
static weft_status_t start_param(weft_worker_t *w, weft_chunk_t *chunk, int index, uint64_t seed)
{
    const weft_param_t *param = &chunk->model->params[index];
    weft_status_t status = WEFT_OK;
    float *local;
    WEFT_TRY(host_floats(param->count, &local));
    if (w->mesh.index[WEFT_AXIS_DATA] == 0) {
        status = weft__param_init(param, w->mesh.index[WEFT_AXIS_TENSOR], seed, local);
    }
    if (status == WEFT_OK && w->mesh.size[WEFT_AXIS_DATA] > 1) {
        status = weft_broadcast(local, local, (size_t)param->count, WEFT_F32, 0,
                                w->mesh.comm[WEFT_AXIS_DATA], NULL);
    }
    if (status == WEFT_OK) {
        status = weft__zero_put(&chunk->zero, index, WEFT_STATE_WEIGHTS, local);
    }
    free(local);
    return status;
}

/* Weights are there: those of data-parallel ranks that keep all of them must be the same. */
static weft_status_t started(weft_worker_t *w, weft_chunk_t *chunk)
{
    weft_zero_t *zero = &chunk->zero;
    size_t bytes = (size_t)zero->layout.total * weft_dtype_size(zero->model->type);
    if (zero->stage == 3) {
        return weft__gather_updated(zero, NULL);
    }
    return zero->ranks > 1 ? weft__agree_check(zero->weights, bytes, "the initial weights",
                                               w->mesh.comm[WEFT_AXIS_DATA])
                           : WEFT_OK;
}

weft_status_t weft__worker_start(weft_worker_t *w, uint64_t seed)
{
    for (int c = 0; c < w->chunk_count; c++) {
        for (int i = 0; i < w->chunks[c].model->param_count; i++) {
            WEFT_TRY(start_param(w, &w->chunks[c], i, seed));
        }
        WEFT_TRY(started(w, &w->chunks[c]));
    }
    return WEFT_OK;
}

/* ---- whole tensors in --------------------------------------------------------------------- */

static weft_status_t load_param(weft_worker_t *w, weft_chunk_t *chunk, int index,
                                weft_state_kind_t what, weft_read_fn read, void *arg)
{
    const weft_param_t *param = &chunk->model->params[index];
    float *whole = NULL, *local = NULL;
    weft_status_t status = host_floats(param->shape[0] * param->shape[1], &whole);
    status = status == WEFT_OK ? host_floats(param->count, &local) : status;
    status = status == WEFT_OK ? read(arg, param, what, whole) : status;
    if (status == WEFT_OK) {
        weft__param_cut(param, w->mesh.index[WEFT_AXIS_TENSOR], sizeof(float), whole, local);
        status = weft__zero_put(&chunk->zero, index, what, local);
    }
    free(whole);
    free(local);
    return status;
}

weft_status_t weft__worker_load(weft_worker_t *w, weft_read_fn read, void *arg, bool moments)
{
    for (int c = 0; c < w->chunk_count; c++) {
        weft_zero_t *zero = &w->chunks[c].zero;
        for (int i = 0; i < zero->model->param_count; i++) {
            for (int what = WEFT_STATE_WEIGHTS; what <= (moments ? WEFT_STATE_V : 0); what++) {
                WEFT_TRY(load_param(w, &w->chunks[c], i, (weft_state_kind_t)what, read, arg));
            }
        }
        WEFT_TRY(started(w, &w->chunks[c]));
    }
    return WEFT_OK;
}

/* ---- whole tensors out -------------------------------------------------------------------- */

/* The first stage that has a parameter. */
static int stage_with(const weft_worker_t *w, const weft_param_t *param)
{
    const weft_plan_t *plan = &w->o.plan;
    int stages = plan->pp * plan->virtual_stages, first, count;
    if (param->key.layer < 0) {
        return param->key.role == WEFT_TOKENS || param->key.role == WEFT_POSITIONS ? 0 : stages - 1;
    }
    for (int stage = 0; stage < stages; stage++) {
        weft__plan_layers(w->o.model.layers, stages, stage, &first, &count);
        if (param->key.layer < first + count) {
            return stage;
        }
    }
    return stages - 1;
}

/* The first `count` elements of this rank's part of a parameter, complete on the first
 * data-parallel rank. Bits are added as integers, since one rank has them and the others zeros. */
static weft_status_t collect(weft_worker_t *w, weft_chunk_t *chunk, int index,
                             weft_state_kind_t what, int64_t count, float *local)
{
    bool whole = weft__zero_whole(&chunk->zero, what);
    if (!whole) {
        memset(local, 0, (size_t)count * sizeof(float));
    }
    WEFT_TRY(weft__gather_settle(&chunk->zero));
    WEFT_TRY(weft_stream_synchronize(w->o.stream));
    WEFT_TRY(weft__zero_get(&chunk->zero, index, what, count, local));
    return whole ? WEFT_OK
                 : weft_reduce(local, local, (size_t)count, WEFT_U32, WEFT_SUM, 0,
                               w->mesh.comm[WEFT_AXIS_DATA], NULL);
}

/* Put everybody's parts together on rank 0, which may be one of them. */
static weft_status_t assemble(weft_worker_t *w, const weft_param_t *param, int pp_index,
                              const float *own, float *received, float *whole)
{
    int parts = param->split == WEFT_SPLIT_NONE ? 1 : w->mesh.size[WEFT_AXIS_TENSOR];
    for (int part = 0; part < parts; part++) {
        const int index[WEFT_AXES] = {[WEFT_AXIS_PIPELINE] = pp_index, [WEFT_AXIS_TENSOR] = part};
        int from = weft__mesh_rank(&w->mesh, index);
        size_t count = (size_t)param->count;
        if (from != 0 && w->mesh.rank == from) {
            WEFT_TRY(weft_send(own, count, WEFT_F32, 0, w->mesh.world, NULL));
        } else if (w->mesh.rank == 0) {
            if (from != 0) {
                WEFT_TRY(weft_recv(received, count, WEFT_F32, from, w->mesh.world, NULL));
            }
            weft__param_put(param, part, sizeof(float), from == 0 ? own : received, whole);
        }
    }
    return WEFT_OK;
}

/* By way of memory for the parts. */
static weft_status_t gather_parts(weft_worker_t *w, const weft_param_t *param, int pp_index,
                                  weft_chunk_t *chunk, weft_state_kind_t what, float *whole)
{
    float *own = NULL, *received = NULL;
    weft_status_t status = host_floats(param->count, &own);
    status = status == WEFT_OK ? host_floats(param->count, &received) : status;
    if (status == WEFT_OK && chunk != NULL) {
        int index = weft__model_param(chunk->model, param->key);
        status = collect(w, chunk, index, what, param->count, own);
    }
    status = status == WEFT_OK ? assemble(w, param, pp_index, own, received, whole) : status;
    free(own);
    free(received);
    return status;
}

/* Ranks that have no part in it return at once; where rank 0 has all of it, nothing is in
 * between. */
static weft_status_t gather(weft_worker_t *w, const weft_param_t *param, weft_state_kind_t what,
                            float *whole)
{
    const weft_mesh_t *mesh = &w->mesh;
    int pp = mesh->size[WEFT_AXIS_PIPELINE], stage = stage_with(w, param), pp_index = stage % pp;
    weft_chunk_t *chunk = pp_index == mesh->index[WEFT_AXIS_PIPELINE] ? &w->chunks[stage / pp]
                                                                      : NULL;
    bool all = chunk != NULL && weft__zero_whole(&chunk->zero, what);
    if (all && mesh->index[WEFT_AXIS_DATA] > 0) {
        chunk = NULL;
    }
    if (all && mesh->rank == 0 && mesh->index[WEFT_AXIS_DATA] == 0 &&
        mesh->size[WEFT_AXIS_TENSOR] == 1) {
        int64_t count = param->shape[0] * param->shape[1]; /* padding is behind it */
        return collect(w, chunk, weft__model_param(chunk->model, param->key), what, count, whole);
    }
    return chunk != NULL || mesh->rank == 0 ? gather_parts(w, param, pp_index, chunk, what, whole)
                                            : WEFT_OK;
}

weft_status_t weft__worker_gather(weft_worker_t *w, int index, weft_state_kind_t what, float *whole)
{
    /* In the order of the whole model's. */
    weft_status_t status = gather(w, &w->cut->params[index], what, whole);
    w->failed = w->failed || status != WEFT_OK;
    return status;
}

void *const *weft__worker_params(weft_worker_t *w, const weft_model_t **model_p)
{
    weft_zero_t *zero = &w->chunks[0].zero;
    bool whole = w->o.plan.pp * w->o.plan.tp == 1 && zero->stage < 3;
    *model_p = w->chunks[0].model;
    return whole && weft__gather_settle(zero) == WEFT_OK ? zero->params : NULL;
}

/* ---- state with a plan -------------------------------------------------------------------- */

int weft__worker_chunks(const weft_worker_t *w)
{
    return w->chunk_count;
}

float *weft__worker_residuals(const weft_worker_t *w, int chunk, const weft_layout_t **layout_p,
                              int64_t *count_p)
{
    const weft_zero_t *zero = &w->chunks[chunk].zero;
    *layout_p = &zero->layout;
    return weft__grads_residuals(zero, count_p);
}

static weft_status_t stage_residuals(const weft_worker_options_t *o, int stage, size_t *bytes_p)
{
    weft_slice_t slice = weft__stage_slice(o, stage, 0);
    weft_zero_options_t options = weft__worker_store(o);
    weft_model_t *model;
    weft_layout_t layout;
    WEFT_TRY(weft__model_create(&o->model, &slice, o->type, o->grad_type, &model));
    weft_status_t status = weft__zero_layout(model, &options, &layout);
    if (status == WEFT_OK) {
        *bytes_p = weft__compression_residual_bytes(o->compress, o->plan.zero > 0, &layout,
                                                    o->plan.dp);
        weft__layout_destroy(&layout);
    }
    weft__model_destroy(model);
    return status;
}

weft_status_t weft__worker_residual_bytes(const weft_worker_options_t *o, uint64_t *bytes_p)
{
    int stages = o->plan.dp > 1 ? o->plan.pp * o->plan.virtual_stages : 0;
    *bytes_p = 0;
    for (int stage = 0; stage < stages; stage++) {
        size_t bytes;
        WEFT_TRY(stage_residuals(o, stage, &bytes));
        *bytes_p += (uint64_t)bytes * (uint64_t)o->plan.dp * (uint64_t)o->plan.tp;
    }
    return WEFT_OK;
}
