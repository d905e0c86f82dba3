/* Schedules of a pipeline: in which order a rank runs its micro-batches.
 *
 * With pp ranks and v stages on each, stage g = chunk x pp + rank; a micro-batch goes through
 * stages 0, 1, ... forward and back again. Each rank has its list; a rank that follows it, and
 * waits for what an entry reads, never waits for ever (the tests run all lists against each other).
 *
 *   gpipe, pp 3, 4 micro-batches        1f1b
 *   0 F0 F1 F2 F3 .  .  .  .  B0 B1..   0 F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
 *   1 .  F0 F1 F2 F3 .  .  B0 B1 ...    1 .  F0 F1 .  B0 F2 B1 F3 B2 .  B3
 *   2 .  .  F0 F1 F2 F3 B0 B1 ...       2 .  .  F0 B0 F1 B1 F2 B2 F3 B3
 *
 * The dots are the bubble: (pp - 1) / (m + pp - 1) of the time for both, if forward and backward
 * take as long on all ranks; with v stages a rank (pp - 1) / (v m + pp - 1). What 1f1b saves is
 * memory. */
#ifndef WEFT_PARALLEL_SCHEDULE_H
#define WEFT_PARALLEL_SCHEDULE_H

#include "parallel/plan.h"

typedef struct weft_action {
    bool backward;
    int micro;
    int chunk; /* which of the rank's stages */
} weft_action_t;

/* How many entries the list of a rank has; `training`: with backward. */
int weft__schedule_length(const weft_plan_t *plan, bool training);

/* The list of pipeline rank `rank` into `ops`. */
void weft__schedule_fill(const weft_plan_t *plan, int rank, bool training, weft_action_t *ops);

/* The most micro-batches whose activations chunk `chunk` keeps at a time. */
int weft__schedule_depth(const weft_action_t *ops, int count, int chunk);

/* The share of the time in which a rank has nothing to do, by the formula. */
double weft__schedule_bubble(const weft_plan_t *plan);

/* The same where stages take unlike times: pipeline rank r computes for busy_s[r] in a step, twice
 * as long backward as forward. NaN without memory, or if nobody computes. */
double weft__schedule_uneven(const weft_plan_t *plan, const double *busy_s);

/* The same as it was measured: each rank ran for run_s, of which it waited for waited_s. Those that
 * are done early wait for the last one. */
double weft__schedule_measured(const double *run_s, const double *waited_s, int ranks);

#endif
