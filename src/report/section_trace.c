/* One step of a trace, rank by rank. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/median.h"
#include "report/html.h"
#include "report/input.h"
#include "report/page.h"
#include "report/plot.h"
#include "report/section.h"
#include "report/trace_spans.h"
#include "report/values.h"

#define ROWS_MOST 96   /* tracks of ranks; more are told of */
#define SPANS_MOST 800 /* longer ones first; the rest is told of */
#define LABEL_BYTES 64
#define TOUCH 1e-3 /* of the step */

/* What a span is, by the track it is on or by its name; the first that fits. */
typedef struct sort {
    const char *name;  /* in the legend */
    const char *track; /* how the track's name begins; NULL: any */
    const char *begin; /* how the span's name begins; NULL: any */
    int color;
} sort_t;

static const sort_t sorts[] = {
    {"waiting for a stage", "communication: wait", NULL, 3},
    {"communication", "communication", NULL, 1},
    {"forward", NULL, "forward", 0},
    {"backward", NULL, "backward", 2},
    {"optimizer", NULL, "optimizer", 6},
    {"data", "data", NULL, 5},
    {"checkpoint", "checkpoint", NULL, 7},
    {"other", NULL, NULL, 4},
};
#define SORTS ((int)(sizeof(sorts) / sizeof(sorts[0])))

typedef struct track {
    int64_t rank, number;
    char group[LABEL_BYTES], label[LABEL_BYTES];
} track_t;

typedef struct step {
    weft_trace_spans_t spans; /* those that are shown, by rank, track and start */
    weft_trace_window_t window;
    track_t tracks[ROWS_MOST];
    int track_count;
    int tracks_more;               /* did not fit */
    size_t cut;                    /* spans that are too short to be drawn */
    double busy[ROWS_MOST][SORTS]; /* milliseconds of each rank, at its first track */
    bool seen[SORTS];
} step_t;

static int sort_of(const char *track, const char *name)
{
    int i = 0;
    while (
        (sorts[i].track != NULL && strncmp(track, sorts[i].track, strlen(sorts[i].track)) != 0) ||
        (sorts[i].begin != NULL && strncmp(name, sorts[i].begin, strlen(sorts[i].begin)) != 0)) {
        i++;
    }
    return i;
}

/* ---- choosing what is shown ----------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const weft_trace_event_t *x = a, *y = b;
    return x->rank != y->rank     ? (x->rank > y->rank) - (x->rank < y->rank)
           : x->track != y->track ? (x->track > y->track) - (x->track < y->track)
                                  : (x->start > y->start) - (x->start < y->start);
}

/* Spans of other steps, and those of whole steps, which are the frame, are dropped; so are those
 * that belong to what is before or after, and only touch the step. */
static void keep_window(step_t *step)
{
    weft_trace_spans_t *spans = &step->spans;
    const weft_trace_window_t *window = &step->window;
    size_t kept = 0;
    for (size_t i = 0; i < spans->count; i++) {
        const weft_trace_event_t *span = &spans->at[i];
        bool frame = !isnan(span->step) && strcmp(span->name, "step") == 0;
        double overlap = fmin(span->end, window->end) - fmax(span->start, window->start);
        bool inside = span->start >= window->start && span->end <= window->end;
        if (!frame && (inside || overlap > TOUCH * (window->end - window->start))) {
            spans->at[kept++] = *span;
        }
    }
    spans->count = kept;
    qsort(spans->at, spans->count, sizeof(*spans->at), by_place);
}

static void name_track(const weft_json_value_t *root, const weft_trace_event_t *span,
                       track_t *track)
{
    const char *rank = weft__trace_name(root, span->rank, -1);
    const char *name = span->track < 0 ? NULL : weft__trace_name(root, span->rank, span->track);
    track->rank = span->rank;
    track->number = span->track;
    if (rank != NULL) {
        snprintf(track->group, LABEL_BYTES, "%s", rank);
    } else {
        snprintf(track->group, LABEL_BYTES, "rank %" PRId64, span->rank);
    }
    if (name != NULL) {
        snprintf(track->label, LABEL_BYTES, "%s", name);
    } else {
        snprintf(track->label, LABEL_BYTES, "track %" PRId64, span->track);
    }
}

/* Drop tracks on which next to nothing happens in this step; spans are in the order of tracks. */
static void drop_idle_tracks(step_t *step)
{
    weft_trace_spans_t *spans = &step->spans;
    const weft_trace_window_t *window = &step->window;
    size_t kept = 0;
    for (size_t from = 0, to; from < spans->count; from = to) {
        const weft_trace_event_t *first = &spans->at[from];
        double busy = 0;
        for (to = from; to < spans->count && spans->at[to].rank == first->rank &&
                        spans->at[to].track == first->track;
             to++) {
            busy += fmin(spans->at[to].end, window->end) - fmax(spans->at[to].start, window->start);
        }
        if (busy < TOUCH * (window->end - window->start)) {
            step->cut += to - from;
            continue;
        }
        memmove(&spans->at[kept], first, (to - from) * sizeof(*first));
        kept += to - from;
    }
    spans->count = kept;
}

/* Tracks in the order of spans; spans of those that do not fit are dropped. */
static void find_tracks(step_t *step, const weft_json_value_t *root)
{
    weft_trace_spans_t *spans = &step->spans;
    size_t kept = 0;
    const weft_trace_event_t *last = NULL;
    for (size_t i = 0; i < spans->count; i++) {
        const weft_trace_event_t *span = &spans->at[i];
        bool begins = last == NULL || last->rank != span->rank || last->track != span->track;
        last = span;
        if (begins && step->track_count == ROWS_MOST) {
            step->tracks_more++;
        } else if (begins) {
            name_track(root, span, &step->tracks[step->track_count++]);
        }
        if (step->tracks_more == 0) {
            spans->at[kept] = *span;
            last = &spans->at[kept++];
        }
    }
    spans->count = kept;
}

/* The length below which spans are dropped so that SPANS_MOST are left. */
static weft_status_t find_shortest(const step_t *step, double *shortest_p)
{
    double *lengths;
    *shortest_p = 0;
    if (step->spans.count <= SPANS_MOST) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__values_alloc(&lengths, step->spans.count, sizeof(*lengths)));
    for (size_t i = 0; i < step->spans.count; i++) {
        lengths[i] = step->spans.at[i].end - step->spans.at[i].start;
    }
    weft__sort(lengths, step->spans.count);
    *shortest_p = lengths[step->spans.count - SPANS_MOST];
    free(lengths);
    return WEFT_OK;
}

/* ---- how long ------------------------------------------------------------------------------- */

/* When a rank was at something. */
typedef struct stretch {
    int home, sort; /* home: the first track of the rank */
    double start, end;
} stretch_t;

static int by_start(const void *a, const void *b)
{
    const stretch_t *x = a, *y = b;
    return x->home != y->home   ? x->home - y->home
           : x->sort != y->sort ? x->sort - y->sort
                                : (x->start > y->start) - (x->start < y->start);
}

/* Spans may lie inside others of their sort, on one track or on two, such as the loops of a pair:
 * such a time counts once. Sorts `stretches`. */
static void sum_busy(step_t *step, stretch_t *stretches, size_t count)
{
    double behind = 0;
    qsort(stretches, count, sizeof(*stretches), by_start);
    for (size_t i = 0; i < count; i++) {
        const stretch_t *at = &stretches[i];
        bool begins = i == 0 || at->home != at[-1].home || at->sort != at[-1].sort;
        double start = begins ? at->start : fmax(at->start, behind);
        step->busy[at->home][at->sort] += fmax(at->end - start, 0);
        behind = begins ? at->end : fmax(at->end, behind);
    }
}

/* ---- drawing -------------------------------------------------------------------------------- */

static weft_status_t make_spans(step_t *step, weft_plot_span_t **spans_p, size_t *count_p)
{
    weft_plot_span_t *spans;
    stretch_t *stretches;
    size_t count = 0;
    double shortest;
    int row = 0, home = 0; /* home: the first track of the rank */
    WEFT_TRY(find_shortest(step, &shortest));
    WEFT_TRY(weft__values_alloc(&stretches, step->spans.count, sizeof(*stretches)));
    weft_status_t status = weft__values_alloc(&spans, SPANS_MOST, sizeof(*spans));
    if (status != WEFT_OK) {
        free(stretches);
        return status;
    }
    for (size_t i = 0; i < step->spans.count; i++) {
        const weft_trace_event_t *span = &step->spans.at[i];
        while (step->tracks[row].rank != span->rank || step->tracks[row].number != span->track) {
            row++;
            home = step->tracks[row].rank != step->tracks[home].rank ? row : home;
        }
        int sort = sort_of(step->tracks[row].label, span->name);
        step->seen[sort] = true;
        stretches[i] = (stretch_t){.home = home,
                                   .sort = sort,
                                   .start = fmax(span->start, step->window.start),
                                   .end = fmin(span->end, step->window.end)};
        if (span->end - span->start < shortest || count == SPANS_MOST) {
            step->cut++;
            continue;
        }
        spans[count++] = (weft_plot_span_t){.row = row,
                                            .color = sorts[sort].color,
                                            .start = span->start - step->window.start,
                                            .end = span->end - step->window.start,
                                            .name = span->name};
    }
    sum_busy(step, stretches, step->spans.count);
    free(stretches);
    *spans_p = spans;
    *count_p = count;
    return WEFT_OK;
}

static size_t draw_timeline(const step_t *step, const weft_input_t *input,
                            const weft_plot_span_t *spans, size_t count, FILE *out)
{
    weft_legend_entry_t legend[SORTS];
    weft_plot_row_t rows[ROWS_MOST];
    char title[300], note[200];
    int entries = 0;
    for (int i = 0; i < SORTS; i++) {
        if (step->seen[i]) {
            legend[entries++] = (weft_legend_entry_t){.name = sorts[i].name,
                                                      .color = sorts[i].color};
        }
    }
    for (int i = 0; i < step->track_count; i++) {
        rows[i] = (weft_plot_row_t){step->tracks[i].group, step->tracks[i].label};
    }
    if (isnan(step->window.step)) {
        snprintf(title, sizeof(title), "%.200s", input->label);
        snprintf(note, sizeof(note), "The trace has no steps: this is all of it.");
    } else {
        snprintf(title, sizeof(title), "Step %.0f, %.200s", step->window.step, input->label);
        snprintf(note, sizeof(note), "Of %zu step%s in the trace, the one of median length.",
                 step->window.steps, step->window.steps == 1 ? "" : "s");
    }
    const weft_plot_timeline_t timeline = {.title = title,
                                           .note = note,
                                           .end = step->window.end - step->window.start,
                                           .rows = rows,
                                           .row_count = step->track_count,
                                           .spans = spans,
                                           .span_count = count,
                                           .legend = legend,
                                           .legend_count = entries};
    return weft__plot_timeline(out, &timeline);
}

/* How long each rank was at what, on any of its tracks. These run beside each other, so columns may
 * overlap. */
static void write_table(const step_t *step, FILE *out)
{
    const char *columns[SORTS + 1] = {"rank"};
    char names[SORTS][40], text[WEFT_NUMBER_TEXT];
    int count = 1;
    for (int i = 0; i < SORTS; i++) {
        if (step->seen[i]) {
            snprintf(names[i], sizeof(names[i]), "#%s, ms", sorts[i].name);
            columns[count++] = names[i];
        }
    }
    weft__html_table(out, columns, count);
    for (int row = 0; row < step->track_count; row++) {
        if (row > 0 && step->tracks[row].rank == step->tracks[row - 1].rank) {
            continue;
        }
        weft__html_row(out);
        weft__html_cell(out, step->tracks[row].group);
        for (int i = 0; i < SORTS; i++) {
            if (step->seen[i]) {
                double ms = step->busy[row][i];
                snprintf(text, sizeof(text), "%.3f", ms);
                weft__html_number(out, ms, text);
            }
        }
        weft__html_row_end(out);
    }
    weft__html_table_end(out);
}

static void write_notes(const step_t *step, size_t narrow, size_t unreadable, FILE *out)
{
    char text[200];
    if (step->cut + narrow > 0) {
        snprintf(text, sizeof(text), "%zu spans are too short to be drawn.", step->cut + narrow);
        weft__note(out, text);
    }
    if (step->tracks_more > 0) {
        snprintf(text, sizeof(text), "Tracks that are not shown: %d.", step->tracks_more);
        weft__note(out, text);
    }
    if (unreadable > 0) {
        snprintf(text, sizeof(text), "Events without rank or times, which are left out: %zu.",
                 unreadable);
        weft__note(out, text);
    }
}

static weft_status_t write_step(step_t *step, const weft_input_t *input, FILE *out)
{
    weft_plot_span_t *spans;
    size_t count, unreadable = step->spans.unreadable;
    WEFT_TRY(weft__trace_choose(&step->spans, &step->window));
    keep_window(step);
    drop_idle_tracks(step);
    find_tracks(step, input->doc.root);
    if (step->spans.count == 0 || !(step->window.end > step->window.start)) {
        char text[4400];
        snprintf(text, sizeof(text), "%s has no spans that can be shown.", input->path);
        weft__note(out, text);
        return WEFT_OK;
    }
    WEFT_TRY(make_spans(step, &spans, &count));
    size_t narrow = draw_timeline(step, input, spans, count, out);
    free(spans);
    write_notes(step, narrow, unreadable, out);
    write_table(step, out);
    return WEFT_OK;
}

weft_status_t weft__section_trace(const weft_report_t *report, FILE *out)
{
    for (const weft_input_t *input = NULL;
         (input = weft__input_next(report, WEFT_INPUT_TRACE, input)) != NULL;) {
        step_t *step;
        WEFT_TRY(weft__values_alloc(&step, 1, sizeof(*step)));
        weft_status_t status = weft__trace_spans(input->doc.root, &step->spans);
        if (status == WEFT_OK) {
            status = write_step(step, input, out);
            free(step->spans.at);
        }
        free(step);
        WEFT_TRY(status);
    }
    return WEFT_OK;
}
