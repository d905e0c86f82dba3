/* ctest: timeout=60 tsan */
/* Algorithms where a rank's memory is mapped by nobody else: all goes by the verbs of the
 * transport. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "comm/coll/window.h"

#define MOST 5
#define COUNT 40001 /* of i32: several times what fits into half a scratch */
#define LANDING 4096

/* What a rank has; its peers reach it through fetch and store alone. */
typedef struct rank_memory {
    char *buffer[WEFT_BUFFERS];
    _Atomic uint32_t step;
} rank_memory_t;

static rank_memory_t ranks[MOST];

static void signal_step(weft_window_t *w, uint32_t step)
{
    /* Partner: the load in wait_step. */
    atomic_store_explicit(&ranks[w->rank].step, step, memory_order_release);
}

static weft_status_t wait_step(weft_window_t *w, int peer, uint32_t step)
{
    (void)w;
    while (atomic_load_explicit(&ranks[peer].step, memory_order_acquire) < step) {
        sched_yield();
    }
    return WEFT_OK;
}

static weft_status_t fetch(weft_window_t *w, void *to, weft_buffer_t from, int peer, size_t offset,
                           size_t bytes)
{
    (void)w;
    memcpy(to, ranks[peer].buffer[from] + offset, bytes);
    return WEFT_OK;
}

static weft_status_t store(weft_window_t *w, weft_buffer_t to, int peer, size_t offset,
                           const void *from, size_t bytes)
{
    (void)w;
    memcpy(ranks[peer].buffer[to] + offset, from, bytes);
    return WEFT_OK;
}

typedef struct job {
    weft_algo_fn algo;
    weft_coll_t coll;
    int rank, size, root;
    weft_status_t status;
} job_t;

static void *run_rank(void *arg)
{
    job_t *job = arg;
    char landing[LANDING], *own[WEFT_BUFFERS][MOST] = {{NULL}};
    weft_call_t call = {
        .coll = job->coll, .type = WEFT_I32, .op = WEFT_SUM, .count = COUNT, .root = job->root};
    for (int b = 0; b < WEFT_BUFFERS; b++) {
        own[b][job->rank] = ranks[job->rank].buffer[b];
    }
    weft_window_t window = {.rank = job->rank,
                            .size = job->size,
                            .call = &call,
                            .src = own[WEFT_SRC],
                            .dst = own[WEFT_DST],
                            .tmp = own[WEFT_TMP],
                            .kernels = weft__kernels(),
                            .store = WEFT_STORE_CACHED,
                            .chunk = 32768,
                            .signal = signal_step,
                            .wait = wait_step,
                            .get = fetch,
                            .put = store,
                            .landing = landing,
                            .landing_bytes = sizeof(landing)};
    job->status = job->algo(&window);
    signal_step(&window, UINT32_MAX);
    for (int p = 0; p < job->size; p++) { /* the closing barrier */
        wait_step(&window, p, UINT32_MAX);
    }
    return NULL;
}

static int32_t value(int rank, size_t i)
{
    return (int32_t)(i % 1000) * 7 + rank * 100003;
}

/* Element i of the result on `rank`. */
static int32_t expected(const job_t *job, int rank, size_t i)
{
    int32_t sum = 0;
    switch (job->coll) {
    case WEFT_COLL_BROADCAST:
        return value(job->root, i);
    case WEFT_COLL_ALLGATHER:
    case WEFT_COLL_GATHER:
        return value((int)(i / COUNT), i % COUNT);
    case WEFT_COLL_SCATTER:
        return value(job->root, (size_t)rank * COUNT + i);
    default:
        for (int p = 0; p < job->size; p++) {
            bool blocks = job->coll == WEFT_COLL_REDUCE_SCATTER;
            sum += value(p, (blocks ? (size_t)rank * COUNT : 0) + i);
        }
        return sum;
    }
}

static void check(const job_t *job, int rank)
{
    bool root_only = weft__coll_info[job->coll].dst_where == 'r';
    bool blocks = weft__coll_info[job->coll].dst_blocks == 'S';
    size_t count = COUNT * (size_t)(blocks ? job->size : 1);
    const int32_t *dst = (const int32_t *)(const void *)ranks[rank].buffer[WEFT_DST];
    for (size_t i = 0; i < count && (!root_only || rank == job->root); i++) {
        assert_int_equal(dst[i], expected(job, rank, i));
    }
}

static void runs_by_verbs(weft_algo_fn algo, weft_coll_t coll)
{
    for (int size = 1; size <= MOST; size++) {
        pthread_t threads[MOST];
        job_t jobs[MOST];
        for (int r = 0; r < size; r++) {
            int32_t *src = (int32_t *)(void *)ranks[r].buffer[WEFT_SRC];
            for (size_t i = 0; i < (size_t)MOST * COUNT; i++) {
                src[i] = value(r, i);
            }
            memset(ranks[r].buffer[WEFT_DST], 0xff, (size_t)MOST * COUNT * sizeof(int32_t));
            atomic_store(&ranks[r].step, 0);
            jobs[r] = (job_t){
                .algo = algo, .coll = coll, .rank = r, .size = size, .root = size / 2};
        }
        for (int r = 0; r < size; r++) {
            assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &jobs[r]), 0);
        }
        for (int r = 0; r < size; r++) {
            pthread_join(threads[r], NULL);
        }
        for (int r = 0; r < size; r++) {
            assert_int_equal(jobs[r].status, WEFT_OK);
            check(&jobs[r], r);
        }
    }
}

static void rings(void **state)
{
    (void)state;
    runs_by_verbs(weft__ring, WEFT_COLL_ALLREDUCE);
    runs_by_verbs(weft__ring, WEFT_COLL_REDUCE_SCATTER);
    runs_by_verbs(weft__ring, WEFT_COLL_ALLGATHER);
    runs_by_verbs(weft__ring, WEFT_COLL_BROADCAST);
}

static void trees(void **state)
{
    (void)state;
    runs_by_verbs(weft__tree, WEFT_COLL_ALLREDUCE);
    runs_by_verbs(weft__tree, WEFT_COLL_REDUCE);
    runs_by_verbs(weft__tree, WEFT_COLL_BROADCAST);
}

static void doublings(void **state)
{
    (void)state;
    runs_by_verbs(weft__doubling, WEFT_COLL_ALLREDUCE);
    runs_by_verbs(weft__doubling, WEFT_COLL_ALLGATHER);
}

static void copies(void **state)
{
    (void)state;
    runs_by_verbs(weft__direct, WEFT_COLL_ALLGATHER);
    runs_by_verbs(weft__direct, WEFT_COLL_GATHER);
    runs_by_verbs(weft__direct, WEFT_COLL_SCATTER);
}

static int open_memory(void **state)
{
    (void)state;
    for (int r = 0; r < MOST; r++) {
        for (int b = 0; b < WEFT_BUFFERS; b++) {
            size_t bytes = b == WEFT_TMP ? WEFT_TMP_BYTES : (size_t)MOST * COUNT * sizeof(int32_t);
            ranks[r].buffer[b] = malloc(bytes);
            assert_non_null(ranks[r].buffer[b]);
        }
    }
    return 0;
}

static int close_memory(void **state)
{
    (void)state;
    for (int r = 0; r < MOST; r++) {
        for (int b = 0; b < WEFT_BUFFERS; b++) {
            free(ranks[r].buffer[b]);
        }
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings),
        cmocka_unit_test(trees),
        cmocka_unit_test(doublings),
        cmocka_unit_test(copies),
    };
    return cmocka_run_group_tests(tests, open_memory, close_memory);
}
