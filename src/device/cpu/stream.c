/* Streams: FIFO queues with a worker thread each.
 *
 *     push: lock, put into the ring, pushed++, unlock, wake the worker if it sleeps
 *     worker: lock, take a batch, unlock, run each, done++ after each
 *
 * Work is numbered: `pushed` and `done` only grow, so "everything queued so far" is a number, and
 * waiting for it is waiting until done reaches it. A stream's struct is never freed but used again,
 * with the numbers going on: a handle that was destroyed can still be told as such, and a waiter
 * that looks at a stream while another thread destroys it finds its number reached.
 *
 * The worker starts at the first push and ends with the stream. */
#define _GNU_SOURCE 1 /* CPU_COUNT, pthread_setname_np */
#include "device/cpu/stream.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/device.h"

#define BATCH 16
#define RING_START 64
#define RING_KEPT 1024 /* a larger ring is freed when the worker goes to sleep */
#define SPIN_NS 5000u
#define TURN_NS 100000u /* of a lane on a core; the least that Linux takes */

struct weft_stream {
    atomic_bool alive;
    int device;
    pthread_mutex_t lock;
    pthread_cond_t wake;     /* worker: there is work, or an end to it */
    pthread_cond_t finished; /* waiters: done has grown */
    weft_work_t *ring;       /* slots taken to pushed, modulo ring_size */
    uint64_t ring_size;      /* power of two, or 0 */
    uint64_t taken;          /* by the worker, to be run */
    _Atomic uint64_t pushed; /* written under the lock */
    _Atomic uint64_t done;   /* written by the worker */
    atomic_int waiters;      /* on `finished`; written under the lock */
    bool started, stopping, asleep;
    bool lane; /* device.h; fixed before the worker starts */
    pthread_t worker;
    weft_status_t error; /* the first since the last synchronize */
    char *error_text;
    struct weft_stream *next_all;  /* every stream ever made; fixed once published */
    struct weft_stream *next_free; /* those destroyed */
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(weft_stream_h) all_streams;
static weft_stream_h free_streams;
static _Thread_local weft_stream_h self; /* the stream whose worker this thread is */

/* ---- waiting ---------------------------------------------------------------------------- */

static bool several_cores(void)
{
    cpu_set_t set;
    /* It fails where there are more cores than the set has room for: many. */
    return sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) >= 2;
}

weft_spin_t weft__spin_start(void)
{
    static _Thread_local int cores; /* 0 unknown, 1, 2 several; asked once a thread */
    if (cores == 0) {
        cores = several_cores() ? 2 : 1;
    }
    return (weft_spin_t){.until_ns = cores == 2 ? weft__now_ns() + SPIN_NS : 0};
}

bool weft__spin_more(const weft_spin_t *spin)
{
    for (int i = 0; i < 8; i++) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
    }
    return spin->until_ns != 0 && weft__now_ns() < spin->until_ns;
}

/* ---- lanes ------------------------------------------------------------------------------ */

static _Thread_local bool lane;

bool weft__lane_is_self(void)
{
    return lane;
}

/* Since Linux 6.12 a thread may say how long its turns on a core are, and gets short ones sooner;
 * before, this changes nothing. Real-time threads keep what they were given. The struct is the
 * kernel's sched_attr, which not all C libraries declare. */
static void take_short_turns(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {0};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) == 0 &&
        attributes.policy == SCHED_OTHER) {
        attributes.runtime = TURN_NS;
        syscall(SYS_sched_setattr, 0, &attributes, 0);
    }
}

/* ---- the worker ------------------------------------------------------------------------- */

/* Keep the first error for whoever synchronizes, with the sentence that this thread has for it. */
static void keep_error(weft_stream_h stream, weft_status_t status)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->error == WEFT_OK) {
        stream->error = status;
        stream->error_text = strdup(weft_last_error());
    }
    pthread_mutex_unlock(&stream->lock);
}

/* Take up to BATCH items, sleeping until there are any; 0 when the stream ends. */
static int take_batch(weft_stream_h stream, weft_work_t *batch)
{
    weft_spin_t spin = weft__spin_start();
    int count = 0;
    /* Pairs with the store in weft__stream_enqueue; the lock below orders the items themselves. */
    while (atomic_load_explicit(&stream->pushed, memory_order_relaxed) == stream->taken &&
           weft__spin_more(&spin)) {
    }
    pthread_mutex_lock(&stream->lock);
    uint64_t pushed;
    while ((pushed = atomic_load_explicit(&stream->pushed, memory_order_relaxed)) ==
               stream->taken &&
           !stream->stopping) {
        if (stream->ring_size > RING_KEPT) {
            free(stream->ring);
            stream->ring = NULL;
            stream->ring_size = 0;
        }
        stream->asleep = true;
        pthread_cond_wait(&stream->wake, &stream->lock);
        stream->asleep = false;
    }
    while (count < BATCH && stream->taken < pushed) {
        batch[count++] = stream->ring[stream->taken++ & (stream->ring_size - 1)];
    }
    pthread_mutex_unlock(&stream->lock);
    return count;
}

static void *work_loop(void *arg)
{
    weft_stream_h stream = arg;
    weft_work_t batch[BATCH];
    int count;
    self = stream;
    lane = stream->lane;
    if (lane) {
        take_short_turns();
    }
    weft_device_set(stream->device); /* for host functions that allocate */
    while ((count = take_batch(stream, batch)) > 0) {
        for (int i = 0; i < count; i++) {
            weft_status_t status = batch[i].run(&batch[i]);
            if (status < 0) {
                keep_error(stream, status);
            }
            /* Pairs with the loads of done in wait_done and weft__stream_idle: who sees it sees
             * what the work wrote. Both this pair and the one in wait_done (waiters, then done)
             * are sequentially consistent: either we see the waiter or it sees that we are done. */
            atomic_fetch_add(&stream->done, 1);
            if (atomic_load(&stream->waiters) > 0) {
                pthread_mutex_lock(&stream->lock);
                pthread_cond_broadcast(&stream->finished);
                pthread_mutex_unlock(&stream->lock);
            }
        }
    }
    return NULL;
}

/* Under the lock. The worker takes no signals, which are for the program's own threads, except
 * those that it causes itself. */
static weft_status_t start_worker(weft_stream_h stream)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
    sigset_t others, old;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        sigdelset(&others, own[i]);
    }
    pthread_sigmask(SIG_BLOCK, &others, &old);
    int error = pthread_create(&stream->worker, NULL, work_loop, stream);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error != 0) {
        return weft__fail(WEFT_ERR_SYSTEM,
                          "device %d: cannot start a worker thread for a stream: %s; see ulimit -u",
                          stream->device, strerror(error));
    }
    pthread_setname_np(stream->worker, "weft-stream");
    stream->started = true;
    return WEFT_OK;
}

/* ---- the queue -------------------------------------------------------------------------- */

/* Under the lock: twice the ring, items at the same numbers. */
static weft_status_t grow(weft_stream_h stream, uint64_t pushed)
{
    uint64_t size = stream->ring_size == 0 ? RING_START : 2 * stream->ring_size;
    weft_work_t *ring = malloc(size * sizeof(*ring));
    if (ring == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY,
                          "device %d: no memory for a stream's queue of %llu items", stream->device,
                          (unsigned long long)size);
    }
    for (uint64_t i = stream->taken; i < pushed; i++) {
        ring[i & (size - 1)] = stream->ring[i & (stream->ring_size - 1)];
    }
    free(stream->ring);
    stream->ring = ring;
    stream->ring_size = size;
    return WEFT_OK;
}

weft_status_t weft__stream_enqueue(weft_stream_h stream, const weft_work_t *work)
{
    weft_status_t status = WEFT_OK;
    bool wake = false;
    pthread_mutex_lock(&stream->lock);
    uint64_t pushed = atomic_load_explicit(&stream->pushed, memory_order_relaxed);
    if (pushed - stream->taken == stream->ring_size) {
        status = grow(stream, pushed);
    }
    if (status == WEFT_OK && !stream->started) {
        status = start_worker(stream);
    }
    if (status == WEFT_OK) {
        stream->ring[pushed & (stream->ring_size - 1)] = *work;
        /* Pairs with the loads in take_batch (a hint; the lock orders the rest). */
        atomic_store_explicit(&stream->pushed, pushed + 1, memory_order_relaxed);
        wake = stream->asleep;
        stream->asleep = false; /* one wake-up is enough, however long it takes */
    }
    pthread_mutex_unlock(&stream->lock);
    if (wake) {
        pthread_cond_signal(&stream->wake);
    }
    return status;
}

static weft_status_t run_push(const weft_work_t *work)
{
    return work->push.fn(work->push.arg);
}

weft_status_t weft__stream_push(weft_stream_h stream, weft_status_t (*fn)(void *arg), void *arg)
{
    weft_work_t work = {.run = run_push, .push = {.fn = fn, .arg = arg}};
    return weft__stream_enqueue(stream, &work);
}

/* ---- create, destroy, wait -------------------------------------------------------------- */

static weft_status_t create(int device, bool is_lane, weft_stream_h *stream_p)
{
    pthread_mutex_lock(&all_lock);
    weft_stream_h stream = free_streams;
    bool fresh = stream == NULL;
    if (!fresh) {
        free_streams = stream->next_free;
    } else {
        stream = calloc(1, sizeof(*stream));
    }
    if (stream == NULL) {
        pthread_mutex_unlock(&all_lock);
        return weft__fail(WEFT_ERR_NO_MEMORY, "device %d: no memory for a stream", device);
    }
    if (fresh) {
        pthread_mutex_init(&stream->lock, NULL);
        pthread_cond_init(&stream->wake, NULL);
        pthread_cond_init(&stream->finished, NULL);
    }
    pthread_mutex_lock(&stream->lock);
    stream->device = device;
    stream->lane = is_lane;
    stream->started = stream->stopping = stream->asleep = false;
    pthread_mutex_unlock(&stream->lock);
    /* Pairs with the load in weft__stream_alive. */
    atomic_store_explicit(&stream->alive, true, memory_order_release);
    if (fresh) {
        stream->next_all = atomic_load_explicit(&all_streams, memory_order_relaxed);
        /* Pairs with the loads in is_stream and weft__streams_synchronize. */
        atomic_store_explicit(&all_streams, stream, memory_order_release);
    }
    pthread_mutex_unlock(&all_lock);
    *stream_p = stream;
    return WEFT_OK;
}

weft_status_t weft__stream_create(int device, weft_stream_h *stream_p)
{
    return create(device, false, stream_p);
}

weft_status_t weft__stream_create_lane(int device, weft_stream_h *stream_p)
{
    return create(device, true, stream_p);
}

/* Is it one of ours at all? Streams are never freed, so what a thread has found stays true. */
static bool is_stream(weft_stream_h stream)
{
    static _Thread_local weft_stream_h known;
    if (stream == known) {
        return true;
    }
    weft_stream_h at = atomic_load_explicit(&all_streams, memory_order_acquire);
    while (at != NULL && at != stream) {
        at = at->next_all;
    }
    known = at != NULL ? at : known;
    return at != NULL;
}

bool weft__stream_alive(weft_stream_h stream)
{
    /* Pairs with the stores in weft__stream_create and weft__stream_destroy. */
    return is_stream(stream) && atomic_load_explicit(&stream->alive, memory_order_acquire);
}

bool weft__stream_is_self(weft_stream_h stream)
{
    return self == stream;
}

bool weft__stream_idle(weft_stream_h stream)
{
    /* Pairs with the store in weft__stream_enqueue, made by this thread or ordered before us. */
    uint64_t pushed = atomic_load_explicit(&stream->pushed, memory_order_relaxed);
    /* Pairs with the increment in work_loop. */
    return atomic_load_explicit(&stream->done, memory_order_acquire) >= pushed;
}

static void wait_done(weft_stream_h stream, uint64_t ticket)
{
    weft_spin_t spin = weft__spin_start();
    /* Pairs with the increment in work_loop. */
    while (atomic_load_explicit(&stream->done, memory_order_acquire) < ticket) {
        if (!weft__spin_more(&spin)) {
            pthread_mutex_lock(&stream->lock);
            atomic_fetch_add(&stream->waiters, 1);
            while (atomic_load(&stream->done) < ticket) {
                pthread_cond_wait(&stream->finished, &stream->lock);
            }
            atomic_fetch_sub(&stream->waiters, 1);
            pthread_mutex_unlock(&stream->lock);
        }
    }
}

/* Return the stream's error, in this thread's words, and clear it. */
static weft_status_t take_error(weft_stream_h stream)
{
    pthread_mutex_lock(&stream->lock);
    weft_status_t status = stream->error;
    char *text = stream->error_text;
    stream->error = WEFT_OK;
    stream->error_text = NULL;
    pthread_mutex_unlock(&stream->lock);
    if (status != WEFT_OK) {
        weft__fail(status, "%s", text != NULL ? text : weft_status_text(status));
    }
    free(text);
    return status;
}

weft_status_t weft__stream_synchronize(weft_stream_h stream)
{
    wait_done(stream, atomic_load_explicit(&stream->pushed, memory_order_relaxed));
    return take_error(stream);
}

weft_status_t weft__streams_synchronize(int device)
{
    weft_status_t status = WEFT_OK;
    if (self != NULL && self->device == device) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_device_synchronize: called by a function that runs on a stream of "
                          "device %d: it would wait for itself for ever",
                          device);
    }
    /* Pairs with the store in weft__stream_create; what the list holds is never freed. */
    weft_stream_h stream = atomic_load_explicit(&all_streams, memory_order_acquire);
    for (; stream != NULL; stream = stream->next_all) {
        pthread_mutex_lock(&stream->lock);
        bool ours = stream->started && stream->device == device;
        uint64_t ticket = atomic_load_explicit(&stream->pushed, memory_order_relaxed);
        pthread_mutex_unlock(&stream->lock);
        if (!ours) {
            continue;
        }
        wait_done(stream, ticket);
        if (status == WEFT_OK) {
            status = take_error(stream);
        }
    }
    return status;
}

weft_status_t weft__stream_destroy(weft_stream_h stream)
{
    bool alive = true;
    /* Of two that destroy the same stream one wins. Pairs with the load in weft__stream_alive. */
    if (!atomic_compare_exchange_strong(&stream->alive, &alive, false)) {
        return weft__fail(WEFT_ERR_INVALID, "weft_stream_destroy: " WEFT_STREAM_GONE);
    }
    pthread_mutex_lock(&stream->lock);
    bool started = stream->started;
    stream->stopping = true;
    pthread_mutex_unlock(&stream->lock);
    if (started) {
        pthread_cond_signal(&stream->wake);
        pthread_join(stream->worker, NULL);
    }
    weft_status_t status = take_error(stream);
    pthread_mutex_lock(&stream->lock);
    free(stream->ring);
    stream->ring = NULL;
    stream->ring_size = 0;
    stream->started = false;
    pthread_mutex_unlock(&stream->lock);
    pthread_mutex_lock(&all_lock);
    stream->next_free = free_streams;
    free_streams = stream;
    pthread_mutex_unlock(&all_lock);
    return status;
}
