/* An NCCL made of Weft: its functions are carried out by a copy of Weft inside this library,
 * between virtual GPUs. With it and the fake GPU (fake_cuda.c), where they run in the thread that
 * calls them, every test of collectives can run over the nccl backend on a machine without GPUs. On
 * a soft GPU (test/soft_gpu) they run in the order of its streams, beside kernels. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "base/settings.h"
#include "comm/nccl/api.h"
#include "device/cuda_module.h"

#define ARGUMENTS(name, result, arguments) result nccl##name arguments;
WEFT_NCCL_TABLE(ARGUMENTS, ARGUMENTS)
#undef ARGUMENTS

static const weft_dtype_t types[] = {
    [WEFT_NCCL_INT8] = WEFT_I8,           [WEFT_NCCL_UINT8] = WEFT_U8,
    [WEFT_NCCL_INT32] = WEFT_I32,         [WEFT_NCCL_UINT32] = WEFT_U32,
    [WEFT_NCCL_INT64] = WEFT_I64,         [WEFT_NCCL_UINT64] = WEFT_U64,
    [WEFT_NCCL_FLOAT16] = WEFT_F16,       [WEFT_NCCL_FLOAT32] = WEFT_F32,
    [WEFT_NCCL_FLOAT64] = WEFT_F64,       [WEFT_NCCL_BFLOAT16] = WEFT_BF16,
    [WEFT_NCCL_FLOAT8E4M3] = WEFT_F8E4M3, [WEFT_NCCL_FLOAT8E5M2] = WEFT_F8E5M2};

static const weft_op_t ops[] = {[WEFT_NCCL_SUM] = WEFT_SUM,
                                [WEFT_NCCL_PROD] = WEFT_PROD,
                                [WEFT_NCCL_MAX] = WEFT_MAX,
                                [WEFT_NCCL_MIN] = WEFT_MIN,
                                [WEFT_NCCL_AVG] = WEFT_AVG};

static weft_comm_h comm_of(weft_nccl_comm_h comm)
{
    return (weft_comm_h)comm;
}

static weft_nccl_result_t result_of(weft_status_t status)
{
    switch (status) {
    case WEFT_OK:
        return WEFT_NCCL_SUCCESS;
    case WEFT_ERR_INVALID:
        return WEFT_NCCL_INVALID_ARGUMENT;
    case WEFT_ERR_UNSUPPORTED:
        return WEFT_NCCL_INVALID_USAGE;
    case WEFT_ERR_RANK_DEAD:
        return WEFT_NCCL_REMOTE_ERROR;
    default:
        return WEFT_NCCL_INTERNAL_ERROR;
    }
}

weft_settings_t fake_nccl_outside; /* keeps the strings of what is changed below */

/* The environment is that of the Weft outside, whose ranks are on GPUs. Nor does this one give up:
 * the one outside does, and aborts it. */
static __attribute__((constructor)) void settle(void)
{
    weft_settings_t *settings = (weft_settings_t *)weft__settings();
    fake_nccl_outside = *settings;
    settings->device = "cpu";
    settings->timeout = 0;
    settings->algo = "auto";
}

weft_nccl_result_t ncclGetVersion(int *version_p)
{
    *version_p = 22809;
    return WEFT_NCCL_SUCCESS;
}

weft_nccl_result_t ncclGetUniqueId(weft_nccl_id_t *id_p)
{
    _Static_assert(sizeof(*id_p) == sizeof(weft_unique_id_t), "one holds the other");
    weft_unique_id_t id;
    weft_status_t status = weft_unique_id_create(&id);
    memcpy(id_p, &id, sizeof(id));
    return result_of(status);
}

const char *ncclGetErrorString(weft_nccl_result_t result)
{
    return result == WEFT_NCCL_SUCCESS ? "no error" : "an error";
}

const char *ncclGetLastError(weft_nccl_comm_h comm)
{
    (void)comm;
    return weft_last_error();
}

weft_nccl_result_t ncclCommInitRank(weft_nccl_comm_h *comm_p, int size, weft_nccl_id_t id, int rank)
{
    weft_unique_id_t name;
    weft_comm_h comm = NULL;
    memcpy(&name, &id, sizeof(name));
    if (getenv("FAKE_NCCL_REFUSES")) {
        return WEFT_NCCL_INVALID_USAGE;
    }
    weft_status_t status = weft_comm_init_rank(&comm, size, name, rank, NULL);
    *comm_p = (weft_nccl_comm_h)comm;
    return result_of(status);
}

weft_nccl_result_t ncclCommSplit(weft_nccl_comm_h comm, int color, int key, weft_nccl_comm_h *new_p,
                                 void *config)
{
    weft_comm_h child = NULL;
    (void)config;
    weft_status_t status = weft_comm_split(comm_of(comm), color, key, &child, NULL);
    *new_p = (weft_nccl_comm_h)child;
    return result_of(status);
}

weft_nccl_result_t ncclCommDestroy(weft_nccl_comm_h comm)
{
    return result_of(weft_comm_destroy(comm_of(comm)));
}

weft_nccl_result_t ncclCommAbort(weft_nccl_comm_h comm)
{
    return result_of(weft_comm_abort(comm_of(comm)));
}

/* Of a handle that an abort has freed, Weft says so; a call in progress returns at once. */
weft_nccl_result_t ncclCommRevoke(weft_nccl_comm_h comm, int flags)
{
    (void)flags;
    return result_of(weft_comm_abort(comm_of(comm)));
}

static atomic_bool failed; /* with FAKE_NCCL_FAILS, as soon as a call has ended */

weft_nccl_result_t ncclCommGetAsyncError(weft_nccl_comm_h comm, weft_nccl_result_t *error_p)
{
    *error_p = atomic_load(&failed) ? WEFT_NCCL_SYSTEM_ERROR
                                    : result_of(weft_comm_error(comm_of(comm), NULL));
    return WEFT_NCCL_SUCCESS;
}

weft_nccl_result_t ncclCommCount(weft_nccl_comm_h comm, int *size_p)
{
    return result_of(weft_comm_size(comm_of(comm), size_p));
}

weft_nccl_result_t ncclCommUserRank(weft_nccl_comm_h comm, int *rank_p)
{
    return result_of(weft_comm_rank(comm_of(comm), rank_p));
}

/* ---- calls ------------------------------------------------------------------------------ */

typedef struct work {
    enum { ALLREDUCE, REDUCE, BROADCAST, REDUCE_SCATTER, ALLGATHER, SEND, RECV } kind;
    const void *src;
    void *dst;
    size_t count;
    weft_dtype_t type;
    weft_op_t op;
    int rank; /* root or peer */
    weft_comm_h comm;
    void *stream;
} work_t;

static weft_status_t perform(const work_t *w)
{
    switch (w->kind) {
    case ALLREDUCE:
        return weft_allreduce(w->src, w->dst, w->count, w->type, w->op, w->comm, NULL);
    case REDUCE:
        return weft_reduce(w->src, w->dst, w->count, w->type, w->op, w->rank, w->comm, NULL);
    case BROADCAST:
        return weft_broadcast(w->src, w->dst, w->count, w->type, w->rank, w->comm, NULL);
    case REDUCE_SCATTER:
        return weft_reduce_scatter(w->src, w->dst, w->count, w->type, w->op, w->comm, NULL);
    case ALLGATHER:
        return weft_allgather(w->src, w->dst, w->count, w->type, w->comm, NULL);
    case SEND:
        return weft_send(w->src, w->count, w->type, w->rank, w->comm, NULL);
    default:
        return weft_recv(w->dst, w->count, w->type, w->rank, w->comm, NULL);
    }
}

/* The module outside, if its streams do things in their own time; NULL: at once. */
static const weft_cuda_device_ops_t *streams(void)
{
    const char *path = getenv("WEFT_CUDA_MODULE");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    bool kernels = library && dlsym(library, "weft_cuda_comm");
    return kernels ? dlsym(library, WEFT_CUDA_DEVICE) : NULL;
}

/* What is on one stream of a group. Kept for good in a list, since a graph may run it again, at any
 * time that nobody here is told of. */
typedef struct batch {
    struct batch *before;
    int n;
    work_t work[];
} batch_t;

static _Atomic(batch_t *) kept; /* the last one; any thread adds to it, none removes */

static batch_t *keep(batch_t *batch)
{
    batch->before = atomic_load(&kept);
    while (!atomic_compare_exchange_weak(&kept, &batch->before, batch)) {
    }
    return batch;
}

/* What goes wrong shows in the communicator. */
static void run_batch(void *arg)
{
    const batch_t *batch = arg;
    weft_group_start();
    for (int i = 0; i < batch->n; i++) {
        perform(&batch->work[i]);
    }
    weft_group_end();
    atomic_store(&failed, getenv("FAKE_NCCL_FAILS") != NULL);
}

static __thread work_t *group; /* room for the next power of two */
static __thread int group_count, group_depth;

/* Hand the calls of the group to their streams. */
static weft_nccl_result_t flush(void)
{
    int error = 0;
    for (int first = 0; first < group_count; first++) {
        void *stream = group[first].stream;
        if (group[first].comm == NULL) {
            continue; /* taken */
        }
        batch_t *batch = calloc(1, sizeof(*batch) + (size_t)group_count * sizeof(work_t));
        for (int i = first; i < group_count; i++) {
            if (group[i].comm != NULL && group[i].stream == stream) {
                batch->work[batch->n++] = group[i];
                group[i].comm = NULL;
            }
        }
        error |= streams()->stream_call(0, stream, run_batch, keep(batch));
    }
    group_count = 0;
    return error ? WEFT_NCCL_INTERNAL_ERROR : WEFT_NCCL_SUCCESS;
}

static weft_nccl_result_t submit(work_t work)
{
    if (!streams()) {
        return result_of(perform(&work));
    }
    if ((group_count & (group_count - 1)) == 0) {
        group = realloc(group, 2 * (size_t)(group_count + 1) * sizeof(*group));
    }
    group[group_count++] = work;
    return group_depth > 0 ? WEFT_NCCL_SUCCESS : flush();
}

weft_nccl_result_t ncclAllReduce(const void *src, void *dst, size_t count, weft_nccl_type_t type,
                                 weft_nccl_op_t op, weft_nccl_comm_h comm, void *stream)
{
    return submit(
        (work_t){ALLREDUCE, src, dst, count, types[type], ops[op], 0, comm_of(comm), stream});
}

weft_nccl_result_t ncclReduce(const void *src, void *dst, size_t count, weft_nccl_type_t type,
                              weft_nccl_op_t op, int root, weft_nccl_comm_h comm, void *stream)
{
    return submit(
        (work_t){REDUCE, src, dst, count, types[type], ops[op], root, comm_of(comm), stream});
}

weft_nccl_result_t ncclBroadcast(const void *src, void *dst, size_t count, weft_nccl_type_t type,
                                 int root, weft_nccl_comm_h comm, void *stream)
{
    return submit(
        (work_t){BROADCAST, src, dst, count, types[type], WEFT_SUM, root, comm_of(comm), stream});
}

weft_nccl_result_t ncclReduceScatter(const void *src, void *dst, size_t count,
                                     weft_nccl_type_t type, weft_nccl_op_t op,
                                     weft_nccl_comm_h comm, void *stream)
{
    return submit(
        (work_t){REDUCE_SCATTER, src, dst, count, types[type], ops[op], 0, comm_of(comm), stream});
}

weft_nccl_result_t ncclAllGather(const void *src, void *dst, size_t count, weft_nccl_type_t type,
                                 weft_nccl_comm_h comm, void *stream)
{
    return submit(
        (work_t){ALLGATHER, src, dst, count, types[type], WEFT_SUM, 0, comm_of(comm), stream});
}

weft_nccl_result_t ncclSend(const void *src, size_t count, weft_nccl_type_t type, int peer,
                            weft_nccl_comm_h comm, void *stream)
{
    return submit(
        (work_t){SEND, src, NULL, count, types[type], WEFT_SUM, peer, comm_of(comm), stream});
}

weft_nccl_result_t ncclRecv(void *dst, size_t count, weft_nccl_type_t type, int peer,
                            weft_nccl_comm_h comm, void *stream)
{
    return submit(
        (work_t){RECV, NULL, dst, count, types[type], WEFT_SUM, peer, comm_of(comm), stream});
}

weft_nccl_result_t ncclGroupStart(void)
{
    group_depth++;
    return streams() ? WEFT_NCCL_SUCCESS : result_of(weft_group_start());
}

weft_nccl_result_t ncclGroupEnd(void)
{
    group_depth--;
    if (!streams()) {
        return result_of(weft_group_end());
    }
    return group_depth > 0 ? WEFT_NCCL_SUCCESS : flush();
}
