/* CUDA's numbers of GPUs, as the environment decides them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "topo/gpu.h"
#include "topo/made_up.h"

/* The GPUs that CUDA shows, by NVML's numbers, must be `expected` ("2 0"), and the note must have
 * `note` in it ("": there is none). */
static void expect(const char *visible, const char *order, const char *expected, const char *note)
{
    char shown[128] = "";
    size_t used = 0;
    weft_gpus_t gpus;
    weft_gpu_source_t source = machine_source();
    source.visible = visible;
    source.order = order;
    assert_int_equal(weft__gpus_read_from(&source, &gpus), WEFT_OK);
    for (int i = 0; i < gpus.cuda_count; i++) {
        const weft_gpu_t *gpu = &gpus.gpus[gpus.cuda[i]];
        assert_int_equal(gpu->cuda, i);
        used += (size_t)snprintf(shown + used, sizeof(shown) - used, "%s%d", i > 0 ? " " : "",
                                 gpu->index);
    }
    int hidden = 0;
    for (int i = 0; i < gpus.count; i++) {
        hidden += gpus.gpus[i].cuda < 0;
    }
    assert_int_equal(hidden, gpus.count - gpus.cuda_count);
    assert_string_equal(shown, expected);
    if (*note == '\0') {
        assert_string_equal(gpus.cuda_note, "");
    } else {
        assert_non_null(strstr(gpus.cuda_note, note));
    }
    weft__gpus_cleanup(&gpus);
}

static void without_variables_all_are_shown(void **state)
{
    (void)state;
    machine_add_dgx();
    expect(NULL, NULL, "0 1 2 3 4 5 6 7", "");
    expect(NULL, "PCI_BUS_ID", "0 1 2 3 4 5 6 7", "");
}

static void places_are_taken_in_their_order(void **state)
{
    (void)state;
    machine_add_dgx();
    expect("2", NULL, "2", "");
    expect("2,1", NULL, "2 1", "");
    expect("7,0,3", NULL, "7 0 3", "");
    expect(" 4 , 5 ", NULL, "4 5", "");
    expect("6x,1", NULL, "6 1", ""); /* CUDA reads digits, too */
    expect("3,", NULL, "3", "");
}

static void uuids_may_be_shortened(void **state)
{
    (void)state;
    machine_add_dgx();
    expect("GPU-55000000,GPU-00", NULL, "5 0", "");
    expect("GPU-7", NULL, "7", "");
    expect("GPU-33000000 ,1", NULL, "3 1", "");
    machine_add("gpu 0000:90:00.0 name=NVIDIA_H100_80GB_HBM3 uuid=GPU-77111111\n");
    expect("GPU-771", NULL, "8", "");
    expect("0,GPU-77", NULL, "0", "'GPU-77' names several GPUs");
}

static void what_names_nothing_ends_the_list(void **state)
{
    (void)state;
    char long_entry[400];
    memset(long_entry, '9', sizeof(long_entry) - 1);
    long_entry[sizeof(long_entry) - 1] = '\0';
    machine_add_dgx();
    expect("", NULL, "", "hides all");
    expect("-1", NULL, "", "hides all");
    expect("0,2,-1,1", NULL, "0 2", "");
    expect("0,8,1", NULL, "0", "'8' names no GPU of this machine");
    expect("NoDevFiles", NULL, "", "'NoDevFiles' names no GPU");
    expect("GPU-9", NULL, "", "'GPU-9' names no GPU");
    expect("1,,2", NULL, "1", "");
    expect(long_entry, NULL, "", "names no GPU");
}

static void one_gpu_twice_hides_all(void **state)
{
    (void)state;
    machine_add_dgx();
    expect("1,2,1", NULL, "", "GPU 1 twice");
    expect("1,GPU-11", NULL, "", "GPU 1 twice");
}

/* NVML's numbers need not follow the bus. */
static void buses_decide_among_equals(void **state)
{
    (void)state;
    machine_add("gpu 0001:01:00.0\ngpu 0000:81:00.0\ngpu 0000:02:00.0\n");
    expect(NULL, NULL, "2 1 0", "");
    expect("0", "PCI_BUS_ID", "2", "");
}

static void the_fastest_comes_first(void **state)
{
    (void)state;
    machine_add("gpu 0000:01:00.0 name=T1000 cores=896 clock=2100\n"
                "gpu 0000:47:00.0 name=A100 cores=6912 clock=1410 uuid=GPU-a\n"
                "gpu 0000:81:00.0 name=A100 cores=6912 clock=1410 uuid=GPU-b\n");
    expect(NULL, NULL, "1 2 0", "a guess");
    expect("0", "FASTEST_FIRST", "1", "a guess");
    expect("0", "PCI_BUS_ID", "0", "");
    expect("GPU-b", NULL, "2", "");
}

static void of_mig_devices_one_is_shown(void **state)
{
    (void)state;
    machine_add("gpu 0000:01:00.0 uuid=GPU-a\n"
                "gpu 0000:02:00.0 uuid=GPU-b mig=1 part=MIG-b1 part=MIG-b2\n"
                "gpu 0000:03:00.0 uuid=GPU-c mig=1 part=MIG-c1\n"
                "gpu 0000:04:00.0 uuid=GPU-d mig=1\n");
    expect(NULL, NULL, "1", "GPU 1 is cut into MIG devices");
    expect("MIG-c1", NULL, "2", "GPU 2 is cut");
    expect("MIG-b2,MIG-b1", NULL, "1", "GPU 1 is cut");
    expect("MIG-GPU-c/1/0", NULL, "2", "GPU 2 is cut");
    expect("MIG-x", NULL, "", "'MIG-x' names no GPU");
    expect("0", NULL, "0", "");
    expect("3,0", NULL, "0", ""); /* in MIG mode, but not cut yet */
}

static void ranks_take_turns(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    weft_gpu_source_t source = machine_source();
    source.visible = "5,2,7";
    machine_add_dgx();
    assert_int_equal(weft__gpus_read_from(&source, &gpus), WEFT_OK);
    static const int expected[] = {5, 2, 7, 5, 2, 7, 5};
    for (int rank = 0; rank < 7; rank++) {
        assert_int_equal(weft__gpu_of_rank(&gpus, rank), expected[rank]);
    }
    weft__gpus_cleanup(&gpus);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_open, machine_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_variables_all_are_shown),
        TEST(places_are_taken_in_their_order),
        TEST(uuids_may_be_shortened),
        TEST(what_names_nothing_ends_the_list),
        TEST(one_gpu_twice_hides_all),
        TEST(buses_decide_among_equals),
        TEST(the_fastest_comes_first),
        TEST(of_mig_devices_one_is_shown),
        TEST(ranks_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
