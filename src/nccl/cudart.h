/* What Weft's CUDA runtime (cudart/) gives to libnccl, which finds it by name: a program on virtual
 * GPUs may do without it. */
#ifndef WEFT_NCCL_CUDART_H
#define WEFT_NCCL_CUDART_H

#include <weft/types.h>

#include <weft/status.h>

/* The stream of Weft's behind `stream`, a cudaStream_t, on `device`; NULL: the legacy default
 * stream. What CUDA's order asks it to wait for is queued on it; the caller then queues its work. */
typedef weft_status_t weft_cudart_enter_fn(void *stream, int device, weft_stream_h *stream_p);
weft_cudart_enter_fn weft_cudart_enter;

#endif
