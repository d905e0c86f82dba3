/* weft pairs: compare ways of doing the same, with statistics and expectations. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weft/weft.h>

#include "base/args.h"
#include "base/log.h"
#include "base/settings.h"
#include "bench/pairs.h"
#include "boot/launch.h"
#include "cli/commands.h"
#include "cli/ranks.h"
#include "comm/comm.h"

#define COMMAND "weft pairs"

typedef struct options {
    weft_pairs_t pairs;
    int ranks;
    int asked; /* -n of the command line; 0: none */
    const char *bind, *device, *capture;
    char trace[4096];
} options_t;

/* ---- run -------------------------------------------------------------------------------- */

static void read_machine(void *ctx)
{
    options_t *o = ctx;
    weft__machine_read(weft__device_is_cuda(), &o->pairs.machine);
}

static weft_status_t run(void *ctx, weft_comm_h comm, int *exit_p)
{
    const options_t *o = ctx;
    weft_pairs_outcome_t outcome;
    WEFT_TRY(weft__pairs_run(&o->pairs, comm, &outcome));
    *exit_p = outcome.wrong > 0 ? 1 : outcome.outside > 0 ? WEFT_EXIT_FINDING : 0;
    return WEFT_OK;
}

/* A file beside that of the results: results.json -> results.trace.json. */
static void name_beside(const options_t *o, const char *ending, char *path, size_t room)
{
    const char *json = o->pairs.json && strcmp(o->pairs.json, "-") != 0 ? o->pairs.json
                                                                        : "pairs.json";
    const char *dot = strrchr(json, '.');
    int stem = dot && !strchr(dot, '/') ? (int)(dot - json) : (int)strlen(json);
    snprintf(path, room, "%.*s%s", stem, json, ending);
}

/* nsys follows the ranks, which are our children: it is put around all of us. Returns only if it
 * cannot be started. */
static int start_under_nsys(const options_t *o, char **typed)
{
    char report[4096], self[4096];
    int count = 0;
    while (typed[count]) {
        count++;
    }
    const char *const before[] = {
        "nsys", "profile", "--trace=cuda,nvtx,osrt", "--force-overwrite=true", "--output",
        report, self};
    const int words = (int)(sizeof(before) / sizeof(before[0]));
    char **command = calloc((size_t)(words + count + 1), sizeof(char *));
    if (!command) {
        return weft__command_fail(COMMAND, "out of memory");
    }
    ssize_t length = readlink(WEFT_LAUNCH_SELF, self, sizeof(self) - 1);
    self[length > 0 ? length : 0] = '\0';
    name_beside(o, "", report, sizeof(report));
    memcpy(command, before, sizeof(before));
    for (int i = 0, to = words; i < count; i++) { /* all but --capture, which is done thereby */
        if (strcmp(typed[i], "--capture") == 0) {
            i++;
        } else if (strncmp(typed[i], "--capture=", 10) != 0) {
            command[to++] = typed[i];
        }
    }
    execvp(command[0], command);
    free(command);
    return weft__command_fail(
        COMMAND,
        "nsys cannot be started: it comes with NVIDIA Nsight Systems, and must be in PATH; "
        "--capture trace needs nothing");
}

static int resolve(options_t *o)
{
    o->asked = o->ranks;
    o->ranks = o->ranks ? o->ranks : 2;
    if (weft__pairs_check(&o->pairs) != WEFT_OK) {
        return weft__command_refuse(COMMAND, "%s", weft_last_error());
    }
    if (strcmp(o->device, "cpu") != 0 && strcmp(o->device, "cuda") != 0 &&
        strcmp(o->device, "auto") != 0) {
        return weft__command_refuse(COMMAND, "--device must be cpu, cuda or auto");
    }
    weft__settings_set("WEFT_DEVICE", o->device);
    if (o->capture && strcmp(o->capture, "trace") != 0 && strcmp(o->capture, "nsys") != 0) {
        return weft__command_refuse(COMMAND, "--capture must be trace or nsys");
    }
    if (o->capture && strcmp(o->capture, "trace") == 0) {
        name_beside(o, ".trace.json", o->trace, sizeof(o->trace));
    }
    o->pairs.trace = o->trace;
    return 0;
}

static int command_run(options_t *o, char **typed)
{
    int exit_status = resolve(o);
    if (exit_status != 0) {
        return exit_status;
    }
    if (o->capture && strcmp(o->capture, "nsys") == 0) {
        return start_under_nsys(o, typed);
    }
    const weft_ranks_t ranks = {
        .name = COMMAND,
        .ranks = o->ranks,
        .asked = o->asked,
        .threads = o->pairs.threads,
        .bind = strcmp(o->bind, "none") != 0,
        .outputs = {{"--json", o->pairs.json, false},
                    {"--capture trace", o->trace, false},
                    {"--expectations", o->pairs.expectations, !o->pairs.update}},
        .typed = typed,
        .prepare = read_machine,
        .run = run,
        .ctx = o};
    return weft__ranks_run(&ranks);
}

/* ---- list, compare ---------------------------------------------------------------------- */

static int command_list(options_t *o)
{
    o->pairs.profile = "quick"; /* any will do */
    if (weft__pairs_check(&o->pairs) != WEFT_OK) {
        return weft__command_refuse(COMMAND, "%s", weft_last_error());
    }
    weft__machine_read(false, &o->pairs.machine);
    signal(SIGPIPE, SIG_DFL); /* a reader that left ends us as it ends ranks */
    return weft__pairs_list(&o->pairs) == WEFT_OK ? 0
                                                  : weft__command_fail(COMMAND, weft_last_error());
}

static int command_compare(const options_t *o)
{
    int slower = 0;
    if (o->pairs.name_count != 2) {
        return weft__command_refuse(COMMAND,
                                    "compare takes two files: weft pairs compare A.json B.json");
    }
    if (weft__pairs_compare(o->pairs.names[0], o->pairs.names[1], &slower) != WEFT_OK) {
        return weft__command_fail(COMMAND, weft_last_error());
    }
    return slower > 0 ? WEFT_EXIT_FINDING : 0;
}

static int dispatch(void *ctx, const weft_args_found_t *found, char **typed)
{
    options_t *o = ctx;
    static const char *const verbs[] = {"list", "run", "compare"};
    const char *verb = found->count > 0 ? found->positionals[0] : "";
    o->pairs.names = found->positionals + (found->count > 0);
    o->pairs.name_count = found->count > 0 ? found->count - 1 : 0;
    o->pairs.command = typed;
    if (strcmp(verb, "list") == 0) {
        return weft__args_only(found, "json", "for list") == WEFT_OK
                   ? command_list(o)
                   : weft__command_refuse(COMMAND, "%s", weft_last_error());
    }
    if (strcmp(verb, "run") == 0) {
        return command_run(o, typed);
    }
    if (strcmp(verb, "compare") == 0) {
        return weft__args_only(found, "", "for compare") == WEFT_OK
                   ? command_compare(o)
                   : weft__command_refuse(COMMAND, "%s", weft_last_error());
    }
    char sentence[256];
    const char *near = weft__nearest(verb, verbs, 3);
    snprintf(sentence, sizeof(sentence), "%s%.100s%s%s%s: list, run or compare",
             verb[0] ? "there is no \"weft pairs " : "say what to do", verb, verb[0] ? "\"" : "",
             near ? "; did you mean " : "", near ? near : "");
    return weft__command_refuse(COMMAND, "%s", sentence);
}

int weft__cmd_pairs(int argc, char **argv)
{
    options_t o = {.pairs = {.profile = "standard"},
                   .bind = weft__settings()->bind,
                   .device = weft__settings()->device};
    const weft_arg_t options[] = {
        {"ranks", 'n', WEFT_ARG_INT, "N", &o.ranks, "number of ranks (default 2)"},
        {"profile", 'p', WEFT_ARG_STR, "P", &o.pairs.profile,
         "quick (one size), standard (three, the default), thorough (all)"},
        {"iterations", 'i', WEFT_ARG_INT, "K", &o.pairs.iters,
         "rounds of a loop (default: fill some milliseconds)"},
        {"device", 'd', WEFT_ARG_STR, "D", &o.device, "cpu, cuda or auto, as WEFT_DEVICE"},
        {"threads", 0, WEFT_ARG_FLAG, NULL, &o.pairs.threads, "ranks are threads of one process"},
        {"bind", 0, WEFT_ARG_STR, "HOW", &o.bind, "bind ranks to cores: core, none"},
        {"capture", 0, WEFT_ARG_STR, "HOW", &o.capture,
         "trace: write a timeline of all loops, for Perfetto; nsys: run under Nsight Systems"},
        {"expectations", 0, WEFT_ARG_FILE, "FILE", &o.pairs.expectations,
         "what to expect (default: the file for this machine)"},
        {"update-expectations", 0, WEFT_ARG_FLAG, NULL, &o.pairs.update,
         "keep this run as what to expect, unless it is wrong or noisy"},
        {"json", 0, WEFT_ARG_FILE, "FILE", &o.pairs.json,
         "write the results to FILE as JSON; -: to stdout, and the table to stderr"},
    };
    static const weft_arg_range_t ranges[] = {{"ranks", 1, WEFT_MAX_RANKS},
                                              {"iterations", 1, 1000000000}};
    static const weft_arg_words_t words[] = {{"profile", NULL, weft__pairs_profile_name},
                                             {"device", "auto cpu cuda", NULL},
                                             {"bind", "core none", NULL},
                                             {"capture", "trace nsys", NULL}};
    static const weft_arg_words_t verbs[] = {{"list", NULL, weft__pairs_word},
                                             {"run", NULL, weft__pairs_word},
                                             {"compare", "@files", NULL}};
    const weft_args_t args = {
        .command = COMMAND,
        .synopsis = "list|run|compare [NAME|GROUP|FILE]... [OPTION]...",
        .text =
            "Compare ways of doing the same: a baseline, and what should be faster. list shows "
            "all pairs by group. run measures those that are named, or all, in blocks of random "
            "order, verifies their results, says which way is faster and how sure that is, and "
            "holds it against what is expected of this machine. compare takes two files of "
            "results.",
        .footer = "Returns 3 if a ratio is outside what is expected, or a way got slower;\n"
                  "docs/pairs.md explains all of it.\n\n"
                  "examples:\n"
                  "  weft pairs run --profile quick\n"
                  "  weft pairs run halo links -n 4 --json results.json\n"
                  "  weft pairs compare before.json after.json",
        .options = options,
        .count = (int)(sizeof(options) / sizeof(options[0])),
        .ranges = ranges,
        .range_count = (int)(sizeof(ranges) / sizeof(ranges[0])),
        .words = words,
        .words_count = (int)(sizeof(words) / sizeof(words[0])),
        .verbs = verbs,
        .verb_count = (int)(sizeof(verbs) / sizeof(verbs[0])),
    };
    return weft__command_run(&args, argc, argv, dispatch, &o);
}
