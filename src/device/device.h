/* Inside of devices, for the layers below: work on streams, and memory shared between processes.
 * The public side is include/weft/device.h. */
#ifndef WEFT_DEVICE_INTERNAL_H
#define WEFT_DEVICE_INTERNAL_H

#include <stdatomic.h>
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

/* ---- bounds of allocations -------------------------------------------------------------- */

/* What is known of the memory around an address, and until when: while *serial_p is `serial`. */
typedef struct weft_bounds {
    _Atomic uintptr_t base, end; /* as asked for, or all of a gap between the memories of devices */
    _Atomic uint64_t serial;
    _Atomic(const _Atomic uint64_t *) serial_p; /* never NULL */
} weft_bounds_t;

void weft__bounds_set(weft_bounds_t *bounds, uintptr_t base, uintptr_t end,
                      const _Atomic uint64_t *serial_p, uint64_t serial);
/* They hold nothing, or everything. */
void weft__bounds_clear(weft_bounds_t *bounds);
void weft__bounds_open(weft_bounds_t *bounds);

/* Do the bounds hold [ptr, ptr + bytes)? A no may only mean that others are to be looked up. Some
 * nanoseconds: it is on the path of every collective. Where several threads look things up at the
 * same time, a mixture of two bounds is possible. */
static inline bool weft__bounds_hold(const weft_bounds_t *bounds, const void *ptr, size_t bytes)
{
    /* Partner of the serial: the stores when the allocation was made and freed (space.c). */
    return (uintptr_t)ptr >= atomic_load_explicit(&bounds->base, memory_order_relaxed) &&
           (uintptr_t)ptr + bytes <= atomic_load_explicit(&bounds->end, memory_order_relaxed) &&
           atomic_load_explicit(atomic_load_explicit(&bounds->serial_p, memory_order_relaxed),
                                memory_order_relaxed) ==
               atomic_load_explicit(&bounds->serial, memory_order_relaxed);
}

/* Look up what `ptr` is in. WEFT_ERR_NOT_FOUND, without a sentence: it is memory of the pool of
 * `*device_p` that is not in use. WEFT_PENDING: it is not of a pool; the bounds are those of the
 * gap that it is in, or none. */
weft_status_t weft__bounds_find(const void *ptr, weft_bounds_t *bounds, int *device_p);

/* ---- devices of any kind ---------------------------------------------------------------- */

/* Are the devices of this process GPUs? False also where the setting cannot be met. */
bool weft__device_is_cuda(void);

/* WEFT_ERR_INVALID, with a sentence that begins with `call`, unless `device` is one that the
 * process can use. */
weft_status_t weft__device_check(const char *call, int device);

/* The checks of weft_memcpy, for other calls that read `src` and write `dst` on `stream`. */
weft_status_t weft__device_check_copy(const char *call, const void *dst, const void *src,
                                      size_t bytes, weft_stream_h stream);

/* As weft_malloc and weft_stream_create, on a given device. */
weft_status_t weft__device_malloc(int device, void **ptr_p, size_t bytes);
weft_status_t weft__stream_create_on(int device, weft_stream_h *stream_p);

/* As weft_stream_create: a stream on which ranks exchange data while they compute on others. What
 * is queued on it needs a core seldom and then soon, as other ranks wait for it: on virtual GPUs
 * its worker asks for short turns, and sleeps early when it waits. */
weft_status_t weft__comm_stream_create(weft_stream_h *stream_p);
/* Is the calling thread the worker of such a stream? */
bool weft__lane_is_self(void);

/* Not destroyed? Cheap. What to say of one that is, or of what never was a stream: they cannot
 * always be told apart. */
#define WEFT_STREAM_GONE "the stream is none, or destroyed already"
bool weft__stream_exists(weft_stream_h stream);

/* The device a thread starts with: the local rank of the job, else 0. */
void weft__device_set_default(int device);

/* So many processes share this machine. The memory of virtual GPUs, as weft_pool_stats tells it, is
 * divided by them unless WEFT_DEVICE_MEMORY says what each has. What others do not take can still
 * be had. */
void weft__device_share(int processes);

#endif
