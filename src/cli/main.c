/* weft <command> [...] */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <weft/weft.h>

#include "base/settings.h"
#include "base/version.h"
#include "cli/commands.h"
#include "cli/commit.h" /* by tools/write-commit: WEFT_COMMIT */
#include "cli/pages.h"

#define COMMAND_ROW(name, function, text) {name, function, text},
static const weft_command_t commands[] = {WEFT_COMMANDS(COMMAND_ROW)};
#undef COMMAND_ROW

#define COMMAND_COUNT ((int)(sizeof(commands) / sizeof(commands[0])))

const weft_command_t *weft__command(int i)
{
    return i < COMMAND_COUNT ? &commands[i] : NULL;
}

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
    fprintf(out, "\noptions:\n"
                 "  --version        print the version\n"
                 "  --man [COMMAND]  print a manual page: weft --man train | man -l -\n"
                 "  --completion     print what lets bash complete command lines: put\n"
                 "                   eval \"$(weft --completion)\" into ~/.bashrc\n"
                 "  --help           show this text; weft COMMAND --help explains a command\n\n"
                 "Every command returns 0 for success, 1 for failure and 2 for wrong use;\n"
                 "docs/reliability.md has all statuses.\n");
}

/* A descriptor that the caller closed would be given to the next file opened, and a message would
 * go into it. What is written to a closed stdout does not arrive, so it can be opened but not
 * written. */
static void open_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        int mode = fd == STDOUT_FILENO ? O_RDONLY : O_RDWR;
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", mode) < 0) {
            _exit(1);
        }
    }
}

/* Why output was lost, where the C library did not keep it. */
static int find_error(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) > 0 && (out.revents & POLLERR) != 0) {
        return EPIPE;
    }
    if ((fcntl(STDOUT_FILENO, F_GETFL) & O_ACCMODE) == O_RDONLY) {
        return EBADF;
    }
    /* A disk that is still full says so again. After lines that are lost an empty one does no
     * harm. */
    return (out.revents & POLLOUT) != 0 && write(STDOUT_FILENO, "\n", 1) < 0 ? errno : 0;
}

/* Output that did not arrive is a failure, however late it shows. A reader that left is told as if
 * we had been killed for it, by those whose caller ignores that signal too. */
static int finish(int exit_status)
{
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || exit_status != 0) {
        return exit_status;
    }
    int error = errno != 0 ? errno : find_error();
    if (error == EPIPE) {
        return 128 + SIGPIPE;
    }
    fprintf(stderr, "weft: cannot write to stdout: %s\n",
            error == EBADF ? "it is closed"
            : error != 0   ? strerror(error)
                           : "some of the output is lost");
    return 1;
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

static int unknown_option(const char *option)
{
    static const char *const names[] = {"--help", "--version", "--man", "--completion"};
    const char *nearest = weft__nearest(option, names, 4);
    fprintf(stderr, "weft: unknown option %s; %s%s%s\n", option,
            nearest != NULL ? "did you mean " : "weft --help lists what there is",
            nearest != NULL ? nearest : "", nearest != NULL ? "?" : "");
    return WEFT_EXIT_USAGE;
}

/* --man or --completion, with more than it takes. */
static int too_many(const char *option, const char *last)
{
    bool man = strcmp(option, "--man") == 0;
    fprintf(stderr, "weft: %s takes %s, but was given '%s'%s\n", option,
            man ? "one command at most" : "no arguments", last,
            man ? "" : ": what it prints is for bash");
    return WEFT_EXIT_USAGE;
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return word != NULL && (strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0);
}

static const weft_command_t *find_command(const char *name)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return &commands[i];
        }
    }
    return NULL;
}

static void print_version(void)
{
    bool known = weft__commit[0] != '\0';
    printf("weft %s%s%s%s\n", weft_version(), known ? " (" : "", weft__commit, known ? ")" : "");
}

/* Ranks are started through /proc/self/exe, which is not what ps and top should show. */
static void name_process(void)
{
    char name[16] = ""; /* as long as the system keeps */
    if (prctl(PR_GET_NAME, name) == 0 && strcmp(name, "exe") == 0) {
        prctl(PR_SET_NAME, "weft");
    }
}

int main(int argc, char **argv)
{
    name_process();
    open_standard_files();
    weft__commit = WEFT_COMMIT;
    if (argc < 2) {
        print_help(stderr);
        return WEFT_EXIT_USAGE;
    }
    const char *name = argv[1];
    bool help = is_one_of(name, "--help", "-h", "help");
    if (help && argc == 2) {
        print_help(stdout);
        return finish(0);
    }
    if (is_one_of(name, "--version", "-V", "version") ||
        (argc == 3 && strcmp(argv[2], "--version") == 0)) {
        print_version();
        return finish(0);
    }
    if (strcmp(name, "--man") == 0 && argc <= 3) {
        return finish(weft__page_man(argv[2]));
    }
    if (strcmp(name, "--completion") == 0 && argc == 2) {
        return finish(weft__page_completion());
    }
    if (strcmp(name, "--completion") == 0 || strcmp(name, "--man") == 0) {
        return too_many(name, argv[argc - 1]);
    }
    if (name[0] == '-' && !help) {
        return unknown_option(name);
    }
    const weft_command_t *command = find_command(help ? argv[2] : name);
    if (command == NULL) {
        return unknown_command(help ? argv[2] : name);
    }
    if (help) { /* weft help bench */
        char option[] = "--help";
        char *words[] = {argv[2], option, NULL};
        return finish(command->run(2, words));
    }
    return finish(command->run(argc - 1, argv + 1));
}
