/* Joining and leaving the ranks of a host. */
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "boot/job.h"
#include "comm/host/host.h"
#include "comm/host/procs.h"
#include "comm/host/wait.h"

/* Is this process one of more ranks than the machine has cores? */
static bool job_oversubscribed(void)
{
    const weft_job_t *job;
    return weft__job(&job) == WEFT_OK && job->local_size > (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Take the place of a rank, and write who we are. */
static weft_status_t take_place(weft_host_t *host, bool parent_oversubscribed)
{
    weft_rank_block_t *me = host->me;
    uint64_t absent = WEFT_RANK_ABSENT;
    if (!atomic_compare_exchange_strong(&me->state, &absent, WEFT_RANK_TAKEN)) {
        host->me = NULL; /* it is somebody else's */
        return weft__fail(WEFT_ERR_INVALID, "rank %d of this communicator has joined already",
                          host->rank);
    }
    me->pid = getpid();
    CPU_ZERO(&me->cpus);
    sched_getaffinity(0, sizeof(me->cpus), &me->cpus);
    me->oversubscribed = parent_oversubscribed || job_oversubscribed();
    return WEFT_OK;
}

weft_status_t weft__host_enter(weft_comm_h comm, weft_rendezvous_t *at, int rank, int size,
                               weft_layout_t layout)
{
    weft_segment_t *segment;
    WEFT_TRY(weft__host_find(comm, at, rank, size, layout, &segment));
    weft_host_t *host = calloc(1, sizeof(*host));
    weft_peer_t *peers = calloc((size_t)size, sizeof(*peers));
    weft_seen_t *seen = calloc((size_t)size, sizeof(*seen));
    if (!host || !peers || !seen) {
        free(host);
        free(peers);
        free(seen);
        weft__segment_close(segment);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", size);
    }
    host->segment = segment;
    host->peers = peers;
    host->seen = seen;
    host->rank = rank;
    host->size = size;
    host->comm = comm;
    host->naps = !weft__wait_init();
    host->kernels = weft__kernels();
    for (int p = 0; p < size; p++) {
        peers[p] = (weft_peer_t){
            .block = weft__segment_block(segment, p), .pidfd = -1, .near = p == rank};
    }
    host->me = peers[rank].block;
    comm->rank = rank;
    comm->size = size;
    comm->tuner.size = size;
    comm->host = host;
    return take_place(host, at->oversubscribed);
}

static void set_state(weft_host_t *host, uint64_t state)
{
    /* Partner: the acquire loads of the others, in wait_state and weft__host_state. */
    atomic_store_explicit(&host->me->state, state, memory_order_release);
    weft__ring_bell(host->me);
}

void weft__host_introduce(weft_host_t *host)
{
    set_state(host, WEFT_RANK_JOINED);
}

static weft_status_t wait_state(weft_host_t *host, uint64_t state)
{
    host->current = NULL;
    for (int p = 0; p < host->size; p++) {
        WEFT_TRY(weft__wait(host, p, &host->peers[p].block->state, state));
    }
    return WEFT_OK;
}

/* More ranks than cores, among ourselves or for what some of us belong to? Then a waiting rank must
 * give way at once. All ranks come to the same answer, the tuner depends on it. */
static bool is_oversubscribed(const weft_host_t *host)
{
    cpu_set_t all;
    bool any = false;
    CPU_ZERO(&all);
    for (int p = 0; p < host->size; p++) {
        CPU_OR(&all, &all, &host->peers[p].block->cpus);
        any = any || host->peers[p].block->oversubscribed;
    }
    return any || host->size > CPU_COUNT(&all);
}

void weft__host_watch(weft_peer_t *peer, int pid)
{
    if (!peer->watched) {
        peer->pid = pid;
        peer->pidfd = weft__proc_open(pid);
        peer->watched = true;
    }
}

weft_status_t weft__host_meet(weft_host_t *host)
{
    WEFT_TRY(wait_state(host, WEFT_RANK_JOINED));
    weft__segment_seal(host->segment);
    host->one_process = true;
    for (int p = 0; p < host->size; p++) {
        weft_peer_t *peer = &host->peers[p];
        if (p != host->rank) {
            peer->near = peer->block->pid == getpid();
            weft__host_watch(peer, peer->block->pid);
        }
        host->one_process = host->one_process && peer->near;
    }
    host->oversubscribed = is_oversubscribed(host);
    weft__tuner_settle(&host->comm->tuner, host->size, host->oversubscribed);
    host->spin = weft__wait_spin(host->oversubscribed);
    return WEFT_OK;
}

void weft__host_ready(weft_host_t *host)
{
    set_state(host, WEFT_RANK_READY);
}

weft_status_t weft__host_settle(weft_host_t *host, const weft_rendezvous_t *at)
{
    WEFT_TRY(wait_state(host, WEFT_RANK_READY));
    if (host->rank == 0 && at->store) {
        weft__host_close_door(at);
    }
    return WEFT_OK;
}

void weft__host_leave(weft_host_t *host)
{
    if (!host) {
        return;
    }
    if (host->me) {
        set_state(host, WEFT_RANK_LEFT);
    }
    for (int p = 0; p < host->size; p++) {
        if (host->peers[p].watched) {
            weft__proc_close(host->peers[p].pid);
        }
    }
    weft__segment_close(host->segment);
    host->comm->host = NULL;
    free(host->peers);
    free(host->seen);
    free(host);
}
