/* Types, operations, and the operations that programs make. */
#include "nccl/handle.h"

#include <stdlib.h>
#include <string.h>

ncclResult_t weft__nccl_type(ncclDataType_t type, weft_dtype_t *type_p)
{
    static const weft_dtype_t types[ncclNumTypes] = {
        [ncclInt8] = WEFT_I8,       [ncclUint8] = WEFT_U8,          [ncclInt32] = WEFT_I32,
        [ncclUint32] = WEFT_U32,    [ncclInt64] = WEFT_I64,         [ncclUint64] = WEFT_U64,
        [ncclFloat16] = WEFT_F16,   [ncclFloat32] = WEFT_F32,       [ncclFloat64] = WEFT_F64,
        [ncclBfloat16] = WEFT_BF16, [ncclFloat8e4m3] = WEFT_F8E4M3, [ncclFloat8e5m2] = WEFT_F8E5M2};
    if ((unsigned)type >= ncclNumTypes) {
        return weft__nccl_fail(ncclInvalidArgument, "there is no ncclDataType_t %d", (int)type);
    }
    *type_p = types[type];
    return ncclSuccess;
}

ncclResult_t weft__nccl_op(ncclRedOp_t op, weft_op_t *op_p)
{
    static const weft_op_t ops[ncclNumOps] = {[ncclSum] = WEFT_SUM,
                                              [ncclProd] = WEFT_PROD,
                                              [ncclMax] = WEFT_MAX,
                                              [ncclMin] = WEFT_MIN,
                                              [ncclAvg] = WEFT_AVG};
    if ((unsigned)op >= ncclNumOps) {
        return weft__nccl_fail(ncclInvalidArgument, "there is no ncclRedOp_t %d", (int)op);
    }
    *op_p = ops[op];
    return ncclSuccess;
}

/* ---- operations of programs ------------------------------------------------------------- */

typedef struct made {
    ncclComm_t comm; /* NULL: free */
    weft_nccl_scalar_t scalar;
} made_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static made_t *all; /* operation ncclNumOps + i is all[i] */
static int room;

/* A free place, which is nobody's before the lock is given up. -1: no memory. */
static int find_free(void)
{
    int i = 0;
    while (i < room && all[i].comm) {
        i++;
    }
    if (i == room) {
        int more = room ? 2 * room : 16;
        made_t *longer = realloc(all, (size_t)more * sizeof(*all));
        if (!longer) {
            return -1;
        }
        memset(longer + room, 0, (size_t)(more - room) * sizeof(*all));
        all = longer;
        room = more;
    }
    return i;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm)
{
    weft_comm_h inner;
    weft_dtype_t type = WEFT_U8;
    if (!op || !scalar) {
        return weft__nccl_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: %s",
                               !op ? "there is no place for the operation: NULL"
                                   : "the scalar is NULL");
    }
    WEFT_NCCL_TRY(weft__nccl_type(datatype, &type));
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate) {
        return weft__nccl_fail(ncclInvalidArgument,
                               "ncclRedOpCreatePreMulSum: there is no ncclScalarResidence_t %d",
                               (int)residence);
    }
    WEFT_NCCL_TRY(weft__nccl_enter_ready(comm, "RedOpCreatePreMulSum", &inner));
    pthread_mutex_lock(&lock);
    int i = find_free();
    if (i >= 0) {
        all[i].comm = comm;
        all[i].scalar = (weft_nccl_scalar_t){.type = datatype};
        if (residence == ncclScalarDevice) {
            all[i].scalar.device = scalar;
        } else {
            memcpy(all[i].scalar.bytes, scalar, weft_dtype_size(type));
        }
    }
    pthread_mutex_unlock(&lock);
    weft__nccl_leave(comm);
    if (i < 0) {
        return weft__nccl_fail(ncclSystemError, "no memory for an operation");
    }
    *op = (ncclRedOp_t)((int)ncclNumOps + i);
    return ncclSuccess;
}

/* Under the lock. NULL: there is no such operation. */
static made_t *find(ncclRedOp_t op, ncclComm_t comm)
{
    int i = (int)op - (int)ncclNumOps;
    return i >= 0 && i < room && comm && all[i].comm == comm ? &all[i] : NULL;
}

static ncclResult_t unknown(ncclRedOp_t op)
{
    return weft__nccl_fail(ncclInvalidArgument,
                           "ncclRedOp_t %d is none of this communicator's: it was made for "
                           "another one, or destroyed",
                           (int)op);
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    made_t *made = find(op, comm);
    if (made) {
        made->comm = NULL;
    }
    pthread_mutex_unlock(&lock);
    return made ? ncclSuccess : unknown(op);
}

ncclResult_t weft__nccl_scalar(ncclRedOp_t op, ncclComm_t comm, ncclDataType_t type,
                               weft_nccl_scalar_t *scalar_p)
{
    pthread_mutex_lock(&lock);
    made_t *made = find(op, comm);
    if (made) {
        *scalar_p = made->scalar;
    }
    pthread_mutex_unlock(&lock);
    if (!made) {
        return unknown(op);
    }
    if (scalar_p->type != type) {
        return weft__nccl_fail(ncclInvalidArgument,
                               "ncclRedOp_t %d multiplies elements of ncclDataType_t %d, and the "
                               "call has %d",
                               (int)op, (int)scalar_p->type, (int)type);
    }
    return ncclSuccess;
}

void weft__nccl_forget_ops(ncclComm_t comm)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < room; i++) {
        if (all[i].comm == comm) {
            all[i].comm = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
}
