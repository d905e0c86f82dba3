/* What a run measures, as event files of TensorBoard.
 *
 *     DIR/events.out.tfevents.SECONDS.HOST.PID.0
 *
 * An event file is a row of records, each framed as TFRecord does it:
 *
 *     8 bytes  length of the data, little-endian
 *     4 bytes  masked CRC-32C of these 8 bytes
 *     n bytes  data: an Event, in the encoding of protocol buffers
 *     4 bytes  masked CRC-32C of the data
 *
 * The first event tells the version of the format. The second is a session's start at the step that
 * comes next: a reader drops what earlier files of the folder say of this step and later ones, as
 * those are computed again. Then comes one event per step, with all its scalars.
 *
 * Every start of a run has a file of its own. Readers go through them in the order of their names,
 * so SECONDS is later than that of every other file there, whatever the clock says. */
#ifndef WEFT_TRAIN_TENSORBOARD_H
#define WEFT_TRAIN_TENSORBOARD_H

#include <stdint.h>

#include "base/append.h"
#include "train/metrics.h"

/* Make the folder, and a file in it for steps after `resumed`. */
weft_status_t weft__tensorboard_open(const char *folder, uint64_t resumed, weft_append_t *file);

/* Append a step: what is not known of it is left out. As weft__append_write. */
weft_status_t weft__tensorboard_step(weft_append_t *file, const weft_metrics_step_t *step);

#endif
