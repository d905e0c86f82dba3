/* A small process that outlives the launcher by a moment.
 *
 * A launcher killed by SIGKILL can do nothing more. Its ranks are then killed by the kernel, but
 * not what they have started in their turn (a rank is often a shell script). The guard holds the
 * other end of a pipe from the launcher; when that closes, it kills the process groups it was told
 * of and not told to forget. */
#ifndef WEFT_BOOT_LAUNCH_GUARD_H
#define WEFT_BOOT_LAUNCH_GUARD_H

#include <sys/types.h>

#include <weft/status.h>

typedef struct weft_guard {
    pid_t pid;
    int fd;
} weft_guard_t;

/* `groups`: how many it must be able to hold. To be called while there is only one thread. */
weft_status_t weft__guard_start(int groups, weft_guard_t *guard_p);
void weft__guard_watch(weft_guard_t *guard, pid_t group);
void weft__guard_forget(weft_guard_t *guard, pid_t group);
/* Also when the guard is gone already. */
void weft__guard_stop(weft_guard_t *guard);

#endif
