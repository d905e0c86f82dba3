/* Names of signals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>

#include "base/signal_name.h"

static void signals_have_their_names(void **state)
{
    (void)state;
    char name[WEFT_SIGNAL_NAME];
    assert_string_equal(weft__signal_name(SIGTERM, name), "SIGTERM");
    assert_string_equal(weft__signal_name(SIGKILL, name), "SIGKILL");
    assert_string_equal(weft__signal_name(SIGHUP, name), "SIGHUP");
    assert_string_equal(weft__signal_name(SIGSEGV, name), "SIGSEGV");
    assert_string_equal(weft__signal_name(40, name), "signal 40");
    assert_string_equal(weft__signal_name(64, name), "signal 64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(signals_have_their_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
