/* Text written during training, to see what the model has learned. */
#include <stdlib.h>

#include <weft/device.h>

#include "base/log.h"
#include "train/trainer.h"

/* ---- a model that no rank has ------------------------------------------------------------- */

/* A whole model on rank 0, for the time of writing some text. */
typedef struct gathered {
    weft_model_t *model;
    void **params;
    char *memory;
    float *room;
} gathered_t;

static weft_status_t open_gathered(const weft_trainer_t *t, gathered_t *g)
{
    weft_slice_t slice = WEFT_SLICE_WHOLE(&t->setup->model);
    *g = (gathered_t){0};
    WEFT_TRY(weft__model_create(&t->setup->model, &slice, WEFT_F32, WEFT_F32, &g->model));
    if (t->rank != 0) {
        return WEFT_OK;
    }
    g->params = calloc((size_t)g->model->param_count, sizeof(void *));
    g->room = malloc((size_t)g->model->element_count * sizeof(float));
    if (g->params == NULL || g->room == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to gather the model on rank 0");
    }
    return weft_malloc((void **)&g->memory, (size_t)g->model->element_count * sizeof(float));
}

static weft_status_t fill_gathered(const weft_trainer_t *t, gathered_t *g)
{
    size_t at = 0;
    for (int i = 0; i < g->model->param_count; i++) {
        size_t bytes = (size_t)g->model->params[i].count * sizeof(float);
        WEFT_TRY(weft__worker_gather(t->worker, i, WEFT_STATE_WEIGHTS, g->room));
        if (t->rank == 0) {
            g->params[i] = g->memory + at;
            WEFT_TRY(weft_memcpy(g->params[i], g->room, bytes, NULL));
            at += bytes;
        }
    }
    return WEFT_OK;
}

weft_status_t weft__sample(weft_trainer_t *t, char **text_p)
{
    gathered_t g = {0};
    weft_text_sample_t sample = {.compute = t->compute,
                                 .stream = t->stream,
                                 .tokenizer = t->setup->tokenizer,
                                 .prompt = t->config->prompt,
                                 .tokens = t->config->sample_tokens,
                                 .context = t->config->length,
                                 .seed = (uint64_t)t->config->seed + t->state.step};
    weft_status_t status = WEFT_OK;
    sample.params = weft__worker_params(t->worker, &sample.model);
    *text_p = NULL;
    if (sample.params == NULL) {
        status = open_gathered(t, &g);
        status = status == WEFT_OK ? fill_gathered(t, &g) : status;
        sample.model = g.model;
        sample.params = g.params;
    }
    if (status == WEFT_OK && t->rank == 0 && t->setup->write_sample(&sample, text_p) != WEFT_OK) {
        *text_p = NULL;
    }
    weft_free(g.memory);
    free(g.room);
    free(g.params);
    weft__model_destroy(g.model);
    return status;
}
