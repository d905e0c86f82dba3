/* Errors that concern all ranks: breaking a communicator, and naming who is to blame. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/host/host.h"
#include "comm/host/procs.h"
#include "comm/host/wait.h"
#include "comm/watch.h"

/* Wait for the writer of the error to finish; it was killed in between if that takes long. */
static bool error_written(weft_segment_head_t *head)
{
    for (int i = 0; i < 100; i++) {
        if (atomic_load_explicit(&head->broken, memory_order_acquire) == 2) {
            return true;
        }
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return false;
}

weft_status_t weft__host_broken(weft_host_t *host)
{
    weft_segment_head_t *head = host->segment->head;
    atomic_store_explicit(&host->told, true, memory_order_relaxed);
    if (!error_written(head)) {
        return weft__fail(WEFT_ERR_BROKEN,
                          "the communicator is broken; the rank that broke it died "
                          "before it said why");
    }
    return weft__fail((weft_status_t)head->status, "%s", head->text);
}

weft_status_t weft__host_refuse(weft_host_t *host)
{
    bool told = atomic_load_explicit(&host->told, memory_order_relaxed);
    weft_status_t status = weft__host_broken(host);
    if (!told) {
        return status; /* it broke between two calls of this rank */
    }
    char why[WEFT_ERROR_TEXT];
    snprintf(why, sizeof(why), "%s", weft_last_error());
    return weft__fail(WEFT_ERR_BROKEN, "the communicator is broken by an earlier error: %s", why);
}

void weft__segment_break(weft_segment_t *segment, weft_status_t status, int culprit,
                         const char *text)
{
    weft_segment_head_t *head = segment->head;
    uint32_t whole = 0;
    /* Partner: every other rank's CAS here, and the acquire loads of `broken`. */
    if (atomic_compare_exchange_strong(&head->broken, &whole, 1)) {
        snprintf(head->text, sizeof(head->text), "%s", text);
        head->status = status;
        head->culprit = culprit;
        atomic_store_explicit(&head->broken, 2, memory_order_release);
        for (int p = 0; p < (int)head->size; p++) {
            weft__wake_all(weft__segment_block(segment, p));
        }
    }
}

weft_status_t weft__host_error(const weft_host_t *host, const char **text_p)
{
    const weft_segment_head_t *head = host->segment->head;
    bool broken = atomic_load_explicit(&head->broken, memory_order_acquire) == 2;
    *text_p = broken ? head->text : "";
    return broken ? (weft_status_t)head->status : WEFT_OK;
}

void weft__host_abort(weft_host_t *host)
{
    weft__host_break(host, WEFT_ERR_ABORTED, host->rank, "rank %d aborted the communicator",
                     host->rank);
    /* Whoever is just entering a call has not been told yet. */
    atomic_store_explicit(&host->told, false, memory_order_relaxed);
}

weft_status_t weft__host_fail_joining(weft_host_t *host, weft_status_t status)
{
    return weft__host_break(host, status, host->rank, "rank %d: %s", host->rank, weft_last_error());
}

weft_status_t weft__host_break(weft_host_t *host, weft_status_t status, int culprit,
                               const char *format, ...)
{
    char text[WEFT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    weft__segment_break(host->segment, status, culprit, text);
    return weft__host_broken(host);
}

bool weft__host_gone(const weft_host_t *host, int rank)
{
    return rank != host->rank &&
           (weft__host_left(host, rank) || weft__proc_ended(host->peers[rank].pidfd));
}

/* ---- for the watch (comm/watch.h) ----------------------------------------------------------- */

static weft_status_t break_with(weft_host_t *host, const weft_fault_t *fault)
{
    weft__segment_break(host->segment, fault->status, fault->culprit, fault->text);
    return weft__host_broken(host);
}

/* What this rank is in. */
static weft_waiting_t waiting_for(const weft_host_t *host, int peer)
{
    const weft_call_t *call = host->current;
    bool message = call && weft__is_message(call->coll);
    return (weft_waiting_t){.rank = host->rank,
                            .size = host->size,
                            .peer = peer,
                            .timeout_ms = host->comm->timeout_ms,
                            .joining = !call,
                            .first = message ? 0 : host->calls,
                            .last = message ? 0 : host->calls,
                            .sig = call ? weft__sig_pack(call, WEFT_ALGO_AUTO) : 0,
                            .count = call ? call->count : 0};
}

/* The call that a rank made last: the one that goes in pieces, or the newest in its slots. */
static weft_seen_t see(const weft_host_t *host, int peer)
{
    weft_rank_block_t *block = host->peers[peer].block;
    weft_seen_t seen = {.calls = atomic_load_explicit(&block->call, memory_order_relaxed),
                        .pid = host->peers[peer].pid};
    if (!host->current) { /* it has not come so far */
        seen.silent = atomic_load_explicit(&block->state, memory_order_acquire) <
                      atomic_load_explicit(&host->me->state, memory_order_relaxed);
    }
    if (seen.calls != 0 &&
        atomic_load_explicit(&block->whole_call, memory_order_relaxed) == seen.calls) {
        seen.sig = atomic_load_explicit(&block->whole_sig, memory_order_relaxed);
        seen.count = atomic_load_explicit(&block->whole_count, memory_order_relaxed);
        return seen;
    }
    weft_slot_t *newest = &block->slot[0];
    for (int i = 1; i < WEFT_SLOTS; i++) {
        if (atomic_load_explicit(&block->slot[i].seq, memory_order_acquire) >
            atomic_load_explicit(&newest->seq, memory_order_acquire)) {
            newest = &block->slot[i];
        }
    }
    seen.sig = atomic_load_explicit(&newest->sig, memory_order_relaxed);
    seen.count = atomic_load_explicit(&newest->count, memory_order_relaxed);
    return seen;
}

static void see_all(const weft_host_t *host, weft_seen_t seen[WEFT_MAX_RANKS])
{
    for (int p = 0; p < host->size; p++) {
        seen[p] = see(host, p);
    }
}

weft_status_t weft__host_mismatch(weft_host_t *host, int peer, uint64_t number)
{
    weft_slot_t *slot = weft__host_slot_of(host, peer, number);
    weft_slot_t *mine = weft__host_slot_of(host, host->rank, number);
    const weft_seen_t theirs = {.sig = atomic_load_explicit(&slot->sig, memory_order_relaxed),
                                .count = atomic_load_explicit(&slot->count, memory_order_relaxed)};
    weft_waiting_t waiting = waiting_for(host, peer);
    weft_fault_t fault;
    waiting.first = waiting.last = host->calls - (host->seq - number);
    waiting.sig = atomic_load_explicit(&mine->sig, memory_order_relaxed);
    waiting.count = atomic_load_explicit(&mine->count, memory_order_relaxed);
    weft__watch_differs(&waiting, &theirs, &fault);
    return break_with(host, &fault);
}

weft_status_t weft__host_differs(weft_host_t *host, int peer, uint64_t sig, uint64_t count,
                                 uint64_t own_count)
{
    const weft_seen_t theirs = {.sig = sig, .count = count};
    weft_waiting_t waiting = waiting_for(host, peer);
    weft_fault_t fault;
    waiting.count = own_count;
    weft__watch_differs(&waiting, &theirs, &fault);
    return break_with(host, &fault);
}

/* It is gone for good, and has not done what is waited for: say so. */
static weft_status_t break_gone(weft_host_t *host, int peer, bool left)
{
    const weft_waiting_t waiting = waiting_for(host, peer);
    const weft_seen_t seen = {.pid = left ? 0 : host->peers[peer].pid};
    weft_fault_t fault;
    (left ? weft__watch_left : weft__watch_dead)(&waiting, peer, &seen, &fault);
    return break_with(host, &fault);
}

static weft_status_t check_one(weft_host_t *host, int peer, const _Atomic uint64_t *word,
                               uint64_t target)
{
    weft_peer_t *p = &host->peers[peer];
    /* Ask first, then look again: what it did before it went away still counts. */
    bool left = weft__host_left(host, peer);
    bool ended = weft__proc_ended(p->pidfd);
    if ((!left && !ended) || atomic_load_explicit(word, memory_order_acquire) >= target) {
        return WEFT_OK;
    }
    return break_gone(host, peer, left);
}

weft_status_t weft__host_check_peer(weft_host_t *host, int peer, const _Atomic uint64_t *word,
                                    uint64_t target)
{
    if (host->parent &&
        atomic_load_explicit(&host->parent->segment->head->broken, memory_order_acquire) == 2) {
        const weft_segment_head_t *head = host->parent->segment->head;
        return weft__host_break(host, (weft_status_t)head->status, head->culprit, "%s", head->text);
    }
    weft_status_t status = check_one(host, peer, word, target);
    bool collective = host->current && !weft__is_message(host->current->coll);
    /* The one we wait for may just be late; a call that another one will never make is lost too. */
    for (int p = 0; p < host->size && collective && status == WEFT_OK; p++) {
        if (p != host->rank && p != peer) {
            status = check_one(host, p, &weft__host_slot(host, p)->seq, host->seq + 1);
            /* Where all wait for all, one that ended has not ended the call: it was killed in it. */
            if (status == WEFT_OK && host->together && !weft__host_left(host, p) &&
                weft__proc_ended(host->peers[p].pidfd)) {
                status = break_gone(host, p, false);
            }
        }
    }
    return status;
}

#define DRAIN_NS 1000000000ull

void weft__host_drain(weft_host_t *host)
{
    uint64_t end = weft__now_ns() + DRAIN_NS;
    weft__wait_fence(host);
    for (int p = 0; p < host->size; p++) {
        weft_peer_t *peer = &host->peers[p];
        /* Whoever is inside looks at `broken` when it has copied its part. One that was stopped
         * there does not, and is not waited for any longer. */
        while (p != host->rank &&
               atomic_load_explicit(&peer->block->inside, memory_order_acquire) &&
               !weft__proc_ended(peer->pidfd) && weft__now_ns() < end) {
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        }
    }
}

weft_status_t weft__host_late(weft_host_t *host, int peer)
{
    const weft_waiting_t waiting = waiting_for(host, peer);
    weft_seen_t seen[WEFT_MAX_RANKS];
    weft_fault_t fault;
    see_all(host, seen);
    weft__watch_late(&waiting, seen, "", &fault);
    return break_with(host, &fault);
}

/* Does a lower rank wait in the same collective? Then it is the one to say so. */
static bool lower_rank_waits(const weft_host_t *host)
{
    for (int p = 0; p < host->rank && host->current && !weft__is_message(host->current->coll);
         p++) {
        if (atomic_load_explicit(&host->peers[p].block->call, memory_order_relaxed) >=
            host->calls) {
            return true;
        }
    }
    return false;
}

void weft__host_warn_late(weft_host_t *host, int peer, double waited)
{
    const weft_waiting_t waiting = waiting_for(host, peer);
    weft_seen_t seen[WEFT_MAX_RANKS];
    if (!lower_rank_waits(host)) {
        see_all(host, seen);
        weft__watch_warn(&waiting, seen, waited, "");
    }
}
