/* The progress line and the summary. */
#include "train/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "boot/job.h"

#define REDRAW_NS 100000000u /* ten times a second is enough for eyes */

/* "123", "45.6k", "1.23M", "7.89G" */
static const char *short_number(char *out, size_t room, double value)
{
    static const char units[] = {0, 'k', 'M', 'G', 'T'};
    int unit = 0;
    while (fabs(value) >= 999.5 && unit < 4) {
        value /= 1000;
        unit++;
    }
    int digits = unit == 0 || fabs(value) >= 99.95 ? 0 : fabs(value) >= 9.995 ? 1 : 2;
    snprintf(out, room, unit > 0 ? "%.*f%c" : "%.*f", digits, value, units[unit]);
    return out;
}

static const char *short_bytes(char *out, size_t room, double value)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(out, room, "%.*f %s", unit > 0 && value < 100 ? 1 : 0, value, units[unit]);
    return out;
}

/* "12s", "3m05s", "2h14m", "3d04h" */
static const char *short_time(char *out, size_t room, double seconds)
{
    uint64_t s = seconds < 0 ? 0 : (uint64_t)(seconds + 0.5);
    if (s < 60) {
        snprintf(out, room, "%" PRIu64 "s", s);
    } else if (s < 3600) {
        snprintf(out, room, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(out, room, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    } else {
        snprintf(out, room, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s / 3600 % 24);
    }
    return out;
}

/* One item of the line; those of the highest number are left out first where it does not fit. */
typedef struct field {
    int order; /* one of those below */
    char text[48];
} field_t;

enum {
    KEEP_STEP = 1,
    KEEP_LOSS,
    KEEP_EVENT, /* a validation, a step that was skipped */
    KEEP_LEFT,
    KEEP_RATE,
    KEEP_MFU,
    KEEP_COMM,
    KEEP_MEMORY,
    KEEP_NORM,
    KEEP_LR,
};

#define FIELDS_MOST 10

__attribute__((format(printf, 3, 4))) static void add(field_t **at, int order, const char *format,
                                                      ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf((*at)->text, sizeof((*at)->text), format, args);
    va_end(args);
    (*at)->order = order;
    ++*at;
}

static int make_fields(const weft_metrics_step_t *step, uint64_t steps, double left_s,
                       field_t *fields)
{
    char part[32];
    field_t *at = fields;
    add(&at, KEEP_STEP, "step %" PRIu64 "/%" PRIu64, step->step, steps);
    add(&at, KEEP_LOSS, "loss %.4f", step->loss);
    if (!isnan(step->eval_loss)) {
        add(&at, KEEP_EVENT, "eval %.4f", step->eval_loss);
    }
    if (!isnan(step->lr)) {
        add(&at, KEEP_LR, "lr %.2e", step->lr);
    }
    if (step->skipped) {
        add(&at, KEEP_EVENT, "skipped: overflow");
    } else if (!isnan(step->grad_norm)) {
        add(&at, KEEP_NORM, "norm %.2f", step->grad_norm);
    }
    if (!isnan(step->tokens_per_s)) {
        add(&at, KEEP_RATE, "%s tok/s", short_number(part, sizeof(part), step->tokens_per_s));
    }
    if (!isnan(step->mfu)) {
        add(&at, KEEP_MFU, "mfu %.0f%%", 100 * step->mfu);
    }
    if (!isnan(step->comm_share)) {
        add(&at, KEEP_COMM, "comm %.0f%%", 100 * step->comm_share);
    }
    if (step->memory > 0) {
        add(&at, KEEP_MEMORY, "mem %s", short_bytes(part, sizeof(part), (double)step->memory));
    }
    if (left_s >= 0) {
        add(&at, KEEP_LEFT, "left %s", short_time(part, sizeof(part), left_s));
    }
    return (int)(at - fields);
}

/* The fields up to `order`, as one line. Returns its length, were there room for it. */
static size_t join_fields(const field_t *fields, int count, int order, char *out, size_t room)
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < count; i++) {
        if (fields[i].order <= order) {
            at += (size_t)snprintf(out + (at < room ? at : room), at < room ? room - at : 0, "%s%s",
                                   at > 0 ? "  " : "", fields[i].text);
        }
    }
    return at;
}

const char *weft__progress_text(char *out, size_t room, const weft_metrics_step_t *step,
                                uint64_t steps, double left_s, int width)
{
    field_t fields[FIELDS_MOST];
    int count = make_fields(step, steps, left_s, fields);
    int order = KEEP_LR;
    while (join_fields(fields, count, order, out, room) > (size_t)width && order > KEEP_STEP) {
        order--;
    }
    return out;
}

/* Control sequences are for a terminal that is ours. Launchers of others give ranks a terminal of
 * their own making, and copy what comes out of it into files and pipes. */
static bool is_terminal(FILE *out)
{
    const weft_job_t *job;
    const char *kind = getenv("TERM");
    bool foreign = weft__job(&job) == WEFT_OK && strcmp(job->launcher, "none") != 0 &&
                   strcmp(job->launcher, "weft") != 0;
    return out != NULL && isatty(fileno(out)) && !foreign &&
           !(kind != NULL && strcmp(kind, "dumb") == 0);
}

void weft__progress_init(weft_progress_t *progress, FILE *out, uint64_t resumed, uint64_t steps,
                         int log_every)
{
    *progress = (weft_progress_t){.out = out,
                                  .terminal = is_terminal(out),
                                  .start_ns = weft__now_ns(),
                                  .first = resumed,
                                  .steps = steps,
                                  .log_every = log_every > 0 ? log_every : 1};
}

void weft__progress_clear(weft_progress_t *progress)
{
    if (progress->drawn) {
        fputs("\r\033[K", progress->out);
        fflush(progress->out);
        progress->drawn = false;
    }
}

static int columns(FILE *out)
{
    struct winsize size;
    return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void weft__progress_step(weft_progress_t *progress, const weft_metrics_step_t *step)
{
    char text[512];
    uint64_t now = weft__now_ns();
    bool last = step->step >= progress->steps;
    if (progress->out == NULL) {
        return;
    }
    double done = step->step > progress->first ? (double)(step->step - progress->first) : 1;
    double left = (double)(now - progress->start_ns) * 1e-9 / done *
                  (double)(last ? 0 : progress->steps - step->step);
    /* A file has room for everything; a line of a terminal that wraps cannot be drawn again. */
    int width = progress->terminal ? columns(progress->out) - 1 : (int)sizeof(text);
    weft__progress_text(text, sizeof(text), step, progress->steps, last ? -1 : left, width);
    if (!progress->terminal) {
        if (step->step % (uint64_t)progress->log_every == 0 || last || !isnan(step->eval_loss)) {
            fprintf(progress->out, "%s\n", text);
            fflush(progress->out);
        }
        return;
    }
    bool stays = last || !isnan(step->eval_loss); /* worth keeping on the screen */
    if (!stays && progress->drawn && now - progress->drawn_ns < REDRAW_NS) {
        return;
    }
    fprintf(progress->out, "\r\033[K%.*s%s", width, text, stays ? "\n" : "");
    fflush(progress->out);
    progress->drawn = !stays;
    progress->drawn_ns = now;
}

void weft__progress_say(weft_progress_t *progress, const char *format, va_list args)
{
    if (progress->out == NULL) {
        return;
    }
    weft__progress_clear(progress);
    vfprintf(progress->out, format, args);
    fputc('\n', progress->out);
    fflush(progress->out);
}

/* ---- encoding ------------------------------------------------------------------------------- */

#define MOMENT_NS 1000000000u    /* of which nobody wants to hear */
#define LINE_NS 10000000000u     /* between two lines that stay */
#define MUCH ((uint64_t)1 << 28) /* bytes that will take more than a moment */

void weft__encoding_init(weft_encoding_t *encoding, FILE *out)
{
    *encoding = (weft_encoding_t){
        .out = out, .terminal = out != NULL && isatty(fileno(out)), .start_ns = weft__now_ns()};
}

void weft__encoding_show(void *ctx, uint64_t done, uint64_t total)
{
    weft_encoding_t *e = ctx;
    uint64_t now = weft__now_ns();
    uint64_t since = now - (e->said ? e->said_ns : e->start_ns);
    uint64_t wait = !e->said ? (total >= MUCH ? 0 : MOMENT_NS) : e->terminal ? REDRAW_NS : LINE_NS;
    e->done = done;
    if (e->out == NULL || since < wait) {
        return;
    }
    char all[32], part[32], left[32] = "";
    double share = total > 0 ? (double)done / (double)total : 0;
    if (done > 0 && done < total) {
        short_time(left, sizeof(left), (double)(now - e->start_ns) * 1e-9 * (1 - share) / share);
    }
    short_bytes(part, sizeof(part), (double)done);
    short_bytes(all, sizeof(all), (double)total);
    fprintf(e->out, "%sencoding text: %s of %s (%.0f%%)%s%s%s", e->terminal ? "\r\033[K" : "", part,
            all, 100 * share, left[0] != '\0' ? "  left " : "", left, e->terminal ? "" : "\n");
    fflush(e->out);
    e->said = true;
    e->said_ns = now;
}

void weft__encoding_end(weft_encoding_t *e)
{
    char all[32], took[32];
    if (e->said) {
        fprintf(e->out, "%sencoded %s of text in %s\n", e->terminal ? "\r\033[K" : "",
                short_bytes(all, sizeof(all), (double)e->done),
                short_time(took, sizeof(took), (double)(weft__now_ns() - e->start_ns) * 1e-9));
        fflush(e->out);
    }
}

/* ---- totals --------------------------------------------------------------------------------- */

void weft__totals_init(weft_metrics_totals_t *totals)
{
    *totals = (weft_metrics_totals_t){.start_ns = weft__now_ns(),
                                      .first_loss = NAN,
                                      .last_loss = NAN,
                                      .best_eval = NAN,
                                      .last_eval = NAN};
}

void weft__totals_free(weft_metrics_totals_t *totals)
{
    free(totals->rates);
    totals->rates = NULL;
}

static void keep_rate(weft_metrics_totals_t *totals, double rate)
{
    if (totals->kept == totals->room) {
        size_t room = totals->room * 2 + 1024;
        float *rates = realloc(totals->rates, room * sizeof(*rates));
        if (rates == NULL) {
            return; /* the median is then that of the other steps */
        }
        totals->rates = rates;
        totals->room = room;
    }
    totals->rates[totals->kept++] = isnan(rate) ? 0 : (float)rate;
}

void weft__totals_add(weft_metrics_totals_t *totals, const weft_metrics_step_t *step)
{
    if (totals->count == 0) {
        totals->first_step = step->step;
        totals->first_loss = step->loss;
    }
    keep_rate(totals, step->tokens_per_s);
    totals->count++;
    totals->skipped += step->skipped;
    totals->last_step = step->step;
    totals->last_loss = step->loss;
    totals->tokens = step->tokens;
    totals->memory = step->memory > totals->memory ? step->memory : totals->memory;
    if (!isnan(step->eval_loss)) {
        totals->last_eval = step->eval_loss;
        totals->best_eval = fmin(totals->best_eval, step->eval_loss); /* fmin takes the number */
    }
    if (!isnan(step->mfu)) {
        totals->mfu_sum += step->mfu;
        totals->mfu_count++;
    }
    if (!isnan(step->seconds)) {
        totals->seconds += step->seconds;
        if (!isnan(step->comm_share)) {
            totals->comm_seconds += step->seconds * step->comm_share;
            totals->comm_count++;
        }
    }
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Median and quartiles without the first steps, in which caches fill. */
static void print_rates(const weft_metrics_totals_t *totals, FILE *out)
{
    size_t skip = totals->kept > 10 ? 5 : 0, count = totals->kept - skip;
    float *sorted = count > 0 ? malloc(count * sizeof(*sorted)) : NULL;
    if (sorted == NULL) {
        return;
    }
    memcpy(sorted, totals->rates + skip, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), by_value);
    char median[32], low[32], high[32];
    fprintf(out, "  %-16s %s (middle half %s to %s)\n", "tokens/s",
            short_number(median, sizeof(median), (double)sorted[count / 2]),
            short_number(low, sizeof(low), (double)sorted[count / 4]),
            short_number(high, sizeof(high), (double)sorted[count - 1 - count / 4]));
    free(sorted);
}

void weft__totals_print(const weft_metrics_totals_t *totals, FILE *out)
{
    char a[32], b[32];
    if (totals->count == 0) {
        fprintf(out, "no step was made\n");
        return;
    }
    fprintf(out, "\nsummary\n");
    fprintf(out, "  %-16s %" PRIu64 " (%" PRIu64 " to %" PRIu64 "), %s tokens seen in all\n",
            "steps", totals->count, totals->first_step, totals->last_step,
            short_number(a, sizeof(a), (double)totals->tokens));
    fprintf(out, "  %-16s %.4f -> %.4f\n", "loss", totals->first_loss, totals->last_loss);
    if (!isnan(totals->last_eval)) {
        fprintf(out, "  %-16s %.4f (best %.4f)\n", "validation loss", totals->last_eval,
                totals->best_eval);
    }
    if (totals->skipped > 0) {
        fprintf(out, "  %-16s %" PRIu64 " of these steps, as gradients overflowed\n", "skipped",
                totals->skipped);
    }
    print_rates(totals, out);
    if (totals->mfu_count > 0) {
        fprintf(out, "  %-16s %.1f%%\n", "mfu", 100 * totals->mfu_sum / (double)totals->mfu_count);
    }
    if (totals->comm_count > 0 && totals->seconds > 0) {
        fprintf(out, "  %-16s %.1f%% of the time\n", "communication",
                100 * totals->comm_seconds / totals->seconds);
    }
    if (totals->memory > 0) {
        fprintf(out, "  %-16s %s per rank\n", "peak memory",
                short_bytes(a, sizeof(a), (double)totals->memory));
    }
    double wall = (double)(weft__now_ns() - totals->start_ns) * 1e-9;
    fprintf(out, "  %-16s %s in steps, %s in all\n", "time",
            short_time(a, sizeof(a), totals->seconds), short_time(b, sizeof(b), wall));
}
