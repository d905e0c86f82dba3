/* Buffers of calls: who reaches them. */
#include "base/log.h"
#include "comm/cuda/cuda.h"

bool weft__cuda_reaches(const weft_cuda_t *cuda, const void *ptr, size_t bytes)
{
    int gpu = bytes ? weft__cuda_where(ptr, bytes) : -1;
    return gpu == cuda->gpu || gpu == -1;
}

weft_status_t weft__cuda_ref(weft_cuda_t *cuda, const void *ptr, size_t bytes,
                             weft_cuda_ref_t *ref_p, bool *reached_p)
{
    weft_cuda_slab_t slab;
    int number;
    *ref_p = bytes ? (uint64_t)(uintptr_t)ptr : 0;
    if (bytes == 0 ||
        !cuda->far) { /* in one process every address that some GPU of ours can follow will do */
        *reached_p = bytes == 0 || weft__cuda_where(ptr, bytes) != -2;
        return WEFT_OK;
    }
    *reached_p = weft__cuda_find(ptr, bytes, &slab) && slab.device == cuda->device;
    if (!*reached_p) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__cuda_number(&slab, &number));
    *ref_p = (uint64_t)(number + 1) << 48 | (uint64_t)((const char *)ptr - slab.base);
    WEFT_TRY(weft__cuda_publish(cuda, number));
    *reached_p = cuda->infos[cuda->rank]->slab[number].bytes > 0;
    return WEFT_OK;
}
