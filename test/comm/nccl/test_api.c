/* What Weft believes of NCCL's binary interface, against NCCL's own header, where there is one. */
#include <stdio.h>

#include "comm/nccl/api.h"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is " #theirs)

_Static_assert(sizeof(weft_nccl_id_t) == sizeof(ncclUniqueId), "ids are of one size");
_Static_assert(_Alignof(weft_nccl_id_t) == _Alignof(ncclUniqueId), "and are passed alike");
_Static_assert(sizeof(weft_nccl_result_t) == sizeof(ncclResult_t), "results");
_Static_assert(sizeof(weft_nccl_type_t) == sizeof(ncclDataType_t), "types");
_Static_assert(sizeof(weft_nccl_op_t) == sizeof(ncclRedOp_t), "operations");

SAME(WEFT_NCCL_SUCCESS, ncclSuccess);
SAME(WEFT_NCCL_CUDA_ERROR, ncclUnhandledCudaError);
SAME(WEFT_NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(WEFT_NCCL_INTERNAL_ERROR, ncclInternalError);
SAME(WEFT_NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(WEFT_NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(WEFT_NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(WEFT_NCCL_IN_PROGRESS, ncclInProgress);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
SAME(WEFT_NCCL_TIMEOUT, ncclTimeout);
#endif

SAME(WEFT_NCCL_INT8, ncclInt8);
SAME(WEFT_NCCL_UINT8, ncclUint8);
SAME(WEFT_NCCL_INT32, ncclInt32);
SAME(WEFT_NCCL_UINT32, ncclUint32);
SAME(WEFT_NCCL_INT64, ncclInt64);
SAME(WEFT_NCCL_UINT64, ncclUint64);
SAME(WEFT_NCCL_FLOAT16, ncclFloat16);
SAME(WEFT_NCCL_FLOAT32, ncclFloat32);
SAME(WEFT_NCCL_FLOAT64, ncclFloat64);
SAME(WEFT_NCCL_BFLOAT16, ncclBfloat16);

SAME(WEFT_NCCL_SUM, ncclSum);
SAME(WEFT_NCCL_PROD, ncclProd);
SAME(WEFT_NCCL_MAX, ncclMax);
SAME(WEFT_NCCL_MIN, ncclMin);
SAME(WEFT_NCCL_AVG, ncclAvg);
SAME(WEFT_NCCL_NO_COLOR, NCCL_SPLIT_NOCOLOR);

int main(void)
{
    printf("as in nccl.h of %d.%d.%d\n", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);
    return 0; /* it compiled */
}
#else
int main(void)
{
    printf("skipped: there was no nccl.h when this was compiled\n");
    return 77;
}
#endif
