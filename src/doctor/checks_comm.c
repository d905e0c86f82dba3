/* Communication on every backend that can be had here. Ranks are started as `weft doctor --trial`
 * in processes of their own (trial.h says what they do), so that what crashes or hangs there is
 * seen here, and told. */
#define _GNU_SOURCE 1 /* memfd_create */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "boot/job.h"
#include "doctor/checks.h"
#include "doctor/look.h"
#include "doctor/trial.h"

#define LIMIT_MS 13000 /* four of them in a minute */
#define LIMIT_THOROUGH_MS 120000
#define GRACE_MS 4000
#define OUTPUT_MOST ((size_t)1 << 20)
#define SETTINGS_MOST 8

/* How the ranks of one try are started. */
typedef struct attempt {
    const char *what; /* "shm" */
    bool threads;
    int ranks;
    const char *settings[SETTINGS_MOST]; /* NAME=VALUE, ended by NULL */
} attempt_t;

/* ---- starting -------------------------------------------------------------------------------- */

/* The doctor's environment with the attempt's settings in place of its own; the array is the
 * caller's to free, the texts are not. */
static char **make_environment(const weft_doctor_t *doctor, const attempt_t *attempt)
{
    size_t count = 0, used = 0;
    char *const *given = doctor->asked.environment;
    while (given[count] != NULL) {
        count++;
    }
    char **list = calloc(count + SETTINGS_MOST + 1, sizeof(*list));
    for (size_t i = 0; list != NULL && i < count; i++) {
        bool replaced = false;
        for (int k = 0; attempt->settings[k] != NULL; k++) {
            size_t length = strcspn(attempt->settings[k], "=") + 1;
            replaced |= strncmp(given[i], attempt->settings[k], length) == 0;
        }
        if (!replaced) {
            list[used++] = given[i];
        }
    }
    for (int k = 0; list != NULL && attempt->settings[k] != NULL; k++) {
        list[used++] = (char *)(uintptr_t)attempt->settings[k]; /* execve does not change them */
    }
    return list;
}

static pid_t start(const weft_doctor_t *doctor, const attempt_t *attempt, char **environment,
                   const int outputs[2])
{
    char self[] = "weft", doctor_word[] = "doctor", trial[] = "--trial", level[] = "--level",
         number[] = "-n", ranks[16], threads[] = "threads", processes[] = "processes",
         thorough[] = "thorough", standard[] = "standard";
    snprintf(ranks, sizeof(ranks), "%d", attempt->ranks);
    char *argv[] = {self,   doctor_word,
                    trial,  attempt->threads ? threads : processes,
                    number, ranks,
                    level,  doctor->asked.level == WEFT_DOCTOR_THOROUGH ? thorough : standard,
                    NULL};
    pid_t parent = getpid(), pid = fork();
    if (pid != 0) {
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* the launcher there ends its ranks */
    if (getppid() != parent || dup2(outputs[0], STDOUT_FILENO) < 0 ||
        dup2(outputs[1], STDERR_FILENO) < 0) {
        _exit(126);
    }
    execve(doctor->asked.self, argv, environment);
    _exit(127);
}

/* Wait for its end; true if it came in time. */
static bool await(pid_t pid, int limit_ms, int *status_p)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    uint64_t end = weft__now_ns() + (uint64_t)limit_ms * 1000000;
    for (;;) {
        pid_t ended = waitpid(pid, status_p, WNOHANG);
        if (ended == pid) {
            return true;
        }
        if ((ended < 0 && errno != EINTR) || weft__now_ns() > end) {
            return false;
        }
        nanosleep(&nap, NULL);
    }
}

static bool finish(pid_t pid, int limit_ms, int *status_p)
{
    if (await(pid, limit_ms, status_p)) {
        return true;
    }
    kill(pid, SIGTERM);
    if (!await(pid, GRACE_MS, status_p)) {
        kill(pid, SIGKILL);
        waitpid(pid, status_p, 0);
    }
    return false;
}

/* What was written to a memfd; the doctor's. */
static const char *take_output(weft_doctor_t *doctor, int fd, size_t *size_p)
{
    char *text = malloc(OUTPUT_MOST + 1);
    ssize_t got = text != NULL ? pread(fd, text, OUTPUT_MOST, 0) : -1;
    *size_p = got > 0 ? (size_t)got : 0;
    if (text != NULL) {
        text[*size_p] = '\0';
    }
    const char *kept = weft__doctor_keep(doctor, text);
    return kept != NULL ? kept : "";
}

/* The first line that is not a log line, or the first. */
static const char *first_line(weft_doctor_t *doctor, const char *text)
{
    const char *best = text;
    for (const char *at = text; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        if (*at != '[' && *at != '\n') {
            best = at;
            break;
        }
    }
    return weft__doctor_text(doctor, "%.*s", (int)strcspn(best, "\n"), best);
}

/* ---- judging --------------------------------------------------------------------------------- */

static void judge_sums(weft_doctor_t *doctor, const weft_trial_t *trial)
{
    if (trial->wrong > 0) {
        weft__doctor_add(
            doctor, WEFT_FINDING_ERROR,
            weft__doctor_text(doctor, "%d ranks compute wrong results over %s", trial->ranks,
                              trial->backend),
            weft__doctor_text(doctor, "%lld of %lld elements are wrong, first in %s",
                              (long long)trial->wrong, (long long)trial->tests, trial->first),
            "training goes wrong without a word",
            "do not use this machine; test its memory (memtest86+, nvidia-smi -q -d ECC), and turn "
            "overclocking off");
    }
}

static void fail(weft_doctor_t *doctor, const attempt_t *attempt, const char *evidence)
{
    weft__doctor_add(
        doctor, WEFT_FINDING_ERROR,
        weft__doctor_text(doctor, "%d %s cannot communicate over %s", attempt->ranks,
                          attempt->threads ? "threads" : "processes", attempt->what),
        evidence, "jobs fail when they start",
        weft__doctor_text(doctor,
                          "the sentence says what is missing; WEFT_LOG=info weft bench "
                          "allreduce -n %d shows more",
                          attempt->ranks));
}

static void judge_output(weft_doctor_t *doctor, const attempt_t *attempt, const char *out,
                         size_t size)
{
    weft_json_doc_t doc;
    weft_trial_t trial;
    if (weft__json_parse(out, size, "the ranks' output", &doc) != WEFT_OK) {
        fail(doctor, attempt, weft__doctor_text(doctor, "%s", weft_last_error()));
        return;
    }
    weft_status_t status = weft__trial_read(doc.root, &trial);
    weft__json_free(&doc);
    if (status != WEFT_OK) {
        fail(doctor, attempt, weft__doctor_text(doctor, "%s", weft_last_error()));
        return;
    }
    judge_sums(doctor, &trial);
    if (weft__trial_keep(doctor, &trial) != WEFT_OK) {
        doctor->no_memory = true;
        weft__trial_free(&trial);
    }
}

static const char *try_it(weft_doctor_t *doctor, const attempt_t *attempt)
{
    int limit = doctor->asked.level == WEFT_DOCTOR_THOROUGH ? LIMIT_THOROUGH_MS : LIMIT_MS;
    int outputs[2] = {memfd_create("weft-doctor-out", MFD_CLOEXEC),
                      memfd_create("weft-doctor-err", MFD_CLOEXEC)};
    char **environment = make_environment(doctor, attempt);
    pid_t pid = -1;
    int status = 0;
    size_t size = 0, said = 0;
    if (outputs[0] >= 0 && outputs[1] >= 0 && environment != NULL) {
        pid = start(doctor, attempt, environment, outputs);
    }
    if (pid < 0) {
        fail(doctor, attempt,
             weft__doctor_text(doctor, "no process could be started: %s", strerror(errno)));
    } else {
        bool in_time = finish(pid, limit, &status);
        const char *out = take_output(doctor, outputs[0], &size);
        const char *err = first_line(doctor, take_output(doctor, outputs[1], &said));
        if (!in_time) {
            fail(doctor, attempt,
                 weft__doctor_text(doctor, "they had not ended after %d s%s%s", limit / 1000,
                                   err[0] != '\0' ? "; they said: " : "", err));
        } else if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            judge_output(doctor, attempt, out, size);
        } else {
            fail(doctor, attempt,
                 err[0] != '\0' ? err
                                : weft__doctor_text(doctor,
                                                    "they ended with status 0x%x, without "
                                                    "a word",
                                                    status));
        }
    }
    free(environment);
    close(outputs[0]);
    close(outputs[1]);
    return NULL;
}

/* ---- the backends ---------------------------------------------------------------------------- */

#define BY_LAUNCHER "a launcher has started this: its own ranks were tried"

/* Has the job that this process belongs to tried this backend? Then that is what counts. */
static bool was_tried(weft_doctor_t *doctor, const char *backend, bool threads)
{
    for (int i = 0; i < doctor->trial_count; i++) {
        const weft_trial_t *trial = &doctor->trials[i];
        if (strcmp(trial->backend, backend) == 0 && trial->threads == threads) {
            judge_sums(doctor, trial);
            return true;
        }
    }
    return false;
}

static int few_ranks(const weft_doctor_t *doctor)
{
    return doctor->asked.ranks > 0 ? doctor->asked.ranks
           : doctor->ranks < 2     ? 2
           : doctor->ranks > 4     ? 4
                                   : doctor->ranks;
}

const char *weft__check_comm_processes(weft_doctor_t *doctor)
{
    const attempt_t attempt = {.what = "shm",
                               .ranks = few_ranks(doctor),
                               .settings = {"WEFT_DEVICE=cpu", "WEFT_TIMEOUT=10", NULL}};
    if (was_tried(doctor, "shm", false)) {
        return NULL;
    }
    return doctor->asked.self != NULL ? try_it(doctor, &attempt) : BY_LAUNCHER;
}

const char *weft__check_comm_threads(weft_doctor_t *doctor)
{
    const attempt_t attempt = {.what = "shm",
                               .threads = true,
                               .ranks = few_ranks(doctor),
                               .settings = {"WEFT_DEVICE=cpu", "WEFT_TIMEOUT=10", NULL}};
    return doctor->asked.self != NULL ? try_it(doctor, &attempt) : BY_LAUNCHER;
}

/* Why ranks on GPUs are not tried; NULL: they are. */
static const char *no_gpus(const weft_doctor_t *doctor)
{
    const weft_gpus_t *gpus = doctor->asked.gpus;
    return gpus->count == 0                       ? "there is no GPU"
           : !doctor->on_gpus                     ? "CUDA shows no GPU, or WEFT_DEVICE is cpu"
           : doctor->asked.facts.module_cuda <= 0 ? "there is no CUDA module"
                                                  : NULL;
}

const char *weft__check_comm_cuda(weft_doctor_t *doctor)
{
    const attempt_t attempt = {
        .what = "cuda",
        .ranks = doctor->ranks,
        .settings = {"WEFT_DEVICE=cuda", "WEFT_ENGINE=weft", "WEFT_TIMEOUT=10", NULL}};
    if (was_tried(doctor, "cuda", false)) {
        return NULL;
    }
    const char *why = no_gpus(doctor);
    if (why != NULL || doctor->asked.self == NULL) {
        return why != NULL ? why : BY_LAUNCHER;
    }
    if (doctor->ranks > doctor->asked.gpus->cuda_count && doctor->asked.gpus->mps == 0) {
        return "ranks would share GPUs, and MPS is off (gpu-mps)";
    }
    for (int i = 0; i < doctor->asked.gpus->count * doctor->asked.gpus->count; i++) {
        if (i / doctor->asked.gpus->count != i % doctor->asked.gpus->count &&
            doctor->asked.gpus->pairs[i].access[WEFT_ACCESS_READ] == 0) {
            return "GPUs do not reach each other's memory (gpu-peer)";
        }
    }
    return try_it(doctor, &attempt);
}

const char *weft__check_comm_nccl(weft_doctor_t *doctor)
{
    int gpus = doctor->asked.gpus->cuda_count;
    const attempt_t attempt = {
        .what = "nccl",
        .ranks = doctor->ranks < gpus ? doctor->ranks : gpus,
        .settings = {"WEFT_DEVICE=cuda", "WEFT_ENGINE=nccl", "WEFT_TIMEOUT=10", NULL}};
    if (was_tried(doctor, "nccl", false)) {
        return NULL;
    }
    const char *why = no_gpus(doctor);
    if (why != NULL || doctor->asked.self == NULL) {
        return why != NULL ? why : BY_LAUNCHER;
    }
    if (doctor->asked.facts.nccl == NULL || doctor->asked.facts.nccl[0] == '\0') {
        return "there is no NCCL";
    }
    return try_it(doctor, &attempt);
}

const char *weft__check_comm_many(weft_doctor_t *doctor)
{
    int many = 2 * doctor->ranks > 16 ? 2 * doctor->ranks : 16;
    const attempt_t attempt = {.what = "shm",
                               .ranks = many > WEFT_MAX_RANKS ? WEFT_MAX_RANKS : many,
                               .settings = {"WEFT_DEVICE=cpu", "WEFT_TIMEOUT=60", NULL}};
    return doctor->asked.self != NULL ? try_it(doctor, &attempt) : BY_LAUNCHER;
}

/* ---- between ranks --------------------------------------------------------------------------- */

const char *weft__check_versions(weft_doctor_t *doctor)
{
    if (doctor->trial_count == 0) {
        return "no ranks have answered";
    }
    for (int i = 0; i < doctor->trial_count; i++) {
        const weft_trial_t *trial = &doctor->trials[i];
        const weft_trial_rank_t *first = &trial->list[0];
        for (int r = 1; r < trial->ranks; r++) {
            const weft_trial_rank_t *rank = &trial->list[r];
            const struct {
                const char *what, *one, *other;
            } pairs[] = {{"Weft", first->weft, rank->weft},
                         {"the NVIDIA driver", first->driver, rank->driver},
                         {"NCCL", first->nccl, rank->nccl}};
            for (size_t k = 0; k < sizeof(pairs) / sizeof(pairs[0]); k++) {
                if (strcmp(pairs[k].one, pairs[k].other) != 0) {
                    weft__doctor_add(
                        doctor, k == 1 ? WEFT_FINDING_WARNING : WEFT_FINDING_ERROR,
                        weft__doctor_text(doctor, "ranks have different versions of %s",
                                          pairs[k].what),
                        weft__doctor_text(doctor, "rank 0 on %s: %s; rank %d on %s: %s",
                                          first->name, pairs[k].one, r, rank->name, pairs[k].other),
                        "they may not understand each other: hangs, wrong sums, or slower ways",
                        "install the same on all hosts, or set LD_LIBRARY_PATH, WEFT_NCCL and PATH "
                        "alike");
                    return NULL;
                }
            }
        }
    }
    return NULL;
}

#define APART_US 100000

const char *weft__check_clocks(weft_doctor_t *doctor)
{
    bool several = false;
    for (int i = 0; i < doctor->trial_count; i++) {
        const weft_trial_t *trial = &doctor->trials[i];
        const weft_trial_rank_t *first = &trial->list[0];
        for (int r = 1; r < trial->ranks; r++) {
            const weft_trial_rank_t *rank = &trial->list[r];
            int64_t apart = rank->clock_us - first->clock_us;
            several |= rank->host != first->host;
            if (rank->host != first->host && (apart > APART_US || apart < -APART_US)) {
                weft__doctor_add(
                    doctor, WEFT_FINDING_WARNING, "the clocks of hosts are apart",
                    weft__doctor_text(doctor, "after a barrier %s is %.3f s %s %s", rank->name,
                                      (double)(apart < 0 ? -apart : apart) / 1e6,
                                      apart < 0 ? "behind" : "ahead of", first->name),
                    "logs and traces of hosts do not fit together; make and tar complain about "
                    "shared files",
                    "start chronyd or systemd-timesyncd on all hosts");
                return NULL;
            }
        }
    }
    return several ? NULL : "all ranks are on one host";
}
