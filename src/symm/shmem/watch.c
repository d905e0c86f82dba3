/* The end of a job: asked for, by mistake, or because a PE has died.
 *
 * Each PE has a thread that sleeps until another PE's process ends, and otherwise costs nothing.
 * One that had left (shmem_finalize) is forgotten. If somebody had asked for the end of the job,
 * this process exits as well, with the status that was asked for; so a PE that computes and never
 * calls us ends too. Else the PE died: whoever waits for anything learns of it (wait.c), since what
 * it waits for may never come. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "comm/reach.h"
#include "comm/watch.h"
#include "symm/shmem/api.h"

#define END_SET (UINT64_C(1) << 32)
#define EXIT_SECONDS 2 /* for handlers of atexit and for writing out what is buffered */

static pthread_t thread;
static bool running;
static int stop_fd = -1;

/* ---- ending ------------------------------------------------------------------------------- */

static void *exit_late(void *status)
{
    sleep(EXIT_SECONDS);
    _exit((int)(intptr_t)status);
}

/* Leave as exit does, from whatever thread; but leave, even if another thread holds the lock of a
 * stream that exit wants to flush. */
static _Noreturn void leave(int status)
{
    pthread_t guard;
    if (!atomic_exchange(&weft__shmem.exiting, true)) {
        if (pthread_create(&guard, NULL, exit_late, (void *)(intptr_t)status) == 0) {
            pthread_detach(guard);
        }
        exit(status);
    }
    for (;;) {
        pause(); /* another thread is about it */
    }
}

static _Atomic uint64_t *end_word(void)
{
    return weft__shmem.joined ? &weft__shmem.peers[0].control->end : NULL;
}

/* Ask for the end of the job. False if it was asked for before; *status_p is what counts. */
static bool ask(int *status_p)
{
    _Atomic uint64_t *end = end_word();
    uint64_t before = 0;
    /* Partner: the load in look_after, once this process is seen to have ended. */
    if (end == NULL ||
        atomic_compare_exchange_strong(end, &before, END_SET | (uint32_t)*status_p)) {
        return true;
    }
    *status_p = (int)(uint32_t)before;
    return false;
}

void weft__shmem_end(int status)
{
    ask(&status);
    leave(status);
}

void weft__shmem_die(const char *format, ...)
{
    char text[512];
    int status = 1;
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    if (ask(&status)) {
        weft__log_write(WEFT_LOG_ERROR, "%s", text);
    }
    leave(status);
}

/* ---- mistakes ----------------------------------------------------------------------------- */

static void check_running(const char *call)
{
    if (weft__shmem.pes == 0) {
        weft__shmem_die("%s was called before shmem_init or after shmem_finalize", call);
    }
}

void weft__shmem_bad_pe(const char *call, int pe, int pes)
{
    check_running(call);
    weft__shmem_die("%s on PE %d: there is no PE %d, PEs are 0 to %d", call, weft__shmem.me, pe,
                    pes - 1);
}

void weft__shmem_bad_address(const char *call, const void *address, size_t bytes, int pe)
{
    const weft_shmem_state_t *s = &weft__shmem;
    check_running(call);
    if (weft__shmem_within(&s->data, address, bytes)) {
        weft__shmem_die("%s on PE %d: PE %d runs another program, with which global and static "
                        "variables are not symmetric; use memory from shmem_malloc",
                        call, s->me, pe);
    }
    bool starts = weft__shmem_within(&s->heap, address, 1) ||
                  weft__shmem_within(&s->data, address, 1);
    weft__shmem_die(
        "%s on PE %d, with PE %d: %zu bytes at %p %s; symmetric are memory from shmem_malloc "
        "and the program's global and static variables",
        call, s->me, pe, bytes, address,
        starts ? "reach beyond the end of symmetric memory" : "are not symmetric");
}

void weft__shmem_bad_ctx(const char *call, shmem_ctx_t ctx)
{
    check_running(call);
    weft__shmem_die("%s on PE %d: %s", call, weft__shmem.me,
                    ctx == SHMEM_CTX_INVALID   ? "the context is SHMEM_CTX_INVALID"
                    : ctx == SHMEM_CTX_DEFAULT ? "SHMEM_CTX_DEFAULT cannot be destroyed"
                                               : "this is no context, or one that was destroyed");
}

void weft__shmem_bad_team(const char *call, shmem_team_t team)
{
    check_running(call);
    weft__shmem_die("%s on PE %d: %s", call, weft__shmem.me,
                    team == SHMEM_TEAM_INVALID ? "the team is SHMEM_TEAM_INVALID"
                                               : "this is no team, or one that was destroyed");
}

void weft__shmem_gone(const char *call, int pe, bool left)
{
    const weft_shmem_peer_t *peer = &weft__shmem.peers[pe];
    const weft_waiting_t waiting = {.rank = weft__shmem.me, .peer = pe, .pe = true, .in = call};
    weft_seen_t seen = {.rank = pe,
                        .state = left ? WEFT_SEEN_LEFT : WEFT_SEEN_ENDED,
                        .owes = WEFT_OWES_ALL,
                        .pid = peer->pid};
    weft_fault_t fault;
    if (atomic_load_explicit(&peer->control->state, memory_order_acquire) == WEFT_SHMEM_EXITED) {
        seen.exit_status = atomic_load(&peer->control->exit_status);
    }
    weft__watch(&waiting, &seen, 1, &fault);
    weft__shmem_die("%s", fault.text);
}

/* ---- the watch ---------------------------------------------------------------------------- */

/* The process of `pe` has ended. */
static void look_after(int pe)
{
    weft_shmem_state_t *s = &weft__shmem;
    uint64_t end = atomic_load(end_word());
    int none = 0;
    if (end != 0) {
        leave((int)(uint32_t)end);
    }
    if (atomic_load_explicit(&s->peers[pe].control->state, memory_order_acquire) !=
        WEFT_SHMEM_LEFT) {
        /* Partner: weft__shmem_idle. The first to die is the one to name. */
        atomic_compare_exchange_strong(&s->dead, &none, pe + 1);
    }
}

static void *watch(void *unused)
{
    weft_shmem_state_t *s = &weft__shmem;
    struct pollfd *polls = unused;
    for (;;) {
        bool ended = false;
        for (int pe = 0; pe < s->pes; pe++) {
            bool gone = polls[pe].fd == -1 && s->peers[pe].pidfd != -1; /* before we could watch */
            if (polls[pe].fd >= 0 ? polls[pe].revents != 0 : gone) {
                polls[pe].fd = -3; /* once is enough */
                look_after(pe);
                ended = true;
            }
        }
        if (polls[s->pes].revents != 0) {
            free(polls);
            return NULL;
        }
        if (!ended && poll(polls, (nfds_t)s->pes + 1, -1) < 0 && errno != EINTR) {
            weft__warn("poll on the other PEs failed: %s; their deaths will not be noticed",
                       strerror(errno));
            return NULL;
        }
    }
}

weft_status_t weft__shmem_watch_start(void)
{
    weft_shmem_state_t *s = &weft__shmem;
    sigset_t all, before;
    struct pollfd *polls = calloc((size_t)s->pes + 1, sizeof(*polls));
    stop_fd = eventfd(0, EFD_CLOEXEC);
    if (polls == NULL || stop_fd < 0) {
        weft_status_t status = weft__fail(WEFT_ERR_NO_MEMORY, "cannot watch the other PEs: %s",
                                          strerror(polls == NULL ? ENOMEM : errno));
        free(polls);
        return status;
    }
    for (int pe = 0; pe < s->pes; pe++) {
        int fd = s->peers[pe].pidfd;
        polls[pe] = (struct pollfd){.fd = fd >= 0 ? fd : -1, .events = POLLIN};
    }
    polls[s->pes] = (struct pollfd){.fd = stop_fd, .events = POLLIN};
    sigfillset(&all); /* signals are the program's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, NULL, watch, polls);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        free(polls);
        close(stop_fd);
        return weft__fail(WEFT_ERR_SYSTEM, "no thread to watch the other PEs: %s", strerror(error));
    }
    running = true;
    return WEFT_OK;
}

void weft__shmem_watch_stop(void)
{
    if (running) {
        uint64_t one = 1;
        ssize_t written = write(stop_fd, &one, sizeof(one));
        (void)written; /* cannot fail: the count is far from full */
        pthread_join(thread, NULL);
        close(stop_fd);
        running = false;
    }
}
