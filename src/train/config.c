/* The configuration table at work: options, files, help, and writing it all down. */
#include "train/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/file.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/utf8.h"
#include "model/config.h"

typedef enum kind {
    KIND_INT,
    KIND_SIZE,
    KIND_REAL,
    KIND_BOOL,
    KIND_STR,
    KIND_AUTO,
    KIND_ONE
} kind_t;

typedef struct row {
    kind_t kind;
    size_t offset; /* of the field in weft_train_config_t */
    const char *name;
    char letter;
    const char *metavar, *value, *words, *help;
} row_t;

static const row_t table[] = {
#define ROW(kind, field, name, letter, metavar, value, words, help)                                \
    {KIND_##kind, offsetof(weft_train_config_t, field), name, letter, metavar, value, words, help},
    WEFT_TRAIN_TABLE(ROW)
#undef ROW
};

static const struct {
    const char *name, *option, *help;
} other_names[] = {
#define NAME(name, option, help) {name, option, help},
    WEFT_TRAIN_NAMES(NAME)
#undef NAME
};

#define ROWS ((int)(sizeof(table) / sizeof(table[0])))
#define NAMES ((int)(sizeof(other_names) / sizeof(other_names[0])))
#define OPTIONS (ROWS + NAMES + 5) /* and --config, --dry-run, --force, --benchmark, --json */
#define TEXTS_MOST ((int)(sizeof(((weft_train_config_t *)0)->texts) / sizeof(char *)))

static void *field_of(const row_t *row, weft_train_config_t *config)
{
    return (char *)config + row->offset;
}

/* false, and the field is unchanged, if `value` is no such thing. */
static bool assign(const row_t *row, const char *value, weft_train_config_t *config)
{
    void *field = field_of(row, config);
    switch (row->kind) {
    case KIND_INT:
        return weft__parse_int(value, field);
    case KIND_SIZE:
        return weft__parse_size(value, field);
    case KIND_REAL:
        return weft__parse_real(value, field);
    case KIND_BOOL:
        return weft__parse_bool(value, field);
    case KIND_ONE:
        if (!weft__is_word(row->words, value)) {
            return false;
        }
        break;
    case KIND_STR:
    case KIND_AUTO:
        break;
    }
    *(const char **)field = value;
    return true;
}

static const char *kind_text(const row_t *row)
{
    static const char *const texts[] = {
        [KIND_INT] = "a whole number",
        [KIND_SIZE] = "a size such as 4096, 64K or 25M",
        [KIND_REAL] = "a number such as 3e-4",
        [KIND_BOOL] = "yes or no",
        [KIND_STR] = "a text",
        [KIND_AUTO] = "a text",
    };
    return row->kind == KIND_ONE ? row->words : texts[row->kind];
}

/* "none, bf16, fp16 or int8" */
static void list_words(const char *words, char *out, size_t room)
{
    size_t at = 0;
    out[0] = '\0';
    while (*words != '\0' && at < room) {
        size_t word = strcspn(words, " ");
        const char *next = words + word + strspn(words + word, " ");
        bool last = *next == '\0' || strchr(next, ' ') == NULL;
        at += (size_t)snprintf(out + at, room - at, "%.*s%s", (int)word, words,
                               *next == '\0' ? ""
                               : last        ? " or "
                                             : ", ");
        words = next;
    }
}

static void set_defaults(weft_train_config_t *config)
{
    memset(config, 0, sizeof(*config));
    for (int i = 0; i < ROWS; i++) {
        assign(&table[i], table[i].value, config); /* the unit test checks that all of them parse */
    }
}

/* ---- files ---------------------------------------------------------------------------------- */

static const row_t *find_row(const char *name)
{
    for (int i = 0; i < NAMES; i++) {
        name = strcmp(other_names[i].name, name) == 0 ? other_names[i].option : name;
    }
    for (int i = 0; i < ROWS; i++) {
        bool letter = table[i].letter != 0 && name[0] == table[i].letter && name[1] == '\0';
        if (strcmp(table[i].name, name) == 0 || letter) {
            return &table[i];
        }
    }
    return NULL;
}

static weft_status_t unknown_name(const char *file, int line, const char *name)
{
    const char *names[ROWS];
    for (int i = 0; i < ROWS; i++) {
        names[i] = table[i].name;
    }
    const char *nearest = weft__nearest(name, names, ROWS);
    return weft__fail(WEFT_ERR_INVALID, "%s, line %d: there is no option \"%.60s\"%s%s%s", file,
                      line, name,
                      nearest != NULL ? "; did you mean " : "; weft train --help lists them",
                      nearest != NULL ? nearest : "", nearest != NULL ? "?" : "");
}

/* Cut spaces off both ends, in place. */
static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r", text[length - 1]) != NULL) {
        text[--length] = '\0';
    }
    return text;
}

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = c != '\0' ? strchr(digits, c) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

/* A value in quotes, with \n, \t, \r, \", \\ and bytes such as \xff in it; in place. false if the
 * quotes do not close. */
static bool unquote(char *text)
{
    static const char letters[] = "ntr\"\\", meant[] = "\n\t\r\"\\";
    char *out = text;
    for (char *at = text + 1; *at != '\0'; at++) {
        if (*at == '"') {
            *out = '\0';
            return at[1] == '\0';
        }
        if (*at == '\\' && at[1] == 'x') {
            int high = hex_digit(at[2]), low = high < 0 ? -1 : hex_digit(at[3]);
            if (low < 0 || high + low == 0) {
                return false;
            }
            *out++ = (char)(high << 4 | low);
            at += 3;
        } else if (*at == '\\') {
            const char *found = at[1] != '\0' ? strchr(letters, at[1]) : NULL;
            if (found == NULL) {
                return false;
            }
            at++;
            *out++ = meant[found - letters];
        } else {
            *out++ = *at;
        }
    }
    return false;
}

static weft_status_t read_line(char *line, const char *file, int number,
                               weft_train_config_t *config)
{
    line = trim(line);
    if (*line == '\0' || *line == '#') {
        return WEFT_OK;
    }
    char *equals = strchr(line, '=');
    if (equals == NULL) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s, line %d: \"%.60s\" is not of the form name = value", file, number,
                          line);
    }
    *equals = '\0';
    const char *name = trim(line);
    char *value = trim(equals + 1);
    const row_t *row = find_row(name);
    if (row == NULL) {
        return unknown_name(file, number, name);
    }
    if (*value == '"' && !unquote(value)) {
        return weft__fail(WEFT_ERR_INVALID, "%s, line %d: the quotes of %s do not close", file,
                          number, name);
    }
    if (!assign(row, value, config)) {
        return weft__fail(WEFT_ERR_INVALID, "%s, line %d: %s takes %s%s%s, not \"%.100s\"", file,
                          number, name, row->kind == KIND_ONE ? "one of: " : "", kind_text(row),
                          row->kind == KIND_INT ? weft__int_limit(value) : "", value);
    }
    return WEFT_OK;
}

weft_status_t weft__train_read_text(const char *text, const char *name, weft_train_config_t *config)
{
    char *copy = config->text_count < TEXTS_MOST ? strdup(text) : NULL;
    if (copy == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY,
                          "%s: no memory, or more than %d configurations on top of each "
                          "other",
                          name, TEXTS_MOST);
    }
    config->texts[config->text_count++] = copy; /* strings point into it */
    weft_status_t status = WEFT_OK;
    for (int number = 1; copy != NULL && status == WEFT_OK; number++) {
        char *line = strsep(&copy, "\n");
        status = read_line(line, name, number, config);
    }
    return status;
}

weft_status_t weft__train_read(const char *path, weft_train_config_t *config)
{
    char *text;
    size_t size;
    WEFT_TRY(weft__file_read(path, &text, &size));
    weft_status_t status = strlen(text) == size
                               ? weft__train_read_text(text, path, config)
                               : weft__fail(WEFT_ERR_INVALID, "%s is no text", path);
    free(text);
    return status;
}

/* ---- the command line ----------------------------------------------------------------------- */

static void make_options(weft_train_config_t *config, const char **file_p, weft_arg_t *options)
{
    static const weft_arg_kind_t kinds[] = {
        [KIND_INT] = WEFT_ARG_INT,   [KIND_SIZE] = WEFT_ARG_SIZE, [KIND_REAL] = WEFT_ARG_REAL,
        [KIND_BOOL] = WEFT_ARG_BOOL, [KIND_STR] = WEFT_ARG_STR,   [KIND_AUTO] = WEFT_ARG_AUTO,
        [KIND_ONE] = WEFT_ARG_STR,
    };
    for (int i = 0; i < ROWS; i++) {
        options[i] = (weft_arg_t){.name = table[i].name,
                                  .letter = table[i].letter,
                                  .kind = kinds[table[i].kind],
                                  .metavar = table[i].metavar,
                                  .target = field_of(&table[i], config),
                                  .help = table[i].help};
    }
    for (int i = 0; i < NAMES; i++) {
        weft_arg_t *option = &options[ROWS + i];
        *option = options[find_row(other_names[i].option) - table];
        option->name = other_names[i].name;
        option->letter = 0;
        option->help = other_names[i].help;
    }
    options[OPTIONS - 5] = (weft_arg_t){
        .name = "benchmark",
        .kind = WEFT_ARG_FLAG,
        .target = &config->benchmark,
        .help = "train on made-up tokens, write nothing, and say how fast that is and where the "
                "time goes; what a --config says of --data, --out, --trace and what belongs to "
                "them is not used; --steps counts timed steps (default 20)"};
    options[OPTIONS - 4] = (weft_arg_t){
        .name = "json",
        .kind = WEFT_ARG_FILE,
        .metavar = "FILE",
        .target = &config->json,
        .help = "--benchmark: write the figures to FILE as JSON; -: to stdout, and the table to "
                "stderr"};
    options[OPTIONS - 3] = (weft_arg_t){.name = "config",
                                        .letter = 'c',
                                        .kind = WEFT_ARG_FILE,
                                        .metavar = "FILE",
                                        .target = file_p,
                                        .help = "read options from FILE first: lines name = value"};
    options[OPTIONS - 2] = (weft_arg_t){
        .name = "dry-run",
        .kind = WEFT_ARG_FLAG,
        .target = &config->dry_run,
        .help = "check everything, say what memory and disk it needs, and start nothing"};
    options[OPTIONS - 1] = (weft_arg_t){
        .name = "force",
        .kind = WEFT_ARG_FLAG,
        .target = &config->force,
        .help =
            "go on from an earlier checkpoint, and keep later ones aside; start though memory or "
            "disk will not do"};
}

/* For shells, besides the words of the table. */
static const weft_arg_words_t more_words[] = {
    {"model", "help @files", weft__config_preset_name},
    {"tokenizer", "auto bytes none", NULL},
    {"resume", "auto", NULL},
    {"tensorboard", "none", NULL},
    {"zero", "0 1 2 3", NULL},
};

#define MORE_WORDS ((int)(sizeof(more_words) / sizeof(more_words[0])))

static int make_words(weft_arg_words_t words[ROWS + MORE_WORDS])
{
    int count = MORE_WORDS;
    memcpy(words, more_words, sizeof(more_words));
    for (int i = 0; i < ROWS; i++) {
        if (table[i].words[0] != '\0') {
            words[count++] = (weft_arg_words_t){.option = table[i].name, .words = table[i].words};
        }
    }
    return count;
}

static weft_args_t make_args(const weft_arg_t *options)
{
    return (weft_args_t){
        .command = "weft train",
        .synopsis = "--data PATH [OPTION]... | --benchmark [OPTION]...",
        .text = "Train a language model on virtual or real GPUs.",
        .footer = "examples:\n  weft train -n 4 --data src --steps 200 --out run\n"
                  "  weft train --config run/config --out again\n"
                  "  weft train --benchmark -n 4 --tp 2 --json speed.json",
        .options = options,
        .count = OPTIONS,
    };
}

/* weft__args_parse on a copy of argv, which it would reorder. */
static weft_status_t parse_copy(const weft_args_t *args, int argc, char **argv,
                                weft_args_found_t *found_p)
{
    char **copy = calloc((size_t)argc + 1, sizeof(*copy));
    if (copy == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d arguments", argc);
    }
    memcpy(copy, argv, (size_t)argc * sizeof(*copy));
    weft_status_t status = weft__args_parse(args, argc, copy, found_p);
    if (status == WEFT_OK && !found_p->help) {
        status = weft__args_none(found_p);
    }
    free(copy);
    return status;
}

static weft_status_t check_words(weft_train_config_t *config)
{
    for (int i = 0; i < ROWS; i++) {
        const char *value = table[i].kind == KIND_ONE ? *(const char **)field_of(&table[i], config)
                                                      : "";
        if (table[i].kind == KIND_ONE && !weft__is_word(table[i].words, value)) {
            return weft__fail(WEFT_ERR_INVALID, "weft train: --%s takes one of: %s, not \"%.60s\"",
                              table[i].name, table[i].words, value);
        }
    }
    return WEFT_OK;
}

/* WEFT_DEVICE, where it is set, stands for a --device that was not given. */
static void heed_device(weft_train_config_t *config)
{
    config->device = weft__settings_device(config->device);
}

/* What a benchmark has no use for is not for the command line. */
static weft_status_t refuse_unused(const weft_args_found_t *found)
{
    static const struct {
        const char *name, *why;
    } rows[] = {
        {"data", "tokens are made up"},
        {"tokenizer", "tokens are made up"},
        {"eval-data", "nothing is validated"},
        {"eval-share", "nothing is validated"},
        {"eval", "nothing is validated"},
        {"eval-batches", "nothing is validated"},
        {"out", "nothing is written but --json"},
        {"tensorboard", "nothing is written but --json"},
        {"resume", "weights are made up"},
        {"save", "nothing is saved"},
        {"keep", "nothing is saved"},
        {"max-restarts", "nothing is saved to go on from"},
        {"grace", "nothing is saved"},
        {"sample", "no text is sampled"},
        {"sample-tokens", "no text is sampled"},
        {"prompt", "no text is sampled"},
        {"log", "steps are not printed"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (weft__args_given(found, rows[i].name)) {
            return weft__fail(WEFT_ERR_INVALID, "--%s has no use, as %s: leave it out",
                              rows[i].name, rows[i].why);
        }
    }
    return WEFT_OK;
}

/* But it may stand in the configuration of the run that it is about, whose trace is not to be
 * replaced. Where a checkpoint is to be gone on from, that says what the model is, so it is refused
 * later. */
static void heed_benchmark(bool trace_asked, weft_train_config_t *config)
{
    config->data = config->eval_data = config->out = config->tensorboard = "";
    config->trace = trace_asked ? config->trace : "";
    config->tokenizer = "none";
    config->eval_every = config->save_every = config->sample_every = config->max_restarts = 0;
    config->steps = config->asked_steps ? config->steps : WEFT_TRAIN_BENCHMARK_STEPS;
    config->warmup = config->warmup < config->steps ? config->warmup : config->steps;
}

/* How a batch was divided: among ranks, and by each of them. */
typedef struct division {
    int ranks, tp, pp, batch;
    int dp, micro_batch, accumulate;
} division_t;

static division_t division_of(const weft_train_config_t *config)
{
    return (division_t){.ranks = config->ranks,
                        .tp = config->tp,
                        .pp = config->pp,
                        .batch = config->batch,
                        .dp = config->dp,
                        .micro_batch = config->micro_batch,
                        .accumulate = config->accumulate};
}

/* The same ranks and the same batch are divided as they were, as the order of sums depends on it,
 * and memory does; where one of them is another now, or something was said about it, it is open
 * again. */
static void divide_as_before(const division_t *before, weft_train_config_t *config)
{
    bool same = config->ranks == before->ranks && config->tp == before->tp &&
                config->pp == before->pp && config->batch == before->batch;
    bool open = config->dp == 0 && config->micro_batch == 0 && config->accumulate == 0;
    if (same && open) {
        config->dp = before->dp;
        config->micro_batch = before->micro_batch;
        config->accumulate = before->accumulate;
    }
}

/* What comes before the command line: defaults, the settings of an earlier run, a file. */
static weft_status_t start_from(const weft_train_earlier_t *earlier, const char *file,
                                weft_train_config_t *config, division_t *before)
{
    set_defaults(config);
    if (earlier != NULL) {
        WEFT_TRY(weft__train_read_text(earlier->settings, "the resumed run", config));
        config->out = earlier->out;
        config->earlier_model = config->model;
        *before = division_of(config);
        config->dp = config->accumulate = config->micro_batch = 0;
        config->resume = config->trace = "";
    }
    heed_device(config);
    return file != NULL ? weft__train_read(file, config) : WEFT_OK;
}

static weft_status_t parse_over(const weft_train_earlier_t *earlier, int argc, char **argv,
                                weft_train_config_t *config, bool *help_p)
{
    weft_arg_t options[OPTIONS];
    const char *file = NULL;
    weft_args_found_t found;
    set_defaults(config);
    int ranks = config->ranks, steps = config->steps;
    config->ranks = config->steps = WEFT_TRAIN_NOT_ASKED;
    heed_device(config);
    make_options(config, &file, options);
    weft_args_t args = make_args(options);
    weft_status_t status = parse_copy(&args, argc, argv, &found);
    int asked = config->ranks;
    bool steps_asked = config->steps != WEFT_TRAIN_NOT_ASKED;
    config->ranks = asked == WEFT_TRAIN_NOT_ASKED ? ranks : asked;
    config->steps = steps_asked ? config->steps : steps;
    *help_p = status == WEFT_OK && found.help;
    if (status != WEFT_OK || found.help) {
        return status;
    }
    if (file != NULL || earlier != NULL) {
        /* Again from the start, now that the file is known: what it says goes first. */
        division_t before = {0};
        status = start_from(earlier, file, config, &before);
        status = status == WEFT_OK ? parse_copy(&args, argc, argv, &found) : status;
        divide_as_before(&before, config);
    }
    config->asked_ranks = asked;
    config->asked_steps = steps_asked;
    if (status == WEFT_OK && config->benchmark) {
        status = refuse_unused(&found);
        heed_benchmark(weft__args_given(&found, "trace"), config);
    }
    return status == WEFT_OK ? check_words(config) : status;
}

weft_status_t weft__train_parse(int argc, char **argv, weft_train_config_t *config, bool *help_p)
{
    return parse_over(NULL, argc, argv, config, help_p);
}

weft_status_t weft__train_parse_resumed(const weft_train_earlier_t *earlier, int argc, char **argv,
                                        weft_train_config_t *config)
{
    bool help;
    return parse_over(earlier, argc, argv, config, &help);
}

void weft__train_free(weft_train_config_t *config)
{
    for (int i = 0; i < config->text_count; i++) {
        free(config->texts[i]);
    }
    config->text_count = 0;
}

void weft__train_help(FILE *out)
{
    weft_train_config_t config;
    weft_arg_t options[OPTIONS];
    char helps[ROWS][512];
    const char *file = NULL;
    set_defaults(&config);
    make_options(&config, &file, options);
    for (int i = 0; i < ROWS; i++) {
        const char *value = table[i].value;
        char words[128];
        list_words(table[i].words, words, sizeof(words));
        snprintf(helps[i], sizeof(helps[i]), value[0] != '\0' ? "%s (%s%sdefault %s)" : "%s",
                 table[i].help, words, words[0] != '\0' ? "; " : "", value);
        options[i].help = helps[i];
    }
    weft_arg_words_t words[ROWS + MORE_WORDS];
    weft_args_t args = make_args(options);
    args.words = words;
    args.words_count = make_words(words);
    weft__args_help(&args, out);
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Bytes of the character at `text`; 0 for a byte that is none, as names of files may have. */
static int character(const char *text)
{
    return weft__utf8_length((const unsigned char *)text, strlen(text));
}

static bool is_utf8(const char *text)
{
    while (*text != '\0' && character(text) > 0) {
        text += character(text);
    }
    return *text == '\0';
}

/* In quotes if a reader would otherwise change it. What is written is UTF-8: it is kept in JSON,
 * too. */
static void write_string(FILE *out, const char *text)
{
    size_t length = strlen(text);
    bool plain = length == 0 ||
                 (strchr(" \t\"", text[0]) == NULL && strchr(" \t", text[length - 1]) == NULL &&
                  strpbrk(text, "\n\r") == NULL && is_utf8(text));
    if (plain) {
        fputs(text, out);
        return;
    }
    static const char special[] = "\n\t\r\"\\", letters[] = "ntr\"\\";
    fputc('"', out);
    while (*text != '\0') {
        const char *found = strchr(special, *text);
        int bytes = character(text);
        if (found != NULL) {
            fprintf(out, "\\%c", letters[found - special]);
        } else if (bytes == 0) {
            fprintf(out, "\\x%02x", (unsigned char)*text);
        } else {
            fprintf(out, "%.*s", bytes, text);
        }
        text += bytes > 0 ? bytes : 1;
    }
    fputc('"', out);
}

static void write_value(FILE *out, const row_t *row, const weft_train_config_t *config)
{
    char text[32];
    const void *field = (const char *)config + row->offset;
    switch (row->kind) {
    case KIND_INT:
        fprintf(out, "%d", *(const int *)field);
        break;
    case KIND_SIZE:
        weft__print_size(text, sizeof(text), *(const size_t *)field);
        fputs(text, out);
        break;
    case KIND_REAL:
        weft__print_real(text, sizeof(text), *(const double *)field);
        fputs(text, out);
        break;
    case KIND_BOOL:
        fputs(*(const bool *)field ? "yes" : "no", out);
        break;
    case KIND_STR:
    case KIND_AUTO:
    case KIND_ONE:
        write_string(out, *(const char *const *)field);
        break;
    }
}

weft_status_t weft__train_write_text(const weft_train_config_t *config, const char *extra,
                                     char **text_p)
{
    size_t size = 0;
    FILE *out = open_memstream(text_p, &size);
    if (out == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to write the configuration");
    }
    while (*extra != '\0') {
        size_t length = strcspn(extra, "\n");
        fprintf(out, "# %.*s\n", (int)length, extra);
        extra += length + (extra[length] == '\n' ? 1 : 0);
    }
    for (int i = 0; i < ROWS; i++) {
        fprintf(out, "%s = ", table[i].name);
        write_value(out, &table[i], config);
        fputc('\n', out);
    }
    if (fclose(out) != 0) {
        free(*text_p);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to write the configuration");
    }
    return WEFT_OK;
}
