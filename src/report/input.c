/* Files and run folders, and what they are. */
#include "report/input.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "base/trace.h"
#include "report/trace_spans.h"

static const char *const kind_words[] = {
#define INPUT_WORD(name, word) word,
    WEFT_INPUT_TABLE(INPUT_WORD)
#undef INPUT_WORD
};
#define RESULT_KINDS ((int)(sizeof(kind_words) / sizeof(kind_words[0])))

/* ---- the list ------------------------------------------------------------------------------- */

const weft_input_t *weft__input_next(const weft_report_t *report, weft_input_kind_t kind,
                                     const weft_input_t *at)
{
    const weft_input_t *end = report->inputs + report->count;
    for (at = at == NULL ? report->inputs : at + 1; at < end; at++) {
        if (at->kind == kind) {
            return at;
        }
    }
    return NULL;
}

int weft__input_count(const weft_report_t *report, weft_input_kind_t kind)
{
    int count = 0;
    for (int i = 0; i < report->count; i++) {
        count += report->inputs[i].kind == kind;
    }
    return count;
}

static void cleanup_input(weft_input_t *input)
{
    free(input->path);
    free(input->label);
    free(input->config);
    weft__json_free(&input->doc);
    for (int i = 0; i < WEFT_COLUMN_COUNT; i++) {
        free(input->columns[i]);
    }
}

void weft__report_cleanup(weft_report_t *report)
{
    for (int i = 0; i < report->count; i++) {
        cleanup_input(&report->inputs[i]);
    }
    free(report->inputs);
    free(report->files);
    *report = (weft_report_t){0};
}

/* The last part of the path, without the ending of a file. */
static char *label_of(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    size_t start = length;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    static const char *const endings[] = {".jsonl", ".json"};
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        size_t ending = strlen(endings[i]);
        if (length - start > ending && strncmp(path + length - ending, endings[i], ending) == 0) {
            length -= ending;
            break;
        }
    }
    return strndup(path + start, length - start);
}

/* Inputs of one kind that would have the same label get their paths instead. */
static void make_distinct(weft_report_t *report)
{
    weft_input_t *last = &report->inputs[report->count - 1];
    for (int i = 0; i < report->count - 1; i++) {
        weft_input_t *other = &report->inputs[i];
        char *paths[2];
        if (other->kind != last->kind || strcmp(other->label, last->label) != 0) {
            continue;
        }
        paths[0] = strdup(other->path);
        paths[1] = strdup(last->path);
        if (paths[0] == NULL || paths[1] == NULL) { /* a label twice is no harm */
            free(paths[0]);
            free(paths[1]);
            return;
        }
        free(other->label);
        free(last->label);
        other->label = paths[0];
        last->label = paths[1];
    }
}

/* Take over `input`, which must not be used any more. */
static weft_status_t keep(weft_report_t *report, weft_input_t *input)
{
    weft_input_t *inputs = realloc(report->inputs, (size_t)(report->count + 1) * sizeof(*inputs));
    if (inputs != NULL) {
        report->inputs = inputs;
        inputs[report->count++] = *input;
        make_distinct(report);
        return WEFT_OK;
    }
    cleanup_input(input);
    return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for one file more");
}

static weft_status_t start_input(const char *path, weft_input_kind_t kind, weft_input_t *input)
{
    *input = (weft_input_t){.kind = kind, .path = strdup(path), .label = label_of(path)};
    if (input->path != NULL && input->label != NULL) {
        return WEFT_OK;
    }
    cleanup_input(input);
    return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %s", path);
}

/* ---- files ---------------------------------------------------------------------------------- */

/* Remember that it was read, so that it is not written over. */
static weft_status_t remember(weft_report_t *report, const char *path)
{
    struct stat about;
    weft_file_id_t *files = realloc(report->files,
                                    (size_t)(report->file_count + 1) * sizeof(*files));
    if (files == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for one file more");
    }
    report->files = files;
    if (stat(path, &about) == 0) {
        files[report->file_count++] = (weft_file_id_t){about.st_dev, about.st_ino};
    }
    return WEFT_OK;
}

bool weft__report_reads(const weft_report_t *report, const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0) {
        return false;
    }
    for (int i = 0; i < report->file_count; i++) {
        if (report->files[i].device == about.st_dev && report->files[i].inode == about.st_ino) {
            return true;
        }
    }
    return false;
}

static weft_status_t read_text(weft_report_t *report, const char *path, char **text_p,
                               size_t *size_p)
{
    WEFT_TRY(remember(report, path));
    WEFT_TRY(weft__file_read(path, text_p, size_p));
    if (*size_p == 0) {
        free(*text_p);
        return weft__fail(WEFT_ERR_INVALID, "%s is empty", path);
    }
    return WEFT_OK;
}

/* ---- what a file is ------------------------------------------------------------------------- */

/* Only what every terminal shows. */
static bool is_word(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && *at != '-' && *at != '_') {
            return false;
        }
    }
    return text[0] != '\0' && strlen(text) <= 40;
}

static weft_status_t classify_result(const char *path, const weft_json_value_t *root,
                                     weft_input_kind_t *kind_p)
{
    const char *word = weft__json_text(weft__json_get(root, "kind"), NULL);
    const weft_json_value_t *format = weft__json_get(root, "format");
    int64_t number = -1;
    if (word == NULL || format == NULL) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s is JSON, but neither a result of a command (--json) nor metrics nor "
                          "a trace: it has no \"kind\" and \"format\"",
                          path);
    }
    if (!weft__json_to_int(format, &number) || number != WEFT_INPUT_FORMAT) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s has another format than %d, which is what this version of Weft reads",
                          path, WEFT_INPUT_FORMAT);
    }
    for (int i = 0; i < RESULT_KINDS; i++) {
        if (strcmp(word, kind_words[i]) == 0) {
            *kind_p = (weft_input_kind_t)i;
            return WEFT_OK;
        }
    }
    return weft__fail(WEFT_ERR_INVALID, "%s holds results of a kind%s%s%s that reports do not show",
                      path, is_word(word) ? ", \"" : "", is_word(word) ? word : "",
                      is_word(word) ? "\"," : "");
}

/* Traces are an object with events, or an array of them. */
static bool is_trace(const weft_json_value_t *root)
{
    return weft__trace_events(root) != NULL &&
           (root->kind == WEFT_JSON_OBJECT || weft__json_get(weft__json_first(root), "ph") != NULL);
}

static weft_status_t parse_document(weft_input_t *input, const char *text, size_t size)
{
    if (text[strspn(text, " \t\r\n")] != '{' && text[strspn(text, " \t\r\n")] != '[') {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s is no result of a command (--json), no metrics and no trace: it does "
                          "not begin like JSON",
                          input->path);
    }
    WEFT_TRY(weft__json_parse(text, size, input->path, &input->doc));
    if (is_trace(input->doc.root)) {
        input->kind = WEFT_INPUT_TRACE;
        return WEFT_OK;
    }
    return classify_result(input->path, input->doc.root, &input->kind);
}

/* Is the first line an object with a step, or does the name say that lines are meant? */
static bool is_metrics(const char *path, const char *text, size_t size)
{
    size_t name = strlen(path);
    if (name > 6 && strcmp(path + name - 6, ".jsonl") == 0) {
        return true;
    }
    const char *end = memchr(text, '\n', size);
    weft_json_doc_t doc;
    if (weft__json_parse(text, end != NULL ? (size_t)(end - text) : size, path, &doc) != WEFT_OK) {
        return false;
    }
    bool is = weft__json_get(doc.root, "step") != NULL && weft__json_get(doc.root, "kind") == NULL;
    weft__json_free(&doc);
    return is;
}

static weft_status_t add_file(weft_report_t *report, const char *path)
{
    weft_input_t input;
    char *text;
    size_t size;
    WEFT_TRY(read_text(report, path, &text, &size));
    weft_status_t status = start_input(path, WEFT_INPUT_METRICS, &input);
    if (status != WEFT_OK) {
        free(text);
        return status;
    }
    status = is_metrics(path, text, size) ? weft__input_metrics(&input, text, size)
                                          : parse_document(&input, text, size);
    free(text);
    if (status != WEFT_OK) {
        cleanup_input(&input);
        return status;
    }
    return keep(report, &input);
}

/* ---- run folders ---------------------------------------------------------------------------- */

static weft_status_t add_metrics_of_run(weft_report_t *report, const char *folder, const char *path)
{
    weft_input_t input;
    char *text;
    size_t size;
    WEFT_TRY(read_text(report, path, &text, &size));
    weft_status_t status = start_input(path, WEFT_INPUT_METRICS, &input);
    if (status == WEFT_OK) {
        status = weft__input_metrics(&input, text, size);
        free(input.label);
        input.label = label_of(folder);
        if (status == WEFT_OK && input.label == NULL) {
            status = weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %s", path);
        }
        if (status == WEFT_OK) {
            status = keep(report, &input);
        } else {
            cleanup_input(&input);
        }
    }
    free(text);
    return status;
}

/* config and machine.json; either may be missing. */
static weft_status_t add_record(weft_report_t *report, const char *folder)
{
    char path[WEFT_PATH_BYTES];
    weft_input_t input;
    bool has_config, has_machine;
    WEFT_TRY(start_input(folder, WEFT_INPUT_RECORD, &input));
    weft_status_t status = weft__path_join(path, folder, "config");
    status = status == WEFT_OK ? weft__is_file(path, &has_config) : status;
    if (status == WEFT_OK && has_config) {
        status = remember(report, path);
        status = status == WEFT_OK ? weft__file_read(path, &input.config, NULL) : status;
    }
    status = status == WEFT_OK ? weft__path_join(path, folder, "machine.json") : status;
    status = status == WEFT_OK ? weft__is_file(path, &has_machine) : status;
    if (status == WEFT_OK && has_machine) {
        status = remember(report, path);
        status = status == WEFT_OK ? weft__json_load(path, &input.doc) : status;
    }
    if (status == WEFT_OK && (has_config || has_machine)) {
        return keep(report, &input);
    }
    cleanup_input(&input);
    return status;
}

/* Does it begin like a trace? What cannot be read does not. */
static bool begins_like_trace(const char *path)
{
    char head[sizeof(WEFT_TRACE_START)] = "";
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    size_t length = fread(head, 1, sizeof(head) - 1, file);
    fclose(file);
    return length == sizeof(head) - 1 && memcmp(head, WEFT_TRACE_START, length) == 0;
}

static int is_json_name(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0;
}

static weft_status_t add_traces(weft_report_t *report, const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, is_json_name, alphasort);
    weft_status_t status = WEFT_OK;
    if (count < 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "cannot read the folder %s: %s", folder,
                          strerror(errno));
    }
    for (int i = 0; i < count; i++) {
        char path[WEFT_PATH_BYTES];
        bool is_file = false;
        status = status == WEFT_OK ? weft__path_join(path, folder, entries[i]->d_name) : status;
        status = status == WEFT_OK ? weft__is_file(path, &is_file) : status;
        if (status == WEFT_OK && is_file && begins_like_trace(path)) {
            status = add_file(report, path);
        }
        free(entries[i]);
    }
    free(entries);
    return status;
}

static weft_status_t add_run(weft_report_t *report, const char *folder)
{
    char path[WEFT_PATH_BYTES];
    bool there;
    WEFT_TRY(weft__path_join(path, folder, "metrics.jsonl"));
    WEFT_TRY(weft__is_file(path, &there));
    if (!there) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s is a folder, but no run of weft train: it has no metrics.jsonl",
                          folder);
    }
    WEFT_TRY(add_metrics_of_run(report, folder, path));
    WEFT_TRY(add_traces(report, folder));
    return add_record(report, folder);
}

weft_status_t weft__report_add(weft_report_t *report, const char *path)
{
    bool is_folder;
    WEFT_TRY(weft__is_folder(path, &is_folder));
    WEFT_TRY(is_folder ? add_run(report, path) : add_file(report, path));
    report->named++;
    return WEFT_OK;
}
