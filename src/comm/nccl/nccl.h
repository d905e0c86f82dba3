/* The nccl engine: NCCL carries out the calls of one rank of a communicator.
 *
 * An engine knows nothing of Weft's communicators: whoever owns it brings the ranks together, keeps
 * the order of calls across streams and decides when to give up. It does not wait on the GPU
 * either.
 *
 * Communicators of NCCL are made in its blocking mode. In the other one, every launch starts a
 * thread (up to NCCL 2.30 at least), which costs more than a small collective. What blocking calls
 * wait for other ranks in is handled here: joining and splitting run in a thread of their own that
 * can be left behind, and a launch that is stuck while NCCL connects to a peer returns after
 * weft__nccl_abort. Where the user forces the other mode (NCCL_COMM_BLOCKING=0), "in progress" is
 * waited for. */
#ifndef WEFT_COMM_NCCL_NCCL_H
#define WEFT_COMM_NCCL_NCCL_H

#include "comm/call.h"
#include "comm/nccl/api.h"
#include "device/cuda_module.h"

typedef struct weft_nccl weft_nccl_t;

/* Where a rank's engine works. */
typedef struct weft_nccl_binding {
    int device;                        /* Weft's: whose pool memory comes from */
    int gpu;                           /* CUDA's */
    const weft_cuda_device_ops_t *ops; /* weft__cuda(), or a test's */
} weft_nccl_binding_t;

/* Names a communicator of NCCL to be. Made by one rank and handed to all; its process must live
 * until all have joined. */
weft_status_t weft__nccl_id_create(weft_nccl_id_t *id_p);

/* Join as `rank` of `size`, and wait for all others. WEFT_ERR_TIMEOUT after timeout_ms (0: never);
 * WEFT_ERR_UNSUPPORTED with advice if NCCL is missing or refuses, as it does where ranks share a
 * GPU. The same in two steps, so that one thread can bring up several ranks and look after other
 * things meanwhile: enter begins, meet waits for at most timeout_ms and returns WEFT_PENDING if it
 * is not done by then. What was entered is closed, also if meet fails. */
weft_status_t weft__nccl_open(const weft_nccl_id_t *id, int rank, int size,
                              const weft_nccl_binding_t *binding, int timeout_ms,
                              weft_nccl_t **nccl_p);
weft_status_t weft__nccl_enter(const weft_nccl_id_t *id, int rank, int size,
                               const weft_nccl_binding_t *binding, weft_nccl_t **nccl_p);
weft_status_t weft__nccl_meet(weft_nccl_t *nccl, int timeout_ms);

int weft__nccl_rank(const weft_nccl_t *nccl);
int weft__nccl_size(const weft_nccl_t *nccl);

/* Queue calls on a CUDA stream: one collective, several all-reduces, or sends and receives that may
 * run in any order. Calls of one engine come from one thread at a time; the caller makes sure that
 * those on different streams run in order, and that GPUs reach the buffers. An error of NCCL's
 * breaks the engine. Averages of floats are sums of what was divided before; f16 and bf16 are added
 * as such. */
weft_status_t weft__nccl_launch(weft_nccl_t *nccl, const weft_call_t *calls, int n, void *stream);

/* What the calling thread launches in between, on any engines, is queued by the end: one thread
 * that drives several ranks must do so, since they may wait for each other. Nests. */
weft_status_t weft__nccl_group_start(void);
weft_status_t weft__nccl_group_end(void);

/* WEFT_OK, also while something is in progress, or what broke the engine, and the sentence, which
 * stays as long as the engine. Any thread. */
weft_status_t weft__nccl_error(weft_nccl_t *nccl, const char **text_p);

/* End what runs on the GPU and what waits inside NCCL, on this rank: all ranks must do so. Further
 * launches return WEFT_ERR_ABORTED, or the error if there was one. Any thread, any number of
 * times. */
void weft__nccl_abort(weft_nccl_t *nccl);

/* The engine of those that gave the same color, in the order of key and rank; a negative color
 * joins none: *child_p is NULL. Collective. A timeout breaks `nccl` as well. */
weft_status_t weft__nccl_split(weft_nccl_t *nccl, int color, int key, int timeout_ms,
                               weft_nccl_t **child_p);

/* Frees the engine, once what it was given has run; at once if it is broken. NULL is allowed. NCCL
 * gives memory back to the GPU then, for which CUDA waits until kernels of this process have
 * ended. */
void weft__nccl_close(weft_nccl_t *nccl);

#endif
