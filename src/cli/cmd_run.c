/* weft run: start the ranks of a job. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/settings.h"
#include "boot/launch.h"
#include "cli/commands.h"

static int usage(const char *name, const char *sentence)
{
    fprintf(stderr, "%s: %s\n", name, sentence);
    return WEFT_EXIT_USAGE;
}

/* Under the name that the user typed: oshrun says so by a first argument, and its ranks are PEs. */
static weft_launch_t start_of(int argc, char **argv)
{
    bool osh = argc > 1 && strcmp(argv[1], "--as=oshrun") == 0;
    return (weft_launch_t){.name = osh ? "oshrun" : "weft run",
                           .noun = osh ? "PE" : "rank",
                           .prefix = true,
                           .grace_ms = -1};
}

/* Where libnccl.so.2 lies, seen from the folder of this command: in a build, or installed. */
static bool find_nccl(char *path, size_t bytes)
{
    static const char *const places[] = {
        "nccl", "../lib/weft/nccl", "../lib/" WEFT_MULTIARCH "/weft/nccl", "../lib64/weft/nccl"};
    char command[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", command, sizeof(command) - 1);
    if (length < 0) {
        return false;
    }
    command[length] = '\0';
    char *slash = strrchr(command, '/');
    for (size_t i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
        int room = snprintf(path, bytes, "%.*s/%s/libnccl.so.2", (int)(slash - command), command,
                            places[i]);
        if (room > 0 && (size_t)room < bytes && access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Let what is started find Weft's NCCL before any other: PyTorch names the folder of its own one,
 * which counts for more than LD_LIBRARY_PATH. */
static bool preload_nccl(const char *name)
{
    char path[PATH_MAX], all[PATH_MAX + 4096];
    const char *others = getenv("LD_PRELOAD");
    if (!find_nccl(path, sizeof(path))) {
        fprintf(stderr, "%s: --as-nccl: there is no nccl/libnccl.so.2 beside this command\n", name);
        return false;
    }
    if (strpbrk(path, " :")) {
        fprintf(stderr,
                "%s: --as-nccl: %s cannot be preloaded, as its path has a blank or a colon\n", name,
                path);
        return false;
    }
    int length = snprintf(all, sizeof(all), "%s%s%s", path, others && others[0] ? ":" : "",
                          others ? others : "");
    if (length < 0 || (size_t)length >= sizeof(all)) {
        fprintf(stderr, "%s: --as-nccl: LD_PRELOAD is too long\n", name);
        return false;
    }
    return setenv("LD_PRELOAD", all, 1) == 0 && setenv("WEFT_DEVICE", "auto", 0) == 0;
}

int weft__cmd_run(int argc, char **argv)
{
    weft_launch_t launch = start_of(argc, argv);
    const char *as = NULL;
    const char *bind = weft__settings()->bind;
    bool no_prefix = false, as_nccl = false;
    int exit_status;
    const weft_arg_t options[] = {
        {"ranks", 'n', WEFT_ARG_INT, "N", &launch.ranks, "number of ranks to start"},
        {"bind", 0, WEFT_ARG_STR, "HOW", &bind,
         "core: give each rank its own share of the cores, near its GPU if WEFT_DEVICE gives it "
         "one (the default); none: let the system place them"},
        {"max-restarts", 0, WEFT_ARG_INT, "K", &launch.max_restarts,
         "start the whole job again after a failure, at most K times (default 0)"},
        {"timeout", 0, WEFT_ARG_MS, "TIME", &launch.timeout_ms,
         "end the job after TIME: 90, 1.5s, 10m (default: never)"},
        {"grace", 0, WEFT_ARG_MS, "TIME", &launch.grace_ms,
         "when a rank has failed, give the others TIME to end by themselves, and all of them after "
         "SIGTERM or SIGHUP, before they are killed (default 3s; after a signal more, if ranks ask "
         "for it, as those of weft train do)"},
        {"as", 0, WEFT_ARG_STR, "NAME", &as, NULL},
        {"as-nccl", 0, WEFT_ARG_FLAG, NULL, &as_nccl,
         "let Weft carry out the calls of NCCL that PROGRAM makes, on GPUs where there are some "
         "(WEFT_DEVICE), of which several ranks may share one"},
        {"no-prefix", 0, WEFT_ARG_FLAG, NULL, &no_prefix,
         "do not put the rank in front of each line of output"},
    };
    static const weft_arg_range_t ranges[] = {{"ranks", 1, WEFT_MAX_RANKS},
                                              {"max-restarts", 0, INT_MAX}};
    static const weft_arg_words_t words[] = {{"bind", "core none", NULL}};
    const weft_args_t args = {
        .command = launch.name,
        .synopsis = "-n N [OPTION]... [--] PROGRAM [ARGUMENT]...",
        .text = "Start N ranks of PROGRAM on this host, show their output line by line, pass "
                "signals on to them, and end all when one fails. Rank 0 reads standard input.",
        .footer =
            "Ranks find their place in WEFT_RANK, WEFT_SIZE, WEFT_LOCAL_RANK and\n"
            "WEFT_LOCAL_SIZE, and under the names that torchrun uses.\n\n"
            "The exit status is 0 if all ranks exit with 0, else that of the first rank to\n"
            "fail (128 + signal if it was killed). It is 128 + signal if the job was told to\n"
            "end and ranks had to be killed, 124 after --timeout, 126 or 127 if PROGRAM\n"
            "cannot be run or is not there, 2 if the options are wrong.",
        .options = options,
        .count = sizeof(options) / sizeof(options[0]),
        .ranges = ranges,
        .range_count = sizeof(ranges) / sizeof(ranges[0]),
        .words = words,
        .words_count = sizeof(words) / sizeof(words[0]),
        .stop = true,
    };
    weft_args_found_t found;
    int ends = weft__command_args(&args, argc, argv, &found);
    if (ends >= 0) {
        return ends;
    }
    if (launch.ranks == 0) {
        fprintf(stderr, "%s: say how many %ss to start, with -n N\n", launch.name, launch.noun);
        return WEFT_EXIT_USAGE;
    }
    if (strcmp(bind, "core") != 0 && strcmp(bind, "none") != 0) {
        return usage(launch.name, "--bind (or WEFT_BIND) is core or none");
    }
    if (found.count == 0) {
        return usage(launch.name, "say which program to run, after the options");
    }
    if (as_nccl && !preload_nccl(launch.name)) {
        return EXIT_FAILURE;
    }
    launch.grace_fixed = launch.grace_ms >= 0;
    launch.grace_ms = launch.grace_fixed ? launch.grace_ms : WEFT_LAUNCH_GRACE_MS;
    launch.bind = strcmp(bind, "core") == 0;
    launch.device = weft__settings()->device;
    launch.prefix = !no_prefix;
    launch.argv = found.positionals;
    if (weft__launch(&launch, &exit_status) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
    }
    return exit_status;
}
