/* NCCL's handles, and what the files of this folder share.
 *
 * This folder is a library of its own, libnccl.so.2, on top of libweft's public functions. An
 * ncclComm_t wraps a weft_comm_h: it can exist before the communicator does (inside a group, or
 * while a thread joins it), and after (aborted, until the program lets go of it). */
#ifndef WEFT_NCCL_HANDLE_H
#define WEFT_NCCL_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <weft/nccl/nccl.h>
#include <weft/weft.h>

/* ncclTeam_t of NVIDIA's device headers: every stride-th rank of the communicator. */
typedef struct weft_nccl_team {
    int size, rank, stride;
} weft_nccl_team_t;

typedef enum { WEFT_NCCL_FREE, WEFT_NCCL_OPEN, WEFT_NCCL_FINALIZED } weft_nccl_life_t;

struct ncclComm {
    _Atomic weft_nccl_life_t life;
    /* NULL until it is joined, and after an abort. Written by the thread that joins (release),
     * read by calls (acquire), taken by abort and destroy (exchange). */
    _Atomic weft_comm_h comm;
    int rank, size, device;
    bool blocking;
    bool suspended;
    /* Calls inside, and one for being open: whoever takes the last gives the struct back. */
    atomic_int users;
    _Atomic ncclResult_t joined; /* ncclInProgress: a thread is joining; else how that ended */
    bool has_id;                 /* ncclCommGetUniqueId has given an id that is not used yet */
    /* Names the communicator, and with a number those made of it: ranks that shrink it need no
     * word from those that are gone. Known to all its ranks. */
    weft_unique_id_t id;
    unsigned made;          /* of it: splits and shrinks so far, the same on all ranks */
    char reason[400];       /* why joining failed; written before `joined` */
    bool reported;          /* counted by report.c, under its lock */
    atomic_bool told;       /* the program knows of the failure that broke it */
    struct ncclComm *next;  /* in the list of free ones */
    struct ncclComm *older; /* in the list of all there ever were */
};

/* ---- handles (handle.c) ------------------------------------------------------------------ */

/* A handle for a communicator to be, on the current device. NULL: no memory. */
ncclComm_t weft__nccl_new(int size, int rank, bool blocking);

/* Let a call in, or say why not. Each successful enter is followed by a leave. `who` is the name of
 * the function, without "nccl". */
ncclResult_t weft__nccl_enter(ncclComm_t comm, const char *who);

/* The same, for calls that need the communicator itself, which they get in *comm_p. */
ncclResult_t weft__nccl_enter_ready(ncclComm_t comm, const char *who, weft_comm_h *comm_p);
void weft__nccl_leave(ncclComm_t comm);

/* Let go of the handle: no call gets in after that. */
void weft__nccl_close(ncclComm_t comm);

/* Make the device of the calling thread's CUDA runtime, if it has one, the current one of Weft. */
ncclResult_t weft__nccl_device(int *device_p);

/* ---- errors (error.c) -------------------------------------------------------------------- */

/* Keep the sentence for ncclGetLastError, and return `result`. */
ncclResult_t weft__nccl_fail(ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The result for a status of Weft's, whose sentence is kept. */
ncclResult_t weft__nccl_result(weft_status_t status);

/* The sentence kept last by any thread; "" if none. Valid until this one asks again. */
const char *weft__nccl_sentence(void);

#define WEFT_NCCL_TRY(expression)                                                                  \
    do {                                                                                           \
        ncclResult_t try_result = (expression);                                                    \
        if (try_result != ncclSuccess) {                                                           \
            return try_result;                                                                     \
        }                                                                                          \
    } while (0)

/* ---- streams (stream.c) ------------------------------------------------------------------ */

/* The stream of Weft's that stands for a cudaStream_t of `device`. */
ncclResult_t weft__nccl_stream(cudaStream_t stream, int device, weft_stream_h *stream_p);

/* A function of CUDA's runtime that this process has, NVIDIA's or ours; NULL if it has none. */
void *weft__nccl_cuda(const char *name);

/* ---- reductions (reduction.c) ------------------------------------------------------------ */

ncclResult_t weft__nccl_type(ncclDataType_t type, weft_dtype_t *type_p);
ncclResult_t weft__nccl_op(ncclRedOp_t op, weft_op_t *op_p);

/* What a premultiplied sum multiplies with: read now, or from `device` when the call runs. */
typedef struct weft_nccl_scalar {
    ncclDataType_t type;
    const void *device; /* NULL: `bytes` */
    unsigned char bytes[8];
} weft_nccl_scalar_t;

/* The scalar of an operation that ncclRedOpCreatePreMulSum made for `comm` and `type`. */
ncclResult_t weft__nccl_scalar(ncclRedOp_t op, ncclComm_t comm, ncclDataType_t type,
                               weft_nccl_scalar_t *scalar_p);

/* Forget the operations of a communicator that is gone. */
void weft__nccl_forget_ops(ncclComm_t comm);

/* ---- premultiplied sums (premultiplied.c) ------------------------------------------------ */

typedef enum { WEFT_NCCL_ALLREDUCE, WEFT_NCCL_REDUCE, WEFT_NCCL_REDUCE_SCATTER } weft_nccl_coll_t;

typedef struct weft_nccl_reduction {
    weft_nccl_coll_t coll;
    const void *src;
    void *dst;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    weft_comm_h comm;
    weft_stream_h stream;
} weft_nccl_reduction_t;

/* Did a program make the operation, or is it one of NCCL's? */
bool weft__nccl_is_premultiplied(ncclRedOp_t op);

/* Carry it out through memory of its own, in the order of the stream. */
ncclResult_t weft__nccl_premultiplied(ncclComm_t comm, const weft_nccl_reduction_t *reduction);

/* The outermost group of this thread has ended, or was given up; the communicator has. */
void weft__nccl_premultiplied_group_end(void);
void weft__nccl_premultiplied_close(ncclComm_t comm);

/* ---- groups (join.c) --------------------------------------------------------------------- */

/* A call of the open group failed. */
void weft__nccl_group_fail(ncclResult_t result, const char *why);

/* How many groups are open in this thread. */
int weft__nccl_group_depth(void);

#endif
