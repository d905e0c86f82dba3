/* How GPUs are connected: NVLinks, peer access, and the way over PCIe.
 *
 * NVML lists the links of one GPU and says where each ends. A link that ends at another GPU counts
 * for that pair. One that ends at an NVSwitch reaches every GPU on the switches, so two GPUs that
 * have n and m of those are as well connected as the one with fewer. */
#include <stddef.h>

#include "topo/gpu_read.h"

static weft_gpu_pair_t *pair_of(weft_gpus_t *gpus, int from, int to)
{
    return &gpus->pairs[(size_t)from * (size_t)gpus->count + (size_t)to];
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* ---- NVLink ------------------------------------------------------------------------------- */

/* NVML counts versions (1, 2, 3 is 2.2, ...); 0 if it is newer than this list. */
static int version_of(unsigned number)
{
    static const int versions[] = {0, 10, 20, 22, 30, 31, 40, 50, 60};
    return number < sizeof(versions) / sizeof(versions[0]) ? versions[number] : 0;
}

static int find_bus(const weft_gpus_t *gpus, const weft_nvml_pci_t *pci)
{
    for (int i = 0; i < gpus->count; i++) {
        if (gpus->gpus[i].bus == weft__gpu_bus(pci)) {
            return i;
        }
    }
    return -1;
}

static void count_end(const weft_nvml_t *nvml, weft_nvml_device_t handle, unsigned link, int from,
                      weft_gpus_t *gpus)
{
    weft_nvml_pci_t pci = {0};
    int kind = -1;
    int to = -1;
    if (weft__nvml_ask(nvml, link_remote_kind, handle, link, &kind) != WEFT_NVML_OK) {
        kind = -1;
    }
    if (kind != WEFT_NVML_REMOTE_SWITCH &&
        weft__nvml_ask(nvml, link_remote_pci, handle, link, &pci) == WEFT_NVML_OK) {
        to = find_bus(gpus, &pci);
    }
    if (to >= 0 && to != from) {
        pair_of(gpus, from, to)->links++;
    } else if (kind == WEFT_NVML_REMOTE_SWITCH) {
        gpus->gpus[from].switch_links++;
    } else if (kind != WEFT_NVML_REMOTE_CPU && kind != WEFT_NVML_REMOTE_GPU) {
        /* an old driver does not tell a switch, a virtual machine may hide it */
        gpus->gpus[from].unknown_links++;
    }
}

static void read_links(const weft_nvml_t *nvml, weft_nvml_device_t handle, int from,
                       weft_gpus_t *gpus)
{
    weft_gpu_t *gpu = &gpus->gpus[from];
    bool told = false;
    gpu->link_version = -1;
    for (unsigned link = 0; link < WEFT_NVML_LINKS; link++) {
        int active = 0;
        unsigned number = 0;
        int error = weft__nvml_ask(nvml, link_state, handle, link, &active);
        /* the latter two: there is no such link */
        told |= error == WEFT_NVML_OK || error == WEFT_NVML_NOT_SUPPORTED ||
                error == WEFT_NVML_INVALID_ARGUMENT;
        if (error != WEFT_NVML_OK || !active) {
            continue;
        }
        gpu->links++;
        if (weft__nvml_ask(nvml, link_version, handle, link, &number) == WEFT_NVML_OK &&
            version_of(number) > 0) {
            gpu->link_version = version_of(number);
        }
        count_end(nvml, handle, link, from, gpus);
    }
    if (!told) {
        gpu->links = gpu->switch_links = gpu->unknown_links = -1;
    }
}

/* Links that two GPUs have through switches. Switches can be partitioned, so the driver has the
 * last word; links whose other end is unknown count only on its word. */
static int switched_links(const weft_gpu_t *a, const weft_gpu_t *b, int over_nvlink)
{
    if (over_nvlink == 0) {
        return 0;
    }
    bool all = over_nvlink == 1;
    return least(a->switch_links + (all ? a->unknown_links : 0),
                 b->switch_links + (all ? b->unknown_links : 0));
}

static void join_links(weft_gpus_t *gpus, int a, int b)
{
    const weft_gpu_t *one = &gpus->gpus[a], *other = &gpus->gpus[b];
    weft_gpu_pair_t *there = pair_of(gpus, a, b), *back = pair_of(gpus, b, a);
    /* a link has two ends, but the driver may have told us of one only */
    int links = there->links > back->links ? there->links : back->links;
    bool direct = links > 0;
    if (!direct && (one->links < 0 || other->links < 0)) {
        links = -1;
    } else if (!direct) {
        links = switched_links(one, other, there->access[WEFT_ACCESS_NVLINK]);
    }
    there->links = back->links = links;
    there->switched = back->switched = !direct && links > 0;
    there->link_version = back->link_version = links > 0
                                                   ? least(one->link_version, other->link_version)
                                                   : -1;
}

/* ---- peer access and PCIe ----------------------------------------------------------------- */

/* nvmlGpuP2PStatus_t; the last of NVML's means that it does not know. */
static const char *const refusals[] = {
    NULL,
    "the chipset does not support it",
    "the GPU does not support it",
    "the PCIe topology does not support it",
    "it is disabled in the driver's settings",
    "it is not supported",
};

#define REFUSALS ((int)(sizeof(refusals) / sizeof(refusals[0])))

static void read_access(const weft_nvml_t *nvml, weft_nvml_device_t from, weft_nvml_device_t to,
                        weft_gpu_pair_t *pair)
{
    for (int i = 0; i < WEFT_ACCESS_COUNT; i++) {
        int status = -1;
        if (weft__nvml_ask(nvml, peer_status, from, to, i, &status) != WEFT_NVML_OK || status < 0 ||
            status >= REFUSALS) {
            pair->access[i] = -1;
            continue;
        }
        pair->access[i] = status == 0;
        if (i <= WEFT_ACCESS_WRITE && status != 0) {
            pair->refusal = refusals[status];
        }
    }
}

typedef struct path_row {
    int level;
    const char *letters, *text;
} path_row_t;

static const path_row_t paths[] = {
#define ROW(name, level, letters, text) {level, letters, text},
    WEFT_GPU_PATH_TABLE(ROW)
#undef ROW
};

#define PATHS ((int)(sizeof(paths) / sizeof(paths[0])))

static weft_gpu_path_t read_path(const weft_nvml_t *nvml, weft_nvml_device_t a,
                                 weft_nvml_device_t b)
{
    int level = -1;
    if (weft__nvml_ask(nvml, common_ancestor, a, b, &level) == WEFT_NVML_OK) {
        for (int i = 0; i < PATHS; i++) {
            if (paths[i].level == level) {
                return (weft_gpu_path_t)i;
            }
        }
    }
    return WEFT_PATH_UNKNOWN;
}

const char *weft__gpu_path_letters(weft_gpu_path_t path)
{
    return path == WEFT_PATH_UNKNOWN ? "?" : paths[path].letters;
}

const char *weft__gpu_path_text(weft_gpu_path_t path)
{
    return path == WEFT_PATH_UNKNOWN ? "unknown" : paths[path].text;
}

/* ---- all of it ---------------------------------------------------------------------------- */

void weft__gpus_read_pairs(const weft_nvml_t *nvml, const weft_nvml_device_t *handles,
                           weft_gpus_t *gpus)
{
    for (int i = 0; i < gpus->count; i++) {
        read_links(nvml, handles[i], i, gpus);
    }
    for (int a = 0; a < gpus->count; a++) {
        for (int b = a + 1; b < gpus->count; b++) {
            weft_gpu_path_t path = read_path(nvml, handles[a], handles[b]);
            pair_of(gpus, a, b)->path = pair_of(gpus, b, a)->path = path;
            read_access(nvml, handles[a], handles[b], pair_of(gpus, a, b));
            read_access(nvml, handles[b], handles[a], pair_of(gpus, b, a));
            join_links(gpus, a, b);
        }
    }
}
