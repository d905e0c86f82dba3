/* The state of a launcher, for its own files. */
#ifndef WEFT_BOOT_LAUNCH_JOB_H
#define WEFT_BOOT_LAUNCH_JOB_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>

#include "boot/launch.h"
#include "boot/launch_guard.h"
#include "boot/launch_output.h"
#include "boot/launch_spawn.h"

typedef enum weft_phase {
    WEFT_PHASE_RUN,
    WEFT_PHASE_GRACE,
    WEFT_PHASE_TERM,
    WEFT_PHASE_KILL
} weft_phase_t;

typedef struct weft_child {
    pid_t pid;
    int pid_fd; /* tells us when it ends; -1: none */
    bool running;
    int status; /* of waitpid, once it has ended */
    bool ended; /* failed, but after we had asked it to end */
    /* When it last wrote to stderr and when it ended, as numbers of events: 1, 2, ...; 0: not
     * yet. */
    uint64_t spoke, left;
    uint64_t spoke_ns; /* and by the clock */
    weft_pipe_t out, err;
    weft_tail_t tail;
} weft_child_t;

typedef struct weft_launcher {
    const weft_launch_t *launch;
    weft_spawn_t spawn;
    weft_bind_t bind;
    weft_guard_t guard;
    weft_store_server_t *store; /* of the ranks that run now */
    weft_sink_t out, err;
    weft_repeats_t *repeats; /* NULL: the program is not ours */
    int signal_fd, error_fd;
    int order_fd;    /* epoll over children's ends and stderr: in which order did things happen? */
    uint64_t events; /* counted there */
    uint8_t secret[WEFT_SECRET_BYTES];
    weft_child_t *children;
    struct pollfd *polls;
    pid_t *strangers; /* children from before: a shell may have started some, and become this
                         program */
    int stranger_count;
    int started, running;
    weft_phase_t phase;
    uint64_t phase_deadline, job_deadline;
    uint64_t
        judge_deadline; /* when to say who failed first at the latest; WEFT_NEVER: nobody did */
    int failed;         /* the first rank that failed; -1: none */
    int exit;           /* set by something else than a rank; -1: not */
    int interrupted;    /* the signal that asked us to end; 0: none */
    int interrupts;     /* how often that was SIGINT */
    uint64_t heard_ns[SIGTERM + 1]; /* when each such signal came first; 0: it did not */
    uint64_t ending_ns;             /* when a signal that ends jobs came; 0: none did */
    uint64_t grace_ms;              /* that ranks had after it */
} weft_launcher_t;

#define weft__say(launcher, format, ...)                                                           \
    weft__sink_say(&(launcher)->err, "%s: " format, (launcher)->launch->name, __VA_ARGS__)

/* launch_ends.c: who failed, and what is said about it
 * ------------------------------------------- */

/* Watch rank `rank`, which has been started, for the order of events. */
void weft__order_add(weft_launcher_t *launcher, int rank);
/* Number what has happened since the last call. Before pipes are read and children are reaped. */
void weft__order_note(weft_launcher_t *launcher);

/* Of those that have ended: who failed first? -1: nobody, or it is too early to say. */
int weft__find_failed(weft_launcher_t *launcher);
/* Say how rank launcher->failed ended, unless the signal that we passed on is all there is to
 * say. */
void weft__report_failure(weft_launcher_t *launcher);
/* When all have ended: what the job should exit with, and what became of the others. */
int weft__exit_status(const weft_launcher_t *launcher);
void weft__report_end(weft_launcher_t *launcher);

#endif
