/* Throughput and efficiency by ranks, where the lost time goes, and what the remedies gain. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "report/html.h"
#include "report/input.h"
#include "report/page.h"
#include "report/plot.h"
#include "report/section.h"
#include "report/shares.h"
#include "report/values.h"

#define LINES_MOST 16
#define POINTS_MOST 64

typedef struct lines {
    weft_series_t series[LINES_MOST];
    char names[LINES_MOST][120];
    double x[LINES_MOST][POINTS_MOST], y[LINES_MOST][POINTS_MOST];
    int count;
} lines_t;

/* The line of this name; NULL if there are too many. */
static weft_series_t *line_of(lines_t *lines, const char *name)
{
    int i = 0;
    while (i < lines->count && strcmp(lines->names[i], name) != 0) {
        i++;
    }
    if (i == LINES_MOST) {
        return NULL;
    }
    if (i == lines->count) {
        snprintf(lines->names[i], sizeof(lines->names[i]), "%s", name);
        lines->series[i] = (weft_series_t){
            .name = lines->names[i], .x = lines->x[i], .y = lines->y[i], .color = i};
        lines->count++;
    }
    return &lines->series[i];
}

/* Weak scaling is also tried with other plans, which are no part of its curve: bars show them. */
static bool is_other_plan(const weft_json_value_t *point)
{
    bool other = false;
    weft__json_to_bool(weft__json_get(point, "other_plan"), &other);
    return other;
}

static const char *mode_of(const weft_json_value_t *point)
{
    return is_other_plan(point) ? "other plan" : weft__value_text(point, "mode");
}

/* Nor is a second plan at the same number of ranks. */
static void add_point(lines_t *lines, const char *name, double ranks, double value)
{
    weft_series_t *series = line_of(lines, name);
    if (series == NULL || isnan(ranks) || isnan(value) || series->count == POINTS_MOST) {
        return;
    }
    for (size_t i = 0; i < series->count; i++) {
        if (series->x[i] == ranks) {
            return;
        }
    }
    size_t line = (size_t)(series - lines->series), at = series->count++;
    lines->x[line][at] = ranks;
    lines->y[line][at] = value;
}

typedef void (*each_fn)(const weft_input_t *input, const weft_json_value_t *point, void *ctx);

static void each_point(const weft_report_t *report, each_fn each, void *ctx)
{
    for (const weft_input_t *input = NULL;
         (input = weft__input_next(report, WEFT_INPUT_SCALING, input)) != NULL;) {
        const weft_json_value_t *points = weft__value_array(input->doc.root, "points");
        for (const weft_json_value_t *at = points != NULL ? weft__json_first(points) : NULL;
             at != NULL; at = weft__json_next(points, at)) {
            each(input, at, ctx);
        }
    }
}

/* ---- curves --------------------------------------------------------------------------------- */

typedef struct curves {
    lines_t *lines;
    const char *key;
    bool several; /* files */
} curves_t;

static void add_to_curve(const weft_input_t *input, const weft_json_value_t *point, void *ctx)
{
    curves_t *curves = ctx;
    char name[120];
    if (is_other_plan(point)) {
        return;
    }
    snprintf(name, sizeof(name), "%.30s%s%.80s", weft__value_text(point, "mode"),
             curves->several ? ", " : "", curves->several ? input->label : "");
    add_point(curves->lines, name, weft__value_number(point, "ranks"),
              weft__value_number(point, curves->key));
}

/* What as many times as many ranks would do: from the least ranks of the first line on. */
static void add_perfect(lines_t *lines)
{
    const weft_series_t *first = &lines->series[0];
    size_t least = 0;
    if (lines->count == LINES_MOST || first->count == 0) {
        return;
    }
    for (size_t i = 1; i < first->count; i++) {
        least = first->x[i] < first->x[least] ? i : least;
    }
    double rate = first->y[least] / first->x[least];
    for (size_t i = 0; i < first->count; i++) {
        add_point(lines, "perfect", first->x[i], rate * first->x[i]);
    }
    lines->series[lines->count - 1].dashed = true;
    lines->series[lines->count - 1].color = WEFT_PLOT_COLORS - 1;
}

static weft_status_t draw_curves(const weft_report_t *report, const char *key, bool perfect,
                                 const weft_plot_t *plot, FILE *out)
{
    curves_t curves = {.key = key, .several = weft__input_count(report, WEFT_INPUT_SCALING) > 1};
    WEFT_TRY(weft__values_alloc(&curves.lines, 1, sizeof(*curves.lines)));
    each_point(report, add_to_curve, &curves);
    bool any = false;
    for (int i = 0; i < curves.lines->count; i++) {
        any = any || curves.lines->series[i].count > 0;
    }
    if (any && perfect) {
        add_perfect(curves.lines);
    }
    if (any) {
        weft__plot_lines(out, plot, curves.lines->series, curves.lines->count);
    }
    free(curves.lines);
    return WEFT_OK;
}

/* ---- bars ----------------------------------------------------------------------------------- */

static void label_point(const weft_input_t *input, const weft_json_value_t *point, bool several,
                        char *label, size_t size)
{
    char ranks[64];
    snprintf(label, size, "%.20s %.10s: %.40s%s%.40s", mode_of(point),
             weft__value_shown(weft__json_get(point, "ranks"), ranks, sizeof(ranks)),
             weft__value_text(point, "plan"), several ? ", " : "", several ? input->label : "");
}

typedef struct losses {
    weft_shares_t *shares;
    bool several;
} losses_t;

static void add_loss(const weft_input_t *input, const weft_json_value_t *point, void *ctx)
{
    losses_t *losses = ctx;
    char label[WEFT_SHARES_LABEL];
    double efficiency = weft__value_number(point, "efficiency");
    label_point(input, point, losses->several, label, sizeof(label));
    /* parts may be shares of the step or of what is lost: drawn, they are what is lost */
    double lost = isnan(efficiency) ? NAN : fmax(0, 1 - efficiency);
    weft__shares_add(losses->shares, label, weft__value_object(point, "lost"), fmin(efficiency, 1),
                     lost);
}

static weft_status_t draw_losses(const weft_report_t *report, FILE *out)
{
    const weft_plot_t plot = {
        .title = "Where the time goes",
        .note = "Mode, ranks and plan; what is not useful is lost against perfect scaling.",
        .x = {.label = "of the time", .format = WEFT_NUMBER_PERCENT}};
    losses_t losses = {.several = weft__input_count(report, WEFT_INPUT_SCALING) > 1};
    WEFT_TRY(weft__values_alloc(&losses.shares, 1, sizeof(*losses.shares)));
    weft__shares_first(losses.shares, "useful");
    each_point(report, add_loss, &losses);
    weft__shares_draw(losses.shares, &plot, out);
    free(losses.shares);
    return WEFT_OK;
}

static void write_point(const weft_input_t *input, const weft_json_value_t *point, void *ctx)
{
    FILE *out = ctx;
    char text[WEFT_NUMBER_TEXT];
    double ranks = weft__value_number(point, "ranks");
    double rate = weft__value_number(point, "tokens_per_s");
    double efficiency = weft__value_number(point, "efficiency");
    weft__html_row(out);
    weft__html_cell(out, input->label);
    weft__html_cell(out, mode_of(point));
    weft__html_number(out, ranks, weft__number_text(text, ranks, WEFT_NUMBER_PLAIN));
    weft__html_cell(out, weft__value_text(point, "plan"));
    weft__html_number(out, rate, weft__number_text(text, rate, WEFT_NUMBER_SI));
    weft__html_number(out, efficiency, weft__number_text(text, efficiency, WEFT_NUMBER_PERCENT));
    weft__html_row_end(out);
}

static void write_table(const weft_report_t *report, FILE *out)
{
    static const char *const columns[] = {"file", "mode",      "#ranks",
                                          "plan", "#tokens/s", "#efficiency"};
    weft__html_table(out, columns, 6);
    each_point(report, write_point, out);
    weft__html_table_end(out);
}

/* ---- remedies ------------------------------------------------------------------------------- */

/* Half of what lies between the least and the greatest round, over the median: +-% of weft scaling.
 */
static weft_status_t spread_of(const weft_json_value_t *remedy, double rate, double *spread_p)
{
    double *rounds;
    size_t count;
    *spread_p = NAN;
    WEFT_TRY(weft__value_list(weft__value_array(remedy, "rounds"), &rounds, &count));
    if (count > 0 && rate > 0) {
        double least = rounds[0], most = rounds[0];
        for (size_t i = 1; i < count; i++) {
            least = fmin(least, rounds[i]);
            most = fmax(most, rounds[i]);
        }
        *spread_p = (most - least) / 2 / rate;
    }
    free(rounds);
    return WEFT_OK;
}

/* What the remedies of a file are for: all but "another plan" keep its plan, and a gain is against
 * its throughput. */
static void note_remedied(const weft_input_t *input, const weft_json_value_t *list, FILE *out)
{
    const weft_json_value_t *at = weft__json_first(list);
    char text[400], rate[WEFT_NUMBER_TEXT], room[64];
    while (at != NULL && strcmp(weft__value_text(at, "name"), "another plan") == 0) {
        at = weft__json_next(list, at);
    }
    const char *plan = weft__value_text(at, "plan");
    const char *ranks = weft__value_shown(weft__json_get(input->doc.root, "ranks"), room,
                                          sizeof(room));
    double self = weft__value_number(at, "tokens_per_s") / (1 + weft__value_number(at, "gain"));
    if (plan[0] == '\0' || !isfinite(self)) {
        return;
    }
    snprintf(text, sizeof(text), "%.120s: for %.80s%s%.10s%s, which reaches %s tokens/s.",
             input->label, plan, ranks[0] != '\0' ? " on " : "", ranks,
             ranks[0] != '\0' ? " ranks" : "", weft__number_text(rate, self, WEFT_NUMBER_SI));
    weft__note(out, text);
}

static void put_percent(FILE *out, double share)
{
    char text[WEFT_NUMBER_TEXT];
    weft__html_number(out, share, weft__number_text(text, share, WEFT_NUMBER_PERCENT));
}

static weft_status_t write_remedy(const weft_input_t *input, const weft_json_value_t *remedy,
                                  FILE *out)
{
    char text[WEFT_NUMBER_TEXT];
    double rate = weft__value_number(remedy, "tokens_per_s"), spread;
    WEFT_TRY(spread_of(remedy, rate, &spread));
    weft__html_row(out);
    weft__html_cell(out, weft__value_text(remedy, "name"));
    weft__html_cell(out, weft__value_text(remedy, "options"));
    weft__html_cell(out, weft__value_text(remedy, "plan"));
    weft__html_cell(out, input->label);
    weft__html_number(out, rate, weft__number_text(text, rate, WEFT_NUMBER_SI));
    put_percent(out, spread);
    put_percent(out, weft__value_number(remedy, "gain"));
    put_percent(out, weft__value_number(remedy, "communication"));
    weft__html_row_end(out);
    return WEFT_OK;
}

static weft_status_t write_remedies(const weft_report_t *report, FILE *out)
{
    static const char *const columns[] = {"remedy",    "options",    "plan",  "file",
                                          "#tokens/s", "#\xC2\xB1%", "#gain", "#communication"};
    const weft_json_value_t *list;
    bool any = false;
    for (const weft_input_t *input = NULL;
         (input = weft__input_next(report, WEFT_INPUT_SCALING, input)) != NULL;) {
        list = weft__value_array(input->doc.root, "remedies");
        if (list != NULL) {
            fputs(any ? "" : "<h3>Remedies that were tried</h3>\n", out);
            note_remedied(input, list, out);
            any = true;
        }
    }
    if (!any) {
        return WEFT_OK;
    }
    weft__html_table(out, columns, 8);
    for (const weft_input_t *input = NULL;
         (input = weft__input_next(report, WEFT_INPUT_SCALING, input)) != NULL;) {
        list = weft__value_array(input->doc.root, "remedies");
        for (const weft_json_value_t *at = list != NULL ? weft__json_first(list) : NULL; at != NULL;
             at = weft__json_next(list, at)) {
            WEFT_TRY(write_remedy(input, at, out));
        }
    }
    weft__html_table_end(out);
    return WEFT_OK;
}

weft_status_t weft__section_scaling(const weft_report_t *report, FILE *out)
{
    if (weft__input_count(report, WEFT_INPUT_SCALING) == 0) {
        return WEFT_OK;
    }
    const weft_axis_t ranks = {.label = "ranks", .scale = WEFT_AXIS_LOG2};
    const weft_plot_t rate = {
        .title = "Throughput by ranks",
        .x = ranks,
        .y = {.label = "tokens/s", .format = WEFT_NUMBER_SI, .scale = WEFT_AXIS_LOG10}};
    const weft_plot_t efficiency = {
        .title = "Efficiency",
        .note = "Throughput over that of one rank, by ranks.",
        .x = ranks,
        .y = {.label = "of perfect scaling", .format = WEFT_NUMBER_PERCENT, .from_zero = true},
        .reference = 1};
    weft__grid_open(out);
    WEFT_TRY(draw_curves(report, "tokens_per_s", true, &rate, out));
    WEFT_TRY(draw_curves(report, "efficiency", false, &efficiency, out));
    WEFT_TRY(draw_losses(report, out));
    weft__grid_close(out);
    write_table(report, out);
    return write_remedies(report, out);
}
