/* Where weights come from: the seed, or whole tensors of a checkpoint, of which each rank takes its
 * parts. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "train/param_read.h"
#include "train/scale.h"
#include "train/trainer.h"

typedef struct source {
    const weft_trainer_t *t;
    float *room; /* of the largest parameter */
} source_t;

/* Weights in 16 bits are a rounded copy of master weights, which are read where they are there. */
static weft_status_t read_whole(void *arg, const weft_param_t *param, weft_state_kind_t what,
                                float *whole)
{
    static const char *const prefixes[] = {"master.", "exp_avg.", "exp_avg_sq."};
    const source_t *source = arg;
    const weft_loaded_t *loaded = &source->t->setup->loaded;
    const weft_model_t *model = weft__worker_whole(source->t->worker);
    const weft_param_t *all = &model->params[weft__model_param(model, param->key)];
    char name[WEFT_PARAM_NAME + 32];
    snprintf(name, sizeof(name), "%s%s", prefixes[what], param->name);
    bool there = source->t->setup->resumed && weft__tensors_find(loaded->optimizer, name) != NULL;
    if (what == WEFT_STATE_WEIGHTS && !there) {
        return weft__param_read(loaded->model, loaded->path, param->name, all, source->room, whole);
    }
    return weft__param_read(loaded->optimizer, loaded->path, name, all, source->room, whole);
}

static weft_status_t load(weft_trainer_t *t)
{
    const weft_model_t *whole = weft__worker_whole(t->worker);
    source_t source = {.t = t};
    if (t->setup->resumed && t->setup->loaded.optimizer == NULL) {
        return weft__fail(WEFT_ERR_INVALID, "%s has no optimizer.safetensors to go on with",
                          t->setup->loaded.path);
    }
    source.room = malloc((size_t)weft__param_most(whole) * sizeof(float));
    if (source.room == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to read a checkpoint");
    }
    weft_status_t status = weft__worker_load(t->worker, read_whole, &source, t->setup->resumed);
    free(source.room);
    return status;
}

weft_status_t weft__weights_start(weft_trainer_t *t)
{
    t->state = (weft_train_state_t){.seed = (uint64_t)t->config->seed, .loss_scale = 1.0};
    if (t->setup->resumed) {
        t->state = t->setup->loaded.state;
    }
    weft__scale_start(t->setup, &t->state);
    return t->setup->has_loaded ? load(t) : weft__worker_start(t->worker, t->state.seed);
}
