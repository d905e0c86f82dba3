/* Who failed first, and what is said about it.
 *
 * A rank that fails takes others with it within microseconds, and several may have ended by the
 * time we look. The kernel queues what happens to an epoll set in the order in which it happened,
 * so ends of processes and writes to stderr are numbered by that. Blamed is, of those that failed:
 * one that was killed, as that has no other rank as its reason; else the one whose first sign of
 * trouble came first. That is its end, or its last words to stderr just before: who calls for the
 * end of all others may well end after them. */
#define _GNU_SOURCE 1 /* strsignal */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "boot/launch_job.h"
#include "boot/store_net.h"

#define LAST_WORDS_NS 1000000000ull /* before its end: what was said earlier is not about it */
#define JUDGE_MS 500                /* for a rank that spoke before another failed to end as well */
#define NAMED_MOST 8                /* ranks in a sentence */

/* ---- order -------------------------------------------------------------------------------- */

static void watch(weft_launcher_t *launcher, int fd, uint32_t events, uint64_t what)
{
    struct epoll_event event = {.events = events | EPOLLET, .data = {.u64 = what}};
    epoll_ctl(launcher->order_fd, EPOLL_CTL_ADD, fd,
              &event); /* without it the order is not known */
}

void weft__order_add(weft_launcher_t *launcher, int rank)
{
    weft_child_t *child = &launcher->children[rank];
    child->pid_fd = (int)syscall(SYS_pidfd_open, child->pid, 0); /* close-on-exec */
    if (child->pid_fd >= 0) {
        watch(launcher, child->pid_fd, EPOLLIN, 2 * (uint64_t)rank);
    }
    watch(launcher, child->err.fd, EPOLLIN, 2 * (uint64_t)rank + 1);
}

void weft__order_note(weft_launcher_t *launcher)
{
    struct epoll_event events[64];
    int count;
    do {
        count = epoll_wait(launcher->order_fd, events, 64, 0);
        for (int i = 0; i < count; i++) {
            weft_child_t *child = &launcher->children[events[i].data.u64 / 2];
            bool is_end = events[i].data.u64 % 2 == 0;
            if (is_end && child->left == 0) {
                child->left = ++launcher->events;
            } else if (!is_end && (events[i].events & EPOLLIN) && child->left == 0) {
                child->spoke = ++launcher->events;
                child->spoke_ns = weft__now_ns();
            }
        }
    } while (count == 64);
}

/* ---- blame -------------------------------------------------------------------------------- */

/* It did its work, and found a problem. */
static bool has_found(const weft_launcher_t *launcher, const weft_child_t *child)
{
    int finding = launcher->launch->finding;
    return finding != 0 && WIFEXITED(child->status) && WEXITSTATUS(child->status) == finding;
}

static bool is_failure(const weft_launcher_t *launcher, const weft_child_t *child)
{
    bool fine = WIFEXITED(child->status) && WEXITSTATUS(child->status) == 0;
    return !fine && !has_found(launcher, child);
}

/* Did it say something just now? */
static bool has_spoken(const weft_child_t *child)
{
    return child->spoke > 0 && weft__now_ns() - child->spoke_ns < LAST_WORDS_NS;
}

/* The number of its first sign of trouble. */
static uint64_t sign_of(const weft_child_t *child)
{
    return has_spoken(child) && child->spoke < child->left ? child->spoke : child->left;
}

static bool comes_before(const weft_child_t *a, const weft_child_t *b)
{
    if (WIFSIGNALED(a->status) != WIFSIGNALED(b->status)) {
        return WIFSIGNALED(a->status);
    }
    return sign_of(a) < sign_of(b);
}

/* Is there one that spoke before `failed` ended, and may be about to end too? */
static bool may_be_another(const weft_launcher_t *launcher, const weft_child_t *failed)
{
    for (int i = 0; i < launcher->started; i++) {
        const weft_child_t *child = &launcher->children[i];
        if (child->running && has_spoken(child) && child->spoke < sign_of(failed)) {
            return true;
        }
    }
    return false;
}

int weft__find_failed(weft_launcher_t *launcher)
{
    const weft_child_t *first = NULL;
    for (int i = 0; i < launcher->started; i++) {
        const weft_child_t *child = &launcher->children[i];
        bool counts = !child->running && !child->ended && is_failure(launcher, child);
        if (counts && (first == NULL || comes_before(child, first))) {
            first = child;
        }
    }
    if (first == NULL) {
        return -1;
    }
    if (launcher->judge_deadline == WEFT_NEVER) {
        launcher->judge_deadline = weft__deadline(JUDGE_MS);
    }
    if (!WIFSIGNALED(first->status) && may_be_another(launcher, first) &&
        weft__deadline_left(launcher->judge_deadline) > 0) {
        return -1;
    }
    return (int)(first - launcher->children);
}

/* ---- words -------------------------------------------------------------------------------- */

static const char *noun(const weft_launcher_t *launcher)
{
    return launcher->launch->noun != NULL ? launcher->launch->noun : "rank";
}

static int exit_of(int status)
{
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Did it end as the signal that we passed on asks for? */
static bool has_obeyed(const weft_launcher_t *launcher, const weft_child_t *child)
{
    return launcher->interrupted != 0 && exit_of(child->status) == 128 + launcher->interrupted;
}

void weft__report_failure(weft_launcher_t *launcher)
{
    int rank = launcher->failed;
    const weft_child_t *child = &launcher->children[rank];
    if (has_obeyed(launcher, child)) {
        return;
    }
    if (WIFSIGNALED(child->status)) {
        weft__say(launcher, "%s %d (pid %d) was killed by signal %d (%s)%s", noun(launcher), rank,
                  (int)child->pid, WTERMSIG(child->status), strsignal(WTERMSIG(child->status)),
                  WCOREDUMP(child->status) ? ", core dumped" : "");
    } else {
        weft__say(launcher, "%s %d (pid %d) exited with status %d", noun(launcher), rank,
                  (int)child->pid, WEXITSTATUS(child->status));
    }
    if (child->tail.count > 0 && launcher->launch->ranks > 1 && !launcher->launch->own &&
        !weft__sink_shows(&launcher->err, &child->tail)) {
        char prefix[16];
        snprintf(prefix, sizeof(prefix), "[%d] ", rank);
        weft__say(launcher, "the last lines of %s %d were:", noun(launcher), rank);
        weft__sink_repeat(&launcher->err, &child->tail, prefix);
    }
}

static int count_ended(const weft_launcher_t *launcher)
{
    int count = 0;
    for (int i = 0; i < launcher->started; i++) {
        count += launcher->children[i].ended;
    }
    return count;
}

int weft__exit_status(const weft_launcher_t *launcher)
{
    if (launcher->exit >= 0) {
        return launcher->exit;
    }
    if (launcher->failed >= 0) {
        return exit_of(launcher->children[launcher->failed].status);
    }
    if (launcher->interrupted != 0 && count_ended(launcher) > 0) {
        return 128 + launcher->interrupted;
    }
    for (int i = 0; i < launcher->started; i++) {
        if (has_found(launcher, &launcher->children[i])) {
            return launcher->launch->finding;
        }
    }
    return 0;
}

/* "rank 0 (pid 4711), rank 3 (pid 4714) and 5 more" */
static void name_ended(const weft_launcher_t *launcher, char *text, size_t room)
{
    int count = count_ended(launcher), named = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < launcher->started && named < NAMED_MOST && used < room; i++) {
        if (launcher->children[i].ended) {
            const char *glue = named == 0 ? "" : named + 1 == count ? " and " : ", ";
            used += (size_t)snprintf(text + used, room - used, "%s%s %d (pid %d)", glue,
                                     noun(launcher), i, (int)launcher->children[i].pid);
            named++;
        }
    }
    if (count > named && used < room) {
        snprintf(text + used, room - used, " and %d more", count - named);
    }
}

/* A signal asked for the end, and not all ranks ended as if nothing had happened. */
static void report_interrupted(weft_launcher_t *launcher)
{
    const weft_launch_t *launch = launcher->launch;
    const char *saved = launch->saved != NULL ? launch->saved(launch->again_arg) : NULL;
    char names[512], killed[640] = "";
    if (count_ended(launcher) > 0) {
        name_ended(launcher, names, sizeof(names));
        if (launcher->interrupts > 1) {
            snprintf(killed, sizeof(killed), ", which came twice; %s had to be killed", names);
        } else {
            snprintf(killed, sizeof(killed), "; %s had to be killed after %.10g s of grace", names,
                     (double)launcher->grace_ms / 1e3);
        }
    }
    weft__say(launcher, "ended by signal %d (%s)%s%s%s", launcher->interrupted,
              strsignal(launcher->interrupted), killed, saved != NULL ? "; " : "",
              saved != NULL ? saved : "");
}

void weft__report_end(weft_launcher_t *launcher)
{
    int failed = 0, ended = count_ended(launcher), alike = 0;
    for (int i = 0; i < launcher->started; i++) {
        failed += i != launcher->failed && !launcher->children[i].ended &&
                  is_failure(launcher, &launcher->children[i]);
        alike += launcher->children[i].err.repeated; /* all but one of those who say it */
    }
    if (launcher->interrupted != 0 && weft__exit_status(launcher) != 0) {
        report_interrupted(launcher);
    } else if (launcher->failed < 0) {
        return;
    } else if (failed > 0 && ended > 0) {
        weft__say(launcher, "after it, %d of the other %ss failed and %d had to be ended", failed,
                  noun(launcher), ended);
    } else if (failed + ended > 0) {
        weft__say(launcher, "after it, %d of the other %ss %s%s", failed + ended, noun(launcher),
                  failed > 0 ? "failed" : "had to be ended",
                  failed > 0 && alike == failed ? ", and said the same" : "");
    }
}
