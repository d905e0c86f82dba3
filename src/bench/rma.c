/* put, get, put-signal, atomic and barrier: the calls of weft/symm.h, one by one. On GPUs they go
 * to a stream, so that what is timed is a stream of them. */
#include <string.h>

#include "bench/rma.h"

#define WINDOW 16 /* puts between two quiets */

typedef struct rma {
    char *dst;   /* symmetric: others write it, or read it */
    char *there; /* that of the next rank, for memcpy; our own where its address is not to be had */
    char *src;   /* of this rank only */
    char *host;  /* where data is made and looked at */
    uint64_t *word, *signal;
    uint64_t ticks; /* signals sent so far */
    uint64_t *old;  /* what a fetching atomic gives */
} rma_t;

static int next_of(const weft_pair_run_t *run)
{
    return (run->rank + 1) % run->size;
}

static int partner_of(const weft_pair_run_t *run)
{
    return (run->rank ^ 1) < run->size ? run->rank ^ 1 : -1;
}

static int before(const weft_pair_run_t *run)
{
    return (run->rank + run->size - 1) % run->size;
}

static size_t heap_bytes(const weft_pair_run_t *run)
{
    return run->bytes + 4096;
}

static weft_status_t open_rma(weft_pair_run_t *run)
{
    rma_t *r;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*r), (void **)&r));
    WEFT_TRY(weft_symm_malloc(run->symm, run->bytes, (void **)&r->dst));
    r->there = run->stream ? NULL : weft_symm_ptr(run->symm, r->dst, next_of(run));
    r->there = r->there ? r->there : r->dst;
    WEFT_TRY(weft_symm_malloc(run->symm, 8, (void **)&r->word));
    WEFT_TRY(weft_symm_malloc(run->symm, 8, (void **)&r->signal));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&r->src));
    WEFT_TRY(weft_memset(r->src, 1, run->bytes, NULL));
    WEFT_TRY(weft__pair_host(run, 8, (void **)&r->old));
    return weft__pair_host(run, run->bytes, (void **)&r->host);
}

/* ---- data ------------------------------------------------------------------------------- */

static unsigned char byte_of(const weft_pair_run_t *run, int rank, size_t i)
{
    return (unsigned char)((run->seed * 31 + (uint64_t)rank * 97 + i * 7 + (i >> 8) * 13) % 251);
}

static weft_status_t fill(const weft_pair_run_t *run, char *to, int rank)
{
    rma_t *r = run->ctx;
    for (size_t i = 0; i < run->bytes; i++) {
        r->host[i] = (char)byte_of(run, rank, i);
    }
    return weft_memcpy(to, r->host, run->bytes, NULL);
}

static weft_status_t compare(const weft_pair_run_t *run, const char *from, int rank,
                             size_t *wrong_p)
{
    rma_t *r = run->ctx;
    WEFT_TRY(weft_memcpy(r->host, from, run->bytes, NULL));
    for (size_t i = 0; i < run->bytes; i++) {
        *wrong_p += (unsigned char)r->host[i] != byte_of(run, rank, i);
    }
    return WEFT_OK;
}

/* ---- put and get ------------------------------------------------------------------------ */

static weft_status_t put(weft_pair_run_t *run, int rounds)
{
    rma_t *r = run->ctx;
    int to = next_of(run);
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_symm_put(run->symm, r->dst, r->src, run->bytes, to, run->stream));
        if (i % WINDOW == WINDOW - 1) {
            WEFT_TRY(weft_symm_quiet(run->symm, run->stream));
        }
    }
    return weft_symm_quiet(run->symm, run->stream);
}

static weft_status_t get(weft_pair_run_t *run, int rounds)
{
    rma_t *r = run->ctx;
    int from = next_of(run);
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_symm_get(run->symm, r->src, r->dst, run->bytes, from, run->stream));
    }
    return WEFT_OK;
}

static weft_status_t copy_out(weft_pair_run_t *run, int rounds)
{
    rma_t *r = run->ctx;
    return weft__pair_copy(run, r->there, r->src, run->bytes, rounds);
}

static weft_status_t copy_in(weft_pair_run_t *run, int rounds)
{
    rma_t *r = run->ctx;
    return weft__pair_copy(run, r->src, r->there, run->bytes, rounds);
}

static weft_status_t check_put(weft_pair_run_t *run, size_t *wrong_p)
{
    rma_t *r = run->ctx;
    WEFT_TRY(fill(run, r->src, run->rank));
    WEFT_TRY(weft_memset(r->dst, 0xA5, run->bytes, NULL));
    WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    WEFT_TRY(put(run, 1));
    WEFT_TRY(weft__pair_settle(run));
    WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    WEFT_TRY(compare(run, r->dst, before(run), wrong_p));
    return weft_symm_barrier(run->symm, NULL);
}

static weft_status_t check_get(weft_pair_run_t *run, size_t *wrong_p)
{
    rma_t *r = run->ctx;
    WEFT_TRY(fill(run, r->dst, run->rank));
    WEFT_TRY(weft_memset(r->src, 0xA5, run->bytes, NULL));
    WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    WEFT_TRY(get(run, 1));
    WEFT_TRY(weft__pair_settle(run));
    WEFT_TRY(compare(run, r->src, next_of(run), wrong_p));
    return weft_symm_barrier(run->symm, NULL);
}

/* clang-format off */
#define COPIES(name, what, loop, copies, looks)                                                    \
    {.target = name, .text = what, .group = "one-sided", .min = 8, .max = 64 << 20,                \
     .gpu = true, .heap = heap_bytes, .open = open_rma,                                            \
     .ways = {{"memcpy", copies}, {"one-sided", loop}}, .check = looks}
/* clang-format on */

const weft_pair_t weft__pair_put = COPIES(
    "put", "every rank writes to the next; every 16 puts are completed", put, copy_out, check_put);
const weft_pair_t weft__pair_get = COPIES("get", "every rank reads from the next", get, copy_in,
                                          check_get);

/* ---- put with signal -------------------------------------------------------------------- */

static weft_status_t ping_pong(weft_pair_run_t *run, int rounds)
{
    rma_t *r = run->ctx;
    int partner = partner_of(run);
    for (int i = 0; partner >= 0 && i < rounds; i++) {
        r->ticks++;
        if (run->rank > partner) {
            WEFT_TRY(
                weft_symm_signal_wait(run->symm, r->signal, WEFT_CMP_GE, r->ticks, run->stream));
        }
        WEFT_TRY(weft_symm_put_signal(run->symm, r->dst, r->src, run->bytes, r->signal, r->ticks,
                                      WEFT_SIGNAL_SET, partner, run->stream));
        if (run->rank < partner) {
            WEFT_TRY(
                weft_symm_signal_wait(run->symm, r->signal, WEFT_CMP_GE, r->ticks, run->stream));
        }
    }
    return WEFT_OK;
}

/* The same by send and receive. */
static weft_status_t messages(weft_pair_run_t *run, int rounds)
{
    rma_t *r = run->ctx;
    int partner = partner_of(run);
    for (int i = 0; partner >= 0 && i < rounds; i++) {
        if (run->rank > partner) {
            WEFT_TRY(weft_recv(r->dst, run->bytes, WEFT_U8, partner, run->comm, run->stream));
        }
        WEFT_TRY(weft_send(r->src, run->bytes, WEFT_U8, partner, run->comm, run->stream));
        if (run->rank < partner) {
            WEFT_TRY(weft_recv(r->dst, run->bytes, WEFT_U8, partner, run->comm, run->stream));
        }
    }
    return WEFT_OK;
}

static weft_status_t open_ping(weft_pair_run_t *run)
{
    run->parts = 2; /* messages of a round trip */
    return open_rma(run);
}

/* Data must be there when its signal is: looked at before any barrier. */
static weft_status_t check_ping(weft_pair_run_t *run, size_t *wrong_p)
{
    rma_t *r = run->ctx;
    const weft_pair_loop_fn ways[] = {ping_pong, messages};
    for (int way = 0; way < 2; way++) {
        WEFT_TRY(fill(run, r->src, run->rank));
        WEFT_TRY(weft_memset(r->dst, 0xA5, run->bytes, NULL));
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
        WEFT_TRY(ways[way](run, 1));
        WEFT_TRY(weft__pair_settle(run));
        if (partner_of(run) >= 0) {
            WEFT_TRY(compare(run, r->dst, partner_of(run), wrong_p));
        }
        run->seed++;
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    }
    return WEFT_OK;
}

const weft_pair_t weft__pair_put_signal = {
    .target = "put-signal",
    .text = "data and a signal from rank 2k to 2k+1 and back; one way",
    .group = "one-sided",
    .advise = "message",
    .min = 8,
    .max = 1 << 20,
    .ranks = 2,
    .gpu = true,
    .heap = heap_bytes,
    .open = open_ping,
    .ways = {{"send/recv", messages}, {"one-sided", ping_pong}},
    .check = check_ping,
};

/* ---- atomics ---------------------------------------------------------------------------- */

static weft_status_t fetch_add(weft_pair_run_t *run, int rounds)
{
    rma_t *r = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(
            weft_symm_atomic_fetch_add(run->symm, r->word, 1, r->old, next_of(run), run->stream));
    }
    return WEFT_OK;
}

static weft_status_t add(weft_pair_run_t *run, int rounds)
{
    rma_t *r = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_symm_atomic_add(run->symm, r->word, 1, next_of(run), run->stream));
    }
    return WEFT_OK;
}

static weft_status_t swap_if(weft_pair_run_t *run, int rounds)
{
    rma_t *r = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_symm_atomic_cswap(run->symm, r->word, *r->old, *r->old + 1, r->old,
                                        next_of(run), run->stream));
    }
    return WEFT_OK;
}

static weft_status_t fetch_add_one_word(weft_pair_run_t *run, int rounds)
{
    rma_t *r = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_symm_atomic_fetch_add(run->symm, r->word, 1, r->old, 0, run->stream));
    }
    return WEFT_OK;
}

/* All ranks count on one word: no addition may be lost. */
static weft_status_t check_atomic(weft_pair_run_t *run, size_t *wrong_p)
{
    rma_t *r = run->ctx;
    uint64_t sum = 0;
    const int rounds = 100;
    WEFT_TRY(weft_symm_atomic_set(run->symm, r->word, run->seed, run->rank, NULL));
    WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    WEFT_TRY(fetch_add_one_word(run, rounds));
    WEFT_TRY(weft__pair_settle(run));
    WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    WEFT_TRY(weft_symm_atomic_fetch(run->symm, r->word, &sum, 0, NULL));
    *wrong_p += sum != run->seed + (uint64_t)(rounds * run->size);
    *r->old = run->seed;
    return weft_symm_barrier(run->symm, NULL);
}

#define ATOMIC(function, label, what)                                                              \
    {                                                                                              \
        .target = "atomic", .name = label, .group = "one-sided", .text = what, .gpu = true,        \
        .heap = heap_bytes, .open = open_rma, .ways = {{"one-sided", function}},                   \
        .check = check_atomic                                                                      \
    }

const weft_pair_t weft__pair_fetch_add = ATOMIC(fetch_add, "fetch-add", "at the next rank");
const weft_pair_t weft__pair_add = ATOMIC(add, "add", "at the next rank, without its old value");
const weft_pair_t weft__pair_cswap = ATOMIC(swap_if, "compare-swap", "at the next rank");
const weft_pair_t weft__pair_one_word = ATOMIC(fetch_add_one_word, "fetch-add on one word",
                                               "all ranks at once, at rank 0");

/* ---- barrier ---------------------------------------------------------------------------- */

static weft_status_t symm_barrier(weft_pair_run_t *run, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_symm_barrier(run->symm, run->stream));
    }
    return WEFT_OK;
}

/* Nobody passes before everybody has come: what was put before a barrier is there after it. */
static weft_status_t check_barrier(weft_pair_run_t *run, size_t *wrong_p)
{
    rma_t *r = run->ctx;
    for (uint64_t round = run->seed; round < run->seed + 20; round++) {
        uint64_t got = 0;
        WEFT_TRY(weft_symm_put(run->symm, r->word, &round, 8, next_of(run), NULL));
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
        WEFT_TRY(weft_symm_get(run->symm, &got, r->word, 8, run->rank, NULL));
        *wrong_p += got != round;
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    }
    return WEFT_OK;
}

const weft_pair_t weft__pair_barrier = {
    .target = "symm-barrier",
    .group = "one-sided",
    .text = "puts of all ranks complete, then all ranks meet",
    .gpu = true,
    .heap = heap_bytes,
    .open = open_rma,
    .ways = {{"one-sided", symm_barrier}},
    .check = check_barrier,
};
