/* Making communicators: in the caller, at the end of a group, or in a thread where the program
 * asked not to wait (blocking = 0). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/handle.h"
#include "nccl/report.h"

/* What makes one communicator. */
typedef struct weft_nccl_job {
    enum { JOIN, SPLIT, GROW } kind; /* JOIN: also what is left after a shrink */
    ncclComm_t comm;                 /* the handle to fill */
    weft_comm_h parent;              /* SPLIT, GROW */
    weft_unique_id_t id;
    int color, key;
    bool give_id;       /* GROW: this rank tells the old ranks the id */
    ncclComm_t *handle; /* SPLIT in a group: where the program has it, for who joins none */
    weft_comm_h made;
    weft_status_t status; /* how it ended, in a group */
} weft_nccl_job_t;

static __thread int depth; /* groups that are open in this thread */

/* The first failure of a call in the group: then nothing of the group is carried out. */
static __thread ncclResult_t failed;
static __thread char failed_why[400];

enum { WAITING_MOST = 256 };

/* What waits for the end of the group. */
static __thread weft_nccl_job_t *waiting[WAITING_MOST];
static __thread int waiting_count;

/* ---- configurations --------------------------------------------------------------------- */

static ncclResult_t read_config(const ncclConfig_t *config, bool inherited, bool *blocking_p)
{
    *blocking_p = inherited;
    if (!config) {
        return ncclSuccess;
    }
    if (config->magic != NCCL_API_MAGIC || config->version < NCCL_VERSION(2, 14, 0)) {
        return weft__nccl_fail(ncclInvalidArgument,
                               "the ncclConfig_t was not made by NCCL_CONFIG_INITIALIZER");
    }
    if (config->size < offsetof(ncclConfig_t, blocking) + sizeof(int)) {
        return ncclSuccess;
    }
    if (config->blocking != NCCL_CONFIG_UNDEF_INT) {
        if (config->blocking != 0 && config->blocking != 1) {
            return weft__nccl_fail(ncclInvalidArgument,
                                   "ncclConfig_t: blocking is %d; it is 0 or 1", config->blocking);
        }
        *blocking_p = config->blocking == 1;
    }
    return ncclSuccess;
}

/* ---- carrying jobs out ------------------------------------------------------------------ */

/* The new ranks of a grown communicator know its id, and one of the old. */
static weft_status_t spread_id(weft_nccl_job_t *job)
{
    unsigned char *buffer;
    weft_status_t status = weft_host_malloc((void **)&buffer, sizeof(job->id));
    if (status != WEFT_OK) {
        return status;
    }
    void *device = NULL;
    status = weft_malloc(&device, sizeof(job->id));
    memset(buffer, 0, sizeof(job->id));
    if (job->give_id) {
        memcpy(buffer, &job->id, sizeof(job->id));
    }
    /* All but one add nothing. */
    if (status == WEFT_OK) {
        status = weft_memcpy(device, buffer, sizeof(job->id), NULL);
    }
    if (status == WEFT_OK) {
        status = weft_allreduce(device, device, sizeof(job->id), WEFT_U8, WEFT_SUM, job->parent,
                                NULL);
    }
    if (status == WEFT_OK) {
        status = weft_memcpy(&job->id, device, sizeof(job->id), NULL);
    }
    weft_free(device);
    weft_host_free(buffer);
    return status;
}

static weft_status_t carry_out_there(weft_nccl_job_t *job)
{
    const ncclComm_t comm = job->comm;
    weft_status_t status;
    switch (job->kind) {
    case SPLIT:
        return weft_comm_split(job->parent, job->color, job->key, &job->made, NULL);
    case GROW:
        if (job->parent) {
            status = spread_id(job);
            if (status != WEFT_OK) {
                return status;
            }
        }
        /* fall through */
    default:
        return weft_comm_init_rank(&job->made, comm->size, job->id, comm->rank, NULL);
    }
}

/* On the device of the communicator, and back. */
static weft_status_t carry_out(weft_nccl_job_t *job)
{
    int before = 0;
    weft_status_t status = weft_device_get(&before);
    if (status == WEFT_OK) {
        status = weft_device_set(job->comm->device);
    }
    if (status == WEFT_OK) {
        status = carry_out_there(job);
        weft_device_set(before);
    }
    return status;
}

/* Tell the handle how it went. */
static ncclResult_t settle(weft_nccl_job_t *job, weft_status_t status)
{
    ncclComm_t comm = job->comm;
    ncclResult_t result = weft__nccl_result(status);
    if (result == ncclSuccess && job->made) {
        weft_comm_rank(job->made, &comm->rank);
        weft_comm_size(job->made, &comm->size);
        weft__nccl_report_opened(comm);
        atomic_store(&comm->comm, job->made); /* partners: ready() of handle.c, end() below */
    } else if (result != ncclSuccess) {
        snprintf(comm->reason, sizeof(comm->reason), "was not made: %s", weft__nccl_sentence());
    }
    comm->id = job->id;
    atomic_store(&comm->joined, result);
    /* Aborted meanwhile: whoever takes it out of the handle ends it. Partner: end(). */
    if (atomic_load(&comm->life) == WEFT_NCCL_FREE) {
        weft_comm_h made = atomic_exchange(&comm->comm, NULL);
        if (made) {
            weft_comm_abort(made);
        }
    }
    return result;
}

static void *run_job(void *arg)
{
    weft_nccl_job_t *job = arg;
    settle(job, carry_out(job));
    weft__nccl_leave(job->comm);
    free(job);
    return NULL;
}

/* In a thread that nobody waits for. False: there is none to be had. */
static bool start_thread(weft_nccl_job_t *job)
{
    pthread_t thread;
    atomic_fetch_add(&job->comm->users, 1); /* for the thread */
    if (pthread_create(&thread, NULL, run_job, job) != 0) {
        atomic_fetch_sub(&job->comm->users, 1);
        return false;
    }
    pthread_detach(thread);
    return true;
}

static ncclResult_t start(weft_nccl_job_t *job)
{
    if (depth > 0) {
        if (waiting_count == WAITING_MOST) {
            free(job);
            return weft__nccl_fail(ncclInvalidUsage, "more than %d communicators in one group",
                                   WAITING_MOST);
        }
        atomic_fetch_add(&job->comm->users, 1); /* for the job */
        waiting[waiting_count++] = job;
        return ncclSuccess;
    }
    if (!job->comm->blocking && start_thread(job)) {
        return ncclInProgress;
    }
    ncclResult_t result = settle(job, carry_out(job));
    free(job);
    return result;
}

static void *run_of_group(void *arg)
{
    weft_nccl_job_t *job = arg;
    job->status = carry_out(job);
    if (job->status != WEFT_OK) {
        snprintf(job->comm->reason, sizeof(job->comm->reason), "%s", weft_last_error());
    }
    return NULL;
}

/* The jobs of the group at the same time, since one thread may join several ranks. */
static ncclResult_t run_waiting(void)
{
    pthread_t threads[WAITING_MOST];
    int count = 0, started = 0;
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < waiting_count; i++) {
        weft_nccl_job_t *job = waiting[i];
        ncclComm_t comm = job->comm;
        bool aborted = atomic_load(&comm->life) == WEFT_NCCL_FREE;
        if (!aborted && (comm->blocking || !start_thread(job))) {
            waiting[count++] = job; /* here, and now */
            continue;
        }
        if (aborted) {
            free(job);
        } else {
            result = ncclInProgress;
        }
        weft__nccl_leave(comm);
    }
    waiting_count = 0;
    while (started < count - 1 &&
           pthread_create(&threads[started], NULL, run_of_group, waiting[started]) == 0) {
        started++;
    }
    for (int i = started; i < count; i++) {
        run_of_group(waiting[i]);
    }
    for (int i = 0; i < count; i++) {
        weft_nccl_job_t *job = waiting[i];
        if (i < started) {
            pthread_join(threads[i], NULL);
        }
        ncclComm_t comm = job->comm;
        char why[sizeof(comm->reason)];
        snprintf(why, sizeof(why), "%s", comm->reason);
        ncclResult_t each = settle(job, job->status);
        if (each != ncclSuccess && (result == ncclSuccess || result == ncclInProgress)) {
            result = weft__nccl_fail(each, "%s", why);
        }
        if (each == ncclSuccess && !job->made && job->handle) { /* no color */
            *job->handle = NULL;
            weft__nccl_close(comm);
        }
        if (each != ncclSuccess) {
            snprintf(comm->reason, sizeof(comm->reason), "was not made: %.380s", why);
        }
        weft__nccl_leave(comm);
        free(job);
    }
    return result;
}

/* A handle and the job that fills it. */
static ncclResult_t begin(ncclComm_t *comm_p, int size, int rank, bool blocking, int kind,
                          weft_nccl_job_t **job_p)
{
    if (!comm_p) {
        return weft__nccl_fail(ncclInvalidArgument, "there is no place for the communicator: NULL");
    }
    *comm_p = NULL;
    weft_nccl_job_t *job = calloc(1, sizeof(*job));
    ncclComm_t comm = job ? weft__nccl_new(size, rank, blocking) : NULL;
    if (!comm) {
        free(job);
        return weft__nccl_fail(ncclSystemError, "no memory for a communicator's handle");
    }
    ncclResult_t result = weft__nccl_device(&comm->device);
    if (result != ncclSuccess) {
        weft__nccl_close(comm);
        free(job);
        return result;
    }
    job->kind = kind;
    job->comm = comm;
    *comm_p = comm;
    *job_p = job;
    return ncclSuccess;
}

/* What failed at once leaves no handle behind. */
static ncclResult_t finish(weft_nccl_job_t *job, ncclComm_t *comm_p)
{
    ncclResult_t result = start(job);
    if (result != ncclSuccess && result != ncclInProgress) {
        weft__nccl_close(*comm_p);
        *comm_p = NULL;
    }
    return result;
}

/* The id of a communicator that is made of this one. */
static weft_unique_id_t derived(ncclComm_t comm, int color)
{
    weft_unique_id_t id = comm->id;
    weft_unique_id_derive(&comm->id, (uint64_t)++comm->made << 32 | (unsigned)color, &id);
    return id;
}

/* End what goes on on it, for all ranks. The handle stays. */
static void revoke(ncclComm_t comm, const char *why)
{
    snprintf(comm->reason, sizeof(comm->reason), "%s", why);
    weft_comm_h inner = atomic_exchange(&comm->comm, NULL);
    if (inner) {
        weft_comm_abort(inner);
    }
}

/* ---- NCCL's functions ------------------------------------------------------------------- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    _Static_assert(sizeof(ncclUniqueId) == sizeof(weft_unique_id_t), "one holds the other");
    weft_unique_id_t id;
    if (!uniqueId) {
        return weft__nccl_fail(ncclInvalidArgument, "ncclGetUniqueId: the id is NULL");
    }
    WEFT_NCCL_TRY(weft__nccl_result(weft_unique_id_create(&id)));
    memcpy(uniqueId, &id, sizeof(id));
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                    ncclConfig_t *config)
{
    weft_nccl_job_t *job;
    bool blocking;
    WEFT_NCCL_TRY(read_config(config, true, &blocking));
    if (nranks < 1 || rank < 0 || rank >= nranks) {
        return weft__nccl_fail(ncclInvalidArgument,
                               "ncclCommInitRank: rank %d of %d; ranks are 0 to size - 1", rank,
                               nranks);
    }
    WEFT_NCCL_TRY(begin(comm, nranks, rank, blocking, JOIN, &job));
    memcpy(&job->id, &commId, sizeof(commId));
    return finish(job, comm);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return ncclCommInitRankConfig(comm, nranks, commId, rank, NULL);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                      ncclUniqueId *commIds, ncclConfig_t *config)
{
    if (nId < 1 || nId > nranks || !commIds) {
        return weft__nccl_fail(ncclInvalidArgument, "ncclCommInitRankScalable: %d ids for %d ranks",
                               nId, nranks);
    }
    return ncclCommInitRankConfig(newcomm, nranks, commIds[0], myrank, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    if (!comm || ndev < 1) {
        return weft__nccl_fail(ncclInvalidArgument,
                               "ncclCommInitAll: %d devices, and %s for their communicators", ndev,
                               comm ? "a place" : "no place");
    }
    weft_comm_h *made = calloc((size_t)ndev, sizeof(*made));
    if (!made) {
        return weft__nccl_fail(ncclSystemError, "no memory for %d communicators", ndev);
    }
    int before = 0;
    weft_unique_id_t id;
    ncclResult_t result = weft__nccl_device(&before);
    if (result == ncclSuccess) {
        result = weft__nccl_result(weft_unique_id_create(&id));
    }
    if (result == ncclSuccess) {
        result = weft__nccl_result(weft_comm_init_all(made, ndev, devlist));
    }
    for (int i = 0; i < ndev && result == ncclSuccess; i++) {
        comm[i] = weft__nccl_new(ndev, i, true);
        if (!comm[i]) {
            result = ncclSystemError;
            break;
        }
        comm[i]->device = devlist ? devlist[i] : i;
        comm[i]->id = id;
        weft__nccl_report_opened(comm[i]);
        atomic_store_explicit(&comm[i]->comm, made[i], memory_order_release);
        atomic_store(&comm[i]->joined, ncclSuccess);
        made[i] = NULL;
    }
    if (result != ncclSuccess) {
        for (int i = 0; i < ndev; i++) {
            weft_comm_destroy(made[i]);
        }
    }
    free(made);
    return result;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                           ncclConfig_t *config)
{
    weft_comm_h parent;
    weft_nccl_job_t *job;
    bool blocking;
    WEFT_NCCL_TRY(weft__nccl_enter_ready(comm, "CommSplit", &parent));
    ncclResult_t result = read_config(config, comm->blocking, &blocking);
    if (result == ncclSuccess && color < NCCL_SPLIT_NOCOLOR) {
        result = weft__nccl_fail(ncclInvalidArgument,
                                 "ncclCommSplit: color %d; it is 0 or more, or NCCL_SPLIT_NOCOLOR",
                                 color);
    }
    if (result == ncclSuccess) {
        result = begin(newcomm, 0, 0, blocking, SPLIT, &job);
    }
    if (result == ncclSuccess) {
        (*newcomm)->device = comm->device;
        job->parent = parent;
        job->color = color;
        job->key = key;
        job->handle = newcomm;
        job->id = derived(comm, color);
        result = finish(job, newcomm);
    }
    /* Those without a color get NULL, as soon as it is known that all went well. */
    if (result == ncclSuccess && color == NCCL_SPLIT_NOCOLOR && depth == 0) {
        weft__nccl_close(*newcomm);
        *newcomm = NULL;
    }
    weft__nccl_leave(comm);
    return result;
}

/* Where `rank` is among those that are left; -1 if it is none of them. */
static int rank_left(int rank, const int *excluded, int count)
{
    int left = rank;
    for (int i = 0; i < count; i++) {
        if (excluded[i] == rank) {
            return -1;
        }
        left -= excluded[i] < rank;
    }
    return left;
}

/* The same for one set of ranks in any order: who excludes others makes another communicator. */
static int hash_of(const int *excluded, int count)
{
    unsigned sum = 0;
    for (int i = 0; i < count; i++) {
        unsigned x = ((unsigned)excluded[i] + 1) * 0x9e3779b1u;
        sum += (x ^ x >> 15) * 0x85ebca77u;
    }
    return (int)(sum >> 1);
}

static ncclResult_t check_excluded(const struct ncclComm *comm, const int *excluded, int count)
{
    for (int i = 0; i < count; i++) {
        bool twice = false;
        for (int j = 0; j < i; j++) {
            twice = twice || excluded[j] == excluded[i];
        }
        if (twice || excluded[i] < 0 || excluded[i] >= comm->size) {
            return weft__nccl_fail(ncclInvalidArgument, "ncclCommShrink: rank %d of %d is %s",
                                   excluded[i], comm->size,
                                   twice ? "excluded twice" : "none of this communicator's");
        }
    }
    return rank_left(comm->rank, excluded, count) >= 0
               ? ncclSuccess
               : weft__nccl_fail(ncclInvalidUsage,
                                 "ncclCommShrink: rank %d is excluded, and calls it", comm->rank);
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                            ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)
{
    weft_nccl_job_t *job;
    bool blocking;
    if (excludeRanksCount < 1 || !excludeRanksList || (shrinkFlags & ~NCCL_SHRINK_ABORT) != 0) {
        return weft__nccl_fail(ncclInvalidArgument,
                               "ncclCommShrink: %d ranks to exclude, flags 0x%x", excludeRanksCount,
                               (unsigned)shrinkFlags);
    }
    WEFT_NCCL_TRY(weft__nccl_enter(comm, "CommShrink"));
    ncclResult_t result = read_config(config, comm->blocking, &blocking);
    if (result == ncclSuccess && atomic_load(&comm->joined) != ncclSuccess) {
        result = weft__nccl_fail(ncclInvalidUsage, "ncclCommShrink: the communicator is not ready");
    }
    if (result == ncclSuccess) {
        result = check_excluded(comm, excludeRanksList, excludeRanksCount);
    }
    if (result == ncclSuccess) {
        result = begin(newcomm, comm->size - excludeRanksCount,
                       rank_left(comm->rank, excludeRanksList, excludeRanksCount), blocking, JOIN,
                       &job);
    }
    if (result == ncclSuccess) {
        (*newcomm)->device = comm->device;
        job->id = derived(comm, hash_of(excludeRanksList, excludeRanksCount));
        if (shrinkFlags & NCCL_SHRINK_ABORT) {
            revoke(comm, "was aborted by ncclCommShrink");
        }
        result = finish(job, newcomm);
    }
    weft__nccl_leave(comm);
    return result;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    if (revokeFlags != NCCL_REVOKE_DEFAULT) {
        return weft__nccl_fail(ncclInvalidArgument, "ncclCommRevoke: flags 0x%x",
                               (unsigned)revokeFlags);
    }
    WEFT_NCCL_TRY(weft__nccl_enter(comm, "CommRevoke"));
    revoke(comm, "was revoked");
    weft__nccl_leave(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId)
{
    weft_comm_h inner;
    WEFT_NCCL_TRY(weft__nccl_enter_ready(comm, "CommGetUniqueId", &inner));
    ncclResult_t result = comm->has_id
                              ? weft__nccl_fail(ncclInvalidUsage,
                                                "ncclCommGetUniqueId: the id given before is not "
                                                "used yet; call ncclCommGrow with it")
                              : ncclGetUniqueId(uniqueId);
    comm->has_id = comm->has_id || result == ncclSuccess;
    weft__nccl_leave(comm);
    return result;
}

/* An old rank keeps its number, the new ones bring theirs. */
static ncclResult_t grow(ncclComm_t comm, int size, const ncclUniqueId *id, int rank,
                         ncclComm_t *new_p, const ncclConfig_t *config, weft_comm_h parent)
{
    weft_nccl_job_t *job;
    bool blocking;
    WEFT_NCCL_TRY(read_config(config, comm ? comm->blocking : true, &blocking));
    int least = comm ? comm->size : 0;
    if (comm ? rank != -1 : (rank < 0 || rank >= size || !id)) {
        return weft__nccl_fail(ncclInvalidArgument,
                               "ncclCommGrow: ranks of the old communicator pass it and rank -1; "
                               "new ones pass NULL, the id and their rank (here %d of %d)",
                               rank, size);
    }
    if (size <= least) {
        return weft__nccl_fail(ncclInvalidArgument, "ncclCommGrow: from %d ranks to %d", least,
                               size);
    }
    WEFT_NCCL_TRY(begin(new_p, size, comm ? comm->rank : rank, blocking, GROW, &job));
    job->parent = parent;
    job->give_id = id != NULL;
    if (id) {
        memcpy(&job->id, id, sizeof(*id));
    }
    if (comm) {
        (*new_p)->device = comm->device;
        comm->has_id = false;
    }
    return finish(job, new_p);
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
                          ncclComm_t *newcomm, ncclConfig_t *config)
{
    weft_comm_h parent = NULL;
    if (!comm) {
        return grow(NULL, nRanks, uniqueId, rank, newcomm, config, NULL);
    }
    if (depth > 0) {
        return weft__nccl_fail(ncclInvalidUsage,
                               "ncclCommGrow inside a group is not carried out; call it alone");
    }
    WEFT_NCCL_TRY(weft__nccl_enter_ready(comm, "CommGrow", &parent));
    ncclResult_t result = grow(comm, nRanks, uniqueId, rank, newcomm, config, parent);
    weft__nccl_leave(comm);
    return result;
}

/* ---- the end ---------------------------------------------------------------------------- */

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    weft_comm_h inner;
    WEFT_NCCL_TRY(weft__nccl_enter_ready(comm, "CommFinalize", &inner));
    atomic_store(&comm->life, WEFT_NCCL_FINALIZED);
    weft__nccl_leave(comm);
    return ncclSuccess;
}

static ncclResult_t end(ncclComm_t comm, const char *who, weft_status_t (*how)(weft_comm_h))
{
    WEFT_NCCL_TRY(weft__nccl_enter(comm, who));
    weft_comm_h inner = atomic_load(&comm->comm);
    const char *why = "";
    weft_status_t state = inner ? weft_comm_error(inner, &why) : WEFT_OK;
    if (how == weft_comm_destroy && state != WEFT_OK && state != WEFT_ERR_ABORTED &&
        !atomic_exchange(&comm->told, true)) {
        fprintf(stderr, "[weft] nccl%s: a call had failed, and nobody has asked: %s\n", who, why);
    }
    weft_status_t status = inner ? how(inner) : WEFT_OK;
    ncclResult_t result = weft__nccl_result(status);
    if (status != WEFT_ERR_INVALID) { /* which changes nothing */
        weft__nccl_forget_ops(comm);
        weft__nccl_premultiplied_close(comm);
        weft__nccl_report_closed(comm);
        atomic_store(&comm->comm, NULL);
        weft__nccl_close(comm);
        /* Joined just now: partner settle(). */
        inner = inner ? NULL : atomic_exchange(&comm->comm, NULL);
        if (inner) {
            weft_comm_abort(inner);
        }
    }
    weft__nccl_leave(comm);
    return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return comm ? end(comm, "CommDestroy", weft_comm_destroy) : ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return comm ? end(comm, "CommAbort", weft_comm_abort) : ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    WEFT_NCCL_TRY(weft__nccl_enter(comm, "CommGetAsyncError"));
    ncclResult_t result = ncclSuccess;
    if (!asyncError) {
        result = weft__nccl_fail(ncclInvalidArgument, "ncclCommGetAsyncError: the result is NULL");
    } else {
        weft_comm_h inner = atomic_load_explicit(&comm->comm, memory_order_acquire);
        *asyncError = atomic_load(&comm->joined);
        if (inner) {
            *asyncError = weft__nccl_result(weft_comm_error(inner, NULL));
        }
        if (*asyncError != ncclSuccess) {
            atomic_store(&comm->told, true);
        }
    }
    weft__nccl_leave(comm);
    return result;
}

/* ---- groups ----------------------------------------------------------------------------- */

int weft__nccl_group_depth(void)
{
    return depth;
}

void weft__nccl_group_fail(ncclResult_t result, const char *why)
{
    if (depth > 0 && failed == ncclSuccess) {
        failed = result;
        snprintf(failed_why, sizeof(failed_why), "%s", why);
    }
}

/* The group is given up: handles whose communicators it would have made stay without. */
static ncclResult_t give_up(void)
{
    for (int i = 0; i < waiting_count; i++) {
        weft_nccl_job_t *job = waiting[i];
        snprintf(job->comm->reason, sizeof(job->comm->reason), "was not made: its group failed");
        atomic_store(&job->comm->joined, failed);
        weft__nccl_leave(job->comm);
        free(job);
    }
    waiting_count = 0;
    weft_barrier(NULL, NULL); /* refused, and so is then all that Weft's group holds */
    weft_group_end();
    weft__nccl_report_group_end();
    weft__nccl_premultiplied_group_end();
    ncclResult_t result = failed;
    failed = ncclSuccess;
    return weft__nccl_fail(result, "the group was not run, because a call in it failed: %s",
                           failed_why);
}

ncclResult_t ncclGroupStart(void)
{
    WEFT_NCCL_TRY(weft__nccl_result(weft_group_start()));
    depth++;
    return ncclSuccess;
}

/* As NCCL's own it ends the group, of which nothing is run; an estimate there is not. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    (void)simInfo;
    if (depth == 0) {
        return weft__nccl_fail(ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
    }
    weft__nccl_fail(ncclInvalidUsage,
                    "ncclGroupSimulateEnd: Weft does not estimate the time of a group");
    if (--depth > 0) {
        weft_group_end();
        return ncclInvalidUsage;
    }
    return give_up();
}

ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0) {
        return weft__nccl_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    }
    depth--;
    if (depth == 0 && failed != ncclSuccess) {
        return give_up();
    }
    ncclResult_t result = weft__nccl_result(weft_group_end());
    if (depth == 0) {
        weft__nccl_report_group_end();
        weft__nccl_premultiplied_group_end();
    }
    if (depth == 0 && waiting_count > 0) {
        ncclResult_t joined = run_waiting();
        result = result != ncclSuccess ? result : joined;
    }
    return result;
}
