/* What a run folder tells: its configuration, its machine, its steps, and its trace if there is
 * one (RUN/trace.json, of weft train --trace). */
#ifndef WEFT_DOCTOR_RUN_H
#define WEFT_DOCTOR_RUN_H

#include "doctor/doctor.h"
#include "train/config.h"

/* A step of metrics.jsonl; what it does not say is NaN, or 0. */
typedef struct weft_run_step {
    uint64_t step;
    double loss, seconds, comm_share, bubble, tensor_share, exchange_share, update_share;
    double loss_scale;
    uint64_t memory;
    bool skipped, not_finite; /* the loss is null */
} weft_run_step_t;

typedef struct weft_run_steps {
    weft_run_step_t *list;
    int count;
    uint64_t lines;   /* in the file; of a long one the middle is not read */
    uint64_t damaged; /* lines that are no step */
    bool torn;        /* the last line has no end */
} weft_run_steps_t;

/* Seconds of a rank in a trace, by what it did. */
typedef struct weft_run_rank {
    double step, compute, data;
} weft_run_rank_t;

typedef struct weft_run_trace {
    weft_run_rank_t *ranks;
    int count;
} weft_run_trace_t;

typedef struct weft_doctor_run {
    weft_train_config_t config;
    bool has_config, has_machine, has_metrics, has_trace;
    char config_trouble[256], trace_trouble[256];
    char device[16], gpu[96], host[256];
    int64_t ranks, cpus, parameters;
    weft_run_steps_t steps;
    weft_run_trace_t trace;
} weft_doctor_run_t;

/* Into doctor->run. WEFT_ERR_NOT_FOUND, WEFT_ERR_INVALID if `folder` is no run's. */
weft_status_t weft__doctor_run_read(weft_doctor_t *doctor, const char *folder);
void weft__doctor_run_free(weft_doctor_run_t *run); /* NULL is fine */

/* The readers by themselves. */
weft_status_t weft__run_steps_read(FILE *in,
                                   weft_run_steps_t *steps_p); /* a file, from its start */
weft_status_t weft__run_trace_read(const char *text, size_t size, weft_run_trace_t *trace_p);

/* The median of a field over the steps after the start, which compiles, connects and warms up; NaN
 * if no step has it. */
double weft__run_median(const weft_run_steps_t *steps, size_t field);
#define WEFT_RUN_MEDIAN(steps, field) weft__run_median(steps, offsetof(weft_run_step_t, field))

#endif
