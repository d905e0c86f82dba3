/* Memory that NCCL is told of, so that networks and peers reach it where it is. */
#include <stdlib.h>

#include "base/log.h"
#include "comm/nccl/engine.h"
#include "device/cuda/cuda.h"

typedef struct weft_nccl_known {
    uint64_t id; /* of the slab */
    struct weft_nccl_known *next;
} weft_nccl_known_t;

/* Remembered also if NCCL refuses it: it is asked once. */
static void introduce(weft_nccl_t *nccl, const void *ptr)
{
    weft_cuda_slab_t slab;
    if (!ptr || !weft__cuda_find(ptr, 1, &slab) || slab.uses == 0) {
        return; /* of ours, not all ranks use the same pieces in one call, which NCCL would want */
    }
    for (weft_nccl_known_t *known = nccl->known; known; known = known->next) {
        if (known->id == slab.id) {
            return;
        }
    }
    weft_nccl_known_t *known = calloc(1, sizeof(*known));
    if (!known) {
        return;
    }
    known->id = slab.id;
    known->next = nccl->known;
    nccl->known = known;
    void *handle; /* to deregister earlier than the communicator's end, which is not done */
    weft_nccl_result_t result = nccl->api->CommRegister(nccl->comm, slab.base, slab.bytes, &handle);
    if (result != WEFT_NCCL_SUCCESS) {
        weft__info("NCCL does not register %zu bytes at %p: %s", slab.bytes, (void *)slab.base,
                   nccl->api->GetErrorString(result));
    }
}

void weft__nccl_introduce(weft_nccl_t *nccl, const weft_call_t *call)
{
    if (nccl->api->CommRegister) {
        introduce(nccl, call->src);
        introduce(nccl, call->dst);
    }
}

void weft__nccl_forget(weft_nccl_t *nccl)
{
    for (weft_nccl_known_t *known = nccl->known, *next; known; known = next) {
        next = known->next;
        free(known);
    }
}
