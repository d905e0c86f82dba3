/* Memory that NCCL is told of, so that networks and peers reach it where it is. If one rank gives
 * such memory to a call, all must, or NCCL may do anything: so it is only told where that was asked
 * for. */
#include <stdlib.h>

#include "base/log.h"
#include "base/settings.h"
#include "comm/nccl/engine.h"
#include "device/cuda.h"

typedef struct weft_nccl_known {
    const void *base;
    size_t bytes;
    struct weft_nccl_known *next;
} weft_nccl_known_t;

/* Remembered also if NCCL refuses it: it is asked once. */
static void introduce(weft_nccl_t *nccl, const void *ptr)
{
    weft_cuda_slab_t slab;
    if (!ptr || !weft__cuda_find(ptr, 1, &slab) || slab.uses == 0) {
        return;
    }
    for (weft_nccl_known_t *known = nccl->known; known; known = known->next) {
        if (known->base == slab.base && known->bytes == slab.bytes) {
            return;
        }
    }
    weft_nccl_known_t *known = calloc(1, sizeof(*known));
    if (!known) {
        return;
    }
    known->base = slab.base;
    known->bytes = slab.bytes;
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
    if (nccl->api->CommRegister && weft__settings()->nccl_register) {
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
