/* Teams of threads: ranges of tasks, stealing, and waiting that does not waste a shared core. */
#include "kernel/cpu/team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/settings.h"

enum { MEMBERS_MAX = 512, LINE = 64, LARGE_PAGE = 2 << 20 };

/* Kernels follow each other within microseconds, so a worker polls that long before it yields, and
 * yields for a while before it sleeps: a wake-up costs tens of microseconds. */
static const uint64_t POLL_NS = 20000, YIELD_NS = 300000;

typedef struct member {
    _Alignas(LINE) atomic_int_least64_t next; /* task to take; taken by its owner and by helpers */
    int64_t end;                              /* of its range */
    void *scratch;
    size_t scratch_bytes;
    pthread_t thread;
    struct team *team;
    int index;
} member_t;

typedef struct team {
    int size;
    int asked;           /* what size should have been, had all threads started */
    bool oversubscribed; /* more threads than CPUs: polling would keep the others from running */
    member_t *members;
    void *memory;
    size_t memory_bytes;

    weft_task_fn fn;
    const void *arg;

    /* Raised by the leader for every run, after everything above is written (release); workers read
     * it with acquire. */
    _Alignas(LINE) atomic_uint_least64_t run;
    _Alignas(LINE) atomic_int working; /* workers still busy; the last one's release pairs with the
                                          leader's acquire */
    bool stopping;

    /* `asleep` is counted before the sleeper looks at `run` once more, and read after `run` is
     * raised: both sequentially consistent, so one of the two sees the other. */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    atomic_int asleep;
} team_t;

static _Thread_local int wanted; /* 0: default */
static _Thread_local team_t *own;

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

/* ---- waiting ---------------------------------------------------------------------------- */

static void pause_briefly(void)
{
    for (int i = 0; i < 16; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
}

/* Poll, then yield; false when it is time to sleep. */
static bool wait_more(const team_t *team, uint64_t start)
{
    uint64_t waited = weft__now_ns() - start;
    if (waited < POLL_NS && !team->oversubscribed) {
        pause_briefly();
    } else {
        sched_yield();
    }
    return waited < YIELD_NS;
}

static void wait_for_run(team_t *team, uint64_t seen)
{
    uint64_t start = weft__now_ns();
    while (atomic_load_explicit(&team->run, memory_order_acquire) == seen) {
        if (!wait_more(team, start)) {
            pthread_mutex_lock(&team->lock);
            atomic_fetch_add(&team->asleep, 1);
            while (atomic_load(&team->run) == seen) {
                pthread_cond_wait(&team->wake, &team->lock);
            }
            atomic_fetch_sub(&team->asleep, 1);
            pthread_mutex_unlock(&team->lock);
        }
    }
}

static void announce_run(team_t *team)
{
    atomic_fetch_add(&team->run, 1);
    if (atomic_load(&team->asleep) > 0) {
        pthread_mutex_lock(&team->lock);
        pthread_cond_broadcast(&team->wake);
        pthread_mutex_unlock(&team->lock);
    }
}

/* ---- tasks ------------------------------------------------------------------------------ */

/* Own tasks first, then those of the others, the next neighbour's first. */
static void work(team_t *team, int index)
{
    void *scratch = team->members[index].scratch;
    for (int i = 0; i < team->size; i++) {
        member_t *from = &team->members[(index + i) % team->size];
        for (;;) {
            int64_t task = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
            if (task >= from->end) {
                break;
            }
            team->fn(team->arg, task, scratch);
        }
    }
}

static void *worker_main(void *arg)
{
    member_t *self = arg;
    team_t *team = self->team;
    for (uint64_t seen = 0;;) {
        wait_for_run(team, seen++);
        if (team->stopping) {
            return NULL;
        }
        work(team, self->index);
        atomic_fetch_sub_explicit(&team->working, 1, memory_order_release);
    }
}

/* ---- teams ------------------------------------------------------------------------------ */

static int usable_cpus(void)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    int count = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    return count > 0 ? count : 1;
}

static int size_now(void)
{
    int size = wanted > 0 ? wanted : weft__settings()->threads;
    size = size > 0 ? size : usable_cpus();
    return size < MEMBERS_MAX ? size : MEMBERS_MAX;
}

static void destroy(void *arg)
{
    team_t *team = arg;
    team->stopping = true;
    announce_run(team);
    for (int i = 1; i < team->size; i++) {
        pthread_join(team->members[i].thread, NULL);
    }
    for (int i = 0; i < team->size; i++) {
        free(team->members[i].scratch);
    }
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->lock);
    free(team->memory);
    free(team->members);
    free(team);
}

static void make_key(void)
{
    pthread_key_create(&key, destroy);
}

/* A team with fewer workers than asked for computes as well, only later: it is no failure. */
static void start_workers(team_t *team, int size)
{
    team->size = 1;
    for (int i = 1; i < size; i++) {
        member_t *member = &team->members[i];
        member->team = team;
        member->index = i;
        if (pthread_create(&member->thread, NULL, worker_main, member) != 0) {
            weft__warn("only %d of %d threads for computing could be started", i, size);
            return;
        }
        team->size = i + 1;
    }
}

static team_t *create(int size)
{
    team_t *team = aligned_alloc(LINE, sizeof(*team));
    member_t *members = aligned_alloc(LINE, sizeof(*members) * (size_t)size);
    if (team == NULL || members == NULL) {
        free(team);
        free(members);
        return NULL;
    }
    memset(team, 0, sizeof(*team));
    memset(members, 0, sizeof(*members) * (size_t)size);
    team->members = members;
    team->asked = size;
    team->oversubscribed = size > usable_cpus();
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    start_workers(team, size);
    return team;
}

static team_t *own_team(void)
{
    int size = size_now();
    if (own != NULL && own->asked == size) {
        return own;
    }
    pthread_once(&key_once, make_key);
    if (own != NULL) {
        destroy(own);
    }
    own = create(size);
    pthread_setspecific(key, own);
    if (own == NULL) {
        weft__fail(WEFT_ERR_NO_MEMORY, "there is no memory for a team of %d threads", size);
    }
    return own;
}

/* ---- the calls -------------------------------------------------------------------------- */

static weft_status_t reserve(void **memory, size_t *have, size_t bytes)
{
    if (bytes <= *have) {
        return WEFT_OK;
    }
    /* Packed operands are read again and again: with small pages their translations alone would
     * fill what the processor has for them. */
    size_t page = bytes >= LARGE_PAGE / 2 ? LARGE_PAGE : 4096;
    size_t rounded = (bytes + page - 1) / page * page;
    void *larger = aligned_alloc(page, rounded);
    if (larger != NULL && page == LARGE_PAGE) {
        madvise(larger, rounded, MADV_HUGEPAGE); /* or else it is slower, nothing more */
    }
    if (larger == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY,
                          "a kernel needs %zu bytes of host memory for intermediate results; the "
                          "system has none left",
                          rounded);
    }
    free(*memory);
    *memory = larger;
    *have = rounded;
    return WEFT_OK;
}

static void assign(team_t *team, int64_t tasks)
{
    for (int i = 0; i < team->size; i++) {
        member_t *member = &team->members[i];
        atomic_store_explicit(&member->next, tasks * i / team->size, memory_order_relaxed);
        member->end = tasks * (i + 1) / team->size;
    }
}

weft_status_t weft__team_run(int64_t tasks, size_t scratch, weft_task_fn fn, const void *arg)
{
    team_t *team = own_team();
    if (team == NULL) {
        return WEFT_ERR_NO_MEMORY;
    }
    for (int i = 0; i < team->size; i++) {
        member_t *member = &team->members[i];
        if (reserve(&member->scratch, &member->scratch_bytes, scratch) != WEFT_OK) {
            return WEFT_ERR_NO_MEMORY;
        }
    }
    if (tasks == 1 || team->size == 1) {
        for (int64_t task = 0; task < tasks; task++) {
            fn(arg, task, team->members[0].scratch);
        }
        return WEFT_OK;
    }
    team->fn = fn;
    team->arg = arg;
    assign(team, tasks);
    atomic_store_explicit(&team->working, team->size - 1, memory_order_relaxed);
    announce_run(team);
    work(team, 0);
    uint64_t start = weft__now_ns();
    while (atomic_load_explicit(&team->working, memory_order_acquire) > 0) {
        wait_more(team, start);
    }
    return WEFT_OK;
}

int weft__team_size(void)
{
    team_t *team = own_team();
    return team != NULL ? team->size : 1;
}

void weft__team_set(int count)
{
    wanted = count;
}

int weft__team_get(void)
{
    return wanted;
}

void *weft__team_memory(size_t bytes)
{
    team_t *team = own_team();
    if (team == NULL || reserve(&team->memory, &team->memory_bytes, bytes) != WEFT_OK) {
        return NULL;
    }
    return team->memory;
}
