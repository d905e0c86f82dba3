/* Memory of activations: the same function counts the bytes and cuts the memory, so that the two
 * cannot differ. */
#include <stdlib.h>

#include "base/log.h"
#include "model/model.h"

enum { ALIGN = 256, HEAD_ROWS_LEAST = 256 };

/* Takes tensors off a piece of memory; with a NULL base it only counts. */
typedef struct carver {
    char *base;
    size_t used;
} carver_t;

static void *take(carver_t *carver, int64_t count, size_t element)
{
    void *at = carver->base != NULL ? carver->base + carver->used : NULL;
    carver->used += ((size_t)count * element + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static void *take_tensor(carver_t *carver, const weft_model_t *model, int64_t rows, int64_t width)
{
    return take(carver, rows * width, weft_dtype_size(model->type));
}

static int64_t rows_of(const weft_shape_t *shape)
{
    return shape->batch * shape->seq;
}

static bool is_gpt2(const weft_model_t *model)
{
    return model->config.family == WEFT_GPT2;
}

int64_t weft__head_chunk(const weft_compute_t *compute, int64_t rows, int64_t words)
{
    int64_t chunk = compute->head_elements / words;
    chunk = chunk > HEAD_ROWS_LEAST ? chunk : HEAD_ROWS_LEAST;
    return chunk < rows ? chunk : rows;
}

int64_t weft__head_rows(const weft_model_t *model, const weft_compute_t *compute,
                        const weft_shape_t *shape)
{
    int64_t rows = rows_of(shape), chosen = shape->head_rows;
    if (chosen == 0) {
        return weft__head_chunk(compute, rows, model->vocab_rows);
    }
    return chosen < rows ? chosen : rows;
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* What backward computes again lies in `again`, the rest in `kept`; the two may be one. */
static void carve_block(carver_t *kept, carver_t *again, const weft_model_t *model,
                        const weft_shape_t *shape, weft_block_acts_t *acts)
{
    const weft_model_config_t *c = &model->config;
    int64_t rows = rows_of(shape), norm_rows = shape->norm_rows;
    bool split = rows != norm_rows;
    acts->x = NULL;
    acts->h1 = take_tensor(kept, model, norm_rows, c->width);
    acts->h1_all = split ? take_tensor(kept, model, rows, c->width) : acts->h1;
    acts->mean1 = is_gpt2(model) ? take(kept, norm_rows, sizeof(float)) : NULL;
    acts->rstd1 = take(kept, norm_rows, sizeof(float));
    acts->qkv = take_tensor(again, model, rows, model->qkv_width);
    acts->attended = take_tensor(again, model, rows, (int64_t)model->heads * c->head_dim);
    acts->lse = take(again, rows * model->heads, sizeof(float));
    acts->x2 = take_tensor(kept, model, norm_rows, c->width);
    acts->h2 = take_tensor(kept, model, norm_rows, c->width);
    acts->h2_all = split ? take_tensor(kept, model, rows, c->width) : acts->h2;
    acts->mean2 = is_gpt2(model) ? take(kept, norm_rows, sizeof(float)) : NULL;
    acts->rstd2 = take(kept, norm_rows, sizeof(float));
    acts->up = take_tensor(kept, model, rows, (int64_t)model->ffn * (is_gpt2(model) ? 1 : 2));
    acts->act = take_tensor(kept, model, rows, model->ffn);
}

size_t weft__block_acts_bytes(const weft_model_t *model, const weft_shape_t *shape)
{
    carver_t carver = {0};
    weft_block_acts_t acts;
    carve_block(&carver, &carver, model, shape, &acts);
    return carver.used;
}

/* ---- a micro-batch -------------------------------------------------------------------------- */

static void carve_head(carver_t *carver, const weft_model_t *model, const weft_shape_t *shape,
                       weft_head_acts_t *head)
{
    int64_t rows = rows_of(shape);
    head->h = take_tensor(carver, model, rows, model->config.width);
    head->mean = is_gpt2(model) ? take(carver, rows, sizeof(float)) : NULL;
    head->rstd = take(carver, rows, sizeof(float));
    head->losses = take(carver, rows, sizeof(float));
    head->dh = take_tensor(carver, model, rows, model->config.width);
}

/* With blocks NULL it counts. Every block starts anew in `again`, of which *most_p is what the
 * largest takes. */
static void carve_acts(carver_t *carver, carver_t again, const weft_model_t *model,
                       const weft_shape_t *shape, weft_keep_t keep, weft_acts_t *acts,
                       size_t *most_p)
{
    int64_t rows = rows_of(shape), width = model->config.width;
    if (model->slice.embed) {
        acts->tokens = take(carver, rows, sizeof(int32_t));
    }
    acts->x = take_tensor(carver, model, shape->norm_rows, width);
    *most_p = 0;
    for (int i = 0; i < model->slice.layer_count; i++) {
        weft_block_acts_t block;
        carver_t shared = again;
        carve_block(keep == WEFT_KEEP_INPUTS ? &shared : carver,
                    keep == WEFT_KEEP_ALL ? carver : &shared, model, shape, &block);
        *most_p = shared.used > *most_p ? shared.used : *most_p;
        void *out = take_tensor(carver, model, shape->norm_rows, width);
        if (acts->blocks != NULL) {
            block.x = i > 0 ? acts->outs[i - 1] : acts->x;
            acts->blocks[i] = block;
            acts->outs[i] = out;
        }
    }
    if (model->slice.head) {
        acts->targets = take(carver, rows, sizeof(int32_t));
        carve_head(carver, model, shape, &acts->head);
        if (acts->blocks != NULL) {
            int count = model->slice.layer_count;
            acts->head.x = count > 0 ? acts->outs[count - 1] : acts->x;
        }
    }
}

size_t weft__acts_bytes(const weft_model_t *model, const weft_shape_t *shape)
{
    return weft__kept_bytes(model, shape, WEFT_KEEP_ALL);
}

size_t weft__kept_bytes(const weft_model_t *model, const weft_shape_t *shape, weft_keep_t keep)
{
    carver_t carver = {0}, again = {0};
    weft_acts_t acts = {0};
    size_t most;
    carve_acts(&carver, again, model, shape, keep, &acts, &most);
    return carver.used;
}

size_t weft__again_bytes(const weft_model_t *model, const weft_shape_t *shape, weft_keep_t keep)
{
    carver_t carver = {0}, again = {0};
    weft_acts_t acts = {0};
    size_t most;
    carve_acts(&carver, again, model, shape, keep, &acts, &most);
    return most;
}

weft_status_t weft__acts_carve(const weft_model_t *model, const weft_shape_t *shape, void *memory,
                               weft_acts_t *acts_p)
{
    return weft__kept_carve(model, shape, WEFT_KEEP_ALL, memory, NULL, acts_p);
}

weft_status_t weft__kept_carve(const weft_model_t *model, const weft_shape_t *shape,
                               weft_keep_t keep, void *memory, void *again, weft_acts_t *acts_p)
{
    carver_t carver = {memory, 0}, shared = {again, 0};
    size_t count = (size_t)model->slice.layer_count + 1, most;
    weft_acts_t acts = {.blocks = calloc(count, sizeof(*acts.blocks)),
                        .outs = calloc(count, sizeof(*acts.outs))};
    if (acts.blocks == NULL || acts.outs == NULL) {
        weft__acts_cleanup(&acts);
        return weft__fail(WEFT_ERR_NO_MEMORY, "there is no memory for the table of activations");
    }
    carve_acts(&carver, shared, model, shape, keep, &acts, &most);
    *acts_p = acts;
    return WEFT_OK;
}

void weft__acts_cleanup(weft_acts_t *acts)
{
    free(acts->blocks);
    free(acts->outs);
    acts->blocks = NULL;
    acts->outs = NULL;
}

/* ---- scratch -------------------------------------------------------------------------------- */

static size_t work_bytes(const weft_model_t *model, const weft_compute_t *compute,
                         const weft_shape_t *shape)
{
    const weft_model_config_t *c = &model->config;
    weft_attention_t attention = {.type = model->type,
                                  .batch = shape->batch,
                                  .seq = shape->seq,
                                  .heads = model->heads,
                                  .kv_heads = model->kv_heads,
                                  .head_dim = c->head_dim};
    weft_norm_t norm = {.type = model->type, .rows = rows_of(shape), .width = c->width};
    weft_embed_t embed = {.type = model->type,
                          .grad_type = model->grad_type,
                          .batch = shape->batch,
                          .seq = shape->seq,
                          .width = c->width,
                          .vocab_count = model->vocab_count};
    size_t most = compute->attention_work(&attention);
    size_t others[] = {compute->norm_work(&norm),
                       model->slice.embed ? compute->embed_work(&embed) : 0};
    for (int i = 0; i < 2; i++) {
        most = others[i] > most ? others[i] : most;
    }
    return most;
}

static void carve_scratch(carver_t *carver, const weft_model_t *model,
                          const weft_compute_t *compute, const weft_shape_t *shape,
                          weft_scratch_t *scratch)
{
    const weft_model_config_t *c = &model->config;
    int64_t rows = rows_of(shape), norm_rows = shape->norm_rows, ffn = model->ffn;
    bool gpt2 = is_gpt2(model), dropout = c->residual_dropout > 0;
    *scratch = (weft_scratch_t){0};
    if (dropout || model->slice.parts > 1) {
        scratch->y = take_tensor(carver, model, rows, c->width);
    }
    scratch->dx = take_tensor(carver, model, norm_rows, c->width);
    scratch->dropped = dropout ? take_tensor(carver, model, norm_rows, c->width) : NULL;
    scratch->dh = take_tensor(carver, model, norm_rows, c->width);
    scratch->dh_all = rows != norm_rows ? take_tensor(carver, model, rows, c->width) : scratch->dh;
    if (model->slice.layer_count > 0) {
        scratch->dqkv = take_tensor(carver, model, rows, model->qkv_width);
        scratch->dattended = take_tensor(carver, model, rows, (int64_t)model->heads * c->head_dim);
        scratch->dup = take_tensor(carver, model, rows, gpt2 ? ffn : 2 * ffn);
        scratch->dact = gpt2 ? NULL : take_tensor(carver, model, rows, ffn);
    }
    if (model->slice.head) {
        scratch->logits = take_tensor(carver, model, weft__head_rows(model, compute, shape),
                                      model->vocab_rows);
    }
    scratch->work = take(carver, (int64_t)work_bytes(model, compute, shape), 1);
}

size_t weft__scratch_bytes(const weft_model_t *model, const weft_compute_t *compute,
                           const weft_shape_t *shape)
{
    carver_t carver = {0};
    weft_scratch_t scratch;
    carve_scratch(&carver, model, compute, shape, &scratch);
    return carver.used;
}

void weft__scratch_carve(const weft_model_t *model, const weft_compute_t *compute,
                         const weft_shape_t *shape, void *memory, weft_scratch_t *scratch_p)
{
    carver_t carver = {memory, 0};
    carve_scratch(&carver, model, compute, shape, scratch_p);
}

/* ---- cache for generating ----------------------------------------------------------------- */

static void carve_cache(carver_t *carver, const weft_model_t *model, weft_cache_t *cache)
{
    int64_t positions = model->slice.layer_count * cache->slots * cache->capacity;
    int64_t kv = (int64_t)model->kv_heads * model->config.head_dim;
    weft_shape_t shape = WEFT_SHAPE(1, cache->rows);
    cache->keys = take_tensor(carver, model, positions, kv);
    cache->values = take_tensor(carver, model, positions, kv);
    for (int i = 0; i < 2; i++) {
        cache->stream[i] = take_tensor(carver, model, rows_of(&shape), model->config.width);
    }
    carve_block(carver, carver, model, &shape, &cache->acts);
    carve_head(carver, model, &shape, &cache->head);
}

size_t weft__cache_bytes(const weft_model_t *model, int64_t slots, int64_t capacity, int64_t rows)
{
    carver_t carver = {0};
    weft_cache_t cache = {.slots = slots, .capacity = capacity, .rows = rows};
    carve_cache(&carver, model, &cache);
    return carver.used;
}

void weft__cache_carve(const weft_model_t *model, int64_t slots, int64_t capacity, int64_t rows,
                       void *memory, weft_cache_t *cache_p)
{
    carver_t carver = {memory, 0};
    *cache_p = (weft_cache_t){.slots = slots, .capacity = capacity, .rows = rows};
    carve_cache(&carver, model, cache_p);
}
