/* Steps as people read them: a line that is drawn over itself on a terminal, plain lines
 * elsewhere, and the totals. */
#ifndef WEFT_TRAIN_PROGRESS_H
#define WEFT_TRAIN_PROGRESS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "train/metrics.h"

typedef struct weft_progress {
    FILE *out; /* NULL: silent */
    bool terminal;
    bool drawn; /* a line stands there that the next one overwrites */
    uint64_t start_ns, first, steps;
    uint64_t drawn_ns;
    int log_every;
} weft_progress_t;

void weft__progress_init(weft_progress_t *progress, FILE *out, uint64_t resumed, uint64_t steps,
                         int log_every);
void weft__progress_step(weft_progress_t *progress, const weft_metrics_step_t *step);
void weft__progress_say(weft_progress_t *progress, const char *format, va_list args);

/* Remove the line that is drawn. */
void weft__progress_clear(weft_progress_t *progress);

/* One step as text, without a new line, of at most `width` columns: what matters least is left out,
 * as a whole; the number of the step always stays. `left_s` < 0: the time left is not known.
 * Returns `out`. */
const char *weft__progress_text(char *out, size_t room, const weft_metrics_step_t *step,
                                uint64_t steps, double left_s, int width);

/* How far a text is encoded: nothing if it is done in a moment, then a line as above. */
typedef struct weft_encoding {
    FILE *out; /* NULL: silent */
    bool terminal, said;
    uint64_t start_ns, said_ns;
    uint64_t done;
} weft_encoding_t;

void weft__encoding_init(weft_encoding_t *encoding, FILE *out);
void weft__encoding_show(void *encoding, uint64_t done, uint64_t total); /* for weft_data_watch_t */
void weft__encoding_end(weft_encoding_t *encoding);

typedef struct weft_metrics_totals {
    uint64_t start_ns;
    uint64_t count, first_step, last_step, tokens, memory, skipped;
    double first_loss, last_loss, best_eval, last_eval;
    double seconds, comm_seconds, mfu_sum;
    uint64_t mfu_count, comm_count;
    float *rates; /* tokens per second of each step, for the median */
    size_t kept, room;
} weft_metrics_totals_t;

void weft__totals_init(weft_metrics_totals_t *totals);
void weft__totals_add(weft_metrics_totals_t *totals, const weft_metrics_step_t *step);
void weft__totals_print(const weft_metrics_totals_t *totals, FILE *out);
void weft__totals_free(weft_metrics_totals_t *totals);

#endif
