/* A lock made of symmetric atomics: a queue in which every rank waits on a word of its own
 * (Mellor-Crummey and Scott). The tail is on rank 0; 0 there means free, else 1 + the last rank
 * that wants it. */
#include "bench/rma.h"

typedef struct lock {
    uint64_t *tail;    /* on rank 0 */
    uint64_t *next;    /* here: 1 + the rank behind us */
    uint64_t *granted; /* here: how often the lock was handed to us */
    uint64_t grants;   /* how often it was, so far */
    uint64_t *shared;  /* on rank 0: what the lock protects */
} lock_t;

static size_t heap_bytes(const weft_pair_run_t *run)
{
    (void)run;
    return 4096;
}

static weft_status_t open_lock(weft_pair_run_t *run)
{
    lock_t *l;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*l), (void **)&l));
    WEFT_TRY(weft_symm_malloc(run->symm, 8, (void **)&l->tail));
    WEFT_TRY(weft_symm_malloc(run->symm, 8, (void **)&l->next));
    WEFT_TRY(weft_symm_malloc(run->symm, 8, (void **)&l->granted));
    return weft_symm_malloc(run->symm, 8, (void **)&l->shared);
}

static weft_status_t open_lock_all(weft_pair_run_t *run)
{
    run->parts = run->size; /* owners follow each other: each rank is one of them in a round */
    return open_lock(run);
}

static weft_status_t take(weft_pair_run_t *run, lock_t *l)
{
    uint64_t before = 0, me = (uint64_t)run->rank + 1;
    weft_symm_h symm = run->symm;
    WEFT_TRY(weft_symm_atomic_set(symm, l->next, 0, run->rank, NULL));
    WEFT_TRY(weft_symm_atomic_swap(symm, l->tail, me, &before, 0, NULL));
    if (before == 0) {
        return WEFT_OK;
    }
    l->grants++;
    WEFT_TRY(weft_symm_atomic_set(symm, l->next, me, (int)before - 1, NULL));
    return weft_symm_signal_wait(symm, l->granted, WEFT_CMP_GE, l->grants, NULL);
}

static weft_status_t give(weft_pair_run_t *run, lock_t *l)
{
    uint64_t behind = 0, last = 0, me = (uint64_t)run->rank + 1;
    weft_symm_h symm = run->symm;
    WEFT_TRY(weft_symm_atomic_fetch(symm, l->next, &behind, run->rank, NULL));
    if (behind == 0) {
        WEFT_TRY(weft_symm_quiet(symm, NULL));
        WEFT_TRY(weft_symm_atomic_cswap(symm, l->tail, me, 0, &last, 0, NULL));
        if (last == me) {
            return WEFT_OK;
        }
        /* Somebody is in the queue and about to say so. */
        WEFT_TRY(weft_symm_signal_wait(symm, l->next, WEFT_CMP_NE, 0, NULL));
        WEFT_TRY(weft_symm_atomic_fetch(symm, l->next, &behind, run->rank, NULL));
    }
    return weft_symm_signal_op(symm, l->granted, 1, WEFT_SIGNAL_ADD, (int)behind - 1, NULL);
}

static weft_status_t alone(weft_pair_run_t *run, int rounds)
{
    lock_t *l = run->ctx;
    for (int i = 0; run->rank == run->size - 1 && i < rounds; i++) {
        WEFT_TRY(take(run, l));
        WEFT_TRY(give(run, l));
    }
    return WEFT_OK;
}

/* The counter is read and written without atomics: only the lock keeps increments from being
 * lost. */
static weft_status_t contended(weft_pair_run_t *run, int rounds)
{
    lock_t *l = run->ctx;
    for (int i = 0; i < rounds; i++) {
        uint64_t value;
        WEFT_TRY(take(run, l));
        WEFT_TRY(weft_symm_get(run->symm, &value, l->shared, 8, 0, NULL));
        value++;
        WEFT_TRY(weft_symm_put(run->symm, l->shared, &value, 8, 0, NULL));
        WEFT_TRY(give(run, l));
    }
    return WEFT_OK;
}

static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    lock_t *l = run->ctx;
    uint64_t value = run->seed;
    const int rounds = 100;
    WEFT_TRY(weft_symm_put(run->symm, l->shared, &value, 8, run->rank, NULL));
    WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    WEFT_TRY(contended(run, rounds));
    WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    WEFT_TRY(weft_symm_get(run->symm, &value, l->shared, 8, 0, NULL));
    *wrong_p += value != run->seed + (uint64_t)(rounds * run->size);
    return weft_symm_barrier(run->symm, NULL);
}

/* clang-format off */
#define LOCK(label, what, begin, loop)                                                             \
    {.target = "lock", .name = label, .text = what, .heap = heap_bytes, .open = begin,             \
     .group = "one-sided", .ways = {{"one-sided", loop}}, .check = check}
/* clang-format on */

const weft_pair_t weft__pair_lock = LOCK(
    "alone", "one rank takes and gives back a lock that nobody else wants", open_lock, alone);
const weft_pair_t weft__pair_lock_all = LOCK(
    "contended",
    "all ranks want one lock; from one owner to the next, with a read and a write in between",
    open_lock_all, contended);
