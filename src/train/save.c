/* Checkpoints of a run: whole tensors are gathered on rank 0, one by one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/log.h"
#include "train/record.h"
#include "train/residuals.h"
#include "train/trainer.h"

/* One tensor: where it comes from, and what was gathered of it last. */
typedef struct entry {
    struct list *list;
    weft_worker_t *worker;
    int param;
    weft_state_kind_t what;
    weft_dtype_t type; /* as saved */
    char name[WEFT_PARAM_NAME + 32];
} entry_t;

typedef struct list {
    int count, model_count; /* the model's come first */
    entry_t *entries;
    weft_tensor_source_t *sources; /* rank 0 */
    char *gathered;                /* of the tensor that is being read, as saved */
    int next;                      /* the first that has not been gathered */
} list_t;

static weft_status_t gather(const entry_t *entry, char *gathered)
{
    const weft_model_t *whole = weft__worker_whole(entry->worker);
    float *values = (float *)(void *)gathered;
    WEFT_TRY(weft__worker_gather(entry->worker, entry->param, entry->what, values));
    if (gathered != NULL && entry->type != WEFT_F32) {
        for (int64_t i = 0; i < whole->params[entry->param].count; i++) {
            uint16_t half = entry->type == WEFT_BF16 ? weft__f32_to_bf16(values[i])
                                                     : weft__f32_to_f16(values[i]);
            memcpy(gathered + 2 * i, &half, sizeof(half)); /* never beyond what was read */
        }
    }
    return WEFT_OK;
}

static weft_status_t read_entry(void *ctx, uint64_t offset, void *out, size_t bytes)
{
    const entry_t *entry = ctx;
    list_t *list = entry->list;
    if (list->next == entry - list->entries) {
        list->next++;
        WEFT_TRY(gather(entry, list->gathered));
    }
    memcpy(out, entry->list->gathered + offset, bytes);
    return WEFT_OK;
}

static void add_entry(list_t *list, weft_worker_t *worker, int param, const char *prefix,
                      weft_state_kind_t what, weft_dtype_t type)
{
    const weft_param_t *p = &weft__worker_whole(worker)->params[param];
    entry_t *entry = &list->entries[list->count];
    *entry = (entry_t){.list = list, .worker = worker, .param = param, .what = what, .type = type};
    snprintf(entry->name, sizeof(entry->name), "%s%s", prefix, p->name);
    list->sources[list->count++] = (weft_tensor_source_t){
        .form = {.name = entry->name,
                 .dtype = type,
                 .dims = p->dims,
                 .shape = {(uint64_t)p->shape[0], (uint64_t)p->shape[1]}},
        .read = read_entry,
        .ctx = entry};
}

/* Model first, then the optimizer, in the order in which they are read. */
static void fill_list(list_t *list, weft_worker_t *worker, weft_dtype_t type)
{
    int params = weft__worker_whole(worker)->param_count;
    for (int i = 0; i < params; i++) {
        add_entry(list, worker, i, "", WEFT_STATE_WEIGHTS, type);
    }
    for (int i = 0; i < params; i++) {
        add_entry(list, worker, i, "exp_avg.", WEFT_STATE_M, WEFT_F32);
        add_entry(list, worker, i, "exp_avg_sq.", WEFT_STATE_V, WEFT_F32);
        if (type != WEFT_F32) {
            add_entry(list, worker, i, "master.", WEFT_STATE_WEIGHTS, WEFT_F32);
        }
    }
    list->model_count = params;
}

static weft_status_t open_list(list_t *list, const weft_trainer_t *t)
{
    const weft_model_t *whole = weft__worker_whole(t->worker);
    size_t most = 4 * (size_t)whole->param_count, elements = 0;
    for (int i = 0; i < whole->param_count; i++) {
        size_t count = (size_t)whole->params[i].count;
        elements = count > elements ? count : elements;
    }
    *list = (list_t){.entries = calloc(most, sizeof(entry_t)),
                     .sources = calloc(most, sizeof(weft_tensor_source_t)),
                     .gathered = t->rank == 0 ? calloc(elements, sizeof(float)) : NULL};
    if (list->entries == NULL || list->sources == NULL ||
        (t->rank == 0 && list->gathered == NULL)) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to gather %d tensors on rank 0",
                          whole->param_count);
    }
    return WEFT_OK;
}

static void close_list(list_t *list)
{
    free(list->entries);
    free(list->sources);
    free(list->gathered);
}

/* All ranks but 0 give what it reads; and it reads what it has not where a failure came first, so
 * that none waits. */
static weft_status_t gather_rest(list_t *list)
{
    while (list->next < list->count) {
        WEFT_TRY(gather(&list->entries[list->next++], list->gathered));
    }
    return WEFT_OK;
}

/* Rank 0's part; residuals are read last. */
static weft_status_t save_tensors(weft_trainer_t *t, weft_checkpoint_writer_t *writer,
                                  const list_t *list)
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
            .model = list->sources,
            .model_count = list->model_count,
            .optimizer = list->sources + list->model_count,
            .optimizer_count = list->count - list->model_count,
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

static weft_status_t save_list(weft_trainer_t *t, weft_checkpoint_writer_t *writer, list_t *list)
{
    char why[1024];
    fill_list(list, t->worker, t->setup->type);
    if (t->rank != 0) {
        return gather_rest(list);
    }
    weft_status_t status = save_tensors(t, writer, list);
    snprintf(why, sizeof(why), "%s", weft_last_error());
    weft_status_t rest = gather_rest(list);
    if (status != WEFT_OK) {
        weft__error_restore(why);
        return status;
    }
    return rest;
}

weft_status_t weft__save(weft_trainer_t *t, weft_checkpoint_writer_t *writer)
{
    list_t list;
    weft_status_t status = open_list(&list, t);
    weft__residuals_begin(t);
    if (status == WEFT_OK) {
        status = weft__residuals_finish(t, save_list(t, writer, &list));
    }
    close_list(&list);
    return status;
}
