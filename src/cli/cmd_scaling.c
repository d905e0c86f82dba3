/* weft scaling: how fast training is on 1, 2, 4, ... ranks, and where the rest of the time goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

#include "base/args.h"
#include "base/log.h"
#include "base/settings.h"
#include "bench/scaling.h"
#include "boot/job.h"
#include "cli/commands.h"
#include "cli/ranks.h"
#include "model/config.h"
#include "train/admit.h"

#define COMMAND "weft scaling"

typedef struct options {
    int ranks; /* 0: not given */
    const char *model, *mode, *device, *precision, *bind;
    int length;
    bool no_plans;
    double limit; /* percent */
    weft_scaling_t scaling;
    weft_train_config_t asked, config; /* as typed, and resolved for all ranks */
    weft_setup_t setup;
} options_t;

/* ---- options ------------------------------------------------------------------------------ */

/* What varies from point to point is no option of all of them. */
static int refuse_plans(const weft_train_config_t *c)
{
    if (c->dp != 0 || c->pp != 1 || c->tp != 1) {
        return weft__command_refuse(
            COMMAND, "--dp, --pp and --tp are what is compared: leave them out after --");
    }
    if (c->batch != 0 || c->micro_batch != 0 || c->accumulate != 0) {
        return weft__command_refuse(
            COMMAND, "--batch before -- says what a rank has: leave --batch, --micro-batch and "
                     "--accumulate out after it");
    }
    if (strcmp(c->trace, "") != 0 || c->dry_run || c->json != NULL) {
        return weft__command_refuse(
            COMMAND, "--trace, --dry-run and --json are of one run: leave them out after --");
    }
    if (c->asked_steps) {
        return weft__command_refuse(COMMAND, "--steps goes before --");
    }
    return 0;
}

/* Words that are no options; those after -- are weft train's to look at. */
static int refuse_words(char *const *typed, const weft_args_found_t *found)
{
    int after = 0;
    for (char *const *word = typed; *word != NULL; word++) {
        if (strcmp(*word, "--") == 0) {
            while (*++word != NULL) {
                after++;
            }
            break;
        }
    }
    if (found->count > after) {
        return weft__command_refuse(
            COMMAND,
            "there is nothing to give but options, not \"%.100s\"; options of weft train go "
            "after --",
            found->positionals[0]);
    }
    return 0;
}

/* The configuration of training: our own options, and what follows --. */
static int read_training(options_t *o, int count, char **more)
{
    char length[16], ranks[16];
    snprintf(length, sizeof(length), "%d", o->length);
    snprintf(ranks, sizeof(ranks), "%d", o->ranks);
    const char *const own[] = {COMMAND,    "--benchmark", "--ranks",     ranks,
                               "--model",  o->model,      "--length",    length,
                               "--device", o->device,     "--precision", o->precision};
    enum { OWN = sizeof(own) / sizeof(own[0]) };
    char **argv = calloc((size_t)(OWN + count) + 1, sizeof(char *));
    if (argv == NULL) {
        return weft__command_fail(COMMAND, "out of memory");
    }
    memcpy(argv, own, sizeof(own));
    memcpy(argv + OWN, more, (size_t)count * sizeof(char *));
    bool help = false;
    weft_status_t status = weft__train_parse(OWN + count, argv, &o->config, &help);
    int exit_status = 0;
    if (status != WEFT_OK) {
        exit_status = weft__command_refuse(COMMAND, "%s", weft_last_error());
    } else if (help || o->config.ranks != o->ranks) {
        exit_status = weft__command_refuse(
            COMMAND, "%s",
            help ? "options after -- are those of weft train: see weft train --help"
                 : "-n goes before --");
    } else {
        exit_status = refuse_plans(&o->config);
    }
    free(argv);
    return exit_status;
}

/* How many ranks: of the launcher, as asked, or as many as there are cores or GPUs, up to 8. */
static int choose_ranks(options_t *o, int *asked_p)
{
    const weft_job_t *job;
    *asked_p = o->ranks;
    if (weft__job(&job) != WEFT_OK) {
        return weft__command_refuse(COMMAND, "%s", weft_last_error());
    }
    if (strcmp(job->launcher, "none") != 0) {
        o->ranks = job->size;
    } else if (o->ranks == 0) {
        const char *kind;
        weft_machine_t machine;
        weft__settings_set("WEFT_DEVICE", o->device);
        if (weft_device_kind(&kind) != WEFT_OK) {
            return weft__command_refuse(COMMAND, "%s", weft_last_error());
        }
        bool gpus = strcmp(kind, "cuda") == 0;
        weft__machine_read(gpus, &machine);
        int there = gpus ? machine.gpus : machine.cpus_here;
        o->ranks = there < 2 ? 2 : there > 8 ? 8 : there;
    }
    return 0;
}

static int resolve(options_t *o, int count, char **more)
{
    weft_scaling_t *s = &o->scaling;
    s->weak = strcmp(o->mode, "strong") != 0;
    s->strong = strcmp(o->mode, "weak") != 0;
    s->plans = !o->no_plans;
    s->limit = o->limit / 100;
    if (strcmp(o->mode, "weak") != 0 && strcmp(o->mode, "strong") != 0 &&
        strcmp(o->mode, "both") != 0) {
        return weft__command_refuse(COMMAND, "--mode takes weak, strong or both");
    }
    if (!(o->limit >= 0.0 && o->limit <= 100.0)) {
        return weft__command_refuse(COMMAND,
                                    "--limit is a share of a step in percent, from 0 to 100");
    }
    int exit_status = read_training(o, count, more);
    if (exit_status != 0) {
        return exit_status;
    }
    /* Plain data parallelism with the batch of weak scaling stands for all points in what is
     * checked before ranks are started. */
    o->config.micro_batch = s->batch;
    o->asked = o->config;
    weft_status_t status = weft__setup_open(&o->config, &o->setup);
    if (status != WEFT_OK) {
        return status == WEFT_ERR_NO_MEMORY
                   ? weft__command_fail(COMMAND, weft_last_error())
                   : weft__command_refuse(COMMAND, "%s", weft_last_error());
    }
    s->base = &o->setup;
    s->asked = &o->asked;
    return 0;
}

/* ---- ranks -------------------------------------------------------------------------------- */

static int look_ahead(void *ctx)
{
    const options_t *o = ctx;
    bool gpus = strcmp(o->setup.device, "cuda") == 0;
    return gpus || weft__admit_memory(&o->setup, o->ranks, stderr) == WEFT_OK
               ? 0
               : weft__command_fail(COMMAND, weft_last_error());
}

static weft_status_t run(void *ctx, weft_comm_h comm, int *exit_p)
{
    const options_t *o = ctx;
    (void)exit_p;
    return weft__scaling_run(&o->scaling, comm);
}

static int measure(options_t *o, int asked, const weft_args_found_t *more, char **typed)
{
    o->scaling.command = typed;
    int exit_status = resolve(o, more->count, more->positionals);
    if (exit_status == 0) {
        const weft_ranks_t ranks = {.name = COMMAND,
                                    .ranks = o->ranks,
                                    .asked = asked,
                                    .bind = strcmp(o->bind, "none") != 0,
                                    .outputs = {{"--json", o->scaling.json, false}},
                                    .typed = typed,
                                    .look_ahead = look_ahead,
                                    .run = run,
                                    .ctx = o};
        exit_status = weft__ranks_run(&ranks);
    }
    weft__setup_close(&o->setup);
    weft__train_free(&o->config);
    return exit_status;
}

static int start(void *ctx, const weft_args_found_t *found, char **typed)
{
    options_t *o = ctx;
    int asked = 0, exit_status = refuse_words(typed, found);
    exit_status = exit_status == 0 ? choose_ranks(o, &asked) : exit_status;
    return exit_status == 0 ? measure(o, asked, found, typed) : exit_status;
}

int weft__cmd_scaling(int argc, char **argv)
{
    options_t o = {.model = "tiny",
                   .mode = "both",
                   .device = weft__settings()->device,
                   .precision = "auto",
                   .bind = weft__settings()->bind,
                   .limit = 20.0,
                   .scaling = {.batch = 8, .steps = 5, .rounds = 3}};
    const weft_arg_t options[] = {
        {"ranks", 'n', WEFT_ARG_INT, "N", &o.ranks,
         "the most ranks; default: as many as cores or GPUs, from 2 to 8"},
        {"model", 0, WEFT_ARG_STR, "NAME", &o.model, "as weft train takes it (default tiny)"},
        {"batch", 'b', WEFT_ARG_INT, "B", &o.scaling.batch,
         "sequences of a step on each rank (default 8)"},
        {"length", 'T', WEFT_ARG_INT, "T", &o.length,
         "tokens of a sequence; 0: all that the model takes (default)"},
        {"precision", 0, WEFT_ARG_STR, "TYPE", &o.precision, "auto, fp32, bf16 or fp16"},
        {"mode", 0, WEFT_ARG_STR, "M", &o.mode,
         "weak (as much for each rank), strong (as much in all) or both (default)"},
        {"no-plans", 0, WEFT_ARG_FLAG, NULL, &o.no_plans, "plain data parallelism only"},
        {"remedies", 0, WEFT_ARG_FLAG, NULL, &o.scaling.remedies,
         "try what may help where communication takes too much of a step"},
        {"limit", 0, WEFT_ARG_REAL, "PERCENT", &o.limit,
         "share of communication in a step that is too much (default 20)"},
        {"steps", 's', WEFT_ARG_INT, "K", &o.scaling.steps,
         "timed steps of a point in a round (default 5)"},
        {"rounds", 0, WEFT_ARG_INT, "K", &o.scaling.rounds,
         "rounds over all points; medians are shown (default 3)"},
        {"device", 'd', WEFT_ARG_STR, "D", &o.device, "cpu, cuda or auto, as WEFT_DEVICE"},
        {"bind", 0, WEFT_ARG_STR, "HOW", &o.bind, "bind ranks to cores: core, none"},
        {"json", 0, WEFT_ARG_FILE, "FILE", &o.scaling.json,
         "write the results to FILE as JSON; -: to stdout, and the tables to stderr"},
    };
    static const weft_arg_range_t ranges[] = {{"ranks", 1, WEFT_MAX_RANKS},
                                              {"batch", 1, 1 << 20},
                                              {"length", 0, 1 << 30},
                                              {"steps", 1, 1000000},
                                              {"rounds", 1, WEFT_SCALING_ROUNDS_MOST}};
    static const weft_arg_words_t words[] = {{"model", "@files", weft__config_preset_name},
                                             {"precision", "auto fp32 bf16 fp16", NULL},
                                             {"mode", "weak strong both", NULL},
                                             {"device", "auto cpu cuda", NULL},
                                             {"bind", "core none", NULL}};
    const weft_args_t args = {
        .command = COMMAND,
        .synopsis = "[OPTION]... [-- TRAIN-OPTION...]",
        .text = "Train on 1, 2, 4, ... ranks, on made-up tokens, and show throughput and "
                "efficiency, weak and strong, and of other plans on all ranks; divide what is lost "
                "into communication, bubble, imbalance, optimizer, data and rest. Nothing is "
                "written but --json.",
        .footer = "examples:\n  weft scaling -n 4 --json scaling.json\n"
                  "  weft scaling -n 8 --model gpt2-124m --batch 4 --remedies\n"
                  "  weft scaling -n 4 --mode weak -- --bucket 4M --overlap no",
        .options = options,
        .count = (int)(sizeof(options) / sizeof(options[0])),
        .ranges = ranges,
        .range_count = (int)(sizeof(ranges) / sizeof(ranges[0])),
        .words = words,
        .words_count = (int)(sizeof(words) / sizeof(words[0])),
    };
    return weft__command_run(&args, argc, argv, start, &o);
}
