/* Command line options, GNU style: --name=value, --name value, -n 4, -n4, -ab for flags, -- ends.
 *
 * One table per command makes the parser, the help, the manual page and what a shell completes:
 *
 *     const weft_arg_t options[] = {
 *         {"ranks", 'n', WEFT_ARG_INT, "N", &ranks, "number of ranks (default 2)"},
 *         {"json", 0, WEFT_ARG_STR, "FILE", &json, "write the results to FILE as JSON"},
 *     };
 *     const weft_args_t args = {
 *         .command = "weft bench", .synopsis = "COLLECTIVE [OPTION]...",
 *         .text = "Measure a collective.", .options = options, .count = 2,
 *     };
 * --help and -h are always there and not in the table. */
#ifndef WEFT_BASE_ARGS_H
#define WEFT_BASE_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <weft/status.h>

typedef enum weft_arg_kind {
    WEFT_ARG_INT,  /* int */
    WEFT_ARG_SIZE, /* size_t; K, M, G, T */
    WEFT_ARG_REAL, /* double */
    WEFT_ARG_MS,   /* int, milliseconds; "20ms", "1.5s", a bare number is seconds */
    WEFT_ARG_STR,  /* const char *, pointing into argv */
    WEFT_ARG_FILE, /* the same: the name of a file or a folder, which is not empty */
    WEFT_ARG_AUTO, /* the same; given without a value it is "auto" */
    WEFT_ARG_BOOL, /* bool, with a value: yes or no; alone it is yes */
    WEFT_ARG_FLAG  /* bool, true when given, no value */
} weft_arg_kind_t;

typedef struct weft_arg {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    weft_arg_kind_t kind;
    const char *metavar; /* the value's name in the help; NULL for flags */
    void *target;        /* left alone unless the option is given; the last one counts */
    const char *help;    /* NULL: not listed, for names that an option had before */
} weft_arg_t;

/* What a WEFT_ARG_INT takes; an option without a row takes any number. */
typedef struct weft_arg_range {
    const char *name; /* of the option */
    int least, most;
} weft_arg_range_t;

/* Words that the value of an option can be, for shells that complete it. Values are not checked
 * against them: who takes a value knows better. An option without a row is completed by its metavar
 * (DIR: folders, FILE and PATH: files). */
typedef struct weft_arg_words {
    const char *option;         /* its name; NULL: the command's positionals */
    const char *words;          /* separated by spaces; "@files", "@folders": these too; or NULL */
    const char *(*each)(int i); /* word i, NULL after the last; or NULL */
} weft_arg_words_t;

typedef struct weft_args {
    const char *command;  /* "weft bench"; begins every sentence */
    const char *synopsis; /* what follows it in the usage line */
    const char *text;     /* what it does */
    const char *footer;   /* after the options, as it stands: notes, examples; may be NULL */
    const weft_arg_t *options;
    int count;
    const weft_arg_range_t *ranges; /* may be NULL */
    int range_count;
    const weft_arg_words_t *words; /* may be NULL */
    int words_count;
    const weft_arg_words_t *verbs; /* positionals after a first one, their .option; may be NULL */
    int verb_count;
    bool stop; /* at the first positional: it and all after it are positionals */
} weft_args_t;

#define WEFT_ARGS_MOST 96 /* options of one command */

typedef struct weft_args_found {
    const weft_args_t *args;    /* that were asked for */
    bool help;                  /* --help was given; nothing after it was read */
    int count;                  /* positionals */
    bool given[WEFT_ARGS_MOST]; /* which rows of the table */
    char **positionals; /* inside argv, and like it followed by a NULL if argv[argc] is one */
} weft_args_found_t;

/* Parse argv[1] to argv[argc-1]. argv is reordered. WEFT_ERR_INVALID with a sentence for the user
 * in weft_last_error() (unknown option with the nearest name, missing or malformed value); targets
 * of options before it are then already set. */
weft_status_t weft__args_parse(const weft_args_t *args, int argc, char **argv,
                               weft_args_found_t *found_p);

/* For a command that takes options alone: WEFT_ERR_INVALID with a sentence if there is a
 * positional. */
weft_status_t weft__args_none(const weft_args_found_t *found);

/* Is `word` one of the words, which are separated by spaces? */
bool weft__is_word(const char *words, const char *word);

/* Was the option of this name given? */
bool weft__args_given(const weft_args_found_t *found, const char *name);

/* For a part of a command that takes only the options in `takes`, separated by spaces:
 * WEFT_ERR_INVALID with "COMMAND: --NAME has no use WHY: leave it out" if another was given. */
weft_status_t weft__args_only(const weft_args_found_t *found, const char *takes, const char *why);

/* The option with this letter; NULL: none. */
const weft_arg_t *weft__args_letter(const weft_args_t *args, char letter);

/* Usage, text, one entry per option, footer; text and entries are broken at 80 columns.
 * Or another form of it, if that is wanted: args_help.h. */
void weft__args_help(const weft_args_t *args, FILE *out);

/* Print `text` as lines that begin with "# ", broken at spaces before column 80. */
void weft__print_comment(FILE *out, const char *text);

/* Print `text` from column `column` on, broken at spaces before column 80, further lines indented
 * by `indent`. A new line in the text stays one. */
void weft__print_wrapped(FILE *out, const char *text, int column, int indent);

#endif
