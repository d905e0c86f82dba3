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
    for (int i = 0; i < 5000; i++) {
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
        const weft_seen_t seen = {.rank = -1,
                                  .name = "the rank that broke the communicator",
                                  .state = WEFT_SEEN_ENDED,
                                  .owes = WEFT_OWES_ALL};
        const weft_waiting_t waiting = {.rank = host->rank, .doing = "waiting for the reason"};
        weft_fault_t fault;
        weft__watch(&waiting, &seen, 1, &fault);
        return weft__fail(WEFT_ERR_BROKEN, "%s", fault.text);
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

weft_status_t weft__host_break_with(weft_host_t *host, const weft_fault_t *fault)
{
    weft__segment_break(host->segment, fault->status, fault->culprit, fault->text);
    return weft__host_broken(host);
}

/* ---- reports for the watch (comm/watch.h) --------------------------------------------------- */

weft_state_t weft__host_state(const weft_host_t *host, int rank)
{
    const weft_peer_t *peer = &host->peers[rank];
    /* Partner: the release store in weft__host_leave of that rank. */
    if (atomic_load_explicit(&peer->block->state, memory_order_acquire) == WEFT_RANK_LEFT) {
        return WEFT_SEEN_LEFT;
    }
    return rank != host->rank && weft__proc_ended(peer->pidfd) ? WEFT_SEEN_ENDED : WEFT_SEEN_JOINED;
}

/* What this rank is in. */
static weft_waiting_t waiting_for(const weft_host_t *host, int peer, uint64_t waited_ns)
{
    const weft_call_t *call = host->current;
    bool message = call && weft__is_message(call->coll);
    return (weft_waiting_t){.rank = host->rank,
                            .peer = peer,
                            .timeout_ms = host->comm->timeout_ms,
                            .waited_ns = waited_ns,
                            .joining = !call,
                            .first = message ? 0 : host->calls,
                            .last = message ? 0 : host->calls,
                            .sig = call ? weft__sig_pack(call, WEFT_ALGO_AUTO) : 0,
                            .count = call ? call->count : 0};
}

/* The call that a rank made last: the one that goes in chunks, or the newest in its slots. */
static void see_call(weft_rank_block_t *block, weft_seen_t *seen)
{
    if (seen->calls != 0 &&
        atomic_load_explicit(&block->whole_call, memory_order_relaxed) == seen->calls) {
        seen->sig = atomic_load_explicit(&block->whole_sig, memory_order_relaxed);
        seen->count = atomic_load_explicit(&block->whole_count, memory_order_relaxed);
        return;
    }
    weft_slot_t *newest = &block->slot[0];
    for (int i = 1; i < WEFT_SLOTS; i++) {
        if (atomic_load_explicit(&block->slot[i].seq, memory_order_acquire) >
            atomic_load_explicit(&newest->seq, memory_order_acquire)) {
            newest = &block->slot[i];
        }
    }
    seen->sig = atomic_load_explicit(&newest->sig, memory_order_relaxed);
    seen->count = atomic_load_explicit(&newest->count, memory_order_relaxed);
}

/* Has rank `p` done what this one waits for: of `peer` the word, of all to join as well, of all to
 * announce the call? Partners: what the backend releases with `word`, set_state, and post. */
static bool is_done(const weft_host_t *host, const weft_host_wait_t *wait, int p)
{
    if (p == wait->peer) {
        return atomic_load_explicit(wait->word, memory_order_acquire) >= wait->target;
    }
    if (!host->current) {
        return atomic_load_explicit(&host->peers[p].block->state, memory_order_acquire) >=
               atomic_load_explicit(&host->me->state, memory_order_relaxed);
    }
    return atomic_load_explicit(&weft__host_slot(host, p)->seq, memory_order_acquire) > host->seq;
}

/* A message concerns the one we wait for. That one may just be late in a collective; a call that
 * another one will never make is lost too. `calls`: say in which they are. */
static int report(const weft_host_t *host, const weft_host_wait_t *wait, bool calls,
                  weft_seen_t *seen)
{
    bool message = host->current && weft__is_message(host->current->coll);
    int from = message ? wait->peer : 0, to = message ? wait->peer + 1 : host->size;
    for (int p = from; p < to; p++) {
        weft_seen_t *at = &seen[p - from];
        weft_rank_block_t *block = host->peers[p].block;
        *at = (weft_seen_t){.rank = p, .state = weft__host_state(host, p)};
        bool done = is_done(host, wait, p);
        /* Where all wait for all, one that ended has not ended the call: it was killed in it. */
        at->owes = !done                               ? WEFT_OWES_ALL
                   : host->together && p != wait->peer ? WEFT_OWES_REST
                                                       : WEFT_OWES_NOTHING;
        at->pid = at->state == WEFT_SEEN_LEFT ? 0 : host->peers[p].pid;
        at->calls = atomic_load_explicit(&block->call, memory_order_relaxed);
        if (!host->current && !done && at->state == WEFT_SEEN_JOINED) {
            at->state = WEFT_SEEN_UNKNOWN; /* it has not come so far */
        }
        if (calls) {
            see_call(block, at);
        }
    }
    return to - from;
}

/* What `peer` has called or sends, and what this rank has, differ. */
static weft_status_t break_different(weft_host_t *host, const weft_waiting_t *waiting, uint64_t sig,
                                     uint64_t count)
{
    const weft_seen_t seen = {.rank = waiting->peer,
                              .state = WEFT_SEEN_JOINED,
                              .calls = waiting->last,
                              .sig = sig,
                              .count = count,
                              .differs = true};
    weft_fault_t fault = {.status = WEFT_ERR_MISMATCH, .culprit = waiting->peer};
    weft__watch(waiting, &seen, 1, &fault);
    return weft__host_break_with(host, &fault);
}

weft_status_t weft__host_mismatch(weft_host_t *host, int peer, uint64_t number)
{
    weft_slot_t *slot = weft__host_slot_of(host, peer, number);
    weft_slot_t *mine = weft__host_slot_of(host, host->rank, number);
    weft_waiting_t waiting = waiting_for(host, peer, 0);
    waiting.first = waiting.last = host->calls - (host->seq - number);
    waiting.sig = atomic_load_explicit(&mine->sig, memory_order_relaxed);
    waiting.count = atomic_load_explicit(&mine->count, memory_order_relaxed);
    return break_different(host, &waiting, atomic_load_explicit(&slot->sig, memory_order_relaxed),
                           atomic_load_explicit(&slot->count, memory_order_relaxed));
}

weft_status_t weft__host_differs(weft_host_t *host, int peer, uint64_t sig, uint64_t count,
                                 uint64_t own_count)
{
    weft_waiting_t waiting = waiting_for(host, peer, 0);
    waiting.count = own_count;
    return break_different(host, &waiting, sig, count);
}

weft_status_t weft__host_look(weft_host_t *host, const weft_host_wait_t *wait, uint64_t waited_ns)
{
    const weft_waiting_t waiting = waiting_for(host, wait->peer, waited_ns);
    weft_fault_t fault;
    if (host->parent &&
        atomic_load_explicit(&host->parent->segment->head->broken, memory_order_acquire) == 2) {
        const weft_segment_head_t *head = host->parent->segment->head;
        return weft__host_break(host, (weft_status_t)head->status, head->culprit, "%s", head->text);
    }
    bool calls = waiting.timeout_ms > 0 && waited_ns / 1000000u >= (uint64_t)waiting.timeout_ms;
    int n = report(host, wait, calls, host->seen);
    if (!weft__watch(&waiting, host->seen, n, &fault)) {
        return WEFT_OK;
    }
    /* What is waited for may have come since it was last looked at; then those who are gone have
     * ended the call, as this rank can. Partner: what the backend releases with `word`. */
    return atomic_load_explicit(wait->word, memory_order_acquire) >= wait->target
               ? WEFT_OK
               : weft__host_break_with(host, &fault);
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

void weft__host_warn(weft_host_t *host, const weft_host_wait_t *wait, uint64_t waited_ns)
{
    const weft_waiting_t waiting = waiting_for(host, wait->peer, waited_ns);
    if (!lower_rank_waits(host)) {
        weft__watch_warn(&waiting, host->seen, report(host, wait, true, host->seen));
    }
}
