#define _GNU_SOURCE 1 /* pipe2, close_range */
#include "boot/launch_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

/* Read pids until the launcher is gone: a positive one is a group to watch, a negative one to
 * forget. A write of one is atomic, and so is never read in part. */
static void keep_watch(int fd, pid_t *groups, int room)
{
    int count = 0;
    for (;;) {
        pid_t pid;
        ssize_t got = read(fd, &pid, sizeof(pid));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got != (ssize_t)sizeof(pid)) {
            break;
        }
        if (pid > 0 && count < room) {
            groups[count++] = pid;
        }
        for (int i = 0; pid < 0 && i < count; i++) {
            if (groups[i] == -pid) {
                groups[i] = groups[--count];
                break;
            }
        }
    }
    for (int i = 0; i < count; i++) {
        kill(-groups[i], SIGKILL);
    }
}

static void be_guard(int fd, int ready, pid_t *groups, int room)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    /* out of reach of what is sent to the launcher's group, a terminal's ^C above all */
    setsid();
    prctl(PR_SET_NAME, "weft-guard");
    prctl(PR_SET_PDEATHSIG, SIGCONT); /* or one that is stopped would not notice the end either */
    /* nobody must have to wait for us, be it the reader of the launcher's output or an umount */
    if (dup2(fd, 0) != 0 || chdir("/") != 0 || write(ready, "", 1) != 1) {
        _exit(1);
    }
    close_range(1, ~0u, 0);
    keep_watch(0, groups, room);
    _exit(0);
}

/* On a busy machine it may first run long after the fork, and until then whoever stops it stops it
 * for good, but for this. Returns at once if it has ended: the job goes on without it. */
static void await_ready(int fd, pid_t guard)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int got;
    while ((got = poll(&ready, 1, 100)) == 0 || (got < 0 && errno == EINTR)) {
        kill(guard, SIGCONT);
    }
}

weft_status_t weft__guard_start(int groups, weft_guard_t *guard_p)
{
    int fds[2], ready[2];
    weft_status_t status;
    pid_t *room = malloc((size_t)groups * sizeof(*room));
    if (room == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "launch: no memory for %d ranks", groups);
    }
    if (pipe2(fds, O_CLOEXEC) != 0) {
        status = weft__fail(WEFT_ERR_SYSTEM, "launch: cannot make a pipe: %s", strerror(errno));
        goto err_free;
    }
    if (pipe2(ready, O_CLOEXEC) != 0) {
        status = weft__fail(WEFT_ERR_SYSTEM, "launch: cannot make a pipe: %s", strerror(errno));
        goto err_close;
    }
    pid_t pid = fork();
    if (pid < 0) {
        status = weft__fail(WEFT_ERR_SYSTEM, "launch: cannot fork: %s", strerror(errno));
        goto err_close_ready;
    }
    if (pid == 0) {
        close(fds[1]); /* or the end of the launcher would not be the end of the pipe */
        be_guard(fds[0], ready[1], room, groups);
    }
    close(fds[0]);
    close(ready[1]);
    await_ready(ready[0], pid);
    close(ready[0]);
    free(room);
    *guard_p = (weft_guard_t){.pid = pid, .fd = fds[1]};
    return WEFT_OK;
err_close_ready:
    close(ready[0]);
    close(ready[1]);
err_close:
    close(fds[0]);
    close(fds[1]);
err_free:
    free(room);
    return status;
}

/* A guard that is gone cannot be told anything; the job goes on without it. SIGPIPE is ignored
 * while there is a launcher. */
static void tell(weft_guard_t *guard, pid_t pid)
{
    ssize_t written;
    do {
        written = write(guard->fd, &pid, sizeof(pid));
    } while (written < 0 && errno == EINTR);
}

void weft__guard_watch(weft_guard_t *guard, pid_t group)
{
    tell(guard, group);
}

void weft__guard_forget(weft_guard_t *guard, pid_t group)
{
    tell(guard, -group);
}

void weft__guard_stop(weft_guard_t *guard)
{
    close(guard->fd);
    int status = 0;
    pid_t got = 0;
    if (guard->pid > 0) {
        kill(guard->pid, SIGCONT); /* a stopped one would not notice */
    }
    while (guard->pid > 0 && got != guard->pid && (got == 0 || errno == EINTR)) {
        got = waitpid(guard->pid, &status, WUNTRACED);
        if (got == guard->pid && WIFSTOPPED(status)) { /* since then */
            kill(guard->pid, SIGCONT);
            got = 0;
        }
    }
    guard->pid = 0;
}
