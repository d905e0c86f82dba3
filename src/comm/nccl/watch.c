/* The watcher of a rank: finds out that something is wrong, and settles with the others what. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/nccl/seat.h"
#include "comm/watch.h"

/* How often to look, while this rank is in a call, and while it is not; more often where the timeout
 * is short, so that all ranks have said where they are before it passes. */
#define BUSY_MS 100
#define IDLE_MS 1000
#define SERVER_GRACE_MS 3000
/* How long the store may take to say who died, once NCCL has said that somebody did. */
#define NAME_MS 2000

static int period(const weft_nccl_seat_t *seat, int most_ms)
{
    int quarter = seat->timeout_ms / 4;
    return quarter > 0 && quarter < most_ms ? quarter : most_ms;
}

/* Where a rank says that it is. */
typedef struct position {
    uint64_t calls;      /* the collective it is in, or was in last */
    uint64_t sig, count; /* of that one */
    int32_t left;        /* it destroyed its handle after that */
} position_t;

void weft__nccl_key(const weft_nccl_seat_t *seat, const char *name, char *key, size_t room)
{
    snprintf(key, room, "%s/%s", seat->road.key, name);
}

static void rank_key(const weft_nccl_seat_t *seat, int rank, char *key, size_t room)
{
    snprintf(key, room, "%s/at/%d", seat->road.key, rank);
}

/* ---- the store -------------------------------------------------------------------------- */

/* Without a store ranks do not hear of each other any more; NCCL's own errors and timeouts remain. */
static void lose_store(weft_nccl_seat_t *seat)
{
    weft__info("rank %d goes on without the store: %s", seat->rank, weft_last_error());
    weft__store_close(seat->store);
    seat->store = NULL;
    seat->lost_ns = weft__now_ns();
}

bool weft__nccl_look(weft_nccl_seat_t *seat, weft_nccl_verdict_t *verdict_p)
{
    char key[128];
    size_t bytes = sizeof(*verdict_p);
    bool found = false;
    if (!seat->store) {
        return false;
    }
    weft__nccl_key(seat, "broken", key, sizeof(key));
    if (weft__store_look(seat->store, key, verdict_p, &bytes, &found) != WEFT_OK) {
        lose_store(seat);
        return false;
    }
    verdict_p->text[sizeof(verdict_p->text) - 1] = '\0';
    return found && bytes == sizeof(*verdict_p);
}

void weft__nccl_offer(weft_nccl_seat_t *seat, const weft_nccl_verdict_t *mine,
                      weft_nccl_verdict_t *verdict_p)
{
    char key[128];
    weft_nccl_verdict_t theirs = {0};
    size_t bytes = sizeof(theirs);
    bool taken = true;
    weft__nccl_key(seat, "broken", key, sizeof(key));
    if (seat->store && weft__store_offer(seat->store, key, mine, sizeof(*mine), &taken, &theirs,
                                         &bytes) != WEFT_OK) {
        lose_store(seat);
        taken = true;
    }
    theirs.text[sizeof(theirs.text) - 1] = '\0';
    *verdict_p = taken || bytes != sizeof(theirs) ? *mine : theirs;
}

/* Say where this rank is, if that has changed and enough time has passed. */
static void post(weft_nccl_seat_t *seat, bool left)
{
    char key[128];
    position_t position = {.left = left};
    uint64_t now = weft__now_ns();
    uint64_t due = seat->posted_ns + (uint64_t)period(seat, IDLE_MS) * 1000000u;
    pthread_mutex_lock(&seat->lock);
    position.calls = seat->calls;
    position.sig = weft__sig_pack(&seat->last, WEFT_ALGO_AUTO);
    position.count = seat->last.count;
    pthread_mutex_unlock(&seat->lock);
    if (!seat->store || (!left && (position.calls == seat->posted || now < due))) {
        return;
    }
    seat->posted = position.calls;
    seat->posted_ns = now;
    rank_key(seat, seat->rank, key, sizeof(key));
    if (weft__store_set(seat->store, key, &position, sizeof(position)) != WEFT_OK) {
        lose_store(seat);
    }
}

/* Where `rank` is; false if it has not said. */
static bool find(weft_nccl_seat_t *seat, int rank, position_t *position_p)
{
    char key[128];
    size_t bytes = sizeof(*position_p);
    bool found = false;
    if (!seat->store) {
        return false;
    }
    rank_key(seat, rank, key, sizeof(key));
    if (weft__store_look(seat->store, key, position_p, &bytes, &found) != WEFT_OK) {
        lose_store(seat);
        return false;
    }
    return found && bytes == sizeof(*position_p);
}

void weft__nccl_say_left(weft_nccl_seat_t *seat)
{
    char key[128];
    int64_t left;
    if (!seat->store) {
        return;
    }
    post(seat, true);
    weft__nccl_key(seat, "left", key, sizeof(key));
    if (seat->store && (weft__store_add(seat->store, key, 1, &left) != WEFT_OK ||
                        weft__store_will(seat->store, key, NULL, 0) != WEFT_OK)) {
        lose_store(seat);
    }
}

/* ---- what is wrong ---------------------------------------------------------------------- */

/* What this rank is in. */
static weft_waiting_t waiting_in(const weft_nccl_seat_t *seat, const weft_nccl_sight_t *sight)
{
    bool message = weft__is_message(sight->call.coll);
    return (weft_waiting_t){.rank = seat->rank,
                            .size = seat->size,
                            .peer = message ? sight->call.root : -1,
                            .timeout_ms = seat->timeout_ms,
                            .first = sight->first,
                            .last = sight->last,
                            .sig = weft__sig_pack(&sight->call, WEFT_ALGO_AUTO),
                            .count = sight->call.count};
}

static void take(weft_nccl_verdict_t *out, const weft_fault_t *fault)
{
    out->status = fault->status;
    memcpy(out->text, fault->text, sizeof(out->text));
}

/* Where all ranks say that they are. */
static void see_all(weft_nccl_seat_t *seat, uint64_t own_calls, weft_seen_t *seen)
{
    for (int p = 0; p < seat->size; p++) {
        position_t at = {.calls = own_calls};
        bool known = p == seat->rank || find(seat, p, &at);
        seen[p] = (weft_seen_t){
            .calls = at.calls, .sig = at.sig, .count = at.count, .silent = !known || at.calls == 0};
    }
}

/* The timeout passed: name who is missing or in another call, as far as they say where they are. */
static void late(weft_nccl_seat_t *seat, const weft_nccl_sight_t *sight, weft_nccl_verdict_t *out)
{
    weft_waiting_t waiting = waiting_in(seat, sight);
    weft_seen_t *seen = seat->store ? calloc((size_t)seat->size, sizeof(*seen)) : NULL;
    weft_fault_t fault;
    int other = -1;
    if (seen && !weft__is_message(sight->call.coll)) {
        see_all(seat, sight->first, seen);
        other = weft__judge_other(&waiting, seen);
    }
    if (other >= 0) {
        waiting.peer = other;
        weft__watch_differs(&waiting, &seen[other], &fault);
    } else {
        weft__watch_late(&waiting, seen, "", &fault);
    }
    free(seen);
    take(out, &fault);
}

/* Some ranks have left: one that did before it made the call we are in never will. */
static bool gone(weft_nccl_seat_t *seat, const weft_nccl_sight_t *sight, weft_nccl_verdict_t *out)
{
    char key[128];
    int64_t left = 0;
    if (!seat->store || weft__is_message(sight->call.coll)) {
        return false;
    }
    weft__nccl_key(seat, "left", key, sizeof(key));
    if (weft__store_add(seat->store, key, 0, &left) != WEFT_OK) {
        lose_store(seat);
        return false;
    }
    if (left == 0 || (left == seat->left && sight->last == seat->left_call)) {
        return false; /* as when last looked */
    }
    seat->left = left;
    seat->left_call = sight->last;
    for (int p = 0; p < seat->size; p++) {
        position_t at;
        if (p != seat->rank && find(seat, p, &at) && at.left && at.calls < sight->last) {
            const weft_waiting_t waiting = waiting_in(seat, sight);
            weft_fault_t fault;
            weft__watch_left(&waiting, p, &(weft_seen_t){0}, &fault);
            take(out, &fault);
            return true;
        }
    }
    return false;
}

/* The rank that served the store is gone; sight: what this one is in, NULL: nothing that is known. */
static void say_server_gone(const weft_nccl_seat_t *seat, const weft_nccl_sight_t *sight,
                            weft_nccl_verdict_t *out)
{
    const weft_seen_t seen = {.who = "which served the store"};
    weft_waiting_t waiting = {.rank = seat->rank, .in = "a call of NCCL's"};
    weft_fault_t fault;
    waiting = sight ? waiting_in(seat, sight) : waiting;
    weft__watch_dead(&waiting, seat->server, &seen, &fault);
    take(out, &fault);
}

/* The store was lost with the rank that served it. If that had made the call we are in before it left, the
 * call ends within a short time. */
static bool server_gone(weft_nccl_seat_t *seat, const weft_nccl_sight_t *sight,
                        weft_nccl_verdict_t *out)
{
    uint64_t since = sight->since > seat->lost_ns ? sight->since : seat->lost_ns;
    if (seat->lost_ns == 0 || seat->server < 0 || weft__is_message(sight->call.coll) ||
        weft__now_ns() - since < SERVER_GRACE_MS * 1000000ull) {
        return false;
    }
    say_server_gone(seat, sight, out);
    return true;
}

/* NCCL says that a peer is gone, but not which. The store knows, now or a little later, by the will of the
 * dead; or it was the dead that served it. True: all can read it there. If neither is so in time, NCCL's words
 * remain. */
static bool name_dead(weft_nccl_seat_t *seat, weft_nccl_verdict_t *found)
{
    uint64_t end = weft__now_ns() + NAME_MS * 1000000ull;
    weft_nccl_verdict_t verdict;
    weft_nccl_sight_t sight;
    for (; seat->store && weft__now_ns() < end;
         nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL)) {
        if (weft__nccl_look(seat, &verdict)) {
            *found = verdict;
            return true;
        }
    }
    if (!seat->store && seat->server >= 0 && seat->server != seat->rank) {
        say_server_gone(seat, weft__nccl_oldest(seat, &sight) ? &sight : NULL, found);
    }
    return false;
}

/* Look everywhere. *offer_p: the others are yet to be told. */
static bool find_fault(weft_nccl_seat_t *seat, weft_nccl_verdict_t *out, bool *busy_p,
                       bool *offer_p)
{
    weft_nccl_sight_t sight;
    const char *text;
    *offer_p = false;
    *busy_p = weft__nccl_oldest(seat, &sight);
    if (weft__nccl_look(seat, out)) {
        return true;
    }
    *offer_p = true;
    out->status = weft__nccl_error(seat->engine, &text);
    if (out->status != WEFT_OK) {
        snprintf(out->text, sizeof(out->text), "%s", text);
        *offer_p = out->status != WEFT_ERR_RANK_DEAD || !name_dead(seat, out);
        return true;
    }
    post(seat, false);
    if (!*busy_p) {
        return false;
    }
    if (seat->timeout_ms > 0 &&
        weft__now_ns() - sight.since > (uint64_t)seat->timeout_ms * 1000000u) {
        late(seat, &sight, out);
        return true;
    }
    return gone(seat, &sight, out) || server_gone(seat, &sight, out);
}

/* ---- the watcher ------------------------------------------------------------------------ */

/* The error is known to all: end what runs here. */
static void settle(weft_nccl_seat_t *seat, const weft_nccl_verdict_t *verdict)
{
    pthread_mutex_lock(&seat->lock);
    seat->verdict = *verdict;
    pthread_mutex_unlock(&seat->lock);
    atomic_store_explicit(&seat->broken, true, memory_order_release);
    weft__nccl_abort(seat->engine);
    pthread_mutex_lock(&seat->lock);
    seat->aborted = true;
    pthread_cond_broadcast(&seat->settled);
    pthread_mutex_unlock(&seat->lock);
}

static void wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end)
{
    const struct timespec until = {.tv_sec = (time_t)(end / 1000000000u),
                                   .tv_nsec = (long)(end % 1000000000u)};
    pthread_cond_timedwait(cond, lock, &until);
}

/* Sleep until it is time to look, or somebody has something. False: stop. */
static bool nap(weft_nccl_seat_t *seat, int ms, weft_nccl_verdict_t *claim)
{
    uint64_t end = weft__now_ns() + (uint64_t)ms * 1000000u;
    pthread_mutex_lock(&seat->lock);
    while (!seat->stop && seat->aborted) { /* there is nothing left to find */
        pthread_cond_wait(&seat->wake, &seat->lock);
    }
    while (!seat->stop && seat->claim.status == WEFT_OK && weft__now_ns() < end) {
        wait_until(&seat->wake, &seat->lock, end);
    }
    bool on = !seat->stop;
    *claim = seat->claim;
    pthread_mutex_unlock(&seat->lock);
    return on;
}

static void *watch(void *arg)
{
    weft_nccl_seat_t *seat = arg;
    weft_nccl_verdict_t found, verdict;
    bool busy = false, offer;
    seat->place.ops->relax();
    while (nap(seat, period(seat, busy ? BUSY_MS : IDLE_MS), &found)) {
        if (found.status == WEFT_ERR_RANK_DEAD && name_dead(seat, &found)) {
            verdict = found;
        } else if (found.status != WEFT_OK) {
            weft__nccl_offer(seat, &found, &verdict);
        } else if (!find_fault(seat, &found, &busy, &offer)) {
            continue;
        } else if (offer) {
            weft__nccl_offer(seat, &found, &verdict);
        } else {
            verdict = found;
        }
        settle(seat, &verdict);
    }
    return NULL;
}

weft_status_t weft__nccl_watch_start(weft_nccl_seat_t *seat)
{
    int error = pthread_create(&seat->watcher, NULL, watch, seat);
    if (error != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "starting the watcher of a communicator failed: %s",
                          strerror(error));
    }
    seat->watching = true;
    return WEFT_OK;
}

void weft__nccl_watch_stop(weft_nccl_seat_t *seat)
{
    if (!seat->watching) {
        return;
    }
    pthread_mutex_lock(&seat->lock);
    seat->stop = true;
    pthread_cond_signal(&seat->wake);
    pthread_mutex_unlock(&seat->lock);
    pthread_join(seat->watcher, NULL);
    seat->watching = false;
}

/* ---- those who make calls --------------------------------------------------------------- */

static weft_status_t tell(weft_nccl_seat_t *seat)
{
    atomic_store_explicit(&seat->told, true, memory_order_relaxed);
    return weft__fail((weft_status_t)seat->verdict.status, "%s", seat->verdict.text);
}

weft_status_t weft__nccl_claim(weft_nccl_seat_t *seat, weft_status_t status)
{
    pthread_mutex_lock(&seat->lock);
    if (status != WEFT_OK && seat->claim.status == WEFT_OK && !seat->aborted) {
        seat->claim.status = status;
        snprintf(seat->claim.text, sizeof(seat->claim.text), "%s", weft_last_error());
        pthread_cond_signal(&seat->wake);
    }
    while (!seat->aborted) {
        pthread_cond_wait(&seat->settled, &seat->lock);
    }
    pthread_mutex_unlock(&seat->lock);
    return tell(seat);
}

weft_status_t weft__nccl_refuse(weft_nccl_seat_t *seat)
{
    bool told = atomic_load_explicit(&seat->told, memory_order_relaxed);
    weft_status_t status = tell(seat);
    if (!told) {
        return status; /* it broke between two calls of this rank */
    }
    return weft__fail(WEFT_ERR_BROKEN, "the communicator is broken by an earlier error: %s",
                      seat->verdict.text);
}
