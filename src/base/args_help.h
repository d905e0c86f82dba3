/* Forms of the help of a command besides text: a manual page, and what a shell completes. */
#ifndef WEFT_BASE_ARGS_HELP_H
#define WEFT_BASE_ARGS_HELP_H

#include "base/args.h"

typedef enum weft_help {
    WEFT_HELP_TEXT,
    WEFT_HELP_MAN, /* the sections of a manual page from SYNOPSIS on, for man(7) */
    WEFT_HELP_BASH /* entries of the arrays _weft_options and _weft_values (cli/pages.c) */
} weft_help_t;

/* What weft__args_help writes from now on, in the whole process: a command that is asked for its
 * help gives it in this form, and need not know. Only while there is no other thread. */
void weft__args_help_as(weft_help_t wanted);

/* Text as man(7) takes it. */
void weft__man_text(FILE *out, const char *text, size_t length);

#endif
