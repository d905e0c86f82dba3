/* KV sharing: every rank has blocks of keys and values that others may need, found by the hash of a
 * prefix. One-sided, whoever needs a block finds where it is in a hash map that all ranks share,
 * and reads it. Two-sided nobody knows who has it: ranks exchange what they want, agree on who has
 * it, and send. */
#include <string.h>

#include "base/rng.h"
#include "bench/patterns/patterns.h"

#define BLOCKS 16 /* of each rank */

typedef struct kv {
    weft_map_h map; /* key -> location_t */
    float *pool;    /* symmetric: this rank's blocks */
    float *got;
    size_t count;
    uint64_t asked;
    uint64_t *wants; /* two-sided, of all ranks: the key each wants */
    uint64_t *owners;
} kv_t;

typedef struct location {
    uint32_t rank, block;
} location_t;

static size_t heap_bytes(const weft_pair_run_t *run)
{
    return BLOCKS * run->bytes + ((size_t)run->size * BLOCKS * 512) + (256 << 10);
}

/* Stands for the hash of a prefix. */
static uint64_t key_of(int rank, uint32_t block)
{
    return weft__rng_at(4711, (uint64_t)rank * BLOCKS + block);
}

static weft_status_t open_kv(weft_pair_run_t *run)
{
    kv_t *k;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*k), (void **)&k));
    k->count = run->bytes / sizeof(float);
    WEFT_TRY(weft_symm_malloc(run->symm, BLOCKS * run->bytes, (void **)&k->pool));
    WEFT_TRY(weft_map_create(run->symm, (size_t)run->size * BLOCKS, sizeof(location_t), &k->map));
    WEFT_TRY(weft__pair_private(run, (size_t)run->size * 8, (void **)&k->wants));
    WEFT_TRY(weft__pair_private(run, (size_t)run->size * 8, (void **)&k->owners));
    WEFT_TRY(weft__pair_private(run, run->bytes, (void **)&k->got));
    for (uint32_t b = 0; b < BLOCKS; b++) {
        location_t location = {(uint32_t)run->rank, b};
        WEFT_TRY(weft_map_insert(k->map, key_of(run->rank, b), &location));
    }
    return weft_symm_barrier(run->symm, NULL);
}

static void close_kv(weft_pair_run_t *run)
{
    kv_t *k = run->ctx;
    if (k->map) {
        weft_map_destroy(k->map);
    }
}

/* Whose block this rank needs next, and which. */
static location_t pick(const weft_pair_run_t *run, const kv_t *k)
{
    uint64_t random = weft__rng_at(run->seed + (uint64_t)run->rank, k->asked);
    return (location_t){(uint32_t)(random % (uint64_t)run->size),
                        (uint32_t)(random >> 32) % BLOCKS};
}

static weft_status_t by_get(weft_pair_run_t *run, int rounds)
{
    kv_t *k = run->ctx;
    for (int i = 0; i < rounds; i++) {
        location_t want = pick(run, k), location;
        k->asked++;
        WEFT_TRY(weft_map_find(k->map, key_of((int)want.rank, want.block), &location));
        WEFT_TRY(weft_symm_get(run->symm, k->got, k->pool + location.block * k->count, run->bytes,
                               (int)location.rank, NULL));
    }
    return WEFT_OK;
}

/* This rank's block under `key`, or -1. */
static int find_own(int rank, uint64_t key)
{
    for (uint32_t b = 0; b < BLOCKS; b++) {
        if (key_of(rank, b) == key) {
            return (int)b;
        }
    }
    return -1;
}

static weft_status_t exchange(weft_pair_run_t *run, kv_t *k)
{
    for (int r = 0; r < run->size; r++) {
        k->owners[r] = find_own(run->rank, k->wants[r]) >= 0 ? (uint64_t)run->rank + 1 : 0;
    }
    WEFT_TRY(weft_allreduce(k->owners, k->owners, (size_t)run->size, WEFT_U64, WEFT_MAX, run->comm,
                            NULL));
    WEFT_TRY(weft_group_start());
    for (int r = 0; r < run->size; r++) {
        int block = find_own(run->rank, k->wants[r]);
        if (block >= 0) {
            weft_send(k->pool + (size_t)block * k->count, k->count, WEFT_F32, r, run->comm, NULL);
        }
    }
    weft_recv(k->got, k->count, WEFT_F32, (int)k->owners[run->rank] - 1, run->comm, NULL);
    return weft_group_end();
}

static weft_status_t by_messages(weft_pair_run_t *run, int rounds)
{
    kv_t *k = run->ctx;
    for (int i = 0; i < rounds; i++) {
        location_t want = pick(run, k);
        uint64_t key = key_of((int)want.rank, want.block);
        k->asked++;
        WEFT_TRY(weft_allgather(&key, k->wants, 1, WEFT_U64, run->comm, NULL));
        WEFT_TRY(exchange(run, k));
    }
    return WEFT_OK;
}

static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    kv_t *k = run->ctx;
    const weft_pair_loop_fn ways[] = {by_get, by_messages};
    for (uint32_t b = 0; b < BLOCKS; b++) {
        weft__pair_fill(k->pool + b * k->count, run->seed + b, run->rank, k->count);
    }
    WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    for (int i = 0; i < 20; i++) {
        location_t want = pick(run, k);
        memset(k->got, 0xFF, run->bytes);
        WEFT_TRY(ways[i % 2](run, 1));
        for (size_t j = 0; j < k->count; j++) {
            *wrong_p += k->got[j] != weft__pair_value(run->seed + want.block, (int)want.rank, j);
        }
    }
    return weft_symm_barrier(run->symm, NULL);
}

const weft_pair_t weft__pair_kv = {
    .target = "kv",
    .text = "each rank needs a block of keys and values that some rank has, known by a hash",
    .group = "one-sided",
    .min = 4 << 10,
    .max = 1 << 20,
    .unit = 4,
    .heap = heap_bytes,
    .open = open_kv,
    .close = close_kv,
    .ways = {{"agree and send", by_messages}, {"one-sided", by_get}},
    .check = check,
};
