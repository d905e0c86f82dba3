/* What a report is made of: files and folders, and what they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fixture.h"
#include "report/input.h"
#include "report/report.h"
#include "report/shares.h"
#include "report/sink.h"
#include "report/trace_spans.h"

static const char *put(const char *name, const char *text)
{
    const char *path = in_scratch(name);
    write_file(path, text, strlen(text));
    return path;
}

static void expect_refused(const char *path, const char *part)
{
    weft_report_t report = {0};
    assert_int_not_equal(weft__report_add(&report, path), WEFT_OK);
    assert_true(error_says(part));
    assert_true(error_says(path));
    assert_int_equal(report.count, 0);
    weft__report_cleanup(&report);
}

static void what_is_no_input_is_refused_by_name(void **state)
{
    (void)state;
    expect_refused(put("empty.json", ""), "is empty");
    expect_refused(put("torn.json", "{\"kind\": \"links\", \"format\": 1, \"pai"), "line 1");
    expect_refused(put("text", "hello\n"), "does not begin like JSON");
    expect_refused(put("other.json", "{\"a\": 1}"), "no \"kind\"");
    expect_refused(put("list.json", "[1, 2]"), "no \"kind\"");
    expect_refused(put("format.json", "{\"kind\": \"links\", \"format\": 2}"), "another format");
    expect_refused(put("formats.json", "{\"kind\": \"links\", \"format\": \"1\"}"),
                   "another format");
    expect_refused(put("kind.json", "{\"kind\": \"soup\", \"format\": 1}"), "\"soup\"");
    expect_refused(put("lines.jsonl", "{\"step\": 1}\nrubbish\n{\"step\": 3}\n"), "line 2");
    expect_refused(put("nostep.jsonl", "{\"step\": 1}\n{\"loss\": 3}\n"), "line 2");
    expect_refused(put("blank.jsonl", "\n\n"), "no steps");
    expect_refused(in_scratch("missing.json"), "No such file");
    const char *binary = in_scratch("binary.json");
    write_file(binary,
               "\x7f"
               "ELF\0\1\2\3",
               8);
    expect_refused(binary, "does not begin like JSON");
    const char *nul = in_scratch("nul.json");
    write_file(nul, "{\"kind\0\": 1}", 12);
    expect_refused(nul, "line 1");
    const char *folder = in_scratch("folder");
    assert_int_equal(mkdir(folder, 0700), 0);
    expect_refused(folder, "no run of weft train");
}

/* A kind that would do harm to a terminal is not repeated. */
static void hostile_kinds_are_not_printed(void **state)
{
    (void)state;
    weft_report_t report = {0};
    const char *path = put("evil.json", "{\"kind\": \"\\u001b[31m\", \"format\": 1}");
    assert_int_equal(weft__report_add(&report, path), WEFT_ERR_INVALID);
    assert_null(strchr(weft_last_error(), '\x1b'));
    weft__report_cleanup(&report);
}

static void a_cut_last_line_of_metrics_is_left_out(void **state)
{
    (void)state;
    weft_report_t report = {0};
    const char *path = put("cut.jsonl", "{\"step\": 1, \"loss\": 2.5, \"lr\": 1e-3}\n\n"
                                        "{\"step\": 2, \"loss\": null}\n{\"step\": 3, \"lo");
    assert_int_equal(weft__report_add(&report, path), WEFT_OK);
    assert_int_equal(report.count, 1);
    const weft_input_t *input = &report.inputs[0];
    assert_int_equal(input->kind, WEFT_INPUT_METRICS);
    assert_int_equal(input->count, 2);
    assert_true(input->torn);
    assert_float_equal(input->columns[WEFT_COLUMN_LOSS][0], 2.5, 0);
    assert_true(isnan(input->columns[WEFT_COLUMN_LOSS][1]));
    assert_float_equal(input->columns[WEFT_COLUMN_RATE][0], 1e-3, 0);
    assert_true(isnan(input->columns[WEFT_COLUMN_MFU][0]));
    weft__report_cleanup(&report);
}

static void inputs_of_one_name_get_their_paths(void **state)
{
    (void)state;
    weft_report_t report = {0};
    static const char result[] = "{\"kind\": \"links\", \"format\": 1}";
    mkdir(in_scratch("a"), 0700);
    mkdir(in_scratch("b"), 0700);
    const char *first = put("a/x.json", result), *second = put("b/x.json", result);
    const char *third = put("b/y.json", result);
    assert_int_equal(weft__report_add(&report, third), WEFT_OK);
    assert_int_equal(weft__report_add(&report, first), WEFT_OK);
    assert_string_equal(report.inputs[1].label, "x");
    assert_int_equal(weft__report_add(&report, second), WEFT_OK);
    assert_string_equal(report.inputs[0].label, "y");
    assert_string_equal(report.inputs[1].label, first);
    assert_string_equal(report.inputs[2].label, second);
    assert_true(weft__report_reads(&report, first));
    assert_false(weft__report_reads(&report, in_scratch("c")));
    assert_false(weft__report_reads(&report, put("z.json", "")));
    weft__report_cleanup(&report);
}

static void a_run_folder_is_all_that_is_in_it(void **state)
{
    (void)state;
    weft_report_t report = {0};
    mkdir(in_scratch("run"), 0700);
    put("run/metrics.jsonl", "{\"step\": 1, \"loss\": 2.5}\n");
    put("run/machine.json", "{\"host\": \"h\"}");
    put("run/run.json", "{\"format\": \"weft run\"}");
    put("run/config", "lr = 1\n");
    put("run/broken.json", "{\"x");
    put("run/t.json", "{\"displayTimeUnit\": \"ms\", \"traceEvents\": []}");
    assert_int_equal(weft__report_add(&report, in_scratch("run")), WEFT_OK);
    assert_int_equal(weft__input_count(&report, WEFT_INPUT_METRICS), 1);
    assert_int_equal(weft__input_count(&report, WEFT_INPUT_TRACE), 1);
    const weft_input_t *record = weft__input_next(&report, WEFT_INPUT_RECORD, NULL);
    assert_non_null(record);
    assert_string_equal(record->config, "lr = 1\n");
    assert_string_equal(record->label, "run");
    assert_true(weft__report_reads(&report, in_scratch("run/config")));
    weft__report_cleanup(&report);
}

/* ---- traces --------------------------------------------------------------------------------- */

#define SPAN(name, pid, ts, dur, step)                                                             \
    "{\"ph\": \"X\", \"name\": \"" name "\", \"pid\": " #pid ", \"tid\": 0, \"ts\": " #ts          \
    ", \"dur\": " #dur ", \"args\": {\"step\": " #step "}},"

static void the_step_of_median_length_is_chosen(void **state)
{
    (void)state;
    static const char text[] = "[" SPAN("step", 0, 0, 9000, 1) SPAN("step", 0, 10000, 2000, 2)
        SPAN("step", 1, 9500, 1000, 2) SPAN("step", 0, 20000, 1000, 3)
            SPAN("step", 0, 30000, 4000, 4) SPAN("work", 0, 0, 99000, 4) "{\"ph\": \"X\"}]";
    weft_json_doc_t doc;
    weft_trace_spans_t spans;
    weft_trace_window_t window;
    assert_int_equal(weft__json_parse(text, strlen(text), "trace", &doc), WEFT_OK);
    assert_int_equal(weft__trace_spans(doc.root, &spans), WEFT_OK);
    assert_int_equal(spans.count, 6);
    assert_int_equal(spans.unreadable, 1);
    assert_int_equal(weft__trace_choose(&spans, &window), WEFT_OK);
    assert_float_equal(window.step, 2, 0); /* 2.5 ms over both ranks; 1 is not counted */
    assert_float_equal(window.start, 9.5, 1e-9);
    assert_float_equal(window.end, 12, 1e-9);
    assert_int_equal(window.steps, 4);
    free(spans.at);
    weft__json_free(&doc);
}

/* ---- parts of a whole ----------------------------------------------------------------------- */

static void parts_are_scaled_to_what_is_lost(void **state)
{
    (void)state;
    static const char text[] =
        "{\"communication\": 3, \"bubble\": 1, \"no\": null, \"minus\": -4, \"peak\": 9}";
    static weft_shares_t shares;
    weft_json_doc_t doc;
    assert_int_equal(weft__json_parse(text, strlen(text), "parts", &doc), WEFT_OK);
    weft__shares_first(&shares, "useful");
    assert_true(weft__shares_add(&shares, "bar", doc.root, 0.6, 0.4));
    assert_int_equal(shares.part_count, 3);
    assert_float_equal(shares.values[0][0], 0.6, 1e-9);
    assert_float_equal(shares.values[0][1], 0.3, 1e-9);
    assert_float_equal(shares.values[0][2], 0.1, 1e-9);
    assert_string_equal(shares.bars[0].text, "60%");
    assert_false(weft__shares_add(&shares, "none", NULL, 1, 0));
    weft__json_free(&doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_input_is_refused_by_name),
        cmocka_unit_test(hostile_kinds_are_not_printed),
        cmocka_unit_test(a_cut_last_line_of_metrics_is_left_out),
        cmocka_unit_test(inputs_of_one_name_get_their_paths),
        cmocka_unit_test(a_run_folder_is_all_that_is_in_it),
        cmocka_unit_test(the_step_of_median_length_is_chosen),
        cmocka_unit_test(parts_are_scaled_to_what_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
