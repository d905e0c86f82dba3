/* Text written during training, to see what the model has learned. */
#include <stdlib.h>

#include <weft/device.h>

#include "base/log.h"
#include "train/generate.h"
#include "train/trainer.h"

static weft_status_t collect(void *arg, uint32_t token)
{
    weft_tokens_t *tokens = arg;
    tokens->at[tokens->count++] = token; /* there is room for all that were asked for */
    return WEFT_OK;
}

static weft_status_t write_text(const weft_trainer_t *t, const weft_model_t *model,
                                void *const *params, const char *prompt, int count, char **text_p)
{
    size_t length;
    weft_tokens_t start = {0}, made = {.at = calloc((size_t)count + 1, sizeof(uint32_t))};
    weft_generate_t generate = {.model = model,
                                .compute = t->compute,
                                .params = params,
                                .stream = t->stream,
                                .tokens = count,
                                .context = t->config->length,
                                .temperature = 0.8,
                                .top_k = 50,
                                .seed = (uint64_t)t->config->seed + t->state.step,
                                .end = -1,
                                .emit = collect,
                                .arg = &made};
    weft_status_t status = made.at != NULL ? WEFT_OK
                                           : weft__fail(WEFT_ERR_NO_MEMORY,
                                                        "no memory to write %d tokens", count);
    if (status == WEFT_OK) {
        status = weft__generate_prompt(t->setup->tokenizer, prompt, &start);
    }
    if (status == WEFT_OK) {
        status = weft__generate(&generate, start.at, start.count);
    }
    if (status == WEFT_OK) {
        status = weft__tokenizer_decode(t->setup->tokenizer, made.at, made.count, text_p, &length);
    }
    if (status == WEFT_OK) {
        weft__generate_tame(*text_p, length);
    }
    free(start.at);
    free(made.at);
    return status;
}

/* ---- a model that no rank has ------------------------------------------------------------------------ */

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

weft_status_t weft__sample(weft_trainer_t *t, const char *prompt, int count, char **text_p)
{
    const weft_model_t *model;
    gathered_t g = {0};
    void *const *params = weft__worker_params(t->worker, &model);
    weft_status_t status = WEFT_OK;
    *text_p = NULL;
    if (params == NULL) {
        status = open_gathered(t, &g);
        status = status == WEFT_OK ? fill_gathered(t, &g) : status;
        model = g.model;
        params = g.params;
    }
    if (status == WEFT_OK && t->rank == 0 &&
        write_text(t, model, params, prompt, count, text_p) != WEFT_OK) {
        *text_p = NULL;
    }
    weft_free(g.memory);
    free(g.room);
    free(g.params);
    weft__model_destroy(g.model);
    return status;
}
