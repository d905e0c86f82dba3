/* What a run was: enough to repeat it. */
#ifndef WEFT_TRAIN_RECORD_H
#define WEFT_TRAIN_RECORD_H

#include "base/json.h"
#include "train/setup.h"

/* The configuration as text (weft__train_write_text), for wherever and whenever it is read again:
 * paths are absolute, and a run that went on from another is what both were together. Malloced. */
weft_status_t weft__record_settings(const weft_train_config_t *config, const char *extra,
                                    char **text_p);

/* Write RUN/config, the complete configuration as --config takes it, and RUN/machine.json: Weft's
 * version, the processor, GPUs, ranks, and every setting that was in force; for a run that goes on
 * from step S in its folder RUN/machine-S.json. To be called while there is no other thread
 * (topo/topo.h). */
weft_status_t weft__record_write(const weft_setup_t *setup);

/* What machine.json holds, into the object that is open. */
void weft__record_machine(const weft_setup_t *setup, weft_json_t *json);

/* The same and the configuration, for a trace, which is then enough to get another like it;
 * `setup` is a weft_setup_t, which is only read. */
void weft__record_describe(weft_json_t *json, void *setup);

#endif
