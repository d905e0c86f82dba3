/* Bandwidth and time by size, a pair of plots for each thing that was measured, files side by side.
 * Pairs of weft bench are section_pairs.c's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "report/html.h"
#include "report/input.h"
#include "report/page.h"
#include "report/plot.h"
#include "report/section.h"
#include "report/values.h"

#define SERIES_MOST 16 /* of a plot; what is beyond is told */
#define REPEATS_MOST 256

typedef struct sample {
    const weft_input_t *input;
    const char *name, *algorithm;
    bool in_place;
    double bytes, us, least, most; /* microseconds: the median, and the range of loops */
    double bus;                    /* bus bandwidth over bytes per time; NaN: not known */
    double wrong;                  /* NaN: not checked */
} sample_t;

typedef struct samples {
    sample_t *at;
    size_t count;
    size_t unreadable;
    int files; /* that have some */
} samples_t;

/* ---- reading -------------------------------------------------------------------------------- */

static bool read_times(const weft_json_value_t *result, sample_t *sample)
{
    double us[REPEATS_MOST];
    size_t count = 0;
    const weft_json_value_t *list = weft__value_array(result, "us");
    for (const weft_json_value_t *at = list != NULL ? weft__json_first(list) : NULL;
         at != NULL && count < REPEATS_MOST; at = weft__json_next(list, at)) {
        double number;
        if (weft__json_to_double(at, &number) && number > 0 && isfinite(number)) {
            us[count++] = number;
        }
    }
    sample->us = weft__values_median(us, count); /* sorts them */
    sample->least = count > 0 ? us[0] : NAN;
    sample->most = count > 0 ? us[count - 1] : NAN;
    return count > 0;
}

static void read_results(const weft_input_t *input, samples_t *samples)
{
    const weft_json_value_t *results = weft__value_array(input->doc.root, "results");
    for (const weft_json_value_t *at = results != NULL ? weft__json_first(results) : NULL;
         at != NULL; at = weft__json_next(results, at)) {
        sample_t sample = {.input = input, .name = weft__value_text(at, "collective")};
        if (weft__json_get(at, "target") != NULL) {
            continue; /* a pair */
        }
        sample.algorithm = weft__value_text(at, "algorithm");
        weft__json_to_bool(weft__json_get(at, "in_place"), &sample.in_place);
        sample.bytes = weft__value_number(at, "moved_bytes");
        sample.bytes = isnan(sample.bytes) ? weft__value_number(at, "bytes") : sample.bytes;
        sample.bus = weft__value_number(at, "bus_factor");
        sample.wrong = weft__value_number(at, "wrong");
        if (sample.name[0] != '\0' && sample.bytes >= 0 && read_times(at, &sample)) {
            samples->at[samples->count++] = sample;
        } else {
            samples->unreadable++;
        }
    }
}

static weft_status_t read_samples(const weft_report_t *report, samples_t *samples)
{
    size_t room = 0;
    const weft_input_t *input = NULL;
    while ((input = weft__input_next(report, WEFT_INPUT_BENCH, input)) != NULL) {
        const weft_json_value_t *results = weft__value_array(input->doc.root, "results");
        room += results != NULL ? results->length : 0;
    }
    WEFT_TRY(weft__values_alloc(&samples->at, room, sizeof(*samples->at)));
    while ((input = weft__input_next(report, WEFT_INPUT_BENCH, input)) != NULL) {
        size_t before = samples->count;
        read_results(input, samples);
        samples->files += samples->count > before;
    }
    return WEFT_OK;
}

/* ---- plots ---------------------------------------------------------------------------------- */

/* The lines of one name: a series' points lie behind each other in the columns. */
typedef struct curves {
    weft_series_t series[SERIES_MOST];
    char names[SERIES_MOST][200];
    int count;
    size_t points;
    double *bytes, *value, *low, *high;
} curves_t;

typedef double (*value_fn)(const sample_t *sample, double us);

static double as_time(const sample_t *sample, double us)
{
    (void)sample;
    return us;
}

static double as_bandwidth(const sample_t *sample, double us)
{
    return sample->bytes / us / 1e3;
}

static double as_bus_bandwidth(const sample_t *sample, double us)
{
    return sample->bus * sample->bytes / us / 1e3;
}

static bool belongs(const sample_t *sample, const char *name, const weft_input_t *input,
                    bool in_place)
{
    return sample->input == input && sample->in_place == in_place &&
           strcmp(sample->name, name) == 0 && sample->bytes > 0;
}

static void add_curve(curves_t *curves, const samples_t *samples, const char *name,
                      const weft_input_t *input, bool in_place, bool alone, int color,
                      value_fn value)
{
    size_t start = curves->points;
    for (size_t i = 0; i < samples->count; i++) {
        const sample_t *sample = &samples->at[i];
        if (belongs(sample, name, input, in_place)) {
            double ends[] = {value(sample, sample->least), value(sample, sample->most)};
            curves->bytes[curves->points] = sample->bytes;
            curves->value[curves->points] = value(sample, sample->us);
            curves->low[curves->points] = fmin(ends[0], ends[1]);
            curves->high[curves->points++] = fmax(ends[0], ends[1]);
        }
    }
    if (curves->points == start) {
        return;
    }
    char *text = curves->names[curves->count];
    const char *place = in_place ? "in place" : "out of place";
    snprintf(text, sizeof(curves->names[0]), "%s%s%s", alone ? "" : input->label, alone ? "" : ", ",
             place);
    curves->series[curves->count++] = (weft_series_t){
        .name = text,
        .x = curves->bytes + start,
        .y = curves->value + start,
        .low = alone ? curves->low + start : NULL,
        .high = alone ? curves->high + start : NULL,
        .count = curves->points - start,
        .color = color,
        .dashed = in_place,
    };
}

static void gather(curves_t *curves, const weft_report_t *report, const samples_t *samples,
                   const char *name, value_fn value)
{
    bool alone = samples->files == 1;
    int file = 0;
    curves->count = 0;
    curves->points = 0;
    for (const weft_input_t *input = NULL;
         (input = weft__input_next(report, WEFT_INPUT_BENCH, input)) != NULL;) {
        int before = curves->count;
        for (int in_place = 0; in_place < 2 && curves->count < SERIES_MOST; in_place++) {
            add_curve(curves, samples, name, input, in_place, alone, alone ? in_place : file,
                      value);
        }
        file += curves->count > before;
    }
}

static void draw(const weft_report_t *report, const samples_t *samples, const char *name,
                 curves_t *curves, FILE *out)
{
    bool bus = true;
    char title[200];
    for (size_t i = 0; i < samples->count; i++) {
        bus = bus && (strcmp(samples->at[i].name, name) != 0 || !isnan(samples->at[i].bus));
    }
    const weft_axis_t sizes = {
        .label = "size", .scale = WEFT_AXIS_LOG2, .format = WEFT_NUMBER_BYTES};
    weft_plot_t plot = {.title = title, .x = sizes};
    const char *spread = samples->files == 1
                             ? "Median; bars from the least to the most of the loops."
                             : "Medians.";
    gather(curves, report, samples, name, bus ? as_bus_bandwidth : as_bandwidth);
    if (curves->count == 0) {
        return; /* sizes of 0, as of a barrier: the table has them */
    }
    plot.note = spread;
    plot.y = (weft_axis_t){.label = bus ? "GB/s (bus bandwidth, as nccl-tests)" : "GB/s",
                           .from_zero = true};
    snprintf(title, sizeof(title), "%.150s: bandwidth", name);
    weft__plot_lines(out, &plot, curves->series, curves->count);
    gather(curves, report, samples, name, as_time);
    plot.y = (weft_axis_t){.label = "microseconds", .scale = WEFT_AXIS_LOG10};
    snprintf(title, sizeof(title), "%.150s: time", name);
    weft__plot_lines(out, &plot, curves->series, curves->count);
}

static bool is_first(const samples_t *samples, size_t at)
{
    for (size_t i = 0; i < at; i++) {
        if (strcmp(samples->at[i].name, samples->at[at].name) == 0) {
            return false;
        }
    }
    return true;
}

static weft_status_t draw_all(const weft_report_t *report, const samples_t *samples, FILE *out)
{
    curves_t *curves;
    WEFT_TRY(weft__values_alloc(&curves, 1, sizeof(*curves)));
    weft_status_t status = weft__values_alloc(&curves->bytes, 4 * samples->count, sizeof(double));
    if (status == WEFT_OK) {
        curves->value = curves->bytes + samples->count;
        curves->low = curves->value + samples->count;
        curves->high = curves->low + samples->count;
        weft__grid_open(out);
        for (size_t i = 0; i < samples->count; i++) {
            if (is_first(samples, i)) {
                draw(report, samples, samples->at[i].name, curves, out);
            }
        }
        weft__grid_close(out);
        free(curves->bytes);
    }
    free(curves);
    return status;
}

/* ---- table and notes ------------------------------------------------------------------------ */

static void write_table(const samples_t *samples, FILE *out)
{
    static const char *const columns[] = {"file",  "what",  "#size",     "place", "algorithm",
                                          "#time", "#GB/s", "#bus GB/s", "#wrong"};
    char text[WEFT_NUMBER_TEXT], time[WEFT_NUMBER_TEXT + 8];
    weft__details_open(out, "all results");
    weft__html_table(out, columns, 9);
    for (size_t i = 0; i < samples->count; i++) {
        const sample_t *sample = &samples->at[i];
        double gbs = sample->bytes > 0 ? as_bandwidth(sample, sample->us) : NAN;
        double bus = gbs * sample->bus;
        weft__html_row(out);
        weft__html_cell(out, sample->input->label);
        weft__html_cell(out, sample->name);
        weft__html_number(out, sample->bytes,
                          weft__number_text(text, sample->bytes, WEFT_NUMBER_BYTES));
        weft__html_cell(out, sample->in_place ? "in" : "out");
        weft__html_cell(out, sample->algorithm);
        snprintf(time, sizeof(time), "%s us",
                 weft__number_text(text, sample->us, WEFT_NUMBER_PLAIN));
        weft__html_number(out, sample->us, time);
        weft__html_number(out, gbs, weft__number_text(text, gbs, WEFT_NUMBER_PLAIN));
        weft__html_number(out, bus, weft__number_text(text, bus, WEFT_NUMBER_PLAIN));
        weft__html_number(out, sample->wrong,
                          weft__number_text(text, sample->wrong, WEFT_NUMBER_PLAIN));
        weft__html_row_end(out);
    }
    weft__html_table_end(out);
    weft__details_close(out);
}

static void write_notes(const samples_t *samples, FILE *out)
{
    char text[200];
    size_t wrong = 0;
    for (size_t i = 0; i < samples->count; i++) {
        wrong += samples->at[i].wrong > 0;
    }
    if (wrong > 0) {
        snprintf(text, sizeof(text), "%zu of %zu results are WRONG: see the table.", wrong,
                 samples->count);
        weft__note(out, text);
    }
    if (samples->unreadable > 0) {
        snprintf(text, sizeof(text),
                 "Results without times that can be shown, which are left out: %zu.",
                 samples->unreadable);
        weft__note(out, text);
    }
    if (2 * samples->files > SERIES_MOST) {
        snprintf(text, sizeof(text), "Plots show the first %d lines; the table has all.",
                 SERIES_MOST);
        weft__note(out, text);
    }
}

weft_status_t weft__section_bench(const weft_report_t *report, FILE *out)
{
    samples_t samples = {0};
    WEFT_TRY(read_samples(report, &samples));
    write_notes(&samples, out);
    weft_status_t status = WEFT_OK;
    if (samples.count > 0) {
        status = draw_all(report, &samples, out);
        write_table(&samples, out);
    }
    free(samples.at);
    return status;
}
