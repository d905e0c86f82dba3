/* Files: whole ones, mapped ones, and ones that appear all at once or not at all.
 *
 * Every failure is a sentence with the path and the system's reason; WEFT_ERR_NOT_FOUND if there
 * is no such file, WEFT_ERR_SYSTEM otherwise. */
#ifndef WEFT_BASE_FILE_H
#define WEFT_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#define WEFT_PATH_BYTES 4096

/* Join into `out` (WEFT_PATH_BYTES): "folder/name", or `name` alone if it is absolute or the
 * folder is "". WEFT_ERR_INVALID if it is too long. */
weft_status_t weft__path_join(char *out, const char *folder, const char *name);

/* A file mapped for reading; size 0 has data that is not NULL but holds nothing. */
typedef struct weft_mapped {
    const uint8_t *data;
    size_t size;
} weft_mapped_t;

/* Map a regular file. A file that is cut short while it is mapped ends its readers with SIGBUS:
 * map what is written once (data, checkpoints) and read what may change. */
weft_status_t weft__file_map(const char *path, weft_mapped_t *out_p);
void weft__file_unmap(weft_mapped_t *mapped);

/* The whole file in malloced memory, with a NUL after it that *size_p (may be NULL) does not
 * count. */
weft_status_t weft__file_read(const char *path, char **text_p, size_t *size_p);

/* Write all of a file at once, as output.h says: readers see the old file or the new one, after a
 * crash too. */
weft_status_t weft__file_replace(const char *path, const void *bytes, size_t size);

/* Make what was renamed, created or removed in the folder durable. */
weft_status_t weft__folder_sync(const char *path);

/* Create a folder and what is missing above it. There already: fine. */
weft_status_t weft__folder_make(const char *path);

/* Remove a file, or a folder with all that is in it; does not follow links. Not there: fine. */
weft_status_t weft__path_remove(const char *path);

/* Is there a folder, or a file, links followed? That there is nothing is no failure; that it cannot
 * be found out (no permission, a disk that fails) is one. */
weft_status_t weft__is_folder(const char *path, bool *is_p);
weft_status_t weft__is_file(const char *path, bool *is_p);

/* Free bytes of the file system that holds `path`; UINT64_MAX if it cannot be told. */
uint64_t weft__disk_free(const char *path);

#endif
