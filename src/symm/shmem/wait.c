/* Waiting: see wait.h. */
#include "symm/shmem/wait.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/settings.h"
#include "comm/watch.h"

#define MS 1000000ull
#define CROWD_POLLS 100 /* 5 us: a few changes of process */
#define RETRY 128       /* waits after which polling is tried again */

/* ---- PEs that share cores ----------------------------------------------------------------- */

/* Polls that have lately been enough where it is not known who writes. A wait that they were not
 * enough for makes them few, then none; now and then we try again. Threads may lose each other's
 * updates, which does no harm. */
static _Atomic int patience = CROWD_POLLS, skipped;

static int choose_limit(int pe)
{
    const weft_shmem_state_t *s = &weft__shmem;
    if (!s->oversubscribed || weft__settings()->spin >= 0) {
        return 0; /* has polled enough, or as WEFT_SPIN has it */
    }
    if (pe != WEFT_SHMEM_ANYBODY) {
        return s->shares_core[pe] ? 0 : CROWD_POLLS;
    }
    int limit = atomic_load_explicit(&patience, memory_order_relaxed);
    if (limit == 0 && atomic_fetch_add_explicit(&skipped, 1, memory_order_relaxed) % RETRY == 0) {
        limit = CROWD_POLLS;
    }
    if (limit > 0) {
        int more = limit + limit / 8 + 1;
        atomic_store_explicit(&patience, more < CROWD_POLLS ? more : CROWD_POLLS,
                              memory_order_relaxed);
    }
    return limit;
}

/* True if it was a poll. */
static bool poll_oversubscribed(weft_shmem_waiter_t *waiter)
{
    if (!waiter->begun) {
        waiter->begun = true;
        waiter->polls = 0;
        waiter->limit = choose_limit(waiter->pe);
    }
    if (waiter->polls < waiter->limit) {
        waiter->polls++;
        weft__pause();
        return true;
    }
    if (waiter->limit > 0 && waiter->pe == WEFT_SHMEM_ANYBODY) {
        atomic_store_explicit(&patience, waiter->limit / 4, memory_order_relaxed);
    }
    waiter->limit = 0;
    return false;
}

/* ---- PEs that are late -------------------------------------------------------------------- */

static bool is_stopped(int pid)
{
    char path[32], text[256] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
        fclose(file);
    }
    const char *state = strrchr(text, ')'); /* the program's name may have brackets of its own */
    return state != NULL && (state[1] == ' ' && (state[2] == 'T' || state[2] == 't'));
}

/* What is known of whom is waited for; of all if that is not known. */
static int report(const weft_shmem_waiter_t *waiter, weft_seen_t seen[WEFT_MAX_RANKS])
{
    const weft_shmem_state_t *s = &weft__shmem;
    bool all = waiter->pe == WEFT_SHMEM_ANYBODY;
    int n = 0;
    for (int pe = all ? 0 : waiter->pe; pe < (all ? s->pes : waiter->pe + 1); pe++) {
        seen[n++] = (weft_seen_t){.rank = pe,
                                  .state = WEFT_SEEN_JOINED,
                                  .pid = s->peers[pe].pid,
                                  .stopped = pe != s->me && is_stopped(s->peers[pe].pid)};
    }
    return n;
}

/* A PE that has left entered all its calls before. So if it has, look once more, and then give
 * up. */
static void look_at_pe(weft_shmem_waiter_t *waiter, const char *call)
{
    const weft_shmem_state_t *s = &weft__shmem;
    if (waiter->pe == WEFT_SHMEM_ANYBODY) {
        return;
    }
    if (waiter->left) {
        weft__shmem_gone(call, waiter->pe, true);
    }
    /* Partner: the release in shmem_finalize there. */
    waiter->left = atomic_load_explicit(&s->peers[waiter->pe].control->state,
                                        memory_order_acquire) == WEFT_SHMEM_LEFT;
}

/* A program may let PEs wait as long as it likes: each warning doubles the time to the next, and
 * only a timeout that somebody asked for is an error. */
static void look_at_time(weft_shmem_waiter_t *waiter, const char *call)
{
    static _Atomic int told;
    const weft_shmem_state_t *s = &weft__shmem;
    uint64_t waited = waiter->idler.waited_ns / MS;
    int times = atomic_load_explicit(&told, memory_order_relaxed);
    uint64_t warn_after = (uint64_t)weft__settings()->warn_after << (times < 16 ? times : 16);
    bool warn = warn_after > 0 && waited >= warn_after && !waiter->warned;
    if (!warn && (s->timeout_ms == 0 || waited < (uint64_t)s->timeout_ms)) {
        return;
    }
    const weft_waiting_t waiting = {.rank = s->me,
                                    .peer = waiter->pe,
                                    .pe = true,
                                    .in = call,
                                    .timeout_ms = s->timeout_ms,
                                    .waited_ns = waiter->idler.waited_ns};
    weft_seen_t seen[WEFT_MAX_RANKS];
    weft_fault_t fault;
    int n = report(waiter, seen);
    if (weft__watch(&waiting, seen, n, &fault)) {
        weft__shmem_die("%s", fault.text);
    }
    if (warn) {
        waiter->warned = true;
        atomic_fetch_add_explicit(&told, 1, memory_order_relaxed);
        weft__watch_warn(&waiting, seen, n);
    }
}

void weft__shmem_idle(weft_shmem_waiter_t *waiter, const char *call)
{
    const weft_shmem_state_t *s = &weft__shmem;
    /* Partner: the watch, which sets it. It orders nothing. */
    int dead = atomic_load_explicit(&s->dead, memory_order_relaxed);
    if (unlikely(dead != 0)) {
        weft__shmem_gone(call, dead - 1, false);
    }
    if (!poll_oversubscribed(waiter) && weft__wait_idle(&waiter->idler, s->oversubscribed)) {
        look_at_pe(waiter, call);
        look_at_time(waiter, call);
    }
}

void weft__shmem_missed(const char *call)
{
    static _Thread_local unsigned misses;
    if (++misses % CROWD_POLLS != 0) {
        return;
    }
    int dead = atomic_load_explicit(&weft__shmem.dead, memory_order_relaxed);
    if (unlikely(dead != 0)) {
        weft__shmem_gone(call, dead - 1, false);
    }
    if (weft__shmem.oversubscribed) {
        sched_yield();
    }
}
