/* The GPUs of this machine: what they are, what they are near to, and how each pair is connected.
 *
 * Read through NVML (topo/nvml.h) and /sys. What the driver does not tell is unknown and not an
 * error: numbers are then -1, texts empty, and a machine without a driver has no GPUs, with the
 * reason as a sentence.
 *
 * A GPU has two numbers. NVML's, which is nvidia-smi's, counts all. CUDA's, which is Weft's device
 * number, counts those that CUDA_VISIBLE_DEVICES shows, in the order given there (gpu_cuda.c). */
#ifndef WEFT_TOPO_GPU_H
#define WEFT_TOPO_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "topo/topo.h"

#define WEFT_GPU_TEXT 96
#define WEFT_GPU_SENTENCE 256
#define WEFT_GPU_PARTS 8                                           /* MIG devices of a GPU */
#define WEFT_GPU_WORDS ((int)(4096 / (8 * sizeof(unsigned long)))) /* of a CPU mask */

/* Who may use a GPU; NVML's numbers. */
typedef enum weft_gpu_mode {
    WEFT_GPU_MODE_UNKNOWN = -1,
    WEFT_GPU_SHARED = 0,
    WEFT_GPU_PROHIBITED = 2,
    WEFT_GPU_EXCLUSIVE = 3 /* one process, or one MPS server */
} weft_gpu_mode_t;

/* Why a GPU runs below its clocks; NVML's bits. */
#define WEFT_THROTTLE_IDLE 0x1
#define WEFT_THROTTLE_SETTING 0x2 /* somebody set application clocks */
#define WEFT_THROTTLE_POWER_CAP 0x4
#define WEFT_THROTTLE_HARDWARE 0x8
#define WEFT_THROTTLE_THERMAL 0x20
#define WEFT_THROTTLE_HARDWARE_THERMAL 0x40
#define WEFT_THROTTLE_POWER_BRAKE 0x80

/* How a GPU fares; every number is -1 where the driver does not tell, or was not asked. */
typedef struct weft_gpu_health {
    bool asked;
    int busy;                /* percent */
    int64_t throttle;        /* WEFT_THROTTLE_* */
    int ecc;                 /* 1: on */
    int64_t ecc_uncorrected; /* errors since the driver was loaded */
    int retire_pending;      /* 1: memory pages are to be retired at the next reset */
    int rows_pending;        /* 1: memory rows are to be replaced at the next reset */
    int rows_failed;         /* 1: no spare row was left */
    int persistence;         /* 1: the driver stays loaded while nobody uses the GPU */
    int pcie_generation_own; /* what the GPU can, in whatever slot */
} weft_gpu_health_t;

typedef struct weft_gpu {
    int index;                /* NVML's number */
    int cuda;                 /* CUDA's number; -1: CUDA does not show it */
    char name[WEFT_GPU_TEXT]; /* "NVIDIA H200" */
    char uuid[WEFT_GPU_TEXT];
    char bus_id[32];                 /* as in /sys: "0000:1b:00.0" */
    int64_t bus;                     /* the same as a number, for sorting */
    int64_t memory, memory_free;     /* bytes */
    int major, minor;                /* compute capability */
    int cores, clock_mhz;            /* arithmetic units; highest clock */
    int pcie_generation, pcie_width; /* now: an idle GPU saves power with a slower link */
    int pcie_generation_max, pcie_width_max;
    int numa;                           /* the kernel's number of the nearest node */
    unsigned long near[WEFT_GPU_WORDS]; /* nearest CPUs, for sched_setaffinity; none: unknown */
    int links, link_version;            /* active NVLinks, to wherever; 40: NVLink 4.0 */
    int switch_links;                   /* those of them that end at an NVSwitch */
    int unknown_links;                  /* those whose other end the driver does not tell */
    weft_gpu_mode_t mode;
    int mig;   /* 1: cut into MIG devices, 0: whole */
    int parts; /* MIG devices */
    char part_uuids[WEFT_GPU_PARTS][WEFT_GPU_TEXT];
    weft_gpu_health_t health;
} weft_gpu_t;

/* The nearest thing in the PCIe tree that two GPUs have in common. One row each: name, NVML's
 * number, nvidia-smi's short name, text. Near ones first. */
#define WEFT_GPU_PATH_TABLE(X)                                                                     \
    X(WEFT_PATH_SAME, 0, "INT", "same board")                                                      \
    X(WEFT_PATH_SWITCH, 10, "PIX", "one PCIe switch")                                              \
    X(WEFT_PATH_SWITCHES, 20, "PXB", "several PCIe switches")                                      \
    X(WEFT_PATH_BRIDGE, 30, "PHB", "PCIe host bridge")                                             \
    X(WEFT_PATH_NODE, 40, "NODE", "NUMA node")                                                     \
    X(WEFT_PATH_SYSTEM, 50, "SYS", "link between NUMA nodes")

typedef enum weft_gpu_path {
    WEFT_PATH_UNKNOWN = -1,
#define WEFT_GPU_PATH_ENUM(name, level, letters, text) name,
    WEFT_GPU_PATH_TABLE(WEFT_GPU_PATH_ENUM)
#undef WEFT_GPU_PATH_ENUM
} weft_gpu_path_t;

/* What a GPU may do with another's memory; NVML's order. */
typedef enum weft_gpu_access {
    WEFT_ACCESS_READ,
    WEFT_ACCESS_WRITE,
    WEFT_ACCESS_NVLINK, /* and it goes over NVLink */
    WEFT_ACCESS_ATOMICS,
    WEFT_ACCESS_COUNT
} weft_gpu_access_t;

typedef struct weft_gpu_pair {
    int links;                     /* active NVLinks between the two, direct or through switches */
    int link_version;              /* the older end's; -1 without links */
    bool switched;                 /* through NVSwitch: both share `links` with all others */
    weft_gpu_path_t path;          /* over PCIe */
    int access[WEFT_ACCESS_COUNT]; /* 1: yes, 0: no */
    const char *refusal;           /* why not, by the driver; NULL: no reason known or needed */
} weft_gpu_pair_t;

typedef struct weft_gpus {
    int count;
    weft_gpu_t *gpus;
    weft_gpu_pair_t *pairs; /* from gpus[i] to gpus[k]: pairs[i x count + k] */
    int *order;             /* places in gpus, as CUDA orders all of them */
    int cuda_count;
    int *cuda;                       /* CUDA's number -> place in gpus */
    char driver[WEFT_GPU_TEXT];      /* "580.95.05" */
    int cuda_version;                /* highest the driver supports; 13000: CUDA 13.0 */
    int mps;                         /* 1: the MPS daemon runs, 0: it does not */
    char reason[WEFT_GPU_SENTENCE];  /* why there are none; "" if there are */
    char trouble[WEFT_GPU_SENTENCE]; /* the first GPU that cannot be asked, and why; "": none */
    char
        cuda_note[WEFT_GPU_SENTENCE]; /* what is odd or guessed about CUDA's numbers; "": nothing */
} weft_gpus_t;

/* Where to look. */
typedef struct weft_gpu_source {
    const char *library; /* NVML: a path, or a name for the dynamic linker */
    const char *root;    /* put before /sys and /proc: "" for the real ones, a folder in tests */
    const char *visible; /* CUDA_VISIBLE_DEVICES; NULL: not set, as with the next two */
    const char *order;   /* CUDA_DEVICE_ORDER */
    const char *mps;     /* CUDA_MPS_PIPE_DIRECTORY */
    bool health;         /* ask for it; that takes some milliseconds a GPU */
} weft_gpu_source_t;

/* Everything above, from the setting WEFT_NVML and this process's environment. Fails only for lack
 * of memory. Takes as long as starting the driver: milliseconds, seconds if it has to wake GPUs.
 * Nothing stays loaded. */
weft_status_t weft__gpus_read(weft_gpus_t *gpus_p);
weft_status_t weft__gpus_read_from(const weft_gpu_source_t *source, weft_gpus_t *gpus_p);
void weft__gpus_cleanup(weft_gpus_t *gpus);

static inline const weft_gpu_pair_t *weft__gpu_pair(const weft_gpus_t *gpus, int from, int to)
{
    return &gpus->pairs[(size_t)from * (size_t)gpus->count + (size_t)to];
}

/* The GPU that rank `local_rank` of this host uses, as a place in gpus; -1 if CUDA shows none.
 * With more ranks than GPUs, they take turns. */
int weft__gpu_of_rank(const weft_gpus_t *gpus, int local_rank);

/* As weft__bind_plan, each rank near the GPU that it uses. */
weft_status_t weft__gpus_bind(const weft_gpus_t *gpus, int ranks, weft_bind_t *bind_p);

/* "PIX" and "one PCIe switch"; "?" and "unknown". */
const char *weft__gpu_path_letters(weft_gpu_path_t path);
const char *weft__gpu_path_text(weft_gpu_path_t path);

#endif
