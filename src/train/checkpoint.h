/* Checkpoints: everything a run needs to go on, in files that others can read.
 *
 *     RUN/run.json                 whose folder it is (run_folder.h)
 *     RUN/latest -> step-000100    a link, replaced at once
 *     RUN/step-000100/
 *         config.json              the model, as Hugging Face's `transformers` describes it
 *         model.safetensors        the weights, by their Hugging Face names
 *         optimizer.safetensors    exp_avg.<name>, exp_avg_sq.<name> and, unless the weights are
 *                                  f32, master.<name>; all f32
 *         residuals.safetensors    with --compress int8: what rounding left of gradients, by rank
 *                                  (residuals.h); f32
 *         tokenizer.json           so that text can be made from this folder alone
 *         trainer.json             run, step, position in the data, seed, settings; size and
 *                                  CRC-32C of every other file. Written last: no checkpoint without
 *                                  it
 *
 * Tensors are global, whatever plan made them; any plan can load them, but for residuals. A
 * checkpoint is written as RUN/.step-000100.tmp, made durable, read back and compared, and then
 * renamed; so killing the writer at any instant leaves what was there whole, and at most a folder
 * whose name starts with a dot, which the next writer removes. */
#ifndef WEFT_TRAIN_CHECKPOINT_H
#define WEFT_TRAIN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#include "train/safetensors.h"

#define WEFT_RUN_ID 17 /* the name of a run: 16 hexadecimal digits and a NUL */

/* What a resumed run must know to go on bit for bit. Random numbers (dropout, initial weights)
 * are counted from seed, step and sample, so they need no state of their own. */
typedef struct weft_train_state {
    uint64_t step;    /* steps done */
    uint64_t samples; /* taken from the data so far: the position in it (data.h) */
    uint64_t tokens;  /* seen so far */
    uint64_t seed;
    uint64_t data_print;       /* of the data (data.h); 0: not known */
    double loss_scale;         /* fp16 only; else 1 */
    uint64_t loss_scale_steps; /* steps since it last changed */
    uint64_t skipped; /* fp16: steps whose gradients were not finite, and changed nothing */
    double loss;      /* of the last step, for display */
} weft_train_state_t;

/* ---- saving --------------------------------------------------------------------------------- */

/* One tensor to save. Its bytes come from `data`, or, where they are on a GPU or on several
 * ranks, from `read(ctx, offset, out, bytes)`. That is called in the thread of
 * weft__checkpoint_save, in the order of the tensors and of their bytes, once per byte, and
 * before anything is written: a full disk cannot come between the reads. Except with `wait`,
 * where they end at the first error. */
typedef struct weft_tensor_source {
    weft_tensor_form_t form;
    const void *data;
    weft_status_t (*read)(void *ctx, uint64_t offset, void *out, size_t bytes);
    void *ctx;
} weft_tensor_source_t;

typedef struct weft_checkpoint {
    weft_train_state_t state;
    const weft_tensor_source_t *model;
    int model_count;
    const weft_tensor_source_t *optimizer;
    int optimizer_count;
    const weft_tensor_source_t *residuals;
    int residual_count;         /* 0: none */
    const char *config_json;    /* the text of config.json */
    const char *tokenizer_json; /* NULL: none */
    const char *settings;       /* the run's configuration as text (config.h); NULL: none */
} weft_checkpoint_t;

typedef struct weft_checkpoint_writer weft_checkpoint_writer_t;

typedef struct weft_checkpoint_options {
    int keep;  /* newest checkpoints of this run to keep; 0: all. Others' are never removed */
    bool wait; /* save returns when the checkpoint is on disk; no copy in memory is made */
} weft_checkpoint_options_t;

/* Write checkpoints into the run folder, which is created if need be and gets its run.json; remains
 * of a killed writer are removed. A checkpoint of another run with a name that is needed is set
 * aside. One writer per run folder: WEFT_ERR_REFUSED if another has it open (an advisory lock,
 * which ends with its process). */
weft_status_t weft__checkpoint_writer_open(const char *run,
                                           const weft_checkpoint_options_t *options,
                                           weft_checkpoint_writer_t **writer_p);

/* Copy everything and write it in the background; waits first for the checkpoint before, if it is
 * still being written. Errors of that one (disk full, ...) are returned here, once, and the new
 * one is begun all the same: *begun_p (may be NULL) says whether. The one before the failed one
 * is still there and still `latest`. */
weft_status_t weft__checkpoint_save(weft_checkpoint_writer_t *writer,
                                    const weft_checkpoint_t *checkpoint, bool *begun_p);

/* WEFT_PENDING while one is being written; else the result of the last one, each error once.
 * Never waits, so that every step may ask. */
weft_status_t weft__checkpoint_poll(weft_checkpoint_writer_t *writer);

/* Wait until all is on disk; the result of the last one, if it has not been told yet. */
weft_status_t weft__checkpoint_wait(weft_checkpoint_writer_t *writer);

/* Waits, then frees. Returns as weft__checkpoint_wait. */
weft_status_t weft__checkpoint_writer_close(weft_checkpoint_writer_t *writer);

/* Time of the last checkpoint that was saved: what the caller waited for, what the background took,
 * bytes. */
typedef struct weft_checkpoint_times {
    double blocked_s, written_s;
    uint64_t bytes;
    uint64_t step;
} weft_checkpoint_times_t;

void weft__checkpoint_times(weft_checkpoint_writer_t *writer, weft_checkpoint_times_t *out);

/* ---- loading -------------------------------------------------------------------------------- */

typedef struct weft_loaded {
    char path[4096]; /* of the checkpoint's folder */
    weft_train_state_t state;
    char run[WEFT_RUN_ID]; /* that wrote it; "": a version before runs had names, or others */
    char *settings;        /* as saved; NULL if none */
    weft_tensors_t *model;
    weft_tensors_t
        *optimizer; /* NULL if the folder has none (made by others), or none was wanted */
    weft_tensors_t *residuals; /* likewise */
    bool foreign;              /* no trainer.json: weights only, state is zero */
} weft_loaded_t;

/* How much is wanted of a checkpoint. */
typedef enum weft_load {
    WEFT_LOAD_LOOK,  /* sizes are compared, contents are not */
    WEFT_LOAD_MODEL, /* all but the optimizer's state and residuals, which may be missing; checksums
                        are compared */
    WEFT_LOAD_ALL    /* everything; checksums are compared */
} weft_load_t;

/* Load from `path`: a checkpoint, a run folder (its `latest`; without one the newest that is
 * there), or a folder of `transformers` (config.json and model.safetensors or shards).
 * WEFT_ERR_INVALID, with file and reason, for what is truncated or changed, and the sentence names
 * an older checkpoint that could be taken instead. */
weft_status_t weft__checkpoint_load(const char *path, weft_load_t want, weft_loaded_t *out);
void weft__checkpoint_unload(weft_loaded_t *loaded);

#endif
