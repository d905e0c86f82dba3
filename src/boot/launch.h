/* Start the ranks of a job as processes of this host, and look after them until they have ended.
 *
 * Each rank finds its place, the address of the job's store and the secret in its environment
 * (boot/job.h). Its output comes out line by line, behind its number. When one fails, the others
 * have a moment to notice it themselves and are then ended. Nothing that a rank started outlives
 * the launcher, however the launcher ends. */
#ifndef WEFT_BOOT_LAUNCH_H
#define WEFT_BOOT_LAUNCH_H

#include <stdbool.h>

#include <weft/status.h>

#include "boot/job.h"

typedef struct weft_launch {
    const char *name;    /* begins every sentence: "weft run" */
    const char *noun;    /* what ranks are called in them; NULL: "rank" */
    int ranks;           /* 1 to WEFT_MAX_RANKS */
    char *const *argv;   /* the program, its arguments, NULL */
    const char *program; /* the program, where argv[0] is only what ps shows; NULL: argv[0] */
    bool bind;           /* to cores */
    const char *device;  /* where ranks live, as the setting WEFT_DEVICE: those that may use a GPU
                         * are bound near it. NULL: cpu */
    bool prefix;         /* lines with "[rank] " */
    bool own;         /* the program is this one: what several ranks say to stderr is shown once */
    int max_restarts; /* of the whole job, after a failure */
    int finding;  /* exit status of ranks that did their work and found a problem, which they have
                  * told: it is passed on without a word. 0: there is none */
    int hopeless; /* exit status of a rank that would fail again: no restart. 0: there is none */
    /* Called before each restart, may change what argv holds, and returns where the job goes on
     * from, for the sentence about it. NULL: nothing to change or to say. */
    const char *(*again)(void *arg);
    /* Called when a signal has ended the job, and says what is left of its work. NULL: nothing to
     * say. */
    const char *(*saved)(void *arg);
    void *again_arg; /* of both */
    int timeout_ms;  /* end the job after this time; 0: never */
    int grace_ms;    /* between the failure of a rank, or a signal, and the end of the others */
    bool
        grace_fixed; /* also where ranks have asked for more after a signal (weft__job_ask_grace) */
    bool int_ends;   /* SIGINT asks for the end as SIGTERM does; false: it is up to the ranks */
} weft_launch_t;

#define WEFT_LAUNCH_GRACE_MS 3000
/* A signal that comes again within this time is the same one: timeout(1), batch systems and service
 * managers send it to a whole group or job, whose launcher passes it on as well. Keys of a terminal
 * count one by one. */
#define WEFT_SIGNAL_ECHO_NS 1000000000ull
#define WEFT_LAUNCH_SELF "/proc/self/exe" /* this program, replaced or removed meanwhile or not */

/* Exit statuses that are not a rank's. */
#define WEFT_EXIT_TIMEOUT 124     /* timeout_ms passed */
#define WEFT_EXIT_NOT_STARTED 126 /* the program is there but cannot be run */
#define WEFT_EXIT_NOT_FOUND 127   /* there is no such program */

/* Run a job from its start to its end. *exit_p is what the process should exit with: 0 if all
 * ranks did, else the status of the first rank that failed, 128 + signal if it was killed; 128 +
 * the signal that ended the job if ranks had to be killed because they did not end after it. Not
 * WEFT_OK, with a sentence, if the job could not be started at all; *exit_p is set then too.
 * One at a time in a process: it takes over the signals and all children while it runs. */
weft_status_t weft__launch(const weft_launch_t *launch, int *exit_p);

#endif
