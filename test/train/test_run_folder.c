/* Whose folder a checkpoint lies in. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/file.h"
#include "train/run_folder.h"

#define MANY 1000

/* Right under the root is no run's folder, and asking takes no memory. */
static void root_is_no_run(void **state)
{
    static weft_loaded_t loaded = {.path = "/"};
    char folder[WEFT_PATH_BYTES];
    bool holds;
    (void)state;
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(weft__run_holds("/", &loaded, &holds), WEFT_OK);
        assert_false(holds);
        assert_int_equal(weft__run_folder(&loaded, ".", folder), WEFT_OK);
        assert_string_equal(folder, "");
    }
    assert_in_range(mallinfo2().uordblks, 0, before + MANY);
}

static void what_is_not_there_is_in_no_run(void **state)
{
    static weft_loaded_t loaded = {.path = "/nowhere/step-000001"};
    char folder[WEFT_PATH_BYTES];
    bool holds;
    (void)state;
    assert_int_equal(weft__run_holds("/nowhere", &loaded, &holds), WEFT_OK);
    assert_false(holds);
    assert_int_equal(weft__run_folder(&loaded, "/nowhere", folder), WEFT_OK);
    assert_string_equal(folder, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(root_is_no_run),
        cmocka_unit_test(what_is_not_there_is_in_no_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
