/* Lists of CPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "topo/cpu_list.h"

static void lists_are_read(void **state)
{
    static const struct {
        const char *text;
        unsigned long low, high;
    } good[] = {
        {"0", 1, 0},
        {"0-3,8\n", 0x10f, 0},
        {"63-64", 1ul << 63, 1},
        {"5,5,4-6", 0x70, 0},
        {"127,128,999999999999999999999", 0, 1ul << 63}, /* there is room for 128 */
        {"126-18446744073709551615\n", 0, 3ul << 62},
    };
    static const char *const bad[] = {"",     "\n", "many", "1-",    "-1",  "3-2",
                                      "1,,2", "1 ", " 1",   "1-2-3", "128", ","};
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        unsigned long mask[2] = {~0ul, ~0ul};
        assert_true(weft__cpu_list_read(good[i].text, mask, 2));
        assert_int_equal(mask[0], good[i].low);
        assert_int_equal(mask[1], good[i].high);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        unsigned long mask[2] = {~0ul, ~0ul};
        assert_false(weft__cpu_list_read(bad[i], mask, 2));
        assert_int_equal(mask[0] | mask[1], 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists_are_read)};
    return cmocka_run_group_tests_name("lists of CPUs", tests, NULL, NULL);
}
