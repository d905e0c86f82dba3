/* Output of ranks on its way through the launcher, where it has no memory to keep it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "boot/launch_output.h"
#include "no_memory.h"

/* A rank that writes, and whoever reads the launcher's output. */
typedef struct path {
    int rank, reader;
    weft_sink_t sink;
    weft_tail_t tail;
    weft_pipe_t pipe;
    char seen[256];
} path_t;

static void open_path(path_t *path)
{
    int in[2], out[2];
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    memset(path, 0, sizeof(*path));
    path->rank = in[1];
    path->reader = out[0];
    weft__sink_init(&path->sink, out[1]);
    path->pipe = (weft_pipe_t){.fd = in[0], .sink = &path->sink, .tail = &path->tail};
    snprintf(path->pipe.prefix, sizeof(path->pipe.prefix), "[0] ");
}

static void say(path_t *path, const char *text)
{
    assert_int_equal(write(path->rank, text, strlen(text)), strlen(text));
    weft__pipe_read(&path->pipe, 1);
}

/* The rank is done: all that came out. */
static const char *close_path(path_t *path)
{
    close(path->rank);
    weft__pipe_read(&path->pipe, 1);
    weft__sink_flush(&path->sink);
    close(path->sink.fd);
    assert_int_equal(path->sink.error, 0);
    ssize_t bytes = read(path->reader, path->seen, sizeof(path->seen) - 1);
    assert_true(bytes >= 0);
    path->seen[bytes] = '\0';
    close(path->reader);
    weft__sink_cleanup(&path->sink);
    return path->seen;
}

static void a_shut_sink_holds_nothing(void **state)
{
    (void)state;
    path_t path;
    open_path(&path);
    say(&path, "queued\n");
    assert_false(weft__sink_is_empty(&path.sink));
    weft__sink_shut(&path.sink, EPIPE);
    assert_true(weft__sink_is_empty(&path.sink)); /* or the launcher would wait for it */
    say(&path, "late\n");
    assert_true(weft__sink_is_empty(&path.sink));
    path.sink.error = 0;
    assert_string_equal(close_path(&path), "");
}

static void lines_come_whole(void **state)
{
    path_t path;
    (void)state;
    open_path(&path);
    say(&path, "the begin");
    say(&path, "ning and the end\nanother");
    assert_string_equal(close_path(&path), "[0] the beginning and the end\n[0] another\n");
}

#if MEMORY_FAILS
static void nothing_is_lost_without_memory(void **state)
{
    (void)state;
    for (int left = 0; left < 4; left++) { /* for the line, its rest, the queue */
        path_t path;
        open_path(&path);
        allocations_left = left;
        say(&path, "the begin");
        say(&path, "ning of a line that takes more room than what came before");
        say(&path, " and the end\n");
        allocations_left = -1;
        assert_string_equal(
            close_path(&path),
            "[0] the beginning of a line that takes more room than what came before and the end\n");
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shut_sink_holds_nothing),
        cmocka_unit_test(lines_come_whole),
#if MEMORY_FAILS
        cmocka_unit_test(nothing_is_lost_without_memory),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
