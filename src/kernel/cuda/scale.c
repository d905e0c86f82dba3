/* weft_scale on GPUs, this side of the module: which GPU and stream, and what the GPU reaches. */
#include "kernel/cuda/scale.h"

#include <string.h>

#include "base/log.h"
#include "device/cuda.h"
#include "kernel/cuda/compute.h"

static weft_status_t find_module(const weft_cuda_scale_ops_t **ops_p)
{
    static weft_cuda_table_t table = {.name = "weft_cuda_scale"};
    *ops_p = weft__cuda_table(&table);
    return *ops_p != NULL ? WEFT_OK
                          : weft__fail(WEFT_ERR_UNSUPPORTED,
                                       "weft_scale: the CUDA module has no such kernels");
}

weft_status_t weft__scale_load(int gpu)
{
    const weft_cuda_scale_ops_t *ops;
    WEFT_TRY(find_module(&ops));
    return weft__cuda_status(ops->load(gpu), "kernels cannot be loaded");
}

static weft_status_t check_reach(const char *name, const void *ptr, size_t bytes, int gpu)
{
    int where = weft__cuda_where(ptr, bytes);
    if (where == -2) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_scale: %s %p is plain host memory, which GPU %d does not reach",
                          name, ptr, gpu);
    }
    if (where >= 0 && where != gpu) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_scale: %s %p is memory of GPU %d, and the stream is on GPU %d",
                          name, ptr, where, gpu);
    }
    return WEFT_OK;
}

weft_status_t weft__scale_cuda(weft_scaling_t *args, const void *scalar, weft_stream_h stream)
{
    const weft_cuda_scale_ops_t *ops;
    size_t element = weft_dtype_size(args->type), bytes = args->count * element;
    int gpu = weft__compute_gpu(stream);
    WEFT_TRY(find_module(&ops));
    WEFT_TRY(check_reach("dst", args->dst, bytes, gpu));
    WEFT_TRY(check_reach("src", args->src, bytes, gpu));
    if (weft__cuda_where(scalar, element) >= 0) {
        WEFT_TRY(check_reach("scalar", scalar, element, gpu));
        args->scalar = scalar;
    } else {
        memcpy(args->value, scalar, element);
    }
    int error = ops->scale(gpu, args, weft__cuda_stream(stream));
    if (error == 0 && stream == NULL) {
        error = weft__cuda()->stream_sync(gpu, WEFT_CUDA_THREAD_STREAM);
    }
    return weft__cuda_status(error, "weft_scale");
}
