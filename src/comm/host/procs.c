#include "comm/host/procs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"

#define GONE (-2) /* it had ended before it could be watched */

typedef struct proc {
    int pid, pidfd, refs;
    struct proc *next;
} proc_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static proc_t *procs;

static proc_t *find(int pid)
{
    proc_t *p = procs;
    while (p && p->pid != pid) {
        p = p->next;
    }
    return p;
}

int weft__proc_open(int pid)
{
    if (pid == getpid()) {
        return -1;
    }
    pthread_mutex_lock(&lock);
    proc_t *p = find(pid);
    if (!p && (p = calloc(1, sizeof(*p)))) {
        p->pid = pid;
        p->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (p->pidfd < 0 && errno == ESRCH) {
            p->pidfd = GONE;
        } else if (p->pidfd < 0) {
            weft__warn("cannot watch process %d (%s): its death will only be noticed by timeout",
                       pid, strerror(errno));
        }
        p->next = procs;
        procs = p;
    }
    int fd = p ? p->pidfd : -1;
    if (p) {
        p->refs++;
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

void weft__proc_close(int pid)
{
    pthread_mutex_lock(&lock);
    proc_t *p = find(pid);
    if (p && --p->refs == 0) {
        proc_t **link = &procs;
        while (*link != p) {
            link = &(*link)->next;
        }
        *link = p->next;
        if (p->pidfd >= 0) {
            close(p->pidfd);
        }
        free(p);
    }
    pthread_mutex_unlock(&lock);
}

bool weft__proc_ended(int pidfd)
{
    struct pollfd item = {.fd = pidfd, .events = POLLIN};
    return pidfd == GONE || (pidfd >= 0 && poll(&item, 1, 0) == 1);
}

/* The text of /proc/PID/`name`; empty: it cannot be read. */
static void read_proc(int pid, const char *name, char *text, size_t room)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, room - 1) : 0;
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0) {
        close(fd);
    }
}

/* PF_EXITING among the flags, the seventh word behind the name (proc_pid_stat(5)). */
static bool exits(int pid)
{
    char text[1024];
    unsigned flags = 0;
    read_proc(pid, "stat", text, sizeof(text));
    const char *behind = strrchr(text, ')'); /* names may hold anything */
    return behind && sscanf(behind, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && (flags & 4);
}

/* A process inside the driver does not see SIGKILL before the driver lets it go. */
static bool has_kill_pending(int pid)
{
    char text[4096];
    unsigned long long own = 0, shared = 0;
    read_proc(pid, "status", text, sizeof(text));
    const char *line = strstr(text, "\nSigPnd:");
    return line && sscanf(line, "\nSigPnd: %llx ShdPnd: %llx", &own, &shared) == 2 &&
           ((own | shared) >> (SIGKILL - 1) & 1);
}

bool weft__proc_dying(int pid)
{
    return exits(pid) || has_kill_pending(pid);
}
