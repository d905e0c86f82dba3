/* Collectives and messages. */
#include "nccl/handle.h"
#include "nccl/report.h"

/* What a call needs of NCCL's arguments, in Weft's terms. */
typedef struct target {
    weft_comm_h comm;
    weft_stream_h stream;
    weft_dtype_t type;
    weft_op_t op;
    weft_nccl_record_t *record; /* of its time; NULL: nobody asked */
} target_t;

static ncclResult_t check_config(const ncclCollConfig_t *config, cudaStream_t stream)
{
    if (config->magic != NCCL_API_MAGIC || config->size < offsetof(ncclCollConfig_t, ext)) {
        return weft__nccl_fail(ncclInvalidArgument,
                               "the ncclCollConfig_t was not made by NCCL_COLLCONFIG_INITIALIZER");
    }
    if (config->size < sizeof(*config) || !config->launchCompletionEvent) {
        return ncclSuccess;
    }
    int (*record)(cudaEvent_t, cudaStream_t);
    void *address = weft__nccl_cuda("cudaEventRecord");
    *(void **)&record = address; /* as POSIX says of dlsym */
    if (!address || record(config->launchCompletionEvent, stream) != 0) {
        return weft__nccl_fail(ncclInvalidUsage, "launchCompletionEvent cannot be recorded: %s",
                               address ? "cudaEventRecord fails"
                                       : "this process has no CUDA runtime");
    }
    return ncclSuccess;
}

/* A sum that needs more than one call of Weft's. */
static ncclResult_t premultiplied(ncclComm_t comm, const char *who, const ncclCollConfig_t *config,
                                  cudaStream_t stream, weft_nccl_reduction_t reduction)
{
    WEFT_NCCL_TRY(weft__nccl_enter_ready(comm, who, &reduction.comm));
    ncclResult_t result = config ? check_config(config, stream) : ncclSuccess;
    if (result == ncclSuccess) {
        result = weft__nccl_stream(stream, comm->device, &reduction.stream);
    }
    weft_nccl_record_t *record = NULL;
    if (result == ncclSuccess && weft__nccl_reporting) {
        weft_dtype_t type = WEFT_U8;
        weft__nccl_type(reduction.type, &type);
        record = weft__nccl_report_begin(comm, who, reduction.count, type, reduction.stream);
    }
    if (result == ncclSuccess) {
        result = weft__nccl_premultiplied(comm, &reduction);
    }
    if (record) {
        weft__nccl_report_end(record);
    }
    if (result != ncclSuccess) {
        atomic_store(&comm->told, true);
    }
    weft__nccl_leave(comm);
    return result;
}

/* Let the call in. `op` is -1 where nothing is reduced. */
static ncclResult_t enter(ncclComm_t comm, const char *who, size_t count, ncclDataType_t type,
                          int op, cudaStream_t stream, const ncclCollConfig_t *config,
                          target_t *target)
{
    WEFT_NCCL_TRY(weft__nccl_enter_ready(comm, who, &target->comm));
    ncclResult_t result = config ? check_config(config, stream) : ncclSuccess;
    if (result == ncclSuccess) {
        result = weft__nccl_type(type, &target->type);
    }
    if (result == ncclSuccess && op >= 0) {
        result = weft__nccl_op((ncclRedOp_t)op, &target->op);
    }
    if (result == ncclSuccess) {
        result = weft__nccl_stream(stream, comm->device, &target->stream);
    }
    if (result != ncclSuccess) {
        weft__nccl_leave(comm);
        return result;
    }
    target->record = weft__nccl_reporting
                         ? weft__nccl_report_begin(comm, who, count, target->type, target->stream)
                         : NULL;
    return ncclSuccess;
}

static ncclResult_t leave(ncclComm_t comm, const target_t *target, weft_status_t status)
{
    if (target->record) {
        weft__nccl_report_end(target->record);
    }
    if (status != WEFT_OK) {
        atomic_store(&comm->told, true);
    }
    weft__nccl_leave(comm);
    return weft__nccl_result(status);
}

ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count,
                                 ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                 cudaStream_t stream, const ncclCollConfig_t *config)
{
    target_t to;
    if (weft__nccl_is_premultiplied(op)) {
        return premultiplied(comm, "AllReduce", config, stream,
                             (weft_nccl_reduction_t){WEFT_NCCL_ALLREDUCE, sendbuff, recvbuff, count,
                                                     datatype, op, 0, NULL, NULL});
    }
    WEFT_NCCL_TRY(enter(comm, "AllReduce", count, datatype, (int)op, stream, config, &to));
    return leave(comm, &to,
                 weft_allreduce(sendbuff, recvbuff, count, to.type, to.op, to.comm, to.stream));
}

ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count,
                              ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                              cudaStream_t stream, const ncclCollConfig_t *config)
{
    target_t to;
    if (weft__nccl_is_premultiplied(op)) {
        return premultiplied(comm, "Reduce", config, stream,
                             (weft_nccl_reduction_t){WEFT_NCCL_REDUCE, sendbuff, recvbuff, count,
                                                     datatype, op, root, NULL, NULL});
    }
    WEFT_NCCL_TRY(enter(comm, "Reduce", count, datatype, (int)op, stream, config, &to));
    return leave(comm, &to,
                 weft_reduce(sendbuff, recvbuff, count, to.type, to.op, root, to.comm, to.stream));
}

ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count,
                                 ncclDataType_t datatype, int root, ncclComm_t comm,
                                 cudaStream_t stream, const ncclCollConfig_t *config)
{
    target_t to;
    WEFT_NCCL_TRY(enter(comm, "Broadcast", count, datatype, -1, stream, config, &to));
    return leave(comm, &to,
                 weft_broadcast(sendbuff, recvbuff, count, to.type, root, to.comm, to.stream));
}

ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount,
                                     ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                     cudaStream_t stream, const ncclCollConfig_t *config)
{
    target_t to;
    if (weft__nccl_is_premultiplied(op)) {
        return premultiplied(comm, "ReduceScatter", config, stream,
                             (weft_nccl_reduction_t){WEFT_NCCL_REDUCE_SCATTER, sendbuff, recvbuff,
                                                     recvcount, datatype, op, 0, NULL, NULL});
    }
    WEFT_NCCL_TRY(enter(comm, "ReduceScatter", recvcount, datatype, (int)op, stream, config, &to));
    return leave(
        comm, &to,
        weft_reduce_scatter(sendbuff, recvbuff, recvcount, to.type, to.op, to.comm, to.stream));
}

ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount,
                                 ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t *config)
{
    target_t to;
    WEFT_NCCL_TRY(enter(comm, "AllGather", sendcount, datatype, -1, stream, config, &to));
    return leave(comm, &to,
                 weft_allgather(sendbuff, recvbuff, sendcount, to.type, to.comm, to.stream));
}

ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count,
                                ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                const ncclCollConfig_t *config)
{
    target_t to;
    WEFT_NCCL_TRY(enter(comm, "AlltoAll", count, datatype, -1, stream, config, &to));
    return leave(comm, &to, weft_alltoall(sendbuff, recvbuff, count, to.type, to.comm, to.stream));
}

ncclResult_t ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count,
                              ncclDataType_t datatype, int root, ncclComm_t comm,
                              cudaStream_t stream, const ncclCollConfig_t *config)
{
    target_t to;
    WEFT_NCCL_TRY(enter(comm, "Gather", count, datatype, -1, stream, config, &to));
    return leave(comm, &to,
                 weft_gather(sendbuff, recvbuff, count, to.type, root, to.comm, to.stream));
}

ncclResult_t ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count,
                               ncclDataType_t datatype, int root, ncclComm_t comm,
                               cudaStream_t stream, const ncclCollConfig_t *config)
{
    target_t to;
    WEFT_NCCL_TRY(enter(comm, "Scatter", count, datatype, -1, stream, config, &to));
    return leave(comm, &to,
                 weft_scatter(sendbuff, recvbuff, count, to.type, root, to.comm, to.stream));
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    target_t to;
    WEFT_NCCL_TRY(enter(comm, "Send", count, datatype, -1, stream, NULL, &to));
    return leave(comm, &to, weft_send(sendbuff, count, to.type, peer, to.comm, to.stream));
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    target_t to;
    WEFT_NCCL_TRY(enter(comm, "Recv", count, datatype, -1, stream, NULL, &to));
    return leave(comm, &to, weft_recv(recvbuff, count, to.type, peer, to.comm, to.stream));
}

/* ---- without a configuration ------------------------------------------------------------ */

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream)
{
    return ncclAllReduceConfig(sendbuff, recvbuff, count, datatype, op, comm, stream, NULL);
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return ncclReduceConfig(sendbuff, recvbuff, count, datatype, op, root, comm, stream, NULL);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    return ncclBroadcastConfig(sendbuff, recvbuff, count, datatype, root, comm, stream, NULL);
}

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                       cudaStream_t stream)
{
    return ncclBroadcastConfig(buff, buff, count, datatype, root, comm, stream, NULL);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                               ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    return ncclReduceScatterConfig(sendbuff, recvbuff, recvcount, datatype, op, comm, stream, NULL);
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    return ncclAllGatherConfig(sendbuff, recvbuff, sendcount, datatype, comm, stream, NULL);
}

ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    return ncclAlltoAllConfig(sendbuff, recvbuff, count, datatype, comm, stream, NULL);
}

ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    return ncclGatherConfig(sendbuff, recvbuff, count, datatype, root, comm, stream, NULL);
}

ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    return ncclScatterConfig(sendbuff, recvbuff, count, datatype, root, comm, stream, NULL);
}
