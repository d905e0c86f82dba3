/* A file that grows by whole records, such as a log, and outlives a full disk: records that could
 * not be written are kept in memory, in their order, and written when there is room again.
 *
 * Each record is one write(2), so that a process that is killed leaves whole ones. */
#ifndef WEFT_BASE_APPEND_H
#define WEFT_BASE_APPEND_H

#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/output.h"

typedef struct weft_append {
    char path[WEFT_PATH_BYTES];
    weft_output_t *file; /* NULL: it is not open */
    char *late;          /* what could not be written; malloced */
    size_t late_bytes;
} weft_append_t;

/* Open it, keeping its first `keep` bytes. WEFT_ERR_INVALID if the name belongs to a pipe, a device
 * or a folder: the first would wait for a reader, and none of them can be cut. */
weft_status_t weft__append_open(weft_append_t *append, const char *path, uint64_t keep);

/* WEFT_ERR_SYSTEM if it could not be written (disk full): it is kept, and tried again with the next
 * one. */
weft_status_t weft__append_write(weft_append_t *append, const void *record, size_t bytes);

/* Try to write what could not be written; WEFT_OK: nothing is left of it. */
weft_status_t weft__append_catch_up(weft_append_t *append);

/* Catch up, make it durable, close it. One that is not open is fine. */
weft_status_t weft__append_close(weft_append_t *append);

#endif
