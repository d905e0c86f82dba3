/* CUDA devices, for the layers below. See device/device.h for what all devices have.
 *
 * A device of Weft is a place for a rank. With CUDA, device d is on GPU d modulo the number of GPUs
 * this process sees, so that a job of 8 ranks runs on a machine with one. Each device has a pool of
 * its own. The pool takes memory from the GPU in slabs, which are what other processes map; a slab
 * is only given back while no communicator is open, because freeing memory waits for all kernels of
 * the process, and a kernel of one rank may wait for a call that another rank has yet to make. */
#ifndef WEFT_DEVICE_CUDA_H
#define WEFT_DEVICE_CUDA_H

#include "device/cuda_module.h"
#include "device/device.h"

/* Is there a GPU to use? If not, the reason is in *why_p (may be NULL). The first call loads the
 * module. */
bool weft__cuda_load(const char **why_p);

/* Has loading it put this variable into the environment? It is meant for this process alone: ranks
 * that it starts would together ask for more connections than MPS has. */
#define WEFT_CUDA_CONNECTIONS "CUDA_DEVICE_MAX_CONNECTIONS"
bool weft__cuda_widened(void);

/* The CUDA that the module was built with (13000: 13.0); 0: there is no module, or it does not say.
 * Neither driver nor GPUs are started. */
int weft__cuda_module_version(void);

/* All that follows: only after weft__cuda_load was true. */

/* A layer's table in the module, by name; static, and looked up once. */
typedef struct weft_cuda_table {
    const char *name;
    _Atomic(const void *) found; /* the same for all who look: nothing to order */
} weft_cuda_table_t;

/* NULL: the module has no such table, or one of another abi. */
const void *weft__cuda_table(weft_cuda_table_t *table);

const weft_cuda_device_ops_t *weft__cuda(void);
int weft__cuda_gpus(void);
int weft__cuda_gpu(int device);
const weft_cuda_props_t *weft__cuda_props(int gpu);

/* WEFT_OK for 0, else the sentence "<what>: <CUDA's text>", as this thread's error. */
weft_status_t weft__cuda_status(int error, const char *what);

/* The CUDA stream behind `stream`; of NULL, the calling thread's default one. */
void *weft__cuda_stream(weft_stream_h stream);
int weft__cuda_stream_gpu(weft_stream_h stream); /* not of NULL */
bool weft__cuda_wrapped(weft_stream_h stream);   /* not of NULL: is it the program's own? */

/* A stream that may be destroyed by now, and its handle be another stream's. */
typedef struct weft_cuda_past {
    weft_stream_h stream; /* NULL: none */
    uint64_t life;
} weft_cuda_past_t;
weft_cuda_past_t weft__cuda_past(weft_stream_h stream);

/* Of such a stream: whether it is idle; wait for it; record `event` (native) on it. One that was
 * destroyed is idle, and there is nothing to record. */
bool weft__cuda_idle(const weft_cuda_past_t *past);
void weft__cuda_drain(const weft_cuda_past_t *past);
int weft__cuda_record(const weft_cuda_past_t *past, void *event, bool *recorded_p);

/* ---- slabs ------------------------------------------------------------------------------ */

typedef struct weft_cuda_slab {
    int device;
    int number; /* among the slabs of its device that others may know; -1: it has none yet */
    char *base;
    size_t bytes;
    uint64_t id; /* random, never 0 */
    int uses; /* 0: the pool's. Else an allocation of the program's; how often it is registered is
                  * known to its pool alone */
} weft_cuda_slab_t;

/* The slab that holds [ptr, ptr + bytes); false if it is neither from weft_malloc nor
 * registered. */
bool weft__cuda_find(const void *ptr, size_t bytes, weft_cuda_slab_t *slab_p);

/* The number of a slab, which gets one if it has none. */
weft_status_t weft__cuda_number(const weft_cuda_slab_t *slab, int *number_p);

/* The GPU whose memory [ptr, ptr + bytes) is, bytes > 0; -1: host memory that GPUs reach, at both
 * ends; -2: they do not. Memory of slabs is found without asking CUDA. */
int weft__cuda_where(const void *ptr, size_t bytes);

/* How many numbers `device` has given to slabs so far, and one of these slabs. */
int weft__cuda_slab_count(int device);
weft_cuda_slab_t weft__cuda_slab(int device, int number);

/* While held, no slab and no pinned memory is given back. */
void weft__cuda_hold(void);
void weft__cuda_unhold(void);
bool weft__cuda_held(void);

/* ---- who to ask whether the work of a stream went well ---------------------------------- */

/* `ask(ctx, error)` is called after the stream was waited for, with CUDA's error or 0: kernels
 * cannot return a status, and CUDA does not know whose fault it was. Until weft__cuda_forget, which
 * also waits for one that is under way. To be called before the work is queued, as it may fail;
 * once for a `ctx` is enough. */
typedef weft_status_t (*weft_cuda_check_fn)(void *ctx, int error);
weft_status_t weft__cuda_remember(weft_stream_h stream, weft_cuda_check_fn ask, void *ctx);
void weft__cuda_forget(void *ctx);

#endif
