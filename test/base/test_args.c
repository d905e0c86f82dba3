/* Command line options: every spelling, every refusal, the help text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/status.h>

#include "base/args.h"
#include "base/args_help.h"

static struct {
    int ranks, timeout;
    size_t begin;
    double rate;
    const char *json;
    bool check, threads, explain;
} got;

static const weft_arg_t options[] = {
    {"ranks", 'n', WEFT_ARG_INT, "N", &got.ranks, "number of ranks"},
    {"begin", 'b', WEFT_ARG_SIZE, "SIZE", &got.begin, "smallest size"},
    {"rate", 'r', WEFT_ARG_REAL, "X", &got.rate, "a rate"},
    {"timeout", 0, WEFT_ARG_MS, "TIME", &got.timeout, "how long to wait"},
    {"json", 0, WEFT_ARG_STR, "FILE", &got.json,
     "write the results to FILE as JSON, and this sentence goes on for so long that it cannot stay "
     "on one line of the help"},
    {"check", 'c', WEFT_ARG_BOOL, "YES", &got.check, "verify the results"},
    {"threads", 't', WEFT_ARG_FLAG, NULL, &got.threads, "ranks are threads"},
    {"explain", 'x', WEFT_ARG_FLAG, NULL, &got.explain, "say why"},
};

static weft_args_t command = {
    .command = "weft bench",
    .synopsis = "COLLECTIVE [OPTION]...",
    .text = "Measure a collective.",
    .footer = "example:\n  weft bench allreduce -n 8",
    .options = options,
    .count = sizeof(options) / sizeof(options[0]),
};

static char *words[32];
static weft_args_found_t found;

/* Parse the words of `line`, split at spaces; "''" is the empty word. */
static weft_status_t parse(const char *line)
{
    static char buffer[512];
    int count = 0;
    memset(&got, 0, sizeof(got));
    memset(&found, 0xff, sizeof(found));
    snprintf(buffer, sizeof(buffer), "bench %s", line);
    for (char *word = strtok(buffer, " "); word != NULL; word = strtok(NULL, " ")) {
        words[count++] = strcmp(word, "''") == 0 ? "" : word;
    }
    words[count] = NULL;
    return weft__args_parse(&command, count, words, &found);
}

static void every_spelling(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "--ranks=4 allreduce --begin=64K --timeout 20ms --json=out.json --check=yes -t",
        "allreduce -n 4 -b64K --timeout=0.02 --json out.json -cyes --threads",
        "-n4 --begin 64K -tb 1 -tb 64K --timeout 20ms --json out.json -c on -- allreduce",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_int_equal(parse(lines[i]), WEFT_OK);
        assert_int_equal(got.ranks, 4);
        assert_int_equal(got.begin, 65536);
        assert_int_equal(got.timeout, 20);
        assert_string_equal(got.json, "out.json");
        assert_true(got.check && got.threads);
        assert_false(got.explain);
        assert_false(found.help);
        assert_int_equal(found.count, 1);
        assert_string_equal(found.positionals[0], "allreduce");
        assert_null(found.positionals[1]);
    }
    assert_int_equal(parse("-txn2 --ranks -3 --json= --json '' -r 3e-4"), WEFT_OK);
    assert_true(got.rate == 3e-4);
    assert_true(got.threads && got.explain);
    assert_int_equal(got.ranks, -3); /* the last one counts; a value may begin with a dash */
    assert_string_equal(got.json, "");
}

static void yes_may_be_left_out(void **state)
{
    (void)state;
    assert_int_equal(parse("--check -n 3"), WEFT_OK);
    assert_true(got.check && got.ranks == 3);
    assert_int_equal(parse("-n 3 -c"), WEFT_OK);
    assert_true(got.check);
    assert_int_equal(parse("--check no --threads"), WEFT_OK);
    assert_true(!got.check && got.threads);
}

static void auto_where_there_is_no_value(void **state)
{
    (void)state;
    static const char *board;
    const weft_arg_t one[] = {{"board", 'o', WEFT_ARG_AUTO, "[DIR]", &board, "a folder"},
                              {"threads", 't', WEFT_ARG_FLAG, NULL, &got.threads, "threads"}};
    const weft_args_t args = {
        .command = "weft x", .synopsis = "", .text = "", .options = one, .count = 2};
    static char *const lines[][4] = {{"x", "--board", NULL},  {"x", "--board", "-t", NULL},
                                     {"x", "-o", NULL},       {"x", "--board", "here", NULL},
                                     {"x", "--board=", NULL}, {"x", "-ohere", NULL}};
    static const char *const expected[] = {"auto", "auto", "auto", "here", "", "here"};
    for (int i = 0; i < 6; i++) {
        char *line[4];
        int count = 0;
        memcpy(line, lines[i], sizeof(line));
        while (line[count] != NULL) {
            count++;
        }
        board = NULL;
        assert_int_equal(weft__args_parse(&args, count, line, &found), WEFT_OK);
        assert_string_equal(board, expected[i]);
        assert_int_equal(found.count, 0);
    }
}

static void numbers_stay_in_their_range(void **state)
{
    (void)state;
    static const weft_arg_range_t ranges[] = {{"timeout", 5, 6}, {"ranks", 1, 16}};
    command.ranges = ranges;
    command.range_count = 2;
    assert_int_equal(parse("-n 1 --timeout 1h"), WEFT_OK); /* a time is no number */
    assert_int_equal(got.ranks, 1);
    assert_int_equal(parse("--ranks=16"), WEFT_OK);
    static const char *const wrong[] = {"0", "17", "-1", "1x", "''", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char line[64], expected[128];
        const char *value = strcmp(wrong[i], "''") == 0 ? "" : wrong[i];
        snprintf(line, sizeof(line), "--ranks %s", wrong[i]);
        snprintf(expected, sizeof(expected),
                 "weft bench: --ranks takes a whole number from 1 to 16, not \"%s\"", value);
        assert_int_equal(parse(line), WEFT_ERR_INVALID);
        assert_string_equal(weft_last_error(), expected);
        assert_int_equal(got.ranks, 0); /* left alone */
    }
    command.range_count = 0;
}

static void positionals_and_end_of_options(void **state)
{
    (void)state;
    assert_int_equal(parse("a -n 2 - b -- -t --ranks=9"), WEFT_OK);
    assert_int_equal(got.ranks, 2);
    assert_false(got.threads);
    assert_int_equal(found.count, 5);
    static const char *const expected[] = {"a", "-", "b", "-t", "--ranks=9"};
    for (int i = 0; i < 5; i++) {
        assert_string_equal(found.positionals[i], expected[i]);
    }
    assert_int_equal(parse(""), WEFT_OK);
    assert_int_equal(found.count, 0);
    char *nothing[] = {NULL};
    assert_int_equal(weft__args_parse(&command, 0, nothing, &found), WEFT_OK);
    assert_int_equal(found.count, 0);
}

static void stop_at_first_positional(void **state)
{
    (void)state;
    command.stop = true;
    assert_int_equal(parse("-n 2 prog -n 3 --help -- x"), WEFT_OK);
    assert_int_equal(got.ranks, 2);
    assert_false(found.help);
    assert_int_equal(found.count, 6);
    assert_string_equal(found.positionals[0], "prog");
    assert_string_equal(found.positionals[4], "--");
    assert_null(found.positionals[6]);

    assert_int_equal(parse("-n 2 -- --prog -n 3"), WEFT_OK);
    assert_int_equal(found.count, 3);
    assert_string_equal(found.positionals[0], "--prog");
    assert_int_equal(got.ranks, 2);
    command.stop = false;
}

static void refusals(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"--rank=4", "weft bench: unknown option --rank; did you mean --ranks?"},
        {"--thraeds", "weft bench: unknown option --thraeds; did you mean --threads?"},
        {"--hlep", "weft bench: unknown option --hlep; did you mean --help?"},
        {"--purple", "weft bench: unknown option --purple; weft bench --help lists them"},
        {"-z", "weft bench: unknown option -z; weft bench --help lists them"},
        {"-tz", "weft bench: unknown option -z; weft bench --help lists them"},
        {"-t4", "weft bench: unknown option -4; weft bench --help lists them"},
        {"--ranks", "weft bench: --ranks needs a value: N"},
        {"-n", "weft bench: -n needs a value: N"},
        {"--ranks=", "weft bench: --ranks takes a whole number, not \"\""},
        {"-n four", "weft bench: -n takes a whole number, not \"four\""},
        {"-n 99999999999999999999",
         "weft bench: -n takes a whole number of at most 2147483647, not "
         "\"99999999999999999999\""},
        {"-n 2147483648", "weft bench: -n takes a whole number of at most 2147483647, not "
                          "\"2147483648\""},
        {"-n -2147483649", "weft bench: -n takes a whole number of at least -2147483648, not "
                           "\"-2147483649\""},
        {"-n 2147483648x", "weft bench: -n takes a whole number, not \"2147483648x\""},
        {"-b 3X", "weft bench: -b takes a size such as 4096, 64K or 1.5G, not \"3X\""},
        {"--timeout=x", "weft bench: --timeout takes a time such as 300, 1.5s, 20ms or 5m, not "
                        "\"x\""},
        {"--check=maybe", "weft bench: --check takes yes or no, not \"maybe\""},
        {"--threads=yes", "weft bench: --threads takes no value"},
        {"--=3", "weft bench: unknown option --; weft bench --help lists them"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(cases[i][0]), WEFT_ERR_INVALID);
        assert_string_equal(weft_last_error(), cases[i][1]);
    }
    char line[400] = "--";
    memset(line + 2, 'q', 390);
    assert_int_equal(parse(line), WEFT_ERR_INVALID);
}

static void help_is_complete_and_narrow(void **state)
{
    (void)state;
    assert_int_equal(parse("-t --help --nonsense"), WEFT_OK);
    assert_true(found.help);
    assert_int_equal(parse("-h"), WEFT_OK);
    assert_true(found.help);

    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    weft__args_help(&command, out);
    fclose(out);
    assert_string_equal(text,
                        "usage: weft bench COLLECTIVE [OPTION]...\n"
                        "\n"
                        "Measure a collective.\n"
                        "\n"
                        "options:\n"
                        "  -n, --ranks N       number of ranks\n"
                        "  -b, --begin SIZE    smallest size\n"
                        "  -r, --rate X        a rate\n"
                        "      --timeout TIME  how long to wait\n"
                        "      --json FILE     write the results to FILE as JSON, and this "
                        "sentence goes\n"
                        "                      on for so long that it cannot stay on one line of "
                        "the help\n"
                        "  -c, --check YES     verify the results\n"
                        "  -t, --threads       ranks are threads\n"
                        "  -x, --explain       say why\n"
                        "  -h, --help          show this text\n"
                        "\n"
                        "example:\n"
                        "  weft bench allreduce -n 8\n");
    free(text);
}

static const char *each_color(int i)
{
    static const char *const names[] = {"red", "blue", NULL};
    return names[i];
}

static char *help_as(weft_help_t form, const weft_args_t *args)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    weft__args_help_as(form);
    weft__args_help(args, out);
    weft__args_help_as(WEFT_HELP_TEXT);
    fclose(out);
    return text;
}

static const weft_arg_t few[] = {
    {"color", 'c', WEFT_ARG_STR, "NAME", &got.json, "a \\color, of --these"},
    {"place", 0, WEFT_ARG_AUTO, "[DIR]", &got.json, ".where it is"},
    {"older", 'y', WEFT_ARG_INT, "N", &got.ranks, NULL},
    {"quick", 'h', WEFT_ARG_FLAG, NULL, &got.threads, "soon"},
};
static const weft_arg_words_t few_words[] = {{NULL, "all", each_color},
                                             {"color", NULL, each_color}};
static const weft_arg_words_t few_verbs[] = {{"wall", "@files", NULL}, {"door", NULL, each_color}};
static const weft_args_t small = {
    .command = "weft paint",
    .synopsis = "[WHAT]",
    .text = "Paint a-b.\n'Twice.",
    .footer = "A note\nin two lines.\n\nA table:\n  1  2\n\nexamples:\n  weft paint -c red",
    .options = few,
    .count = 4,
    .words = few_words,
    .words_count = 2,
    .verbs = few_verbs,
    .verb_count = 2,
};

static void help_as_a_manual_page(void **state)
{
    (void)state;
    char *text = help_as(WEFT_HELP_MAN, &small);
    assert_string_equal(text, ".SH SYNOPSIS\n\\fBweft paint\\fR [WHAT]\n"
                              ".SH DESCRIPTION\nPaint a\\-b.\n.br\n\\&'Twice.\n"
                              ".SH OPTIONS\n"
                              ".TP\n\\fB\\-c\\fR, \\fB\\-\\-color\\fR \\fINAME\\fR\n"
                              "a \\ecolor, of \\-\\-these\n"
                              ".TP\n\\fB\\-\\-place\\fR \\fI[DIR]\\fR\n\\&.where it is\n"
                              ".TP\n\\fB\\-h\\fR, \\fB\\-\\-quick\\fR\nsoon\n"
                              ".TP\n\\fB\\-\\-help\\fR\nshow this text\n"
                              ".SH NOTES\n.PP\nA note\nin two lines.\n"
                              ".PP\n.nf\nA table:\n  1  2\n.fi\n"
                              ".SH EXAMPLES\n.nf\n  weft paint \\-c red\n.fi\n");
    free(text);
}

static void help_as_what_bash_completes(void **state)
{
    (void)state;
    char *text = help_as(WEFT_HELP_BASH, &small);
    assert_string_equal(text, "_weft_options[paint]='-c --color --place -h --quick --help'\n"
                              "_weft_values[paint]=' all red blue wall door'\n"
                              "_weft_values[paint wall]=' @files'\n"
                              "_weft_values[paint door]=' red blue'\n"
                              "_weft_values[paint --color]=' red blue'\n"
                              "_weft_values[paint -c]=' red blue'\n"
                              "_weft_values[paint --place]='? @folders'\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling),
        cmocka_unit_test(yes_may_be_left_out),
        cmocka_unit_test(auto_where_there_is_no_value),
        cmocka_unit_test(numbers_stay_in_their_range),
        cmocka_unit_test(positionals_and_end_of_options),
        cmocka_unit_test(stop_at_first_positional),
        cmocka_unit_test(refusals),
        cmocka_unit_test(help_is_complete_and_narrow),
        cmocka_unit_test(help_as_a_manual_page),
        cmocka_unit_test(help_as_what_bash_completes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
