/* The run configuration: options, files, what is written reads back, what is filled in and what
 * is refused, learning rates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/fixture.h"
#include "train/config.h"

static weft_train_config_t config;

static const weft_train_limits_t gpt2 = {
    .context = 1024, .layers = 12, .heads = 12, .kv_heads = 12, .vocab = 50257};

/* Parse the words of `line`, split at spaces. */
static weft_status_t parse(const char *line)
{
    static char buffer[1024];
    char *words[64];
    int count = 0;
    bool help;
    weft__train_free(&config);
    snprintf(buffer, sizeof(buffer), "train %s", line);
    for (char *word = strtok(buffer, " "); word != NULL; word = strtok(NULL, " ")) {
        words[count++] = word;
    }
    words[count] = NULL;
    weft_status_t status = weft__train_parse(count, words, &config, &help);
    assert_false(help);
    return status;
}

static weft_status_t parse_and_resolve(const char *line)
{
    weft_status_t status = parse(line);
    return status == WEFT_OK ? weft__train_resolve(&config, &gpt2) : status;
}

static void defaults_parse_and_hold(void **state)
{
    (void)state;
    assert_int_equal(parse("--data x"), WEFT_OK);
#define CHECK_INT(field, text) assert_int_equal(config.field, strtol(text, NULL, 10));
#define CHECK_SIZE(field, text) assert_true(config.field > 0 || strcmp(text, "0") == 0);
#define CHECK_REAL(field, text) assert_true(config.field == strtod(text, NULL));
#define CHECK_BOOL(field, text) assert_int_equal(config.field, strcmp(text, "yes") == 0);
#define CHECK_STR(field, text) assert_non_null(config.field);
#define CHECK_AUTO(field, text) assert_string_equal(config.field, text);
#define CHECK_ONE(field, text) assert_string_equal(config.field, text);
#define CHECK(kind, field, name, letter, metavar, value, words, help) CHECK_##kind(field, value)
    WEFT_TRAIN_TABLE(CHECK)
    assert_int_equal(config.bucket, 25 << 20);
    assert_string_equal(config.data, "x");
}

static void options_are_taken(void **state)
{
    (void)state;
    assert_int_equal(
        parse("-n 4 --model gpt2-124m -b64 --lr=6e-4 --overlap no --compress int8 --bucket 1M"),
        WEFT_OK);
    assert_int_equal(config.ranks, 4);
    assert_string_equal(config.model, "gpt2-124m");
    assert_int_equal(config.batch, 64);
    assert_true(config.lr == 6e-4);
    assert_false(config.overlap);
    assert_string_equal(config.compress, "int8");
    assert_int_equal(config.bucket, 1 << 20);
    assert_int_equal(
        parse("--micro-batches 4 --pp-schedule gpipe --sequence-parallel --lean --tp 2"), WEFT_OK);
    assert_int_equal(config.accumulate, 4);
    assert_string_equal(config.schedule, "gpipe");
    assert_true(config.sequence_parallel && config.lean);
    assert_int_equal(config.tp, 2);
    assert_int_equal(parse("--device gpu"), WEFT_ERR_INVALID);
    assert_true(error_says("auto cpu cuda"));
    assert_int_equal(parse("--batch 2147483648"), WEFT_ERR_INVALID);
    assert_true(error_says("--batch takes a whole number of at most 2147483647"));
    assert_int_equal(weft__train_read_text("batch = 2147483648", "file", &config),
                     WEFT_ERR_INVALID);
    assert_true(error_says("batch takes a whole number of at most 2147483647"));
    assert_int_equal(parse("--lr fast"), WEFT_ERR_INVALID);
    assert_true(error_says("a number such as"));
    assert_int_equal(parse("--bacth 3"), WEFT_ERR_INVALID);
    assert_true(error_says("did you mean --batch?"));
    assert_int_equal(parse("train.conf"), WEFT_ERR_INVALID);
    assert_true(error_says("train.conf"));
}

static void tensorboard_takes_a_folder_or_none(void **state)
{
    (void)state;
    char folder[WEFT_PATH_BYTES];
    static const struct {
        const char *line, *setting, *folder;
    } rows[] = {{"--data x --out run", "", ""},
                {"--data x --out run --tensorboard", "auto", "run/tensorboard"},
                {"--tensorboard --data x --out run", "auto", "run/tensorboard"},
                {"--data x --tensorboard board", "board", "board"},
                {"--data x --out run --tensorboard=/tmp/b", "/tmp/b", "/tmp/b"},
                {"--data x --out run --tensorboard none", "none", ""},
                {"--data x --out run --tensorboard=", "", ""}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(parse_and_resolve(rows[i].line), WEFT_OK);
        assert_string_equal(config.tensorboard, rows[i].setting);
        assert_int_equal(weft__train_tensorboard(&config, folder), WEFT_OK);
        assert_string_equal(folder, rows[i].folder);
    }
    assert_int_equal(parse_and_resolve("--data x --tensorboard"), WEFT_ERR_INVALID);
    assert_true(error_says("add --out DIR, or say where with --tensorboard DIR"));
}

static void help_shows_every_option_and_default(void **state)
{
    (void)state;
    char *text = NULL, *words[] = {"train", "--help", NULL};
    size_t size;
    bool help = false;
    weft__train_free(&config);
    assert_int_equal(weft__train_parse(2, words, &config, &help), WEFT_OK);
    assert_true(help);
    FILE *out = open_memstream(&text, &size);
    weft__train_help(out);
    fclose(out);
#define SHOWN(kind, field, name, letter, metavar, value, words, help)                              \
    assert_non_null(strstr(text, "--" name " "));
    WEFT_TRAIN_TABLE(SHOWN)
    assert_non_null(strstr(text, "(default 25M)"));
    assert_non_null(strstr(text, "--config FILE"));
    free(text);
}

static void files_come_before_the_command_line(void **state)
{
    (void)state;
    char line[5000];
    static const char file[] = "# a comment\n"
                               "\n"
                               "b = 32\r\n"
                               "n = 4\n"
                               "micro-batches = 8\n"
                               "  lr=1e-3  \n"
                               "prompt = \" two\\nlines \\\"q\\\" \\\\ \"\n"
                               "data = some where/with = in it # not a comment\n"
                               "out =\n"
                               "overlap = off";
    write_file(in_scratch("run.conf"), file, sizeof(file) - 1);
    snprintf(line, sizeof(line), "--lr 2e-3 --config %s", in_scratch("run.conf"));
    assert_int_equal(parse(line), WEFT_OK);
    assert_int_equal(config.batch, 32);
    assert_int_equal(config.ranks, 4);
    assert_int_equal(config.accumulate, 8);
    assert_true(config.lr == 2e-3);
    assert_string_equal(config.prompt, " two\nlines \"q\" \\ ");
    assert_string_equal(config.data, "some where/with = in it # not a comment");
    assert_string_equal(config.out, "");
    assert_false(config.overlap);

    static const struct {
        const char *text, *says;
    } bad[] = {
        {"prompt = \"\\x4\"", "line 1: the quotes of prompt do not close"},
        {"\nbatch = many", "line 2: batch takes a whole number, not \"many\""},
        {"batchs = 4", "did you mean batch?"},
        {"batch 4", "not of the form name = value"},
        {"device = gpu", "one of: auto cpu cuda"},
        {"prompt = \"open", "do not close"},
        {"prompt = \"a\" b", "do not close"},
        {"prompt = \"\\x\"", "do not close"},
        {"config = other", "no option \"config\""},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(parse("--data x"), WEFT_OK);
        assert_int_equal(weft__train_read_text(bad[i].text, "my.conf", &config), WEFT_ERR_INVALID);
        assert_true(error_says(bad[i].says));
        assert_true(error_says("my.conf"));
    }
    assert_int_equal(parse("--config /no/such/file"), WEFT_ERR_NOT_FOUND);
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    char *first, *second;
    setlocale(LC_ALL, "de_DE.UTF-8"); /* if there is one: commas must not come in */
    assert_int_equal(
        parse("-n 3 --lr 0.1 --eps 1.7976931348623157e-100 --bucket 26214401 --seed 7"), WEFT_OK);
    config.prompt = "  \"tricky\" \\ \n\tprompt ";
    config.data = "\"";
    config.out = "a = b # c\\n";
    config.trace = "\xff\xc3\xa9\xc3";
    assert_int_equal(weft__train_write_text(&config, "weft 1\non a host", &first), WEFT_OK);
    assert_memory_equal(first, "# weft 1\n# on a host\n", 21);
    assert_int_equal(parse(""), WEFT_OK);
    assert_int_equal(weft__train_read_text(first, "first", &config), WEFT_OK);
    assert_string_equal(config.prompt, "  \"tricky\" \\ \n\tprompt ");
    assert_string_equal(config.data, "\"");
    assert_string_equal(config.out, "a = b # c\\n");
    assert_string_equal(config.trace, "\xff\xc3\xa9\xc3");
    assert_non_null(strstr(first, "\ntrace = \"\\xff\xc3\xa9\\xc3\"\n"));
    assert_true(config.eps == 1.7976931348623157e-100 && config.lr == 0.1);
    assert_int_equal(config.bucket, 26214401);
    assert_int_equal(weft__train_write_text(&config, "weft 1\non a host", &second), WEFT_OK);
    assert_string_equal(first, second);
#define WRITTEN(kind, field, name, letter, metavar, value, words, help)                            \
    assert_non_null(strstr(first, "\n" name " = "));
    WEFT_TRAIN_TABLE(WRITTEN)
    free(first);
    free(second);
    setlocale(LC_ALL, "C");
}

static void open_values_are_filled_in(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int dp, batch, micro_batch, accumulate, length;
    } cases[] = {
        {"--data x", 1, 8, 8, 1, 1024},
        {"--data x -n 4", 4, 32, 8, 1, 1024},
        {"--data x -n 4 --batch 64 -T 256", 4, 64, 16, 1, 256},
        {"--data x -n 4 --batch 64 --micro-batch 4", 4, 64, 4, 4, 1024},
        {"--data x -n 4 --batch 64 --accumulate 8", 4, 64, 2, 8, 1024},
        {"--data x -n 4 --micro-batch 4 --accumulate 3", 4, 48, 4, 3, 1024},
        {"--data x -n 4 --micro-batch 4", 4, 16, 4, 1, 1024},
        {"--data x -n 8 --tp 2 --pp 2 --batch 16", 2, 16, 1, 8, 1024},
        {"--data x -n 8 --tp 2 --pp 2 --batch 16 --micro-batch 2", 2, 16, 2, 4, 1024},
        {"--data x -n 8 --dp 4 --tp 2", 4, 32, 8, 1, 1024},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (parse_and_resolve(cases[i].line) != WEFT_OK) {
            fail_msg("%s: %s", cases[i].line, weft_last_error());
        }
        assert_int_equal(config.dp, cases[i].dp);
        assert_int_equal(config.batch, cases[i].batch);
        assert_int_equal(config.micro_batch, cases[i].micro_batch);
        assert_int_equal(config.accumulate, cases[i].accumulate);
        assert_int_equal(config.length, cases[i].length);
        assert_int_equal(config.dp * config.pp * config.tp, config.ranks);
        assert_int_equal(config.dp * config.micro_batch * config.accumulate, config.batch);
        /* and once more, from what a run would write: nothing changes */
        assert_int_equal(weft__train_resolve(&config, &gpt2), WEFT_OK);
        assert_int_equal(config.batch, cases[i].batch);
    }
}

static void what_cannot_work_is_refused_with_what_would(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } cases[] = {
        {"--steps 5", "--data"},
        {"--data x -n 0", "--ranks 0"},
        {"--data x -n 4 --batch 30", "--batch 28 or 32"},
        {"--data x -n 4 --batch 2", "--batch 4"},
        {"--data x -n 4 --batch 64 --micro-batch 5",
         "dp 4 x --micro-batch 5 = 20: take --batch 60 or 80"},
        {"--data x -n 2 --batch 6 --accumulate 2", "--batch 4 or 8"},
        {"--data x -n 4 --batch 64 --micro-batch 8 --accumulate 3", "is a batch of 96"},
        {"--data x -n 6 --tp 2 --pp 2", "-n 4 or 8"},
        {"--data x -n 2 --tp 4", "take -n 4"},
        {"--data x -n 4 --dp 3", "take -n 3"},
        {"--data x -n 5 --tp 5", "heads: take 1"},
        {"--data x -n 12 --tp 8", "take 1, 2, 3, 4, 6 or 12"},
        {"--data x -n 16 --pp 16", "take 1, 2, 4 or 8"},
        {"--data x -n 7 --tp 2 --batch 16", "take -n 4 or 8"},
        {"--data x --virtual-stages -1", "1 or more"},
        {"--data x --batch 2147483646 --micro-batch 1", "a larger --micro-batch"},
        {"--data x -T 2048", "at most 1024"},
        {"--data x --save 10", "--out"},
        {"--data x --resume auto", "--out"},
        {"--data x --eval 10 --eval-share 0", "--eval-data"},
        {"--data x --warmup 11 --steps 10", "at most --steps"},
        {"--data x --min-lr 1 --lr 0.1", "at most --lr"},
        {"--data x --beta1 1", "less than 1"},
        {"--data x --dropout 1", "less than 1"},
        {"--data x --lr 0", "more than 0"},
        {"--data x --zero 4", "0, 1, 2 or 3"},
        {"--data x --max-restarts 1", "--out"},
        {"--data x --precision fp32 --grad-precision bf16", "--precision bf16"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse_and_resolve(cases[i].line), WEFT_ERR_INVALID);
        assert_true(error_says(cases[i].says));
    }
    const weft_train_limits_t unknown = {0};
    assert_int_equal(parse("--data x"), WEFT_OK);
    assert_int_equal(weft__train_resolve(&config, &unknown), WEFT_ERR_INVALID);
    assert_true(error_says("--length"));
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12;
}

static void learning_rates_follow_their_schedule(void **state)
{
    (void)state;
    assert_int_equal(parse("--lr 1 --min-lr 0.1 --warmup 10 --steps 110 --lr-schedule cosine"),
                     WEFT_OK);
    for (int i = 0; i < 10; i++) {
        assert_true(near(weft__train_lr(&config, (uint64_t)i), (i + 1) / 10.0));
    }
    assert_true(near(weft__train_lr(&config, 10), 1));
    assert_true(near(weft__train_lr(&config, 60), 0.55)); /* half way */
    assert_true(near(weft__train_lr(&config, 35), 0.1 + 0.9 * (1 + sqrt(0.5)) / 2));
    assert_true(near(weft__train_lr(&config, 110), 0.1));
    assert_true(near(weft__train_lr(&config, 1000), 0.1));
    double last = 2;
    for (uint64_t i = 9; i < 110; i++) {
        double lr = weft__train_lr(&config, i);
        assert_true(lr <= last && lr >= 0.1);
        last = lr;
    }
    config.lr_schedule = "linear";
    assert_true(near(weft__train_lr(&config, 10), 1));
    assert_true(near(weft__train_lr(&config, 60), 0.55));
    assert_true(near(weft__train_lr(&config, 85), 0.325));
    config.lr_schedule = "constant";
    assert_true(near(weft__train_lr(&config, 4), 0.5) && near(weft__train_lr(&config, 109), 1));
    config.lr_schedule = "wsd"; /* falls in the last fifth, 22 steps */
    assert_true(near(weft__train_lr(&config, 4), 0.5) && near(weft__train_lr(&config, 88), 1));
    assert_true(near(weft__train_lr(&config, 99), 0.55) && near(weft__train_lr(&config, 110), 0.1));
    config.warmup = 0;
    config.steps = 1;
    config.lr_schedule = "cosine";
    assert_true(near(weft__train_lr(&config, 0), 1));
}

static int end(void **state)
{
    (void)state;
    weft__train_free(&config);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_parse_and_hold),
        cmocka_unit_test(options_are_taken),
        cmocka_unit_test(tensorboard_takes_a_folder_or_none),
        cmocka_unit_test(help_shows_every_option_and_default),
        cmocka_unit_test(files_come_before_the_command_line),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(open_values_are_filled_in),
        cmocka_unit_test(what_cannot_work_is_refused_with_what_would),
        cmocka_unit_test(learning_rates_follow_their_schedule),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
