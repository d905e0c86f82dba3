/* What the user means by --data: which files, of which kind, and where their tokens are kept. */
#ifndef WEFT_TEXT_SOURCES_H
#define WEFT_TEXT_SOURCES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#include "text/tokenizer.h"

typedef struct weft_source_file {
    char *path;
    uint64_t size;
    int64_t seconds, nanoseconds; /* of the last change */
    bool shard;
} weft_source_file_t;

typedef struct weft_sources {
    weft_source_file_t *files; /* sorted by path */
    int count, room;
    bool shards; /* all are token shards; else all are text */
} weft_sources_t;

/* Find the files of `path` (data.h). WEFT_ERR_NOT_FOUND or WEFT_ERR_INVALID, with what was looked
 * for, if there are none. */
weft_status_t weft__sources_find(const char *path, weft_sources_t *out);
void weft__sources_free(weft_sources_t *sources);

/* The folder in `cache` for the tokens of these texts: its name depends on the files' names,
 * sizes and times and on the tokenizer. `out` has WEFT_PATH_BYTES. */
weft_status_t weft__sources_cache(const weft_sources_t *sources, const weft_tokenizer_t *tokenizer,
                                  const char *cache, char *out);

#endif
