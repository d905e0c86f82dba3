/* metrics.jsonl, event files, the progress line, the summary. */
#include "train/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/append.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/log.h"
#include "train/progress.h"
#include "train/tensorboard.h"

struct weft_metrics {
    weft_metrics_options_t options;
    weft_append_t file, events; /* metrics.jsonl, and TensorBoard's; not open: not wanted */
    uint64_t cut;               /* lines of steps after the one that the run goes on from */
    weft_progress_t progress;
    weft_metrics_totals_t totals;
};

/* ---- the file ------------------------------------------------------------------------------- */

/* The step of a line of the file; 0 if it is none of ours. */
static uint64_t step_of(const char *line, size_t length)
{
    weft_json_doc_t doc;
    uint64_t step = 0;
    if (weft__json_parse(line, length, "metrics.jsonl", &doc) == WEFT_OK) {
        weft__json_to_uint(weft__json_get(doc.root, "step"), &step);
        weft__json_free(&doc);
    }
    return step;
}

size_t weft__metrics_until(const char *text, size_t size, uint64_t last)
{
    size_t at = 0;
    while (at < size) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end != NULL ? (size_t)(end - (text + at)) : 0;
        if (end == NULL || step_of(text + at, length) > last) {
            break;
        }
        at += length + 1;
    }
    return at;
}

static uint64_t count_lines(const char *text, size_t size)
{
    uint64_t lines = 0;
    for (size_t i = 0; i < size; i++) {
        lines += text[i] == '\n';
    }
    return lines;
}

static weft_status_t open_file(weft_metrics_t *metrics, const char *folder, uint64_t resumed)
{
    size_t keep = 0, size;
    char path[WEFT_PATH_BYTES], *text;
    bool there;
    WEFT_TRY(weft__folder_make(folder));
    WEFT_TRY(weft__path_join(path, folder, "metrics.jsonl"));
    WEFT_TRY(weft__is_file(path, &there));
    if (resumed > 0 && there) {
        WEFT_TRY(weft__file_read(path, &text, &size));
        keep = weft__metrics_until(text, size, resumed);
        metrics->cut = count_lines(text + keep, size - keep);
        free(text);
    }
    return weft__append_open(&metrics->file, path, keep);
}

static void put(weft_json_t *json, const char *key, double value)
{
    if (!isnan(value)) {
        weft__json_double(json, key,
                          value); /* null if infinite: a loss that exploded is still told */
    }
}

static weft_status_t write_step(FILE *out, const weft_metrics_step_t *step)
{
    weft_json_t json;
    weft__json_start(&json, out);
    json.compact = true;
    weft__json_object(&json, NULL);
    weft__json_uint(&json, "step", step->step);
    put(&json, "loss",
        isnan(step->loss) ? HUGE_VAL : step->loss); /* always there, null if not finite */
    put(&json, "eval_loss", step->eval_loss);
    put(&json, "lr", step->lr);
    put(&json, "grad_norm", step->grad_norm);
    if (step->skipped) {
        weft__json_bool(&json, "skipped", true);
    }
    put(&json, "seconds", step->seconds);
    put(&json, "tokens_per_s", step->tokens_per_s);
    put(&json, "mfu", step->mfu);
    put(&json, "comm_share", step->comm_share);
    put(&json, "bubble", step->bubble);
    put(&json, "tensor_share", step->tensor_share);
    put(&json, "exchange_share", step->exchange_share);
    put(&json, "update_share", step->update_share);
    put(&json, "epoch", step->epoch);
    put(&json, "loss_scale", step->loss_scale);
    weft__json_uint(&json, "tokens", step->tokens);
    if (step->memory > 0) {
        weft__json_uint(&json, "memory", step->memory);
    }
    weft__json_end(&json);
    return weft__json_finish(&json);
}

/* Both are tried; the first failure counts. */
weft_status_t weft__metrics_catch_up(weft_metrics_t *metrics)
{
    weft_status_t status = weft__append_catch_up(&metrics->file);
    char why[1024];
    snprintf(why, sizeof(why), "%s", status != WEFT_OK ? weft_last_error() : "");
    weft_status_t events = weft__append_catch_up(&metrics->events);
    if (status != WEFT_OK) {
        weft__error_restore(why);
    }
    return status != WEFT_OK ? status : events;
}

static weft_status_t append_line(weft_append_t *file, const weft_metrics_step_t *step)
{
    char line[1024];
    FILE *out = fmemopen(line, sizeof(line), "w");
    if (out == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a line of %s", file->path);
    }
    weft_status_t status = write_step(out, step);
    long length = ftell(out);
    fclose(out);
    WEFT_TRY(status);
    return weft__append_write(file, line, (size_t)length);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static bool is_wanted(const char *folder)
{
    return folder != NULL && folder[0] != '\0';
}

weft_status_t weft__metrics_open(const weft_metrics_options_t *options, weft_metrics_t **metrics_p)
{
    weft_metrics_t *metrics = calloc(1, sizeof(*metrics));
    if (metrics == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for metrics");
    }
    metrics->options = *options;
    metrics->options.folder = metrics->options.tensorboard = NULL; /* the caller's */
    weft_status_t status = WEFT_OK;
    if (is_wanted(options->folder)) {
        status = open_file(metrics, options->folder, options->resumed);
    }
    if (status == WEFT_OK && is_wanted(options->tensorboard)) {
        status = weft__tensorboard_open(options->tensorboard, options->resumed, &metrics->events);
    }
    if (status != WEFT_OK) {
        weft__metrics_close(metrics);
        return status;
    }
    weft__progress_init(&metrics->progress, options->out, options->resumed, options->steps,
                        options->log_every);
    weft__totals_init(&metrics->totals);
    if (metrics->cut > 0) {
        weft__metrics_say(metrics,
                          "the run goes on from step %" PRIu64 ": %" PRIu64 " line%s of later "
                          "steps %s taken out of %s, as they are computed again",
                          options->resumed, metrics->cut, metrics->cut == 1 ? "" : "s",
                          metrics->cut == 1 ? "is" : "are", metrics->file.path);
    }
    *metrics_p = metrics;
    return WEFT_OK;
}

weft_status_t weft__metrics_step(weft_metrics_t *metrics, const weft_metrics_step_t *step)
{
    weft__totals_add(&metrics->totals, step);
    weft__progress_step(&metrics->progress, step);
    weft_status_t status = WEFT_OK;
    if (metrics->file.file != NULL) {
        status = append_line(&metrics->file, step);
    }
    if (metrics->events.file != NULL) {
        weft_status_t events = weft__tensorboard_step(&metrics->events, step);
        status = status != WEFT_OK ? status : events;
    }
    return status;
}

void weft__metrics_say(weft_metrics_t *metrics, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    weft__progress_say(&metrics->progress, format, args);
    va_end(args);
}

void weft__metrics_summary(weft_metrics_t *metrics)
{
    weft__progress_clear(&metrics->progress);
    if (metrics->options.out != NULL) {
        weft__totals_print(&metrics->totals, metrics->options.out);
        fflush(metrics->options.out);
    }
}

weft_status_t weft__metrics_close(weft_metrics_t *metrics)
{
    if (metrics == NULL) {
        return WEFT_OK;
    }
    weft__progress_clear(&metrics->progress);
    weft_status_t status = weft__append_close(&metrics->file);
    weft_status_t events = weft__append_close(&metrics->events);
    weft__totals_free(&metrics->totals);
    free(metrics);
    return status != WEFT_OK ? status : events;
}
