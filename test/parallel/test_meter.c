/* Stretches of two steps in turn, while the host is a step ahead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "parallel/meter.h"

#include <cmocka.h>

static void nap(void *arg)
{
    long ms = *(const long *)arg;
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static void stretch(weft_meter_t *meter, weft_stretch_t kind, const long *ms)
{
    int number = weft__meter_begin(meter, kind);
    assert_true(number >= 0);
    assert_int_equal(weft_stream_call(meter->stream, nap, (void *)(uintptr_t)ms), WEFT_OK);
    weft__meter_end(meter, number);
}

static void steps_do_not_mix(void **state)
{
    static const long ms[] = {20, 40, 80};
    double seconds[2][WEFT_STRETCHES];
    weft_meter_t meter;
    weft_stream_h stream;
    (void)state;
    assert_int_equal(weft_stream_create(&stream), WEFT_OK);
    weft__meter_open(&meter, stream, NULL);
    for (int round = 0; round < 2; round++) { /* what the first left is gone in the second */
        weft__meter_step(&meter, 0);
        stretch(&meter, WEFT_STRETCH_RUN, &ms[0]);
        stretch(&meter, WEFT_STRETCH_UPDATE, &ms[1]);
        weft__meter_step(&meter, 1); /* queued before the first is read */
        stretch(&meter, WEFT_STRETCH_RUN, &ms[2]);
        assert_int_equal(weft_stream_synchronize(stream), WEFT_OK);
        weft__meter_take(&meter, 0, seconds[0]);
        weft__meter_take(&meter, 1, seconds[1]);
        /* a busy machine makes naps longer, never shorter */
        assert_true(seconds[0][WEFT_STRETCH_RUN] >= 0.019);
        assert_true(seconds[0][WEFT_STRETCH_UPDATE] >= 0.039);
        assert_true(seconds[1][WEFT_STRETCH_RUN] >= 0.079);
        assert_true(seconds[1][WEFT_STRETCH_UPDATE] == 0.0);
        assert_true(seconds[0][WEFT_STRETCH_TENSOR] == 0.0);
        assert_int_equal(meter.steps[0].count, 2);
        assert_int_equal(meter.steps[1].count, 1);
    }
    weft__meter_close(&meter);
    assert_int_equal(weft_stream_destroy(stream), WEFT_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_do_not_mix)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
