/* How the ranks of a communicator that NCCL carries out find each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "boot/job.h"
#include "comm/nccl/member.h"
#include "comm/watch.h"
#include "device/cuda.h"

#define LOOK_MS 50 /* while NCCL brings the ranks together */
/* Two events around a call cost as much as a small call does: once in this time is often enough. */
#define TRAIL_NS 1000000u

static int store_timeout(const weft_nccl_member_t *member)
{
    return member->timeout_ms > 0 ? member->timeout_ms : -1;
}

static weft_status_t dial(const weft_rendezvous_t *road, int timeout_ms,
                          weft_store_conn_t **store_p)
{
    *store_p = NULL;
    return road->of_job
               ? weft__job_store(timeout_ms, store_p)
               : weft__store_connect(road->host, road->port, road->secret, timeout_ms, store_p);
}

/* Under launchers other than weft run, rank 0 serves the job's store. */
static int server_of(const weft_rendezvous_t *road)
{
    const weft_job_t *job;
    return road->of_job && weft__job(&job) == WEFT_OK && strcmp(job->launcher, "weft") != 0 ? 0
                                                                                            : -1;
}

/* What the store shall tell the others when this process is gone. */
static weft_status_t leave_last_will(weft_nccl_member_t *member)
{
    weft_nccl_death_t will = {.rank = member->rank, .pid = (int32_t)getpid(), .host = "?"};
    char key[128];
    gethostname(will.host, sizeof(will.host) - 1);
    weft__nccl_key(member, "died", key, sizeof(key));
    return weft__store_last_will(member->store, key, &will, sizeof(will));
}

weft_nccl_member_t *weft__nccl_member_create(weft_comm_h comm, const weft_rendezvous_t *road,
                                             const weft_nccl_binding_t *binding, int rank, int size)
{
    weft_nccl_member_t *member = calloc(1, sizeof(*member));
    if (!member) {
        return NULL;
    }
    member->comm = comm;
    member->rank = rank;
    member->size = size;
    member->timeout_ms = comm->timeout_ms;
    member->unmarked_ns = TRAIL_NS;
    member->road = *road;
    member->road.store = NULL; /* it has a connection of its own */
    member->binding = *binding;
    member->server = server_of(road);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&member->lock, NULL);
    pthread_cond_init(&member->wake, &monotonic);
    pthread_cond_init(&member->settled, NULL);
    pthread_condattr_destroy(&monotonic);
    weft__cuda_hold();
    comm->rank = rank;
    comm->size = size;
    comm->backend = &weft__backend_nccl;
    comm->ctx = member;
    return member;
}

/* This thread's error keeps the rank from joining: tell the others, and find out what they say. */
static weft_status_t fail_joining(weft_nccl_member_t *member, weft_status_t status)
{
    weft_nccl_verdict_t mine = {.status = status}, verdict;
    snprintf(mine.text, sizeof(mine.text), "%s", weft_last_error());
    weft__nccl_offer(member, &mine, &verdict);
    return weft__fail((weft_status_t)verdict.status, "%s", verdict.text);
}

/* What rank 0 leaves for the others. */
typedef struct invitation {
    weft_nccl_id_t id;
    int32_t size;
} invitation_t;

/* Rank 0 makes NCCL's id. If it cannot, an empty one lets the others look for the reason. */
static weft_status_t publish_id(weft_nccl_member_t *member, const char *key, weft_nccl_id_t *id)
{
    weft_status_t status = weft__nccl_id_create(id);
    if (status == WEFT_OK) {
        const invitation_t invitation = {.id = *id, .size = member->size};
        return weft__store_set(member->store, key, &invitation, sizeof(invitation));
    }
    status = fail_joining(member, status);
    if (member->store) {
        weft__store_set(member->store, key, NULL, 0);
    }
    return status;
}

static weft_status_t fetch_id(weft_nccl_member_t *member, const char *key, weft_nccl_id_t *id)
{
    weft_nccl_verdict_t verdict;
    invitation_t invitation;
    size_t bytes = sizeof(invitation);
    weft_status_t status = weft__store_get(member->store, key, &invitation, &bytes,
                                           store_timeout(member));
    if (status == WEFT_ERR_TIMEOUT) {
        weft_fault_t fault;
        weft__watch_absent(member->rank, false, &(weft_seen_t){.rank = 0}, 1, member->timeout_ms,
                           NULL, &fault);
        return weft__fail(fault.status, "%s", fault.text);
    }
    if (status == WEFT_OK && bytes != sizeof(invitation)) {
        return weft__nccl_look(member, &(weft_waiting_t){.joining = true}, &verdict)
                   ? weft__fail((weft_status_t)verdict.status, "%s", verdict.text)
                   : weft__fail(WEFT_ERR_SYSTEM, "rank 0 could not open the communicator");
    }
    if (status == WEFT_OK && invitation.size != member->size) {
        weft_fault_t fault;
        weft__watch_unlike_size(invitation.size, member->rank, member->size, &fault);
        return fail_joining(member, weft__fail(fault.status, "%s", fault.text));
    }
    *id = invitation.id;
    return status;
}

/* Be counted: those who are missing when time is up are not. */
static weft_status_t sign_in(weft_nccl_member_t *member)
{
    char name[32], key[128];
    size_t bytes = 0;
    bool taken = true;
    snprintf(name, sizeof(name), "here/%d", member->rank);
    weft__nccl_key(member, name, key, sizeof(key));
    weft_status_t status = weft__store_offer(member->store, key, NULL, 0, &taken, NULL, &bytes);
    if (taken) {
        return status;
    }
    weft__store_close(member->store); /* it must not speak for the one who is there */
    member->store = NULL;
    return weft__fail(WEFT_ERR_INVALID, "rank %d of this communicator has joined already",
                      member->rank);
}

weft_status_t weft__nccl_member_enter(weft_nccl_member_t *member)
{
    char key[128];
    weft_nccl_id_t id;
    weft__nccl_key(member, "id", key, sizeof(key));
    weft_status_t status = dial(&member->road, store_timeout(member), &member->store);
    if (status == WEFT_OK) {
        status = sign_in(member);
    }
    if (status == WEFT_OK) {
        status = leave_last_will(member);
    }
    if (status == WEFT_OK) {
        status = member->rank == 0 ? publish_id(member, key, &id) : fetch_id(member, key, &id);
    }
    if (status == WEFT_OK) {
        status = weft__nccl_enter(&id, member->rank, member->size, &member->binding,
                                  &member->engine);
        status = status == WEFT_OK ? status : fail_joining(member, status);
    }
    return status;
}

static weft_status_t no_memory(int size)
{
    return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a communicator of %d ranks", size);
}

weft_status_t weft__nccl_comm_enter(weft_comm_h comm, weft_rendezvous_t *at, int rank, int size)
{
    const char *why;
    if (!weft__cuda_load(&why)) {
        return weft__fail(WEFT_ERR_UNSUPPORTED, "NCCL needs GPUs: %s", why);
    }
    const weft_nccl_binding_t binding = {
        .device = comm->device, .gpu = weft__cuda_gpu(comm->device), .ops = weft__cuda()};
    weft_nccl_member_t *member = weft__nccl_member_create(comm, at, &binding, rank, size);
    return member ? weft__nccl_member_enter(member) : no_memory(size);
}

/* Who has come, as far as the store can be asked. */
static void see_all(weft_nccl_member_t *member, weft_seen_t *seen)
{
    for (int p = 0; p < member->size; p++) {
        char name[32], key[128];
        size_t bytes = 0;
        bool found = false;
        snprintf(name, sizeof(name), "here/%d", p);
        weft__nccl_key(member, name, key, sizeof(key));
        bool absent = member->store &&
                      weft__store_look(member->store, key, NULL, &bytes, &found) == WEFT_OK &&
                      !found;
        seen[p] = (weft_seen_t){.rank = p, .state = absent ? WEFT_SEEN_UNKNOWN : WEFT_SEEN_JOINED};
    }
}

static weft_status_t not_joined(weft_nccl_member_t *member)
{
    static const char advice[] =
        "set NCCL_DEBUG=INFO to see what NCCL waits for, and NCCL_SOCKET_IFNAME if hosts have "
        "several networks";
    weft_seen_t *seen = calloc((size_t)member->size, sizeof(*seen));
    weft_fault_t fault;
    if (seen) {
        see_all(member, seen);
    }
    weft__watch_absent(member->rank, false, seen, seen ? member->size : 0, member->timeout_ms,
                       advice, &fault);
    free(seen);
    return weft__fail(fault.status, "%s", fault.text);
}

/* Whoever serves the store ended before all ranks had joined. */
static weft_status_t lost_store(const weft_nccl_member_t *member)
{
    const weft_seen_t seen = {.rank = member->server,
                              .state = WEFT_SEEN_ENDED,
                              .owes = WEFT_OWES_ALL,
                              .served_store = true,
                              .name = member->road.of_job ? "weft run"
                                                          : "the process that made the id"};
    const weft_waiting_t waiting = {.rank = member->rank, .joining = true};
    weft_fault_t fault;
    weft__watch(&waiting, &seen, 1, &fault);
    return weft__fail(fault.status, "%s", fault.text);
}

/* All ranks are in NCCL: be ready for calls. */
static weft_status_t settle_down(weft_nccl_member_t *member)
{
    int error = member->binding.ops->stream_create(member->binding.gpu, &member->stream);
    if (error != 0) {
        return weft__cuda_status(error, "creating a stream for a communicator");
    }
    return weft__nccl_watch_start(member);
}

weft_status_t weft__nccl_comm_meet(weft_comm_h comm)
{
    weft_nccl_member_t *member = comm->ctx;
    weft_nccl_verdict_t verdict;
    uint64_t end = weft__now_ns() + (uint64_t)member->timeout_ms * 1000000u;
    weft_status_t status;
    while ((status = weft__nccl_meet(member->engine, LOOK_MS)) == WEFT_PENDING) {
        if (weft__nccl_look(member, &(weft_waiting_t){.joining = true}, &verdict)) {
            return weft__fail((weft_status_t)verdict.status, "%s", verdict.text);
        }
        if (member->lost_ns != 0) {
            status = lost_store(member);
            break;
        }
        if (member->timeout_ms > 0 && weft__now_ns() > end) {
            status = not_joined(member);
            break;
        }
    }
    if (status == WEFT_OK) {
        status = settle_down(member);
    }
    return status == WEFT_OK ? WEFT_OK : fail_joining(member, status);
}

/* ---- splitting -------------------------------------------------------------------------- */

/* A name for the n-th split's part of that color: the same on all its ranks, and nobody else's. */
static void child_key(const weft_nccl_member_t *member, int color, char key[64])
{
    char name[128];
    uint64_t hash = 0xcbf29ce484222325ull;
    snprintf(name, sizeof(name), "%s/%u/%d", member->road.key, member->splits, color);
    for (const char *c = name; *c; c++) {
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull; /* FNV-1a */
    }
    snprintf(key, 64, "split/%016llx", (unsigned long long)hash);
}

/* A child is watched by way of the same store, if that is still there: it need not be, since ids
 * serve for joining only. */
static void connect_child(weft_nccl_member_t *member)
{
    if (dial(&member->road, 5000, &member->store) != WEFT_OK ||
        leave_last_will(member) != WEFT_OK) {
        weft__info("rank %d of a communicator that was split goes without the store: %s",
                   member->rank, weft_last_error());
        weft__store_close(member->store);
        member->store = NULL;
    }
}

weft_status_t weft__nccl_comm_split(void *ctx, int color, int key, weft_comm_h child)
{
    weft_nccl_member_t *member = ctx;
    weft_nccl_t *engine;
    if (atomic_load_explicit(&member->broken, memory_order_acquire)) {
        return weft__nccl_refuse(member);
    }
    member->splits++;
    weft_status_t status = weft__nccl_split(member->engine, color, key, member->timeout_ms,
                                            &engine);
    if (status != WEFT_OK) {
        return weft__nccl_claim(member, status);
    }
    if (!engine) {
        return WEFT_OK;
    }
    weft_rendezvous_t road = member->road;
    child_key(member, color, road.key);
    weft_nccl_member_t *is_member = weft__nccl_member_create(
        child, &road, &member->binding, weft__nccl_rank(engine), weft__nccl_size(engine));
    if (!is_member) {
        weft__nccl_close(engine);
        return no_memory(member->size);
    }
    is_member->engine = engine;
    is_member->server = -1; /* rank 0 of the job may not be in it */
    connect_child(is_member);
    status = settle_down(is_member);
    return status == WEFT_OK ? WEFT_OK : fail_joining(is_member, status);
}
