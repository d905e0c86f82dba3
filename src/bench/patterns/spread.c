/* All-gather: every rank puts its block into everybody's result, with a signal that counts. Results
 * are two in turn: the next but one may only be put when all ranks are done with this one, which
 * they are when they have sent the next. */
#include <string.h>

#include "bench/patterns/patterns.h"

typedef struct spread {
    float *block;     /* this rank's */
    float *result[2]; /* symmetric: of all ranks */
    uint64_t *signal; /* symmetric: a line per rank */
    uint64_t calls;
    size_t count;
} spread_t;

static size_t heap_bytes(const weft_pair_run_t *run)
{
    return 2 * run->bytes + (size_t)run->size * 64 + 4096;
}

/* run->bytes are those of the result, as everywhere for this collective. */
static weft_status_t open_spread(weft_pair_run_t *run)
{
    spread_t *s;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*s), (void **)&s));
    s->count = run->bytes / sizeof(float) / (size_t)run->size;
    WEFT_TRY(weft_symm_malloc(run->symm, run->bytes, (void **)&s->result[0]));
    WEFT_TRY(weft_symm_malloc(run->symm, run->bytes, (void **)&s->result[1]));
    WEFT_TRY(
        weft_symm_malloc(run->symm, (size_t)run->size * WEFT_PAIR_LINE * 8, (void **)&s->signal));
    return weft__pair_device(run, run->bytes, (void **)&s->block);
}

static weft_status_t by_put(weft_pair_run_t *run, int rounds)
{
    spread_t *s = run->ctx;
    size_t bytes = s->count * sizeof(float);
    for (int i = 0; i < rounds; i++) {
        float *result = s->result[++s->calls % 2];
        memcpy(result + (size_t)run->rank * s->count, s->block, bytes);
        for (int n = 1; n < run->size; n++) {
            WEFT_TRY(weft_symm_put_signal(run->symm, result + (size_t)run->rank * s->count,
                                          s->block, bytes, s->signal + run->rank * WEFT_PAIR_LINE,
                                          s->calls, WEFT_SIGNAL_SET, (run->rank + n) % run->size,
                                          NULL));
        }
        WEFT_TRY(weft__pair_await(run, s->signal, s->calls));
    }
    return WEFT_OK;
}

static weft_status_t by_allgather(weft_pair_run_t *run, int rounds)
{
    spread_t *s = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(
            weft_allgather(s->block, s->result[s->calls % 2], s->count, WEFT_F32, run->comm, NULL));
    }
    return WEFT_OK;
}

static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    spread_t *s = run->ctx;
    for (uint64_t call = 0; call < 8; call++) {
        uint64_t seed = run->seed + call * 1000;
        weft__pair_fill(s->block, seed, run->rank, s->count);
        WEFT_TRY(call % 4 < 3 ? by_put(run, 1) : by_allgather(run, 1));
        const float *result = s->result[s->calls % 2];
        for (size_t i = 0; i < s->count * (size_t)run->size; i++) {
            *wrong_p += result[i] != weft__pair_value(seed, (int)(i / s->count), i % s->count);
        }
        if (call % 4 >= 2) {
            WEFT_TRY(weft_symm_barrier(run->symm, NULL)); /* the collective has one result */
        }
    }
    return WEFT_OK;
}

const weft_pair_t weft__pair_spread = {
    .target = "put-allgather",
    .text = "every rank's block to every rank; bytes are of the result",
    .group = "one-sided",
    .advise = "all-gather",
    .min = 64,
    .max = 1 << 20,
    .unit = 4,
    .shards = true,
    .heap = heap_bytes,
    .open = open_spread,
    .ways = {{"all-gather", by_allgather}, {"one-sided", by_put}},
    .check = check,
};
