/* What commands have in common: from the words that were typed to sentences and the exit status. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weft/weft.h>

#include "base/signal_name.h"
#include "cli/commands.h"
#include "cli/rank.h"

/* Sentences about options, and those of the launcher, begin with the command already. */
static const char *prefix_of(const char *command, const char *sentence)
{
    size_t length = strlen(command);
    return strncmp(sentence, command, length) == 0 && sentence[length] == ':' ? "" : command;
}

int weft__command_refuse(const char *command, const char *format, ...)
{
    char text[2048], sentence[2112];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    const char *prefix = prefix_of(command, text);
    snprintf(sentence, sizeof(sentence), "%.60s%s%s", prefix, prefix[0] != '\0' ? ": " : "", text);
    weft__rank_say(sentence);
    return WEFT_EXIT_USAGE;
}

int weft__command_fail(const char *command, const char *text)
{
    const char *prefix = prefix_of(command, text);
    fprintf(stderr, "%s%s%s\n", prefix, prefix[0] != '\0' ? ": " : "", text);
    return 1;
}

void weft__command_tell_signal(const char *command, int signal, const char *text)
{
    char line[512], name[WEFT_SIGNAL_NAME];
    const char *const parts[] = {command, ": ", weft__signal_name(signal, name), ": ", text, "\n"};
    size_t used = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        for (const char *c = parts[i]; *c != '\0' && used < sizeof(line); c++) {
            line[used++] = *c;
        }
    }
    ssize_t written = write(STDERR_FILENO, line, used);
    (void)written; /* nobody is there to be told */
}

void weft__command_die_of(int number)
{
    signal(number, SIG_DFL);
    raise(number);
}

int weft__command_args(const weft_args_t *args, int argc, char **argv, weft_args_found_t *found_p)
{
    if (weft__args_parse(args, argc, argv, found_p) != WEFT_OK) {
        return weft__command_refuse(args->command, "%s", weft_last_error());
    }
    if (found_p->help) {
        weft__args_help(args, stdout);
        return 0;
    }
    return -1;
}

int weft__command_run(const weft_args_t *args, int argc, char **argv, weft_command_start_t *start,
                      void *ctx)
{
    char **typed = calloc((size_t)argc + 1, sizeof(char *));
    if (typed == NULL) {
        return weft__command_fail(args->command, "out of memory");
    }
    weft_args_found_t found;
    signal(SIGXFSZ, SIG_IGN); /* told like a full disk */
    memcpy(typed, argv, (size_t)argc * sizeof(char *));
    int exit_status = weft__command_args(args, argc, argv, &found);
    if (exit_status < 0) {
        exit_status = start(ctx, &found, typed);
    }
    free(typed);
    return exit_status;
}
