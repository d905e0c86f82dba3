/* Runs a command with a fault in it, in a folder of its own, and finds out all that it left
 * behind. */
#include "faults/drive.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_S 120 /* of a command: it is never that slow, it hangs */
#define LINGER_S 20 /* of what it started, after it has ended */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool fault_own_shm(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("shm", "/dev/shm", "tmpfs", 0, "size=256m") == 0;
}

void fault_folder(const char *path, bool in_memory)
{
    char command[600];
    snprintf(command, sizeof(command), "rm -rf '%s' && mkdir -p '%s'", path, path);
    if (system(command) != 0 ||
        (in_memory && mount("faults", path, "tmpfs", 0, "size=256m") != 0) || chdir(path) != 0 ||
        mkdir("tmp", 0700) != 0 || mkdir("cache", 0700) != 0) {
        perror(path);
        exit(1);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what a command leaves becomes a child of ours */
}

static void set_environment(const point_t *fault)
{
    char here[512], value[600];
    if (getcwd(here, sizeof(here)) == NULL) {
        _exit(98);
    }
    snprintf(value, sizeof(value), "%s/tmp", here);
    setenv("TMPDIR", value, 1);
    snprintf(value, sizeof(value), "%s/cache", here);
    setenv("XDG_CACHE_HOME", value, 1);
    setenv("WEFT_TIMEOUT", "25", 1);
    unsetenv("FAULT");
    if (fault != NULL) {
        snprintf(value, sizeof(value), "%s/state", here);
        setenv("FAULT_STATE", value, 1);
        setenv("FAULT_WHO", fault->who, 1);
        if (fault->op >= 0) {
            snprintf(value, sizeof(value), "%s:%d:%s", fault_op_names[fault->op], fault->k,
                     fault->how);
            setenv("FAULT", value, 1);
        }
        snprintf(value, sizeof(value), "%s/test/faults/preload_faults.so", getenv("WEFT_BUILD"));
        setenv("LD_PRELOAD", value, 1);
    }
}

static pid_t start(const char *const *args, const point_t *fault)
{
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    int in = open("/dev/null", O_RDONLY), out = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600),
        err = open("err", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    close(in);
    close(out);
    close(err);
    setpgid(0, 0);
    set_environment(fault);
    execv(args[0], (char *const *)args);
    _exit(97);
}

/* Children of ours that run, into `names`; the dead are collected. */
static int living(pid_t *pids, int most, char *names, size_t size)
{
    char text[4096] = "", path[64], name[128];
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    int fd = open(path, O_RDONLY), count = 0;
    ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
    names[0] = '\0';
    for (char *save, *word = strtok_r(text, " ", &save); word != NULL && count < most;
         word = strtok_r(NULL, " ", &save)) {
        pids[count++] = (pid_t)strtol(word, NULL, 10);
        snprintf(path, sizeof(path), "/proc/%s/comm", word);
        fd = open(path, O_RDONLY);
        got = fd < 0 ? 0 : read(fd, name, sizeof(name) - 1);
        close(fd);
        name[got > 0 ? got - 1 : 0] = '\0';
        size_t used = strlen(names);
        snprintf(names + used, size - used, " %s (%s)", word, name);
    }
    return count;
}

/* Wait until nothing runs, and end what does after LINGER_S; names of those into `left`. */
static void collect(char *left, size_t size)
{
    pid_t pids[64];
    char names[512];
    double limit = now() + LINGER_S;
    left[0] = '\0';
    for (int count; (count = living(pids, 64, names, sizeof(names))) > 0;) {
        if (now() > limit) {
            if (left[0] == '\0') {
                snprintf(left, size, "%s", names);
            }
            for (int i = 0; i < count; i++) {
                kill(pids[i], SIGKILL);
            }
        }
        usleep(3000);
    }
}

static void read_text(const char *path, char *text)
{
    int fd = open(path, O_RDONLY);
    ssize_t got = fd < 0 ? 0 : read(fd, text, TEXT_BYTES - 1);
    close(fd);
    text[got > 0 ? got : 0] = '\0';
}

static fault_state_t *map_state(void)
{
    int fd = open("state", O_RDWR | O_CREAT | O_TRUNC, 0600);
    void *page = fd >= 0 && ftruncate(fd, sizeof(fault_state_t)) == 0
                     ? mmap(NULL, sizeof(fault_state_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    if (page == MAP_FAILED) {
        perror("state");
        exit(1);
    }
    close(fd);
    return page;
}

void fault_command(const char *const *args, const point_t *fault, fault_state_t *state_p,
                   ended_t *ended)
{
    fault_state_t *state = map_state();
    double began = now();
    pid_t pid = start(args, fault);
    int status = 0;
    memset(ended, 0, offsetof(ended_t, out));
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid) {
            break;
        }
        ended->hung = now() - began > LIMIT_S;
        if (ended->hung) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            break;
        }
        usleep(2000);
    }
    ended->seconds = now() - began;
    collect(ended->left, sizeof(ended->left));
    ended->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ended->struck = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
                    atomic_load(&state->pid) == pid;
    read_text("out", ended->out);
    read_text("err", ended->err);
    if (state_p != NULL) {
        memcpy((void *)state_p, (void *)state, sizeof(*state));
    }
    munmap(state, sizeof(*state));
}
