/* ctest: timeout=120 */
/* Runs of weft pairs: what all ranks make of a failure that rank 0 alone sees, and noise in runs
 * that are to be kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "bench/pairs/internal.h"
#include "comm/harness.h"

/* ---- a full disk ------------------------------------------------------------------------ */

static void fill_the_disk(team_t *team)
{
    char halo[] = "halo", *names[] = {halo};
    weft_pairs_t pairs = {.names = names,
                          .name_count = 1,
                          .profile = "quick",
                          .iters = 1,
                          .json = "/dev/full",
                          .trace = ""};
    weft_pairs_outcome_t outcome;
    CHECK_STATUS(weft__pairs_run(&pairs, team->comm, &outcome), WEFT_ERR_SYSTEM);
    CHECK_TEXT(weft_last_error(), "cannot write /dev/full: No space left on device");
    CHECK_OK(weft_barrier(team->comm, NULL)); /* a full disk breaks no communicator */
}

static void open_nothing(team_t *team)
{
    weft_pairs_t pairs = {.profile = "quick", .json = "/no/such/folder/x.json", .trace = ""};
    weft_pairs_outcome_t outcome;
    CHECK_STATUS(weft__pairs_run(&pairs, team->comm, &outcome), WEFT_ERR_NOT_FOUND);
    CHECK_TEXT(weft_last_error(), "/no/such/folder");
    CHECK_OK(weft_barrier(team->comm, NULL));
}

static void all_ranks_learn_of_a_full_disk(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 2}, fill_the_disk));
    assert_true(team_run(&(team_plan_t){.ranks = 3, .procs = 1}, fill_the_disk));
    assert_true(team_run(&(team_plan_t){.ranks = 2}, open_nothing));
}

/* ---- noise ------------------------------------------------------------------------------ */

static int opened, noisy_runs;
static uint64_t rounds_run;

static weft_status_t open_it(weft_pair_run_t *run)
{
    (void)run;
    opened++;
    return WEFT_OK;
}

static weft_status_t check_it(weft_pair_run_t *run, size_t *wrong_p)
{
    (void)run;
    *wrong_p = 0;
    return WEFT_OK;
}

static weft_status_t take(uint64_t ns)
{
    uint64_t end = weft__now_ns() + ns;
    while (weft__now_ns() < end) {
    }
    return WEFT_OK;
}

static weft_status_t steady(weft_pair_run_t *run, int rounds)
{
    (void)run;
    return take((uint64_t)rounds * 20000);
}

/* Half of its loops take ten times as long, in the first `noisy_runs` measurements; then it is
 * clearly slower than the other one, on a busy machine too. */
static weft_status_t restless(weft_pair_run_t *run, int rounds)
{
    bool noisy = opened <= noisy_runs, slow = rounds_run++ * 0x9e3779b97f4a7c15ull >> 63;
    (void)run;
    return take((uint64_t)rounds * (!noisy ? 200000 : slow ? 63000 : 6300));
}

static const weft_pair_t pair = {.target = "restless",
                                 .group = "test",
                                 .ways = {{"steady", steady}, {"restless", restless}},
                                 .open = open_it,
                                 .check = check_it};

static void measure(weft_comm_h comm, bool keep, int noisy, weft_pair_row_t *row)
{
    const weft_pair_plan_t plan = {
        .iters = 2, .loop_ns = 1, .least = 16, .most = 16, .budget_ns = 1, .seed = 3};
    opened = 0;
    noisy_runs = noisy;
    CHECK_OK(weft__pairs_measure(&plan, keep, &pair, comm, 0, row));
}

static void measure_again(team_t *team)
{
    weft_pair_row_t row;
    measure(team->comm, false, 9, &row); /* not to be kept: once */
    CHECK_EQ(opened, 1);
    CHECK_EQ(row.ways[1].repeats, 16);
    measure(team->comm, true, 2, &row);
    CHECK_EQ(opened, 3);
    CHECK_EQ(row.ways[1].repeats, 64);
    measure(team->comm, true, 9, &row); /* in vain */
    CHECK_EQ(opened, 1 + WEFT_PAIRS_AGAIN);
    CHECK_EQ(row.ways[1].repeats, 128);
}

static void a_noisy_pair_is_measured_again(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 1}, measure_again));
}

/* Rows as rank 0 gets them: `noisy` of 40 are. */
static weft_status_t keep(const char *path, int noisy)
{
    static weft_pair_row_t row;
    weft_pairs_t pairs = {.profile = "quick", .expectations = path, .update = true, .trace = ""};
    weft_pairs_report_t report = {.pairs = &pairs, .seed = 1};
    CHECK_OK(weft__pairs_report_open(&report, 1));
    for (int i = 0; i < 40; i++) {
        row = (weft_pair_row_t){.pair = &pair, .ranks = 1, .bytes = (size_t)1024 * (size_t)(i + 1)};
        for (int way = 0; way < 2; way++) {
            row.ways[way].repeats = 20;
            for (int block = 0; block < 20; block++) {
                bool odd = i < noisy && (block + way) % 2;
                row.ways[way].us[block] = odd ? 50 : 10;
            }
        }
        CHECK_OK(weft__pairs_report_row(&report, &row));
    }
    return weft__pairs_report_close(&report, WEFT_OK);
}

static void keep_runs(team_t *team)
{
    char path[] = "/tmp/weft-test-run-XXXXXX", file[64];
    (void)team;
    CHECK(mkdtemp(path) != NULL);
    snprintf(file, sizeof(file), "%s/of.json", path);
    CHECK_STATUS(keep(file, 1), WEFT_ERR_INVALID); /* one of 40 */
    CHECK_TEXT(weft_last_error(),
               "restless, restless, 1K was too noisy to tell, measured 4 times;");
    CHECK(access(file, F_OK) != 0);
    CHECK_STATUS(keep(file, 3), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "measured 4 times, and so were 2 more;");
    CHECK_OK(keep(file, 0));
    CHECK_EQ(unlink(file), 0);
    CHECK_EQ(rmdir(path), 0);
}

static void a_noisy_run_is_not_kept(void **state)
{
    (void)state;
    assert_true(team_run(&(team_plan_t){.ranks = 1}, keep_runs));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_learn_of_a_full_disk),
        cmocka_unit_test(a_noisy_pair_is_measured_again),
        cmocka_unit_test(a_noisy_run_is_not_kept),
    };
    setenv("WEFT_EXPECTATIONS", "/nonexistent", 1);
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
