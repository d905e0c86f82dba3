/* weft report: one page of what was measured. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/output.h"
#include "cli/commands.h"
#include "report/report.h"

typedef struct options {
    const char *path, *title; /* title: NULL: made of what there is */
    bool to_stdout;
} options_t;

static int fail(void)
{
    fprintf(stderr, "weft report: %s\n", weft_last_error());
    return 1;
}

static int write_page(const weft_report_t *report, const options_t *options)
{
    weft_output_t *file;
    fflush(stdout);
    if (weft__output_open(options->path, &file) != WEFT_OK) {
        return fail();
    }
    FILE *out = weft__output_stream(file);
    weft_status_t status = weft__report_write(report, options->title, out);
    if (weft__output_end(file, status) != WEFT_OK) {
        return errno == EPIPE ? 128 + SIGPIPE : fail(); /* as main does for stdout */
    }
    if (!options->to_stdout) {
        printf("the report is in %s\n", options->path);
    }
    return 0;
}

/* Does something stand at `path` that is no page: a file of a run, say, or somebody's work? */
static bool is_no_page(const char *path)
{
    static const char start[] = "<!doctype html";
    char found[sizeof(start) - 1];
    struct stat there;
    if (stat(path, &there) != 0 || !S_ISREG(there.st_mode) || there.st_size == 0) {
        return false;
    }
    FILE *file = fopen(path, "rb");
    size_t count = file != NULL ? fread(found, 1, sizeof(found), file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    return count < sizeof(found) || strncasecmp(found, start, sizeof(found)) != 0;
}

static int make_report(weft_report_t *report, const options_t *options, int count, char **paths)
{
    if (weft__output_check(options->path) != WEFT_OK) {
        return fail();
    }
    for (int i = 0; i < count; i++) {
        if (weft__report_add(report, paths[i]) != WEFT_OK) {
            return fail();
        }
    }
    if (!options->to_stdout && weft__report_reads(report, options->path)) {
        fprintf(stderr,
                "weft report: %s is one of the files that the report is made of; name another one "
                "with --output\n",
                options->path);
        return WEFT_EXIT_USAGE;
    }
    if (!options->to_stdout && is_no_page(options->path)) {
        fprintf(stderr,
                "weft report: %s is there and is no HTML page; name another file with --output\n",
                options->path);
        return WEFT_EXIT_USAGE;
    }
    return write_page(report, options);
}

int weft__cmd_report(int argc, char **argv)
{
    options_t options = {.path = "report.html"};
    const weft_arg_t table[] = {
        {"output", 'o', WEFT_ARG_FILE, "FILE", &options.path,
         "write the page to FILE (default report.html); -: to stdout"},
        {"title", 't', WEFT_ARG_STR, "TEXT", &options.title, "title of the page"},
    };
    const weft_args_t args = {
        .command = "weft report",
        .synopsis = "FILE|RUN... [OPTION]...",
        .text = "Make one HTML page of what was measured: plots and tables that need no network "
                "and no scripts. It reads run folders of weft train (metrics, traces, machine, "
                "configuration), results of other commands (--json FILE: bench, links, pairs, "
                "scaling, doctor, train --benchmark), metrics.jsonl and traces, any number of "
                "them; files of one kind share their plots.",
        .footer = "example:\n"
                  "  weft train --data text.txt --out RUN --trace RUN/trace.json\n"
                  "  weft links -n 8 --json links.json\n"
                  "  weft report RUN links.json -o report.html\n",
        .options = table,
        .count = sizeof(table) / sizeof(table[0]),
        .words = &(const weft_arg_words_t){NULL, "@files", NULL},
        .words_count = 1,
    };
    weft_args_found_t found;
    signal(SIGXFSZ, SIG_IGN); /* told like a full disk */
    int ends = weft__command_args(&args, argc, argv, &found);
    if (ends >= 0) {
        return ends;
    }
    if (found.count == 0) {
        fprintf(stderr, "weft report: name a run folder or files of results; weft report --help "
                        "says which\n");
        return WEFT_EXIT_USAGE;
    }
    weft_report_t report = {0};
    options.to_stdout = strcmp(options.path, "-") == 0;
    int exit_status = make_report(&report, &options, found.count, found.positionals);
    weft__report_cleanup(&report);
    return exit_status;
}
