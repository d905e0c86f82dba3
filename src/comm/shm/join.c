/* Joining and leaving a communicator over shared memory; splitting one. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "boot/job.h"
#include "comm/cuda/cuda.h"
#include "comm/shm/procs.h"
#include "comm/shm/shm.h"
#include "comm/shm/wait.h"

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

static weft_shm_t *alloc_shm(int size)
{
    weft_shm_t *shm = calloc(1, sizeof(*shm));
    if (!shm) {
        return NULL;
    }
    shm->peers = calloc((size_t)size, sizeof(*shm->peers));
    shm->lanes = calloc((size_t)size, sizeof(*shm->lanes));
    shm->pointers = calloc(3 * (size_t)size, sizeof(*shm->pointers));
    if (!shm->peers || !shm->lanes || !shm->pointers) {
        free(shm->peers);
        free(shm->lanes);
        free(shm->pointers);
        free(shm);
        return NULL;
    }
    return shm;
}

/* Is this process one of more ranks than the machine has cores? */
static bool job_crowded(void)
{
    const weft_job_t *job;
    return weft__job(&job) == WEFT_OK && job->local_size > (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Write who we are into our block and let the others see it. */
static weft_status_t introduce(weft_shm_t *shm, bool parent_crowded)
{
    weft_rank_block_t *me = shm->me;
    uint64_t absent = WEFT_RANK_ABSENT;
    if (!atomic_compare_exchange_strong(&me->state, &absent, WEFT_RANK_TAKEN)) {
        shm->me = NULL; /* it is somebody else's */
        return weft__fail(WEFT_ERR_INVALID, "rank %d of this communicator has joined already",
                          shm->rank);
    }
    weft_status_t status = weft__heap_export(shm->device, &me->heap);
    if (status != WEFT_OK) {
        return weft__shm_break(shm, status, shm->rank, "rank %d: %s", shm->rank, weft_last_error());
    }
    char *base;
    status = weft__heap_open(&me->heap, &base);
    if (status != WEFT_OK) {
        return weft__shm_break(shm, status, shm->rank, "rank %d: %s", shm->rank, weft_last_error());
    }
    shm->peers[shm->rank].heap_open = true;
    me->heap_base = (uint64_t)(uintptr_t)base;
    me->pid = getpid();
    me->device = shm->device;
    CPU_ZERO(&me->cpus);
    sched_getaffinity(0, sizeof(me->cpus), &me->cpus);
    me->chunk = shm->chunk;
    me->crowded = parent_crowded || job_crowded();
    status = weft__device_is_cuda() ? weft__cuda_introduce(shm->comm) : WEFT_OK;
    if (status != WEFT_OK) {
        return weft__shm_break(shm, status, shm->rank, "rank %d: %s", shm->rank, weft_last_error());
    }
    atomic_store_explicit(&me->state, WEFT_RANK_JOINED, memory_order_release);
    weft__ring_bell(me);
    return WEFT_OK;
}

static weft_status_t enter(weft_segment_t *segment, int rank, weft_comm_h comm, bool parent_crowded)
{
    int size = (int)segment->head->size;
    weft_shm_t *shm = alloc_shm(size);
    if (!shm) {
        weft__segment_close(segment);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", size);
    }
    shm->segment = segment;
    shm->rank = rank;
    shm->size = size;
    shm->device = comm->device;
    shm->comm = comm;
    shm->naps = !weft__wait_init();
    shm->kernels = weft__kernels();
    shm->chunk = usable_chunk(weft__settings()->chunk);
    for (int p = 0; p < size; p++) {
        shm->peers[p] = (weft_peer_t){
            .block = weft__segment_block(segment, p), .pidfd = -1, .near = p == rank};
    }
    for (int p = 0; p < size; p++) {
        shm->pointers[2 * size + p] = shm->peers[p].block->tmp;
    }
    shm->me = shm->peers[rank].block;
    comm->rank = rank;
    comm->size = size;
    comm->tuner.size = size;
    comm->backend = &weft__backend_shm;
    comm->ctx = shm;
    comm->shm = shm;
    return introduce(shm, parent_crowded);
}

weft_status_t weft__shm_enter(weft_segment_t *segment, int rank, weft_comm_h comm)
{
    return enter(segment, rank, comm, false);
}

static weft_status_t wait_state(weft_shm_t *shm, uint64_t state)
{
    shm->current = NULL;
    for (int p = 0; p < shm->size; p++) {
        weft_status_t status = weft__wait(shm, p, &shm->peers[p].block->state, state);
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

/* More ranks than cores, among ourselves or for what some of us belong to? Then a waiting rank must
 * give way at once. All ranks come to the same answer, the tuner depends on it. */
static bool is_crowded(const weft_shm_t *shm)
{
    cpu_set_t all;
    bool any = false;
    CPU_ZERO(&all);
    for (int p = 0; p < shm->size; p++) {
        CPU_OR(&all, &all, &shm->peers[p].block->cpus);
        any = any || shm->peers[p].block->crowded;
    }
    return any || shm->size > CPU_COUNT(&all);
}

static void watch_peer(weft_peer_t *peer, int pid)
{
    if (!peer->watched) {
        peer->pid = pid;
        peer->pidfd = weft__proc_open(pid);
        peer->watched = true;
    }
}

static weft_status_t open_peer(weft_shm_t *shm, int rank)
{
    weft_peer_t *peer = &shm->peers[rank];
    if (rank == shm->rank) {
        return WEFT_OK;
    }
    peer->near = peer->block->pid == getpid();
    if (peer->block->chunk != shm->chunk) {
        return weft__shm_break(
            shm, WEFT_ERR_MISMATCH, rank,
            "ranks have different settings: WEFT_CHUNK is %zu on rank %d, %llu on "
            "rank %d",
            shm->chunk, shm->rank, (unsigned long long)peer->block->chunk, rank);
    }
    char *base;
    weft_status_t status = weft__heap_open(&peer->block->heap, &base);
    if (status != WEFT_OK) {
        return weft__shm_break(shm, status, rank, "rank %d cannot map the memory of rank %d: %s",
                               shm->rank, rank, weft_last_error());
    }
    peer->heap_open = true;
    peer->delta = peer->near ? 0 : (intptr_t)base - (intptr_t)peer->block->heap_base;
    watch_peer(peer, peer->block->pid);
    return WEFT_OK;
}

weft_status_t weft__shm_meet(weft_comm_h comm)
{
    weft_shm_t *shm = comm->shm;
    weft_status_t status = wait_state(shm, WEFT_RANK_JOINED);
    if (status != WEFT_OK) {
        return status;
    }
    weft__segment_seal(shm->segment);
    shm->one_process = true;
    for (int p = 0; p < shm->size; p++) {
        status = open_peer(shm, p);
        if (status != WEFT_OK) {
            return status;
        }
        shm->one_process = shm->one_process && shm->peers[p].near;
    }
    shm->crowded = is_crowded(shm);
    comm->tuner.crowded = shm->crowded;
    shm->spin = weft__wait_spin(shm->crowded);
    status = weft__device_is_cuda() ? weft__cuda_meet(comm) : WEFT_OK;
    if (status != WEFT_OK) {
        return weft__shm_break(shm, status, shm->rank, "rank %d: %s", shm->rank, weft_last_error());
    }
    atomic_store_explicit(&shm->me->state, WEFT_RANK_READY, memory_order_release);
    weft__ring_bell(shm->me);
    return WEFT_OK;
}

weft_status_t weft__shm_settle(weft_comm_h comm)
{
    weft_status_t status = wait_state(comm->shm, WEFT_RANK_READY);
    if (status == WEFT_OK && weft__device_is_cuda()) {
        weft__cuda_settle(comm);
    }
    return status;
}

weft_status_t weft__shm_join(weft_segment_t *segment, int rank, weft_comm_h comm)
{
    weft_status_t status = weft__shm_enter(segment, rank, comm);
    if (status == WEFT_OK) {
        status = weft__shm_meet(comm);
    }
    return status == WEFT_OK ? weft__shm_settle(comm) : status;
}

void weft__shm_close(void *ctx)
{
    weft_shm_t *shm = ctx;
    if (shm->me) {
        atomic_store_explicit(&shm->me->state, WEFT_RANK_LEFT, memory_order_release);
        weft__ring_bell(shm->me);
    }
    for (int p = 0; p < shm->size; p++) {
        weft_peer_t *peer = &shm->peers[p];
        if (peer->heap_open) {
            weft__heap_close(&peer->block->heap);
        }
        if (peer->watched) {
            weft__proc_close(peer->pid);
        }
    }
    if (shm->bounce) {
        weft__heap_free(shm->bounce);
    }
    weft__segment_close(shm->segment);
    free(shm->peers);
    free(shm->lanes);
    free(shm->pointers);
    free(shm);
}

weft_status_t weft__shm_error(void *ctx, const char **text_p)
{
    weft_shm_t *shm = ctx;
    weft_segment_head_t *head = shm->segment->head;
    bool broken = atomic_load_explicit(&head->broken, memory_order_acquire) == 2;
    *text_p = broken ? head->text : "";
    return broken ? (weft_status_t)head->status : WEFT_OK;
}

void weft__shm_abort(void *ctx)
{
    weft_shm_t *shm = ctx;
    weft__shm_break(shm, WEFT_ERR_ABORTED, shm->rank, "rank %d aborted the communicator",
                    shm->rank);
    /* Whoever is just entering a call has not been told yet. */
    atomic_store_explicit(&shm->told, false, memory_order_relaxed);
}

/* ---- split ------------------------------------------------------------------------------ */

typedef struct ballot {
    int32_t color, key;
} ballot_t;

/* `bytes` of every rank to all. The first of a split is a call of its own, the second belongs to it. */
static weft_status_t gather_bytes(weft_shm_t *shm, bool first, const void *mine, void *all,
                                  size_t bytes)
{
    weft_call_t call = {.coll = WEFT_COLL_ALLGATHER,
                        .type = WEFT_U8,
                        .count = bytes,
                        .src = mine,
                        .dst = all,
                        .comm = shm->comm};
    if (first) {
        return weft__shm_collective(shm, &call);
    }
    shm->current = &call;
    return weft__shm_run_piece(shm, &call, WEFT_ALGO_ONESHOT);
}

/* The place of rank `who` among those of its color, their number, and who is first. */
static void find_place(const weft_shm_t *shm, const ballot_t *ballots, int who, int *rank_p,
                       int *size_p, int *leader_p)
{
    const ballot_t *mine = &ballots[who];
    int before = 0, size = 0, leader = -1;
    for (int p = 0; p < shm->size; p++) {
        const ballot_t *b = &ballots[p];
        if (b->color != mine->color) {
            continue;
        }
        size++;
        before += b->key < mine->key || (b->key == mine->key && p < who);
        if (leader < 0 || b->key < ballots[leader].key) {
            leader = p;
        }
    }
    *rank_p = before;
    *size_p = size;
    *leader_p = leader;
}

static weft_status_t split_segment(weft_shm_t *shm, bool joins, const ballot_t *ballots,
                                   weft_segment_handle_t *handles, weft_segment_t **segment_p,
                                   int *rank_p)
{
    int size, leader;
    weft_segment_handle_t mine = {0};
    weft_status_t made = WEFT_OK;
    *segment_p = NULL;
    find_place(shm, ballots, shm->rank, rank_p, &size, &leader);
    if (joins && leader == shm->rank) {
        made = weft__segment_create(size, segment_p);
        if (made == WEFT_OK) {
            mine = (*segment_p)->handle;
        }
    }
    weft_status_t status = gather_bytes(shm, false, &mine, handles, sizeof(mine));
    if (status != WEFT_OK || made != WEFT_OK || !joins || leader == shm->rank) {
        return status != WEFT_OK ? status : made;
    }
    if (handles[leader].pid == 0) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "rank %d could not make the new communicator",
                          leader);
    }
    status = weft__segment_open(&handles[leader], segment_p);
    if (status != WEFT_OK &&
        atomic_load_explicit(&shm->segment->head->broken, memory_order_acquire) != 0) {
        return weft__shm_broken(shm); /* which is why the leader took it away */
    }
    return status;
}

/* Those who join the child are known from the parent: one that dies before it has joined is missed at
 * once. */
static void watch_family(const weft_shm_t *shm, const ballot_t *ballots, weft_shm_t *child)
{
    for (int p = 0; p < shm->size; p++) {
        int rank, size, leader;
        if (p != shm->rank && ballots[p].color == ballots[shm->rank].color) {
            find_place(shm, ballots, p, &rank, &size, &leader);
            watch_peer(&child->peers[rank], shm->peers[p].pid);
        }
    }
}

weft_status_t weft__shm_split(void *ctx, int color, int key, weft_comm_h child)
{
    weft_shm_t *shm = ctx;
    ballot_t mine = {color < 0 ? -1 : color, key};
    ballot_t *ballots = calloc((size_t)shm->size, sizeof(*ballots));
    weft_segment_handle_t *handles = calloc((size_t)shm->size, sizeof(*handles));
    weft_segment_t *segment = NULL;
    weft_status_t status;
    int rank = 0;
    if (!ballots || !handles) {
        status = weft__shm_break(shm, WEFT_ERR_NO_MEMORY, shm->rank,
                                 "rank %d has no memory to split the communicator", shm->rank);
        goto out;
    }
    status = gather_bytes(shm, true, &mine, ballots, sizeof(mine));
    if (status == WEFT_OK) {
        status = split_segment(shm, color >= 0, ballots, handles, &segment, &rank);
    }
    if (status == WEFT_OK && color >= 0) {
        status = enter(segment, rank, child, shm->crowded);
        segment = NULL;
        if (status == WEFT_OK) {
            weft_shm_t *joining = child->shm;
            joining->parent = shm; /* an error there ends the joining as well */
            watch_family(shm, ballots, joining);
            status = weft__shm_meet(child);
            status = status == WEFT_OK ? weft__shm_settle(child) : status;
            joining->parent = NULL;
        }
        if (status == WEFT_ERR_RANK_DEAD) { /* the parent has lost that rank as well */
            weft__shm_break(shm, status, shm->rank, "while splitting: %s", weft_last_error());
        }
    }
out:
    if (segment) {
        weft__segment_close(segment);
    }
    free(ballots);
    free(handles);
    return status;
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
    .collective = weft__shm_collective,
    .exchange = weft__shm_exchange,
    .split = weft__shm_split,
    .publish = shm_publish,
    .locate = shm_locate,
    .error = weft__shm_error,
    .abort = weft__shm_abort,
    .close = weft__shm_close,
};
