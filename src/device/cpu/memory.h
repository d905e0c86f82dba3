/* The memories of this process's virtual GPUs, each made at its first use, and never unmade. */
#ifndef WEFT_DEVICE_CPU_MEMORY_H
#define WEFT_DEVICE_CPU_MEMORY_H

#include "device/cpu/pool.h"

/* WEFT_OK, or the sentence that this process is the child of a fork of one that used Weft: it has
 * none of the threads, and shares the memory with a parent that knows nothing of it. `call` begins
 * the sentence. */
weft_status_t weft__fork_guard(const char *call);

/* As the public calls, without checks of their arguments. */
weft_status_t weft__heap_stats(int device, weft_pool_stats_t *stats_p);
weft_status_t weft__heap_trim(int device, uint64_t keep);

/* As weft__bounds_find. */
weft_status_t weft__heap_bounds(const void *ptr, weft_bounds_t *bounds, int *device_p);

/* The base of this process's own heap with that id, or NULL. */
char *weft__memory_by_id(uint64_t id);

#endif
