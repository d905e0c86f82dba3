/* A JSON reader: one pass over a copy of the text, in which strings are resolved in place. */
#include "base/json_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mac.h"
#include "base/settings.h"
#include "base/utf8.h"

typedef struct parser {
    const char *name;
    char *text, *at, *end;
    weft_json_value_t *values;
    size_t count, room;
    weft_status_t status; /* why parsing stopped */
} parser_t;

/* Record the first failure; always false, for `return`. */
static bool fail(parser_t *p, const char *what)
{
    if (p->status == WEFT_OK) {
        size_t line = 1;
        for (const char *c = p->text; c < p->at; c++) {
            line += *c == '\n' ? 1 : 0;
        }
        p->status = weft__fail(WEFT_ERR_INVALID, "%s, line %zu: %s", p->name, line, what);
    }
    return false;
}

static bool add(parser_t *p, weft_json_kind_t kind, size_t *index_p)
{
    if (p->count == p->room) {
        size_t room = p->room * 2 + 64;
        weft_json_value_t *values = realloc(p->values, room * sizeof(*values));
        if (values == NULL) {
            p->status = weft__fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %zu JSON values", p->name,
                                   room);
            return false;
        }
        p->values = values;
        p->room = room;
    }
    p->values[p->count] = (weft_json_value_t){.kind = kind, .skip = 1};
    *index_p = p->count++;
    return true;
}

static void skip_space(parser_t *p)
{
    while (p->at < p->end &&
           (*p->at == ' ' || *p->at == '\n' || *p->at == '\r' || *p->at == '\t')) {
        p->at++;
    }
}

/* Skip spaces; is the next character this one? Then step over it. */
static bool take(parser_t *p, char wanted)
{
    skip_space(p);
    if (p->at < p->end && *p->at == wanted) {
        p->at++;
        return true;
    }
    return false;
}

/* ---- strings ------------------------------------------------------------------------------ */

static bool hex4(parser_t *p, uint32_t *out_p)
{
    uint32_t value = 0;
    if (p->end - p->at < 4) {
        return fail(p, "\\u needs four hexadecimal digits");
    }
    for (int i = 0; i < 4; i++) {
        char c = *p->at++;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16) {
            return fail(p, "\\u needs four hexadecimal digits");
        }
        value = value << 4 | digit;
    }
    *out_p = value;
    return true;
}

/* After "\u": a code point, of one unit or of a surrogate pair, to *out_p, which moves on. */
static bool unicode_escape(parser_t *p, char **out_p)
{
    uint32_t point, low;
    if (!hex4(p, &point)) {
        return false;
    }
    if (point >= 0xDC00 && point < 0xE000) {
        return fail(p, "half a surrogate pair");
    }
    if (point >= 0xD800 && point < 0xDC00) {
        if (p->end - p->at < 6 || p->at[0] != '\\' || p->at[1] != 'u') {
            return fail(p, "half a surrogate pair");
        }
        p->at += 2;
        if (!hex4(p, &low)) {
            return false;
        }
        if (low < 0xDC00 || low >= 0xE000) {
            return fail(p, "half a surrogate pair");
        }
        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    }
    *out_p += weft__utf8_encode(point, *out_p);
    return true;
}

static bool escape(parser_t *p, char **out_p)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char letter = p->at < p->end ? *p->at++ : '\0';
    if (letter == 'u') {
        return unicode_escape(p, out_p);
    }
    const char *found = letter != '\0' ? strchr(letters, letter) : NULL;
    if (found == NULL) {
        return fail(p, "an unknown escape in a string");
    }
    *(*out_p)++ = meant[found - letters];
    return true;
}

/* The opening quote has been read. What is written never overtakes what is read: an escape is
 * longer than what it stands for. */
static bool parse_string(parser_t *p)
{
    size_t index;
    if (!add(p, WEFT_JSON_STRING, &index)) {
        return false;
    }
    char *start = p->at, *out = p->at;
    for (;;) {
        if (p->at == p->end) {
            return fail(p, "a string without its closing quote");
        }
        unsigned char c = (unsigned char)*p->at;
        if (c == '"') {
            break;
        }
        if (c < 0x20) {
            return fail(p, "a control character in a string");
        }
        if (c == '\\') {
            p->at++;
            if (!escape(p, &out)) {
                return false;
            }
            continue;
        }
        int length = weft__utf8_length((unsigned char *)p->at, (size_t)(p->end - p->at));
        if (length == 0) {
            return fail(p, "a string that is not UTF-8");
        }
        if (out != p->at) {
            memmove(out, p->at, (size_t)length);
        }
        out += length;
        p->at += length;
    }
    p->at++;
    *out = '\0'; /* where the closing quote stood, or before it */
    p->values[index].as.text = start;
    p->values[index].length = (uint32_t)(out - start);
    return true;
}

/* ---- numbers and words ---------------------------------------------------------------------- */

static size_t digits(parser_t *p)
{
    char *start = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') {
        p->at++;
    }
    return (size_t)(p->at - start);
}

static bool parse_number(parser_t *p)
{
    char *start = p->at;
    if (*p->at == '-') {
        p->at++;
    }
    char first = p->at < p->end ? *p->at : '\0';
    size_t whole = digits(p);
    if (whole == 0 || (first == '0' && whole > 1)) {
        return fail(p, "something that is no JSON value");
    }
    if (p->at < p->end && *p->at == '.') {
        p->at++;
        if (digits(p) == 0) {
            return fail(p, "a number without digits after its point");
        }
    }
    if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        p->at++;
        if (p->at < p->end && (*p->at == '+' || *p->at == '-')) {
            p->at++;
        }
        if (digits(p) == 0) {
            return fail(p, "a number without digits in its exponent");
        }
    }
    size_t index;
    if (!add(p, WEFT_JSON_NUMBER, &index)) {
        return false;
    }
    p->values[index].as.text = start;
    p->values[index].length = (uint32_t)(p->at - start);
    return true;
}

static bool parse_word(parser_t *p)
{
    static const struct {
        const char *word;
        weft_json_kind_t kind;
        bool truth;
    } words[] = {{"null", WEFT_JSON_NULL, false},
                 {"true", WEFT_JSON_BOOL, true},
                 {"false", WEFT_JSON_BOOL, false}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t length = strlen(words[i].word), index;
        if ((size_t)(p->end - p->at) >= length && memcmp(p->at, words[i].word, length) == 0) {
            p->at += length;
            if (!add(p, words[i].kind, &index)) {
                return false;
            }
            p->values[index].as.truth = words[i].truth;
            return true;
        }
    }
    return parse_number(p);
}

/* ---- arrays and objects --------------------------------------------------------------------- */

static bool same_key(const weft_json_value_t *a, const weft_json_value_t *b)
{
    return a->length == b->length && memcmp(a->as.text, b->as.text, a->length) == 0;
}

/* Does a key of the finished object occur twice? A vocabulary has 100,000, hence the table. */
static bool check_keys(parser_t *p, const weft_json_value_t *object)
{
    size_t room = 4;
    while (room < (size_t)object->length * 2) {
        room *= 2;
    }
    const weft_json_value_t **seen = calloc(room, sizeof(*seen));
    if (seen == NULL) {
        p->status = weft__fail(WEFT_ERR_NO_MEMORY, "%s: no memory for %u keys", p->name,
                               object->length);
        return false;
    }
    bool good = true;
    const weft_json_value_t *key = weft__json_first(object);
    for (; key != NULL && good; key = weft__json_next(object, key)) {
        size_t at = weft__hash(key->as.text, key->length) & (room - 1);
        while (seen[at] != NULL && !same_key(seen[at], key)) {
            at = (at + 1) & (room - 1);
        }
        good = seen[at] == NULL;
        seen[at] = key;
    }
    free(seen);
    return good || fail(p, "an object with the same key twice, ending here");
}

static bool parse_value(parser_t *p, int depth);

static bool parse_member(parser_t *p, int depth)
{
    if (!take(p, '"')) {
        return fail(p, "an object needs a key in quotes here");
    }
    if (!parse_string(p)) {
        return false;
    }
    if (!take(p, ':')) {
        return fail(p, "a key needs a colon after it");
    }
    return parse_value(p, depth);
}

/* The opening bracket has been read. */
static bool parse_container(parser_t *p, weft_json_kind_t kind, int depth)
{
    bool object = kind == WEFT_JSON_OBJECT;
    char close = object ? '}' : ']';
    size_t index;
    uint32_t length = 0;
    if (depth == WEFT_JSON_READ_DEPTH) {
        return fail(p, "too many levels");
    }
    if (!add(p, kind, &index)) {
        return false;
    }
    if (!take(p, close)) {
        do {
            if (!(object ? parse_member(p, depth + 1) : parse_value(p, depth + 1))) {
                return false;
            }
            length++;
        } while (take(p, ','));
        if (!take(p, close)) {
            return fail(p, object ? "an object needs , or } here" : "an array needs , or ] here");
        }
    }
    p->values[index].length = length;
    p->values[index].skip = (uint32_t)(p->count - index);
    return !object || check_keys(p, &p->values[index]);
}

static bool parse_value(parser_t *p, int depth)
{
    if (take(p, '{')) {
        return parse_container(p, WEFT_JSON_OBJECT, depth);
    }
    if (take(p, '[')) {
        return parse_container(p, WEFT_JSON_ARRAY, depth);
    }
    if (take(p, '"')) {
        return parse_string(p);
    }
    if (p->at == p->end) {
        return fail(p, "the text ends where a value should be");
    }
    return parse_word(p);
}

weft_status_t weft__json_parse(const char *text, size_t length, const char *name,
                               weft_json_doc_t *doc_p)
{
    if (length >= UINT32_MAX) {
        return weft__fail(WEFT_ERR_UNSUPPORTED, "%s is larger than 4 GiB", name);
    }
    parser_t p = {.name = name, .text = malloc(length + 1)};
    if (p.text == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the %zu bytes of %s", length, name);
    }
    memcpy(p.text, text, length);
    p.text[length] = '\0';
    p.at = p.text;
    p.end = p.text + length;
    if (parse_value(&p, 0)) {
        skip_space(&p);
        if (p.at != p.end) {
            fail(&p, "something after the end of the JSON value");
        }
    }
    if (p.status != WEFT_OK) {
        free(p.values);
        free(p.text);
        return p.status;
    }
    *doc_p = (weft_json_doc_t){
        .root = p.values, .text = p.text, .values = p.values, .count = p.count};
    return WEFT_OK;
}

weft_status_t weft__json_load(const char *path, weft_json_doc_t *doc_p)
{
    char *text;
    size_t size;
    weft_status_t status = weft__file_read(path, &text, &size);
    if (status == WEFT_OK) {
        status = weft__json_parse(text, size, path, doc_p);
        free(text);
    }
    return status;
}

void weft__json_free(weft_json_doc_t *doc)
{
    free(doc->values);
    free(doc->text);
    *doc = (weft_json_doc_t){0};
}

/* ---- looking at values ---------------------------------------------------------------------- */

const weft_json_value_t *weft__json_first(const weft_json_value_t *container)
{
    bool holds = container != NULL && container->kind >= WEFT_JSON_ARRAY && container->length > 0;
    return holds ? container + 1 : NULL;
}

const weft_json_value_t *weft__json_next(const weft_json_value_t *container,
                                         const weft_json_value_t *at)
{
    const weft_json_value_t *next = container->kind == WEFT_JSON_OBJECT ? at + 1 + at[1].skip
                                                                        : at + at->skip;
    return next < container + container->skip ? next : NULL;
}

const weft_json_value_t *weft__json_get(const weft_json_value_t *object, const char *key)
{
    if (object == NULL || object->kind != WEFT_JSON_OBJECT) {
        return NULL;
    }
    const weft_json_value_t *at = weft__json_first(object);
    for (; at != NULL; at = weft__json_next(object, at)) {
        if (weft__json_is(at, key)) {
            return at + 1;
        }
    }
    return NULL;
}

/* The number's text with a NUL after it. JSON numbers can be of any length; longer ones than this
 * have no digit that matters to a double or an integer after it, but are refused rather than cut.
 */
static bool number_text(const weft_json_value_t *value, char *out, size_t room)
{
    if (value == NULL || value->kind != WEFT_JSON_NUMBER || value->length >= room) {
        return false;
    }
    memcpy(out, value->as.text, value->length);
    out[value->length] = '\0';
    return true;
}

bool weft__json_to_double(const weft_json_value_t *value, double *out_p)
{
    char text[512];
    if (!number_text(value, text, sizeof(text))) {
        return false;
    }
    return weft__parse_real(text, out_p);
}

bool weft__json_to_int(const weft_json_value_t *value, int64_t *out_p)
{
    char text[512], *end;
    double real;
    if (!number_text(value, text, sizeof(text))) {
        return false;
    }
    errno = 0;
    long long whole = strtoll(text, &end, 10);
    if (*end == '\0') {
        *out_p = errno == 0 ? whole : *out_p;
        return errno == 0;
    }
    const double limit = 9007199254740992.0; /* 2^53: beyond it a double may have been rounded */
    if (!weft__json_to_double(value, &real) || !(real >= -limit && real <= limit) ||
        real != (double)(int64_t)real) {
        return false;
    }
    *out_p = (int64_t)real;
    return true;
}

bool weft__json_to_uint(const weft_json_value_t *value, uint64_t *out_p)
{
    char text[512], *end;
    int64_t whole;
    if (!number_text(value, text, sizeof(text))) {
        return false;
    }
    errno = 0;
    unsigned long long big = strtoull(text, &end, 10);
    if (text[0] != '-' && *end == '\0' && errno == 0) {
        *out_p = big;
        return true;
    }
    if (!weft__json_to_int(value, &whole) || whole < 0) {
        return false;
    }
    *out_p = (uint64_t)whole;
    return true;
}

bool weft__json_to_bool(const weft_json_value_t *value, bool *out_p)
{
    if (value == NULL || value->kind != WEFT_JSON_BOOL) {
        return false;
    }
    *out_p = value->as.truth;
    return true;
}

bool weft__json_is(const weft_json_value_t *value, const char *text)
{
    return value != NULL && value->kind == WEFT_JSON_STRING && value->length == strlen(text) &&
           memcmp(value->as.text, text, value->length) == 0;
}

const char *weft__json_text(const weft_json_value_t *value, const char *otherwise)
{
    return value != NULL && value->kind == WEFT_JSON_STRING ? value->as.text : otherwise;
}
