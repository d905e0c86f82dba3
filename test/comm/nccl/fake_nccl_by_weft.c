/* An NCCL made of Weft: its functions are carried out by a copy of Weft inside this library, between
 * virtual GPUs, in the thread that calls them. With it and the fake GPU (fake_cuda.c) every test of
 * collectives can run over the nccl backend on a machine without GPUs. */
#include <stdio.h>
#include <string.h>

#include <weft/weft.h>

#include "base/settings.h"
#include "comm/nccl/api.h"

#define ARGUMENTS(name, result, arguments) result nccl##name arguments;
WEFT_NCCL_TABLE(ARGUMENTS, ARGUMENTS)
#undef ARGUMENTS

static const weft_dtype_t types[] = {
    [WEFT_NCCL_INT8] = WEFT_I8,      [WEFT_NCCL_UINT8] = WEFT_U8,    [WEFT_NCCL_INT32] = WEFT_I32,
    [WEFT_NCCL_UINT32] = WEFT_U32,   [WEFT_NCCL_INT64] = WEFT_I64,   [WEFT_NCCL_UINT64] = WEFT_U64,
    [WEFT_NCCL_FLOAT16] = WEFT_F16,  [WEFT_NCCL_FLOAT32] = WEFT_F32, [WEFT_NCCL_FLOAT64] = WEFT_F64,
    [WEFT_NCCL_BFLOAT16] = WEFT_BF16};

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

/* The environment is that of the Weft outside, whose ranks are on GPUs. Nor does this one give up: the
 * one outside does, and aborts it. */
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

weft_nccl_result_t ncclCommGetAsyncError(weft_nccl_comm_h comm, weft_nccl_result_t *error_p)
{
    *error_p = result_of(weft_comm_error(comm_of(comm), NULL));
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

weft_nccl_result_t ncclAllReduce(const void *src, void *dst, size_t count, weft_nccl_type_t type,
                                 weft_nccl_op_t op, weft_nccl_comm_h comm, void *stream)
{
    (void)stream;
    return result_of(weft_allreduce(src, dst, count, types[type], ops[op], comm_of(comm), NULL));
}

weft_nccl_result_t ncclReduce(const void *src, void *dst, size_t count, weft_nccl_type_t type,
                              weft_nccl_op_t op, int root, weft_nccl_comm_h comm, void *stream)
{
    (void)stream;
    return result_of(weft_reduce(src, dst, count, types[type], ops[op], root, comm_of(comm), NULL));
}

weft_nccl_result_t ncclBroadcast(const void *src, void *dst, size_t count, weft_nccl_type_t type,
                                 int root, weft_nccl_comm_h comm, void *stream)
{
    (void)stream;
    return result_of(weft_broadcast(src, dst, count, types[type], root, comm_of(comm), NULL));
}

weft_nccl_result_t ncclReduceScatter(const void *src, void *dst, size_t count,
                                     weft_nccl_type_t type, weft_nccl_op_t op,
                                     weft_nccl_comm_h comm, void *stream)
{
    (void)stream;
    return result_of(
        weft_reduce_scatter(src, dst, count, types[type], ops[op], comm_of(comm), NULL));
}

weft_nccl_result_t ncclAllGather(const void *src, void *dst, size_t count, weft_nccl_type_t type,
                                 weft_nccl_comm_h comm, void *stream)
{
    (void)stream;
    return result_of(weft_allgather(src, dst, count, types[type], comm_of(comm), NULL));
}

weft_nccl_result_t ncclSend(const void *src, size_t count, weft_nccl_type_t type, int peer,
                            weft_nccl_comm_h comm, void *stream)
{
    (void)stream;
    return result_of(weft_send(src, count, types[type], peer, comm_of(comm), NULL));
}

weft_nccl_result_t ncclRecv(void *dst, size_t count, weft_nccl_type_t type, int peer,
                            weft_nccl_comm_h comm, void *stream)
{
    (void)stream;
    return result_of(weft_recv(dst, count, types[type], peer, comm_of(comm), NULL));
}

weft_nccl_result_t ncclGroupStart(void)
{
    return result_of(weft_group_start());
}

weft_nccl_result_t ncclGroupEnd(void)
{
    return result_of(weft_group_end());
}
