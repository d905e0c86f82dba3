/* The output of ranks on its way from their pipes to the launcher's own stdout and stderr.
 *
 *     rank's pipe -> weft_pipe_t: whole lines -> weft_sink_t: queue -> fd 1 or 2
 *
 * Nothing here waits: a sink that its reader does not empty fills up, and then the pipes that lead
 * to it are left alone, so that the ranks wait, as they would on a terminal. Only where there is no
 * memory to queue something, it is written at once, however long that takes. */
#ifndef WEFT_BOOT_LAUNCH_OUTPUT_H
#define WEFT_BOOT_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "boot/launch_repeats.h"

#define WEFT_TAIL_LINES 10
#define WEFT_TAIL_BYTES 512 /* of a line; the rest is cut */

/* The last lines that a rank printed, on either of its pipes. */
typedef struct weft_tail {
    int next, count;
    const struct weft_sink *sinks[WEFT_TAIL_LINES]; /* where it was shown */
    size_t numbers[WEFT_TAIL_LINES];                /* as which line */
    size_t bytes[WEFT_TAIL_LINES];
    char lines[WEFT_TAIL_LINES][WEFT_TAIL_BYTES];
} weft_tail_t;

struct weft_pipe;

typedef struct weft_sink {
    int fd;
    size_t piece; /* how much can be written at a time without waiting, once it is writable */
    char *bytes;
    size_t sent, count, room;
    size_t lines;           /* of ranks, so far */
    struct weft_pipe *open; /* whose unfinished line was written last, if any */
    int error;              /* errno of a write that failed; nothing is written after it */
    int unread;             /* errno of a pipe to it that could not be read to its end */
} weft_sink_t;

typedef struct weft_pipe {
    int fd; /* -1: at its end */
    weft_sink_t *sink;
    weft_tail_t *tail;
    int rank;
    weft_repeats_t *repeats; /* what other ranks said already is left out; NULL: nothing is */
    bool repeated;           /* the last line was */
    char prefix[16];
    char *line; /* what came after the last newline */
    size_t count, room;
} weft_pipe_t;

void weft__sink_init(weft_sink_t *sink, int fd);
void weft__sink_cleanup(weft_sink_t *sink);
/* Nothing is written any more: what is queued, and all that comes, is dropped. */
void weft__sink_shut(weft_sink_t *sink, int error);
bool weft__sink_is_full(const weft_sink_t *sink);
bool weft__sink_is_empty(const weft_sink_t *sink);
/* Queue a whole line of the launcher's own. */
void weft__sink_say(weft_sink_t *sink, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Queue the lines of `tail` once more. */
void weft__sink_repeat(weft_sink_t *sink, const weft_tail_t *tail, const char *prefix);
/* Does `sink` still show the lines of `tail`, with little after them? */
bool weft__sink_shows(const weft_sink_t *sink, const weft_tail_t *tail);
/* Write what can be written now. */
void weft__sink_flush(weft_sink_t *sink);

/* Take what is in the pipe now, at most `pieces` pieces of 64 KiB. */
void weft__pipe_read(weft_pipe_t *pipe, int pieces);
/* Pass on a last line without newline, and close. */
void weft__pipe_finish(weft_pipe_t *pipe);

#endif
