/* Manual pages and completion: see pages.h. The commands print their own parts, as they do when
 * they are asked for help. */
#include "cli/pages.h"

#include <stdio.h>
#include <string.h>

#include <weft/weft.h>

#include "base/args_help.h"
#include "base/settings.h"
#include "cli/commands.h"

/* Let the command print its help in the form that is set. */
static int ask(const weft_command_t *command)
{
    char name[64], option[] = "--help";
    char *words[] = {name, option, NULL};
    snprintf(name, sizeof(name), "%s", command->name);
    return command->run(2, words);
}

/* ---- manual pages ----------------------------------------------------------------------- */

static void man_put(const char *text)
{
    weft__man_text(stdout, text, strlen(text));
}

/* Title and name: of weft-NAME, or of weft if dash and name are "". */
static void man_head(const char *dash, const char *name, const char *text)
{
    printf(".\\\" made from the tables of options, by weft --man\n.TH \"WEFT");
    man_put(dash);
    for (const char *c = name; *c != '\0'; c++) {
        putchar(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    }
    printf("\" 1 \"\" \"weft %s\" \"Weft\"\n.SH NAME\nweft", weft_version());
    man_put(dash);
    man_put(name);
    printf(" \\- ");
    man_put(text);
    printf("\n");
}

static void man_see_also(const char *but)
{
    printf(".SH \"SEE ALSO\"\n");
    if (but[0] != '\0') {
        printf("\\fBweft\\fR(1)");
    }
    bool said = but[0] != '\0';
    for (int i = 0; weft__command(i) != NULL; i++) {
        const char *name = weft__command(i)->name;
        if (strcmp(name, but) != 0) {
            printf("%s\\fBweft\\-%s\\fR(1)", said ? ",\n" : "", name);
            said = true;
        }
    }
    printf("\n");
}

static void man_setting(const char *name, const char *value, bool is_default, const char *text,
                        void *ctx)
{
    (void)value; /* of this process */
    (void)is_default;
    (void)ctx;
    printf(".TP\n\\fB%s\\fR\n", name);
    man_put(text);
    printf("\n");
}

static int man_all(void)
{
    man_head("", "", "train across many GPUs, real and virtual ones");
    printf(".SH SYNOPSIS\n\\fBweft\\fR \\fICOMMAND\\fR [\\fIARGUMENT\\fR]...\n.br\n"
           "\\fBweft \\-\\-version\\fR\n.SH DESCRIPTION\n"
           "Write and test a job of many GPUs on virtual ones, then run it on real ones.\n"
           ".SH COMMANDS\n");
    for (int i = 0; weft__command(i) != NULL; i++) {
        const weft_command_t *command = weft__command(i);
        printf(".TP\n\\fBweft %s\\fR\n", command->name);
        man_put(command->text);
        printf(": \\fBweft\\-%s\\fR(1)\n", command->name);
    }
    printf(
        ".SH OPTIONS\n"
        ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nlist the commands\n"
        ".TP\n\\fB\\-V\\fR, \\fB\\-\\-version\\fR\nprint the version\n"
        ".TP\n\\fB\\-\\-man\\fR [\\fICOMMAND\\fR]\nprint a manual page: this one, or that of "
        "\\fICOMMAND\\fR\n"
        ".TP\n\\fB\\-\\-completion\\fR\nprint a script that lets bash complete command lines: "
        "eval \"$(weft \\-\\-completion)\"\n"
        ".SH \"EXIT STATUS\"\n"
        ".TP\n0\nsuccess\n.TP\n1\nfailure\n.TP\n%d\nwrong use\n.TP\n%d\na command that looks for "
        "problems has found one\n.SH ENVIRONMENT\nWith their defaults: \\fBweft info\\fR.\n",
        WEFT_EXIT_USAGE, WEFT_EXIT_FINDING);
    weft__settings_each(man_setting, NULL);
    man_see_also("");
    return 0;
}

int weft__page_man(const char *name)
{
    if (name == NULL) {
        return man_all();
    }
    for (int i = 0; weft__command(i) != NULL; i++) {
        if (strcmp(weft__command(i)->name, name) == 0) {
            man_head("-", name, weft__command(i)->text);
            weft__args_help_as(WEFT_HELP_MAN);
            int status = ask(weft__command(i));
            man_see_also(name);
            return status;
        }
    }
    const char *names[64];
    int count = 0;
    for (; count < 64 && weft__command(count) != NULL; count++) {
        names[count] = weft__command(count)->name;
    }
    const char *nearest = weft__nearest(name, names, count);
    fprintf(stderr, "weft: there is no manual page of '%s'; %s%s%s\n", name,
            nearest != NULL ? "did you mean '" : "weft --help lists the commands",
            nearest != NULL ? nearest : "", nearest != NULL ? "'?" : "");
    return WEFT_EXIT_USAGE;
}

/* ---- completion ------------------------------------------------------------------------- */

/* The arrays: _weft_options[COMMAND] are its options, _weft_values[COMMAND OPTION] what the value
 * of one can be, _weft_values[COMMAND] what else it takes, _weft_values[COMMAND VERB] what it takes
 * after that word. There, @files, @folders and @command
 * stand for what the shell knows; "?" in front: the value may be left out. The loader of
 * bash-completion reads this inside a function, so arrays are declared global. */
static const char bash_head[] = "# bash completion for weft; made by weft --completion\n"
                                "declare -gA _weft_options _weft_values\n";

static const char bash_functions[] =
    "\n"
    "# _weft_add WORDS: add those that begin with $cur to COMPREPLY\n"
    "_weft_add() {\n"
    "    local word words=()\n"
    "    for word in $1; do\n"
    "        case $word in\n"
    "        @files) compopt -o filenames 2>/dev/null\n"
    "            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
    "        @folders) compopt -o filenames 2>/dev/null\n"
    "            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"
    "        @command) compopt -o filenames 2>/dev/null\n"
    "            mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -c -- \"$cur\"; "
    "compgen -d -- \"$cur\") ;;\n"
    "        \"$cur\"*) words+=(\"$word\") ;;\n"
    "        esac\n"
    "    done\n"
    "    COMPREPLY+=(\"${words[@]}\")\n"
    "}\n"
    "\n"
    "# _weft_program COMMAND: the number of the first word that is no option, in $at\n"
    "_weft_program() {\n"
    "    local word\n"
    "    for ((at = 2; at < COMP_CWORD; at++)); do\n"
    "        word=${COMP_WORDS[at]}\n"
    "        case $word in\n"
    "        --) at=$((at + 1)) && return ;;\n"
    "        -*) [[ ${_weft_values[$1 $word]-\\?} == \\?* || ${COMP_WORDS[at + 1]-} == = ]] || "
    "at=$((at + 1))\n"
    "            [[ ${COMP_WORDS[at + 1]-} != = ]] || at=$((at + 2)) ;;\n"
    "        *) return ;;\n"
    "        esac\n"
    "    done\n"
    "}\n"
    "\n"
    "_weft() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} "
    "command=${COMP_WORDS[1]} values at\n"
    "    COMPREPLY=()\n"
    "    if [[ $COMP_CWORD == 1 ]]; then\n"
    "        _weft_add \"$_weft_commands --help --version --man --completion\"\n"
    "        return\n"
    "    fi\n"
    "    if [[ $COMP_CWORD == 2 && $command =~ ^(help|--help|-h|--man)$ ]]; then\n"
    "        _weft_add \"$_weft_commands\"\n"
    "        return\n"
    "    fi\n"
    "    # --name=value is three words, as = breaks them\n"
    "    if [[ $cur == = ]]; then\n"
    "        cur=\n"
    "    elif [[ $prev == = ]]; then\n"
    "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    fi\n"
    "    if [[ ${_weft_values[$command]-} == *@command* ]]; then\n"
    "        _weft_program \"$command\"\n"
    "        if [[ $at -lt $COMP_CWORD ]]; then\n"
    "            if declare -F _command_offset >/dev/null; then\n"
    "                _command_offset \"$at\"\n"
    "            else\n"
    "                _weft_add @files\n"
    "            fi\n"
    "            return\n"
    "        fi\n"
    "    fi\n"
    "    if [[ $prev == -* && -n ${_weft_values[$command $prev]+set} ]]; then\n"
    "        values=${_weft_values[$command $prev]}\n"
    "        [[ $values != \\?* || $cur != -* ]] || values+=\" ${_weft_options[$command]}\"\n"
    "        _weft_add \"${values#\\?}\"\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        _weft_add \"${_weft_options[$command]-}\"\n"
    "    else\n"
    "        _weft_program \"$command\"\n"
    "        values=${_weft_values[$command]-}\n"
    "        [[ $at -ge $COMP_CWORD ]] || values=${_weft_values[$command "
    "${COMP_WORDS[at]}]-$values}\n"
    "        _weft_add \"$values\"\n"
    "    fi\n"
    "}\n"
    "complete -F _weft weft\n";

int weft__page_completion(void)
{
    int status = 0;
    fputs(bash_head, stdout);
    printf("_weft_commands='");
    for (int i = 0; weft__command(i) != NULL; i++) {
        printf("%s%s", i > 0 ? " " : "", weft__command(i)->name);
    }
    printf("'\n");
    weft__args_help_as(WEFT_HELP_BASH);
    for (int i = 0; weft__command(i) != NULL && status == 0; i++) {
        status = ask(weft__command(i));
    }
    fputs(bash_functions, stdout);
    return status;
}
