/* ctest: timeout=180 serial tsan */
/* Collectives on streams of GPUs, beside other work. */
#include <setjmp.h>

#include "comm/memory.h"
#include "comm/stream_cases.h"
#include "gpu/gpu.h"

#include <cmocka.h>

static const team_fn all[] = {stream_row,
                              stream_ahead,
                              stream_then_group,
                              stream_queues,
                              stream_order,
                              stream_comms,
                              stream_overlap,
                              stream_messages,
                              stream_vectors,
                              stream_destroy,
                              stream_errors,
                              stream_many,
                              NULL};

/* ---- other work on the same stream --------------------------------------------------------- */

#define COUNT ((size_t)1 << 20)
#define STEPS 6

/* What a call reads was written by the copy before it, and is copied away by the one behind; ranks
 * are busy for different times in between. */
static void copies_between(team_t *team)
{
    weft_stream_h s;
    buffer_t x, y;
    void *scratch[2];
    const size_t bytes = COUNT * sizeof(float), large = (size_t)64 << 20;
    buffer_open(&x, bytes, false);
    buffer_open(&y, bytes, false);
    CHECK_OK(weft_malloc(&scratch[0], large));
    CHECK_OK(weft_malloc(&scratch[1], large));
    CHECK_OK(weft_memset(scratch[1], 0, large, NULL));
    CHECK_OK(weft_stream_create(&s));
    float *value = (float *)(void *)x.host;
    for (size_t i = 0; i < COUNT; i++) {
        value[i] = (float)(i % 3);
    }
    buffer_push_all(&x);
    team_note("copies between calls");
    team_meet(team);
    for (int k = 0; k < STEPS; k++) {
        for (int i = 0; i < (team->rank + k) % 4; i++) {
            CHECK_OK(weft_memcpy(scratch[0], scratch[1], large, s));
        }
        CHECK_OK(weft_allreduce(x.at, y.at, COUNT, WEFT_F32, WEFT_SUM, team->comm, s));
        CHECK_OK(weft_memset(x.at, 0x7f, bytes, s));
        CHECK_OK(weft_memcpy(x.at, y.at, bytes, s));
    }
    CHECK_OK(weft_stream_synchronize(s));
    buffer_pull_all(&x);
    double factor = 1;
    for (int k = 0; k < STEPS; k++) {
        factor *= team->size;
    }
    for (size_t i = 0; i < COUNT; i++) {
        if ((double)value[i] != factor * (double)(i % 3)) {
            FAIL("element %zu is %g", i, (double)value[i]);
        }
    }
    CHECK_OK(weft_stream_destroy(s));
    CHECK_OK(weft_free(scratch[0]));
    CHECK_OK(weft_free(scratch[1]));
    buffer_close(&x);
    buffer_close(&y);
}

/* ---- other work while a kernel waits --------------------------------------------------------- */

/* Everything a program may do with its device before it makes the call that others wait for. */
static void use_device(void)
{
    void *memory, *pinned;
    weft_stream_h t;
    weft_event_h event;
    weft_unique_id_t id;
    weft_comm_h alone;
    char plain[1000] = {1};
    const size_t large = (size_t)200 << 20;
    team_note("taking memory while others wait");
    CHECK_OK(weft_malloc(&memory, large));
    CHECK_OK(weft_host_malloc(&pinned, 3 << 20));
    team_note("making streams and events while others wait");
    CHECK_OK(weft_stream_create(&t));
    CHECK_OK(weft_event_create(&event));
    team_note("copying while others wait");
    CHECK_OK(weft_memset(memory, 5, large, t));
    CHECK_OK(weft_memcpy(pinned, memory, 1000, t));
    CHECK_OK(weft_event_record(event, t));
    CHECK_OK(weft_event_synchronize(event));
    CHECK_EQ(((char *)pinned)[999], 5);
    CHECK_OK(weft_memcpy(memory, plain, sizeof(plain), NULL));
    CHECK_OK(weft_memcpy(plain, memory, 10, NULL));
    CHECK_EQ(plain[0], 1);
    team_note("making a communicator while others wait");
    CHECK_OK(weft_unique_id_create(&id));
    CHECK_OK(weft_comm_init_rank(&alone, 1, id, 0, NULL));
    CHECK_OK(weft_barrier(alone, NULL));
    CHECK_OK(weft_comm_destroy(alone));
    team_note("giving back while others wait");
    CHECK_OK(weft_event_destroy(event));
    CHECK_OK(weft_stream_destroy(t));
    CHECK_OK(weft_host_free(pinned));
    CHECK_OK(weft_free(memory));
    CHECK_OK(weft_pool_trim(0, 0));
}

static void device_is_free_meanwhile(team_t *team)
{
    weft_stream_h s;
    buffer_t x;
    buffer_open(&x, 400000, false);
    memset(x.host, 0, 400000);
    buffer_push_all(&x);
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_barrier(team->comm, NULL));
    for (int large = 0; large < 2; large++) {
        size_t count = large ? 100000 : 10;
        team_meet(team);
        if (team->rank != 0) {
            CHECK_OK(weft_allreduce(x.at, x.at, count, WEFT_F32, WEFT_SUM, team->comm, s));
        }
        team_meet(team);
        if (team->rank == 0) {
            double start = team_now();
            team_sleep(0.05); /* now their kernels run */
            use_device();
            CHECK_WITHIN(team_now() - start, SOON);
            CHECK_OK(weft_allreduce(x.at, x.at, count, WEFT_F32, WEFT_SUM, team->comm, s));
        }
        CHECK_OK(weft_stream_synchronize(s));
    }
    CHECK_OK(weft_stream_destroy(s));
    buffer_close(&x);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void run_threads(team_fn fn)
{
    assert_true(team_run(&(team_plan_t){.ranks = 3, .procs = 1}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1, .all = true}, fn));
}

#define THREAD_TEST(name, fn)                                                                      \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run_threads(fn);                                                                           \
    }

THREAD_TEST(calls_on_a_stream_run_in_order, stream_row)
THREAD_TEST(all_but_one_run_far_ahead, stream_ahead)
THREAD_TEST(group_waits_for_the_stream_before, stream_then_group)
THREAD_TEST(call_on_a_stream_returns_when_queued, stream_queues)
THREAD_TEST(order_holds_across_streams, stream_order)
THREAD_TEST(comms_on_two_streams_overlap, stream_comms)
THREAD_TEST(events_tie_compute_and_communication, stream_overlap)
THREAD_TEST(messages_travel_on_streams, stream_messages)
THREAD_TEST(alltoallv_copies_its_counts, stream_vectors)
THREAD_TEST(destroy_finishes_queued_calls, stream_destroy)
THREAD_TEST(synchronize_tells_the_error, stream_errors)
THREAD_TEST(synchronize_tells_the_error_of_the_first_of_many, stream_many)
THREAD_TEST(calls_and_copies_keep_their_order, copies_between)
THREAD_TEST(device_can_be_used_while_others_wait, device_is_free_meanwhile)

static void eight_threads(void **state)
{
    (void)state;
    assert_true(
        team_run(&(team_plan_t){.ranks = 8, .procs = 1, .limit_s = 60, .arg = all}, gpu_in_a_row));
}

static void all_of_it_with_processes(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    assert_true(team_run(&(team_plan_t){.ranks = 2, .limit_s = 60, .arg = all}, gpu_in_a_row));
    assert_true(team_run(&(team_plan_t){.ranks = 4, .limit_s = 60, .arg = all}, gpu_in_a_row));
    assert_true(team_run(&(team_plan_t){.ranks = 4}, copies_between));
    assert_true(team_run(&(team_plan_t){.ranks = 2}, device_is_free_meanwhile));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_on_a_stream_run_in_order),
        cmocka_unit_test(all_but_one_run_far_ahead),
        cmocka_unit_test(group_waits_for_the_stream_before),
        cmocka_unit_test(call_on_a_stream_returns_when_queued),
        cmocka_unit_test(order_holds_across_streams),
        cmocka_unit_test(comms_on_two_streams_overlap),
        cmocka_unit_test(events_tie_compute_and_communication),
        cmocka_unit_test(messages_travel_on_streams),
        cmocka_unit_test(alltoallv_copies_its_counts),
        cmocka_unit_test(destroy_finishes_queued_calls),
        cmocka_unit_test(synchronize_tells_the_error),
        cmocka_unit_test(synchronize_tells_the_error_of_the_first_of_many),
        cmocka_unit_test(calls_and_copies_keep_their_order),
        cmocka_unit_test(device_can_be_used_while_others_wait),
        cmocka_unit_test(eight_threads),
        cmocka_unit_test(all_of_it_with_processes),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
