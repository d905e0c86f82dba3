/* Who is dead, gone, late or in another call, from what is reported of the ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/watch.h"

#define S 1000000000ull
#define NOBODY -1

static weft_arrivals_t arrivals;
static weft_seen_t ranks[3];
static weft_fault_t fault;
static bool mismatch, failed;
static int timeout_ms;

static int reset(void **state)
{
    (void)state;
    arrivals = (weft_arrivals_t){0};
    failed = false;
    timeout_ms = 5000;
    for (int p = 0; p < 3; p++) {
        ranks[p] = (weft_seen_t){.rank = p,
                                 .state = WEFT_SEEN_JOINED,
                                 .calls = 7,
                                 .sig = WEFT_COLL_ALLREDUCE,
                                 .count = 1000};
    }
    return 0;
}

/* Rank 0 has queued call 7, with a timeout of 5 s. */
static int judge(uint64_t now)
{
    const weft_waiting_t waiting = {.peer = -1,
                                    .first = 7,
                                    .last = 7,
                                    .timeout_ms = timeout_ms,
                                    .sig = ranks[0].sig,
                                    .count = ranks[0].count,
                                    .compare = true,
                                    .arrivals = &arrivals,
                                    .now_ns = now,
                                    .failed = failed};
    int culprit = weft__watch(&waiting, ranks, 3, &fault) ? fault.culprit : NOBODY;
    mismatch = culprit != NOBODY && fault.status == WEFT_ERR_MISMATCH;
    return culprit;
}

static void all_are_there(void **state)
{
    (void)state;
    assert_int_equal(judge(1 * S), NOBODY);
    assert_int_equal(judge(1000 * S), NOBODY);
    ranks[2].calls = 9; /* ahead, in other calls */
    ranks[2].count = 1;
    assert_int_equal(judge(2000 * S), NOBODY);
    assert_int_equal(judge(3000 * S), NOBODY);
}

static void one_is_late(void **state)
{
    (void)state;
    ranks[2].calls = 6;
    assert_int_equal(judge(1 * S), NOBODY);
    assert_int_equal(judge(6 * S), NOBODY);
    assert_int_equal(judge(6 * S + 1), 2);
    assert_false(mismatch);
}

static void one_that_goes_on_is_not_late(void **state)
{
    (void)state;
    ranks[1].calls = 2;
    for (int i = 1; i <= 5; i++, ranks[1].calls++) { /* a call every 4 seconds */
        assert_int_equal(judge((uint64_t)i * 4 * S), NOBODY);
    }
    ranks[0].calls = 8; /* and the time counts from our own last call */
    ranks[1].calls = 6;
    assert_int_equal(judge(23 * S), NOBODY);
    assert_int_equal(judge(28 * S), NOBODY);
    assert_int_equal(judge(29 * S), 1);
}

static void without_a_timeout_nobody_is_late(void **state)
{
    (void)state;
    ranks[1].calls = 0;
    timeout_ms = 0;
    assert_int_equal(judge(1), NOBODY);
    assert_int_equal(judge(1000 * S), NOBODY);
}

static void one_is_in_another_call(void **state)
{
    (void)state;
    ranks[1].count = 999;
    assert_int_equal(judge(1 * S), NOBODY); /* half of it may have been read */
    assert_int_equal(judge(3 * S / 2), NOBODY);
    assert_int_equal(judge(3 * S / 2 + 1), 1);
    assert_true(mismatch);
    ranks[1].count = ranks[2].count;
    ranks[1].sig = WEFT_COLL_BROADCAST;
    assert_int_equal(judge(3 * S), NOBODY);
    assert_int_equal(judge(5 * S), 1);
    assert_true(mismatch);
}

static void another_call_is_blamed_soon_where_nccl_failed(void **state)
{
    (void)state;
    failed = true;
    ranks[1].sig = WEFT_COLL_BROADCAST;
    assert_int_equal(judge(1 * S), NOBODY);
    assert_int_equal(judge(1 * S + S / 20), NOBODY);
    assert_int_equal(judge(1 * S + S / 20 + 1), 1);
    assert_true(mismatch);
}

static void counts_of_ragged_calls_are_each_ranks_own(void **state)
{
    (void)state;
    for (int p = 0; p < 3; p++) {
        ranks[p].sig = WEFT_COLL_ALLTOALLV;
        ranks[p].count = (uint64_t)p;
    }
    assert_int_equal(judge(1 * S), NOBODY);
    assert_int_equal(judge(100 * S), NOBODY);
}

static void messages_are_no_other_call(void **state)
{
    (void)state;
    ranks[1].sig = WEFT_COLL_SEND;
    ranks[1].count = 16;
    assert_int_equal(judge(1 * S), NOBODY);
    assert_int_equal(judge(100 * S), NOBODY);
}

/* Rank 0 waits in call 7 itself. */
static int judge_now(uint64_t waited_ns)
{
    const weft_waiting_t waiting = {.peer = 1,
                                    .first = 7,
                                    .last = 7,
                                    .timeout_ms = timeout_ms,
                                    .waited_ns = waited_ns,
                                    .lag_ns = S,
                                    .sig = ranks[0].sig,
                                    .count = ranks[0].count,
                                    .compare = true};
    return weft__watch(&waiting, ranks, 3, &fault) ? fault.culprit : NOBODY;
}

static void calls_are_compared_at_once_by_one_who_waits(void **state)
{
    (void)state;
    assert_int_equal(judge_now(0), NOBODY);
    ranks[1].calls = 6; /* it is late, not different */
    ranks[1].count = 1;
    assert_int_equal(judge_now(0), NOBODY);
    ranks[2].count = 999;
    assert_int_equal(judge_now(0), 2);
    assert_int_equal(fault.status, WEFT_ERR_MISMATCH);
    ranks[2].state = WEFT_SEEN_UNKNOWN;
    assert_int_equal(judge_now(0), NOBODY);
}

static void dead_goes_before_left_before_different_before_late(void **state)
{
    (void)state;
    assert_int_equal(judge_now(5 * S), 1); /* all came, but that one is waited for */
    assert_int_equal(fault.status, WEFT_ERR_TIMEOUT);
    ranks[2].count = 999;
    assert_int_equal(judge_now(5 * S), 2);
    assert_int_equal(fault.status, WEFT_ERR_MISMATCH);
    ranks[1].state = WEFT_SEEN_LEFT;
    ranks[1].calls = 6;
    assert_int_equal(judge_now(5 * S), 1);
    assert_int_equal(fault.status, WEFT_ERR_RANK_LEFT);
    ranks[2].state = WEFT_SEEN_ENDED;
    ranks[2].owes = WEFT_OWES_ALL;
    assert_int_equal(judge_now(5 * S), 2);
    assert_int_equal(fault.status, WEFT_ERR_RANK_DEAD);
    ranks[1].state = WEFT_SEEN_ENDED; /* of two, the one that is waited for */
    assert_int_equal(judge_now(5 * S), 1);
}

static void who_owes_nothing_may_go(void **state)
{
    (void)state;
    ranks[1].state = WEFT_SEEN_LEFT;
    ranks[2].state = WEFT_SEEN_ENDED;
    assert_int_equal(judge_now(0), NOBODY);
    ranks[1].owes = WEFT_OWES_REST; /* it left after the call */
    assert_int_equal(judge_now(0), NOBODY);
    ranks[1].owes = WEFT_OWES_ALL;
    assert_int_equal(judge_now(0), 1);
}

static void who_ended_inside_is_missed_when_its_part_does_not_show(void **state)
{
    (void)state;
    ranks[2].state = WEFT_SEEN_ENDED;
    ranks[2].owes = WEFT_OWES_REST;
    ranks[2].gone_ns = S - 1;
    assert_int_equal(judge_now(0), NOBODY);
    assert_int_equal(judge_now(5 * S), 2); /* or time is up */
    assert_int_equal(fault.status, WEFT_ERR_RANK_DEAD);
    ranks[2].gone_ns = S;
    assert_int_equal(judge_now(0), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_are_there, reset),
        cmocka_unit_test_setup(one_is_late, reset),
        cmocka_unit_test_setup(one_that_goes_on_is_not_late, reset),
        cmocka_unit_test_setup(without_a_timeout_nobody_is_late, reset),
        cmocka_unit_test_setup(one_is_in_another_call, reset),
        cmocka_unit_test_setup(another_call_is_blamed_soon_where_nccl_failed, reset),
        cmocka_unit_test_setup(calls_are_compared_at_once_by_one_who_waits, reset),
        cmocka_unit_test_setup(dead_goes_before_left_before_different_before_late, reset),
        cmocka_unit_test_setup(who_owes_nothing_may_go, reset),
        cmocka_unit_test_setup(who_ended_inside_is_missed_when_its_part_does_not_show, reset),
        cmocka_unit_test_setup(messages_are_no_other_call, reset),
        cmocka_unit_test_setup(counts_of_ragged_calls_are_each_ranks_own, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
