/* Memory, and the limits of what a process and a user may have. */
#include <string.h>

#include "device/sysmem.h"
#include "doctor/checks.h"
#include "doctor/look.h"
#include "doctor/parse.h"

#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)

/* ---- limits of the process ------------------------------------------------------------------- */

static bool read_limit(weft_doctor_t *doctor, const char *name, int64_t *soft_p, int64_t *hard_p)
{
    const char *text = weft__look_text(doctor, NULL, "/proc/self/limits");
    return text != NULL && weft__parse_limit(text, name, soft_p, hard_p);
}

static const char *limit_text(weft_doctor_t *doctor, int64_t value)
{
    return value == WEFT_UNLIMITED ? "unlimited"
                                   : weft__doctor_text(doctor, "%lld", (long long)value);
}

const char *weft__check_locked(weft_doctor_t *doctor)
{
    int ports = 0;
    int64_t soft, hard;
    weft__look_ports(doctor, &ports);
    if (ports == 0) {
        return "there is no RDMA device";
    }
    if (!read_limit(doctor, "Max locked memory", &soft, &hard)) {
        return "the kernel does not tell the limit";
    }
    if (soft < GIB) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "little memory can be locked, which RDMA needs",
            weft__doctor_text(doctor, "/proc/self/limits: Max locked memory %s bytes (hard %s)",
                              limit_text(doctor, soft), limit_text(doctor, hard)),
            "NCCL and UCX fail to register buffers (ibv_reg_mr: Cannot allocate memory), or fall "
            "back to sockets",
            hard == WEFT_UNLIMITED ? "ulimit -l unlimited"
                                   : "docker --ulimit memlock=-1; \"* - memlock unlimited\" in "
                                     "/etc/security/limits.conf; LimitMEMLOCK=infinity of slurmd");
    }
    return NULL;
}

const char *weft__check_files(weft_doctor_t *doctor)
{
    int64_t soft, hard;
    int64_t jobs = (int64_t)doctor->ranks * (doctor->asked.hosts > 1 ? doctor->asked.hosts : 1);
    /* measured on virtual GPUs: 4 a rank in the launcher, 13 in a rank. NCCL opens some sockets for
     * every peer, and CUDA some hundred files. */
    int64_t need = doctor->on_gpus ? 512 + 32 * jobs : 64 + 8 * jobs;
    if (!read_limit(doctor, "Max open files", &soft, &hard)) {
        return "the kernel does not tell the limit";
    }
    if (soft >= need) {
        return NULL;
    }
    weft__doctor_add(
        doctor, hard < 16 + 4 * jobs ? WEFT_FINDING_ERROR : WEFT_FINDING_WARNING,
        weft__doctor_text(doctor, "%d ranks may run out of open files", doctor->ranks),
        weft__doctor_text(doctor,
                          "/proc/self/limits: Max open files %s (hard %s); about %lld are "
                          "needed",
                          limit_text(doctor, soft), limit_text(doctor, hard), (long long)need),
        "\"Too many open files\" when ranks connect, or at the next checkpoint",
        hard >= need ? weft__doctor_text(doctor, "ulimit -n %lld", (long long)need)
                     : "docker --ulimit nofile=65536; \"* - nofile 65536\" in "
                       "/etc/security/limits.conf; LimitNOFILE of the service");
    return NULL;
}

/* The least pids.max of our groups; WEFT_UNLIMITED: none. */
static int64_t find_most_tasks(weft_doctor_t *doctor)
{
    weft_sysmem_group_t groups[2];
    int count = weft__cgroups_find(doctor->asked.root, "pids", groups);
    int64_t least = WEFT_UNLIMITED, most;
    for (int i = 0; i < count; i++) {
        const char *dir = groups[i].path + strlen(doctor->asked.root);
        if (weft__look_number(doctor, &most, "%s/pids.max", dir) && most < least) {
            least = most;
        }
    }
    return least;
}

const char *weft__check_processes(weft_doctor_t *doctor)
{
    int64_t soft = WEFT_UNLIMITED, hard = WEFT_UNLIMITED;
    int64_t need = 32 + 16 * (int64_t)doctor->ranks + 2 * (int64_t)doctor->cpus.allowed_count;
    bool known = read_limit(doctor, "Max processes", &soft, &hard);
    int64_t group = find_most_tasks(doctor);
    if (!known && group == WEFT_UNLIMITED) {
        return "the kernel does not tell the limit";
    }
    if (soft >= need && group >= need) {
        return NULL;
    }
    weft__doctor_add(doctor, WEFT_FINDING_WARNING,
                     weft__doctor_text(doctor, "%d ranks may run out of threads", doctor->ranks),
                     group < soft
                         ? weft__doctor_text(doctor,
                                             "pids.max of the control group: %lld; about %lld "
                                             "are needed",
                                             (long long)group, (long long)need)
                         : weft__doctor_text(doctor,
                                             "/proc/self/limits: Max processes %lld; about "
                                             "%lld are needed",
                                             (long long)soft, (long long)need),
                     "\"Resource temporarily unavailable\" where ranks start threads",
                     group < soft ? "docker --pids-limit -1, or podPidsLimit of the kubelet"
                                  : "ulimit -u unlimited, or nproc in /etc/security/limits.conf");
    return NULL;
}

/* ---- shared memory --------------------------------------------------------------------------- */

const char *weft__check_shm(weft_doctor_t *doctor)
{
    int64_t bytes = doctor->asked.facts.shm_bytes, left = doctor->asked.facts.shm_free;
    char a[WEFT_BYTES_TEXT], b[WEFT_BYTES_TEXT];
    if (doctor->asked.gpus->count == 0) {
        return "NCCL needs it, and there is no GPU; Weft's virtual GPUs do not";
    }
    if (bytes < 0 || left < 0) {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING, "there is no /dev/shm", "statvfs /dev/shm",
                         "NCCL cannot connect ranks of one host through it",
                         "mount -t tmpfs tmpfs /dev/shm, or docker --shm-size=1g");
        return NULL;
    }
    if (bytes <= 64 * MIB || left < 32 * MIB * doctor->ranks) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "/dev/shm is small for %d ranks", doctor->ranks),
            weft__doctor_text(doctor, "statvfs /dev/shm: %s, %s free",
                              weft__bytes_text((uint64_t)bytes, a),
                              weft__bytes_text((uint64_t)left, b)),
            "NCCL fails with \"unhandled system error\" or a bus error; so do data loaders",
            left < bytes / 2 ? "remove what was left there (ls -l /dev/shm), or docker "
                               "--shm-size=1g, --ipc=host"
                             : "docker --shm-size=1g, or --ipc=host");
    }
    return NULL;
}

const char *weft__check_ptrace(weft_doctor_t *doctor)
{
    int64_t scope = 0;
    if (!weft__look_number(doctor, &scope, "/proc/sys/kernel/yama/ptrace_scope")) {
        return "the kernel has no such setting";
    }
    if (scope > 0) {
        weft__doctor_add(
            doctor, WEFT_FINDING_NOTE, "processes may not copy from each other's memory (CMA)",
            weft__doctor_text(doctor, "/proc/sys/kernel/yama/ptrace_scope: %d", (int)scope),
            "none for Weft; MPI and UCX copy large messages within a host twice, and debuggers "
            "cannot attach",
            "as root: sysctl kernel.yama.ptrace_scope=0, if you use these; docker "
            "--cap-add=SYS_PTRACE");
    }
    return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static bool read_memory(weft_doctor_t *doctor, const char *key, int64_t *bytes_p)
{
    const char *text = weft__look_text(doctor, NULL, "/proc/meminfo");
    int64_t kib;
    if (text == NULL || !weft__parse_key_number(text, key, &kib) || kib > INT64_MAX / 1024) {
        return false;
    }
    *bytes_p = kib * 1024;
    return true;
}

/* Processes that the kernel has killed in our groups for lack of memory. */
static int64_t count_killed(weft_doctor_t *doctor, const weft_sysmem_t *sysmem)
{
    int64_t killed = 0;
    for (int i = 0; i < sysmem->group_count; i++) {
        const char *dir = sysmem->groups[i].path + strlen(doctor->asked.root);
        const char *text = weft__look_text(doctor, NULL, "%s/%s", dir,
                                           sysmem->groups[i].v2 ? "memory.events"
                                                                : "memory.oom_control");
        const char *at = text != NULL ? strstr(text, "oom_kill ") : NULL;
        long long value;
        if (at != NULL && sscanf(at, "oom_kill %lld", &value) == 1 && value > killed) {
            killed = value;
        }
    }
    return killed;
}

const char *weft__check_memory_group(weft_doctor_t *doctor)
{
    weft_sysmem_t sysmem;
    int64_t machine;
    char a[WEFT_BYTES_TEXT], b[WEFT_BYTES_TEXT], c[WEFT_BYTES_TEXT];
    weft__sysmem_find(doctor->asked.root, &sysmem);
    uint64_t most = weft__sysmem_total(&sysmem), room = weft__sysmem_room(&sysmem);
    int64_t killed = count_killed(doctor, &sysmem);
    if (!read_memory(doctor, "MemTotal", &machine)) {
        return "the kernel does not tell the memory";
    }
    bool limited = most < (uint64_t)machine - (uint64_t)machine / 16;
    if (killed > 0) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "the kernel has killed %lld process%s of this control group",
                              (long long)killed, killed == 1 ? "" : "es"),
            weft__doctor_text(doctor, "oom_kill %lld; the limit is %s", (long long)killed,
                              weft__bytes_text(most, a)),
            "a rank that is killed ends its job",
            "raise docker --memory, the pod's memory limit or Slurm's --mem; or fewer ranks, "
            "--zero, --recompute (weft train --dry-run shows what a plan needs)");
    } else if (limited && room < most / 10) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "the control group has little memory left",
            weft__doctor_text(doctor, "limit %s of the machine's %s, %s left",
                              weft__bytes_text(most, a), weft__bytes_text((uint64_t)machine, b),
                              weft__bytes_text(room, c)),
            "the kernel kills a rank when the limit is reached",
            "end what else runs in it, or raise docker --memory, the pod's limit, Slurm's --mem");
    } else if (limited && most < (uint64_t)machine / 4) {
        weft__doctor_add(
            doctor, WEFT_FINDING_NOTE, "a control group limits the memory",
            weft__doctor_text(doctor, "limit %s of the machine's %s", weft__bytes_text(most, a),
                              weft__bytes_text((uint64_t)machine, b)),
            "jobs above it are killed; weft train refuses them before they start",
            "raise docker --memory, the pod's limit or Slurm's --mem if it is not on purpose");
    }
    return NULL;
}

const char *weft__check_memory_free(weft_doctor_t *doctor)
{
    int64_t total, left;
    char a[WEFT_BYTES_TEXT], b[WEFT_BYTES_TEXT];
    if (!read_memory(doctor, "MemTotal", &total) || !read_memory(doctor, "MemAvailable", &left)) {
        return "the kernel does not tell the memory";
    }
    if (left < total / 20) {
        weft__doctor_add(doctor, WEFT_FINDING_WARNING, "the machine has little memory left",
                         weft__doctor_text(doctor, "/proc/meminfo: MemAvailable %s of %s",
                                           weft__bytes_text((uint64_t)left, a),
                                           weft__bytes_text((uint64_t)total, b)),
                         "the next job swaps or is killed",
                         "ps aux --sort=-rss | head shows who has it; a job that ended badly may "
                         "have left processes");
    }
    return NULL;
}

const char *weft__check_hugepages(weft_doctor_t *doctor)
{
    char line[WEFT_LOOK_LINE], word[32];
    int64_t count = 0, idle = 0, total = 0;
    const char *text = weft__look_text(doctor, NULL, "/proc/meminfo");
    if (weft__look_line(doctor, line, "/sys/kernel/mm/transparent_hugepage/enabled") &&
        weft__parse_choice(line, word, sizeof(word)) && strcmp(word, "never") == 0) {
        weft__doctor_add(
            doctor, WEFT_FINDING_NOTE, "the kernel makes no large pages",
            weft__doctor_text(doctor, "/sys/kernel/mm/transparent_hugepage/enabled: %s", line),
            "some percent where the CPU works on much memory: virtual GPUs, "
            "offloaded optimizers",
            "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
    }
    int64_t size = 0;
    if (text != NULL && weft__parse_key_number(text, "HugePages_Total", &count) &&
        weft__parse_key_number(text, "HugePages_Free", &idle) &&
        weft__parse_key_number(text, "Hugepagesize", &size) &&
        weft__parse_key_number(text, "MemTotal", &total) && idle > 0 && size > 0 && total > 0 &&
        (double)idle * (double)size > 0.1 * (double)total) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "much memory is reserved for large pages that idle",
            weft__doctor_text(doctor, "/proc/meminfo: HugePages_Free %lld of %lld, %lld kB each",
                              (long long)idle, (long long)count, (long long)size),
            weft__doctor_text(doctor, "%.0f%% of the memory cannot be used for anything else",
                              100 * (double)idle * (double)size / (double)total),
            "as root: sysctl vm.nr_hugepages=0, if nobody needs them (databases, DPDK)");
    }
    return NULL;
}

const char *weft__check_overcommit(weft_doctor_t *doctor)
{
    int64_t mode = 0, limit = 0, used = 0;
    char a[WEFT_BYTES_TEXT], b[WEFT_BYTES_TEXT];
    if (!weft__look_number(doctor, &mode, "/proc/sys/vm/overcommit_memory")) {
        return "the kernel has no such setting";
    }
    if (mode == 2) {
        read_memory(doctor, "CommitLimit", &limit);
        read_memory(doctor, "Committed_AS", &used);
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "the kernel promises no more memory than there is",
            weft__doctor_text(
                doctor, "/proc/sys/vm/overcommit_memory: 2; %s of %s are promised already",
                weft__bytes_text((uint64_t)used, a), weft__bytes_text((uint64_t)limit, b)),
            "device memory of virtual GPUs, CUDA's address space and fork fail with \"Cannot "
            "allocate memory\" while much is free",
            "as root: sysctl vm.overcommit_memory=0 (the kernel's default)");
    }
    return NULL;
}

const char *weft__check_swap(weft_doctor_t *doctor)
{
    int64_t total, swap, left, available = 0;
    char a[WEFT_BYTES_TEXT], b[WEFT_BYTES_TEXT];
    if (!read_memory(doctor, "MemTotal", &total) || !read_memory(doctor, "SwapTotal", &swap) ||
        !read_memory(doctor, "SwapFree", &left) || swap == 0) {
        return "there is no swap";
    }
    read_memory(doctor, "MemAvailable", &available);
    if (swap - left > total / 10) {
        bool short_of = available < total / 5;
        weft__doctor_add(
            doctor, short_of ? WEFT_FINDING_WARNING : WEFT_FINDING_NOTE,
            "much memory is swapped out",
            weft__doctor_text(doctor, "/proc/meminfo: %s of swap in use, %s of memory available",
                              weft__bytes_text((uint64_t)(swap - left), a),
                              weft__bytes_text((uint64_t)available, b)),
            "a rank that touches it waits milliseconds for each page, and all others wait for it",
            "end what is not needed, then as root: swapoff -a && swapon -a");
    }
    return NULL;
}
