/* ctest: timeout=120 tsan */
/* Inboxes: every record arrives once, whole and in its sender's order, also when senders die. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "symm/symm_cases.h"

#include <cmocka.h>

#define MOST 200

/* Record number `n` from rank `from` to rank `to`: its size and bytes follow from these. */
static size_t make_record(char *to, int from, int rank, uint64_t n)
{
    uint64_t state = ((uint64_t)from << 40) + ((uint64_t)rank << 50) + n;
    size_t bytes = 8 + symm_random(&state) % (MOST - 8);
    memcpy(to, &n, 8);
    for (size_t i = 8; i < bytes; i++) {
        to[i] = (char)symm_random(&state);
    }
    return bytes;
}

/* Check a record, which must be the next one from that rank. */
static void check_record(const char *got, size_t bytes, int from, int me, uint64_t *next)
{
    char want[MOST];
    uint64_t n;
    memcpy(&n, got, 8);
    CHECK_EQ(n, next[from]);
    CHECK_EQ(bytes, make_record(want, from, me, n));
    CHECK(memcmp(got, want, bytes) == 0);
    next[from]++;
}

/* Everybody sends to everybody, and takes what comes in between. The rings are small, so they are
 * full now and then: nobody may wait for room without taking. */
static void all_to_all(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 18);
    weft_ring_h ring;
    uint64_t times = team_slow() > 1 ? 150 : 800, sent[TEAM_MOST] = {0}, next[TEAM_MOST] = {0};
    uint64_t total = 0, got = 0;
    char record[MOST];
    size_t bytes;
    int from;
    CHECK_OK(weft_ring_create(symm, 10, MOST, &ring)); /* 16 slots */
    while (total < times * (uint64_t)team->size || got < times * (uint64_t)team->size) {
        uint64_t before = total + got;
        for (int to = 0; to < team->size; to++) {
            if (sent[to] < times) {
                bytes = make_record(record, team->rank, to, sent[to]);
                weft_status_t status = weft_ring_push(ring, to, record, bytes);
                CHECK(status == WEFT_OK || status == WEFT_PENDING);
                sent[to] += status == WEFT_OK;
                total += status == WEFT_OK;
            }
        }
        while (weft_ring_pop(ring, record, &bytes, &from) == WEFT_OK) {
            check_record(record, bytes, from, team->rank, next);
            got++;
        }
        if (total + got == before) {
            sched_yield(); /* whom we wait for may need this core */
        }
    }
    CHECK_STATUS(weft_ring_pop(ring, record, NULL, NULL), WEFT_PENDING);
    CHECK_STATUS(weft_ring_push(ring, team->size, record, 8), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_ring_push(ring, 0, record, MOST + 1), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "up to 200 bytes");
    CHECK_OK(weft_symm_barrier(symm, NULL));
    CHECK_OK(weft_ring_destroy(ring));
    CHECK_OK(weft_symm_destroy(symm));
}

/* All send to rank 0 and wait for room; rank 0 waits for records. */
static void to_one(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 18);
    weft_ring_h ring;
    uint64_t times = team_slow() > 1 ? 300 : 1000, next[TEAM_MOST] = {0};
    char record[MOST];
    size_t bytes;
    int from;
    CHECK_OK(weft_ring_create(symm, 4, MOST, &ring));
    for (uint64_t i = 0; i < times * (uint64_t)(team->size - 1); i++) {
        if (team->rank == 0) {
            CHECK_OK(weft_ring_pop_wait(ring, record, &bytes, &from));
            check_record(record, bytes, from, 0, next);
        } else if (i < times) {
            bytes = make_record(record, team->rank, 0, i);
            CHECK_OK(weft_ring_push_wait(ring, 0, record, bytes));
        }
    }
    CHECK_OK(weft_symm_barrier(symm, NULL));
    CHECK_OK(weft_ring_destroy(ring));
    CHECK_OK(weft_symm_destroy(symm));
}

/* Ranks 1 and 2 send until they are killed, in the middle of a record or not; rank 3 sends all of
 * its own. Rank 0 is told of each death once and gets everything from rank 3. */
static void senders_die(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 18);
    weft_ring_h ring;
    enum { TIMES = 3000 };
    uint64_t next[TEAM_MOST] = {0};
    char record[MOST];
    size_t bytes;
    int from, deaths = 0;
    volatile int *pids = (volatile int *)team->shared;
    CHECK_OK(weft_ring_create(symm, 8, MOST, &ring));
    CHECK_OK(weft_symm_barrier(symm, NULL));
    pids[team->rank] = getpid();
    for (uint64_t i = 0; team->rank != 0 && (team->rank < 3 || i < TIMES); i++) {
        CHECK_OK(weft_ring_push_wait(ring, 0, record, make_record(record, team->rank, 0, i)));
    }
    double start = team_now();
    while (team->rank == 0 && (next[3] < TIMES || deaths < 2)) {
        weft_status_t status = weft_ring_pop_wait(ring, record, &bytes, &from);
        if (status == WEFT_ERR_RANK_DEAD) {
            CHECK_TEXT(weft_last_error(), "died; rank 0 noticed while waiting for a record");
            deaths++;
            continue;
        }
        CHECK_STATUS(status, WEFT_OK);
        check_record(record, bytes, from, 0, next);
        for (int r = 1; r < 3; r++) {
            if (next[r] == 200 * (uint64_t)r) {
                kill(pids[r], SIGKILL);
            }
        }
    }
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK(weft_ring_destroy(ring) != WEFT_OK);
    CHECK(weft_symm_destroy(symm) != WEFT_OK);
}

/* The owner of an inbox dies: those who wait for room in it are told. */
static void owner_dies(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 16);
    weft_ring_h ring;
    CHECK_OK(weft_ring_create(symm, 4, 8, &ring));
    CHECK_OK(weft_symm_barrier(symm, NULL));
    if (team->rank == 0) {
        raise(SIGKILL);
    }
    double start = team_now();
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < 10 && status == WEFT_OK; i++) {
        status = weft_ring_push_wait(ring, 0, &i, sizeof(i));
    }
    CHECK_EQ(status, WEFT_ERR_RANK_DEAD);
    CHECK_TEXT(weft_last_error(), "noticed while waiting for room in the inbox of rank 0");
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK(weft_ring_destroy(ring) != WEFT_OK);
    CHECK(weft_symm_destroy(symm) != WEFT_OK);
}

static void nothing_comes(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 16);
    weft_ring_h ring;
    uint64_t record;
    CHECK_OK(weft_ring_create(symm, 4, 8, &ring));
    CHECK_STATUS(weft_ring_pop_wait(ring, &record, NULL, NULL), WEFT_ERR_TIMEOUT);
    CHECK_TEXT(weft_last_error(), "waiting for a record");
    CHECK_OK(weft_symm_barrier(symm, NULL)); /* nothing is broken */
    CHECK_OK(weft_ring_destroy(ring));
    CHECK_OK(weft_symm_destroy(symm));
}

static const team_fn all[] = {all_to_all, to_one, NULL};

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
PLAN_TEST(senders_that_die, senders_die, .ranks = 4, .may_die = 6)
PLAN_TEST(owner_that_dies, owner_dies, .ranks = 3, .may_die = 1)
PLAN_TEST(record_that_does_not_come, nothing_comes, .ranks = 2, .timeout_ms = 2000)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(four_threads),
#if !UNDER_TSAN /* which sees one process at a time */
        cmocka_unit_test(two_processes),
        cmocka_unit_test(seven_processes),
        cmocka_unit_test(senders_that_die),
        cmocka_unit_test(owner_that_dies),
        cmocka_unit_test(record_that_does_not_come),
#endif
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
