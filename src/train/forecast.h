/* What a run is going to take, of memory and of disk: computed, so that it is known before any rank
 * starts. docs/memory.md compares it with what was measured. */
#ifndef WEFT_TRAIN_FORECAST_H
#define WEFT_TRAIN_FORECAST_H

#include "train/setup.h"

typedef struct weft_forecast {
    int ranks;            /* on this host */
    uint64_t device;      /* bytes on the devices of these ranks, together */
    uint64_t device_most; /* ... of the one that needs most */
    uint64_t host;        /* on the host besides: processes, data on its way, offloaded state */
    uint64_t copy;        /* of a checkpoint while it is written, with what is gathered for it */
    uint64_t total;       /* host memory in all: of virtual GPUs too */
    uint64_t checkpoint;  /* one on disk; 0: none will be written */
    uint64_t saves;       /* checkpoints that will be written */
    uint64_t at_once;     /* more of them on disk at one time than there are now */
} weft_forecast_t;

/* Of the run as resolved, `ranks` of whose ranks are on this host. The table of the kernels is
 * asked what they want (on GPUs that takes a context). */
weft_status_t weft__forecast(const weft_setup_t *setup, int ranks, weft_forecast_t *out);

/* The part of it that is about the disk. */
weft_status_t weft__forecast_disk(const weft_setup_t *setup, weft_forecast_t *out);

#endif
