/* A trace of all ranks in one file: each sends its part to rank 0, which joins them. */
#ifndef WEFT_TRAIN_TRACING_H
#define WEFT_TRAIN_TRACING_H

#include <weft/comm.h>

#include "base/trace.h"
#include "train/setup.h"

/* *trace_p is NULL if `path` is "". */
weft_status_t weft__tracing_open(const char *path, weft_comm_h comm, weft_trace_t **trace_p);

/* Write and join the trace, with what machine.json and config hold, and free it. Returns `status`
 * if that was a failure, in which case there is no trace of other ranks to wait for: then this
 * rank's part is dropped. Collective otherwise. */
weft_status_t weft__tracing_close(const weft_setup_t *setup, weft_comm_h comm, weft_trace_t *trace,
                                  weft_status_t status);

#endif
