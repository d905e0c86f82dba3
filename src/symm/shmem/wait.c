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

/* ---- PEs that share cores ------------------------------------------------------------------------ */

/* Polls that have lately been enough where it is not known who writes. A wait that they were not enough
 * for makes them few, then none; now and then we try again. Threads may lose each other's updates, which
 * does no harm. */
static _Atomic int patience = CROWD_POLLS, skipped;

static int choose_limit(int pe)
{
    const weft_shmem_state_t *s = &weft__shmem;
    if (!s->crowded || weft__settings()->spin >= 0) {
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
static bool poll_in_crowd(weft_shmem_waiter_t *waiter)
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

/* ---- PEs that are late --------------------------------------------------------------------------- */

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

/* " for PE 3 (process 4711, which is stopped)": as much as is known. */
static void describe(int pe, char *text, size_t room)
{
    const weft_shmem_state_t *s = &weft__shmem;
    bool stopped = false;
    for (int p = 0; p < s->pes && pe == WEFT_SHMEM_ANYBODY; p++) {
        if (p != s->me && is_stopped(s->peers[p].pid)) {
            snprintf(text, room, "; PE %d (process %d) is stopped", p, s->peers[p].pid);
            return;
        }
    }
    text[0] = '\0';
    if (pe != WEFT_SHMEM_ANYBODY) {
        stopped = is_stopped(s->peers[pe].pid);
        snprintf(text, room, " for PE %d (process %d%s)", pe, s->peers[pe].pid,
                 stopped ? ", which is stopped" : "");
    }
}

/* A PE that has left entered all its calls before. So if it has, look once more, and then give up. */
static void look_at_pe(weft_shmem_waiter_t *waiter, const char *call)
{
    const weft_shmem_state_t *s = &weft__shmem;
    if (waiter->pe == WEFT_SHMEM_ANYBODY) {
        return;
    }
    if (waiter->left) {
        const weft_waiting_t waiting = {.rank = s->me, .in = call, .noun = "PE"};
        const weft_seen_t seen = {.pid = s->peers[waiter->pe].pid,
                                  .how = "has called shmem_finalize or exited"};
        weft_fault_t fault;
        weft__watch_left(&waiting, waiter->pe, &seen, &fault);
        weft__shmem_die("%s", fault.text);
    }
    /* Partner: the release in shmem_finalize there. */
    waiter->left = atomic_load_explicit(&s->peers[waiter->pe].control->state,
                                        memory_order_acquire) == WEFT_SHMEM_LEFT;
}

/* A program may let PEs wait as long as it likes: each warning doubles the time to the next, and only a
 * timeout that somebody asked for is an error. */
static void look_at_time(weft_shmem_waiter_t *waiter, const char *call)
{
    static _Atomic int told;
    const weft_shmem_state_t *s = &weft__shmem;
    uint64_t waited = waiter->idler.waited_ns / MS;
    int times = atomic_load_explicit(&told, memory_order_relaxed);
    uint64_t warn_after = (uint64_t)weft__settings()->warn_after << (times < 16 ? times : 16);
    const weft_waiting_t waiting = {
        .rank = s->me, .timeout_ms = s->timeout_ms, .in = call, .noun = "PE"};
    char whom[128];
    if (s->timeout_ms > 0 && waited >= (uint64_t)s->timeout_ms) {
        weft_fault_t fault;
        describe(waiter->pe, whom, sizeof(whom));
        weft__watch_late(&waiting, NULL, whom, &fault);
        weft__shmem_die("%s", fault.text);
    }
    if (warn_after > 0 && waited >= warn_after && !waiter->warned) {
        waiter->warned = true;
        atomic_fetch_add_explicit(&told, 1, memory_order_relaxed);
        describe(waiter->pe, whom, sizeof(whom));
        weft__watch_warn(&waiting, NULL, (double)waited / 1e3, whom);
    }
}

void weft__shmem_idle(weft_shmem_waiter_t *waiter, const char *call)
{
    const weft_shmem_state_t *s = &weft__shmem;
    /* Partner: the watch, which sets it. It orders nothing. */
    if (unlikely(atomic_load_explicit(&s->dead, memory_order_relaxed) != 0)) {
        weft__shmem_peer_died(call);
    }
    if (!poll_in_crowd(waiter) && weft__wait_idle(&waiter->idler, s->crowded)) {
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
    if (unlikely(atomic_load_explicit(&weft__shmem.dead, memory_order_relaxed) != 0)) {
        weft__shmem_peer_died(call);
    }
    if (weft__shmem.crowded) {
        sched_yield();
    }
}
