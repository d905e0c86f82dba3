/* Where the time of a step goes: made-up times of ranks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/breakdown.h"

/* Equal but for rounding. */
static void near(double a, double b)
{
    assert_true(fabs(a - b) < 1e-9);
}

static void adds_up(const weft_breakdown_t *p)
{
    near(p->compute + p->communication + p->bubble + p->imbalance + p->optimizer + p->data +
             p->rest,
         p->step);
}

static void one_rank_has_no_waits(void **state)
{
    (void)state;
    weft_breakdown_t p;
    weft_rank_times_t rank = {.step = 10, .run = 7, .update = 2, .data = 0.5};
    weft__breakdown(&rank, 1, 1, &p);
    near(p.step, 10);
    near(p.compute, 7);
    near(p.optimizer, 2);
    near(p.data, 0.5);
    near(p.rest, 0.5);
    near(p.communication, 0);
    near(p.imbalance, 0);
    near(p.bubble, 0);
    adds_up(&p);
}

/* Both work alike, so all that they wait for is communication, of every kind. */
static void waits_of_ranks_that_work_alike_are_communication(void **state)
{
    (void)state;
    weft_breakdown_t p;
    weft_rank_times_t rank = {.step = 20,
                              .run = 12,
                              .tensor = 1,
                              .weights = 2,
                              .update = 6,
                              .exchange = 3,
                              .norm = 1,
                              .told = 0.5};
    const weft_rank_times_t ranks[] = {rank, rank};
    weft__breakdown(ranks, 2, 1, &p);
    near(p.compute, 9);
    near(p.communication, 1 + 2 + 3 + 1 + 0.5);
    near(p.optimizer, 2);
    near(p.imbalance, 0);
    near(p.rest, 1.5);
    adds_up(&p);
}

/* Rank 1 works 4 seconds longer, and rank 0 waits for it in the exchange, which takes 1. */
static void waits_for_a_slow_rank_are_imbalance(void **state)
{
    (void)state;
    weft_breakdown_t p;
    const weft_rank_times_t ranks[] = {
        {.step = 12, .run = 6, .update = 6, .exchange = 5},
        {.step = 12, .run = 10, .update = 2, .exchange = 1},
    };
    weft__breakdown(ranks, 2, 1, &p);
    near(p.compute, 8);
    near(p.imbalance, 2);
    near(p.communication, 1);
    near(p.optimizer, 1);
    adds_up(&p);
}

/* A rank that was slow without anybody having waited: nothing is explained by more than the waits
 * that there were. */
static void imbalance_is_at_most_what_was_waited(void **state)
{
    (void)state;
    weft_breakdown_t p;
    const weft_rank_times_t ranks[] = {
        {.step = 12, .run = 4, .exchange = 1, .update = 1},
        {.step = 12, .run = 12},
    };
    weft__breakdown(ranks, 2, 1, &p);
    near(p.imbalance, 0.5);
    near(p.communication, 0);
    adds_up(&p);
}

/* Two stages with as much work: what they wait for is the bubble, also where the one that is done
 * first waits for the norm. */
static void stages_that_work_alike_have_a_bubble_only(void **state)
{
    (void)state;
    weft_breakdown_t p;
    const weft_rank_times_t ranks[] = {
        {.step = 13, .run = 10, .pipeline = 2, .update = 3, .norm = 1, .stage = 0},
        {.step = 13, .run = 9, .pipeline = 1, .update = 4, .norm = 2, .stage = 1},
    };
    weft__breakdown(ranks, 2, 2, &p);
    near(p.compute, 8);
    near(p.bubble, 1.5 + 0.5);
    near(p.communication, 1.5 - 0.5);
    near(p.imbalance, 0);
    near(p.optimizer, 2);
    adds_up(&p);
}

/* Stage 1 has 2 seconds more of work than stage 0, and the mean of both 1 less than that. */
static void stages_that_work_unlike_are_imbalance(void **state)
{
    (void)state;
    weft_breakdown_t p;
    const weft_rank_times_t ranks[] = {
        {.step = 10, .run = 10, .pipeline = 4, .stage = 0},
        {.step = 10, .run = 10, .pipeline = 2, .stage = 1},
    };
    weft__breakdown(ranks, 2, 2, &p);
    near(p.compute, 7);
    near(p.imbalance, 1);
    near(p.bubble, 2);
    adds_up(&p);
}

/* dp 2 x pp 2: each stage has a slow rank. */
static void imbalance_inside_stages_and_between_them(void **state)
{
    (void)state;
    weft_breakdown_t p;
    const weft_rank_times_t ranks[] = {
        {.step = 20, .run = 12, .pipeline = 4, .update = 8, .exchange = 4, .stage = 0},
        {.step = 20, .run = 14, .pipeline = 4, .update = 6, .exchange = 2, .stage = 0},
        {.step = 20, .run = 14, .pipeline = 2, .update = 6, .exchange = 2, .stage = 1},
        {.step = 20, .run = 14, .pipeline = 0, .update = 6, .exchange = 2, .stage = 1},
    };
    /* work: 12, 14 | 16, 18; runs end 0.5 early in the mean */
    weft__breakdown(ranks, 4, 2, &p);
    near(p.imbalance, 1 + 2);
    near(p.communication, 2.5 - 0.5 - 1);
    near(p.bubble, 2.5 + 0.5 - 2);
    adds_up(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_has_no_waits),
        cmocka_unit_test(waits_of_ranks_that_work_alike_are_communication),
        cmocka_unit_test(waits_for_a_slow_rank_are_imbalance),
        cmocka_unit_test(imbalance_is_at_most_what_was_waited),
        cmocka_unit_test(stages_that_work_alike_have_a_bubble_only),
        cmocka_unit_test(stages_that_work_unlike_are_imbalance),
        cmocka_unit_test(imbalance_inside_stages_and_between_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
