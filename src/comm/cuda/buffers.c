/* Buffers of calls: who reaches them. */
#include "comm/cuda/cuda.h"

bool weft__cuda_reaches(const weft_cuda_t *cuda, const void *ptr, size_t bytes)
{
    int gpu = bytes ? weft__cuda_where(ptr, bytes) : -1;
    return gpu == cuda->gpu || gpu == -1;
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
    if (!cuda->far) { /* in one process every address that some GPU of ours can follow will do */
        return weft__cuda_where(ptr, bytes) != -2;
    }
    if (!weft__cuda_find(ptr, bytes, &slab) || slab.device != cuda->device) {
        return false;
    }
    int number;
    *status_p = weft__cuda_number(&slab, &number);
    if (*status_p != WEFT_OK) {
        return true;
    }
    *ref_p = (uint64_t)(number + 1) << 48 | (uint64_t)((const char *)ptr - slab.base);
    *status_p = weft__cuda_publish(cuda, number);
    return *status_p != WEFT_OK || cuda->cards[cuda->rank]->slab[number].bytes > 0;
}
