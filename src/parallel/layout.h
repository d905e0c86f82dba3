/* Where parameters lie when all of them are one row of memory.
 *
 * Gradients, weights and optimizer state of a model each live in one allocation with this layout, so
 * that a bucket of gradients is one call to all-reduce and no gradient is ever copied into one:
 *
 *     | head, last norm | block L-1 ...        | block L-2 ... | ... | block 0, embedding |
 *     |<---- bucket 0 ------------>|<---- bucket 1 ----------->| ...
 *     ready first                                                             ready last
 *
 * The order is the reverse of the model's, which is the order in which backward completes gradients.
 * Parameters start at multiples of 64 elements and buckets at multiples of `align`; what is between
 * is zero in all of them and stays so. */
#ifndef WEFT_PARALLEL_LAYOUT_H
#define WEFT_PARALLEL_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#include "model/model.h"

typedef struct weft_bucket {
    int64_t first, count;         /* elements */
    int param_first, param_count; /* parameters [param_first, param_first + param_count) */
} weft_bucket_t;

typedef struct weft_layout {
    int param_count;
    int64_t total;   /* elements, a multiple of align */
    int64_t *offset; /* of each parameter, in elements */
    int *bucket_of;  /* each parameter's bucket */
    int bucket_count;
    weft_bucket_t *buckets; /* in the order in which they fill */
} weft_layout_t;

/* Buckets of at most `bucket_elements`, unless one parameter is larger; 0: one per parameter.
 * `align`: a multiple of WEFT_SUMSQ_CHUNK. */
weft_status_t weft__layout_create(const weft_model_t *model, int64_t bucket_elements, int64_t align,
                                  weft_layout_t *layout_p);
void weft__layout_destroy(weft_layout_t *layout);

/* Pointers to each parameter's part of `memory`, whose elements have `element` bytes. `views` has
 * param_count entries. */
void weft__layout_views(const weft_layout_t *layout, void *memory, size_t element, void **views);

/* Runs of neighbours to which weight decay applies alike: what the optimizer takes at once. `runs`
 * has room for param_count; returns how many there are. */
typedef struct weft_run {
    int64_t first, count;
    bool decay;
} weft_run_t;

int weft__layout_runs(const weft_layout_t *layout, const weft_model_t *model, weft_run_t *runs);

#endif
