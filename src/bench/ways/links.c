/* Links: the same bytes by another road.
 *
 *   peer         to the next rank through the memory of the host, or straight into its device's
 *   places       to the neighbour in a ring that knows nothing of the machine, or follows it
 *   cold-state   state that is seldom needed: on this device, on another one, or on the host */
#include <stdlib.h>
#include <string.h>

#include "bench/ways/ways.h"
#include "parallel/places.h"

typedef struct links {
    float *src, *dst;             /* of the device */
    float *out, *in;              /* of the host: what travels */
    float *host;                  /* ... and where data is made and looked at */
    int next[2], before[2];       /* by way */
    char *local, *peer, *on_host; /* SLOTS times run->bytes each; peer: symmetric */
    int slot;
} links_t;

#define SLOTS 8 /* states that are asked for in turn: the last one asked for is long gone */

static weft_status_t open_links(weft_pair_run_t *run)
{
    links_t *l;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*l), (void **)&l));
    for (int way = 0; way < 2; way++) {
        l->next[way] = (run->rank + 1) % run->size;
        l->before[way] = (run->rank + run->size - 1) % run->size;
    }
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&l->src));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&l->dst));
    WEFT_TRY(weft__pair_host(run, run->bytes, (void **)&l->out));
    WEFT_TRY(weft__pair_host(run, run->bytes, (void **)&l->in));
    WEFT_TRY(weft__pair_host(run, run->bytes, (void **)&l->host));
    return weft_memset(l->src, 0, run->bytes, NULL);
}

/* From `src` to the next rank, into `dst` from the one before. */
static weft_status_t shift(const weft_pair_run_t *run, const void *src, void *dst, int next,
                           int before)
{
    size_t count = run->bytes / sizeof(float);
    WEFT_TRY(weft_group_start());
    weft_send(src, count, WEFT_F32, next, run->comm, run->stream);
    weft_recv(dst, count, WEFT_F32, before, run->comm, run->stream);
    return weft_group_end();
}

/* ---- through the host, or not ----------------------------------------------------------- */

static weft_status_t through_host(weft_pair_run_t *run, int rounds)
{
    const links_t *l = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_memcpy(l->out, l->src, run->bytes, run->stream));
        WEFT_TRY(shift(run, l->out, l->in, l->next[0], l->before[0]));
        WEFT_TRY(weft_memcpy(l->dst, l->in, run->bytes, run->stream));
    }
    return WEFT_OK;
}

static weft_status_t peer_memory(weft_pair_run_t *run, int rounds)
{
    const links_t *l = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(shift(run, l->src, l->dst, l->next[1], l->before[1]));
    }
    return WEFT_OK;
}

static weft_status_t check_shift(weft_pair_run_t *run, size_t *wrong_p)
{
    links_t *l = run->ctx;
    for (int way = 0; way < 2; way++) {
        WEFT_TRY(weft__ways_fill(run, l->src, l->host, ++run->seed));
        WEFT_TRY(weft_memset(l->dst, 0xFF, run->bytes, NULL));
        WEFT_TRY(weft_barrier(run->comm, NULL));
        WEFT_TRY(run->pair->ways[way].loop(run, 1));
        WEFT_TRY(weft__ways_compare(run, l->dst, l->host, run->seed, l->before[way], wrong_p));
    }
    return WEFT_OK;
}

const weft_pair_t weft__pair_peer = {
    .target = "peer",
    .group = "links",
    .text = "every rank sends to the next, from the memory of its device to that of the other",
    .ways = {{"through host", through_host}, {"peer memory", peer_memory}},
    .min = 4 << 10,
    .max = 16 << 20,
    .unit = 4,
    .ranks = 2,
    .gpu = true,
    .open = open_links,
    .check = check_shift,
};

/* ---- places ----------------------------------------------------------------------------- */

/* Where this rank is in the ring `order`. */
static void find_neighbours(const weft_pair_run_t *run, const int *order, int *next_p,
                            int *before_p)
{
    for (int i = 0; i < run->size; i++) {
        if (order[i] == run->rank) {
            *next_p = order[(i + 1) % run->size];
            *before_p = order[(i + run->size - 1) % run->size];
        }
    }
}

/* Blind: ranks of one half of the machine and of the other in turn, so that every message crosses
 * it. By topology: a chain that goes to the nearest rank that is left. */
static weft_status_t open_places(weft_pair_run_t *run)
{
    const weft_plan_t chain = {.dp = 1, .pp = run->size, .tp = 1};
    WEFT_TRY(open_links(run));
    links_t *l = run->ctx;
    void *memory;
    size_t size = (size_t)run->size;
    WEFT_TRY(weft__pair_private(run, 2 * size * sizeof(int) + size * size, &memory));
    int *order = memory, *blind = order + size;
    uint8_t *near = (uint8_t *)(blind + size);
    WEFT_TRY(weft__places_find(run->comm, run->size, order, near));
    for (int i = 0; i < run->size; i++) {
        blind[i] = order[i % 2 == 0 ? i / 2 : (run->size + 1) / 2 + i / 2];
    }
    WEFT_TRY(weft__places_arrange(&chain, run->size, near, order));
    find_neighbours(run, blind, &l->next[0], &l->before[0]);
    find_neighbours(run, order, &l->next[1], &l->before[1]);
    return WEFT_OK;
}

static weft_status_t blindly(weft_pair_run_t *run, int rounds)
{
    const links_t *l = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(shift(run, l->src, l->dst, l->next[0], l->before[0]));
    }
    return WEFT_OK;
}

const weft_pair_t weft__pair_places = {
    .target = "places",
    .group = "links",
    .text = "every rank sends to the next in a ring",
    .ways = {{"blindly", blindly}, {"by topology", peer_memory}},
    .min = 4 << 10,
    .max = 16 << 20,
    .unit = 4,
    .ranks = 2,
    .gpu = true,
    .open = open_places,
    .check = check_shift,
};

/* ---- cold state ------------------------------------------------------------------------- */

static size_t heap_bytes(const weft_pair_run_t *run)
{
    return SLOTS * run->bytes + 4096;
}

static weft_status_t open_cold(weft_pair_run_t *run)
{
    WEFT_TRY(open_links(run));
    links_t *l = run->ctx;
    WEFT_TRY(weft_symm_malloc(run->symm, SLOTS * run->bytes, (void **)&l->peer));
    WEFT_TRY(weft__pair_device(run, SLOTS * run->bytes, (void **)&l->local));
    WEFT_TRY(weft__pair_host(run, SLOTS * run->bytes, (void **)&l->on_host));
    WEFT_TRY(weft_memset(l->peer, 0, SLOTS * run->bytes, NULL));
    WEFT_TRY(weft_memset(l->local, 0, SLOTS * run->bytes, NULL));
    memset(l->on_host, 0, SLOTS * run->bytes);
    return weft_symm_barrier(run->symm, NULL);
}

static size_t next_slot(links_t *l, size_t bytes)
{
    l->slot = (l->slot + 1) % SLOTS;
    return (size_t)l->slot * bytes;
}

static weft_status_t from_local(weft_pair_run_t *run, int rounds)
{
    links_t *l = run->ctx;
    for (int i = 0; i < rounds; i++) {
        size_t at = next_slot(l, run->bytes);
        WEFT_TRY(weft_memcpy(l->dst, l->local + at, run->bytes, run->stream));
    }
    return WEFT_OK;
}

static weft_status_t from_peer(weft_pair_run_t *run, int rounds)
{
    links_t *l = run->ctx;
    for (int i = 0; i < rounds; i++) {
        size_t at = next_slot(l, run->bytes);
        WEFT_TRY(
            weft_symm_get(run->symm, l->dst, l->peer + at, run->bytes, l->next[0], run->stream));
    }
    return WEFT_OK;
}

static weft_status_t from_host(weft_pair_run_t *run, int rounds)
{
    links_t *l = run->ctx;
    for (int i = 0; i < rounds; i++) {
        size_t at = next_slot(l, run->bytes);
        WEFT_TRY(weft_memcpy(l->dst, l->on_host + at, run->bytes, run->stream));
    }
    return WEFT_OK;
}

static weft_status_t check_cold(weft_pair_run_t *run, size_t *wrong_p)
{
    links_t *l = run->ctx;
    char *const places[] = {l->local, l->peer, l->on_host};
    const int owners[] = {run->rank, l->next[0], run->rank};
    for (int way = 0; way < 3; way++) {
        uint64_t first = run->seed + 1;
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
        for (int slot = 0; slot < SLOTS; slot++) {
            WEFT_TRY(weft__ways_fill(run, places[way] + (size_t)slot * run->bytes, l->host,
                                     first + (uint64_t)slot));
        }
        run->seed += SLOTS;
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
        WEFT_TRY(weft_memset(l->dst, 0xFF, run->bytes, NULL));
        WEFT_TRY(run->pair->ways[way].loop(run, 3));
        WEFT_TRY(weft__ways_compare(run, l->dst, l->host, first + (uint64_t)l->slot, owners[way],
                                    wrong_p));
    }
    return weft_symm_barrier(run->symm, NULL);
}

const weft_pair_t weft__pair_cold_state = {
    .target = "cold-state",
    .group = "links",
    .text = "state that is seldom needed comes to where it is used; 8 of them in turn",
    .ways = {{"local", from_local}, {"peer", from_peer}, {"host", from_host}},
    .min = 4 << 10,
    .max = 16 << 20,
    .unit = 4,
    .gpu = true,
    .heap = heap_bytes,
    .open = open_cold,
    .check = check_cold,
};
