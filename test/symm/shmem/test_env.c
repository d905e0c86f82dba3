/* SHMEM_SYMMETRIC_SIZE, as the specification describes it. */
#include "device/child.h"
#include "symm/shmem/env.h"

static void sizes_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"4096", 4096},
        {"20m", 20971520},
        {"3.1M", 3250586}, /* rounded up */
        {".5m", 524288},
        {"0.5m", 524288},
        {"20kk", 20480}, /* what follows the factor does not count */
        {"1.5g", 1610612736},
        {"2T", (size_t)2 << 40},
        {"7.0001", 8},
    };
    static const char *const bad[] = {"",    "m",   "-1",   "+1",   " 1",       "1x", "much",
                                      "inf", "nan", "0x10", "1e30", "9999999t", "."};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        size_t bytes = 99;
        assert_true(weft__shmem_parse_size(good[i].text, &bytes));
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        size_t bytes;
        assert_false(weft__shmem_parse_size(bad[i], &bytes));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes_are_read)};
    return cmocka_run_group_tests_name("shmem environment", tests, NULL, NULL);
}
