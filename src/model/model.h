/* Transformer layers: forward and backward of GPT-2 and LLaMA.
 *
 * The model knows nothing about ranks and sends nothing. It is cut in two ways that `parallel/`
 * uses: into *slices* (some of the blocks; one of several equal parts of every matrix), and each
 * block into *parts*, between which tensor parallelism puts its communication:
 *
 *           x ----------------------+                  forward        backward
 *   norm1   h1 = norm(x)            |
 *     .     [gather rows]           |                  sequence p.    reduce-scatter
 *   attend  y = proj(attend(qkv(h1)))                  attention      input, then weights
 *     .     [all-reduce of y]       |                  tensor p.      (all-reduce of dh1)
 *   norm2   x2 = x + y, h2 = norm(x2) --+
 *     .     [gather rows]               |
 *   mlp     y = down(act(up(h2)))       |
 *     .     [all-reduce of y]           |
 *   join    out = x2 + y                v
 *
 * Nothing is allocated here but the description of the model: parameters and gradients are handed
 * in as arrays of pointers by parameter index, activations live in memory of the caller whose size
 * is computed up front. So gradients can be views into buckets, ZeRO can own parameters, and memory
 * is known before the first step.
 *
 * Letters as in kernel/compute.h. F is the MLP's inner width. */
#ifndef WEFT_MODEL_MODEL_H
#define WEFT_MODEL_MODEL_H

#include "kernel/compute.h"
#include "model/config.h"

/* ---- parameters ------------------------------------------------------------------------- */

typedef enum weft_role {
    WEFT_TOKENS,    /* token embedding; the head too if tied */
    WEFT_POSITIONS, /* GPT-2 */
    WEFT_NORM1_WEIGHT,
    WEFT_NORM1_BIAS,
    WEFT_QKV_WEIGHT, /* GPT-2: queries, keys and values in one */
    WEFT_QKV_BIAS,
    WEFT_Q_WEIGHT, /* LLaMA */
    WEFT_K_WEIGHT,
    WEFT_V_WEIGHT,
    WEFT_PROJ_WEIGHT,
    WEFT_PROJ_BIAS,
    WEFT_NORM2_WEIGHT,
    WEFT_NORM2_BIAS,
    WEFT_GATE_WEIGHT, /* LLaMA */
    WEFT_UP_WEIGHT,
    WEFT_UP_BIAS,
    WEFT_DOWN_WEIGHT,
    WEFT_DOWN_BIAS,
    WEFT_FINAL_WEIGHT, /* the last norm */
    WEFT_FINAL_BIAS,
    WEFT_HEAD_WEIGHT, /* if not tied */
    WEFT_ROLE_COUNT
} weft_role_t;

/* Which parameter of a model. The order of keys is that of forward: what is in front of the blocks,
 * the blocks, what is behind them; in a block expert by expert, those of no expert first, and by
 * role. */
typedef struct weft_param_key {
    int layer; /* of a block; -1: of an end */
    weft_role_t role;
    int expert; /* of the block's; -1: of none */
} weft_param_key_t;

/* Of no expert. */
#define WEFT_KEY(layer, role) ((weft_param_key_t){(layer), (role), -1})

#define WEFT_PARAM_NAME 96

/* How tensor parallelism cuts a parameter among `parts`. */
typedef enum weft_split {
    WEFT_SPLIT_NONE,    /* every part has all of it, and the same gradient */
    WEFT_SPLIT_ROWS,    /* dimension 0 */
    WEFT_SPLIT_COLUMNS, /* dimension 1 */
} weft_split_t;

typedef struct weft_param {
    char name[WEFT_PARAM_NAME]; /* Hugging Face's */
    weft_param_key_t key;
    int dims;         /* 1 or 2; a vector has shape[1] = 1 */
    int64_t shape[2]; /* of the whole, as in a checkpoint */
    int64_t local[2]; /* as stored in this slice: its part, and padding of the vocabulary */
    int64_t count;    /* local[0] x local[1] */
    weft_split_t split;
    int sections; /* equal sections of the split dimension, each cut by itself: 3 for GPT-2's QKV */
    bool decay;   /* weight decay applies: matrices, not vectors */
    float std;    /* of initial values; 0: zeros, -1: ones */
} weft_param_t;

/* Copy between a whole tensor and what part number `part` stores of it, on the host. Padding is
 * written as 0 and read past. `element` is the size of an element. */
void weft__param_cut(const weft_param_t *param, int part, size_t element, const void *whole,
                     void *local);
void weft__param_put(const weft_param_t *param, int part, size_t element, const void *local,
                     void *whole);

/* Initial values of a local parameter, f32 on the host: normal numbers that depend on seed, name
 * and place in the whole tensor only, so that every plan starts alike. Fails only without
 * memory. */
weft_status_t weft__param_init(const weft_param_t *param, int part, uint64_t seed, float *local);

/* ---- the model, or a slice of it --------------------------------------------------------- */

typedef struct weft_slice {
    int layer_first, layer_count; /* blocks [layer_first, layer_first + layer_count) */
    bool embed, head;             /* with the embedding; with the last norm and the classifier */
    int part, parts;              /* of every split matrix; 0 of 1: whole */
    int vocab_multiple;           /* rows of the token embedding are padded to a multiple; 0: 1 */
} weft_slice_t;

typedef struct weft_model {
    weft_model_config_t config;
    weft_slice_t slice;
    weft_dtype_t type;      /* of parameters and activations: f32, bf16 or f16 */
    weft_dtype_t grad_type; /* of parameters' gradients: f32, or `type` */

    /* Sizes of this slice. */
    int heads, kv_heads, ffn;
    int64_t qkv_width;                /* (heads + 2 kv_heads) head_dim */
    int64_t vocab_first, vocab_count; /* rows of the token embedding that are real ... */
    int64_t vocab_rows;               /* ... and that are stored */

    /* In the order of their keys. Those of a part are neighbours, so that what a part of backward
     * has completed is a range. */
    int param_count, param_room;
    weft_param_t *params;
    int *block_at;         /* each block's first parameter, and behind them that of the end */
    int64_t element_count; /* of all local parameters */
} weft_model_t;

/* Everything in one slice. */
#define WEFT_SLICE_WHOLE(config) ((weft_slice_t){0, (config)->layers, true, true, 0, 1, 1})

/* Describe a slice. Fails with a sentence if the configuration is not possible or cannot be cut so
 * (heads, kv_heads and ffn must be divisible by parts). */
weft_status_t weft__model_create(const weft_model_config_t *config, const weft_slice_t *slice,
                                 weft_dtype_t type, weft_dtype_t grad_type, weft_model_t **model_p);
void weft__model_destroy(weft_model_t *model);

/* The index of a parameter, -1 if this slice has none such. */
int weft__model_param(const weft_model_t *model, weft_param_key_t key);

/* ---- activations ------------------------------------------------------------------------ */

/* The size of a micro-batch in this slice. */
typedef struct weft_shape {
    int64_t batch, seq;
    int64_t
        norm_rows; /* rows that norms and the residual stream have here: batch x seq, or a part of
                          it with sequence parallelism */
    int64_t head_rows; /* rows whose logits exist at a time; 0: as weft__head_chunk says */
} weft_shape_t;

#define WEFT_SHAPE(batch, seq) ((weft_shape_t){(batch), (seq), (batch) * (seq), 0})

/* What a block keeps from forward for backward. Linear parts have batch x seq rows, the others
 * norm_rows; where the two agree h1_all is h1, h2_all is h2 and y is x2 (or the block's output). */
typedef struct weft_block_acts {
    void *x;              /* norm_rows x C: the input. Not counted in the bytes: it is the
                                  output of what came before */
    void *h1, *h1_all;    /* x C */
    float *mean1, *rstd1; /* norm_rows */
    void *qkv;            /* x qkv_width; after RoPE */
    void *attended;       /* x heads D */
    float *lse;           /* batch x heads x seq */
    void *x2;             /* norm_rows x C: the residual stream after attention */
    void *h2, *h2_all;    /* x C */
    float *mean2, *rstd2;
    void *up;  /* before the activation: x F, LLaMA: x 2F (gate, up) */
    void *act; /* after it: x F */
} weft_block_acts_t;

/* What is written and read within one pass of one block or of the head: one for all layers. */
typedef struct weft_scratch {
    void *y;           /* rows x C: what attention and MLP add to the residual stream, unless they
                          add it themselves */
    void *dx;          /* norm_rows x C: gradient of the residual stream; backward runs in place */
    void *dropped;     /* norm_rows x C: dx behind a dropout mask; NULL without dropout */
    void *dh, *dh_all; /* x C: gradient of a norm's output */
    void *dqkv;        /* x qkv_width */
    void *dattended;   /* x heads D */
    void *dup;         /* as up */
    void *dact;        /* x F; LLaMA */
    void *logits;      /* head_rows x vocab_rows */
    void *work;        /* what kernels want */
} weft_scratch_t;

/* What the head keeps: the input of the last norm, its statistics and output, losses. */
typedef struct weft_head_acts {
    void *x; /* not counted */
    void *h;
    float *mean, *rstd;
    float *losses; /* rows */
    void *dh;      /* rows x C: gradient of h, made by forward already */
} weft_head_acts_t;

/* Everything of one micro-batch. */
typedef struct weft_acts {
    int32_t *tokens, *targets; /* batch x seq; of slices with embedding and head */
    void *x;                   /* the first block's input */
    weft_block_acts_t *blocks; /* on the host, layer_count of them; owned */
    void **outs;               /* blocks' outputs; outs[i] is blocks[i + 1].x; owned */
    weft_head_acts_t head;
} weft_acts_t;

/* How many of `rows` rows of `words` logits exist at a time, where the shape leaves it open. */
int64_t weft__head_chunk(const weft_compute_t *compute, int64_t rows, int64_t words);

/* Bytes, each tensor rounded up to 256. docs/memory.md has the formulas. */
size_t weft__acts_bytes(const weft_model_t *model, const weft_shape_t *shape);
size_t weft__block_acts_bytes(const weft_model_t *model, const weft_shape_t *shape);
size_t weft__scratch_bytes(const weft_model_t *model, const weft_compute_t *compute,
                           const weft_shape_t *shape);

/* Cut memory of that size (aligned to 256) into tensors. acts_carve allocates two small arrays on
 * the host, which acts_cleanup frees. */
weft_status_t weft__acts_carve(const weft_model_t *model, const weft_shape_t *shape, void *memory,
                               weft_acts_t *acts_p);
void weft__acts_cleanup(weft_acts_t *acts);
void weft__scratch_carve(const weft_model_t *model, const weft_compute_t *compute,
                         const weft_shape_t *shape, void *memory, weft_scratch_t *scratch_p);

/* Activations of which backward computes a part again. What it does is in memory that all blocks of
 * all micro-batches share, of weft__again_bytes. */
typedef enum weft_keep {
    WEFT_KEEP_ALL,
    WEFT_KEEP_NO_ATTENTION, /* qkv, attended and lse are shared: weft__block_attention makes them */
    WEFT_KEEP_INPUTS        /* everything is but blocks' inputs */
} weft_keep_t;

size_t weft__kept_bytes(const weft_model_t *model, const weft_shape_t *shape, weft_keep_t keep);
size_t weft__again_bytes(const weft_model_t *model, const weft_shape_t *shape, weft_keep_t keep);
weft_status_t weft__kept_carve(const weft_model_t *model, const weft_shape_t *shape,
                               weft_keep_t keep, void *memory, void *again, weft_acts_t *acts_p);

/* ---- a pass over a micro-batch ------------------------------------------------------------ */

/* Called by backward, in the order of backward, once the work that completes the gradients of
 * parameters [first, first + count) is queued on the stream. Each parameter comes once a pass; a
 * tied embedding comes with the embedding, after both of its uses. */
typedef void (*weft_grad_ready_fn)(void *arg, int first, int count);

typedef struct weft_pass {
    const weft_model_t *model;
    const weft_compute_t *compute;
    void *const *params; /* by index */
    void *const *grads;  /* by index; only read by backward, and by the head where training */
    weft_shape_t shape;
    weft_scratch_t scratch;
    weft_stream_h stream;

    bool training; /* with dropout, and the head makes gradients */
    bool fresh;    /* gradients for which weft__grad_is_written are not added to, but written */
    bool row_bias; /* add the biases of proj and down: on one part of several only */
    bool fuse_residual;  /* attention and MLP add the residual themselves: one part, no dropout */
    float loss_scale;    /* gradients are of loss_scale x sum of the losses of all tokens */
    uint64_t seed, step; /* of dropout */
    /* Sequences that begin before this pass: all at this position, or each at its own. Only where
     * keys and values come from a cache; 0 and NULL in training. */
    int64_t position_first;
    const weft_sequences_t *ragged;
    int64_t sample_first; /* index of the first sequence in the global batch, for dropout */
    int64_t row_first;    /* norm_rows' first row among batch x seq, with sequence parallelism */

    /* With sequence parallelism, a part of a block may start while its input is still being
     * gathered. Its first product then takes this part's own rows, norm_rows from row_first on,
     * from own_rows, and calls await_rows before it takes the others. NULL: all rows are there. */
    weft_status_t (*await_rows)(void *arg);
    void *await_rows_arg;
    const void *own_rows;

    weft_grad_ready_fn grad_ready; /* or NULL */
    void *grad_ready_arg;
} weft_pass_t;

/* Does a fresh pass write all of this gradient, of a slice with one part? Those of matrices: the
 * first micro-batch of a step need not find zeros there, nor read them. */
bool weft__grad_is_written(const weft_model_t *model, int param);

/* A pass over the whole micro-batch by a slice with one part: training, residuals fused where there
 * is no dropout, loss_scale 1 / rows. The caller sets what differs, and the memory of scratch. */
weft_pass_t weft__pass_make(const weft_model_t *model, const weft_compute_t *compute,
                            const weft_shape_t *shape);

/* The parts of forward, one by one. Each is queued on the pass's stream. `layer` counts blocks of
 * the whole model. */
weft_status_t weft__embed_forward(const weft_pass_t *pass, const int32_t *tokens, void *x);
weft_status_t weft__block_norm1(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts);
weft_status_t weft__block_attend(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts,
                                 void *y);
/* The first part of it: qkv, attended and lse, for a backward that did not keep them. */
weft_status_t weft__block_attention(const weft_pass_t *pass, int layer,
                                    const weft_block_acts_t *acts);
weft_status_t weft__block_norm2(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts,
                                const void *y);
weft_status_t weft__block_mlp(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts,
                              void *y);
weft_status_t weft__block_join(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts,
                               const void *y, void *out);

/* A whole block of a slice with one part. */
weft_status_t weft__block_forward(const weft_pass_t *pass, int layer, const weft_block_acts_t *acts,
                                  void *out);

/* The last norm, logits, losses. Logits exist for head_rows rows at a time only; with
 * pass->training their gradient is taken at once: head.dh is made and the gradient of the head's
 * matrix is complete afterwards (not yet that of a tied one). For a whole vocabulary (parts 1);
 * parallel/ has its own loop where the vocabulary is split. */
weft_status_t weft__head_norm(const weft_pass_t *pass, const weft_head_acts_t *acts);
weft_status_t weft__head_loss(const weft_pass_t *pass, const weft_head_acts_t *acts,
                              const int32_t *targets);
/* Logits of rows [first, first + count) into scratch.logits. */
weft_status_t weft__head_logits(const weft_pass_t *pass, const weft_head_acts_t *acts,
                                int64_t first, int64_t count);
/* From dlogits of those rows in scratch.logits: head.dh, and the gradient of the head's matrix. */
weft_status_t weft__head_dlogits(const weft_pass_t *pass, const weft_head_acts_t *acts,
                                 int64_t first, int64_t count);

/* The parts of backward. scratch.dx holds the gradient of the residual stream behind the part, and
 * after the part's norm that of the stream before it.
 *
 * branch_gradient gives the gradient of y, what the part added to the stream: dx, or with dropout
 * scratch.dropped. `_input` takes it (of all rows) and leaves in scratch.dh_all the gradient of
 * what the part read: summed over parts, and cut to norm_rows as scratch.dh, it is what the norm's
 * backward takes. `_weights` adds the gradients of the part's matrices; it comes after `_input` and
 * before the next part's, and may run while dh_all is being summed. */
typedef enum weft_branch { WEFT_BRANCH_ATTEND, WEFT_BRANCH_MLP } weft_branch_t;

weft_status_t weft__head_backward(const weft_pass_t *pass, const weft_head_acts_t *acts);
weft_status_t weft__branch_gradient(const weft_pass_t *pass, int layer, weft_branch_t branch,
                                    const void **dy_p);
weft_status_t weft__block_mlp_input(const weft_pass_t *pass, int layer,
                                    const weft_block_acts_t *acts, const void *dy);
weft_status_t weft__block_mlp_weights(const weft_pass_t *pass, int layer,
                                      const weft_block_acts_t *acts, const void *dy);
weft_status_t weft__block_norm2_backward(const weft_pass_t *pass, int layer,
                                         const weft_block_acts_t *acts);
weft_status_t weft__block_attend_input(const weft_pass_t *pass, int layer,
                                       const weft_block_acts_t *acts, const void *dy);
weft_status_t weft__block_attend_weights(const weft_pass_t *pass, int layer,
                                         const weft_block_acts_t *acts, const void *dy);
weft_status_t weft__block_norm1_backward(const weft_pass_t *pass, int layer,
                                         const weft_block_acts_t *acts);
weft_status_t weft__block_backward(const weft_pass_t *pass, int layer,
                                   const weft_block_acts_t *acts);
weft_status_t weft__embed_backward(const weft_pass_t *pass, const int32_t *tokens);

/* Everything in a row, for a slice with one part. Forward leaves the losses of tokens in
 * acts->head.losses; a slice without embedding starts from acts->x, one without head ends with the
 * last outs[]. Backward of a slice without head starts from scratch.dx, and leaves the gradient of
 * acts->x there. */
weft_status_t weft__model_forward(const weft_pass_t *pass, const weft_acts_t *acts);
weft_status_t weft__model_backward(const weft_pass_t *pass, const weft_acts_t *acts);

/* ---- generating --------------------------------------------------------------------------- */

/* Keys and values of `slots` sequences of up to `capacity` positions, and room to run `rows` new
 * tokens at a time, of whichever of them. For a whole model. The caller keeps track of how much of
 * a slot is filled: it says so with each batch, and may go back. */
typedef struct weft_cache {
    int64_t slots, capacity, rows;
    void *keys, *values; /* layers x slots x capacity x kv_heads D */
    void *stream[2];     /* rows x C: a block's input and output */
    weft_block_acts_t acts;
    weft_head_acts_t head;
} weft_cache_t;

size_t weft__cache_bytes(const weft_model_t *model, int64_t slots, int64_t capacity, int64_t rows);
void weft__cache_carve(const weft_model_t *model, int64_t slots, int64_t capacity, int64_t rows,
                       void *memory, weft_cache_t *cache_p);

/* Run more tokens of some sequences through the model and put their keys and values into the cache:
 * those of each sequence at its position in its slot, a slot at most once in a batch. tokens:
 * batch->rows, in device memory. logits: batch->count x vocab_rows of each sequence's last token,
 * of the model's type. Of the pass, model, compute, params and stream are used; the batch's list
 * must live until the stream has passed. A sequence gets the logits that it would get alone: on
 * virtual GPUs bit for bit with Weft's own products; a BLAS rounds as the number of rows suits it.
 * WEFT_ERR_INVALID if a slot or the model's context is full; WEFT_ERR_UNSUPPORTED for sequences
 * that differ in length or position where the device takes no ragged batches
 * (weft_compute_t.ragged). */
weft_status_t weft__model_extend(const weft_pass_t *pass, const weft_cache_t *cache,
                                 const weft_sequences_t *batch, const int32_t *tokens,
                                 void *logits);

#endif
