/* What is measured: points, each a configuration of training on some of the ranks. Internal to
 * scaling; its files:
 *
 *   points.c    which points there are, and which remedies
 *   measure.c   the rounds: communicators of the first ranks, who works and who sleeps
 *   lost.c      the arithmetic
 *   show.c      tables and JSON
 *   scaling.c   what happens when */
#ifndef WEFT_BENCH_SCALING_POINTS_H
#define WEFT_BENCH_SCALING_POINTS_H

#include "bench/scaling.h"
#include "bench/scaling/lost.h"

#define WEFT_POINTS_MOST 64

typedef struct weft_point {
    bool strong;
    bool other_plan; /* not one of the row of numbers of ranks */
    int ranks;
    int one; /* the point of one rank that it is compared with; its own index if it is that */
    weft_train_config_t config; /* resolved */
    weft_setup_t setup;
    char plan[96];
    const char *remedy; /* NULL: it is none */
    char options[96];   /* of a remedy, as typed */

    /* What rank 0 measures. */
    double tokens;                         /* of a step */
    double rate[WEFT_SCALING_ROUNDS_MOST]; /* tokens per second, by round */
    weft_breakdown_t time[WEFT_SCALING_ROUNDS_MOST];
    int median; /* the round that counts */
    weft_lost_t lost;
} weft_point_t;

typedef struct weft_points {
    int count;
    weft_point_t list[WEFT_POINTS_MOST];
} weft_points_t;

/* All points of a job of `ranks` ranks. The struct must not move afterwards. */
weft_status_t weft__points_make(const weft_scaling_t *scaling, int ranks, weft_points_t *points);

/* The point itself, then what may help it: larger batches, other buckets, compression, other
 * plans. What cannot be done with its model is left out. */
weft_status_t weft__points_remedies(const weft_scaling_t *scaling, const weft_point_t *point,
                                    weft_points_t *points);

/* Measure all of them; results are on rank 0. `number` counts what was measured so far in this job,
 * and goes on. */
weft_status_t weft__points_measure(const weft_scaling_t *scaling, weft_comm_h comm,
                                   weft_points_t *points, int *number);

/* The share of communication in a step of the round that counts. */
double weft__point_communication(const weft_point_t *point);

/* ---- show.c: on rank 0 --------------------------------------------------------------------- */

void weft__scaling_print(const weft_scaling_t *scaling, const weft_points_t *points);
void weft__scaling_print_remedies(const weft_scaling_t *scaling, const weft_points_t *tried);
void weft__scaling_write(const weft_scaling_t *scaling, const weft_points_t *points,
                         const weft_points_t *tried, weft_json_t *json);

#endif
