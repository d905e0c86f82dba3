/* The watch: one thread of the process that looks after its communicators on GPUs. Kernels cannot
 * see that a process died, cannot map memory and cannot write sentences; this thread does. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/cuda/cuda.h"

#define TICK_NS 1000000
#define MISSED_NS 300000000u /* a rank has ended, and our kernels still wait */
#define DEFERRED_NS 3000000000u
#define ENGINE_NS 20000000u

typedef struct deferred {
    void *memory;
    uint64_t since_ns;
    struct deferred *next;
} deferred_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static weft_cuda_t *watched;
static deferred_t *deferred;
static bool running;

/* ---- a rank that is gone ------------------------------------------------------------------ */

static bool busy(weft_cuda_t *cuda)
{
    pthread_mutex_lock(&cuda->lock);
    weft_cuda_past_t last = cuda->last;
    pthread_mutex_unlock(&cuda->lock);
    return !weft__cuda_idle(&last);
}

/* Has this rank asked for messages to or from rank `p` that it never asked for? */
static bool misses_messages(const weft_cuda_t *cuda, int p)
{
    const weft_cuda_peer_info_t *mine = cuda->infos[cuda->rank], *theirs = cuda->infos[p];
    return atomic_load_explicit(&mine->sends[p], memory_order_acquire) >
               atomic_load_explicit(&theirs->recvs[cuda->rank], memory_order_acquire) ||
           atomic_load_explicit(&mine->recvs[p], memory_order_acquire) >
               atomic_load_explicit(&theirs->sends[cuda->rank], memory_order_acquire);
}

/* A rank has ended, with as many calls queued as this one: will it be missed? Its last kernel may
 * have died with it: then ours does not end, which shows after some time, or its memory has: then
 * ours has failed. A graph may run at any time, so those who use one miss every rank that dies. */
static weft_debt_t debt_of_dead(weft_cuda_t *cuda, uint64_t now, uint64_t *gone_ns_p)
{
    if (cuda->captured || atomic_load_explicit(&cuda->failed, memory_order_relaxed)) {
        *gone_ns_p = UINT64_MAX;
        return WEFT_OWES_REST;
    }
    if (!busy(cuda)) {
        return WEFT_OWES_NOTHING;
    }
    cuda->gone_ns = cuda->gone_ns ? cuda->gone_ns : now;
    *gone_ns_p = now - cuda->gone_ns;
    return WEFT_OWES_REST;
}

/* Report the ranks that are gone. Where there are observers, kernels that we know nothing of may
 * wait: nobody may go before the observers have. */
static void look_for_gone(weft_cuda_t *cuda, uint64_t now)
{
    weft_waiting_t waiting = weft__cuda_waiting(cuda, -1);
    weft_seen_t seen[WEFT_CUDA_RANKS];
    bool behind = false;
    int n = 0;
    waiting.lag_ns = MISSED_NS;
    for (int p = 0; p < cuda->size; p++) {
        weft_seen_t *at = &seen[n];
        *at = weft__cuda_see(cuda, p);
        if (p == cuda->rank || at->state == WEFT_SEEN_JOINED) {
            continue;
        }
        bool misses = at->calls < waiting.last || misses_messages(cuda, p);
        behind = behind || misses;
        if (misses || cuda->observers) {
            at->owes = WEFT_OWES_ALL;
        } else if (at->state == WEFT_SEEN_ENDED) {
            at->owes = debt_of_dead(cuda, now, &at->gone_ns);
        }
        n++;
    }
    waiting.doing = cuda->observers && !behind ? "sharing a symmetric heap with it" : NULL;
    weft__cuda_judge(cuda, &waiting, seen, n);
}

/* Map what others have made. Where that fails, a rank that dies is the likelier reason: it is
 * looked for first, as weft__cuda_failed does. */
static void map_news(weft_cuda_t *cuda, uint64_t now)
{
    if (cuda->unmapped_ns != 0 && now - cuda->unmapped_ns < WEFT_CUDA_BLAME_NS) {
        return;
    }
    if (weft__cuda_broken(cuda) || weft__cuda_map_slabs(cuda) == WEFT_OK) {
        cuda->unmapped_ns = 0;
    } else if (cuda->unmapped_ns == 0) {
        cuda->unmapped_ns = now;
        atomic_store_explicit(&cuda->failed, true, memory_order_relaxed);
    } else {
        weft__cuda_break(cuda, WEFT_ERR_SYSTEM, cuda->rank, "rank %d: %s", cuda->rank,
                         weft_last_error());
    }
}

static void look_at(weft_cuda_t *cuda, uint64_t now)
{
    for (weft_reach_observer_t *observer = cuda->observers; observer; observer = observer->next) {
        observer->look(observer->arg);
    }
    if (weft__cuda_broken(cuda)) {
        return;
    }
    look_for_gone(cuda, now);
    if (cuda->far) {
        map_news(cuda, now);
    }
    if (cuda->nccl && now - cuda->engine_looked_ns > ENGINE_NS) {
        cuda->engine_looked_ns = now;
        weft__cuda_engine_look(cuda, now);
    }
}

/* ---- the thread ------------------------------------------------------------------------- */

static void dig_up(uint64_t now)
{
    for (deferred_t **at = &deferred; *at;) {
        deferred_t *entry = *at;
        if (now - entry->since_ns < DEFERRED_NS) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        weft_free(entry->memory);
        free(entry);
    }
}

static void *watch(void *arg)
{
    (void)arg;
    weft__cuda()->relax();
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!watched && !deferred) {
            pthread_cond_wait(&work, &lock);
        }
        uint64_t now = weft__now_ns();
        for (weft_cuda_t *cuda = watched; cuda; cuda = cuda->next) {
            look_at(cuda, now);
        }
        dig_up(now);
        pthread_mutex_unlock(&lock);
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
        pthread_mutex_lock(&lock);
    }
    return NULL;
}

weft_status_t weft__cuda_watch(weft_cuda_t *cuda)
{
    weft_status_t status = WEFT_OK;
    pthread_mutex_lock(&lock);
    if (!running) {
        pthread_t thread;
        running = pthread_create(&thread, NULL, watch, NULL) == 0;
        if (running) {
            pthread_detach(thread);
        } else {
            status = weft__fail(WEFT_ERR_SYSTEM, "the thread that watches GPUs cannot be started");
        }
    }
    if (status == WEFT_OK) {
        cuda->next = watched;
        watched = cuda;
        pthread_cond_signal(&work);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void weft__cuda_unwatch(weft_cuda_t *cuda)
{
    pthread_mutex_lock(&lock);
    for (weft_cuda_t **at = &watched; *at; at = &(*at)->next) {
        if (*at == cuda) {
            *at = cuda->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

void weft__cuda_observe(void *ctx, weft_reach_observer_t *observer, bool comes)
{
    weft_cuda_t *cuda = ctx;
    pthread_mutex_lock(&lock);
    if (comes) {
        observer->next = cuda->observers;
        cuda->observers = observer;
    }
    for (weft_reach_observer_t **at = &cuda->observers; !comes && *at; at = &(*at)->next) {
        if (*at == observer) {
            *at = observer->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

void weft__cuda_defer_free(void *memory)
{
    deferred_t *entry = malloc(sizeof(*entry));
    pthread_mutex_lock(&lock);
    if (entry && running) {
        *entry = (deferred_t){memory, weft__now_ns(), deferred};
        deferred = entry;
        pthread_cond_signal(&work);
    } else {
        free(entry);
    }
    pthread_mutex_unlock(&lock);
}
