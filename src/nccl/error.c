/* Results, and the sentences behind them. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "nccl/handle.h"

enum { ROOM = 600 };

static __thread char mine[ROOM];

/* PyTorch asks from its watchdog what went wrong in another thread. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char latest[ROOM];
static __thread char seen[ROOM];

static void keep(ncclResult_t result)
{
    weft__nccl_group_fail(result, mine);
    pthread_mutex_lock(&lock);
    memcpy(latest, mine, sizeof(latest));
    pthread_mutex_unlock(&lock);
}

ncclResult_t weft__nccl_fail(ncclResult_t result, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(mine, sizeof(mine), format, arguments);
    va_end(arguments);
    keep(result);
    return result;
}

static ncclResult_t result_of(weft_status_t status)
{
    switch (status) {
    case WEFT_ERR_INVALID:
    case WEFT_ERR_NOT_FOUND:
        return ncclInvalidArgument;
    case WEFT_ERR_MISMATCH:
    case WEFT_ERR_UNSUPPORTED:
        return ncclInvalidUsage;
    case WEFT_ERR_RANK_DEAD:
    case WEFT_ERR_RANK_LEFT:
    case WEFT_ERR_BROKEN:
    case WEFT_ERR_ABORTED:
        return ncclRemoteError;
    case WEFT_ERR_TIMEOUT:
        return ncclTimeout;
    case WEFT_ERR_SYSTEM:
    case WEFT_ERR_NO_MEMORY:
    case WEFT_ERR_REFUSED:
        return ncclSystemError;
    default:
        return ncclInternalError;
    }
}

ncclResult_t weft__nccl_result(weft_status_t status)
{
    if (status == WEFT_OK) {
        return ncclSuccess;
    }
    ncclResult_t result = result_of(status);
    snprintf(mine, sizeof(mine), "%s", weft_last_error());
    keep(result);
    return result;
}

const char *weft__nccl_sentence(void)
{
    pthread_mutex_lock(&lock);
    memcpy(seen, latest, sizeof(seen));
    pthread_mutex_unlock(&lock);
    return seen;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[ncclNumResults] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "unhandled cuda error",
        [ncclSystemError] = "unhandled system error",
        [ncclInternalError] = "internal error",
        [ncclInvalidArgument] = "invalid argument",
        [ncclInvalidUsage] = "invalid usage",
        [ncclRemoteError] = "remote process exited or there was a network error",
        [ncclInProgress] = "operation in progress",
        [ncclTimeout] = "operation timed out"};
    return (unsigned)result < ncclNumResults ? texts[result] : "unknown result code";
}
