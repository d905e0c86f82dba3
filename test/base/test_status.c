/* ctest: labels=tsan */
/* Names, texts, version, and the sentence of the last error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <weft/weft.h>

#include "base/log.h"

static void every_status_has_name_and_text(void **state)
{
    (void)state;
#define CHECK(name, value, text)                                                                   \
    assert_string_equal(weft_status_name(name), #name);                                            \
    assert_string_equal(weft_status_text(name), text);                                             \
    assert_int_equal(name, value);
    WEFT_STATUS_TABLE(CHECK)
#undef CHECK
    assert_string_equal(weft_status_text((weft_status_t)-999), "unknown status");
    assert_string_equal(weft_status_name((weft_status_t)77), "WEFT_ERR_UNKNOWN");
}

static void version_is_that_of_the_header(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof(text), "%d.%d.%d", WEFT_VERSION_MAJOR, WEFT_VERSION_MINOR,
             WEFT_VERSION_PATCH);
    assert_string_equal(weft_version(), text);
}

static void types_and_ops(void **state)
{
    (void)state;
    assert_int_equal(weft_dtype_size(WEFT_F64), sizeof(double));
    assert_int_equal(weft_dtype_size(WEFT_BF16), 2);
    assert_int_equal(weft_dtype_size(WEFT_I8), 1);
    assert_int_equal(weft_dtype_size(WEFT_U64), 8);
    assert_string_equal(weft_dtype_name(WEFT_F64), "f64");
    assert_string_equal(weft_dtype_name(WEFT_U64), "u64");
    assert_string_equal(weft_op_name(WEFT_SUM), "sum");
    assert_string_equal(weft_op_name(WEFT_AVG), "avg");
    const int wrong[] = {-1, 99, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(weft_dtype_size((weft_dtype_t)wrong[i]), 0);
        assert_string_equal(weft_dtype_name((weft_dtype_t)wrong[i]), "?");
        assert_string_equal(weft_op_name((weft_op_t)wrong[i]), "?");
    }
    assert_string_equal(weft_dtype_name(WEFT_DTYPE_COUNT), "?");
    assert_string_equal(weft_op_name(WEFT_OP_COUNT), "?");
}

/* Runs `body` with stderr going to a pipe; what it wrote is left in `out`. */
static void capture_stderr(void (*body)(void), char *out, size_t room)
{
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    int saved = dup(STDERR_FILENO);
    assert_int_equal(dup2(pipe_fds[1], STDERR_FILENO), STDERR_FILENO);
    body();
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    close(pipe_fds[1]);
    size_t length = 0;
    ssize_t got;
    while (length + 1 < room && (got = read(pipe_fds[0], out + length, room - 1 - length)) > 0) {
        length += (size_t)got;
    }
    out[length] = '\0';
    close(pipe_fds[0]);
}

static void log_some(void)
{
    weft__warn("answer %d", 42);
    weft__log_set_rank(3);
    weft__warn("with a rank");
    weft__info("must not be seen");
    errno = ENOENT;
    weft__warn("%m");
    assert_int_equal(errno, ENOENT);
    weft__log_set_rank(-1);
}

static void log_lines_have_rank_and_obey_level(void **state)
{
    (void)state;
    char text[512], expected[512];
    assert_true(weft__log_set_level("warn"));
    capture_stderr(log_some, text, sizeof(text));
    snprintf(expected, sizeof(expected), "[weft] answer 42\n[weft 3] with a rank\n[weft 3] %s\n",
             strerror(ENOENT));
    assert_string_equal(text, expected);

    assert_false(weft__log_set_level("loud"));
    assert_true(weft__log_on(WEFT_LOG_WARN));
    assert_false(weft__log_on(WEFT_LOG_INFO));
}

static void errno_survives_a_log_that_cannot_be_written(void **state)
{
    (void)state;
    int saved = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = ENOENT;
    weft__warn("into the void");
    int after = errno;
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_int_equal(after, ENOENT);
}

static void fail_some(void)
{
    assert_int_equal(weft__fail(WEFT_ERR_TIMEOUT, "rank %d is late", 5), WEFT_ERR_TIMEOUT);
}

static void fail_records_and_logs_at_info(void **state)
{
    (void)state;
    char text[512];
    assert_true(weft__log_set_level("warn"));
    capture_stderr(fail_some, text, sizeof(text));
    assert_string_equal(text, "");
    assert_string_equal(weft_last_error(), "rank 5 is late");

    assert_true(weft__log_set_level("info"));
    capture_stderr(fail_some, text, sizeof(text));
    assert_string_equal(text, "[weft] WEFT_ERR_TIMEOUT: rank 5 is late\n");
    assert_true(weft__log_set_level("warn"));
}

static void fail_may_quote_the_last_error(void **state)
{
    (void)state;
    weft__fail(WEFT_ERR_SYSTEM, "no room");
    errno = EAGAIN;
    weft__fail(WEFT_ERR_SYSTEM, "cannot start: %s", weft_last_error());
    assert_int_equal(errno, EAGAIN);
    assert_string_equal(weft_last_error(), "cannot start: no room");
}

/* What ran out is said with the limit, whoever finds it, and once. */
static void too_many_files_come_with_advice(void **state)
{
    (void)state;
    char wanted[256];
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    weft__fail(WEFT_ERR_SYSTEM, "cannot make a pipe: %s", strerror(EMFILE));
    snprintf(wanted, sizeof(wanted), "cannot make a pipe: %s; a process may have %llu here",
             strerror(EMFILE), (unsigned long long)limit.rlim_cur);
    assert_memory_equal(weft_last_error(), wanted, strlen(wanted));
    assert_non_null(strstr(weft_last_error(), "ulimit -n"));
    snprintf(wanted, sizeof(wanted), "%s", weft_last_error());
    weft__fail(WEFT_ERR_SYSTEM, "%s", weft_last_error());
    assert_string_equal(weft_last_error(), wanted);
    weft__fail(WEFT_ERR_SYSTEM, "cannot make a pipe: %s", strerror(ENFILE));
    assert_non_null(strstr(weft_last_error(), "fs.file-max"));
    weft__fail(WEFT_ERR_SYSTEM, "cannot make a pipe: %s", strerror(ENOMEM));
    assert_null(strstr(weft_last_error(), "ulimit"));
}

static void long_sentences_are_cut_with_dots(void **state)
{
    (void)state;
    char *text = malloc(5000);
    assert_non_null(text);
    memset(text, 'x', 4999);
    text[4999] = '\0';
    weft__fail(WEFT_ERR_INVALID, "%s", text);
    free(text);
    size_t length = strlen(weft_last_error());
    assert_int_equal(length, 2047);
    assert_string_equal(weft_last_error() + length - 4, "x...");
}

static void *fail_in_thread(void *arg)
{
    char text[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(text, sizeof(text), "thread %d step %d", *(int *)arg, i);
        weft__fail(WEFT_ERR_INVALID, "%s", text);
        if (strcmp(weft_last_error(), text) != 0) {
            return arg;
        }
    }
    return NULL;
}

static void last_error_is_per_thread(void **state)
{
    (void)state;
    pthread_t threads[4];
    int numbers[4] = {0, 1, 2, 3};
    weft__fail(WEFT_ERR_INVALID, "mine");
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, fail_in_thread, &numbers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    assert_string_equal(weft_last_error(), "mine");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_name_and_text),
        cmocka_unit_test(version_is_that_of_the_header),
        cmocka_unit_test(types_and_ops),
        cmocka_unit_test(log_lines_have_rank_and_obey_level),
        cmocka_unit_test(errno_survives_a_log_that_cannot_be_written),
        cmocka_unit_test(fail_records_and_logs_at_info),
        cmocka_unit_test(fail_may_quote_the_last_error),
        cmocka_unit_test(too_many_files_come_with_advice),
        cmocka_unit_test(long_sentences_are_cut_with_dots),
        cmocka_unit_test(last_error_is_per_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
