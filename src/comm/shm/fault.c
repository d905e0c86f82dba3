/* Errors that concern all ranks: breaking a communicator, and naming who is to blame. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/shm/procs.h"
#include "comm/shm/shm.h"
#include "comm/shm/wait.h"

static weft_algo_t sig_algo(uint64_t sig)
{
    return (weft_algo_t)(sig >> 24 & 0xff);
}

void weft__sig_describe(uint64_t sig, uint64_t count, char *text, size_t room)
{
    weft_call_t call = {.coll = (weft_coll_t)(sig & 0xff),
                        .type = (weft_dtype_t)(sig >> 8 & 0xff),
                        .op = (weft_op_t)(sig >> 16 & 0xff),
                        .root = (int)(sig >> 32 & 0xffffff),
                        .fused = (int)(sig >> 56),
                        .count = count};
    if ((unsigned)call.coll >= WEFT_COLL_COUNT) {
        snprintf(text, room, "an unknown call");
        return;
    }
    weft__call_describe(&call, text, room);
}

const char *weft__sig_besides(const char *ours, const char *theirs)
{
    return strcmp(ours, theirs) == 0 ? ", with other counts in it" : "";
}

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

weft_status_t weft__shm_broken(weft_shm_t *shm)
{
    weft_segment_head_t *head = shm->segment->head;
    atomic_store_explicit(&shm->told, true, memory_order_relaxed);
    if (!error_written(head)) {
        return weft__fail(WEFT_ERR_BROKEN,
                          "the communicator is broken; the rank that broke it died "
                          "before it said why");
    }
    return weft__fail((weft_status_t)head->status, "%s", head->text);
}

weft_status_t weft__shm_refuse(weft_shm_t *shm)
{
    bool told = atomic_load_explicit(&shm->told, memory_order_relaxed);
    weft_status_t status = weft__shm_broken(shm);
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

weft_status_t weft__shm_break(weft_shm_t *shm, weft_status_t status, int culprit,
                              const char *format, ...)
{
    char text[WEFT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    weft__segment_break(shm->segment, status, culprit, text);
    return weft__shm_broken(shm);
}

/* The call that rank `peer` made last; false if it made none. */
static bool last_call(const weft_shm_t *shm, int peer, uint64_t *number_p, char *text, size_t room)
{
    weft_rank_block_t *block = shm->peers[peer].block;
    weft_slot_t *slots = block->slot;
    *number_p = atomic_load_explicit(&block->call, memory_order_relaxed);
    if (*number_p == 0) {
        return false;
    }
    if (atomic_load_explicit(&block->whole_call, memory_order_relaxed) == *number_p) {
        weft__sig_describe(atomic_load_explicit(&block->whole_sig, memory_order_relaxed),
                           atomic_load_explicit(&block->whole_count, memory_order_relaxed), text,
                           room);
        return true;
    }
    weft_slot_t *newest = &slots[0];
    for (int i = 1; i < WEFT_SLOTS; i++) {
        if (atomic_load_explicit(&slots[i].seq, memory_order_acquire) >
            atomic_load_explicit(&newest->seq, memory_order_acquire)) {
            newest = &slots[i];
        }
    }
    weft__sig_describe(atomic_load_explicit(&newest->sig, memory_order_relaxed),
                       atomic_load_explicit(&newest->count, memory_order_relaxed), text, room);
    return true;
}

/* "allreduce of 8 f32, sum (call 17)": what this rank is in. */
static void describe_current(const weft_shm_t *shm, char *text, size_t room)
{
    char call[160];
    if (!shm->current) {
        snprintf(text, room, "joining");
        return;
    }
    weft__call_describe(shm->current, call, sizeof(call));
    if (weft__is_message(shm->current->coll)) {
        snprintf(text, room, "%s", call);
    } else {
        snprintf(text, room, "call %llu, %s", (unsigned long long)shm->calls, call);
    }
}

weft_status_t weft__shm_mismatch(weft_shm_t *shm, int peer, uint64_t number)
{
    weft_slot_t *slot = weft__shm_slot_of(shm, peer, number);
    weft_slot_t *mine = weft__shm_slot_of(shm, shm->rank, number);
    uint64_t sig = atomic_load_explicit(&slot->sig, memory_order_relaxed);
    uint64_t own = atomic_load_explicit(&mine->sig, memory_order_relaxed);
    uint64_t count = atomic_load_explicit(&slot->count, memory_order_relaxed);
    uint64_t own_count = atomic_load_explicit(&mine->count, memory_order_relaxed);
    char theirs[160], ours[160];
    weft__sig_describe(sig, count, theirs, sizeof(theirs));
    weft__sig_describe(own, own_count, ours, sizeof(ours));
    unsigned long long which = shm->calls - (shm->seq - number);
    if (count == own_count && ((sig ^ own) & ~(0xffull << 24)) == 0) {
        return weft__shm_break(shm, WEFT_ERR_MISMATCH, peer,
                               "ranks chose different algorithms for call %llu, %s: rank %d %s, "
                               "rank %d %s; give all ranks the same WEFT_* settings",
                               which, ours, shm->rank, weft__algo_name(sig_algo(own)), peer,
                               weft__algo_name(sig_algo(sig)));
    }
    return weft__shm_break(shm, WEFT_ERR_MISMATCH, peer,
                           "ranks made different calls: call %llu is %s on rank %d, but %s on rank "
                           "%d%s; all ranks must make the same calls in the same order",
                           which, ours, shm->rank, theirs, peer, weft__sig_besides(ours, theirs));
}

/* It is gone for good, and has not done what is waited for: say so. */
static weft_status_t break_gone(weft_shm_t *shm, int peer, bool left)
{
    char current[200];
    describe_current(shm, current, sizeof(current));
    if (left) {
        return weft__shm_break(shm, WEFT_ERR_RANK_LEFT, peer,
                               "rank %d destroyed its handle while rank %d waits for it in %s",
                               peer, shm->rank, current);
    }
    return weft__shm_break(shm, WEFT_ERR_RANK_DEAD, peer,
                           "rank %d (process %d) died; rank %d noticed in %s", peer,
                           shm->peers[peer].pid, shm->rank, current);
}

static weft_status_t check_one(weft_shm_t *shm, int peer, const _Atomic uint64_t *word,
                               uint64_t target)
{
    weft_peer_t *p = &shm->peers[peer];
    /* Ask first, then look again: what it did before it went away still counts. */
    bool left = atomic_load_explicit(&p->block->state, memory_order_acquire) == WEFT_RANK_LEFT;
    bool ended = weft__proc_ended(p->pidfd);
    if ((!left && !ended) || atomic_load_explicit(word, memory_order_acquire) >= target) {
        return WEFT_OK;
    }
    return break_gone(shm, peer, left);
}

weft_status_t weft__shm_check_peer(weft_shm_t *shm, int peer, const _Atomic uint64_t *word,
                                   uint64_t target)
{
    if (shm->parent &&
        atomic_load_explicit(&shm->parent->segment->head->broken, memory_order_acquire) == 2) {
        const weft_segment_head_t *head = shm->parent->segment->head;
        return weft__shm_break(shm, (weft_status_t)head->status, head->culprit, "%s", head->text);
    }
    weft_status_t status = check_one(shm, peer, word, target);
    bool collective = shm->current && !weft__is_message(shm->current->coll);
    /* The one we wait for may just be late; a call that another one will never make is lost too. */
    for (int p = 0; p < shm->size && collective && status == WEFT_OK; p++) {
        if (p != shm->rank && p != peer) {
            status = check_one(shm, p, &weft__shm_slot(shm, p)->seq, shm->seq + 1);
            /* Where all wait for all, one that ended has not ended the call: it was killed in it. */
            if (status == WEFT_OK && shm->together &&
                atomic_load_explicit(&shm->peers[p].block->state, memory_order_acquire) !=
                    WEFT_RANK_LEFT &&
                weft__proc_ended(shm->peers[p].pidfd)) {
                status = break_gone(shm, p, false);
            }
        }
    }
    return status;
}

#define DRAIN_NS 1000000000ull

void weft__shm_drain(weft_shm_t *shm)
{
    uint64_t end = weft__now_ns() + DRAIN_NS;
    weft__wait_fence(shm);
    for (int p = 0; p < shm->size; p++) {
        weft_peer_t *peer = &shm->peers[p];
        /* Whoever is inside looks at `broken` when it has copied its part. One that was stopped
         * there does not, and is not waited for any longer. */
        while (p != shm->rank && atomic_load_explicit(&peer->block->inside, memory_order_acquire) &&
               !weft__proc_ended(peer->pidfd) && weft__now_ns() < end) {
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        }
    }
}

/* Lists ranks as "1 2 5"; `arrived` selects those that are in the current call, or those not. */
static void list_ranks(const weft_shm_t *shm, bool arrived, char *text, size_t room)
{
    size_t used = 0;
    text[0] = '\0';
    for (int p = 0; p < shm->size && used < room; p++) {
        char call[160];
        uint64_t number = 0;
        bool any = last_call(shm, p, &number, call, sizeof(call));
        if ((number >= shm->calls) != arrived) {
            continue;
        }
        int n;
        if (arrived) {
            n = snprintf(text + used, room - used, "%s%d", used ? " " : "", p);
        } else if (any) {
            n = snprintf(text + used, room - used, "%srank %d (last seen in call %llu, %s)",
                         used ? ", " : "", p, (unsigned long long)number, call);
        } else {
            n = snprintf(text + used, room - used, "%srank %d (made no call yet)", used ? ", " : "",
                         p);
        }
        used += n > 0 ? (size_t)n : 0;
    }
}

/* "in call 7, allreduce of ...: not arrived: rank 2 (...); arrived: 0 1": what this rank waits for. */
static void describe_wait(const weft_shm_t *shm, int peer, char *text, size_t room)
{
    char current[200], missing[400], there[200];
    describe_current(shm, current, sizeof(current));
    if (weft__is_message(shm->current->coll)) {
        snprintf(text, room, "on rank %d in %s: rank %d has not made the matching call", shm->rank,
                 current, peer);
        return;
    }
    list_ranks(shm, false, missing, sizeof(missing));
    list_ranks(shm, true, there, sizeof(there));
    if (missing[0] == '\0') {
        snprintf(text, room, "in %s: all ranks arrived, but rank %d does not go on", current, peer);
    } else {
        snprintf(text, room, "in %s: not arrived: %s; arrived: %s", current, missing, there);
    }
}

weft_status_t weft__shm_late(weft_shm_t *shm, int peer)
{
    char wait[1000];
    double seconds = shm->comm->timeout_ms / 1000.0;
    if (!shm->current) {
        return weft__shm_break(shm, WEFT_ERR_TIMEOUT, peer,
                               "rank %d did not join the communicator within %.1f s", peer,
                               seconds);
    }
    describe_wait(shm, peer, wait, sizeof(wait));
    return weft__shm_break(shm, WEFT_ERR_TIMEOUT, peer, "timed out after %.1f s %s", seconds, wait);
}

/* Does a lower rank wait in the same collective? Then it is the one to say so. */
static bool lower_rank_waits(const weft_shm_t *shm)
{
    for (int p = 0; p < shm->rank && !weft__is_message(shm->current->coll); p++) {
        char call[160];
        uint64_t number = 0;
        if (last_call(shm, p, &number, call, sizeof(call)) && number >= shm->calls) {
            return true;
        }
    }
    return false;
}

void weft__shm_warn_late(weft_shm_t *shm, int peer, double waited)
{
    char wait[1000], until[80] = "for ever (WEFT_TIMEOUT is 0)";
    if (shm->comm->timeout_ms > 0) {
        snprintf(until, sizeof(until), "until %.0f s have passed (WEFT_TIMEOUT)",
                 shm->comm->timeout_ms / 1000.0);
    }
    if (!shm->current) {
        weft__warn("rank %d has waited %.0f s for rank %d to join the communicator, and waits %s",
                   shm->rank, waited, peer, until);
    } else if (!lower_rank_waits(shm)) {
        describe_wait(shm, peer, wait, sizeof(wait));
        weft__warn("%.0f s of waiting %s; waits %s", waited, wait, until);
    }
}
