/* See host_gpu.h. */
#include "comm/nccl/host_gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Atomic int host_gpu_recorded, host_gpu_passed = HOST_GPU_ALL;
const char *host_gpu_fails;
_Atomic int host_gpu_things;
bool host_gpu_strict;
char host_gpu_log[4096];

static int answer(const char *name)
{
    return host_gpu_fails && strcmp(host_gpu_fails, name) == 0 ? 2 : 0;
}

static void write_down(const char *what, const void *a, const void *b)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    size_t used = strlen(host_gpu_log);
    snprintf(host_gpu_log + used, sizeof(host_gpu_log) - used, "%s %p %p\n", what, a, b);
    pthread_mutex_unlock(&lock);
}

static int make(const char *name, void **thing_p, size_t bytes)
{
    int error = answer(name);
    if (error == 0) {
        *thing_p = calloc(1, bytes > 0 ? bytes : 1);
        atomic_fetch_add(&host_gpu_things, 1);
    }
    return error;
}

static int destroy(void *thing)
{
    free(thing);
    atomic_fetch_sub(&host_gpu_things, 1);
    return 0;
}

static const char *fake_error_text(int error)
{
    return error == 2 ? "out of memory" : "?";
}

/* ---- memory ----------------------------------------------------------------------------- */

#define BLOCKS 256

static struct {
    char *from;
    size_t bytes;
    int gpu; /* -1: pinned host memory */
} blocks[BLOCKS];
static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;

/* Note that a block is there, or with 0 bytes that it is not. */
static void note(const void *from, void *to, size_t bytes, int gpu)
{
    pthread_mutex_lock(&blocks_lock);
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].from == from) {
            blocks[i].from = to;
            blocks[i].bytes = bytes;
            blocks[i].gpu = gpu;
            break;
        }
    }
    pthread_mutex_unlock(&blocks_lock);
}

static int fake_alloc(int gpu, void **ptr_p, size_t bytes)
{
    (void)gpu;
    int error = make("alloc", ptr_p, bytes);
    if (error == 0) {
        note(NULL, *ptr_p, bytes, 0);
    }
    return error;
}

static int fake_release(int gpu, void *ptr)
{
    (void)gpu;
    note(ptr, NULL, 0, 0);
    return destroy(ptr);
}

static int fake_host_alloc(void **ptr_p, size_t bytes)
{
    return fake_alloc(0, ptr_p, bytes);
}

static int fake_host_release(void *ptr)
{
    return fake_release(0, ptr);
}

static int fake_host_register(void *ptr, size_t bytes)
{
    note(NULL, ptr, bytes, -1);
    return answer("host_register");
}

static int fake_host_unregister(void *ptr)
{
    note(ptr, NULL, 0, 0);
    return answer("host_unregister");
}

static int fake_range(int gpu, const void *ptr, void **base_p, size_t *bytes_p, bool *shares_p)
{
    const char *at = ptr;
    int error = 1;
    (void)gpu;
    pthread_mutex_lock(&blocks_lock);
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].from && at >= blocks[i].from && at < blocks[i].from + blocks[i].bytes) {
            *base_p = blocks[i].from;
            *bytes_p = blocks[i].bytes;
            *shares_p = true;
            error = 0;
        }
    }
    pthread_mutex_unlock(&blocks_lock);
    return error ? error : answer("range");
}

static int fake_where(const void *ptr, int *gpu_p)
{
    *gpu_p = host_gpu_strict ? -2 : 0;
    pthread_mutex_lock(&blocks_lock);
    for (int i = 0; i < BLOCKS; i++) {
        const char *at = ptr;
        if (blocks[i].from && at >= blocks[i].from && at < blocks[i].from + blocks[i].bytes) {
            *gpu_p = blocks[i].gpu;
        }
    }
    pthread_mutex_unlock(&blocks_lock);
    return answer("where");
}

static int fake_count(int *count_p)
{
    *count_p = 4;
    return answer("count");
}

static int fake_props(int gpu, weft_cuda_props_t *props_p)
{
    *props_p = (weft_cuda_props_t){.name = "fake", .memory = (uint64_t)4 << 30, .major = 9};
    props_p->uuid[0] = (uint8_t)gpu;
    return answer("props");
}

static int fake_memory(int gpu, size_t *free_p, size_t *total_p)
{
    (void)gpu;
    *free_p = *total_p = (size_t)4 << 30;
    return answer("memory");
}

static int fake_copy(int gpu, void *dst, const void *src, size_t bytes, void *stream)
{
    (void)gpu;
    (void)stream;
    write_down("copy", dst, src);
    memmove(dst, src, bytes);
    return answer("copy");
}

static int fake_fill(int gpu, void *dst, int value, size_t bytes, void *stream)
{
    (void)gpu;
    (void)stream;
    memset(dst, value, bytes);
    return answer("fill");
}

/* ---- streams and events ----------------------------------------------------------------- */

static int fake_stream_create(int gpu, void **stream_p)
{
    (void)gpu;
    return make("stream_create", stream_p, 1);
}

static int fake_stream_destroy(int gpu, void *stream)
{
    (void)gpu;
    return destroy(stream);
}

static int fake_stream_sync(int gpu, void *stream)
{
    (void)gpu;
    (void)stream;
    return answer("stream_sync");
}

static int fake_stream_idle(int gpu, void *stream, bool *idle_p)
{
    (void)gpu;
    (void)stream;
    *idle_p = atomic_load(&host_gpu_passed) == HOST_GPU_ALL;
    return answer("stream_idle");
}

static int fake_stream_wait(int gpu, void *stream, void *event)
{
    (void)gpu;
    write_down("wait", stream, event);
    return answer("stream_wait");
}

static int fake_stream_call(int gpu, void *stream, void (*fn)(void *arg), void *arg)
{
    (void)gpu;
    (void)stream;
    fn(arg);
    return answer("stream_call");
}

static int fake_relax(void)
{
    return answer("relax");
}

static int fake_stream_capturing(int gpu, void *stream, bool *capturing_p)
{
    (void)gpu;
    (void)stream;
    *capturing_p = false;
    return 0;
}

/* An event is its number among all that were recorded; 0: it was not. */
static int fake_event_create(int gpu, void **event_p)
{
    (void)gpu;
    return make("event_create", event_p, sizeof(int));
}

static int fake_event_destroy(int gpu, void *event)
{
    (void)gpu;
    return destroy(event);
}

static int fake_event_record(int gpu, void *event, void *stream)
{
    (void)gpu;
    write_down("record", event, stream);
    *(int *)event = atomic_fetch_add(&host_gpu_recorded, 1) + 1;
    return answer("event_record");
}

static int fake_event_done(int gpu, void *event, bool *done_p)
{
    (void)gpu;
    *done_p = *(int *)event <= atomic_load(&host_gpu_passed);
    return answer("event_done");
}

static int fake_event_sync(int gpu, void *event)
{
    (void)gpu;
    (void)event;
    return answer("event_sync");
}

static int fake_event_elapsed(int gpu, void *start, void *end, float *ms_p)
{
    (void)gpu;
    *ms_p = (float)(*(int *)end - *(int *)start);
    return answer("event_elapsed");
}

const weft_cuda_device_ops_t host_gpu = {
    .abi = WEFT_CUDA_ABI,
    .error_text = fake_error_text,
    .count = fake_count,
    .props = fake_props,
    .memory = fake_memory,
    .alloc = fake_alloc,
    .release = fake_release,
    .host_alloc = fake_host_alloc,
    .host_release = fake_host_release,
    .host_register = fake_host_register,
    .host_unregister = fake_host_unregister,
    .range = fake_range,
    .where = fake_where,
    .copy = fake_copy,
    .fill = fake_fill,
    .stream_create = fake_stream_create,
    .stream_destroy = fake_stream_destroy,
    .stream_sync = fake_stream_sync,
    .stream_idle = fake_stream_idle,
    .stream_wait = fake_stream_wait,
    .stream_call = fake_stream_call,
    .relax = fake_relax,
    .stream_capturing = fake_stream_capturing,
    .event_create = fake_event_create,
    .event_destroy = fake_event_destroy,
    .event_record = fake_event_record,
    .event_done = fake_event_done,
    .event_sync = fake_event_sync,
    .event_elapsed = fake_event_elapsed,
};
