/* Where parameters lie: see layout.h. */
#include "parallel/layout.h"

#include <stdlib.h>

#include "base/log.h"

enum { PARAM_ALIGN = 64, UNIT_TOKENS = -1, UNIT_POSITIONS = -2, UNIT_HEAD = -3 };

static int64_t round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static int unit_of(const weft_param_t *param)
{
    if (param->key.layer >= 0) {
        return param->key.layer;
    }
    return param->key.role == WEFT_TOKENS      ? UNIT_TOKENS
           : param->key.role == WEFT_POSITIONS ? UNIT_POSITIONS
                                               : UNIT_HEAD;
}

static int64_t unit_size(const weft_model_t *model, int first, int end)
{
    int64_t size = 0;
    for (int i = first; i < end; i++) {
        size += round_up(model->params[i].count, PARAM_ALIGN);
    }
    return size;
}

/* Parameters [first, end) of a unit, in the bucket that is open. */
static void place_unit(const weft_model_t *model, weft_layout_t *layout, int first, int end)
{
    weft_bucket_t *bucket = &layout->buckets[layout->bucket_count - 1];
    int placed = model->param_count - end;
    for (int i = first; i < end; i++) {
        layout->offset[i] = layout->total;
        layout->bucket_of[i] = layout->bucket_count - 1;
        layout->by_place[placed++] = i;
        layout->total += round_up(model->params[i].count, PARAM_ALIGN);
    }
    bucket->param_first = first;
    bucket->param_count += end - first;
}

static void close_bucket(weft_layout_t *layout, int64_t align)
{
    if (layout->bucket_count > 0) {
        weft_bucket_t *bucket = &layout->buckets[layout->bucket_count - 1];
        layout->total = round_up(layout->total, align);
        bucket->count = layout->total - bucket->first;
    }
}

/* Units from the last to the first, as backward completes them. */
static void place_all(const weft_model_t *model, const weft_layout_rules_t *rules,
                      weft_layout_t *layout)
{
    bool open_to_blocks = false;
    for (int end = model->param_count, first; end > 0; end = first) {
        int unit = unit_of(&model->params[end - 1]);
        for (first = end - 1;
             first > 0 && !rules->tensors && unit_of(&model->params[first - 1]) == unit;) {
            first--;
        }
        int64_t begun = open_to_blocks ? layout->buckets[layout->bucket_count - 1].first : 0;
        int64_t size = layout->total + unit_size(model, first, end) - begun;
        if (unit < 0 || !open_to_blocks || size > rules->bucket_elements || rules->tensors) {
            close_bucket(layout, rules->align);
            layout->buckets[layout->bucket_count++].first = layout->total;
        }
        open_to_blocks = unit >= 0;
        place_unit(model, layout, first, end);
    }
    close_bucket(layout, rules->align);
}

weft_status_t weft__layout_create(const weft_model_t *model, const weft_layout_rules_t *rules,
                                  weft_layout_t *layout_p)
{
    size_t count = (size_t)model->param_count + 1;
    weft_layout_t layout = {.param_count = model->param_count,
                            .offset = calloc(count, sizeof(int64_t)),
                            .bucket_of = calloc(count, sizeof(int)),
                            .by_place = calloc(count, sizeof(int)),
                            .buckets = calloc(count, sizeof(weft_bucket_t))};
    if (layout.offset == NULL || layout.bucket_of == NULL || layout.by_place == NULL ||
        layout.buckets == NULL) {
        weft__layout_destroy(&layout);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the layout of %d parameters",
                          model->param_count);
    }
    place_all(model, rules, &layout);
    *layout_p = layout;
    return WEFT_OK;
}

void weft__layout_destroy(weft_layout_t *layout)
{
    free(layout->offset);
    free(layout->bucket_of);
    free(layout->by_place);
    free(layout->buckets);
    *layout = (weft_layout_t){0};
}

void weft__layout_views(const weft_layout_t *layout, void *memory, size_t element, void **views)
{
    for (int i = 0; i < layout->param_count; i++) {
        views[i] = (char *)memory + (size_t)layout->offset[i] * element;
    }
}

int weft__layout_end(const weft_layout_t *layout, const weft_model_t *model, weft_role_t role)
{
    int param = weft__model_param(model, WEFT_KEY(-1, role));
    return param >= 0 ? layout->bucket_of[param] : -1;
}

int weft__layout_block(const weft_layout_t *layout, const weft_model_t *model, int layer)
{
    return layout->bucket_of[weft__model_param(model, WEFT_KEY(layer, WEFT_NORM1_WEIGHT))];
}

bool weft__layout_has_blocks(const weft_layout_t *layout, const weft_model_t *model, int bucket)
{
    return model->params[layout->buckets[bucket].param_first].key.layer >= 0;
}

/* What fills up buckets too: a scale of compressed gradients that was no number may have got
 * there. */
int weft__layout_added(const weft_layout_t *layout, const weft_model_t *model, weft_run_t *runs)
{
    int64_t at = 0;
    int count = 0;
    for (int k = 0; k <= layout->param_count; k++) {
        int i = k < layout->param_count ? layout->by_place[k] : -1;
        if (i >= 0 && !weft__grad_is_written(model, i)) {
            continue;
        }
        int64_t first = i >= 0 ? layout->offset[i] : layout->total;
        if (first > at) {
            runs[count++] = (weft_run_t){.first = at, .count = first - at};
        }
        at = i >= 0 ? first + model->params[i].count : first;
    }
    return count;
}
