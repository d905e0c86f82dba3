/* Checkpoints of a run: the tensors of this rank, read from the device piece by piece. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/log.h"
#include "base/try.h"
#include "train/record.h"
#include "train/residuals.h"
#include "train/trainer.h"

/* One tensor on the device. Padding of the vocabulary lies behind the last row, so what a checkpoint
 * holds is the beginning of what is stored. */
typedef struct place {
    const char *memory;
    weft_stream_h stream;
    char name[WEFT_PARAM_NAME + 32];
} place_t;

typedef struct tensors {
    int count;
    weft_tensor_source_t *sources;
    place_t *places;
} tensors_t;

static weft_status_t read_place(void *ctx, uint64_t offset, void *out, size_t bytes)
{
    const place_t *place = ctx;
    WEFT_TRY(weft_memcpy(out, place->memory + offset, bytes, place->stream));
    return weft_stream_synchronize(place->stream);
}

static weft_status_t make_tensors(int room, tensors_t *tensors)
{
    *tensors = (tensors_t){.sources = calloc((size_t)room, sizeof(weft_tensor_source_t)),
                           .places = calloc((size_t)room, sizeof(place_t))};
    if (tensors->sources == NULL || tensors->places == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to describe %d tensors", room);
    }
    return WEFT_OK;
}

static void free_tensors(tensors_t *tensors)
{
    free(tensors->sources);
    free(tensors->places);
}

/* Parameter `index` of the row `memory`, as "prefix.name". */
static void add_tensor(const weft_trainer_t *t, int index, const char *prefix, weft_dtype_t type,
                       const void *memory, tensors_t *tensors)
{
    const weft_param_t *param = &t->model->params[index];
    place_t *place = &tensors->places[tensors->count];
    size_t offset = (size_t)weft__dp_layout(t->dp)->offset[index] * weft_dtype_size(type);
    place->memory = (const char *)memory + offset;
    place->stream = t->stream;
    snprintf(place->name, sizeof(place->name), "%s%s", prefix, param->name);
    tensors->sources[tensors->count++] = (weft_tensor_source_t){
        .form = {.name = place->name,
                 .dtype = type,
                 .dims = param->dims,
                 .shape = {(uint64_t)param->shape[0], (uint64_t)param->shape[1]}},
        .read = read_place,
        .ctx = place};
}

static weft_status_t list_tensors(const weft_trainer_t *t, tensors_t *model, tensors_t *optimizer)
{
    int count = t->model->param_count;
    WEFT_TRY(make_tensors(count, model));
    WEFT_TRY(make_tensors(3 * count, optimizer));
    for (int i = 0; i < count; i++) {
        add_tensor(t, i, "", t->model->type, t->weights, model);
        add_tensor(t, i, "exp_avg.", WEFT_F32, t->m, optimizer);
        add_tensor(t, i, "exp_avg_sq.", WEFT_F32, t->v, optimizer);
        if (t->master != NULL) {
            add_tensor(t, i, "master.", WEFT_F32, t->master, optimizer);
        }
    }
    return WEFT_OK;
}

weft_status_t weft__save_tensors(weft_trainer_t *t, weft_checkpoint_writer_t *writer,
                                 const weft_save_list_t *list)
{
    char *config_json = NULL, *settings = NULL;
    size_t length;
    weft_status_t status = weft__config_text(&t->setup->model, &config_json);
    if (status == WEFT_OK) {
        status = weft__record_settings(t->config, "", &settings);
    }
    if (status == WEFT_OK) {
        weft_checkpoint_t checkpoint = {
            .state = t->state,
            .model = list->model,
            .model_count = list->model_count,
            .optimizer = list->optimizer,
            .optimizer_count = list->optimizer_count,
            .residuals = t->residuals != NULL ? t->residuals->sources : NULL,
            .residual_count = t->residuals != NULL ? t->residuals->count : 0,
            .config_json = config_json,
            .tokenizer_json = t->setup->tokenizer != NULL
                                  ? weft__tokenizer_json(t->setup->tokenizer, &length)
                                  : NULL,
            .settings = settings};
        status = weft__checkpoint_save(writer, &checkpoint, NULL);
    }
    free(config_json);
    free(settings);
    return status;
}

/* Rank 0's part. */
static weft_status_t save_all(weft_trainer_t *t, weft_checkpoint_writer_t *writer)
{
    tensors_t model = {0}, optimizer = {0};
    weft_status_t status = list_tensors(t, &model, &optimizer);
    if (status == WEFT_OK) {
        weft_save_list_t list = {.model = model.sources,
                                 .model_count = model.count,
                                 .optimizer = optimizer.sources,
                                 .optimizer_count = optimizer.count};
        status = weft__save_tensors(t, writer, &list);
    }
    free_tensors(&model);
    free_tensors(&optimizer);
    return status;
}

weft_status_t weft__save(weft_trainer_t *t, weft_checkpoint_writer_t *writer)
{
    weft__residuals_begin(t);
    return weft__residuals_finish(t, t->rank == 0 ? save_all(t, writer) : WEFT_OK);
}
