/* ctest: timeout=60 cores=1 */
/* Healthy machines have no findings, and are recommended what they justify. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "doctor/patient.h"

static void show(const weft_doctor_t *doctor)
{
    for (int i = 0; i < doctor->count; i++) {
        const weft_finding_t *finding = &doctor->findings[i];
        if (finding->level != WEFT_FINDING_OK) {
            print_message("  %d %s: %s (%s)\n", (int)finding->level, finding->check, finding->what,
                          finding->evidence);
        }
    }
}

/* How many findings there are that are not OK; *one_p is the last of them. */
static int count_findings(const weft_doctor_t *doctor, const weft_finding_t **one_p)
{
    int count = 0;
    for (int i = 0; i < doctor->count; i++) {
        if (doctor->findings[i].level != WEFT_FINDING_OK) {
            *one_p = &doctor->findings[i];
            count++;
        }
    }
    return count;
}

static void expect_nothing(void)
{
    weft_doctor_t doctor;
    const weft_finding_t *found = NULL;
    patient_see(&doctor);
    int count = count_findings(&doctor, &found);
    if (count > 0) {
        show(&doctor);
    }
    assert_int_equal(count, 0);
    assert_true(doctor.count > 40); /* it did look */
    weft__doctor_cleanup(&doctor);
}

static void a_healthy_machine_has_no_finding(void **state)
{
    (void)state;
    for (int level = WEFT_DOCTOR_QUICK; level <= WEFT_DOCTOR_THOROUGH; level++) {
        patient_heal();
        patient.level = (weft_doctor_level_t)level;
        expect_nothing();
    }
}

/* No driver, no RDMA, one node, frequencies that the processor chooses, a name in /etc/hosts. */
static void a_healthy_laptop_has_no_finding(void **state)
{
    (void)state;
    patient_heal();
    machine_reset();
    machine_add("error nvmlInit_v2 9\n");
    machine_put("/sys/devices/system/cpu/online", "0-7\n");
    machine_put("/sys/devices/system/node/node0/cpulist", "0-7\n");
    patient_remove("/sys/devices/system/node/node1/cpulist");
    machine_put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    machine_put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate\n");
    machine_put("/proc/self/limits", "Max open files            1024     1048576  files\n");
    patient_change("/etc/hosts", "192.168.1.7", "127.0.1.1");
    patient.run = NULL;
    patient.facts.module_cuda = -1;
    patient.facts.nccl = NULL;
    patient_no_rdma();
    expect_nothing();
}

/* Where nothing at all can be read, there is nothing to complain about. */
static void an_empty_machine_has_no_finding(void **state)
{
    weft_doctor_t doctor;
    const weft_finding_t *found = NULL;
    (void)state;
    patient_heal();
    assert_int_equal(machine_close(NULL), 0);
    assert_int_equal(machine_open(NULL), 0);
    patient.root = machine_source().root;
    patient.run = NULL;
    patient.self = NULL;
    machine_add("error nvmlInit_v2 9\n");
    patient_see(&doctor);
    assert_int_equal(count_findings(&doctor, &found), 0);
    assert_int_equal(doctor.export_count, 0);
    weft__doctor_cleanup(&doctor);
}

/* A rank with a core of its own says nothing about the job, whose launcher has them all. A launcher
 * that is as narrow, or little wider, is the fault that it would be without one. */
static void a_launcher_may_bind_its_ranks(void **state)
{
    (void)state;
    static const struct {
        const char *launcher, *seen; /* its CPUs; what is told of them, NULL: nothing */
    } cases[] = {{"0-31", NULL},
                 {"0", "/proc/self/status: Cpus_allowed_list 0; 1 core for 8 ranks"},
                 {"0,16", "/proc/77/status: Cpus_allowed_list 0,16; 2 cores for 8 ranks"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        weft_doctor_t doctor;
        char status[96];
        const char *seen = NULL;
        patient_heal();
        patient_change("/proc/self/status", "0-31", "0");
        snprintf(status, sizeof(status), "Name:\tweft\nCpus_allowed_list:\t%s\n",
                 cases[i].launcher);
        machine_put("/proc/77/status", status);
        patient.launcher = 77;
        patient_see(&doctor);
        for (int k = 0; k < doctor.count; k++) {
            if (doctor.findings[k].level == WEFT_FINDING_WARNING &&
                (seen == NULL || strcmp(doctor.findings[k].check, "cpu-affinity") == 0)) {
                seen = doctor.findings[k].evidence;
            }
        }
        assert_int_equal(seen == NULL, cases[i].seen == NULL);
        if (seen != NULL) {
            assert_string_equal(seen, cases[i].seen);
        }
        weft__doctor_cleanup(&doctor);
    }
}

/* ---- exports --------------------------------------------------------------------------------- */

/* The value that is recommended for `name`; NULL: none. */
static const char *exported(const weft_doctor_t *doctor, const char *name)
{
    for (int i = 0; i < doctor->export_count; i++) {
        if (strcmp(doctor->exports[i].name, name) == 0) {
            assert_true(doctor->exports[i].why[0] != '\0');
            return doctor->exports[i].value;
        }
    }
    return NULL;
}

static void expect_export(const char *name, const char *value)
{
    weft_doctor_t doctor;
    patient_see(&doctor);
    const char *found = exported(&doctor, name);
    if (value == NULL) {
        assert_null(found);
    } else {
        assert_non_null(found);
        assert_string_equal(found, value);
    }
    weft__doctor_cleanup(&doctor);
}

static void exports_are_what_the_machine_justifies(void **state)
{
    weft_doctor_t doctor;
    (void)state;
    patient_heal();
    patient_see(&doctor);
    assert_int_equal(doctor.export_count, 1); /* a healthy machine needs little */
    assert_string_equal(exported(&doctor, "WEFT_DEVICE"), "cuda");
    weft__doctor_cleanup(&doctor);
    patient_export("WEFT_DEVICE=cuda"); /* done */
    expect_export("WEFT_DEVICE", NULL);

    patient_heal(); /* NCCL would take eno1 */
    patient_change("/proc/net/route", "eno1\t00000000", "eno2\t00000000");
    expect_export("NCCL_SOCKET_IFNAME", "=eno2");
    patient_export("NCCL_SOCKET_IFNAME=eno2");
    expect_export("NCCL_SOCKET_IFNAME", NULL);

    patient_heal();
    machine_put("/sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    expect_export("NCCL_IB_HCA", "=mlx5_1:1");

    patient_heal();
    machine_put("/opt/microsoft/ndv5-topo.xml", "<system/>\n");
    expect_export("NCCL_TOPO_FILE", "/opt/microsoft/ndv5-topo.xml");

    patient_heal();
    patient_export("NVSHMEM_SYMMETRIC_SIZE=1M");
    expect_export("NVSHMEM_SYMMETRIC_SIZE", "1G");

    patient_heal();
    machine_put("/cg/job/cpu.max", "400000 100000\n");
    patient.ranks = 2;
    expect_export("WEFT_THREADS", "2");

    patient_heal();
    machine_add("set 7 name=NVIDIA_L4\n");
    expect_export("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, patient_open, patient_close)
    const struct CMUnitTest tests[] = {
        TEST(a_healthy_machine_has_no_finding),       TEST(a_healthy_laptop_has_no_finding),
        TEST(an_empty_machine_has_no_finding),        TEST(a_launcher_may_bind_its_ranks),
        TEST(exports_are_what_the_machine_justifies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
