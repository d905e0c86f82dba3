/* Handles of communicators: creation, checks, destruction, queries. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "comm/host/host.h"
#include "comm/init.h"
#include "device/device.h"

/* Handles given back, oldest first. One is reused only when there are some in stock, so that a
 * stale handle is recognized for a while. */
#define STOCK 64
static pthread_mutex_t stock_lock = PTHREAD_MUTEX_INITIALIZER;
static weft_comm_h stock_first, stock_last;
static int stock_count;

static weft_comm_h take_from_stock(void)
{
    weft_comm_h comm = NULL;
    pthread_mutex_lock(&stock_lock);
    if (stock_count >= STOCK) {
        comm = stock_first;
        stock_first = comm->next_free;
        stock_count--;
    }
    pthread_mutex_unlock(&stock_lock);
    return comm;
}

static void put_in_stock(weft_comm_h comm)
{
    pthread_mutex_lock(&stock_lock);
    comm->next_free = NULL;
    if (stock_count++ > 0) {
        stock_last->next_free = comm;
    } else {
        stock_first = comm;
    }
    stock_last = comm;
    pthread_mutex_unlock(&stock_lock);
}

static weft_status_t read_config(const weft_comm_config_t *config, weft_comm_h comm)
{
    const weft_settings_t *settings = weft__settings();
    weft_comm_config_t given = WEFT_COMM_CONFIG_INIT;
    if (config) {
        if (config->size < sizeof(config->size) || config->size > 4096) {
            return weft__fail(WEFT_ERR_INVALID,
                              "weft_comm_config_t has size %zu; start from WEFT_COMM_CONFIG_INIT",
                              config->size);
        }
        memcpy(&given, config, config->size < sizeof(given) ? config->size : sizeof(given));
    }
    if (given.timeout_ms < -1) {
        return weft__fail(WEFT_ERR_INVALID, "timeout_ms %d: give -1 for the setting, 0 for none",
                          given.timeout_ms);
    }
    if (given.concurrent_comms < -1 || given.concurrent_comms == 0) {
        return weft__fail(WEFT_ERR_INVALID, "concurrent_comms %d: give how many work at once",
                          given.concurrent_comms);
    }
    comm->concurrent_comms = given.concurrent_comms < 0 ? 1 : given.concurrent_comms;
    comm->timeout_ms = given.timeout_ms < 0 ? settings->timeout : given.timeout_ms;
    return weft__tuner_init(&comm->tuner, given.algo ? given.algo : settings->algo);
}

/* Counts forks on the way to this process. A handle made before the last one is the parent's. */
int weft__comm_generation;

static void count_fork(void)
{
    weft__comm_generation++;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

weft_status_t weft__comm_create(const weft_comm_config_t *config, int device, weft_comm_h *comm_p)
{
    static pthread_once_t watched = PTHREAD_ONCE_INIT;
    pthread_once(&watched, watch_forks);
    const char *kind;
    weft_status_t there = weft_device_kind(&kind); /* or what was asked for is not there */
    if (there != WEFT_OK) {
        return there;
    }
    weft_comm_h comm = take_from_stock();
    bool used = comm != NULL;
    if (!comm && !(comm = calloc(1, sizeof(*comm)))) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a communicator's handle");
    }
    if (!used) {
        pthread_mutex_init(&comm->order_lock, NULL);
        pthread_cond_init(&comm->order, NULL);
    }
    atomic_store(&comm->issued, 0);
    atomic_store(&comm->served, 0);
    atomic_store(&comm->has_streams, false);
    atomic_store(&comm->owner, 0);
    for (int i = 0; i < WEFT_CALL_PLACES; i++) {
        atomic_store(&comm->calling[i], NULL);
    }
    atomic_store(&comm->deferred, 0);
    atomic_store(&comm->holds, 0);
    bool checks = !weft__device_is_cuda() || weft__settings()->check_memory;
    (checks ? weft__bounds_clear : weft__bounds_open)(&comm->src_bounds);
    (checks ? weft__bounds_clear : weft__bounds_open)(&comm->dst_bounds);
    for (int i = 0; i < WEFT_KNOWN_BOUNDS; i++) {
        weft__bounds_clear(&comm->known[i]);
    }
    comm->rank = comm->size = 0;
    comm->error_text[0] = '\0';
    comm->generation = weft__comm_generation;
    comm->helper = NULL;
    comm->fuse_buffer = NULL;
    comm->backend = NULL;
    comm->ctx = NULL;
    comm->host = NULL;
    comm->device = device;
    weft_status_t status = read_config(config, comm);
    if (status != WEFT_OK) {
        put_in_stock(comm);
        return status;
    }
    atomic_store(&comm->magic, WEFT_COMM_MAGIC);
    *comm_p = comm;
    return WEFT_OK;
}

void weft__comm_release(weft_comm_h comm)
{
    atomic_store(&comm->magic, 0);
    if (comm->ctx) {
        comm->backend->close(comm->ctx);
    }
    weft__host_leave(comm->host);
    weft_stream_destroy(comm->helper);
    if (comm->fuse_buffer) {
        weft__heap_free(comm->fuse_buffer);
    }
    put_in_stock(comm);
}

weft_choice_t weft__comm_choose(weft_comm_h comm, weft_coll_t coll, size_t bytes)
{
    return comm->backend->choose ? comm->backend->choose(comm->ctx, coll, bytes)
                                 : weft__tuner_choose(&comm->tuner, coll, bytes);
}

weft_status_t weft__comm_refuse(weft_comm_h comm, const char *who)
{
    if (!comm) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: the communicator is NULL", who);
    }
    if (atomic_load_explicit(&comm->magic, memory_order_relaxed) != WEFT_COMM_MAGIC) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: the communicator was destroyed", who);
    }
    return weft__fail(
        WEFT_ERR_UNSUPPORTED,
        "weft_%s: the communicator belongs to the process that this one was forked from", who);
}

/* What keeps this rank from leaving the communicator. */
static weft_status_t check_unused(weft_comm_h comm)
{
    int deferred = atomic_load(&comm->deferred), holds = atomic_load(&comm->holds);
    if (deferred > 0) {
        return weft__fail(
            WEFT_ERR_INVALID,
            "weft_comm_destroy: %d call%s of rank %d on this communicator wait%s in a "
            "group that is open; end it with weft_group_end first",
            deferred, deferred == 1 ? "" : "s", comm->rank, deferred == 1 ? "s" : "");
    }
    if (holds > 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_comm_destroy: rank %d has %d symmetric heap%s open on this "
                          "communicator; destroy %s first (weft_symm_destroy)",
                          comm->rank, holds, holds == 1 ? "" : "s", holds == 1 ? "it" : "them");
    }
    const char *call = weft__comm_calling(comm);
    return !call ? WEFT_OK
                 : weft__fail(WEFT_ERR_INVALID,
                              "weft_comm_destroy: another thread of rank %d is in weft_%s on this "
                              "communicator; let it end first, or end it with weft_comm_abort",
                              comm->rank, call);
}

/* Take the handle away from all other threads: false if one of them did. Under the lock. */
static bool take_away(weft_comm_h comm)
{
    uint64_t alive = WEFT_COMM_MAGIC;
    bool taken = atomic_compare_exchange_strong(&comm->magic, &alive, 0);
    weft__comm_fence_all(); /* partner: the begin of a call (run.c) */
    return taken;
}

weft_status_t weft_comm_destroy(weft_comm_h comm)
{
    if (!comm) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__comm_check(comm, "comm_destroy"));
    WEFT_TRY(check_unused(comm));
    weft__comm_await_order(comm, atomic_load(&comm->issued));
    pthread_mutex_lock(&comm->order_lock);
    bool taken = take_away(comm);
    /* Where an abort was faster, it is destroyed already. */
    weft_status_t status = taken ? check_unused(comm) : weft__comm_check(comm, "comm_destroy");
    if (taken && status != WEFT_OK) {
        atomic_store(&comm->magic, WEFT_COMM_MAGIC);
    }
    pthread_mutex_unlock(&comm->order_lock);
    if (status == WEFT_OK) {
        weft__comm_release(comm);
    }
    return status;
}

weft_status_t weft_comm_abort(weft_comm_h comm)
{
    weft_status_t status = weft__comm_check(comm, "comm_abort");
    if (status == WEFT_OK) {
        pthread_mutex_lock(&comm->order_lock);
        bool taken = take_away(comm);
        /* As a heap would: the last of them to let go frees what is left. */
        atomic_fetch_add(&comm->holds, taken);
        pthread_mutex_unlock(&comm->order_lock);
        status = taken ? WEFT_OK : weft__comm_check(comm, "comm_abort");
    }
    if (status != WEFT_OK) {
        return status;
    }
    /* Whoever aborts does so because of an error, and that is what they will want to tell. */
    char before[1024];
    snprintf(before, sizeof(before), "%s", weft_last_error());
    comm->backend->abort(comm->ctx);
    weft__error_restore(before);
    /* Other threads inside a call of this handle return soon. */
    while (weft__comm_calling(comm) || atomic_load(&comm->served) != atomic_load(&comm->issued)) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    weft__comm_let_go(comm);
    return WEFT_OK;
}

void weft__comm_break(weft_comm_h comm)
{
    char why[WEFT_ERROR_TEXT], text[WEFT_ERROR_TEXT];
    const char *unused;
    snprintf(why, sizeof(why), "%s", weft_last_error());
    if (comm && weft__comm_check(comm, "comm_abort") == WEFT_OK) {
        snprintf(text, sizeof(text), "rank %d gave up: %.900s", comm->rank, why);
        comm->backend->fail(comm->ctx, WEFT_ERR_ABORTED, comm->rank, text);
        comm->backend->error(comm->ctx, &unused); /* notices it: on GPUs that ends our kernels */
    }
    weft__error_restore(why);
}

static weft_status_t query(weft_comm_h comm, const char *who, int value, int *out_p)
{
    if (!out_p) {
        return weft__fail(WEFT_ERR_INVALID, "weft_%s: there is no pointer for the result: NULL",
                          who);
    }
    *out_p = value;
    (void)comm;
    return WEFT_OK;
}

weft_status_t weft_comm_rank(weft_comm_h comm, int *rank_p)
{
    WEFT_TRY(weft__comm_check(comm, "comm_rank"));
    return query(comm, "comm_rank", comm->rank, rank_p);
}

weft_status_t weft_comm_size(weft_comm_h comm, int *size_p)
{
    WEFT_TRY(weft__comm_check(comm, "comm_size"));
    return query(comm, "comm_size", comm->size, size_p);
}

weft_status_t weft_comm_device(weft_comm_h comm, int *device_p)
{
    WEFT_TRY(weft__comm_check(comm, "comm_device"));
    return query(comm, "comm_device", comm->device, device_p);
}

weft_status_t weft_comm_error(weft_comm_h comm, const char **text_p)
{
    const char *text = "";
    if (!comm) {
        return weft__comm_check(comm, "comm_error");
    }
    /* Under the lock, as is taking the handle away: the backend is there, or the handle is dead. */
    pthread_mutex_lock(&comm->order_lock);
    weft_status_t status = weft__comm_check(comm, "comm_error");
    if (status == WEFT_OK) {
        status = comm->backend->error(comm->ctx, &text);
        if (status != WEFT_OK && comm->error_text[0] == '\0') {
            snprintf(comm->error_text, sizeof(comm->error_text), "%s", text);
        }
        text = comm->error_text;
    }
    pthread_mutex_unlock(&comm->order_lock);
    if (text_p) {
        *text_p = text;
    }
    return status;
}

weft_status_t weft_comm_split(weft_comm_h comm, int color, int key, weft_comm_h *new_p,
                              const weft_comm_config_t *config)
{
    WEFT_TRY(weft__comm_check(comm, "comm_split"));
    if (!new_p) {
        return weft__fail(WEFT_ERR_INVALID, "weft_comm_split: new_p is NULL");
    }
    weft_comm_h child;
    WEFT_TRY(weft__comm_create(config, comm->device, &child));
    uint64_t ticket;
    weft_status_t status = weft__comm_enter(comm, "comm_split", &ticket);
    if (status == WEFT_OK) {
        status = comm->backend->split(comm->ctx, color, key, child);
        status = weft__comm_leave(comm, ticket, status);
    }
    if (status != WEFT_OK || color < 0) {
        weft__comm_release(child);
        child = NULL;
    }
    if (status == WEFT_OK) {
        *new_p = child;
    }
    return status;
}
