/* ctest: timeout=120 cores=1 */
/* Faults planted one by one into a healthy machine: each is named by its check, and by no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "doctor/patient.h"

#define NOTE WEFT_FINDING_NOTE
#define WARNING WEFT_FINDING_WARNING
#define ERROR WEFT_FINDING_ERROR

typedef struct fault {
    const char *name;
    void (*plant)(void);
    const char *check;
    weft_finding_level_t level;
    const char *seen; /* in the evidence */
} fault_t;

/* ---- cores ----------------------------------------------------------------------------------- */

static void narrow_affinity(void)
{
    patient_change("/proc/self/status", "0-31", "0,16");
}

static void somewhat_narrow_affinity(void)
{
    patient_change("/proc/self/status", "0-31", "0-7,16-23");
}

static void quota_v2(void)
{
    machine_put("/cg/job/cpu.max", "400000 100000\n");
}

static void quota_v1(void)
{
    machine_put("/proc/self/mountinfo", "30 23 0:27 / /cpu rw - cgroup cgroup rw,cpu,cpuacct\n");
    machine_put("/proc/self/cgroup", "3:cpu,cpuacct:/box/a\n");
    machine_put("/cpu/box/cpu.cfs_quota_us", "250000\n"); /* of the group above ours */
    machine_put("/cpu/box/cpu.cfs_period_us", "100000\n");
    machine_put("/cpu/box/a/cpu.cfs_quota_us", "-1\n");
}

static void many_ranks(void)
{
    machine_reset();
    patient.ranks = 64;
    patient.run = NULL;
}

static void smt_shared(void)
{
    for (int i = 0; i < 32; i++) {
        char path[128], text[32];
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 i);
        snprintf(text, sizeof(text), "%d,%d\n", i / 2 * 2, i / 2 * 2 + 1);
        machine_put(path, text);
    }
    machine_reset();
    patient.ranks = 24;
    patient.run = NULL;
}

static void many_threads(void)
{
    patient_export("WEFT_THREADS=16");
}

static void powersave(void)
{
    machine_put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
}

static void slow_clock(void)
{
    machine_put("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "1200000\n");
}

static void far_memory(void)
{
    patient_change("/proc/self/status", "Mems_allowed_list:\t0-1", "Mems_allowed_list:\t0");
}

static void unbound(void)
{
    patient_export("WEFT_BIND=none");
}

static void balancing(void)
{
    machine_put("/proc/sys/kernel/numa_balancing", "1\n");
}

static void busy(void)
{
    machine_put("/proc/loadavg", "64.00 60.00 50.00 70/900 1\n");
}

/* ---- memory and limits ----------------------------------------------------------------------- */

static void memlock(void)
{
    patient_change("/proc/self/limits", "Max locked memory         unlimited ",
                   "Max locked memory         65536     ");
}

static void small_shm(void)
{
    patient.facts.shm_bytes = patient.facts.shm_free = 64 << 20;
}

static void full_shm(void)
{
    patient.facts.shm_free = 1 << 20;
}

static void few_files(void)
{
    patient_change("/proc/self/limits", "65536  ", "256    ");
}

static void few_tasks(void)
{
    machine_put("/cg/job/pids.max", "64\n");
}

static void ptrace(void)
{
    machine_put("/proc/sys/kernel/yama/ptrace_scope", "1\n");
}

static void memory_killed(void)
{
    machine_put("/cg/job/memory.events", "low 0\noom 2\noom_kill 2\n");
}

static void memory_tight(void)
{
    machine_put("/cg/job/memory.max", "1000000000\n");
    machine_put("/cg/job/memory.current", "990000000\n");
}

static void memory_gone(void)
{
    patient_change("/proc/meminfo", "1900000000", "50000000");
}

static void no_large_pages(void)
{
    machine_put("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
}

static void idle_large_pages(void)
{
    patient_change("/proc/meminfo", "HugePages_Total:       0\nHugePages_Free:        0",
                   "HugePages_Total:  400000\nHugePages_Free:   400000");
}

static void strict_overcommit(void)
{
    machine_put("/proc/sys/vm/overcommit_memory", "2\n");
}

static void swapped(void)
{
    patient_change("/proc/meminfo", "SwapTotal:  8000000 kB\nSwapFree:   8000000",
                   "SwapTotal:  900000000 kB\nSwapFree:   8000000");
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static void no_driver(void)
{
    machine_reset();
    machine_add("error nvmlInit_v2 9\n"); /* it is not loaded */
    machine_put("/sys/devices/pci0000:00/0000:00:03.0/0000:20:00.0/vendor", "0x10de\n");
    machine_put("/sys/devices/pci0000:00/0000:00:03.0/0000:20:00.0/class", "0x030200\n");
    patient.run = NULL;
}

static void lost_gpu(void)
{
    machine_add("error nvmlDeviceGetHandleByIndex_v2 15 7\n");
}

static void other_module(void)
{
    patient_change("/proc/driver/nvidia/version", "570.10", "565.57.01");
}

static void newer_cuda(void)
{
    patient.facts.module_cuda = 13000;
}

static void somewhat_newer_cuda(void)
{
    patient.facts.module_cuda = 12090;
}

static void no_module(void)
{
    patient.facts.module_cuda = 0;
}

static void no_nccl(void)
{
    patient.facts.nccl = "";
}

static void hidden_gpus(void)
{
    patient_export("CUDA_VISIBLE_DEVICES=0,1");
}

static void no_visible_gpu(void)
{
    patient_export("CUDA_VISIBLE_DEVICES=-1");
}

static void no_peer(void)
{
    machine_add("peer 2 5 4 4 4 4\n"); /* disabled by the driver's settings */
}

static void lost_links(void)
{
    machine_add("unlink 3 6\n");
}

static void fabric_down(void)
{
    machine_add("peer 0 1 0 0 5 0\n");
}

static void iommu(void)
{
    machine_put("/sys/devices/pci0000:00/0000:00:03.0/0000:20:00.0/iommu_group/type", "DMA-FQ\n");
}

static void acs(void)
{
    uint8_t config[4096] = {0xde, 0x10};
    config[0x100] = 0x01; /* another capability before it */
    config[0x102] = 0x01;
    config[0x103] = 0x15; /* the next is at 0x150 */
    config[0x150] = 0x0d;
    config[0x156] = 0x1d;
    patient_bytes("/sys/devices/pci0000:00/0000:00:04.0/config", config, sizeof(config));
}

static void narrow_pcie(void)
{
    machine_add("set 4 pcie=5x8\n");
}

static void slow_pcie(void)
{
    machine_add("set 4 pcie=3x16\nset 4 busy=80\n");
}

static void slow_slot(void)
{
    machine_add("set 4 pcie=4x16\nset 4 pcie_max=4x16\nset 4 own=5\n");
}

static void hot(void)
{
    machine_add("set 6 throttle=64\n");
}

static void brake(void)
{
    machine_add("set 6 throttle=136\n");
}

static void clocks_set(void)
{
    machine_add("set 6 throttle=2\n");
}

static void ecc_errors(void)
{
    machine_add("set 1 errors=3\n");
}

static void rows_pending(void)
{
    machine_add("set 1 rows=1:0\nset 1 errors=1\n");
}

static void pages_pending(void)
{
    machine_add("set 1 retire=1\n");
}

static void rows_failed(void)
{
    machine_add("set 1 rows=0:1\n");
}

static void xid(void)
{
    machine_put("/var/log/kern.log", "Jan 1 kernel: NVRM: Xid (PCI:0000:10:00): 13, pid=5, x\nJan "
                                     "1 kernel: NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off "
                                     "the bus.\nJan 1 kernel: more\n");
}

/* At the end of a log that is longer than what is read of it. */
static void late_xid(void)
{
    static char text[(3 << 20) + 128];
    memset(text, 'x', 3 << 20);
    for (int i = 99; i < 3 << 20; i += 100) {
        text[i] = '\n';
    }
    snprintf(text + (3 << 20), 128, "\nk: NVRM: Xid (PCI:0000:18:00): 74, NVLink\n");
    machine_put("/var/log/kern.log", text);
}

static void program_xid(void)
{
    machine_put("/var/log/kern.log", "Jan 1 kernel: NVRM: Xid (PCI:0000:10:00): 31, MMU fault\n");
}

static void no_persistence(void)
{
    machine_add("set 0 persistence=0\nset 1 persistence=0\n");
}

static void prohibited(void)
{
    machine_add("set 2 mode=2\n");
}

static void exclusive(void)
{
    machine_add("set 2 mode=3\n");
    patient.ranks = 16;
}

static void shared_without_mps(void)
{
    patient.ranks = 16;
}

static void mig(void)
{
    machine_add("set 5 mig=1\n");
}

static void used_memory(void)
{
    machine_add("set 0 free=1000000000\n");
}

static void mixed_gpus(void)
{
    machine_add("set 7 name=NVIDIA_L4\n");
}

static void far_cores(void)
{
    patient_change("/proc/self/status", "0-31\nMems_allowed_list:\t0-1",
                   "0-15\nMems_allowed_list:\t0");
    /* 16 cores are enough for 8 ranks, and no note is meant here */
    machine_put("/sys/devices/system/cpu/online", "0-15\n");
}

static void far_card(void)
{
    machine_put("/sys/class/infiniband/mlx5_1/device/numa_node", "0\n");
}

static void no_peermem(void)
{
    patient_remove("/sys/module/nvidia_peermem/version");
    patient_remove("/sys/module/nvidia_peermem");
}

/* ---- environment ----------------------------------------------------------------------------- */

#define EXPORT(function, entry)                                                                    \
    static void function(void)                                                                     \
    {                                                                                              \
        patient_export(entry);                                                                     \
    }
EXPORT(weft_misspelled, "WEFT_TIMEUOT=5")
EXPORT(weft_malformed, "WEFT_CHUNK=much")
EXPORT(nccl_misspelled, "NCCL_P2P_DISABEL=1")
EXPORT(p2p_disabled, "NCCL_P2P_DISABLE=1")
EXPORT(p2p_level, "NCCL_P2P_LEVEL=LOC")
EXPORT(shm_disabled, "NCCL_SHM_DISABLE=1")
EXPORT(ib_disabled, "NCCL_IB_DISABLE=1")
EXPORT(algo_forced, "NCCL_ALGO=Ring")
EXPORT(proto_forced, "NCCL_PROTO=LL")
EXPORT(debug_left_on, "NCCL_DEBUG=INFO")
EXPORT(few_channels, "NCCL_MAX_NCHANNELS=1")
EXPORT(small_buffers, "NCCL_BUFFSIZE=65536")
EXPORT(launch_blocking, "CUDA_LAUNCH_BLOCKING=1")
EXPORT(weft_algo, "WEFT_ALGO=ring")
EXPORT(weft_trace_log, "WEFT_LOG=trace")
EXPORT(interface_missing, "NCCL_SOCKET_IFNAME=eth7")
EXPORT(interface_loopback, "NCCL_SOCKET_IFNAME=lo")
EXPORT(interface_not_exact, "NCCL_SOCKET_IFNAME==eno")
EXPORT(hca_missing, "NCCL_IB_HCA=mlx4_0")
EXPORT(topo_missing, "NCCL_TOPO_FILE=/etc/no/topo.xml")
EXPORT(symmetric_small, "NVSHMEM_SYMMETRIC_SIZE=1M")
EXPORT(symmetric_large, "SHMEM_SYMMETRIC_SIZE=1T")
EXPORT(nvshmem_p2p, "NVSHMEM_DISABLE_P2P=1")

/* ---- network --------------------------------------------------------------------------------- */

static void docker_route(void)
{
    patient_change("/proc/net/route", "eno1\t00000000", "docker0\t00000000");
}

static void no_route(void)
{
    patient_change("/proc/net/route", "eno1\t00000000\t0101A8C0\t0003", "x\t01000000\t0\t0003");
    patient.hosts = 2;
}

static void small_mtu(void)
{
    machine_put("/sys/class/net/eno1/mtu", "576\n");
    machine_put("/sys/class/net/eno2/mtu", "576\n");
}

static void other_mtu(void)
{
    machine_put("/sys/class/net/eno2/mtu", "9000\n");
}

static void slow_link(void)
{
    machine_put("/sys/class/net/eno2/speed", "10000\n");
}

static void half_duplex(void)
{
    machine_put("/sys/class/net/eno2/duplex", "half\n");
}

static void hundred_megabit(void)
{
    machine_put("/sys/class/net/eno2/speed", "100\n");
    patient.hosts = 2;
}

static void slow_card_slot(void)
{
    machine_put("/sys/class/infiniband/mlx5_1/device/current_link_speed", "8.0 GT/s PCIe\n");
}

static void slow_port(void)
{
    machine_put("/sys/class/infiniband/mlx5_1/ports/1/rate", "100 Gb/sec (1X NDR)\n");
}

static void port_errors(void)
{
    machine_put("/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error", "65535\n");
}

static void name_loops(void)
{
    patient_change("/etc/hosts", "192.168.1.7", "127.0.1.1");
    patient.hosts = 2;
}

static void clock_free(void)
{
    patient.facts.clock_synchronised = 0;
    patient.hosts = 2;
}

static void clock_free_alone(void)
{
    patient.facts.clock_synchronised = 0;
}

/* ---- communication --------------------------------------------------------------------------- */

static void standard(void)
{
    patient.level = WEFT_DOCTOR_STANDARD;
}

static void unknown_name(void)
{
    standard();
    patient.facts.name_resolves = 0;
    patient.hosts = 2;
}

static void wrong_sums(void)
{
    standard();
    patient_program("#!/bin/sh\n[ \"$WEFT_ENGINE\" = nccl ] && wrong=7 || wrong=0\ncat <<END\n"
                    "{\"backend\": \"$WEFT_ENGINE\", \"tests\": 100, \"wrong\": $wrong, \"first\": "
                    "\"allreduce of 1000 f32 on rank 3\", \"ranks\": [{\"host\": 1}]}\nEND\n");
}

static void crash(void)
{
    standard();
    patient_program("#!/bin/sh\n[ \"$3\" = threads ] && kill -11 $$\ncat <<END\n{\"tests\": 1, "
                    "\"wrong\": 0, \"ranks\": [{}]}\nEND\n");
}

static void refusal(void)
{
    standard();
    patient_program(
        "#!/bin/sh\n[ \"$WEFT_DEVICE $3\" = 'cpu processes' ] && echo '[weft 0] log' >&2 "
        "&& echo 'weft doctor: no memfd' >&2 && exit 1\ncat <<END\n{\"tests\": 1, "
        "\"wrong\": 0, \"ranks\": [{}]}\nEND\n");
}

static void torn_answer(void)
{
    standard();
    patient_program("#!/bin/sh\n[ \"$WEFT_ENGINE\" = weft ] && echo '{\"tests\": ' && exit 0\n"
                    "echo '{\"tests\": 1, \"wrong\": 0, \"ranks\": [{}]}'\n");
}

static void versions_differ(void)
{
    standard();
    patient_ranks("\"nccl\": \"2.27.3\"}]", "\"nccl\": \"2.21.5\"}]");
}

static void clocks_apart(void)
{
    standard();
    patient_ranks("5000100", "9000000");
}

static const fault_t faults[] = {
    {"affinity of 2 CPUs", narrow_affinity, "cpu-affinity", WARNING, "Cpus_allowed_list 0,16"},
    {"affinity of half", somewhat_narrow_affinity, "cpu-affinity", NOTE, "0-7,16-23"},
    {"CPU quota, version 2", quota_v2, "cpu-quota", WARNING, "/cg/job/cpu.max: 4 CPUs"},
    {"CPU quota, version 1", quota_v1, "cpu-quota", WARNING, "/cpu/box/cpu.cfs_quota_us: 2.5"},
    {"64 ranks on 32 CPUs", many_ranks, "cpu-ranks", WARNING, "-n 64; 32 cores"},
    {"24 ranks on 16 cores", smt_shared, "cpu-smt", WARNING, "32 hardware threads on 16 cores"},
    {"8 ranks of 16 threads", many_threads, "cpu-threads", WARNING, "WEFT_THREADS=16"},
    {"governor powersave", powersave, "cpu-governor", WARNING, "scaling_governor: powersave"},
    {"frequency limited", slow_clock, "cpu-governor", WARNING, "1.20 GHz of 3.50"},
    {"memory of one node", far_memory, "cpu-numa", WARNING, "Mems_allowed_list 0"},
    {"ranks unbound", unbound, "cpu-numa", WARNING, "WEFT_BIND=none"},
    {"NUMA balancing", balancing, "cpu-balancing", NOTE, "numa_balancing: 1"},
    {"load", busy, "cpu-load", NOTE, "64.00"},
    {"memlock", memlock, "mem-locked", WARNING, "65536 bytes"},
    {"/dev/shm of docker", small_shm, "mem-shm", WARNING, "64 MiB"},
    {"/dev/shm full", full_shm, "mem-shm", WARNING, "1 MiB free"},
    {"open files", few_files, "mem-files", WARNING, "Max open files 256 (hard 1048576)"},
    {"pids.max", few_tasks, "mem-processes", WARNING, "pids.max of the control group: 64"},
    {"ptrace scope", ptrace, "mem-ptrace", NOTE, "ptrace_scope: 1"},
    {"killed for memory", memory_killed, "mem-cgroup", WARNING, "oom_kill 2"},
    {"control group full", memory_tight, "mem-cgroup", WARNING, "left"},
    {"memory gone", memory_gone, "mem-free", WARNING, "MemAvailable 47.68 GiB"},
    {"no large pages", no_large_pages, "mem-hugepages", NOTE, "[never]"},
    {"idle large pages", idle_large_pages, "mem-hugepages", WARNING, "400000 of 400000"},
    {"overcommit 2", strict_overcommit, "mem-overcommit", WARNING, "overcommit_memory: 2"},
    {"swapped out", swapped, "mem-swap", NOTE, "of swap in use"},
    {"no driver", no_driver, "gpu-driver", ERROR, "0000:20:00.0"},
    {"a lost GPU", lost_gpu, "gpu-driver", ERROR, "GPU 7 is left out: GPU is lost"},
    {"another kernel module", other_module, "gpu-driver", ERROR, "565.57.01; NVML: 570.10"},
    {"CUDA 13 on a driver of 12", newer_cuda, "gpu-cuda", ERROR, "CUDA 13.0; driver 570.10"},
    {"CUDA 12.9 on 12.8", somewhat_newer_cuda, "gpu-cuda", NOTE, "CUDA 12.9"},
    {"no CUDA module", no_module, "gpu-cuda", WARNING, "libweft-cuda.so"},
    {"no NCCL", no_nccl, "gpu-nccl", NOTE, "WEFT_NCCL"},
    {"GPUs hidden", hidden_gpus, "gpu-visible", NOTE, "CUDA_VISIBLE_DEVICES=0,1"},
    {"all GPUs hidden", no_visible_gpu, "gpu-visible", WARNING, "CUDA_VISIBLE_DEVICES=-1"},
    {"no peer access", no_peer, "gpu-peer", WARNING, "GPU 2 to GPU 5 (SYS): it is disabled"},
    {"lost NVLinks", lost_links, "gpu-nvlink", WARNING, "others of its kind have 18"},
    {"fabric down", fabric_down, "gpu-nvlink", ERROR, "NODE, not NV18"},
    {"IOMMU", iommu, "gpu-iommu", WARNING, "0000:20:00.0/iommu_group/type: DMA-FQ"},
    {"ACS", acs, "gpu-acs", WARNING, "0xd, above GPU 3"},
    {"PCIe x8", narrow_pcie, "gpu-pcie", WARNING, "5 x8 now, 5 x16"},
    {"PCIe 3 while busy", slow_pcie, "gpu-pcie", WARNING, "while it is busy"},
    {"PCIe slot", slow_slot, "gpu-pcie", WARNING, "generation 4 of 5"},
    {"too hot", hot, "gpu-throttle", WARNING, "0x40"},
    {"power brake", brake, "gpu-throttle", WARNING, "0x88"},
    {"clocks set", clocks_set, "gpu-throttle", NOTE, "0x2"},
    {"ECC errors", ecc_errors, "gpu-ecc", ERROR, "3 uncorrected"},
    {"rows to replace", rows_pending, "gpu-ecc", WARNING, "remapped rows: pending"},
    {"pages to retire", pages_pending, "gpu-ecc", WARNING, "retired pages: pending"},
    {"no spare rows", rows_failed, "gpu-ecc", ERROR, "failed"},
    {"Xid 79", xid, "gpu-xid", WARNING, "fallen off the bus"},
    {"Xid late in a long log", late_xid, "gpu-xid", WARNING, "74, NVLink"},
    {"Xid of a program", program_xid, "gpu-xid", NOTE, "MMU fault"},
    {"no persistence", no_persistence, "gpu-persistence", NOTE, "GPU 0, 1"},
    {"prohibited", prohibited, "gpu-mode", ERROR, "Prohibited: GPU 2"},
    {"exclusive and shared", exclusive, "gpu-mode", ERROR, "Exclusive_Process: GPU 2"},
    {"shared without MPS", shared_without_mps, "gpu-mps", WARNING, "nvidia-cuda-mps-control.pid"},
    {"MIG", mig, "gpu-mig", WARNING, "GPU 5"},
    {"GPU memory in use", used_memory, "gpu-memory", NOTE, "GPU 0"},
    {"mixed GPUs", mixed_gpus, "gpu-alike", WARNING, "GPU 7 is NVIDIA L4"},
    {"cores far from GPUs", far_cores, "gpu-cores", WARNING, "Cpus_allowed_list"},
    {"card far from GPUs", far_card, "gpu-nic", WARNING, "numa_node"},
    {"no GPUDirect", no_peermem, "gpu-direct", WARNING, "nvidia_peermem"},
    {"WEFT_* misspelled", weft_misspelled, "env-weft", WARNING, "did you mean WEFT_TIMEOUT"},
    {"WEFT_* malformed", weft_malformed, "env-weft", WARNING, "WEFT_CHUNK=much"},
    {"NCCL_* misspelled", nccl_misspelled, "env-nccl", WARNING, "did you mean NCCL_P2P_DISABLE"},
    {"NCCL_P2P_DISABLE", p2p_disabled, "env-hurts", WARNING, "NCCL_P2P_DISABLE=1"},
    {"NCCL_P2P_LEVEL", p2p_level, "env-hurts", WARNING, "NCCL_P2P_LEVEL=LOC"},
    {"NCCL_SHM_DISABLE", shm_disabled, "env-hurts", WARNING, "NCCL_SHM_DISABLE=1"},
    {"NCCL_IB_DISABLE", ib_disabled, "env-hurts", WARNING, "NCCL_IB_DISABLE=1"},
    {"NCCL_ALGO", algo_forced, "env-hurts", WARNING, "NCCL_ALGO=Ring"},
    {"NCCL_PROTO", proto_forced, "env-hurts", WARNING, "NCCL_PROTO=LL"},
    {"NCCL_DEBUG", debug_left_on, "env-hurts", NOTE, "NCCL_DEBUG=INFO"},
    {"NCCL_MAX_NCHANNELS", few_channels, "env-hurts", WARNING, "NCCL_MAX_NCHANNELS=1"},
    {"NCCL_BUFFSIZE", small_buffers, "env-hurts", WARNING, "NCCL_BUFFSIZE=65536"},
    {"CUDA_LAUNCH_BLOCKING", launch_blocking, "env-hurts", WARNING, "CUDA_LAUNCH_BLOCKING=1"},
    {"NVSHMEM_DISABLE_P2P", nvshmem_p2p, "env-hurts", WARNING, "NVSHMEM_DISABLE_P2P=1"},
    {"WEFT_ALGO", weft_algo, "env-hurts", WARNING, "WEFT_ALGO=ring"},
    {"WEFT_LOG", weft_trace_log, "env-hurts", WARNING, "WEFT_LOG=trace"},
    {"interface missing", interface_missing, "env-interface", ERROR, "eth7"},
    {"interface not exact", interface_not_exact, "env-interface", ERROR, "==eno"},
    {"interface lo", interface_loopback, "env-interface", WARNING, "=lo"},
    {"HCA missing", hca_missing, "env-hca", WARNING, "mlx4_0"},
    {"topology file missing", topo_missing, "env-files", WARNING, "/etc/no/topo.xml"},
    {"symmetric heap small", symmetric_small, "env-symmetric", WARNING, "=1M"},
    {"symmetric heap large", symmetric_large, "env-symmetric", ERROR, "a rank has 80 GiB"},
    {"route by docker", docker_route, "net-interface", WARNING, "by docker0"},
    {"no route", no_route, "net-interface", WARNING, "/proc/net/route"},
    {"MTU 576", small_mtu, "net-mtu", WARNING, "eno1/mtu: 576"},
    {"MTUs differ", other_mtu, "net-mtu", WARNING, "eno1 mtu 1500, eno2 mtu 9000"},
    {"link slow", slow_link, "net-speed", WARNING, "eno2 10000 Mbit/s"},
    {"half duplex", half_duplex, "net-speed", WARNING, "duplex half"},
    {"100 Mbit/s", hundred_megabit, "net-speed", WARNING, "speed 100, duplex full"},
    {"slot of a card", slow_card_slot, "net-speed", WARNING, "8.0 GT/s PCIe x16 now"},
    {"port slow", slow_port, "net-rdma", WARNING, "100 of 400"},
    {"port errors", port_errors, "net-rdma", WARNING, "symbol_error: 65535"},
    {"name loops back", name_loops, "net-name", WARNING, "gpu07 is 127.0.1.1"},
    {"clock free", clock_free, "net-clock", WARNING, "STA_UNSYNC"},
    {"clock free, one host", clock_free_alone, "net-clock", NOTE, "STA_UNSYNC"},
    {"name unknown", unknown_name, "net-resolver", WARNING, "gpu07"},
    {"wrong sums", wrong_sums, "comm-nccl", ERROR, "7 of 100 elements are wrong, first in allre"},
    {"ranks crash", crash, "comm-threads", ERROR, "status 0xb"},
    {"ranks refuse", refusal, "comm-processes", ERROR, "weft doctor: no memfd"},
    {"torn answer", torn_answer, "comm-cuda", ERROR, "the ranks' output"},
    {"versions differ", versions_differ, "comm-versions", ERROR, "rank 1 on b: 2.21.5"},
    {"clocks apart", clocks_apart, "comm-clocks", WARNING, "b is 4.000 s ahead of a"},
};

#define FAULTS ((int)(sizeof(faults) / sizeof(faults[0])))

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

static bool is_named(const fault_t *fault)
{
    weft_doctor_t doctor;
    const weft_finding_t *found = NULL;
    patient_heal();
    fault->plant();
    patient_see(&doctor);
    int count = count_findings(&doctor, &found);
    bool named = count == 1 && strcmp(found->check, fault->check) == 0 &&
                 found->level == fault->level && strstr(found->evidence, fault->seen) != NULL &&
                 found->what[0] != '\0' && found->cost[0] != '\0' && found->fix[0] != '\0';
    if (!named) {
        print_message("%s: expected %d %s with \"%s\", and there are %d:\n", fault->name,
                      (int)fault->level, fault->check, fault->seen, count);
        show(&doctor);
    }
    weft__doctor_cleanup(&doctor);
    return named;
}

static void every_fault_is_named_and_nothing_else(void **state)
{
    int missed = 0;
    (void)state;
    for (int i = 0; i < FAULTS; i++) {
        missed += !is_named(&faults[i]);
    }
    print_message("%d of %d planted faults are named\n", FAULTS - missed, FAULTS);
    assert_int_equal(missed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_fault_is_named_and_nothing_else, patient_open,
                                        patient_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
