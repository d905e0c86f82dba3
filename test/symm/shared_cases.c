#include "symm/shared_cases.h"

#include <stdlib.h>

/* ---- tensor ----------------------------------------------------------------------------- */

#define MOST_ROWS 700
#define MOST_ROW 40

/* Row `row` after `round` changes. */
static void make_row(char *to, size_t row, size_t bytes, uint64_t round)
{
    uint64_t state = row * 1000003u + round;
    for (size_t i = 0; i < bytes; i++) {
        to[i] = (char)symm_random(&state);
    }
}

static void random_shards(size_t *shards, int n, size_t rows, uint64_t *state)
{
    for (int p = 0; p < n; p++) {
        shards[p] = p == n - 1 ? rows : symm_random(state) % (rows + 1);
        shards[p] = symm_random(state) % 4 == 0 && p < n - 1 ? 0 : shards[p]; /* some have none */
        rows -= shards[p];
    }
}

static void check_slice(weft_dtensor_h tensor, size_t first, size_t rows, size_t bytes,
                        uint64_t round)
{
    char *got, want[MOST_ROW];
    CHECK_OK(weft_host_malloc((void **)&got, rows * bytes + 1));
    CHECK_OK(weft_dtensor_get(tensor, first, rows, got, NULL));
    for (size_t i = 0; i < rows; i++) {
        make_row(want, first + i, bytes, round);
        CHECK(memcmp(got + i * bytes, want, bytes) == 0);
    }
    CHECK_OK(weft_host_free(got));
}

/* Rank r writes rows r, r + size, ... whoever owns them. */
static void write_rows(team_t *team, weft_dtensor_h tensor, size_t rows, size_t bytes,
                       uint64_t round)
{
    char row[MOST_ROW];
    for (size_t i = (size_t)team->rank; i < rows; i += (size_t)team->size) {
        make_row(row, i, bytes, round);
        CHECK_OK(weft_dtensor_put(tensor, i, 1, row, NULL));
    }
}

void tensor_slices(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 18);
    uint64_t state = symm_seed(team), mine = state + (uint64_t)team->rank;
    size_t shards[TEAM_MOST];
    for (int times = 0; times < 4; times++) {
        size_t rows = symm_random(&state) % MOST_ROWS, bytes = 1 + symm_random(&state) % MOST_ROW;
        weft_dtensor_h tensor;
        random_shards(shards, team->size, rows, &state);
        CHECK_OK(weft_dtensor_create(symm, rows, bytes, times ? shards : NULL, &tensor));
        for (uint64_t round = 0; round < 3; round++) {
            write_rows(team, tensor, rows, bytes, round);
            CHECK_OK(weft_symm_barrier(symm, NULL));
            check_slice(tensor, 0, rows, bytes, round);
            random_shards(shards, team->size, rows, &state);
            CHECK_OK(weft_dtensor_rebalance(tensor, round == 1 ? NULL : shards));
            for (int i = 0; i < 5; i++) {
                size_t first = symm_random(&mine) % (rows + 1);
                check_slice(tensor, first, symm_random(&mine) % (rows - first + 1), bytes, round);
            }
            size_t first, count;
            int owner;
            CHECK_OK(weft_dtensor_local(tensor, NULL, &first, &count));
            CHECK(round == 1 || count == shards[team->rank]);
            for (size_t i = first; i < first + count; i++) {
                CHECK_OK(weft_dtensor_owner(tensor, i, &owner));
                CHECK_EQ(owner, team->rank);
            }
            CHECK_OK(weft_symm_barrier(symm, NULL)); /* before the rows change again */
        }
        CHECK_OK(weft_dtensor_destroy(tensor));
    }
    weft_symm_stats_t stats;
    CHECK_OK(weft_symm_stats(symm, &stats));
    CHECK_EQ(stats.count, 0);
    CHECK_OK(weft_symm_destroy(symm));
}

void tensor_refused(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 16);
    weft_dtensor_h tensor = NULL;
    size_t shards[TEAM_MOST] = {0};
    char row[8];
    int owner;
    CHECK_STATUS(weft_dtensor_create(symm, 10, 8, shards, &tensor), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "have 0 rows together, not 10");
    shards[0] = 11;
    CHECK_STATUS(weft_dtensor_create(symm, 10, 8, shards, &tensor), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_dtensor_create(symm, 10, 0, NULL, &tensor), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_dtensor_create(symm, 1 << 20, 8, NULL, &tensor),
                 team->size < 64 ? WEFT_ERR_NO_MEMORY : WEFT_OK);
    CHECK_OK(weft_dtensor_create(symm, 10, 8, NULL, &tensor));
    CHECK_STATUS(weft_dtensor_get(tensor, 10, 1, row, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "rows 10 to 11 are asked for, and there are 10");
    CHECK_STATUS(weft_dtensor_put(tensor, 0, 11, row, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_dtensor_owner(tensor, 10, &owner), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_dtensor_rebalance(tensor, shards), WEFT_ERR_INVALID);
    if (team->size > 1) {
        for (int p = 0; p < team->size; p++) {
            shards[p] = p == team->rank ? 10 : 0;
        }
        CHECK_STATUS(weft_dtensor_rebalance(tensor, shards), WEFT_ERR_MISMATCH);
    }
    CHECK_OK(weft_dtensor_destroy(tensor));
    CHECK_OK(weft_symm_destroy(symm));
}

/* ---- parameters ------------------------------------------------------------------------- */

#define WORDS 3000

/* Word i of version v as written by rank r. */
static uint64_t make_word(uint64_t version, uint64_t rank, size_t i)
{
    return version * 1000000007u + rank * 7919u + i;
}

static void fill_words(uint64_t *words, uint64_t version, uint64_t rank)
{
    for (size_t i = 0; i < WORDS; i++) {
        words[i] = make_word(version, rank, i);
    }
}

/* What was read is all of one swap; the version that its writer gave it. Zeros are version 0. */
static void check_words(const uint64_t *words, size_t first, size_t count, uint64_t writers)
{
    bool zero = words[0] == 0;
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ(words[i] - (zero ? 0 : i), words[0]);
    }
    uint64_t rest = (words[0] - first) % 1000000007u;
    CHECK(zero || (rest % 7919u == 0 && rest / 7919u < writers));
}

static void read_some(team_t *team, weft_params_h params, uint64_t *words, uint64_t *state,
                      uint64_t *newest, uint64_t writers)
{
    int rank = (int)(symm_random(state) % (uint64_t)team->size);
    size_t first = symm_random(state) % WORDS;
    size_t count = 1 + symm_random(state) % (WORDS - first);
    CHECK_OK(weft_params_read(params, rank, first * 8, count * 8, words, &words[WORDS], NULL));
    CHECK(words[WORDS] >= newest[rank]); /* versions only grow */
    newest[rank] = words[WORDS];
    check_words(words, first, count, writers);
    if (words[WORDS] == 0) {
        CHECK_EQ(words[0], 0);
    }
}

static void play(team_t *team, int writers, int swaps)
{
    weft_symm_h symm = symm_open(team, 1 << 18);
    weft_params_h params;
    uint64_t *words, *mine, newest[TEAM_MOST] = {0};
    uint64_t state = symm_seed(team) + (uint64_t)team->rank, version;
    CHECK_OK(weft_params_create(symm, WORDS * 8, &params));
    CHECK_OK(weft_host_malloc((void **)&words, (WORDS + 1) * 8));
    CHECK_OK(weft_host_malloc((void **)&mine, WORDS * 8));
    for (int i = 1; i <= swaps; i++) {
        if (team->rank < writers) {
            fill_words(mine, (uint64_t)i, (uint64_t)team->rank);
            CHECK_OK(weft_params_swap(params, mine, NULL));
            CHECK_OK(weft_params_version(params, &version));
            CHECK(version >= (uint64_t)i);
        }
        read_some(team, params, words, &state, newest, (uint64_t)writers);
    }
    CHECK_OK(weft_symm_barrier(symm, NULL));
    for (int p = 0; p < team->size; p++) { /* all replicas are at the same version, and alike */
        CHECK_OK(weft_params_read(params, p, 0, WORDS * 8, words, &words[WORDS], NULL));
        CHECK_EQ(words[WORDS], writers * swaps);
        check_words(words, 0, WORDS, (uint64_t)writers);
        uint64_t first = words[0];
        CHECK_OK(weft_broadcast(&first, &first, 1, WEFT_U64, 0, team->comm, NULL));
        CHECK_EQ(words[0], first);
    }
    CHECK_STATUS(weft_params_read(params, team->size, 0, 8, words, NULL, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_params_read(params, 0, WORDS * 8, 8, words, NULL, NULL), WEFT_ERR_INVALID);
    CHECK_OK(weft_host_free(words));
    CHECK_OK(weft_host_free(mine));
    CHECK_OK(weft_params_destroy(params));
    CHECK_OK(weft_symm_destroy(symm));
}

void params_swapped(team_t *team)
{
    play(team, 1, team_slow() > 1 ? 30 : 100);
}

void params_writers(team_t *team)
{
    play(team, team->size, team_slow() > 1 ? 10 : 40);
}
