/* Slabs of other processes that are mapped here. */
#ifndef WEFT_COMM_CUDA_MAPS_H
#define WEFT_COMM_CUDA_MAPS_H

#include "device/cuda_module.h"

/* Map the slab `id` of another process (never 0, never used again) for `gpu`; mapped before, it has
 * the address it had. 0, a CUDA error, or -1: no memory. One unmap per map. */
int weft__cuda_map(int gpu, uint64_t id, const uint8_t handle[WEFT_CUDA_IPC_BYTES], void **base_p);
void weft__cuda_unmap(int gpu, uint64_t id);

/* Unmap what nobody uses, unless a communicator is open. */
void weft__cuda_unmap_unused(void);

#endif
