/* A trace of all ranks in one file: see tracing.h. */
#include "train/tracing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/log.h"

#define SPANS ((size_t)1 << 20)
#define CHUNK_BYTES ((size_t)1 << 20) /* of a part, in one message */

weft_status_t weft__tracing_open(const char *path, weft_comm_h comm, weft_trace_t **trace_p)
{
    int rank;
    *trace_p = NULL;
    if (path[0] == '\0') {
        return WEFT_OK;
    }
    WEFT_TRY(weft_comm_rank(comm, &rank));
    return weft__trace_open(rank, SPANS, trace_p);
}

/* Rank `from` sends `bytes` at `host`, rank 0 receives them there (NULL: and forgets them), by way
 * of `chunk` in the device's memory. */
static weft_status_t move(char *host, size_t bytes, bool sends, int from, void *chunk,
                          weft_comm_h comm)
{
    for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
        size_t count = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        if (sends) {
            WEFT_TRY(weft_memcpy(chunk, host + at, count, NULL));
            WEFT_TRY(weft_send(chunk, count, WEFT_U8, 0, comm, NULL));
            continue;
        }
        WEFT_TRY(weft_recv(chunk, count, WEFT_U8, from, comm, NULL));
        if (host != NULL) {
            WEFT_TRY(weft_memcpy(host + at, chunk, count, NULL));
        }
    }
    return WEFT_OK;
}

static weft_status_t send_part(weft_trace_part_t part, int rank, void *chunk, weft_comm_h comm)
{
    uint64_t size = part.size;
    WEFT_TRY(move((char *)&size, sizeof(size), true, rank, chunk, comm));
    return move(part.text, part.size, true, rank, chunk, comm);
}

/* parts[0] is rank 0's own. A part that finds no memory is received all the same: its rank
 * waits. */
static weft_status_t receive_parts(weft_trace_part_t *parts, int size, void *chunk,
                                   weft_comm_h comm)
{
    weft_status_t status = WEFT_OK;
    for (int from = 1; from < size; from++) {
        uint64_t bytes = 0;
        WEFT_TRY(move((char *)&bytes, sizeof(bytes), false, from, chunk, comm));
        parts[from].text = malloc(bytes + 1);
        if (parts[from].text == NULL) {
            status = weft__fail(WEFT_ERR_NO_MEMORY,
                                "no memory for the %llu bytes of the trace of rank %d",
                                (unsigned long long)bytes, from);
        }
        WEFT_TRY(move(parts[from].text, bytes, false, from, chunk, comm));
        parts[from].size = parts[from].text != NULL ? bytes : 0;
    }
    return status;
}

/* On rank 0, which has the last word: all parts into one file. */
static weft_status_t merge(const char *path, const weft_tracks_t *tracks, weft_trace_part_t own,
                           int size, void *chunk, weft_comm_h comm)
{
    weft_trace_part_t *parts = calloc((size_t)size, sizeof(*parts));
    if (parts == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to join the traces of %d ranks", size);
    }
    parts[0] = own;
    weft_status_t status = receive_parts(parts, size, chunk, comm);
    if (status == WEFT_OK) {
        status = weft__trace_merge(path, tracks, parts, size);
    }
    for (int i = 1; i < size; i++) {
        free(parts[i].text);
    }
    free(parts);
    return status;
}

static weft_status_t write_trace(const char *path, const weft_tracks_t *tracks, weft_comm_h comm,
                                 weft_trace_t *trace)
{
    int rank, size;
    void *chunk;
    weft_trace_part_t part = {NULL, 0};
    WEFT_TRY(weft_comm_rank(comm, &rank));
    WEFT_TRY(weft_comm_size(comm, &size));
    WEFT_TRY(weft_malloc(&chunk, CHUNK_BYTES));
    weft_status_t saved = weft__trace_save(trace, &part); /* empty if that fails */
    weft_status_t status = rank == 0 ? merge(path, tracks, part, size, chunk, comm)
                                     : send_part(part, rank, chunk, comm);
    free(part.text);
    weft_free(chunk);
    return saved == WEFT_OK ? status : saved;
}

/* Ranks that cannot wait for each other any more cannot join their parts. */
static void say_nothing_written(const char *path, weft_comm_h comm)
{
    int rank;
    if (weft_comm_rank(comm, &rank) == WEFT_OK && rank == 0) {
        weft__warn("no trace is written to %s, as the run failed", path);
    }
}

weft_status_t weft__tracing_close(const char *path, const weft_tracks_t *tracks, weft_comm_h comm,
                                  weft_trace_t *trace, weft_status_t status)
{
    if (trace != NULL && status == WEFT_OK) {
        status = write_trace(path, tracks, comm, trace);
    } else if (trace != NULL) {
        say_nothing_written(path, comm);
    }
    if (trace != NULL) {
        weft__trace_close(trace);
    }
    return status;
}
