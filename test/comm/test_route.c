/* Which way a communicator goes: the votes of its ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "boot/store_fixture.h"
#include "comm/route.h"
#include "topo/made_up.h"

static const weft_route_gpu_t here; /* a virtual GPU */

static void virtual_gpus_need_no_vote(void **state)
{
    (void)state;
    weft_route_t route = WEFT_ROUTE_VOTE;
    assert_int_equal(weft__route(&route), WEFT_OK);
    assert_int_equal(route, WEFT_ROUTE_HOST);
}

static void ranks_of_one_host_stay_there(void **state)
{
    (void)state;
    weft_store_conn_t *store = connect_store();
    weft_route_t route = WEFT_ROUTE_VOTE;
    for (int r = 0; r < 3; r++) {
        assert_int_equal(weft__route_vote(store, "near", r, 3, here, LIMIT_MS), WEFT_OK);
    }
    for (int r = 0; r < 3; r++) {
        assert_int_equal(weft__route_count(store, "near", 0, 3, LIMIT_MS, &route), WEFT_OK);
        assert_int_equal(route, WEFT_ROUTE_HOST);
    }
    weft__store_close(store);
}

/* As if rank 0 were on another host. */
static void one_rank_on_another_host_is_enough_for_nccl(void **state)
{
    (void)state;
    weft_store_conn_t *store = connect_store();
    const uint64_t elsewhere = 4711;
    weft_route_t route = WEFT_ROUTE_VOTE;
    int64_t votes;
    assert_int_equal(weft__store_set(store, "far/host", &elsewhere, sizeof(elsewhere)), WEFT_OK);
    assert_int_equal(weft__store_add(store, "far/votes", 1, &votes), WEFT_OK);
    for (int r = 1; r < 3; r++) {
        assert_int_equal(weft__route_vote(store, "far", r, 3, here, LIMIT_MS), WEFT_OK);
    }
    assert_int_equal(weft__route_count(store, "far", 0, 3, LIMIT_MS, &route), WEFT_OK);
    assert_int_equal(route, WEFT_ROUTE_NCCL);
    weft__store_close(store);
}

static void those_who_do_not_come_are_named(void **state)
{
    (void)state;
    weft_store_conn_t *store = connect_store();
    weft_route_t route;
    assert_int_equal(weft__route_vote(store, "late", 1, 3, here, 100), WEFT_ERR_TIMEOUT);
    assert_non_null(strstr(weft_last_error(), "rank 0 did not open the communicator within 0.1 s"));
    assert_int_equal(weft__route_vote(store, "late", 0, 3, here, 100), WEFT_OK);
    assert_int_equal(weft__route_vote(store, "late", 1, 3, here, 100), WEFT_OK);
    assert_int_equal(weft__route_count(store, "late", 1, 3, 100, &route), WEFT_ERR_TIMEOUT);
    assert_non_null(strstr(weft_last_error(), "rank 2"));

    /* Rank 1 has given up, and may come again; rank 0 is still there, and may not. */
    assert_int_equal(weft__route_vote(store, "late", 0, 3, here, 100), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_last_error(), "rank 0 of this communicator has joined already"));
    assert_int_equal(weft__route_vote(store, "late", 2, 3, here, 100), WEFT_OK);
    assert_int_equal(weft__route_count(store, "late", 2, 3, 100, &route), WEFT_ERR_TIMEOUT);
    assert_non_null(strstr(weft_last_error(), "rank 1"));
    assert_int_equal(weft__route_vote(store, "late", 1, 3, here, 100), WEFT_OK);
    assert_int_equal(weft__route_vote(store, "late", 2, 3, here, 100), WEFT_OK);
    assert_int_equal(weft__route_count(store, "late", 0, 3, LIMIT_MS, &route), WEFT_OK);
    assert_int_equal(route, WEFT_ROUTE_HOST);
    weft__store_close(store);
}

/* GPU i of the made-up machines, as CUDA names it. */
static weft_route_gpu_t gpu_of(int i)
{
    return (weft_route_gpu_t){{0x1a, (uint8_t)i}};
}

static void add_gpu(int i)
{
    machine_add("gpu 0000:%02x:00.0 name=L4 uuid=GPU-1a%02x0000-0000-0000-0000-000000000000\n",
                i + 1, i);
}

static void gpus_out_of_reach_need_nccl(void **state)
{
    (void)state;
    weft_gpus_t known;
    weft_route_gpu_t gpus[] = {gpu_of(0), gpu_of(1), gpu_of(0), gpu_of(2)};
    machine_open(NULL);
    for (int i = 0; i < 3; i++) {
        add_gpu(i);
    }
    machine_add("peer 0 1 0 0 5 5\npeer 1 0 0 0 5 5\npeer 0 2 0 0 5 5\npeer 2 0 0 0 5 5\n"
                "peer 1 2 0 0 5 5\npeer 2 1 0 1 5 5\n"); /* it may read, but not write */
    machine_read(&known);
    assert_true(weft__route_reach_by(&known, gpus, 3));
    assert_false(weft__route_reach_by(&known, gpus, 4));
    assert_true(weft__route_reach_by(&known, gpus + 2, 2));
    gpus[3] = gpu_of(9); /* the driver does not know it: CUDA will say */
    assert_true(weft__route_reach_by(&known, gpus, 4));
    weft__gpus_cleanup(&known);
    machine_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(virtual_gpus_need_no_vote),
        cmocka_unit_test(ranks_of_one_host_stay_there),
        cmocka_unit_test(one_rank_on_another_host_is_enough_for_nccl),
        cmocka_unit_test(those_who_do_not_come_are_named),
        cmocka_unit_test(gpus_out_of_reach_need_nccl),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
