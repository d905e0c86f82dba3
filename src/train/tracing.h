/* A trace of all ranks in one file: each sends its part to rank 0, which joins them. */
#ifndef WEFT_TRAIN_TRACING_H
#define WEFT_TRAIN_TRACING_H

#include <weft/comm.h>

#include "base/trace.h"

/* *trace_p is NULL if `path` is "". */
weft_status_t weft__tracing_open(const char *path, weft_comm_h comm, weft_trace_t **trace_p);

/* Write and join the trace, and free it. Returns `status` if that was a failure, in which case
 * there is no trace of other ranks to wait for: then this rank's part is dropped. Collective
 * otherwise. */
weft_status_t weft__tracing_close(const char *path, const weft_tracks_t *tracks, weft_comm_h comm,
                                  weft_trace_t *trace, weft_status_t status);

#endif
