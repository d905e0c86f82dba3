/* Ranks on GPUs join, map each other's memory, and leave. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"
#include "comm/cuda/cuda.h"
#include "comm/cuda/maps.h"
#include "comm/cuda/probe.h"
#include "comm/host/procs.h"
#include "kernel/scale.h"

/* ---- slabs ------------------------------------------------------------------------------ */

/* Write those slabs of ours into the peer info that are not there yet. Others see them from here
 * on. */
static weft_status_t write_slabs(weft_cuda_t *cuda)
{
    weft_cuda_peer_info_t *info = cuda->infos[cuda->rank];
    int have = weft__cuda_slab_count(cuda->device);
    int known = (int)atomic_load_explicit(&info->slabs, memory_order_relaxed);
    for (int i = known; i < have; i++) {
        weft_cuda_slab_t slab = weft__cuda_slab(cuda->device, i);
        info->slab[i].base = (uint64_t)(uintptr_t)slab.base;
        info->slab[i].bytes = slab.bytes;
        info->slab[i].id = slab.id;
        int error = slab.bytes == 0
                        ? 0
                        : weft__cuda()->ipc_export(cuda->gpu, slab.base, info->slab[i].handle);
        if (error != 0 && slab.uses > 0) { /* registered, and freed meanwhile: there is none */
            info->slab[i].bytes = 0;
        } else if (error != 0) {
            return weft__cuda_status(error,
                                     "memory of a GPU cannot be shared with other processes");
        }
    }
    /* Partner: the acquire loads in weft__cuda_map_slabs of the other ranks. */
    atomic_store_explicit(&info->slabs, (uint32_t)have, memory_order_release);
    return WEFT_OK;
}

/* Slab `number` of rank `p`, as it is mapped here. */
static weft_status_t map_slab(weft_cuda_t *cuda, int p, int number, void **base_p)
{
    weft_cuda_peer_info_t *info = cuda->infos[p];
    *base_p = NULL;
    if (info->slab[number].bytes == 0) {
        return WEFT_OK;
    }
    if (cuda->host->peers[p].near) {
        *base_p = (void *)(uintptr_t)info->slab[number].base;
        return WEFT_OK;
    }
    int error = weft__cuda_map(cuda->gpu, info->slab[number].id, info->slab[number].handle, base_p);
    if (error == 0) {
        return WEFT_OK;
    }
    return weft__fail(WEFT_ERR_SYSTEM,
                      "the memory of rank %d (process %d, %llu bytes) cannot be mapped: CUDA says: "
                      "%s",
                      p, cuda->host->peers[p].block->pid,
                      (unsigned long long)info->slab[number].bytes,
                      error > 0 ? weft__cuda()->error_text(error) : "no memory");
}

static size_t table_bytes(const weft_cuda_t *cuda)
{
    return (size_t)cuda->size * WEFT_CUDA_SLABS * sizeof(void *);
}

weft_status_t weft__cuda_map_slabs(weft_cuda_t *cuda)
{
    weft_cuda_peer_info_t *mine = cuda->infos[cuda->rank];
    for (int p = 0; p < cuda->size; p++) {
        /* Partner: the release store in write_slabs. */
        uint32_t have = atomic_load_explicit(&cuda->infos[p]->slabs, memory_order_acquire);
        uint32_t known = atomic_load_explicit(&mine->mapped[p], memory_order_relaxed);
        if (known == have) {
            continue;
        }
        for (uint32_t i = known; i < have; i++) {
            void *base;
            WEFT_TRY(map_slab(cuda, p, (int)i, &base));
            /* Read by kernels that run; the owner orders them behind this. */
            __atomic_store_n(&cuda->mapped[(size_t)p * WEFT_CUDA_SLABS + i], base,
                             __ATOMIC_RELAXED);
        }
        /* Partner: the acquire load in weft__cuda_copy_slabs. */
        atomic_fetch_add_explicit(&cuda->news, 1, memory_order_release);
        /* Partner: the acquire load in all_mapped of rank p. */
        atomic_store_explicit(&mine->mapped[p], have, memory_order_release);
    }
    return WEFT_OK;
}

weft_status_t weft__cuda_copy_slabs(weft_cuda_t *cuda, void *native)
{
    /* Partner: the release in weft__cuda_map_slabs. */
    uint32_t news = atomic_load_explicit(&cuda->news, memory_order_acquire);
    if (!cuda->far || cuda->copied == news) {
        return WEFT_OK;
    }
    cuda->copied = news;
    int error = weft__cuda()->copy(cuda->gpu, cuda->slabs, cuda->mapped, table_bytes(cuda), native);
    return weft__cuda_status(error, "the table of mapped memory cannot be written");
}

/* By this rank as well, which may send to itself. */
static bool all_mapped(const weft_cuda_t *cuda, int slab, int *missing_p)
{
    for (int p = 0; p < cuda->size; p++) {
        if (atomic_load_explicit(&cuda->infos[p]->mapped[cuda->rank], memory_order_acquire) <=
            (uint32_t)slab) {
            *missing_p = p;
            return false;
        }
    }
    return true;
}

/* Is the rank that keeps us waiting gone, or late? */
static void look_at_mapper(weft_cuda_t *cuda, int peer, uint64_t waited_ns)
{
    char doing[80];
    weft_waiting_t waiting = weft__cuda_waiting(cuda, peer);
    weft_seen_t seen = weft__cuda_see(cuda, peer);
    snprintf(doing, sizeof(doing), "waiting for rank %d to map new device memory", peer);
    waiting.doing = doing;
    waiting.waited_ns = waited_ns;
    seen.owes = WEFT_OWES_ALL;
    weft__cuda_judge(cuda, &waiting, &seen, 1);
}

weft_status_t weft__cuda_publish(weft_cuda_t *cuda, int slab)
{
    int missing = 0;
    if (all_mapped(cuda, slab, &missing)) {
        return WEFT_OK;
    }
    weft_status_t status = write_slabs(cuda);
    uint64_t start = weft__now_ns();
    while (status == WEFT_OK && !all_mapped(cuda, slab, &missing)) {
        usleep(100); /* their watches see it within a millisecond or two */
        look_at_mapper(cuda, missing, weft__now_ns() - start);
        status = weft__cuda_check(cuda);
    }
    return status;
}

/* ---- joining ---------------------------------------------------------------------------- */

static void free_cuda(weft_cuda_t *cuda, bool broken)
{
    void *events[] = {cuda->order, cuda->pace};
    for (int i = 0; i < 2; i++) {
        if (events[i]) {
            weft__cuda()->event_destroy(cuda->gpu, events[i]);
        }
    }
    weft_stream_destroy(cuda->own);
    weft_free(cuda->slabs);
    if (cuda->mailbox && broken) {
        weft__cuda_defer_free(cuda->mailbox);
    } else {
        weft_free(cuda->mailbox);
    }
    weft_host_free(cuda->report);
    weft_host_free(cuda->mapped);
    pthread_mutex_destroy(&cuda->lock);
    weft__cuda_unhold();
    weft__cuda_forget_shares();
    weft__cuda_unmap_unused();
    free(cuda);
}

static weft_status_t make_memory(weft_cuda_t *cuda)
{
    void *mailbox, *slabs, *report, *mapped;
    WEFT_TRY(weft__device_malloc(cuda->device, &mailbox, sizeof(weft_cuda_mailbox_t)));
    cuda->mailbox = mailbox;
    WEFT_TRY(weft__device_malloc(cuda->device, &slabs, table_bytes(cuda)));
    cuda->slabs = slabs;
    WEFT_TRY(weft_host_malloc(&mapped, table_bytes(cuda)));
    cuda->mapped = mapped;
    memset(mapped, 0, table_bytes(cuda));
    WEFT_TRY(weft_host_malloc(&report, sizeof(weft_cuda_report_t) + 64));
    cuda->report = report;
    memset(report, 0, sizeof(weft_cuda_report_t) + 64);
    cuda->stop = (uint32_t *)((char *)report + sizeof(weft_cuda_report_t));
    void *own = WEFT_CUDA_THREAD_STREAM; /* the fewer streams there are, the fewer share a queue */
    int error = weft__cuda()->fill(cuda->gpu, mailbox, 0, sizeof(weft_cuda_mailbox_t), own);
    error = error ? error : weft__cuda()->fill(cuda->gpu, slabs, 0, table_bytes(cuda), own);
    error = error ? error : weft__cuda()->stream_sync(cuda->gpu, own);
    return weft__cuda_status(error, "a communicator's memory on the GPU");
}

static weft_status_t fill_peer_info(weft_cuda_t *cuda)
{
    weft_cuda_peer_info_t *info = cuda->infos[cuda->rank];
    const weft_cuda_props_t *props = weft__cuda_props(cuda->gpu);
    weft_cuda_slab_t slab;
    memcpy(info->uuid, props->uuid, sizeof(info->uuid));
    info->gpu = cuda->gpu;
    info->sms = props->sms;
    info->mps = props->mps;
    info->share = weft__cuda_known_share(cuda->gpu);
    info->concurrent_comms = cuda->comm->concurrent_comms;
    weft__cuda_find(cuda->mailbox, sizeof(*cuda->mailbox), &slab);
    int number;
    WEFT_TRY(weft__cuda_number(&slab, &number));
    info->mailbox = (uint64_t)(number + 1) << 48 | (uint64_t)((char *)cuda->mailbox - slab.base);
    info->mailbox_address = (uint64_t)(uintptr_t)cuda->mailbox;
    return write_slabs(cuda);
}

#define OUT_OF_MEMORY 2 /* cudaErrorMemoryAllocation: of memory, or of MPS's connections */

static weft_status_t load_kernels(const weft_cuda_t *cuda)
{
    int error = weft__cuda_kernels()->load(cuda->gpu);
    const char *what = error == OUT_OF_MEMORY && weft__cuda_props(cuda->gpu)->mps == 1
                           ? "kernels cannot be loaded (if the GPU has memory left, the jobs on it "
                             "ask for more connections than MPS has: give each of them a "
                             "smaller " WEFT_CUDA_CONNECTIONS ", or run one after the other)"
                           : "kernels cannot be loaded";
    return weft__cuda_status(error, what);
}

/* This rank's mailbox, and its peer info. */
static weft_status_t prepare(weft_cuda_t *cuda)
{
    WEFT_TRY(load_kernels(cuda));
    WEFT_TRY(weft__scale_load(cuda->gpu));
    WEFT_TRY(make_memory(cuda));
    return fill_peer_info(cuda);
}

static weft_status_t open_cuda(weft_comm_h comm)
{
    if (comm->size > WEFT_CUDA_RANKS) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "a communicator of %d ranks on the GPUs of one host; at most %d are "
                          "possible",
                          comm->size, WEFT_CUDA_RANKS);
    }
    weft_cuda_t *cuda = calloc(1, sizeof(*cuda));
    if (!cuda) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a communicator of %d ranks",
                          comm->size);
    }
    cuda->host = comm->host;
    cuda->comm = comm;
    cuda->rank = comm->rank;
    cuda->size = comm->size;
    cuda->device = comm->device;
    cuda->gpu = weft__cuda_gpu(comm->device);
    pthread_mutex_init(&cuda->lock, NULL);
    for (int p = 0; p < cuda->size; p++) {
        cuda->infos[p] = weft__segment_rank(comm->host->segment, p);
    }
    weft__cuda_hold();
    weft_status_t status = prepare(cuda);
    if (status != WEFT_OK) {
        free_cuda(cuda, false);
        return status;
    }
    comm->ctx = cuda;
    return WEFT_OK;
}

static weft_status_t cuda_enter(weft_comm_h comm, weft_rendezvous_t *at, int rank, int size)
{
    const weft_layout_t layout = {.rank_bytes = sizeof(weft_cuda_peer_info_t)};
    WEFT_TRY(weft__host_enter(comm, at, rank, size, layout));
    weft_status_t status = open_cuda(comm);
    if (status != WEFT_OK) {
        return weft__host_fail_joining(comm->host, status);
    }
    weft__host_introduce(comm->host);
    return WEFT_OK;
}

static bool same_gpu(const weft_cuda_t *cuda, int a, int b)
{
    return memcmp(cuda->infos[a]->uuid, cuda->infos[b]->uuid, 16) == 0;
}

/* Do flags and data of these two go from one GPU to another? */
static bool apart(const weft_cuda_t *cuda, int a, int b)
{
    return a != b && (!same_gpu(cuda, a, b) || weft__settings()->gpus_apart >= 1);
}

/* Ranks of other processes on one GPU only run at the same time under MPS. */
static weft_status_t check_sharing(const weft_cuda_t *cuda, int p)
{
    int mps = cuda->infos[cuda->rank]->mps;
    if (cuda->host->peers[p].near || !same_gpu(cuda, p, cuda->rank) || mps == 1 ||
        weft__settings()->take_turns) {
        return WEFT_OK;
    }
    if (mps < 0) {
        weft__warn("ranks %d and %d are processes that share GPU %d; this driver does not say "
                   "whether MPS runs, without which they would take turns of milliseconds",
                   cuda->rank, p, cuda->gpu);
        return WEFT_OK;
    }
    return weft__fail(
        WEFT_ERR_UNSUPPORTED,
        "ranks %d and %d are processes that share GPU %d (%s), and MPS is off: their "
        "kernels would wait for each other while only one process may run. Start it "
        "with nvidia-cuda-mps-control -d, or make the ranks threads of one process, or let "
        "them take turns, slowly, with WEFT_TAKE_TURNS=1",
        cuda->rank < p ? cuda->rank : p, cuda->rank < p ? p : cuda->rank, cuda->gpu,
        weft__cuda_props(cuda->gpu)->name);
}

/* Kernels that wait for each other need hardware queues of their own, of which a process has 32; a
 * rank uses two, and the program has streams as well. */
#define THREADS_MOST 12

static weft_status_t check_threads(const weft_cuda_t *cuda)
{
    int threads = 0;
    for (int p = 0; p < cuda->size; p++) {
        threads += cuda->host->peers[p].near && same_gpu(cuda, p, cuda->rank);
    }
    if (threads > THREADS_MOST) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "%d ranks are threads of one process on GPU %d; at most %d are possible. "
                          "Start some of them as processes, under MPS",
                          threads, cuda->gpu, THREADS_MOST);
    }
    return WEFT_OK;
}

static weft_status_t check_reach(const weft_cuda_t *cuda, int p)
{
    bool reached = true;
    if (same_gpu(cuda, p, cuda->rank) || !cuda->host->peers[p].near) {
        return WEFT_OK; /* opening the memory of another process finds out */
    }
    int error = weft__cuda()->reach(cuda->gpu, cuda->infos[p]->gpu, &reached);
    if (error == 0 && !reached) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "GPU %d of rank %d cannot reach the memory of GPU %d of rank %d; "
                          "WEFT_ENGINE=nccl goes other ways",
                          cuda->gpu, cuda->rank, cuda->infos[p]->gpu, p);
    }
    return weft__cuda_status(error, "peer access between GPUs");
}

/* What kernels are told about everybody. */
static void fill_world(weft_cuda_t *cuda)
{
    weft_cuda_world_t *world = &cuda->world;
    world->rank = cuda->rank;
    world->size = cuda->size;
    world->timeout_ns = (uint64_t)cuda->comm->timeout_ms * 1000000u;
    world->ll_words = WEFT_CUDA_LL_SPACE / 8 / 2 / (uint64_t)cuda->size / 2 * 2;
    world->slabs = cuda->far ? cuda->slabs : NULL;
    world->new_slabs = (const uint64_t *)(const void *)cuda->mapped;
    world->report = cuda->report;
    world->stop = cuda->stop;
    for (int p = 0; p < cuda->size; p++) {
        const weft_cuda_peer_info_t *info = cuda->infos[p];
        size_t slab = (size_t)(info->mailbox >> 48) - 1;
        char *base = cuda->mapped[(size_t)p * WEFT_CUDA_SLABS + slab];
        world->mailbox[p] = (weft_cuda_mailbox_t *)(base + (info->mailbox & 0xffffffffffffu));
        world->wide |= apart(cuda, p, cuda->rank);
    }
}

/* The share of a rank in the GPU it is on, for the rank with the least: all grids are alike. */
static void share_gpus(weft_cuda_t *cuda)
{
    int share = WEFT_CUDA_BLOCKS, concurrent_comms = 1;
    for (int p = 0; p < cuda->size; p++) {
        const weft_cuda_peer_info_t *info = cuda->infos[p];
        int here = 0;
        for (int q = 0; q < cuda->size; q++) {
            here += same_gpu(cuda, p, q);
        }
        share = info->sms / here < share ? info->sms / here : share;
        share = info->share < share ? info->share : share;
        concurrent_comms = info->concurrent_comms > concurrent_comms ? info->concurrent_comms
                                                                     : concurrent_comms;
    }
    weft__cuda_note_share(cuda->gpu, share > 0 ? share : 1);
    cuda->most_blocks = share / concurrent_comms > 0 ? share / concurrent_comms : 1;
    cuda->overlaps = weft__cuda_props(cuda->gpu)->major >= 9 && weft__settings()->overlap;
}

bool weft__cuda_shares_gpu(const weft_cuda_t *cuda)
{
    for (int p = 0; p < cuda->size; p++) {
        for (int q = 0; q < p; q++) {
            if (!apart(cuda, p, q)) {
                return true;
            }
        }
    }
    return false;
}

/* All peer infos are there: check that the GPUs can reach each other, and map what is needed. */
static weft_status_t connect(weft_cuda_t *cuda)
{
    WEFT_TRY(check_threads(cuda));
    for (int p = 0; p < cuda->size; p++) {
        cuda->far |= !cuda->host->peers[p].near;
        WEFT_TRY(check_sharing(cuda, p));
        WEFT_TRY(check_reach(cuda, p));
    }
    WEFT_TRY(weft__cuda_map_slabs(cuda));
    WEFT_TRY(weft__cuda_copy_slabs(cuda, WEFT_CUDA_THREAD_STREAM));
    WEFT_TRY(weft__cuda_status(weft__cuda()->stream_sync(cuda->gpu, WEFT_CUDA_THREAD_STREAM),
                               "a communicator's memory"));
    fill_world(cuda);
    share_gpus(cuda);
    weft__tune_read(weft__cuda_props(cuda->gpu)->name, cuda->size, weft__cuda_shares_gpu(cuda),
                    &cuda->tune);
    weft__cuda_engine_enter(cuda);
    return weft__cuda_watch(cuda);
}

static weft_status_t cuda_meet(weft_comm_h comm)
{
    WEFT_TRY(weft__host_meet(comm->host));
    weft_status_t status = connect(comm->ctx);
    if (status != WEFT_OK) {
        return weft__host_fail_joining(comm->host, status);
    }
    weft__host_ready(comm->host);
    return WEFT_OK;
}

static weft_status_t cuda_settle(weft_comm_h comm, weft_rendezvous_t *at)
{
    WEFT_TRY(weft__host_settle(comm->host, at));
    weft__cuda_engine_settle(comm->ctx);
    return WEFT_OK;
}

/* ---- leaving ---------------------------------------------------------------------------- */

static void unmap_slabs(weft_cuda_t *cuda)
{
    for (int p = 0; p < cuda->size; p++) {
        for (int i = 0; i < WEFT_CUDA_SLABS && !cuda->host->peers[p].near; i++) {
            if (cuda->mapped[(size_t)p * WEFT_CUDA_SLABS + (size_t)i]) {
                weft__cuda_unmap(cuda->gpu, cuda->infos[p]->slab[i].id);
            }
        }
    }
}

static void cuda_close(void *ctx)
{
    weft_cuda_t *cuda = ctx;
    /* Kernels of ours end: the others have made their calls, or the watch ends the kernels. */
    weft__cuda_drain(&cuda->last);
    bool broken = weft__cuda_broken(cuda);
    weft__cuda_unwatch(cuda);
    weft__cuda_forget(cuda);
    weft__cuda_reclaim(cuda, true);
    weft__cuda_engine_close(cuda);
    unmap_slabs(cuda);
    free_cuda(cuda, broken);
}

static weft_status_t cuda_split(void *ctx, int color, int key, weft_comm_h child)
{
    return weft__host_split(((weft_cuda_t *)ctx)->host, color, key, child);
}

static weft_status_t cuda_error(void *ctx, const char **text_p)
{
    weft_cuda_t *cuda = ctx;
    weft__cuda_broken(cuda);
    return weft__host_error(cuda->host, text_p);
}

static void cuda_abort(void *ctx)
{
    weft_cuda_t *cuda = ctx;
    weft__host_abort(cuda->host);
    weft__cuda_broken(cuda); /* ends our kernels */
}

static weft_status_t cuda_told(void *ctx)
{
    return weft__cuda_check(ctx);
}

static void cuda_fail(void *ctx, weft_status_t status, int culprit, const char *text)
{
    weft__segment_break(((weft_cuda_t *)ctx)->host->segment, status, culprit, text);
}

static weft_status_t cuda_gpu_failed(void *ctx, int error, const char *what)
{
    return weft__cuda_failed(ctx, error, what);
}

static void cuda_gpu(void *ctx, weft_reach_gpu_t *gpu_p)
{
    const weft_cuda_t *cuda = ctx;
    *gpu_p = (weft_reach_gpu_t){.gpu = cuda->gpu,
                                .wide = cuda->world.wide,
                                .timeout_ns = cuda->world.timeout_ns,
                                .stop = cuda->stop};
}

/* ---- memory for others -------------------------------------------------------------------- */

static weft_status_t cuda_publish(void *ctx, const void *ptr, size_t bytes, uint64_t *ref_p)
{
    weft_cuda_t *cuda = ctx;
    bool reached = false;
    WEFT_TRY(weft__cuda_ref(cuda, ptr, bytes, ref_p, &reached));
    return reached ? WEFT_OK
                   : weft__fail(WEFT_ERR_INVALID,
                                "%p is not memory of device %d: other ranks cannot reach it", ptr,
                                cuda->device);
}

/* The owner has heard from this rank's watch that the slab is mapped, before it told us the
 * number. */
static void *cuda_locate(void *ctx, int rank, uint64_t ref)
{
    const weft_cuda_t *cuda = ctx;
    if (!cuda->far || ref == 0) {
        return (void *)(uintptr_t)ref;
    }
    char *base = cuda->mapped[(size_t)rank * WEFT_CUDA_SLABS + (ref >> 48) - 1];
    return base + (ref & 0xffffffffffffu);
}

const weft_backend_ops_t weft__backend_cuda = {
    .abi = WEFT_BACKEND_ABI,
    .name = "cuda",
    .engine = "weft",
    .probe = weft__cuda_probe,
    .enter = cuda_enter,
    .meet = cuda_meet,
    .settle = cuda_settle,
    .split = cuda_split,
    .launch = weft__cuda_launch,
    .fuses = weft__cuda_batch_size,
    .choose = weft__cuda_choose,
    .tune = weft__cuda_tune,
    .publish = cuda_publish,
    .locate = cuda_locate,
    .gpu = cuda_gpu,
    .gpu_failed = cuda_gpu_failed,
    .observe = weft__cuda_observe,
    .error = cuda_error,
    .told = cuda_told,
    .fail = cuda_fail,
    .abort = cuda_abort,
    .close = cuda_close,
};
