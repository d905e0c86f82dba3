/* Pinned host memory. Giving it back to CUDA waits for all kernels of the process, as freeing
 * device memory does, so it is kept for reuse while a communicator is open. */
#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/cuda/memory.h"

#define FRONT 256 /* bytes before what the caller gets */
#define GRANULE ((size_t)4096)

typedef struct block {
    size_t bytes; /* of all, front included */
    struct block *next;
} block_t;

_Static_assert(sizeof(block_t) <= FRONT, "the description fits");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block_t *kept;

/* The smallest kept block that fits without wasting more than half of it. */
static block_t *take_kept(size_t bytes)
{
    block_t **best = NULL;
    pthread_mutex_lock(&lock);
    for (block_t **at = &kept; *at; at = &(*at)->next) {
        if ((*at)->bytes >= bytes && (*at)->bytes / 2 <= bytes &&
            (!best || (*at)->bytes < (*best)->bytes)) {
            best = at;
        }
    }
    block_t *block = best ? *best : NULL;
    if (block) {
        *best = block->next;
    }
    pthread_mutex_unlock(&lock);
    return block;
}

weft_status_t weft__cuda_pin(void **ptr_p, size_t bytes)
{
    if (bytes > SIZE_MAX - FRONT - GRANULE) { /* rounded up, it would be small again */
        return weft__fail(WEFT_ERR_NO_MEMORY, "weft_host_malloc: no %zu bytes of pinned memory",
                          bytes);
    }
    size_t all = (bytes + FRONT + GRANULE - 1) / GRANULE * GRANULE;
    block_t *block = take_kept(all);
    if (!block) {
        void *memory;
        int error = weft__cuda()->host_alloc(&memory, all);
        if (error != 0) {
            return weft__fail(WEFT_ERR_NO_MEMORY,
                              "weft_host_malloc: no %zu bytes of pinned memory: CUDA says: %s",
                              bytes, weft__cuda()->error_text(error));
        }
        block = memory;
        block->bytes = all;
    }
    *ptr_p = (char *)block + FRONT;
    return WEFT_OK;
}

weft_status_t weft__cuda_unpin(void *ptr)
{
    block_t *block = (block_t *)((char *)ptr - FRONT);
    if (!weft__cuda_held()) {
        return weft__cuda_status(weft__cuda()->host_release(block), "weft_host_free");
    }
    pthread_mutex_lock(&lock);
    block->next = kept;
    kept = block;
    pthread_mutex_unlock(&lock);
    return WEFT_OK;
}
