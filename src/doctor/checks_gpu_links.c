/* How GPUs are connected: with each other, with the cores, with the network. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "doctor/checks.h"
#include "doctor/gpu_words.h"
#include "doctor/look.h"
#include "doctor/parse.h"

#define NO_GPU "there is no GPU"
#define ONE_GPU "there are no two GPUs"

/* ---- with each other ------------------------------------------------------------------------- */

/* Nothing can be done about what the hardware does not have. */
static bool can_be_fixed(const char *refusal)
{
    return refusal != NULL &&
           (strstr(refusal, "topology") != NULL || strstr(refusal, "disabled") != NULL);
}

const char *weft__check_peer(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    int refused = 0;
    const weft_gpu_pair_t *worst = NULL;
    int from = 0, to = 0;
    if (gpus->count < 2) {
        return ONE_GPU;
    }
    for (int i = 0; i < gpus->count * gpus->count; i++) {
        const weft_gpu_pair_t *pair = &gpus->pairs[i];
        if (i / gpus->count == i % gpus->count || pair->access[WEFT_ACCESS_READ] != 0) {
            continue;
        }
        refused++;
        if (worst == NULL || (can_be_fixed(pair->refusal) && !can_be_fixed(worst->refusal))) {
            worst = pair;
            from = gpus->gpus[i / gpus->count].index;
            to = gpus->gpus[i % gpus->count].index;
        }
    }
    if (worst != NULL) {
        bool fixable = can_be_fixed(worst->refusal);
        weft__doctor_add(
            doctor, fixable ? WEFT_FINDING_WARNING : WEFT_FINDING_NOTE,
            weft__doctor_text(doctor, "%d of %d pairs of GPUs do not reach each other's memory",
                              refused, gpus->count * (gpus->count - 1)),
            weft__doctor_text(doctor, "GPU %d to GPU %d (%s): %s", from, to,
                              weft__gpu_path_letters(worst->path),
                              worst->refusal ? worst->refusal : "the driver gives no reason"),
            "data goes through host memory: a quarter of PCIe's bandwidth or less, and the CPU's "
            "memory is busy with it",
            fixable ? "turn off the IOMMU and ACS in the BIOS, enable \"above 4G decoding\"; in a "
                      "virtual machine ask for GPUs of one PCIe switch"
                    : "none: these boards cannot; fewer, larger exchanges (--accumulate, "
                      "--bucket) help");
    }
    return NULL;
}

/* GPUs with fewer links than the best of the same name. */
static void find_lost_links(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    for (int i = 0; i < gpus->count; i++) {
        const weft_gpu_t *gpu = &gpus->gpus[i];
        int most = 0;
        for (int k = 0; k < gpus->count; k++) {
            if (strcmp(gpus->gpus[k].name, gpu->name) == 0 && gpus->gpus[k].links > most) {
                most = gpus->gpus[k].links;
            }
        }
        if (gpu->links >= 0 && gpu->links < most) {
            weft__doctor_add(
                doctor, WEFT_FINDING_WARNING,
                weft__doctor_text(doctor, "GPU %d has %d of %d NVLinks", gpu->index, gpu->links,
                                  most),
                weft__doctor_text(doctor, "nvidia-smi nvlink -s -i %d; others of its kind have %d",
                                  gpu->index, most),
                weft__doctor_text(doctor, "every collective runs at %.0f%% of the bandwidth",
                                  100.0 * gpu->links / most),
                "dmesg | grep -i xid (74 is NVLink); as root: reset all GPUs, restart "
                "nvidia-fabricmanager, or reboot; then look at the bridge or baseboard");
        }
    }
}

const char *weft__check_nvlink(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    int links = 0;
    if (gpus->count < 2) {
        return ONE_GPU;
    }
    for (int i = 0; i < gpus->count; i++) {
        links += gpus->gpus[i].links > 0;
    }
    if (links == 0) {
        return "the GPUs have no NVLinks";
    }
    find_lost_links(doctor);
    for (int i = 0; i < gpus->count; i++) {
        for (int k = i + 1; k < gpus->count; k++) {
            const weft_gpu_pair_t *pair = weft__gpu_pair(gpus, i, k);
            if (gpus->gpus[i].switch_links > 0 && gpus->gpus[k].switch_links > 0 &&
                pair->access[WEFT_ACCESS_NVLINK] == 0 && pair->access[WEFT_ACCESS_READ] != 0) {
                weft__doctor_add(
                    doctor, WEFT_FINDING_ERROR,
                    weft__doctor_text(doctor, "GPUs %d and %d are on NVSwitch and do not use it",
                                      gpus->gpus[i].index, gpus->gpus[k].index),
                    weft__doctor_text(doctor, "the driver says %s, not NV%d",
                                      weft__gpu_path_letters(pair->path),
                                      gpus->gpus[i].switch_links),
                    "data takes PCIe: a tenth of the bandwidth; CUDA may fail with \"system not "
                    "yet initialized\"",
                    "as root: systemctl restart nvidia-fabricmanager (of the driver's version)");
                return NULL; /* one is enough: they fail together */
            }
        }
    }
    return NULL;
}

/* Does data between GPUs, or between GPUs and network cards, go over PCIe? */
static bool uses_pcie(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    int ports;
    weft__look_ports(doctor, &ports);
    for (int i = 0; i < gpus->count * gpus->count; i++) {
        if (i / gpus->count != i % gpus->count && gpus->pairs[i].links <= 0) {
            return true;
        }
    }
    return ports > 0 && gpus->count > 0;
}

const char *weft__check_iommu(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    if (gpus->count == 0) {
        return NO_GPU;
    }
    if (!uses_pcie(doctor)) {
        return "no data between GPUs goes over PCIe";
    }
    if (weft__look_virtual(doctor)) {
        return "this is a virtual machine; its host decides";
    }
    for (int i = 0; i < gpus->count; i++) {
        char type[WEFT_LOOK_LINE];
        if (weft__look_line(doctor, type, "/sys/bus/pci/devices/%s/iommu_group/type",
                            gpus->gpus[i].bus_id) &&
            strncmp(type, "DMA", 3) == 0) {
            weft__doctor_add(
                doctor, WEFT_FINDING_WARNING, "the IOMMU translates what GPUs send each other",
                weft__doctor_text(doctor, "/sys/bus/pci/devices/%s/iommu_group/type: %s",
                                  gpus->gpus[i].bus_id, type),
                "peer traffic takes the way through the root complex: half the bandwidth or less; "
                "with some drivers it hangs or is wrong",
                "iommu=pt on the kernel's command line, or off in the BIOS (VT-d, AMD-Vi)");
            return NULL;
        }
    }
    return NULL;
}

/* Look at the bridges above a device: their folders are above its own in /sys/devices. */
static int find_acs(weft_doctor_t *doctor, const char *bus_id, char bridge[32], bool *read_p)
{
    char path[WEFT_PATH_BYTES], real[PATH_MAX];
    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s", doctor->asked.root, bus_id);
    if (realpath(path, real) == NULL) {
        return 0;
    }
    for (char *slash; (slash = strrchr(real, '/')) != NULL;) {
        *slash = '\0';
        const char *name = strrchr(real, '/');
        unsigned domain, bus, device, function;
        if (name == NULL ||
            sscanf(name, "/%4x:%2x:%2x.%1x", &domain, &bus, &device, &function) != 4) {
            return 0;
        }
        size_t size = 0;
        const uint8_t *config = (const uint8_t *)weft__look_text(doctor, &size, "%s/config",
                                                                 real + strlen(doctor->asked.root));
        int bits = config != NULL ? weft__parse_acs(config, size) : -1;
        *read_p |= config != NULL && size > 256;
        if (bits > 0) {
            snprintf(bridge, 32, "%.31s", name + 1);
            return bits;
        }
    }
    return 0;
}

const char *weft__check_acs(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    bool read = false;
    if (gpus->count == 0) {
        return NO_GPU;
    }
    if (!uses_pcie(doctor)) {
        return "no data between GPUs goes over PCIe";
    }
    if (weft__look_virtual(doctor)) {
        return "this is a virtual machine; its host decides";
    }
    for (int i = 0; i < gpus->count; i++) {
        char bridge[32];
        int bits = gpus->gpus[i].bus_id[0] != '\0'
                       ? find_acs(doctor, gpus->gpus[i].bus_id, bridge, &read)
                       : 0;
        if (bits > 0) {
            weft__doctor_add(
                doctor, WEFT_FINDING_WARNING,
                weft__doctor_text(doctor, "PCIe bridge %s sends peers' requests up to the root",
                                  bridge),
                weft__doctor_text(doctor, "its ACS control register has 0x%x, above GPU %d", bits,
                                  gpus->gpus[i].index),
                "GPUs and network cards below one switch do not use it: half the bandwidth",
                weft__doctor_text(doctor,
                                  "off in the BIOS; or as root, for every bridge: setpci -s %s "
                                  "ECAP_ACS+6.w=0000",
                                  bridge));
            return NULL;
        }
    }
    return read ? NULL : "configuration space is for root to read: lspci -vvv | grep ACSCtl";
}

const char *weft__check_pcie(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    if (gpus->count == 0) {
        return NO_GPU;
    }
    for (int i = 0; i < gpus->count; i++) {
        const weft_gpu_t *gpu = &gpus->gpus[i];
        bool narrow = gpu->pcie_width > 0 && gpu->pcie_width < gpu->pcie_width_max;
        /* an idle GPU saves power with a slower link */
        bool slow = gpu->pcie_generation > 0 && gpu->pcie_generation < gpu->pcie_generation_max &&
                    gpu->health.busy > 0;
        bool slot = gpu->pcie_generation_max > 0 &&
                    gpu->pcie_generation_max < gpu->health.pcie_generation_own;
        if (narrow || slow) {
            weft__doctor_add(
                doctor, WEFT_FINDING_WARNING,
                weft__doctor_text(doctor, "GPU %d has a PCIe link below what it can", gpu->index),
                weft__doctor_text(doctor, "generation %d x%d now, %d x%d possible%s",
                                  gpu->pcie_generation, gpu->pcie_width, gpu->pcie_generation_max,
                                  gpu->pcie_width_max, slow ? ", while it is busy" : ""),
                weft__doctor_text(
                    doctor, "copies to and from the host have %.0f%% of the bandwidth",
                    100.0 * (narrow ? gpu->pcie_width : 1) / (narrow ? gpu->pcie_width_max : 1) *
                        (slow ? 1.0 / (1 << (gpu->pcie_generation_max - gpu->pcie_generation))
                              : 1.0)),
                "seat the board and its riser anew; look for bifurcation of the slot in the BIOS");
        } else if (slot) {
            weft__doctor_add(
                doctor, WEFT_FINDING_WARNING,
                weft__doctor_text(doctor, "GPU %d is in a slot that is slower than it", gpu->index),
                weft__doctor_text(doctor, "PCIe generation %d of %d", gpu->pcie_generation_max,
                                  gpu->health.pcie_generation_own),
                "copies to and from the host have half the bandwidth or less",
                "take another slot, or raise the slot's link speed in the BIOS");
        }
    }
    return NULL;
}

/* ---- with cores and network cards ------------------------------------------------------------ */

const char *weft__check_gpu_cores(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    weft_gpu_list_t far = {0};
    if (gpus->cuda_count == 0) {
        return NO_GPU;
    }
    if (doctor->cpus.nodes < 2) {
        return "there is one NUMA node";
    }
    for (int i = 0; i < gpus->cuda_count; i++) {
        const weft_gpu_t *gpu = &gpus->gpus[gpus->cuda[i]];
        bool known = false, near = false;
        for (int word = 0; word < WEFT_GPU_WORDS && word < WEFT_DOCTOR_WORDS; word++) {
            known |= gpu->near[word] != 0;
            near |= (gpu->near[word] & doctor->cpus.allowed[word]) != 0;
        }
        if (known && !near) {
            weft__gpu_list_add(&far, gpu);
        }
    }
    if (far.count > 0) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "no core near %s may be used", far.text),
            weft__doctor_text(doctor,
                              "NUMA node %d has them; /proc/self/status: "
                              "Cpus_allowed_list has none of its CPUs",
                              gpus->gpus[gpus->cuda[0]].numa),
            "launches and copies cross the link between sockets: about half the bandwidth to the "
            "host",
            "choose GPUs and cores of one node: CUDA_VISIBLE_DEVICES, taskset; or give the "
            "process all cores");
    }
    return NULL;
}

const char *weft__check_gpu_nic(weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    weft_gpu_list_t far = {0};
    int count;
    const weft_look_port_t *ports = weft__look_ports(doctor, &count);
    if (gpus->count == 0) {
        return NO_GPU;
    }
    if (count == 0) {
        return "there is no RDMA device";
    }
    if (doctor->cpus.nodes < 2) {
        return "there is one NUMA node";
    }
    for (int i = 0; i < gpus->count; i++) {
        const weft_gpu_t *gpu = &gpus->gpus[i];
        bool near = gpu->numa < 0;
        for (int k = 0; k < count; k++) {
            near |= ports[k].active && (ports[k].numa < 0 || ports[k].numa == gpu->numa);
        }
        if (!near) {
            weft__gpu_list_add(&far, gpu);
        }
    }
    if (far.count > 0) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING,
            weft__doctor_text(doctor, "%s: no active network card on the same NUMA node", far.text),
            "/sys/class/infiniband/*/device/numa_node against the GPUs' (weft topo)",
            "traffic to other hosts crosses the link between sockets; GPUDirect is not used",
            "move a card, bring up the port that is down, or run network-heavy ranks on the other "
            "GPUs");
    }
    return NULL;
}

const char *weft__check_gpu_direct(weft_doctor_t *doctor)
{
    int ports;
    weft__look_ports(doctor, &ports);
    if (doctor->asked.gpus->count == 0) {
        return NO_GPU;
    }
    if (ports == 0) {
        return "there is no RDMA device";
    }
    const char *version = weft__look_text(doctor, NULL, "/proc/driver/nvidia/version");
    bool open = version != NULL && strstr(version, "Open Kernel Module") != NULL; /* has dma-buf */
    if (!open && !weft__look_exists(doctor, "/sys/module/nvidia_peermem") &&
        !weft__look_exists(doctor, "/sys/module/nv_peer_mem")) {
        weft__doctor_add(
            doctor, WEFT_FINDING_WARNING, "network cards do not reach the memory of GPUs",
            "/sys/module/nvidia_peermem is not there, and the driver is not the open one, which "
            "has dma-buf",
            "data to other hosts is copied through host memory: about half the bandwidth, and "
            "more latency",
            "as root: modprobe nvidia_peermem (and in /etc/modules-load.d)");
    }
    return NULL;
}
