/* Where parameters lie: see layout.h. */
#include "parallel/layout.h"

#include <stdlib.h>

#include "base/log.h"

#define PARAM_ALIGN 64

static int64_t round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Open a bucket at the end of the layout. */
static weft_bucket_t *open_bucket(weft_layout_t *layout)
{
    weft_bucket_t *bucket = &layout->buckets[layout->bucket_count++];
    *bucket = (weft_bucket_t){.first = layout->total};
    return bucket;
}

static void close_bucket(weft_layout_t *layout, weft_bucket_t *bucket, int64_t align)
{
    layout->total = round_up(layout->total, align);
    bucket->count = layout->total - bucket->first;
}

static void place(const weft_model_t *model, int64_t limit, int64_t align, weft_layout_t *layout)
{
    weft_bucket_t *bucket = NULL;
    for (int i = model->param_count - 1; i >= 0; i--) {
        int64_t count = round_up(model->params[i].count, PARAM_ALIGN);
        if (bucket != NULL && layout->total + count - bucket->first > limit) {
            close_bucket(layout, bucket, align);
            bucket = NULL;
        }
        if (bucket == NULL) {
            bucket = open_bucket(layout);
        }
        layout->offset[i] = layout->total;
        layout->bucket_of[i] = layout->bucket_count - 1;
        layout->total += count;
        bucket->param_first = i;
        bucket->param_count++;
    }
    if (bucket != NULL) {
        close_bucket(layout, bucket, align);
    }
}

weft_status_t weft__layout_create(const weft_model_t *model, int64_t bucket_elements, int64_t align,
                                  weft_layout_t *layout_p)
{
    size_t count = (size_t)model->param_count;
    weft_layout_t layout = {.param_count = model->param_count,
                            .offset = calloc(count, sizeof(int64_t)),
                            .bucket_of = calloc(count, sizeof(int)),
                            .buckets = calloc(count, sizeof(weft_bucket_t))};
    if (layout.offset == NULL || layout.bucket_of == NULL || layout.buckets == NULL) {
        weft__layout_destroy(&layout);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the layout of %d parameters",
                          model->param_count);
    }
    place(model, bucket_elements, align, &layout);
    *layout_p = layout;
    return WEFT_OK;
}

void weft__layout_destroy(weft_layout_t *layout)
{
    free(layout->offset);
    free(layout->bucket_of);
    free(layout->buckets);
    *layout = (weft_layout_t){0};
}

void weft__layout_views(const weft_layout_t *layout, void *memory, size_t element, void **views)
{
    for (int i = 0; i < layout->param_count; i++) {
        views[i] = (char *)memory + (size_t)layout->offset[i] * element;
    }
}

int weft__layout_runs(const weft_layout_t *layout, const weft_model_t *model, weft_run_t *runs)
{
    int count = 0;
    for (int i = layout->param_count - 1; i >= 0; i--) {
        int64_t first = layout->offset[i], end = first + model->params[i].count;
        weft_run_t *last = count > 0 ? &runs[count - 1] : NULL;
        /* What is between two parameters is zero, and the optimizer leaves it so. */
        if (last != NULL && last->decay == model->params[i].decay) {
            last->count = end - last->first;
        } else {
            runs[count++] = (weft_run_t){first, end - first, model->params[i].decay};
        }
    }
    return count;
}
