/* Memory of CUDA devices: a pool each, made of slabs. See cuda.h. */
#ifndef WEFT_DEVICE_CUDA_MEMORY_H
#define WEFT_DEVICE_CUDA_MEMORY_H

#include "device/cuda.h"

weft_status_t weft__cuda_alloc(int device, void **ptr_p, size_t bytes);
weft_status_t weft__cuda_free(void *ptr);
weft_status_t weft__cuda_stats(int device, weft_pool_stats_t *stats_p);
weft_status_t weft__cuda_trim(int device, uint64_t keep);
weft_status_t weft__cuda_bounds(const void *ptr, weft_bounds_t *bounds, int *device_p);

/* Make an allocation of the program's a slab of `device`, for as often as it is adopted; the pool
 * hands nothing out from it. Its number is not used again while slabs are held. */
weft_status_t weft__cuda_adopt(int device, void *base, size_t bytes);
void weft__cuda_disown(int device, void *base);

/* Memory of the program's (register.c). */
weft_status_t weft__cuda_enlist(int device, void *ptr, size_t bytes, void **entry_p);
weft_status_t weft__cuda_delist(void *entry);

/* Pinned host memory. */
weft_status_t weft__cuda_pin(void **ptr_p, size_t bytes);
weft_status_t weft__cuda_unpin(void *ptr);

#endif
