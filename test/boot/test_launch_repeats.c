/* What several ranks say alike is shown once, and nothing else is left out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "boot/launch.h"
#include "boot/launch_repeats.h"

static bool same(const char *a, int a_rank, const char *b, int b_rank)
{
    return weft__same_words(a, strlen(a), a_rank, b, strlen(b), b_rank);
}

static bool heard(weft_repeats_t *repeats, int rank, const char *line)
{
    return weft__repeats_heard(repeats, rank, line, strlen(line));
}

static void lines_may_differ_in_the_rank(void **state)
{
    (void)state;
    assert_true(same("no memory", 0, "no memory", 7));
    assert_true(same("[weft 3] device 3 has 12 MiB", 3, "[weft 11] device 11 has 12 MiB", 11));
    assert_true(same("device 0 has 1 MiB, 0 in use", 0, "device 1 has 1 MiB, 0 in use", 1));
    assert_false(same("device 0 has 2 MiB", 0, "device 1 has 3 MiB", 1));
    assert_false(same("rank 2 died", 0, "rank 3 died", 1));
    assert_false(same("no memory", 0, "no memory at all", 1));
    assert_false(same("12", 1, "1", 1));
    assert_false(same("x", 0, "", 0));
    assert_true(same("at 99999999999999999999", 0, "at 99999999999999999999", 1));
}

static void others_are_left_out_and_who_repeats_is_not(void **state)
{
    (void)state;
    weft_repeats_t *repeats = weft__repeats_create();
    assert_non_null(repeats);
    assert_false(heard(repeats, 2, "it failed"));
    assert_true(heard(repeats, 0, "it failed"));
    assert_true(heard(repeats, WEFT_MAX_RANKS - 1, "it failed"));
    assert_false(heard(repeats, 1, "another reason"));
    assert_false(heard(repeats, 0, "it failed")); /* once more, by the same */
    assert_true(heard(repeats, 2, "it failed"));
    assert_false(heard(repeats, 1, "")); /* an empty line is a distance */
    assert_false(heard(repeats, 2, ""));
    weft__repeats_reset(repeats);
    assert_false(heard(repeats, 1, "it failed"));
    weft__repeats_destroy(repeats);
    weft__repeats_destroy(NULL);
}

static void every_rank_of_the_largest_job_is_told_from_the_others(void **state)
{
    (void)state;
    weft_repeats_t *repeats = weft__repeats_create();
    assert_non_null(repeats);
    assert_false(heard(repeats, 0, "it failed"));
    for (int rank = 1; rank < WEFT_MAX_RANKS; rank++) {
        assert_true(heard(repeats, rank, "it failed"));
    }
    assert_false(heard(repeats, 64, "it failed"));
    weft__repeats_destroy(repeats);
}

static void what_is_long_ago_is_said_again(void **state)
{
    (void)state;
    char line[32];
    weft_repeats_t *repeats = weft__repeats_create();
    assert_non_null(repeats);
    for (int i = 0; i < 1000; i++) {
        snprintf(line, sizeof(line), "line %d", 5000 + i);
        assert_false(heard(repeats, 0, line));
        assert_true(heard(repeats, 1, line));
    }
    assert_false(heard(repeats, 1, "line 5000"));
    char large[4096];
    memset(large, 'x', sizeof(large));
    assert_false(weft__repeats_heard(repeats, 0, large, sizeof(large)));
    assert_false(weft__repeats_heard(repeats, 1, large, sizeof(large)));
    weft__repeats_destroy(repeats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_may_differ_in_the_rank),
        cmocka_unit_test(others_are_left_out_and_who_repeats_is_not),
        cmocka_unit_test(every_rank_of_the_largest_job_is_told_from_the_others),
        cmocka_unit_test(what_is_long_ago_is_said_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
