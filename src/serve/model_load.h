/* A trained model on the current device, ready to compute with: weights, tokenizer, nothing
 * else. */
#ifndef WEFT_SERVE_MODEL_LOAD_H
#define WEFT_SERVE_MODEL_LOAD_H

#include "model/model.h"
#include "parallel/layout.h"
#include "text/tokenizer.h"

typedef struct weft_model_loaded {
    weft_model_t *model;
    const weft_compute_t *compute;
    weft_tokenizer_t *tokenizer;
    weft_layout_t layout;
    void *memory;
    void **params; /* by index */
    int length;    /* tokens of the sequences it learned from; the model's context if not known */
} weft_model_loaded_t;

/* Load from a run folder, a checkpoint or a model folder of `transformers`, in bf16 on GPUs and in
 * f32 on virtual ones. `tokenizer`: "bytes" or a file; "": the folder's own. weft__model_unload
 * only after success. */
weft_status_t weft__model_load(const char *path, const char *tokenizer,
                               weft_model_loaded_t *loaded_p);
void weft__model_unload(weft_model_loaded_t *loaded);

#endif
