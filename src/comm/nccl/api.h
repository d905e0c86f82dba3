/* NCCL, loaded when it is there: the part of its C interface that Weft calls.
 *
 * Nothing of NCCL is needed to build Weft. Types and values below are NCCL's binary interface,
 * which has not changed since 2.18; test/comm/nccl/test_api.c holds them against nccl.h where there
 * is one. */
#ifndef WEFT_COMM_NCCL_API_H
#define WEFT_COMM_NCCL_API_H

#include <stdbool.h>
#include <stddef.h>

#define WEFT_NCCL_OLDEST 21800 /* major x 10000 + minor x 100 + patch */

typedef struct weft_nccl_comm *weft_nccl_comm_h; /* ncclComm_t */

/* ncclUniqueId. Passed by value, as NCCL does. */
typedef struct weft_nccl_id {
    char bytes[128];
} weft_nccl_id_t;

/* ncclResult_t */
typedef enum weft_nccl_result {
    WEFT_NCCL_SUCCESS = 0,
    WEFT_NCCL_CUDA_ERROR = 1,
    WEFT_NCCL_SYSTEM_ERROR = 2,
    WEFT_NCCL_INTERNAL_ERROR = 3,
    WEFT_NCCL_INVALID_ARGUMENT = 4,
    WEFT_NCCL_INVALID_USAGE = 5,
    WEFT_NCCL_REMOTE_ERROR = 6,
    WEFT_NCCL_IN_PROGRESS = 7,
    WEFT_NCCL_TIMEOUT = 8 /* since 2.30 */
} weft_nccl_result_t;

/* ncclDataType_t */
typedef enum weft_nccl_type {
    WEFT_NCCL_INT8 = 0,
    WEFT_NCCL_UINT8 = 1,
    WEFT_NCCL_INT32 = 2,
    WEFT_NCCL_UINT32 = 3,
    WEFT_NCCL_INT64 = 4,
    WEFT_NCCL_UINT64 = 5,
    WEFT_NCCL_FLOAT16 = 6,
    WEFT_NCCL_FLOAT32 = 7,
    WEFT_NCCL_FLOAT64 = 8,
    WEFT_NCCL_BFLOAT16 = 9,
    WEFT_NCCL_FLOAT8E4M3 = 10, /* since WEFT_NCCL_FLOAT8 */
    WEFT_NCCL_FLOAT8E5M2 = 11
} weft_nccl_type_t;

#define WEFT_NCCL_FLOAT8 22400 /* the version that has float8 */

/* ncclRedOp_t */
typedef enum weft_nccl_op {
    WEFT_NCCL_SUM = 0,
    WEFT_NCCL_PROD = 1,
    WEFT_NCCL_MAX = 2,
    WEFT_NCCL_MIN = 3,
    WEFT_NCCL_AVG = 4
} weft_nccl_op_t;

#define WEFT_NCCL_NO_COLOR (-1) /* NCCL_SPLIT_NOCOLOR */

/* The functions: name without "nccl", what it returns, arguments. Those of NEED must be there,
 * those of MAY came after WEFT_NCCL_OLDEST and are NULL where they are not. `stream` is a
 * cudaStream_t. */
#define WEFT_NCCL_TABLE(NEED, MAY)                                                                 \
    NEED(GetVersion, weft_nccl_result_t, (int *version_p))                                         \
    NEED(GetUniqueId, weft_nccl_result_t, (weft_nccl_id_t * id_p))                                 \
    NEED(GetErrorString, const char *, (weft_nccl_result_t result))                                \
    NEED(GetLastError, const char *, (weft_nccl_comm_h comm))                                      \
    NEED(CommInitRank, weft_nccl_result_t,                                                         \
         (weft_nccl_comm_h * comm_p, int size, weft_nccl_id_t id, int rank))                       \
    NEED(CommSplit, weft_nccl_result_t,                                                            \
         (weft_nccl_comm_h comm, int color, int key, weft_nccl_comm_h *new_p, void *config))       \
    NEED(CommDestroy, weft_nccl_result_t, (weft_nccl_comm_h comm))                                 \
    NEED(CommAbort, weft_nccl_result_t, (weft_nccl_comm_h comm))                                   \
    MAY(CommRevoke, weft_nccl_result_t, (weft_nccl_comm_h comm, int flags))                        \
    MAY(CommRegister, weft_nccl_result_t,                                                          \
        (weft_nccl_comm_h comm, void *ptr, size_t bytes, void **handle_p))                         \
    NEED(CommGetAsyncError, weft_nccl_result_t,                                                    \
         (weft_nccl_comm_h comm, weft_nccl_result_t * error_p))                                    \
    NEED(CommCount, weft_nccl_result_t, (weft_nccl_comm_h comm, int *size_p))                      \
    NEED(CommUserRank, weft_nccl_result_t, (weft_nccl_comm_h comm, int *rank_p))                   \
    NEED(AllReduce, weft_nccl_result_t,                                                            \
         (const void *src, void *dst, size_t count, weft_nccl_type_t type, weft_nccl_op_t op,      \
          weft_nccl_comm_h comm, void *stream))                                                    \
    NEED(Reduce, weft_nccl_result_t,                                                               \
         (const void *src, void *dst, size_t count, weft_nccl_type_t type, weft_nccl_op_t op,      \
          int root, weft_nccl_comm_h comm, void *stream))                                          \
    NEED(Broadcast, weft_nccl_result_t,                                                            \
         (const void *src, void *dst, size_t count, weft_nccl_type_t type, int root,               \
          weft_nccl_comm_h comm, void *stream))                                                    \
    NEED(ReduceScatter, weft_nccl_result_t,                                                        \
         (const void *src, void *dst, size_t count, weft_nccl_type_t type, weft_nccl_op_t op,      \
          weft_nccl_comm_h comm, void *stream))                                                    \
    NEED(AllGather, weft_nccl_result_t,                                                            \
         (const void *src, void *dst, size_t count, weft_nccl_type_t type, weft_nccl_comm_h comm,  \
          void *stream))                                                                           \
    NEED(Send, weft_nccl_result_t,                                                                 \
         (const void *src, size_t count, weft_nccl_type_t type, int peer, weft_nccl_comm_h comm,   \
          void *stream))                                                                           \
    NEED(Recv, weft_nccl_result_t,                                                                 \
         (void *dst, size_t count, weft_nccl_type_t type, int peer, weft_nccl_comm_h comm,         \
          void *stream))                                                                           \
    NEED(GroupStart, weft_nccl_result_t, (void))                                                   \
    NEED(GroupEnd, weft_nccl_result_t, (void))

typedef struct weft_nccl_api {
    int version;
#define WEFT_NCCL_SLOT(name, result, arguments) result(*name) arguments;
    WEFT_NCCL_TABLE(WEFT_NCCL_SLOT, WEFT_NCCL_SLOT)
#undef WEFT_NCCL_SLOT
} weft_nccl_api_t;

/* The library that the setting WEFT_NCCL names, loaded at the first call. NULL if it cannot be
 * used, with a sentence that says why and what to do in *why_p (may be NULL). */
const weft_nccl_api_t *weft__nccl(const char **why_p);

/* Load `library`. False, and the sentence is in `why`, if it cannot be used. Never unloaded: NCCL
 * leaves threads and exit handlers behind. */
bool weft__nccl_load(const char *library, weft_nccl_api_t *api_p, char *why, size_t room);

#endif
