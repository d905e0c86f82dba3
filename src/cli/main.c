/* weft <command> [...] */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <weft/weft.h>

#include "base/settings.h"
#include "base/version.h"
#include "cli/commands.h"
#include "cli/commit.h" /* by tools/write-commit: WEFT_COMMIT */

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *text;
} command_t;

#define COMMAND_ROW(name, function, text) {name, function, text},
static const command_t commands[] = {WEFT_COMMANDS(COMMAND_ROW)};
#undef COMMAND_ROW

#define COMMAND_COUNT ((int)(sizeof(commands) / sizeof(commands[0])))

static void print_help(FILE *out)
{
    int width = 0;
    for (int i = 0; i < COMMAND_COUNT; i++) {
        int length = (int)strlen(commands[i].name);
        width = length > width ? length : width;
    }
    fprintf(out, "usage: weft COMMAND [ARGUMENT]...\n\n"
                 "Write and test a job of many GPUs on virtual ones, then run it on real ones.\n\n"
                 "commands:\n");
    for (int i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, "  %-*s  %s\n", width, commands[i].name, commands[i].text);
    }
    fprintf(out, "\nweft COMMAND --help explains one; weft --version prints the version.\n");
}

/* A descriptor that the caller closed would be given to the next file opened, and a message would
 * go into it. */
static void open_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0) {
            _exit(1);
        }
    }
}

/* Output that did not arrive is a failure, however late it shows. */
static int finish(int exit_status)
{
    if ((fflush(stdout) != 0 || ferror(stdout)) && exit_status == 0) {
        fprintf(stderr, "weft: cannot write to stdout: %s\n", strerror(errno));
        return 1;
    }
    return exit_status;
}

static int unknown_command(const char *name)
{
    const char *names[COMMAND_COUNT];
    for (int i = 0; i < COMMAND_COUNT; i++) {
        names[i] = commands[i].name;
    }
    const char *nearest = weft__nearest(name, names, COMMAND_COUNT);
    if (nearest != NULL) {
        fprintf(stderr, "weft: unknown command '%s'; did you mean '%s'?\n", name, nearest);
    } else {
        fprintf(stderr, "weft: unknown command '%s'; weft --help lists them\n", name);
    }
    return WEFT_EXIT_USAGE;
}

static void print_version(void)
{
    bool known = weft__commit[0] != '\0';
    printf("weft %s%s%s%s\n", weft_version(), known ? " (" : "", weft__commit, known ? ")" : "");
}

int main(int argc, char **argv)
{
    open_standard_files();
    weft__commit = WEFT_COMMIT;
    if (argc < 2) {
        print_help(stderr);
        return WEFT_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return finish(0);
    }
    if (strcmp(name, "--version") == 0) {
        print_version();
        return finish(0);
    }
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return finish(commands[i].run(argc - 1, argv + 1));
        }
    }
    return unknown_command(name);
}
