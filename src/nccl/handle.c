/* The life of handles. Structs are kept for the next communicator rather than freed, so that a
 * handle used too late is told apart from a pointer to anything. */
#include "nccl/handle.h"

#include <stdio.h>
#include <stdlib.h>

#include "nccl/cudart.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *unused; /* the list of free structs */
static struct ncclComm *newest; /* the list of all; nothing leaves it */

ncclComm_t weft__nccl_new(int size, int rank, bool blocking)
{
    pthread_mutex_lock(&lock);
    ncclComm_t comm = unused;
    if (comm) {
        unused = comm->next;
    }
    pthread_mutex_unlock(&lock);
    if (!comm && (comm = calloc(1, sizeof(*comm)))) {
        pthread_mutex_lock(&lock);
        comm->older = newest;
        newest = comm;
        pthread_mutex_unlock(&lock);
    }
    if (!comm) {
        weft__nccl_fail(ncclSystemError, "no memory for a communicator's handle");
        return NULL;
    }
    atomic_store(&comm->comm, NULL);
    comm->rank = rank;
    comm->size = size;
    comm->device = -1;
    comm->blocking = blocking;
    comm->suspended = comm->has_id = comm->reported = false;
    atomic_store(&comm->told, false);
    comm->made = 0;
    comm->reason[0] = '\0';
    atomic_store(&comm->joined, ncclInProgress);
    atomic_store(&comm->users, 1);
    atomic_store(&comm->life, WEFT_NCCL_OPEN);
    return comm;
}

void weft__nccl_leave(ncclComm_t comm)
{
    if (atomic_fetch_sub(&comm->users, 1) > 1) {
        return;
    }
    pthread_mutex_lock(&lock);
    comm->next = unused;
    unused = comm;
    pthread_mutex_unlock(&lock);
}

ncclResult_t weft__nccl_enter(ncclComm_t comm, const char *who)
{
    if (!comm) {
        return weft__nccl_fail(ncclInvalidArgument, "nccl%s: the communicator is NULL", who);
    }
    /* One that has no users is on its way into the list: nobody may bring it back. */
    int users = atomic_load(&comm->users);
    while (users > 0 && !atomic_compare_exchange_weak(&comm->users, &users, users + 1)) {
    }
    if (users > 0 && atomic_load(&comm->life) != WEFT_NCCL_FREE) {
        return ncclSuccess;
    }
    if (users > 0) {
        weft__nccl_leave(comm);
    }
    return weft__nccl_fail(ncclInvalidArgument,
                           "nccl%s: the communicator was destroyed or aborted before", who);
}

static ncclResult_t ready(ncclComm_t comm, const char *who, weft_comm_h *comm_p)
{
    if (atomic_load(&comm->joined) == ncclInProgress && !comm->blocking) {
        return weft__nccl_fail(ncclInvalidUsage,
                               "nccl%s: the communicator is not ready; wait until "
                               "ncclCommGetAsyncError says ncclSuccess",
                               who);
    }
    if (atomic_load(&comm->life) == WEFT_NCCL_FINALIZED) {
        return weft__nccl_fail(ncclInvalidUsage, "nccl%s: the communicator is finalized", who);
    }
    if (comm->suspended) {
        return weft__nccl_fail(ncclInvalidUsage,
                               "nccl%s: the communicator is suspended; call ncclCommResume first",
                               who);
    }
    *comm_p = atomic_load_explicit(&comm->comm, memory_order_acquire);
    if (!*comm_p) {
        return weft__nccl_fail(ncclInvalidUsage, "nccl%s: the communicator %s", who,
                               comm->reason[0]
                                   ? comm->reason
                                   : "was not made: its group has not ended, or has failed");
    }
    return ncclSuccess;
}

ncclResult_t weft__nccl_enter_ready(ncclComm_t comm, const char *who, weft_comm_h *comm_p)
{
    WEFT_NCCL_TRY(weft__nccl_enter(comm, who));
    ncclResult_t result = ready(comm, who, comm_p);
    if (result != ncclSuccess) {
        weft__nccl_leave(comm);
    }
    return result;
}

void weft__nccl_close(ncclComm_t comm)
{
    if (atomic_exchange(&comm->life, WEFT_NCCL_FREE) != WEFT_NCCL_FREE) {
        weft__nccl_leave(comm); /* what it had for being open */
    }
}

bool weft_nccl_broken(int device, char *text, size_t room)
{
    pthread_mutex_lock(&lock);
    struct ncclComm *comm = newest;
    pthread_mutex_unlock(&lock);
    for (; comm; comm = comm->older) {
        const char *why = "";
        weft_comm_h inner = atomic_load(&comm->comm);
        if (inner && comm->device == device && atomic_load(&comm->life) != WEFT_NCCL_FREE &&
            weft_comm_error(inner, &why) != WEFT_OK) {
            snprintf(text, room, "%s", why);
            atomic_store(&comm->told, true);
            return true;
        }
    }
    return false;
}
