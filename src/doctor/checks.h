/* Every check: one row. A check adds what it finds (weft__doctor_add), and returns NULL, or why
 * there was nothing to look at. A check that adds nothing and returns NULL is an OK.
 *
 * docs/doctor.md has the same names with what they cost and how to fix it; a test compares. */
#ifndef WEFT_DOCTOR_CHECKS_H
#define WEFT_DOCTOR_CHECKS_H

#include "doctor/doctor.h"

/*    name  subject  level  function  what it looks at, as an OK says it */
#define WEFT_DOCTOR_TABLE(X)                                                                       \
    X("cpu-affinity", "cpu", QUICK, affinity, "the process may use all cores it needs")            \
    X("cpu-quota", "cpu", QUICK, quota, "no control group limits the CPU time")                    \
    X("cpu-ranks", "cpu", QUICK, rank_cores, "every rank has a core of its own")                   \
    X("cpu-smt", "cpu", QUICK, smt, "no two ranks share the threads of a core")                    \
    X("cpu-threads", "cpu", QUICK, threads, "ranks do not start more threads than CPUs")           \
    X("cpu-governor", "cpu", QUICK, governor, "CPUs may run at their full frequency")              \
    X("cpu-numa", "cpu", QUICK, numa, "memory comes from the NUMA nodes of the cores")             \
    X("cpu-balancing", "cpu", QUICK, balancing, "the kernel does not move pages between nodes")    \
    X("cpu-load", "cpu", QUICK, load, "nobody else keeps the cores busy")                          \
    X("mem-locked", "memory", QUICK, locked, "memory can be pinned for RDMA")                      \
    X("mem-shm", "memory", QUICK, shm, "/dev/shm has room for NCCL's buffers")                     \
    X("mem-files", "memory", QUICK, files, "a process may open the files that ranks need")         \
    X("mem-processes", "memory", QUICK, processes, "the user may have the threads ranks need")     \
    X("mem-ptrace", "memory", QUICK, ptrace, "other libraries may copy between processes")         \
    X("mem-cgroup", "memory", QUICK, memory_group, "no control group keeps memory short")          \
    X("mem-free", "memory", QUICK, memory_free, "there is memory left")                            \
    X("mem-hugepages", "memory", QUICK, hugepages, "large pages are there, and none idle")         \
    X("mem-overcommit", "memory", QUICK, overcommit, "memory may be reserved before use")          \
    X("mem-swap", "memory", QUICK, swap, "nothing of weight is swapped out")                       \
    X("gpu-driver", "gpu", QUICK, driver, "the driver answers for every GPU")                      \
    X("gpu-cuda", "gpu", QUICK, cuda, "the driver runs what Weft was built with")                  \
    X("gpu-nccl", "gpu", QUICK, nccl_library, "NCCL is there")                                     \
    X("gpu-visible", "gpu", QUICK, visible, "CUDA shows the GPUs that the driver has")             \
    X("gpu-peer", "gpu", QUICK, peer, "GPUs reach each other's memory")                            \
    X("gpu-nvlink", "gpu", QUICK, nvlink, "all NVLinks are up, and used")                          \
    X("gpu-iommu", "gpu", QUICK, iommu, "no IOMMU translates between GPUs")                        \
    X("gpu-acs", "gpu", QUICK, acs, "PCIe switches pass data directly")                            \
    X("gpu-pcie", "gpu", QUICK, pcie, "PCIe links are as fast and wide as they can be")            \
    X("gpu-throttle", "gpu", QUICK, throttle, "no GPU is slowed down")                             \
    X("gpu-ecc", "gpu", QUICK, ecc, "no GPU has lost data in its memory")                          \
    X("gpu-xid", "gpu", QUICK, xid, "the kernel log has no errors of GPUs")                        \
    X("gpu-persistence", "gpu", QUICK, persistence, "the driver stays loaded")                     \
    X("gpu-mode", "gpu", QUICK, mode, "processes may use the GPUs")                                \
    X("gpu-mps", "gpu", QUICK, mps, "ranks that share a GPU share it by MPS")                      \
    X("gpu-mig", "gpu", QUICK, mig, "GPUs are whole")                                              \
    X("gpu-memory", "gpu", QUICK, gpu_memory, "the memory of GPUs is free")                        \
    X("gpu-alike", "gpu", QUICK, alike, "all GPUs are of one kind")                                \
    X("gpu-cores", "gpu", QUICK, gpu_cores, "the process may use cores near its GPUs")             \
    X("gpu-nic", "gpu", QUICK, gpu_nic, "every GPU has a network card near it")                    \
    X("gpu-direct", "gpu", QUICK, gpu_direct, "network cards reach the memory of GPUs")            \
    X("env-weft", "environment", QUICK, weft_names, "WEFT_* variables are known, and parse")       \
    X("env-nccl", "environment", QUICK, nccl_names, "NCCL_* variables are known")                  \
    X("env-hurts", "environment", QUICK, variables, "no variable slows communication down")        \
    X("env-interface", "environment", QUICK, interfaces, "interfaces in variables exist")          \
    X("env-hca", "environment", QUICK, hcas, "RDMA devices in variables exist")                    \
    X("env-files", "environment", QUICK, env_files, "files in variables exist")                    \
    X("env-symmetric", "environment", QUICK, symmetric, "symmetric heaps are large enough")        \
    X("net-interface", "network", QUICK, route, "the default route leads to a real network")       \
    X("net-mtu", "network", QUICK, mtu, "the interfaces' MTU is right")                            \
    X("net-speed", "network", QUICK, speed, "links run at their full speed")                       \
    X("net-rdma", "network", QUICK, rdma, "RDMA ports are up and without errors")                  \
    X("net-name", "network", QUICK, name, "the host's name leads to its network address")          \
    X("net-clock", "network", QUICK, clock, "the clock is synchronised")                           \
    X("net-resolver", "network", STANDARD, resolver, "the resolver knows the host's name")         \
    X("comm-processes", "communication", STANDARD, comm_processes,                                 \
      "ranks that are processes compute right sums (shm)")                                         \
    X("comm-threads", "communication", STANDARD, comm_threads,                                     \
      "ranks that are threads compute right sums (shm)")                                           \
    X("comm-cuda", "communication", STANDARD, comm_cuda,                                           \
      "ranks on GPUs compute right sums (cuda)")                                                   \
    X("comm-nccl", "communication", STANDARD, comm_nccl,                                           \
      "ranks on GPUs compute right sums (nccl)")                                                   \
    X("comm-versions", "communication", STANDARD, versions, "all ranks have the same versions")    \
    X("comm-clocks", "communication", STANDARD, clocks, "the clocks of all hosts agree")           \
    X("comm-many", "communication", THOROUGH, comm_many,                                           \
      "many ranks on few cores compute right sums (shm)")                                          \
    X("run-files", "run", QUICK, run_files, "the files of the run are whole")                      \
    X("run-loss", "run", QUICK, run_loss, "the loss is finite and falls")                          \
    X("run-loss-scale", "run", QUICK, run_loss_scale, "the loss scale holds")                      \
    X("run-comm", "run", QUICK, run_comm, "communication takes less than 20% of a step")           \
    X("run-overlap", "run", QUICK, run_overlap, "gradients travel while backward goes on")         \
    X("run-bucket", "run", QUICK, run_bucket, "gradients travel in large pieces")                  \
    X("run-style", "run", QUICK, run_style, "all ranks share the exchange of gradients")           \
    X("run-batch", "run", QUICK, run_batch, "a rank has enough tokens between exchanges")          \
    X("run-bubble", "run", QUICK, run_bubble, "pipeline stages are busy, and alike")               \
    X("run-tensor", "run", QUICK, run_tensor, "tensor parallelism does not wait much")             \
    X("run-update", "run", QUICK, run_update, "the optimizer takes a small part of a step")        \
    X("run-recompute", "run", QUICK, run_recompute, "nothing is recomputed without need")          \
    X("run-steady", "run", QUICK, run_steady, "steps take the same time")                          \
    X("run-straggler", "run", QUICK, run_straggler, "no rank is slower than the others")           \
    X("run-data", "run", QUICK, run_data, "nobody waits for data")                                 \
    X("run-precision", "run", QUICK, run_precision, "tensor cores are used")                       \
    X("run-ranks", "run", QUICK, run_ranks, "every rank had a core of its own")

typedef const char *weft_check_fn_t(weft_doctor_t *doctor);

#define WEFT_DOCTOR_DECLARE(name, subject, level, function, text)                                  \
    weft_check_fn_t weft__check_##function;
WEFT_DOCTOR_TABLE(WEFT_DOCTOR_DECLARE)
#undef WEFT_DOCTOR_DECLARE

/* ---- for checks ------------------------------------------------------------------------------ */

/* A finding of the check at work. The texts must live as long as the doctor: literals, or
 * weft__doctor_text's. */
void weft__doctor_add(weft_doctor_t *doctor, weft_finding_level_t level, const char *what,
                      const char *evidence, const char *cost, const char *fix);

/* printf into memory of the doctor; "" without memory, which weft__doctor_look reports. */
const char *weft__doctor_text(weft_doctor_t *doctor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Malloced memory that the doctor is to free; NULL if it is NULL, or there is no memory. */
void *weft__doctor_keep(weft_doctor_t *doctor, void *memory);

/* The value of a variable; NULL: not set, or set to nothing. */
const char *weft__doctor_env(const weft_doctor_t *doctor, const char *name);

void weft__doctor_export(weft_doctor_t *doctor, const char *name, const char *value,
                         const char *why);

/* exports.c: what this machine recommends. */
void weft__doctor_recommend(weft_doctor_t *doctor);

#endif
