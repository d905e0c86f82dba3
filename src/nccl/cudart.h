/* What the CUDA runtime on virtual GPUs (libweft-cudart.so, src/nccl/cudart/) offers to Weft's NCCL
 * library. That one looks the function up at run time (dlsym), since programs on real GPUs have
 * NVIDIA's runtime instead: this prototype is the contract.
 *
 * Memory that a library hands to programs for use with CUDA's calls comes best from cudaMalloc,
 * found the same way: cudaPointerGetAttributes and cudaFree then know it. Any other memory from
 * weft_malloc works too, as long as programs do not ask what it is. */
#ifndef WEFT_NCCL_CUDART_H
#define WEFT_NCCL_CUDART_H

#include <stdbool.h>

#include <weft/device.h>

#define WEFT_CUDART_ENTER "weft_cudart_enter"

/* The Weft stream behind the cudaStream_t `stream` of `device`, to queue work on: NULL and 0x1 are
 * the device's legacy stream, 0x2 is the calling thread's own. Queues the waits that CUDA's order
 * asks for: work of the legacy stream comes after all that blocking streams were given before, and
 * the other way round. The caller queues its work before this thread's next call of the runtime.
 *
 * WEFT_ERR_INVALID: the stream is destroyed, or of another device, or there is no such device. */
weft_status_t weft_cudart_enter(void *stream, int device, weft_stream_h *stream_p);
typedef weft_status_t (*weft_cudart_enter_fn)(void *stream, int device, weft_stream_h *stream_p);

/* The other way round: whether a communicator of `device` is broken, with its sentence in `text`,
 * until the program aborts or destroys it. The runtime asks that after it has waited. */
#define WEFT_NCCL_BROKEN "weft_nccl_broken"
bool weft_nccl_broken(int device, char *text, size_t room);
typedef bool (*weft_nccl_broken_fn)(int device, char *text, size_t room);

#endif
