/* Ranks beside their GPUs, on machines that hwloc makes up: two sockets of 8 cores with 2 hardware
 * threads, CPUs 0-15 and 16-31, unless said otherwise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "topo/gpu.h"
#include "topo/made_up.h"

#define SOCKET_0 0x0000fffful
#define SOCKET_1 0xffff0000ul

static int open_two_sockets(void **state)
{
    return machine_open(state) != 0 ? -1 : setenv("HWLOC_SYNTHETIC", "pack:2 core:8 pu:2", 1);
}

static int close_two_sockets(void **state)
{
    unsetenv("HWLOC_SYNTHETIC");
    return machine_close(state);
}

/* Bind `ranks` on the machine; the masks, of 64 CPUs at most, go to `masks`. */
static void bind(int ranks, const char *visible, unsigned long *masks)
{
    weft_gpus_t gpus;
    weft_bind_t got;
    weft_gpu_source_t source = machine_source();
    source.visible = visible;
    assert_int_equal(weft__gpus_read_from(&source, &gpus), WEFT_OK);
    assert_int_equal(weft__gpus_bind(&gpus, ranks, &got), WEFT_OK);
    assert_int_equal(got.ranks, ranks);
    assert_int_equal(got.words, 1);
    memcpy(masks, got.masks, (size_t)ranks * sizeof(*masks));
    weft__bind_cleanup(&got);
    weft__gpus_cleanup(&gpus);
}

static int weight(unsigned long mask)
{
    return __builtin_popcountl(mask);
}

static int owners_of(const unsigned long *masks, int ranks, int cpu)
{
    int owners = 0;
    for (int rank = 0; rank < ranks; rank++) {
        owners += (int)(masks[rank] >> cpu & 1);
    }
    return owners;
}

static void eight_ranks_share_two_sockets(void **state)
{
    (void)state;
    unsigned long masks[8];
    machine_add_dgx();
    bind(8, NULL, masks);
    for (int rank = 0; rank < 8; rank++) {
        assert_int_equal(masks[rank], 0xful << 4 * rank); /* two whole cores each */
    }
}

/* Where CUDA's order differs from the sockets', ranks follow their GPUs. */
static void ranks_follow_cudas_order(void **state)
{
    (void)state;
    unsigned long masks[4];
    machine_add_dgx();
    bind(4, "7,0,6,1", masks);
    assert_int_equal(masks[0], 0x00ff0000);
    assert_int_equal(masks[1], 0x000000ff);
    assert_int_equal(masks[2], 0xff000000);
    assert_int_equal(masks[3], 0x0000ff00);
}

static void few_ranks_leave_the_other_socket_alone(void **state)
{
    (void)state;
    unsigned long masks[3];
    machine_add_dgx();
    bind(1, NULL, masks);
    assert_int_equal(masks[0], SOCKET_0);
    bind(3, "4,5,6", masks);
    assert_int_equal(masks[0] | masks[1] | masks[2], SOCKET_1);
    for (int cpu = 16; cpu < 32; cpu++) {
        assert_int_equal(owners_of(masks, 3, cpu), 1);
    }
    for (int rank = 0; rank < 3; rank++) {
        assert_in_range(weight(masks[rank]), 4, 6);
    }
}

/* Any number of ranks: each is near its GPU, none is left without a core, and no core has two ranks
 * more than another that could have had one of them. */
static void several_ranks_of_a_gpu_share_its_cores(void **state)
{
    (void)state;
    machine_add_dgx();
    for (int ranks = 1; ranks <= 40; ranks++) {
        unsigned long masks[40];
        bind(ranks, NULL, masks);
        int on_socket[2] = {0, 0};
        for (int rank = 0; rank < ranks; rank++) {
            int socket = rank % 8 / 4;
            on_socket[socket]++;
            assert_true(weight(masks[rank]) >= 2);
            assert_int_equal(masks[rank] & (socket == 0 ? SOCKET_1 : SOCKET_0), 0);
        }
        for (int cpu = 0; cpu < 32; cpu++) {
            int most = (on_socket[cpu / 16] + 7) / 8;
            assert_in_range(owners_of(masks, ranks, cpu), most > 1 ? most - 1 : most, most);
        }
    }
}

static void expect_as_without_gpus(int ranks, const unsigned long *masks)
{
    weft_bind_t plain;
    assert_int_equal(weft__bind_plan(ranks, NULL, &plain), WEFT_OK);
    assert_memory_equal(masks, plain.masks, (size_t)ranks * sizeof(*masks));
    weft__bind_cleanup(&plain);
}

static void without_near_cpus_nothing_changes(void **state)
{
    (void)state;
    unsigned long masks[20];
    machine_add("gpu 0000:10:00.0\ngpu 0000:20:00.0\n");
    for (int ranks = 1; ranks <= 20; ranks++) {
        bind(ranks, NULL, masks);
        expect_as_without_gpus(ranks, masks);
    }
    bind(5, "", masks); /* nor without GPUs */
    expect_as_without_gpus(5, masks);
}

/* A GPU near to CPUs that we may not use, or that are not there, is near to nothing. */
static void cpus_out_of_reach_do_not_count(void **state)
{
    (void)state;
    unsigned long masks[4];
    machine_add("gpu 0000:10:00.0 cpus=100-200\n");
    bind(4, NULL, masks);
    expect_as_without_gpus(4, masks);
}

static void ranks_without_near_cpus_take_what_is_left(void **state)
{
    (void)state;
    unsigned long masks[4];
    machine_add("gpu 0000:10:00.0\ngpu 0000:20:00.0 cpus=0-15\n");
    bind(4, NULL, masks);
    assert_int_equal(masks[0], 0x00ff0000);
    assert_int_equal(masks[1], 0x000000ff);
    assert_int_equal(masks[2], 0xff000000);
    assert_int_equal(masks[3], 0x0000ff00);
    /* and share if nothing is */
    machine_add("gpu 0000:30:00.0 cpus=16-31\n");
    bind(3, NULL, masks);
    assert_int_equal(masks[0], SOCKET_0 | SOCKET_1);
    assert_int_equal(masks[1], SOCKET_0);
    assert_int_equal(masks[2], SOCKET_1);
}

/* Part of a core's hardware threads is near: the core is. */
static void cores_are_given_whole(void **state)
{
    (void)state;
    unsigned long masks[1];
    machine_add("gpu 0000:10:00.0 cpus=3-4\n");
    bind(1, NULL, masks);
    assert_int_equal(masks[0], 0x3c);
}

static void large_machines_need_more_than_a_word(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    weft_bind_t got;
    char cpus[WEFT_TOPO_CPUS];
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "pack:2 core:128 pu:1", 1), 0);
    machine_add("gpu 0000:10:00.0 cpus=128-255\ngpu 0000:20:00.0 cpus=0-127\n");
    machine_read(&gpus);
    assert_int_equal(weft__gpus_bind(&gpus, 4, &got), WEFT_OK);
    static const char *const expected[] = {"128-191", "0-63", "192-255", "64-127"};
    for (int rank = 0; rank < 4; rank++) {
        weft__bind_print(&got, rank, cpus);
        assert_string_equal(cpus, expected[rank]);
    }
    weft__bind_cleanup(&got);
    weft__gpus_cleanup(&gpus);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_two_sockets, close_two_sockets)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(eight_ranks_share_two_sockets),
        TEST(ranks_follow_cudas_order),
        TEST(few_ranks_leave_the_other_socket_alone),
        TEST(several_ranks_of_a_gpu_share_its_cores),
        TEST(without_near_cpus_nothing_changes),
        TEST(cpus_out_of_reach_do_not_count),
        TEST(ranks_without_near_cpus_take_what_is_left),
        TEST(cores_are_given_whole),
        TEST(large_machines_need_more_than_a_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
