/* Lists of GPUs in sentences. */
#ifndef WEFT_DOCTOR_GPU_WORDS_H
#define WEFT_DOCTOR_GPU_WORDS_H

#include "doctor/doctor.h"

#define WEFT_GPU_LIST 256

/* GPUs that something is true of, by NVML's numbers: "GPU 3", "GPUs 0, 1, 5", cut with "...". */
typedef struct weft_gpu_list {
    int count;
    char text[WEFT_GPU_LIST];
} weft_gpu_list_t;

/* Add one; starts from {0}. */
void weft__gpu_list_add(weft_gpu_list_t *list, const weft_gpu_t *gpu);

#endif
