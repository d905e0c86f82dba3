/* Inside of devices, for the layers below: work on streams, and memory shared between processes.
 * The public side is include/weft/device.h. */
#ifndef WEFT_DEVICE_INTERNAL_H
#define WEFT_DEVICE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <weft/device.h>

#define WEFT_MAX_DEVICES 256

/* ---- streams ---------------------------------------------------------------------------- */

/* Queue `fn(arg)` on `stream`, which must not be NULL. A failing status becomes the stream's
 * sticky error, with the sentence the worker's weft_last_error() holds, so that synchronize
 * returns both. On failure to queue, fn is not called. */
weft_status_t weft__stream_push(weft_stream_h stream, weft_status_t (*fn)(void *arg), void *arg);

int weft__stream_device(weft_stream_h stream);

/* ---- memory that peers map -------------------------------------------------------------- */

/* The memory of one virtual GPU is one sparse memfd of the size of the device (its capacity),
 * mapped once by its owner and once by every peer process that communicates with it. So a pointer
 * in it is (device, offset), and reaching it from another process is one addition. Pages exist
 * only where memory was handed out. */

/* What a peer needs to map this memory; plain bytes, sent through the rendezvous. */
typedef struct weft_heap_handle {
    uint64_t id;    /* random, never 0: tells heaps apart, also after a pid is used again */
    uint64_t bytes; /* capacity: the size of the mapping */
    int32_t pid;    /* owner */
    int32_t fd;     /* the memfd in the owner: opened as /proc/<pid>/fd/<fd> */
} weft_heap_handle_t;

/* The handle of `device`'s memory in this process; makes the heap if it was not used yet. */
weft_status_t weft__heap_export(int device, weft_heap_handle_t *handle_p);

/* Map a peer's heap; *base_p is where its offset 0 is here. Heaps of this same process, and heaps
 * mapped before, give the address they have (counted: one close per open). Fails with a sentence
 * that names the pid. */
weft_status_t weft__heap_open(const weft_heap_handle_t *handle, char **base_p);
void weft__heap_close(const weft_heap_handle_t *handle);

/* Is [ptr, ptr + bytes) inside the memory of a device of this process? If so its device and its
 * offset in that heap. Lock-free and fast: it is on the path of every collective. */
bool weft__heap_find(const void *ptr, size_t bytes, int *device_p, uint64_t *offset_p);

/* Allocate from such memory, whatever kind the devices are of. */
weft_status_t weft__heap_malloc(int device, void **ptr_p, size_t bytes);
weft_status_t weft__heap_free(void *ptr);

/* ---- devices of any kind ---------------------------------------------------------------- */

/* Are the devices of this process GPUs? False also where the setting cannot be met. */
bool weft__device_is_cuda(void);

/* WEFT_ERR_INVALID, with a sentence that begins with `call`, unless `device` is one that the process can
 * use. */
weft_status_t weft__device_check(const char *call, int device);

/* As weft_malloc and weft_stream_create, on a given device. */
weft_status_t weft__device_malloc(int device, void **ptr_p, size_t bytes);
weft_status_t weft__stream_create_on(int device, weft_stream_h *stream_p);

/* As weft_stream_create: a stream on which ranks exchange data while they compute on others. What is
 * queued on it needs a core seldom and then soon, as other ranks wait for it: on virtual GPUs its worker
 * asks for short turns, and sleeps early when it waits. */
weft_status_t weft__lane_create(weft_stream_h *stream_p);
/* Is the calling thread the worker of such a stream? */
bool weft__lane_is_self(void);

/* Not destroyed? Cheap. */
bool weft__stream_exists(weft_stream_h stream);

/* The device a thread starts with: the local rank of the job, else 0. */
void weft__device_set_default(int device);

#endif
