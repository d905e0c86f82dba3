/* Pipeline hand-off: activations go from stage to stage around a ring; each stage changes them and
 * hands them on. One-sided, in three ways:
 *
 *   put   a stage puts them into the next one's inbox with a signal: one trip, best for few bytes
 *   get   it signals that they are there, and the next stage fetches them: on a CPU, many bytes
 *         then cross between caches once, where a put first takes the lines away from their reader
 *   both  it signals, then puts the second half while the next stage fetches the first: two cores
 *         copy
 *
 * On GPUs the put is made inside a kernel that stays for all laps.
 *
 * Buffers are free again when their stage is reached the next time round, so nothing is
 * acknowledged. */
#include <string.h>

#include "bench/patterns/gpu.h"
#include "bench/patterns/patterns.h"

typedef struct handoff {
    float *inbox;  /* symmetric */
    float *target; /* for the floor */
    float *host;   /* where data is made and looked at */
    weft_symm_view_t view;
    uint64_t *signal; /* symmetric: laps of the ring */
    uint64_t *half;   /* symmetric: laps whose second half has come */
    uint64_t laps;
    size_t count;
} handoff_t;

static size_t heap_bytes(const weft_pair_run_t *run)
{
    return run->bytes + 4096;
}

static weft_status_t open_handoff(weft_pair_run_t *run)
{
    handoff_t *h;
    run->parts = run->size; /* hand-offs of a lap */
    WEFT_TRY(weft__pair_ctx(run, sizeof(*h), (void **)&h));
    h->count = run->bytes / sizeof(float);
    if (run->stream) {
        WEFT_TRY(weft_symm_view(run->symm, &h->view));
        WEFT_TRY(weft__bench_load(run->comm));
    }
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&h->target));
    WEFT_TRY(weft_symm_malloc(run->symm, run->bytes, (void **)&h->inbox));
    WEFT_TRY(weft_symm_malloc(run->symm, 8, (void **)&h->signal));
    WEFT_TRY(weft_symm_malloc(run->symm, 8, (void **)&h->half));
    return weft__pair_host(run, run->bytes, (void **)&h->host);
}

/* What a stage does to activations: enough to be seen, little enough not to be what is timed. */
static void stage(const weft_pair_run_t *run, handoff_t *h)
{
    float rank = (float)run->rank;
    if (run->stream) {
        return; /* messages between GPUs are timed without it */
    }
    h->inbox[0] += rank + 1;
    h->inbox[h->count - 1] += rank + 1;
}

static weft_status_t by_kernel(weft_pair_run_t *run, handoff_t *h, int rounds)
{
    const weft_bench_handoff_t handoff = {.bytes = run->bytes,
                                          .laps = h->laps,
                                          .rounds = rounds,
                                          .inbox = h->inbox,
                                          .signal = h->signal};
    h->laps += (uint64_t)rounds;
    return weft__cuda_status(weft__bench_kernels()->handoff(weft__bench_gpu(run->comm), &h->view,
                                                            &handoff,
                                                            weft__cuda_stream(run->stream)),
                             "the kernel of a hand-off");
}

static weft_status_t by_put(weft_pair_run_t *run, int rounds)
{
    handoff_t *h = run->ctx;
    if (run->stream) {
        return by_kernel(run, h, rounds);
    }
    int next = (run->rank + 1) % run->size;
    for (int i = 0; i < rounds; i++) {
        h->laps++;
        if (run->rank > 0) {
            WEFT_TRY(weft_symm_signal_wait(run->symm, h->signal, WEFT_CMP_GE, h->laps, NULL));
        }
        stage(run, h);
        WEFT_TRY(weft_symm_put_signal(run->symm, h->inbox, h->inbox, run->bytes, h->signal, h->laps,
                                      WEFT_SIGNAL_SET, next, NULL));
        if (run->rank == 0) {
            WEFT_TRY(weft_symm_signal_wait(run->symm, h->signal, WEFT_CMP_GE, h->laps, NULL));
        }
    }
    return WEFT_OK;
}

/* The first `bytes` from the stage before, once it says that they are there. */
static weft_status_t fetch(weft_pair_run_t *run, handoff_t *h, size_t bytes)
{
    int last = (run->rank + run->size - 1) % run->size;
    WEFT_TRY(weft_symm_signal_wait(run->symm, h->signal, WEFT_CMP_GE, h->laps, NULL));
    return weft_symm_get(run->symm, h->inbox, h->inbox, bytes, last, NULL);
}

static weft_status_t by_get(weft_pair_run_t *run, int rounds)
{
    handoff_t *h = run->ctx;
    int next = (run->rank + 1) % run->size;
    for (int i = 0; i < rounds; i++) {
        h->laps++;
        if (run->rank > 0) {
            WEFT_TRY(fetch(run, h, run->bytes));
        }
        stage(run, h);
        WEFT_TRY(weft_symm_signal_op(run->symm, h->signal, h->laps, WEFT_SIGNAL_SET, next, NULL));
        if (run->rank == 0) {
            WEFT_TRY(fetch(run, h, run->bytes));
        }
    }
    return WEFT_OK;
}

static weft_status_t take_both(weft_pair_run_t *run, handoff_t *h)
{
    size_t half = h->count / 2;
    WEFT_TRY(fetch(run, h, half * sizeof(float)));
    return weft_symm_signal_wait(run->symm, h->half, WEFT_CMP_GE, h->laps, NULL);
}

static weft_status_t give_both(weft_pair_run_t *run, handoff_t *h)
{
    size_t half = h->count / 2, rest = (h->count - half) * sizeof(float);
    int next = (run->rank + 1) % run->size;
    WEFT_TRY(weft_symm_signal_op(run->symm, h->signal, h->laps, WEFT_SIGNAL_SET, next, NULL));
    return weft_symm_put_signal(run->symm, h->inbox + half, h->inbox + half, rest, h->half, h->laps,
                                WEFT_SIGNAL_SET, next, NULL);
}

static weft_status_t by_both(weft_pair_run_t *run, int rounds)
{
    handoff_t *h = run->ctx;
    for (int i = 0; i < rounds; i++) {
        h->laps++;
        if (run->rank > 0) {
            WEFT_TRY(take_both(run, h));
        }
        stage(run, h);
        WEFT_TRY(give_both(run, h));
        if (run->rank == 0) {
            WEFT_TRY(take_both(run, h));
        }
    }
    return WEFT_OK;
}

static weft_status_t by_messages(weft_pair_run_t *run, int rounds)
{
    handoff_t *h = run->ctx;
    int next = (run->rank + 1) % run->size, last = (run->rank + run->size - 1) % run->size;
    for (int i = 0; i < rounds; i++) {
        if (run->rank > 0) {
            WEFT_TRY(weft_recv(h->inbox, h->count, WEFT_F32, last, run->comm, run->stream));
        }
        stage(run, h);
        WEFT_TRY(weft_send(h->inbox, h->count, WEFT_F32, next, run->comm, run->stream));
        if (run->rank == 0) {
            WEFT_TRY(weft_recv(h->inbox, h->count, WEFT_F32, last, run->comm, run->stream));
        }
    }
    return WEFT_OK;
}

/* A lap is as many copies as there are stages, one after the other. */
static weft_status_t by_copy(weft_pair_run_t *run, int rounds)
{
    handoff_t *h = run->ctx;
    return run->rank == 0
               ? weft__pair_copy(run, h->target, h->inbox, run->bytes, rounds * run->size)
               : WEFT_OK;
}

/* Activations `host` as they come back to rank 0, after stages have added `added` to both ends. */
static size_t compare(const handoff_t *h, uint64_t seed, float added)
{
    size_t wrong = 0;
    for (size_t i = 0; i < h->count; i++) {
        float want = weft__pair_value(seed, 0, i);
        want += i == 0 ? added : 0;
        want += i == h->count - 1 ? added : 0;
        wrong += h->host[i] != want;
    }
    return wrong;
}

static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    handoff_t *h = run->ctx;
    const weft_pair_loop_fn ways[] = {run->pair->ways[1].loop, by_messages};
    const int laps = 3;
    float added = (float)(laps * run->size * (run->size + 1) / 2);
    for (int way = 0; way < 2; way++) {
        uint64_t seed = run->seed + (uint64_t)way;
        memset(h->host, 0xFF, run->bytes);
        if (run->rank == 0) {
            weft__pair_fill(h->host, seed, 0, h->count);
        }
        WEFT_TRY(weft_memcpy(h->inbox, h->host, run->bytes, NULL));
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
        WEFT_TRY(ways[way](run, laps));
        WEFT_TRY(weft__pair_settle(run));
        WEFT_TRY(weft_memcpy(h->host, h->inbox, run->bytes, NULL));
        if (run->rank == 0) {
            *wrong_p += compare(h, seed, run->stream && way == 1 ? 0 : added);
        }
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    }
    return WEFT_OK;
}

/* clang-format off */
#define HANDOFF(label, loop, on_gpu)                                                               \
    {.target = "handoff", .name = label,                                                           \
     .text = "activations from one pipeline stage to the next",                                    \
     .advise = "hand-off", .min = 1 << 10, .max = 1 << 20, .unit = 4, .ranks = 2, .gpu = on_gpu,   \
     .heap = heap_bytes, .open = open_handoff, .group = "one-sided",                               \
     .ways = {{"send/recv", by_messages}, {"one-sided", loop}},                                    \
     .copy = by_copy, .check = check}
/* clang-format on */

const weft_pair_t weft__pair_handoff = HANDOFF("put", by_put, true);
const weft_pair_t weft__pair_handoff_get = HANDOFF("get", by_get, false);
const weft_pair_t weft__pair_handoff_both = HANDOFF("both", by_both, false);
