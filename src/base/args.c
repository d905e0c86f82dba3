/* Command line options. */
#include "base/args.h"

#include <string.h>

#include "base/log.h"
#include "base/settings.h"

/* An option as it was written, for sentences: "--ranks" or "-n". */
typedef struct spelling {
    char text[80];
} spelling_t;

static weft_status_t unknown_option(const weft_args_t *args, const char *name, size_t length)
{
    const char *names[WEFT_ARGS_MOST + 1] = {"help"};
    int count = 1;
    for (int i = 0; i < args->count; i++) {
        if (args->options[i].help != NULL) {
            names[count++] = args->options[i].name;
        }
    }
    char text[64];
    snprintf(text, sizeof(text), "%.*s", (int)(length > 100 ? 100 : length), name);
    const char *nearest = weft__nearest(text, names, count);
    if (nearest != NULL) {
        return weft__fail(WEFT_ERR_INVALID, "%s: unknown option --%s; did you mean --%s?",
                          args->command, text, nearest);
    }
    return weft__fail(WEFT_ERR_INVALID, "%s: unknown option --%s; %s --help lists them",
                      args->command, text, args->command);
}

static const char *kind_text(weft_arg_kind_t kind)
{
    switch (kind) {
    case WEFT_ARG_INT:
        return "a whole number";
    case WEFT_ARG_SIZE:
        return "a size such as 4096, 64K or 1.5G";
    case WEFT_ARG_REAL:
        return "a number such as 0.1 or 3e-4";
    case WEFT_ARG_MS:
        return "a time such as 300, 1.5s, 20ms or 5m";
    case WEFT_ARG_BOOL:
        return "yes or no";
    case WEFT_ARG_FILE:
        return "the name of a file";
    case WEFT_ARG_STR:
    case WEFT_ARG_AUTO:
    case WEFT_ARG_FLAG:
        break;
    }
    return "a text";
}

static const weft_arg_range_t *find_range(const weft_args_t *args, const weft_arg_t *option)
{
    for (int i = 0; i < args->range_count; i++) {
        if (strcmp(args->ranges[i].name, option->name) == 0) {
            return &args->ranges[i];
        }
    }
    return NULL;
}

static bool parse_in_range(const char *value, const weft_arg_range_t *range, int *out_p)
{
    int number;
    if (!weft__parse_int(value, &number) ||
        (range != NULL && (number < range->least || number > range->most))) {
        return false;
    }
    *out_p = number;
    return true;
}

static weft_status_t refuse_value(const weft_args_t *args, const weft_arg_t *option,
                                  const spelling_t *spelling, const char *value)
{
    const weft_arg_range_t *range = find_range(args, option);
    char limits[64] = "";
    if (option->kind == WEFT_ARG_INT && range != NULL) {
        snprintf(limits, sizeof(limits), " from %d to %d", range->least, range->most);
    } else if (option->kind == WEFT_ARG_INT) {
        snprintf(limits, sizeof(limits), "%s", weft__int_limit(value));
    }
    return weft__fail(WEFT_ERR_INVALID, "%s: %s takes %s%s, not \"%.100s\"", args->command,
                      spelling->text, kind_text(option->kind), limits, value);
}

static weft_status_t assign(const weft_args_t *args, const weft_arg_t *option,
                            const spelling_t *spelling, const char *value)
{
    bool good = true;
    switch (option->kind) {
    case WEFT_ARG_INT:
        good = parse_in_range(value, find_range(args, option), option->target);
        break;
    case WEFT_ARG_SIZE:
        good = weft__parse_size(value, option->target);
        break;
    case WEFT_ARG_REAL:
        good = weft__parse_real(value, option->target);
        break;
    case WEFT_ARG_MS:
        good = weft__parse_ms(value, option->target);
        break;
    case WEFT_ARG_BOOL:
        good = weft__parse_bool(value, option->target);
        break;
    case WEFT_ARG_FILE:
        good = value[0] != '\0';
        *(const char **)option->target = value;
        break;
    case WEFT_ARG_STR:
    case WEFT_ARG_AUTO:
        *(const char **)option->target = value;
        break;
    case WEFT_ARG_FLAG:
        *(bool *)option->target = true;
        break;
    }
    return good ? WEFT_OK : refuse_value(args, option, spelling, value);
}

/* Give the option its value: `attached` if it was written with one, else the next word. *at_p is
 * the word being read; it moves on when the next one is taken. */
static weft_status_t take_value(const weft_args_t *args, const weft_arg_t *option,
                                const spelling_t *spelling, const char *attached, int argc,
                                char **argv, int *at_p)
{
    if (option->kind == WEFT_ARG_FLAG) {
        if (attached != NULL) {
            return weft__fail(WEFT_ERR_INVALID, "%s: %s takes no value", args->command,
                              spelling->text);
        }
        return assign(args, option, spelling, NULL);
    }
    bool last = *at_p + 1 >= argc;
    const char *alone = option->kind == WEFT_ARG_BOOL   ? "yes"
                        : option->kind == WEFT_ARG_AUTO ? "auto"
                                                        : NULL;
    if (attached == NULL && alone != NULL && (last || argv[*at_p + 1][0] == '-')) {
        return assign(args, option, spelling, alone);
    }
    if (attached == NULL) {
        if (last) {
            return weft__fail(WEFT_ERR_INVALID, "%s: %s needs a value: %s", args->command,
                              spelling->text,
                              option->metavar != NULL ? option->metavar : kind_text(option->kind));
        }
        attached = argv[++*at_p];
    }
    return assign(args, option, spelling, attached);
}

static weft_status_t parse_long(const weft_args_t *args, int argc, char **argv, int *at_p,
                                weft_args_found_t *found)
{
    const char *name = argv[*at_p] + 2;
    size_t length = strcspn(name, "=");
    const char *attached = name[length] == '=' ? name + length + 1 : NULL;
    if (length == 4 && memcmp(name, "help", 4) == 0 && attached == NULL) {
        found->help = true;
        return WEFT_OK;
    }
    for (int i = 0; i < args->count; i++) {
        const weft_arg_t *option = &args->options[i];
        if (strlen(option->name) == length && memcmp(option->name, name, length) == 0) {
            spelling_t spelling;
            snprintf(spelling.text, sizeof(spelling.text), "--%s", option->name);
            found->given[i] = true;
            return take_value(args, option, &spelling, attached, argc, argv, at_p);
        }
    }
    return unknown_option(args, name, length);
}

const weft_arg_t *weft__args_letter(const weft_args_t *args, char letter)
{
    for (int i = 0; i < args->count; i++) {
        if (args->options[i].letter == letter) {
            return &args->options[i];
        }
    }
    return NULL;
}

/* One word of short options: flags may be joined, and the first that takes a value ends them. */
static weft_status_t parse_short(const weft_args_t *args, int argc, char **argv, int *at_p,
                                 weft_args_found_t *found)
{
    for (const char *letter = argv[*at_p] + 1; *letter != '\0'; letter++) {
        const weft_arg_t *option = weft__args_letter(args, *letter);
        if (option == NULL && *letter == 'h') {
            found->help = true;
            return WEFT_OK;
        }
        if (option == NULL) {
            return weft__fail(WEFT_ERR_INVALID, "%s: unknown option -%c; %s --help lists them",
                              args->command, *letter, args->command);
        }
        spelling_t spelling;
        snprintf(spelling.text, sizeof(spelling.text), "-%c", *letter);
        found->given[option - args->options] = true;
        bool flag = option->kind == WEFT_ARG_FLAG;
        const char *attached = !flag && letter[1] != '\0' ? letter + 1 : NULL;
        weft_status_t status = take_value(args, option, &spelling, attached, argc, argv, at_p);
        if (status != WEFT_OK || !flag) {
            return status;
        }
    }
    return WEFT_OK;
}

weft_status_t weft__args_parse(const weft_args_t *args, int argc, char **argv,
                               weft_args_found_t *found_p)
{
    /* Positionals move to the front of argv; they never overtake the word being read. */
    int count = 0;
    *found_p = (weft_args_found_t){.args = args};
    if (args->count > WEFT_ARGS_MOST) {
        return weft__fail(WEFT_ERR_UNSUPPORTED, "%s: more than %d options", args->command,
                          WEFT_ARGS_MOST);
    }
    int at = argc > 0 ? 1 : 0;
    int first = at;
    for (; at < argc && !found_p->help; at++) {
        const char *word = argv[at];
        weft_status_t status = WEFT_OK;
        if (strcmp(word, "--") == 0) {
            at++;
            break;
        }
        if (word[0] != '-' || word[1] == '\0') {
            if (args->stop) {
                break;
            }
            argv[first + count++] = argv[at];
        } else if (word[1] == '-') {
            status = parse_long(args, argc, argv, &at, found_p);
        } else {
            status = parse_short(args, argc, argv, &at, found_p);
        }
        if (status != WEFT_OK) {
            return status;
        }
    }
    for (; at < argc && !found_p->help; at++) {
        argv[first + count++] = argv[at];
    }
    if (first + count < argc) {
        argv[first + count] = NULL; /* so that the positionals can be handed to exec */
    }
    found_p->count = count;
    found_p->positionals = argv + first;
    return WEFT_OK;
}

weft_status_t weft__args_none(const weft_args_found_t *found)
{
    const char *command = found->args->command;
    if (found->count == 0) {
        return WEFT_OK;
    }
    return weft__fail(
        WEFT_ERR_INVALID,
        "%s: takes no arguments, but was given \"%.100s\"; %s --help lists its options", command,
        found->positionals[0], command);
}

bool weft__args_given(const weft_args_found_t *found, const char *name)
{
    const weft_args_t *args = found->args;
    for (int i = 0; i < args->count; i++) {
        if (strcmp(args->options[i].name, name) == 0) {
            return found->given[i];
        }
    }
    return false;
}

bool weft__is_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    while (*words != '\0') {
        size_t next = strcspn(words, " ");
        if (next == length && memcmp(words, word, length) == 0) {
            return true;
        }
        words += next + (words[next] == ' ' ? 1 : 0);
    }
    return false;
}

weft_status_t weft__args_only(const weft_args_found_t *found, const char *takes, const char *why)
{
    const weft_args_t *args = found->args;
    for (int i = 0; i < args->count; i++) {
        if (found->given[i] && !weft__is_word(takes, args->options[i].name)) {
            return weft__fail(WEFT_ERR_INVALID, "%s: --%s has no use %s: leave it out",
                              args->command, args->options[i].name, why);
        }
    }
    return WEFT_OK;
}
