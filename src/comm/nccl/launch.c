/* Calls, in NCCL's words.
 *
 * Where NCCL has no collective (gather, scatter, all-to-all), it is made of sends and receives in
 * one group, which NCCL carries out together. A barrier is an all-reduce of one element. */
#include <stdlib.h>

#include "base/log.h"
#include "comm/nccl/engine.h"
#include "device/device.h"

/* Values + 1, so that what is not here is 0. */
static const int types[WEFT_DTYPE_COUNT] = {
    [WEFT_F64] = WEFT_NCCL_FLOAT64 + 1,       [WEFT_F32] = WEFT_NCCL_FLOAT32 + 1,
    [WEFT_F16] = WEFT_NCCL_FLOAT16 + 1,       [WEFT_BF16] = WEFT_NCCL_BFLOAT16 + 1,
    [WEFT_I8] = WEFT_NCCL_INT8 + 1,           [WEFT_U8] = WEFT_NCCL_UINT8 + 1,
    [WEFT_I32] = WEFT_NCCL_INT32 + 1,         [WEFT_U32] = WEFT_NCCL_UINT32 + 1,
    [WEFT_I64] = WEFT_NCCL_INT64 + 1,         [WEFT_U64] = WEFT_NCCL_UINT64 + 1,
    [WEFT_F8E4M3] = WEFT_NCCL_FLOAT8E4M3 + 1, [WEFT_F8E5M2] = WEFT_NCCL_FLOAT8E5M2 + 1,
};

static const int ops[WEFT_OP_COUNT] = {
    [WEFT_SUM] = WEFT_NCCL_SUM + 1, [WEFT_PROD] = WEFT_NCCL_PROD + 1,
    [WEFT_MIN] = WEFT_NCCL_MIN + 1, [WEFT_MAX] = WEFT_NCCL_MAX + 1,
    [WEFT_AVG] = WEFT_NCCL_AVG + 1,
};

static bool is_float8(const weft_call_t *call)
{
    return call->type == WEFT_F8E4M3 || call->type == WEFT_F8E5M2;
}

/* Float8 that is only moved is bytes, which every version knows. */
static weft_nccl_type_t type_of(const weft_call_t *call)
{
    bool bytes = is_float8(call) && !weft__coll_info[call->coll].reduces;
    return bytes ? WEFT_NCCL_UINT8 : (weft_nccl_type_t)(types[call->type] - 1);
}

static weft_nccl_op_t op_of(const weft_call_t *call)
{
    return (weft_nccl_op_t)(ops[call->op] - 1);
}

/* Before anything is started, so that the refusal changes nothing. */
static weft_status_t check_words(const weft_nccl_t *nccl, const weft_call_t *calls, int n)
{
    for (int i = 0; i < n; i++) {
        const weft_coll_info_t *info = &weft__coll_info[calls[i].coll];
        if (!types[calls[i].type]) {
            return weft__fail(WEFT_ERR_UNSUPPORTED, "weft_%s: NCCL has no type %s", info->name,
                              weft_dtype_name(calls[i].type));
        }
        if (info->reduces && !ops[calls[i].op]) {
            return weft__fail(WEFT_ERR_UNSUPPORTED, "weft_%s: NCCL has no operation %s", info->name,
                              weft_op_name(calls[i].op));
        }
        if (info->reduces && is_float8(&calls[i]) &&
            (nccl->api->version < WEFT_NCCL_FLOAT8 || !nccl->adds_float8)) {
            return weft__fail(WEFT_ERR_UNSUPPORTED,
                              "weft_%s: NCCL does not reduce %s here; 2.24 and later ones do, on "
                              "GPUs since Hopper",
                              info->name, weft_dtype_name(calls[i].type));
        }
    }
    return WEFT_OK;
}

/* ---- groups of the calling thread ------------------------------------------------------- */

static _Thread_local struct {
    int depth;
    weft_nccl_t *engines; /* that launched something, linked by next_grouped */
} group;

/* ---- scratch ---------------------------------------------------------------------------- */

/* It may be in use by what was queued before, so one that is too small is kept until the engine is
 * closed. Sizes double, so all of them together are no more than twice the last. */
typedef struct weft_nccl_block {
    struct weft_nccl_block *next;
    void *bytes;
} weft_nccl_block_t;

static weft_status_t grow_scratch(weft_nccl_t *nccl, size_t bytes)
{
    size_t room = nccl->scratch_bytes ? 2 * nccl->scratch_bytes : (size_t)1 << 20;
    weft_nccl_block_t *block = malloc(sizeof(*block));
    if (!block) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to remember scratch of %zu bytes", bytes);
    }
    room = room < bytes ? bytes : room;
    weft_status_t status = weft__device_malloc(nccl->binding.device, &block->bytes, room);
    if (status != WEFT_OK) {
        free(block);
        return weft__fail(status, "an alltoall in place needs a copy; use two buffers, or less: %s",
                          weft_last_error());
    }
    block->next = nccl->blocks;
    nccl->blocks = block; /* the newest is the one in use */
    nccl->scratch = block->bytes;
    nccl->scratch_bytes = room;
    nccl->scratch_used = 0;
    return WEFT_OK;
}

void weft__nccl_free_scratch(weft_nccl_t *nccl)
{
    for (weft_nccl_block_t *block = nccl->blocks, *next; block; block = next) {
        next = block->next;
        weft_free(block->bytes);
        free(block);
    }
}

/* A copy of `bytes` at `src`, made in the order of `stream`. Calls of a group get places of their
 * own, since all of them are copied before NCCL starts; calls one after the other share one. */
static weft_status_t copy_aside(weft_nccl_t *nccl, const void *src, size_t bytes, void *stream,
                                const void **copy_p)
{
    const weft_cuda_device_ops_t *cuda = nccl->binding.ops;
    size_t room = (bytes + 255) / 256 * 256;
    if (nccl->scratch_bytes - nccl->scratch_used < room) {
        WEFT_TRY(grow_scratch(nccl, room));
    }
    void *copy = nccl->scratch + nccl->scratch_used;
    nccl->scratch_used += room;
    int error = cuda->copy(nccl->binding.gpu, copy, src, bytes, stream);
    if (error != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "copying %zu bytes on GPU %d failed: %s", bytes,
                          nccl->binding.gpu, cuda->error_text(error));
    }
    *copy_p = copy;
    return WEFT_OK;
}

/* ---- calls ------------------------------------------------------------------------------ */

/* A launch under way: the first result that is not a success stays, with the function it is of. */
typedef struct launch {
    weft_nccl_t *nccl;
    void *stream;
    weft_nccl_result_t result;
    const char *what;
} launch_t;

static bool going(const launch_t *launch)
{
    return launch->result == WEFT_NCCL_SUCCESS || launch->result == WEFT_NCCL_IN_PROGRESS;
}

#define CALL(launch, name, ...)                                                                    \
    do {                                                                                           \
        if (going(launch)) {                                                                       \
            (launch)->what = "nccl" #name;                                                         \
            (launch)->result = (launch)->nccl->api->name(__VA_ARGS__);                             \
        }                                                                                          \
    } while (0)

static void send_block(launch_t *launch, const weft_call_t *call, const char *at, size_t count,
                       int peer)
{
    if (count > 0) {
        CALL(launch, Send, at, count, type_of(call), peer, launch->nccl->comm, launch->stream);
    }
}

static void receive_block(launch_t *launch, const weft_call_t *call, char *at, size_t count,
                          int peer)
{
    if (count > 0) {
        CALL(launch, Recv, at, count, type_of(call), peer, launch->nccl->comm, launch->stream);
    }
}

static void gather(launch_t *launch, const weft_call_t *call)
{
    const weft_nccl_t *nccl = launch->nccl;
    size_t block = call->count * weft_dtype_size(call->type);
    char *dst = call->dst;
    bool in_place = nccl->rank == call->root && call->src == dst + (size_t)nccl->rank * block;
    if (!in_place) {
        send_block(launch, call, call->src, call->count, call->root);
    }
    for (int p = 0; p < nccl->size && nccl->rank == call->root; p++) {
        if (p != nccl->rank || !in_place) {
            receive_block(launch, call, dst + (size_t)p * block, call->count, p);
        }
    }
}

static void scatter(launch_t *launch, const weft_call_t *call)
{
    const weft_nccl_t *nccl = launch->nccl;
    size_t block = call->count * weft_dtype_size(call->type);
    const char *src = call->src;
    bool in_place = nccl->rank == call->root && call->dst == src + (size_t)nccl->rank * block;
    for (int p = 0; p < nccl->size && nccl->rank == call->root; p++) {
        if (p != nccl->rank || !in_place) {
            send_block(launch, call, src + (size_t)p * block, call->count, p);
        }
    }
    if (!in_place) {
        receive_block(launch, call, call->dst, call->count, call->root);
    }
}

static void alltoall(launch_t *launch, const weft_call_t *call, const char *src)
{
    size_t block = call->count * weft_dtype_size(call->type);
    for (int p = 0; p < launch->nccl->size; p++) {
        send_block(launch, call, src + (size_t)p * block, call->count, p);
        receive_block(launch, call, (char *)call->dst + (size_t)p * block, call->count, p);
    }
}

static void alltoallv(launch_t *launch, const weft_call_t *call)
{
    const weft_vectors_t *v = call->vectors;
    size_t element = weft_dtype_size(call->type);
    for (int p = 0; p < launch->nccl->size; p++) {
        send_block(launch, call, (const char *)call->src + v->sendoffsets[p] * element,
                   v->sendcounts[p], p);
        receive_block(launch, call, (char *)call->dst + v->recvoffsets[p] * element,
                      v->recvcounts[p], p);
    }
}

/* `src`: call->src, or its copy. */
static void run_call(launch_t *launch, const weft_call_t *call, const void *src)
{
    weft_nccl_t *nccl = launch->nccl;
    switch (call->coll) {
    case WEFT_COLL_ALLREDUCE:
        CALL(launch, AllReduce, src, call->dst, call->count, type_of(call), op_of(call), nccl->comm,
             launch->stream);
        break;
    case WEFT_COLL_REDUCE:
        CALL(launch, Reduce, src, call->dst, call->count, type_of(call), op_of(call), call->root,
             nccl->comm, launch->stream);
        break;
    case WEFT_COLL_BROADCAST:
        CALL(launch, Broadcast, src, call->dst, call->count, type_of(call), call->root, nccl->comm,
             launch->stream);
        break;
    case WEFT_COLL_REDUCE_SCATTER:
        CALL(launch, ReduceScatter, src, call->dst, call->count, type_of(call), op_of(call),
             nccl->comm, launch->stream);
        break;
    case WEFT_COLL_ALLGATHER:
        CALL(launch, AllGather, src, call->dst, call->count, type_of(call), nccl->comm,
             launch->stream);
        break;
    case WEFT_COLL_BARRIER:
        CALL(launch, AllReduce, nccl->word, nccl->word, 1, WEFT_NCCL_INT32, WEFT_NCCL_SUM,
             nccl->comm, launch->stream);
        break;
    case WEFT_COLL_GATHER:
        gather(launch, call);
        break;
    case WEFT_COLL_SCATTER:
        scatter(launch, call);
        break;
    case WEFT_COLL_ALLTOALL:
        alltoall(launch, call, src);
        break;
    case WEFT_COLL_ALLTOALLV:
        alltoallv(launch, call);
        break;
    case WEFT_COLL_SEND:
        send_block(launch, call, src, call->count, call->root);
        break;
    case WEFT_COLL_RECV:
        receive_block(launch, call, call->dst, call->count, call->root);
        break;
    case WEFT_COLL_COUNT:
        break; /* no call has it */
    }
}

/* Does NCCL see the call as several? */
static bool needs_group(const weft_call_t *call)
{
    switch (call->coll) {
    case WEFT_COLL_GATHER:
    case WEFT_COLL_SCATTER:
    case WEFT_COLL_ALLTOALL:
    case WEFT_COLL_ALLTOALLV:
        return true;
    default:
        return false;
    }
}

static void run_calls(launch_t *launch, const weft_call_t *calls, int n, const void *first_src)
{
    bool grouped = n > 1 || needs_group(calls);
    launch_t end = *launch; /* a group is closed whatever became of the calls in it */
    if (grouped) {
        CALL(launch, GroupStart);
    }
    if (!going(launch)) {
        return;
    }
    for (int i = 0; i < n; i++) {
        run_call(launch, &calls[i], i == 0 ? first_src : calls[i].src);
    }
    if (grouped) {
        CALL(&end, GroupEnd);
    }
    if (going(launch) && grouped) {
        *launch = end;
    }
}

/* ---- launching -------------------------------------------------------------------------- */

/* Enter NCCL, for this launch, or for as long as the thread's group is open. */
static weft_status_t begin(weft_nccl_t *nccl)
{
    if (nccl->grouped) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__nccl_begin(nccl));
    nccl->scratch_used = 0;
    if (group.depth > 0) {
        nccl->grouped = true;
        nccl->next_grouped = group.engines;
        group.engines = nccl;
    }
    return WEFT_OK;
}

weft_status_t weft__nccl_launch(weft_nccl_t *nccl, const weft_call_t *calls, int n, void *stream)
{
    launch_t launch = {.nccl = nccl, .stream = stream};
    const void *src = calls->src;
    weft_status_t status = check_words(nccl, calls, n);
    if (status == WEFT_OK) {
        status = begin(nccl);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (int i = 0; i < n; i++) {
        weft__nccl_introduce(nccl, &calls[i]);
    }
    if (calls->coll == WEFT_COLL_ALLTOALL && calls->src == calls->dst && calls->count > 0) {
        size_t bytes = (size_t)nccl->size * calls->count * weft_dtype_size(calls->type);
        status = copy_aside(nccl, calls->src, bytes, stream, &src);
    }
    if (status == WEFT_OK) {
        run_calls(&launch, calls, n, src);
        if (!nccl->grouped) {
            launch.result = weft__nccl_settle(nccl, launch.result);
        }
    }
    if (!going(&launch)) {
        status = weft__nccl_break(nccl, launch.result, launch.what);
    } else if (status != WEFT_OK) {
        weft__nccl_keep_error(nccl, status); /* the others are in this call already */
    }
    if (!nccl->grouped) {
        weft__nccl_end(nccl);
    }
    return status;
}

weft_status_t weft__nccl_group_start(void)
{
    const char *why;
    const weft_nccl_api_t *api = weft__nccl(&why);
    if (!api) {
        return weft__fail(WEFT_ERR_UNSUPPORTED, "%s", why);
    }
    weft_nccl_result_t result = api->GroupStart();
    if (result != WEFT_NCCL_SUCCESS) {
        return weft__fail(WEFT_ERR_SYSTEM, "ncclGroupStart failed: %s",
                          api->GetErrorString(result));
    }
    group.depth++;
    return WEFT_OK;
}

weft_status_t weft__nccl_group_end(void)
{
    const weft_nccl_api_t *api = weft__nccl(NULL);
    if (group.depth == 0) {
        return weft__fail(WEFT_ERR_INVALID, "the end of a group of NCCL's that was not started");
    }
    weft_nccl_result_t ended = api->GroupEnd();
    weft_status_t status = WEFT_OK;
    if (--group.depth > 0) {
        return WEFT_OK; /* an error shows when the outermost one ends */
    }
    /* NCCL does not tell whose call failed: none of them can be relied on. */
    for (weft_nccl_t *nccl = group.engines, *next; nccl; nccl = next) {
        next = nccl->next_grouped;
        weft_nccl_result_t result = weft__nccl_settle(nccl, ended);
        if (result != WEFT_NCCL_SUCCESS && result != WEFT_NCCL_IN_PROGRESS) {
            status = weft__nccl_break(nccl, result, "ncclGroupEnd");
        }
        nccl->grouped = false;
        weft__nccl_end(nccl);
    }
    group.engines = NULL;
    return status;
}
