/* weft train: train a model on this host's devices. Starts its own ranks, unless it is one. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <weft/weft.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/signal_name.h"
#include "boot/job.h"
#include "boot/launch.h"
#include "cli/commands.h"
#include "cli/rank.h"
#include "cli/train_benchmark.h"
#include "model/config.h"
#include "serve/generate.h"
#include "train/admit.h"
#include "train/loop.h"
#include "train/run_folder.h"
#include "train/run_plan.h"

#define COMMAND "weft train"

/* A rank that fails gives the others time to say what they know, and rank 0 to finish a checkpoint.
 * After a signal there is more, as training asks for. */
#define GRACE_MS 10000

static int complain(int exit_status)
{
    weft__command_fail(COMMAND, weft_last_error());
    return exit_status;
}

/* Of a rank whose training diverged; the launcher exits with 1, as for other failures. */
#define EXIT_DIVERGED 4

/* ---- options ------------------------------------------------------------------------------ */

/* What an earlier run said, where this one goes on from it; its folder into `folder`, which is
 * where this one writes if nothing else is said. A checkpoint that was copied elsewhere has
 * none. */
static weft_status_t inherit(int argc, char **argv, weft_train_config_t *config, char *folder)
{
    weft_loaded_t loaded;
    const char *path = weft__setup_resume(config);
    if (path[0] == '\0') {
        return WEFT_OK;
    }
    WEFT_TRY(weft__checkpoint_load(path, WEFT_LOAD_LOOK, &loaded));
    weft_status_t status = weft__run_folder(&loaded, path, folder);
    if (status == WEFT_OK && loaded.settings != NULL) {
        weft_train_earlier_t earlier = {.settings = loaded.settings, .out = folder};
        weft__train_free(config);
        status = weft__train_parse_resumed(&earlier, argc, argv, config);
    }
    if (status == WEFT_OK && config->out == folder && folder[0] == '\0') {
        status = weft__fail(WEFT_ERR_INVALID,
                            "%s is not in the folder of the run that saved it: say with --out DIR "
                            "where to write",
                            loaded.path);
    }
    weft__checkpoint_unload(&loaded);
    return status;
}

static void print_models(void)
{
    const char *name;
    weft_model_config_t model;
    for (int i = 0; (name = weft__config_preset_name(i)) != NULL; i++) {
        if (weft__config_preset(name, &model) == WEFT_OK) {
            printf("%-12s %3d layers of %-5d %3d heads  context %-5d %9.1f M parameters\n", name,
                   model.layers, model.width, model.heads, model.context,
                   (double)weft__config_params(&model) / 1e6);
        }
    }
}

/* ---- being a rank ------------------------------------------------------------------------- */

/* What a handler has to know. */
static volatile sig_atomic_t speaks = 1; /* is this process the one that talks to the user? */
static const char *volatile before_steps = "nothing is trained yet, and nothing is saved";

/* When each kind of signal came first; 0: it did not. Its own partner, as the handler may run in
 * two threads. */
static _Atomic uint64_t heard_ns[SIGTERM + 1];

/* The first of its kind: a second one has the default action. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    int error = errno;
    const char *text;
    uint64_t first = 0, now = weft__now_ns();
    (void)context;
    if (!atomic_compare_exchange_strong(&heard_ns[number], &first, now)) {
        if (info->si_code == SI_KERNEL || now - first >= WEFT_SIGNAL_ECHO_NS) {
            weft__command_die_of(number);
        }
        errno = error;
        return;
    }
    bool waits = weft__train_interrupt(number, &text);
    text = waits ? text : before_steps;
    if (speaks && text != NULL) {
        weft__command_tell_signal(COMMAND, number, text);
    }
    if (!waits) {
        weft__command_die_of(number);
    }
    errno = error;
}

/* One that our caller ignores (nohup, a script's background) stays ignored. Of our own launcher's
 * ranks rank 0 speaks, and only about steps: before them the launcher says it all. */
static void catch_signals(const weft_job_t *job)
{
    bool watched = strcmp(job->launcher, "weft") == 0;
    if (watched) {
        before_steps = NULL;
    }
    speaks = job->rank == 0;
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_RESTART | SA_SIGINFO};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct sigaction old;
        sigaction(signals[i], NULL, &old);
        if (old.sa_handler != SIG_IGN) {
            sigaction(signals[i], &action, NULL);
        }
    }
}

/* Progress goes to the launcher's terminal, if it has one: our own output is a pipe to it. */
static FILE *open_progress(void)
{
    const char *path = weft__settings()->terminal;
    FILE *terminal = path[0] != '\0' ? fopen(path, "a") : NULL;
    return terminal != NULL ? terminal : stdout;
}

/* A signal ended the run. 0 only if nothing is lost; that it is not rank 0 knows, and the others
 * trust it. */
static int end_early(const weft_setup_t *setup, int rank, const weft_train_result_t *result)
{
    const weft_train_config_t *config = setup->config;
    bool saves = config->out[0] != '\0' && config->save_every >= 0;
    bool saved = saves && (rank != 0 || result->saved == result->step);
    if (rank == 0 && saved) {
        fprintf(stderr, "weft train: stopped after step %" PRIu64 "; go on with --resume %s\n",
                result->step, config->out);
    } else if (rank == 0) {
        char last[WEFT_PATH_BYTES + 64] = "", name[WEFT_SIGNAL_NAME];
        if (result->saved > 0) {
            snprintf(last, sizeof(last), "; the last checkpoint is %s/step-%06" PRIu64, config->out,
                     result->saved);
        } else if (setup->resumed) {
            snprintf(last, sizeof(last), "; the last checkpoint is %s", setup->loaded.path);
        }
        fprintf(stderr, "weft train: %s: stopped after step %" PRIu64 ", which is not saved%s%s\n",
                weft__signal_name(result->signal, name), result->step,
                saves ? "" : ", as there is no --out", last);
    }
    return saved ? 0 : 128 + result->signal;
}

static int train_as_rank(weft_setup_t *setup)
{
    weft_comm_h comm;
    weft_train_result_t result = {0};
    int rank = 0;
    if (weft_comm_init_job(&comm, NULL) != WEFT_OK) {
        return complain(1);
    }
    weft_comm_rank(comm, &rank);
    FILE *out = rank == 0 ? open_progress() : NULL;
    setup->write_sample = weft__generate_sample;
    weft_status_t status = weft__train_run(setup, comm, out, &result);
    if (status != WEFT_OK && (rank == 0 || (!result.told && weft__rank_has_news(status)))) {
        complain(1);
    }
    if (out != NULL && out != stdout) {
        fclose(out);
    }
    if (status != WEFT_OK) {
        weft_comm_abort(comm); /* others may still wait for us */
        if (result.signal != 0 && rank == 0) {
            end_early(setup, rank, &result);
        }
        return result.diverged && weft__rank_is_watched() ? EXIT_DIVERGED : 1;
    }
    weft_comm_destroy(comm);
    return result.signal == 0 ? 0 : end_early(setup, rank, &result);
}

/* ---- starting ranks ----------------------------------------------------------------------- */

/* Where ranks go on if they have to be started again. */
typedef struct restart {
    const char *out;
    char link[WEFT_PATH_BYTES]; /* in the run folder, to its last checkpoint */
    struct stat before;         /* ... when the job began; zero: there was none */
    char option[16], from[WEFT_PATH_BYTES], sentence[WEFT_PATH_BYTES + 64];
    char **more; /* the end of the command, with room for two words */
} restart_t;

/* From the run's last checkpoint. The link is made anew for each, so one that has not changed is an
 * earlier run's; if this run went on from that, the command says so already. */
static const char *go_on(void *arg)
{
    restart_t *restart = arg;
    struct stat now;
    char name[64];
    ssize_t length = readlink(restart->link, name, sizeof(name) - 1);
    bool saved = length > 0 && lstat(restart->link, &now) == 0 &&
                 (now.st_ino != restart->before.st_ino ||
                  memcmp(&now.st_ctim, &restart->before.st_ctim, sizeof(now.st_ctim)) != 0);
    name[saved ? length : 0] = '\0';
    saved = saved && weft__path_join(restart->from, restart->out, name) == WEFT_OK;
    restart->more[0] = saved ? restart->option : NULL;
    restart->more[1] = saved ? restart->from : NULL;
    return saved ? restart->from : "its start, as nothing was saved yet";
}

/* What is left when a signal has ended the job. */
static const char *tell_saved(void *arg)
{
    restart_t *restart = arg;
    char name[64];
    ssize_t length = readlink(restart->link, name, sizeof(name) - 1);
    if (length <= 0) {
        return "nothing was saved";
    }
    name[length] = '\0';
    snprintf(restart->sentence, sizeof(restart->sentence), "the last checkpoint is %s/%s",
             restart->out, name);
    return restart->sentence;
}

static int start_ranks(const weft_setup_t *setup, int argc, char **argv)
{
    char self[] = "weft", name[] = "train";
    char **command = calloc((size_t)argc + 4, sizeof(char *));
    const char *terminal = isatty(STDOUT_FILENO) ? ttyname(STDOUT_FILENO) : NULL;
    restart_t restart = {.out = setup->config->out, .option = "--resume"};
    int status = 1;
    if (command == NULL) {
        return weft__command_fail(COMMAND, "out of memory");
    }
    command[0] = self;
    command[1] = name;
    memcpy(command + 2, argv + 1, (size_t)(argc - 1) * sizeof(char *));
    restart.more = command + argc + 1;
    if (weft__path_join(restart.link, restart.out, "latest") != WEFT_OK ||
        lstat(restart.link, &restart.before) != 0) {
        restart.before = (struct stat){0};
    }
    if (terminal != NULL) {
        weft__settings_set("WEFT_TERMINAL", terminal);
    }
    weft_launch_t launch = {.name = COMMAND,
                            .ranks = setup->config->ranks,
                            .argv = command,
                            .program = WEFT_LAUNCH_SELF,
                            .own = true,
                            .bind = strcmp(weft__settings()->bind, "none") != 0,
                            .device = setup->device,
                            .max_restarts = setup->config->max_restarts,
                            .hopeless = EXIT_DIVERGED,
                            .again = go_on,
                            .saved = tell_saved,
                            .again_arg = &restart,
                            .grace_ms = GRACE_MS,
                            .int_ends = true};
    if (setup->config->grace > 0.0) {
        launch.grace_ms = (int)(setup->config->grace * 1e3);
        launch.grace_fixed = true;
    }
    before_steps = "ended";
    if (weft__launch(&launch, &status) != WEFT_OK) {
        complain(status);
    }
    free(command);
    return status == EXIT_DIVERGED ? 1 : status;
}

/* ---- the command -------------------------------------------------------------------------- */

/* How many of the run's ranks are on this host. */
static int ranks_here(const weft_setup_t *setup, const weft_job_t *job)
{
    return strcmp(job->launcher, "none") != 0 ? job->local_size : setup->config->ranks;
}

static weft_status_t dry_run(const weft_setup_t *setup, const weft_job_t *job)
{
    int here = ranks_here(setup, job);
    WEFT_TRY(weft__setup_look(setup));
    WEFT_TRY(weft__run_plan_print(setup, stdout));
    WEFT_TRY(weft__admit_print(setup, here, stdout));
    fflush(stdout);
    WEFT_TRY(weft__admit_memory(setup, here, stderr));
    return weft__admit_disk(setup, stderr);
}

/* Before ranks are started. On GPUs the first rank asks whether they have the memory: whoever asks
 * has a context there, which takes some of it. */
static weft_status_t admit(const weft_setup_t *setup)
{
    int ranks = setup->config->ranks;
    bool gpus = strcmp(setup->device, "cuda") == 0;
    WEFT_TRY(weft__admit_going_back(setup, stderr));
    if (!gpus || (ranks == 1 && setup->config->max_restarts == 0)) {
        WEFT_TRY(weft__admit_memory(setup, ranks, stderr));
    }
    return weft__admit_disk(setup, stderr);
}

/* As one of many that somebody started: the first of the host looks at its memory, the first of all
 * at the disk. What our own launcher has warned of is not said again; and a run that was admitted
 * is not turned away when it is restarted. */
static weft_status_t admit_launched(const weft_setup_t *setup, const weft_job_t *job)
{
    bool gpus = strcmp(setup->device, "cuda") == 0, ours = strcmp(job->launcher, "weft") == 0;
    if (weft__settings()->restart > 0) {
        return WEFT_OK;
    }
    if (job->local_rank == 0) {
        WEFT_TRY(weft__admit_memory(setup, job->local_size, ours && !gpus ? NULL : stderr));
    }
    return job->rank == 0 ? weft__admit_disk(setup, ours ? NULL : stderr) : WEFT_OK;
}

static int train(weft_setup_t *setup, const weft_job_t *job, int argc, char **argv)
{
    bool launched = strcmp(job->launcher, "none") != 0;
    if (setup->config->dry_run) {
        return dry_run(setup, job) == WEFT_OK ? 0 : complain(1);
    }
    if (setup->config->benchmark) {
        weft_status_t status = launched ? admit_launched(setup, job) : admit(setup);
        return status == WEFT_OK ? weft__train_benchmark(setup, argv) : complain(1);
    }
    if (launched) {
        return admit_launched(setup, job) == WEFT_OK ? train_as_rank(setup) : complain(1);
    }
    /* Data that cannot be trained on should not start ranks first, which would all say so. Tokens
     * of a text take room as well, so the disk is looked at again. */
    if (admit(setup) != WEFT_OK || weft__setup_prepare(setup, stdout) != WEFT_OK ||
        weft__setup_data(setup) != WEFT_OK || weft__admit_disk(setup, NULL) != WEFT_OK) {
        return complain(1);
    }
    bool alone = setup->config->ranks == 1 && setup->config->max_restarts == 0;
    return alone ? train_as_rank(setup) : start_ranks(setup, argc, argv);
}

/* Whoever started us said how many ranks there are; a configuration that says otherwise is of a run
 * with others, but who types both contradicts himself. */
static weft_status_t take_ranks(weft_train_config_t *config, const weft_job_t *job)
{
    if (strcmp(job->launcher, "none") == 0) {
        return WEFT_OK;
    }
    config->ranks = job->size;
    return config->asked_ranks == WEFT_TRAIN_NOT_ASKED
               ? WEFT_OK
               : weft__job_check_ranks(job, config->asked_ranks);
}

int weft__cmd_train(int argc, char **argv)
{
    weft_train_config_t config;
    weft_setup_t setup = {0};
    const weft_job_t *job;
    char folder[WEFT_PATH_BYTES]; /* of the run that this one goes on from */
    signal(SIGXFSZ,
           SIG_IGN); /* a file that may not grow (ulimit -f) is then told like a full disk */
    bool help = false, alike = true;
    weft_status_t status = weft__train_parse(argc, argv, &config, &help);
    if (status == WEFT_OK && help) {
        weft__train_help(stdout);
    } else if (status == WEFT_OK && strcmp(config.model, "help") == 0) {
        print_models();
        help = true;
    }
    if (status == WEFT_OK && !help) {
        status = weft__job(&job);
    }
    if (status == WEFT_OK && !help) {
        catch_signals(job);
    }
    if (status == WEFT_OK && !help && config.resume[0] != '\0' && !config.benchmark) {
        status = inherit(argc, argv, &config, folder);
    }
    if (status == WEFT_OK && !help) {
        status = take_ranks(&config, job);
    }
    if (status == WEFT_OK && !help) {
        alike = false; /* a file may be there on one host and not on another */
        status = weft__setup_open(&config, &setup);
    }
    int exit_status = 0;
    if (status != WEFT_OK) {
        /* Want of memory is nobody's mistake, and one rank's only. */
        exit_status = status == WEFT_ERR_NO_MEMORY ? complain(1)
                      : alike && status == WEFT_ERR_INVALID
                          ? weft__command_refuse(COMMAND, "%s", weft_last_error())
                          : complain(WEFT_EXIT_USAGE);
    } else if (!help) {
        exit_status = train(&setup, job, argc, argv);
    }
    weft__setup_close(&setup);
    weft__train_free(&config);
    return exit_status;
}
