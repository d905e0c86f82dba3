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
/* A call that the rank which served the store had made before it left ends within this time. */
#define SERVER_LAG_NS 3000000000ull
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

static void rank_name(int rank, char name[32])
{
    snprintf(name, 32, "at/%d", rank);
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

/* What lies under that name, if it is as large as that; what is lost with the store is not there.
 * */
static bool fetch(weft_nccl_seat_t *seat, const char *name, void *value, size_t bytes)
{
    char key[128];
    size_t got = bytes;
    bool found = false;
    if (!seat->store) {
        return false;
    }
    weft__nccl_key(seat, name, key, sizeof(key));
    if (weft__store_look(seat->store, key, value, &got, &found) != WEFT_OK) {
        lose_store(seat);
        return false;
    }
    return found && got == bytes;
}

static void take(weft_nccl_verdict_t *out, const weft_fault_t *fault)
{
    out->status = fault->status;
    memcpy(out->text, fault->text, sizeof(out->text));
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

bool weft__nccl_look(weft_nccl_seat_t *seat, const weft_waiting_t *waiting,
                     weft_nccl_verdict_t *verdict_p)
{
    weft_nccl_death_t death;
    if (fetch(seat, "broken", verdict_p, sizeof(*verdict_p))) {
        verdict_p->text[sizeof(verdict_p->text) - 1] = '\0';
        return true;
    }
    if (!fetch(seat, "died", &death, sizeof(death))) {
        return false;
    }
    death.host[sizeof(death.host) - 1] = '\0';
    const weft_seen_t seen = {.rank = death.rank,
                              .state = WEFT_SEEN_ENDED,
                              .owes = WEFT_OWES_ALL, /* nobody may die before it has left */
                              .pid = death.pid,
                              .host = death.host};
    weft_waiting_t in = *waiting;
    weft_nccl_verdict_t mine = {0};
    weft_fault_t fault;
    in.rank = seat->rank;
    weft__watch(&in, &seen, 1, &fault);
    take(&mine, &fault);
    weft__nccl_offer(seat, &mine, verdict_p);
    return true;
}

/* Say where this rank is, if that has changed and enough time has passed. */
static void post(weft_nccl_seat_t *seat, bool left)
{
    char name[32], key[128];
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
    rank_name(seat->rank, name);
    weft__nccl_key(seat, name, key, sizeof(key));
    if (weft__store_set(seat->store, key, &position, sizeof(position)) != WEFT_OK) {
        lose_store(seat);
    }
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

/* What this rank is in; NULL: in no call. */
static weft_waiting_t waiting_in(const weft_nccl_seat_t *seat, const weft_nccl_sight_t *sight)
{
    if (!sight) {
        return (weft_waiting_t){.rank = seat->rank, .peer = -1, .doing = "in no call"};
    }
    return (weft_waiting_t){.rank = seat->rank,
                            .peer = weft__is_message(sight->call.coll) ? sight->call.root : -1,
                            .timeout_ms = seat->timeout_ms,
                            .waited_ns = weft__now_ns() - sight->since,
                            .lag_ns = SERVER_LAG_NS,
                            .compare = true,
                            .first = sight->first,
                            .last = sight->last,
                            .sig = weft__sig_pack(&sight->call, WEFT_ALGO_AUTO),
                            .count = sight->call.count};
}

/* Where all ranks say that they are. */
static int see_all(weft_nccl_seat_t *seat, weft_seen_t *seen)
{
    int n = 0;
    for (int p = 0; p < seat->size && seat->store; p++) {
        position_t at = {0};
        char name[32];
        rank_name(p, name);
        bool known = p == seat->rank ||
                     (fetch(seat, name, &at, sizeof(at)) && (at.calls > 0 || at.left));
        seen[n++] = (weft_seen_t){.rank = p,
                                  .state = !known    ? WEFT_SEEN_UNKNOWN
                                           : at.left ? WEFT_SEEN_LEFT
                                                     : WEFT_SEEN_JOINED,
                                  .calls = at.calls,
                                  .sig = at.sig,
                                  .count = at.count};
    }
    return seat->store ? n : 0; /* half of them would look like all */
}

/* The rank whose process served the store, which is lost with it. It may have made the call we are
 * in before. */
static int see_server(const weft_nccl_seat_t *seat, const weft_waiting_t *waiting, bool failed,
                      weft_seen_t *seen)
{
    uint64_t gone_ns = weft__now_ns() - seat->lost_ns;
    if (seat->lost_ns == 0 || seat->server < 0 || seat->server == seat->rank ||
        (!failed && weft__is_message((weft_coll_t)(waiting->sig & 0xff)))) {
        return 0;
    }
    *seen = (weft_seen_t){.rank = seat->server,
                          .state = WEFT_SEEN_ENDED,
                          .owes = failed ? WEFT_OWES_ALL : WEFT_OWES_REST,
                          .calls = waiting->last,
                          .sig = waiting->sig,
                          .count = waiting->count,
                          .served_store = true,
                          .gone_ns = gone_ns < waiting->waited_ns ? gone_ns : waiting->waited_ns};
    return 1;
}

/* Have ranks left since this was last asked in this call? */
static bool some_have_left(weft_nccl_seat_t *seat, const weft_waiting_t *waiting)
{
    char key[128];
    int64_t left = 0;
    if (!seat->store) {
        return false;
    }
    weft__nccl_key(seat, "left", key, sizeof(key));
    if (weft__store_add(seat->store, key, 0, &left) != WEFT_OK) {
        lose_store(seat);
        return false;
    }
    bool news = left != 0 && (left != seat->left || waiting->last != seat->left_call);
    seat->left = left;
    seat->left_call = waiting->last;
    return news;
}

/* Report what is known of all ranks, as far as they say where they are: when time is up, or there
 * is news. */
static bool judge(weft_nccl_seat_t *seat, const weft_waiting_t *waiting, weft_nccl_verdict_t *out)
{
    bool up = seat->timeout_ms > 0 && waiting->waited_ns / 1000000u >= (uint64_t)seat->timeout_ms;
    weft_seen_t server, *seen = &server;
    weft_fault_t fault;
    int n = 0;
    if (some_have_left(seat, waiting) || (up && seat->store)) {
        weft_seen_t *all = calloc((size_t)seat->size, sizeof(*seen));
        n = all ? see_all(seat, all) : 0;
        seen = all ? all : seen;
    }
    if (!seat->store) {
        n = see_server(seat, waiting, false, seen);
    }
    bool found = weft__watch(waiting, seen, n, &fault);
    if (found) {
        take(out, &fault);
    }
    if (seen != &server) {
        free(seen);
    }
    return found;
}

/* NCCL says that a peer is gone, but not which. The store knows, now or a little later, by the will of the
 * dead; or it was the dead that served it. True: all can read it there. If neither is so in time, NCCL's words
 * remain. */
static bool name_dead(weft_nccl_seat_t *seat, weft_nccl_verdict_t *found)
{
    uint64_t end = weft__now_ns() + NAME_MS * 1000000ull;
    weft_nccl_verdict_t verdict;
    weft_nccl_sight_t sight;
    weft_seen_t server;
    weft_fault_t fault;
    weft_waiting_t waiting = {.rank = seat->rank, .peer = -1, .in = "a call of NCCL's"};
    if (weft__nccl_oldest(seat, &sight)) {
        waiting = waiting_in(seat, &sight);
    }
    for (; seat->store && weft__now_ns() < end;
         nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL)) {
        if (weft__nccl_look(seat, &waiting, &verdict)) {
            *found = verdict;
            return true;
        }
    }
    if (see_server(seat, &waiting, true, &server) > 0 &&
        weft__watch(&waiting, &server, 1, &fault)) {
        take(found, &fault);
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
    const weft_waiting_t waiting = waiting_in(seat, *busy_p ? &sight : NULL);
    if (weft__nccl_look(seat, &waiting, out)) {
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
    return *busy_p && judge(seat, &waiting, out);
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
