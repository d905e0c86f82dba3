/* The fastest network, in a /sys made up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "topo/network.h"

static char root[] = "/tmp/weft-test-network-XXXXXX";

/* A file of the machine. */
static void put(const char *folder, const char *name, const char *text)
{
    char command[512];
    snprintf(command, sizeof(command), "mkdir -p %s/sys/class/%s && echo '%s' >%s/sys/class/%s/%s",
             root, folder, text, root, folder, name);
    assert_int_equal(system(command), 0);
}

static void fastest_port_that_is_up(void **state)
{
    bool infiniband = true;
    (void)state;
    assert_non_null(mkdtemp(root));
    assert_int_equal(weft__network_rate(root, &infiniband), 0);
    assert_false(infiniband);

    put("net/eth0", "operstate", "up");
    put("net/eth0", "speed", "10000");
    put("net/eth1", "operstate", "down");
    put("net/eth1", "speed", "100000");
    put("net/lo", "operstate", "unknown");
    put("net/tun0", "operstate", "up");
    put("net/tun0", "speed", "-1");
    assert_int_equal(weft__network_rate(root, &infiniband), 10);
    assert_false(infiniband);
    put("net/eth2", "operstate", "up");
    put("net/eth2", "speed", "25000");
    assert_int_equal(weft__network_rate(root, &infiniband), 25);

    put("infiniband/mlx5_0/ports/1", "state", "1: DOWN");
    put("infiniband/mlx5_0/ports/1", "rate", "400 Gb/sec (4X NDR)");
    assert_int_equal(weft__network_rate(root, &infiniband), 25);
    put("infiniband/mlx5_1/ports/1", "state", "4: ACTIVE");
    put("infiniband/mlx5_1/ports/1", "rate", "200 Gb/sec (4X HDR)");
    assert_int_equal(weft__network_rate(root, &infiniband), 200);
    assert_true(infiniband);

    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fastest_port_that_is_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
