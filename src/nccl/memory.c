/* Memory that NCCL's programs allocate or register. */
#include <stdlib.h>
#include <string.h>

#include "nccl/cudart.h"
#include "nccl/handle.h"

/* Where the program has Weft's CUDA runtime, that should know of the memory as well. */
static ncclResult_t by_runtime(const char *name, void *argument, size_t size)
{
    void *address = weft__nccl_cuda(name);
    int (*alloc)(void *, size_t);
    int (*release)(void *);
    memcpy(&alloc, &address, sizeof(address));
    memcpy(&release, &address, sizeof(address));
    int error = size > 0 ? alloc(argument, size) : release(argument);
    return error == 0 ? ncclSuccess
                      : weft__nccl_fail(ncclUnhandledCudaError, "%s returns error %d", name, error);
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
    int device;
    if (!ptr || size == 0) {
        return weft__nccl_fail(ncclInvalidArgument, "ncclMemAlloc: %s",
                               ptr ? "0 bytes" : "there is no place for the address: NULL");
    }
    WEFT_NCCL_TRY(weft__nccl_device(&device));
    return weft__nccl_cuda(WEFT_CUDART_ENTER) ? by_runtime("cudaMalloc", ptr, size)
                                              : weft__nccl_result(weft_malloc(ptr, size));
}

ncclResult_t ncclMemFree(void *ptr)
{
    return weft__nccl_cuda(WEFT_CUDART_ENTER) ? by_runtime("cudaFree", ptr, 0)
                                              : weft__nccl_result(weft_free(ptr));
}

/* What a handle of registered memory is. */
struct ncclWindow_vidmem {
    ncclComm_t comm;
    void *ptr;
    bool registered; /* else Weft copies it through memory of its own, as it does without this */
    ncclWindow_t next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ncclWindow_t windows; /* all, so that a handle used too late is known */

/* Is it a window of the communicator? With `take` it is none any more. */
static bool find_window(ncclComm_t comm, ncclWindow_t window, bool take)
{
    pthread_mutex_lock(&lock);
    ncclWindow_t *at = &windows;
    while (*at && *at != window) {
        at = &(*at)->next;
    }
    bool found = window && *at == window && window->comm == comm;
    if (found && take) {
        *at = window->next;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static ncclResult_t register_memory(ncclComm_t comm, const char *who, void *ptr, size_t size,
                                    ncclWindow_t *window_p)
{
    weft_comm_h inner;
    WEFT_NCCL_TRY(weft__nccl_enter_ready(comm, who, &inner));
    ncclWindow_t window = window_p ? calloc(1, sizeof(*window)) : NULL;
    ncclResult_t result = ncclSuccess;
    if (!window) {
        result = weft__nccl_fail(window_p ? ncclSystemError : ncclInvalidArgument,
                                 "nccl%s: there is no place for the handle", who);
    } else {
        int before = 0;
        weft_device_get(&before);
        weft_device_set(comm->device);
        weft_status_t status = weft_register(ptr, size);
        weft_device_set(before);
        *window = (struct ncclWindow_vidmem){comm, ptr, status == WEFT_OK, NULL};
        /* What cannot be shared is copied: slower, and right. */
        result = status == WEFT_ERR_UNSUPPORTED ? ncclSuccess : weft__nccl_result(status);
    }
    if (result == ncclSuccess) {
        pthread_mutex_lock(&lock);
        window->next = windows;
        windows = window;
        pthread_mutex_unlock(&lock);
        *window_p = window;
    } else {
        free(window);
    }
    weft__nccl_leave(comm);
    return result;
}

static ncclResult_t deregister_memory(ncclComm_t comm, const char *who, ncclWindow_t window)
{
    if (!find_window(comm, window, true)) {
        return weft__nccl_fail(ncclInvalidArgument,
                               "nccl%s: the handle is none of this communicator's", who);
    }
    weft_status_t status = window->registered ? weft_unregister(window->ptr) : WEFT_OK;
    free(window);
    return weft__nccl_result(status);
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    ncclWindow_t window = NULL;
    WEFT_NCCL_TRY(register_memory(comm, "CommRegister", buff, size, handle ? &window : NULL));
    *handle = window;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return deregister_memory(comm, "CommDeregister", handle);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                    int winFlags)
{
    if (winFlags & (NCCL_WIN_GIN_ONLY | NCCL_WIN_CFT_COUNTED)) {
        return weft__nccl_fail(ncclInvalidUsage,
                               "ncclCommWindowRegister: windows for kernels that communicate "
                               "themselves (flags 0x%x) need NVIDIA's NCCL",
                               (unsigned)winFlags);
    }
    return register_memory(comm, "CommWindowRegister", buff, size, win);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    return deregister_memory(comm, "CommWindowDeregister", win);
}

ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr)
{
    if (!outUserPtr || !find_window(comm, win, false)) {
        return weft__nccl_fail(ncclInvalidArgument,
                               "ncclWinGetUserPtr: the window is NULL or another communicator's");
    }
    *outUserPtr = win->ptr;
    return ncclSuccess;
}

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
    weft_comm_h inner;
    if (flags != NCCL_SUSPEND_MEM) {
        return weft__nccl_fail(ncclInvalidArgument, "ncclCommSuspend: flags 0x%x", (unsigned)flags);
    }
    WEFT_NCCL_TRY(weft__nccl_enter_ready(comm, "CommSuspend", &inner));
    ncclResult_t result = weft__nccl_result(weft_pool_trim(comm->device, 0));
    comm->suspended = result == ncclSuccess;
    weft__nccl_leave(comm);
    return result;
}

ncclResult_t ncclCommResume(ncclComm_t comm)
{
    WEFT_NCCL_TRY(weft__nccl_enter(comm, "CommResume"));
    ncclResult_t result = comm->suspended
                              ? ncclSuccess
                              : weft__nccl_fail(
                                    ncclInvalidUsage,
                                    "ncclCommResume: the communicator is not suspended");
    comm->suspended = false;
    weft__nccl_leave(comm);
    return result;
}

ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)
{
    WEFT_NCCL_TRY(weft__nccl_enter(comm, "CommMemStats"));
    weft_pool_stats_t stats;
    ncclResult_t result = weft__nccl_result(weft_pool_stats(comm->device, &stats));
    if (result == ncclSuccess && !value) {
        result = weft__nccl_fail(ncclInvalidArgument, "ncclCommMemStats: the value is NULL");
    } else if (result == ncclSuccess) {
        switch (stat) {
        case ncclStatGpuMemSuspend:
            *value = stats.reserved - stats.in_use;
            break;
        case ncclStatGpuMemSuspended:
            *value = comm->suspended;
            break;
        case ncclStatGpuMemPersist:
            *value = stats.in_use;
            break;
        case ncclStatGpuMemTotal:
            *value = stats.reserved;
            break;
        default:
            result = weft__nccl_fail(ncclInvalidArgument,
                                     "ncclCommMemStats: there is no statistic %d", (int)stat);
        }
    }
    weft__nccl_leave(comm);
    return result;
}
