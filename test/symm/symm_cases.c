#include "symm/symm_cases.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

weft_symm_h symm_open(team_t *team, size_t bytes)
{
    weft_symm_h symm = NULL;
    CHECK_OK(weft_symm_create(team->comm, bytes, &symm));
    return symm;
}

void *symm_take(weft_symm_h symm, size_t bytes)
{
    void *ptr = NULL;
    CHECK_OK(weft_symm_malloc(symm, bytes, &ptr));
    return ptr;
}

uint64_t symm_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

uint64_t symm_seed(team_t *team)
{
    uint64_t seed = (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
    CHECK_OK(weft_broadcast(&seed, &seed, 1, WEFT_U64, 0, team->comm, NULL));
    team_note("seed %llu", (unsigned long long)seed);
    return seed;
}

/* What is at `ptr` of this rank's heap. */
static uint64_t peek(weft_symm_h symm, const uint64_t *ptr)
{
    uint64_t value = 0;
    int rank;
    CHECK_OK(weft_symm_rank(symm, &rank));
    CHECK_OK(weft_symm_atomic_fetch(symm, ptr, &value, rank, NULL));
    return value;
}

/* ---- allocation ------------------------------------------------------------------------- */

#define LIVE 24

static void check_zero(weft_symm_h symm, const char *ptr, size_t bytes, int rank)
{
    char *copy = malloc(bytes + 1);
    CHECK(copy);
    CHECK_OK(weft_symm_get(symm, copy, ptr, bytes, rank, NULL));
    for (size_t i = 0; i < bytes; i++) {
        CHECK(copy[i] == 0);
    }
    memset(copy, 0xa5, bytes);
    CHECK_OK(weft_symm_put(symm, (char *)(uintptr_t)ptr, copy, bytes, rank, NULL));
    free(copy);
}

void symm_alloc(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 20);
    uint64_t state = symm_seed(team);
    void *live[LIVE] = {NULL};
    size_t sizes[LIVE] = {0};
    char *base = symm_take(symm, 1);
    for (int i = 0; i < (team_slow() > 1 ? 40 : 80); i++) {
        int k = (int)(symm_random(&state) % LIVE);
        if (live[k]) {
            CHECK_OK(weft_symm_free(symm, live[k]));
            live[k] = NULL;
            continue;
        }
        sizes[k] = symm_random(&state) % 20000;
        live[k] = symm_take(symm, sizes[k]);
        CHECK_EQ((uintptr_t)live[k] % 256, 0);
        uint64_t mine = (uint64_t)((char *)live[k] - base), first = mine;
        CHECK_OK(weft_broadcast(&first, &first, 1, WEFT_U64, 0, team->comm, NULL));
        CHECK_EQ(mine, first);
        check_zero(symm, live[k], sizes[k], team->rank);
    }
    for (int a = 0; a < LIVE; a++) { /* no two overlap */
        for (int b = 0; b < a; b++) {
            CHECK(!live[a] || !live[b] || (char *)live[a] + sizes[a] <= (char *)live[b] ||
                  (char *)live[b] + sizes[b] <= (char *)live[a]);
        }
    }
    for (int k = 0; k < LIVE; k++) {
        CHECK_OK(weft_symm_free(symm, live[k]));
    }
    weft_symm_stats_t stats;
    CHECK_OK(weft_symm_free(symm, base));
    CHECK_OK(weft_symm_stats(symm, &stats));
    CHECK_EQ(stats.bytes, 1 << 20);
    CHECK_EQ(stats.largest, 1 << 20); /* all of it, in one piece again */
    CHECK_EQ(stats.used, 0);
    CHECK_EQ(stats.count, 0);
    CHECK_OK(weft_symm_destroy(symm));
}

void symm_refused(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 16);
    uint64_t *word = symm_take(symm, 64), local = 0, plain[8] = {0};
    void *ptr;
    CHECK_STATUS(weft_symm_put(symm, word, plain, 64, team->size, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "symm_put: there is no rank");
    CHECK_STATUS(weft_symm_put(symm, word, plain, 64, -1, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_symm_put(symm, plain, plain, 64, 0, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "not in the symmetric heap");
    CHECK_STATUS(weft_symm_get(symm, plain, word, 1 << 20, 0, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "1048576 bytes");
    CHECK_STATUS(weft_symm_put(symm, word, NULL, 8, 0, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_symm_atomic_add(symm, (uint64_t *)((char *)word + 4), 1, 0, NULL),
                 WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "not aligned");
    CHECK_STATUS(weft_symm_atomic_fetch_add(symm, word, 1, NULL, 0, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_symm_signal_op(symm, word, 1, (weft_signal_op_t)9, 0, NULL),
                 WEFT_ERR_INVALID);
    CHECK_STATUS(weft_symm_signal_wait(symm, &local, WEFT_CMP_EQ, 0, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_symm_signal_wait(symm, word, (weft_cmp_t)6, 0, NULL), WEFT_ERR_INVALID);
    CHECK_OK(weft_symm_signal_op(symm, word, 5, WEFT_SIGNAL_SET, team->rank, NULL));
    static const struct {
        weft_cmp_t cmp;
        uint64_t value;
    } hold[] = {{WEFT_CMP_EQ, 5}, {WEFT_CMP_NE, 4}, {WEFT_CMP_GT, 4}, {WEFT_CMP_GE, 5},
                {WEFT_CMP_GE, 4}, {WEFT_CMP_LT, 6}, {WEFT_CMP_LE, 5}, {WEFT_CMP_LE, 6}};
    for (size_t i = 0; i < sizeof(hold) / sizeof(hold[0]); i++) { /* nobody has to come */
        CHECK_OK(weft_symm_signal_wait(symm, word, hold[i].cmp, hold[i].value, NULL));
    }
    CHECK_OK(weft_symm_signal_op(symm, word, 0, WEFT_SIGNAL_SET, team->rank, NULL));
    CHECK(weft_symm_ptr(symm, plain, 0) == NULL);
    CHECK(weft_symm_ptr(symm, word, team->rank) == word);
    CHECK_STATUS(weft_symm_free(symm, word + 1), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "not in use");
    CHECK_STATUS(weft_symm_put(NULL, word, plain, 8, 0, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_symm_malloc(symm, 1 << 20, &ptr), WEFT_ERR_NO_MEMORY);
    CHECK_TEXT(weft_last_error(), "WEFT_SYMM_SIZE");
    CHECK_TEXT(weft_last_error(), "1 MiB");
    CHECK_TEXT(weft_last_error(), "64 KiB");
    CHECK_STATUS(weft_symm_create(team->comm, SIZE_MAX, &symm), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_symm_create(NULL, 0, &symm), WEFT_ERR_INVALID);
    CHECK_OK(weft_group_start());
    CHECK_STATUS(weft_symm_malloc(symm, 8, &ptr), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "group");
    weft_group_end();
    CHECK_EQ(peek(symm, word), 0); /* nothing of all this has done anything */
    CHECK_OK(weft_symm_destroy(symm));
}

/* What is freed is refused; what lies beside it, or is allocated there anew, is not. */
void symm_freed(team_t *team)
{
    enum { BYTES = 5000 }; /* more granules than a word of the books has bits */
    weft_symm_h symm = symm_open(team, 1 << 16);
    char *before = symm_take(symm, BYTES), *freed = symm_take(symm, BYTES);
    char *after = symm_take(symm, BYTES), plain[BYTES] = {0};
    uint64_t old;
    int me = team->rank; /* each rank has its own memory: others' puts would race with its own */
    for (int again = 0; again < 2; again++) {
        CHECK_OK(weft_symm_put(symm, freed, plain, BYTES, me, NULL));
        CHECK_OK(weft_symm_barrier(symm, NULL));
        CHECK_OK(weft_symm_free(symm, freed));
        for (size_t at = 0; at < BYTES; at += 1000) {
            CHECK_STATUS(weft_symm_put(symm, freed + at, plain, 1, me, NULL), WEFT_ERR_INVALID);
            CHECK_TEXT(weft_last_error(), "weft_symm_put: dst is at offset");
            CHECK_TEXT(weft_last_error(), "freed already");
            CHECK_STATUS(weft_symm_get(symm, plain, freed + at, 1, me, NULL), WEFT_ERR_INVALID);
        }
        CHECK_STATUS(weft_symm_put(symm, freed - 1000, plain, BYTES, me, NULL), WEFT_ERR_INVALID);
        CHECK_STATUS(weft_symm_put(symm, after - 1000, plain, BYTES, me, NULL), WEFT_ERR_INVALID);
        CHECK_STATUS(weft_symm_atomic_fetch_add(symm, (uint64_t *)(void *)freed, 1, &old, me, NULL),
                     WEFT_ERR_INVALID);
        CHECK_TEXT(weft_last_error(), "freed already");
        CHECK_OK(weft_symm_put(symm, before, plain, BYTES, me, NULL));
        CHECK_OK(weft_symm_put(symm, after, plain, BYTES, me, NULL));
        CHECK(symm_take(symm, BYTES) == freed);
    }
    CHECK_STATUS(weft_symm_put(symm, symm_take(symm, 64), plain, 128, me, NULL), WEFT_ERR_INVALID);
    CHECK_OK(weft_symm_destroy(symm));
}

void symm_sizes_differ(team_t *team)
{
    weft_symm_h symm = NULL;
    void *ptr;
    if (team->size < 2) {
        return;
    }
    size_t odd = team->rank == 1 ? 4096 : 8192;
    CHECK_STATUS(weft_symm_create(team->comm, odd, &symm), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "8192 on rank 0, but 4096 on rank 1");
    symm = symm_open(team, 1 << 16); /* nothing is broken by that */
    CHECK_STATUS(weft_symm_malloc(symm, odd, &ptr), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "8192 on rank 0, but 4096 on rank 1");
    char *a = symm_take(symm, 100), *b = symm_take(symm, 100);
    CHECK_STATUS(weft_symm_free(symm, team->rank == 1 ? b : a), WEFT_ERR_MISMATCH);
    CHECK_OK(weft_symm_free(symm, a));
    CHECK_OK(weft_symm_free(symm, b));
    CHECK_OK(weft_symm_destroy(symm));
}

/* ---- data ------------------------------------------------------------------------------- */

#define AREA ((size_t)48 << 10)
#define BIG ((size_t)3 << 20)

static void fill(char *data, size_t bytes, uint64_t *state)
{
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = symm_random(state);
        memcpy(data + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

/* Everybody writes into its own part of everybody's memory, keeps a copy, and compares at the
 * end. */
void symm_put_get(team_t *team)
{
    weft_symm_h symm = symm_open(team, 2 * BIG + AREA * (size_t)team->size);
    char *area = symm_take(symm, AREA * (size_t)team->size), *big = symm_take(symm, BIG);
    uint64_t state = symm_seed(team) + (uint64_t)team->rank;
    char *copy = calloc((size_t)team->size, AREA), *data = malloc(BIG), *back = malloc(BIG);
    CHECK(copy && data && back);
    char *part = area + AREA * (size_t)team->rank;
    for (int i = 0; i < 100; i++) {
        int to = (int)(symm_random(&state) % (uint64_t)team->size);
        size_t bytes = symm_random(&state) % (i % 4 == 0 ? AREA : 300);
        size_t at = symm_random(&state) % (AREA - bytes), shift = symm_random(&state) % 16;
        fill(data + shift, bytes, &state);
        memcpy(copy + AREA * (size_t)to + at, data + shift, bytes);
        CHECK_OK(weft_symm_put(symm, part + at, data + shift, bytes, to, NULL));
    }
    for (int to = 0; to < team->size; to++) {
        CHECK_OK(weft_symm_get(symm, back, part, AREA, to, NULL));
        CHECK(memcmp(back, copy + AREA * (size_t)to, AREA) == 0);
    }
    fill(data, BIG, &state);
    int next = (team->rank + 1) % team->size;
    CHECK_OK(weft_symm_put(symm, big, data, BIG, next, NULL));
    CHECK_OK(weft_symm_barrier(symm, NULL));
    CHECK_OK(weft_symm_get(symm, back, big, BIG, next, NULL));
    CHECK(memcmp(back, data, BIG) == 0);
    CHECK_OK(weft_symm_destroy(symm));
    free(copy);
    free(data);
    free(back);
}

/* A message goes round; each rank adds one to every word of it. */
static void go_round(team_t *team, weft_stream_h stream)
{
    enum { WORDS = 1000, ROUNDS = 30 };
    weft_symm_h symm = symm_open(team, 1 << 16);
    uint64_t *inbox = symm_take(symm, WORDS * 8), *flag = symm_take(symm, 8);
    uint64_t *mine;
    int next = (team->rank + 1) % team->size;
    CHECK_OK(weft_host_malloc((void **)&mine, WORDS * 8));
    for (int round = 1; round <= ROUNDS; round++) {
        size_t words = (size_t)(round * 37 % WORDS);
        team_note("round %d", round);
        if (team->rank > 0 || round > 1) {
            uint64_t want = team->rank == 0 ? (uint64_t)round - 1 : (uint64_t)round;
            CHECK_OK(weft_symm_signal_wait(symm, flag, WEFT_CMP_GE, want, stream));
            size_t bytes = (size_t)((int)want * 37 % WORDS) * 8;
            CHECK_OK(weft_symm_get(symm, mine, inbox, bytes, team->rank, stream));
            CHECK_OK(stream ? weft_stream_synchronize(stream) : WEFT_OK);
            uint64_t hops = (want - 1) * (uint64_t)team->size +
                            (uint64_t)(team->rank == 0 ? team->size : team->rank);
            for (size_t i = 0; i < bytes / 8; i++) {
                CHECK_EQ(mine[i], hops + i);
            }
        }
        for (size_t i = 0; i < words; i++) {
            mine[i] = ((uint64_t)round - 1) * (uint64_t)team->size + (uint64_t)team->rank + 1 + i;
        }
        CHECK_OK(weft_symm_put_signal(symm, inbox, mine, words * 8, flag,
                                      round % 2 ? 1 : (uint64_t)round,
                                      round % 2 ? WEFT_SIGNAL_ADD : WEFT_SIGNAL_SET, next, stream));
        CHECK_OK(stream ? weft_stream_synchronize(stream) : WEFT_OK);
    }
    CHECK_OK(weft_symm_quiet(symm, stream));
    CHECK_OK(weft_symm_barrier(symm, stream));
    CHECK_OK(stream ? weft_stream_synchronize(stream) : WEFT_OK);
    CHECK_EQ(peek(symm, flag), ROUNDS);
    CHECK_OK(weft_host_free(mine));
    CHECK_OK(weft_symm_destroy(symm));
}

void symm_ring_of_signals(team_t *team)
{
    go_round(team, NULL);
}

void symm_on_streams(team_t *team)
{
    weft_stream_h stream;
    CHECK_OK(weft_stream_create(&stream));
    go_round(team, stream);
    CHECK_OK(weft_stream_destroy(stream));
}

/* ---- atomics ---------------------------------------------------------------------------- */

/* Every old value of a fetch-add is handed out once; the sums of the others come out. */
void symm_atomics(team_t *team)
{
    enum { TIMES = 300 };
    uint64_t n = (uint64_t)team->size, me = (uint64_t)team->rank, old = 0;
    weft_symm_h symm = symm_open(team, 1 << 16);
    uint64_t *sum = symm_take(symm, 8), *bits = symm_take(symm, 8), *turns = symm_take(symm, 8);
    uint64_t *seen = symm_take(symm, TIMES * n * 8);
    int home = team->size - 1, times = team_slow() > 1 ? 60 : TIMES;
    for (int i = 0; i < times; i++) {
        CHECK_OK(weft_symm_atomic_fetch_add(symm, sum, 1, &old, home, NULL));
        CHECK(old < (uint64_t)times * n);
        CHECK_OK(weft_symm_atomic_add(symm, seen + old, 1, home, NULL));
    }
    CHECK_OK(weft_symm_atomic_or(symm, bits, 1ull << me, home, NULL));
    CHECK_OK(weft_symm_atomic_fetch_xor(symm, bits, 1ull << (me + 32), &old, home, NULL));
    CHECK(old >> me & 1);
    CHECK_OK(weft_symm_barrier(symm, NULL));
    CHECK_OK(weft_symm_atomic_fetch(symm, bits, &old, home, NULL));
    CHECK_EQ(old, ((1ull << n) - 1) << 32 | ((1ull << n) - 1));
    for (uint64_t i = me; i < (uint64_t)times * n; i += n) {
        CHECK_OK(weft_symm_atomic_fetch(symm, seen + i, &old, home, NULL));
        CHECK_EQ(old, 1);
    }
    CHECK_OK(weft_symm_barrier(symm, NULL));
    CHECK_OK(weft_symm_atomic_and(symm, bits, ~(1ull << me), home, NULL));
    CHECK_OK(weft_symm_atomic_fetch_and(symm, bits, ~(1ull << (me + 32)), &old, home, NULL));
    CHECK_OK(weft_symm_atomic_fetch_or(symm, bits, 0, &old, home, NULL));
    /* In turn by compare-and-swap: from me to me + 1. */
    for (old = me + 1; old != me;) {
        CHECK_OK(weft_symm_atomic_cswap(symm, turns, me, me + 1, &old, 0, NULL));
        if (old != me) {
            team_sleep(100e-6);
        }
    }
    CHECK_OK(weft_symm_barrier(symm, NULL));
    CHECK_OK(weft_symm_atomic_fetch(symm, turns, &old, 0, NULL));
    CHECK_EQ(old, n);
    CHECK_OK(weft_symm_atomic_fetch(symm, bits, &old, home, NULL));
    CHECK_EQ(old, 0);
    CHECK_OK(weft_symm_atomic_set(symm, sum, me + 7, team->rank, NULL));
    CHECK_OK(weft_symm_atomic_swap(symm, sum, 5, &old, team->rank, NULL));
    CHECK_EQ(old, me + 7);
    CHECK_EQ(peek(symm, sum), 5);
    CHECK_OK(weft_symm_destroy(symm));
}

void symm_views(team_t *team)
{
    weft_symm_view_t view;
    weft_symm_h symm = symm_open(team, 300000), again;
    char *ptr = symm_take(symm, 100);
    CHECK_OK(weft_symm_view(symm, &view));
    CHECK_EQ(view.rank, team->rank);
    CHECK_EQ(view.size, team->size);
    CHECK_EQ(view.bytes, 300032); /* in steps of 256 */
    for (int p = 0; p < team->size; p++) {
        char *there = weft_symm_ptr(symm, ptr, p);
        CHECK(there - view.base[p] == ptr - view.base[team->rank]);
    }
    again = symm_open(team, 4096); /* two heaps do not disturb each other */
    CHECK_OK(weft_symm_error(symm));
    CHECK_OK(weft_symm_destroy(symm));
    CHECK_OK(weft_symm_barrier(again, NULL));
    CHECK_OK(weft_symm_destroy(again));
}

void symm_settings(team_t *team)
{
    weft_symm_h symm = symm_open(team, 0);
    weft_symm_stats_t stats;
    CHECK_OK(weft_symm_stats(symm, &stats));
    CHECK_EQ(stats.bytes, 3 << 20); /* WEFT_SYMM_SIZE */
    CHECK_OK(weft_symm_destroy(symm));
    /* More than the device has (WEFT_DEVICE_MEMORY): on all ranks, and nothing is broken. */
    CHECK_STATUS(weft_symm_create(team->comm, 100 << 20, &symm), WEFT_ERR_NO_MEMORY);
    CHECK_TEXT(weft_last_error(), "cannot have a heap of 100 MiB (WEFT_SYMM_SIZE");
    CHECK_TEXT(weft_last_error(), "WEFT_DEVICE_MEMORY");
    CHECK_OK(weft_barrier(team->comm, NULL));
}

/* ---- ranks that die ---------------------------------------------------------------------- */

void symm_killed(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 16);
    uint64_t *flag = symm_take(symm, 8);
    CHECK_OK(
        weft_symm_signal_op(symm, flag, 1, WEFT_SIGNAL_ADD, (team->rank + 1) % team->size, NULL));
    if (team->rank == 1) {
        raise(SIGKILL);
    }
    double start = team_now();
    weft_status_t words = weft_symm_signal_wait(symm, flag, WEFT_CMP_GE, 1, NULL);
    const char *kind;
    CHECK_OK(weft_device_kind(&kind)); /* the watch over GPUs may be faster than its last words */
    CHECK(words == WEFT_OK || (strcmp(kind, "cuda") == 0 && words == WEFT_ERR_RANK_DEAD));
    CHECK_STATUS(weft_symm_signal_wait(symm, flag, WEFT_CMP_GE, 2, NULL), WEFT_ERR_RANK_DEAD);
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK_TEXT(weft_last_error(), "rank 1 (process");
    CHECK_STATUS(weft_symm_error(symm), WEFT_ERR_RANK_DEAD);
    if (strcmp(kind, "cpu") == 0) { /* its memory is still there */
        CHECK_OK(weft_symm_atomic_add(symm, flag, 1, 1, NULL));
    }
    CHECK(weft_symm_destroy(symm) != WEFT_OK);
    CHECK_WITHIN(team_now() - start, SOON);
}

void symm_late(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 16);
    uint64_t *flag = symm_take(symm, 8);
    double start = team_now();
    CHECK_OK(weft_symm_atomic_set(symm, flag, 3, team->rank, NULL));
    if (team->rank == 0) {
        CHECK_STATUS(weft_symm_signal_wait(symm, flag, WEFT_CMP_GE, 4, NULL), WEFT_ERR_TIMEOUT);
    } else {
        CHECK_STATUS(weft_symm_signal_wait(symm, flag, WEFT_CMP_NE, 3, NULL), WEFT_ERR_TIMEOUT);
    }
    CHECK_TEXT(weft_last_error(), "timed out after 2.0 s on rank");
    CHECK_TEXT(weft_last_error(), "offset 0 of its heap");
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK(weft_symm_destroy(symm) != WEFT_OK);
}

void symm_left_in_barrier(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 16);
    CHECK_OK(weft_symm_barrier(symm, NULL));
    if (team->rank == 1) {
        raise(SIGKILL);
    }
    double start = team_now();
    CHECK_STATUS(weft_symm_destroy(symm), WEFT_ERR_RANK_DEAD);
    CHECK_WITHIN(team_now() - start, SOON);
}
