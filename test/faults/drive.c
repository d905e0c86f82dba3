/* Strikes Weft at every point where the system can fail it, and judges what comes of it.
 *
 *     drive [--path NAME] [--who WHO] [--op OPERATION] [-j N]      every point, until one is not
 *                                                                  reached any more
 *     drive --points N [--seed S]                                  about N of them, drawn by a seed
 *     drive --path save --who 0 --point write:17:ENOSPC            one, and all that was said
 *
 * A point is a path (what Weft does), a process of it, the K-th operation of a kind, and how that
 * fails. judge.c says what must hold. In the environment: WEFT_BUILD, the build folder. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "faults/drive.h"

#define MOST_UNITS 50000
#define MOST_WHO 4
#define PATHS (int)(sizeof(paths) / sizeof(paths[0]))
#define WEFT "@weft"
#define TRAIN                                                                                      \
    WEFT, "train", "--device", "cpu", "--model", "../config.json", "--data", "../text",            \
        "--length", "8", "--batch", "4", "--lr", "3e-3", "--lr-schedule", "constant", "--log",     \
        "100", "--save", "2", "--keep", "1", "--out", "run", "--steps", "4", "--grace", "2"

static path_t paths[] = {
    {.name = "launch",
     .who = "launcher",
     .args = {WEFT, "run", "-n", "2", "/bin/sh", "-c", "echo out; echo err >&2"}},
    {.name = "store", .who = "launcher 0 1", .args = {WEFT, "run", "-n", "2", "@test/boot/meet"}},
    {.name = "join2", .who = "0 1", .args = {WEFT, "run", "-n", "2", "@test/faults/work", "join"}},
    {.name = "join3",
     .who = "launcher 0 2",
     .args = {WEFT, "run", "-n", "3", "@test/faults/work", "join"}},
    {.name = "split", .who = "0 1", .args = {WEFT, "run", "-n", "3", "@test/faults/work", "split"}},
    {.name = "symm", .who = "0 1", .args = {WEFT, "run", "-n", "2", "@test/faults/work", "symm"}},
    {.name = "shmem", .who = "0 1", .args = {WEFT, "run", "-n", "2", "@test/faults/work_pe"}},
    {.name = "save", .who = "launcher", .args = {TRAIN}, .trains = true},
    {.name = "train", .who = "launcher 0 1", .args = {TRAIN, "-n", "2"}, .trains = true},
    {.name = "int8",
     .who = "0 1",
     .args = {TRAIN, "-n", "2", "--compress", "int8"},
     .trains = true},
    {.name = "resume",
     .who = "launcher",
     .args = {TRAIN, "--resume", "run"},
     .trains = true,
     .resumes = true},
    {.name = "resume2",
     .who = "0 1",
     .args = {TRAIN, "-n", "2", "--resume", "run"},
     .trains = true,
     .resumes = true},
};

const char *const fault_op_names[FAULT_OP_COUNT] = {
#define FAULT_NAME(name) #name,
    FAULT_OPS(FAULT_NAME)
#undef FAULT_NAME
};

/* How operations fail. Others see of a process that dies what it did before: it dies at operations
 * that others see, or wait for, and so in between as well. */
static const char *const hows[FAULT_OP_COUNT] = {
    [FAULT_write] = "ENOSPC ENOSPC+ EIO EINTR short kill",
    [FAULT_read] = "EIO EINTR short",
    [FAULT_fsync] = "EIO kill",
    [FAULT_rename] = "EIO kill",
    [FAULT_mmap] = "ENOMEM kill",
    [FAULT_truncate] = "ENOSPC kill",
    [FAULT_fork] = "EAGAIN kill",
    [FAULT_exec] = "ENOMEM kill",
    [FAULT_connect] = "ECONNREFUSED ETIMEDOUT kill",
    [FAULT_send] = "EPIPE EINTR short kill",
    [FAULT_recv] = "ECONNRESET EINTR end short kill",
    [FAULT_malloc] = "ENOMEM",
    [FAULT_open] = "EMFILE EACCES kill",
    [FAULT_close] = "EIO kill",
    [FAULT_unlink] = "EIO kill",
    [FAULT_mkdir] = "ENOSPC kill",
    [FAULT_memfd] = "EMFILE kill",
    [FAULT_thread] = "EAGAIN kill",
    [FAULT_socket] = "EMFILE kill",
    [FAULT_bind] = "EADDRINUSE kill",
    [FAULT_accept] = "EMFILE EINTR kill",
    [FAULT_link] = "ENOSPC kill",
    [FAULT_statvfs] = "EIO",
    [FAULT_stat] = "EIO",
    [FAULT_opendir] = "EMFILE",
    [FAULT_readdir] = "EIO",
    [FAULT_pipe] = "EMFILE kill",
    [FAULT_epoll] = "EMFILE",
    [FAULT_poll] = "EINTR",
    [FAULT_signal] = "EMFILE",
    [FAULT_random] = "ENOSYS",
    [FAULT_resolve] = "ENOMEM",
    [FAULT_stdio] = "ENOSPC kill",
    [FAULT_dup] = "EMFILE",
    [FAULT_lock] = "EAGAIN kill",
    [FAULT_pidfd] = "EMFILE",
    [FAULT_advice] = "ENOMEM",
    [FAULT_fread] = "EIO",
};

/* Points of one kind: `first` alone, or all from it on. */
typedef struct {
    point_t first;
    bool all;
} unit_t;

static unit_t units[MOST_UNITS];
static int unit_count;

static struct {
    atomic_int next;                        /* unit nobody has taken */
    atomic_int tried[PATHS], failed[PATHS]; /* points that were reached */
    atomic_int slow;                        /* that took more than 30 s */
} * shared;

static struct {
    const char *path, *who, *op, *point;
    int jobs, points;
    unsigned long seed;
} options = {.jobs = 2};

/* Words of the table that begin with @ are programs of the build folder. */
static void find_programs(void)
{
    const char *folder = getenv("WEFT_BUILD");
    if (folder == NULL || folder[0] != '/') {
        fprintf(stderr, "WEFT_BUILD is to be the whole path of the build folder\n");
        exit(2);
    }
    for (int i = 0; i < PATHS; i++) {
        for (int j = 0; paths[i].args[j] != NULL; j++) {
            if (paths[i].args[j][0] == '@') {
                char whole[1024];
                snprintf(whole, sizeof(whole), "%s/%s", folder, paths[i].args[j] + 1);
                paths[i].args[j] = strdup(whole);
            }
        }
    }
}

static void make_inputs(const char *scratch)
{
    fault_folder(scratch, false);
    FILE *config = fopen("config.json", "w"), *text = fopen("text", "w");
    if (config == NULL || text == NULL) {
        perror(scratch);
        exit(1);
    }
    fputs("{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 1,\n"
          " \"n_embd\": 8, \"n_head\": 1, \"n_positions\": 8, \"vocab_size\": 257,\n"
          " \"activation_function\": \"gelu_new\"}\n",
          config);
    for (int i = 0; i < 300; i++) {
        fprintf(text, "line %d of %d: the quick brown fox counts %d\n", i, i % 7, i * 13 % 101);
    }
    fclose(config);
    fclose(text);
}

/* The point as a command that repeats it. */
static void print_failure(const point_t *point, const fault_state_t *state, const char *why)
{
    char line[4096], where[700] = "";
    if (state->object[0] != '\0') {
        char command[400];
        snprintf(command, sizeof(command), "addr2line -e '%s' %#lx 2>&1", state->object,
                 (unsigned long)state->offset);
        FILE *pipe = popen(command, "r");
        if (pipe != NULL) {
            size_t got = fread(where, 1, sizeof(where) - 1, pipe);
            where[got > 0 ? got - 1 : 0] = '\0';
            pclose(pipe);
        }
    }
    int length = snprintf(
        line, sizeof(line), "FAILED --path %s --who %s --point %s:%d:%s at %s: %s\n",
        point->path->name, point->who, fault_op_names[point->op], point->k, point->how, where, why);
    length = length < (int)sizeof(line) ? length : (int)sizeof(line) - 1;
    if (write(STDOUT_FILENO, line, (size_t)length) != length) {
        exit(1);
    }
}

/* Points of `unit`, until one is not reached any more. */
static void try_unit(const unit_t *unit)
{
    point_t point = unit->first;
    int path = (int)(point.path - paths);
    int missed = 0;
    while (missed < (unit->all ? 2 : 1)) { /* twice: how often some operations happen is chance */
        static fault_state_t state;
        char why[2048];
        bool fired;
        double seconds;
        bool good = fault_try(&point, &state, &fired, &seconds, why, sizeof(why));
        if (!good) {
            print_failure(&point, &state, why);
            atomic_fetch_add(&shared->failed[path], 1);
        }
        if (getenv("FAULT_PROGRESS") != NULL) {
            fprintf(stderr, "%s %s %s:%d:%s %s, %.1f s\n", point.path->name, point.who,
                    fault_op_names[point.op], point.k, point.how,
                    !fired ? "not reached"
                    : good ? "good"
                           : "bad",
                    seconds);
        }
        atomic_fetch_add(&shared->tried[path], fired ? 1 : 0);
        if (seconds > 30) {
            atomic_fetch_add(&shared->slow, 1);
            print_failure(&point, &state, "(only slow)");
        }
        missed = fired ? 0 : missed + 1;
        if (!unit->all) {
            return;
        }
        point.k++;
    }
}

static void work(int number, const char *scratch)
{
    char folder[600];
    bool own = fault_own_shm();
    if (own) {
        setenv("FAULT_OWN_SHM", "yes", 1);
    }
    snprintf(folder, sizeof(folder), "%s/w%d", scratch, number);
    fault_folder(folder, own);
    for (;;) {
        int next = atomic_fetch_add(&shared->next, 1);
        if (next >= unit_count) {
            return;
        }
        try_unit(&units[next]);
    }
}

static void add_unit(const path_t *path, const char *who, int op, const char *how, int k, bool all)
{
    if (unit_count == MOST_UNITS) {
        fprintf(stderr, "more than %d points or kinds of them\n", MOST_UNITS);
        exit(1);
    }
    units[unit_count++] = (unit_t){{path, who, how, op, k}, all};
}

/* A step of splitmix64. */
static unsigned long draw(void)
{
    unsigned long x = options.seed += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* Units of one kind of operation, which an undisturbed run does `count` times. */
static void add_kind(const path_t *path, const char *who, int op, int count)
{
    char copy[128], *save;
    /* Memory stays short where it is in the launcher, which has to speak for all. */
    bool stays = op == FAULT_malloc && strcmp(who, "launcher") == 0;
    snprintf(copy, sizeof(copy), "%s%s", hows[op], stays ? " ENOMEM+" : "");
    for (char *how = strtok_r(copy, " ", &save); how != NULL; how = strtok_r(NULL, " ", &save)) {
        how = strdup(how);
        for (int k = 1; k <= count; k++) {
            add_unit(path, who, op, how, k, false);
        }
        if (options.points == 0) { /* it may be more often */
            add_unit(path, who, op, how, count + 1, true);
        }
    }
}

static void add_units(const path_t *path)
{
    char *words = strdup(path->who), *save;
    for (char *who = strtok_r(words, " ", &save); who != NULL; who = strtok_r(NULL, " ", &save)) {
        static fault_state_t state;
        point_t none = {path, who, "kill", -1, 0};
        bool fired;
        double seconds;
        char why[2048];
        if (options.who != NULL && strcmp(who, options.who) != 0) {
            continue;
        }
        if (!fault_try(&none, &state, &fired, &seconds, why, sizeof(why))) {
            fprintf(stderr, "%s without a fault: %s\n", path->name, why);
            exit(1);
        }
        for (int op = 0; op < FAULT_OP_COUNT; op++) {
            if (options.op == NULL || strcmp(options.op, fault_op_names[op]) == 0) {
                add_kind(path, who, op, atomic_load(&state.counts[op]));
            }
        }
    }
}

/* Keep `options.points` of the units, each as likely as any other. */
static void draw_points(void)
{
    int keep = options.points < unit_count ? options.points : unit_count;
    for (int i = 0; i < keep; i++) {
        int j = i + (int)(draw() % (unsigned long)(unit_count - i));
        unit_t other = units[i];
        units[i] = units[j];
        units[j] = other;
    }
    printf("%d of %d points\n", keep, unit_count);
    unit_count = keep;
}

static int try_one(const path_t *path, const char *scratch)
{
    static fault_state_t state;
    char copy[128], *save, why[2048] = "";
    bool fired;
    double seconds;
    snprintf(copy, sizeof(copy), "%s", options.point);
    char *op = strtok_r(copy, ":", &save), *k = strtok_r(NULL, ":", &save);
    char *how = strtok_r(NULL, ":", &save);
    point_t point = {path, options.who, how, -1, k != NULL ? (int)strtol(k, NULL, 10) : 0};
    for (int i = 0; i < FAULT_OP_COUNT; i++) {
        point.op = strcmp(op, fault_op_names[i]) == 0 ? i : point.op;
    }
    if (point.op < 0 || how == NULL || options.who == NULL) {
        fprintf(stderr, "--point OPERATION:K:HOW wants --path and --who, too\n");
        return 2;
    }
    if (fault_own_shm()) {
        setenv("FAULT_OWN_SHM", "yes", 1);
    }
    bool good = fault_try(&point, &state, &fired, &seconds, why, sizeof(why));
    printf("%s after %.2f s, %s; see %s\n", good ? "good" : "FAILED", seconds,
           fired ? "reached" : "not reached", scratch);
    fflush(stdout);
    if (!good) {
        print_failure(&point, &state, why);
    }
    return good ? 0 : 1;
}

static void usage(FILE *out, int status)
{
    fprintf(out, "usage: WEFT_BUILD=FOLDER drive [-j N] [--path NAME] [--who launcher|0|1|2] [--op "
                 "OPERATION]\n"
                 "       WEFT_BUILD=FOLDER drive --points N [--seed S]\n"
                 "       WEFT_BUILD=FOLDER drive --path NAME --who WHO --point OPERATION:K:FAULT\n"
                 "Every point (an hour), about N of them, or one. Paths:");
    for (int i = 0; i < PATHS; i++) {
        fprintf(out, " %s", paths[i].name);
    }
    fprintf(out, "\n");
    exit(status);
}

static bool is_path(const char *name)
{
    for (int i = 0; i < PATHS; i++) {
        if (strcmp(paths[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void read_options(int argc, char **argv)
{
    options.seed = (unsigned long)time(NULL);
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
            usage(stdout, 0);
        }
        if (value == NULL) {
            usage(stderr, 2); /* not every point, which a word too many would begin */
        }
        if (strcmp(name, "--path") == 0) {
            options.path = value;
        } else if (strcmp(name, "--who") == 0) {
            options.who = value;
        } else if (strcmp(name, "--op") == 0) {
            options.op = value;
        } else if (strcmp(name, "--point") == 0) {
            options.point = value;
        } else if (strcmp(name, "--points") == 0) {
            options.points = (int)strtol(value, NULL, 10);
        } else if (strcmp(name, "--seed") == 0) {
            options.seed = strtoul(value, NULL, 10);
        } else if (strcmp(name, "-j") == 0) {
            options.jobs = (int)strtol(value, NULL, 10);
        } else {
            usage(stderr, 2);
        }
    }
    if ((options.path != NULL && !is_path(options.path)) ||
        (options.point != NULL && options.path == NULL)) {
        usage(stderr, 2);
    }
    if (options.points > 0) {
        printf("--seed %lu\n", options.seed);
    }
}

static int report(void)
{
    int tried = 0, failed = 0;
    for (int i = 0; i < PATHS; i++) {
        int t = atomic_load(&shared->tried[i]), f = atomic_load(&shared->failed[i]);
        if (t > 0 || f > 0) {
            printf("%-8s %6d points, %d failed\n", paths[i].name, t, f);
        }
        tried += t;
        failed += f;
    }
    printf("in all   %6d points, %d failed\n", tried, failed);
    return failed == 0 && tried > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    char scratch[512], folder[600];
    read_options(argc, argv);
    find_programs();
    snprintf(scratch, sizeof(scratch), "%s/test/faults/scratch.%d", getenv("WEFT_BUILD"),
             (int)getpid());
    make_inputs(scratch);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return 1;
    }
    snprintf(folder, sizeof(folder), "%s/first", scratch);
    fault_folder(folder, false);
    for (int i = 0; i < PATHS; i++) {
        if (options.path != NULL && strcmp(options.path, paths[i].name) != 0) {
            continue;
        }
        if (!fault_reference(&paths[i])) {
            return 1;
        }
        if (options.point != NULL && options.path != NULL) {
            return try_one(&paths[i], folder);
        }
        add_units(&paths[i]);
    }
    if (options.points > 0) {
        draw_points();
    }
    fflush(stdout);
    pid_t workers[64];
    options.jobs = options.jobs < 64 ? options.jobs : 64;
    for (int i = 0; i < options.jobs; i++) {
        workers[i] = fork();
        if (workers[i] == 0) {
            work(i, scratch);
            _exit(0);
        }
    }
    int status, bad = 0;
    for (int i = 0; i < options.jobs; i++) {
        bad |= waitpid(workers[i], &status, 0) != workers[i] || status != 0;
    }
    int result = report();
    if (bad != 0) {
        printf("a worker of this driver failed\n");
    }
    if (result == 0) {
        snprintf(folder, sizeof(folder), "rm -rf '%s'", scratch);
        return chdir("/") != 0 || system(folder) != 0 || bad != 0;
    }
    return 1;
}
