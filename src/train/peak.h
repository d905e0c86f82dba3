/* How fast a device could be: what MFU is a share of. */
#ifndef WEFT_TRAIN_PEAK_H
#define WEFT_TRAIN_PEAK_H

#include <weft/comm.h>

#include "kernel/compute.h"
#include "train/setup.h"

/* Dense operations per second of a GPU by its name, as its maker states them for `type`; 0 if it is
 * not in the table. */
double weft__peak_of(const char *name, weft_dtype_t type);

/* The same measured, as the best of a few large matrix products; what virtual GPUs are held to, as
 * nobody states it. All ranks should measure at once if they share cores. */
weft_status_t weft__peak_measure(const weft_compute_t *compute, weft_dtype_t type,
                                 weft_stream_h stream, double *flops_p);

/* What this rank's device could do: its share of what the GPUs' maker states, or measured. Before
 * memory is taken, so that what measuring needs is not on top of it. All ranks of the job take part
 * in `comm`. Collective. */
weft_status_t weft__peak_find(const weft_setup_t *setup, weft_comm_h comm, double *flops_p);

#endif
