/* weft bench: time collectives, in the manner of nccl-tests, and one-sided calls and patterns
 * against what they replace; verify all results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weft/weft.h>

#include "base/args.h"
#include "base/log.h"
#include "base/settings.h"
#include "bench/bench.h"
#include "bench/pair.h"
#include "bench/table.h"
#include "cli/commands.h"
#include "cli/ranks.h"
#include "comm/comm.h"

#define COMMAND "weft bench"
#define NOT_GIVEN SIZE_MAX

typedef struct options {
    weft_bench_t bench;
    int ranks;
    int asked; /* -n of the command line; 0: none */
    const char *type, *op, *factor, *algo, *bind, *device;
    bool no_check;
} options_t;

/* The value of `text` among `count` names, or -1 with a sentence on stderr. */
static int choose(const char *what, const char *text, const char *(*name)(int), int count)
{
    const char *names[256] = {NULL};
    int room = (int)(sizeof(names) / sizeof(names[0]));
    count = count < room ? count : room;
    for (int i = 0; i < count; i++) {
        names[i] = name(i);
        if (strcmp(names[i], text) == 0) {
            return i;
        }
    }
    const char *near = weft__nearest(text, names, count);
    char sentence[1024];
    int at = snprintf(sentence, sizeof(sentence), "there is no %s \"%.100s\"%s%s%s", what, text,
                      near ? "; did you mean \"" : "; there are", near ? near : "",
                      near ? "\"? There are" : "");
    for (int i = 0; i < count && at < (int)sizeof(sentence); i++) {
        at += snprintf(sentence + at, sizeof(sentence) - (size_t)at, " %s", names[i]);
    }
    weft__command_refuse(COMMAND, "%s", sentence);
    return -1;
}

static const char *type_name(int i)
{
    return weft_dtype_name((weft_dtype_t)i);
}

static const char *op_name(int i)
{
    return weft_op_name((weft_op_t)i);
}

static const char *device_name(int i)
{
    static const char *const names[] = {"cpu", "cuda", "auto"};
    return names[i];
}

/* The same for lists that a NULL ends. */
static const char *each_type(int i)
{
    return i < WEFT_DTYPE_COUNT ? type_name(i) : NULL;
}

static const char *each_op(int i)
{
    return i < WEFT_OP_COUNT ? op_name(i) : NULL;
}

static const char *each_algo(int i)
{
    return i < WEFT_ALGO_COUNT ? weft__algo_name((weft_algo_t)i) : NULL;
}

/* Pairs bring sizes of their own; collectives have the same ones. */
static int resolve_sizes(weft_bench_t *b, bool is_pair)
{
    bool given = b->min != NOT_GIVEN || b->max != NOT_GIVEN;
    if (is_pair && given && !b->advise && !weft__pair_sized(b->collective)) {
        return weft__command_refuse(COMMAND, "%.100s has no sizes: leave --min and --max out",
                                    b->collective);
    }
    if (b->min == 0 || b->max == 0) {
        return weft__command_refuse(COMMAND, "--min must be at least 1 byte and at most --max");
    }
    b->min = b->min != NOT_GIVEN ? b->min : is_pair ? 0 : 8;
    b->max = b->max != NOT_GIVEN ? b->max : is_pair ? 0 : 64 << 20;
    if (b->min > b->max && b->max != 0) {
        return weft__command_refuse(COMMAND, "--min must be at least 1 byte and at most --max");
    }
    return 0;
}

/* The rest of what only some benchmarks take. */
static int resolve_kind(options_t *o)
{
    weft_bench_t *b = &o->bench;
    bool is_pair = b->advise || weft__pair_knows(b->collective);
    o->factor = o->factor ? o->factor : is_pair ? "4" : "2";
    if (is_pair && (b->graph || b->tune || o->algo || o->type || o->op || b->root || b->explain)) {
        return weft__command_refuse(
            COMMAND,
            "--type, --op, --root, --algo, --explain, --graph and --tune are for collectives");
    }
    o->type = o->type ? o->type : "f32";
    o->op = o->op ? o->op : "sum";
    if (b->advise && o->ranks == 0) {
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        o->ranks = cores < 2 ? 2 : cores > 16 ? 16 : (int)cores;
    }
    o->ranks = o->ranks ? o->ranks : 2;
    return resolve_sizes(b, is_pair);
}

/* Turn what was typed into what is run; 0, or the exit status. */
static int resolve(options_t *o)
{
    weft_bench_t *b = &o->bench;
    int count = 0;
    o->asked = o->ranks;
    while (weft__bench_name(count)) {
        count++;
    }
    if (choose("benchmark", b->collective, weft__bench_name, count) < 0 || resolve_kind(o) != 0) {
        return 2;
    }
    int type = choose("type", o->type, type_name, WEFT_DTYPE_COUNT);
    int op = type < 0 ? -1 : choose("operation", o->op, op_name, WEFT_OP_COUNT);
    if (op < 0) {
        return 2;
    }
    b->type = (weft_dtype_t)type;
    b->op = (weft_op_t)op;
    b->check = !o->no_check;
    if (!weft__parse_real(o->factor, &b->factor) || !(b->factor > 1.0 && b->factor <= 1e9)) {
        return weft__command_refuse(COMMAND, "--factor must be a number above 1");
    }
    if (choose("device", o->device, device_name, 3) < 0) {
        return 2;
    }
    weft__settings_set("WEFT_DEVICE", o->device);
    if (b->graph && strcmp(o->device, "cpu") == 0) {
        return weft__command_refuse(COMMAND, "--graph is for GPUs: give --device cuda as well");
    }
    weft_tuner_t tuner;
    if (o->algo && weft__tuner_init(&tuner, o->algo) != WEFT_OK) {
        return weft__command_fail(COMMAND, weft_last_error());
    }
    return 0;
}

/* ---- ranks ------------------------------------------------------------------------------ */

/* Before ranks are at work. */
static void read_machine(void *ctx)
{
    options_t *o = ctx;
    weft__machine_read(weft__device_is_cuda(), &o->bench.machine);
}

static weft_status_t run(void *ctx, weft_comm_h comm, int *exit_p)
{
    const options_t *o = ctx;
    size_t wrong = 0;
    if (o->bench.root < 0 || o->bench.root >= comm->size) {
        *exit_p = weft__command_refuse(COMMAND, "--root is not one of the ranks");
        return WEFT_OK;
    }
    WEFT_TRY(weft__bench_run(&o->bench, comm, &wrong));
    *exit_p = wrong > 0 ? 1 : 0;
    return WEFT_OK;
}

/* What every rank would find, and say, before there are any. */
static int look_ahead(void *ctx)
{
    const options_t *o = ctx;
    if (o->bench.root < 0 || o->bench.root >= o->ranks) {
        return weft__command_refuse(COMMAND, "--root is not one of the ranks");
    }
    return 0;
}

static int start(void *ctx, const weft_args_found_t *found, char **typed)
{
    options_t *o = ctx;
    if (found->count > 1) {
        return weft__command_refuse(COMMAND, "one benchmark at a time, or all");
    }
    o->bench.command = typed;
    o->bench.collective = found->count > 0 ? found->positionals[0] : o->bench.collective;
    int exit_status = resolve(o);
    const weft_ranks_t ranks = {.name = COMMAND,
                                .ranks = o->ranks,
                                .asked = o->asked,
                                .threads = o->bench.threads,
                                .bind = strcmp(o->bind, "none") != 0,
                                .algo = o->algo,
                                .outputs = {{"--json", o->bench.json, false}},
                                .typed = typed,
                                .look_ahead = look_ahead,
                                .prepare = read_machine,
                                .run = run,
                                .ctx = o};
    return exit_status == 0 ? weft__ranks_run(&ranks) : exit_status;
}

/* For shells. */
static const weft_arg_words_t words[] = {
    {NULL, NULL, weft__bench_name}, {"type", NULL, each_type},         {"op", NULL, each_op},
    {"algo", NULL, each_algo},      {"device", "auto cpu cuda", NULL}, {"bind", "core none", NULL},
};

int weft__cmd_bench(int argc, char **argv)
{
    options_t o = {
        .bench = {.collective = "allreduce", .min = NOT_GIVEN, .max = NOT_GIVEN, .repeat = 3},
        .bind = weft__settings()->bind,
        .device = weft__settings()->device};
    const weft_arg_t options[] = {
        {"ranks", 'n', WEFT_ARG_INT, "N", &o.ranks, "number of ranks (default 2)"},
        {"min", 'b', WEFT_ARG_SIZE, "SIZE", &o.bench.min, "smallest size (collectives: 8)"},
        {"max", 'e', WEFT_ARG_SIZE, "SIZE", &o.bench.max, "largest size (collectives: 64M)"},
        {"factor", 'f', WEFT_ARG_STR, "F", &o.factor,
         "from a size to the next (collectives: 2, rest: 4)"},
        {"type", 't', WEFT_ARG_STR, "T", &o.type, "element type (default f32)"},
        {"op", 'o', WEFT_ARG_STR, "O", &o.op, "sum, prod, min, max, avg (default sum)"},
        {"root", 'r', WEFT_ARG_INT, "R", &o.bench.root, "root of rooted collectives (default 0)"},
        {"algo", 'a', WEFT_ARG_STR, "A", &o.algo, "force an algorithm, as WEFT_ALGO does"},
        {"threads", 0, WEFT_ARG_FLAG, NULL, &o.bench.threads, "ranks are threads of one process"},
        {"device", 'd', WEFT_ARG_STR, "D", &o.device, "cpu, cuda or auto, as WEFT_DEVICE"},
        {"graph", 0, WEFT_ARG_FLAG, NULL, &o.bench.graph, "GPUs: replay calls from a graph"},
        {"tune", 0, WEFT_ARG_FLAG, NULL, &o.bench.tune,
         "GPUs: measure from which size on another way is faster, and keep it for this machine"},
        {"advise", 0, WEFT_ARG_FLAG, NULL, &o.bench.advise,
         "measure which is faster, one-sided or collective, by size and number of ranks"},
        {"iters", 'i', WEFT_ARG_INT, "K", &o.bench.iters, "calls per loop (default: fill 30 ms)"},
        {"repeat", 0, WEFT_ARG_INT, "K", &o.bench.repeat, "timed loops; median shown (default 3)"},
        {"bind", 0, WEFT_ARG_STR, "HOW", &o.bind, "bind ranks to cores: core, none"},
        {"no-check", 0, WEFT_ARG_FLAG, NULL, &o.no_check, "do not verify the results"},
        {"explain", 0, WEFT_ARG_FLAG, NULL, &o.bench.explain, "say which algorithm, and why"},
        {"json", 0, WEFT_ARG_FILE, "FILE", &o.bench.json,
         "write the results to FILE as JSON; -: to stdout, and the table to stderr"},
    };
    static const weft_arg_range_t ranges[] = {
        {"ranks", 1, WEFT_MAX_RANKS},
        {"root", 0, WEFT_MAX_RANKS - 1},
        {"iters", 1, 1000000000},
        {"repeat", 1, WEFT_REPEAT_MOST},
    };
    const weft_args_t args = {
        .command = COMMAND,
        .synopsis = "[WHAT] [OPTION]...",
        .text =
            "Time collectives, one-sided calls or patterns over a range of sizes and verify their "
            "results. Collectives: allreduce (default), reduce, broadcast, reduce_scatter, "
            "allgather, gather, scatter, alltoall, barrier, sendrecv (or p2p), all, copy (what the "
            "machine needs to move the same bytes). One-sided: put, get, put-signal (on GPUs "
            "inside kernels), atomic, symm-barrier, lock. Patterns, each against its two-sided "
            "form: halo, balance, handoff, lookup, kv, gradient-sync, put-allgather, gemm-column, "
            "gemm-row, param-server, async-gradients, swap. Gradients in fewer bits: compress (by "
            "itself), compress-allreduce, quantized. Training, a step in several ways: dp-feed, "
            "dp-buckets, dp-overlap, dp-sync, dp-batch, pp-schedule, tp-reduce, tp-gather, "
            "tp-sequence, zero, recompute, offload. Every other pair of weft pairs list, too: "
            "peer, places, algorithms, one-shot, cold-state, small-calls, registered, pinned.",
        .footer = "Collectives have the columns of nccl-tests; sizes are of the larger buffer of "
                  "a\nrank. The rest: time, time of the other way, their ratio; docs/patterns.md "
                  "and\ndocs/pairs.md explain them.\n\n"
                  "examples:\n"
                  "  weft bench allreduce -n 8 -b 8 -e 256M -f 2 --json results.json\n"
                  "  weft bench halo -n 4\n"
                  "  weft bench --advise -n 8",
        .options = options,
        .count = (int)(sizeof(options) / sizeof(options[0])),
        .ranges = ranges,
        .range_count = (int)(sizeof(ranges) / sizeof(ranges[0])),
        .words = words,
        .words_count = (int)(sizeof(words) / sizeof(words[0])),
    };
    return weft__command_run(&args, argc, argv, start, &o);
}
