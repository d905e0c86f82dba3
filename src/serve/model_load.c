/* A trained model on the current device: see model_load.h. */
#include "serve/model_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/file.h"
#include "base/half.h"
#include "base/log.h"
#include "train/checkpoint.h"
#include "train/param_read.h"

static weft_status_t put_param(const weft_model_loaded_t *l, int index, float *local)
{
    size_t count = (size_t)l->model->params[index].count;
    if (l->model->type == WEFT_BF16) { /* in place: what is written lies before what is read */
        for (size_t i = 0; i < count; i++) {
            uint16_t half = weft__f32_to_bf16(local[i]);
            memcpy((char *)local + i * sizeof(half), &half, sizeof(half));
        }
    }
    return weft_memcpy(l->params[index], local, count * weft_dtype_size(l->model->type), NULL);
}

static weft_status_t put_all(const weft_model_loaded_t *l, const weft_loaded_t *checkpoint)
{
    size_t most = (size_t)weft__param_most(l->model);
    float *stage;
    WEFT_TRY(weft_host_malloc((void **)&stage, 2 * most * sizeof(float)));
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < l->model->param_count && status == WEFT_OK; i++) {
        const weft_param_t *param = &l->model->params[i];
        status = weft__param_read(checkpoint->model, checkpoint->path, param->name, param, stage,
                                  stage + most);
        status = status == WEFT_OK ? put_param(l, i, stage + most) : status;
    }
    weft_host_free(stage);
    return status;
}

static weft_status_t make_memory(weft_model_loaded_t *l)
{
    size_t element = weft_dtype_size(l->model->type);
    weft_layout_rules_t rules = {.bucket_elements = INT64_MAX, .align = WEFT_SUMSQ_CHUNK};
    WEFT_TRY(weft__layout_create(l->model, &rules, &l->layout));
    l->params = calloc((size_t)l->model->param_count, sizeof(void *));
    if (l->params == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d parameters", l->model->param_count);
    }
    WEFT_TRY(weft_malloc(&l->memory, (size_t)l->layout.total * element));
    weft__layout_views(&l->layout, l->memory, element, l->params);
    return WEFT_OK;
}

static weft_status_t make_model(weft_model_loaded_t *l, const weft_loaded_t *checkpoint)
{
    weft_model_config_t config;
    WEFT_TRY(weft__compute(&l->compute));
    WEFT_TRY(weft__config_find(checkpoint->path, &config));
    weft_dtype_t type = strcmp(l->compute->kind, "cuda") == 0 ? WEFT_BF16 : WEFT_F32;
    weft_slice_t slice = WEFT_SLICE_WHOLE(&config);
    slice.vocab_multiple = 128;
    return weft__model_create(&config, &slice, type, type, &l->model);
}

/* The folder's own tokenizer, unless another is named. */
static weft_status_t open_tokenizer(weft_model_loaded_t *l, const weft_loaded_t *checkpoint,
                                    const char *tokenizer)
{
    char path[WEFT_PATH_BYTES];
    if (tokenizer[0] != '\0') {
        return weft__tokenizer_open(tokenizer, &l->tokenizer);
    }
    WEFT_TRY(weft__path_join(path, checkpoint->path, "tokenizer.json"));
    bool there;
    WEFT_TRY(weft__is_file(path, &there));
    if (!there) {
        return weft__fail(WEFT_ERR_NOT_FOUND,
                          "%s has no tokenizer.json; name one with --tokenizer FILE",
                          checkpoint->path);
    }
    return weft__tokenizer_open(path, &l->tokenizer);
}

/* Tokens of the run's sequences; 0: not known. Other settings may be those of another version. */
static int length_in(const char *settings)
{
    int length = 0;
    for (const char *line = settings; line != NULL && length == 0; line = strchr(line, '\n')) {
        line += *line == '\n';
        sscanf(line, "length = %d", &length);
    }
    return length;
}

/* Positions after the last that it was trained with mean nothing to a model. */
static void find_length(weft_model_loaded_t *l, const weft_loaded_t *checkpoint)
{
    int length = length_in(checkpoint->settings);
    l->length = length > 0 ? length : l->model->config.context;
}

static weft_status_t load_parts(const weft_loaded_t *checkpoint, const char *tokenizer,
                                weft_model_loaded_t *l)
{
    WEFT_TRY(open_tokenizer(l, checkpoint, tokenizer));
    WEFT_TRY(make_model(l, checkpoint));
    find_length(l, checkpoint);
    WEFT_TRY(make_memory(l));
    return put_all(l, checkpoint);
}

weft_status_t weft__model_load(const char *path, const char *tokenizer,
                               weft_model_loaded_t *loaded_p)
{
    weft_loaded_t checkpoint;
    weft_model_loaded_t loaded = {0};
    WEFT_TRY(weft__checkpoint_load(path, WEFT_LOAD_MODEL, &checkpoint));
    weft_status_t status = load_parts(&checkpoint, tokenizer, &loaded);
    weft__checkpoint_unload(&checkpoint);
    if (status != WEFT_OK) {
        weft__model_unload(&loaded);
        return status;
    }
    *loaded_p = loaded;
    return WEFT_OK;
}

void weft__model_unload(weft_model_loaded_t *loaded)
{
    weft_free(loaded->memory);
    free(loaded->params);
    weft__layout_destroy(&loaded->layout);
    if (loaded->model != NULL) {
        weft__model_destroy(loaded->model);
    }
    weft__tokenizer_close(loaded->tokenizer);
    *loaded = (weft_model_loaded_t){0};
}
