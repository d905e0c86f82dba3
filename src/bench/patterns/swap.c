/* Adapter swap: one rank replaces the parameters of all ranks while they read theirs. One-sided
 * nobody has to take part; the baseline is a broadcast, for which every rank stops. */
#include <string.h>

#include "bench/patterns/patterns.h"

typedef struct swap {
    weft_params_h params;
    float *src;    /* of rank 0 */
    float *plain;  /* where broadcast puts them */
    float *target; /* for the floor */
    size_t count;
} swap_t;

static size_t heap_bytes(const weft_pair_run_t *run)
{
    return 2 * run->bytes + (64 << 10);
}

static weft_status_t open_swap(weft_pair_run_t *run)
{
    swap_t *s;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*s), (void **)&s));
    s->count = run->bytes / sizeof(float);
    WEFT_TRY(weft_params_create(run->symm, run->bytes, &s->params));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&s->src));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&s->plain));
    WEFT_TRY(weft_memset(s->src, 1, run->bytes, NULL));
    WEFT_TRY(weft_memset(s->plain, 1, run->bytes, NULL));
    return weft__pair_device(run, run->bytes, (void **)&s->target);
}

static void close_swap(weft_pair_run_t *run)
{
    swap_t *s = run->ctx;
    if (s->params) {
        weft_params_destroy(s->params);
    }
}

static weft_status_t by_swap(weft_pair_run_t *run, int rounds)
{
    swap_t *s = run->ctx;
    for (int i = 0; i < rounds && run->rank == 0; i++) {
        WEFT_TRY(weft_params_swap(s->params, s->src, run->stream));
    }
    return WEFT_OK;
}

static weft_status_t by_broadcast(weft_pair_run_t *run, int rounds)
{
    swap_t *s = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_broadcast(s->src, s->plain, s->count, WEFT_F32, 0, run->comm, run->stream));
    }
    return WEFT_OK;
}

/* As many copies as there are replicas. */
static weft_status_t by_copy(weft_pair_run_t *run, int rounds)
{
    swap_t *s = run->ctx;
    return run->rank == 0 ? weft__pair_copy(run, s->target, s->src, run->bytes, rounds * run->size)
                          : WEFT_OK;
}

static weft_status_t compare(weft_pair_run_t *run, const float *got, uint64_t seed, size_t *wrong_p)
{
    swap_t *s = run->ctx;
    for (size_t i = 0; i < s->count; i++) {
        *wrong_p += got[i] != weft__pair_value(seed, 0, i);
    }
    return weft_barrier(run->comm, NULL);
}

static weft_status_t check_with(weft_pair_run_t *run, float *host, size_t *wrong_p)
{
    swap_t *s = run->ctx;
    uint64_t before = 0, version = 0, *seen = (uint64_t *)(host + s->count + s->count % 2);
    WEFT_TRY(weft_params_version(s->params, &before));
    weft__pair_fill(host, run->seed, 0, s->count);
    WEFT_TRY(weft_memcpy(s->src, host, run->bytes, NULL));
    WEFT_TRY(weft_barrier(run->comm, NULL)); /* all know the version before */
    WEFT_TRY(by_swap(run, 1));
    WEFT_TRY(weft__pair_settle(run));
    WEFT_TRY(weft_barrier(run->comm, NULL));
    memset(host, 0, run->bytes);
    WEFT_TRY(weft_params_read(s->params, run->rank, 0, run->bytes, host, seen, NULL));
    WEFT_TRY(weft_params_version(s->params, &version));
    *wrong_p += version != before + 1 || *seen != version;
    WEFT_TRY(compare(run, host, run->seed, wrong_p));

    weft__pair_fill(host, run->seed + 9, 0, s->count);
    WEFT_TRY(weft_memcpy(s->src, host, run->bytes, NULL));
    WEFT_TRY(by_broadcast(run, 1));
    WEFT_TRY(weft__pair_settle(run));
    WEFT_TRY(weft_memcpy(host, s->plain, run->bytes, NULL));
    return compare(run, host, run->seed + 9, wrong_p);
}

static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    void *host = NULL;
    WEFT_TRY(weft_host_malloc(&host, run->bytes + 16));
    weft_status_t status = check_with(run, host, wrong_p);
    weft_host_free(host);
    return status;
}

const weft_pair_t weft__pair_swap = {
    .target = "swap",
    .text = "rank 0 replaces the parameters of all ranks, which go on reading theirs",
    .group = "one-sided",
    .advise = "broadcast",
    .min = 8 << 10,
    .max = 8 << 20,
    .unit = 4,
    .gpu = true,
    .heap = heap_bytes,
    .open = open_swap,
    .close = close_swap,
    .ways = {{"broadcast", by_broadcast}, {"one-sided", by_swap}},
    .copy = by_copy,
    .check = check,
};
