/* What machines with GPUs are said to be, given what their drivers say. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "topo/gpu.h"
#include "topo/made_up.h"
#include "topo/nvml.h"

/* NVML's own sizes: it writes all of them. */
_Static_assert(sizeof(weft_nvml_pci_t) == 68 && offsetof(weft_nvml_pci_t, bus_id) == 36,
               "nvmlPciInfo_t");
_Static_assert(sizeof(weft_nvml_memory_t) == 24, "nvmlMemory_t");

static void expect_none(const weft_gpu_source_t *source, const char *reason)
{
    weft_gpus_t gpus;
    assert_int_equal(weft__gpus_read_from(source, &gpus), WEFT_OK);
    assert_int_equal(gpus.count, 0);
    assert_int_equal(gpus.cuda_count, 0);
    assert_int_equal(weft__gpu_of_rank(&gpus, 3), -1);
    assert_non_null(strstr(gpus.reason, reason));
    weft__gpus_cleanup(&gpus);
}

/* ---- no GPUs ------------------------------------------------------------------------------ */

static void without_a_library_there_are_none(void **state)
{
    (void)state;
    weft_gpu_source_t source = {.library = "/nowhere/libnvidia-ml.so.1", .root = ""};
    expect_none(&source, "there is no NVIDIA driver (/nowhere/libnvidia-ml.so.1: ");
}

static void a_library_of_another_kind_is_named(void **state)
{
    (void)state;
    weft_gpu_source_t source = {.library = "libm.so.6", .root = ""};
    expect_none(&source, "libm.so.6 lacks nvmlInit_v2");
}

static void a_driver_that_does_not_start_says_why(void **state)
{
    (void)state;
    weft_gpu_source_t source = machine_source();
    machine_add(MACHINE_H200 "error nvmlInit_v2 9\n");
    expect_none(&source, "does not start: Driver Not Loaded; load the kernel module");
    machine_reset();
    machine_add(MACHINE_H200 "error nvmlInit_v2 18\n");
    expect_none(&source, "Driver/library version mismatch; the driver was updated");
    machine_reset();
    machine_add(MACHINE_H200 "error nvmlDeviceGetCount_v2 999\n");
    expect_none(&source, "cannot count them: Unknown Error");
    machine_reset();
    expect_none(&source, "the NVIDIA driver sees none");
    machine_add(MACHINE_H200 "error nvmlDeviceGetHandleByIndex_v2 4\n");
    expect_none(&source, "GPU 0 is left out: Insufficient Permissions");
}

/* ---- machines ----------------------------------------------------------------------------- */

static void one_gpu_is_described(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    machine_add(MACHINE_H200);
    machine_read(&gpus);
    assert_int_equal(gpus.count, 1);
    assert_string_equal(gpus.driver, "580.95.05");
    assert_int_equal(gpus.cuda_version, 13000);
    assert_string_equal(gpus.reason, "");
    assert_string_equal(gpus.trouble, "");
    assert_string_equal(gpus.cuda_note, "");
    const weft_gpu_t *gpu = &gpus.gpus[0];
    assert_int_equal(gpu->index, 0);
    assert_int_equal(gpu->cuda, 0);
    assert_string_equal(gpu->name, "NVIDIA H200");
    assert_string_equal(gpu->uuid, "GPU-1a2b3c4d-0000-0000-0000-000000000000");
    assert_string_equal(gpu->bus_id, "0000:1b:00.0");
    assert_int_equal(gpu->memory, 150754820096);
    assert_int_equal(gpu->memory_free, 150000000000);
    assert_int_equal(gpu->major, 9);
    assert_int_equal(gpu->minor, 0);
    assert_int_equal(gpu->cores, 16896);
    assert_int_equal(gpu->clock_mhz, 1980);
    assert_int_equal(gpu->pcie_generation, 1);
    assert_int_equal(gpu->pcie_width, 16);
    assert_int_equal(gpu->pcie_generation_max, 5);
    assert_int_equal(gpu->pcie_width_max, 16);
    assert_int_equal(gpu->numa, 1);
    assert_int_equal(gpu->near[0], 0xff00);
    assert_int_equal(gpu->links, 0);
    assert_int_equal(gpu->mode, WEFT_GPU_SHARED);
    assert_int_equal(gpu->mig, 0);
    weft__gpus_cleanup(&gpus);
    assert_null(gpus.gpus);
    assert_null(dlopen(machine_library("fake_nvml.so"), RTLD_NOW | RTLD_NOLOAD));
}

static void switches_connect_all_with_all(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    machine_add_dgx();
    machine_read(&gpus);
    assert_int_equal(gpus.count, 8);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(gpus.gpus[i].links, 18);
        assert_int_equal(gpus.gpus[i].switch_links, 18);
        assert_int_equal(gpus.gpus[i].link_version, 40);
        assert_int_equal(gpus.gpus[i].numa, i / 4);
        for (int k = 0; k < 8; k++) {
            const weft_gpu_pair_t *pair = weft__gpu_pair(&gpus, i, k);
            if (i == k) {
                continue;
            }
            assert_int_equal(pair->links, 18);
            assert_int_equal(pair->link_version, 40);
            assert_true(pair->switched);
            assert_int_equal(pair->path, i / 4 == k / 4 ? WEFT_PATH_NODE : WEFT_PATH_SYSTEM);
            for (int kind = 0; kind < WEFT_ACCESS_COUNT; kind++) {
                assert_int_equal(pair->access[kind], 1);
            }
            assert_null(pair->refusal);
        }
    }
    weft__gpus_cleanup(&gpus);
}

static void fewer_links_to_switches_count_for_the_pair(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    machine_add("gpu 0000:10:00.0\ngpu 0000:20:00.0\n"
                "link 0 switch 12 4\nlink 1 switch 8 5\npeer 0 1 0 0 0 0\npeer 1 0 0 0 0 0\n");
    machine_read(&gpus);
    assert_int_equal(weft__gpu_pair(&gpus, 0, 1)->links, 8);
    assert_int_equal(weft__gpu_pair(&gpus, 1, 0)->links, 8);
    assert_int_equal(weft__gpu_pair(&gpus, 1, 0)->link_version, 30); /* of 3.0 and 3.1 */
    weft__gpus_cleanup(&gpus);
}

/* A switch that is cut into partitions connects only what the driver says it does. */
static void partitions_of_a_switch_are_apart(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    machine_add("gpu 0000:10:00.0\ngpu 0000:20:00.0\ngpu 0000:30:00.0\n"
                "link 0 switch 18 6\nlink 1 switch 18 6\nlink 2 switch 18 6\n"
                "peer 0 1 0 0 0 0\npeer 1 0 0 0 0 0\n");
    machine_read(&gpus);
    assert_int_equal(weft__gpu_pair(&gpus, 0, 1)->links, 18);
    assert_int_equal(weft__gpu_pair(&gpus, 0, 2)->links, 0);
    assert_false(weft__gpu_pair(&gpus, 0, 2)->switched);
    assert_int_equal(weft__gpu_pair(&gpus, 0, 2)->link_version, -1);
    weft__gpus_cleanup(&gpus);
}

static void bridges_connect_pairs(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    machine_add_pcie();
    machine_read(&gpus);
    assert_int_equal(gpus.count, 4);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 4; k++) {
            const weft_gpu_pair_t *pair = weft__gpu_pair(&gpus, i, k);
            if (i != k) {
                assert_int_equal(pair->links, k == (i ^ 1) ? 4 : 0);
                assert_int_equal(pair->link_version, k == (i ^ 1) ? 30 : -1);
                assert_int_equal(pair->path, k == (i ^ 1) ? WEFT_PATH_SWITCH : WEFT_PATH_SYSTEM);
                assert_false(pair->switched);
            }
        }
    }
    const weft_gpu_pair_t *pair = weft__gpu_pair(&gpus, 0, 2);
    assert_int_equal(pair->access[WEFT_ACCESS_READ], 1);
    assert_int_equal(pair->access[WEFT_ACCESS_WRITE], 1);
    assert_int_equal(pair->access[WEFT_ACCESS_NVLINK], 0);
    assert_int_equal(pair->access[WEFT_ACCESS_ATOMICS], 0);
    assert_null(pair->refusal);
    pair = weft__gpu_pair(&gpus, 1, 3);
    assert_int_equal(pair->access[WEFT_ACCESS_READ], 0);
    assert_string_equal(pair->refusal, "the PCIe topology does not support it");
    assert_string_equal(weft__gpu_pair(&gpus, 3, 1)->refusal, "it is not supported");
    weft__gpus_cleanup(&gpus);
}

static void links_to_processors_connect_no_gpus(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    machine_add("gpu 0000:10:00.0\ngpu 0000:20:00.0\nlink 0 cpu 3 3\nlink 1 cpu 3 3\n"
                "peer 0 1 0 0 0 0\npeer 1 0 0 0 0 0\n");
    machine_read(&gpus);
    assert_int_equal(gpus.gpus[0].links, 3);
    assert_int_equal(gpus.gpus[0].link_version, 22);
    assert_int_equal(weft__gpu_pair(&gpus, 0, 1)->links, 0);
    weft__gpus_cleanup(&gpus);
}

/* A virtual machine may hide where links end. The driver's word on peer access still counts. */
static void hidden_ends_count_on_the_drivers_word(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    machine_add("gpu 0000:10:00.0\ngpu 0000:20:00.0\nlink 0 hidden 18 6\nlink 1 hidden 18 6\n"
                "peer 0 1 0 0 0 0\npeer 1 0 0 0 0 0\n");
    machine_read(&gpus);
    assert_int_equal(gpus.gpus[0].unknown_links, 18);
    assert_int_equal(weft__gpu_pair(&gpus, 0, 1)->links, 18);
    weft__gpus_cleanup(&gpus);
    machine_add("error nvmlDeviceGetP2PStatus 999\n");
    machine_read(&gpus);
    assert_int_equal(weft__gpu_pair(&gpus, 0, 1)->links, 0);
    assert_int_equal(weft__gpu_pair(&gpus, 0, 1)->access[WEFT_ACCESS_READ], -1);
    weft__gpus_cleanup(&gpus);
}

static void a_lost_gpu_is_left_out(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    machine_add_pcie();
    machine_add("error nvmlDeviceGetHandleByIndex_v2 15 1\n");
    machine_read(&gpus);
    assert_int_equal(gpus.count, 3);
    assert_string_equal(gpus.trouble, "GPU 1 is left out: GPU is lost");
    assert_string_equal(gpus.reason, "");
    assert_int_equal(gpus.gpus[1].index, 2);
    assert_int_equal(gpus.gpus[1].cuda, 1);
    assert_int_equal(weft__gpu_pair(&gpus, 0, 1)->links,
                     0); /* the bridge of GPU 0 goes to the lost */
    assert_int_equal(weft__gpu_pair(&gpus, 1, 2)->links, 4);
    weft__gpus_cleanup(&gpus);
}

/* ---- what the driver does not tell -------------------------------------------------------- */

static void an_old_driver_lacks_functions(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    weft_gpu_source_t source = machine_source();
    source.library = machine_library("fake_nvml_old.so");
    machine_add_dgx();
    assert_int_equal(weft__gpus_read_from(&source, &gpus), WEFT_OK);
    assert_int_equal(gpus.count, 8);
    assert_int_equal(gpus.gpus[7].cores, -1);
    assert_int_equal(gpus.gpus[7].mig, -1);
    assert_int_equal(gpus.gpus[7].numa, -1);
    assert_int_equal(gpus.gpus[7].clock_mhz, 1980);
    assert_int_equal(gpus.gpus[7].switch_links, 0);
    assert_int_equal(weft__gpu_pair(&gpus, 0, 7)->links, 18);
    assert_int_equal(gpus.gpus[7].cuda, 7);
    weft__gpus_cleanup(&gpus);
}

/* Is what `function` tells unknown, of a machine that machine_add_dgx made? */
static bool is_unknown(const char *function, const weft_gpus_t *gpus)
{
    const weft_gpu_t *gpu = &gpus->gpus[1];
    const weft_gpu_pair_t *pair = weft__gpu_pair(gpus, 1, 6);
    const weft_gpu_health_t *health = &gpu->health;
    const struct {
        const char *function;
        bool unknown;
    } rows[] = {
        {"nvmlSystemGetDriverVersion", gpus->driver[0] == '\0'},
        {"nvmlSystemGetCudaDriverVersion", gpus->cuda_version == -1},
        {"nvmlDeviceGetName", gpu->name[0] == '\0'},
        {"nvmlDeviceGetUUID", gpu->uuid[0] == '\0'},
        {"nvmlDeviceGetPciInfo_v3", gpu->bus_id[0] == '\0' && gpu->bus == -1},
        {"nvmlDeviceGetMemoryInfo", gpu->memory == -1 && gpu->memory_free == -1},
        {"nvmlDeviceGetCudaComputeCapability", gpu->major == -1 && gpu->minor == -1},
        {"nvmlDeviceGetNumGpuCores", gpu->cores == -1},
        {"nvmlDeviceGetMaxClockInfo", gpu->clock_mhz == -1},
        {"nvmlDeviceGetCurrPcieLinkGeneration", gpu->pcie_generation == -1},
        {"nvmlDeviceGetCurrPcieLinkWidth", gpu->pcie_width == -1},
        {"nvmlDeviceGetMaxPcieLinkGeneration", gpu->pcie_generation_max == -1},
        {"nvmlDeviceGetMaxPcieLinkWidth", gpu->pcie_width_max == -1},
        {"nvmlDeviceGetCpuAffinity", gpu->near[0] == 0},
        {"nvmlDeviceGetMemoryAffinity", gpu->numa == -1},
        {"nvmlDeviceGetComputeMode", gpu->mode == WEFT_GPU_MODE_UNKNOWN},
        {"nvmlDeviceGetMigMode", gpu->mig == -1},
        {"nvmlDeviceGetNvLinkState", gpu->links == -1 && pair->links == -1},
        {"nvmlDeviceGetNvLinkVersion", gpu->link_version == -1 && pair->link_version == -1},
        {"nvmlDeviceGetNvLinkRemoteDeviceType", gpu->switch_links == 0 && gpu->unknown_links == 18},
        {"nvmlDeviceGetP2PStatus", pair->access[0] == -1 && pair->access[3] == -1},
        {"nvmlDeviceGetTopologyCommonAncestor", pair->path == WEFT_PATH_UNKNOWN},
        {"nvmlDeviceGetGpuMaxPcieLinkGeneration", health->pcie_generation_own == -1},
        {"nvmlDeviceGetUtilizationRates", health->busy == -1},
        {"nvmlDeviceGetCurrentClocksThrottleReasons", health->throttle == -1},
        {"nvmlDeviceGetEccMode", health->ecc == -1},
        {"nvmlDeviceGetTotalEccErrors", health->ecc_uncorrected == -1},
        {"nvmlDeviceGetRetiredPagesPendingStatus", health->retire_pending == -1},
        {"nvmlDeviceGetRemappedRows", health->rows_pending == -1 && health->rows_failed == -1},
        {"nvmlDeviceGetPersistenceMode", health->persistence == -1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].function, function) == 0) {
            return rows[i].unknown;
        }
    }
    return false;
}

/* Each function in turn fails in each way: what it tells is unknown, and nothing else. */
static void a_field_that_fails_is_unknown_alone(void **state)
{
    (void)state;
    static const char *const functions[] = {
#define SYMBOL(returns, field, symbol, parameters) symbol,
        WEFT_NVML_TABLE(SYMBOL)
#undef SYMBOL
    };
    static const char *const others[] = {
        /* no fields of their own, or asked only of GPUs with MIG */
        "nvmlErrorString", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetNvLinkRemotePciInfo_v2"};
    static const int codes[] = {WEFT_NVML_NOT_SUPPORTED, 999};
    int count = (int)(sizeof(functions) / sizeof(functions[0]));
    for (int i = WEFT_NVML_REQUIRED; i < count; i++) {
        bool other = false;
        for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++) {
            other |= strcmp(functions[i], others[k]) == 0;
        }
        for (int k = 0; k < 2; k++) {
            weft_gpus_t gpus;
            machine_reset();
            machine_add_dgx();
            machine_add("error %s %d\n", functions[i], codes[k]);
            machine_read(&gpus);
            assert_int_equal(gpus.count, 8);
            assert_int_equal(gpus.cuda_count, 8);
            int unknown = 0;
            for (int f = WEFT_NVML_REQUIRED; f < count; f++) {
                unknown += is_unknown(functions[f], &gpus);
            }
            /* with NOT_SUPPORTED a GPU says that it has no NVLinks, or cannot be cut */
            bool means_none = codes[k] == WEFT_NVML_NOT_SUPPORTED &&
                              (strcmp(functions[i], "nvmlDeviceGetNvLinkState") == 0 ||
                               strcmp(functions[i], "nvmlDeviceGetMigMode") == 0);
            if (strcmp(functions[i], "nvmlDeviceGetNvLinkState") == 0) {
                assert_int_equal(gpus.gpus[1].links, means_none ? 0 : -1);
                assert_int_equal(weft__gpu_pair(&gpus, 1, 6)->links, means_none ? 0 : -1);
            } else if (means_none) {
                assert_int_equal(gpus.gpus[1].mig, 0);
            } else if (!other) {
                assert_true(is_unknown(functions[i], &gpus));
                assert_int_equal(unknown, 1);
            } else {
                assert_int_equal(unknown, 0);
            }
            weft__gpus_cleanup(&gpus);
        }
    }
}

static void health_is_what_the_driver_tells_if_asked(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    weft_gpu_source_t source = machine_source();
    machine_add(MACHINE_H200);
    machine_add("set 0 busy=97\nset 0 throttle=68\nset 0 ecc=1\nset 0 errors=5\nset 0 retire=1\n"
                "set 0 rows=1:0\nset 0 persistence=0\nset 0 own=6\n");
    machine_read(&gpus);
    const weft_gpu_health_t *health = &gpus.gpus[0].health;
    assert_true(health->asked);
    assert_int_equal(health->busy, 97);
    assert_int_equal(health->throttle, WEFT_THROTTLE_HARDWARE_THERMAL | WEFT_THROTTLE_POWER_CAP);
    assert_int_equal(health->ecc, 1);
    assert_int_equal(health->ecc_uncorrected, 5);
    assert_int_equal(health->retire_pending, 1);
    assert_int_equal(health->rows_pending, 1);
    assert_int_equal(health->rows_failed, 0);
    assert_int_equal(health->persistence, 0);
    assert_int_equal(health->pcie_generation_own, 6);
    weft__gpus_cleanup(&gpus);
    source.health = false;
    assert_int_equal(weft__gpus_read_from(&source, &gpus), WEFT_OK);
    assert_false(gpus.gpus[0].health.asked);
    assert_int_equal(gpus.gpus[0].health.ecc_uncorrected, -1);
    weft__gpus_cleanup(&gpus);
}

/* ---- files -------------------------------------------------------------------------------- */

static void sysfs_tells_node_and_cpus(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    machine_add(MACHINE_H200);
    machine_put("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "3\n");
    machine_put("/sys/bus/pci/devices/0000:1b:00.0/local_cpulist", "0-1,64-65\n");
    machine_read(&gpus);
    assert_int_equal(gpus.gpus[0].numa, 3); /* the kernel knows better than the driver */
    assert_int_equal(gpus.gpus[0].near[0], 0xff00);
    weft__gpus_cleanup(&gpus);

    machine_put("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "-1\n");
    machine_add("error nvmlDeviceGetCpuAffinity 3\n");
    machine_read(&gpus);
    assert_int_equal(gpus.gpus[0].numa, 1);
    assert_int_equal(gpus.gpus[0].near[0], 3);
    assert_int_equal(gpus.gpus[0].near[1], 3);
    weft__gpus_cleanup(&gpus);

    machine_put("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "");
    machine_put("/sys/bus/pci/devices/0000:1b:00.0/local_cpulist", "many\n");
    machine_read(&gpus);
    assert_int_equal(gpus.gpus[0].numa, 1);
    assert_int_equal(gpus.gpus[0].near[0], 0);
    weft__gpus_cleanup(&gpus);
}

static int read_mps(const char *directory)
{
    weft_gpus_t gpus;
    weft_gpu_source_t source = machine_source();
    source.mps = directory;
    assert_int_equal(weft__gpus_read_from(&source, &gpus), WEFT_OK);
    int mps = gpus.mps;
    weft__gpus_cleanup(&gpus);
    return mps;
}

static void mps_runs_if_its_daemon_does(void **state)
{
    (void)state;
    machine_add(MACHINE_H200);
    assert_int_equal(read_mps(NULL), 0);
    machine_put("/tmp/nvidia-mps/nvidia-cuda-mps-control.pid", "77\n");
    assert_int_equal(read_mps(NULL), -1); /* killed, or of another container */
    machine_put("/proc/77/comm", "bash\n");
    assert_int_equal(read_mps(NULL), -1);
    machine_put("/proc/77/comm", "nvidia-cuda-mps\n");
    assert_int_equal(read_mps(NULL), 1);
    assert_int_equal(read_mps(""), 1);
    assert_int_equal(read_mps("/run/mps"), 0);
    machine_put("/run/mps/nvidia-cuda-mps-control.pid", "?");
    assert_int_equal(read_mps("/run/mps"), -1);
}

static void modes_are_told(void **state)
{
    (void)state;
    weft_gpus_t gpus;
    machine_add("gpu 0000:10:00.0 mode=3\ngpu 0000:20:00.0 mode=2 mig=1 part=MIG-1 part=MIG-2\n");
    machine_read(&gpus);
    assert_int_equal(gpus.gpus[0].mode, WEFT_GPU_EXCLUSIVE);
    assert_int_equal(gpus.gpus[0].mig, 0);
    assert_int_equal(gpus.gpus[1].mode, WEFT_GPU_PROHIBITED);
    assert_int_equal(gpus.gpus[1].mig, 1);
    assert_int_equal(gpus.gpus[1].parts, 2);
    assert_string_equal(gpus.gpus[1].part_uuids[1], "MIG-2");
    weft__gpus_cleanup(&gpus);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, machine_open, machine_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_library_there_are_none),
        TEST(a_library_of_another_kind_is_named),
        TEST(a_driver_that_does_not_start_says_why),
        TEST(one_gpu_is_described),
        TEST(switches_connect_all_with_all),
        TEST(fewer_links_to_switches_count_for_the_pair),
        TEST(partitions_of_a_switch_are_apart),
        TEST(bridges_connect_pairs),
        TEST(links_to_processors_connect_no_gpus),
        TEST(hidden_ends_count_on_the_drivers_word),
        TEST(a_lost_gpu_is_left_out),
        TEST(an_old_driver_lacks_functions),
        TEST(a_field_that_fails_is_unknown_alone),
        TEST(health_is_what_the_driver_tells_if_asked),
        TEST(sysfs_tells_node_and_cpus),
        TEST(mps_runs_if_its_daemon_does),
        TEST(modes_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
