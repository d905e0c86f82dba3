/* Compute kernels on GPUs, this side of the module: which GPU and stream, scratch memory for each
 * stream, cuBLASLt for each GPU, and sentences for what goes wrong. */
#include "kernel/cuda/compute.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "device/cuda.h"
#include "kernel/cuda/choices.h"
#include "kernel/cuda/launch.h"

enum { MOST_GPUS = 64 };

/* What cuBLASLt wants on Hopper, and sums of columns beside it. */
#define SPACE_BYTES ((size_t)36 << 20)

/* Scratch memory of a stream. Kernels of one stream run one after the other, so they share it; it
 * stays until the process ends, and serves a stream that comes to lie where another one was. */
typedef struct space {
    struct space *next;
    int device;
    void *stream; /* the native one */
    void *memory;
} space_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static space_t *spaces;
static weft_cuda_blas_t *blas[MOST_GPUS];
static int attention; /* WEFT_CUDA_ATTENTION_..; set before the table is handed out */

/* Threads have default streams of their own, which all have the same name. */
static _Thread_local space_t own;

static const weft_cuda_compute_ops_t *module(void)
{
    static weft_cuda_table_t table = {.name = "weft_cuda_compute"};
    return weft__cuda_table(&table);
}

/* ---- where a kernel runs -------------------------------------------------------------------- */

static weft_status_t take_space(int device, void *stream, space_t *space)
{
    WEFT_TRY(weft__device_malloc(device, &space->memory, SPACE_BYTES));
    space->device = device;
    space->stream = stream;
    return WEFT_OK;
}

/* Of a stream; called under the lock. */
static weft_status_t find_space(int device, void *stream, void **memory_p)
{
    space_t *space = spaces;
    weft_status_t status = WEFT_OK;
    while (space != NULL && (space->stream != stream || space->device != device)) {
        space = space->next;
    }
    if (space == NULL) {
        space = calloc(1, sizeof(*space));
        if (space == NULL) {
            return weft__fail(WEFT_ERR_NO_MEMORY, "there is no memory to describe a stream");
        }
        status = take_space(device, stream, space);
        if (status != WEFT_OK) {
            free(space);
            return status;
        }
        space->next = spaces;
        spaces = space;
    }
    *memory_p = space->memory;
    return status;
}

/* Of the calling thread's default stream: given back when another device is chosen, by which time
 * the thread has waited for its work there or given up the result. */
static weft_status_t find_own(int device, void *stream, void **memory_p)
{
    weft_status_t status = WEFT_OK;
    if (own.memory != NULL && own.device != device) {
        status = weft_free(own.memory);
        own.memory = NULL;
    }
    if (status == WEFT_OK && own.memory == NULL) {
        status = take_space(device, stream, &own);
    }
    *memory_p = own.memory;
    return status;
}

/* cuBLASLt on a GPU; called under the lock. */
static weft_status_t find_blas(int gpu, weft_cuda_blas_t **blas_p)
{
    static const weft_cuda_choices_t choices = {weft__choice_find, weft__choice_offer};
    char why[WEFT_CUDA_WHY];
    if (gpu >= MOST_GPUS) {
        return weft__fail(WEFT_ERR_UNSUPPORTED, "GPU %d: only %d GPUs can train", gpu, MOST_GPUS);
    }
    if (blas[gpu] == NULL &&
        module()->blas_open(gpu, weft__settings()->cublas, weft__settings()->matmul_tune, &choices,
                            &blas[gpu], why) != 0) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "%s; it is part of the CUDA toolkit, see WEFT_CUBLASLT", why);
    }
    *blas_p = blas[gpu];
    return WEFT_OK;
}

static weft_status_t find_exec(weft_stream_h stream, weft_cuda_exec_t *exec)
{
    int device = 0;
    weft_status_t status = WEFT_OK;
    exec->stream = weft__cuda_stream(stream);
    exec->space_bytes = SPACE_BYTES;
    exec->attention = attention;
    if (stream == NULL) {
        status = weft_device_get(&device);
        exec->gpu = weft__cuda_gpu(device);
        if (status == WEFT_OK) {
            status = find_own(device, exec->stream, &exec->space);
        }
    } else {
        exec->gpu = device = weft__cuda_stream_gpu(stream);
    }
    pthread_mutex_lock(&lock);
    if (status == WEFT_OK && stream != NULL) {
        status = find_space(device, exec->stream, &exec->space);
    }
    if (status == WEFT_OK) {
        status = find_blas(exec->gpu, &exec->blas);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static weft_status_t check(int error, const char *what)
{
    return error == 0
               ? WEFT_OK
               : weft__fail(WEFT_ERR_SYSTEM, "%s on a GPU: %s", what, module()->error_text(error));
}

/* ---- the table ------------------------------------------------------------------------------ */

/* Arguments of kernels that have no form for ragged batches yet. */
#define IS_RAGGED(args)                                                                            \
    _Generic((args),                                                                               \
        const weft_embed_t *: ((const weft_embed_t *)(const void *)(args))->ragged != NULL,        \
        const weft_rope_t *: ((const weft_rope_t *)(const void *)(args))->ragged != NULL,          \
        const weft_decode_t *: ((const weft_decode_t *)(const void *)(args))->ragged != NULL,      \
        default: false)

static weft_status_t fail_ragged(const char *name)
{
    return weft__fail(WEFT_ERR_UNSUPPORTED,
                      "%s takes no batch of sequences with different lengths on GPUs: run them one "
                      "by one, or on virtual GPUs",
                      name);
}

#define ON_STREAM(name, args_t)                                                                    \
    static weft_status_t run_##name(const args_t *args, weft_stream_h stream)                      \
    {                                                                                              \
        weft_cuda_exec_t exec;                                                                     \
        if (IS_RAGGED(args)) {                                                                     \
            return fail_ragged(#name);                                                             \
        }                                                                                          \
        weft_status_t status = find_exec(stream, &exec);                                           \
        return status != WEFT_OK ? status : check(module()->name(&exec, args), #name);             \
    }
WEFT_COMPUTE_TABLE(ON_STREAM)

#define LIST_ON_STREAM(name, args_t)                                                               \
    static weft_status_t name##_list(const args_t *list, int count, weft_stream_h stream)          \
    {                                                                                              \
        weft_cuda_exec_t exec;                                                                     \
        WEFT_TRY(find_exec(stream, &exec));                                                        \
        return check(module()->name##_list(&exec, list, count), #name);                            \
    }
WEFT_COMPUTE_LISTS(LIST_ON_STREAM)

/* The GPU of the calling thread's current device. */
static int current_gpu(void)
{
    int device = 0;
    return weft_device_get(&device) == WEFT_OK ? weft__cuda_gpu(device) : 0;
}

int weft__compute_gpu(weft_stream_h stream)
{
    return stream == NULL ? current_gpu() : weft__cuda_stream_gpu(stream);
}

static size_t embed_work(const weft_embed_t *args)
{
    return module()->embed_work(current_gpu(), args);
}

static size_t norm_work(const weft_norm_t *args)
{
    return module()->norm_work(current_gpu(), args);
}

static size_t attention_work(const weft_attention_t *args)
{
    return module()->attention_work(current_gpu(), args);
}

#define SLOT(name, args_t) .name = run_##name,
#define LIST_SLOT(name, args_t) .name##_list = name##_list,

static const weft_compute_t table = {
    .kind = "cuda",
    .head_elements = 1 << 29, /* 1 GiB of bf16 */
    WEFT_COMPUTE_TABLE(SLOT) WEFT_COMPUTE_LISTS(LIST_SLOT).embed_work = embed_work,
    .norm_work = norm_work,
    .attention_work = attention_work,
};

static weft_status_t choose_attention(void)
{
    static const char *const names[] = {"auto", "warp", "plain"};
    for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++) {
        if (strcmp(weft__settings()->attention, names[i]) == 0) {
            attention = i;
            return WEFT_OK;
        }
    }
    return weft__fail(WEFT_ERR_INVALID, "WEFT_ATTENTION is \"%s\"; it can be auto, warp or plain",
                      weft__settings()->attention);
}

weft_status_t weft__compute_cuda(const weft_compute_t **table_p)
{
    weft_cuda_blas_t *unused;
    const char *why;
    if (!weft__cuda_load(&why)) {
        return weft__fail(WEFT_ERR_UNSUPPORTED, "there is no GPU to train on: %s", why);
    }
    if (module() == NULL) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "the CUDA module has no kernels to train with; see WEFT_CUDA_MODULE");
    }
    pthread_mutex_lock(&lock);
    weft_status_t status = choose_attention();
    if (status == WEFT_OK) {
        status = find_blas(current_gpu(), &unused);
    }
    pthread_mutex_unlock(&lock);
    if (status == WEFT_OK) {
        *table_p = &table;
    }
    return status;
}
