/* A JSON writer. */
#include "base/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "base/utf8.h"

void weft__json_start(weft_json_t *json, FILE *out)
{
    memset(json, 0, sizeof(*json));
    json->out = out;
    json->empty = true;
}

static void misuse(weft_json_t *json, const char *what)
{
    if (json->misuse == NULL) {
        json->misuse = what;
    }
}

static void new_line(weft_json_t *json)
{
    if (json->compact) {
        return;
    }
    fprintf(json->out, "\n%*s", 2 * json->depth, "");
}

/* What stands before a key or an element: the comma and the new line. */
static void separate(weft_json_t *json)
{
    if (!json->empty) {
        fputs(json->compact ? ", " : ",", json->out);
    }
    if (json->depth > 0) {
        new_line(json);
    }
    json->empty = false;
}

static void write_quoted(FILE *out, const char *text)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const unsigned char *at = (const unsigned char *)text;
    fputc('"', out);
    while (*at != '\0') {
        const char *found = strchr(escaped, *at);
        int length = weft__utf8_length(at, strnlen((const char *)at, 4));
        if (found != NULL) {
            fprintf(out, "\\%c", letters[found - escaped]);
        } else if (*at < 0x20 || *at == 0x7F) {
            fprintf(out, "\\u%04x", *at);
        } else if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else {
            fwrite(at, 1, (size_t)length, out);
        }
        at += length;
    }
    fputc('"', out);
}

/* May a value with this key stand here? If so, whatever goes before it is written. */
static bool begin_value(weft_json_t *json, const char *key)
{
    bool in_object = json->depth > 0 && json->open[json->depth - 1] == '{';
    if (json->misuse != NULL) {
        return false;
    }
    if (in_object != (key != NULL)) {
        misuse(json,
               in_object ? "a value in an object without a key" : "a key outside of an object");
        return false;
    }
    if (json->depth == 0 && !json->empty) {
        misuse(json, "a second value at the top");
        return false;
    }
    separate(json);
    if (key != NULL) {
        write_quoted(json->out, key);
        fputs(": ", json->out);
    }
    return true;
}

static void begin(weft_json_t *json, const char *key, char bracket)
{
    if (!begin_value(json, key)) {
        return;
    }
    if (json->depth == WEFT_JSON_DEPTH) {
        misuse(json, "nesting too deep");
        return;
    }
    fputc(bracket, json->out);
    json->open[json->depth++] = bracket;
    json->empty = true;
}

void weft__json_object(weft_json_t *json, const char *key)
{
    begin(json, key, '{');
}

void weft__json_array(weft_json_t *json, const char *key)
{
    begin(json, key, '[');
}

void weft__json_end(weft_json_t *json)
{
    if (json->misuse != NULL) {
        return;
    }
    if (json->depth == 0) {
        misuse(json, "an end with nothing open");
        return;
    }
    char bracket = json->open[--json->depth];
    if (!json->empty) {
        new_line(json);
    }
    fputc(bracket == '{' ? '}' : ']', json->out);
    json->empty = false;
}

void weft__json_string(weft_json_t *json, const char *key, const char *text)
{
    if (!begin_value(json, key)) {
        return;
    }
    if (text != NULL) {
        write_quoted(json->out, text);
    } else {
        fputs("null", json->out);
    }
}

void weft__json_int(weft_json_t *json, const char *key, int64_t value)
{
    if (begin_value(json, key)) {
        fprintf(json->out, "%" PRId64, value);
    }
}

void weft__json_uint(weft_json_t *json, const char *key, uint64_t value)
{
    if (begin_value(json, key)) {
        fprintf(json->out, "%" PRIu64, value);
    }
}

void weft__json_bool(weft_json_t *json, const char *key, bool value)
{
    if (begin_value(json, key)) {
        fputs(value ? "true" : "false", json->out);
    }
}

void weft__json_double(weft_json_t *json, const char *key, double value)
{
    if (!begin_value(json, key)) {
        return;
    }
    if (!isfinite(value)) {
        fputs("null", json->out);
        return;
    }
    char text[32];
    weft__print_real(text, sizeof(text), value);
    fputs(text, json->out);
}

weft_status_t weft__json_finish(weft_json_t *json)
{
    if (json->misuse == NULL && (json->depth > 0 || json->empty)) {
        misuse(json, json->depth > 0 ? "something left open" : "nothing at all");
    }
    if (json->misuse != NULL) {
        return weft__fail(WEFT_ERR_INVALID, "JSON: %s", json->misuse);
    }
    errno = 0;
    fputc('\n', json->out);
    if (fflush(json->out) != 0 || ferror(json->out)) {
        return weft__fail(WEFT_ERR_SYSTEM, "JSON: writing failed: %s",
                          errno != 0 ? strerror(errno) : "an earlier write did");
    }
    return WEFT_OK;
}
