/* GPUs one by one, and what is the same for all. Pairs: gpu_pairs.c. CUDA's numbers: gpu_cuda.c. */
#include "topo/gpu.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "topo/cpu_list.h"
#include "topo/gpu_read.h"

#define PATH_ROOM 512
#define NODE_WORDS 16 /* of a mask of NUMA nodes */
#define WORD_BITS (8 * sizeof(unsigned long))

int64_t weft__gpu_bus(const weft_nvml_pci_t *pci)
{
    return (int64_t)pci->domain << 16 | (pci->bus & 0xff) << 8 | (pci->device & 0xff);
}

/* ---- what NVML tells of one GPU ----------------------------------------------------------- */

typedef int number_fn_t(weft_nvml_device_t handle, unsigned *value_p);
typedef int text_fn_t(weft_nvml_device_t handle, char *text, unsigned room);

static int ask_number(number_fn_t *ask, weft_nvml_device_t handle)
{
    unsigned value = 0;
    bool known = ask != NULL && ask(handle, &value) == WEFT_NVML_OK && value <= INT_MAX;
    return known ? (int)value : -1;
}

static void ask_text(text_fn_t *ask, weft_nvml_device_t handle, char text[WEFT_GPU_TEXT])
{
    if (ask == NULL || ask(handle, text, WEFT_GPU_TEXT) != WEFT_NVML_OK) {
        text[0] = '\0';
    }
    text[WEFT_GPU_TEXT - 1] = '\0';
}

static void ask_identity(const weft_nvml_t *nvml, weft_nvml_device_t handle, weft_gpu_t *gpu)
{
    weft_nvml_pci_t pci = {0};
    weft_nvml_memory_t memory = {0};
    unsigned clock = 0;
    ask_text(nvml->name, handle, gpu->name);
    ask_text(nvml->uuid, handle, gpu->uuid);
    gpu->bus = -1;
    if (weft__nvml_ask(nvml, pci, handle, &pci) == WEFT_NVML_OK) {
        gpu->bus = weft__gpu_bus(&pci);
        snprintf(gpu->bus_id, sizeof(gpu->bus_id), "%04x:%02x:%02x.0", pci.domain, pci.bus & 0xff,
                 pci.device & 0xff);
    }
    gpu->memory = gpu->memory_free = -1;
    if (weft__nvml_ask(nvml, memory, handle, &memory) == WEFT_NVML_OK) {
        gpu->memory = (int64_t)memory.total;
        gpu->memory_free = (int64_t)memory.free;
    }
    if (weft__nvml_ask(nvml, capability, handle, &gpu->major, &gpu->minor) != WEFT_NVML_OK) {
        gpu->major = gpu->minor = -1;
    }
    gpu->cores = ask_number(nvml->core_count, handle);
    bool known = weft__nvml_ask(nvml, max_clock, handle, WEFT_NVML_CLOCK_SM, &clock) ==
                 WEFT_NVML_OK;
    gpu->clock_mhz = known ? (int)clock : -1;
    gpu->pcie_generation = ask_number(nvml->pcie_generation, handle);
    gpu->pcie_width = ask_number(nvml->pcie_width, handle);
    gpu->pcie_generation_max = ask_number(nvml->pcie_generation_max, handle);
    gpu->pcie_width_max = ask_number(nvml->pcie_width_max, handle);
}

static void ask_parts(const weft_nvml_t *nvml, weft_nvml_device_t handle, weft_gpu_t *gpu)
{
    int most = ask_number(nvml->mig_most, handle);
    for (int i = 0; i < most && gpu->parts < WEFT_GPU_PARTS; i++) {
        weft_nvml_device_t part;
        if (weft__nvml_ask(nvml, mig_handle, handle, (unsigned)i, &part) == WEFT_NVML_OK) {
            ask_text(nvml->uuid, part, gpu->part_uuids[gpu->parts++]);
        }
    }
}

static void ask_modes(const weft_nvml_t *nvml, weft_nvml_device_t handle, weft_gpu_t *gpu)
{
    int mode;
    unsigned now = 0, pending = 0;
    bool known = weft__nvml_ask(nvml, compute_mode, handle, &mode) == WEFT_NVML_OK;
    gpu->mode = known ? (weft_gpu_mode_t)mode : WEFT_GPU_MODE_UNKNOWN;
    int error = weft__nvml_ask(nvml, mig_mode, handle, &now, &pending);
    /* a GPU that cannot be cut says so with this error */
    gpu->mig = error == WEFT_NVML_OK ? now != 0 : error == WEFT_NVML_NOT_SUPPORTED ? 0 : -1;
    if (gpu->mig == 1) {
        ask_parts(nvml, handle, gpu);
    }
}

/* ---- what it is near to ------------------------------------------------------------------- */

static FILE *open_pci_file(const char *root, const weft_gpu_t *gpu, const char *name)
{
    char path[PATH_ROOM];
    if (gpu->bus_id[0] == '\0') {
        return NULL;
    }
    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/%s", root, gpu->bus_id, name);
    return fopen(path, "re");
}

/* The only node of NVML's mask; -1 if there are several or none. */
static int ask_node(const weft_nvml_t *nvml, weft_nvml_device_t handle)
{
    unsigned long nodes[NODE_WORDS] = {0};
    int node = -1;
    if (weft__nvml_ask(nvml, memory_affinity, handle, NODE_WORDS, nodes, WEFT_NVML_SCOPE_NODE) !=
        WEFT_NVML_OK) {
        return -1;
    }
    for (size_t i = 0; i < NODE_WORDS * WORD_BITS; i++) {
        if ((nodes[i / WORD_BITS] >> i % WORD_BITS & 1) != 0) {
            if (node >= 0) {
                return -1;
            }
            node = (int)i;
        }
    }
    return node;
}

/* The kernel first: NVML's nvmlDeviceGetNumaNodeId is about GPUs that are a node themselves. */
static void read_numa(const weft_nvml_t *nvml, weft_nvml_device_t handle, const char *root,
                      weft_gpu_t *gpu)
{
    FILE *file = open_pci_file(root, gpu, "numa_node");
    gpu->numa = -1;
    if (file != NULL) {
        if (fscanf(file, "%d", &gpu->numa) != 1) {
            gpu->numa = -1;
        }
        fclose(file);
    }
    if (gpu->numa < 0) {
        gpu->numa = ask_node(nvml, handle);
    }
}

static void read_cpu_list(FILE *file, weft_gpu_t *gpu)
{
    char line[4096];
    if (fgets(line, sizeof(line), file) != NULL) {
        weft__cpu_list_read(line, gpu->near, WEFT_GPU_WORDS);
    }
}

static void read_near(const weft_nvml_t *nvml, weft_nvml_device_t handle, const char *root,
                      weft_gpu_t *gpu)
{
    bool told = weft__nvml_ask(nvml, cpu_affinity, handle, WEFT_GPU_WORDS, gpu->near) ==
                WEFT_NVML_OK;
    for (int i = 0; told && i < WEFT_GPU_WORDS; i++) {
        if (gpu->near[i] != 0) {
            return;
        }
    }
    memset(gpu->near, 0, sizeof(gpu->near));
    FILE *file = open_pci_file(root, gpu, "local_cpulist");
    if (file != NULL) {
        read_cpu_list(file, gpu);
        fclose(file);
    }
}

/* ---- the machine -------------------------------------------------------------------------- */

/* MPS's control daemon leaves its process id where its clients look for it. A daemon that we do
 * not see may have been killed, or live in another container. */
static int read_mps(const char *root, const char *directory)
{
    char path[PATH_ROOM], name[32] = "";
    int pid = 0;
    snprintf(path, sizeof(path), "%s%s/nvidia-cuda-mps-control.pid", root,
             directory == NULL || *directory == '\0' ? "/tmp/nvidia-mps" : directory);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
    }
    bool known = fscanf(file, "%d", &pid) == 1 && pid > 0;
    fclose(file);
    snprintf(path, sizeof(path), "%s/proc/%d/comm", root, pid);
    file = known ? fopen(path, "re") : NULL;
    if (file == NULL) {
        return -1;
    }
    known = fgets(name, sizeof(name), file) != NULL &&
            strncmp(name, "nvidia-cuda-mps", strlen("nvidia-cuda-mps")) == 0;
    fclose(file);
    return known ? 1 : -1;
}

static weft_status_t allocate(int count, weft_gpus_t *gpus, weft_nvml_device_t **handles_p)
{
    size_t room = (size_t)count;
    gpus->gpus = calloc(room, sizeof(*gpus->gpus));
    gpus->pairs = calloc(room * room, sizeof(*gpus->pairs));
    gpus->order = calloc(room, sizeof(int));
    gpus->cuda = calloc(room, sizeof(int));
    *handles_p = calloc(room, sizeof(**handles_p));
    if (gpus->gpus == NULL || gpus->pairs == NULL || gpus->order == NULL || gpus->cuda == NULL ||
        *handles_p == NULL) {
        free(*handles_p);
        weft__gpus_cleanup(gpus);
        return weft__fail(WEFT_ERR_NO_MEMORY, "topo: no memory for %d GPUs", count);
    }
    return WEFT_OK;
}

/* A GPU that cannot be asked (lost, or not ours to use) is left out: CUDA does not show it
 * either. */
static void read_gpu(const weft_nvml_t *nvml, int index, const weft_gpu_source_t *source,
                     weft_gpus_t *gpus, weft_nvml_device_t *handles)
{
    weft_nvml_device_t handle;
    int error = nvml->handle((unsigned)index, &handle);
    if (error != WEFT_NVML_OK) {
        if (gpus->trouble[0] == '\0') {
            snprintf(gpus->trouble, sizeof(gpus->trouble), "GPU %d is left out: %s", index,
                     weft__nvml_text(nvml, error));
        }
        return;
    }
    weft_gpu_t *gpu = &gpus->gpus[gpus->count];
    gpu->index = index;
    gpu->cuda = -1;
    ask_identity(nvml, handle, gpu);
    ask_modes(nvml, handle, gpu);
    read_numa(nvml, handle, source->root, gpu);
    read_near(nvml, handle, source->root, gpu);
    weft__gpu_read_health(nvml, handle, source->health, gpu);
    handles[gpus->count++] = handle;
}

static weft_status_t read_all(const weft_nvml_t *nvml, const weft_gpu_source_t *source,
                              weft_gpus_t *gpus)
{
    unsigned count = 0;
    weft_nvml_device_t *handles;
    if (weft__nvml_ask(nvml, driver_version, gpus->driver, sizeof(gpus->driver)) != WEFT_NVML_OK) {
        gpus->driver[0] = '\0';
    }
    if (weft__nvml_ask(nvml, cuda_version, &gpus->cuda_version) != WEFT_NVML_OK) {
        gpus->cuda_version = -1;
    }
    int error = nvml->count(&count);
    if (error != WEFT_NVML_OK || count == 0 || count > INT_MAX) {
        snprintf(gpus->reason, sizeof(gpus->reason), "the NVIDIA driver %s%s",
                 error == WEFT_NVML_OK ? "sees none" : "cannot count them: ",
                 error == WEFT_NVML_OK ? "" : weft__nvml_text(nvml, error));
        return WEFT_OK;
    }
    WEFT_TRY(allocate((int)count, gpus, &handles));
    for (unsigned i = 0; i < count; i++) {
        read_gpu(nvml, (int)i, source, gpus, handles);
    }
    if (gpus->count == 0) {
        snprintf(gpus->reason, sizeof(gpus->reason), "%s", gpus->trouble);
    }
    weft__gpus_read_pairs(nvml, handles, gpus);
    weft__gpus_number(source->visible, source->order, gpus);
    free(handles);
    return WEFT_OK;
}

weft_status_t weft__gpus_read_from(const weft_gpu_source_t *source, weft_gpus_t *gpus_p)
{
    weft_gpus_t gpus = {.cuda_version = -1, .mps = -1};
    weft_nvml_t nvml;
    if (weft__nvml_open(source->library, &nvml, gpus.reason, sizeof(gpus.reason))) {
        weft_status_t status = read_all(&nvml, source, &gpus);
        weft__nvml_close(&nvml);
        if (status != WEFT_OK) {
            return status;
        }
        gpus.mps = read_mps(source->root, source->mps);
    }
    *gpus_p = gpus;
    return WEFT_OK;
}

weft_status_t weft__gpus_read(weft_gpus_t *gpus_p)
{
    const weft_gpu_source_t source = {
        .library = weft__settings()->nvml,
        .root = "",
        .visible = getenv("CUDA_VISIBLE_DEVICES"),
        .order = getenv("CUDA_DEVICE_ORDER"),
        .mps = getenv("CUDA_MPS_PIPE_DIRECTORY"),
    };
    return weft__gpus_read_from(&source, gpus_p);
}

void weft__gpus_cleanup(weft_gpus_t *gpus)
{
    free(gpus->gpus);
    free(gpus->pairs);
    free(gpus->order);
    free(gpus->cuda);
    memset(gpus, 0, sizeof(*gpus));
}

/* ---- ranks -------------------------------------------------------------------------------- */

int weft__gpu_of_rank(const weft_gpus_t *gpus, int local_rank)
{
    return gpus->cuda_count == 0 ? -1 : gpus->cuda[local_rank % gpus->cuda_count];
}

weft_status_t weft__gpus_bind(const weft_gpus_t *gpus, int ranks, weft_bind_t *bind_p)
{
    weft_bind_t near = {.ranks = ranks, .words = WEFT_GPU_WORDS};
    near.masks = calloc((size_t)ranks * near.words, sizeof(unsigned long));
    if (near.masks == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "topo: no memory for the masks of %d ranks", ranks);
    }
    for (int rank = 0; rank < ranks; rank++) {
        int gpu = weft__gpu_of_rank(gpus, rank);
        if (gpu >= 0) {
            memcpy(near.masks + (size_t)rank * near.words, gpus->gpus[gpu].near,
                   sizeof(gpus->gpus[gpu].near));
        }
    }
    weft_status_t status = weft__bind_plan(ranks, &near, bind_p);
    weft__bind_cleanup(&near);
    return status;
}
