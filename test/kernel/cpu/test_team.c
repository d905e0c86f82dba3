/* ctest: tsan */
/* Teams of threads: every task once, results visible to the caller, several teams at a time, sizes
 * that change, long pauses in which workers sleep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernel/cpu/team.h"

enum { TASKS = 1000 };

typedef struct job {
    int *done; /* by task; not atomic: the team orders it */
    int64_t spin;
} job_t;

static void count(const void *arg, int64_t task, void *scratch)
{
    const job_t *job = arg;
    memset(scratch, 0x5a, 100); /* each thread has its own */
    for (volatile int64_t i = 0; i < job->spin; i++) {
    }
    job->done[task]++;
}

static void run_many(int rounds, int64_t tasks)
{
    int done[TASKS] = {0};
    job_t job = {done, 20};
    for (int round = 0; round < rounds; round++) {
        assert_int_equal(weft__team_run(tasks, 100, count, &job), WEFT_OK);
        for (int64_t i = 0; i < TASKS; i++) {
            assert_int_equal(done[i], i < tasks ? round + 1 : 0);
        }
    }
}

static void every_task_runs_once(void **state)
{
    static const int64_t tasks[] = {0, 1, 2, 3, 7, 100, TASKS};
    (void)state;
    for (int threads = 1; threads <= 8; threads += threads == 3 ? 5 : 1) {
        weft__team_set(threads);
        assert_int_equal(weft__team_size(), threads);
        for (size_t i = 0; i < sizeof(tasks) / sizeof(tasks[0]); i++) {
            run_many(20, tasks[i]);
        }
    }
    weft__team_set(0);
}

static void workers_wake_from_sleep(void **state)
{
    (void)state;
    weft__team_set(3);
    for (int i = 0; i < 5; i++) {
        const struct timespec pause = {0, 3000000}; /* longer than workers wait awake */
        run_many(2, 10);
        nanosleep(&pause, NULL);
    }
    weft__team_set(0);
}

static void *own_team(void *arg)
{
    (void)arg;
    weft__team_set(2);
    run_many(50, 64);
    return NULL;
}

/* Ranks that are threads have a team each, which ends with its thread. */
static void threads_have_teams_of_their_own(void **state)
{
    pthread_t threads[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, own_team, NULL), 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

/* Sanitizers end the process over such a size. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static void memory_that_cannot_be_had_is_an_error(void **state)
{
    job_t job = {NULL, 0};
    (void)state;
    assert_int_equal(weft__team_run(1, (size_t)1 << 62, count, &job), WEFT_ERR_NO_MEMORY);
    assert_null(weft__team_memory((size_t)1 << 62));
    run_many(1, 10);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_runs_once),
        cmocka_unit_test(workers_wake_from_sleep),
        cmocka_unit_test(threads_have_teams_of_their_own),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(memory_that_cannot_be_had_is_an_error),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
