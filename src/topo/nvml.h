/* NVML, the library by which NVIDIA's driver describes GPUs, loaded at run time.
 *
 * Declared here is the part of its C interface that Weft uses, so that neither building nor
 * starting Weft needs anything of NVIDIA's. NVML keeps that interface stable: what changes gets a
 * new symbol
 * (_v2, _v3), and the sizes below are checked by the test. */
#ifndef WEFT_TOPO_NVML_H
#define WEFT_TOPO_NVML_H

#include <stdbool.h>
#include <stddef.h>

#define WEFT_NVML_LINKS 36 /* most NVLinks of one GPU, as of NVML 13 */

/* What a function returns (nvmlReturn_t), as far as we care. */
#define WEFT_NVML_OK 0
#define WEFT_NVML_INVALID_ARGUMENT 2
#define WEFT_NVML_NOT_SUPPORTED 3
#define WEFT_NVML_NO_PERMISSION 4
#define WEFT_NVML_DRIVER_NOT_LOADED 9
#define WEFT_NVML_NO_FUNCTION 13
#define WEFT_NVML_BLOCKED 17          /* by the system or its control groups */
#define WEFT_NVML_VERSION_MISMATCH 18 /* of library and kernel module */

#define WEFT_NVML_CLOCK_SM 1
#define WEFT_NVML_SCOPE_NODE 0 /* of an affinity: the NUMA node, not the socket */
#define WEFT_NVML_ECC_UNCORRECTED 1
#define WEFT_NVML_ECC_SINCE_BOOT 0 /* "volatile": since the driver was loaded */

typedef struct weft_nvml_device_st *weft_nvml_device_t; /* NVML's; valid until close */

typedef struct weft_nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device;
    unsigned device_id, subsystem_id;
    char bus_id[32];
} weft_nvml_pci_t;

typedef struct weft_nvml_memory {
    unsigned long long total, free, used; /* bytes */
} weft_nvml_memory_t;

typedef struct weft_nvml_utilization {
    unsigned gpu, memory; /* percent of the last moment */
} weft_nvml_utilization_t;

/* Kind of the other end of an NVLink (nvmlIntNvLinkDeviceType_t). */
enum { WEFT_NVML_REMOTE_GPU = 0, WEFT_NVML_REMOTE_CPU = 1, WEFT_NVML_REMOTE_SWITCH = 2 };

/* One row a function: returns, field, symbol, parameters. The first four must be there; a driver
 * may be too old for any other. Enumerations are passed as int, which is how the ABI passes
 * them. */
#define WEFT_NVML_TABLE(X)                                                                         \
    X(int, init, "nvmlInit_v2", (void))                                                            \
    X(int, shutdown, "nvmlShutdown", (void))                                                       \
    X(int, count, "nvmlDeviceGetCount_v2", (unsigned *count_p))                                    \
    X(int, handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned index, weft_nvml_device_t *gpu_p))   \
    X(const char *, error_text, "nvmlErrorString", (int error))                                    \
    X(int, driver_version, "nvmlSystemGetDriverVersion", (char *text, unsigned room))              \
    X(int, cuda_version, "nvmlSystemGetCudaDriverVersion", (int *version_p))                       \
    X(int, name, "nvmlDeviceGetName", (weft_nvml_device_t gpu, char *text, unsigned room))         \
    X(int, uuid, "nvmlDeviceGetUUID", (weft_nvml_device_t gpu, char *text, unsigned room))         \
    X(int, pci, "nvmlDeviceGetPciInfo_v3", (weft_nvml_device_t gpu, weft_nvml_pci_t * pci_p))      \
    X(int, memory, "nvmlDeviceGetMemoryInfo",                                                      \
      (weft_nvml_device_t gpu, weft_nvml_memory_t * memory_p))                                     \
    X(int, capability, "nvmlDeviceGetCudaComputeCapability",                                       \
      (weft_nvml_device_t gpu, int *major_p, int *minor_p))                                        \
    X(int, core_count, "nvmlDeviceGetNumGpuCores", (weft_nvml_device_t gpu, unsigned *count_p))    \
    X(int, max_clock, "nvmlDeviceGetMaxClockInfo",                                                 \
      (weft_nvml_device_t gpu, int clock, unsigned *mhz_p))                                        \
    X(int, pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration",                                 \
      (weft_nvml_device_t gpu, unsigned *value_p))                                                 \
    X(int, pcie_width, "nvmlDeviceGetCurrPcieLinkWidth",                                           \
      (weft_nvml_device_t gpu, unsigned *value_p))                                                 \
    X(int, pcie_generation_max, "nvmlDeviceGetMaxPcieLinkGeneration",                              \
      (weft_nvml_device_t gpu, unsigned *value_p))                                                 \
    X(int, pcie_width_max, "nvmlDeviceGetMaxPcieLinkWidth",                                        \
      (weft_nvml_device_t gpu, unsigned *value_p))                                                 \
    X(int, cpu_affinity, "nvmlDeviceGetCpuAffinity",                                               \
      (weft_nvml_device_t gpu, unsigned words, unsigned long *cpus))                               \
    X(int, memory_affinity, "nvmlDeviceGetMemoryAffinity",                                         \
      (weft_nvml_device_t gpu, unsigned words, unsigned long *nodes, unsigned scope))              \
    X(int, compute_mode, "nvmlDeviceGetComputeMode", (weft_nvml_device_t gpu, int *mode_p))        \
    X(int, mig_mode, "nvmlDeviceGetMigMode",                                                       \
      (weft_nvml_device_t gpu, unsigned *now_p, unsigned *pending_p))                              \
    X(int, mig_most, "nvmlDeviceGetMaxMigDeviceCount",                                             \
      (weft_nvml_device_t gpu, unsigned *count_p))                                                 \
    X(int, mig_handle, "nvmlDeviceGetMigDeviceHandleByIndex",                                      \
      (weft_nvml_device_t gpu, unsigned index, weft_nvml_device_t *part_p))                        \
    X(int, link_state, "nvmlDeviceGetNvLinkState",                                                 \
      (weft_nvml_device_t gpu, unsigned link, int *active_p))                                      \
    X(int, link_version, "nvmlDeviceGetNvLinkVersion",                                             \
      (weft_nvml_device_t gpu, unsigned link, unsigned *version_p))                                \
    X(int, link_remote_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2",                                 \
      (weft_nvml_device_t gpu, unsigned link, weft_nvml_pci_t *pci_p))                             \
    X(int, link_remote_kind, "nvmlDeviceGetNvLinkRemoteDeviceType",                                \
      (weft_nvml_device_t gpu, unsigned link, int *kind_p))                                        \
    X(int, peer_status, "nvmlDeviceGetP2PStatus",                                                  \
      (weft_nvml_device_t from, weft_nvml_device_t to, int access, int *status_p))                 \
    X(int, common_ancestor, "nvmlDeviceGetTopologyCommonAncestor",                                 \
      (weft_nvml_device_t a, weft_nvml_device_t b, int *level_p))                                  \
    X(int, pcie_generation_own, "nvmlDeviceGetGpuMaxPcieLinkGeneration",                           \
      (weft_nvml_device_t gpu, unsigned *value_p))                                                 \
    X(int, utilization, "nvmlDeviceGetUtilizationRates",                                           \
      (weft_nvml_device_t gpu, weft_nvml_utilization_t * rates_p))                                 \
    X(int, throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons",                          \
      (weft_nvml_device_t gpu, unsigned long long *reasons_p))                                     \
    X(int, ecc_mode, "nvmlDeviceGetEccMode", (weft_nvml_device_t gpu, int *now_p, int *pending_p)) \
    X(int, ecc_errors, "nvmlDeviceGetTotalEccErrors",                                              \
      (weft_nvml_device_t gpu, int kind, int counter, unsigned long long *count_p))                \
    X(int, retired_pending, "nvmlDeviceGetRetiredPagesPendingStatus",                              \
      (weft_nvml_device_t gpu, int *pending_p))                                                    \
    X(int, remapped_rows, "nvmlDeviceGetRemappedRows",                                             \
      (weft_nvml_device_t gpu, unsigned *corrected_p, unsigned *uncorrected_p,                     \
       unsigned *pending_p, unsigned *failed_p))                                                   \
    X(int, persistence, "nvmlDeviceGetPersistenceMode", (weft_nvml_device_t gpu, int *mode_p))

#define WEFT_NVML_REQUIRED 4

typedef struct weft_nvml {
#define WEFT_NVML_FIELD(returns, field, symbol, parameters) returns(*field) parameters;
    WEFT_NVML_TABLE(WEFT_NVML_FIELD)
#undef WEFT_NVML_FIELD
    void *library;
} weft_nvml_t;

/* Call an optional function: WEFT_NVML_NO_FUNCTION if this driver does not have it. */
#define weft__nvml_ask(nvml, field, ...)                                                           \
    ((nvml)->field == NULL ? WEFT_NVML_NO_FUNCTION : (nvml)->field(__VA_ARGS__))

/* Load `library` (a path, or a name for the dynamic linker) and start it. False, and `reason` says
 * in one sentence why there are no GPUs, if it is not there, is too old or does not start. */
bool weft__nvml_open(const char *library, weft_nvml_t *nvml_p, char *reason, size_t room);
void weft__nvml_close(weft_nvml_t *nvml);

/* NVML's words for `error`. */
const char *weft__nvml_text(const weft_nvml_t *nvml, int error);

#endif
