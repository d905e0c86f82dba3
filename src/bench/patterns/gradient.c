/* Small-gradient sync: the sum of every rank's gradient on every rank, by direct access to
 * symmetric memory. Two ways, both one-sided:
 *
 *   one-shot   a rank lays its gradient out, tells all others, and adds up what they laid out. One
 *              trip of a signal; every rank reads everything, so it is for few bytes.
 *   slices     rank p adds slice p of everybody's gradient and stores the sum into everybody's
 *              result. Two trips, but each rank reads and writes only as much as a gradient has.
 *
 * A rank has two flags in its own memory, which it raises and the others poll: one store, however
 * many they are, as inside our all-reduce. They say how many calls it has laid out, and how many it
 * has done with; each has lines of its own, as those who still look for the one would get in the
 * way of the other (8 ranks: 2.2 us with one line, 0.9 with two). Why nothing else is needed: a
 * rank that has seen all flags of call k knows that everybody has finished call k-1, so what was
 * laid out for k-1 may be laid out anew for k+1 (one-shot has two places in turn), and slices of
 * k-1 are no longer read. */
#include <stdatomic.h>
#include <string.h>

#include "bench/patterns/patterns.h"
#include "comm/reach.h"
#include "kernel/kernel.h"

typedef struct gradient {
    float *src, *dst;      /* symmetric */
    float *slot[2];        /* symmetric: laid out for others (one-shot) */
    uint64_t *laid, *done; /* symmetric, a pair of lines each */
    uint64_t calls;        /* so far */
    size_t count;          /* elements */
    char **at;             /* of each rank: where our own `src` lies there */
    const void **srcs;     /* room for lists of sources and destinations */
    void **dsts;
} gradient_t;

static size_t heap_bytes(const weft_pair_run_t *run)
{
    return 4 * run->bytes + 4096;
}

static weft_status_t open_gradient(weft_pair_run_t *run)
{
    gradient_t *g;
    size_t ranks = (size_t)run->size;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*g), (void **)&g));
    g->count = run->bytes / sizeof(float);
    WEFT_TRY(weft_symm_malloc(run->symm, run->bytes, (void **)&g->src));
    WEFT_TRY(weft_symm_malloc(run->symm, run->bytes, (void **)&g->dst));
    WEFT_TRY(weft_symm_malloc(run->symm, run->bytes, (void **)&g->slot[0]));
    WEFT_TRY(weft_symm_malloc(run->symm, run->bytes, (void **)&g->slot[1]));
    WEFT_TRY(weft_symm_malloc(run->symm, 2 * WEFT_PAIR_LINE * 8, (void **)&g->laid));
    WEFT_TRY(weft_symm_malloc(run->symm, 2 * WEFT_PAIR_LINE * 8, (void **)&g->done));
    WEFT_TRY(weft__pair_private(run, ranks * sizeof(void *), (void **)&g->at));
    WEFT_TRY(weft__pair_private(run, ranks * sizeof(void *), (void **)&g->srcs));
    WEFT_TRY(weft__pair_private(run, ranks * sizeof(void *), (void **)&g->dsts));
    for (int r = 0; r < run->size; r++) {
        g->at[r] = weft_symm_ptr(run->symm, g->src, r);
    }
    return WEFT_OK;
}

/* Our symmetric address `own`, on `rank`. */
static void *on(const gradient_t *g, const void *own, int rank)
{
    return g->at[rank] + ((const char *)own - (const char *)g->src);
}

/* Raise a flag of ours; pairs with await of the others. */
static void raise_flag(const gradient_t *g, uint64_t *flag)
{
    atomic_store_explicit((_Atomic uint64_t *)flag, g->calls, memory_order_release);
}

typedef struct awaited {
    const _Atomic uint64_t *flag;
    uint64_t calls;
} awaited_t;

static bool has_reached(const void *arg)
{
    const awaited_t *awaited = arg;
    return atomic_load_explicit(awaited->flag, memory_order_acquire) >= awaited->calls;
}

/* Until `rank` has raised its own. The call is left out where it has already. */
static weft_status_t await(const weft_pair_run_t *run, const gradient_t *g, const uint64_t *flag,
                           int rank)
{
    const awaited_t awaited = {on(g, flag, rank), g->calls};
    if (has_reached(&awaited)) {
        return WEFT_OK;
    }
    const weft_reach_wait_t wait = {
        .ready = has_reached, .arg = &awaited, .what = "a gradient of another rank"};
    return weft__reach_await(run->comm, &wait);
}

/* Others in an order that starts behind us, so that ranks do not all turn to the same one. */
static int other(const weft_pair_run_t *run, int i)
{
    int rank = run->rank + i;
    return rank < run->size ? rank : rank - run->size;
}

static weft_status_t one_shot(weft_pair_run_t *run, int rounds)
{
    gradient_t *g = run->ctx;
    const weft_kernels_t *kernels = weft__kernels();
    void *dst = g->dst;
    for (int i = 0; i < rounds; i++) {
        float *slot = g->slot[++g->calls % 2];
        memcpy(slot, g->src, run->bytes);
        raise_flag(g, g->laid);
        for (int n = 1; n < run->size; n++) {
            WEFT_TRY(await(run, g, g->laid, other(run, n)));
        }
        for (int r = 0; r < run->size; r++) {
            g->srcs[r] = on(g, slot, r);
        }
        kernels->reduce(&dst, 1, g->srcs, run->size, g->count, WEFT_F32, WEFT_SUM,
                        WEFT_STORE_CACHED);
    }
    return WEFT_OK;
}

/* Slices begin at pairs of cache lines, as prefetchers fetch them. *owners_p: the ranks below have
 * one. */
static void slice_of(const gradient_t *g, int rank, int ranks, size_t *first_p, size_t *count_p,
                     int *owners_p)
{
    size_t each = ((g->count + (size_t)ranks - 1) / (size_t)ranks + 31) / 32 * 32;
    *first_p = each * (size_t)rank < g->count ? each * (size_t)rank : g->count;
    *count_p = g->count - *first_p < each ? g->count - *first_p : each;
    *owners_p = (int)((g->count + each - 1) / each);
}

static weft_status_t slices(weft_pair_run_t *run, int rounds)
{
    gradient_t *g = run->ctx;
    const weft_kernels_t *kernels = weft__kernels();
    size_t first, count;
    int owners;
    slice_of(g, run->rank, run->size, &first, &count, &owners);
    for (int r = 0; r < run->size; r++) {
        g->srcs[r] = on(g, g->src + first, other(run, r));
        g->dsts[r] = on(g, g->dst + first, other(run, r));
    }
    for (int i = 0; i < rounds; i++) {
        g->calls++;
        raise_flag(g, g->laid);
        for (int n = 1; n < run->size && count > 0; n++) {
            WEFT_TRY(await(run, g, g->laid, other(run, n)));
        }
        if (count > 0) {
            kernels->reduce(g->dsts, run->size, g->srcs, run->size, count, WEFT_F32, WEFT_SUM,
                            WEFT_STORE_CACHED);
        }
        raise_flag(g, g->done);
        for (int n = 1; n < run->size; n++) {
            if (other(run, n) < owners) {
                WEFT_TRY(await(run, g, g->done, other(run, n)));
            }
        }
    }
    return WEFT_OK;
}

static weft_status_t by_allreduce(weft_pair_run_t *run, int rounds)
{
    gradient_t *g = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_allreduce(g->src, g->dst, g->count, WEFT_F32, WEFT_SUM, run->comm, NULL));
    }
    return WEFT_OK;
}

/* Gradients change from call to call without a barrier in between: late readers would show. */
static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    gradient_t *g = run->ctx;
    for (uint64_t call = 0; call < 10; call++) {
        uint64_t seed = run->seed + call * 1000;
        weft__pair_fill(g->src, seed, run->rank, g->count);
        WEFT_TRY(call % 5 < 4 ? run->pair->ways[1].loop(run, 1) : run->pair->ways[0].loop(run, 1));
        for (size_t i = 0; i < g->count; i++) {
            float want = 0;
            for (int r = 0; r < run->size; r++) {
                want += weft__pair_value(seed, r, i);
            }
            *wrong_p += g->dst[i] != want;
        }
    }
    return weft_symm_barrier(run->symm, NULL);
}

/* clang-format off */
#define GRADIENT(label, what, most, loop)                                                          \
    {.target = "gradient-sync", .name = label, .text = what, .group = "one-sided",                 \
     .advise = "all-reduce", .min = 64, .max = most, .unit = 4, .heap = heap_bytes,                \
     .open = open_gradient,                                                                        \
     .ways = {{"all-reduce", by_allreduce}, {"one-sided", loop}}, .check = check}
/* clang-format on */

const weft_pair_t weft__pair_gradient = GRADIENT(
    "one-shot", "sum of a small gradient over all ranks, on all ranks", 16 << 10, one_shot);
const weft_pair_t weft__pair_gradient_slices = GRADIENT(
    "slices", "sum of a gradient over all ranks, each adding up a slice of it", 1 << 20, slices);
