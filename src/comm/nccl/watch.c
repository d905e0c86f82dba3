/* The watcher of a rank: finds out that something is wrong, and settles with the others what. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/nccl/member.h"
#include "comm/watch.h"

/* How often to look, while this rank is in a call, and while it is not; more often where the
 * timeout is short, so that all ranks have said where they are before it passes. */
#define BUSY_MS 100
#define IDLE_MS 1000
/* A call that the rank which served the store had made before it left ends within this time. */
#define SERVER_LAG_NS 3000000000ull
/* How long the store may take to say who died, once NCCL has said that somebody did. */
#define NAME_MS 2000

static int period(const weft_nccl_member_t *member, int most_ms)
{
    int quarter = member->timeout_ms / 4;
    return quarter > 0 && quarter < most_ms ? quarter : most_ms;
}

/* Where a rank says that it is. */
typedef struct position {
    uint64_t calls;      /* the collective it is in, or was in last */
    uint64_t sig, count; /* of that one */
    int32_t left;        /* it destroyed its handle after that */
} position_t;

void weft__nccl_key(const weft_nccl_member_t *member, const char *name, char *key, size_t room)
{
    snprintf(key, room, "%s/%s", member->road.key, name);
}

static void rank_name(int rank, char name[32])
{
    snprintf(name, 32, "at/%d", rank);
}

/* ---- the store -------------------------------------------------------------------------- */

/* Without a store ranks do not hear of each other any more; NCCL's own errors and timeouts
 * remain. */
static void lose_store(weft_nccl_member_t *member)
{
    weft__info("rank %d goes on without the store: %s", member->rank, weft_last_error());
    weft__store_close(member->store);
    member->store = NULL;
    member->lost_ns = weft__now_ns();
}

/* What lies under that name, if it is as large as that; what is lost with the store is not there.
 * */
static bool fetch(weft_nccl_member_t *member, const char *name, void *value, size_t bytes)
{
    char key[128];
    size_t got = bytes;
    bool found = false;
    if (!member->store) {
        return false;
    }
    weft__nccl_key(member, name, key, sizeof(key));
    if (weft__store_look(member->store, key, value, &got, &found) != WEFT_OK) {
        lose_store(member);
        return false;
    }
    return found && got == bytes;
}

static void take(weft_nccl_verdict_t *out, const weft_fault_t *fault)
{
    out->status = fault->status;
    memcpy(out->text, fault->text, sizeof(out->text));
}

void weft__nccl_offer(weft_nccl_member_t *member, const weft_nccl_verdict_t *mine,
                      weft_nccl_verdict_t *verdict_p)
{
    char key[128];
    weft_nccl_verdict_t theirs = {0};
    size_t bytes = sizeof(theirs);
    bool taken = true;
    weft__nccl_key(member, "broken", key, sizeof(key));
    if (member->store && weft__store_offer(member->store, key, mine, sizeof(*mine), &taken, &theirs,
                                           &bytes) != WEFT_OK) {
        lose_store(member);
        taken = true;
    }
    theirs.text[sizeof(theirs.text) - 1] = '\0';
    *verdict_p = taken || bytes != sizeof(theirs) ? *mine : theirs;
}

bool weft__nccl_look(weft_nccl_member_t *member, const weft_waiting_t *waiting,
                     weft_nccl_verdict_t *verdict_p)
{
    weft_nccl_death_t death;
    if (fetch(member, "broken", verdict_p, sizeof(*verdict_p))) {
        verdict_p->text[sizeof(verdict_p->text) - 1] = '\0';
        return true;
    }
    if (!fetch(member, "died", &death, sizeof(death))) {
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
    in.rank = member->rank;
    weft__watch(&in, &seen, 1, &fault);
    take(&mine, &fault);
    weft__nccl_offer(member, &mine, verdict_p);
    return true;
}

/* Say where this rank is, if that has changed and enough time has passed. */
static void post(weft_nccl_member_t *member, bool left)
{
    char name[32], key[128];
    position_t position = {.left = left};
    uint64_t now = weft__now_ns();
    uint64_t due = member->posted_ns + (uint64_t)period(member, IDLE_MS) * 1000000u;
    pthread_mutex_lock(&member->lock);
    position.calls = member->calls;
    position.sig = weft__sig_pack(&member->last, WEFT_ALGO_AUTO);
    position.count = member->last.count;
    pthread_mutex_unlock(&member->lock);
    if (!member->store || (!left && (position.calls == member->posted || now < due))) {
        return;
    }
    member->posted = position.calls;
    member->posted_ns = now;
    rank_name(member->rank, name);
    weft__nccl_key(member, name, key, sizeof(key));
    if (weft__store_set(member->store, key, &position, sizeof(position)) != WEFT_OK) {
        lose_store(member);
    }
}

void weft__nccl_say_left(weft_nccl_member_t *member)
{
    char key[128];
    int64_t left;
    if (!member->store) {
        return;
    }
    post(member, true);
    weft__nccl_key(member, "left", key, sizeof(key));
    if (member->store && (weft__store_add(member->store, key, 1, &left) != WEFT_OK ||
                          weft__store_last_will(member->store, key, NULL, 0) != WEFT_OK)) {
        lose_store(member);
    }
}

/* ---- what is wrong ---------------------------------------------------------------------- */

/* What this rank is in; NULL: in no call. */
static weft_waiting_t waiting_in(const weft_nccl_member_t *member, const weft_nccl_sight_t *sight)
{
    if (!sight) {
        return (weft_waiting_t){.rank = member->rank, .peer = -1, .doing = "in no call"};
    }
    return (weft_waiting_t){.rank = member->rank,
                            .peer = weft__is_message(sight->call.coll) ? sight->call.root : -1,
                            .timeout_ms = member->timeout_ms,
                            .waited_ns = weft__now_ns() - sight->since,
                            .lag_ns = SERVER_LAG_NS,
                            .compare = true,
                            .first = sight->first,
                            .last = sight->last,
                            .sig = weft__sig_pack(&sight->call, WEFT_ALGO_AUTO),
                            .count = sight->call.count};
}

/* Where all ranks say that they are. */
static int see_all(weft_nccl_member_t *member, weft_seen_t *seen)
{
    int n = 0;
    for (int p = 0; p < member->size && member->store; p++) {
        position_t at = {0};
        char name[32];
        rank_name(p, name);
        bool known = p == member->rank ||
                     (fetch(member, name, &at, sizeof(at)) && (at.calls > 0 || at.left));
        seen[n++] = (weft_seen_t){.rank = p,
                                  .state = !known    ? WEFT_SEEN_UNKNOWN
                                           : at.left ? WEFT_SEEN_LEFT
                                                     : WEFT_SEEN_JOINED,
                                  .calls = at.calls,
                                  .sig = at.sig,
                                  .count = at.count};
    }
    return member->store ? n : 0; /* half of them would look like all */
}

/* The rank whose process served the store, which is lost with it. It may have made the call we are
 * in before. */
static int see_server(const weft_nccl_member_t *member, const weft_waiting_t *waiting, bool failed,
                      weft_seen_t *seen)
{
    uint64_t gone_ns = weft__now_ns() - member->lost_ns;
    if (member->lost_ns == 0 || member->server < 0 || member->server == member->rank ||
        (!failed && weft__is_message((weft_coll_t)(waiting->sig & 0xff)))) {
        return 0;
    }
    *seen = (weft_seen_t){.rank = member->server,
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
static bool some_have_left(weft_nccl_member_t *member, const weft_waiting_t *waiting)
{
    char key[128];
    int64_t left = 0;
    if (!member->store) {
        return false;
    }
    weft__nccl_key(member, "left", key, sizeof(key));
    if (weft__store_add(member->store, key, 0, &left) != WEFT_OK) {
        lose_store(member);
        return false;
    }
    bool news = left != 0 && (left != member->left || waiting->last != member->left_call);
    member->left = left;
    member->left_call = waiting->last;
    return news;
}

/* Report what is known of all ranks, as far as they say where they are: when time is up, or there
 * is news. */
static bool judge(weft_nccl_member_t *member, const weft_waiting_t *waiting,
                  weft_nccl_verdict_t *out)
{
    bool up = member->timeout_ms > 0 &&
              waiting->waited_ns / 1000000u >= (uint64_t)member->timeout_ms;
    weft_seen_t server, *seen = &server;
    weft_fault_t fault;
    int n = 0;
    if (some_have_left(member, waiting) || (up && member->store)) {
        weft_seen_t *all = calloc((size_t)member->size, sizeof(*seen));
        n = all ? see_all(member, all) : 0;
        seen = all ? all : seen;
    }
    if (!member->store) {
        n = see_server(member, waiting, false, seen);
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

/* NCCL says that a peer is gone, but not which. The store knows, now or a little later, by the will
 * of the dead; or it was the dead that served it. True: all can read it there. If neither is so in
 * time, NCCL's words remain. */
static bool name_dead(weft_nccl_member_t *member, weft_nccl_verdict_t *found)
{
    uint64_t end = weft__now_ns() + NAME_MS * 1000000ull;
    weft_nccl_verdict_t verdict;
    weft_nccl_sight_t sight;
    weft_seen_t server;
    weft_fault_t fault;
    weft_waiting_t waiting = {.rank = member->rank, .peer = -1, .in = "a call of NCCL's"};
    if (weft__nccl_oldest(member, &sight)) {
        waiting = waiting_in(member, &sight);
    }
    for (; member->store && weft__now_ns() < end;
         nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL)) {
        if (weft__nccl_look(member, &waiting, &verdict)) {
            *found = verdict;
            return true;
        }
    }
    if (see_server(member, &waiting, true, &server) > 0 &&
        weft__watch(&waiting, &server, 1, &fault)) {
        take(found, &fault);
    }
    return false;
}

/* Look everywhere. *offer_p: the others are yet to be told. */
static bool find_fault(weft_nccl_member_t *member, weft_nccl_verdict_t *out, bool *busy_p,
                       bool *offer_p)
{
    weft_nccl_sight_t sight;
    const char *text;
    *offer_p = false;
    *busy_p = weft__nccl_oldest(member, &sight);
    const weft_waiting_t waiting = waiting_in(member, *busy_p ? &sight : NULL);
    if (weft__nccl_look(member, &waiting, out)) {
        return true;
    }
    *offer_p = true;
    out->status = weft__nccl_error(member->engine, &text);
    if (out->status != WEFT_OK) {
        snprintf(out->text, sizeof(out->text), "%s", text);
        *offer_p = out->status != WEFT_ERR_RANK_DEAD || !name_dead(member, out);
        return true;
    }
    post(member, false);
    return *busy_p && judge(member, &waiting, out);
}

/* ---- the watcher ------------------------------------------------------------------------ */

/* The error is known to all: end what runs here. */
static void settle(weft_nccl_member_t *member, const weft_nccl_verdict_t *verdict)
{
    pthread_mutex_lock(&member->lock);
    member->verdict = *verdict;
    pthread_mutex_unlock(&member->lock);
    atomic_store_explicit(&member->broken, true, memory_order_release);
    weft__nccl_abort(member->engine);
    pthread_mutex_lock(&member->lock);
    member->aborted = true;
    pthread_cond_broadcast(&member->settled);
    pthread_mutex_unlock(&member->lock);
}

static void wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t end)
{
    const struct timespec until = {.tv_sec = (time_t)(end / 1000000000u),
                                   .tv_nsec = (long)(end % 1000000000u)};
    pthread_cond_timedwait(cond, lock, &until);
}

/* Sleep until it is time to look, or somebody has something. False: stop. */
static bool nap(weft_nccl_member_t *member, int ms, weft_nccl_verdict_t *claim)
{
    uint64_t end = weft__now_ns() + (uint64_t)ms * 1000000u;
    pthread_mutex_lock(&member->lock);
    while (!member->stop && member->aborted) { /* there is nothing left to find */
        pthread_cond_wait(&member->wake, &member->lock);
    }
    while (!member->stop && member->claim.status == WEFT_OK && weft__now_ns() < end) {
        wait_until(&member->wake, &member->lock, end);
    }
    bool on = !member->stop;
    *claim = member->claim;
    pthread_mutex_unlock(&member->lock);
    return on;
}

static void *watch(void *arg)
{
    weft_nccl_member_t *member = arg;
    weft_nccl_verdict_t found, verdict;
    bool busy = false, offer;
    member->binding.ops->relax();
    while (nap(member, period(member, busy ? BUSY_MS : IDLE_MS), &found)) {
        if (found.status == WEFT_ERR_RANK_DEAD && name_dead(member, &found)) {
            verdict = found;
        } else if (found.status != WEFT_OK) {
            weft__nccl_offer(member, &found, &verdict);
        } else if (!find_fault(member, &found, &busy, &offer)) {
            continue;
        } else if (offer) {
            weft__nccl_offer(member, &found, &verdict);
        } else {
            verdict = found;
        }
        settle(member, &verdict);
    }
    return NULL;
}

weft_status_t weft__nccl_watch_start(weft_nccl_member_t *member)
{
    int error = pthread_create(&member->watcher, NULL, watch, member);
    if (error != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "starting the watcher of a communicator failed: %s",
                          strerror(error));
    }
    member->watching = true;
    return WEFT_OK;
}

void weft__nccl_watch_stop(weft_nccl_member_t *member)
{
    if (!member->watching) {
        return;
    }
    pthread_mutex_lock(&member->lock);
    member->stop = true;
    pthread_cond_signal(&member->wake);
    pthread_mutex_unlock(&member->lock);
    pthread_join(member->watcher, NULL);
    member->watching = false;
}

/* ---- those who make calls --------------------------------------------------------------- */

static weft_status_t tell(weft_nccl_member_t *member)
{
    atomic_store_explicit(&member->told, true, memory_order_relaxed);
    return weft__fail((weft_status_t)member->verdict.status, "%s", member->verdict.text);
}

weft_status_t weft__nccl_claim(weft_nccl_member_t *member, weft_status_t status)
{
    pthread_mutex_lock(&member->lock);
    if (status != WEFT_OK && member->claim.status == WEFT_OK && !member->aborted) {
        member->claim.status = status;
        snprintf(member->claim.text, sizeof(member->claim.text), "%s", weft_last_error());
        pthread_cond_signal(&member->wake);
    }
    while (!member->aborted) {
        pthread_cond_wait(&member->settled, &member->lock);
    }
    pthread_mutex_unlock(&member->lock);
    return tell(member);
}

weft_status_t weft__nccl_refuse(weft_nccl_member_t *member)
{
    bool told = atomic_load_explicit(&member->told, memory_order_relaxed);
    weft_status_t status = tell(member);
    if (!told) {
        return status; /* it broke between two calls of this rank */
    }
    return weft__fail(WEFT_ERR_BROKEN, "the communicator is broken by an earlier error: %s",
                      member->verdict.text);
}
