/* Errors: names, texts, and the last one of each thread. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "nccl/cudart.h"
#include "nccl/cudart/state.h"

static _Thread_local cudaError_t last_error;

cudaError_t weft__cudart_swap_last(cudaError_t error)
{
    cudaError_t old = last_error;
    last_error = error;
    return old;
}

cudaError_t weft__cudart_fail(cudaError_t error)
{
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

void weft__cudart_say(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "[weft] %s\n", text); /* one write, so that lines of ranks do not mix */
}

cudaError_t weft__cudart_from(weft_status_t status)
{
    switch (status) {
    case WEFT_OK:
        return cudaSuccess;
    case WEFT_PENDING:
        return weft__cudart_fail(cudaErrorNotReady);
    case WEFT_ERR_INVALID:
        return weft__cudart_fail(cudaErrorInvalidValue);
    case WEFT_ERR_NO_MEMORY:
        return weft__cudart_fail(cudaErrorMemoryAllocation);
    case WEFT_ERR_UNSUPPORTED:
        return weft__cudart_fail(cudaErrorNotSupported);
    case WEFT_ERR_SYSTEM:
        return weft__cudart_fail(cudaErrorOperatingSystem);
    default:
        return weft__cudart_fail(cudaErrorUnknown);
    }
}

/* The sentence of a collective that failed, unless it was said just now. */
static void say_once(const char *call, const char *why)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char said[512];
    pthread_mutex_lock(&lock);
    if (strncmp(said, why, sizeof(said) - 1) != 0) {
        snprintf(said, sizeof(said), "%s", why);
        weft__cudart_say("%s: %s", call, why);
    }
    pthread_mutex_unlock(&lock);
}

cudaError_t weft__cudart_from_work(const char *call, weft_status_t status)
{
    switch (status) {
    case WEFT_OK:
    case WEFT_ERR_ABORTED:
        return cudaSuccess;
    case WEFT_PENDING:
        return weft__cudart_fail(cudaErrorNotReady);
    default:
        say_once(call, weft_last_error());
        return weft__cudart_fail(cudaErrorLaunchFailure);
    }
}

static pthread_once_t look_once = PTHREAD_ONCE_INIT;
static weft_nccl_broken_fn broken; /* NULL: there is no libnccl in this process */

static void look(void)
{
    /* POSIX lets an address of dlsym be a function's; C has no cast for that. */
    void *address = dlsym(RTLD_DEFAULT, WEFT_NCCL_BROKEN);
    memcpy(&broken, &address, sizeof(address));
}

static bool is_broken(const char *call, int device)
{
    char why[512];
    pthread_once(&look_once, look);
    if (!broken || !broken(device, why, sizeof(why))) {
        return false;
    }
    say_once(call, why);
    return true;
}

cudaError_t weft__cudart_after_wait(const char *call, int device)
{
    return is_broken(call, device) ? weft__cudart_fail(cudaErrorLaunchFailure) : cudaSuccess;
}

cudaError_t weft__cudart_after_query(const char *call, int device)
{
    return is_broken(call, device) ? weft__cudart_fail(cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return weft__cudart_swap_last(cudaSuccess);
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
#define ERROR_NAME(name, value, text)                                                              \
    case name:                                                                                     \
        return #name;
        WEFT_CUDART_ERROR_TABLE(ERROR_NAME)
#undef ERROR_NAME
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
#define ERROR_TEXT(name, value, text)                                                              \
    case name:                                                                                     \
        return text;
        WEFT_CUDART_ERROR_TABLE(ERROR_TEXT)
#undef ERROR_TEXT
    }
    return "unrecognized error code";
}
