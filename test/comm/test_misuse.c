/* ctest: timeout=120 tsan */
/* Communicators that are destroyed while something still needs them, or used by two threads at
 * once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <pthread.h>
#include <stdatomic.h>

#include "comm/comm.h"
#include "comm/harness.h"

#include <cmocka.h>

static float sum_over(weft_comm_h comm, float value)
{
    float sum = value;
    CHECK_OK(weft_allreduce(&sum, &sum, 1, WEFT_F32, WEFT_SUM, comm, NULL));
    return sum;
}

static void destroy(team_t *team)
{
    CHECK_OK(weft_comm_destroy(team->comm));
    team->comm = NULL;
}

/* ---- destroyed too early ------------------------------------------------------------------ */

static void with_heaps(team_t *team)
{
    weft_symm_h a, b;
    CHECK_OK(weft_symm_create(team->comm, 1 << 16, &a));
    CHECK_OK(weft_symm_create(team->comm, 1 << 16, &b));
    CHECK_STATUS(weft_comm_destroy(team->comm), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "has 2 symmetric heaps open");
    CHECK_OK(weft_symm_destroy(a));
    CHECK_STATUS(weft_comm_destroy(team->comm), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "has 1 symmetric heap open");
    CHECK_EQ(sum_over(team->comm, 1), team->size); /* it still works */
    CHECK_OK(weft_symm_destroy(b));
    destroy(team);
}

/* What an abort leaves is there until the heaps are closed. */
static void aborted_with_heap(team_t *team)
{
    weft_symm_h heap;
    uint64_t *word, value = 7;
    CHECK_OK(weft_symm_create(team->comm, 1 << 16, &heap));
    CHECK_OK(weft_symm_malloc(heap, 64, (void **)&word));
    if (team->rank == 0) {
        CHECK_OK(weft_comm_abort(team->comm));
        team->comm = NULL;
        CHECK_OK(weft_symm_put(heap, word, &value, 8, team->size - 1, NULL));
    }
    team_meet(team);
    CHECK_STATUS(weft_symm_destroy(heap), WEFT_ERR_ABORTED);
    CHECK_TEXT(weft_last_error(), "rank 0 aborted");
    if (team->comm) {
        destroy(team);
    }
}

static void with_deferred_calls(team_t *team)
{
    float x = 1, y = 2;
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_STATUS(weft_comm_destroy(team->comm), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "1 call of rank");
    CHECK_TEXT(weft_last_error(), "weft_group_end");
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_allreduce(&y, &y, 1, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_OK(weft_group_end());
    CHECK_STATUS(weft_comm_destroy(team->comm), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "2 calls of rank");
    CHECK_OK(weft_group_end());
    CHECK_EQ(x, team->size);
    CHECK_EQ(y, 2 * team->size);
    /* A group that is not run has no calls either. */
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_STATUS(weft_allreduce(&x, &x, 1, WEFT_F32, (weft_op_t)99, team->comm, NULL),
                 WEFT_ERR_INVALID);
    CHECK_STATUS(weft_group_end(), WEFT_ERR_INVALID);
    destroy(team);
}

/* ---- two threads -------------------------------------------------------------------------- */

static void *call_barrier(void *comm)
{
    weft_barrier(comm, NULL);
    return NULL;
}

/* Rank 0 is in a call of another thread, and the others do not come before all was tried. */
static void in_a_call(team_t *team, weft_stream_h stream)
{
    pthread_t thread;
    weft_comm_h none;
    float x = 1;
    if (team->rank == 0) {
        CHECK_EQ(pthread_create(&thread, NULL, call_barrier, team->comm), 0);
        while (!weft__comm_calling(team->comm)) {
            team_sleep(1e-4);
        }
        for (int i = 0; i < 3; i++) {
            CHECK_STATUS(weft_comm_destroy(team->comm), WEFT_ERR_INVALID);
            CHECK_TEXT(weft_last_error(), "another thread of rank 0 is in weft_barrier");
            CHECK_STATUS(weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, stream),
                         WEFT_ERR_INVALID);
            CHECK_TEXT(weft_last_error(), "two threads of rank 0");
            CHECK_TEXT(weft_last_error(), "weft_barrier and weft_allreduce");
            CHECK_STATUS(weft_comm_split(team->comm, 0, 0, &none, NULL), WEFT_ERR_INVALID);
            CHECK_TEXT(weft_last_error(), "two threads of rank 0");
            CHECK_OK(weft_comm_error(team->comm, NULL));
        }
    }
    team_meet(team);
    if (team->rank == 0) {
        CHECK_EQ(pthread_join(thread, NULL), 0);
    } else {
        CHECK_OK(weft_barrier(team->comm, NULL));
    }
    CHECK_EQ(sum_over(team->comm, 1), team->size); /* nobody minds */
}

static void two_threads(team_t *team)
{
    weft_stream_h stream;
    float x = 1;
    in_a_call(team, NULL);
    CHECK_OK(weft_stream_create(&stream));
    CHECK_OK(weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, team->comm, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    in_a_call(team, NULL); /* from the first call on a stream on, calls take tickets */
    in_a_call(team, stream);
    CHECK_OK(weft_stream_destroy(stream));
    destroy(team);
}

typedef struct sharer {
    weft_comm_h comm;
    pthread_mutex_t lock;
    _Atomic long done, refused, strange;
    int turn, size, calls;
} sharer_t;

/* One call each in turn. */
static void *take_turns(void *arg)
{
    static _Atomic int places;
    sharer_t *s = arg;
    int me = atomic_fetch_add(&places, 1) % 2;
    for (int i = 0; i < s->calls;) {
        pthread_mutex_lock(&s->lock);
        if (s->turn == me) {
            CHECK_EQ(sum_over(s->comm, 1), s->size);
            s->turn = !me;
            i++;
        }
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

static void run_two(void *(*fn)(void *), sharer_t *s)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, fn, s), 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
}

static void in_turns(team_t *team)
{
    sharer_t s = {.comm = team->comm,
                  .lock = PTHREAD_MUTEX_INITIALIZER,
                  .size = team->size,
                  .calls = UNDER_SANITIZER ? 50 : 300};
    run_two(take_turns, &s);
    destroy(team);
}

/* As fast as it can, whatever the other one does. */
static void *collide(void *arg)
{
    sharer_t *s = arg;
    for (int i = 0; i < s->calls; i++) {
        float x = (float)i;
        weft_status_t status = weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, s->comm, NULL);
        if (status == WEFT_OK) {
            atomic_fetch_add(x == (float)i ? &s->done : &s->strange, 1);
        } else {
            bool named = strstr(weft_last_error(), "two threads of rank 0") != NULL;
            atomic_fetch_add(named ? &s->refused : &s->strange, 1);
            if (!named) {
                fprintf(stderr, "%s\n", weft_last_error());
            }
        }
    }
    return NULL;
}

/* Every call is whole or refused with the reason. */
static void colliding(team_t *team)
{
    sharer_t s = {.comm = team->comm, .size = 1, .calls = UNDER_SANITIZER ? 2000 : 20000};
    run_two(collide, &s);
    CHECK_EQ(s.strange, 0);
    CHECK_EQ(s.done + s.refused, 2 * s.calls);
    CHECK(s.done > 0);
    destroy(team);
}

#define PLAN_TEST(name, fn, ...)                                                                   \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){__VA_ARGS__}, fn));                                    \
    }

PLAN_TEST(destroy_with_open_heaps_is_refused, with_heaps, .ranks = 2, .procs = 1)
PLAN_TEST(abort_with_open_heaps_leaves_them, aborted_with_heap, .ranks = 2, .procs = 1)
PLAN_TEST(abort_with_open_heaps_of_processes, aborted_with_heap, .ranks = 3)
PLAN_TEST(destroy_with_deferred_calls_is_refused, with_deferred_calls, .ranks = 2, .procs = 1)
PLAN_TEST(second_thread_in_a_call_is_refused, two_threads, .ranks = 2, .procs = 1)
PLAN_TEST(second_thread_of_a_process_is_refused, two_threads, .ranks = 3)
PLAN_TEST(threads_may_take_turns, in_turns, .ranks = 2)
PLAN_TEST(colliding_threads_are_told, colliding, .ranks = 1)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(destroy_with_open_heaps_is_refused),
        cmocka_unit_test(abort_with_open_heaps_leaves_them),
        cmocka_unit_test(abort_with_open_heaps_of_processes),
        cmocka_unit_test(destroy_with_deferred_calls_is_refused),
        cmocka_unit_test(second_thread_in_a_call_is_refused),
        cmocka_unit_test(second_thread_of_a_process_is_refused),
        cmocka_unit_test(threads_may_take_turns),
        cmocka_unit_test(colliding_threads_are_told),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
