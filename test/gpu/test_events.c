/* ctest: timeout=120 serial */
/* Streams and events of GPUs: order, waiting, time, functions of the host, streams of the
 * program. */
#include <setjmp.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "comm/memory.h"
#include "device/device.h"
#include "gpu/gpu.h"

#include <cmocka.h>

#define BYTES ((size_t)1 << 20)

/* A door that a stream stands before until the test opens it. Functions of several streams may run
 * in one thread: one door at a time. */
typedef struct gate {
    atomic_bool open;
} gate_t;

static void stand_before(void *arg)
{
    gate_t *gate = arg;
    while (!atomic_load(&gate->open)) {
        team_sleep(1e-3);
    }
}

static weft_stream_h make_stream(void)
{
    weft_stream_h stream = NULL;
    CHECK_OK(weft_stream_create(&stream));
    CHECK(stream);
    return stream;
}

static weft_event_h make_event(void)
{
    weft_event_h event = NULL;
    CHECK_OK(weft_event_create(&event));
    CHECK(event);
    return event;
}

static void check_filled(const buffer_t *x, char value)
{
    buffer_pull_all(x);
    for (size_t i = 0; i < x->bytes; i += 4095) {
        CHECK_EQ(x->host[i], value);
    }
}

/* ---- order ---------------------------------------------------------------------------------- */

static void one_waits_for_the_other(team_t *team)
{
    gate_t gate = {false};
    weft_stream_h s = make_stream(), t = make_stream();
    weft_event_h done = make_event();
    buffer_t x, y;
    (void)team;
    buffer_open(&x, BYTES, false);
    buffer_open(&y, BYTES, false);
    CHECK_OK(weft_memset(x.at, 1, BYTES, NULL));
    CHECK_OK(weft_stream_call(s, stand_before, &gate));
    CHECK_OK(weft_memset(x.at, 2, BYTES, s));
    CHECK_OK(weft_event_record(done, s));
    CHECK_OK(weft_stream_wait(t, done));
    CHECK_OK(weft_memcpy(y.at, x.at, BYTES, t));
    CHECK_STATUS(weft_event_query(done), WEFT_PENDING);
    CHECK_STATUS(weft_stream_query(s), WEFT_PENDING);
    CHECK_STATUS(weft_stream_query(t), WEFT_PENDING);
    check_filled(&x, 1); /* the default stream waits for nobody */
    CHECK_OK(weft_event_destroy(done));
    atomic_store(&gate.open, true); /* those who wait keep waiting for it */
    CHECK_OK(weft_stream_synchronize(t));
    check_filled(&y, 2);
    CHECK_OK(weft_stream_query(t));
    CHECK_OK(weft_stream_synchronize(s));
    CHECK_OK(weft_stream_query(s));
    CHECK_OK(weft_stream_destroy(s));
    CHECK_OK(weft_stream_destroy(t));
    buffer_close(&x);
    buffer_close(&y);
}

/* Streams do not hold each other up. */
static void overlap(team_t *team)
{
    gate_t gate = {false};
    weft_stream_h s = make_stream(), t = make_stream();
    buffer_t x;
    (void)team;
    buffer_open(&x, BYTES, false);
    CHECK_OK(weft_stream_call(s, stand_before, &gate));
    for (int i = 1; i < 100; i++) {
        CHECK_OK(weft_memset(x.at, i, BYTES, t));
    }
    CHECK_OK(weft_stream_synchronize(t));
    check_filled(&x, 99);
    CHECK_STATUS(weft_stream_query(s), WEFT_PENDING);
    atomic_store(&gate.open, true);
    CHECK_OK(weft_stream_destroy(s)); /* waits for its work */
    CHECK_OK(weft_stream_destroy(t));
    buffer_close(&x);
}

/* Recording again moves the mark; waits from before keep the old one. */
static void mark_moves(team_t *team)
{
    gate_t gate = {false};
    weft_stream_h s = make_stream(), t = make_stream(), u = make_stream();
    weft_event_h mark = make_event();
    (void)team;
    CHECK_OK(weft_event_query(mark)); /* never recorded: nothing to wait for */
    CHECK_OK(weft_event_synchronize(mark));
    CHECK_OK(weft_stream_wait(t, mark));
    CHECK_OK(weft_stream_synchronize(t));
    CHECK_OK(weft_stream_call(s, stand_before, &gate));
    CHECK_OK(weft_event_record(mark, s));
    CHECK_OK(weft_stream_wait(u, mark));
    CHECK_STATUS(weft_event_query(mark), WEFT_PENDING);
    CHECK_OK(weft_event_record(mark, t));
    CHECK_OK(weft_event_synchronize(mark));
    CHECK_OK(weft_event_query(mark));
    CHECK_STATUS(weft_stream_query(u), WEFT_PENDING);
    atomic_store(&gate.open, true);
    CHECK_OK(weft_stream_synchronize(u));
    CHECK_OK(weft_event_record(mark, NULL));
    CHECK_OK(weft_event_query(mark)); /* work on the default stream is done when it returns */
    CHECK_OK(weft_event_destroy(mark));
    CHECK_OK(weft_stream_destroy(s));
    CHECK_OK(weft_stream_destroy(t));
    CHECK_OK(weft_stream_destroy(u));
}

/* ---- time ----------------------------------------------------------------------------------- */

static void nap(void *arg)
{
    team_sleep(0.03);
    atomic_store((atomic_bool *)arg, true);
}

static void elapsed(team_t *team)
{
    gate_t gate = {false};
    atomic_bool woke = false;
    weft_stream_h s = make_stream();
    weft_event_h start = make_event(), end = make_event();
    double ms = -1;
    (void)team;
    CHECK_STATUS(weft_event_elapsed(start, end, &ms), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "start");
    CHECK_OK(weft_event_record(start, s));
    CHECK_STATUS(weft_event_elapsed(start, end, &ms), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "end");
    CHECK_OK(weft_stream_call(s, stand_before, &gate));
    CHECK_OK(weft_event_record(end, s));
    CHECK_STATUS(weft_event_elapsed(start, end, &ms), WEFT_PENDING);
    atomic_store(&gate.open, true);
    CHECK_OK(weft_stream_synchronize(s));
    double begin = team_now();
    CHECK_OK(weft_event_record(start, s));
    CHECK_OK(weft_stream_call(s, nap, &woke));
    CHECK_OK(weft_event_record(end, s));
    CHECK_OK(weft_event_synchronize(end));
    double wall = (team_now() - begin) * 1e3;
    CHECK_OK(weft_event_elapsed(start, end, &ms));
    if (!(ms >= 29 && ms <= wall + 1)) {
        FAIL("30 ms took %.3f ms, and %.3f ms on the clock", ms, wall);
    }
    CHECK_STATUS(weft_event_elapsed(start, end, NULL), WEFT_ERR_INVALID);
    CHECK_OK(weft_event_destroy(start));
    CHECK_OK(weft_event_destroy(end));
    CHECK_OK(weft_stream_destroy(s));
}

static void device_waits_for_all(team_t *team)
{
    atomic_bool woke[2] = {false, false};
    weft_stream_h s = make_stream(), t = make_stream();
    (void)team;
    CHECK_OK(weft_stream_call(s, nap, &woke[0]));
    CHECK_OK(weft_stream_call(t, nap, &woke[1]));
    CHECK_OK(weft_device_synchronize());
    CHECK(atomic_load(&woke[0]) && atomic_load(&woke[1]));
    CHECK_OK(weft_stream_destroy(s));
    CHECK_OK(weft_stream_destroy(t));
}

/* ---- functions of the host ---------------------------------------------------------------- */

typedef struct note {
    int *next, number, seen;
    const volatile char *copied; /* to by the stream, before this function */
} note_t;

static void take_note(void *arg)
{
    note_t *note = arg;
    note->seen = *note->copied;
    note->number = (*note->next)++;
}

/* They run in order, and see what the stream did before them. */
static void host_functions(team_t *team)
{
    enum { CALLS = 500 };
    weft_stream_h s = make_stream();
    note_t *notes = calloc(CALLS, sizeof(*notes));
    void *device, *pinned;
    int next = 0;
    (void)team;
    CHECK(notes);
    CHECK_OK(weft_malloc(&device, 4));
    CHECK_OK(weft_host_malloc(&pinned, 4));
    for (int i = 0; i < CALLS; i++) {
        notes[i] = (note_t){.next = &next, .copied = pinned};
        CHECK_OK(weft_memset(device, i % 100, 4, s));
        CHECK_OK(weft_memcpy(pinned, device, 4, s));
        CHECK_OK(weft_stream_call(s, take_note, &notes[i]));
    }
    CHECK_OK(weft_stream_synchronize(s));
    for (int i = 0; i < CALLS; i++) {
        CHECK_EQ(notes[i].number, i);
        CHECK_EQ(notes[i].seen, i % 100);
    }
    CHECK_OK(weft_stream_call(NULL, take_note, &notes[0])); /* at once */
    CHECK_EQ(next, CALLS + 1);
    CHECK_STATUS(weft_stream_call(s, NULL, NULL), WEFT_ERR_INVALID);
    CHECK_OK(weft_free(device));
    CHECK_OK(weft_host_free(pinned));
    CHECK_OK(weft_stream_destroy(s));
    free(notes);
}

/* ---- streams of the program --------------------------------------------------------------- */

static void wrapped(team_t *team)
{
    weft_stream_h s = make_stream(), w = NULL;
    gate_t gate = {false};
    void *native = NULL, *same = NULL;
    buffer_t x;
    (void)team;
    if (!weft__device_is_cuda()) {
        CHECK_STATUS(weft_stream_native(s, &native), WEFT_ERR_UNSUPPORTED);
        CHECK_STATUS(weft_stream_wrap(&gate, &w), WEFT_ERR_UNSUPPORTED);
        CHECK_OK(weft_stream_destroy(s));
        return;
    }
    buffer_open(&x, BYTES, false);
    CHECK_OK(weft_stream_native(s, &native));
    CHECK(native);
    CHECK_OK(weft_stream_wrap(native, &w));
    CHECK(w && w != s);
    CHECK_OK(weft_stream_native(w, &same));
    CHECK(same == native);
    CHECK_OK(weft_stream_call(s, stand_before, &gate));
    CHECK_OK(
        weft_memset(x.at, 6, BYTES, w)); /* behind what is on the stream, whoever put it there */
    CHECK_STATUS(weft_stream_query(w), WEFT_PENDING);
    atomic_store(&gate.open, true);
    CHECK_OK(weft_stream_synchronize(w));
    check_filled(&x, 6);
    CHECK_OK(weft_stream_destroy(w));
    CHECK_OK(weft_memset(x.at, 7, BYTES, s)); /* it is the program's, and still there */
    CHECK_OK(weft_stream_synchronize(s));
    check_filled(&x, 7);
    CHECK_STATUS(weft_stream_native(s, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_stream_wrap(native, NULL), WEFT_ERR_INVALID);
    CHECK_OK(weft_stream_destroy(s));
    buffer_close(&x);
}

/* Collectives on a stream that the program made itself. */
static void calls_on_wrapped(team_t *team)
{
    weft_stream_h s = make_stream(), w;
    void *native = NULL;
    buffer_t x;
    if (!weft__device_is_cuda()) {
        CHECK_OK(weft_stream_destroy(s));
        return;
    }
    buffer_open(&x, BYTES, false);
    CHECK_OK(weft_stream_native(s, &native));
    CHECK_OK(weft_stream_wrap(native, &w));
    team_meet(team);
    CHECK_OK(weft_memset(x.at, 1, BYTES, w));
    CHECK_OK(weft_allreduce(x.at, x.at, BYTES, WEFT_U8, WEFT_SUM, team->comm, w));
    CHECK_OK(weft_allreduce(x.at, x.at, BYTES, WEFT_U8, WEFT_MAX, team->comm, s));
    CHECK_OK(weft_stream_synchronize(w));
    CHECK_OK(weft_stream_destroy(w));
    CHECK_OK(weft_stream_synchronize(s));
    check_filled(&x, (char)team->size);
    CHECK_OK(weft_barrier(team->comm, NULL)); /* the wrapped one is gone, which is no harm */
    CHECK_OK(weft_stream_destroy(s));
    buffer_close(&x);
}

static void destroyed(team_t *team)
{
    weft_stream_h s = make_stream();
    weft_event_h e = make_event();
    char x = 0;
    (void)team;
    CHECK_OK(weft_stream_destroy(s));
    CHECK_STATUS(weft_stream_destroy(s), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_stream_synchronize(s), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_stream_query(s), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_memset(&x, 0, 1, s), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_event_record(e, s), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_stream_wait(s, e), WEFT_ERR_INVALID);
    CHECK_OK(weft_event_destroy(e));
    CHECK_STATUS(weft_event_destroy(e), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_event_query(e), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_stream_destroy(NULL), WEFT_OK);
}

/* ---- the tests ------------------------------------------------------------------------------- */

#define DEVICE_TEST(name, fn)                                                                      \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.ranks = 1, .bare = true}, fn));                       \
    }

DEVICE_TEST(event_ties_two_streams, one_waits_for_the_other)
DEVICE_TEST(streams_overlap, overlap)
DEVICE_TEST(recording_again_moves_the_mark, mark_moves)
DEVICE_TEST(events_tell_the_time, elapsed)
DEVICE_TEST(device_synchronize_waits_for_all_streams, device_waits_for_all)
DEVICE_TEST(host_functions_run_in_order, host_functions)
DEVICE_TEST(native_streams_are_wrapped, wrapped)
DEVICE_TEST(destroyed_handles_are_refused, destroyed)

static void collectives_on_wrapped_streams(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 3, .procs = 1}, calls_on_wrapped));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event_ties_two_streams),
        cmocka_unit_test(streams_overlap),
        cmocka_unit_test(recording_again_moves_the_mark),
        cmocka_unit_test(events_tell_the_time),
        cmocka_unit_test(device_synchronize_waits_for_all_streams),
        cmocka_unit_test(host_functions_run_in_order),
        cmocka_unit_test(native_streams_are_wrapped),
        cmocka_unit_test(collectives_on_wrapped_streams),
        cmocka_unit_test(destroyed_handles_are_refused),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
