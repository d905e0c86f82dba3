/* Files that grow by whole records: see append.h. */
#include "base/append.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"

weft_status_t weft__append_open(weft_append_t *append, const char *path, uint64_t keep)
{
    struct stat about;
    *append = (weft_append_t){.file = NULL};
    WEFT_TRY(weft__path_join(append->path, "", path));
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
        return weft__fail(WEFT_ERR_INVALID, "cannot write %s: it is a %s, not a file", path,
                          S_ISFIFO(about.st_mode)   ? "pipe"
                          : S_ISDIR(about.st_mode)  ? "folder"
                          : S_ISSOCK(about.st_mode) ? "socket"
                                                    : "device");
    }
    return weft__output_append(path, keep, &append->file);
}

static weft_status_t keep_late(weft_append_t *append, const void *record, size_t bytes)
{
    char *late = realloc(append->late, append->late_bytes + bytes);
    if (late == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for what %s has no room for",
                          append->path);
    }
    memcpy(late + append->late_bytes, record, bytes);
    append->late = late;
    append->late_bytes += bytes;
    return WEFT_OK;
}

weft_status_t weft__append_catch_up(weft_append_t *append)
{
    if (append->late_bytes > 0) {
        WEFT_TRY(weft__output_write(append->file, append->late, append->late_bytes));
        append->late_bytes = 0;
    }
    return WEFT_OK;
}

weft_status_t weft__append_write(weft_append_t *append, const void *record, size_t bytes)
{
    bool first = append->late_bytes == 0;
    weft_status_t status = first ? weft__output_write(append->file, record, bytes) : WEFT_PENDING;
    if (status != WEFT_OK) {
        WEFT_TRY(keep_late(append, record, bytes));
    }
    return first ? status : weft__append_catch_up(append);
}

weft_status_t weft__append_close(weft_append_t *append)
{
    if (append->file == NULL) {
        return WEFT_OK;
    }
    weft_status_t status = weft__append_catch_up(append);
    weft_status_t committed = weft__output_commit(append->file);
    free(append->late);
    *append = (weft_append_t){.file = NULL};
    return status == WEFT_OK ? committed : status;
}
