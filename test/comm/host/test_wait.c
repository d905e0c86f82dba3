/* Waiting: no longer than it must. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define weft__wait_slow count_slow_wait /* in place of the one that yields and sleeps */
#include "base/clock.h"
#include "base/settings.h"
#include "comm/host/wait.h"

#define MS 1000000ull

static int slow_waits;

weft_status_t count_slow_wait(weft_host_t *host, int peer, const _Atomic uint64_t *word,
                              uint64_t target)
{
    (void)host, (void)peer, (void)word, (void)target;
    slow_waits++;
    return WEFT_OK;
}

static void what_is_there_is_not_waited_for(void **state)
{
    weft_host_t host = {.spin = 1};
    _Atomic uint64_t word = 7;
    (void)state;
    assert_int_equal(weft__wait(&host, 0, &word, 6), WEFT_OK);
    assert_int_equal(weft__wait(&host, 0, &word, 7), WEFT_OK);
    assert_int_equal(slow_waits, 0);
    assert_int_equal(weft__wait(&host, 0, &word, 8), WEFT_OK);
    assert_int_equal(slow_waits, 1);
}

/* The shortest nap of many, `waited` after the wait began. */
static uint64_t nap_after(uint64_t waited)
{
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 200; i++) {
        uint64_t before = weft__now_ns();
        weft_idler_t idler = {.yields = 15, .start_ns = before - waited};
        assert_true(weft__wait_idle(&idler, false));
        uint64_t took = weft__now_ns() - before;
        least = took < least ? took : least;
    }
    return least;
}

/* A nap is never shorter than asked for, and on a busy machine often longer: so of many the
 * shortest. */
static void naps_grow_with_the_wait(void **state)
{
    (void)state;
    uint64_t early = nap_after(21 * MS), late = nap_after(1000 * MS);
    assert_true(early < 9 * MS / 10);
    assert_true(late >= MS);
}

/* Also none. */
static void polls_are_as_many_as_asked_for(void **state)
{
    (void)state;
    assert_true(weft__wait_spin(false) > 0);
    assert_int_equal(weft__wait_spin(true), 0);
    weft__settings_set("WEFT_SPIN", "0");
    assert_int_equal(weft__wait_spin(false), 0);
    weft__settings_set("WEFT_SPIN", "7");
    assert_int_equal(weft__wait_spin(true), 7);
}

int main(void)
{
    unsetenv("WEFT_SPIN");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_there_is_not_waited_for),
        cmocka_unit_test(naps_grow_with_the_wait),
        cmocka_unit_test(polls_are_as_many_as_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
