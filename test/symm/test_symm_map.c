/* ctest: timeout=120 tsan */
/* The hash map against a reference, under concurrent change, and with ranks that die. */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "symm/symm_cases.h"

#include <cmocka.h>

#define KEYS 600 /* of each rank, of which about half are in the map at a time */
#define WORDS 5

typedef struct value {
    uint64_t word[WORDS];
} value_t;

static value_t make_value(uint64_t key, uint64_t version)
{
    value_t value;
    for (int i = 0; i < WORDS; i++) {
        value.word[i] = key * 31 + version * 1000003u + (uint64_t)i;
    }
    return value;
}

/* A value that some insert of that key has made, whole. */
static void check_value(const value_t *value, uint64_t key)
{
    for (int i = 1; i < WORDS; i++) {
        CHECK_EQ(value->word[i], value->word[0] + (uint64_t)i);
    }
    CHECK_EQ((value->word[0] - key * 31) % 1000003u, 0);
}

static uint64_t key_of(int rank, uint64_t i)
{
    uint64_t state = (uint64_t)rank << 32 | i;
    return symm_random(&state);
}

/* Every rank changes its own keys, knows what they must be, and looks at those of all others. */
static void against_reference(team_t *team)
{
    weft_symm_h symm = symm_open(team, 4 << 20);
    weft_map_h map;
    uint64_t state = symm_seed(team) + (uint64_t)team->rank, version[KEYS] = {0};
    int steps = team_slow() > 1 ? 3000 : 12000;
    CHECK_OK(weft_map_create(symm, (size_t)(KEYS * team->size), sizeof(value_t), &map));
    for (int step = 0; step < steps; step++) {
        uint64_t i = symm_random(&state) % KEYS, key = key_of(team->rank, i),
                 what = symm_random(&state);
        value_t value;
        if (what % 4 == 0) {
            CHECK_STATUS(weft_map_erase(map, key), version[i] ? WEFT_OK : WEFT_ERR_NOT_FOUND);
            version[i] = 0;
        } else if (what % 4 == 1) {
            version[i] = 1 + symm_random(&state) % 1000;
            value = make_value(key, version[i]);
            CHECK_OK(weft_map_insert(map, key, &value));
        } else if (what % 4 == 2) {
            CHECK_STATUS(weft_map_find(map, key, &value),
                         version[i] ? WEFT_OK : WEFT_ERR_NOT_FOUND);
            value_t want = make_value(key, version[i]);
            CHECK(version[i] == 0 || memcmp(&value, &want, sizeof(value)) == 0);
        } else {
            key = key_of((int)(what >> 8) % team->size, i);
            if (weft_map_find(map, key, &value) == WEFT_OK) {
                check_value(&value, key);
            }
        }
    }
    size_t mine = 0, all = 0, count;
    for (int i = 0; i < KEYS; i++) {
        mine += version[i] != 0;
    }
    uint64_t sum = mine;
    CHECK_OK(weft_allreduce(&sum, &sum, 1, WEFT_U64, WEFT_SUM, team->comm, NULL));
    all = (size_t)sum;
    CHECK_OK(weft_map_count(map, &count));
    CHECK_EQ(count, all);
    CHECK_OK(weft_symm_barrier(symm, NULL));
    CHECK_OK(weft_map_destroy(map));
    CHECK_OK(weft_symm_destroy(symm));
}

/* All ranks fight for the same few keys. */
static void same_keys(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 20);
    weft_map_h map;
    uint64_t state = symm_seed(team) + (uint64_t)team->rank;
    int steps = team_slow() > 1 ? 2000 : 8000;
    CHECK_OK(weft_map_create(symm, 64, sizeof(value_t), &map));
    for (int step = 0; step < steps; step++) {
        uint64_t what = symm_random(&state), key = what % 7;
        value_t value = make_value(key, what >> 40);
        weft_status_t status;
        if ((what >> 8) % 8 == 0) {
            status = weft_map_erase(map, key);
            CHECK(status == WEFT_OK || status == WEFT_ERR_NOT_FOUND);
        } else if ((what >> 8) % 2) {
            CHECK_OK(weft_map_insert(map, key, &value));
        } else if (weft_map_find(map, key, &value) == WEFT_OK) {
            check_value(&value, key);
        }
    }
    CHECK_OK(weft_symm_barrier(symm, NULL));
    size_t count, found = 0;
    CHECK_OK(weft_map_count(map, &count));
    for (uint64_t key = 0; key < 7; key++) {
        found += weft_map_find(map, key, NULL) == WEFT_OK;
    }
    CHECK_EQ(count, found);
    CHECK_OK(weft_map_destroy(map));
    CHECK_OK(weft_symm_destroy(symm));
}

/* A full map says so, erasing makes room, and nothing is lost on the way. */
static void full(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 20);
    weft_map_h map;
    uint64_t n = 0, value, extra[200];
    weft_status_t status = WEFT_OK;
    CHECK_STATUS(weft_map_create(symm, 0, 8, &map), WEFT_ERR_INVALID);
    CHECK_OK(weft_map_create(symm, 100, 8, &map));
    if (team->rank == 0) {
        for (; n < 1000000 && status == WEFT_OK; n++) {
            value = n * 3;
            status = weft_map_insert(map, n, &value);
        }
        CHECK_EQ(status, WEFT_ERR_NO_MEMORY);
        CHECK_TEXT(weft_last_error(), "create the map with more capacity");
        CHECK(n > 100);
        for (uint64_t key = 0; key < n - 1; key++) {
            CHECK_OK(weft_map_find(map, key, &value));
            CHECK_EQ(value, key * 3);
        }
        for (uint64_t key = 0; key < n - 1; key++) {
            CHECK_OK(weft_map_erase(map, key));
        }
        CHECK_STATUS(weft_map_find(map, 5, &value), WEFT_ERR_NOT_FOUND);
        for (uint64_t i = 0; i < 100; i++) { /* room again, for as many as were promised */
            extra[i] = key_of(99, i);
            CHECK_OK(weft_map_insert(map, extra[i], &i));
        }
        for (uint64_t i = 0; i < 100; i++) {
            CHECK_OK(weft_map_find(map, extra[i], &value));
            CHECK_EQ(value, i);
        }
    }
    CHECK_OK(weft_symm_barrier(symm, NULL));
    CHECK_OK(weft_map_destroy(map));
    CHECK_OK(weft_symm_destroy(symm));
}

/* Rank 1 inserts and erases without a pause until it is killed, lock in hand or not. The others go
 * on, and the count is right in the end. */
static void dies_changing(team_t *team)
{
    weft_symm_h symm = symm_open(team, 4 << 20);
    weft_map_h map;
    uint64_t state = 12345u + (uint64_t)team->rank;
    value_t value;
    CHECK_OK(weft_map_create(symm, 2000, sizeof(value_t), &map));
    if (team->rank == 1) {
        *(volatile int *)team->shared = getpid();
    }
    CHECK_OK(weft_symm_barrier(symm, NULL));
    for (int step = 0; step < 20000 || team->rank == 1; step++) {
        uint64_t what = symm_random(&state), key = what % 300;
        value = make_value(key, what >> 40);
        if ((what >> 16) % 3 == 0) {
            weft_status_t status = weft_map_erase(map, key);
            CHECK(status == WEFT_OK || status == WEFT_ERR_NOT_FOUND);
        } else {
            CHECK_OK(weft_map_insert(map, key, &value));
        }
        if (team->rank == 0 && step == 2000) {
            kill(*(volatile int *)team->shared, SIGKILL);
        }
    }
    team->shared[64 + team->rank] = 1;
    for (int r = 0; r < team->size; r++) { /* all but rank 1 have done their part */
        while (r != 1 && !*(volatile char *)&team->shared[64 + r]) {
            team_sleep(1e-3);
        }
    }
    size_t count, found = 0;
    if (team->rank == 0) { /* the next one to change a table finds out whose lock it was */
        for (uint64_t key = 0; key < 300; key++) {
            value = make_value(key, 1);
            CHECK_OK(weft_map_insert(map, key, &value));
        }
        CHECK_OK(weft_map_count(map, &count));
        for (uint64_t key = 0; key < 300; key++) {
            found += weft_map_find(map, key, &value) == WEFT_OK;
            check_value(&value, key);
        }
        CHECK_EQ(found, 300);
        CHECK_EQ(count, 300);
    }
    CHECK(weft_map_destroy(map) != WEFT_OK);
    CHECK(weft_symm_destroy(symm) != WEFT_OK);
}

static const team_fn all[] = {against_reference, same_keys, full, NULL};

/* Under TSan some are not run. */
#define PLAN_TEST(name, fn, ...)                                                                   \
    static __attribute__((unused)) void name(void **state)                                         \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.limit_s = 60, __VA_ARGS__}, fn));                     \
    }

PLAN_TEST(one_rank, gpu_in_a_row, .ranks = 1, .arg = all)
PLAN_TEST(four_threads, gpu_in_a_row, .ranks = 4, .procs = 1, .arg = all)
PLAN_TEST(two_processes, gpu_in_a_row, .ranks = 2, .arg = all)
PLAN_TEST(seven_processes, gpu_in_a_row, .ranks = 7, .arg = all)
PLAN_TEST(killed_in_a_change, dies_changing, .ranks = 4, .may_die = 2)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(four_threads),
#if !UNDER_TSAN /* which sees one process at a time */
        cmocka_unit_test(two_processes),
        cmocka_unit_test(seven_processes),
        cmocka_unit_test(killed_in_a_change),
#endif
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
