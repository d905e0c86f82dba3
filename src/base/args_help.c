/* The help of a command: as text, as a manual page, as what a shell completes. All of it comes from
 * the table of options, so that none of them can forget one. */
#include "base/args.h"

#include <string.h>

#include "base/args_help.h"

#define HELP_COLUMNS 80

static weft_help_t form = WEFT_HELP_TEXT;

void weft__args_help_as(weft_help_t wanted)
{
    form = wanted;
}

/* --help, which no table has. */
static weft_arg_t help_option(const weft_args_t *args)
{
    return (weft_arg_t){.name = "help",
                        .letter = weft__args_letter(args, 'h') == NULL ? 'h' : 0,
                        .kind = WEFT_ARG_FLAG,
                        .help = "show this text"};
}

/* ---- text ------------------------------------------------------------------------------- */

void weft__print_wrapped(FILE *out, const char *text, int column, int indent)
{
    while (*text != '\0') {
        size_t length = strcspn(text, " \n");
        if (column > indent && column + 1 + (int)length > HELP_COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        column += fprintf(out, "%s%.*s", column > indent ? " " : "", (int)length, text);
        text += length;
        if (*text == '\n') {
            fprintf(out, "\n%*s", text[1] != '\0' ? indent : 0, "");
            column = indent;
        }
        text += *text != '\0' ? 1 : 0;
    }
    fputc('\n', out);
}

void weft__print_comment(FILE *out, const char *text)
{
    size_t column = 0;
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        if (column > 2 && column + 1 + length > HELP_COLUMNS) {
            fputc('\n', out);
            column = 0;
        }
        fprintf(out, "%s%.*s", column == 0 ? "# " : " ", (int)length, text);
        column += length + (column == 0 ? 2 : 1);
        text += length + strspn(text + length, " ");
    }
    fputc('\n', out);
}

static int option_label(const weft_arg_t *option, char *out, size_t room)
{
    char letter[8] = "    ";
    if (option->letter != 0) {
        snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    }
    const char *metavar = option->metavar != NULL ? option->metavar : "VALUE";
    bool flag = option->kind == WEFT_ARG_FLAG;
    return snprintf(out, room, "  %s--%s%s%s", letter, option->name, flag ? "" : " ",
                    flag ? "" : metavar);
}

static void print_option(FILE *out, const weft_arg_t *option, int indent)
{
    char label[96];
    int column = option_label(option, label, sizeof(label));
    fputs(label, out);
    if (column + 2 > indent) {
        fputc('\n', out);
        column = 0;
    }
    fprintf(out, "%*s", indent - column, "");
    weft__print_wrapped(out, option->help, indent, indent);
}

static void print_text(const weft_args_t *args, FILE *out)
{
    const weft_arg_t help = help_option(args);
    char label[96];
    int indent = 0;
    for (int i = 0; i <= args->count; i++) {
        const weft_arg_t *option = i < args->count ? &args->options[i] : &help;
        int length = option_label(option, label, sizeof(label)) + 2;
        indent = length > indent && length <= 32 ? length : indent;
    }
    fprintf(out, "usage: %s%s%s\n\n", args->command, args->synopsis[0] != '\0' ? " " : "",
            args->synopsis);
    weft__print_wrapped(out, args->text, 0, 0);
    fputs("\noptions:\n", out);
    for (int i = 0; i < args->count; i++) {
        if (args->options[i].help != NULL) {
            print_option(out, &args->options[i], indent);
        }
    }
    print_option(out, &help, indent);
    if (args->footer != NULL) {
        fprintf(out, "\n%s\n", args->footer);
    }
}

/* ---- a manual page ---------------------------------------------------------------------- */

void weft__man_text(FILE *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bool starts = i == 0 || text[i - 1] == '\n';
        if (starts && (text[i] == '.' || text[i] == '\'')) {
            fputs("\\&", out); /* not a macro */
        }
        if (text[i] == '\\') {
            fputs("\\e", out);
        } else if (text[i] == '-') {
            fputs("\\-", out); /* can be copied as it stands */
        } else {
            fputc(text[i], out);
        }
    }
}

static void man_option(FILE *out, const weft_arg_t *option)
{
    fputs(".TP\n", out);
    if (option->letter != 0) {
        fprintf(out, "\\fB\\-%c\\fR, ", option->letter);
    }
    fputs("\\fB\\-\\-", out);
    weft__man_text(out, option->name, strlen(option->name));
    fputs("\\fR", out);
    if (option->kind != WEFT_ARG_FLAG) {
        const char *metavar = option->metavar != NULL ? option->metavar : "VALUE";
        fputs(" \\fI", out);
        weft__man_text(out, metavar, strlen(metavar));
        fputs("\\fR", out);
    }
    fputc('\n', out);
    weft__man_text(out, option->help, strlen(option->help));
    fputc('\n', out);
}

/* A paragraph of a footer. Lines that are indented stay as they are; others may be filled. */
static void man_paragraph(FILE *out, const char *text, size_t length)
{
    bool example = strncmp(text, "example", strlen("example")) == 0;
    const char *first_end = memchr(text, '\n', length);
    bool kept = false;
    for (size_t i = 1; i < length; i++) {
        kept = kept || (text[i - 1] == '\n' && text[i] == ' ');
    }
    fputs(example ? ".SH EXAMPLES\n" : ".PP\n", out);
    if (example && first_end != NULL) { /* without its own heading */
        length -= (size_t)(first_end + 1 - text);
        text = first_end + 1;
    }
    fputs(kept ? ".nf\n" : "", out);
    weft__man_text(out, text, length);
    fputs(kept ? "\n.fi\n" : "\n", out);
}

static void man_footer(FILE *out, const char *footer)
{
    if (strncmp(footer, "example", strlen("example")) != 0) {
        fputs(".SH NOTES\n", out);
    }
    while (*footer != '\0') {
        const char *end = strstr(footer, "\n\n");
        size_t length = end != NULL ? (size_t)(end - footer) : strlen(footer);
        man_paragraph(out, footer, length);
        footer += length;
        footer += strspn(footer, "\n");
    }
}

static void print_man(const weft_args_t *args, FILE *out)
{
    const weft_arg_t help = help_option(args);
    fputs(".SH SYNOPSIS\n\\fB", out);
    weft__man_text(out, args->command, strlen(args->command));
    fputs("\\fR ", out);
    weft__man_text(out, args->synopsis, strlen(args->synopsis));
    fputs("\n.SH DESCRIPTION\n", out);
    for (const char *line = args->text; *line != '\0';) { /* a new line stays one */
        size_t length = strcspn(line, "\n");
        weft__man_text(out, line, length);
        line += length;
        fputs(*line != '\0' ? "\n.br\n" : "\n", out);
        line += *line != '\0' ? 1 : 0;
    }
    fputs(".SH OPTIONS\n", out);
    for (int i = 0; i < args->count; i++) {
        if (args->options[i].help != NULL) {
            man_option(out, &args->options[i]);
        }
    }
    man_option(out, &help);
    if (args->footer != NULL) {
        man_footer(out, args->footer);
    }
}

/* ---- what a shell completes ------------------------------------------------------------- */

/* The part of the command after "weft ". */
static const char *short_name(const weft_args_t *args)
{
    const char *space = strchr(args->command, ' ');
    return space != NULL ? space + 1 : args->command;
}

static const weft_arg_words_t *find_words(const weft_args_t *args, const char *option)
{
    for (int i = 0; i < args->words_count; i++) {
        const char *name = args->words[i].option;
        if (name == option || (name != NULL && option != NULL && strcmp(name, option) == 0)) {
            return &args->words[i];
        }
    }
    return NULL;
}

static void print_words(FILE *out, const weft_arg_words_t *words)
{
    const char *word;
    if (words == NULL) {
        return;
    }
    if (words->words != NULL) {
        fprintf(out, " %s", words->words);
    }
    for (int i = 0; words->each != NULL && (word = words->each(i)) != NULL; i++) {
        fprintf(out, " %s", word);
    }
}

/* "@files", "@folders" or "": what else the value of an option may be. */
static const char *places(const weft_arg_t *option, bool has_words)
{
    const char *metavar = option->metavar != NULL ? option->metavar : "";
    if (option->kind == WEFT_ARG_BOOL) {
        return " yes no";
    }
    if (option->kind != WEFT_ARG_STR && option->kind != WEFT_ARG_FILE &&
        option->kind != WEFT_ARG_AUTO) {
        return ""; /* a number */
    }
    if (strstr(metavar, "DIR") != NULL) {
        return " @folders";
    }
    if (strstr(metavar, "FILE") != NULL || strstr(metavar, "PATH") != NULL) {
        return " @files";
    }
    return has_words || strcmp(metavar, "TEXT") == 0 ? "" : " @files";
}

/* One entry for each spelling of an option that takes a value; it begins with "?" where that may be
 * left out. */
static void print_values(FILE *out, const weft_args_t *args, const weft_arg_t *option)
{
    const weft_arg_words_t *words = find_words(args, option->name);
    bool may = option->kind == WEFT_ARG_BOOL || option->kind == WEFT_ARG_AUTO;
    for (int spelling = 0; spelling < (option->letter != 0 ? 2 : 1); spelling++) {
        fprintf(out, "_weft_values[%s ", short_name(args));
        if (spelling == 0) {
            fprintf(out, "--%s]='%s", option->name, may ? "?" : "");
        } else {
            fprintf(out, "-%c]='%s", option->letter, may ? "?" : "");
        }
        print_words(out, words);
        fprintf(out, "%s'\n", places(option, words != NULL));
    }
}

static void print_bash(const weft_args_t *args, FILE *out)
{
    const weft_arg_t help = help_option(args);
    fprintf(out, "_weft_options[%s]='", short_name(args));
    for (int i = 0; i <= args->count; i++) {
        const weft_arg_t *option = i < args->count ? &args->options[i] : &help;
        if (option->help != NULL && option->letter != 0) {
            fprintf(out, "-%c ", option->letter);
        }
        if (option->help != NULL) {
            fprintf(out, "--%s%s", option->name, i < args->count ? " " : "");
        }
    }
    fputs("'\n", out);
    fprintf(out, "_weft_values[%s]='", short_name(args));
    print_words(out, find_words(args, NULL));
    for (int i = 0; i < args->verb_count; i++) {
        fprintf(out, " %s", args->verbs[i].option);
    }
    fprintf(out, "%s'\n", args->stop ? " @command" : "");
    for (int i = 0; i < args->verb_count; i++) {
        fprintf(out, "_weft_values[%s %s]='", short_name(args), args->verbs[i].option);
        print_words(out, &args->verbs[i]);
        fputs("'\n", out);
    }
    for (int i = 0; i < args->count; i++) {
        if (args->options[i].help != NULL && args->options[i].kind != WEFT_ARG_FLAG) {
            print_values(out, args, &args->options[i]);
        }
    }
}

void weft__args_help(const weft_args_t *args, FILE *out)
{
    switch (form) {
    case WEFT_HELP_TEXT:
        print_text(args, out);
        break;
    case WEFT_HELP_MAN:
        print_man(args, out);
        break;
    case WEFT_HELP_BASH:
        print_bash(args, out);
        break;
    }
}
