/* Streams: order, errors, waiting, life and death.
 * ctest: labels=tsan */
#include "device/child.h"

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <weft/device.h>

#include "base/log.h"
#include "device/device.h"

static weft_stream_h make_stream(void)
{
    weft_stream_h stream = NULL;
    assert_int_equal(weft_stream_create(&stream), WEFT_OK);
    assert_non_null(stream);
    return stream;
}

static void sleep_ms(int ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

/* A door that a stream stands before until the test opens it. */
typedef struct gate {
    atomic_bool open;
    atomic_bool reached;
} gate_t;

static void stand_before(void *arg)
{
    gate_t *gate = arg;
    atomic_store(&gate->reached, true);
    while (!atomic_load(&gate->open)) {
        sleep_ms(1);
    }
}

static int count_entries(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

/* Threads that are workers of streams, by name. */
static int count_workers(void)
{
    int count = 0;
    struct dirent *entry;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        char path[300], name[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file != NULL) {
            count += fgets(name, sizeof(name), file) != NULL && strcmp(name, "weft-stream\n") == 0;
            fclose(file);
        }
    }
    closedir(dir);
    return count;
}

/* The same; a thread that was joined may still be listed for a moment. */
static int settled_workers(int expected)
{
    int count = 0;
    for (int i = 0; i < 1000 && (count = count_workers()) > expected; i++) {
        sleep_ms(1);
    }
    return count;
}

/* ---- order ------------------------------------------------------------------------------ */

#define MANY 100000

static int order[MANY];
static int order_count;

static weft_status_t append(void *arg)
{
    order[order_count++] = (int)(intptr_t)arg;
    return WEFT_OK;
}

static void work_runs_in_order(void **state)
{
    (void)state;
    gate_t gate = {0};
    weft_stream_h stream = make_stream();
    order_count = 0;
    assert_int_equal(weft_stream_call(stream, stand_before, &gate), WEFT_OK);
    for (intptr_t i = 0; i < MANY; i++) { /* the queue grows behind the gate */
        assert_int_equal(weft__stream_push(stream, append, (void *)i), WEFT_OK);
    }
    assert_int_equal(weft_stream_query(stream), WEFT_PENDING);
    atomic_store(&gate.open, true);
    assert_int_equal(weft_stream_synchronize(stream), WEFT_OK);
    assert_int_equal(weft_stream_query(stream), WEFT_OK);
    assert_int_equal(order_count, MANY);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(order[i], i);
    }
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
}

static void work_runs_in_order_while_pushed(void **state)
{
    (void)state;
    weft_stream_h stream = make_stream();
    order_count = 0;
    for (intptr_t i = 0; i < MANY; i++) {
        assert_int_equal(weft__stream_push(stream, append, (void *)i), WEFT_OK);
        if (i % 1000 == 0) {
            assert_int_equal(weft_stream_synchronize(stream), WEFT_OK);
            assert_int_equal(order_count, i + 1);
        }
    }
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK); /* waits too */
    assert_int_equal(order_count, MANY);
    assert_int_equal(order[MANY - 1], MANY - 1);
}

static void open_gate(void *arg)
{
    atomic_store(&((gate_t *)arg)->open, true);
}

static void streams_run_beside_each_other(void **state)
{
    (void)state;
    gate_t gate = {0};
    weft_stream_h first = make_stream(), second = make_stream();
    assert_int_equal(weft_stream_call(first, stand_before, &gate), WEFT_OK);
    assert_int_equal(weft_stream_call(second, open_gate, &gate), WEFT_OK);
    assert_int_equal(weft_stream_synchronize(first), WEFT_OK);
    assert_int_equal(weft_stream_destroy(first), WEFT_OK);
    assert_int_equal(weft_stream_destroy(second), WEFT_OK);
}

static void note_thread(void *arg)
{
    *(pthread_t *)arg = pthread_self();
}

static void default_stream_runs_in_the_caller(void **state)
{
    (void)state;
    pthread_t thread, other;
    weft_stream_h stream = make_stream();
    assert_int_equal(weft_stream_call(NULL, note_thread, &thread), WEFT_OK);
    assert_true(pthread_equal(thread, pthread_self()));
    assert_int_equal(weft_stream_query(NULL), WEFT_OK);
    assert_int_equal(weft_stream_synchronize(NULL), WEFT_OK);
    assert_int_equal(weft_stream_call(stream, note_thread, &other), WEFT_OK);
    assert_int_equal(weft_stream_synchronize(stream), WEFT_OK);
    assert_false(pthread_equal(other, pthread_self()));
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
}

static void copies_are_in_stream_order(void **state)
{
    (void)state;
    gate_t gate = {0};
    char *a, *b, host[100];
    weft_stream_h stream = make_stream();
    assert_int_equal(weft_malloc((void **)&a, 100), WEFT_OK);
    assert_int_equal(weft_malloc((void **)&b, 100), WEFT_OK);
    memset(a, 0, 100);
    memset(b, 0, 100);
    memset(host, 0, 100);
    assert_int_equal(weft_stream_call(stream, stand_before, &gate), WEFT_OK);
    assert_int_equal(weft_memset(a, 5, 100, stream), WEFT_OK);
    assert_int_equal(weft_memset(a + 50, 6, 50, stream), WEFT_OK);
    assert_int_equal(weft_memcpy(b, a, 100, stream), WEFT_OK);
    assert_int_equal(weft_memcpy(b + 10, b, 60, stream), WEFT_OK);
    assert_int_equal(weft_memset(a, 7, 100, stream), WEFT_OK);
    assert_int_equal(weft_memcpy(host, b, 100, stream), WEFT_OK);
    assert_int_equal(host[0], 0);
    atomic_store(&gate.open, true);
    assert_int_equal(weft_stream_synchronize(stream), WEFT_OK);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(host[i], i < 60 ? 5 : 6);
        assert_int_equal(a[i], 7);
    }
    assert_int_equal(weft_free(a), WEFT_OK);
    assert_int_equal(weft_free(b), WEFT_OK);
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
}

static void note_device(void *arg)
{
    weft_device_get(arg);
}

static void worker_is_on_the_streams_device(void **state)
{
    (void)state;
    int device = -1;
    assert_int_equal(weft_device_set(4), WEFT_OK);
    weft_stream_h stream = make_stream();
    assert_int_equal(weft_device_set(0), WEFT_OK);
    assert_int_equal(weft_stream_call(stream, note_device, &device), WEFT_OK);
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
    assert_int_equal(device, 4);
}

/* ---- errors ----------------------------------------------------------------------------- */

static weft_status_t fail_with(void *arg)
{
    return weft__fail(WEFT_ERR_MISMATCH, "work %d failed", (int)(intptr_t)arg);
}

static void first_error_stays_until_synchronize(void **state)
{
    (void)state;
    weft_stream_h stream = make_stream();
    order_count = 0;
    assert_int_equal(weft__stream_push(stream, fail_with, (void *)1), WEFT_OK);
    assert_int_equal(weft__stream_push(stream, fail_with, (void *)2), WEFT_OK);
    assert_int_equal(weft__stream_push(stream, append, NULL), WEFT_OK);
    while (weft_stream_query(stream) == WEFT_PENDING) {
        sleep_ms(1);
    }
    assert_int_equal(weft_stream_query(stream), WEFT_OK);
    assert_int_equal(weft_stream_synchronize(stream), WEFT_ERR_MISMATCH);
    assert_string_equal(weft_last_error(), "work 1 failed");
    assert_int_equal(order_count, 1); /* what came after ran nevertheless */
    assert_int_equal(weft_stream_synchronize(stream), WEFT_OK);
    assert_int_equal(weft__stream_push(stream, fail_with, (void *)3), WEFT_OK);
    assert_int_equal(weft_stream_destroy(stream), WEFT_ERR_MISMATCH);
    assert_string_equal(weft_last_error(), "work 3 failed");
    stream = make_stream(); /* the same struct, without that error */
    assert_int_equal(weft__stream_push(stream, append, NULL), WEFT_OK);
    assert_int_equal(weft_stream_synchronize(stream), WEFT_OK);
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
}

static void device_synchronize_waits_for_its_own_streams(void **state)
{
    (void)state;
    gate_t far = {0}, near = {0};
    weft_stream_h streams[3];
    assert_int_equal(weft_device_set(1), WEFT_OK);
    weft_stream_h other = make_stream();
    assert_int_equal(weft_device_set(0), WEFT_OK);
    assert_int_equal(weft_stream_call(other, stand_before, &far), WEFT_OK);
    order_count = 0;
    for (int i = 0; i < 3; i++) {
        streams[i] = make_stream();
    }
    assert_int_equal(weft_stream_call(streams[0], stand_before, &near), WEFT_OK);
    assert_int_equal(weft__stream_push(streams[0], append, NULL), WEFT_OK);
    assert_int_equal(weft__stream_push(streams[1], fail_with, (void *)1), WEFT_OK);
    assert_int_equal(weft__stream_push(streams[2], fail_with, (void *)2), WEFT_OK);
    assert_int_equal(weft_stream_call(streams[1], open_gate, &near), WEFT_OK);
    assert_int_equal(weft_device_synchronize(), WEFT_ERR_MISMATCH);
    assert_int_equal(order_count, 1);
    assert_int_equal(weft_stream_query(other), WEFT_PENDING);
    /* One of the two errors was returned; the other is still its stream's. */
    int left = 0;
    for (int i = 0; i < 3; i++) {
        left += weft_stream_destroy(streams[i]) == WEFT_ERR_MISMATCH;
    }
    assert_int_equal(left, 1);
    atomic_store(&far.open, true);
    assert_int_equal(weft_stream_destroy(other), WEFT_OK);
    assert_int_equal(weft_device_synchronize(), WEFT_OK);
}

typedef struct from_inside {
    weft_stream_h stream;
    weft_status_t synchronize, destroy, device, push;
    char text[256];
} from_inside_t;

static void call_from_inside(void *arg)
{
    from_inside_t *inside = arg;
    inside->synchronize = weft_stream_synchronize(inside->stream);
    snprintf(inside->text, sizeof(inside->text), "%s", weft_last_error());
    inside->destroy = weft_stream_destroy(inside->stream);
    inside->device = weft_device_synchronize();
    inside->push = weft__stream_push(inside->stream, append, NULL);
}

static void waiting_for_oneself_is_refused(void **state)
{
    (void)state;
    from_inside_t inside = {.stream = make_stream()};
    order_count = 0;
    assert_int_equal(weft_stream_call(inside.stream, call_from_inside, &inside), WEFT_OK);
    while (weft_stream_query(inside.stream) == WEFT_PENDING) {
        sleep_ms(1);
    }
    assert_int_equal(weft_stream_synchronize(inside.stream), WEFT_OK);
    assert_int_equal(inside.synchronize, WEFT_ERR_INVALID);
    assert_non_null(strstr(inside.text, "wait for itself"));
    assert_int_equal(inside.destroy, WEFT_ERR_INVALID);
    assert_int_equal(inside.device, WEFT_ERR_INVALID);
    assert_int_equal(inside.push, WEFT_OK); /* pushing is no waiting */
    assert_int_equal(order_count, 1);
    assert_int_equal(weft_stream_destroy(inside.stream), WEFT_OK);
}

static void bad_handles_are_refused(void **state)
{
    (void)state;
    weft_stream_h stream = make_stream();
    assert_int_equal(weft_stream_create(NULL), WEFT_ERR_INVALID);
    assert_int_equal(weft_stream_call(stream, NULL, NULL), WEFT_ERR_INVALID);
    assert_int_equal(weft_stream_destroy(NULL), WEFT_OK);
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
    assert_int_equal(weft_stream_destroy(stream), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_last_error(), "destroyed already"));
    assert_int_equal(weft_stream_synchronize(stream), WEFT_ERR_INVALID);
    assert_int_equal(weft_stream_query(stream), WEFT_ERR_INVALID);
    assert_int_equal(weft_stream_call(stream, open_gate, NULL), WEFT_ERR_INVALID);
    assert_int_equal(weft_memset(&stream, 0, 1, stream), WEFT_ERR_INVALID);
    assert_int_equal(weft_stream_synchronize(stream), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_last_error(), "the stream is none, or destroyed already"));
    uint64_t memory[64];
    memset(memory, 0xFF, sizeof(memory)); /* alive, if it were a stream */
    const uintptr_t garbage[] = {1, 0xdeadbeef, UINTPTR_MAX & ~(uintptr_t)7, (uintptr_t)memory};
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
        weft_stream_h none = (weft_stream_h)garbage[i];
        assert_int_equal(weft_stream_synchronize(none), WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_last_error(), "the stream is none"));
        assert_int_equal(weft_stream_call(none, open_gate, NULL), WEFT_ERR_INVALID);
        assert_int_equal(weft_memset(&stream, 0, 1, none), WEFT_ERR_INVALID);
        assert_int_equal(weft_stream_destroy(none), WEFT_ERR_INVALID);
    }
}

/* ---- life ------------------------------------------------------------------------------- */

static void worker_starts_with_the_first_work(void **state)
{
    (void)state;
    assert_int_equal(settled_workers(0), 0);
    weft_stream_h stream = make_stream(), unused = make_stream();
    order_count = 0;
    assert_int_equal(count_workers(), 0);
    assert_int_equal(weft__stream_push(stream, append, NULL), WEFT_OK);
    assert_int_equal(weft_stream_synchronize(stream), WEFT_OK);
    assert_int_equal(count_workers(), 1);
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
    assert_int_equal(weft_stream_destroy(unused), WEFT_OK);
    assert_int_equal(settled_workers(0), 0);
}

static void use_and_destroy(int count)
{
    for (int i = 0; i < count; i++) {
        weft_stream_h stream = make_stream();
        order_count = 0;
        assert_int_equal(weft__stream_push(stream, append, NULL), WEFT_OK);
        assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
        assert_int_equal(order_count, 1);
    }
}

static void a_thousand_streams_leave_nothing_behind(void **state)
{
    (void)state;
    use_and_destroy(10);
    int descriptors = count_entries("/proc/self/fd");
    size_t memory = mallinfo2().uordblks;
    use_and_destroy(1000);
    assert_int_equal(settled_workers(0), 0);
    assert_int_equal(count_entries("/proc/self/fd"), descriptors);
    if (!UNDER_SANITIZER) { /* they have their own malloc, and their own leak check */
        assert_true(mallinfo2().uordblks <= memory + 4096);
    }
}

/* ---- many threads ----------------------------------------------------------------------- */

#define PUSHERS 4
#define PUSHES 5000

typedef struct pusher {
    weft_stream_h stream;
    int *sum; /* written by the stream's worker only */
} pusher_t;

static weft_status_t add_one(void *arg)
{
    ++*(int *)arg;
    return WEFT_OK;
}

static void *push_many(void *arg)
{
    pusher_t *pusher = arg;
    for (int i = 0; i < PUSHES; i++) {
        if (weft__stream_push(pusher->stream, add_one, pusher->sum) != WEFT_OK) {
            return arg;
        }
        if (i % 500 == 0 && weft_stream_synchronize(pusher->stream) != WEFT_OK) {
            return arg;
        }
    }
    return NULL;
}

static void threads_push_to_one_stream(void **state)
{
    (void)state;
    int sum = 0;
    pthread_t threads[PUSHERS];
    pusher_t pusher = {make_stream(), &sum};
    for (int i = 0; i < PUSHERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, push_many, &pusher), 0);
    }
    for (int i = 0; i < PUSHERS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
    assert_int_equal(weft_stream_synchronize(pusher.stream), WEFT_OK);
    assert_int_equal(sum, PUSHERS * PUSHES);
    assert_int_equal(weft_stream_destroy(pusher.stream), WEFT_OK);
}

static void *streams_of_ones_own(void *arg)
{
    for (int i = 0; i < 100; i++) {
        weft_stream_h stream;
        int sum = 0;
        if (weft_stream_create(&stream) != WEFT_OK) {
            return arg;
        }
        for (int j = 0; j < 20; j++) {
            weft__stream_push(stream, add_one, &sum);
        }
        if (weft_device_synchronize() != WEFT_OK || sum != 20 ||
            weft_stream_destroy(stream) != WEFT_OK) {
            return arg;
        }
    }
    return NULL;
}

static void threads_create_destroy_and_wait_for_all(void **state)
{
    (void)state;
    pthread_t threads[PUSHERS];
    for (int i = 0; i < PUSHERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, streams_of_ones_own, &threads), 0);
    }
    for (int i = 0; i < PUSHERS; i++) {
        void *result;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_null(result);
    }
}

/* ---- lanes ------------------------------------------------------------------------------ */

typedef struct turns {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    bool is_lane;
} turns_t;

static void look_at_turns(void *arg)
{
    turns_t *turns = arg;
    assert_int_equal(syscall(SYS_sched_getattr, 0, turns, offsetof(turns_t, is_lane), 0), 0);
    turns->is_lane = weft__lane_is_self();
}

static turns_t turns_of(weft_stream_h stream)
{
    turns_t turns = {0};
    assert_int_equal(weft_stream_call(stream, look_at_turns, &turns), WEFT_OK);
    assert_int_equal(weft_stream_synchronize(stream), WEFT_OK);
    return turns;
}

static void lanes_take_short_turns_and_nothing_else(void **state)
{
    (void)state;
    weft_stream_h stream = make_stream(), lane = NULL;
    assert_int_equal(weft__comm_stream_create(&lane), WEFT_OK);
    turns_t usual = turns_of(stream), ours = turns_of(lane), here = {0};
    look_at_turns(&here);
    assert_true(ours.is_lane && !usual.is_lane && !here.is_lane);
    assert_int_equal(ours.policy, here.policy);
    assert_int_equal(ours.nice, here.nice);
    assert_int_equal(usual.runtime, here.runtime);
    if (here.runtime == 0) {
        print_message("this kernel does not tell how long turns are: not looked at\n");
    } else if (here.policy == SCHED_OTHER) {
        assert_int_equal(ours.runtime, 100000);
    }
    /* Its place is taken by a stream that is none. */
    assert_int_equal(weft_stream_destroy(lane), WEFT_OK);
    lane = make_stream();
    assert_false(turns_of(lane).is_lane);
    assert_int_equal(weft_stream_destroy(lane), WEFT_OK);
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_runs_in_order),
        cmocka_unit_test(work_runs_in_order_while_pushed),
        cmocka_unit_test(streams_run_beside_each_other),
        cmocka_unit_test(default_stream_runs_in_the_caller),
        cmocka_unit_test(copies_are_in_stream_order),
        cmocka_unit_test(worker_is_on_the_streams_device),
        cmocka_unit_test(first_error_stays_until_synchronize),
        cmocka_unit_test(device_synchronize_waits_for_its_own_streams),
        cmocka_unit_test(waiting_for_oneself_is_refused),
        cmocka_unit_test(bad_handles_are_refused),
        cmocka_unit_test(worker_starts_with_the_first_work),
        cmocka_unit_test(a_thousand_streams_leave_nothing_behind),
        cmocka_unit_test(threads_push_to_one_stream),
        cmocka_unit_test(threads_create_destroy_and_wait_for_all),
        cmocka_unit_test(lanes_take_short_turns_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
