/* How the ranks of a communicator that NCCL carries out find each other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "boot/job.h"
#include "comm/nccl/seat.h"
#include "comm/watch.h"
#include "device/cuda.h"

#define LOOK_MS 50 /* while NCCL brings the ranks together */
/* Two events around a call cost as much as a small call does: once in this time is often enough. */
#define TRAIL_NS 1000000u

static int store_timeout(const weft_nccl_seat_t *seat)
{
    return seat->timeout_ms > 0 ? seat->timeout_ms : -1;
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
static weft_status_t make_will(weft_nccl_seat_t *seat)
{
    weft_nccl_death_t will = {.rank = seat->rank, .pid = (int32_t)getpid(), .host = "?"};
    char key[128];
    gethostname(will.host, sizeof(will.host) - 1);
    weft__nccl_key(seat, "died", key, sizeof(key));
    return weft__store_will(seat->store, key, &will, sizeof(will));
}

weft_nccl_seat_t *weft__nccl_seat_create(weft_comm_h comm, const weft_rendezvous_t *road,
                                         const weft_nccl_place_t *place, int rank, int size)
{
    weft_nccl_seat_t *seat = calloc(1, sizeof(*seat));
    if (!seat) {
        return NULL;
    }
    seat->comm = comm;
    seat->rank = rank;
    seat->size = size;
    seat->timeout_ms = comm->timeout_ms;
    seat->trail_ns = TRAIL_NS;
    seat->road = *road;
    seat->road.store = NULL; /* it has a connection of its own */
    seat->place = *place;
    seat->server = server_of(road);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&seat->lock, NULL);
    pthread_cond_init(&seat->wake, &monotonic);
    pthread_cond_init(&seat->settled, NULL);
    pthread_condattr_destroy(&monotonic);
    weft__cuda_hold();
    comm->rank = rank;
    comm->size = size;
    comm->backend = &weft__backend_nccl;
    comm->ctx = seat;
    return seat;
}

/* This thread's error keeps the rank from joining: tell the others, and find out what they say. */
static weft_status_t fail_joining(weft_nccl_seat_t *seat, weft_status_t status)
{
    weft_nccl_verdict_t mine = {.status = status}, verdict;
    snprintf(mine.text, sizeof(mine.text), "%s", weft_last_error());
    weft__nccl_offer(seat, &mine, &verdict);
    return weft__fail((weft_status_t)verdict.status, "%s", verdict.text);
}

/* What rank 0 leaves for the others. */
typedef struct invitation {
    weft_nccl_id_t id;
    int32_t size;
} invitation_t;

/* Rank 0 makes NCCL's id. If it cannot, an empty one lets the others look for the reason. */
static weft_status_t publish_id(weft_nccl_seat_t *seat, const char *key, weft_nccl_id_t *id)
{
    weft_status_t status = weft__nccl_id_create(id);
    if (status == WEFT_OK) {
        const invitation_t invitation = {.id = *id, .size = seat->size};
        return weft__store_set(seat->store, key, &invitation, sizeof(invitation));
    }
    status = fail_joining(seat, status);
    if (seat->store) {
        weft__store_set(seat->store, key, NULL, 0);
    }
    return status;
}

static weft_status_t fetch_id(weft_nccl_seat_t *seat, const char *key, weft_nccl_id_t *id)
{
    weft_nccl_verdict_t verdict;
    invitation_t invitation;
    size_t bytes = sizeof(invitation);
    weft_status_t status = weft__store_get(seat->store, key, &invitation, &bytes,
                                           store_timeout(seat));
    if (status == WEFT_ERR_TIMEOUT) {
        weft_fault_t fault;
        weft__watch_absent(seat->rank, false, &(weft_seen_t){.rank = 0}, 1, seat->timeout_ms, NULL,
                           &fault);
        return weft__fail(fault.status, "%s", fault.text);
    }
    if (status == WEFT_OK && bytes != sizeof(invitation)) {
        return weft__nccl_look(seat, &(weft_waiting_t){.joining = true}, &verdict)
                   ? weft__fail((weft_status_t)verdict.status, "%s", verdict.text)
                   : weft__fail(WEFT_ERR_SYSTEM, "rank 0 could not open the communicator");
    }
    if (status == WEFT_OK && invitation.size != seat->size) {
        weft_fault_t fault;
        weft__watch_unlike_size(invitation.size, seat->rank, seat->size, &fault);
        return fail_joining(seat, weft__fail(fault.status, "%s", fault.text));
    }
    *id = invitation.id;
    return status;
}

/* Be counted: those who are missing when time is up are not. */
static weft_status_t sign_in(weft_nccl_seat_t *seat)
{
    char name[32], key[128];
    size_t bytes = 0;
    bool taken = true;
    snprintf(name, sizeof(name), "here/%d", seat->rank);
    weft__nccl_key(seat, name, key, sizeof(key));
    weft_status_t status = weft__store_offer(seat->store, key, NULL, 0, &taken, NULL, &bytes);
    if (taken) {
        return status;
    }
    weft__store_close(seat->store); /* it must not speak for the one who is there */
    seat->store = NULL;
    return weft__fail(WEFT_ERR_INVALID, "rank %d of this communicator has joined already",
                      seat->rank);
}

weft_status_t weft__nccl_seat_enter(weft_nccl_seat_t *seat)
{
    char key[128];
    weft_nccl_id_t id;
    weft__nccl_key(seat, "id", key, sizeof(key));
    weft_status_t status = dial(&seat->road, store_timeout(seat), &seat->store);
    if (status == WEFT_OK) {
        status = sign_in(seat);
    }
    if (status == WEFT_OK) {
        status = make_will(seat);
    }
    if (status == WEFT_OK) {
        status = seat->rank == 0 ? publish_id(seat, key, &id) : fetch_id(seat, key, &id);
    }
    if (status == WEFT_OK) {
        status = weft__nccl_enter(&id, seat->rank, seat->size, &seat->place, &seat->engine);
        status = status == WEFT_OK ? status : fail_joining(seat, status);
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
    const weft_nccl_place_t place = {
        .device = comm->device, .gpu = weft__cuda_gpu(comm->device), .ops = weft__cuda()};
    weft_nccl_seat_t *seat = weft__nccl_seat_create(comm, at, &place, rank, size);
    return seat ? weft__nccl_seat_enter(seat) : no_memory(size);
}

/* Who has come, as far as the store can be asked. */
static void see_all(weft_nccl_seat_t *seat, weft_seen_t *seen)
{
    for (int p = 0; p < seat->size; p++) {
        char name[32], key[128];
        size_t bytes = 0;
        bool found = false;
        snprintf(name, sizeof(name), "here/%d", p);
        weft__nccl_key(seat, name, key, sizeof(key));
        bool absent = seat->store &&
                      weft__store_look(seat->store, key, NULL, &bytes, &found) == WEFT_OK && !found;
        seen[p] = (weft_seen_t){.rank = p, .state = absent ? WEFT_SEEN_UNKNOWN : WEFT_SEEN_JOINED};
    }
}

static weft_status_t not_joined(weft_nccl_seat_t *seat)
{
    static const char advice[] =
        "set NCCL_DEBUG=INFO to see what NCCL waits for, and NCCL_SOCKET_IFNAME if hosts have "
        "several networks";
    weft_seen_t *seen = calloc((size_t)seat->size, sizeof(*seen));
    weft_fault_t fault;
    if (seen) {
        see_all(seat, seen);
    }
    weft__watch_absent(seat->rank, false, seen, seen ? seat->size : 0, seat->timeout_ms, advice,
                       &fault);
    free(seen);
    return weft__fail(fault.status, "%s", fault.text);
}

/* Whoever serves the store ended before all ranks had joined. */
static weft_status_t lost_store(const weft_nccl_seat_t *seat)
{
    const weft_seen_t seen = {.rank = seat->server,
                              .state = WEFT_SEEN_ENDED,
                              .owes = WEFT_OWES_ALL,
                              .served_store = true,
                              .name = seat->road.of_job ? "weft run"
                                                        : "the process that made the id"};
    const weft_waiting_t waiting = {.rank = seat->rank, .joining = true};
    weft_fault_t fault;
    weft__watch(&waiting, &seen, 1, &fault);
    return weft__fail(fault.status, "%s", fault.text);
}

/* All ranks are in NCCL: be ready for calls. */
static weft_status_t settle_down(weft_nccl_seat_t *seat)
{
    int error = seat->place.ops->stream_create(seat->place.gpu, &seat->stream);
    if (error != 0) {
        return weft__cuda_status(error, "creating a stream for a communicator");
    }
    return weft__nccl_watch_start(seat);
}

weft_status_t weft__nccl_comm_meet(weft_comm_h comm)
{
    weft_nccl_seat_t *seat = comm->ctx;
    weft_nccl_verdict_t verdict;
    uint64_t end = weft__now_ns() + (uint64_t)seat->timeout_ms * 1000000u;
    weft_status_t status;
    while ((status = weft__nccl_meet(seat->engine, LOOK_MS)) == WEFT_PENDING) {
        if (weft__nccl_look(seat, &(weft_waiting_t){.joining = true}, &verdict)) {
            return weft__fail((weft_status_t)verdict.status, "%s", verdict.text);
        }
        if (seat->lost_ns != 0) {
            status = lost_store(seat);
            break;
        }
        if (seat->timeout_ms > 0 && weft__now_ns() > end) {
            status = not_joined(seat);
            break;
        }
    }
    if (status == WEFT_OK) {
        status = settle_down(seat);
    }
    return status == WEFT_OK ? WEFT_OK : fail_joining(seat, status);
}

/* ---- splitting -------------------------------------------------------------------------- */

/* A name for the n-th split's part of that color: the same on all its ranks, and nobody else's. */
static void child_key(const weft_nccl_seat_t *seat, int color, char key[64])
{
    char name[128];
    uint64_t hash = 0xcbf29ce484222325ull;
    snprintf(name, sizeof(name), "%s/%u/%d", seat->road.key, seat->splits, color);
    for (const char *c = name; *c; c++) {
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3ull; /* FNV-1a */
    }
    snprintf(key, 64, "split/%016llx", (unsigned long long)hash);
}

/* A child is watched by way of the same store, if that is still there: it need not be, since ids serve
 * for joining only. */
static void connect_child(weft_nccl_seat_t *seat)
{
    if (dial(&seat->road, 5000, &seat->store) != WEFT_OK || make_will(seat) != WEFT_OK) {
        weft__info("rank %d of a communicator that was split goes without the store: %s",
                   seat->rank, weft_last_error());
        weft__store_close(seat->store);
        seat->store = NULL;
    }
}

weft_status_t weft__nccl_comm_split(void *ctx, int color, int key, weft_comm_h child)
{
    weft_nccl_seat_t *seat = ctx;
    weft_nccl_t *engine;
    if (atomic_load_explicit(&seat->broken, memory_order_acquire)) {
        return weft__nccl_refuse(seat);
    }
    seat->splits++;
    weft_status_t status = weft__nccl_split(seat->engine, color, key, seat->timeout_ms, &engine);
    if (status != WEFT_OK) {
        return weft__nccl_claim(seat, status);
    }
    if (!engine) {
        return WEFT_OK;
    }
    weft_rendezvous_t road = seat->road;
    child_key(seat, color, road.key);
    weft_nccl_seat_t *seated = weft__nccl_seat_create(
        child, &road, &seat->place, weft__nccl_rank(engine), weft__nccl_size(engine));
    if (!seated) {
        weft__nccl_close(engine);
        return no_memory(seat->size);
    }
    seated->engine = engine;
    seated->server = -1; /* rank 0 of the job may not be in it */
    connect_child(seated);
    status = settle_down(seated);
    return status == WEFT_OK ? WEFT_OK : fail_joining(seated, status);
}
