/* Every function that NCCL exports (2.28 to 2.32), once: this table makes the twins whose names
 * begin with pnccl and the functions that are refused (exports.c), and the test that none is
 * missing.
 *
 *   WORKS(name, result, parameters, arguments)   written by hand in this folder
 *   REFUSED(name, parameters, why)               returns ncclInvalidUsage
 *   DEVICE(name)                                 the same; its types are those of NVIDIA's device
 *                                                headers, of which nothing is known here
 *
 * `name` is without "nccl". */
#ifndef WEFT_NCCL_TABLE_H
#define WEFT_NCCL_TABLE_H

#define WEFT_NCCL_NO_PARAMETERS "Weft has no parameters of NCCL's; `weft info` shows its settings"
#define WEFT_NCCL_NO_ONE_SIDED                                                                     \
    "one-sided calls of NCCL's are not carried out; Weft's own are in weft/symm.h and shmem.h"

#define WEFT_NCCL_FUNCTIONS(WORKS, REFUSED, DEVICE)                                                \
    WORKS(GetVersion, ncclResult_t, (int *version), (version))                                     \
    WORKS(GetUniqueId, ncclResult_t, (ncclUniqueId * id), (id))                                    \
    WORKS(GetErrorString, const char *, (ncclResult_t result), (result))                           \
    WORKS(GetLastError, const char *, (ncclComm_t comm), (comm))                                   \
    WORKS(CommInitRank, ncclResult_t, (ncclComm_t * comm, int size, ncclUniqueId id, int rank),    \
          (comm, size, id, rank))                                                                  \
    WORKS(CommInitRankConfig, ncclResult_t,                                                        \
          (ncclComm_t * comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config),          \
          (comm, size, id, rank, config))                                                          \
    WORKS(CommInitRankScalable, ncclResult_t,                                                      \
          (ncclComm_t * comm, int size, int rank, int n, ncclUniqueId *ids, ncclConfig_t *config), \
          (comm, size, rank, n, ids, config))                                                      \
    WORKS(CommInitAll, ncclResult_t, (ncclComm_t * comms, int n, const int *devices),              \
          (comms, n, devices))                                                                     \
    WORKS(CommSplit, ncclResult_t,                                                                 \
          (ncclComm_t comm, int color, int key, ncclComm_t *new_p, ncclConfig_t *config),          \
          (comm, color, key, new_p, config))                                                       \
    WORKS(CommShrink, ncclResult_t,                                                                \
          (ncclComm_t comm, int *list, int n, ncclComm_t *new_p, ncclConfig_t *config, int flags), \
          (comm, list, n, new_p, config, flags))                                                   \
    WORKS(CommGetUniqueId, ncclResult_t, (ncclComm_t comm, ncclUniqueId * id), (comm, id))         \
    WORKS(CommGrow, ncclResult_t,                                                                  \
          (ncclComm_t comm, int size, const ncclUniqueId *id, int rank, ncclComm_t *new_p,         \
           ncclConfig_t *config),                                                                  \
          (comm, size, id, rank, new_p, config))                                                   \
    WORKS(CommFinalize, ncclResult_t, (ncclComm_t comm), (comm))                                   \
    WORKS(CommDestroy, ncclResult_t, (ncclComm_t comm), (comm))                                    \
    WORKS(CommAbort, ncclResult_t, (ncclComm_t comm), (comm))                                      \
    WORKS(CommRevoke, ncclResult_t, (ncclComm_t comm, int flags), (comm, flags))                   \
    WORKS(CommGetAsyncError, ncclResult_t, (ncclComm_t comm, ncclResult_t * error), (comm, error)) \
    WORKS(CommCount, ncclResult_t, (ncclComm_t comm, int *count), (comm, count))                   \
    WORKS(CommCuDevice, ncclResult_t, (ncclComm_t comm, int *device), (comm, device))              \
    WORKS(CommUserRank, ncclResult_t, (ncclComm_t comm, int *rank), (comm, rank))                  \
    WORKS(CommSuspend, ncclResult_t, (ncclComm_t comm, int flags), (comm, flags))                  \
    WORKS(CommResume, ncclResult_t, (ncclComm_t comm), (comm))                                     \
    WORKS(CommMemStats, ncclResult_t, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t * value), \
          (comm, stat, value))                                                                     \
    WORKS(MemAlloc, ncclResult_t, (void **ptr, size_t size), (ptr, size))                          \
    WORKS(MemFree, ncclResult_t, (void *ptr), (ptr))                                               \
    WORKS(CommRegister, ncclResult_t, (ncclComm_t comm, void *buff, size_t size, void **handle),   \
          (comm, buff, size, handle))                                                              \
    WORKS(CommDeregister, ncclResult_t, (ncclComm_t comm, void *handle), (comm, handle))           \
    WORKS(CommWindowRegister, ncclResult_t,                                                        \
          (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int flags),                \
          (comm, buff, size, win, flags))                                                          \
    WORKS(CommWindowDeregister, ncclResult_t, (ncclComm_t comm, ncclWindow_t win), (comm, win))    \
    WORKS(WinGetUserPtr, ncclResult_t, (ncclComm_t comm, ncclWindow_t win, void **ptr),            \
          (comm, win, ptr))                                                                        \
    WORKS(RedOpCreatePreMulSum, ncclResult_t,                                                      \
          (ncclRedOp_t * op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence,   \
           ncclComm_t comm),                                                                       \
          (op, scalar, type, residence, comm))                                                     \
    WORKS(RedOpDestroy, ncclResult_t, (ncclRedOp_t op, ncclComm_t comm), (op, comm))               \
    WORKS(Reduce, ncclResult_t,                                                                    \
          (const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op,          \
           int root, ncclComm_t comm, cudaStream_t stream),                                        \
          (src, dst, count, type, op, root, comm, stream))                                         \
    WORKS(Bcast, ncclResult_t,                                                                     \
          (void *buff, size_t count, ncclDataType_t type, int root, ncclComm_t comm,               \
           cudaStream_t stream),                                                                   \
          (buff, count, type, root, comm, stream))                                                 \
    WORKS(Broadcast, ncclResult_t,                                                                 \
          (const void *src, void *dst, size_t count, ncclDataType_t type, int root,                \
           ncclComm_t comm, cudaStream_t stream),                                                  \
          (src, dst, count, type, root, comm, stream))                                             \
    WORKS(AllReduce, ncclResult_t,                                                                 \
          (const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op,          \
           ncclComm_t comm, cudaStream_t stream),                                                  \
          (src, dst, count, type, op, comm, stream))                                               \
    WORKS(ReduceScatter, ncclResult_t,                                                             \
          (const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op,          \
           ncclComm_t comm, cudaStream_t stream),                                                  \
          (src, dst, count, type, op, comm, stream))                                               \
    WORKS(AllGather, ncclResult_t,                                                                 \
          (const void *src, void *dst, size_t count, ncclDataType_t type, ncclComm_t comm,         \
           cudaStream_t stream),                                                                   \
          (src, dst, count, type, comm, stream))                                                   \
    WORKS(AlltoAll, ncclResult_t,                                                                  \
          (const void *src, void *dst, size_t count, ncclDataType_t type, ncclComm_t comm,         \
           cudaStream_t stream),                                                                   \
          (src, dst, count, type, comm, stream))                                                   \
    WORKS(Gather, ncclResult_t,                                                                    \
          (const void *src, void *dst, size_t count, ncclDataType_t type, int root,                \
           ncclComm_t comm, cudaStream_t stream),                                                  \
          (src, dst, count, type, root, comm, stream))                                             \
    WORKS(Scatter, ncclResult_t,                                                                   \
          (const void *src, void *dst, size_t count, ncclDataType_t type, int root,                \
           ncclComm_t comm, cudaStream_t stream),                                                  \
          (src, dst, count, type, root, comm, stream))                                             \
    WORKS(Send, ncclResult_t,                                                                      \
          (const void *src, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,          \
           cudaStream_t stream),                                                                   \
          (src, count, type, peer, comm, stream))                                                  \
    WORKS(Recv, ncclResult_t,                                                                      \
          (void *dst, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,                \
           cudaStream_t stream),                                                                   \
          (dst, count, type, peer, comm, stream))                                                  \
    WORKS(ReduceConfig, ncclResult_t,                                                              \
          (const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op,          \
           int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),        \
          (src, dst, count, type, op, root, comm, stream, config))                                 \
    WORKS(BroadcastConfig, ncclResult_t,                                                           \
          (const void *src, void *dst, size_t count, ncclDataType_t type, int root,                \
           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),                  \
          (src, dst, count, type, root, comm, stream, config))                                     \
    WORKS(AllReduceConfig, ncclResult_t,                                                           \
          (const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op,          \
           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),                  \
          (src, dst, count, type, op, comm, stream, config))                                       \
    WORKS(ReduceScatterConfig, ncclResult_t,                                                       \
          (const void *src, void *dst, size_t count, ncclDataType_t type, ncclRedOp_t op,          \
           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),                  \
          (src, dst, count, type, op, comm, stream, config))                                       \
    WORKS(AllGatherConfig, ncclResult_t,                                                           \
          (const void *src, void *dst, size_t count, ncclDataType_t type, ncclComm_t comm,         \
           cudaStream_t stream, const ncclCollConfig_t *config),                                   \
          (src, dst, count, type, comm, stream, config))                                           \
    WORKS(AlltoAllConfig, ncclResult_t,                                                            \
          (const void *src, void *dst, size_t count, ncclDataType_t type, ncclComm_t comm,         \
           cudaStream_t stream, const ncclCollConfig_t *config),                                   \
          (src, dst, count, type, comm, stream, config))                                           \
    WORKS(GatherConfig, ncclResult_t,                                                              \
          (const void *src, void *dst, size_t count, ncclDataType_t type, int root,                \
           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),                  \
          (src, dst, count, type, root, comm, stream, config))                                     \
    WORKS(ScatterConfig, ncclResult_t,                                                             \
          (const void *src, void *dst, size_t count, ncclDataType_t type, int root,                \
           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config),                  \
          (src, dst, count, type, root, comm, stream, config))                                     \
    WORKS(GroupStart, ncclResult_t, (void), ())                                                    \
    WORKS(GroupEnd, ncclResult_t, (void), ())                                                      \
    WORKS(TeamWorld, weft_nccl_team_t, (ncclComm_t comm), (comm))                                  \
    WORKS(TeamLsa, weft_nccl_team_t, (ncclComm_t comm), (comm))                                    \
    WORKS(TeamRail, weft_nccl_team_t, (ncclComm_t comm), (comm))                                   \
    WORKS(TeamRankToWorld, int, (ncclComm_t comm, weft_nccl_team_t team, int rank),                \
          (comm, team, rank))                                                                      \
    WORKS(TeamRankToLsa, int, (ncclComm_t comm, weft_nccl_team_t team, int rank),                  \
          (comm, team, rank))                                                                      \
    WORKS(TeamCft, weft_nccl_team_t, (ncclComm_t comm, int mode), (comm, mode))                    \
    WORKS(TeamCftMultimem, weft_nccl_team_t, (ncclComm_t comm), (comm))                            \
    WORKS(LLA2ACalcSlots, int, (int most, int bytes), (most, bytes))                               \
    WORKS(GroupSimulateEnd, ncclResult_t, (ncclSimInfo_t * info), (info))                          \
    REFUSED(SetEncryption, (const ncclEncryptionConfig_t *config),                                 \
            "data between Weft's ranks stays in memory and is not encrypted")                      \
    REFUSED(PutSignal,                                                                             \
            (const void *src, size_t count, ncclDataType_t type, int peer, ncclWindow_t win,       \
             size_t offset, int index, int ctx, unsigned flags, ncclComm_t comm,                   \
             cudaStream_t stream),                                                                 \
            WEFT_NCCL_NO_ONE_SIDED)                                                                \
    REFUSED(Signal,                                                                                \
            (int peer, int index, int ctx, unsigned flags, ncclComm_t comm, cudaStream_t stream),  \
            WEFT_NCCL_NO_ONE_SIDED)                                                                \
    REFUSED(WaitSignal,                                                                            \
            (int n, ncclWaitSignalDesc_t *signals, ncclComm_t comm, cudaStream_t stream),          \
            WEFT_NCCL_NO_ONE_SIDED)                                                                \
    REFUSED(ParamBind, (ncclParamHandle_t * out, const char *key), WEFT_NCCL_NO_PARAMETERS)        \
    REFUSED(ParamGetI8, (ncclParamHandle_t h, int8_t * out), WEFT_NCCL_NO_PARAMETERS)              \
    REFUSED(ParamGetI16, (ncclParamHandle_t h, int16_t * out), WEFT_NCCL_NO_PARAMETERS)            \
    REFUSED(ParamGetI32, (ncclParamHandle_t h, int32_t * out), WEFT_NCCL_NO_PARAMETERS)            \
    REFUSED(ParamGetI64, (ncclParamHandle_t h, int64_t * out), WEFT_NCCL_NO_PARAMETERS)            \
    REFUSED(ParamGetU8, (ncclParamHandle_t h, uint8_t * out), WEFT_NCCL_NO_PARAMETERS)             \
    REFUSED(ParamGetU16, (ncclParamHandle_t h, uint16_t * out), WEFT_NCCL_NO_PARAMETERS)           \
    REFUSED(ParamGetU32, (ncclParamHandle_t h, uint32_t * out), WEFT_NCCL_NO_PARAMETERS)           \
    REFUSED(ParamGetU64, (ncclParamHandle_t h, uint64_t * out), WEFT_NCCL_NO_PARAMETERS)           \
    REFUSED(ParamGetStr, (ncclParamHandle_t h, const char **out), WEFT_NCCL_NO_PARAMETERS)         \
    REFUSED(ParamGet, (ncclParamHandle_t h, void *out, int room, int *len),                        \
            WEFT_NCCL_NO_PARAMETERS)                                                               \
    REFUSED(ParamGetParameter, (const char *key, const char **value, int *len),                    \
            WEFT_NCCL_NO_PARAMETERS)                                                               \
    REFUSED(ParamGetAllParameterKeys, (const char ***table, int *n), WEFT_NCCL_NO_PARAMETERS)      \
    DEVICE(CommQueryProperties)                                                                    \
    DEVICE(DevCommCreate)                                                                          \
    DEVICE(DevCommDestroy)                                                                         \
    DEVICE(GetLsaDevicePointer)                                                                    \
    DEVICE(GetLsaMultimemDevicePointer)                                                            \
    DEVICE(GetMultimemDevicePointer)                                                               \
    DEVICE(GetPeerDevicePointer)                                                                   \
    DEVICE(GetCftDeviceLeInfo)                                                                     \
    DEVICE(GetMultimemDeviceLeInfo)                                                                \
    DEVICE(GetPeerDeviceLeInfo)                                                                    \
    DEVICE(LsaBarrierCreateRequirement)                                                            \
    DEVICE(GinBarrierCreateRequirement)                                                            \
    DEVICE(GinInboxA2ACreateRequirement)                                                           \
    DEVICE(GinOutboxCreateRequirement)                                                             \
    DEVICE(LLA2ACreateRequirement)

#endif
