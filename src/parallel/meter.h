/* How long the compute stream spends in something: waiting for a neighbour, summing activations.
 *
 * A stretch is two events, so measuring never waits; weft__meter_take adds up what has passed. The
 * host may be a step ahead: two steps in turn have events of their own. */
#ifndef WEFT_PARALLEL_METER_H
#define WEFT_PARALLEL_METER_H

#include "parallel/timeline.h"

typedef enum weft_stretch {
    WEFT_STRETCH_TENSOR,   /* communication between tensor-parallel ranks */
    WEFT_STRETCH_PIPELINE, /* waiting for another stage */
    WEFT_STRETCH_WEIGHTS,  /* waiting for weights that are gathered, in forward and backward */
    WEFT_STRETCH_EXCHANGE, /* waiting for gradients, or weights, after backward */
    WEFT_STRETCH_NORM,     /* sums over ranks that norm and update wait for */
    WEFT_STRETCH_RUN,      /* from the first forward to the last backward */
    WEFT_STRETCH_UPDATE,   /* after that: gradients that are still on their way, norm, optimizer */
    WEFT_STRETCHES
} weft_stretch_t;

typedef struct weft_mark_pair {
    weft_stretch_t kind;
    int span; /* of the timeline */
    weft_event_h begin, end;
} weft_mark_pair_t;

typedef struct weft_meter {
    weft_stream_h stream;
    weft_timeline_t *timeline;
    int now; /* the step whose stretches begin */
    struct {
        int count, room; /* pairs of the step, and made so far */
        weft_mark_pair_t *pairs;
    } steps[2];
} weft_meter_t;

/* The first two kinds go into the timeline too, if there is one. */
void weft__meter_open(weft_meter_t *meter, weft_stream_h stream, weft_timeline_t *timeline);
void weft__meter_close(weft_meter_t *meter);

/* What begins from here on belongs to step 0 or 1, of which nothing is left. */
void weft__meter_step(weft_meter_t *meter, int step);

/* Begin a stretch; returns its number for the end. Without memory nothing is measured. */
int weft__meter_begin(weft_meter_t *meter, weft_stretch_t kind);
void weft__meter_end(weft_meter_t *meter, int number);

/* Seconds of each kind in step 0 or 1; the stream must have passed all of them. */
void weft__meter_take(const weft_meter_t *meter, int step, double seconds[WEFT_STRETCHES]);

#endif
