/* The steps of weft__gpus_read_from that have files of their own. */
#ifndef WEFT_TOPO_GPU_READ_H
#define WEFT_TOPO_GPU_READ_H

#include "topo/gpu.h"
#include "topo/nvml.h"

/* Domain, bus and device as one number that sorts like them. */
int64_t weft__gpu_bus(const weft_nvml_pci_t *pci);

/* Fill in gpu->health, all unknown unless `asked`. */
void weft__gpu_read_health(const weft_nvml_t *nvml, weft_nvml_device_t handle, bool asked,
                           weft_gpu_t *gpu);

/* Fill in the links of every GPU and every pair; handles[i] is NVML's of gpus->gpus[i]. */
void weft__gpus_read_pairs(const weft_nvml_t *nvml, const weft_nvml_device_t *handles,
                           weft_gpus_t *gpus);

/* Find CUDA's numbers, given what it reads from the environment (NULL: not set). gpus->order
 * and gpus->cuda have room for all. */
void weft__gpus_number(const char *visible, const char *order, weft_gpus_t *gpus);

#endif
