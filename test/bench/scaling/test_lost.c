/* The arithmetic of lost time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "bench/scaling/lost.h"

static void near(double a, double b)
{
    assert_true(fabs(a - b) < 1e-9);
}

static weft_breakdown_t with_sum(weft_breakdown_t p)
{
    p.step = p.compute + p.communication + p.bubble + p.imbalance + p.optimizer + p.data + p.rest;
    return p;
}

static void a_rank_against_itself_loses_nothing(void **state)
{
    (void)state;
    weft_lost_t lost;
    weft_breakdown_t one = with_sum((weft_breakdown_t){.compute = 8, .optimizer = 1, .rest = 1});
    weft__lost(&one, 100, &one, 100, 1, &lost);
    near(lost.efficiency, 1);
    near(weft__lost_sum(&lost), 0);
    near(lost.optimizer, 0);
    near(lost.rest, 0);
}

/* Weak: as much work for each rank, so all that is new in the step is lost. */
static void weak_loses_what_is_new(void **state)
{
    (void)state;
    weft_lost_t lost;
    weft_breakdown_t one = with_sum((weft_breakdown_t){.compute = 8, .optimizer = 2});
    weft_breakdown_t many = with_sum((weft_breakdown_t){
        .compute = 10, .communication = 4, .imbalance = 3, .optimizer = 2, .data = 1});
    weft__lost(&one, 100, &many, 400, 4, &lost);
    near(lost.efficiency, 10.0 / 20);
    near(lost.communication, 4.0 / 20);
    near(lost.imbalance, 3.0 / 20);
    near(lost.data, 1.0 / 20);
    near(lost.optimizer, 0);
    near(lost.compute, 2.0 / 20);
    near(lost.rest, 2.0 / 20);
    near(weft__lost_sum(&lost), 1 - lost.efficiency);
}

/* Strong: an optimizer that all ranks run on all weights is not divided by their number. */
static void strong_loses_an_optimizer_that_is_not_divided(void **state)
{
    (void)state;
    weft_lost_t lost;
    weft_breakdown_t one = with_sum((weft_breakdown_t){.compute = 16, .optimizer = 4});
    weft_breakdown_t many = with_sum((weft_breakdown_t){.compute = 4, .optimizer = 4});
    weft__lost(&one, 100, &many, 100, 4, &lost);
    near(lost.efficiency, 5.0 / 8);
    near(lost.optimizer, 3.0 / 8);
    near(lost.rest, 0);
    near(weft__lost_sum(&lost), 3.0 / 8);
}

/* ZeRO divides it: that wins back a part of what is lost elsewhere. */
static void what_is_won_back_is_negative(void **state)
{
    (void)state;
    weft_lost_t lost;
    weft_breakdown_t one = with_sum((weft_breakdown_t){.compute = 6, .optimizer = 4});
    weft_breakdown_t many = with_sum(
        (weft_breakdown_t){.compute = 6, .optimizer = 1, .communication = 5});
    weft__lost(&one, 100, &many, 400, 4, &lost);
    near(lost.optimizer, -3.0 / 12);
    near(lost.communication, 5.0 / 12);
    near(weft__lost_sum(&lost), 1 - lost.efficiency);
}

/* Whatever the numbers: efficiency is (throughput N / throughput 1) / N, and the parts add up. */
static void parts_add_up_for_any_numbers(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        double x[16];
        for (uint64_t k = 0; k < 16; k++) {
            x[k] = (double)(weft__rng_at(7, 16 * i + k) >> 11) * 0x1p-53;
        }
        int ranks = 1 + (int)(i % 9);
        double tokens_one = 1 + 1000 * x[14], tokens_many = 1 + 9000 * x[15];
        weft_breakdown_t one = with_sum((weft_breakdown_t){.compute = x[0],
                                                           .communication = x[1],
                                                           .bubble = x[2],
                                                           .imbalance = x[3],
                                                           .optimizer = x[4],
                                                           .data = x[5],
                                                           .rest = x[6]});
        weft_breakdown_t many = with_sum((weft_breakdown_t){.compute = x[7],
                                                            .communication = x[8],
                                                            .bubble = x[9],
                                                            .imbalance = x[10],
                                                            .optimizer = x[11],
                                                            .data = x[12],
                                                            .rest = x[13]});
        weft_lost_t lost;
        weft__lost(&one, tokens_one, &many, tokens_many, ranks, &lost);
        near(lost.efficiency, tokens_many / many.step / (tokens_one / one.step) / ranks);
        near(weft__lost_sum(&lost), 1 - lost.efficiency);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_against_itself_loses_nothing),
        cmocka_unit_test(weak_loses_what_is_new),
        cmocka_unit_test(strong_loses_an_optimizer_that_is_not_divided),
        cmocka_unit_test(what_is_won_back_is_negative),
        cmocka_unit_test(parts_add_up_for_any_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
