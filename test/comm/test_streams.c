/* ctest: timeout=60 tsan */
/* Collectives on streams: queued, in order, tied to other work by events, errors told by the stream. */
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "comm/data.h"
#include "comm/harness.h"

#include <cmocka.h>

#define COUNT 20000

static float *device_floats(size_t count)
{
    void *memory;
    CHECK_OK(weft_malloc(&memory, count * sizeof(float)));
    return memory;
}

/* ---- one stream, many calls --------------------------------------------------------------- */

/* Each call works on the result of the one before. */
static void calls_in_a_row(team_t *team)
{
    weft_stream_h s;
    float *x = device_floats(COUNT);
    float plain[100];
    CHECK_OK(weft_stream_create(&s));
    for (int i = 0; i < COUNT; i++) {
        x[i] = 1;
    }
    for (int i = 0; i < 100; i++) {
        plain[i] = 2;
    }
    team_note("a row of calls");
    for (int k = 0; k < 8; k++) {
        CHECK_OK(weft_allreduce(x, x, COUNT, WEFT_F32, WEFT_SUM, team->comm, s));
        CHECK_OK(weft_allreduce(plain, plain, 100, WEFT_F32, WEFT_AVG, team->comm, s));
        CHECK_OK(weft_barrier(team->comm, s));
    }
    CHECK_OK(weft_stream_synchronize(s));
    CHECK_OK(weft_stream_query(s));
    double expected = 1;
    for (int k = 0; k < 8; k++) {
        expected *= team->size;
    }
    for (int i = 0; i < COUNT; i++) {
        if ((double)x[i] != expected) {
            FAIL("element %d is %g, not %g", i, (double)x[i], expected);
        }
    }
    CHECK_EQ(plain[99], 2);
    CHECK_OK(weft_free(x));
    CHECK_OK(weft_stream_destroy(s));
}

/* ---- it only queues ------------------------------------------------------------------------- */

static void returns_when_queued(team_t *team)
{
    float a = 1, b = 0;
    weft_stream_h s;
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_barrier(team->comm, NULL));
    team_meet(team);
    if (team->rank == 0) {
        double start = team_now();
        CHECK_OK(weft_allreduce(&a, &b, 1, WEFT_F32, WEFT_SUM, team->comm, s));
        CHECK_WITHIN(team_now() - start, 0.2);
        CHECK_STATUS(weft_stream_query(s), WEFT_PENDING);
        CHECK_OK(weft_comm_error(team->comm, NULL));
        team_meet(team);
    } else {
        team_meet(team); /* so the others have certainly not arrived before */
        CHECK_OK(weft_allreduce(&a, &b, 1, WEFT_F32, WEFT_SUM, team->comm, s));
    }
    CHECK_OK(weft_stream_synchronize(s));
    CHECK_EQ(b, team->size);
    CHECK_OK(weft_stream_destroy(s));
}

/* ---- several streams --------------------------------------------------------------------------- */

#define STREAMS 3
#define CALLS 60

/* Which stream a call goes to differs from rank to rank; the order on the communicator does not. */
static void order_across_streams(team_t *team)
{
    weft_stream_h streams[STREAMS + 1] = {NULL};
    float *in = device_floats(CALLS * 50), *out = device_floats(CALLS * 50);
    for (int i = 0; i < STREAMS; i++) {
        CHECK_OK(weft_stream_create(&streams[i]));
    }
    for (int k = 0; k < CALLS; k++) {
        weft_stream_h s = streams[(k * 7 + team->rank * (k + 1)) % (STREAMS + 1)];
        size_t n = (size_t)k % 50 + 1;
        float *from = in + k * 50, *to = out + k * 50;
        for (size_t i = 0; i < n; i++) {
            from[i] = (float)(team->rank + k);
        }
        team_note("call %d on stream %p", k, (void *)s);
        if (k % 3 == 0) {
            CHECK_OK(weft_broadcast(from, to, n, WEFT_F32, k % team->size, team->comm, s));
        } else {
            CHECK_OK(weft_allreduce(from, to, n, WEFT_F32, WEFT_MAX, team->comm, s));
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK_OK(weft_stream_synchronize(streams[i]));
    }
    for (int k = 0; k < CALLS; k++) {
        int expected = k + (k % 3 == 0 ? k % team->size : team->size - 1);
        CHECK_EQ(out[k * 50], expected);
        CHECK_EQ(out[k * 50 + k % 50], expected);
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK_OK(weft_stream_destroy(streams[i]));
    }
    CHECK_OK(weft_free(in));
    CHECK_OK(weft_free(out));
}

/* Two communicators on two streams do not wait for each other. */
static void comms_overlap(team_t *team)
{
    weft_stream_h s, t;
    weft_comm_h other;
    float a = 1, b = 0, c = 1, d = 0;
    CHECK_OK(weft_comm_split(team->comm, 0, team->rank, &other, NULL));
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_stream_create(&t));
    bool first = team->rank % 2 == 0; /* the order of the two differs from rank to rank */
    CHECK_OK(weft_allreduce(&a, &b, 1, WEFT_F32, WEFT_SUM, first ? team->comm : other, s));
    CHECK_OK(weft_allreduce(&c, &d, 1, WEFT_F32, WEFT_SUM, first ? other : team->comm, t));
    CHECK_OK(weft_stream_synchronize(s));
    CHECK_OK(weft_stream_synchronize(t));
    CHECK_EQ(b, team->size);
    CHECK_EQ(d, team->size);
    CHECK_OK(weft_stream_destroy(s));
    CHECK_OK(weft_stream_destroy(t));
    CHECK_OK(weft_comm_destroy(other));
}

/* ---- events -------------------------------------------------------------------------------------- */

typedef struct work {
    float *data;
    float value, seen;
} work_t;

static void produce(void *arg)
{
    work_t *work = arg;
    team_sleep(0.02);
    for (int i = 0; i < COUNT; i++) {
        work->data[i] = work->value;
    }
}

static void consume(void *arg)
{
    work_t *work = arg;
    work->seen = work->data[COUNT - 1];
}

/* Compute on one stream, communicate on another, tied by events, as a trainer does. */
static void overlap_with_events(team_t *team)
{
    enum { STEPS = 6 };
    weft_stream_h compute, comms;
    weft_event_h made[STEPS], reduced[STEPS];
    work_t work[STEPS];
    CHECK_OK(weft_stream_create(&compute));
    CHECK_OK(weft_stream_create(&comms));
    for (int k = 0; k < STEPS; k++) {
        work[k] = (work_t){.data = device_floats(COUNT), .value = (float)(k + team->rank)};
        CHECK_OK(weft_event_create(&made[k]));
        CHECK_OK(weft_event_create(&reduced[k]));
    }
    team_note("overlap");
    for (int k = 0; k < STEPS; k++) {
        CHECK_OK(weft_stream_call(compute, produce, &work[k]));
        CHECK_OK(weft_event_record(made[k], compute));
        CHECK_OK(weft_stream_wait(comms, made[k]));
        CHECK_OK(weft_allreduce(work[k].data, work[k].data, COUNT, WEFT_F32, WEFT_SUM, team->comm,
                                comms));
        CHECK_OK(weft_event_record(reduced[k], comms));
    }
    for (int k = 0; k < STEPS; k++) {
        CHECK_OK(weft_stream_wait(compute, reduced[k]));
        CHECK_OK(weft_stream_call(compute, consume, &work[k]));
    }
    CHECK_STATUS(weft_event_query(reduced[STEPS - 1]), WEFT_PENDING);
    CHECK_OK(weft_stream_synchronize(compute));
    CHECK_OK(weft_event_query(reduced[STEPS - 1]));
    for (int k = 0; k < STEPS; k++) {
        CHECK_EQ(work[k].seen, team->size * k + team->size * (team->size - 1) / 2);
        CHECK_OK(weft_free(work[k].data));
        CHECK_OK(weft_event_destroy(made[k]));
        CHECK_OK(weft_event_destroy(reduced[k]));
    }
    CHECK_OK(weft_stream_destroy(compute));
    CHECK_OK(weft_stream_destroy(comms));
}

/* ---- other calls ------------------------------------------------------------------------------------ */

static void messages_on_streams(team_t *team)
{
    weft_stream_h s, t;
    size_t wrong;
    int right = (team->rank + 1) % team->size, left = (team->rank + team->size - 1) % team->size;
    data_t data = {WEFT_F32, DATA_RAW, team->size, 1};
    float *out = device_floats(COUNT), *in = device_floats(COUNT);
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_stream_create(&t));
    data_fill(&data, team->rank, 0, COUNT, out);
    for (int k = 0; k < 10; k++) {
        team_note("messages, round %d", k);
        size_t n = k % 2 ? COUNT : 5;
        memset(in, 0, COUNT * 4);
        CHECK_OK(weft_group_start());
        CHECK_OK(weft_send(out, n, WEFT_F32, right, team->comm, s));
        CHECK_OK(weft_recv(in, n, WEFT_F32, left, team->comm, t));
        CHECK_OK(weft_group_end());
        CHECK_OK(weft_stream_synchronize(t));
        CHECK(data_check(&data, left, 0, n, in, &wrong));
        CHECK_OK(weft_stream_synchronize(s));
    }
    CHECK_OK(weft_stream_destroy(s));
    CHECK_OK(weft_stream_destroy(t));
    CHECK_OK(weft_free(out));
    CHECK_OK(weft_free(in));
}

static void hold(void *arg)
{
    while (!atomic_load((_Atomic int *)arg)) {
        team_sleep(1e-3);
    }
}

/* The counts of an alltoallv are copied by the call; the caller may reuse them at once. */
static void vectors_are_copied(team_t *team)
{
    weft_stream_h s;
    _Atomic int go = 0;
    float in[TEAM_MOST], out[TEAM_MOST] = {0};
    size_t counts[TEAM_MOST], offsets[TEAM_MOST];
    CHECK_OK(weft_stream_create(&s));
    for (int p = 0; p < team->size; p++) {
        in[p] = (float)(100 * team->rank + p);
        counts[p] = 1;
        offsets[p] = (size_t)p;
    }
    CHECK_OK(weft_stream_call(s, hold, &go));
    CHECK_OK(weft_alltoallv(in, counts, offsets, out, counts, offsets, WEFT_F32, team->comm, s));
    memset(counts, 0xff, sizeof(counts));
    memset(offsets, 0xff, sizeof(offsets));
    atomic_store(&go, 1);
    CHECK_OK(weft_stream_synchronize(s));
    for (int p = 0; p < team->size; p++) {
        CHECK_EQ(out[p], 100 * p + team->rank);
    }
    CHECK_OK(weft_stream_destroy(s));
}

static void destroy_finishes_calls(team_t *team)
{
    weft_stream_h s;
    weft_comm_h child;
    float a = 1, b[20] = {0};
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_comm_split(team->comm, 0, 0, &child, NULL));
    for (int k = 0; k < 20; k++) {
        CHECK_OK(weft_allreduce(&a, &b[k], 1, WEFT_F32, WEFT_SUM, child, s));
    }
    CHECK_OK(weft_comm_destroy(child));
    CHECK_EQ(b[19], team->size);
    CHECK_OK(weft_stream_synchronize(s));
    CHECK_OK(weft_stream_destroy(s));
}

/* ---- errors ---------------------------------------------------------------------------------------- */

static void errors_reach_synchronize(team_t *team)
{
    weft_stream_h s;
    weft_comm_h child;
    float a[8] = {0}, b[8];
    const char *text;
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_comm_split(team->comm, 0, team->rank, &child, NULL));
    size_t count = team->rank == 1 ? 5 : 4;
    CHECK_OK(weft_allreduce(a, b, count, WEFT_F32, WEFT_SUM, child, s)); /* it is queued */
    CHECK_STATUS(weft_stream_synchronize(s), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "allreduce of 5 f32, sum");
    CHECK_TEXT(weft_last_error(), "allreduce of 4 f32, sum");
    CHECK_STATUS(weft_comm_error(child, &text), WEFT_ERR_MISMATCH);
    CHECK_TEXT(text, "allreduce of 5 f32, sum");
    CHECK_OK(weft_stream_synchronize(s)); /* told once */
    CHECK_OK(weft_allreduce(a, b, 4, WEFT_F32, WEFT_SUM, child, s));
    CHECK_STATUS(weft_stream_synchronize(s), WEFT_ERR_BROKEN);
    CHECK_OK(weft_allreduce(a, b, 4, WEFT_F32, WEFT_SUM, child, s));
    CHECK_STATUS(weft_stream_destroy(s), WEFT_ERR_BROKEN);
    CHECK_OK(weft_comm_destroy(child));
    CHECK_OK(weft_barrier(team->comm, NULL)); /* the parent is whole */
}

/* ---- the tests --------------------------------------------------------------------------------------- */

static void run_teams(team_fn fn)
{
    if (!UNDER_TSAN) {
        assert_true(team_run(&(team_plan_t){.ranks = 2}, fn));
        assert_true(team_run(&(team_plan_t){.ranks = 4}, fn));
    }
    assert_true(team_run(&(team_plan_t){.ranks = 3, .procs = 1}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1, .all = true}, fn));
}

#define TEAM_TEST(name, fn)                                                                        \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run_teams(fn);                                                                             \
    }

TEAM_TEST(calls_on_a_stream_run_in_order, calls_in_a_row)
TEAM_TEST(call_on_a_stream_returns_when_queued, returns_when_queued)
TEAM_TEST(order_holds_across_streams, order_across_streams)
TEAM_TEST(comms_on_two_streams_overlap, comms_overlap)
TEAM_TEST(events_tie_compute_and_communication, overlap_with_events)
TEAM_TEST(messages_travel_on_streams, messages_on_streams)
TEAM_TEST(alltoallv_copies_its_counts, vectors_are_copied)
TEAM_TEST(destroy_finishes_queued_calls, destroy_finishes_calls)
TEAM_TEST(synchronize_tells_the_error, errors_reach_synchronize)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_on_a_stream_run_in_order),
        cmocka_unit_test(call_on_a_stream_returns_when_queued),
        cmocka_unit_test(order_holds_across_streams),
        cmocka_unit_test(comms_on_two_streams_overlap),
        cmocka_unit_test(events_tie_compute_and_communication),
        cmocka_unit_test(messages_travel_on_streams),
        cmocka_unit_test(alltoallv_copies_its_counts),
        cmocka_unit_test(destroy_finishes_queued_calls),
        cmocka_unit_test(synchronize_tells_the_error),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
