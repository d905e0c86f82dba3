/* Weft: cudaProfilerStart and cudaProfilerStop, which do nothing on virtual GPUs. */
#ifndef WEFT_CUDART_CUDA_PROFILER_API_H
#define WEFT_CUDART_CUDA_PROFILER_API_H
#define __CUDA_PROFILER_API_H__ /* by which programs know that CUDA's is there */

#include <weft/cudart/cuda_runtime_api.h>

#endif
