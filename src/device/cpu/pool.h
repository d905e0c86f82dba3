/* The memory pool of one virtual GPU: what of its heap is handed out. Thread-safe. */
#ifndef WEFT_DEVICE_CPU_POOL_H
#define WEFT_DEVICE_CPU_POOL_H

#include <pthread.h>

#include "device/cpu/heap.h"
#include "device/space.h"

#define WEFT_POOL_GRANULE 256u /* small allocations are multiples of this */
#define WEFT_POOL_LARGE 65536u /* from here on they are whole pages */

typedef struct weft_pool {
    pthread_mutex_t lock;
    weft_heap_t *heap;
    uint64_t keep;      /* unused bytes that are not given back on free */
    uint64_t capacity;  /* bytes of the heap without its header */
    uint64_t region;    /* bytes of a region for small allocations */
    weft_space_t pages; /* large allocations and regions */
    weft_space_t small; /* inside the regions */
    weft_pool_stats_t stats;
} weft_pool_t;

weft_status_t weft__pool_init(weft_pool_t *pool, weft_heap_t *heap, uint64_t keep);
void weft__pool_cleanup(weft_pool_t *pool);

/* As weft_malloc. WEFT_ERR_NO_MEMORY sets *shortage_p and leaves the sentence to the caller. */
weft_status_t weft__pool_alloc(weft_pool_t *pool, size_t bytes, void **ptr_p,
                               weft_shortage_t *shortage_p);

/* Free what starts at `offset`. WEFT_ERR_INVALID if nothing in use does. */
weft_status_t weft__pool_free(weft_pool_t *pool, uint64_t offset);

/* The allocation in use that `offset` is in; false: there is none. */
typedef struct weft_pool_allocation {
    uint64_t offset, bytes; /* as asked for */
    const _Atomic uint64_t *serial_p;
    uint64_t serial; /* it is in use while *serial_p is this */
} weft_pool_allocation_t;
bool weft__pool_find(weft_pool_t *pool, uint64_t offset, weft_pool_allocation_t *piece_p);

/* Give memory back until at most `keep` unused bytes are held; returns how much was given. Pages
 * that also hold small allocations in use stay. */
uint64_t weft__pool_trim(weft_pool_t *pool, uint64_t keep);

void weft__pool_stats(weft_pool_t *pool, weft_pool_stats_t *stats_p);

#endif
