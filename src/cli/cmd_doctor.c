/* weft doctor: look for what makes this machine, its settings or a run slow or wrong. */
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <weft/weft.h>

#include "base/file.h"
#include "base/log.h"
#include "base/output.h"
#include "base/settings.h"
#include "boot/job.h"
#include "boot/launch.h"
#include "cli/commands.h"
#include "cli/ranks.h"
#include "comm/backends.h"
#include "device/cuda.h"
#include "doctor/doctor.h"
#include "doctor/trial.h"
#include "topo/result.h"

extern char **environ;

#define COMMAND "weft doctor"

typedef struct options {
    const char *level, *json, *trial, *root;
    int ranks;
    bool verbose, exports, list;
    char **typed;
    /* found out */
    weft_doctor_asked_t asked;
    weft_gpus_t gpus;
    weft_machine_t machine;
    char host[256], nccl[64];
} options_t;

/* ---- what only calls can tell ---------------------------------------------------------------- */

/* Hosts of the job that this process is started in, by what launchers say; 1 if nobody does. */
static int count_hosts(void)
{
    static const char *const names[] = {"SLURM_NNODES", "SLURM_JOB_NUM_NODES", "PBS_NUM_NODES",
                                        "GROUP_WORLD_SIZE"};
    const weft_job_t *job;
    int hosts = 1, value;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);
        if (text != NULL && weft__parse_int(text, &value) && value > hosts) {
            hosts = value;
        }
    }
    if (weft__job(&job) == WEFT_OK && job->local_size > 0 && job->size > job->local_size) {
        value = (job->size + job->local_size - 1) / job->local_size;
        hosts = value > hosts ? value : hosts;
    }
    return hosts;
}

static int resolves(const char *host)
{
    struct addrinfo *list = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int error = getaddrinfo(host, NULL, &hints, &list);
    if (error == 0) {
        freeaddrinfo(list);
    }
    return error == 0;
}

static void ask(options_t *o, weft_doctor_level_t level)
{
    weft_doctor_facts_t *facts = &o->asked.facts;
    struct statvfs shm;
    struct timex clock = {.modes = 0};
    char path[WEFT_PATH_BYTES], nccl[512] = "";
    bool here = o->root[0] == '\0'; /* else only files tell */
    *facts = (weft_doctor_facts_t){.shm_bytes = -1,
                                   .shm_free = -1,
                                   .clock_synchronised = -1,
                                   .name_resolves = -1,
                                   .module_cuda = -1,
                                   .host = o->host};
    gethostname(o->host, sizeof(o->host) - 1);
    snprintf(path, sizeof(path), "%s/dev/shm", o->root);
    if (statvfs(path, &shm) == 0) {
        facts->shm_bytes = (int64_t)shm.f_blocks * (int64_t)shm.f_frsize;
        facts->shm_free = (int64_t)shm.f_bavail * (int64_t)shm.f_frsize;
    }
    if (here && adjtimex(&clock) >= 0) {
        facts->clock_synchronised = (clock.status & STA_UNSYNC) == 0;
    }
    if (here && level >= WEFT_DOCTOR_STANDARD) {
        facts->name_resolves = resolves(o->host); /* a name server may take seconds */
    }
    if (o->gpus.count > 0) {
        facts->module_cuda = weft__cuda_module_version();
        weft__backend_named("nccl")->about(nccl, sizeof(nccl));
        bool there = nccl[0] >= '0' && nccl[0] <= '9';
        snprintf(o->nccl, sizeof(o->nccl), "%.63s", there ? nccl : "");
        facts->nccl = o->nccl;
    }
}

static weft_status_t read_gpus(options_t *o)
{
    const weft_gpu_source_t source = {.library = weft__settings()->nvml,
                                      .root = o->root,
                                      .visible = getenv("CUDA_VISIBLE_DEVICES"),
                                      .order = getenv("CUDA_DEVICE_ORDER"),
                                      .mps = getenv("CUDA_MPS_PIPE_DIRECTORY"),
                                      .health = true};
    return weft__gpus_read_from(&source, &o->gpus);
}

/* ---- looking --------------------------------------------------------------------------------- */

static weft_status_t write_json(const options_t *o, const weft_doctor_t *doctor)
{
    weft_result_t result;
    const weft_result_head_t head = {
        .kind = "doctor",
        .path = o->json,
        .command = o->typed,
        .machine = &o->machine,
        .ranks = doctor->ranks,
        .device = doctor->on_gpus ? "cuda" : "cpu",
        .device_name = doctor->on_gpus ? o->gpus.gpus[o->gpus.cuda[0]].name : "virtual GPU"};
    WEFT_TRY(weft__result_open(&result, &head));
    if (result.file != NULL) {
        weft__json_string(&result.json, "level", o->level);
        weft__doctor_json(doctor, &result.json);
    }
    return weft__result_close(&result, WEFT_OK);
}

static int report(const options_t *o, const weft_doctor_t *doctor)
{
    bool to_stdout = o->json != NULL && strcmp(o->json, "-") == 0;
    errno = 0;
    if (write_json(o, doctor) != WEFT_OK) {
        /* as main does for stdout: whoever left knows it */
        return errno == EPIPE ? 128 + SIGPIPE : weft__command_fail(COMMAND, weft_last_error());
    }
    if (o->exports) {
        weft__doctor_print_exports(doctor, stdout);
    } else if (!to_stdout) {
        weft__doctor_print(doctor, o->verbose, stdout);
    }
    bool found = weft__doctor_count(doctor, WEFT_FINDING_WARNING) +
                     weft__doctor_count(doctor, WEFT_FINDING_ERROR) >
                 0;
    return found && !o->exports ? WEFT_EXIT_FINDING : 0;
}

/* `trial`: what the ranks of a launcher found together, which the doctor takes over; NULL: none. */
static int look(options_t *o, weft_trial_t *trial)
{
    weft_doctor_t doctor;
    if (weft__doctor_init(&doctor, &o->asked) != WEFT_OK) {
        return weft__command_fail(COMMAND, weft_last_error());
    }
    int exit_status;
    if (trial != NULL && weft__trial_keep(&doctor, trial) == WEFT_OK) {
        *trial = (weft_trial_t){0};
    }
    if (weft__doctor_look(&doctor) != WEFT_OK) {
        exit_status = weft__command_fail(COMMAND, weft_last_error());
    } else {
        exit_status = report(o, &doctor);
    }
    weft__doctor_cleanup(&doctor);
    return exit_status;
}

static int prepare(options_t *o)
{
    if (read_gpus(o) != WEFT_OK) {
        return weft__command_fail(COMMAND, weft_last_error());
    }
    o->asked.gpus = &o->gpus;
    weft__machine_read(false, &o->machine);
    o->machine.gpus = o->gpus.cuda_count;
    if (o->gpus.cuda_count > 0) {
        snprintf(o->machine.gpu, sizeof(o->machine.gpu), "%s", o->gpus.gpus[o->gpus.cuda[0]].name);
    }
    ask(o, o->asked.level);
    return 0;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* As the child of another doctor: the ranks' findings go to stdout. */
static weft_status_t run_trial(void *ctx, weft_comm_h comm, int *exit_p)
{
    const options_t *o = ctx;
    weft_trial_t trial;
    weft_json_t json;
    int rank;
    (void)exit_p;
    WEFT_TRY(weft_comm_rank(comm, &rank));
    WEFT_TRY(weft__trial_run(comm, strcmp(o->trial, "threads") == 0,
                             o->asked.level == WEFT_DOCTOR_THOROUGH, &trial));
    weft_status_t status = WEFT_OK;
    if (rank == 0) {
        weft__json_start(&json, stdout);
        json.compact = true;
        weft__json_object(&json, NULL);
        weft__trial_write(&trial, &json);
        weft__json_end(&json);
        status = weft__json_finish(&json);
    }
    weft__trial_free(&trial);
    return status;
}

/* As a rank of a launcher: all try communication, rank 0 looks at the rest, and says so. */
static weft_status_t run_rank(void *ctx, weft_comm_h comm, int *exit_p)
{
    options_t *o = ctx;
    weft_trial_t trial;
    int rank, *shared = NULL;
    WEFT_TRY(weft_comm_rank(comm, &rank));
    WEFT_TRY(weft__trial_run(comm, false, o->asked.level == WEFT_DOCTOR_THOROUGH, &trial));
    if (rank == 0) {
        *exit_p = look(o, &trial);
    }
    weft__trial_free(&trial);
    WEFT_TRY(weft_malloc((void **)&shared, sizeof(int)));
    weft_status_t status = weft_memcpy(shared, exit_p, sizeof(int), NULL);
    status = status == WEFT_OK ? weft_broadcast(shared, shared, 1, WEFT_I32, 0, comm, NULL)
                               : status;
    status = status == WEFT_OK ? weft_memcpy(exit_p, shared, sizeof(int), NULL) : status;
    weft_free(shared);
    return status;
}

static void prepare_rank(void *ctx)
{
    options_t *o = ctx;
    if (prepare(o) != 0) {
        o->asked.gpus = &o->gpus; /* none */
    }
}

static int run_ranks(options_t *o)
{
    const weft_ranks_t ranks = {.name = COMMAND,
                                .ranks = o->ranks > 0 ? o->ranks : 2,
                                .asked = o->ranks,
                                .threads = o->trial != NULL && strcmp(o->trial, "threads") == 0,
                                .bind = true,
                                .typed = o->typed,
                                .prepare = o->trial != NULL ? NULL : prepare_rank,
                                .run = o->trial != NULL ? run_trial : run_rank,
                                .ctx = o};
    return weft__ranks_run(&ranks);
}

static void on_signal(int number)
{
    int error = errno;
    weft__command_tell_signal(COMMAND, number, "ended before everything was looked at");
    weft__command_die_of(number);
    errno = error;
}

/* One that our caller ignores stays ignored. */
static void catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct sigaction old;
        sigaction(signals[i], NULL, &old);
        if (old.sa_handler != SIG_IGN) {
            sigaction(signals[i], &action, NULL);
        }
    }
}

static int look_around(options_t *o)
{
    const weft_job_t *job;
    if (weft__job(&job) != WEFT_OK) {
        return weft__command_refuse(COMMAND, "%s", weft_last_error());
    }
    bool is_rank = strcmp(job->launcher, "none") != 0;
    o->asked.root = o->root;
    o->asked.environment = environ;
    o->asked.ranks = is_rank ? job->local_size : o->ranks;
    o->asked.hosts = count_hosts();
    o->asked.launcher = is_rank ? (int)getppid() : 0;
    o->asked.machine = o->asked.run == NULL;
    o->asked.self = is_rank || o->root[0] != '\0' ? NULL : WEFT_LAUNCH_SELF;
    if (o->trial != NULL ||
        (is_rank && o->asked.run == NULL && o->asked.level > WEFT_DOCTOR_QUICK)) {
        return run_ranks(o);
    }
    if (!is_rank) {
        catch_signals(); /* of ranks the launcher speaks */
    }
    if (is_rank && job->rank != 0) {
        return 0; /* there is nothing to do together */
    }
    int exit_status = prepare(o);
    if (exit_status == 0) {
        exit_status = look(o, NULL);
    }
    return exit_status;
}

static int start(void *ctx, const weft_args_found_t *found, char **typed)
{
    options_t *o = ctx;
    o->typed = typed;
    if (found->count > 1) {
        return weft__command_refuse(COMMAND, "one run at a time");
    }
    if (!weft__doctor_level(o->level, &o->asked.level)) {
        return weft__command_refuse(COMMAND, "--level is quick, standard or thorough");
    }
    if (o->json != NULL && o->exports) {
        return weft__command_refuse(
            COMMAND, "--exports prints lines for a shell, and --json has them too: take one");
    }
    if (o->list) {
        weft__doctor_list(stdout);
        return 0;
    }
    if (o->json != NULL && weft__output_check(o->json) != WEFT_OK) {
        return weft__command_fail(COMMAND, weft_last_error());
    }
    o->asked.run = found->count > 0 ? found->positionals[0] : NULL;
    return look_around(o);
}

int weft__cmd_doctor(int argc, char **argv)
{
    options_t o = {.level = "standard", .root = ""};
    const weft_arg_t options[] = {
        {"level", 'l', WEFT_ARG_STR, "LEVEL", &o.level,
         "quick: files and the driver alone, under a second; standard: tries communication too, "
         "under a minute; thorough: with more ranks and sizes (default standard)"},
        {"ranks", 'n', WEFT_ARG_INT, "N", &o.ranks,
         "ranks that a job is to have on this host (default: one for each GPU, or core)"},
        {"json", 0, WEFT_ARG_FILE, "FILE", &o.json,
         "write all of it to FILE as JSON; -: to stdout, instead of the text"},
        {"exports", 'e', WEFT_ARG_FLAG, NULL, &o.exports,
         "print only the lines for a shell that this machine recommends: eval \"$(weft doctor -e "
         "-l quick)\""},
        {"verbose", 'v', WEFT_ARG_FLAG, NULL, &o.verbose, "also list what is fine"},
        {"list", 0, WEFT_ARG_FLAG, NULL, &o.list, "list all checks and look at nothing"},
        {"trial", 0, WEFT_ARG_STR, "KIND", &o.trial, NULL},
        {"root", 0, WEFT_ARG_STR, "DIR", &o.root, NULL},
    };
    static const weft_arg_range_t ranges[] = {{"ranks", 1, WEFT_MAX_RANKS}};
    static const weft_arg_words_t words[] = {{NULL, "@folders", NULL},
                                             {"level", NULL, weft__doctor_level_word}};
    const weft_args_t args = {
        .command = COMMAND,
        .synopsis = "[RUN] [OPTION]...",
        .text = "Look for what makes this machine, its settings or the run in folder RUN slow or "
                "wrong. Each finding says what it is, what was seen, what it costs and how to fix "
                "it. Nothing is changed, and root is not needed.",
        .footer = "The status is 3 if there are warnings or errors, 0 if there are none.\n"
                  "docs/doctor.md explains every check.\n\n"
                  "examples:\n"
                  "  weft doctor\n"
                  "  weft doctor --level quick -n 8 --json doctor.json\n"
                  "  weft doctor run",
        .options = options,
        .count = (int)(sizeof(options) / sizeof(options[0])),
        .ranges = ranges,
        .range_count = (int)(sizeof(ranges) / sizeof(ranges[0])),
        .words = words,
        .words_count = (int)(sizeof(words) / sizeof(words[0])),
    };
    int exit_status = weft__command_run(&args, argc, argv, start, &o);
    weft__gpus_cleanup(&o.gpus);
    return exit_status;
}
