/* Asynchronous gradient aggregation: workers whose steps take unequal times. One-sided, each pushes
 * its gradient into the queue of the aggregator (rank 0) when it has it, and goes on; the queue's
 * length is how far a worker may run ahead. The baseline is synchronous: an all-reduce per step, so
 * that every step takes as long as its slowest worker.
 *
 * A worker's computing is a sleep, as if a GPU did it, of 20 to 200 us: what is compared is
 * waiting, not how cores are shared. The sums are equal, as addition of whole numbers does not care
 * about order. */
#include <string.h>
#include <time.h>

#include <sys/prctl.h>

#include "base/rng.h"
#include "bench/patterns/patterns.h"

#define SLOTS 64
#define LEAST_US 20
#define SPAN_US 180

typedef struct async {
    weft_ring_h ring;
    float *gradient, *sum, *record;
    size_t count;
    uint64_t steps; /* so far, for the lengths of steps */
} async_t;

static size_t heap_bytes(const weft_pair_run_t *run)
{
    return SLOTS * (run->bytes + 512) + (64 << 10);
}

static weft_status_t open_async(weft_pair_run_t *run)
{
    async_t *a;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*a), (void **)&a));
    a->count = run->bytes / sizeof(float);
    prctl(PR_SET_TIMERSLACK, 1000ul); /* or every sleep takes 50 us longer */
    WEFT_TRY(weft__pair_private(run, run->bytes, (void **)&a->record));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&a->gradient));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&a->sum));
    WEFT_TRY(weft_memset(a->gradient, 0, run->bytes, NULL));
    WEFT_TRY(weft_memset(a->sum, 0, run->bytes, NULL));
    return weft_ring_create(run->symm, SLOTS, run->bytes, &a->ring);
}

static void close_async(weft_pair_run_t *run)
{
    async_t *a = run->ctx;
    if (a->ring) {
        weft_ring_destroy(a->ring);
    }
}

/* Compute a gradient: it is there already, only the time has to pass. */
static void compute(const weft_pair_run_t *run, uint64_t step)
{
    uint64_t us = LEAST_US + weft__rng_at(run->seed + (uint64_t)run->rank, step) % SPAN_US;
    struct timespec left = {.tv_nsec = (long)us * 1000};
    nanosleep(&left, NULL);
}

static void add(float *sum, const float *gradient, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sum[i] += gradient[i];
    }
}

static weft_status_t by_ring(weft_pair_run_t *run, int rounds)
{
    async_t *a = run->ctx;
    size_t bytes;
    a->steps += (uint64_t)rounds;
    if (run->rank > 0) {
        for (int i = 0; i < rounds; i++) {
            compute(run, a->steps - (uint64_t)i);
            WEFT_TRY(weft_ring_push_wait(a->ring, 0, a->gradient, run->bytes));
        }
        return WEFT_OK;
    }
    for (int i = 0; i < rounds * (run->size - 1); i++) {
        WEFT_TRY(weft_ring_pop_wait(a->ring, a->record, &bytes, NULL));
        add(a->sum, a->record, a->count);
    }
    return WEFT_OK;
}

static weft_status_t by_allreduce(weft_pair_run_t *run, int rounds)
{
    async_t *a = run->ctx;
    a->steps += (uint64_t)rounds;
    for (int i = 0; i < rounds; i++) {
        if (run->rank > 0) {
            compute(run, a->steps - (uint64_t)i);
        }
        WEFT_TRY(
            weft_allreduce(a->gradient, a->record, a->count, WEFT_F32, WEFT_SUM, run->comm, NULL));
        if (run->rank == 0) {
            add(a->sum, a->record, a->count);
        }
    }
    return WEFT_OK;
}

static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    async_t *a = run->ctx;
    const weft_pair_loop_fn ways[] = {by_ring, by_allreduce};
    const int rounds = 5;
    for (int way = 0; way < 2; way++) {
        memset(a->sum, 0, run->bytes);
        memset(a->gradient, 0, run->bytes);
        if (run->rank > 0) {
            weft__pair_fill(a->gradient, run->seed, run->rank, a->count);
        }
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
        WEFT_TRY(ways[way](run, rounds));
        for (size_t i = 0; run->rank == 0 && i < a->count; i++) {
            float want = 0;
            for (int r = 1; r < run->size; r++) {
                want += (float)rounds * weft__pair_value(run->seed, r, i);
            }
            *wrong_p += a->sum[i] != want;
        }
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    }
    return WEFT_OK;
}

const weft_pair_t weft__pair_async = {
    .target = "async-gradients",
    .text = "a step of workers whose steps take 20 to 200 us each",
    .group = "one-sided",
    .min = 1 << 10,
    .max = 64 << 10,
    .unit = 4,
    .ranks = 2,
    .heap = heap_bytes,
    .open = open_async,
    .close = close_async,
    .ways = {{"all-reduce", by_allreduce}, {"one-sided", by_ring}},
    .check = check,
};
