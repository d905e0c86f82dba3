/* Tries a point, and judges how it ended:
 *
 *   status 0        the work is done, and right: the lines, or the files, of an undisturbed run
 *   another status  a sentence on stderr says why; nobody crashed
 *   either way      no process, no shared memory and no temporary file is left; a process that died
 *                   may leave some in its run folder, and the next run removes them
 *   training        going on from what is there ends in the weights of the undisturbed run; a
 *                   checkpoint that was said to be saved, or a later one, is where it goes on
 *                   from */
#include "faults/drive.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINES 256

static bool say(char *why, size_t size, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why, size, format, list);
    va_end(list);
    return false;
}

/* A command of this file, in the folder of the run. */
static bool shell(const char *format, ...)
{
    char command[1000];
    va_list list;
    va_start(list, format);
    vsnprintf(command, sizeof(command), format, list);
    va_end(list);
    return system(command) == 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The lines of `text`, sorted, into `out`. Of training only those that say how the loss went. */
static void sort_lines(const char *text, bool trains, char *out)
{
    static char copy[TEXT_BYTES];
    char *lines[LINES], *save;
    int count = 0;
    snprintf(copy, sizeof(copy), "%s", text);
    for (char *line = strtok_r(copy, "\n", &save); line != NULL && count < LINES;
         line = strtok_r(NULL, "\n", &save)) {
        if (!trains || strncmp(line, "  loss", 6) == 0 || strncmp(line, "  val", 5) == 0) {
            lines[count++] = line;
        }
    }
    qsort(lines, (size_t)count, sizeof(lines[0]), by_text);
    out[0] = '\0';
    for (int i = 0; i < count; i++) {
        size_t used = strlen(out);
        snprintf(out + used, TEXT_BYTES - used, "%s\n", lines[i]);
    }
}

/* Names of all files under `folder`, a line each, less what each run on another machine or from
 * another step adds, and perhaps less the checkpoint of step 2. */
static void list_folder(const char *folder, char *out, bool but_earlier)
{
    char command[700];
    snprintf(command, sizeof(command),
             "[ ! -e %s ] || (cd %s && find . ! -name 'machine-*' %s | sort)", folder, folder,
             but_earlier ? "! -path './step-000002*'" : "");
    FILE *pipe = popen(command, "r");
    size_t got = pipe == NULL ? 0 : fread(out, 1, TEXT_BYTES - 1, pipe);
    out[got] = '\0';
    if (pipe != NULL) {
        pclose(pipe);
    }
}

/* A file in `folder` that no run leaves there when it ends by itself, or NULL. Folders of
 * checkpoints and what is in them have their names; tokens are in a hidden folder. */
static const char *strange(const char *names)
{
    static char copy[TEXT_BYTES];
    char *save;
    snprintf(copy, sizeof(copy), "%s", names);
    for (char *name = strtok_r(copy, "\n", &save); name != NULL;
         name = strtok_r(NULL, "\n", &save)) {
        const char *last = strrchr(name, '/');
        bool tokens = strncmp(name, "./tokens/.tokens-", 17) == 0 && strlen(name) <= 17 + 16 + 17;
        if ((last != NULL && last[1] == '.' && !tokens) || strstr(name, ".tmp") != NULL ||
            strstr(name, "fresh") != NULL) {
            return name;
        }
    }
    return NULL;
}

static bool nothing_left(const ended_t *ended, char *why, size_t size)
{
    static char names[TEXT_BYTES];
    if (ended->left[0] != '\0') {
        return say(why, size, "processes are left:%s", ended->left);
    }
    for (int i = 0; i < 2; i++) {
        list_folder(i == 0 ? "tmp" : "/dev/shm", names, false);
        if (strcmp(names, ".\n") != 0 && (i == 0 || getenv("FAULT_OWN_SHM") != NULL)) {
            return say(why, size, "files are left in %s: %.200s", i == 0 ? "TMPDIR" : "/dev/shm",
                       names);
        }
    }
    return true;
}

static bool crashed(const ended_t *ended)
{
    static const char *const words[] = {"Segmentation", "SIGSEGV", "SIGABRT",
                                        "SIGBUS",       "SIGFPE",  "corrupted"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strstr(ended->err, words[i]) != NULL) {
            return true;
        }
    }
    return ended->status == 139 || ended->status == 134 || ended->status == 135 ||
           ended->status == 136;
}

/* Whether somebody said what happened: the system's word for the error, or one of ours that means
 * the same. */
static bool names_matter(const point_t *point, const ended_t *ended)
{
    static const struct {
        const char *how, *words[5];
    } said[] = {
        {"kill", {"SIGKILL", "died", "is gone", "has ended"}},
        {"ENOMEM", {"memory", "Memory", "no room"}},
        {"ENOSPC", {"No space left", "no room", "cannot give", "no memory"}},
        {"EMFILE", {"Too many open files", "open files"}},
        {"EIO", {"Input/output error"}},
        {"EAGAIN", {"temporarily unavailable", "in use", "another process"}},
        {"EACCES", {"Permission denied", "may not read"}},
        {"EPIPE", {"Broken pipe", "closed"}},
        {"ECONNRE", {"Connection re", "closed"}},
        {"ETIMEDOUT", {"timed out"}},
        {"EADDRINUSE", {"in use"}},
        {"ENOSYS", {"not implemented"}},
        {"end", {"closed", "gone", "ended", "too short"}},
    };
    /* Of a line that was not printed, when later ones were, the C library keeps no reason. */
    if (point->op == FAULT_stdio &&
        strstr(ended->err, "to stdout: some of the output is lost") != NULL) {
        return true;
    }
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        if (strncmp(point->how, said[i].how, strlen(said[i].how)) == 0) {
            for (int j = 0; j < 5 && said[i].words[j] != NULL; j++) {
                if (strstr(ended->err, said[i].words[j]) != NULL) {
                    return true;
                }
            }
            return false;
        }
    }
    return false; /* a short write, or an interrupted call, is no reason to fail */
}

/* The files of the last checkpoint are those of the undisturbed run. */
static bool same_weights(const path_t *path)
{
    return shell("for file in ../%s/latest/*.safetensors; do "
                 "cmp -s \"$file\" run/latest/\"${file##*/}\" || exit 1; done",
                 path->name);
}

/* `more`: there may be the checkpoint of step 2 too, which only the next one to be saved
 * removes. */
static bool whole_run(const path_t *path, const char *when, bool more, char *why, size_t size)
{
    static char names[TEXT_BYTES];
    list_folder("run", names, more);
    if (strcmp(names, path->listing) != 0) {
        return say(why, size, "%s the run folder has other files than an undisturbed run's: %s",
                   when, strange(names) != NULL ? strange(names) : "see run");
    }
    return same_weights(path) ? true
                              : say(why, size, "%s the weights are not an undisturbed run's", when);
}

/* The arguments of `path` in `args`, to go on from what is there. */
static void arguments(const path_t *path, bool again, const char **args)
{
    int count = 0;
    for (; path->args[count] != NULL; count++) {
        args[count] = path->args[count];
    }
    if (again && !path->resumes) {
        args[count++] = "--resume";
        args[count++] = "auto";
    }
    args[count] = NULL;
}

static int saved_step(const char *out)
{
    int step = 0;
    for (const char *at = out; (at = strstr(at, "saved step ")) != NULL; at++) {
        step = (int)strtol(at + 11, NULL, 10);
    }
    return step;
}

/* The step that `latest` leads to; 0: none. */
static int latest_step(void)
{
    char name[64] = "";
    ssize_t length = readlink("run/latest", name, sizeof(name) - 1);
    return length > 5 ? (int)strtol(name + 5, NULL, 10) : 0;
}

/* After a run that failed or died: what is saved is whole, and training goes on from there. */
static bool goes_on(const point_t *point, const ended_t *ended, char *why, size_t size)
{
    static char names[TEXT_BYTES];
    static ended_t again;
    const char *args[MOST_ARGS];
    bool died = strcmp(point->how, "kill") == 0 || strstr(ended->err, "SIGKILL") != NULL ||
                strstr(ended->err, "had to be") != NULL;
    int saved = saved_step(ended->out);
    saved = saved < 2 && point->path->resumes ? 2 : saved;
    list_folder("run", names, false);
    if (!died && strange(names) != NULL) {
        return say(why, size, "run/%s is left", strange(names));
    }
    if (latest_step() < saved) {
        return say(why, size, "step %d was saved, and the last checkpoint is of step %d", saved,
                   latest_step());
    }
    if (!shell("mv out out.fault && mv err err.fault")) { /* for whoever looks into this by hand */
        return say(why, size, "cannot move a file");
    }
    arguments(point->path, true, args);
    fault_command(args, NULL, NULL, &again);
    if (again.status != 0) {
        return say(why, size, "going on fails with status %d: %.300s", again.status, again.err);
    }
    if (saved > 0 && strstr(again.out, "(1 to ") != NULL) {
        return say(why, size, "step %d was saved, and training began anew", saved);
    }
    bool nothing = strstr(again.out, "nothing to do") != NULL; /* it has saved nothing */
    return whole_run(point->path, "after going on", nothing, why, size);
}

static bool judge(const point_t *point, bool fired, const ended_t *ended, char *why, size_t size)
{
    static char lines[TEXT_BYTES];
    if (ended->hung) {
        return say(why, size, "it hangs; stderr: %.300s", ended->err);
    }
    if (!nothing_left(ended, why, size)) {
        return false;
    }
    if (crashed(ended)) {
        return say(why, size, "somebody crashed: %.300s", ended->err);
    }
    if (!fired && ended->status != 0) {
        return say(why, size, "status %d without a fault: %.300s", ended->status, ended->err);
    }
    if (ended->status != 0 && !ended->struck && !names_matter(point, ended)) {
        return say(why, size, "status %d without a sentence that names it: %.300s", ended->status,
                   ended->err);
    }
    if (ended->status == 0) {
        sort_lines(ended->out, point->path->trains, lines);
        if (strcmp(lines, point->path->expected) != 0) {
            return say(why, size, "status 0, and it printed '%.200s', not '%.200s'; stderr: %.200s",
                       lines, point->path->expected, ended->err);
        }
        if (point->path->trains) {
            return whole_run(point->path, "status 0, and", false, why, size);
        }
    }
    return ended->status == 0 || !point->path->trains || goes_on(point, ended, why, size);
}

/* The folder as it is before `path` runs. */
static void prepare(const path_t *path)
{
    if (!shell("rm -rf run tmp cache && mkdir tmp cache") ||
        (path->resumes && !shell("cp -a ../%s-2 run", path->name))) {
        perror("rm or cp");
        exit(1);
    }
}

bool fault_try(const point_t *point, fault_state_t *state_p, bool *fired_p, double *seconds_p,
               char *why, size_t size)
{
    static ended_t ended;
    const char *args[MOST_ARGS];
    prepare(point->path);
    arguments(point->path, false, args);
    fault_command(args, point, state_p, &ended);
    *fired_p = atomic_load(&state_p->fired) > 0;
    *seconds_p = ended.seconds;
    return judge(point, *fired_p, &ended, why, size);
}

/* Run `args`, and keep its run folder under another name. */
static bool keep(const path_t *path, const char *const *args, const char *suffix, ended_t *ended)
{
    fault_command(args, NULL, NULL, ended);
    if (ended->status != 0) {
        fprintf(stderr, "%s: status %d without a fault: %s", path->name, ended->status, ended->err);
        return false;
    }
    return !path->trains ||
           shell("rm -rf ../%s%s && cp -a run ../%s%s", path->name, suffix, path->name, suffix);
}

bool fault_reference(path_t *path)
{
    static ended_t ended;
    static char text[TEXT_BYTES];
    const char *args[MOST_ARGS];
    int count = 0;
    if (!shell("rm -rf run tmp cache && mkdir tmp cache")) {
        return false;
    }
    if (path->resumes) { /* first a run of two steps; going on is compared with one that never
                            stopped */
        for (; path->args[count] != NULL && strcmp(path->args[count], "--resume") != 0; count++) {
            args[count] = path->args[count];
        }
        args[count] = NULL;
        if (!keep(path, args, "", &ended) || !shell("rm -r run")) {
            return false;
        }
        args[count] = "--steps";
        args[count + 1] = "2";
        args[count + 2] = NULL;
        if (!keep(path, args, "-2", &ended)) {
            return false;
        }
    }
    arguments(path, false, args);
    if (path->resumes) {
        fault_command(args, NULL, NULL, &ended);
    } else if (!keep(path, args, "", &ended)) {
        return false;
    }
    sort_lines(ended.out, path->trains, text);
    path->expected = strdup(text);
    list_folder("run", text, false);
    path->listing = strdup(text);
    if (path->trains && (ended.status != 0 || !same_weights(path))) {
        fprintf(stderr, "%s: an undisturbed run has status %d, or other weights\n%s", path->name,
                ended.status, ended.err);
        return false;
    }
    return true;
}
