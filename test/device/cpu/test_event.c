/* Events: what waits for what, and for how long.
 * ctest: labels=tsan */
#include "device/child.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include <weft/device.h>

static void sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

static weft_stream_h make_stream(void)
{
    weft_stream_h stream = NULL;
    assert_int_equal(weft_stream_create(&stream), WEFT_OK);
    return stream;
}

static weft_event_h make_event(void)
{
    weft_event_h event = NULL;
    assert_int_equal(weft_event_create(&event), WEFT_OK);
    return event;
}

static void stand_before(void *arg)
{
    while (!atomic_load((atomic_bool *)arg)) {
        sleep_ms(1);
    }
}

static void set_one(void *arg)
{
    *(int *)arg = 1;
}

static void set_two_if_one(void *arg)
{
    int *value = arg;
    *value = *value == 1 ? 2 : -1;
}

static void nap(void *arg)
{
    sleep_ms(*(int *)arg);
}

static void other_stream_waits(void **state)
{
    (void)state;
    weft_stream_h first = make_stream(), second = make_stream();
    weft_event_h event = make_event();
    for (int i = 0; i < 200; i++) {
        int value = 0, ms = i % 40 == 0;
        assert_int_equal(weft_stream_call(first, nap, &ms), WEFT_OK);
        assert_int_equal(weft_stream_call(first, set_one, &value), WEFT_OK);
        assert_int_equal(weft_event_record(event, first), WEFT_OK);
        assert_int_equal(weft_stream_wait(second, event), WEFT_OK);
        assert_int_equal(weft_stream_call(second, set_two_if_one, &value), WEFT_OK);
        assert_int_equal(weft_stream_synchronize(second), WEFT_OK);
        assert_int_equal(value, 2);
    }
    assert_int_equal(weft_event_destroy(event), WEFT_OK);
    assert_int_equal(weft_stream_destroy(first), WEFT_OK);
    assert_int_equal(weft_stream_destroy(second), WEFT_OK);
}

static void caller_waits(void **state)
{
    (void)state;
    atomic_bool gate = false;
    int value = 0, ms = 5;
    weft_stream_h stream = make_stream();
    weft_event_h event = make_event();
    assert_int_equal(weft_event_query(event), WEFT_OK);
    assert_int_equal(weft_event_synchronize(event), WEFT_OK);
    assert_int_equal(weft_stream_call(stream, stand_before, &gate), WEFT_OK);
    assert_int_equal(weft_stream_call(stream, set_one, &value), WEFT_OK);
    assert_int_equal(weft_event_record(event, stream), WEFT_OK);
    assert_int_equal(weft_event_query(event), WEFT_PENDING);
    atomic_store(&gate, true);
    assert_int_equal(weft_event_synchronize(event), WEFT_OK);
    assert_int_equal(value, 1);
    assert_int_equal(weft_event_query(event), WEFT_OK);
    /* The default stream is the caller: it waits too. */
    assert_int_equal(weft_stream_call(stream, nap, &ms), WEFT_OK);
    assert_int_equal(weft_stream_call(stream, set_two_if_one, &value), WEFT_OK);
    assert_int_equal(weft_event_record(event, stream), WEFT_OK);
    assert_int_equal(weft_stream_wait(NULL, event), WEFT_OK);
    assert_int_equal(value, 2);
    assert_int_equal(weft_event_destroy(event), WEFT_OK);
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
}

static double cpu_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void a_long_wait_leaves_the_core_to_others(void **state)
{
    (void)state;
    int ms = 400;
    weft_stream_h stream = make_stream();
    weft_event_h event = make_event();
    assert_int_equal(weft_stream_call(stream, nap, &ms), WEFT_OK);
    assert_int_equal(weft_event_record(event, stream), WEFT_OK);
    double before = cpu_seconds();
    assert_int_equal(weft_event_synchronize(event), WEFT_OK);
    assert_true(cpu_seconds() - before < 0.02);
    assert_int_equal(weft_event_destroy(event), WEFT_OK);
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
}

static void event_never_recorded_holds_nothing_up(void **state)
{
    (void)state;
    int value = 0;
    weft_stream_h stream = make_stream();
    weft_event_h event = make_event();
    assert_int_equal(weft_stream_wait(stream, event), WEFT_OK);
    assert_int_equal(weft_stream_call(stream, set_one, &value), WEFT_OK);
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
    assert_int_equal(value, 1);
    assert_int_equal(weft_event_destroy(event), WEFT_OK);
}

static void recording_again_leaves_old_waits_alone(void **state)
{
    (void)state;
    atomic_bool gates[2] = {false, false};
    int early = 0, late = 0;
    weft_stream_h source = make_stream(), before = make_stream(), after = make_stream();
    weft_event_h event = make_event();
    assert_int_equal(weft_stream_call(source, stand_before, &gates[0]), WEFT_OK);
    assert_int_equal(weft_event_record(event, source), WEFT_OK);
    assert_int_equal(weft_stream_wait(before, event), WEFT_OK);
    assert_int_equal(weft_stream_call(before, set_one, &early), WEFT_OK);
    assert_int_equal(weft_stream_call(source, stand_before, &gates[1]), WEFT_OK);
    assert_int_equal(weft_event_record(event, source), WEFT_OK);
    assert_int_equal(weft_stream_wait(after, event), WEFT_OK);
    assert_int_equal(weft_stream_call(after, set_one, &late), WEFT_OK);
    sleep_ms(5);
    assert_int_equal(weft_stream_query(before), WEFT_PENDING);
    atomic_store(&gates[0], true);
    assert_int_equal(weft_stream_synchronize(before), WEFT_OK);
    assert_int_equal(early, 1);
    sleep_ms(5);
    assert_int_equal(weft_stream_query(after), WEFT_PENDING);
    assert_int_equal(weft_event_query(event), WEFT_PENDING);
    atomic_store(&gates[1], true);
    assert_int_equal(weft_stream_synchronize(after), WEFT_OK);
    assert_int_equal(late, 1);
    assert_int_equal(weft_event_query(event), WEFT_OK);
    assert_int_equal(weft_event_destroy(event), WEFT_OK);
    assert_int_equal(weft_stream_destroy(source), WEFT_OK);
    assert_int_equal(weft_stream_destroy(before), WEFT_OK);
    assert_int_equal(weft_stream_destroy(after), WEFT_OK);
}

static void destroying_an_event_leaves_waits_alone(void **state)
{
    (void)state;
    atomic_bool gate = false;
    int value = 0;
    weft_stream_h source = make_stream(), waiter = make_stream();
    weft_event_h event = make_event();
    assert_int_equal(weft_stream_call(source, stand_before, &gate), WEFT_OK);
    assert_int_equal(weft_stream_call(source, set_one, &value), WEFT_OK);
    assert_int_equal(weft_event_record(event, source), WEFT_OK);
    assert_int_equal(weft_stream_wait(waiter, event), WEFT_OK);
    assert_int_equal(weft_stream_call(waiter, set_two_if_one, &value), WEFT_OK);
    assert_int_equal(weft_event_destroy(event), WEFT_OK);
    assert_int_equal(weft_event_query(event), WEFT_ERR_INVALID);
    weft_event_h reused = make_event(); /* probably the same place in memory */
    assert_int_equal(weft_event_record(reused, NULL), WEFT_OK);
    sleep_ms(5);
    assert_int_equal(weft_stream_query(waiter), WEFT_PENDING);
    atomic_store(&gate, true);
    assert_int_equal(weft_stream_synchronize(waiter), WEFT_OK);
    assert_int_equal(value, 2);
    assert_int_equal(weft_event_destroy(reused), WEFT_OK);
    assert_int_equal(weft_stream_destroy(source), WEFT_OK);
    assert_int_equal(weft_stream_destroy(waiter), WEFT_OK);
}

static void elapsed_is_the_time_between_passings(void **state)
{
    (void)state;
    int ms = 30;
    double elapsed = -1;
    atomic_bool gate = false;
    weft_stream_h stream = make_stream();
    weft_event_h start = make_event(), end = make_event();
    assert_int_equal(weft_event_record(start, stream), WEFT_OK);
    assert_int_equal(weft_event_elapsed(start, end, &elapsed), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_last_error(), "end event was never recorded"));
    assert_int_equal(weft_stream_call(stream, nap, &ms), WEFT_OK);
    assert_int_equal(weft_stream_call(stream, stand_before, &gate), WEFT_OK);
    assert_int_equal(weft_event_record(end, stream), WEFT_OK);
    assert_int_equal(weft_event_elapsed(start, end, &elapsed), WEFT_PENDING);
    assert_true(elapsed == -1);
    atomic_store(&gate, true);
    assert_int_equal(weft_event_synchronize(end), WEFT_OK);
    assert_int_equal(weft_event_elapsed(start, end, &elapsed), WEFT_OK);
    assert_true(elapsed >= 29.9 && elapsed < 20000);
    double back;
    assert_int_equal(weft_event_elapsed(end, start, &back), WEFT_OK);
    assert_true(back == -elapsed);
    assert_int_equal(weft_event_record(start, NULL), WEFT_OK);
    sleep_ms(2);
    assert_int_equal(weft_event_record(end, NULL), WEFT_OK);
    assert_int_equal(weft_event_elapsed(start, end, &elapsed), WEFT_OK);
    assert_true(elapsed >= 1.9 && elapsed < 20000);
    assert_int_equal(weft_event_destroy(start), WEFT_OK);
    assert_int_equal(weft_event_destroy(end), WEFT_OK);
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
}

typedef struct inside {
    weft_stream_h stream;
    weft_event_h event;
    weft_status_t status;
} inside_t;

static void wait_for_own_future(void *arg)
{
    inside_t *inside = arg;
    inside->status = weft_event_record(inside->event, inside->stream);
    if (inside->status == WEFT_OK) {
        inside->status = weft_event_synchronize(inside->event);
    }
}

static void waiting_for_ones_own_future_is_refused(void **state)
{
    (void)state;
    inside_t inside = {make_stream(), make_event(), WEFT_OK};
    assert_int_equal(weft_stream_call(inside.stream, wait_for_own_future, &inside), WEFT_OK);
    assert_int_equal(weft_stream_synchronize(inside.stream), WEFT_OK);
    assert_int_equal(inside.status, WEFT_ERR_INVALID);
    /* The wait of a stream for its own event is no wait at all. */
    assert_int_equal(weft_event_record(inside.event, inside.stream), WEFT_OK);
    assert_int_equal(weft_stream_wait(inside.stream, inside.event), WEFT_OK);
    assert_int_equal(weft_stream_destroy(inside.stream), WEFT_OK);
    assert_int_equal(weft_event_query(inside.event),
                     WEFT_OK); /* passed, though its stream is gone */
    assert_int_equal(weft_event_destroy(inside.event), WEFT_OK);
}

static void bad_handles_are_refused(void **state)
{
    (void)state;
    double ms;
    weft_event_h event = make_event();
    weft_stream_h stream = make_stream();
    assert_int_equal(weft_event_create(NULL), WEFT_ERR_INVALID);
    assert_int_equal(weft_event_record(NULL, NULL), WEFT_ERR_INVALID);
    assert_int_equal(weft_event_destroy(NULL), WEFT_OK);
    assert_int_equal(weft_stream_wait(NULL, NULL), WEFT_ERR_INVALID);
    assert_int_equal(weft_event_elapsed(event, NULL, &ms), WEFT_ERR_INVALID);
    assert_int_equal(weft_event_record(event, NULL), WEFT_OK);
    assert_int_equal(weft_event_elapsed(event, event, NULL), WEFT_ERR_INVALID);
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
    assert_int_equal(weft_event_record(event, stream), WEFT_ERR_INVALID);
    assert_int_equal(weft_stream_wait(stream, event), WEFT_ERR_INVALID);
    assert_int_equal(weft_event_destroy(event), WEFT_OK);
    assert_int_equal(weft_event_destroy(event), WEFT_ERR_INVALID);
    assert_int_equal(weft_event_synchronize(event), WEFT_ERR_INVALID);
}

/* ---- many threads ----------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS 300

/* A ring of streams in which work k waits for work k - 1 on the neighbour: one at a time. */
typedef struct relay {
    weft_stream_h streams[THREADS];
    weft_event_h events[THREADS];
    int value; /* guarded by nothing but the events */
} relay_t;

static void count_up(void *arg)
{
    ++*(int *)arg;
}

static void events_order_memory_between_streams(void **state)
{
    (void)state;
    relay_t relay = {.value = 0};
    for (int i = 0; i < THREADS; i++) {
        relay.streams[i] = make_stream();
        relay.events[i] = make_event();
    }
    for (int i = 0; i < ROUNDS * THREADS; i++) {
        int here = i % THREADS, last = (i + THREADS - 1) % THREADS;
        assert_int_equal(weft_stream_wait(relay.streams[here], relay.events[last]), WEFT_OK);
        assert_int_equal(weft_stream_call(relay.streams[here], count_up, &relay.value), WEFT_OK);
        assert_int_equal(weft_event_record(relay.events[here], relay.streams[here]), WEFT_OK);
    }
    assert_int_equal(weft_event_synchronize(relay.events[THREADS - 1]), WEFT_OK);
    assert_int_equal(relay.value, ROUNDS * THREADS);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(weft_event_destroy(relay.events[i]), WEFT_OK);
        assert_int_equal(weft_stream_destroy(relay.streams[i]), WEFT_OK);
    }
}

static void *record_wait_query(void *arg)
{
    relay_t *relay = arg;
    double ms;
    for (int i = 0; i < ROUNDS; i++) {
        weft_event_h event = relay->events[0];
        if (weft_event_record(event, relay->streams[i % THREADS]) != WEFT_OK ||
            weft_stream_wait(relay->streams[(i + 1) % THREADS], event) != WEFT_OK ||
            weft_event_query(event) < 0 || weft_event_elapsed(event, event, &ms) < 0 ||
            (i % 16 == 0 && weft_event_synchronize(event) != WEFT_OK)) {
            return arg;
        }
    }
    return NULL;
}

static void threads_share_an_event(void **state)
{
    (void)state;
    relay_t relay;
    pthread_t threads[THREADS];
    relay.events[0] = make_event();
    for (int i = 0; i < THREADS; i++) {
        relay.streams[i] = make_stream();
    }
    assert_int_equal(weft_event_record(relay.events[0], NULL), WEFT_OK);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, record_wait_query, &relay), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
        assert_int_equal(weft_stream_synchronize(relay.streams[i]), WEFT_OK);
    }
    assert_int_equal(weft_event_destroy(relay.events[0]), WEFT_OK);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(weft_stream_destroy(relay.streams[i]), WEFT_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_stream_waits),
        cmocka_unit_test(caller_waits),
        cmocka_unit_test(a_long_wait_leaves_the_core_to_others),
        cmocka_unit_test(event_never_recorded_holds_nothing_up),
        cmocka_unit_test(recording_again_leaves_old_waits_alone),
        cmocka_unit_test(destroying_an_event_leaves_waits_alone),
        cmocka_unit_test(elapsed_is_the_time_between_passings),
        cmocka_unit_test(waiting_for_ones_own_future_is_refused),
        cmocka_unit_test(bad_handles_are_refused),
        cmocka_unit_test(events_order_memory_between_streams),
        cmocka_unit_test(threads_share_an_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
