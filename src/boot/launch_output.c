#include "boot/launch_output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES 65536
#define SINK_FULL ((size_t)1 << 20)
#define LINE_MAX_BYTES ((size_t)8 << 20) /* a longer line is passed on in pieces */
#define IN_SIGHT 20                      /* lines of ranks that are not worth repeating yet */
#define SINK_WRITES 64                   /* per call of weft__sink_flush */

/* ---- sinks ------------------------------------------------------------------------------- */

void weft__sink_init(weft_sink_t *sink, int fd)
{
    struct stat info;
    memset(sink, 0, sizeof(*sink));
    sink->fd = fd;
    /* The descriptor is not ours alone, so it stays blocking. A pipe that poll calls writable takes
     * PIPE_BUF bytes at once; a terminal may have less room; a file always has it. */
    sink->piece = PIPE_BUF;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
        sink->piece = SINK_FULL;
    } else if (isatty(fd)) {
        sink->piece = 1024;
    }
}

void weft__sink_cleanup(weft_sink_t *sink)
{
    free(sink->bytes);
    memset(sink, 0, sizeof(*sink));
}

void weft__sink_shut(weft_sink_t *sink, int error)
{
    sink->error = error;
    sink->sent = sink->count = 0;
}

bool weft__sink_is_full(const weft_sink_t *sink)
{
    return sink->count - sink->sent >= SINK_FULL;
}

bool weft__sink_is_empty(const weft_sink_t *sink)
{
    return sink->count == sink->sent;
}

/* There is no memory for a queue: wait until `bytes` are written. Losing them could lose the
 * sentence that says so. */
static void write_now(weft_sink_t *sink, const char *bytes, size_t count)
{
    while (count > 0 && sink->error == 0) {
        ssize_t written = write(sink->fd, bytes, count);
        if (written > 0) {
            bytes += written;
            count -= (size_t)written;
        } else if (written < 0 && errno == EAGAIN) {
            struct pollfd poller = {.fd = sink->fd, .events = POLLOUT};
            poll(&poller, 1, -1);
        } else if (written < 0 && errno != EINTR) {
            weft__sink_shut(sink, errno);
        }
    }
}

static void append(weft_sink_t *sink, const char *bytes, size_t count)
{
    if (sink->error != 0 || count == 0) {
        return;
    }
    if (sink->room - sink->count < count && sink->sent > 0) {
        memmove(sink->bytes, sink->bytes + sink->sent, sink->count - sink->sent);
        sink->count -= sink->sent;
        sink->sent = 0;
    }
    if (sink->room - sink->count < count) {
        size_t room = 2 * (sink->count + count) + READ_BYTES;
        char *larger = realloc(sink->bytes, room);
        if (larger == NULL) {
            write_now(sink, sink->bytes + sink->sent, sink->count - sink->sent);
            write_now(sink, bytes, count);
            sink->sent = sink->count = 0;
            return;
        }
        sink->bytes = larger;
        sink->room = room;
    }
    memcpy(sink->bytes + sink->count, bytes, count);
    sink->count += count;
}

/* Begin a line, or go on with the one that `pipe` left open. */
static void begin(weft_sink_t *sink, weft_pipe_t *pipe, const char *prefix)
{
    if (sink->open != NULL && sink->open == pipe) {
        return;
    }
    if (sink->open != NULL) {
        append(sink, "\n", 1);
        sink->open = NULL;
    }
    append(sink, prefix, strlen(prefix));
}

void weft__sink_say(weft_sink_t *sink, const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    begin(sink, NULL, "");
    append(sink, text, strlen(text));
    append(sink, "\n", 1);
}

void weft__sink_repeat(weft_sink_t *sink, const weft_tail_t *tail, const char *prefix)
{
    int first = (tail->next - tail->count + WEFT_TAIL_LINES) % WEFT_TAIL_LINES;
    for (int i = 0; i < tail->count; i++) {
        int at = (first + i) % WEFT_TAIL_LINES;
        begin(sink, NULL, prefix);
        append(sink, tail->lines[at], tail->bytes[at]);
        append(sink, "\n", 1);
    }
}

bool weft__sink_shows(const weft_sink_t *sink, const weft_tail_t *tail)
{
    for (int i = 0; i < tail->count; i++) {
        if (tail->sinks[i] != sink || sink->lines - tail->numbers[i] > IN_SIGHT) {
            return false;
        }
    }
    return true;
}

static bool is_writable(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLOUT};
    return poll(&poller, 1, 0) > 0;
}

void weft__sink_flush(weft_sink_t *sink)
{
    for (int i = 0; i < SINK_WRITES && sink->sent < sink->count && sink->error == 0; i++) {
        size_t left = sink->count - sink->sent;
        if (!is_writable(sink->fd)) {
            return;
        }
        ssize_t written = write(sink->fd, sink->bytes + sink->sent,
                                left < sink->piece ? left : sink->piece);
        if (written < 0) {
            if (errno == EINTR || errno == EAGAIN) {
                continue;
            }
            weft__sink_shut(sink, errno);
            return;
        }
        sink->sent += (size_t)written;
    }
    if (sink->sent == sink->count) {
        sink->sent = sink->count = 0;
    }
}

/* ---- pipes ------------------------------------------------------------------------------- */

static void remember(weft_tail_t *tail, const weft_sink_t *sink, const char *line, size_t bytes)
{
    size_t kept = bytes < WEFT_TAIL_BYTES ? bytes : WEFT_TAIL_BYTES;
    memcpy(tail->lines[tail->next], line, kept);
    tail->bytes[tail->next] = kept;
    tail->sinks[tail->next] = sink;
    tail->numbers[tail->next] = sink->lines;
    tail->next = (tail->next + 1) % WEFT_TAIL_LINES;
    tail->count += tail->count < WEFT_TAIL_LINES;
}

/* Pass on `count` bytes and, if `ends`, the end of the line. */
static void pass_on(weft_pipe_t *pipe, const char *bytes, size_t count, bool ends)
{
    bool goes_on = pipe->sink->open == pipe;
    if (ends && !goes_on) {
        pipe->repeated = weft__repeats_heard(pipe->repeats, pipe->rank, bytes, count);
        if (pipe->repeated) {
            return;
        }
    }
    begin(pipe->sink, pipe, pipe->prefix);
    append(pipe->sink, bytes, count);
    if (ends) {
        append(pipe->sink, "\n", 1);
    }
    if (ends && (count > 0 || !goes_on)) {
        pipe->sink->lines++;
        remember(pipe->tail, pipe->sink, bytes, count);
    }
    pipe->sink->open = ends ? NULL : pipe;
}

/* Keep the start of a line until its end comes. */
static void keep(weft_pipe_t *pipe, const char *bytes, size_t count)
{
    if (pipe->count + count > pipe->room) {
        size_t room = 2 * (pipe->count + count);
        char *larger = realloc(pipe->line, room);
        if (larger == NULL) { /* then without waiting for its end */
            pass_on(pipe, pipe->line, pipe->count, false);
            pass_on(pipe, bytes, count, false);
            pipe->count = 0;
            return;
        }
        pipe->line = larger;
        pipe->room = room;
    }
    memcpy(pipe->line + pipe->count, bytes, count);
    pipe->count += count;
    if (pipe->count >= LINE_MAX_BYTES) {
        pass_on(pipe, pipe->line, pipe->count, false);
        pipe->count = 0;
    }
}

static void split_lines(weft_pipe_t *pipe, const char *bytes, size_t count)
{
    while (count > 0) {
        const char *end = memchr(bytes, '\n', count);
        if (end == NULL) {
            keep(pipe, bytes, count);
            return;
        }
        size_t length = (size_t)(end - bytes);
        if (pipe->count > 0) {
            keep(pipe, bytes, length);
            pass_on(pipe, pipe->line, pipe->count, true);
            pipe->count = 0;
        } else {
            pass_on(pipe, bytes, length, true);
        }
        bytes += length + 1;
        count -= length + 1;
    }
}

void weft__pipe_read(weft_pipe_t *pipe, int pieces)
{
    static char bytes[READ_BYTES]; /* one launcher a process */
    for (int i = 0; i < pieces && pipe->fd >= 0; i++) {
        ssize_t got = read(pipe->fd, bytes, sizeof(bytes));
        if (got > 0) {
            split_lines(pipe, bytes, (size_t)got);
        } else if (got == 0) {
            weft__pipe_finish(pipe);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            pipe->sink->unread = errno;
            weft__pipe_finish(pipe);
        }
    }
}

void weft__pipe_finish(weft_pipe_t *pipe)
{
    if (pipe->fd < 0) {
        return;
    }
    /* A newline that is missing is added, for the next line is another rank's. Without prefixes
     * the output stays as it is, unless somebody else does write on. */
    bool ends = pipe->prefix[0] != '\0';
    if (pipe->count > 0 || (ends && pipe->sink->open == pipe)) {
        pass_on(pipe, pipe->line, pipe->count, ends);
    }
    close(pipe->fd);
    pipe->fd = -1;
    free(pipe->line);
    pipe->line = NULL;
    pipe->count = pipe->room = 0;
}
