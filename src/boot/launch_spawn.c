#define _GNU_SOURCE 1 /* pipe2, execvpe, sched_setaffinity */
#include "boot/launch_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "boot/store_net.h"
#include "device/cuda.h"

extern char **environ;

/* ---- the program ------------------------------------------------------------------------- */

/* 0 if `path` can be run, else an errno. */
static int check_program(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return errno;
    }
    if (!S_ISREG(info.st_mode)) {
        return S_ISDIR(info.st_mode) ? EISDIR : EACCES;
    }
    return access(path, X_OK) == 0 ? 0 : errno;
}

/* Try every folder of $PATH. The best of the errors is the one about a file that is there. */
static int search_path(const char *name, char path[PATH_MAX])
{
    const char *folders = getenv("PATH");
    int error = ENOENT;
    if (folders == NULL) {
        folders = "/usr/local/bin:/usr/bin:/bin";
    }
    while (*folders != '\0') {
        size_t length = strcspn(folders, ":");
        int need = snprintf(path, PATH_MAX, "%.*s%s%s", (int)length, folders,
                            length > 0 ? "/" : "./", name);
        int found = need < PATH_MAX ? check_program(path) : ENAMETOOLONG;
        if (found == 0) {
            return 0;
        }
        if (found == EACCES) {
            error = EACCES;
        }
        folders += length + (folders[length] == ':');
    }
    return error;
}

weft_status_t weft__spawn_find(const weft_launch_t *launch, char path[PATH_MAX], int *exit_p)
{
    const char *name = launch->program != NULL ? launch->program : launch->argv[0];
    int error;
    if (strchr(name, '/') != NULL) {
        error = snprintf(path, PATH_MAX, "%s", name) < PATH_MAX ? check_program(path)
                                                                : ENAMETOOLONG;
    } else {
        error = *name == '\0' ? ENOENT : search_path(name, path);
    }
    if (error == 0) {
        return WEFT_OK;
    }
    *exit_p = error == ENOENT || error == ENOTDIR ? WEFT_EXIT_NOT_FOUND : WEFT_EXIT_NOT_STARTED;
    if (error == ENOENT && strchr(name, '/') == NULL && check_program(name) == 0) {
        return weft__fail(WEFT_ERR_NOT_FOUND, "%s: no program '%s' in PATH; did you mean './%s'?",
                          launch->name, name, name);
    }
    if (error == ENOENT) {
        return weft__fail(WEFT_ERR_NOT_FOUND, "%s: there is no program '%s'", launch->name, name);
    }
    return weft__fail(WEFT_ERR_SYSTEM, "%s: cannot run '%s': %s", launch->name, name,
                      strerror(error));
}

weft_status_t weft__spawn_free_port(const char *host, int *port_p)
{
    int fd;
    WEFT_TRY(weft__net_listen_tcp(host, 0, &fd, port_p));
    close(fd);
    return WEFT_OK;
}

/* ---- the environment --------------------------------------------------------------------- */

#define RANK_VARIABLES 16

/* Ours and torchrun's names for the same. */
static int print_variables(const weft_spawn_t *spawn, int rank, char lines[RANK_VARIABLES][320])
{
    int size = spawn->launch->ranks;
    int count = 0;
    snprintf(lines[count++], 320, "WEFT_RANK=%d", rank);
    snprintf(lines[count++], 320, "WEFT_SIZE=%d", size);
    snprintf(lines[count++], 320, "WEFT_LOCAL_RANK=%d", rank);
    snprintf(lines[count++], 320, "WEFT_LOCAL_SIZE=%d", size);
    snprintf(lines[count++], 320, "WEFT_MASTER_ADDR=%s", spawn->master_addr);
    snprintf(lines[count++], 320, "WEFT_MASTER_PORT=%d", spawn->master_port);
    snprintf(lines[count++], 320, "WEFT_SECRET=%s", spawn->secret);
    snprintf(lines[count++], 320, "WEFT_RESTART=%d", spawn->restart);
    snprintf(lines[count++], 320, "WEFT_PREFIXED=%s", spawn->launch->prefix ? "yes" : "no");
    snprintf(lines[count++], 320, "WEFT_TOLD=%s", weft__settings_told());
    snprintf(lines[count++], 320, "RANK=%d", rank);
    snprintf(lines[count++], 320, "WORLD_SIZE=%d", size);
    snprintf(lines[count++], 320, "LOCAL_RANK=%d", rank);
    snprintf(lines[count++], 320, "LOCAL_WORLD_SIZE=%d", size);
    snprintf(lines[count++], 320, "MASTER_ADDR=%s", spawn->master_addr);
    snprintf(lines[count++], 320, "MASTER_PORT=%d", spawn->torch_port);
    return count;
}

static bool same_name(const char *a, const char *b)
{
    size_t length = strcspn(b, "=");
    return strncmp(a, b, length + 1) == 0;
}

/* The caller's environment with `lines` in place of what they name. Freed by free(). */
static char **make_environment(char lines[RANK_VARIABLES][320], int line_count)
{
    size_t count = 0;
    size_t used = 0;
    while (environ[count] != NULL) {
        count++;
    }
    char **list = malloc((count + (size_t)line_count + 1) * sizeof(*list));
    if (list == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        bool ours = weft__cuda_widened() && same_name(environ[i], WEFT_CUDA_CONNECTIONS "=");
        for (int k = 0; k < line_count && !ours; k++) {
            ours = same_name(environ[i], lines[k]);
        }
        if (!ours) {
            list[used++] = environ[i];
        }
    }
    for (int k = 0; k < line_count; k++) {
        list[used++] = lines[k];
    }
    list[used] = NULL;
    return list;
}

/* ---- the process ------------------------------------------------------------------------- */

static void say_and_exit(const weft_spawn_t *spawn, int rank, int error)
{
    weft_spawn_error_t text = {.rank = rank, .error = error};
    /* the launcher hears of it either way, if only by the status */
    if (write(spawn->error_fd, &text, sizeof(text)) < 0) {
        _exit(WEFT_EXIT_NOT_STARTED);
    }
    _exit(WEFT_EXIT_NOT_FOUND);
}

/* Between fork and exec: system calls only, the launcher has threads. */
static void become_rank(const weft_spawn_t *spawn, int rank, pid_t launcher, int out, int err,
                        char *const *environment)
{
    if (rank > 0 || !spawn->share_terminal) {
        setpgid(0, 0);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) {
        _exit(WEFT_EXIT_NOT_STARTED); /* it died before the line above could help */
    }
    if (rank > 0) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null < 0 || dup2(null, 0) < 0) {
            say_and_exit(spawn, rank, errno);
        }
    }
    if (dup2(out, 1) < 0 || dup2(err, 2) < 0) {
        say_and_exit(spawn, rank, errno);
    }
    if (spawn->bind != NULL) {
        /* a rank that may not be bound runs unbound */
        const weft_bind_t *bind = spawn->bind;
        sched_setaffinity(0, bind->words * sizeof(unsigned long),
                          (const cpu_set_t *)(bind->masks + (size_t)rank * bind->words));
    }
    setrlimit(RLIMIT_NOFILE, &spawn->files);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &spawn->mask, NULL);
    execvpe(spawn->path, spawn->launch->argv, environment);
    say_and_exit(spawn, rank, errno);
}

static weft_status_t make_pipe(const char *name, int fds[2])
{
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "%s: cannot make a pipe: %s", name, strerror(errno));
    }
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    return WEFT_OK;
}

weft_status_t weft__spawn(const weft_spawn_t *spawn, int rank, pid_t *pid_p, int *out_p, int *err_p)
{
    const char *name = spawn->launch->name;
    char lines[RANK_VARIABLES][320];
    int out[2], err[2];
    pid_t launcher = getpid();
    WEFT_TRY(make_pipe(name, out));
    weft_status_t status = make_pipe(name, err);
    if (status != WEFT_OK) {
        goto err_close_out;
    }
    char **environment = make_environment(lines, print_variables(spawn, rank, lines));
    if (environment == NULL) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "%s: no memory for an environment", name);
        goto err_close_err;
    }
    pid_t pid = fork();
    if (pid == 0) {
        become_rank(spawn, rank, launcher, out[1], err[1], environment);
    }
    free(environment);
    if (pid < 0) {
        status = weft__fail(WEFT_ERR_SYSTEM, "%s: cannot start rank %d: %s", name, rank,
                            strerror(errno));
        goto err_close_err;
    }
    if (rank > 0 || !spawn->share_terminal) {
        setpgid(pid, pid); /* as the child does: whoever comes first */
    }
    close(out[1]);
    close(err[1]);
    *pid_p = pid;
    *out_p = out[0];
    *err_p = err[0];
    return WEFT_OK;
err_close_err:
    close(err[0]);
    close(err[1]);
err_close_out:
    close(out[0]);
    close(out[1]);
    return status;
}
