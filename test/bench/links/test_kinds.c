/* What links are called, and what is expected of them, on machines that are made up. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bench/links/expected.h"
#include "topo/made_up.h"

static void expect_link(const weft_gpus_t *gpus, int from, int to, const char *text, double gbs)
{
    weft_link_info_t link = {.expected_gbs = 0};
    weft__link_of_gpus(gpus, from, to, &link);
    assert_string_equal(link.text, text);
    assert_true(fabs(link.expected_gbs - gbs) < 0.05);
    assert_int_equal(link.source[0] != '\0', gbs > 0);
}

static void gpus_behind_nvswitch(void **state)
{
    weft_gpus_t gpus;
    (void)state;
    machine_reset();
    machine_add_dgx();
    machine_read(&gpus);
    expect_link(&gpus, 0, 1, "NV18 (NVLink 4)", 335);
    expect_link(&gpus, 7, 2, "NV18 (NVLink 4)", 335);
    expect_link(&gpus, -1, 2, "other GPU", 0);
    weft__gpus_cleanup(&gpus);
}

/* Pairs with 4 links of 12, and pairs that have PCIe only. */
static void gpus_in_two_sockets(void **state)
{
    weft_gpus_t gpus;
    (void)state;
    machine_reset();
    machine_add_pcie();
    machine_read(&gpus);
    assert_int_equal(weft__gpu_pair(&gpus, 0, 1)->links, 4);
    expect_link(&gpus, 0, 1, "NV4 (NVLink 3)", 230.0 * 4 / 12);
    expect_link(&gpus, 0, 2, "PCIe SYS", 23 * 0.4);
    weft__gpus_cleanup(&gpus);
}

static void every_generation_has_a_row(void **state)
{
    const char *source;
    (void)state;
    assert_true(weft__link_expected(WEFT_LINK_NVLINK, 3, 12, &source) == 230);
    assert_non_null(strstr(source, "A100"));
    assert_true(weft__link_expected(WEFT_LINK_NVLINK, 4, 18, NULL) == 335);
    assert_true(weft__link_expected(WEFT_LINK_NVLINK, 2, 3, NULL) == 57.5);
    assert_true(weft__link_expected(WEFT_LINK_NVLINK, 5, 18, NULL) > 600);
    assert_true(weft__link_expected(WEFT_LINK_NVLINK, 1, 4, NULL) == 0);
    for (int generation = 3; generation <= 6; generation++) {
        assert_true(weft__link_expected(WEFT_LINK_PCIE, generation, 16, NULL) > 0);
    }
    assert_true(weft__link_expected(WEFT_LINK_PCIE, 4, 8, NULL) == 11.5);
    assert_true(weft__link_expected(WEFT_LINK_PCIE, -1, -1, NULL) == 0);
}

static void networks(void **state)
{
    weft_link_info_t link = {.expected_gbs = 0};
    (void)state;
    weft__link_of_network(true, 400, &link);
    assert_string_equal(link.text, "network (InfiniBand 400)");
    assert_true(link.expected_gbs == 47.5);
    weft__link_of_network(false, 100, &link);
    assert_string_equal(link.text, "network (Ethernet 100)");
    assert_true(link.expected_gbs == 10.6);
    link = (weft_link_info_t){.expected_gbs = 0};
    weft__link_of_network(false, 0, &link);
    assert_string_equal(link.text, "network");
    assert_true(link.expected_gbs == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gpus_behind_nvswitch, machine_open, machine_close),
        cmocka_unit_test_setup_teardown(gpus_in_two_sockets, machine_open, machine_close),
        cmocka_unit_test(every_generation_has_a_row),
        cmocka_unit_test(networks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
