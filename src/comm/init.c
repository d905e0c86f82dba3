/* Communicators from the job, from a unique id, or all in one process. */
#include "comm/init.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/settings.h"
#include "boot/job.h"
#include "boot/store.h"
#include "comm/group.h"
#include "comm/nccl/backend.h"
#include "comm/shm/shm.h"

/* ---- unique ids ------------------------------------------------------------------------- */

#define ID_MAGIC "WEFTID1"

/* What is inside weft_unique_id_t. */
typedef struct id_body {
    char magic[8];
    uint64_t key; /* tells communicators of one store apart */
    uint8_t secret[WEFT_SECRET_BYTES];
    int32_t port;
    char host[64];
} id_body_t;

_Static_assert(sizeof(id_body_t) <= sizeof(weft_unique_id_t), "the id holds its body");

/* An id travels outside of Weft: what came back may be cut or damaged. */
static bool is_id(const weft_unique_id_t *id)
{
    id_body_t body;
    memcpy(&body, id, sizeof(body));
    return memcmp(body.magic, ID_MAGIC, sizeof(ID_MAGIC)) == 0 && body.port >= 1 &&
           body.port <= 65535 && body.host[0] != '\0' &&
           memchr(body.host, '\0', sizeof(body.host)) != NULL;
}

/* The store of this process, for ids made here; it lives as long as the process. */
static struct {
    pthread_mutex_t lock;
    weft_store_server_t *server;
    uint8_t secret[WEFT_SECRET_BYTES];
    int port;
} own = {.lock = PTHREAD_MUTEX_INITIALIZER};

static weft_status_t own_store(void)
{
    weft_status_t status = WEFT_OK;
    pthread_mutex_lock(&own.lock);
    if (!own.server) {
        status = weft__secret_create(own.secret);
        if (status == WEFT_OK) {
            status = weft__store_serve(weft__settings()->store_host, 0, own.secret, &own.server,
                                       &own.port);
        }
    }
    pthread_mutex_unlock(&own.lock);
    return status;
}

weft_status_t weft_unique_id_create(weft_unique_id_t *id_p)
{
    if (!id_p) {
        return weft__fail(WEFT_ERR_INVALID, "weft_unique_id_create: no place for the id");
    }
    weft_status_t status = own_store();
    if (status != WEFT_OK) {
        return status;
    }
    id_body_t body = {.magic = ID_MAGIC, .port = own.port};
    memcpy(body.secret, own.secret, sizeof(body.secret));
    snprintf(body.host, sizeof(body.host), "%s", weft__settings()->store_host);
    status = weft__random_bytes(&body.key, sizeof(body.key));
    if (status == WEFT_OK) {
        memset(id_p, 0, sizeof(*id_p));
        memcpy(id_p, &body, sizeof(body));
    }
    return status;
}

/* ---- finding the segment ---------------------------------------------------------------- */

static int store_timeout(const weft_comm_h comm)
{
    return comm->timeout_ms > 0 ? comm->timeout_ms : -1;
}

/* Is what `handle` names left over from a rank 0 that died, or from a try of this process that failed? */
static bool left_over(const weft_segment_handle_t *handle)
{
    weft_segment_t *segment;
    uint64_t host;
    if (handle->fd < 0 || weft__host_id(&host) != WEFT_OK || handle->host != host ||
        (handle->pid != getpid() && (kill(handle->pid, 0) == 0 || errno != ESRCH))) {
        return false;
    }
    if (weft__segment_open(handle, &segment) == WEFT_OK) {
        weft__segment_close(segment);
        return false;
    }
    return true;
}

/* Publish the segment that rank 0 has made, unless another caller is rank 0 already: the others would
 * be divided between the two. */
static weft_status_t publish(weft_store_conn_t *store, const char *key,
                             const weft_segment_handle_t *mine)
{
    weft_segment_handle_t there = {.fd = -1};
    size_t bytes = sizeof(there);
    bool taken = true;
    weft_status_t status = weft__store_offer(store, key, mine, sizeof(*mine), &taken, &there,
                                             &bytes);
    if (status != WEFT_OK || taken) {
        return status;
    }
    return left_over(&there)
               ? weft__store_set(store, key, mine, sizeof(*mine))
               : weft__fail(WEFT_ERR_INVALID, "rank 0 of this communicator has joined already%s",
                            there.fd < 0 ? ", as have all others" : "");
}

/* Rank 0 makes the segment and publishes it under `key`; the others find it there. */
static weft_status_t find_segment(weft_store_conn_t *store, const char *key, weft_comm_h comm,
                                  int nranks, int rank, weft_segment_t **segment_p)
{
    weft_segment_t *segment;
    weft_status_t status;
    if (rank == 0) {
        status = weft__segment_create(nranks, &segment);
        if (status != WEFT_OK) {
            return status;
        }
        status = publish(store, key, &segment->handle);
    } else {
        weft_segment_handle_t handle;
        size_t bytes = sizeof(handle);
        status = weft__store_get(store, key, &handle, &bytes, store_timeout(comm));
        if (status == WEFT_ERR_TIMEOUT) {
            return weft__fail(status, "rank 0 did not open the communicator within %.1f s",
                              comm->timeout_ms / 1000.0);
        }
        if (status != WEFT_OK) {
            return status;
        }
        if (bytes != sizeof(handle)) {
            return weft__fail(WEFT_ERR_MISMATCH,
                              "rank 0 opened the communicator with another version of Weft");
        }
        if (handle.fd < 0) {
            return weft__fail(WEFT_ERR_INVALID,
                              "rank %d of this communicator has joined already, as "
                              "have all others",
                              rank);
        }
        status = weft__segment_open(&handle, &segment);
        if (status != WEFT_OK) {
            return status;
        }
        if ((int)segment->head->size != nranks) {
            status = weft__fail(WEFT_ERR_MISMATCH,
                                "rank 0 opened a communicator of %u ranks, rank %d asks for %d",
                                segment->head->size, rank, nranks);
            weft__segment_break(segment, status, rank, weft_last_error());
        }
    }
    if (status != WEFT_OK) {
        weft__segment_close(segment);
        return status;
    }
    *segment_p = segment;
    return WEFT_OK;
}

/* ---- from a unique id ------------------------------------------------------------------- */

static void key_of_id(const weft_joiner_t *joiner, char key[64])
{
    id_body_t body;
    memcpy(&body, &joiner->id, sizeof(body));
    snprintf(key, 64, "comm/%016llx", (unsigned long long)body.key);
}

/* Connect to the store and, where that decides, say where we are. */
static weft_status_t announce(weft_joiner_t *joiner)
{
    id_body_t body;
    char key[64];
    memcpy(&body, &joiner->id, sizeof(body));
    key_of_id(joiner, key);
    weft_status_t status = weft__route(&joiner->route);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft__store_connect(body.host, body.port, body.secret, store_timeout(joiner->comm),
                                 &joiner->store);
    if (status != WEFT_OK) {
        joiner->store = NULL;
        return status;
    }
    return joiner->route != WEFT_ROUTE_VOTE
               ? WEFT_OK
               : weft__route_vote(joiner->store, key, joiner->rank, joiner->nranks,
                                  weft__route_gpu(joiner->comm->device),
                                  store_timeout(joiner->comm));
}

static weft_status_t enter_by_nccl(const weft_joiner_t *joiner, const char *key)
{
    id_body_t body;
    weft_nccl_road_t road = {0};
    memcpy(&body, &joiner->id, sizeof(body));
    road.port = body.port;
    memcpy(road.secret, body.secret, sizeof(road.secret));
    snprintf(road.host, sizeof(road.host), "%s", body.host);
    snprintf(road.key, sizeof(road.key), "%s", key);
    return weft__nccl_comm_enter(joiner->comm, &road, joiner->rank, joiner->nranks);
}

static weft_status_t enter_by_id(weft_joiner_t *joiner)
{
    char key[64];
    key_of_id(joiner, key);
    weft_status_t status = WEFT_OK;
    if (joiner->route == WEFT_ROUTE_VOTE) {
        status = weft__route_count(joiner->store, key, joiner->rank, joiner->nranks,
                                   store_timeout(joiner->comm), &joiner->route);
    }
    if (status == WEFT_OK && joiner->route == WEFT_ROUTE_NCCL) {
        return enter_by_nccl(joiner, key);
    }
    weft_segment_t *segment;
    if (status == WEFT_OK) {
        status = find_segment(joiner->store, key, joiner->comm, joiner->nranks, joiner->rank,
                              &segment);
    }
    if (joiner->rank != 0) {
        weft__store_close(joiner->store);
        joiner->store = NULL;
    }
    return status == WEFT_OK ? weft__shm_enter(segment, joiner->rank, joiner->comm) : status;
}

/* All have joined: whoever comes now is told so, instead of looking for a segment without a name. */
static void close_door(const weft_joiner_t *joiner)
{
    const weft_segment_handle_t nothing = {.fd = -1};
    char key[64];
    key_of_id(joiner, key);
    weft__store_set(joiner->store, key, &nothing, sizeof(nothing));
}

/* A step of all joiners, those that are rank 0 first: the others wait for them. */
static weft_status_t in_order(weft_joiner_t *joiners, int n, weft_status_t (*step)(weft_joiner_t *))
{
    weft_status_t status = WEFT_OK;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n && status == WEFT_OK; i++) {
            if ((joiners[i].rank != 0) == pass) {
                status = step(&joiners[i]);
            }
        }
    }
    return status;
}

weft_status_t weft__comm_join_all(weft_joiner_t *joiners, int n)
{
    weft_status_t status = in_order(joiners, n, announce);
    if (status == WEFT_OK) {
        status = in_order(joiners, n, enter_by_id);
    }
    for (int i = 0; i < n && status == WEFT_OK; i++) {
        status = joiners[i].route == WEFT_ROUTE_NCCL ? weft__nccl_comm_meet(joiners[i].comm)
                                                     : weft__shm_meet(joiners[i].comm);
    }
    for (int i = 0; i < n && status == WEFT_OK; i++) {
        if (joiners[i].route != WEFT_ROUTE_NCCL) {
            status = weft__shm_settle(joiners[i].comm);
        }
    }
    for (int i = 0; i < n; i++) {
        if (status == WEFT_OK && joiners[i].rank == 0 && joiners[i].route != WEFT_ROUTE_NCCL) {
            close_door(&joiners[i]);
        }
        if (joiners[i].store) {
            weft__store_close(joiners[i].store);
        }
        if (status == WEFT_OK) {
            *joiners[i].comm_p = joiners[i].comm;
        } else {
            weft__comm_release(joiners[i].comm);
        }
    }
    return status;
}

weft_status_t weft_comm_init_rank(weft_comm_h *comm_p, int nranks, weft_unique_id_t id, int rank,
                                  const weft_comm_config_t *config)
{
    weft_status_t status = WEFT_OK;
    if (!comm_p) {
        status = weft__fail(WEFT_ERR_INVALID, "weft_comm_init_rank: no place for the communicator");
    } else if (nranks < 1 || nranks > WEFT_MAX_RANKS) {
        status = weft__fail(WEFT_ERR_INVALID, "weft_comm_init_rank: %d ranks; 1 to %d are possible",
                            nranks, WEFT_MAX_RANKS);
    } else if (rank < 0 || rank >= nranks) {
        status = weft__fail(WEFT_ERR_INVALID, "weft_comm_init_rank: rank %d of %d", rank, nranks);
    } else if (!is_id(&id)) {
        status = weft__fail(WEFT_ERR_INVALID,
                            "weft_comm_init_rank: this id is not from weft_unique_id_create");
    }
    int device;
    if (status == WEFT_OK) {
        status = weft_device_get(&device);
    }
    weft_joiner_t joiner = {.comm_p = comm_p, .id = id, .nranks = nranks, .rank = rank};
    if (status == WEFT_OK) {
        status = weft__comm_create(config, device, &joiner.comm);
    }
    if (status != WEFT_OK) {
        weft__group_fail(status);
        return status;
    }
    return weft__group_open() ? weft__group_add_joiner(&joiner) : weft__comm_join_all(&joiner, 1);
}

/* ---- all in one process ----------------------------------------------------------------- */

static weft_status_t enter_all(weft_comm_h *comms, int ndev, const int *devlist, int *made_p)
{
    weft_segment_t *segment;
    weft_status_t status = weft__segment_create(ndev, &segment);
    if (status != WEFT_OK) {
        return status;
    }
    for (int i = 0; i < ndev && status == WEFT_OK; i++) {
        status = weft__comm_create(NULL, devlist ? devlist[i] : i, &comms[i]);
        if (status == WEFT_OK) {
            *made_p = i + 1;
            status = weft__shm_enter(weft__segment_share(segment), i, comms[i]);
        }
    }
    for (int i = 0; i < ndev && status == WEFT_OK; i++) {
        status = weft__shm_meet(comms[i]);
    }
    for (int i = 0; i < ndev && status == WEFT_OK; i++) {
        status = weft__shm_settle(comms[i]);
    }
    weft__segment_close(segment);
    return status;
}

/* The same ranks, brought together by NCCL. */
static weft_status_t join_all_by_nccl(weft_comm_h *comms, int ndev, const int *devlist)
{
    weft_unique_id_t id;
    weft_joiner_t *joiners = calloc((size_t)ndev, sizeof(*joiners));
    if (!joiners) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d communicators", ndev);
    }
    int n = 0;
    weft_status_t status = weft_unique_id_create(&id);
    for (; n < ndev && status == WEFT_OK; n++) {
        joiners[n] = (weft_joiner_t){.comm_p = &comms[n], .id = id, .nranks = ndev, .rank = n};
        status = weft__comm_create(NULL, devlist ? devlist[n] : n, &joiners[n].comm);
    }
    if (status == WEFT_OK) {
        status = weft__comm_join_all(joiners, ndev);
    } else {
        for (int i = 0; i < n - 1; i++) {
            weft__comm_release(joiners[i].comm);
        }
    }
    free(joiners);
    return status;
}

/* Can ranks on these devices, of one process, do without NCCL? */
static bool reach_each_other(int ndev, const int *devlist)
{
    weft_route_gpu_t gpus[WEFT_MAX_DEVICES];
    for (int i = 0; i < ndev; i++) {
        gpus[i] = weft__route_gpu(devlist ? devlist[i] : i);
    }
    return weft__route_reach(gpus, ndev);
}

weft_status_t weft_comm_init_all(weft_comm_h *comms, int ndev, const int *devlist)
{
    if (!comms) {
        return weft__fail(WEFT_ERR_INVALID, "weft_comm_init_all: no place for the communicators");
    }
    if (ndev < 1 || ndev > WEFT_MAX_DEVICES) {
        return weft__fail(WEFT_ERR_INVALID, "weft_comm_init_all: %d ranks; 1 to %d are possible",
                          ndev, WEFT_MAX_DEVICES);
    }
    weft_route_t route;
    weft_status_t status = weft__route(&route);
    for (int i = 0; i < ndev && status == WEFT_OK; i++) {
        status = weft__device_check("weft_comm_init_all", devlist ? devlist[i] : i);
    }
    bool nccl = status == WEFT_OK &&
                (route == WEFT_ROUTE_NCCL ||
                 (route == WEFT_ROUTE_VOTE && !reach_each_other(ndev, devlist)));
    if (status != WEFT_OK || nccl) {
        return status != WEFT_OK ? status : join_all_by_nccl(comms, ndev, devlist);
    }
    weft_comm_h *made = calloc((size_t)ndev, sizeof(*made));
    if (!made) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d communicators", ndev);
    }
    int n = 0;
    status = enter_all(made, ndev, devlist, &n);
    for (int i = 0; i < n; i++) {
        if (status == WEFT_OK) {
            comms[i] = made[i];
        } else {
            weft__comm_release(made[i]);
        }
    }
    free(made);
    return status;
}

/* ---- from the job ----------------------------------------------------------------------- */

weft_status_t weft_job_info(int *rank_p, int *size_p, int *local_rank_p, int *local_size_p)
{
    const weft_job_t *job;
    weft_status_t status = weft__job(&job);
    if (status != WEFT_OK) {
        return status;
    }
    int *const outs[] = {rank_p, size_p, local_rank_p, local_size_p};
    const int values[] = {job->rank, job->size, job->local_rank, job->local_size};
    for (int i = 0; i < 4; i++) {
        if (outs[i]) {
            *outs[i] = values[i];
        }
    }
    return WEFT_OK;
}

/* All ranks of the job come to the communicator's key in the store: which way does it go? */
static weft_status_t vote(const weft_job_t *job, weft_comm_h comm, weft_store_conn_t *store,
                          const char *key, weft_route_t *route_p)
{
    weft_status_t status = weft__route_vote(store, key, job->rank, job->size,
                                            weft__route_gpu(comm->device), store_timeout(comm));
    return status != WEFT_OK
               ? status
               : weft__route_count(store, key, job->rank, job->size, store_timeout(comm), route_p);
}

static weft_status_t join_job(const weft_job_t *job, weft_comm_h comm)
{
    /* Every rank makes its n-th communicator of the job in the same n-th call. */
    static _Atomic unsigned counter;
    weft_nccl_road_t road = {.of_job = true};
    weft_route_t route;
    weft_segment_t *segment;
    snprintf(road.key, sizeof(road.key), "job/%d/%u", weft__settings()->restart,
             atomic_fetch_add(&counter, 1));
    weft_status_t status = weft__route(&route);
    if (status == WEFT_OK && job->local_size < job->size) {
        if (route == WEFT_ROUTE_HOST) {
            return weft__fail(WEFT_ERR_UNSUPPORTED,
                              "job: %d of %d ranks are on this host; ranks on several hosts need "
                              "GPUs (WEFT_DEVICE=cuda) and NCCL (WEFT_ENGINE=auto or nccl)",
                              job->local_size, job->size);
        }
        route = WEFT_ROUTE_NCCL;
    }
    if (status == WEFT_OK && job->size == 1 && route != WEFT_ROUTE_NCCL) {
        status = weft__segment_create(1, &segment);
        return status == WEFT_OK ? weft__shm_join(segment, 0, comm) : status;
    }
    weft_store_conn_t *store;
    status = status == WEFT_OK ? weft__job_store(0, &store) : status;
    if (status != WEFT_OK) {
        return status;
    }
    status = route == WEFT_ROUTE_VOTE ? vote(job, comm, store, road.key, &route) : WEFT_OK;
    if (status == WEFT_OK && route == WEFT_ROUTE_HOST) {
        status = find_segment(store, road.key, comm, job->size, job->rank, &segment);
    }
    weft__store_close(store);
    if (status != WEFT_OK) {
        return status;
    }
    if (route == WEFT_ROUTE_HOST) {
        return weft__shm_join(segment, job->rank, comm);
    }
    status = weft__nccl_comm_enter(comm, &road, job->rank, job->size);
    return status == WEFT_OK ? weft__nccl_comm_meet(comm) : status;
}

weft_status_t weft_comm_init_job(weft_comm_h *comm_p, const weft_comm_config_t *config)
{
    if (!comm_p) {
        return weft__fail(WEFT_ERR_INVALID, "weft_comm_init_job: no place for the communicator");
    }
    const weft_job_t *job;
    weft_comm_h comm;
    int device;
    weft_status_t status = weft__job(&job);
    if (status == WEFT_OK && job->size > WEFT_MAX_RANKS) {
        status = weft__fail(WEFT_ERR_INVALID,
                            "weft_comm_init_job: the job has %d ranks; 1 to %d are possible",
                            job->size, WEFT_MAX_RANKS);
    }
    if (status == WEFT_OK) {
        status = weft_device_get(&device);
    }
    if (status == WEFT_OK) {
        status = weft__comm_create(config, device, &comm);
    }
    if (status != WEFT_OK) {
        return status;
    }
    status = join_job(job, comm);
    if (status != WEFT_OK) {
        weft__comm_release(comm);
        return status;
    }
    *comm_p = comm;
    return WEFT_OK;
}
