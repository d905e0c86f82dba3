/* Where the time of a training step goes, from what every rank measured on its own.
 *
 *     rank 0   | data | forward, backward     | wait | norm, optimizer | statistics |
 *     rank 1   | data | forward, backward  | wait    | norm, optimizer | statistics |
 *
 * Each rank's time is split into work (data, compute, optimizer), waits inside communication
 * (tensor-parallel sums, weights and gradients that nothing hid, norm, statistics), waits for other
 * pipeline stages, and the rest. A part of a step is the mean over ranks, so the parts add up to
 * the step.
 *
 * Whoever waits for a rank that works longer than others waits inside a call, so the wait has to be
 * divided:
 *
 *   imbalance      the mean wait for the rank that works longest: inside a stage longest - mean, in
 *                  the mean over stages; between stages the same of the stages' means
 *   bubble         waits for other stages that imbalance does not explain, and those at the end
 *                  of the schedule, which ranks that are done spend in the first call after it
 *   communication  all other waits
 */
#ifndef WEFT_TRAIN_BREAKDOWN_H
#define WEFT_TRAIN_BREAKDOWN_H

#include "base/json.h"

/* What one rank measured in one step, in seconds. */
typedef struct weft_rank_times {
    double step;     /* all of it */
    double run;      /* forward and backward, of which it waited ... */
    double pipeline; /* ... for other stages, */
    double tensor;   /* ... for tensor-parallel ranks, */
    double weights;  /* ... for weights */
    double update;   /* what came after, of which it waited ... */
    double exchange; /* ... for gradients, */
    double norm;     /* ... for sums that norm and update need */
    double data;     /* waiting for tokens */
    double told;     /* telling statistics */
    int stage;       /* of the pipeline */
} weft_rank_times_t;

/*    field          JSON and table */
#define WEFT_BREAKDOWN_TABLE(X)                                                                    \
    X(compute, "compute", "forward and backward")                                                  \
    X(communication, "communication", "exposed communication")                                     \
    X(bubble, "bubble", "pipeline bubble")                                                         \
    X(imbalance, "imbalance", "imbalance")                                                         \
    X(optimizer, "optimizer", "optimizer")                                                         \
    X(data, "data", "data")                                                                        \
    X(rest, "rest", "rest")

/* Seconds of a step, mean over ranks. The parts add up to `step`. */
typedef struct weft_breakdown {
    double step;
#define WEFT_BREAKDOWN_FIELD(field, name, text) double field;
    WEFT_BREAKDOWN_TABLE(WEFT_BREAKDOWN_FIELD)
#undef WEFT_BREAKDOWN_FIELD
} weft_breakdown_t;

/* Divide one step of `count` ranks; stages are 0 to stages - 1, and each has a rank. */
void weft__breakdown(const weft_rank_times_t *ranks, int count, int stages,
                     weft_breakdown_t *parts_p);

/* Add `more`, multiplied by `factor`. */
void weft__breakdown_add(weft_breakdown_t *sum, const weft_breakdown_t *more, double factor);

/* As an object. */
void weft__breakdown_write(const weft_breakdown_t *parts, const char *key, weft_json_t *json);

#endif
