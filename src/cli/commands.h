/* The commands of `weft`: one file each, one row here. A command gets argv from its own name on
 * and returns the exit status: 0 success, 1 failure, 2 bad arguments, 3 a problem that it found. */
#ifndef WEFT_CLI_COMMANDS_H
#define WEFT_CLI_COMMANDS_H

#include "base/args.h"

/*    name    function         text */
#define WEFT_COMMANDS(X)                                                                           \
    X("run", weft__cmd_run, "start the ranks of a job and look after them")                        \
    X("train", weft__cmd_train, "train a language model, on one rank or many")                     \
    X("generate", weft__cmd_generate, "write text with a trained model")                           \
    X("bench", weft__cmd_bench, "measure and verify collectives, one-sided calls and patterns")    \
    X("pairs", weft__cmd_pairs,                                                                    \
      "compare ways of doing the same, and hold them against expectations")                        \
    X("report", weft__cmd_report, "make one HTML page of results, runs and traces")                \
    X("scaling", weft__cmd_scaling, "measure training on 1, 2, 4, ... ranks, and what is lost")    \
    X("doctor", weft__cmd_doctor, "look for what makes this machine or a run slow or wrong")       \
    X("links", weft__cmd_links, "measure how fast ranks reach each other, and name slow links")    \
    X("topo", weft__cmd_topo, "show cores, caches, NUMA nodes, GPUs, and how ranks are bound")     \
    X("info", weft__cmd_info, "show versions, libraries that were found, and all settings")

#define WEFT_COMMAND_DECLARE(name, function, text) int function(int argc, char **argv);
WEFT_COMMANDS(WEFT_COMMAND_DECLARE)
#undef WEFT_COMMAND_DECLARE

typedef struct weft_command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *text;
} weft_command_t;

/* Row i of the table; NULL after the last. */
const weft_command_t *weft__command(int i);

#define WEFT_EXIT_USAGE 2
#define WEFT_EXIT_FINDING 3 /* it looked for a problem, and found one */

/* Wrong use, which every rank finds alike: one says "COMMAND: TEXT", or the text, where it begins
 * with the command. Returns WEFT_EXIT_USAGE. */
int weft__command_refuse(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What went wrong, be it on this rank only: the same. Returns 1. */
int weft__command_fail(const char *command, const char *text);

/* For handlers: "COMMAND: SIGTERM: TEXT" on stderr, with nothing but what handlers may call; and to
 * die as if the signal had not been caught, when the handler returns. */
void weft__command_tell_signal(const char *command, int signal, const char *text);
void weft__command_die_of(int signal);

/* Read a command's arguments; -1, or the exit status if that was all: help, or a mistake. */
int weft__command_args(const weft_args_t *args, int argc, char **argv, weft_args_found_t *found_p);

/* What a command does once its arguments are read. `typed`: the words before that reordered them,
 * from the command's own name on, ended by NULL: for ranks that it starts, and for results. Returns
 * the exit status. */
typedef int weft_command_start_t(void *ctx, const weft_args_found_t *found, char **typed);

/* The whole of a command that measures: read its arguments, and start. Returns the exit status. */
int weft__command_run(const weft_args_t *args, int argc, char **argv, weft_command_start_t *start,
                      void *ctx);

#endif
