/* Cores: which there are, which may be used, and how fast they may run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "device/sysmem.h"
#include "doctor/checks.h"
#include "doctor/look.h"
#include "doctor/parse.h"
#include "topo/cpu_list.h"

#define NO_CPUS "the kernel does not list the CPUs"

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

const char *weft__check_affinity(weft_doctor_t *doctor)
{
    const weft_doctor_cpus_t *cpus = &doctor->cpus;
    char allowed[WEFT_LOOK_LINE] = "?", process[16] = "self";
    if (cpus->online_count == 0) {
        return NO_CPUS;
    }
    if (cpus->allowed_count >= cpus->online_count) {
        return NULL;
    }
    if (cpus->launchers) {
        snprintf(process, sizeof(process), "%d", doctor->asked.launcher);
    }
    const char *status = weft__look_text(doctor, NULL, "/proc/%s/status", process);
    const char *list = status != NULL ? weft__parse_key(status, "Cpus_allowed_list") : NULL;
    if (list != NULL) {
        snprintf(allowed, sizeof(allowed), "%.*s", (int)strcspn(list, "\n"), list);
    }
    bool hurts = doctor->ranks > cpus->allowed_cores && cpus->online_cores > cpus->allowed_cores;
    weft__doctor_add(
        doctor, hurts ? WEFT_FINDING_WARNING : WEFT_FINDING_NOTE,
        weft__doctor_text(doctor, "this %s may use %d of %d CPUs",
                          cpus->launchers ? "job" : "process", cpus->allowed_count,
                          cpus->online_count),
        weft__doctor_text(doctor, "/proc/%s/status: Cpus_allowed_list %s; %d core%s for %d rank%s",
                          process, allowed, cpus->allowed_cores, plural(cpus->allowed_cores),
                          doctor->ranks, plural(doctor->ranks)),
        hurts ? "ranks share cores although others are idle"
              : "none as long as the ranks find room; the other cores are out of reach",
        "start it without taskset, numactl or docker --cpuset-cpus; under Slurm ask for "
        "--cpus-per-task");
    return NULL;
}

/* The least quota from our groups up to the mount point, in CPUs; 0: none. *where_p is its file. */
static double find_quota(weft_doctor_t *doctor, const char **where_p)
{
    weft_sysmem_group_t groups[2];
    int count = weft__cgroups_find(doctor->asked.root, "cpu", groups);
    size_t skip = strlen(doctor->asked.root);
    double least = 0;
    for (int i = 0; i < count; i++) {
        char *dir = groups[i].path + skip;
        size_t mount = groups[i].mount_length - skip;
        for (;;) {
            char line[WEFT_LOOK_LINE];
            int64_t quota = 0, period = 0;
            double cpus = 0;
            const char *name = groups[i].v2 ? "cpu.max" : "cpu.cfs_quota_us";
            if (groups[i].v2 && weft__look_line(doctor, line, "%s/%s", dir, name)) {
                cpus = weft__parse_cpu_max(line);
            } else if (!groups[i].v2 && weft__look_number(doctor, &quota, "%s/%s", dir, name) &&
                       weft__look_number(doctor, &period, "%s/cpu.cfs_period_us", dir) &&
                       quota > 0 && period > 0) {
                cpus = (double)quota / (double)period;
            }
            if (cpus > 0 && (least == 0 || cpus < least)) {
                least = cpus;
                *where_p = weft__doctor_text(doctor, "%s/%s", dir, name);
            }
            char *slash = strrchr(dir, '/');
            if (slash == NULL || strlen(dir) <= mount) {
                break;
            }
            *slash = '\0';
        }
    }
    return least;
}

const char *weft__check_quota(weft_doctor_t *doctor)
{
    const char *where = "";
    double quota = find_quota(doctor, &where);
    int threads = 0;
    const char *set = weft__doctor_env(doctor, "WEFT_THREADS");
    if (quota == 0 || quota + 0.01 >= doctor->cpus.allowed_count) {
        return NULL;
    }
    /* who has been told of it starts no more threads than there is time for */
    bool told = set != NULL && weft__parse_int(set, &threads) && threads > 0 &&
                threads * doctor->ranks <= quota + 0.01;
    int fit = quota >= doctor->ranks ? (int)(quota / doctor->ranks) : 1;
    weft__doctor_add(
        doctor, told ? WEFT_FINDING_NOTE : WEFT_FINDING_WARNING,
        weft__doctor_text(doctor, "a control group limits CPU time to %.4g of %d CPUs", quota,
                          doctor->cpus.allowed_count),
        weft__doctor_text(doctor, "%s: %.4g CPUs; affinity shows %d", where, quota,
                          doctor->cpus.allowed_count),
        "threads are stopped for the rest of every period of 0.1 s; all ranks wait for the one "
        "that is stopped",
        weft__doctor_text(doctor,
                          "raise docker --cpus or the pod's CPU limit, or set "
                          "WEFT_THREADS=%d",
                          fit));
    if (!told) {
        weft__doctor_export(doctor, "WEFT_THREADS", weft__doctor_text(doctor, "%d", fit),
                            weft__doctor_text(doctor,
                                              "the control group has %.4g CPUs for %d rank%s; "
                                              "more threads are stopped",
                                              quota, doctor->ranks, plural(doctor->ranks)));
    }
    return NULL;
}

const char *weft__check_rank_cores(weft_doctor_t *doctor)
{
    const weft_doctor_cpus_t *cpus = &doctor->cpus;
    if (cpus->allowed_count == 0) {
        return NO_CPUS;
    }
    /* narrower than the machine: that is what cpu-affinity says */
    if (doctor->ranks > cpus->allowed_count && doctor->ranks > cpus->online_cores) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "%d ranks share %d CPU%s", doctor->ranks, cpus->allowed_count,
                              plural(cpus->allowed_count)),
            weft__doctor_text(doctor, "-n %d; %d core%s, %d hardware thread%s may be used",
                              doctor->ranks, cpus->allowed_cores, plural(cpus->allowed_cores),
                              cpus->allowed_count, plural(cpus->allowed_count)),
            weft__doctor_text(doctor,
                              "ranks take turns: a step takes about %.3g times as long, and "
                              "timings say little about larger machines",
                              (double)doctor->ranks / cpus->allowed_cores),
            weft__doctor_text(doctor, "start %d rank%s, or take it as a test of correctness",
                              cpus->allowed_cores, plural(cpus->allowed_cores)));
    }
    return NULL;
}

const char *weft__check_smt(weft_doctor_t *doctor)
{
    const weft_doctor_cpus_t *cpus = &doctor->cpus;
    if (cpus->allowed_count == 0) {
        return NO_CPUS;
    }
    if (cpus->allowed_count == cpus->allowed_cores) {
        return "cores have one hardware thread each";
    }
    if (doctor->ranks > cpus->allowed_cores && doctor->ranks <= cpus->allowed_count &&
        doctor->ranks > cpus->online_cores) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "%d ranks share %d cores: two on the threads of one",
                              doctor->ranks, cpus->allowed_cores),
            weft__doctor_text(doctor, "thread_siblings_list: %d hardware threads on %d cores",
                              cpus->allowed_count, cpus->allowed_cores),
            "two ranks on one core run at little more than half their speed each",
            weft__doctor_text(doctor, "start at most %d ranks", cpus->allowed_cores));
    }
    return NULL;
}

const char *weft__check_threads(weft_doctor_t *doctor)
{
    const char *set = weft__doctor_env(doctor, "WEFT_THREADS");
    int threads = 0;
    if (set == NULL || !weft__parse_int(set, &threads) || threads <= 0) {
        return "WEFT_THREADS is not set: a rank has as many as the CPUs that it is bound to";
    }
    if (threads > 1 && (int64_t)threads * doctor->ranks > doctor->cpus.allowed_count &&
        doctor->cpus.allowed_count > 0) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "%d ranks of %d threads are more than %d CPUs", doctor->ranks,
                              threads, doctor->cpus.allowed_count),
            weft__doctor_text(doctor, "WEFT_THREADS=%d", threads),
            "threads of a rank wait for each other while the kernel runs another rank's",
            "unset WEFT_THREADS");
    }
    return NULL;
}

/* Drivers that choose the frequency themselves: their "powersave" still goes up to the top. */
static bool chooses_itself(const char *driver)
{
    return strcmp(driver, "intel_pstate") == 0 || strncmp(driver, "amd-pstate", 10) == 0 ||
           strncmp(driver, "amd_pstate", 10) == 0;
}

/* Is CPU `cpu` kept below its frequency? Says how. */
static bool is_held_back(const weft_doctor_t *doctor, int cpu, char *how, size_t room)
{
    char governor[WEFT_LOOK_LINE], driver[WEFT_LOOK_LINE];
    int64_t limit = 0, most = 0;
    if (!weft__look_line(doctor, governor, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor",
                         cpu)) {
        return false;
    }
    weft__look_line(doctor, driver, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_driver", cpu);
    if (strcmp(governor, "powersave") == 0 && !chooses_itself(driver)) {
        snprintf(how, room, "cpu%d/cpufreq/scaling_governor: powersave (driver %.64s)", cpu,
                 driver);
        return true;
    }
    if (weft__look_number(doctor, &limit, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_max_freq",
                          cpu) &&
        weft__look_number(doctor, &most, "/sys/devices/system/cpu/cpu%d/cpufreq/cpuinfo_max_freq",
                          cpu) &&
        (double)limit < 0.9 * (double)most) {
        snprintf(how, room, "cpu%d/cpufreq: scaling_max_freq %.2f GHz of %.2f GHz", cpu,
                 (double)limit / 1e6, (double)most / 1e6);
        return true;
    }
    return false;
}

const char *weft__check_governor(weft_doctor_t *doctor)
{
    char how[256], first[256] = "";
    int held = 0;
    const char *const *cpus = weft__look_folder(doctor, "/sys/devices/system/cpu");
    if (!weft__look_exists(doctor, "/sys/devices/system/cpu/cpu0/cpufreq")) {
        return "the kernel does not set frequencies here";
    }
    for (; *cpus != NULL; cpus++) {
        char *end;
        long cpu = strncmp(*cpus, "cpu", 3) == 0 ? strtol(*cpus + 3, &end, 10) : -1;
        if (cpu < 0 || end == *cpus + 3 || *end != '\0' || cpu >= WEFT_DOCTOR_CPUS) {
            continue;
        }
        if (is_held_back(doctor, (int)cpu, how, sizeof(how)) && held++ == 0) {
            snprintf(first, sizeof(first), "%s", how);
        }
    }
    if (held > 0) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "%d CPU%s kept below the full frequency", held,
                              held == 1 ? " is" : "s are"),
            weft__doctor_text(doctor, "%s", first),
            "everything that CPUs do takes up to several times as long: launching kernels, small "
            "messages, virtual GPUs",
            "as root: cpupower frequency-set -g performance (or tuned-adm profile "
            "throughput-performance)");
    }
    return NULL;
}

/* The NUMA nodes that the CPUs of this process belong to. */
static int nodes_of_cpus(weft_doctor_t *doctor, unsigned long nodes[WEFT_DOCTOR_WORDS])
{
    int count = 0;
    memset(nodes, 0, WEFT_DOCTOR_WORDS * sizeof(*nodes));
    for (int node = 0; node < 256; node++) {
        char line[WEFT_LOOK_LINE];
        unsigned long cpus[WEFT_DOCTOR_WORDS];
        bool ours = false;
        if (!weft__look_line(doctor, line, "/sys/devices/system/node/node%d/cpulist", node) ||
            !weft__cpu_list_read(line, cpus, WEFT_DOCTOR_WORDS)) {
            continue;
        }
        for (int i = 0; i < WEFT_DOCTOR_WORDS; i++) {
            ours |= (cpus[i] & doctor->cpus.allowed[i]) != 0;
        }
        if (ours) {
            nodes[node / (8 * sizeof(long))] |= 1ul << node % (8 * sizeof(long));
            count++;
        }
    }
    return count;
}

const char *weft__check_numa(weft_doctor_t *doctor)
{
    unsigned long nodes[WEFT_DOCTOR_WORDS], memory[WEFT_DOCTOR_WORDS];
    bool near = false, far = false;
    if (doctor->cpus.nodes < 2) {
        return "there is one NUMA node";
    }
    const char *status = weft__look_text(doctor, NULL, "/proc/self/status");
    const char *list = status != NULL ? weft__parse_key(status, "Mems_allowed_list") : NULL;
    if (list != NULL && weft__cpu_list_read(list, memory, WEFT_DOCTOR_WORDS) &&
        nodes_of_cpus(doctor, nodes) > 0) {
        for (int i = 0; i < WEFT_DOCTOR_WORDS; i++) {
            near |= (nodes[i] & memory[i]) != 0;
            far |= (nodes[i] & ~memory[i]) != 0;
        }
        if (far) {
            weft__doctor_add(
                doctor, WEFT_FINDING_WARNING,
                near ? "some cores have no memory of their own NUMA node"
                     : "cores and memory of this process are of different NUMA nodes",
                weft__doctor_text(doctor, "/proc/self/status: Mems_allowed_list %.*s",
                                  (int)strcspn(list, "\n"), list),
                "memory of another node has about half the bandwidth and twice the latency",
                "give the process memory of the nodes of its cores: docker --cpuset-mems, the "
                "cpuset of the batch system");
        }
    }
    const char *bind = weft__doctor_env(doctor, "WEFT_BIND");
    if (bind != NULL && strcmp(bind, "none") == 0) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "ranks are not bound to cores",
            weft__doctor_text(doctor, "WEFT_BIND=none, %d NUMA nodes", doctor->cpus.nodes),
            "a rank that moves to another node leaves its memory behind", "unset WEFT_BIND");
    }
    return NULL;
}

const char *weft__check_balancing(weft_doctor_t *doctor)
{
    int64_t on = 0;
    if (doctor->cpus.nodes < 2) {
        return "there is one NUMA node";
    }
    if (weft__look_number(doctor, &on, "/proc/sys/kernel/numa_balancing") && on != 0) {
        weft__doctor_add(doctor, WEFT_FINDING_NOTE,
                         "the kernel moves pages between NUMA nodes by itself",
                         weft__doctor_text(doctor, "/proc/sys/kernel/numa_balancing: %d", (int)on),
                         "some percent of bandwidth where ranks are bound, which need no help",
                         "as root: sysctl kernel.numa_balancing=0");
    }
    return NULL;
}

const char *weft__check_load(weft_doctor_t *doctor)
{
    char line[WEFT_LOOK_LINE];
    if (!weft__look_line(doctor, line, "/proc/loadavg") || doctor->cpus.online_count == 0) {
        return "the kernel does not tell the load";
    }
    double load = strtod(line, NULL);
    if (isfinite(load) && load > 1.5 * doctor->cpus.online_count + 1) {
        weft__doctor_add(doctor, WEFT_FINDING_NOTE, "the cores are busy with other work",
                         weft__doctor_text(doctor, "/proc/loadavg: %s (%d CPUs)", line,
                                           doctor->cpus.online_count),
                         "ranks that have to share cores are late, and all others wait for them",
                         "end what else runs (top shows it), or measure later");
    }
    return NULL;
}
