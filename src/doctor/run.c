#include "doctor/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json_read.h"
#include "base/log.h"
#include "base/median.h"
#include "parallel/timeline.h"

#define FIRST_LINES 1000 /* of a long file, these and the last ones */
#define LAST_LINES 19000
#define LINE_MOST (1 << 16) /* bytes */
#define TRACE_MOST ((off_t)512 << 20)
#define WARM_UP 10 /* steps at most */

/* ---- metrics.jsonl --------------------------------------------------------------------------- */

static double number(const weft_json_value_t *object, const char *key)
{
    double value = NAN;
    weft__json_to_double(weft__json_get(object, key), &value);
    return value;
}

static bool read_step(const char *line, size_t length, weft_run_step_t *step)
{
    weft_json_doc_t doc;
    uint64_t at = 0;
    if (weft__json_parse(line, length, "metrics.jsonl", &doc) != WEFT_OK) {
        return false;
    }
    bool known = weft__json_to_uint(weft__json_get(doc.root, "step"), &at);
    const weft_json_value_t *loss = weft__json_get(doc.root, "loss");
    *step = (weft_run_step_t){.step = at,
                              .loss = number(doc.root, "loss"),
                              .seconds = number(doc.root, "seconds"),
                              .comm_share = number(doc.root, "comm_share"),
                              .bubble = number(doc.root, "bubble"),
                              .tensor_share = number(doc.root, "tensor_share"),
                              .exchange_share = number(doc.root, "exchange_share"),
                              .update_share = number(doc.root, "update_share"),
                              .loss_scale = number(doc.root, "loss_scale"),
                              .not_finite = loss != NULL && loss->kind == WEFT_JSON_NULL};
    weft__json_to_uint(weft__json_get(doc.root, "memory"), &step->memory);
    weft__json_to_bool(weft__json_get(doc.root, "skipped"), &step->skipped);
    weft__json_free(&doc);
    return known;
}

/* Count the lines. A file may be larger than memory, so only what is looked at is read: the line
 * that the last ones begin with is at *last_p. */
static weft_status_t survey(FILE *in, weft_run_steps_t *steps, off_t *last_p)
{
    enum { RING = LAST_LINES + 1 }; /* starts of the last lines, and of what follows them */
    off_t *starts = calloc(RING, sizeof(*starts)), at = 0;
    char block[1 << 14], end = '\n';
    size_t count;
    if (starts == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the steps of a run");
    }
    while ((count = fread(block, 1, sizeof(block), in)) > 0) {
        for (size_t i = 0; i < count; i++) {
            at++;
            if (block[i] == '\n') {
                starts[++steps->lines % RING] = at;
            }
        }
        end = block[count - 1];
    }
    steps->torn = end != '\n';
    *last_p = starts[(steps->lines + 1) % RING];
    free(starts);
    return ferror(in)
               ? weft__fail(WEFT_ERR_SYSTEM, "cannot read metrics.jsonl: %s", strerror(errno))
               : WEFT_OK;
}

/* Read `count` lines from here on; one that is longer than a step can be is damaged. */
static void read_lines(FILE *in, uint64_t count, char line[LINE_MOST], weft_run_steps_t *steps)
{
    while (count-- > 0) {
        size_t length = 0;
        int c;
        while ((c = getc(in)) != '\n' && c != EOF) {
            if (length < LINE_MOST) {
                line[length] = (char)c;
            }
            length++;
        }
        bool good = length <= LINE_MOST && read_step(line, length, &steps->list[steps->count]);
        steps->count += good;
        steps->damaged += !good;
    }
}

weft_status_t weft__run_steps_read(FILE *in, weft_run_steps_t *steps_p)
{
    weft_run_steps_t steps = {0};
    off_t last;
    WEFT_TRY(survey(in, &steps, &last));
    bool all = steps.lines <= FIRST_LINES + LAST_LINES;
    uint64_t first = all ? steps.lines : FIRST_LINES, rest = all ? 0 : LAST_LINES;
    char *line = malloc(LINE_MOST);
    steps.list = calloc(first + rest + 1, sizeof(*steps.list));
    if (steps.list == NULL || line == NULL) {
        free(steps.list);
        free(line);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the steps of a run");
    }
    rewind(in);
    read_lines(in, first, line, &steps);
    if (rest > 0 && fseeko(in, last, SEEK_SET) == 0) {
        read_lines(in, rest, line, &steps);
    }
    free(line);
    *steps_p = steps;
    return WEFT_OK;
}

double weft__run_median(const weft_run_steps_t *steps, size_t field)
{
    int skip = steps->count / 4 < WARM_UP ? steps->count / 4 : WARM_UP, count = 0;
    double *values = calloc((size_t)steps->count + 1, sizeof(*values)), median = NAN;
    for (int i = skip; values != NULL && i < steps->count; i++) {
        double value = *(const double *)((const char *)&steps->list[i] + field);
        if (isfinite(value)) {
            values[count++] = value;
        }
    }
    if (count > 0) {
        median = weft__median(values, (size_t)count);
    }
    free(values);
    return median;
}

/* ---- trace.json ------------------------------------------------------------------------------ */

#define TRACE_RANKS 65536

static weft_status_t grow(weft_run_trace_t *trace, int64_t rank)
{
    if (rank < trace->count) {
        return WEFT_OK;
    }
    weft_run_rank_t *ranks = realloc(trace->ranks, ((size_t)rank + 1) * sizeof(*ranks));
    if (ranks == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the ranks of a trace");
    }
    memset(ranks + trace->count, 0, ((size_t)rank + 1 - (size_t)trace->count) * sizeof(*ranks));
    trace->ranks = ranks;
    trace->count = (int)rank + 1;
    return WEFT_OK;
}

static weft_status_t add_span(const weft_json_value_t *event, weft_run_trace_t *trace)
{
    int64_t rank, track;
    double us;
    if (!weft__json_is(weft__json_get(event, "ph"), "X") ||
        !weft__json_to_int(weft__json_get(event, "pid"), &rank) ||
        !weft__json_to_int(weft__json_get(event, "tid"), &track) ||
        !weft__json_to_double(weft__json_get(event, "dur"), &us) || rank < 0 ||
        rank >= TRACE_RANKS || !(us >= 0)) {
        return WEFT_OK;
    }
    WEFT_TRY(grow(trace, rank));
    weft_run_rank_t *out = &trace->ranks[rank];
    out->step += track == WEFT_TRACK_STEP ? us / 1e6 : 0;
    out->compute += track == WEFT_TRACK_COMPUTE ? us / 1e6 : 0;
    out->data += track == WEFT_TRACK_DATA ? us / 1e6 : 0;
    return WEFT_OK;
}

weft_status_t weft__run_trace_read(const char *text, size_t size, weft_run_trace_t *trace_p)
{
    weft_json_doc_t doc;
    weft_run_trace_t trace = {0};
    weft_status_t status = WEFT_OK;
    WEFT_TRY(weft__json_parse(text, size, "trace.json", &doc));
    const weft_json_value_t *events = weft__json_get(doc.root, "traceEvents");
    if (events == NULL || events->kind != WEFT_JSON_ARRAY) {
        weft__json_free(&doc);
        return weft__fail(WEFT_ERR_INVALID, "trace.json has no traceEvents");
    }
    for (const weft_json_value_t *at = weft__json_first(events); at != NULL && status == WEFT_OK;
         at = weft__json_next(events, at)) {
        status = add_span(at, &trace);
    }
    weft__json_free(&doc);
    if (status != WEFT_OK) {
        free(trace.ranks);
        return status;
    }
    *trace_p = trace;
    return WEFT_OK;
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* A file of the folder, malloced; NULL: there is none, or it cannot be read. */
static char *read_file(const char *folder, const char *name, size_t *size_p)
{
    char path[WEFT_PATH_BYTES], *text = NULL;
    bool there = false;
    if (weft__path_join(path, folder, name) != WEFT_OK || weft__is_file(path, &there) != WEFT_OK ||
        !there || weft__file_read(path, &text, size_p) != WEFT_OK) {
        return NULL;
    }
    return text;
}

static void read_config(weft_doctor_run_t *run, const char *folder)
{
    size_t size;
    bool help;
    char name[] = "train", *argv[] = {name, NULL};
    char *text = read_file(folder, "config", &size);
    if (text == NULL) {
        return;
    }
    /* the defaults first: a run of an earlier version may lack options */
    run->has_config = weft__train_parse(1, argv, &run->config, &help) == WEFT_OK &&
                      weft__train_read_text(text, "config", &run->config) == WEFT_OK;
    if (!run->has_config) {
        snprintf(run->config_trouble, sizeof(run->config_trouble), "%.255s", weft_last_error());
    }
    free(text);
}

static void read_machine(weft_doctor_run_t *run, const char *folder)
{
    weft_json_doc_t doc;
    size_t size;
    char *text = read_file(folder, "machine.json", &size);
    if (text == NULL || weft__json_parse(text, size, "machine.json", &doc) != WEFT_OK) {
        free(text);
        return;
    }
    run->has_machine = true;
    snprintf(run->device, sizeof(run->device), "%.15s",
             weft__json_text(weft__json_get(doc.root, "device"), ""));
    snprintf(run->gpu, sizeof(run->gpu), "%.95s",
             weft__json_text(weft__json_get(doc.root, "gpu"), ""));
    snprintf(run->host, sizeof(run->host), "%.255s",
             weft__json_text(weft__json_get(doc.root, "host"), ""));
    weft__json_to_int(weft__json_get(doc.root, "ranks"), &run->ranks);
    weft__json_to_int(weft__json_get(doc.root, "cpus"), &run->cpus);
    weft__json_to_int(weft__json_get(doc.root, "parameters"), &run->parameters);
    weft__json_free(&doc);
    free(text);
}

static weft_status_t read_metrics(weft_doctor_run_t *run, const char *folder)
{
    char path[WEFT_PATH_BYTES];
    bool there = false;
    if (weft__path_join(path, folder, "metrics.jsonl") != WEFT_OK ||
        weft__is_file(path, &there) != WEFT_OK || !there) {
        return WEFT_OK;
    }
    FILE *in = fopen(path, "re");
    if (in == NULL) {
        return errno == ENOMEM ? weft__fail(WEFT_ERR_NO_MEMORY, "no memory to read %s", path)
                               : WEFT_OK;
    }
    weft_status_t status = weft__run_steps_read(in, &run->steps);
    run->has_metrics = status == WEFT_OK;
    fclose(in);
    return status;
}

static void read_trace(weft_doctor_run_t *run, const char *folder)
{
    char path[WEFT_PATH_BYTES];
    struct stat about;
    size_t size;
    if (weft__path_join(path, folder, "trace.json") != WEFT_OK || stat(path, &about) != 0) {
        return;
    }
    if (about.st_size > TRACE_MOST) {
        snprintf(run->trace_trouble, sizeof(run->trace_trouble),
                 "trace.json has more than 512 MiB; trace fewer steps");
        return;
    }
    char *text = read_file(folder, "trace.json", &size);
    run->has_trace = text != NULL && weft__run_trace_read(text, size, &run->trace) == WEFT_OK;
    if (!run->has_trace) {
        snprintf(run->trace_trouble, sizeof(run->trace_trouble), "%.255s", weft_last_error());
    }
    free(text);
}

weft_status_t weft__doctor_run_read(weft_doctor_t *doctor, const char *folder)
{
    struct stat about;
    if (stat(folder, &about) != 0 || !S_ISDIR(about.st_mode)) {
        return weft__fail(WEFT_ERR_NOT_FOUND, "there is no folder %s", folder);
    }
    weft_doctor_run_t *run = calloc(1, sizeof(*run));
    if (run == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a run");
    }
    read_config(run, folder);
    read_machine(run, folder);
    weft_status_t status = read_metrics(run, folder);
    if (status == WEFT_OK && !run->has_metrics && !run->has_config && !run->has_machine &&
        run->config_trouble[0] == '\0') {
        status = weft__fail(WEFT_ERR_INVALID,
                            "%s is no run folder: it has neither config nor metrics.jsonl", folder);
    }
    if (status == WEFT_OK) {
        read_trace(run, folder);
        doctor->run = run;
    } else {
        weft__doctor_run_free(run);
    }
    return status;
}

void weft__doctor_run_free(weft_doctor_run_t *run)
{
    if (run != NULL) {
        weft__train_free(&run->config);
        free(run->steps.list);
        free(run->trace.ranks);
        free(run);
    }
}
