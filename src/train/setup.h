/* From the options of a run to what they mean here: the model's sizes, the tokenizer, the data, the
 * kind of device and the precision; and the refusal of what cannot work. Nothing is computed and no
 * rank is needed, so the launcher does all of it once before it starts any. */
#ifndef WEFT_TRAIN_SETUP_H
#define WEFT_TRAIN_SETUP_H

#include <weft/comm.h>

#include "base/file.h"
#include "kernel/compute.h"
#include "model/config.h"
#include "model/model.h"
#include "text/data.h"
#include "text/tokenizer.h"
#include "topo/machine.h"
#include "train/checkpoint.h"
#include "train/config.h"

/* Text that a run writes to show what the model has learned (--sample). */
typedef struct weft_text_sample {
    const weft_model_t *model; /* whole */
    const weft_compute_t *compute;
    void *const *params; /* by index */
    weft_stream_h stream;
    weft_tokenizer_t *tokenizer;
    const char *prompt;
    int tokens;      /* to write after the prompt */
    int64_t context; /* tokens to look back at, at most */
    uint64_t seed;
} weft_text_sample_t;

/* Writes it, malloced. */
typedef weft_status_t (*weft_sample_fn)(const weft_text_sample_t *sample, char **text_p);

typedef struct weft_setup {
    weft_train_config_t *config; /* resolved by weft__setup_open */
    const char *device;          /* "cpu" or "cuda" */
    weft_machine_t machine;      /* with its GPUs if the device is one */
    weft_model_config_t model;
    weft_dtype_t type;                    /* of weights and activations */
    weft_tokenizer_t *tokenizer;          /* NULL: the data is tokens, of nobody knows what */
    char tokenizer_file[WEFT_PATH_BYTES]; /* that of the model's folder */
    char cache[WEFT_PATH_BYTES];          /* where texts are kept as tokens */
    weft_data_t *data;                    /* NULL until weft__setup_data */
    weft_data_t *eval_data;               /* NULL: the end of `data` */
    bool resumed;                         /* weights come from `loaded` ... */
    bool has_loaded;
    weft_loaded_t loaded; /* ... with everything else if `resumed`, or alone (--model FOLDER) */
    bool goes_on;         /* in the folder of the run that saved it */
    bool gathers_beside;  /* for comparison: rows are gathered beside products that need them, also
                           * where no core is free for that (run_plan.c) */
    /* Generation is a layer below (serve/), so whoever runs the loop hands it in. */
    weft_sample_fn write_sample;
} weft_setup_t;

/* Check and resolve `config`, which must outlive the setup: device, model, tokenizer, checkpoint.
 * The configuration gets what was left open. WEFT_ERR_UNSUPPORTED for options that are known and
 * not there yet. weft__setup_close after failures too. */
weft_status_t weft__setup_open(weft_train_config_t *config, weft_setup_t *setup);
void weft__setup_close(weft_setup_t *setup);

/* For benchmarks: another plan, batch or precision for the model and the device of `base`, which
 * must outlive the setup, as must `config`. What `config` leaves open is resolved. Unlike
 * weft__setup_open it reads nothing of the machine, so other threads may be about. */
weft_status_t weft__setup_vary(const weft_setup_t *base, weft_train_config_t *config,
                               weft_setup_t *setup);

/* What --resume means: a path; "" for nothing, or if "auto" finds no checkpoint in the run
 * folder. */
const char *weft__setup_resume(const weft_train_config_t *config);

/* Is there data? Nothing is written. */
weft_status_t weft__setup_look(const weft_setup_t *setup);

/* Make tokens of texts, if that was not done before: one process does this, then all open. If it
 * takes long, `out` (NULL: nobody) is shown how far it is. */
weft_status_t weft__setup_prepare(weft_setup_t *setup, FILE *out);

/* Open the data, anew if it is open. */
weft_status_t weft__setup_data(weft_setup_t *setup);

/* How the model is cut here: whole, its vocabulary padded to what the device likes. */
weft_slice_t weft__setup_slice(const weft_setup_t *setup);

#endif
