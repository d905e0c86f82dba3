#include "comm/shm/procs.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
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
