/* Parameter server over sharded parameters: every rank serves a shard and works on all of them. A
 * step: the gradient of each shard goes to its server, the server applies their sum, and the new
 * parameters go back to everybody.
 *
 * One-sided, a worker only says that its gradient is there; servers add up their shard of all
 * gradients where they lie, and put the new parameters into everybody's replica. A worker that has
 * all shards of a step may write its next gradient: all servers have read the last one. */
#include <string.h>

#include "bench/patterns/patterns.h"
#include "kernel/kernel.h"

typedef struct server {
    float *params;    /* symmetric: this rank's replica; its own shard is the truth */
    float *gradient;  /* symmetric: this rank's, of all shards */
    uint64_t *pushed; /* symmetric: a line per worker, gradients it has finished */
    uint64_t *pulled; /* symmetric: a line per server, steps it has published */
    float *sums;      /* of all gradients of our shard */
    const void **at;  /* our shard of every rank's gradient */
    uint64_t steps;
    size_t shard; /* elements */
} server_t;

static size_t heap_bytes(const weft_pair_run_t *run)
{
    return 2 * run->bytes + 2 * (size_t)run->size * 64 + 8192;
}

static weft_status_t open_server(weft_pair_run_t *run)
{
    server_t *s;
    size_t ranks = (size_t)run->size, lines = ranks * WEFT_PAIR_LINE * 8;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*s), (void **)&s));
    s->shard = run->bytes / sizeof(float) / ranks;
    WEFT_TRY(weft_symm_malloc(run->symm, run->bytes, (void **)&s->params));
    WEFT_TRY(weft_symm_malloc(run->symm, run->bytes, (void **)&s->gradient));
    WEFT_TRY(weft_symm_malloc(run->symm, lines, (void **)&s->pushed));
    WEFT_TRY(weft_symm_malloc(run->symm, lines, (void **)&s->pulled));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&s->sums));
    WEFT_TRY(weft__pair_private(run, ranks * sizeof(void *), (void **)&s->at));
    for (int r = 0; r < run->size; r++) {
        s->at[r] = weft_symm_ptr(run->symm, s->gradient + (size_t)run->rank * s->shard, r);
    }
    return WEFT_OK;
}

static void apply(float *params, const float *gradient, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        params[i] -= gradient[i];
    }
}

static weft_status_t push(weft_pair_run_t *run, server_t *s)
{
    for (int n = 1; n < run->size; n++) {
        WEFT_TRY(weft_symm_signal_op(run->symm, s->pushed + run->rank * WEFT_PAIR_LINE, s->steps,
                                     WEFT_SIGNAL_SET, (run->rank + n) % run->size, NULL));
    }
    return WEFT_OK;
}

static weft_status_t serve(weft_pair_run_t *run, server_t *s)
{
    float *mine = s->params + (size_t)run->rank * s->shard;
    void *sums = s->sums;
    WEFT_TRY(weft__pair_await(run, s->pushed, s->steps));
    weft__kernels()->reduce(&sums, 1, s->at, run->size, s->shard, WEFT_F32, WEFT_SUM,
                            WEFT_STORE_CACHED);
    apply(mine, s->sums, s->shard);
    for (int n = 1; n < run->size; n++) {
        WEFT_TRY(weft_symm_put_signal(run->symm, mine, mine, s->shard * sizeof(float),
                                      s->pulled + run->rank * WEFT_PAIR_LINE, s->steps,
                                      WEFT_SIGNAL_SET, (run->rank + n) % run->size, NULL));
    }
    return WEFT_OK;
}

static weft_status_t by_put(weft_pair_run_t *run, int rounds)
{
    server_t *s = run->ctx;
    for (int i = 0; i < rounds; i++) {
        s->steps++;
        WEFT_TRY(push(run, s));
        WEFT_TRY(serve(run, s));
        WEFT_TRY(weft__pair_await(run, s->pulled, s->steps));
    }
    return WEFT_OK;
}

static weft_status_t by_collectives(weft_pair_run_t *run, int rounds)
{
    server_t *s = run->ctx;
    float *mine = s->params + (size_t)run->rank * s->shard;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_reduce_scatter(s->gradient, s->sums, s->shard, WEFT_F32, WEFT_SUM, run->comm,
                                     NULL));
        apply(mine, s->sums, s->shard);
        WEFT_TRY(weft_allgather(mine, s->params, s->shard, WEFT_F32, run->comm, NULL));
    }
    return WEFT_OK;
}

/* Gradients change from step to step; whole numbers, so that their order does not matter. */
static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    server_t *s = run->ctx;
    const weft_pair_loop_fn ways[] = {by_put, by_collectives};
    size_t count = s->shard * (size_t)run->size;
    const uint64_t steps = 4;
    for (int way = 0; way < 2; way++) {
        uint64_t seed = run->seed + (uint64_t)way * 100;
        memset(s->params, 0, run->bytes);
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
        for (uint64_t step = 0; step < steps; step++) {
            weft__pair_fill(s->gradient, seed + step, run->rank, count);
            WEFT_TRY(ways[way](run, 1));
        }
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
        for (size_t i = 0; i < count; i++) {
            float want = 0;
            for (uint64_t step = 0; step < steps * (uint64_t)run->size; step++) {
                want -= weft__pair_value(seed + step / (uint64_t)run->size,
                                         (int)(step % (uint64_t)run->size), i);
            }
            *wrong_p += s->params[i] != want;
        }
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    }
    return weft_memset(s->gradient, 0, run->bytes, NULL);
}

const weft_pair_t weft__pair_server = {
    .target = "param-server",
    .text = "a step: gradients to the servers of their shards, new parameters back to all",
    .group = "one-sided",
    .advise = "sharded update",
    .min = 1 << 10,
    .max = 4 << 20,
    .unit = 4,
    .shards = true,
    .heap = heap_bytes,
    .open = open_server,
    .ways = {{"collectives", by_collectives}, {"one-sided", by_put}},
    .check = check,
};
