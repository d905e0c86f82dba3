/* Files that commands write: whole under their name, or not there at all.
 *
 *     weft_output_t *out;
 *     WEFT_TRY(weft__output_open(path, &out));
 *     fprintf(weft__output_stream(out), "...");      failures are kept until the commit
 *     return weft__output_commit(out);               or weft__output_discard(out)
 *
 * What is written goes to a file without a name in the same folder (where the file system has none:
 * one named `.NAME.PID-N.tmp`), which takes the name when it is whole and durable. Until then, and
 * after any failure, what stood there is untouched. A process that is killed leaves nothing where
 * files without names are; elsewhere the next writer of the same path removes what it left. Of two
 * writers at once the last one wins; their bytes never mix.
 *
 * A link is followed, and stays; the file that it names is replaced, and keeps its mode. Devices,
 * pipes, terminals, /dev/fd/N and "-" (stdout) are written to directly, and never removed or
 * replaced. A file that may not be written is not replaced either.
 *
 * Sentences name the path and the system's reason, and say that what stood there is untouched.
 * WEFT_ERR_NOT_FOUND if there is no such folder, WEFT_ERR_INVALID if the path is a folder,
 * WEFT_ERR_SYSTEM otherwise. Going over a limit of the file's size (ulimit -f) is a signal,
 * SIGXFSZ: commands ignore it, and it is told like a full disk. */
#ifndef WEFT_BASE_OUTPUT_H
#define WEFT_BASE_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <weft/status.h>

typedef struct weft_output weft_output_t;

weft_status_t weft__output_open(const char *path, weft_output_t **out_p);

/* Could it be opened? Touches nothing, so that it may be asked long before there is something to
 * write. */
weft_status_t weft__output_check(const char *path);

/* A file that a command is to write, or reads and must keep. */
typedef struct weft_output_name {
    const char *option; /* that names it, for sentences */
    const char *path;   /* NULL or "": none */
    bool read;          /* it is not written, and two that are read may be the same */
} weft_output_name_t;

/* WEFT_ERR_INVALID with a sentence if two of them are one file, by whatever path or links: what one
 * wrote the other would replace. Devices such as /dev/null can be named twice. */
weft_status_t weft__outputs_distinct(const weft_output_name_t *names, int count);

/* A file of a folder that is itself temporary and is renamed as a whole: it has its name from the
 * start. */
weft_status_t weft__output_open_inside(const char *path, weft_output_t **out_p);

/* A file that grows by whole writes, such as a log: keep its first `keep` bytes, cut off the rest.
 * A write that fails is taken back. No stream. */
weft_status_t weft__output_append(const char *path, uint64_t keep, weft_output_t **out_p);

/* For printf and JSON; the output closes it. */
FILE *weft__output_stream(weft_output_t *out);

weft_status_t weft__output_write(weft_output_t *out, const void *bytes, size_t count);

/* Write over what was written at `offset`. Not for what is written to directly. */
weft_status_t weft__output_patch(weft_output_t *out, uint64_t offset, const void *bytes,
                                 size_t count);

/* Make it durable and give it its name. Frees `out`, whatever comes of it. After a write that
 * failed, however long ago, errno is that write's: EPIPE if the reader left. */
weft_status_t weft__output_commit(weft_output_t *out);

/* Commit it if `status` is WEFT_OK, drop it otherwise; returns the first failure. One of the
 * stream's writer who could only tell that a write failed becomes the sentence with path and
 * reason; errno is then the first write's, so that a broken pipe can be told from a full disk. */
weft_status_t weft__output_end(weft_output_t *out, weft_status_t status);

/* As commit, but what has the name meanwhile keeps it, and `out` is dropped. */
weft_status_t weft__output_offer(weft_output_t *out);

/* Drop it; NULL is fine. Keeps weft_last_error() as it is. */
void weft__output_discard(weft_output_t *out);

#endif
