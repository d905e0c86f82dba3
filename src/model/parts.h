/* What the layers share: parameters by role, linear layers of both layouts, norms, masks. Internal
 * to this folder. */
#ifndef WEFT_MODEL_PARTS_H
#define WEFT_MODEL_PARTS_H

#include "base/log.h"
#include "model/model.h"

static inline bool weft__is_gpt2(const weft_pass_t *pass)
{
    return pass->model->config.family == WEFT_GPT2;
}

static inline int64_t weft__rows(const weft_pass_t *pass)
{
    return pass->shape.batch * pass->shape.seq;
}

/* What is added to a model's description; the fields are those of weft_param_t. */
typedef struct weft_param_form {
    int dims;
    int64_t shape[2];
    weft_split_t split;
    int sections;
    float std;
} weft_param_form_t;

/* Describe one more parameter, at the place that its key has in the order. WEFT_ERR_INVALID if the
 * slice has it already or has no such block. */
weft_status_t weft__model_add(weft_model_t *model, weft_param_key_t key,
                              const weft_param_form_t *form, const char *name);

/* The index of the first parameter whose key is not before this one, of an end or a block of the
 * slice; that of the next unit if there is none in this. */
int weft__model_lower(const weft_model_t *model, weft_param_key_t key);

/* The parameter, or its gradient; NULL if the model has none such. */
const void *weft__param_of(const weft_pass_t *pass, weft_param_key_t key);
void *weft__grad_of(const weft_pass_t *pass, weft_param_key_t key);

/* `count` elements of the model's type further. */
void *weft__offset(const weft_pass_t *pass, const void *base, int64_t count);

/* Rows that norms have: see weft_shape_t. */
weft_norm_t weft__norm_args(const weft_pass_t *pass, int64_t rows, int layer, weft_role_t weight,
                            weft_role_t bias);

/* A linear layer from `in` to `out` columns whose weight is one matrix, or for LLaMA several that
 * make rows of one (queries, keys, values; gate, up): weights[0 .. count). Where they lie behind
 * each other in memory, and they do unless somebody spreads them, it is one product. */
typedef struct weft_linear {
    int64_t in, out;
    int count;
    weft_param_key_t weights[3];
    int64_t outs[3]; /* columns of y that each makes */
    weft_param_key_t bias;
    bool biased;
} weft_linear_t;

weft_linear_t weft__linear_qkv(const weft_pass_t *pass, int layer);
weft_linear_t weft__linear_proj(const weft_pass_t *pass, int layer);
weft_linear_t weft__linear_up(const weft_pass_t *pass, int layer);
weft_linear_t weft__linear_down(const weft_pass_t *pass, int layer);

/* How a forward product ends; see weft_matmul_t. */
typedef struct weft_ending {
    const void *add;
    void *aux;
    weft_epilogue_t epilogue;
    bool no_bias;
} weft_ending_t;

/* y (rows x out) = x w + bias, then the ending. */
weft_status_t weft__linear_forward(const weft_pass_t *pass, const weft_linear_t *linear,
                                   const void *x, void *y, weft_ending_t ending);
/* dx (rows x in) = dy w^T, then the ending. */
weft_status_t weft__linear_input(const weft_pass_t *pass, const weft_linear_t *linear,
                                 const void *dy, void *dx, weft_ending_t ending);
/* The same for the first product of a part of a block: see weft_pass_t.await_rows. */
weft_status_t weft__linear_forward_first(const weft_pass_t *pass, const weft_linear_t *linear,
                                         const void *x, void *y, weft_ending_t ending);
weft_status_t weft__linear_input_first(const weft_pass_t *pass, const weft_linear_t *linear,
                                       const void *dy, void *dx, weft_ending_t ending);
/* dw += x^T dy, dbias += sum of dy. */
weft_status_t weft__linear_weights(const weft_pass_t *pass, const weft_linear_t *linear,
                                   const void *x, const void *dy);

/* The mask of a use of dropout on the residual stream, and of attention's probabilities. `site`
 * NULL or a rate of 0, or no training: nothing is dropped. */
weft_mask_t weft__stream_mask(const weft_pass_t *pass, int layer, const char *site, float rate);
weft_mask_t weft__attention_mask(const weft_pass_t *pass, int layer);

/* Turn the queries and keys of the pass's micro-batch. */
weft_rope_t weft__rope_args(const weft_pass_t *pass, void *qkv);

/* Tell that the gradients of the parameters from `first` to `last` are complete. */
void weft__tell_ready(const weft_pass_t *pass, int layer, weft_role_t first, weft_role_t last);

int64_t weft__head_rows(const weft_model_t *model, const weft_compute_t *compute,
                        const weft_shape_t *shape);

#endif
