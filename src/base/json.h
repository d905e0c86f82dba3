/* A JSON writer. Values go out as they come; nothing is kept but where we are:
 *
 *     weft_json_t json;
 *     weft__json_start(&json, file);
 *     weft__json_object(&json, NULL);
 *     weft__json_int(&json, "ranks", 8);
 *     weft__json_end(&json);
 *     status = weft__json_finish(&json);
 *
 * Calls after a failure do nothing; weft__json_finish reports the first one. */
#ifndef WEFT_BASE_JSON_H
#define WEFT_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <weft/status.h>

#define WEFT_JSON_DEPTH 32

typedef struct weft_json {
    FILE *out;
    int depth;
    char open[WEFT_JSON_DEPTH]; /* '{' or '[' per level */
    bool empty;                 /* nothing written yet at this level */
    bool compact;               /* set it after the start: everything on one line */
    const char *misuse;         /* the first call that did not fit, as text */
} weft_json_t;

void weft__json_start(weft_json_t *json, FILE *out);

/* What stands in an object has a key; elsewhere `key` is NULL. */
void weft__json_object(weft_json_t *json, const char *key);
void weft__json_array(weft_json_t *json, const char *key);
void weft__json_end(weft_json_t *json); /* of the innermost object or array */

/* Bytes that are not UTF-8 come out as U+FFFD; NULL as null. */
void weft__json_string(weft_json_t *json, const char *key, const char *text);
void weft__json_int(weft_json_t *json, const char *key, int64_t value);
void weft__json_uint(weft_json_t *json, const char *key, uint64_t value);
void weft__json_bool(weft_json_t *json, const char *key, bool value);

/* The shortest digits that read back as the same double; null if not finite. */
void weft__json_double(weft_json_t *json, const char *key, double value);

/* End the text and flush it. WEFT_ERR_INVALID if a call did not fit or something is still open,
 * WEFT_ERR_SYSTEM if the file could not be written. The file stays open. */
weft_status_t weft__json_finish(weft_json_t *json);

#endif
