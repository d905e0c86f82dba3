/* ctest: timeout=60 tsan */
/* Buffers times a scalar on virtual GPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "kernel/scale_cases.h"
#include <weft/weft.h>

static void expect_right(const char *why)
{
    if (why != NULL) {
        fail_msg("%s", why);
    }
}

static void values_of_all_types_and_places(void **state)
{
    (void)state;
    expect_right(scale_values());
}

static void when_the_scalar_is_read(void **state)
{
    (void)state;
    expect_right(scale_order());
}

static void what_is_refused(void **state)
{
    float two = 2, *memory;
    (void)state;
    expect_right(scale_arguments());
    assert_int_equal(weft_malloc((void **)&memory, 64), WEFT_OK);
    assert_int_equal(weft_scale(memory, memory, 17, WEFT_F32, &two, NULL), WEFT_ERR_INVALID);
    assert_int_equal(weft_free(memory), WEFT_OK);
    assert_int_equal(weft_scale(memory, memory, 1, WEFT_F32, &two, NULL), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_last_error(), "weft_scale: dst"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_all_types_and_places),
        cmocka_unit_test(when_the_scalar_is_read),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests_name("kernel/scale", tests, NULL, NULL);
}
