/* ctest: timeout=60 */
/* Files of expectations: runs that update one at the same time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/version.h"
#include "bench/pairs/internal.h"

#define WRITERS 10

static char folder[] = "/tmp/weft-test-expectations-XXXXXX";
static char file[sizeof(folder) + 16];

static const weft_ratio_t ratio = {.ratio = 2,
                                   .low = 1.9,
                                   .high = 2.1,
                                   .sure_low = 1.8,
                                   .sure_high = 2.2,
                                   .verdict = WEFT_VERDICT_FASTER};

static weft_pairs_t describe(void)
{
    weft_pairs_t pairs = {.profile = "quick", .expectations = file, .update = true};
    snprintf(pairs.machine.processor, sizeof(pairs.machine.processor), "some processor");
    return pairs;
}

/* Read the file, wait until all have, then add a pair of its own. */
static int update(int writer, int ready, int go)
{
    weft_pairs_t pairs = describe();
    weft_expectations_t expected;
    char name[32], byte;
    snprintf(name, sizeof(name), "pair-%d", writer);
    if (weft__expectations_open(&expected, &pairs, 2) != WEFT_OK ||
        weft__expectations_add(&expected, name, "fast", 64, &ratio) != WEFT_OK ||
        write(ready, "r", 1) != 1 || read(go, &byte, 1) != 0) {
        return 1;
    }
    weft_status_t status = weft__expectations_update(&expected, &pairs, (uint64_t)writer);
    weft__expectations_close(&expected);
    return status != WEFT_OK;
}

static void ten_at_once_lose_nothing(void **state)
{
    int ready[2], go[2], status;
    pid_t pids[WRITERS];
    (void)state;
    assert_int_equal(pipe(ready) | pipe(go), 0);
    for (int i = 0; i < WRITERS; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            close(go[1]);
            _exit(update(i, ready[1], go[0]));
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        char byte;
        assert_int_equal(read(ready[0], &byte, 1), 1);
    }
    close(go[1]);
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    weft_pairs_t pairs = describe();
    weft_expectations_t expected;
    assert_int_equal(weft__expectations_open(&expected, &pairs, 2), WEFT_OK);
    for (int i = 0; i < WRITERS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "pair-%d", i);
        assert_non_null(weft__expectations_of(&expected, name, "fast", 64));
    }
    const weft_json_value_t *history = weft__json_get(expected.doc.root, "history");
    assert_non_null(history);
    assert_int_equal(history->length, WRITERS);
    weft__expectations_close(&expected);
}

/* What the range was when this run began counts no more: another run has changed it since. */
static void a_range_grows_from_what_is_there_now(void **state)
{
    weft_pairs_t pairs = describe();
    weft_expectations_t early, late;
    weft_ratio_t lower = ratio;
    (void)state;
    lower.low = 1.5;
    assert_int_equal(weft__expectations_open(&early, &pairs, 2), WEFT_OK);
    assert_int_equal(weft__expectations_open(&late, &pairs, 2), WEFT_OK);
    assert_int_equal(weft__expectations_add(&early, "pair-0", "fast", 64, &lower), WEFT_OK);
    assert_int_equal(weft__expectations_add(&late, "pair-0", "fast", 64, &ratio), WEFT_OK);
    assert_int_equal(weft__expectations_update(&early, &pairs, 1), WEFT_OK);
    assert_int_equal(weft__expectations_update(&late, &pairs, 2), WEFT_OK);
    weft__expectations_close(&early);
    weft__expectations_close(&late);
    assert_int_equal(weft__expectations_open(&late, &pairs, 2), WEFT_OK);
    const weft_expectation_t *row = weft__expectations_of(&late, "pair-0", "fast", 64);
    assert_non_null(row);
    assert_true(row->low < 1.4);
    weft__expectations_close(&late);
}

/* Runs of one commit differ by what the machine does; one of another commit that is outside takes
 * the place of what was expected. */
static void a_range_holds_all_runs_of_a_commit(void **state)
{
    static const struct {
        const char *commit;
        double value, low, high;
    } runs[] = {{"a", 1, 0.9, 1.1}, {"a", 4, 0.9, 4.4}, {"a", 2, 0.9, 4.4}, {"b", 9, 8.1, 9.9}};
    (void)state;
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        weft_pairs_t pairs = describe();
        weft_expectations_t expected;
        weft_ratio_t now = ratio;
        now.ratio = now.low = now.high = runs[i].value;
        weft__commit = runs[i].commit;
        assert_int_equal(weft__expectations_open(&expected, &pairs, 2), WEFT_OK);
        assert_int_equal(weft__expectations_add(&expected, "again", "fast", 64, &now), WEFT_OK);
        assert_int_equal(weft__expectations_update(&expected, &pairs, 1), WEFT_OK);
        weft__expectations_close(&expected);
        assert_int_equal(weft__expectations_open(&expected, &pairs, 2), WEFT_OK);
        const weft_expectation_t *row = weft__expectations_of(&expected, "again", "fast", 64);
        assert_non_null(row);
        assert_true(row->low > runs[i].low * 0.99 && row->low < runs[i].low * 1.02);
        assert_true(row->high > runs[i].high * 0.99 && row->high < runs[i].high * 1.02);
        weft__expectations_close(&expected);
    }
    weft__commit = "";
}

static void nothing_is_left_behind(void **state)
{
    (void)state;
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(folder), 0); /* it is empty */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_at_once_lose_nothing),
        cmocka_unit_test(a_range_grows_from_what_is_there_now),
        cmocka_unit_test(a_range_holds_all_runs_of_a_commit),
        cmocka_unit_test(nothing_is_left_behind),
    };
    if (!mkdtemp(folder)) {
        perror(folder);
        return 1;
    }
    snprintf(file, sizeof(file), "%s/of.json", folder);
    setenv("WEFT_DEVICE", "cpu", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
