/* ctest: timeout=60 */
/* The launcher inside a process that goes on, and may have threads of its own, as those of CUDA. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "boot/launch.h"

static void *take_signals(void *arg)
{
    pause();
    return arg;
}

static void ranks_end_although_a_thread_takes_their_signals(void **state)
{
    char program[] = "sleep", seconds[] = "0.05";
    char *const argv[] = {program, seconds, NULL};
    pthread_t thread;
    int code = -1;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, take_signals, NULL), 0);
    weft_launch_t launch = {.name = "test", .ranks = 3, .argv = argv, .timeout_ms = 50000};
    for (int i = 0; i < 5; i++) { /* who gets them is chance */
        assert_int_equal(weft__launch(&launch, &code), WEFT_OK);
        assert_int_equal(code, 0);
    }
    pthread_cancel(thread);
    pthread_join(thread, NULL);
}

static int count_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

static void a_job_leaves_no_descriptor_open(void **state)
{
    char program[] = "sh", option[] = "-c", text[] = "printf line; exit 3";
    char *const argv[] = {program, option, text, NULL};
    weft_launch_t launch = {.name = "test", .ranks = 3, .argv = argv, .timeout_ms = 50000};
    int code = -1, before = count_descriptors();
    (void)state;
    assert_int_equal(weft__launch(&launch, &code), WEFT_OK);
    assert_int_equal(code, 3);
    assert_int_equal(count_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_end_although_a_thread_takes_their_signals),
        cmocka_unit_test(a_job_leaves_no_descriptor_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
