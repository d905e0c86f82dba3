/* See fake_nccl.h. */
#include "comm/nccl/fake_nccl.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct weft_nccl_comm {
    int rank, size;
    _Atomic int ended;  /* aborted or revoked: what stalls returns */
    _Atomic int inside; /* calls that stall */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_nccl_t fake = {.version = 22809, .text = ""};

fake_nccl_t *fake_nccl(void)
{
    return &fake;
}

static void write_down(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&lock);
    int n = vsnprintf(fake.log + fake.logged, FAKE_LOG_BYTES - fake.logged, format, args);
    fake.logged += n > 0 && (size_t)n < FAKE_LOG_BYTES - fake.logged ? (size_t)n : 0;
    pthread_mutex_unlock(&lock);
    va_end(args);
}

static bool fails(const char *name)
{
    const char *which = fake.fails;
    return which && strcmp(which, name) == 0;
}

/* Wait, if it is to stall. False: its communicator (NULL: it has none yet) was ended meanwhile. */
static bool stall(const char *name, struct weft_nccl_comm *comm)
{
    static struct weft_nccl_comm none;
    const char *stalls = atomic_load(&fake.stalls);
    if (!stalls || strcmp(stalls, name) != 0) {
        return true;
    }
    comm = comm ? comm : &none;
    atomic_fetch_add(&comm->inside, 1);
    atomic_fetch_add(&fake.stalled, 1);
    while (atomic_load(&fake.stalls) && !atomic_load(&comm->ended)) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    bool ended = atomic_load(&comm->ended);
    atomic_fetch_sub(&comm->inside, 1);
    return !ended;
}

/* What `name` returns. */
static weft_nccl_result_t answer(const char *name, struct weft_nccl_comm *comm)
{
    if (!stall(name, comm)) {
        return WEFT_NCCL_INTERNAL_ERROR;
    }
    if (fails(name)) {
        return fake.result;
    }
    return atomic_load(&fake.in_progress) > 0 ? WEFT_NCCL_IN_PROGRESS : WEFT_NCCL_SUCCESS;
}

static const char *type_name(weft_nccl_type_t type)
{
    static const char *const names[] = {"int8",    "uint8",    "int32",      "uint32",
                                        "int64",   "uint64",   "float16",    "float32",
                                        "float64", "bfloat16", "float8e4m3", "float8e5m2"};
    return (unsigned)type < sizeof(names) / sizeof(names[0]) ? names[type] : "?";
}

static const char *op_name(weft_nccl_op_t op)
{
    static const char *const names[] = {"sum", "prod", "max", "min", "avg"};
    return (unsigned)op < sizeof(names) / sizeof(names[0]) ? names[op] : "?";
}

/* ---- what NCCL exports ------------------------------------------------------------------ */

#define ARGUMENTS(name, result, arguments) result nccl##name arguments;
WEFT_NCCL_TABLE(ARGUMENTS, ARGUMENTS)
#undef ARGUMENTS

weft_nccl_result_t ncclGetVersion(int *version_p)
{
    *version_p = fake.version;
    return WEFT_NCCL_SUCCESS;
}

weft_nccl_result_t ncclGetUniqueId(weft_nccl_id_t *id_p)
{
    memset(id_p, 'i', sizeof(*id_p));
    return fails("GetUniqueId") ? fake.result : WEFT_NCCL_SUCCESS;
}

const char *ncclGetErrorString(weft_nccl_result_t result)
{
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < sizeof(texts) / sizeof(texts[0]) ? texts[result]
                                                               : "unknown result code";
}

const char *ncclGetLastError(weft_nccl_comm_h comm)
{
    (void)comm;
    return fake.text;
}

/* A communicator, if the call that makes it succeeds; counted from its start on. */
static weft_nccl_result_t make(const char *name, struct weft_nccl_comm *parent, bool wanted,
                               int rank, int size, weft_nccl_comm_h *comm_p)
{
    atomic_fetch_add(&fake.communicators, 1);
    weft_nccl_result_t result = answer(name, parent);
    bool good = result == WEFT_NCCL_SUCCESS || result == WEFT_NCCL_IN_PROGRESS;
    *comm_p = good && wanted ? calloc(1, sizeof(**comm_p)) : NULL;
    if (*comm_p) {
        (*comm_p)->rank = rank;
        (*comm_p)->size = size;
    } else {
        atomic_fetch_sub(&fake.communicators, 1);
    }
    return result;
}

weft_nccl_result_t ncclCommInitRank(weft_nccl_comm_h *comm_p, int size, weft_nccl_id_t id, int rank)
{
    write_down("CommInitRank %d of %d, id %.3s\n", rank, size, id.bytes);
    return make("CommInitRank", NULL, true, rank, size, comm_p);
}

#ifndef FAKE_OLD
weft_nccl_result_t ncclCommSplit(weft_nccl_comm_h comm, int color, int key, weft_nccl_comm_h *new_p,
                                 void *config)
{
    write_down("CommSplit color %d key %d config %p\n", color, key, config);
    /* as if the even ranks had given one color, the odd ones another */
    return make("CommSplit", comm, color >= 0, comm->rank / 2, (comm->size + 1) / 2, new_p);
}
#endif

#ifndef FAKE_OLD
weft_nccl_result_t ncclCommRevoke(weft_nccl_comm_h comm, int flags)
{
    write_down("CommRevoke %d\n", flags);
    atomic_fetch_add(&fake.revoked, 1);
    atomic_store(&comm->ended, 1);
    return WEFT_NCCL_SUCCESS;
}
#endif

#ifndef FAKE_OLD
weft_nccl_result_t ncclCommRegister(weft_nccl_comm_h comm, void *ptr, size_t bytes, void **handle_p)
{
    (void)comm;
    write_down("CommRegister %p %zu\n", ptr, bytes);
    *handle_p = ptr;
    return fails("CommRegister") ? fake.result : WEFT_NCCL_SUCCESS;
}
#endif

weft_nccl_result_t ncclCommDestroy(weft_nccl_comm_h comm)
{
    write_down("CommDestroy\n");
    atomic_fetch_add(&fake.destroyed, 1);
    atomic_fetch_sub(&fake.communicators, 1);
    free(comm);
    return fails("CommDestroy") ? fake.result : WEFT_NCCL_SUCCESS;
}

weft_nccl_result_t ncclCommAbort(weft_nccl_comm_h comm)
{
    write_down("CommAbort\n");
    atomic_fetch_add(&fake.aborted, 1);
    atomic_fetch_sub(&fake.communicators, 1);
    atomic_store(&comm->ended, 1);
    while (atomic_load(&comm->inside) > 0) { /* NCCL takes its time before it frees, too */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    free(comm);
    return WEFT_NCCL_SUCCESS;
}

weft_nccl_result_t ncclCommGetAsyncError(weft_nccl_comm_h comm, weft_nccl_result_t *error_p)
{
    (void)comm;
    if (atomic_load(&fake.in_progress) > 0) {
        atomic_fetch_sub(&fake.in_progress, 1);
        *error_p = WEFT_NCCL_IN_PROGRESS;
    } else {
        *error_p = (weft_nccl_result_t)atomic_load(&fake.async);
    }
    return fails("CommGetAsyncError") ? fake.result : WEFT_NCCL_SUCCESS;
}

weft_nccl_result_t ncclCommCount(weft_nccl_comm_h comm, int *size_p)
{
    *size_p = comm->size;
    return fails("CommCount") ? fake.result : WEFT_NCCL_SUCCESS;
}

weft_nccl_result_t ncclCommUserRank(weft_nccl_comm_h comm, int *rank_p)
{
    *rank_p = comm->rank;
    return fails("CommUserRank") ? fake.result : WEFT_NCCL_SUCCESS;
}

weft_nccl_result_t ncclAllReduce(const void *src, void *dst, size_t count, weft_nccl_type_t type,
                                 weft_nccl_op_t op, weft_nccl_comm_h comm, void *stream)
{
    write_down("AllReduce %p %p %zu %s %s on %p\n", src, dst, count, type_name(type), op_name(op),
               stream);
    return answer("AllReduce", comm);
}

weft_nccl_result_t ncclReduce(const void *src, void *dst, size_t count, weft_nccl_type_t type,
                              weft_nccl_op_t op, int root, weft_nccl_comm_h comm, void *stream)
{
    write_down("Reduce %p %p %zu %s %s root %d on %p\n", src, dst, count, type_name(type),
               op_name(op), root, stream);
    return answer("Reduce", comm);
}

weft_nccl_result_t ncclBroadcast(const void *src, void *dst, size_t count, weft_nccl_type_t type,
                                 int root, weft_nccl_comm_h comm, void *stream)
{
    write_down("Broadcast %p %p %zu %s root %d on %p\n", src, dst, count, type_name(type), root,
               stream);
    return answer("Broadcast", comm);
}

weft_nccl_result_t ncclReduceScatter(const void *src, void *dst, size_t count,
                                     weft_nccl_type_t type, weft_nccl_op_t op,
                                     weft_nccl_comm_h comm, void *stream)
{
    write_down("ReduceScatter %p %p %zu %s %s on %p\n", src, dst, count, type_name(type),
               op_name(op), stream);
    return answer("ReduceScatter", comm);
}

weft_nccl_result_t ncclAllGather(const void *src, void *dst, size_t count, weft_nccl_type_t type,
                                 weft_nccl_comm_h comm, void *stream)
{
    write_down("AllGather %p %p %zu %s on %p\n", src, dst, count, type_name(type), stream);
    return answer("AllGather", comm);
}

weft_nccl_result_t ncclSend(const void *src, size_t count, weft_nccl_type_t type, int peer,
                            weft_nccl_comm_h comm, void *stream)
{
    write_down("Send %p %zu %s to %d on %p\n", src, count, type_name(type), peer, stream);
    return answer("Send", comm);
}

weft_nccl_result_t ncclRecv(void *dst, size_t count, weft_nccl_type_t type, int peer,
                            weft_nccl_comm_h comm, void *stream)
{
    write_down("Recv %p %zu %s from %d on %p\n", dst, count, type_name(type), peer, stream);
    return answer("Recv", comm);
}

weft_nccl_result_t ncclGroupStart(void)
{
    write_down("GroupStart\n");
    fake.depth++;
    return fails("GroupStart") ? fake.result : WEFT_NCCL_SUCCESS;
}

weft_nccl_result_t ncclGroupEnd(void)
{
    write_down("GroupEnd\n");
    return --fake.depth > 0 ? WEFT_NCCL_SUCCESS : answer("GroupEnd", NULL);
}
