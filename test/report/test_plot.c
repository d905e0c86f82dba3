/* Plots: what is drawn, what is left out, and that numbers that are none leave no trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/plot.h"
#include "report/sink.h"

/* Nothing that a browser would stumble over. */
static void expect_sound(const char *text)
{
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    assert_int_equal(count_of(text, "<svg"), count_of(text, "</svg>"));
    assert_int_equal(count_of(text, "<figure>"), count_of(text, "</figure>"));
    assert_int_equal(count_of(text, "<title>"), count_of(text, "</title>"));
}

/* ---- thinning ------------------------------------------------------------------------------- */

#define LONG 10000

static void thinning_keeps_peaks_and_ends(void **state)
{
    (void)state;
    static double x[LONG], y[LONG], keep_x[300], keep_y[300];
    for (int i = 0; i < LONG; i++) {
        x[i] = i;
        y[i] = i % 2;
    }
    y[0] = 0.25;
    y[LONG - 1] = 0.75;
    y[4321] = 50;
    y[7654] = -50;
    size_t count = weft__series_thin(x, y, LONG, 300, keep_x, keep_y);
    assert_true(count > 200 && count <= 300);
    assert_float_equal(keep_y[0], 0.25, 0);
    assert_float_equal(keep_y[count - 1], 0.75, 0);
    bool up = false, down = false;
    for (size_t i = 0; i < count; i++) {
        assert_true(i == 0 || keep_x[i] > keep_x[i - 1]);
        up = up || (keep_x[i] == 4321 && keep_y[i] == 50);
        down = down || (keep_x[i] == 7654 && keep_y[i] == -50);
    }
    assert_true(up && down);
}

static void short_series_stay_as_they_are(void **state)
{
    (void)state;
    const double x[] = {1, 2, 3, 4}, y[] = {4, NAN, 2, 1};
    double keep_x[4], keep_y[4];
    assert_int_equal(weft__series_thin(x, y, 4, 4, keep_x, keep_y), 4);
    assert_true(isnan(keep_y[1]));
    assert_int_equal(weft__series_thin(x, y, 0, 4, keep_x, keep_y), 0);
}

static void long_gaps_stay_gaps(void **state)
{
    (void)state;
    static double x[LONG], y[LONG], keep_x[100], keep_y[100];
    for (int i = 0; i < LONG; i++) {
        x[i] = i;
        y[i] = i > 3000 && i < 6000 ? NAN : 1 + i % 3;
    }
    size_t count = weft__series_thin(x, y, LONG, 100, keep_x, keep_y), gaps = 0;
    for (size_t i = 0; i < count; i++) {
        gaps += isnan(keep_y[i]);
    }
    assert_true(count <= 100 && gaps > 5 && gaps < 50);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static char *draw_lines(const weft_plot_t *plot, const weft_series_t *series, int count)
{
    sink_t sink;
    sink_open(&sink);
    weft__plot_lines(sink.out, plot, series, count);
    char *text = sink_close(&sink);
    expect_sound(text);
    return text;
}

static void a_value_that_is_none_is_a_gap(void **state)
{
    (void)state;
    const double x[] = {1, 2, 3, 4, 5}, y[] = {5, 4, NAN, 2, INFINITY};
    const weft_series_t series = {.name = "a<b", .x = x, .y = y, .count = 5};
    const weft_plot_t plot = {.title = "t", .x = {.label = "x"}, .y = {.label = "y"}};
    char *text = draw_lines(&plot, &series, 1);
    const char *path = strstr(text, "<path class=\"l c0\" d=\"M");
    while (path != NULL && strstr(path, "data-v") > strchr(path, '\n')) {
        path = strstr(path + 1, "<path class=\"l c0\" d=\"M"); /* of the legend */
    }
    assert_non_null(path);
    char *line = strndup(path, strcspn(path, "\n"));
    assert_int_equal(count_of(line, "M"), 2); /* two pieces: 1 to 2, and 4 alone */
    assert_non_null(strstr(line, "data-n=\"a&lt;b\""));
    assert_non_null(strstr(line, "data-v=\"1,5 2,4 4,2 \""));
    assert_int_equal(count_of(text, "<title>"), 3); /* a marker for each value */
    free(line);
    free(text);
}

static void error_bars_reach_from_low_to_high(void **state)
{
    (void)state;
    const double x[] = {1, 2}, y[] = {5, 5}, low[] = {0, NAN}, high[] = {10, 6};
    const weft_series_t series = {.x = x, .y = y, .low = low, .high = high, .count = 2};
    const weft_plot_t plot = {.title = "t"};
    char *text = draw_lines(&plot, &series, 1);
    const char *bars = strstr(text, "<path class=\"l c0 w\" d=\"");
    assert_non_null(bars);
    char *line = strndup(bars, strcspn(bars, "\n"));
    assert_int_equal(count_of(line, "V"), 1); /* the second has no low end */
    free(line);
    free(text);
}

static void nothing_at_all_can_be_drawn(void **state)
{
    (void)state;
    const double none[] = {NAN};
    const weft_series_t empty = {.name = "none", .x = none, .y = none, .count = 1};
    const weft_plot_t plot = {
        .title = "t", .x = {.scale = WEFT_AXIS_LOG2}, .y = {.scale = WEFT_AXIS_LOG10}};
    free(draw_lines(&plot, &empty, 1));
}

static void long_lines_have_no_markers(void **state)
{
    (void)state;
    static double x[200], y[200];
    for (int i = 0; i < 200; i++) {
        x[i] = y[i] = i;
    }
    const weft_series_t series = {.x = x, .y = y, .count = 200};
    const weft_plot_t plot = {.title = "t"};
    char *text = draw_lines(&plot, &series, 1);
    assert_int_equal(count_of(text, "<title>"), 0);
    assert_non_null(strstr(text, "0,0 1,1 2,2 "));
    free(text);
}

/* ---- bars and ratios ------------------------------------------------------------------------ */

static void bars_stack_their_parts(void **state)
{
    (void)state;
    const double first[] = {1, 2, NAN}, second[] = {-1, 0, 4};
    const weft_bar_part_t parts[] = {{"one", 3}, {"t<o", 4}, {"three", 5}};
    const weft_bar_t bars[] = {{.label = "a", .parts = first, .low = 2, .high = 4},
                               {.label = "b\"", .parts = second, .text = "so"}};
    const weft_plot_t plot = {.title = "t", .x = {.label = "GB/s"}};
    sink_t sink;
    sink_open(&sink);
    weft__plot_bars(sink.out, &plot, parts, 3, bars, 2);
    char *text = sink_close(&sink);
    expect_sound(text);
    assert_int_equal(count_of(text, "<rect class=\"f "), 3); /* parts above 0 */
    assert_non_null(strstr(text, "<title>a, one: 1</title>"));
    assert_non_null(strstr(text, "<title>a, t&lt;o: 2</title>"));
    assert_non_null(strstr(text, "<title>b&quot;, three: 4</title>"));
    assert_int_equal(count_of(text, "class=\"i\""), 1); /* one error bar */
    assert_non_null(strstr(text, ">3</text>"));         /* the sum of the first */
    assert_non_null(strstr(text, ">so</text>"));
    free(text);
}

static void ratios_show_interval_and_verdict(void **state)
{
    (void)state;
    const weft_ratio_t rows[] = {{"a", 1.4, 1.3, 1.5, WEFT_VERDICT_FASTER},
                                 {"b", 0.7, NAN, NAN, WEFT_VERDICT_NONE},
                                 {"c", 0, 0, 0, WEFT_VERDICT_SLOWER},
                                 {"d", 1.1, 0.8, 1.4, WEFT_VERDICT_NOISY}};
    const weft_plot_t plot = {.title = "t", .x = {.scale = WEFT_AXIS_LOG10}};
    sink_t sink;
    sink_open(&sink);
    weft__plot_ratios(sink.out, &plot, rows, 4);
    char *text = sink_close(&sink);
    expect_sound(text);
    assert_non_null(strstr(text, "<title>a: 1.4 (1.3 to 1.5), faster</title>"));
    assert_non_null(strstr(text, "<title>b: 0.7</title>"));
    assert_non_null(strstr(text, "<title>d: 1.1 (0.8 to 1.4), noisy</title>"));
    assert_non_null(strstr(text, "</svg>noisy</span>")); /* in the legend, by its own name */
    assert_null(strstr(text, "the same"));
    assert_null(strstr(text, "<title>c:")); /* no place on this axis; its label stays */
    assert_non_null(strstr(text, ">c</text>"));
    free(text);
}

/* ---- heat maps ------------------------------------------------------------------------------ */

static char *draw_heat(const double *values, const bool *marked, const char *const *texts, int size)
{
    const weft_heat_t heat = {.title = "t",
                              .unit = "GB/s",
                              .size = size,
                              .values = values,
                              .marked = marked,
                              .texts = texts};
    sink_t sink;
    sink_open(&sink);
    weft__plot_heat(sink.out, &heat);
    char *text = sink_close(&sink);
    expect_sound(text);
    return text;
}

static void heat_maps_shade_by_value_and_mark(void **state)
{
    (void)state;
    const double values[] = {NAN, 100, 10, 55};
    const bool marked[] = {false, false, true, false};
    const char *const texts[] = {NULL, "near", "f<r", NULL};
    char *text = draw_heat(values, marked, texts, 2);
    assert_non_null(strstr(text, "<g class=\"h8\">"));
    assert_non_null(strstr(text, "<g class=\"h0 slow\">"));
    assert_non_null(strstr(text, "<g class=\"h4\">"));
    assert_int_equal(count_of(text, "<title>"), 3);
    assert_non_null(strstr(text, "0 \xE2\x86\x92 1: 100 GB/s, near</title>"));
    assert_non_null(strstr(text, "1 \xE2\x86\x92 0: 10 GB/s, f&lt;r</title>"));
    free(text);
}

static void noise_is_not_a_structure(void **state)
{
    (void)state;
    const double values[] = {100, 101, 102, 100.5};
    char *text = draw_heat(values, NULL, NULL, 2);
    assert_null(strstr(text, "\"h0\""));
    assert_null(strstr(text, "\"h8\""));
    free(text);
}

static void empty_and_absurd_heat_maps_are_drawn(void **state)
{
    (void)state;
    const double none[] = {NAN}, zero[] = {0, 0, 0, 0}, absurd[] = {-1e308, 1e308, 0, 1e-308};
    free(draw_heat(none, NULL, NULL, 1));
    free(draw_heat(zero, NULL, NULL, 2));
    free(draw_heat(absurd, NULL, NULL, 2));
}

/* ---- timelines ------------------------------------------------------------------------------ */

static void spans_too_narrow_to_see_are_left_out(void **state)
{
    (void)state;
    const weft_plot_row_t rows[] = {{"rank 0", "compute"}, {"rank 1", "com<pute"}};
    weft_plot_span_t spans[102] = {{.row = 0, .start = -5, .end = 50, .name = "f<w"},
                                   {.row = 0, .start = 60, .end = 2000, .name = "beyond"}};
    for (int i = 2; i < 102; i++) { /* 100 in what is no pixel */
        spans[i] = (weft_plot_span_t){
            .row = 1, .start = 500 + i * 1e-4, .end = 500 + i * 1e-4 + 1e-5, .name = "dust"};
    }
    const weft_plot_timeline_t timeline = {
        .title = "t", .end = 1000, .rows = rows, .row_count = 2, .spans = spans, .span_count = 102};
    sink_t sink;
    sink_open(&sink);
    assert_int_equal(weft__plot_timeline(sink.out, &timeline), 99);
    char *text = sink_close(&sink);
    expect_sound(text);
    assert_int_equal(count_of(text, "<rect class=\"f "), 3);
    assert_non_null(strstr(text, "<title>f&lt;w: 55 ms"));
    assert_non_null(strstr(text, "com&lt;pute"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thinning_keeps_peaks_and_ends),
        cmocka_unit_test(short_series_stay_as_they_are),
        cmocka_unit_test(long_gaps_stay_gaps),
        cmocka_unit_test(a_value_that_is_none_is_a_gap),
        cmocka_unit_test(error_bars_reach_from_low_to_high),
        cmocka_unit_test(nothing_at_all_can_be_drawn),
        cmocka_unit_test(long_lines_have_no_markers),
        cmocka_unit_test(bars_stack_their_parts),
        cmocka_unit_test(ratios_show_interval_and_verdict),
        cmocka_unit_test(heat_maps_shade_by_value_and_mark),
        cmocka_unit_test(noise_is_not_a_structure),
        cmocka_unit_test(empty_and_absurd_heat_maps_are_drawn),
        cmocka_unit_test(spans_too_narrow_to_see_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
