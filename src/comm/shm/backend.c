/* The shm backend's table: joining, and memory for others. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/settings.h"
#include "comm/shm/shm.h"

static weft_probe_t shm_probe(const weft_members_t *members)
{
    /* Whether all are on one host is found out in joining. */
    return weft__device_is_cuda() || members->apart ? WEFT_PROBE_NO : WEFT_PROBE_YES;
}

/* ---- joining and leaving ------------------------------------------------------------------ */

/* Chunks are numbered in 24 bits, and staging needs two of them. */
static size_t usable_chunk(size_t asked)
{
    const size_t least = (size_t)4 << 10, most = (size_t)1 << 30;
    size_t chunk = asked < least ? least : asked > most ? most : asked;
    if (chunk != asked) {
        weft__warn("WEFT_CHUNK is %zu bytes; using %zu (4K to 1G are possible)", asked, chunk);
    }
    return chunk;
}

static void shm_close(void *ctx)
{
    weft_shm_t *shm = ctx;
    for (int p = 0; p < shm->size && shm->peers; p++) {
        if (shm->peers[p].heap_open) {
            weft__heap_close(&shm->peers[p].block->heap);
        }
    }
    if (shm->bounce) {
        weft__heap_free(shm->bounce);
    }
    free(shm->peers);
    free(shm->states);
    free(shm->pointers);
    free(shm);
}

static weft_shm_t *alloc_shm(weft_comm_h comm)
{
    weft_shm_t *shm = calloc(1, sizeof(*shm));
    size_t size = (size_t)comm->size;
    if (!shm) {
        return NULL;
    }
    shm->peers = calloc(size, sizeof(*shm->peers));
    shm->states = calloc(size, sizeof(*shm->states));
    shm->pointers = calloc(3 * size, sizeof(*shm->pointers));
    if (!shm->peers || !shm->states || !shm->pointers) {
        shm_close(shm);
        return NULL;
    }
    shm->host = comm->host;
    shm->rank = comm->rank;
    shm->size = comm->size;
    shm->device = comm->device;
    shm->comm = comm;
    shm->kernels = weft__kernels();
    shm->chunk = usable_chunk(weft__settings()->chunk);
    shm->channels = weft__segment_pair(comm->host->segment, 0, 0);
    for (int p = 0; p < shm->size; p++) {
        shm->peers[p].block = weft__segment_rank(comm->host->segment, p);
        shm->pointers[2 * shm->size + p] = shm->peers[p].block->tmp;
    }
    shm->me = shm->peers[shm->rank].block;
    return shm;
}

/* Say where this rank's memory is. */
static weft_status_t share_heap(weft_shm_t *shm)
{
    char *base;
    WEFT_TRY(weft__heap_export(shm->device, &shm->me->heap));
    WEFT_TRY(weft__heap_open(&shm->me->heap, &base));
    shm->peers[shm->rank].heap_open = true;
    shm->me->heap_base = (uint64_t)(uintptr_t)base;
    shm->me->chunk = shm->chunk;
    return WEFT_OK;
}

static weft_status_t shm_enter(weft_comm_h comm, weft_rendezvous_t *at, int rank, int size)
{
    const weft_layout_t layout = {sizeof(weft_shm_block_t), sizeof(weft_channel_t)};
    WEFT_TRY(weft__host_enter(comm, at, rank, size, layout));
    weft_shm_t *shm = alloc_shm(comm);
    comm->ctx = shm;
    weft_status_t status = shm ? share_heap(shm)
                               : weft__fail(WEFT_ERR_NO_MEMORY,
                                            "no memory for a communicator of %d ranks", size);
    if (status != WEFT_OK) {
        return weft__host_fail_joining(comm->host, status);
    }
    weft__host_introduce(comm->host);
    return WEFT_OK;
}

static weft_status_t open_peer(weft_shm_t *shm, int rank)
{
    weft_shm_peer_t *peer = &shm->peers[rank];
    weft_host_t *host = shm->host;
    char *base;
    if (peer->block->chunk != shm->chunk) {
        char mine[32], theirs[32];
        weft_fault_t fault;
        snprintf(mine, sizeof(mine), "%zu", shm->chunk);
        snprintf(theirs, sizeof(theirs), "%llu", (unsigned long long)peer->block->chunk);
        weft__watch_unlike(false, "WEFT_CHUNK is", shm->rank, mine, rank, theirs, &fault);
        return weft__host_break_with(host, &fault);
    }
    weft_status_t status = weft__heap_open(&peer->block->heap, &base);
    if (status != WEFT_OK) {
        return weft__host_break(host, status, rank, "rank %d cannot map the memory of rank %d: %s",
                                shm->rank, rank, weft_last_error());
    }
    peer->heap_open = true;
    peer->delta = host->peers[rank].near ? 0 : (intptr_t)base - (intptr_t)peer->block->heap_base;
    return WEFT_OK;
}

static weft_status_t shm_meet(weft_comm_h comm)
{
    WEFT_TRY(weft__host_meet(comm->host));
    for (int p = 0; p < comm->size; p++) {
        if (p != comm->rank) {
            WEFT_TRY(open_peer(comm->ctx, p));
        }
    }
    weft__host_ready(comm->host);
    return WEFT_OK;
}

static weft_status_t shm_settle(weft_comm_h comm, weft_rendezvous_t *at)
{
    return weft__host_settle(comm->host, at);
}

static weft_status_t shm_split(void *ctx, int color, int key, weft_comm_h child)
{
    return weft__host_split(((weft_shm_t *)ctx)->host, color, key, child);
}

/* ---- errors ------------------------------------------------------------------------------- */

static weft_status_t shm_error(void *ctx, const char **text_p)
{
    return weft__host_error(((weft_shm_t *)ctx)->host, text_p);
}

static weft_status_t shm_told(void *ctx)
{
    weft_host_t *host = ((weft_shm_t *)ctx)->host;
    return weft__host_is_broken(host) ? weft__host_broken(host) : WEFT_OK;
}

static void shm_fail(void *ctx, weft_status_t status, int culprit, const char *text)
{
    weft__segment_break(((weft_shm_t *)ctx)->host->segment, status, culprit, text);
}

static void shm_abort(void *ctx)
{
    weft__host_abort(((weft_shm_t *)ctx)->host);
}

/* ---- memory for others -------------------------------------------------------------------- */

static weft_status_t shm_publish(void *ctx, const void *ptr, size_t bytes, uint64_t *ref_p)
{
    const weft_shm_t *shm = ctx;
    if (!weft__shm_shared(shm, ptr, bytes)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%p is not memory of device %d: other ranks cannot reach it", ptr,
                          shm->device);
    }
    *ref_p = (uint64_t)(uintptr_t)ptr;
    return WEFT_OK;
}

static void *shm_locate(void *ctx, int rank, uint64_t ref)
{
    return weft__shm_reach(ctx, rank, ref);
}

const weft_backend_ops_t weft__backend_shm = {
    .abi = WEFT_BACKEND_ABI,
    .name = "shm",
    .engine = "weft",
    .probe = shm_probe,
    .enter = shm_enter,
    .meet = shm_meet,
    .settle = shm_settle,
    .split = shm_split,
    .collective = weft__shm_collective,
    .exchange = weft__shm_exchange,
    .small = weft__shm_small,
    .publish = shm_publish,
    .locate = shm_locate,
    .error = shm_error,
    .told = shm_told,
    .fail = shm_fail,
    .abort = shm_abort,
    .close = shm_close,
};
