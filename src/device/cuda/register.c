/* Memory that is not ours: allocations of a GPU become slabs, host memory is pinned. */
#include <stdlib.h>

#include "base/log.h"
#include "device/cuda/memory.h"

typedef struct entry {
    int device;
    void *base; /* of the allocation; or what was pinned */
    bool host;
} entry_t;

static weft_status_t pin_host(void *ptr, size_t bytes)
{
    int error = weft__cuda()->host_register(ptr, bytes);
    return error == 0
               ? WEFT_OK
               : weft__fail(WEFT_ERR_UNSUPPORTED,
                            "weft_register: %zu bytes of host memory at %p cannot be pinned: "
                            "CUDA says: %s",
                            bytes, ptr, weft__cuda()->error_text(error));
}

static weft_status_t adopt(int device, void *ptr, size_t bytes, void **base_p)
{
    char *base, *at = ptr;
    void *found;
    size_t room;
    bool shares = false;
    int gpu = weft__cuda_gpu(device);
    int error = weft__cuda()->range(gpu, ptr, &found, &room, &shares);
    if (error != 0) {
        return weft__cuda_status(error, "weft_register: the allocation is not known");
    }
    base = found;
    if (bytes > room || (size_t)(at - base) > room - bytes) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_register: %zu bytes at %p go beyond their allocation, %zu bytes at "
                          "%p",
                          bytes, ptr, room, found);
    }
    if (!shares) {
        return weft__fail(
            WEFT_ERR_UNSUPPORTED,
            "weft_register: CUDA does not share the memory at %p with other processes, "
            "only what is from cudaMalloc; calls copy it as before",
            ptr);
    }
    *base_p = found;
    return weft__cuda_adopt(device, found, room);
}

weft_status_t weft__cuda_enlist(int device, void *ptr, size_t bytes, void **entry_p)
{
    weft_cuda_slab_t slab;
    int gpu = -2;
    if (weft__cuda_find(ptr, bytes, &slab) && slab.uses == 0) {
        return WEFT_OK; /* from weft_malloc */
    }
    int error = weft__cuda()->where(ptr, &gpu);
    if (error != 0 || gpu == -1) { /* pinned by somebody else */
        return weft__cuda_status(error, "weft_register");
    }
    if (gpu >= 0 && gpu != weft__cuda_gpu(device)) {
        return weft__fail(
            WEFT_ERR_INVALID,
            "weft_register: %p is memory of GPU %d, and the current device, %d, is on "
            "GPU %d",
            ptr, gpu, device, weft__cuda_gpu(device));
    }
    entry_t *entry = malloc(sizeof(*entry));
    if (!entry) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "weft_register: no memory to remember %p", ptr);
    }
    *entry = (entry_t){device, ptr, gpu < 0};
    weft_status_t status = entry->host ? pin_host(ptr, bytes)
                                       : adopt(device, ptr, bytes, &entry->base);
    if (status != WEFT_OK) {
        free(entry);
        return status;
    }
    *entry_p = entry;
    return WEFT_OK;
}

weft_status_t weft__cuda_delist(void *arg)
{
    entry_t *entry = arg;
    int error = 0;
    if (entry->host) {
        error = weft__cuda()->host_unregister(entry->base);
    } else {
        weft__cuda_disown(entry->device, entry->base);
    }
    free(entry);
    return weft__cuda_status(error, "weft_unregister");
}
