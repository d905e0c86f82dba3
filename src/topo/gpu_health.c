/* How a GPU fares: clocks, errors of its memory, the driver's modes. */
#include <limits.h>

#include "topo/gpu_read.h"

static void ask_errors(const weft_nvml_t *nvml, weft_nvml_device_t handle,
                       weft_gpu_health_t *health)
{
    int now, pending;
    unsigned corrected, uncorrected, rows_pending, rows_failed;
    unsigned long long errors;
    if (weft__nvml_ask(nvml, ecc_mode, handle, &now, &pending) == WEFT_NVML_OK) {
        health->ecc = now != 0;
    }
    if (weft__nvml_ask(nvml, ecc_errors, handle, WEFT_NVML_ECC_UNCORRECTED,
                       WEFT_NVML_ECC_SINCE_BOOT, &errors) == WEFT_NVML_OK &&
        errors <= INT64_MAX) {
        health->ecc_uncorrected = (int64_t)errors;
    }
    if (weft__nvml_ask(nvml, retired_pending, handle, &pending) == WEFT_NVML_OK) {
        health->retire_pending = pending != 0;
    }
    if (weft__nvml_ask(nvml, remapped_rows, handle, &corrected, &uncorrected, &rows_pending,
                       &rows_failed) == WEFT_NVML_OK) {
        health->rows_pending = rows_pending != 0;
        health->rows_failed = rows_failed != 0;
    }
}

void weft__gpu_read_health(const weft_nvml_t *nvml, weft_nvml_device_t handle, bool asked,
                           weft_gpu_t *gpu)
{
    weft_gpu_health_t health = {.asked = asked,
                                .busy = -1,
                                .throttle = -1,
                                .ecc = -1,
                                .ecc_uncorrected = -1,
                                .retire_pending = -1,
                                .rows_pending = -1,
                                .rows_failed = -1,
                                .persistence = -1,
                                .pcie_generation_own = -1};
    weft_nvml_utilization_t rates;
    unsigned long long reasons;
    unsigned generation;
    int mode;
    if (asked) {
        if (weft__nvml_ask(nvml, utilization, handle, &rates) == WEFT_NVML_OK && rates.gpu <= 100) {
            health.busy = (int)rates.gpu;
        }
        if (weft__nvml_ask(nvml, throttle_reasons, handle, &reasons) == WEFT_NVML_OK &&
            reasons <= INT64_MAX) {
            health.throttle = (int64_t)reasons;
        }
        if (weft__nvml_ask(nvml, persistence, handle, &mode) == WEFT_NVML_OK) {
            health.persistence = mode != 0;
        }
        if (weft__nvml_ask(nvml, pcie_generation_own, handle, &generation) == WEFT_NVML_OK &&
            generation <= INT_MAX) {
            health.pcie_generation_own = (int)generation;
        }
        ask_errors(nvml, handle, &health);
    }
    gpu->health = health;
}
