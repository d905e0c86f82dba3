/* Manual pages and completion for bash, made from the tables of options of all commands. */
#ifndef WEFT_CLI_PAGES_H
#define WEFT_CLI_PAGES_H

/* Print weft(1), or with the name of a command weft-COMMAND(1), to stdout. Returns the exit
 * status. */
int weft__page_man(const char *command);

/* Print a script that bash reads to complete command lines of weft to stdout. Returns the exit
 * status. */
int weft__page_completion(void);

#endif
