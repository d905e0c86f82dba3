/* ctest: timeout=60 */
/* The launcher inside a process that has threads of its own, as those of CUDA. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_end_although_a_thread_takes_their_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
