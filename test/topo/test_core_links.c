/* How near ranks are, on machines that hwloc makes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "topo/core_links.h"

static weft_core_map_t map;

static void on(const char *machine)
{
    assert_int_equal(setenv("HWLOC_SYNTHETIC", machine, 1), 0);
    assert_int_equal(weft__core_map_read(&map), WEFT_OK);
    unsetenv("HWLOC_SYNTHETIC");
}

static void set(unsigned long *mask, int first, int last)
{
    const int bits = 8 * (int)sizeof(unsigned long);
    memset(mask, 0, WEFT_CORE_MASK_WORDS * sizeof(*mask));
    for (int cpu = first; cpu <= last; cpu++) {
        mask[cpu / bits] |= 1ul << cpu % bits;
    }
}

/* Of ranks on CPUs a0-a1 and b0-b1; the same both ways. */
static weft_core_link_t near(int a0, int a1, int b0, int b1)
{
    unsigned long a[WEFT_CORE_MASK_WORDS], b[WEFT_CORE_MASK_WORDS];
    set(a, a0, a1);
    set(b, b0, b1);
    weft_core_link_t there = weft__core_link(&map, a, b);
    assert_int_equal(weft__core_link(&map, b, a), there);
    return there;
}

/* Two packages, each a NUMA node with two L3 of two cores with two hardware threads: 16 CPUs. */
static void every_kind_on_two_nodes(void **state)
{
    (void)state;
    on("pack:2 [numa] l3:2 core:2 pu:2");
    assert_int_equal(map.cores, 8);
    assert_int_equal(map.cpus, 16);
    assert_int_equal(near(0, 1, 0, 1), WEFT_CORE_LINK_CORE);
    assert_int_equal(near(0, 0, 0, 0), WEFT_CORE_LINK_CORE);
    assert_int_equal(near(0, 0, 0, 1), WEFT_CORE_LINK_CORE);
    assert_int_equal(near(0, 0, 1, 1), WEFT_CORE_LINK_SMT);
    assert_int_equal(near(0, 1, 2, 3), WEFT_CORE_LINK_CACHE);
    assert_int_equal(near(0, 1, 4, 5), WEFT_CORE_LINK_NUMA);
    assert_int_equal(near(0, 1, 8, 9), WEFT_CORE_LINK_FAR);
    assert_int_equal(near(7, 7, 8, 8), WEFT_CORE_LINK_FAR);
    assert_int_equal(near(14, 14, 15, 15), WEFT_CORE_LINK_SMT);
    /* a rank with several cores is as near as its farthest one */
    assert_int_equal(near(0, 3, 0, 3), WEFT_CORE_LINK_CACHE);
    assert_int_equal(near(0, 3, 4, 7), WEFT_CORE_LINK_NUMA);
    assert_int_equal(near(0, 7, 8, 15), WEFT_CORE_LINK_FAR);
    weft__core_map_cleanup(&map);
}

static void ranks_that_are_not_bound(void **state)
{
    (void)state;
    on("pack:2 [numa] l3:2 core:2 pu:2");
    assert_int_equal(near(0, 15, 0, 15), WEFT_CORE_LINK_UNBOUND);
    assert_int_equal(near(0, 15, 3, 3), WEFT_CORE_LINK_UNBOUND);
    assert_int_equal(near(7, 8, 3, 3), WEFT_CORE_LINK_UNBOUND);       /* on two nodes */
    assert_int_equal(near(3, 3, 100, 101), WEFT_CORE_LINK_UNBOUND);   /* not there */
    assert_int_equal(near(3, 3, 1000, 1001), WEFT_CORE_LINK_UNBOUND); /* in another word */
    weft__core_map_cleanup(&map);
    on("core:2 pu:1");
    assert_int_equal(near(0, 1, 0, 1), WEFT_CORE_LINK_UNBOUND);
    weft__core_map_cleanup(&map);
    on("core:1 pu:2"); /* one core cannot be left */
    assert_int_equal(near(0, 1, 0, 1), WEFT_CORE_LINK_CORE);
    weft__core_map_cleanup(&map);
}

static void machines_without_an_l3(void **state)
{
    (void)state;
    on("pack:2 [numa] core:4 pu:1");
    assert_int_equal(near(0, 0, 1, 1), WEFT_CORE_LINK_NUMA);
    assert_int_equal(near(0, 0, 4, 4), WEFT_CORE_LINK_FAR);
    assert_int_equal(near(2, 2, 2, 2), WEFT_CORE_LINK_CORE);
    weft__core_map_cleanup(&map);
}

static void this_thread_has_cpus(void **state)
{
    unsigned long mask[WEFT_CORE_MASK_WORDS], any = 0;
    (void)state;
    assert_int_equal(weft__core_mask_here(mask), WEFT_OK);
    for (int i = 0; i < WEFT_CORE_MASK_WORDS; i++) {
        any |= mask[i];
    }
    assert_true(any != 0);
    assert_int_equal(weft__core_map_read(&map), WEFT_OK);
    assert_true(map.cores >= 1 && map.cpus >= map.cores);
    weft__core_map_cleanup(&map);
    weft__core_map_cleanup(&map);
}

static void texts(void **state)
{
    (void)state;
    assert_string_equal(weft__core_link_text(WEFT_CORE_LINK_CORE), "same core");
    assert_string_equal(weft__core_link_text(WEFT_CORE_LINK_UNBOUND), "unbound");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_on_two_nodes),
        cmocka_unit_test(ranks_that_are_not_bound),
        cmocka_unit_test(machines_without_an_l3),
        cmocka_unit_test(this_thread_has_cpus),
        cmocka_unit_test(texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
