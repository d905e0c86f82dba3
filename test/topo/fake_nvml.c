/* A driver for machines that we do not have: NVML's functions, answering from a text.
 *
 * The environment variable FAKE_NVML names the file, one fact a line:
 *
 *   driver 580.95.05
 *   cuda 13000
 *   gpu BUS [KEY=VALUE]...      the next GPU, BUS as in /sys. Keys: name, with _ for a blank; uuid
 *                               memory free cc cores clock; pcie and pcie_max (5x16); numa; cpus
 *                               (first-last); mode mig; part, the UUID of a MIG device, once for
 *                               each; how it fares: busy throttle (NVML's bits) ecc errors retire
 *                               rows (pending:failed) persistence own (PCIe generation)
 *   set GPU KEY=VALUE           another value of a GPU before
 *   link GPU FAR COUNT VERSION  active NVLinks of a GPU. FAR: a GPU's number, switch, cpu, or
 *                               hidden
 *   path A B LEVEL              NVML's number; 50 (SYS) for pairs without a line
 *   unlink GPU COUNT            so many of its last links are down
 *   peer A B R W N A            from A to B, NVML's status of each access; 5 for pairs without a
 *                               line
 *   error FUNCTION CODE [GPU]   the function fails, for every GPU or for one
 *
 * With FAKE_OLD it lacks what drivers of 2018 lacked. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/nvml.h"

#define GPUS 16
#define PARTS 8
#define ERRORS 32
#define FAR_SWITCH (-1)
#define FAR_CPU (-2)
#define FAR_HIDDEN (-3)
#define CHECK(call)                                                                                \
    do {                                                                                           \
        int error_ = (call);                                                                       \
        if (error_ != WEFT_NVML_OK) {                                                              \
            return error_;                                                                         \
        }                                                                                          \
    } while (0)

typedef struct weft_nvml_device_st {
    int index;
    unsigned domain, bus, device;
    char name[64], uuid[80];
    unsigned long long memory, free;
    int major, minor;
    unsigned cores, clock, pcie[2], pcie_max[2], mig;
    int numa, first_cpu, last_cpu, mode;
    int ecc, retire, persistence;
    unsigned busy, own, rows_pending, rows_failed;
    unsigned long long throttle, errors;
    int parts, links;
    struct weft_nvml_device_st *part[PARTS];
    int far[WEFT_NVML_LINKS];
    unsigned version[WEFT_NVML_LINKS];
} gpu_t;

typedef struct error {
    char function[64];
    int code, gpu; /* -1: all */
} error_t;

static char driver[80];
static int cuda;
static gpu_t gpus[GPUS];
static int gpu_count, error_count;
static int paths[GPUS][GPUS], peers[GPUS][GPUS][4];
static error_t errors[ERRORS];
static bool started;

/* ---- the text ----------------------------------------------------------------------------- */

static void complain(const char *line)
{
    fprintf(stderr, "fake_nvml: this is not understood: %s\n", line);
    abort();
}

static void read_key(gpu_t *gpu, const char *word)
{
    char text[80];
    int used = 0;
#define IS(format, ...) (sscanf(word, format "%n", __VA_ARGS__, &used) > 0 && word[used] == '\0')
    if (IS("name=%63s", gpu->name)) {
        for (char *at = gpu->name; (at = strchr(at, '_')) != NULL;) {
            *at = ' ';
        }
        return;
    }
    if (IS("part=%79s", text)) {
        gpu_t *part = gpu->parts < PARTS ? calloc(1, sizeof(*part)) : NULL;
        if (part == NULL) {
            complain(word);
            return;
        }
        part->index = gpu->index;
        snprintf(part->uuid, sizeof(part->uuid), "%s", text);
        gpu->part[gpu->parts++] = part;
        return;
    }
    if (!IS("uuid=%79s", gpu->uuid) && !IS("memory=%llu", &gpu->memory) &&
        !IS("free=%llu", &gpu->free) && !IS("cc=%d.%d", &gpu->major, &gpu->minor) &&
        !IS("cores=%u", &gpu->cores) && !IS("clock=%u", &gpu->clock) &&
        !IS("pcie=%ux%u", &gpu->pcie[0], &gpu->pcie[1]) &&
        !IS("pcie_max=%ux%u", &gpu->pcie_max[0], &gpu->pcie_max[1]) && !IS("numa=%d", &gpu->numa) &&
        !IS("cpus=%d-%d", &gpu->first_cpu, &gpu->last_cpu) && !IS("mode=%d", &gpu->mode) &&
        !IS("mig=%u", &gpu->mig) && !IS("busy=%u", &gpu->busy) &&
        !IS("throttle=%llu", &gpu->throttle) && !IS("ecc=%d", &gpu->ecc) &&
        !IS("errors=%llu", &gpu->errors) && !IS("retire=%d", &gpu->retire) &&
        !IS("rows=%u:%u", &gpu->rows_pending, &gpu->rows_failed) &&
        !IS("persistence=%d", &gpu->persistence) && !IS("own=%u", &gpu->own)) {
        complain(word);
    }
#undef IS
}

static void read_gpu(char *words)
{
    char *save = NULL;
    char *word = strtok_r(words, " \n", &save);
    if (gpu_count == GPUS || word == NULL) {
        complain("gpu");
        return;
    }
    gpu_t *gpu = &gpus[gpu_count];
    *gpu = (gpu_t){.index = gpu_count++, .numa = -1, .last_cpu = -1, .ecc = 1, .persistence = 1};
    if (sscanf(word, "%x:%x:%x.0", &gpu->domain, &gpu->bus, &gpu->device) != 3) {
        complain(word);
    }
    while ((word = strtok_r(NULL, " \n", &save)) != NULL) {
        read_key(gpu, word);
    }
}

static void read_link(const char *line)
{
    int index, count;
    unsigned version;
    char far[16];
    if (sscanf(line, "link %d %15s %d %u", &index, far, &count, &version) != 4) {
        complain(line);
    }
    gpu_t *gpu = &gpus[index];
    for (; count > 0 && gpu->links < WEFT_NVML_LINKS; count--) {
        gpu->far[gpu->links] = strcmp(far, "switch") == 0   ? FAR_SWITCH
                               : strcmp(far, "cpu") == 0    ? FAR_CPU
                               : strcmp(far, "hidden") == 0 ? FAR_HIDDEN
                                                            : (int)strtol(far, NULL, 10);
        gpu->version[gpu->links++] = version;
    }
}

/* A value of a GPU that was there before. */
static void read_set(const char *line)
{
    int index;
    char word[128];
    if (sscanf(line, "set %d %127s", &index, word) != 2 || index < 0 || index >= gpu_count) {
        complain(line);
        return;
    }
    read_key(&gpus[index], word);
}

static void read_line(char *line)
{
    int a, b, level, status[4];
    error_t *error = &errors[error_count];
    error->gpu = -1;
    if (strncmp(line, "gpu ", 4) == 0) {
        read_gpu(line + 4);
    } else if (strncmp(line, "link ", 5) == 0) {
        read_link(line);
    } else if (strncmp(line, "set ", 4) == 0) {
        read_set(line);
    } else if (sscanf(line, "unlink %d %d", &a, &b) == 2) {
        gpus[a].links -= b;
    } else if (sscanf(line, "path %d %d %d", &a, &b, &level) == 3) {
        paths[a][b] = paths[b][a] = level;
    } else if (sscanf(line, "peer %d %d %d %d %d %d", &a, &b, &status[0], &status[1], &status[2],
                      &status[3]) == 6) {
        memcpy(peers[a][b], status, sizeof(status));
    } else if (error_count + 1 < ERRORS &&
               sscanf(line, "error %63s %d %d", error->function, &error->code, &error->gpu) >= 2) {
        error_count++;
    } else if (sscanf(line, "driver %79s", driver) != 1 && sscanf(line, "cuda %d", &cuda) != 1) {
        complain(line);
    }
}

static void read_machine(FILE *file)
{
    char line[1024];
    gpu_count = error_count = cuda = 0;
    driver[0] = '\0';
    for (int i = 0; i < GPUS * GPUS; i++) {
        paths[i / GPUS][i % GPUS] = 50;
        for (int k = 0; k < 4; k++) {
            peers[i / GPUS][i % GPUS][k] = 5;
        }
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        read_line(line);
    }
}

/* ---- answers ------------------------------------------------------------------------------ */

/* Before any call, as the real one does: it must have been started, and may be told to fail. */
static int check(const char *function, const gpu_t *gpu)
{
    if (!started) {
        return 1; /* NVML_ERROR_UNINITIALIZED */
    }
    for (int i = 0; i < error_count; i++) {
        bool meant = gpu == NULL || errors[i].gpu < 0 || errors[i].gpu == gpu->index;
        if (meant && strcmp(errors[i].function, function) == 0) {
            return errors[i].code;
        }
    }
    return WEFT_NVML_OK;
}

static int put_text(const char *text, char *out, unsigned room)
{
    if (strlen(text) >= room) {
        return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
    }
    memcpy(out, text, strlen(text) + 1);
    return WEFT_NVML_OK;
}

static void put_pci(const gpu_t *gpu, weft_nvml_pci_t *pci_p)
{
    memset(pci_p, 0x5a, sizeof(*pci_p)); /* nobody relies on what the real one leaves alone */
    pci_p->domain = gpu->domain;
    pci_p->bus = gpu->bus;
    pci_p->device = gpu->device;
    snprintf(pci_p->bus_id, sizeof(pci_p->bus_id), "%08X:%02X:%02X.0", gpu->domain & 0xffffffff,
             gpu->bus & 0xff, gpu->device & 0x1f);
}

int nvmlInit_v2(void)
{
    const char *path = getenv("FAKE_NVML");
    FILE *file = path == NULL ? NULL : fopen(path, "re");
    if (file == NULL) {
        return WEFT_NVML_DRIVER_NOT_LOADED;
    }
    read_machine(file);
    fclose(file);
    started = true;
    int error = check(__func__, NULL);
    started = error == WEFT_NVML_OK;
    return error;
}

int nvmlShutdown(void)
{
    for (int i = 0; i < gpu_count; i++) {
        for (int k = 0; k < gpus[i].parts; k++) {
            free(gpus[i].part[k]);
        }
    }
    started = false;
    return WEFT_NVML_OK;
}

const char *nvmlErrorString(int error)
{
    return error == WEFT_NVML_DRIVER_NOT_LOADED  ? "Driver Not Loaded"
           : error == WEFT_NVML_NO_PERMISSION    ? "Insufficient Permissions"
           : error == WEFT_NVML_VERSION_MISMATCH ? "Driver/library version mismatch"
           : error == 15                         ? "GPU is lost"
                                                 : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *text, unsigned room)
{
    CHECK(check(__func__, NULL));
    return put_text(driver, text, room);
}

int nvmlSystemGetCudaDriverVersion(int *version_p)
{
    CHECK(check(__func__, NULL));
    *version_p = cuda;
    return WEFT_NVML_OK;
}

int nvmlDeviceGetCount_v2(unsigned *count_p)
{
    CHECK(check(__func__, NULL));
    *count_p = (unsigned)gpu_count;
    return WEFT_NVML_OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, weft_nvml_device_t *gpu_p)
{
    if (index >= (unsigned)gpu_count) {
        return WEFT_NVML_INVALID_ARGUMENT;
    }
    CHECK(check(__func__, &gpus[index]));
    *gpu_p = &gpus[index];
    return WEFT_NVML_OK;
}

int nvmlDeviceGetName(weft_nvml_device_t gpu, char *text, unsigned room)
{
    CHECK(check(__func__, gpu));
    return put_text(gpu->name, text, room);
}

int nvmlDeviceGetUUID(weft_nvml_device_t gpu, char *text, unsigned room)
{
    CHECK(check(__func__, gpu));
    return put_text(gpu->uuid, text, room);
}

int nvmlDeviceGetPciInfo_v3(weft_nvml_device_t gpu, weft_nvml_pci_t *pci_p)
{
    CHECK(check(__func__, gpu));
    put_pci(gpu, pci_p);
    return WEFT_NVML_OK;
}

int nvmlDeviceGetMemoryInfo(weft_nvml_device_t gpu, weft_nvml_memory_t *memory_p)
{
    CHECK(check(__func__, gpu));
    *memory_p = (weft_nvml_memory_t){gpu->memory, gpu->free, gpu->memory - gpu->free};
    return WEFT_NVML_OK;
}

int nvmlDeviceGetCudaComputeCapability(weft_nvml_device_t gpu, int *major_p, int *minor_p)
{
    CHECK(check(__func__, gpu));
    *major_p = gpu->major;
    *minor_p = gpu->minor;
    return WEFT_NVML_OK;
}

int nvmlDeviceGetMaxClockInfo(weft_nvml_device_t gpu, int clock, unsigned *mhz_p)
{
    CHECK(check(__func__, gpu));
    *mhz_p = clock == WEFT_NVML_CLOCK_SM ? gpu->clock : 7777;
    return WEFT_NVML_OK;
}

#define NUMBER(function, value)                                                                    \
    int function(weft_nvml_device_t gpu, unsigned *value_p)                                        \
    {                                                                                              \
        CHECK(check(__func__, gpu));                                                               \
        *value_p = value;                                                                          \
        return WEFT_NVML_OK;                                                                       \
    }

NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, gpu->pcie[0])
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, gpu->pcie[1])
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, gpu->pcie_max[0])
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, gpu->pcie_max[1])

int nvmlDeviceGetCpuAffinity(weft_nvml_device_t gpu, unsigned words, unsigned long *cpus)
{
    CHECK(check(__func__, gpu));
    memset(cpus, 0, words * sizeof(*cpus));
    for (int cpu = gpu->first_cpu; cpu <= gpu->last_cpu; cpu++) {
        cpus[cpu / 64] |= 1ul << cpu % 64;
    }
    return WEFT_NVML_OK;
}

int nvmlDeviceGetComputeMode(weft_nvml_device_t gpu, int *mode_p)
{
    CHECK(check(__func__, gpu));
    *mode_p = gpu->mode;
    return WEFT_NVML_OK;
}

/* ---- how it fares ------------------------------------------------------------------------- */

int nvmlDeviceGetUtilizationRates(weft_nvml_device_t gpu, weft_nvml_utilization_t *rates_p)
{
    CHECK(check(__func__, gpu));
    *rates_p = (weft_nvml_utilization_t){.gpu = gpu->busy, .memory = 1};
    return WEFT_NVML_OK;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(weft_nvml_device_t gpu, unsigned long long *reasons_p)
{
    CHECK(check(__func__, gpu));
    *reasons_p = gpu->throttle;
    return WEFT_NVML_OK;
}

int nvmlDeviceGetEccMode(weft_nvml_device_t gpu, int *now_p, int *pending_p)
{
    CHECK(check(__func__, gpu));
    *now_p = *pending_p = gpu->ecc;
    return WEFT_NVML_OK;
}

int nvmlDeviceGetTotalEccErrors(weft_nvml_device_t gpu, int kind, int counter,
                                unsigned long long *count_p)
{
    CHECK(check(__func__, gpu));
    *count_p = kind == WEFT_NVML_ECC_UNCORRECTED && counter == WEFT_NVML_ECC_SINCE_BOOT
                   ? gpu->errors
                   : 7777; /* those that do no harm */
    return WEFT_NVML_OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(weft_nvml_device_t gpu, int *pending_p)
{
    CHECK(check(__func__, gpu));
    *pending_p = gpu->retire;
    return WEFT_NVML_OK;
}

int nvmlDeviceGetPersistenceMode(weft_nvml_device_t gpu, int *mode_p)
{
    CHECK(check(__func__, gpu));
    *mode_p = gpu->persistence;
    return WEFT_NVML_OK;
}

/* ---- links and pairs ---------------------------------------------------------------------- */

static int check_link(const char *function, const gpu_t *gpu, unsigned link)
{
    CHECK(check(function, gpu));
    return link >= WEFT_NVML_LINKS ? WEFT_NVML_INVALID_ARGUMENT
           : gpu->links == 0       ? WEFT_NVML_NOT_SUPPORTED
                                   : WEFT_NVML_OK;
}

int nvmlDeviceGetNvLinkState(weft_nvml_device_t gpu, unsigned link, int *active_p)
{
    CHECK(check_link(__func__, gpu, link));
    *active_p = link < (unsigned)gpu->links;
    return WEFT_NVML_OK;
}

int nvmlDeviceGetNvLinkVersion(weft_nvml_device_t gpu, unsigned link, unsigned *version_p)
{
    CHECK(check_link(__func__, gpu, link));
    *version_p = gpu->version[link];
    return WEFT_NVML_OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(weft_nvml_device_t gpu, unsigned link,
                                        weft_nvml_pci_t *pci_p)
{
    CHECK(check_link(__func__, gpu, link));
    if (gpu->far[link] == FAR_HIDDEN) {
        return 999;
    }
    const gpu_t other = {.bus = 0xc0 + link}; /* of a switch or a processor */
    put_pci(gpu->far[link] >= 0 ? &gpus[gpu->far[link]] : &other, pci_p);
    return WEFT_NVML_OK;
}

int nvmlDeviceGetP2PStatus(weft_nvml_device_t from, weft_nvml_device_t to, int access,
                           int *status_p)
{
    CHECK(check(__func__, from));
    *status_p = peers[from->index][to->index][access];
    return WEFT_NVML_OK;
}

int nvmlDeviceGetTopologyCommonAncestor(weft_nvml_device_t a, weft_nvml_device_t b, int *level_p)
{
    CHECK(check(__func__, a));
    *level_p = paths[a->index][b->index];
    return WEFT_NVML_OK;
}

/* ---- what drivers learnt later ------------------------------------------------------------ */

#ifndef FAKE_OLD

NUMBER(nvmlDeviceGetNumGpuCores, gpu->cores)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, 7)

int nvmlDeviceGetGpuMaxPcieLinkGeneration(weft_nvml_device_t gpu, unsigned *value_p)
{
    CHECK(check(__func__, gpu));
    *value_p = gpu->own;
    return gpu->own == 0 ? WEFT_NVML_NOT_SUPPORTED : WEFT_NVML_OK;
}

int nvmlDeviceGetRemappedRows(weft_nvml_device_t gpu, unsigned *corrected_p,
                              unsigned *uncorrected_p, unsigned *pending_p, unsigned *failed_p)
{
    CHECK(check(__func__, gpu));
    *corrected_p = 3;
    *uncorrected_p = 0;
    *pending_p = gpu->rows_pending;
    *failed_p = gpu->rows_failed;
    return WEFT_NVML_OK;
}

int nvmlDeviceGetMigMode(weft_nvml_device_t gpu, unsigned *now_p, unsigned *pending_p)
{
    CHECK(check(__func__, gpu));
    *now_p = *pending_p = gpu->mig;
    return WEFT_NVML_OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(weft_nvml_device_t gpu, unsigned index,
                                        weft_nvml_device_t *part_p)
{
    CHECK(check(__func__, gpu));
    if (index >= (unsigned)gpu->parts) {
        return 6; /* NVML_ERROR_NOT_FOUND */
    }
    *part_p = gpu->part[index];
    return WEFT_NVML_OK;
}

int nvmlDeviceGetMemoryAffinity(weft_nvml_device_t gpu, unsigned words, unsigned long *nodes,
                                unsigned scope)
{
    CHECK(check(__func__, gpu));
    memset(nodes, 0, words * sizeof(*nodes));
    if (gpu->numa < 0 || scope != WEFT_NVML_SCOPE_NODE) {
        return WEFT_NVML_NOT_SUPPORTED;
    }
    nodes[gpu->numa / 64] = 1ul << gpu->numa % 64;
    return WEFT_NVML_OK;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(weft_nvml_device_t gpu, unsigned link, int *kind_p)
{
    CHECK(check_link(__func__, gpu, link));
    *kind_p = gpu->far[link] == FAR_SWITCH   ? WEFT_NVML_REMOTE_SWITCH
              : gpu->far[link] == FAR_CPU    ? WEFT_NVML_REMOTE_CPU
              : gpu->far[link] == FAR_HIDDEN ? 0xff
                                             : WEFT_NVML_REMOTE_GPU;
    return WEFT_NVML_OK;
}

/* Fails to compile where a function here is not what nvml.h takes it for. */
__attribute__((unused)) static const weft_nvml_t same_types = {
    .init = nvmlInit_v2,
    .shutdown = nvmlShutdown,
    .count = nvmlDeviceGetCount_v2,
    .handle = nvmlDeviceGetHandleByIndex_v2,
    .error_text = nvmlErrorString,
    .driver_version = nvmlSystemGetDriverVersion,
    .cuda_version = nvmlSystemGetCudaDriverVersion,
    .name = nvmlDeviceGetName,
    .uuid = nvmlDeviceGetUUID,
    .pci = nvmlDeviceGetPciInfo_v3,
    .memory = nvmlDeviceGetMemoryInfo,
    .capability = nvmlDeviceGetCudaComputeCapability,
    .core_count = nvmlDeviceGetNumGpuCores,
    .max_clock = nvmlDeviceGetMaxClockInfo,
    .pcie_generation = nvmlDeviceGetCurrPcieLinkGeneration,
    .pcie_width = nvmlDeviceGetCurrPcieLinkWidth,
    .pcie_generation_max = nvmlDeviceGetMaxPcieLinkGeneration,
    .pcie_width_max = nvmlDeviceGetMaxPcieLinkWidth,
    .cpu_affinity = nvmlDeviceGetCpuAffinity,
    .memory_affinity = nvmlDeviceGetMemoryAffinity,
    .compute_mode = nvmlDeviceGetComputeMode,
    .mig_mode = nvmlDeviceGetMigMode,
    .mig_most = nvmlDeviceGetMaxMigDeviceCount,
    .mig_handle = nvmlDeviceGetMigDeviceHandleByIndex,
    .link_state = nvmlDeviceGetNvLinkState,
    .link_version = nvmlDeviceGetNvLinkVersion,
    .link_remote_pci = nvmlDeviceGetNvLinkRemotePciInfo_v2,
    .link_remote_kind = nvmlDeviceGetNvLinkRemoteDeviceType,
    .peer_status = nvmlDeviceGetP2PStatus,
    .common_ancestor = nvmlDeviceGetTopologyCommonAncestor,
    .pcie_generation_own = nvmlDeviceGetGpuMaxPcieLinkGeneration,
    .utilization = nvmlDeviceGetUtilizationRates,
    .throttle_reasons = nvmlDeviceGetCurrentClocksThrottleReasons,
    .ecc_mode = nvmlDeviceGetEccMode,
    .ecc_errors = nvmlDeviceGetTotalEccErrors,
    .retired_pending = nvmlDeviceGetRetiredPagesPendingStatus,
    .remapped_rows = nvmlDeviceGetRemappedRows,
    .persistence = nvmlDeviceGetPersistenceMode,
};

#endif
