/* The inner loops of compression, built once per instruction set. Internal. */
#ifndef WEFT_KERNEL_CPU_COMPRESS_H
#define WEFT_KERNEL_CPU_COMPRESS_H

#include "kernel/compress.h"

typedef struct weft_compress_inner {
    const char *name; /* as the kernels' tables */
    void (*quantize)(const weft_quantize_t *args);
    void (*dequantize)(const weft_dequantize_t *args);
    void (*peak)(const weft_peak_t *args);
    void (*to_f16)(const weft_f16_t *args, float scale);
    void (*from_f16)(const weft_f16_t *args, float scale);
} weft_compress_inner_t;

/* The table of kernel/compress.h for virtual GPUs. */
extern const weft_compress_ops_t weft__compress_cpu;

extern const weft_compress_inner_t weft__compress_avx512, weft__compress_avx2, weft__compress_none;

#endif
