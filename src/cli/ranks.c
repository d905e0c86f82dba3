#include "cli/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "boot/job.h"
#include "boot/launch.h"
#include "boot/launch_repeats.h"
#include "cli/commands.h"
#include "cli/rank.h"
#include "comm/comm.h"

/* ---- this process is a rank ------------------------------------------------------------- */

static int run_as_rank(const weft_ranks_t *ranks, const weft_job_t *job)
{
    if (ranks->asked != 0 && weft__job_check_ranks(job, ranks->asked) != WEFT_OK) {
        return weft__command_refuse(ranks->name, "%s", weft_last_error());
    }
    if (job->rank == 0 && ranks->prepare) {
        ranks->prepare(ranks->ctx);
    }
    weft_comm_h comm;
    int exit_status = 0;
    weft_comm_config_t config = WEFT_COMM_CONFIG_INIT;
    config.algo = ranks->algo;
    if (weft_comm_init_job(&comm, &config) != WEFT_OK) {
        return weft__command_fail(ranks->name, weft_last_error());
    }
    weft_status_t status = ranks->run(ranks->ctx, comm, &exit_status);
    if (status != WEFT_OK && (job->rank == 0 || weft__rank_has_news(status))) {
        weft__command_fail(ranks->name, weft_last_error());
    }
    if (status != WEFT_OK) {
        weft_comm_abort(comm);
    } else {
        weft_comm_destroy(comm);
    }
    return status != WEFT_OK ? 1 : exit_status;
}

/* ---- ranks that are threads ------------------------------------------------------------- */

typedef struct rank_thread {
    pthread_t thread;
    const weft_ranks_t *ranks;
    weft_comm_h comm;
    weft_status_t status;
    int exit;
    char sentence[1024]; /* why it failed */
} rank_thread_t;

static void *thread_main(void *arg)
{
    rank_thread_t *t = arg;
    weft_device_set(t->comm->device);
    t->status = t->ranks->run(t->ranks->ctx, t->comm, &t->exit);
    if (t->status != WEFT_OK) {
        snprintf(t->sentence, sizeof(t->sentence), "%s", weft_last_error());
        weft_comm_abort(t->comm); /* the others may wait for this rank */
    }
    return NULL;
}

/* Say what went wrong, each reason once. */
static void report_threads(const rank_thread_t *threads, int count)
{
    for (int i = 0; i < count; i++) {
        const rank_thread_t *t = &threads[i];
        bool said = t->status == WEFT_OK || (i > 0 && !weft__rank_has_news(t->status));
        for (int k = 0; k < i && !said; k++) {
            const char *other = threads[k].sentence;
            said = weft__same_words(other, strlen(other), k, t->sentence, strlen(t->sentence), i);
        }
        if (!said) {
            fprintf(stderr, "%s: rank %d: %s\n", t->ranks->name, i, t->sentence);
        }
    }
}

/* Each rank has a device of its own. */
static void want_devices(int count)
{
    int devices = 0;
    if (weft_device_count(&devices) == WEFT_OK && devices < count) {
        char text[16];
        snprintf(text, sizeof(text), "%d", count);
        weft__settings_set("WEFT_DEVICES", text);
    }
}

static int run_threads(const weft_ranks_t *ranks)
{
    if (ranks->prepare) {
        ranks->prepare(ranks->ctx);
    }
    int exit_status = 0, started = 0;
    want_devices(ranks->ranks);
    rank_thread_t *threads = calloc((size_t)ranks->ranks, sizeof(*threads));
    weft_comm_h *comms = calloc((size_t)ranks->ranks, sizeof(weft_comm_h));
    if (!threads || !comms || weft_comm_init_all(comms, ranks->ranks, NULL) != WEFT_OK) {
        exit_status = weft__command_fail(ranks->name,
                                         threads && comms ? weft_last_error() : "out of memory");
        goto out;
    }
    for (; started < ranks->ranks; started++) {
        rank_thread_t *t = &threads[started];
        *t = (rank_thread_t){.ranks = ranks, .comm = comms[started]};
        if (ranks->algo) {
            weft__tuner_init(&t->comm->tuner, ranks->algo);
            t->comm->tuner.size = ranks->ranks;
        }
        if (pthread_create(&t->thread, NULL, thread_main, t) != 0) {
            exit_status = weft__command_fail(ranks->name, "a thread could not be started");
            weft_comm_abort(comms[started]);
            comms[started] = NULL;
            break;
        }
    }
    for (int i = 0; i < started; i++) {
        pthread_join(threads[i].thread, NULL);
        int one = threads[i].status != WEFT_OK ? 1 : threads[i].exit;
        exit_status = exit_status == 0 || one == 1 ? one : exit_status;
    }
    report_threads(threads, started);
    for (int i = 0; i < ranks->ranks; i++) {
        weft_comm_destroy(i < started && threads[i].status != WEFT_OK ? NULL : comms[i]);
    }
out:
    free(threads);
    free(comms);
    return exit_status;
}

/* ---- ranks that we start ---------------------------------------------------------------- */

/* Start ourselves again, as the ranks. */
static int start_ranks(const weft_ranks_t *ranks)
{
    char self[] = "weft";
    int count = 0, status = 1;
    while (ranks->typed[count]) {
        count++;
    }
    char **command = calloc((size_t)count + 2, sizeof(char *));
    if (!command) {
        return weft__command_fail(ranks->name, "out of memory");
    }
    command[0] = self;
    memcpy(command + 1, ranks->typed, (size_t)count * sizeof(char *));
    weft_launch_t launch = {.name = ranks->name,
                            .ranks = ranks->ranks,
                            .argv = command,
                            .program = WEFT_LAUNCH_SELF,
                            .own = true,
                            .finding = WEFT_EXIT_FINDING,
                            .bind = ranks->bind,
                            .device = weft__settings()->device,
                            .grace_ms = WEFT_LAUNCH_GRACE_MS};
    if (weft__launch(&launch, &status) != WEFT_OK) {
        weft__command_fail(ranks->name, weft_last_error());
    }
    free(command);
    return status;
}

static int count_outputs(const weft_ranks_t *ranks)
{
    int count = 0, room = (int)(sizeof(ranks->outputs) / sizeof(ranks->outputs[0]));
    while (count < room && ranks->outputs[count].option != NULL) {
        count++;
    }
    return count;
}

static weft_status_t check_outputs(const weft_ranks_t *ranks)
{
    for (int i = 0; i < count_outputs(ranks); i++) {
        const weft_output_name_t *name = &ranks->outputs[i];
        if (name->path != NULL && name->path[0] != '\0' && !name->read) {
            WEFT_TRY(weft__output_check(name->path));
        }
    }
    return WEFT_OK;
}

int weft__ranks_run(const weft_ranks_t *ranks)
{
    const weft_job_t *job;
    if (weft__outputs_distinct(ranks->outputs, count_outputs(ranks)) != WEFT_OK) {
        return weft__command_refuse(ranks->name, "%s", weft_last_error());
    }
    if (weft__job(&job) != WEFT_OK) {
        return weft__command_refuse(ranks->name, "%s", weft_last_error());
    }
    if (strcmp(job->launcher, "none") != 0) {
        return run_as_rank(ranks, job);
    }
    int exit_status = ranks->look_ahead ? ranks->look_ahead(ranks->ctx) : 0;
    if (exit_status != 0) {
        return exit_status;
    }
    if (check_outputs(ranks) != WEFT_OK) {
        return weft__command_fail(ranks->name, weft_last_error());
    }
    return ranks->threads ? run_threads(ranks) : start_ranks(ranks);
}
