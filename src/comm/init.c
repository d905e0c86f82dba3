/* Communicators from the job, from a unique id, or all in one process. */
#include "comm/init.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/settings.h"
#include "boot/job.h"
#include "boot/store.h"
#include "comm/group.h"
#include "comm/placement.h"

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
        return weft__fail(WEFT_ERR_INVALID, "weft_unique_id_create: id_p is NULL");
    }
    WEFT_TRY(own_store());
    id_body_t body = {.magic = ID_MAGIC, .port = own.port};
    memcpy(body.secret, own.secret, sizeof(body.secret));
    snprintf(body.host, sizeof(body.host), "%s", weft__settings()->store_host);
    WEFT_TRY(weft__random_bytes(&body.key, sizeof(body.key)));
    memset(id_p, 0, sizeof(*id_p));
    memcpy(id_p, &body, sizeof(body));
    return WEFT_OK;
}

/* Where the ranks that have `id` meet. */
weft_status_t weft_unique_id_derive(const weft_unique_id_t *id, uint64_t number,
                                    weft_unique_id_t *id_p)
{
    if (!id || !id_p || !is_id(id)) {
        return weft__fail(WEFT_ERR_INVALID, "weft_unique_id_derive: %s",
                          id && id_p ? "this id is not from weft_unique_id_create"
                                     : "id or id_p is NULL");
    }
    id_body_t body;
    memcpy(&body, id, sizeof(body));
    /* Each step can be undone, so that different numbers give different keys (the finalizer of
     * SplitMix64). */
    body.key += (number + 1) * 0x9e3779b97f4a7c15u;
    body.key = (body.key ^ body.key >> 30) * 0xbf58476d1ce4e5b9u;
    body.key = (body.key ^ body.key >> 27) * 0x94d049bb133111ebu;
    body.key ^= body.key >> 31;
    *id_p = *id;
    memcpy(id_p, &body, sizeof(body));
    return WEFT_OK;
}

static weft_rendezvous_t meet_by_id(const weft_unique_id_t *id)
{
    id_body_t body;
    weft_rendezvous_t at = {0};
    memcpy(&body, id, sizeof(body));
    snprintf(at.key, sizeof(at.key), "comm/%016llx", (unsigned long long)body.key);
    at.port = body.port;
    memcpy(at.secret, body.secret, sizeof(at.secret));
    memcpy(at.host, body.host, sizeof(at.host));
    return at;
}

/* ---- joining ---------------------------------------------------------------------------- */

static int store_timeout(const weft_comm_h comm)
{
    return comm->timeout_ms > 0 ? comm->timeout_ms : -1;
}

/* Choose a backend or, where that depends on where all ranks are, say where this one is. */
static weft_status_t announce(weft_joiner_t *joiner)
{
    weft_comm_h comm = joiner->comm;
    weft_rendezvous_t *at = &joiner->at;
    int timeout_ms = store_timeout(comm);
    if (!comm->backend) {
        WEFT_TRY(weft__backend_choose(
            &(weft_members_t){.size = joiner->nranks, .apart = joiner->apart}, &comm->backend));
    }
    if (at->local) {
        return WEFT_OK;
    }
    WEFT_TRY(at->of_job
                 ? weft__job_store(0, &at->store)
                 : weft__store_connect(at->host, at->port, at->secret, timeout_ms, &at->store));
    if (comm->backend) {
        return WEFT_OK;
    }
    weft_member_t me;
    WEFT_TRY(weft__member_here(comm->device, &me));
    return weft__placement_tell(at->store, at->key, joiner->rank, joiner->nranks, &me, timeout_ms);
}

static weft_status_t enter(weft_joiner_t *joiner)
{
    weft_comm_h comm = joiner->comm;
    weft_rendezvous_t *at = &joiner->at;
    if (!comm->backend) {
        WEFT_TRY(weft__placement_await(at->store, at->key, joiner->rank, joiner->nranks,
                                       store_timeout(comm), &comm->backend));
    }
    weft_status_t status = comm->backend->enter(comm, at, joiner->rank, joiner->nranks);
    if (joiner->rank != 0) {
        weft__store_close(at->store);
        at->store = NULL;
    }
    return status;
}

static weft_status_t meet(weft_joiner_t *joiner)
{
    return joiner->comm->backend->meet(joiner->comm);
}

static weft_status_t settle(weft_joiner_t *joiner)
{
    const weft_backend_ops_t *backend = joiner->comm->backend;
    return backend->settle ? backend->settle(joiner->comm, &joiner->at) : WEFT_OK;
}

/* A step of all joiners, those that are rank 0 first: the others wait for them. */
static weft_status_t in_order(weft_joiner_t *joiners, int n, weft_status_t (*step)(weft_joiner_t *))
{
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            if ((joiners[i].rank != 0) == pass) {
                WEFT_TRY(step(&joiners[i]));
            }
        }
    }
    return WEFT_OK;
}

weft_status_t weft__comm_join_all(weft_joiner_t *joiners, int n)
{
    static weft_status_t (*const steps[])(weft_joiner_t *) = {announce, enter, meet, settle};
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < 4 && status == WEFT_OK; i++) {
        status = in_order(joiners, n, steps[i]);
    }
    for (int i = 0; i < n; i++) {
        weft__store_close(joiners[i].at.store);
        if (status == WEFT_OK) {
            *joiners[i].comm_p = joiners[i].comm;
        } else {
            weft__comm_release(joiners[i].comm);
        }
    }
    return status;
}

/* ---- from a unique id ------------------------------------------------------------------- */

weft_status_t weft_comm_init_rank(weft_comm_h *comm_p, int nranks, weft_unique_id_t id, int rank,
                                  const weft_comm_config_t *config)
{
    weft_status_t status = WEFT_OK;
    if (!comm_p) {
        status = weft__fail(WEFT_ERR_INVALID, "weft_comm_init_rank: comm_p is NULL");
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
    weft_joiner_t joiner = {
        .comm_p = comm_p, .nranks = nranks, .rank = rank, .at = meet_by_id(&id)};
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

/* The backend for ranks on these devices. */
static weft_status_t choose_for(int ndev, const int *devlist, const weft_backend_ops_t **backend_p)
{
    weft_member_t members[WEFT_MAX_DEVICES];
    for (int i = 0; i < ndev; i++) {
        WEFT_TRY(weft__device_check("weft_comm_init_all", devlist ? devlist[i] : i));
        WEFT_TRY(weft__member_here(devlist ? devlist[i] : i, &members[i]));
    }
    return weft__backend_choose(&(weft_members_t){.size = ndev, .list = members}, backend_p);
}

static weft_status_t join_devices(weft_comm_h *comms, int ndev, const int *devlist,
                                  const weft_backend_ops_t *backend, weft_joiner_t *joiners)
{
    weft_unique_id_t id;
    struct weft_segment *shared = NULL;
    weft_rendezvous_t at = {.local = true, .shared = &shared};
    weft_status_t status = WEFT_OK;
    int n = 0;
    if (backend->by_store && (status = weft_unique_id_create(&id)) == WEFT_OK) {
        at = meet_by_id(&id);
    }
    for (; n < ndev && status == WEFT_OK; n++) {
        joiners[n] = (weft_joiner_t){.comm_p = &comms[n], .nranks = ndev, .rank = n, .at = at};
        status = weft__comm_create(NULL, devlist ? devlist[n] : n, &joiners[n].comm);
        if (status == WEFT_OK) {
            joiners[n].comm->backend = backend;
        }
    }
    if (status == WEFT_OK) {
        return weft__comm_join_all(joiners, ndev);
    }
    for (int i = 0; i < n - 1; i++) {
        weft__comm_release(joiners[i].comm);
    }
    return status;
}

weft_status_t weft_comm_init_all(weft_comm_h *comms, int ndev, const int *devlist)
{
    if (!comms) {
        return weft__fail(WEFT_ERR_INVALID, "weft_comm_init_all: comms is NULL");
    }
    if (ndev < 1 || ndev > WEFT_MAX_DEVICES) {
        return weft__fail(WEFT_ERR_INVALID, "weft_comm_init_all: %d ranks; 1 to %d are possible",
                          ndev, WEFT_MAX_DEVICES);
    }
    const weft_backend_ops_t *backend;
    WEFT_TRY(choose_for(ndev, devlist, &backend));
    weft_joiner_t *joiners = calloc((size_t)ndev, sizeof(*joiners));
    if (!joiners) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d communicators", ndev);
    }
    weft_status_t status = join_devices(comms, ndev, devlist, backend, joiners);
    free(joiners);
    return status;
}

/* ---- from the job ----------------------------------------------------------------------- */

weft_status_t weft_job_info(int *rank_p, int *size_p, int *local_rank_p, int *local_size_p)
{
    const weft_job_t *job;
    WEFT_TRY(weft__job(&job));
    int *const outs[] = {rank_p, size_p, local_rank_p, local_size_p};
    const int values[] = {job->rank, job->size, job->local_rank, job->local_size};
    for (int i = 0; i < 4; i++) {
        if (outs[i]) {
            *outs[i] = values[i];
        }
    }
    return WEFT_OK;
}

static weft_status_t check_job(const weft_job_t *job)
{
    return job->size <= WEFT_MAX_RANKS
               ? WEFT_OK
               : weft__fail(WEFT_ERR_INVALID,
                            "weft_comm_init_job: the job has %d ranks; 1 to %d are possible",
                            job->size, WEFT_MAX_RANKS);
}

/* The backend of a job's ranks, as far as it is known without asking them. */
static weft_status_t choose_for_job(const weft_job_t *job, int device,
                                    const weft_backend_ops_t **backend_p)
{
    weft_member_t me;
    weft_members_t members = {.size = job->size, .apart = job->local_size < job->size};
    if (job->size == 1) {
        WEFT_TRY(weft__member_here(device, &me));
        members.list = &me;
    }
    weft_status_t status = weft__backend_choose(&members, backend_p);
    if (status == WEFT_ERR_UNSUPPORTED) {
        char why[200];
        snprintf(why, sizeof(why), "%s", weft_last_error());
        return weft__fail(status, "job: %d of %d ranks are on this host; %s", job->local_size,
                          job->size, why);
    }
    return status;
}

weft_status_t weft_comm_init_job(weft_comm_h *comm_p, const weft_comm_config_t *config)
{
    if (!comm_p) {
        return weft__fail(WEFT_ERR_INVALID, "weft_comm_init_job: comm_p is NULL");
    }
    const weft_job_t *job;
    const weft_backend_ops_t *backend;
    struct weft_segment *shared = NULL;
    int device;
    WEFT_TRY(weft__job(&job));
    WEFT_TRY(check_job(job));
    WEFT_TRY(weft_device_get(&device));
    weft_joiner_t joiner = {.comm_p = comm_p,
                            .nranks = job->size,
                            .rank = job->rank,
                            .apart = job->local_size < job->size};
    WEFT_TRY(weft__comm_create(config, device, &joiner.comm));
    /* Every rank makes its n-th communicator of the job in the same n-th call. */
    static _Atomic unsigned counter;
    snprintf(joiner.at.key, sizeof(joiner.at.key), "job/%d/%u", weft__settings()->restart,
             atomic_fetch_add(&counter, 1));
    weft_status_t status = choose_for_job(job, device, &backend);
    if (status != WEFT_OK) {
        weft__comm_release(joiner.comm);
        return status;
    }
    joiner.comm->backend = backend;
    if (job->size == 1 && !backend->by_store) { /* alone, it needs no store */
        joiner.at.local = true;
        joiner.at.shared = &shared;
    } else {
        joiner.at.of_job = true;
    }
    return weft__comm_join_all(&joiner, 1);
}
