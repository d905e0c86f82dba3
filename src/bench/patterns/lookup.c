/* Parameter lookup: a table of rows (embeddings, experts' weights) is spread over the ranks, and
 * each rank needs rows that nobody can foresee. One-sided, it reads them. Two-sided, the owners
 * must be told: all ranks exchange what they want, then those who have it send it. On GPUs a kernel
 * reads them. */
#include <string.h>

#include "bench/patterns/gpu.h"
#include "bench/patterns/patterns.h"

#define ROWS 256

typedef struct lookup {
    weft_dtensor_h table;
    float *got, *source; /* of the device */
    float *host;         /* where rows are made and looked at */
    weft_symm_view_t view;
    weft_dtensor_view_t rows;
    size_t count;    /* elements of a row */
    uint64_t asked;  /* lookups so far */
    uint64_t *wants; /* of all ranks: the row each wants */
} lookup_t;

static size_t heap_bytes(const weft_pair_run_t *run)
{
    return ((size_t)ROWS / (size_t)run->size + 1) * run->bytes + 16384;
}

static weft_status_t open_lookup(weft_pair_run_t *run)
{
    lookup_t *l;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*l), (void **)&l));
    l->count = run->bytes / sizeof(float);
    WEFT_TRY(weft_dtensor_create(run->symm, ROWS, run->bytes, NULL, &l->table));
    WEFT_TRY(weft__pair_private(run, (size_t)run->size * 8, (void **)&l->wants));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&l->source));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&l->got));
    WEFT_TRY(weft_memset(l->source, 1, run->bytes, NULL));
    WEFT_TRY(weft__pair_host(run, run->bytes, (void **)&l->host));
    if (run->stream) {
        WEFT_TRY(weft_symm_view(run->symm, &l->view));
        WEFT_TRY(weft_dtensor_view(l->table, &l->rows));
        WEFT_TRY(weft__bench_load(run->comm));
    }
    return weft_symm_barrier(run->symm, NULL);
}

static void close_lookup(weft_pair_run_t *run)
{
    lookup_t *l = run->ctx;
    if (l->table) {
        weft_dtensor_destroy(l->table);
    }
}

/* The row that this rank wants next. */
static uint64_t wanted(const weft_pair_run_t *run, const lookup_t *l)
{
    return weft__bench_row(run->seed + (uint64_t)run->rank * 7919, l->asked, ROWS);
}

static weft_status_t by_kernel(weft_pair_run_t *run, lookup_t *l, int rounds)
{
    const weft_bench_lookup_t lookup = {.table = l->rows,
                                        .rows = ROWS,
                                        .seed = run->seed + (uint64_t)run->rank * 7919,
                                        .asked = l->asked,
                                        .rounds = rounds,
                                        .got = (char *)l->got};
    l->asked += (uint64_t)rounds;
    return weft__cuda_status(weft__bench_kernels()->lookup(weft__bench_gpu(run->comm), &l->view,
                                                           &lookup, weft__cuda_stream(run->stream)),
                             "the kernel of a lookup");
}

static weft_status_t by_get(weft_pair_run_t *run, int rounds)
{
    lookup_t *l = run->ctx;
    if (run->stream) {
        return by_kernel(run, l, rounds);
    }
    for (int i = 0; i < rounds; i++) {
        uint64_t row = wanted(run, l);
        l->asked++;
        WEFT_TRY(weft_dtensor_get(l->table, row, 1, l->got, NULL));
    }
    return WEFT_OK;
}

static weft_status_t answer(weft_pair_run_t *run, lookup_t *l)
{
    char *mine;
    size_t first, rows;
    int owner;
    WEFT_TRY(weft_dtensor_local(l->table, (void **)&mine, &first, &rows));
    WEFT_TRY(weft_dtensor_owner(l->table, l->wants[run->rank], &owner));
    WEFT_TRY(weft_group_start());
    for (int r = 0; r < run->size; r++) {
        if (l->wants[r] >= first && l->wants[r] < first + rows) {
            char *row = mine + (l->wants[r] - first) * run->bytes;
            weft_send(row, l->count, WEFT_F32, r, run->comm, NULL);
        }
    }
    weft_recv(l->got, l->count, WEFT_F32, owner, run->comm, NULL);
    return weft_group_end();
}

static weft_status_t by_messages(weft_pair_run_t *run, int rounds)
{
    lookup_t *l = run->ctx;
    for (int i = 0; i < rounds; i++) {
        uint64_t want = wanted(run, l);
        l->asked++;
        WEFT_TRY(weft_allgather(&want, l->wants, 1, WEFT_U64, run->comm, NULL));
        WEFT_TRY(answer(run, l));
    }
    return WEFT_OK;
}

static weft_status_t by_copy(weft_pair_run_t *run, int rounds)
{
    lookup_t *l = run->ctx;
    return weft__pair_copy(run, l->got, l->source, run->bytes, rounds);
}

/* Rows of this rank, made anew. */
static weft_status_t fill(weft_pair_run_t *run, lookup_t *l)
{
    float *mine;
    size_t first, rows;
    WEFT_TRY(weft_dtensor_local(l->table, (void **)&mine, &first, &rows));
    for (size_t row = 0; row < rows; row++) {
        weft__pair_fill(l->host, run->seed, (int)(first + row), l->count);
        WEFT_TRY(weft_memcpy(mine + row * l->count, l->host, run->bytes, NULL));
    }
    return weft_symm_barrier(run->symm, NULL);
}

static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    lookup_t *l = run->ctx;
    const weft_pair_loop_fn ways[] = {by_get, by_messages};
    WEFT_TRY(fill(run, l));
    for (int i = 0; i < 20; i++) {
        uint64_t row = wanted(run, l);
        WEFT_TRY(weft_memset(l->got, 0xFF, run->bytes, NULL));
        WEFT_TRY(ways[i % 2](run, 1));
        WEFT_TRY(weft__pair_settle(run));
        WEFT_TRY(weft_memcpy(l->host, l->got, run->bytes, NULL));
        for (size_t j = 0; j < l->count; j++) {
            *wrong_p += l->host[j] != weft__pair_value(run->seed, (int)row, j);
        }
    }
    return weft_symm_barrier(run->symm, NULL);
}

const weft_pair_t weft__pair_lookup = {
    .target = "lookup",
    .text = "each rank needs a row of so many bytes of a table that is spread over the ranks",
    .group = "one-sided",
    .advise = "lookup",
    .min = 64,
    .max = 64 << 10,
    .unit = 4,
    .gpu = true,
    .heap = heap_bytes,
    .open = open_lookup,
    .close = close_lookup,
    .ways = {{"ask and send", by_messages}, {"one-sided", by_get}},
    .copy = by_copy,
    .check = check,
};
