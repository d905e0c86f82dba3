/* A trace of all ranks in one file: see tracing.h. */
#include "train/tracing.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/try.h"

#define SPANS ((size_t)1 << 20)

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

static weft_status_t part_name(const char *path, int rank, char *out)
{
    int length = snprintf(out, WEFT_PATH_BYTES, "%s.%d.part", path, rank);
    return length < WEFT_PATH_BYTES
               ? WEFT_OK
               : weft__fail(WEFT_ERR_INVALID, "the name of the trace is too long: %.64s...", path);
}

static weft_status_t merge(const char *path, int size)
{
    weft_status_t status = WEFT_OK;
    char(*names)[WEFT_PATH_BYTES] = calloc((size_t)size, sizeof(*names));
    const char **parts = calloc((size_t)size, sizeof(*parts));
    if (names == NULL || parts == NULL) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "no memory to join the traces of %d ranks", size);
    }
    for (int i = 0; i < size && status == WEFT_OK; i++) {
        status = part_name(path, i, names[i]);
        parts[i] = names[i];
    }
    if (status == WEFT_OK) {
        status = weft__trace_merge(path, parts, size);
    }
    free(names);
    free(parts);
    return status;
}

static weft_status_t write_all(const char *path, weft_comm_h comm, weft_trace_t *trace)
{
    char part[WEFT_PATH_BYTES];
    int rank, size;
    WEFT_TRY(weft_comm_rank(comm, &rank));
    WEFT_TRY(weft_comm_size(comm, &size));
    WEFT_TRY(part_name(path, rank, part));
    weft_status_t saved = weft__trace_save(trace, part);
    if (saved != WEFT_OK) {
        remove(part);
    }
    weft_status_t met = weft_barrier(comm, NULL);
    if (met != WEFT_OK) { /* one of them failed meanwhile: nobody will join the parts */
        remove(part);
        return met;
    }
    weft_status_t status = rank == 0 ? merge(path, size) : WEFT_OK;
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

weft_status_t weft__tracing_close(const char *path, weft_comm_h comm, weft_trace_t *trace,
                                  weft_status_t status)
{
    if (trace != NULL && status == WEFT_OK) {
        status = write_all(path, comm, trace);
    } else if (trace != NULL) {
        say_nothing_written(path, comm);
    }
    if (trace != NULL) {
        weft__trace_close(trace);
    }
    return status;
}
