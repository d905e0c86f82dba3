/* Grids on made-up machines: tp gets the fastest links, then dp, then pp. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "parallel/mesh.h"
#include "parallel/places.h"
#include "topo/topo.h"

enum { MOST = 64 };

static uint8_t near[MOST * MOST];
static int ranks[MOST];

static void link_pair(int size, int a, int b, int how)
{
    near[a * size + b] = near[b * size + a] = (uint8_t)how;
}

static void all_links(int size, int how)
{
    for (int a = 0; a < size; a++) {
        ranks[a] = a;
        for (int b = 0; b < size; b++) {
            near[a * size + b] = (uint8_t)(a == b ? WEFT_NEAR_SAME : how);
        }
    }
}

static weft_plan_t grid(int dp, int pp, int tp)
{
    weft_plan_t plan = weft__plan_single(1, 16);
    plan.dp = dp;
    plan.pp = pp;
    plan.tp = tp;
    return plan;
}

static void arrange(int size, int dp, int pp, int tp)
{
    weft_plan_t plan = grid(dp, pp, tp);
    assert_int_equal(weft__places_arrange(&plan, size, near, ranks), WEFT_OK);
}

static void where_links_are_alike_a_place_is_a_rank(void **state)
{
    (void)state;
    for (int how = WEFT_NEAR_UNKNOWN; how <= WEFT_NEAR_SAME; how += 5) {
        all_links(8, how);
        arrange(8, 2, 2, 2);
        for (int i = 0; i < 8; i++) {
            assert_int_equal(ranks[i], i);
        }
    }
}

/* 4 bridges of NVLink that do not join neighbours, two of them at each of 2 PCIe switches. */
static void tp_follows_bridges_and_dp_switches(void **state)
{
    static const int expected[] = {0, 5, 2, 7, 1, 4, 3, 6};
    (void)state;
    all_links(8, WEFT_NEAR_SYSTEM);
    const int halves[2][4] = {{0, 5, 2, 7}, {1, 4, 3, 6}};
    for (int h = 0; h < 2; h++) {
        for (int i = 0; i < 4; i++) {
            for (int k = 0; k < i; k++) {
                link_pair(8, halves[h][i], halves[h][k], WEFT_NEAR_SWITCH);
            }
        }
        link_pair(8, halves[h][0], halves[h][1], WEFT_NEAR_NVLINK + 3);
        link_pair(8, halves[h][2], halves[h][3], WEFT_NEAR_NVLINK + 3);
    }
    arrange(8, 2, 2, 2);
    assert_memory_equal(ranks, expected, sizeof(expected));
}

/* More links are nearer: 2 to one neighbour, 1 to the other. */
static void of_two_links_the_wider_is_taken(void **state)
{
    static const int expected[] = {0, 3, 1, 2};
    (void)state;
    all_links(4, WEFT_NEAR_NODE);
    link_pair(4, 0, 1, WEFT_NEAR_NVLINK);
    link_pair(4, 2, 3, WEFT_NEAR_NVLINK);
    link_pair(4, 0, 3, WEFT_NEAR_NVLINK + 1);
    link_pair(4, 1, 2, WEFT_NEAR_NVLINK + 1);
    arrange(4, 2, 1, 2);
    assert_memory_equal(ranks, expected, sizeof(expected));
}

static int level_of(int a, int b, int tp, int dp)
{
    return a == b                       ? WEFT_NEAR_SAME
           : a / tp == b / tp           ? WEFT_NEAR_NVLINK + 17
           : a / tp / dp == b / tp / dp ? WEFT_NEAR_SWITCHES
                                        : WEFT_NEAR_NETWORK;
}

/* A machine that was made for the grid, its ranks shuffled: no link is slower than it has to be. */
static void a_shuffled_machine_is_found_again(void **state)
{
    uint64_t seed = weft__now_ns();
    (void)state;
    for (uint64_t round = 0; round < 200; round++) {
        int tp = 1 << weft__rng_at(seed, 3 * round) % 4,
            dp = 1 << weft__rng_at(seed, 3 * round + 1) % 3;
        int pp = 1 << weft__rng_at(seed, 3 * round + 2) % 2, size = tp * dp * pp, home[MOST];
        bool there[MOST] = {false};
        for (int i = 0; i < size; i++) {
            home[i] = ranks[i] = i;
        }
        for (int i = size - 1; i > 0; i--) {
            int k = (int)(weft__rng_at(seed + round, (uint64_t)i) % (uint64_t)(i + 1));
            int held = home[i];
            home[i] = home[k];
            home[k] = held;
        }
        for (int a = 0; a < size; a++) {
            for (int b = 0; b < size; b++) {
                near[a * size + b] = (uint8_t)level_of(home[a], home[b], tp, dp);
            }
        }
        arrange(size, dp, pp, tp);
        for (int a = 0; a < size; a++) {
            assert_false(there[ranks[a]]);
            there[ranks[a]] = true;
            for (int b = 0; b < size; b++) {
                int here = near[ranks[a] * size + ranks[b]];
                if (here != level_of(a, b, tp, dp)) {
                    fail_msg("seed %llu, round %llu: places %d and %d are %d apart, not %d",
                             (unsigned long long)seed, (unsigned long long)round, a, b, here,
                             level_of(a, b, tp, dp));
                }
            }
        }
    }
}

static void the_picture_names_links(void **state)
{
    static const int at[] = {0, 5, 2, 7, 1, 4, 3, 6};
    weft_plan_t plan = grid(2, 2, 2);
    weft_mesh_t mesh;
    char text[512];
    (void)state;
    assert_int_equal(weft__mesh_arrange(&plan, 5, 8, at, &mesh), WEFT_OK);
    mesh.near[WEFT_AXIS_TENSOR] = WEFT_NEAR_NVLINK + 3;
    mesh.near[WEFT_AXIS_DATA] = WEFT_NEAR_SWITCH;
    assert_int_equal(mesh.index[WEFT_AXIS_TENSOR], 1);
    assert_int_equal(mesh.index[WEFT_AXIS_DATA], 0);
    assert_int_equal(weft__mesh_place(&mesh, 6), 7);
    assert_string_equal(weft__mesh_picture(&mesh, text, sizeof(text)),
                        "8 ranks: dp 2 x pp 2 x tp 2\n"
                        "  stage 0  [0 5] [2 7]\n"
                        "  stage 1  [1 4] [3 6]\n"
                        "  tp over NVLink (4), dp over a PCIe switch\n");
    weft__mesh_destroy(&mesh, false);
}

/* On a made-up /sys this machine's CPUs are on one node, on two, on none. */
static void the_node_of_a_thread_is_found(void **state)
{
    char root[] = "/tmp/weft-test-places-XXXXXX", command[512];
    static const char *const lists[][2] = {{"0-4095", ""}, {"", "0-4095"}, {"0-4095", "0-4095"}};
    static const int expected[] = {0, 1, -1};
    (void)state;
    assert_non_null(mkdtemp(root));
    assert_int_equal(weft__numa_here(root), -1);
    for (int i = 0; i < 3; i++) {
        snprintf(command, sizeof(command),
                 "d=%s/sys/devices/system/node; mkdir -p $d/node0 $d/node1 && "
                 "echo %s >$d/node0/cpulist && echo %s >$d/node1/cpulist",
                 root, lists[i][0], lists[i][1]);
        assert_int_equal(system(command), 0);
        assert_int_equal(weft__numa_here(root), expected[i]);
    }
    snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_links_are_alike_a_place_is_a_rank),
        cmocka_unit_test(tp_follows_bridges_and_dp_switches),
        cmocka_unit_test(of_two_links_the_wider_is_taken),
        cmocka_unit_test(a_shuffled_machine_is_found_again),
        cmocka_unit_test(the_picture_names_links),
        cmocka_unit_test(the_node_of_a_thread_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
