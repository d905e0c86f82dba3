/* Metrics: the file across resumes and kills, what people see, the summary. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/fixture.h"
#include "base/json_read.h"
#include "train/metrics.h"
#include "train/progress.h"

static weft_metrics_step_t step_at(uint64_t step)
{
    weft_metrics_step_t made = WEFT_METRICS_STEP_INIT;
    made.step = step;
    made.loss = 4 - 0.1 * (double)step;
    made.tokens_per_s = 1000 * (double)step;
    made.seconds = 0.5;
    made.comm_share = 0.25;
    made.tokens = step * 512;
    return made;
}

static weft_metrics_t *open_metrics(const char *folder, uint64_t resumed, FILE *out, int log_every)
{
    const weft_metrics_options_t options = {
        .folder = folder, .resumed = resumed, .steps = 20, .log_every = log_every, .out = out};
    weft_metrics_t *metrics;
    if (weft__metrics_open(&options, &metrics) != WEFT_OK) {
        fail_msg("%s", weft_last_error());
    }
    return metrics;
}

static void write_steps(weft_metrics_t *metrics, uint64_t from, uint64_t to)
{
    for (uint64_t s = from; s <= to; s++) {
        weft_metrics_step_t step = step_at(s);
        assert_int_equal(weft__metrics_step(metrics, &step), WEFT_OK);
    }
    assert_int_equal(weft__metrics_close(metrics), WEFT_OK);
}

/* The file must have steps 1 to `last`, one a line. */
static void check_file(const char *path, uint64_t last)
{
    char *text;
    uint64_t expected = 0;
    assert_int_equal(weft__file_read(path, &text, NULL), WEFT_OK);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';) {
        weft_json_doc_t doc;
        uint64_t step = 0;
        double loss = 0;
        assert_int_equal(weft__json_parse(line, strlen(line), "line", &doc), WEFT_OK);
        assert_true(weft__json_to_uint(weft__json_get(doc.root, "step"), &step));
        assert_int_equal(step, ++expected);
        assert_true(weft__json_to_double(weft__json_get(doc.root, "loss"), &loss));
        assert_true(loss == 4 - 0.1 * (double)step);
        assert_null(weft__json_get(doc.root, "mfu"));
        weft__json_free(&doc);
    }
    assert_int_equal(expected, last);
    free(text);
}

static void resume_cuts_what_came_after(void **state)
{
    (void)state;
    const char *folder = in_scratch("run"), *path = in_scratch("run/metrics.jsonl");
    write_steps(open_metrics(folder, 0, NULL, 1), 1, 10);
    check_file(path, 10);
    write_steps(open_metrics(folder, 6, NULL, 1), 7, 8);
    check_file(path, 8);
    FILE *file = fopen(path, "a"); /* a line that a kill cut short */
    fputs("{\"step\": 9, \"lo", file);
    fclose(file);
    write_steps(open_metrics(folder, 20, NULL, 1), 9, 12);
    check_file(path, 12);
    write_steps(open_metrics(folder, 0, NULL, 1), 1, 2);
    check_file(path, 2);
}

static void resume_keeps_lines_that_are_not_its_own(void **state)
{
    (void)state;
    const char *folder = in_scratch("odd"), *path = in_scratch("odd/metrics.jsonl");
    char *text;
    write_steps(open_metrics(folder, 0, NULL, 1), 1, 2);
    FILE *file = fopen(path, "a");
    fputs("root:x:0:0\n{\"note\": 1}\n", file);
    fclose(file);
    write_steps(open_metrics(folder, 2, NULL, 1), 3, 9);
    write_steps(open_metrics(folder, 4, NULL, 1), 5, 5);
    assert_int_equal(weft__file_read(path, &text, NULL), WEFT_OK);
    assert_non_null(strstr(text, "\nroot:x:0:0\n{\"note\": 1}\n{\"step\": 3,"));
    assert_non_null(strstr(text, "{\"step\": 5,"));
    assert_null(strstr(text, "{\"step\": 6,"));
    free(text);
}

/* Lines of steps that the disk has no room for come when it has: a checkpoint of these steps may be
 * there by then. */
static void a_full_disk_leaves_whole_lines_and_loses_none(void **state)
{
    (void)state;
    struct rlimit limit = {700, RLIM_INFINITY}, before;
    const char *folder = in_scratch("full"), *path = in_scratch("full/metrics.jsonl");
    weft_metrics_t *metrics = open_metrics(folder, 0, NULL, 1);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &limit);
    weft_status_t status = WEFT_OK;
    uint64_t s = 0;
    while (status == WEFT_OK && s < 100) {
        weft_metrics_step_t step = step_at(++s);
        status = weft__metrics_step(metrics, &step);
    }
    assert_int_equal(status, WEFT_ERR_SYSTEM);
    assert_true(error_says("metrics.jsonl"));
    assert_true(s > 2 && s < 20);
    check_file(path, s - 1);
    weft_metrics_step_t step = step_at(s + 1);
    assert_int_equal(weft__metrics_step(metrics, &step), WEFT_ERR_SYSTEM);
    assert_int_equal(weft__metrics_catch_up(metrics), WEFT_ERR_SYSTEM);
    check_file(path, s - 1);
    setrlimit(RLIMIT_FSIZE, &before); /* there is room again */
    step = step_at(s + 2);
    assert_int_equal(weft__metrics_step(metrics, &step), WEFT_OK);
    check_file(path, s + 2);
    setrlimit(RLIMIT_FSIZE, &limit);
    step = step_at(s + 3);
    assert_int_equal(weft__metrics_step(metrics, &step), WEFT_ERR_SYSTEM);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(weft__metrics_close(metrics), WEFT_OK);
    check_file(path, s + 3);
}

static void a_loss_that_is_no_number_is_null(void **state)
{
    (void)state;
    char *text;
    weft_metrics_t *metrics = open_metrics(in_scratch("nan"), 0, NULL, 1);
    weft_metrics_step_t step = step_at(1);
    step.loss = NAN;
    step.memory = 1 << 20;
    assert_int_equal(weft__metrics_step(metrics, &step), WEFT_OK);
    weft__metrics_close(metrics);
    assert_int_equal(weft__file_read(in_scratch("nan/metrics.jsonl"), &text, NULL), WEFT_OK);
    assert_non_null(strstr(text, "\"loss\": null"));
    assert_non_null(strstr(text, "\"memory\": 1048576"));
    free(text);
}

static void lines_are_plain_where_no_terminal_is(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size;
    FILE *out = tmpfile();
    weft_metrics_t *metrics = open_metrics(NULL, 0, out, 5);
    for (uint64_t s = 1; s <= 20; s++) {
        weft_metrics_step_t step = step_at(s);
        step.eval_loss = s == 7 ? 3.5 : s == 14 ? 3.25 : NAN;
        step.mfu = 0.5;
        step.memory = (uint64_t)3 << 30;
        assert_int_equal(weft__metrics_step(metrics, &step), WEFT_OK);
        if (s == 10) {
            weft__metrics_say(metrics, "saved %s", "step-000010");
        }
    }
    weft__metrics_summary(metrics);
    size = (size_t)ftell(out);
    text = calloc(1, size + 1);
    rewind(out);
    assert_int_equal(fread(text, 1, size, out), size);
    fclose(out);
    assert_null(strchr(text, '\033'));
    assert_null(strchr(text, '\r'));
    int lines = 0;
    for (const char *at = text; (at = strstr(at, "step ")) != NULL; at += 5) {
        lines++;
    }
    assert_int_equal(lines, 6); /* 5, 7, 10, 14, 15, 20 */
    static const char *const wanted[] = {
        "step 7/20  loss 3.3000  eval 3.5000  7.00k tok/s  mfu 50%  comm 25%  mem 3.0 GiB  left ",
        "\nsaved step-000010\n",
        "step 20/20  loss 2.0000  20.0k tok/s  mfu 50%  comm 25%  mem 3.0 GiB\n",
        "steps            20 (1 to 20), 10.2k tokens seen in all\n",
        "loss             3.9000 -> 2.0000\n",
        "validation loss  3.2500 (best 3.2500)\n",
        "tokens/s         13.0k (middle half 9.00k to 17.0k)\n",
        "mfu              50.0%\n",
        "communication    25.0% of the time\n",
        "peak memory      3.0 GiB per rank\n",
        "time             10s in steps, ",
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (strstr(text, wanted[i]) == NULL) {
            fail_msg("not there: %s\nin: %s", wanted[i], text);
        }
    }
    free(text);
    weft__metrics_close(metrics);
}

static void a_terminal_has_one_line_that_is_drawn_again(void **state)
{
    (void)state;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    FILE *out = fopen(ptsname(master), "w");
    assert_non_null(out);
    weft_metrics_t *metrics = open_metrics(NULL, 0, out, 1);
    for (uint64_t s = 1; s <= 3; s++) {
        weft_metrics_step_t step = step_at(s);
        step.eval_loss = s == 2 ? 3.5 : NAN;
        step.lr = 3e-4; /* more than there is room for */
        step.grad_norm = step.mfu = 0.5;
        step.comm_share = 0.25;
        step.memory = (uint64_t)300 << 20;
        assert_int_equal(weft__metrics_step(metrics, &step), WEFT_OK);
    }
    weft__metrics_say(metrics, "saved");
    weft__metrics_close(metrics);
    char text[2048];
    size_t size = 0;
    text[0] = '\0';
    while (strstr(text, "saved\r\n") == NULL) { /* a terminal hands it on in pieces */
        ssize_t n = read(master, text + size, sizeof(text) - 1 - size);
        assert_true(n > 0);
        size += (size_t)n;
        text[size] = '\0';
    }
    const char *first = strstr(text, "\r\033[Kstep 1/20  loss 3.9");
    const char *kept = strstr(text, "\r\033[Kstep 2/20  loss 3.8000  eval 3.5000");
    const char *third = strstr(text, "\r\033[Kstep 3/20");
    assert_true(first != NULL && kept > first && third > kept);
    assert_null(memchr(first, '\n', (size_t)(kept - first)));    /* drawn over ... */
    assert_non_null(memchr(kept, '\n', (size_t)(third - kept))); /* ... or kept */
    assert_non_null(strstr(third, "\r\033[Ksaved\r\n"));
    const char *left = strstr(third, "  left ");
    assert_true(left != NULL &&
                strcspn(third + 1, "\r") > (size_t)(left - third)); /* not cut off */
    for (const char *at = strstr(text, "step"); at != NULL; at = strstr(at + 1, "step")) {
        assert_true(strcspn(at, "\r\n") < 80); /* no line is wider than the terminal */
    }
    fclose(out);
    close(master);
}

static weft_metrics_step_t full_step(void)
{
    weft_metrics_step_t step = step_at(12);
    step.lr = 3e-4;
    step.grad_norm = step.mfu = 0.5;
    step.memory = (uint64_t)300 << 20;
    return step;
}

/* Whatever the width, what is there is whole, and what matters most is there. */
static void fields_are_left_out_as_a_whole(void **state)
{
    (void)state;
    static const char all[] =
        "step 12/20  loss 2.8000  lr 3.00e-04  norm 0.50  12.0k tok/s  mfu 50%  "
        "comm 25%  mem 300 MiB  left 1m30s";
    static const struct {
        int width;
        const char *wanted;
    } cases[] = {
        {INT_MAX, all},
        {(int)sizeof(all) - 1, all},
        {80, "step 12/20  loss 2.8000  12.0k tok/s  mfu 50%  comm 25%  mem 300 MiB  left 1m30s"},
        {79, "step 12/20  loss 2.8000  12.0k tok/s  mfu 50%  comm 25%  left 1m30s"},
        {60, "step 12/20  loss 2.8000  12.0k tok/s  mfu 50%  left 1m30s"},
        {40, "step 12/20  loss 2.8000  left 1m30s"},
        {30, "step 12/20  loss 2.8000"},
        {12, "step 12/20"},
        {3, "step 12/20"},
    };
    char text[256];
    weft_metrics_step_t step = full_step();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        weft__progress_text(text, sizeof(text), &step, 20, 90, cases[i].width);
        assert_string_equal(text, cases[i].wanted);
    }
    step.eval_loss = 3.5;
    weft__progress_text(text, sizeof(text), &step, 20, 90, 40);
    assert_string_equal(text, "step 12/20  loss 2.8000  eval 3.5000");
}

static void lines_fit_the_terminal(void **state)
{
    (void)state;
    static const unsigned short widths[] = {40, 60, 80};
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    FILE *out = fopen(ptsname(master), "w");
    assert_non_null(out);
    weft_metrics_t *metrics = open_metrics(NULL, 0, out, 1);
    for (size_t i = 0; i < 3; i++) { /* it is made wider while the run goes on */
        struct winsize size = {.ws_row = 24, .ws_col = widths[i]};
        weft_metrics_step_t step = full_step();
        char text[1024] = "";
        size_t bytes = 0;
        assert_int_equal(ioctl(master, TIOCSWINSZ, &size), 0);
        step.eval_loss = 3.5; /* such a line is drawn at once, and stays */
        assert_int_equal(weft__metrics_step(metrics, &step), WEFT_OK);
        while (strchr(text, '\n') == NULL) {
            ssize_t n = read(master, text + bytes, sizeof(text) - 1 - bytes);
            assert_true(n > 0);
            bytes += (size_t)n;
            text[bytes] = '\0';
        }
        const char *line = strstr(text, "\r\033[Kstep 12/20  loss 2.8000  eval 3.5000");
        assert_non_null(line);
        size_t length = strcspn(line + 4, "\r\n");
        assert_true(length < widths[i] && length + 16 > widths[i]); /* full, and not too full */
    }
    weft__metrics_close(metrics);
    fclose(out);
    close(master);
}

/* mpirun gives its ranks a terminal and writes what comes out of it to wherever its own output
 * goes. First of all tests, as a process reads its job once. */
static void a_terminal_of_another_launcher_gets_plain_lines(void **state)
{
    (void)state;
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("OMPI_COMM_WORLD_RANK", "0", 1);
        setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
        FILE *out = fopen(ptsname(master), "w");
        weft_metrics_t *metrics = out != NULL ? open_metrics(NULL, 0, out, 1) : NULL;
        weft_metrics_step_t step = step_at(1);
        _exit(metrics == NULL || weft__metrics_step(metrics, &step) != WEFT_OK ||
              weft__metrics_close(metrics) != WEFT_OK);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    char text[512];
    ssize_t bytes = read(master, text, sizeof(text) - 1);
    assert_true(bytes > 0);
    text[bytes] = '\0';
    assert_non_null(strstr(text, "step 1/20  loss 3.9"));
    assert_null(strchr(text, '\033'));
    close(master);
}

static void numbers_are_short(void **state)
{
    (void)state;
    char text[256];
    static const struct {
        double rate, left;
        const char *wanted;
    } cases[] = {
        {0, 0, "  0 tok/s  left 0s"},
        {999.4, 59.4, "  999 tok/s  left 59s"},
        {999.6, 59.6, "  1.00k tok/s  left 1m00s"},
        {515600, 3725, "  516k tok/s  left 1h02m"},
        {1.234e6, 90000, "  1.23M tok/s  left 1d01h"},
        {99960, 605, "  100k tok/s  left 10m05s"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        weft_metrics_step_t step = WEFT_METRICS_STEP_INIT;
        step.step = 1;
        step.loss = 1;
        step.tokens_per_s = cases[i].rate;
        weft__progress_text(text, sizeof(text), &step, 2, cases[i].left, INT_MAX);
        assert_string_equal(text + strlen("step 1/2  loss 1.0000"), cases[i].wanted);
    }
    char tiny[10];
    weft_metrics_step_t step = step_at(3);
    weft__progress_text(tiny, sizeof(tiny), &step, 2, 5, INT_MAX); /* cut, not overrun */
    assert_string_equal(tiny, "step 3/2 ");
}

/* What `out` is shown of 300 MiB that are encoded in no time, and of 3. */
static void show_encoding(FILE *out)
{
    weft_encoding_t encoding;
    for (uint64_t mib = 300; mib > 0; mib = mib == 300 ? 3 : 0) {
        weft__encoding_init(&encoding, out);
        for (uint64_t done = 0; done <= mib; done++) {
            weft__encoding_show(&encoding, done << 20, mib << 20);
        }
        weft__encoding_end(&encoding);
    }
}

static void encoding_of_much_text_is_shown(void **state)
{
    (void)state;
    char *text, line[1024] = "";
    size_t size, got = 0;
    FILE *out = open_memstream(&text, &size);
    uint64_t start = weft__now_ns();
    show_encoding(out);
    bool at_once = weft__now_ns() - start < 400000000; /* nobody stopped us */
    fclose(out);
    const char wanted[] = "encoding text: 0 B of 300 MiB (0%)\nencoded 300 MiB of text in 0s\n";
    assert_true(at_once ? strcmp(text, wanted) == 0 : strncmp(text, wanted, 34) == 0);
    free(text);
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    out = fopen(ptsname(terminal), "r+");
    assert_non_null(out);
    show_encoding(out);
    while (strstr(line, "of text in") == NULL) {
        ssize_t n = read(terminal, line + got, sizeof(line) - 1 - got);
        assert_true(n > 0);
        got += (size_t)n;
    }
    assert_non_null(strstr(line, "\r\033[Kencoding text: 0 B of 300 MiB (0%)\r\033[K"));
    fclose(out);
    close(terminal);
    weft_encoding_t silent;
    weft__encoding_init(&silent, NULL);
    weft__encoding_show(&silent, 0, UINT64_MAX);
    weft__encoding_end(&silent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminal_of_another_launcher_gets_plain_lines),
        cmocka_unit_test(resume_cuts_what_came_after),
        cmocka_unit_test(resume_keeps_lines_that_are_not_its_own),
        cmocka_unit_test(a_full_disk_leaves_whole_lines_and_loses_none),
        cmocka_unit_test(a_loss_that_is_no_number_is_null),
        cmocka_unit_test(lines_are_plain_where_no_terminal_is),
        cmocka_unit_test(a_terminal_has_one_line_that_is_drawn_again),
        cmocka_unit_test(fields_are_left_out_as_a_whole),
        cmocka_unit_test(lines_fit_the_terminal),
        cmocka_unit_test(numbers_are_short),
        cmocka_unit_test(encoding_of_much_text_is_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
