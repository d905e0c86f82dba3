/* Where parameters lie when all of them are one row of memory.
 *
 * Gradients, weights and optimizer state of a slice each live in one allocation with this layout,
 * so that a bucket of gradients is one call and no gradient is ever copied into one:
 *
 *     | head, last norm | block L-1 ...        | block L-2 ... | ... | positions | tokens |
 *     |<-- bucket 0 --->|<---- bucket 1 ------------>| ...           |<-- .. --->|<------>|
 *     ready first                                                                ready last
 *
 * A *unit* is what is needed at once: a block, the token embedding, the positions, the last norm
 * with the head. Units lie in the reverse of the model's order, which is the order in which
 * backward completes gradients; parameters of a unit keep theirs, in which those that make one
 * matrix are neighbours. Buckets are made of whole units, so that a gathered bucket is enough to
 * run a unit; several blocks share a bucket where they are small. The two ends and the token
 * embedding have buckets of their own: the embedding may be used by two stages, which then cut it
 * alike.
 *
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
    int *by_place;   /* parameters in the order in which they lie */
    int bucket_count;
    weft_bucket_t *buckets; /* in the order in which they fill */
} weft_layout_t;

typedef struct weft_layout_rules {
    int64_t bucket_elements; /* most of a bucket, unless one unit is larger */
    int64_t align;           /* a multiple of WEFT_SUMSQ_CHUNK */
    bool tensors;            /* for comparison: a bucket for each parameter */
} weft_layout_rules_t;

weft_status_t weft__layout_create(const weft_model_t *model, const weft_layout_rules_t *rules,
                                  weft_layout_t *layout_p);
void weft__layout_destroy(weft_layout_t *layout);

/* Pointers to each parameter's part of `memory`, whose elements have `element` bytes. `views` has
 * param_count entries. */
void weft__layout_views(const weft_layout_t *layout, void *memory, size_t element, void **views);

/* Which bucket a block is in; an end by its role, -1 if the slice has none. */
int weft__layout_block(const weft_layout_t *layout, const weft_model_t *model, int layer);
int weft__layout_end(const weft_layout_t *layout, const weft_model_t *model, weft_role_t role);

/* Is it the bucket of blocks, and not of an end? */
bool weft__layout_has_blocks(const weft_layout_t *layout, const weft_model_t *model, int bucket);

/* A part of the layout. */
typedef struct weft_run {
    int64_t first, count;
} weft_run_t;

/* All of it but gradients that a fresh pass writes (model.h): what has to be zero before one.
 * `runs` has room for param_count + 1; returns how many there are. */
int weft__layout_added(const weft_layout_t *layout, const weft_model_t *model, weft_run_t *runs);

#endif
