/* ctest: timeout=60 tsan
 * CUDA's order between the legacy stream, blocking streams, streams that do not block and the
 * streams of threads: random programs are run, and a model says which of their pieces of work must
 * have ended before which began. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/cudart.h"
#include "nccl/cudart/cudart.h"

#include <weft/weft.h>

#define WORDS (sizeof(uint64_t) * 8)
#define OPS 128
#define STREAMS 6 /* legacy, the thread's, two that block, two that do not */
#define EVENTS 3
#define LARGE 65536 /* more than is copied by the caller */

typedef struct set {
    uint64_t bits[OPS / WORDS];
} set_t;

typedef enum kind { HOST, FILL, COPY, RECORD, WAIT, RENEW, KINDS } kind_t;

typedef struct op {
    kind_t kind;
    atomic_int begin, end; /* ticks; HOST only */
    unsigned spins;
    unsigned char *block; /* what it writes, LARGE bytes */
    unsigned char value;  /* of all these bytes */
    size_t bytes;
    set_t before;
} op_t;

static op_t ops[OPS];
static atomic_int tick;

static unsigned next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33);
}

static bool has(const set_t *set, int i)
{
    return set->bits[(size_t)i / WORDS] >> ((size_t)i % WORDS) & 1;
}

static void add(set_t *set, int i)
{
    set->bits[(size_t)i / WORDS] |= (uint64_t)1 << ((size_t)i % WORDS);
}

static void join(set_t *set, const set_t *other)
{
    for (size_t i = 0; i < OPS / WORDS; i++) {
        set->bits[i] |= other->bits[i];
    }
}

static void spin(unsigned count)
{
    for (volatile unsigned i = 0; i < count; i++) {
    }
}

static void run_host(void *arg)
{
    op_t *op = arg;
    atomic_store(&op->begin, atomic_fetch_add(&tick, 1));
    spin(op->spins);
    memset(op->block, op->value, op->bytes);
    atomic_store(&op->end, atomic_fetch_add(&tick, 1));
}

/* ---- the model -------------------------------------------------------------------------- */

typedef struct model {
    set_t of[STREAMS]; /* what the next work of a stream comes after */
    set_t ended;       /* of blocking streams that were destroyed: legacy work comes after it */
    set_t events[EVENTS];
} model_t;

static bool blocks(int stream)
{
    return stream >= 1 && stream <= 3;
}

static void enter(model_t *model, int stream)
{
    if (blocks(stream)) {
        join(&model->of[stream], &model->of[0]);
    }
    for (int i = 1; stream == 0 && i < STREAMS; i++) {
        if (blocks(i)) {
            join(&model->of[0], &model->of[i]);
        }
    }
    if (stream == 0) {
        join(&model->of[0], &model->ended);
    }
}

/* ---- one program ------------------------------------------------------------------------ */

static void renew(cudaStream_t *stream, int number)
{
    if (number >= 2) {
        OK(cudaStreamDestroy(*stream));
        OK(cudaStreamCreateWithFlags(stream,
                                     blocks(number) ? cudaStreamDefault : cudaStreamNonBlocking));
    }
}

/* Work that `op` comes after and that wrote as many bytes; -1: there is none. */
static int pick_before(const op_t *op, int count, uint64_t *random)
{
    int start = count > 0 ? (int)(next_random(random) % (unsigned)count) : 0;
    for (int i = 0; i < count; i++) {
        int at = (start + i) % count;
        if (has(&op->before, at) && ops[at].kind <= COPY && ops[at].bytes >= op->bytes) {
            return at;
        }
    }
    return -1;
}

static void make_op(int i, int stream, cudaStream_t handle, model_t *model, uint64_t *random)
{
    op_t *op = &ops[i];
    op->before = model->of[stream];
    op->bytes = next_random(random) % 3 == 0 ? LARGE : 64;
    op->value = (unsigned char)(1 + next_random(random) % 255);
    op->spins = next_random(random) % 8 == 0 ? 60000 : next_random(random) % 4000;
    int from = op->kind == COPY ? pick_before(op, i, random) : -1;
    if (op->kind == COPY && from >= 0) {
        op->value = ops[from].value;
        OK(cudaMemcpyAsync(op->block, ops[from].block, op->bytes, cudaMemcpyDeviceToDevice,
                           handle));
    } else if (op->kind != HOST) {
        op->kind = FILL;
        OK(cudaMemsetAsync(op->block, op->value, op->bytes, handle));
    } else {
        OK(cudaLaunchHostFunc(handle, run_host, op));
    }
    add(&model->of[stream], i);
}

static void run_program(uint64_t seed, int count)
{
    uint64_t random = seed * 0x9E3779B97F4A7C15u + 1;
    model_t model;
    cudaStream_t streams[STREAMS] = {next_random(&random) % 2 ? NULL : cudaStreamLegacy,
                                     cudaStreamPerThread};
    cudaEvent_t events[EVENTS];
    memset(&model, 0, sizeof(model));
    for (int i = 2; i < STREAMS; i++) {
        OK(cudaStreamCreateWithFlags(&streams[i],
                                     blocks(i) ? cudaStreamDefault : cudaStreamNonBlocking));
    }
    for (int i = 0; i < EVENTS; i++) {
        OK(cudaEventCreate(&events[i]));
    }
    for (int i = 0; i < count; i++) {
        int stream = next_random(&random) % 3 == 0 ? 0 : (int)(next_random(&random) % STREAMS);
        int event = (int)(next_random(&random) % EVENTS);
        static const kind_t kinds[] = {HOST, HOST, HOST, FILL, COPY, COPY, RECORD, WAIT, RENEW};
        ops[i].kind = kinds[next_random(&random) % (sizeof(kinds) / sizeof(kinds[0]))];
        memset(&ops[i].before, 0, sizeof(set_t));
        if (ops[i].kind == RENEW) {
            renew(&streams[stream], stream);
            if (stream >= 2 && blocks(stream)) {
                join(&model.ended, &model.of[stream]);
            }
            if (stream >= 2) {
                memset(&model.of[stream], 0, sizeof(set_t));
            }
            continue;
        }
        enter(&model, stream);
        if (ops[i].kind == RECORD) {
            OK(cudaEventRecord(events[event], streams[stream]));
            model.events[event] = model.of[stream];
        } else if (ops[i].kind == WAIT) {
            OK(cudaStreamWaitEvent(streams[stream], events[event], 0));
            join(&model.of[stream], &model.events[event]);
        } else {
            make_op(i, stream, streams[stream], &model, &random);
        }
    }
    OK(cudaDeviceSynchronize());
    for (int i = 2; i < STREAMS; i++) {
        OK(cudaStreamDestroy(streams[i]));
    }
    for (int i = 0; i < EVENTS; i++) {
        OK(cudaEventDestroy(events[i]));
    }
}

static void check_program(uint64_t seed, int count)
{
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < i && ops[i].kind == HOST; j++) {
            if (has(&ops[i].before, j) && ops[j].kind == HOST && ops[j].end >= ops[i].begin) {
                fail_msg("program %llu: work %d began before work %d had ended",
                         (unsigned long long)seed, i, j);
            }
        }
        if (ops[i].kind <= COPY &&
            (ops[i].block[0] != ops[i].value || ops[i].block[ops[i].bytes - 1] != ops[i].value)) {
            fail_msg("program %llu: work %d has %d, not %d", (unsigned long long)seed, i,
                     ops[i].block[0], ops[i].value);
        }
    }
}

static void random_programs_keep_the_order(void **state)
{
    (void)state;
    for (int i = 0; i < OPS; i++) {
        OK(cudaMalloc((void **)&ops[i].block, LARGE));
    }
    for (uint64_t seed = 1; seed <= 150; seed++) {
        int count = 20 + (int)(seed * 7 % (OPS - 20));
        for (int i = 0; i < count; i++) {
            memset(ops[i].block, 0, LARGE);
        }
        OK(cudaSetDevice((int)(seed % 3)));
        run_program(seed, count);
        check_program(seed, count);
    }
    OK(cudaSetDevice(0));
    for (int i = 0; i < OPS; i++) {
        OK(cudaFree(ops[i].block));
    }
}

/* ---- what must not wait ------------------------------------------------------------------ */

static atomic_bool gate;

static void wait_for_gate(void *arg)
{
    (void)arg;
    while (!atomic_load(&gate)) {
        sched_yield();
    }
}

static void open_gate(void *arg)
{
    (void)arg;
    atomic_store(&gate, true);
}

static void count_one(void *arg)
{
    int *value = arg;
    spin(200);
    (*value)++; /* plain: the thread sanitizer sees where order is missing */
}

/* The legacy stream, or `before`, is held up until the other one has run. */
static void runs_beside(cudaStream_t before, cudaStream_t other)
{
    atomic_store(&gate, false);
    OK(cudaLaunchHostFunc(before, wait_for_gate, NULL));
    OK(cudaLaunchHostFunc(other, open_gate, NULL)); /* a wait would hang here: the test times out */
    OK(cudaDeviceSynchronize());
}

static void streams_without_order_run_beside_each_other(void **state)
{
    cudaStream_t free_stream, first, second;
    (void)state;
    OK(cudaStreamCreateWithFlags(&free_stream, cudaStreamNonBlocking));
    OK(cudaStreamCreate(&first));
    OK(cudaStreamCreate(&second));
    runs_beside(NULL, free_stream);
    runs_beside(free_stream, NULL);
    runs_beside(first, second);
    runs_beside(first, free_stream);
    runs_beside(cudaStreamPerThread, first);
    runs_beside(first, cudaStreamPerThread);
    OK(cudaStreamDestroy(free_stream));
    OK(cudaStreamDestroy(first));
    OK(cudaStreamDestroy(second));
}

static void the_host_does_not_wait_for_the_legacy_stream(void **state)
{
    (void)state;
    atomic_store(&gate, false);
    OK(cudaLaunchHostFunc(NULL, wait_for_gate, NULL));
    EXPECT(cudaErrorNotReady, cudaStreamQuery(NULL));
    EXPECT(cudaErrorNotReady, cudaStreamQuery(cudaStreamLegacy));
    EXPECT(cudaErrorNotReady, cudaGetLastError());
    open_gate(NULL);
    OK(cudaStreamSynchronize(NULL));
    OK(cudaStreamQuery(NULL));
}

static void waiting_for_the_legacy_stream_waits_for_blocking_ones(void **state)
{
    cudaStream_t stream;
    cudaEvent_t event;
    int value = 0;
    (void)state;
    OK(cudaStreamCreate(&stream));
    OK(cudaEventCreate(&event));
    atomic_store(&gate, false);
    OK(cudaLaunchHostFunc(stream, wait_for_gate, NULL));
    OK(cudaLaunchHostFunc(stream, count_one, &value));
    OK(cudaEventRecord(event, NULL));
    FAILS(cudaErrorNotReady, cudaStreamQuery(NULL));
    FAILS(cudaErrorNotReady, cudaEventQuery(event));
    open_gate(NULL);
    OK(cudaStreamSynchronize(NULL));
    assert_int_equal(value, 1);
    OK(cudaEventQuery(event));
    OK(cudaEventDestroy(event));
    OK(cudaStreamDestroy(stream));
}

static void devices_have_legacy_streams_of_their_own(void **state)
{
    cudaStream_t other;
    (void)state;
    atomic_store(&gate, false);
    OK(cudaLaunchHostFunc(NULL, wait_for_gate, NULL));
    OK(cudaSetDevice(1));
    OK(cudaStreamCreate(&other));
    OK(cudaLaunchHostFunc(other, open_gate, NULL));
    OK(cudaStreamSynchronize(NULL));
    OK(cudaDeviceSynchronize());
    OK(cudaStreamDestroy(other));
    OK(cudaSetDevice(0));
    OK(cudaDeviceSynchronize());
}

/* ---- threads, and work that is queued long after its stream was entered ------------------- */

#define THREADS 3
#define ROUNDS 400

static weft_stream_h entered(void *stream)
{
    weft_stream_h weft_stream = NULL;
    assert_int_equal(weft_cudart_enter(stream, 2, &weft_stream), WEFT_OK);
    return weft_stream;
}

/* All threads share the legacy stream of a device and a blocking stream; each one's own work
 * alternates between the two. */
static void *alternate(void *arg)
{
    cudaStream_t shared = arg;
    int value = 0;
    cudaSetDevice(2);
    for (int i = 0; i < ROUNDS; i++) {
        weft_stream_h stream = entered(i % 2 ? NULL : shared);
        if (i % 3 == 0) {
            sched_yield(); /* others enter in between */
        }
        weft_stream_call(stream, count_one, &value);
    }
    cudaStreamSynchronize(NULL);
    return value == ROUNDS ? NULL : "lost";
}

static void threads_keep_their_own_order(void **state)
{
    pthread_t threads[THREADS];
    cudaStream_t shared;
    (void)state;
    OK(cudaSetDevice(2));
    OK(cudaStreamCreate(&shared));
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, alternate, shared), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    OK(cudaStreamDestroy(shared));
    OK(cudaSetDevice(0));
}

static void *use_own_stream(void *arg)
{
    int device = *(int *)arg;
    int *value = arg;
    OK(cudaSetDevice(device));
    for (int i = 0; i < 100; i++) {
        OK(cudaLaunchHostFunc(i % 2 ? cudaStreamPerThread : NULL, count_one, value));
    }
    OK(cudaStreamSynchronize(cudaStreamPerThread));
    OK(cudaStreamSynchronize(NULL));
    return NULL;
}

static void streams_of_threads_end_with_them(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        pthread_t threads[2];
        int values[2] = {0, 1};
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, use_own_stream, &values[i]), 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(values[i], 100 + i);
        }
    }
}

static void *enter_it(void *arg)
{
    entered(arg);
    return NULL;
}

/* Enter `first`; another thread enters `second`, which waits for nothing, as `first` is empty; then
 * our work is queued on `first`, and more on `second`, which must come after it. */
static void comes_after(void *first, void *second)
{
    pthread_t thread;
    int value = 0;
    weft_stream_h mine = entered(first);
    assert_int_equal(pthread_create(&thread, NULL, enter_it, second), 0);
    pthread_join(thread, NULL);
    atomic_store(&gate, false);
    assert_int_equal(weft_stream_call(mine, wait_for_gate, NULL), WEFT_OK);
    assert_int_equal(weft_stream_call(entered(second), count_one, &value), WEFT_OK);
    for (int i = 0; i < 50; i++) {
        sched_yield();
    }
    FAILS(cudaErrorNotReady, cudaStreamQuery(second));
    open_gate(NULL);
    OK(cudaStreamSynchronize(second));
    assert_int_equal(value, 1);
}

static void a_wait_by_another_thread_does_not_count_for_later_work(void **state)
{
    cudaStream_t stream;
    (void)state;
    OK(cudaSetDevice(2));
    OK(cudaStreamCreate(&stream));
    comes_after(stream, NULL);
    comes_after(NULL, stream);
    OK(cudaStreamDestroy(stream));
    OK(cudaSetDevice(0));
}

static void enter_refuses_what_is_no_stream(void **state)
{
    cudaStream_t stream;
    weft_stream_h weft_stream = NULL;
    (void)state;
    OK(cudaStreamCreate(&stream));
    assert_int_equal(weft_cudart_enter(stream, 0, &weft_stream), WEFT_OK);
    assert_non_null(weft_stream);
    assert_int_equal(weft_cudart_enter(stream, 1, &weft_stream), WEFT_ERR_INVALID);
    assert_int_equal(weft_cudart_enter(stream, -1, &weft_stream), WEFT_ERR_INVALID);
    assert_int_equal(weft_cudart_enter(NULL, 1 << 20, &weft_stream), WEFT_ERR_INVALID);
    assert_int_equal(weft_cudart_enter(NULL, 200, &weft_stream), WEFT_ERR_INVALID);
    assert_int_equal(weft_cudart_enter(NULL, 0, NULL), WEFT_ERR_INVALID);
    OK(cudaStreamDestroy(stream));
    assert_int_equal(weft_cudart_enter(stream, 0, &weft_stream), WEFT_ERR_INVALID);
    assert_int_equal(weft_cudart_enter(cudaStreamPerThread, 1, &weft_stream), WEFT_OK);
    assert_int_equal(weft_cudart_enter(cudaStreamLegacy, 1, &weft_stream), WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_keep_the_order),
        cmocka_unit_test(streams_without_order_run_beside_each_other),
        cmocka_unit_test(the_host_does_not_wait_for_the_legacy_stream),
        cmocka_unit_test(waiting_for_the_legacy_stream_waits_for_blocking_ones),
        cmocka_unit_test(devices_have_legacy_streams_of_their_own),
        cmocka_unit_test(threads_keep_their_own_order),
        cmocka_unit_test(streams_of_threads_end_with_them),
        cmocka_unit_test(a_wait_by_another_thread_does_not_count_for_later_work),
        cmocka_unit_test(enter_refuses_what_is_no_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
