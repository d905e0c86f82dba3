/* How the ranks of a host find the segment in which they meet. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/host/host.h"
#include "comm/watch.h"
#include "topo/host.h"

/* Is what `handle` names left over from a rank 0 that died, or from a try of this process that
 * failed? */
static bool left_over(const weft_segment_handle_t *handle)
{
    weft_segment_t *segment;
    uint64_t host;
    if (handle->fd < 0 || weft__host_id(&host) != WEFT_OK || handle->host != host ||
        (handle->pid != getpid() && (kill(handle->pid, 0) == 0 || errno != ESRCH))) {
        return false;
    }
    if (weft__segment_open(handle, &segment) == WEFT_OK) {
        weft__segment_close(segment);
        return false;
    }
    return true;
}

/* Publish the segment that rank 0 has made, unless another caller is rank 0 already: the others
 * would be divided between the two. */
static weft_status_t publish(const weft_rendezvous_t *at, const weft_segment_handle_t *mine)
{
    weft_segment_handle_t there = {.fd = -1};
    size_t bytes = sizeof(there);
    bool taken = true;
    weft_status_t status = weft__store_offer(at->store, at->key, mine, sizeof(*mine), &taken,
                                             &there, &bytes);
    if (status != WEFT_OK || taken) {
        return status;
    }
    return left_over(&there)
               ? weft__store_set(at->store, at->key, mine, sizeof(*mine))
               : weft__fail(WEFT_ERR_INVALID, "rank 0 of this communicator has joined already%s",
                            there.fd < 0 ? ", as have all others" : "");
}

static weft_status_t make(const weft_rendezvous_t *at, int size, weft_layout_t layout,
                          weft_segment_t **segment_p)
{
    weft_segment_t *segment;
    WEFT_TRY(weft__segment_create(size, layout, &segment));
    weft_status_t status = at->store ? publish(at, &segment->handle) : WEFT_OK;
    if (status != WEFT_OK) {
        weft__segment_close(segment);
        return status;
    }
    *segment_p = segment;
    return WEFT_OK;
}

/* What rank 0 has published. */
static weft_status_t fetch(weft_comm_h comm, const weft_rendezvous_t *at, int rank,
                           weft_segment_handle_t *handle)
{
    size_t bytes = sizeof(*handle);
    weft_status_t status = weft__store_get(at->store, at->key, handle, &bytes,
                                           comm->timeout_ms > 0 ? comm->timeout_ms : -1);
    if (status == WEFT_ERR_TIMEOUT) {
        weft_fault_t fault;
        weft__watch_absent(rank, false, &(weft_seen_t){.rank = 0}, 1, comm->timeout_ms, NULL,
                           &fault);
        return weft__fail(fault.status, "%s", fault.text);
    }
    if (status == WEFT_OK && bytes != sizeof(*handle)) {
        return weft__fail(WEFT_ERR_MISMATCH,
                          "rank 0 opened the communicator with another version of Weft");
    }
    if (status == WEFT_OK && handle->fd < 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "rank %d of this communicator has joined already, as have all others",
                          rank);
    }
    return status;
}

weft_status_t weft__host_find(weft_comm_h comm, const weft_rendezvous_t *at, int rank, int size,
                              weft_layout_t layout, weft_segment_t **segment_p)
{
    weft_segment_handle_t handle;
    weft_segment_t *segment;
    if (at->local && *at->shared) {
        *segment_p = weft__segment_share(*at->shared);
        return WEFT_OK;
    }
    if (rank == 0) {
        WEFT_TRY(make(at, size, layout, segment_p));
        if (at->local) {
            *at->shared = *segment_p;
        }
        return WEFT_OK;
    }
    WEFT_TRY(fetch(comm, at, rank, &handle));
    WEFT_TRY(weft__segment_open(&handle, &segment));
    if ((int)segment->head->size != size) {
        weft_fault_t fault;
        weft__watch_unlike_size((int)segment->head->size, rank, size, &fault);
        weft__segment_break(segment, fault.status, rank, fault.text);
        weft__segment_close(segment);
        return weft__fail(fault.status, "%s", fault.text);
    }
    *segment_p = segment;
    return WEFT_OK;
}

void weft__host_close_door(const weft_rendezvous_t *at)
{
    const weft_segment_handle_t nothing = {.fd = -1};
    weft__store_set(at->store, at->key, &nothing, sizeof(nothing));
}
