/* ctest: timeout=20 cores=1 */
/* Which remedies are tried for which plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/scaling/points.h"

/* How many of `tried` have this name. */
static int count(const weft_points_t *tried, const char *name)
{
    int found = 0;
    for (int i = 1; i < tried->count; i++) {
        found += strcmp(tried->list[i].remedy, name) == 0;
    }
    return found;
}

/* The point with this plan. */
static const weft_point_t *find(const weft_points_t *points, const char *plan)
{
    for (int i = 0; i < points->count; i++) {
        if (strcmp(points->list[i].plan, plan) == 0) {
            return &points->list[i];
        }
    }
    fail_msg("there is no point %s", plan);
    return NULL;
}

static void gradients_have_remedies_where_they_are_exchanged(void **state)
{
    (void)state;
    static char *argv[] = {"test",    "--benchmark", "--ranks",  "2",  "--device", "cpu",
                           "--model", "tiny",        "--length", "16", NULL};
    static weft_points_t points, tried;
    weft_train_config_t config;
    weft_setup_t setup = {0};
    bool help;
    assert_int_equal(weft__train_parse(10, argv, &config, &help), WEFT_OK);
    config.micro_batch = 2;
    weft_train_config_t asked = config;
    assert_int_equal(weft__setup_open(&config, &setup), WEFT_OK);
    const weft_scaling_t scaling = {.base = &setup,
                                    .asked = &asked,
                                    .batch = 2,
                                    .weak = true,
                                    .plans = true,
                                    .steps = 1,
                                    .rounds = 1};
    assert_int_equal(weft__points_make(&scaling, 2, &points), WEFT_OK);

    assert_int_equal(weft__points_remedies(&scaling, find(&points, "dp 2"), &tried), WEFT_OK);
    assert_int_equal(count(&tried, "overlap, buckets"), 3);
    assert_int_equal(count(&tried, "compression"), 2);

    static const char *const alone[] = {"tp 2", "pp 2"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weft__points_remedies(&scaling, find(&points, alone[i]), &tried), WEFT_OK);
        assert_int_equal(count(&tried, "overlap, buckets"), 0);
        assert_int_equal(count(&tried, "compression"), 0);
        assert_int_equal(count(&tried, "larger batch"), 1);
        assert_true(count(&tried, "another plan") > 0);
    }
    weft__setup_close(&setup);
    weft__train_free(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_have_remedies_where_they_are_exchanged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
