/* weft links: how fast ranks reach each other, and which links are slow. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weft/weft.h>

#include "base/args.h"
#include "base/log.h"
#include "base/settings.h"
#include "bench/links.h"
#include "boot/job.h"
#include "cli/commands.h"
#include "cli/ranks.h"
#include "comm/comm.h"

#define COMMAND "weft links"
#define RANKS_MOST 8     /* of virtual GPUs, unless more are asked for */
#define BYTES_LEAST 4096 /* of a transfer */

typedef struct options {
    weft_links_t links;
    int ranks;
    int asked; /* -n of the command line; 0: none */
    const char *profile, *bind, *device;
} options_t;

/* As many as there are GPUs, or cores. */
static int choose_ranks(const char *device)
{
    int count = 0;
    if (strcmp(device, "cpu") != 0) {
        weft_gpus_t gpus;
        if (weft__gpus_read(&gpus) == WEFT_OK) {
            count = gpus.cuda_count;
            weft__gpus_cleanup(&gpus);
        }
    } else {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        count = cores > RANKS_MOST ? RANKS_MOST : (int)cores;
    }
    return count < 2 ? 2 : count;
}

/* Turn what was typed into what is run; 0, or the exit status. */
static int resolve(options_t *o)
{
    weft_links_t *links = &o->links;
    const char *devices[] = {"cpu", "cuda", "auto"};
    bool known = false;
    links->profile = weft__links_profile(o->profile);
    if (links->profile < 0) {
        return weft__command_refuse(
            COMMAND, "there is no profile \"%.100s\"; there are quick, standard, thorough",
            o->profile);
    }
    for (int i = 0; i < 3; i++) {
        known = known || strcmp(o->device, devices[i]) == 0;
    }
    if (!known) {
        return weft__command_refuse(
            COMMAND, "there is no device \"%.100s\"; there are cpu, cuda, auto", o->device);
    }
    if (strcmp(o->bind, "core") != 0 && strcmp(o->bind, "none") != 0) {
        return weft__command_refuse(COMMAND, "--bind is \"%.100s\", and must be core or none",
                                    o->bind);
    }
    if (!(links->min_gbs >= 0)) {
        return weft__command_refuse(COMMAND, "--min must be 0 or more GB/s");
    }
    if (links->bytes > 0 && links->bytes < BYTES_LEAST) {
        return weft__command_refuse(
            COMMAND, "--size is 4 KiB or more: a smaller transfer measures latency, which has "
                     "a table of its own");
    }
    const weft_job_t *job;
    if (weft__job(&job) != WEFT_OK) {
        return weft__command_refuse(COMMAND, "%s", weft_last_error());
    }
    weft__settings_set("WEFT_DEVICE", o->device);
    o->asked = o->ranks;
    o->ranks = o->ranks ? o->ranks : choose_ranks(o->device);
    links->ranks_here = strcmp(job->launcher, "none") != 0 ? job->local_size : o->ranks;
    return 0;
}

/* Tables that go to a terminal have colours. What ranks print goes through a pipe to whoever
 * started them, which tells them. */
static void choose_colours(weft_links_t *links)
{
    const char *terminal = isatty(STDOUT_FILENO) ? ttyname(STDOUT_FILENO) : NULL;
    bool aside = links->json && strcmp(links->json, "-") == 0; /* stdout has the JSON */
    if (terminal != NULL) {
        weft__settings_set("WEFT_TERMINAL", terminal);
    }
    links->colour = weft__settings()->terminal[0] != '\0' && getenv("NO_COLOR") == NULL && !aside;
}

/* ---- ranks ------------------------------------------------------------------------------ */

static void read_machine(void *ctx)
{
    options_t *o = ctx;
    weft__machine_read(weft__device_is_cuda(), &o->links.machine);
    weft__links_read_machine(&o->links);
}

static weft_status_t run(void *ctx, weft_comm_h comm, int *exit_p)
{
    options_t *o = ctx;
    int findings;
    if (!o->links.threads) { /* threads have it from read_machine, once for all */
        weft__links_read_machine(&o->links);
    }
    WEFT_TRY(weft__links_run(&o->links, comm, &findings));
    *exit_p = findings > 0 ? WEFT_EXIT_FINDING : 0;
    return WEFT_OK;
}

static int start(void *ctx, const weft_args_found_t *found, char **typed)
{
    options_t *o = ctx;
    if (weft__args_none(found) != WEFT_OK) {
        return weft__command_refuse(COMMAND, "%s", weft_last_error());
    }
    o->links.command = typed;
    choose_colours(&o->links);
    int exit_status = resolve(o);
    const weft_ranks_t ranks = {.name = COMMAND,
                                .ranks = o->ranks,
                                .asked = o->asked,
                                .threads = o->links.threads,
                                .bind = strcmp(o->bind, "none") != 0,
                                .outputs = {{"--json", o->links.json, false}},
                                .typed = typed,
                                .prepare = read_machine,
                                .run = run,
                                .ctx = o};
    exit_status = exit_status == 0 ? weft__ranks_run(&ranks) : exit_status;
    weft__links_cleanup(&o->links);
    return exit_status;
}

int weft__cmd_links(int argc, char **argv)
{
    options_t o = {
        .profile = "standard", .bind = weft__settings()->bind, .device = weft__settings()->device};
    const weft_arg_t options[] = {
        {"ranks", 'n', WEFT_ARG_INT, "N", &o.ranks,
         "number of ranks (default: GPUs, or cores up to 8)"},
        {"profile", 'p', WEFT_ARG_STR, "P", &o.profile,
         "how long to measure: quick, standard (default), thorough"},
        {"min", 0, WEFT_ARG_REAL, "GB/S", &o.links.min_gbs,
         "every link must reach this one way (default: what its kind should)"},
        {"size", 's', WEFT_ARG_SIZE, "SIZE", &o.links.bytes,
         "bytes of a transfer (default 256K; on GPUs 64M)"},
        {"device", 'd', WEFT_ARG_STR, "D", &o.device, "cpu, cuda or auto, as WEFT_DEVICE"},
        {"threads", 0, WEFT_ARG_FLAG, NULL, &o.links.threads, "ranks are threads of one process"},
        {"bind", 0, WEFT_ARG_STR, "HOW", &o.bind, "bind ranks to cores: core, none"},
        {"json", 0, WEFT_ARG_FILE, "FILE", &o.links.json,
         "write what was found to FILE as JSON; -: to stdout, and the tables to stderr"},
        {"output", 'o', WEFT_ARG_FILE, "FILE", &o.links.json, "the same as --json"},
    };
    static const weft_arg_range_t ranges[] = {{"ranks", 1, WEFT_MAX_RANKS}};
    static const weft_arg_words_t words[] = {{"profile", NULL, weft__links_profile_name},
                                             {"device", "auto cpu cuda", NULL},
                                             {"bind", "core none", NULL}};
    const weft_args_t args = {
        .command = COMMAND,
        .synopsis = "[OPTION]...",
        .text = "Measure every ordered pair of ranks, one at a time: GB/s one way and both ways at "
                "once, latency, and the kind of link between them; then all ranks at once "
                "(permutations, all-to-all, all-reduce by ring, tree and direct), and memory of "
                "the device, of a peer and of the host. Links that are slower than their kind "
                "should be, or than others of their kind, are measured again and named.",
        .footer = "Exit status: 0 if all is well, 3 if a link is slow or corrupts data, 1 if\n"
                  "measuring failed. docs/links.md explains the tables.\n\n"
                  "examples:\n"
                  "  weft links -n 8 --json links.json\n"
                  "  weft links --device cuda --profile thorough --min 335",
        .options = options,
        .count = (int)(sizeof(options) / sizeof(options[0])),
        .ranges = ranges,
        .range_count = 1,
        .words = words,
        .words_count = (int)(sizeof(words) / sizeof(words[0])),
    };
    return weft__command_run(&args, argc, argv, start, &o);
}
