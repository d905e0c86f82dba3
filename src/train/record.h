/* What a run was: enough to repeat it. */
#ifndef WEFT_TRAIN_RECORD_H
#define WEFT_TRAIN_RECORD_H

#include "train/setup.h"

/* Write RUN/config, the complete configuration as --config takes it, and RUN/machine.json: Weft's
 * version, the processor, GPUs, ranks, and every setting that was in force. To be called while there
 * is no other thread (topo/topo.h). */
weft_status_t weft__record_write(const weft_setup_t *setup);

#endif
