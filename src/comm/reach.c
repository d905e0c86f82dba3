#include "comm/reach.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "base/settings.h"
#include "comm/host/host.h"
#include "comm/host/wait.h"
#include "comm/watch.h"

#define MS 1000000ull
#define CHECK_NS (20 * MS) /* look for ranks that are gone this often */

weft_status_t weft__reach_check(weft_comm_h comm, const char *who)
{
    WEFT_TRY(weft__comm_check(comm, who));
    if (!comm->backend->locate) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "weft_%s: the ranks of this communicator are connected by %s and "
                          "cannot reach each other's memory; symmetric memory needs ranks on one "
                          "host and WEFT_ENGINE other than nccl",
                          who, comm->backend->name);
    }
    return WEFT_OK;
}

weft_status_t weft__reach_export(weft_comm_h comm, const void *ptr, size_t bytes, uint64_t *ref_p)
{
    return comm->backend->publish(comm->ctx, ptr, bytes, ref_p);
}

void *weft__reach_import(weft_comm_h comm, int rank, uint64_t ref)
{
    return comm->backend->locate(comm->ctx, rank, ref);
}

bool weft__reach_gone(weft_comm_h comm, int rank)
{
    return rank != comm->rank && weft__host_state(comm->host, rank) != WEFT_SEEN_JOINED;
}

static void fail(weft_comm_h comm, weft_status_t status, int culprit, const char *format,
                 va_list args)
{
    char text[WEFT_ERROR_TEXT];
    vsnprintf(text, sizeof(text), format, args);
    comm->backend->fail(comm->ctx, status, culprit, text);
}

weft_status_t weft__reach_break(weft_comm_h comm, weft_status_t status, int culprit,
                                const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(comm, status, culprit, format, args);
    va_end(args);
    return comm->backend->told(comm->ctx);
}

void weft__reach_fail(weft_comm_h comm, weft_status_t status, int culprit, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(comm, status, culprit, format, args);
    va_end(args);
}

weft_status_t weft__reach_broken(weft_comm_h comm)
{
    return comm->backend->told(comm->ctx);
}

/* ---- waiting ---------------------------------------------------------------------------- */

#define WHAT_ROOM 180

/* What is waited for, in words; `text` is room for them. */
static weft_waiting_t describe(weft_comm_h comm, const weft_reach_wait_t *wait, uint64_t waited_ns,
                               char text[WHAT_ROOM])
{
    static const char verb[] = "waiting for ";
    size_t used = sizeof(verb) - 1;
    snprintf(text, WHAT_ROOM, "%s%s", verb, wait->describe ? "" : wait->what);
    if (wait->describe) {
        wait->describe(wait->arg, text + used, WHAT_ROOM - used);
    }
    return (weft_waiting_t){.rank = comm->rank,
                            .peer = comm->rank,
                            .timeout_ms = comm->timeout_ms,
                            .waited_ns = waited_ns,
                            .doing = text};
}

static weft_seen_t see(weft_comm_h comm, int rank)
{
    weft_state_t state = weft__host_state(comm->host, rank);
    return (weft_seen_t){.rank = rank,
                         .state = state,
                         .owes = WEFT_OWES_ALL, /* who will do what is waited for is not known */
                         .pid = state == WEFT_SEEN_LEFT ? 0 : comm->host->peers[rank].pid};
}

weft_status_t weft__reach_missed(weft_comm_h comm, const weft_reach_wait_t *wait, int rank)
{
    char text[WHAT_ROOM];
    const weft_waiting_t waiting = describe(comm, wait, 0, text);
    const weft_seen_t seen = see(comm, rank);
    weft_fault_t fault;
    return weft__watch(&waiting, &seen, 1, &fault) ? weft__fail(fault.status, "%s", fault.text)
                                                   : WEFT_OK;
}

/* Is somebody gone who has not been told of, or is time up? */
static weft_status_t look_around(weft_comm_h comm, const weft_reach_wait_t *wait,
                                 uint64_t waited_ns)
{
    char text[WHAT_ROOM];
    const weft_waiting_t waiting = describe(comm, wait, waited_ns, text);
    weft_seen_t seen[WEFT_MAX_RANKS];
    weft_fault_t fault;
    int n = 0;
    for (int p = 0; p < comm->size && !wait->deaf; p++) {
        if (p != comm->rank && !(wait->told && wait->told[p])) {
            seen[n++] = see(comm, p);
        }
    }
    /* Ask first, then look again: what it did before it went away still counts. */
    if (!weft__watch(&waiting, seen, n, &fault) || wait->ready(wait->arg)) {
        return WEFT_OK;
    }
    if (!wait->told && !wait->deaf) {
        return weft__reach_break(comm, fault.status, fault.culprit, "%s", fault.text);
    }
    if (fault.culprit != comm->rank) {
        wait->told[fault.culprit] = true;
    }
    return weft__fail(fault.status, "%s", fault.text);
}

/* Long before that, as other waits do. */
static void warn_late(weft_comm_h comm, const weft_reach_wait_t *wait, uint64_t waited_ns)
{
    char text[WHAT_ROOM];
    const weft_waiting_t waiting = describe(comm, wait, waited_ns, text);
    weft__watch_warn(&waiting, NULL, 0);
}

/* With `told` or `deaf`, a communicator that broke because a rank died is no reason to give up. */
static weft_status_t look_at_comm(weft_comm_h comm, const weft_reach_wait_t *wait)
{
    const weft_segment_head_t *head = comm->host->segment->head;
    if (atomic_load_explicit(&head->broken, memory_order_acquire) != 2 ||
        ((wait->told || wait->deaf) && head->status == WEFT_ERR_RANK_DEAD)) {
        return WEFT_OK;
    }
    return weft__host_broken(comm->host);
}

weft_status_t weft__reach_await(weft_comm_h comm, const weft_reach_wait_t *wait)
{
    const weft_host_t *host = comm->host;
    for (int i = 0; i < host->spin; i++) {
        if (wait->ready(wait->arg)) {
            return WEFT_OK;
        }
        weft__pause();
    }
    weft_idler_t idler = {0};
    uint64_t warn_after = (uint64_t)weft__settings()->warn_after * MS, check = 0;
    weft_status_t status = WEFT_OK;
    while (!wait->ready(wait->arg) && status == WEFT_OK) {
        if (!weft__wait_idle(&idler, host->oversubscribed)) {
            continue;
        }
        uint64_t waited = idler.waited_ns;
        status = look_at_comm(comm, wait);
        if (status == WEFT_OK && waited - check >= CHECK_NS) {
            check = waited;
            status = look_around(comm, wait, waited);
            if (status == WEFT_OK && warn_after != 0 && waited >= warn_after) {
                warn_late(comm, wait, waited);
                warn_after = 0;
            }
        }
    }
    return status;
}

/* ---- observers and GPUs -------------------------------------------------------------------- */

void weft__reach_enter(weft_comm_h comm, weft_reach_observer_t *observer)
{
    if (comm->backend->observe) {
        comm->backend->observe(comm->ctx, observer, true);
    }
}

void weft__reach_leave(weft_comm_h comm, weft_reach_observer_t *observer)
{
    if (comm->backend->observe) {
        comm->backend->observe(comm->ctx, observer, false);
    }
}

weft_reach_gpu_t weft__reach_gpu(weft_comm_h comm)
{
    weft_reach_gpu_t gpu;
    comm->backend->gpu(comm->ctx, &gpu);
    return gpu;
}

weft_status_t weft__reach_failed(weft_comm_h comm, int error, const char *what)
{
    return comm->backend->gpu_failed(comm->ctx, error, what);
}
