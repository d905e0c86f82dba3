/* What a run says about itself: DIR/metrics.jsonl, event files of TensorBoard (tensorboard.h), a
 * line on the terminal, a table at the end. Rank 0 has one.
 *
 * metrics.jsonl is one JSON object per line and step, each written by a single write(2), so that
 * a killed run leaves at most one line cut short, which the next one removes. */
#ifndef WEFT_TRAIN_METRICS_H
#define WEFT_TRAIN_METRICS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <weft/status.h>

/* One step. Fields that are NaN (or 0, for memory) are unknown and left out. */
typedef struct weft_metrics_step {
    uint64_t step; /* 1 after the first */
    double loss;
    double lr;
    double grad_norm;
    double seconds;      /* of the step */
    double tokens_per_s; /* over all ranks */
    double mfu;          /* share of the devices' peak; NaN where the peak is not known */
    double comm_share;   /* of the step's time in which a rank waited for communication alone */
    double bubble;       /* pipelines: share of forward and backward spent waiting for stages */
    double tensor_share, exchange_share, update_share; /* plans: of the step's time; see loop.c */
    double epoch;      /* passes over the data so far, with fraction */
    double eval_loss;  /* if there was a validation after the step */
    double loss_scale; /* fp16 */
    bool skipped;      /* gradients overflowed, and changed nothing */
    uint64_t tokens;   /* so far */
    uint64_t memory;   /* peak device memory of a rank, bytes */
} weft_metrics_step_t;

/* All unknown. */
#define WEFT_METRICS_STEP_INIT                                                                     \
    {                                                                                              \
        .loss = NAN, .lr = NAN, .grad_norm = NAN, .seconds = NAN, .tokens_per_s = NAN, .mfu = NAN, \
        .comm_share = NAN, .bubble = NAN, .tensor_share = NAN, .exchange_share = NAN,              \
        .update_share = NAN, .epoch = NAN, .eval_loss = NAN, .loss_scale = NAN                     \
    }

typedef struct weft_metrics_options {
    const char *folder;      /* of the run; NULL or "": no file */
    const char *tensorboard; /* folder for event files; NULL or "": none */
    uint64_t resumed; /* steps done before: lines of later ones are removed, and a line says so;
                         * 0: start anew */
    uint64_t steps;   /* in all */
    int log_every;    /* print every Nth step where `out` is no terminal */
    FILE *out;        /* progress; NULL: silent */
} weft_metrics_options_t;

typedef struct weft_metrics weft_metrics_t;

weft_status_t weft__metrics_open(const weft_metrics_options_t *options, weft_metrics_t **metrics_p);

/* Append the step and show it. WEFT_ERR_SYSTEM if a file cannot be written (disk full): the line
 * is kept, and tried again with the next step. */
weft_status_t weft__metrics_step(weft_metrics_t *metrics, const weft_metrics_step_t *step);

/* Try to write what could not be written; WEFT_OK: nothing is left of it. */
weft_status_t weft__metrics_catch_up(weft_metrics_t *metrics);

/* Print a line (a sampled text, "saved step-000100") without disturbing the progress line. */
void weft__metrics_say(weft_metrics_t *metrics, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Print the summary: steps, loss first and last and best validation, median tokens/s with its
 * spread, MFU, share of communication, memory, time. */
void weft__metrics_summary(weft_metrics_t *metrics);

weft_status_t weft__metrics_close(weft_metrics_t *metrics);

/* How much of the text of metrics.jsonl belongs to steps up to `last`: whole lines, up to the first
 * of a later step. A line that tells no step is not ours to remove, and does not end it. */
size_t weft__metrics_until(const char *text, size_t size, uint64_t last);

#endif
