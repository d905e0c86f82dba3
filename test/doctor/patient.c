#include "doctor/patient.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"

#define ENTRIES 16

weft_doctor_asked_t patient;
static weft_gpus_t gpus;
static const char *environment[ENTRIES];
static char run_path[WEFT_PATH_BYTES], program_path[WEFT_PATH_BYTES];

static const char *full(const char *path)
{
    static char name[2][WEFT_PATH_BYTES];
    static int turn;
    turn ^= 1;
    snprintf(name[turn], sizeof(name[turn]), "%s%s", machine_source().root, path);
    return name[turn];
}

/* ---- changing it ----------------------------------------------------------------------------- */

void patient_change(const char *path, const char *old, const char *with)
{
    char *text, *all = NULL;
    size_t size;
    assert_int_equal(weft__file_read(full(path), &text, NULL), WEFT_OK);
    char *at = strstr(text, old);
    if (at == NULL) {
        fail_msg("%s has no \"%s\"", path, old);
    }
    FILE *out = open_memstream(&all, &size);
    assert_non_null(out);
    fprintf(out, "%.*s%s%s", (int)(at - text), text, with, at + strlen(old));
    fclose(out);
    machine_put(path, all);
    free(all);
    free(text);
}

void patient_remove(const char *path)
{
    assert_int_equal(remove(full(path)), 0);
}

void patient_link(const char *path, const char *target)
{
    machine_put(path, ""); /* for the folders above it */
    patient_remove(path);
    assert_int_equal(symlink(target, full(path)), 0);
}

void patient_bytes(const char *path, const void *bytes, size_t size)
{
    machine_put(path, "");
    FILE *file = fopen(full(path), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void patient_no_rdma(void)
{
    assert_int_equal(rename(full("/sys/class/infiniband"), full("/sys/class/gone")), 0);
}

void patient_export(const char *entry)
{
    int count = 0;
    while (environment[count] != NULL) {
        count++;
    }
    assert_true(count + 1 < ENTRIES);
    environment[count] = entry;
}

void patient_program(const char *script)
{
    machine_put("/weft", script);
    assert_int_equal(chmod(full("/weft"), 0700), 0);
}

void patient_ranks(const char *old, const char *with)
{
    char script[4096];
    snprintf(
        script, sizeof(script),
        "#!/bin/sh\n# weft doctor --trial KIND ...\ncase $3 in threads) t=true ;; *) t=false ;; "
        "esac\ncat <<END\n{\"backend\": \"${WEFT_ENGINE:-shm}\", \"threads\": $t, \"tests\": "
        "100, \"wrong\": 0, \"first\": \"\", \"ranks\": [\n"
        "{\"host\": 1, \"clock_us\": 5000000, \"name\": \"a\", \"weft\": \"0.1.0\", "
        "\"driver\": \"570.10\", \"nccl\": \"2.27.3\"},\n"
        "{\"host\": 2, \"clock_us\": 5000100, \"name\": \"b\", \"weft\": \"0.1.0\", "
        "\"driver\": \"570.10\", \"nccl\": \"2.27.3\"}]}\nEND\n");
    patient_program(script);
    if (old != NULL) {
        patient_change("/weft", old, with);
        assert_int_equal(chmod(full("/weft"), 0700), 0);
    }
}

void patient_steps(int count, const char *line)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    for (int i = 1; i <= count; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        fprintf(out, line, i, 10.0 - 5.0 * i / count);
#pragma GCC diagnostic pop
        fputc('\n', out);
    }
    fclose(out);
    machine_put("/run/metrics.jsonl", text);
    free(text);
}

/* ---- healthy --------------------------------------------------------------------------------- */

static void heal_cpus(void)
{
    machine_put("/sys/devices/system/cpu/online", "0-31\n");
    const char *const files[][2] = {
        {"scaling_governor", "performance\n"},
        {"scaling_driver", "acpi-cpufreq\n"},
        {"scaling_max_freq", "3500000\n"},
        {"cpuinfo_max_freq", "3500000\n"},
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char path[128];
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cpufreq/%s", files[i][0]);
        machine_put(path, files[i][1]);
    }
    machine_put("/sys/devices/system/node/node0/cpulist", "0-15\n");
    machine_put("/sys/devices/system/node/node1/cpulist", "16-31\n");
    machine_put("/proc/self/status", "Name:\tweft\nCpus_allowed_list:\t0-31\nMems_allowed_list:\t"
                                     "0-1\n");
    machine_put("/proc/sys/kernel/numa_balancing", "0\n");
    machine_put("/proc/loadavg", "0.50 0.40 0.30 1/900 4242\n");
    machine_put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu avx2\n");
}

static void heal_memory(void)
{
    machine_put("/proc/self/limits",
                "Limit                     Soft Limit           Hard Limit           Units     \n"
                "Max processes             4000000              4000000              processes \n"
                "Max open files            65536                1048576              files     \n"
                "Max locked memory         unlimited            unlimited            bytes     \n");
    machine_put(
        "/proc/meminfo",
        "MemTotal:       2000000000 kB\nMemAvailable:   1900000000 kB\nSwapTotal:  "
        "8000000 kB\nSwapFree:   8000000 kB\nHugePages_Total:       0\nHugePages_Free:     "
        "   0\nHugepagesize:       2048 kB\nCommitLimit:  1000000 kB\nCommitted_AS: 5 kB\n");
    machine_put("/proc/self/mountinfo", "29 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    machine_put("/proc/self/cgroup", "0::/job\n");
    machine_put("/cg/job/cpu.max", "max 100000\n");
    machine_put("/cg/job/pids.max", "max\n");
    machine_put("/cg/job/memory.max", "max\n");
    machine_put("/cg/job/memory.current", "1000000\n");
    machine_put("/cg/job/memory.events", "low 0\noom 0\noom_kill 0\n");
    machine_put("/proc/sys/kernel/yama/ptrace_scope", "0\n");
    machine_put("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    machine_put("/proc/sys/vm/overcommit_memory", "0\n");
}

static void heal_gpus(void)
{
    machine_reset();
    machine_add_dgx();
    machine_put("/proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.10  Wed Jan  1\n");
    machine_put("/sys/module/nvidia_peermem/version", "570.10\n");
    machine_put("/var/log/kern.log", "kernel: NVRM: loading NVIDIA UNIX x86_64\nkernel: fine\n");
    for (int i = 2; i < 4; i++) { /* of two GPUs: what is not there does no harm */
        char path[256], bridge[64], bus[16];
        snprintf(bus, sizeof(bus), "0000:%02x:00.0", 0x10 + 8 * i);
        snprintf(bridge, sizeof(bridge), "/sys/devices/pci0000:00/0000:00:%02x.0", i + 1);
        snprintf(path, sizeof(path), "%s/%s/iommu_group/type", bridge, bus);
        machine_put(path, "identity\n");
        uint8_t config[4096] = {0xde, 0x10};
        config[0x100] = 0x0d; /* ACS, all bits off */
        config[0x102] = 0x01;
        snprintf(path, sizeof(path), "%s/config", bridge);
        patient_bytes(path, config, sizeof(config));
        char target[256];
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", bus);
        snprintf(target, sizeof(target), "../../..%s/%s", bridge + 4, bus);
        patient_link(path, target);
    }
}

static void put_files(const char *folder, const char *const (*files)[2], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/%s", folder, files[i][0]);
        machine_put(path, files[i][1]);
    }
}

static void heal_network(void)
{
    static const char *const card[][2] = {
        {"operstate", "up\n"},         {"mtu", "1500\n"},
        {"speed", "25000\n"},          {"duplex", "full\n"},
        {"device/vendor", "0x15b3\n"}, {"device/device", "0x1017\n"}};
    static const char *const port[][2] = {{"ports/1/state", "4: ACTIVE\n"},
                                          {"ports/1/link_layer", "InfiniBand\n"},
                                          {"ports/1/rate", "400 Gb/sec (4X NDR)\n"},
                                          {"ports/1/counters/symbol_error", "0\n"},
                                          {"device/current_link_speed", "32.0 GT/s PCIe\n"},
                                          {"device/max_link_speed", "32.0 GT/s PCIe\n"},
                                          {"device/current_link_width", "16\n"},
                                          {"device/max_link_width", "16\n"}};
    put_files("/sys/class/net/eno1", card, sizeof(card) / sizeof(card[0]));
    put_files("/sys/class/net/eno2", card, sizeof(card) / sizeof(card[0]));
    machine_put("/sys/class/net/lo/operstate", "unknown\n");
    machine_put("/sys/class/net/docker0/operstate", "up\n");
    put_files("/sys/class/infiniband/mlx5_0", port, sizeof(port) / sizeof(port[0]));
    put_files("/sys/class/infiniband/mlx5_1", port, sizeof(port) / sizeof(port[0]));
    machine_put("/sys/class/infiniband/mlx5_0/device/numa_node", "0\n");
    machine_put("/sys/class/infiniband/mlx5_1/device/numa_node", "1\n");
    machine_put("/proc/net/route",
                "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
                "eno1\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
                "eno1\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n");
    machine_put("/etc/hosts", "127.0.0.1 localhost\n192.168.1.7 gpu07\n");
}

static void heal_run(void)
{
    machine_put("/run/config", "ranks = 8\ndp = 8\nlength = 1024\nbatch = 64\nmicro-batch = 8\n"
                               "accumulate = 1\nprecision = bf16\n");
    machine_put("/run/machine.json",
                "{\"device\": \"cuda\", \"gpu\": \"NVIDIA H100 80GB HBM3\", \"host\": \"gpu07\", "
                "\"ranks\": 8, \"cpus\": 32, \"parameters\": 124000000}\n");
    patient_steps(40, "{\"step\": %d, \"loss\": %.3f, \"seconds\": 0.5, \"comm_share\": 0.08, "
                      "\"exchange_share\": 0.05, \"update_share\": 0.1, \"memory\": 60000000000}");
    machine_put("/run/trace.json",
                "{\"displayTimeUnit\": \"ms\", \"traceEvents\": ["
                "{\"ph\":\"X\",\"name\":\"s\",\"pid\":0,\"tid\":0,\"ts\":0,\"dur\":1000},"
                "{\"ph\":\"X\",\"name\":\"c\",\"pid\":0,\"tid\":1,\"ts\":0,\"dur\":900},"
                "{\"ph\":\"X\",\"name\":\"d\",\"pid\":0,\"tid\":8,\"ts\":0,\"dur\":10},"
                "{\"ph\":\"X\",\"name\":\"s\",\"pid\":1,\"tid\":0,\"ts\":0,\"dur\":1000},"
                "{\"ph\":\"X\",\"name\":\"c\",\"pid\":1,\"tid\":1,\"ts\":0,\"dur\":910}]}\n");
}

int patient_open(void **state)
{
    return machine_open(state);
}

int patient_close(void **state)
{
    return machine_close(state);
}

void patient_heal(void)
{
    assert_int_equal(machine_close(NULL), 0);
    assert_int_equal(machine_open(NULL), 0);
    memset(environment, 0, sizeof(environment));
    heal_cpus();
    heal_memory();
    heal_gpus();
    heal_network();
    heal_run();
    patient_ranks(NULL, NULL);
    snprintf(run_path, sizeof(run_path), "%s", full("/run"));
    snprintf(program_path, sizeof(program_path), "%s", full("/weft"));
    patient = (weft_doctor_asked_t){
        .root = machine_source().root,
        .environment = (char *const *)(uintptr_t)environment,
        .level = WEFT_DOCTOR_QUICK,
        .hosts = 1,
        .run = run_path,
        .self = program_path,
        .machine = true,
        .facts = {.shm_bytes = (int64_t)1 << 40,
                  .shm_free = (int64_t)1 << 40,
                  .clock_synchronised = 1,
                  .name_resolves = 1,
                  .module_cuda = 12080,
                  .nccl = "2.27.3",
                  .host = "gpu07"},
    };
}

void patient_see(weft_doctor_t *doctor)
{
    weft_gpu_source_t source = machine_source();
    for (int i = 0; environment[i] != NULL; i++) {
        if (strncmp(environment[i], "CUDA_VISIBLE_DEVICES=", 21) == 0) {
            source.visible = environment[i] + 21;
        }
    }
    weft__gpus_cleanup(&gpus);
    assert_int_equal(weft__gpus_read_from(&source, &gpus), WEFT_OK);
    patient.gpus = &gpus;
    assert_int_equal(weft__doctor_init(doctor, &patient), WEFT_OK);
    assert_int_equal(weft__doctor_look(doctor), WEFT_OK);
}
