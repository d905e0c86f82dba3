/* Names in a text: at every place the longest one that starts there, in time linear in the text,
 * whatever the names are (an Aho-Corasick automaton of the names read backwards). */
#ifndef WEFT_TEXT_NAMES_H
#define WEFT_TEXT_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

typedef struct weft_names weft_names_t;

weft_status_t weft__names_create(weft_names_t **names_p);
void weft__names_destroy(weft_names_t *names); /* NULL is fine */

/* `value` is what weft__names_find tells; not UINT32_MAX. WEFT_ERR_INVALID if the name is there. */
weft_status_t weft__names_add(weft_names_t *names, const char *name, size_t length, uint32_t value);

/* After the last name, before the first text. */
weft_status_t weft__names_build(weft_names_t *names);

typedef struct weft_name_match {
    size_t at;
    uint32_t value;
} weft_name_match_t;

/* A list that grows. Start from {0}; free(matches->list) in the end. */
typedef struct weft_name_matches {
    weft_name_match_t *list;
    size_t count, room;
} weft_name_matches_t;

/* Append the longest name at every place where one starts, overlapping or not, the LAST PLACE
 * FIRST. Reads `text` from its end: then all names that start at a place are known when it is
 * reached. */
weft_status_t weft__names_find(const weft_names_t *names, const char *text, size_t length,
                               weft_name_matches_t *matches);

#endif
