/* Buffers of calls: who reaches them. */
#include "comm/cuda/cuda.h"

bool weft__cuda_reaches(const weft_cuda_t *cuda, const void *ptr, size_t bytes)
{
    weft_cuda_slab_t slab;
    int gpu = -2;
    if (bytes == 0) {
        return true;
    }
    if (weft__cuda_find(ptr, bytes, &slab)) {
        gpu = weft__cuda_gpu(slab.device);
    } else if (weft__cuda()->where(ptr, &gpu) != 0) {
        return false;
    }
    return gpu == cuda->gpu || gpu == -1;
}

/* In one process every address that some GPU of ours can follow will do; it is only asked for where
 * the memory is not from weft_malloc. */
static bool near_ref(const void *ptr, size_t bytes)
{
    weft_cuda_slab_t slab;
    int gpu = -2;
    return weft__cuda_find(ptr, bytes, &slab) || (weft__cuda()->where(ptr, &gpu) == 0 && gpu != -2);
}

bool weft__cuda_ref(weft_cuda_t *cuda, const void *ptr, size_t bytes, weft_cuda_ref_t *ref_p,
                    weft_status_t *status_p)
{
    weft_cuda_slab_t slab;
    *ref_p = (uint64_t)(uintptr_t)ptr;
    if (bytes == 0) {
        *ref_p = 0;
        return true;
    }
    if (!cuda->far) {
        return near_ref(ptr, bytes);
    }
    if (!weft__cuda_find(ptr, bytes, &slab) || slab.device != cuda->device) {
        return false;
    }
    *ref_p = (uint64_t)(slab.number + 1) << 48 | (uint64_t)((const char *)ptr - slab.base);
    *status_p = weft__cuda_publish(cuda, slab.number);
    return true;
}
