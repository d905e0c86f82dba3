/* Where and how everything was measured: machine, command, settings, configuration; folded. */
#include <string.h>

#include "base/log.h"
#include "report/html.h"
#include "report/input.h"
#include "report/page.h"
#include "report/section.h"
#include "report/values.h"

static const char *const columns[] = {"name", "value"};

static void write_pair(const char *key, size_t key_length, const char *value, size_t length,
                       FILE *out)
{
    weft__html_row(out);
    fputs("<td>", out);
    weft__html_bytes(out, key, key_length);
    fputs("</td><td>", out);
    weft__html_bytes(out, value, length);
    fputs("</td>", out);
    weft__html_row_end(out);
}

static void write_member(const weft_json_value_t *key, FILE *out)
{
    char room[64];
    const weft_json_value_t *value = key + 1;
    bool is_text = value->kind == WEFT_JSON_STRING;
    const char *shown = weft__value_shown(value, room, sizeof(room));
    size_t length = is_text ? value->length : strlen(shown);
    if (length > 0) {
        write_pair(key->as.text, key->length, shown, length, out);
    }
}

/* The scalars of an object; lists and objects in it are left to others. */
static void write_members(const weft_json_value_t *object, FILE *out)
{
    for (const weft_json_value_t *key = weft__json_first(object); key != NULL;
         key = weft__json_next(object, key)) {
        write_member(key, out);
    }
}

static void write_command(const weft_json_value_t *root, FILE *out)
{
    const weft_json_value_t *command = weft__value_array(root, "command");
    if (command == NULL) {
        return;
    }
    fputs("<p><code>weft", out);
    for (const weft_json_value_t *word = weft__json_first(command); word != NULL;
         word = weft__json_next(command, word)) {
        fputc(' ', out);
        weft__html_text(out, weft__json_text(word, "?"));
    }
    fputs("</code></p>\n", out);
}

static void write_settings(const weft_json_value_t *root, FILE *out)
{
    const weft_json_value_t *settings = weft__value_object(root, "settings");
    if (settings != NULL) {
        weft__details_open(out, "settings");
        weft__html_table(out, columns, 2);
        write_members(settings, out);
        weft__html_table_end(out);
        weft__details_close(out);
    }
}

/* Lines of "name = value". */
static void write_config(const char *config, FILE *out)
{
    weft__details_open(out, "configuration");
    weft__html_table(out, columns, 2);
    while (*config != '\0') {
        size_t length = strcspn(config, "\n");
        const char *equals = memchr(config, '=', length);
        if (config[0] != '#' && equals != NULL) {
            size_t name = (size_t)(equals - config);
            size_t skip = name + 1 + strspn(equals + 1, " ");
            while (name > 0 && config[name - 1] == ' ') {
                name--;
            }
            if (skip < length) {
                write_pair(config, name, config + skip, length - skip, out);
            }
        }
        config += length + (config[length] == '\n');
    }
    weft__html_table_end(out);
    weft__details_close(out);
}

/* Keys of the head of a result, in the order in which they are shown. */
static void write_result(const weft_json_value_t *root, FILE *out)
{
    static const char *const keys[] = {"version", "commit",      "ranks",  "ranks_are",
                                       "device",  "device_name", "kernels"};
    const weft_json_value_t *machine = weft__value_object(root, "machine");
    char room[64];
    write_command(root, out);
    weft__html_table(out, columns, 2);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const char *shown = weft__value_shown(weft__json_get(root, keys[i]), room, sizeof(room));
        if (shown[0] != '\0') {
            write_pair(keys[i], strlen(keys[i]), shown, strlen(shown), out);
        }
    }
    if (machine != NULL) {
        write_members(machine, out);
    }
    weft__html_table_end(out);
    write_settings(root, out);
}

static void write_record(const weft_input_t *input, FILE *out)
{
    if (input->doc.root != NULL) {
        weft__html_table(out, columns, 2);
        write_members(input->doc.root, out);
        weft__html_table_end(out);
        write_settings(input->doc.root, out);
    }
    if (input->config != NULL) {
        write_config(input->config, out);
    }
}

/* What is seen while it is folded: the path, where and when. */
static void summarize(const weft_input_t *input, char *text, size_t size)
{
    const weft_json_value_t *root = input->doc.root;
    const weft_json_value_t *machine = weft__value_object(root, "machine");
    const weft_json_value_t *at = machine != NULL ? machine : root; /* of a run they are one */
    const char *device = weft__value_text(root, "device_name");
    char room[32];
    const char *ranks = weft__value_shown(weft__json_get(root, "ranks"), room, sizeof(room));
    const char *parts[] = {weft__value_text(at, "host"), weft__value_text(at, "processor"),
                           device[0] != '\0' ? device : weft__value_text(at, "gpu"),
                           weft__value_text(at, "started")};
    int length = snprintf(text, size, "%.1000s%s%.20s%s", input->path, ranks[0] != '\0' ? ": " : "",
                          ranks, ranks[0] != '\0' ? " ranks" : "");
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (parts[i][0] != '\0') {
            length += snprintf(text + length, size - (size_t)length, ", %.100s", parts[i]);
        }
    }
}

weft_status_t weft__section_machine(const weft_report_t *report, FILE *out)
{
    for (int i = 0; i < report->count; i++) {
        const weft_input_t *input = &report->inputs[i];
        if (input->kind == WEFT_INPUT_METRICS || input->kind == WEFT_INPUT_TRACE) {
            continue;
        }
        char text[2048];
        summarize(input, text, sizeof(text));
        weft__details_open(out, text);
        if (input->kind == WEFT_INPUT_RECORD) {
            write_record(input, out);
        } else {
            write_result(input->doc.root, out);
        }
        weft__details_close(out);
    }
    return WEFT_OK;
}
