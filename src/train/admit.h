/* Is there room for the run? Asked before any rank starts, and answered with numbers: memory of all
 * ranks of this host against what the machine and its control groups have left, or the GPUs; the
 * checkpoints against the disk. What cannot work is refused, with the nearest plan that would,
 * unless
 * --force says that it is meant. */
#ifndef WEFT_TRAIN_ADMIT_H
#define WEFT_TRAIN_ADMIT_H

#include <stdio.h>

#include "train/forecast.h"

/* WEFT_ERR_NO_MEMORY if `ranks` ranks of the run, all of those on this host, need more than there
 * is. `notes` (NULL: none) gets a warning where it is tight. */
weft_status_t weft__admit_memory(const weft_setup_t *setup, int ranks, FILE *notes);

/* WEFT_ERR_SYSTEM if not even one checkpoint fits on the disk; a warning if not all that are
 * planned. */
weft_status_t weft__admit_disk(const weft_setup_t *setup, FILE *notes);

/* Say which later checkpoints a run that goes back with --force moves, and where to. */
weft_status_t weft__admit_going_back(const weft_setup_t *setup, FILE *notes);

/* The numbers, as --dry-run shows them. */
weft_status_t weft__admit_print(const weft_setup_t *setup, int ranks, FILE *out);

/* What there is, in bytes; UINT64_MAX where it cannot be told. */
typedef struct weft_room {
    uint64_t host;   /* for all ranks together */
    uint64_t device; /* of a GPU, for each rank; not limited by itself on virtual GPUs */
} weft_room_t;

/* Options that make the nearest run to this one that fits into `room`, into `text`; "" if none was
 * found. *forecast_p is what it needs. Nearest: fewest changes, of the cheapest kind. Computing
 * more (recomputation, smaller micro-batches) is cheaper than communicating more (ZeRO, tp, pp),
 * and all of it than fewer ranks. */
weft_status_t weft__admit_nearest(const weft_setup_t *setup, int ranks, const weft_room_t *room,
                                  char *text, size_t bytes, weft_forecast_t *forecast_p);

#endif
