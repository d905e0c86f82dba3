/* The CUDA module: everything that needs the CUDA toolkit to be compiled, as a library of its own
 * that is loaded when there is a GPU (libweft-cuda.so). The rest of Weft is built without CUDA and
 * calls it through tables. Each layer that has kernels declares a table of its own and exports it
 * from the module under a name of its own; this is the table of devices. A table begins with its
 * abi.
 *
 * The module holds no policy and no state of Weft's: pools, order, errors and names are made on
 * this side of the table. Functions return 0 or a CUDA error (error_text says what it is), may be
 * called by any thread, and select the GPU they are given for the calling thread. */
#ifndef WEFT_DEVICE_CUDA_MODULE_H
#define WEFT_DEVICE_CUDA_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WEFT_CUDA_ABI 12 /* of all tables */
#define WEFT_CUDA_IPC_BYTES 64
#define WEFT_CUDA_SLABS 256 /* pieces of memory of one device; what other processes map */

/* For the default stream of a thread: work on it is followed by a stream_sync. */
#define WEFT_CUDA_THREAD_STREAM ((void *)2)

typedef struct weft_cuda_props {
    char name[96];
    uint8_t uuid[16];
    char pci[32];
    uint64_t memory; /* bytes, all of it */
    int major, minor;
    int sms;
    int l2;  /* bytes */
    int mps; /* processes share this GPU through MPS: 1 yes, 0 no, -1 the driver does not say */
} weft_cuda_props_t;

typedef struct weft_cuda_device_ops {
    uint32_t abi; /* WEFT_CUDA_ABI */
    const char *(*error_text)(int error);

    int (*count)(int *count_p);
    int (*props)(int gpu, weft_cuda_props_t *props_p);
    int (*memory)(int gpu, size_t *free_p, size_t *total_p);

    int (*alloc)(int gpu, void **ptr_p, size_t bytes);
    int (*release)(int gpu, void *ptr);
    /* Host memory that GPUs reach at the same address. */
    int (*host_alloc)(void **ptr_p, size_t bytes);
    int (*host_release)(void *ptr);
    /* The same for memory that is there already. */
    int (*host_register)(void *ptr, size_t bytes);
    int (*host_unregister)(void *ptr);
    /* The allocation of `gpu` that `ptr` is in, and whether ipc_export takes it. */
    int (*range)(int gpu, const void *ptr, void **base_p, size_t *bytes_p, bool *shares_p);
    /* The GPU whose memory `ptr` is in; -1: host memory that GPUs reach; -2: they do not. */
    int (*where)(const void *ptr, int *gpu_p);
    int (*copy)(int gpu, void *dst, const void *src, size_t bytes, void *stream);
    int (*fill)(int gpu, void *dst, int value, size_t bytes, void *stream);

    int (*stream_create)(int gpu, void **stream_p);
    int (*stream_destroy)(int gpu, void *stream);
    int (*stream_sync)(int gpu, void *stream);
    int (*stream_idle)(int gpu, void *stream, bool *idle_p);
    int (*stream_wait)(int gpu, void *stream, void *event);
    int (*stream_call)(int gpu, void *stream, void (*fn)(void *arg), void *arg);
    /* Calls of this thread do not disturb graphs that other threads capture. */
    int (*relax)(void);
    int (*stream_capturing)(int gpu, void *stream, bool *capturing_p);

    /* Between begin and end, work on the stream goes into a graph, which can then be run many
     * times. */
    int (*graph_begin)(int gpu, void *stream);
    int (*graph_end)(int gpu, void *stream, void **graph_p);
    int (*graph_launch)(int gpu, void *graph, void *stream);
    int (*graph_destroy)(int gpu, void *graph);

    int (*event_create)(int gpu, void **event_p);
    int (*event_destroy)(int gpu, void *event);
    int (*event_record)(int gpu, void *event, void *stream);
    int (*event_done)(int gpu, void *event, bool *done_p);
    int (*event_sync)(int gpu, void *event);
    int (*event_elapsed)(int gpu, void *start, void *end, float *ms_p);

    /* Memory of other processes: `handle` is of what alloc returned. The same handle opened twice
     * gives the same address, counted. */
    int (*ipc_export)(int gpu, void *ptr, uint8_t handle[WEFT_CUDA_IPC_BYTES]);
    int (*ipc_open)(int gpu, const uint8_t handle[WEFT_CUDA_IPC_BYTES], void **ptr_p);
    int (*ipc_close)(int gpu, void *ptr);

    /* Let kernels on `gpu` reach the memory of `other`; *reached_p false if they cannot. */
    int (*reach)(int gpu, int other, bool *reached_p);
} weft_cuda_device_ops_t;

/* For declarations of tables, which are defined inside the module. */
#define WEFT_CUDA_EXPORT extern __attribute__((visibility("default")))

#define WEFT_CUDA_DEVICE "weft_cuda_device"
WEFT_CUDA_EXPORT const weft_cuda_device_ops_t weft_cuda_device;

/* The CUDA that the module was built with, as CUDART_VERSION has it (13000: 13.0); to be read
 * where no driver is needed. */
#define WEFT_CUDA_VERSION "weft_cuda_version"
WEFT_CUDA_EXPORT const int weft_cuda_version;

#ifdef __cplusplus
}
#endif
#endif
