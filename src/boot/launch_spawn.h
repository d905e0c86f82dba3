/* From a job to processes: finding the program, the environment of a rank, fork and exec. */
#ifndef WEFT_BOOT_LAUNCH_SPAWN_H
#define WEFT_BOOT_LAUNCH_SPAWN_H

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "boot/launch.h"
#include "boot/store.h"
#include "topo/topo.h"

/* What is the same for all ranks of one attempt to run a job. */
typedef struct weft_spawn {
    const weft_launch_t *launch;
    const char *path;        /* of the program */
    const weft_bind_t *bind; /* NULL: do not bind */
    const char *master_addr;
    int master_port;
    int torch_port; /* free, for programs that want to meet by themselves */
    char secret[2 * WEFT_SECRET_BYTES + 1];
    int restart;
    int error_fd;  /* write end; a rank that could not start says why: weft_spawn_error_t */
    sigset_t mask; /* to be restored in ranks, like the next */
    struct rlimit files;
    bool share_terminal; /* rank 0 stays in our process group, so that it may read a terminal */
} weft_spawn_t;

typedef struct weft_spawn_error {
    int rank, error;
} weft_spawn_error_t;

/* Look for argv[0] as a shell would. On failure *exit_p is what to exit with. */
weft_status_t weft__spawn_find(const weft_launch_t *launch, char path[PATH_MAX], int *exit_p);

/* Start one rank. *out_p and *err_p are the read ends of its pipes. */
weft_status_t weft__spawn(const weft_spawn_t *spawn, int rank, pid_t *pid_p, int *out_p,
                          int *err_p);

/* A port that nobody uses now. */
weft_status_t weft__spawn_free_port(const char *host, int *port_p);

#endif
