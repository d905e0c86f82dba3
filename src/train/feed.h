/* The tokens of the next step, fetched by a thread while the present step computes.
 *
 * Two slots in turn: a step uses one while the thread fills the other. A slot is filled again only
 * after its step is done, since copies from it may still be queued until then. */
#ifndef WEFT_TRAIN_FEED_H
#define WEFT_TRAIN_FEED_H

#include "text/data.h"

typedef struct weft_feed weft_feed_t;

typedef struct weft_feed_options {
    const weft_data_t *data;
    uint64_t batch;      /* samples of a step, over all ranks */
    uint64_t begin, end; /* those of this rank: [begin, end) of each batch */
    uint32_t length;     /* tokens of a sample */
    uint64_t first;      /* sample that the first step starts with */
    uint64_t steps;      /* how many steps will be asked for */
} weft_feed_options_t;

weft_status_t weft__feed_open(const weft_feed_options_t *options, weft_feed_t **feed_p);
void weft__feed_close(weft_feed_t *feed);

/* The inputs and targets of step `step` (0 is the first), (end - begin) x length each, in host
 * memory that a GPU copies from at full speed. Waits until they are there. */
weft_status_t weft__feed_take(weft_feed_t *feed, uint64_t step, const int32_t **inputs_p,
                              const int32_t **targets_p);

/* Step `step` is done: its slot may be filled again. */
void weft__feed_done(weft_feed_t *feed, uint64_t step);

#endif
