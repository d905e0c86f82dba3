/* Schedules run to their end whatever the ranks' speed, keep as many micro-batches as they should,
 * and leave the bubble that the formula says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "parallel/schedule.h"

enum { MOST_RANKS = 8, MOST_OPS = 1024, MOST_STAGES = 64, MOST_MICRO = 64 };

typedef struct world {
    weft_plan_t plan;
    weft_action_t ops[MOST_RANKS][MOST_OPS];
    int count;
    int at[MOST_RANKS];                      /* entries done */
    double free[MOST_RANKS];                 /* when the rank is */
    double done[2][MOST_STAGES][MOST_MICRO]; /* when; -1: not yet */
} world_t;

static void open_world(world_t *w, weft_schedule_t schedule, int pp, int v, int micro)
{
    w->plan = (weft_plan_t){.dp = 1,
                            .pp = pp,
                            .tp = 1,
                            .schedule = schedule,
                            .virtual_stages = v,
                            .micro_batches = micro};
    w->count = weft__schedule_length(&w->plan, true);
    assert_true(w->count <= MOST_OPS);
    for (int rank = 0; rank < pp; rank++) {
        weft__schedule_fill(&w->plan, rank, true, w->ops[rank]);
        w->at[rank] = 0;
        w->free[rank] = 0;
    }
    for (int i = 0; i < 2 * MOST_STAGES * MOST_MICRO; i++) {
        (&w->done[0][0][0])[i] = -1;
    }
}

/* When what the entry reads is there; -1: not yet. */
static double input_of(const world_t *w, int rank, const weft_action_t *op)
{
    int stages = w->plan.pp * w->plan.virtual_stages, stage = op->chunk * w->plan.pp + rank;
    if (!op->backward) {
        return stage == 0 ? 0 : w->done[0][stage - 1][op->micro];
    }
    double own = w->done[0][stage][op->micro];
    double after = stage == stages - 1 ? own : w->done[1][stage + 1][op->micro];
    return own < 0 || after < 0 ? -1 : own > after ? own : after;
}

/* Run all lists; forward takes forward[rank], backward twice as long. Returns the time of the
 * whole. */
static double run_world(world_t *w, const double *forward)
{
    double end = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < w->plan.pp; rank++) {
            while (w->at[rank] < w->count) {
                const weft_action_t *op = &w->ops[rank][w->at[rank]];
                double ready = input_of(w, rank, op), took = forward[rank] * (op->backward ? 2 : 1);
                if (ready < 0) {
                    break;
                }
                double *free = &w->free[rank];
                *free = (ready > *free ? ready : *free) + took;
                double *done = &w->done[op->backward][op->chunk * w->plan.pp + rank][op->micro];
                assert_true(*done < 0); /* each entry once */
                *done = *free;
                end = *free > end ? *free : end;
                w->at[rank]++;
                moved = true;
            }
        }
    }
    for (int rank = 0; rank < w->plan.pp; rank++) {
        assert_int_equal(w->at[rank], w->count);
    }
    return end;
}

static void check_bubble(world_t *w)
{
    static const double alike[MOST_RANKS] = {1, 1, 1, 1, 1, 1, 1, 1};
    double all = run_world(w, alike);
    double busy = 3.0 * w->plan.micro_batches * w->plan.virtual_stages;
    double bubble = 1 - busy / all, formula = weft__schedule_bubble(&w->plan);
    if (bubble > formula + 1e-9 || bubble < formula - 1e-9) {
        fail_msg("%s pp %d, %d micro-batches, %d stages a rank: bubble %.4f, formula %.4f",
                 weft__schedule_name(w->plan.schedule), w->plan.pp, w->plan.micro_batches,
                 w->plan.virtual_stages, bubble, formula);
    }
}

static void every_schedule_ends_with_the_bubble_of_its_formula(void **state)
{
    static world_t w;
    (void)state;
    for (int pp = 1; pp <= MOST_RANKS; pp++) {
        for (int micro = 1; micro <= 3 * pp; micro++) {
            open_world(&w, WEFT_GPIPE, pp, 1, micro);
            check_bubble(&w);
            open_world(&w, WEFT_1F1B, pp, 1, micro);
            check_bubble(&w);
            for (int v = 2; v <= 4 && pp > 1 && micro % pp == 0; v++) {
                open_world(&w, WEFT_INTERLEAVED, pp, v, micro);
                check_bubble(&w);
            }
        }
    }
}

/* One stage is slower than the others, or all are a little unlike. */
static void unlike_stages_leave_the_bubble_that_is_expected(void **state)
{
    static const weft_schedule_t schedules[] = {WEFT_GPIPE, WEFT_1F1B, WEFT_INTERLEAVED};
    static world_t w;
    (void)state;
    for (int i = 0; i < 3 * 2 * 5; i++) {
        double forward[4] = {1.0, 1.02, 0.97, 1.01}, busy[4], sum = 0;
        int v = i % 3 == 2 ? 2 : 1, slow = i / 6;
        if (slow < 4) {
            forward[slow] = 1.15;
        }
        open_world(&w, schedules[i % 3], 4, v, i / 3 % 2 ? 8 : 16);
        double all = run_world(&w, forward);
        for (int r = 0; r < 4; r++) {
            busy[r] = 3.0 * forward[r] * w.plan.micro_batches * v;
            sum += busy[r];
        }
        double bubble = 1 - sum / 4 / all, expected = weft__schedule_uneven(&w.plan, busy);
        if (!(fabs(bubble - expected) < 1e-9)) {
            fail_msg("%s, %d micro-batches, rank %d slow: bubble %.4f, expected %.4f",
                     weft__schedule_name(w.plan.schedule), w.plan.micro_batches, slow, bubble,
                     expected);
        }
    }
}

static void one_forward_one_backward_keeps_few_micro_batches(void **state)
{
    static world_t w;
    (void)state;
    open_world(&w, WEFT_1F1B, 4, 1, 16);
    for (int rank = 0; rank < 4; rank++) {
        assert_int_equal(weft__schedule_depth(w.ops[rank], w.count, 0), 4 - rank);
    }
    open_world(&w, WEFT_GPIPE, 4, 1, 16);
    assert_int_equal(weft__schedule_depth(w.ops[0], w.count, 0), 16);
}

static void measured_bubble_counts_those_that_are_done_early(void **state)
{
    double run[] = {10, 8}, waited[] = {2, 0};
    (void)state;
    assert_true(weft__schedule_measured(run, waited, 2) > 0.1999);
    assert_true(weft__schedule_measured(run, waited, 2) < 0.2001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_ends_with_the_bubble_of_its_formula),
        cmocka_unit_test(unlike_stages_leave_the_bubble_that_is_expected),
        cmocka_unit_test(one_forward_one_backward_keeps_few_micro_batches),
        cmocka_unit_test(measured_bubble_counts_those_that_are_done_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
