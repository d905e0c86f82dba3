/* ctest: timeout=120 waits */
/* Pairs, links and training pairs in which one rank fails, or is killed: all ranks return at once,
 * with the reason, and keep their communicators. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/settings.h"
#include "bench/links.h"
#include "bench/pair.h"
#include "comm/harness.h"

#define BAD 1 /* the rank that fails */

typedef enum moment { IN_OPEN, IN_CHECK, IN_LOOP, MOMENTS } moment_t;

typedef struct fault {
    moment_t moment;
    bool killed; /* it does not fail, it is killed */
} fault_t;

static const fault_t *planned;

static weft_status_t fail_at(const weft_pair_run_t *run, moment_t moment)
{
    if (run->rank != BAD || planned->moment != moment) {
        return WEFT_OK;
    }
    if (planned->killed) {
        kill(getpid(), SIGKILL);
    }
    return weft__fail(WEFT_ERR_SYSTEM, "no room for %d apples", 7);
}

static size_t heap_bytes(const weft_pair_run_t *run)
{
    (void)run;
    return 4096;
}

static weft_status_t open_it(weft_pair_run_t *run)
{
    void *memory;
    WEFT_TRY(fail_at(run, IN_OPEN));
    return weft_symm_malloc(run->symm, 64, &memory);
}

static weft_status_t check_it(weft_pair_run_t *run, size_t *wrong_p)
{
    *wrong_p = 0;
    WEFT_TRY(fail_at(run, IN_CHECK));
    return weft_barrier(run->comm, NULL);
}

static weft_status_t loop_it(weft_pair_run_t *run, int rounds)
{
    (void)rounds;
    WEFT_TRY(fail_at(run, IN_LOOP));
    return weft_barrier(run->comm, NULL);
}

static const weft_pair_t pair = {.target = "faulty",
                                 .group = "test",
                                 .ways = {{"one", loop_it}, {"other", loop_it}},
                                 .heap = heap_bytes,
                                 .open = open_it,
                                 .check = check_it};

static void measure_pair(team_t *team)
{
    const weft_pair_plan_t plan = {.iters = 1, .least = 2, .most = 2, .check = true, .seed = 5};
    weft_pair_row_t row;
    int rank;
    planned = team->arg;
    team_note("a fault in moment %d", planned->moment);
    double start = team_now();
    weft_status_t status = weft__pair_measure(&plan, &pair, team->comm, 0, &row);
    CHECK_WITHIN(team_now() - start, SOON);
    if (planned->killed) {
        CHECK_STATUS(status, WEFT_ERR_RANK_DEAD);
    } else {
        CHECK_STATUS(status, team->rank == BAD ? WEFT_ERR_SYSTEM : WEFT_ERR_ABORTED);
        CHECK_TEXT(weft_last_error(),
                   team->rank == BAD ? "no room for 7 apples" : "rank 1 gave up: no room for 7");
    }
    CHECK_OK(weft_comm_rank(team->comm, &rank)); /* the handle is ours */
}

static void a_rank_fails_in_a_pair(void **state)
{
    (void)state;
    for (moment_t moment = IN_OPEN; moment < MOMENTS; moment++) {
        const fault_t fault = {.moment = moment};
        /* the timeout is far beyond SOON: nobody waits for it */
        assert_true(team_run(&(team_plan_t){.ranks = 3, .timeout_ms = 300000, .arg = &fault},
                             measure_pair));
        assert_true(
            team_run(&(team_plan_t){.ranks = 4, .procs = 1, .timeout_ms = 300000, .arg = &fault},
                     measure_pair));
    }
}

static void a_rank_is_killed_in_a_pair(void **state)
{
    (void)state;
    for (moment_t moment = IN_OPEN; moment < MOMENTS; moment++) {
        const fault_t fault = {.moment = moment, .killed = true};
        assert_true(team_run(
            &(team_plan_t){.ranks = 3, .timeout_ms = 300000, .may_die = 1u << BAD, .arg = &fault},
            measure_pair));
    }
}

/* One rank has a setting that is no link, which it finds when it begins. */
static void measure_links(team_t *team)
{
    weft_links_t links = {.profile = weft__links_profile("quick"), .ranks_here = team->size};
    int findings, rank;
    if (team->rank == BAD) {
        weft__settings_set("WEFT_TEST_SLOW_LINK", "nonsense");
    }
    weft__links_read_machine(&links);
    double start = team_now();
    weft_status_t status = weft__links_run(&links, team->comm, &findings);
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK_STATUS(status, team->rank == BAD ? WEFT_ERR_INVALID : WEFT_ERR_ABORTED);
    CHECK_TEXT(weft_last_error(), "WEFT_TEST_SLOW_LINK is \"nonsense\"");
    CHECK_OK(weft_comm_rank(team->comm, &rank)); /* the handle is ours */
    weft__links_cleanup(&links);
}

static void a_rank_fails_in_links(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 3, .timeout_ms = 300000}, measure_links));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_fails_in_a_pair),
        cmocka_unit_test(a_rank_is_killed_in_a_pair),
        cmocka_unit_test(a_rank_fails_in_links),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
