/* What WEFT_NCCL_REPORT=FOLDER asks for: how often, with how many bytes and how long each call of
 * NCCL's took on its stream. When the process ends, or its last communicator, the folder gets
 * summary-RANK.txt, a table, and trace-RANK.json, which Perfetto shows. */
#ifndef WEFT_NCCL_REPORT_H
#define WEFT_NCCL_REPORT_H

#include "nccl/handle.h"

typedef struct weft_nccl_record weft_nccl_record_t; /* a call that is being timed */

extern bool weft__nccl_reporting; /* set once, when the library is loaded */

/* Note the begin of a call, before it is queued. NULL: nothing is asked for, or there is no memory.
 */
weft_nccl_record_t *weft__nccl_report_begin(ncclComm_t comm, const char *name, size_t count,
                                            weft_dtype_t type, weft_stream_h stream);

/* Note its end, after it is queued; inside a group, where that happens at the end, then. */
void weft__nccl_report_end(weft_nccl_record_t *record);
void weft__nccl_report_group_end(void);

/* A communicator is gone: write what there is if it was the last. */
void weft__nccl_report_opened(ncclComm_t comm);
void weft__nccl_report_closed(ncclComm_t comm);

#endif
