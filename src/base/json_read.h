/* A JSON reader for files of megabytes: one pass, one array of values, strings that stay where they
 * were read.
 *
 *     weft_json_doc_t doc;
 *     status = weft__json_parse(text, length, "config.json", &doc);
 *     const weft_json_value_t *layers = weft__json_get(doc.root, "n_layer");
 *     if (!weft__json_to_int(layers, &n)) ...
 *     weft__json_free(&doc);
 *
 * Strict: RFC 8259, valid UTF-8, nothing after the value, no key twice in one object, at most
 * WEFT_JSON_READ_DEPTH levels. */
#ifndef WEFT_BASE_JSON_READ_H
#define WEFT_BASE_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#define WEFT_JSON_READ_DEPTH 64

typedef enum weft_json_kind {
    WEFT_JSON_NULL,
    WEFT_JSON_BOOL,
    WEFT_JSON_NUMBER,
    WEFT_JSON_STRING,
    WEFT_JSON_ARRAY,
    WEFT_JSON_OBJECT
} weft_json_kind_t;

/* Values lie in the order of the text. What an array or object holds comes right after it,
 * members of objects as key (a string) and value in turn; `skip` values further comes what
 * follows it. */
typedef struct weft_json_value {
    weft_json_kind_t kind;
    uint32_t length; /* bytes of a string or number; elements of an array, members of an object */
    uint32_t skip;   /* values from this one to the next of its level; 1 for a scalar */
    union {
        const char *text; /* string: UTF-8, escapes resolved, NUL-terminated; number: as written */
        bool truth;
    } as;
} weft_json_value_t;

typedef struct weft_json_doc {
    const weft_json_value_t *root;
    char *text; /* owned copy that strings point into */
    weft_json_value_t *values;
    size_t count;
} weft_json_doc_t;

/* Parse `length` bytes of `text`, which is not kept. `name` begins error sentences ("config.json,
 * line 3: ..."). WEFT_ERR_INVALID if it is not JSON; nothing is then to be freed. */
weft_status_t weft__json_parse(const char *text, size_t length, const char *name,
                               weft_json_doc_t *doc_p);

/* Read and parse a file. WEFT_ERR_NOT_FOUND if there is none. */
weft_status_t weft__json_load(const char *path, weft_json_doc_t *doc_p);

void weft__json_free(weft_json_doc_t *doc);

/* The member `key` of an object, or NULL (also if `object` is NULL or no object). O(members). */
const weft_json_value_t *weft__json_get(const weft_json_value_t *object, const char *key);

/* Walk an array or object: the first value inside, NULL if it is empty. For objects that is the
 * first key, and its value is key + 1. */
const weft_json_value_t *weft__json_first(const weft_json_value_t *container);

/* The next element (array) or key (object) of `container` after `at`; NULL after the last. `at`
 * is what weft__json_first or this returned. */
const weft_json_value_t *weft__json_next(const weft_json_value_t *container,
                                         const weft_json_value_t *at);

/* false, and *out_p is unchanged, if `value` is NULL or no such thing. An integer may be written
 * with a fraction or exponent as long as it is whole (1e3). */
bool weft__json_to_int(const weft_json_value_t *value, int64_t *out_p);
bool weft__json_to_uint(const weft_json_value_t *value, uint64_t *out_p);
bool weft__json_to_double(const weft_json_value_t *value, double *out_p);
bool weft__json_to_bool(const weft_json_value_t *value, bool *out_p);

/* Is it a string, and this one? */
bool weft__json_is(const weft_json_value_t *value, const char *text);

/* The string's text; `otherwise` if `value` is NULL or no string. A string with a NUL inside ends
 * there. */
const char *weft__json_text(const weft_json_value_t *value, const char *otherwise);

#endif
