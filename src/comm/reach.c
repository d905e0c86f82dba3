#include "comm/reach.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "base/settings.h"
#include "comm/cuda/cuda.h"
#include "comm/shm/procs.h"
#include "comm/shm/wait.h"

#define MS 1000000ull
#define CHECK_NS (20 * MS) /* look for ranks that are gone this often */

weft_status_t weft__reach_check(weft_comm_h comm, const char *who)
{
    weft_status_t status = weft__comm_check(comm, who);
    if (status == WEFT_OK && !comm->backend->locate) {
        status = weft__fail(WEFT_ERR_UNSUPPORTED,
                            "weft_%s: the ranks of this communicator are connected by %s and "
                            "cannot reach each other's memory; symmetric memory needs ranks on one "
                            "host and WEFT_ENGINE other than nccl",
                            who, comm->backend->name);
    }
    return status;
}

weft_status_t weft__reach_export(weft_comm_h comm, const void *ptr, size_t bytes, uint64_t *ref_p)
{
    return comm->backend->publish(comm->ctx, ptr, bytes, ref_p);
}

void *weft__reach_import(weft_comm_h comm, int rank, uint64_t ref)
{
    return comm->backend->locate(comm->ctx, rank, ref);
}

static bool has_left(const weft_shm_t *shm, int rank)
{
    /* Partner: the release store in weft__shm_close of that rank. */
    return atomic_load_explicit(&shm->peers[rank].block->state, memory_order_acquire) ==
           WEFT_RANK_LEFT;
}

bool weft__reach_gone(weft_comm_h comm, int rank)
{
    const weft_shm_t *shm = comm->shm;
    return rank != shm->rank && (has_left(shm, rank) || weft__proc_ended(shm->peers[rank].pidfd));
}

weft_status_t weft__reach_break(weft_comm_h comm, weft_status_t status, int culprit,
                                const char *format, ...)
{
    char text[WEFT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    weft__segment_break(comm->shm->segment, status, culprit, text);
    return weft__shm_broken(comm->shm);
}

weft_status_t weft__reach_broken(weft_comm_h comm)
{
    const char *text;
    return comm->backend->error(comm->ctx, &text) == WEFT_OK ? WEFT_OK
                                                             : weft__shm_broken(comm->shm);
}

/* ---- waiting ---------------------------------------------------------------------------- */

#define WHAT_ROOM 160

/* What is waited for; `text` is room to say it. */
static const char *what_of(const weft_reach_wait_t *wait, char text[WHAT_ROOM])
{
    if (!wait->describe) {
        return wait->what;
    }
    wait->describe(wait->arg, text, WHAT_ROOM);
    return text;
}

static weft_status_t say_gone(weft_comm_h comm, const weft_reach_wait_t *wait, int rank)
{
    const weft_shm_t *shm = comm->shm;
    bool left = has_left(shm, rank);
    weft_status_t status = left ? WEFT_ERR_RANK_LEFT : WEFT_ERR_RANK_DEAD;
    char text[WEFT_ERROR_TEXT], what[WHAT_ROOM];
    if (left) {
        snprintf(text, sizeof(text), "rank %d destroyed its handle while rank %d waits for %s",
                 rank, shm->rank, what_of(wait, what));
    } else {
        snprintf(text, sizeof(text),
                 "rank %d (process %d) died; rank %d noticed while waiting for %s", rank,
                 shm->peers[rank].pid, shm->rank, what_of(wait, what));
    }
    if (!wait->told) {
        return weft__reach_break(comm, status, rank, "%s", text);
    }
    wait->told[rank] = true;
    return weft__fail(status, "%s", text);
}

static weft_status_t look_for_gone(weft_comm_h comm, const weft_reach_wait_t *wait)
{
    for (int p = 0; p < comm->size && !wait->deaf; p++) {
        if ((wait->told && wait->told[p]) || !weft__reach_gone(comm, p)) {
            continue;
        }
        /* Ask first, then look again: what it did before it went away still counts. */
        return wait->ready(wait->arg) ? WEFT_OK : say_gone(comm, wait, p);
    }
    return WEFT_OK;
}

static weft_status_t say_late(weft_comm_h comm, const weft_reach_wait_t *wait)
{
    double seconds = comm->timeout_ms / 1000.0;
    char what[WHAT_ROOM];
    if (!wait->told && !wait->deaf) {
        return weft__reach_break(comm, WEFT_ERR_TIMEOUT, comm->rank,
                                 "timed out after %.1f s on rank %d, which waits for %s", seconds,
                                 comm->rank, what_of(wait, what));
    }
    return weft__fail(WEFT_ERR_TIMEOUT, "timed out after %.1f s on rank %d, which waits for %s",
                      seconds, comm->rank, what_of(wait, what));
}

/* Long before that, as other waits do. */
static void warn_late(weft_comm_h comm, const weft_reach_wait_t *wait, uint64_t waited_ns)
{
    char what[WHAT_ROOM];
    weft__warn("rank %d has waited %.0f s for %s", comm->rank, (double)waited_ns / 1e9,
               what_of(wait, what));
}

/* With `told` or `deaf`, a communicator that broke because a rank died is no reason to give up. */
static weft_status_t look_at_comm(weft_comm_h comm, const weft_reach_wait_t *wait)
{
    const weft_segment_head_t *head = comm->shm->segment->head;
    if (atomic_load_explicit(&head->broken, memory_order_acquire) != 2 ||
        ((wait->told || wait->deaf) && head->status == WEFT_ERR_RANK_DEAD)) {
        return WEFT_OK;
    }
    return weft__shm_broken(comm->shm);
}

weft_status_t weft__reach_await(weft_comm_h comm, const weft_reach_wait_t *wait)
{
    const weft_shm_t *shm = comm->shm;
    for (int i = 0; i < shm->spin; i++) {
        if (wait->ready(wait->arg)) {
            return WEFT_OK;
        }
        weft__pause();
    }
    weft_idler_t idler = {0};
    uint64_t warn_after = (uint64_t)weft__settings()->warn_after * MS, check = 0;
    weft_status_t status = WEFT_OK;
    while (!wait->ready(wait->arg) && status == WEFT_OK) {
        if (!weft__wait_idle(&idler, shm->crowded)) {
            continue;
        }
        uint64_t waited = idler.waited_ns;
        status = look_at_comm(comm, wait);
        if (status == WEFT_OK && waited - check >= CHECK_NS) {
            check = waited;
            status = look_for_gone(comm, wait);
            if (warn_after != 0 && waited >= warn_after) {
                warn_late(comm, wait, waited);
                warn_after = 0;
            }
            if (status == WEFT_OK && comm->timeout_ms > 0 &&
                waited >= (uint64_t)comm->timeout_ms * MS && !wait->ready(wait->arg)) {
                status = say_late(comm, wait);
            }
        }
    }
    return status;
}

/* ---- guests ----------------------------------------------------------------------------- */

void weft__reach_enter(weft_comm_h comm, weft_reach_guest_t *guest)
{
    if (comm->backend == &weft__backend_cuda) {
        weft__cuda_guest(comm->ctx, guest, true);
    }
}

void weft__reach_leave(weft_comm_h comm, weft_reach_guest_t *guest)
{
    if (comm->backend == &weft__backend_cuda) {
        weft__cuda_guest(comm->ctx, guest, false);
    }
}
