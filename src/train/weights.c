/* Where weights come from. Rank 0 makes or reads them, the others receive them, and then all compare
 * checksums: whatever went wrong on the way, two ranks never train different models. */
#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/log.h"
#include "base/try.h"
#include "parallel/agree.h"
#include "train/model_load.h"
#include "train/planned.h"
#include "train/residuals.h"
#include "train/scale.h"
#include "train/trainer.h"

/* Host memory for one parameter, as in a checkpoint and as stored here. */
typedef struct stage {
    float *whole, *local;
} stage_t;

static weft_status_t open_stage(const weft_model_t *model, stage_t *stage)
{
    size_t bytes = (size_t)weft__param_most(model) * sizeof(float);
    *stage = (stage_t){0};
    WEFT_TRY(weft_host_malloc((void **)&stage->whole, bytes));
    return weft_host_malloc((void **)&stage->local, bytes);
}

static void close_stage(stage_t *stage)
{
    if (stage->whole != NULL) {
        weft_host_free(stage->whole);
    }
    if (stage->local != NULL) {
        weft_host_free(stage->local);
    }
}

/* ---- to the device ------------------------------------------------------------------------------ */

static weft_status_t put_f32(const weft_trainer_t *t, int index, const float *local, float *row)
{
    float *to = row + weft__dp_layout(t->dp)->offset[index];
    return weft_memcpy(to, local, (size_t)t->model->params[index].count * sizeof(float), NULL);
}

static weft_status_t put_weights(const weft_trainer_t *t, int index, const float *local)
{
    if (t->model->type == WEFT_F32) {
        return put_f32(t, index, local, t->weights);
    }
    weft_cast_t cast = {.in_type = WEFT_F32,
                        .out_type = t->model->type,
                        .count = t->model->params[index].count,
                        .in = t->master + weft__dp_layout(t->dp)->offset[index],
                        .out = t->params[index]};
    WEFT_TRY(put_f32(t, index, local, t->master));
    WEFT_TRY(t->compute->cast(&cast, t->stream));
    return weft_stream_synchronize(t->stream);
}

/* ---- from a checkpoint --------------------------------------------------------------------------- */

static weft_status_t read_tensor(const weft_trainer_t *t, const weft_tensors_t *tensors,
                                 const char *name, const weft_param_t *param, const stage_t *stage)
{
    return weft__param_read(tensors, t->setup->loaded.path, name, param, stage->whole,
                            stage->local);
}

static weft_status_t read_moment(const weft_trainer_t *t, int index, const char *what, float *row,
                                 const stage_t *stage)
{
    const weft_param_t *param = &t->model->params[index];
    char name[WEFT_PARAM_NAME + 32];
    snprintf(name, sizeof(name), "%s.%s", what, param->name);
    WEFT_TRY(read_tensor(t, t->setup->loaded.optimizer, name, param, stage));
    return put_f32(t, index, stage->local, row);
}

static weft_status_t load_param(const weft_trainer_t *t, int index, const stage_t *stage)
{
    const weft_param_t *param = &t->model->params[index];
    const weft_loaded_t *loaded = &t->setup->loaded;
    char master[WEFT_PARAM_NAME + 32];
    snprintf(master, sizeof(master), "master.%s", param->name);
    /* Weights in 16 bits are a rounded copy of these. */
    if (t->setup->resumed && weft__tensors_find(loaded->optimizer, master) != NULL) {
        WEFT_TRY(read_tensor(t, loaded->optimizer, master, param, stage));
    } else {
        WEFT_TRY(read_tensor(t, loaded->model, param->name, param, stage));
    }
    WEFT_TRY(put_weights(t, index, stage->local));
    if (t->setup->resumed) {
        WEFT_TRY(read_moment(t, index, "exp_avg", t->m, stage));
        WEFT_TRY(read_moment(t, index, "exp_avg_sq", t->v, stage));
    }
    return WEFT_OK;
}

static weft_status_t fill_param(const weft_trainer_t *t, int index, const stage_t *stage)
{
    if (t->setup->has_loaded) {
        return load_param(t, index, stage);
    }
    WEFT_TRY(
        weft__param_init(&t->model->params[index], 0, (uint64_t)t->config->seed, stage->local));
    return put_weights(t, index, stage->local);
}

static weft_status_t fill_all(const weft_trainer_t *t)
{
    stage_t stage;
    if (t->setup->resumed && t->setup->loaded.optimizer == NULL) {
        return weft__fail(WEFT_ERR_INVALID, "%s has no optimizer.safetensors to go on with",
                          t->setup->loaded.path);
    }
    weft_status_t status = open_stage(t->model, &stage);
    for (int i = 0; i < t->model->param_count && status == WEFT_OK; i++) {
        status = fill_param(t, i, &stage);
    }
    close_stage(&stage);
    return status;
}

/* ---- to all ranks --------------------------------------------------------------------------------- */

static weft_status_t spread_all(const weft_trainer_t *t)
{
    size_t total = (size_t)weft__dp_layout(t->dp)->total, f32 = total * sizeof(float);
    size_t bytes = total * weft_dtype_size(t->model->type);
    WEFT_TRY(weft__agree_spread(t->weights, bytes, t->comm));
    WEFT_TRY(weft__agree_check(t->weights, bytes, "the initial weights", t->comm));
    if (t->naive) {
        return WEFT_OK;
    }
    if (t->master != NULL) {
        WEFT_TRY(weft__agree_spread(t->master, f32, t->comm));
    }
    if (t->setup->resumed) {
        WEFT_TRY(weft__agree_spread(t->m, f32, t->comm));
        WEFT_TRY(weft__agree_spread(t->v, f32, t->comm));
    }
    return WEFT_OK;
}

weft_status_t weft__weights_start(weft_trainer_t *t)
{
    t->state = (weft_train_state_t){.seed = (uint64_t)t->config->seed, .loss_scale = 1.0};
    if (t->setup->resumed) {
        t->state = t->setup->loaded.state;
    }
    weft__scale_start(t->setup, &t->state);
    if (t->worker != NULL) {
        WEFT_TRY(weft__planned_start(t));
        return weft__residuals_open(t);
    }
    if (t->rank == 0) {
        WEFT_TRY(fill_all(t));
    }
    if (t->size > 1) {
        WEFT_TRY(spread_all(t));
    }
    return weft__residuals_open(t);
}
