/* Tensor and sequence parallelism: see tensor.h. */
#include "parallel/tensor.h"

#include <stdlib.h>

#include "base/log.h"
#include "device/device.h"

struct weft_tensor {
    weft_tensor_options_t o;
    weft_vocabulary_t *vocabulary; /* NULL with one part */
    weft_stream_h comm_stream;
    weft_event_h filled, summed; /* what the communication stream waits for, and what waits for the
                                    communication stream */
};

/* ---- making one --------------------------------------------------------------------------- */

static weft_status_t make_all(weft_tensor_t *t, weft_ledger_t *ledger)
{
    if (t->o.parts == 1) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__vocabulary_create(&t->o, ledger, &t->vocabulary));
    if (ledger->dry) {
        return WEFT_OK;
    }
    WEFT_TRY(weft_event_create(&t->filled));
    WEFT_TRY(weft_event_create(&t->summed));
    return weft__comm_stream_create(&t->comm_stream);
}

weft_status_t weft__tensor_create(const weft_tensor_options_t *options, weft_ledger_t *ledger,
                                  weft_tensor_t **tensor_p)
{
    weft_tensor_t *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for tensor parallelism");
    }
    t->o = *options;
    weft_status_t status = make_all(t, ledger);
    if (status != WEFT_OK) {
        weft__tensor_destroy(t);
        return status;
    }
    *tensor_p = t;
    return WEFT_OK;
}

void weft__tensor_destroy(weft_tensor_t *t)
{
    if (t == NULL) {
        return;
    }
    weft_stream_destroy(t->comm_stream); /* first: what is queued on it uses the rest */
    weft__vocabulary_destroy(t->vocabulary);
    weft_event_destroy(t->filled);
    weft_event_destroy(t->summed);
    free(t);
}

/* ---- moving rows -------------------------------------------------------------------------- */

static size_t all_count(const weft_pass_t *pass)
{
    return (size_t)(pass->shape.batch * pass->shape.seq * pass->model->config.width);
}

static size_t part_count(const weft_pass_t *pass)
{
    return (size_t)(pass->shape.norm_rows * pass->model->config.width);
}

/* This part's rows of a tensor that has all. */
static void *own_rows(const weft_tensor_t *t, const weft_pass_t *pass, void *all)
{
    size_t bytes = part_count(pass) * weft_dtype_size(pass->model->type);
    return t->o.sequence ? (char *)all + (size_t)t->o.part * bytes : all;
}

/* Sum `all` over parts; *rows_p has the norm_rows that this part goes on with. */
static weft_status_t sum_rows(const weft_tensor_t *t, const weft_pass_t *pass, void *all,
                              void *rows, weft_stream_h stream)
{
    weft_dtype_t type = pass->model->type;
    return t->o.sequence
               ? weft_reduce_scatter(all, rows, part_count(pass), type, WEFT_SUM, t->o.comm, stream)
               : weft_allreduce(all, rows, all_count(pass), type, WEFT_SUM, t->o.comm, stream);
}

/* Measured, on the compute stream. */
static weft_status_t sum_now(const weft_tensor_t *t, const weft_pass_t *pass, void *all, void *rows)
{
    int stretch = weft__meter_begin(t->o.meter, WEFT_STRETCH_TENSOR);
    weft_status_t status = sum_rows(t, pass, all, rows, pass->stream);
    weft__meter_end(t->o.meter, stretch);
    return status;
}

/* All rows from every part's, where rows are cut. */
static weft_status_t gather_rows(const weft_tensor_t *t, const weft_pass_t *pass, const void *rows,
                                 void *all)
{
    if (!t->o.sequence) {
        return WEFT_OK;
    }
    int stretch = weft__meter_begin(t->o.meter, WEFT_STRETCH_TENSOR);
    weft_status_t status = weft_allgather(rows, all, part_count(pass), pass->model->type, t->o.comm,
                                          pass->stream);
    weft__meter_end(t->o.meter, stretch);
    return status;
}

/* For weft_pass_t.await_rows. */
static weft_status_t await_rows(void *arg)
{
    const weft_tensor_t *t = arg;
    int stretch = weft__meter_begin(t->o.meter, WEFT_STRETCH_TENSOR);
    weft_status_t status = weft_stream_wait(t->o.stream, t->summed);
    weft__meter_end(t->o.meter, stretch);
    return status;
}

/* The same beside the product that needs them: *early_p is a pass that starts with this part's rows
 * while the others come. */
static weft_status_t gather_beside(weft_tensor_t *t, const weft_pass_t *pass, const void *rows,
                                   void *all, weft_pass_t *early_p)
{
    size_t bytes = all_count(pass) * weft_dtype_size(pass->model->type);
    *early_p = *pass;
    if (!t->o.sequence || bytes < t->o.gather_bytes) {
        return gather_rows(t, pass, rows, all);
    }
    WEFT_TRY(weft_event_record(t->filled, pass->stream));
    WEFT_TRY(weft_stream_wait(t->comm_stream, t->filled));
    WEFT_TRY(
        weft_allgather(rows, all, part_count(pass), pass->model->type, t->o.comm, t->comm_stream));
    early_p->await_rows = await_rows;
    early_p->await_rows_arg = t;
    early_p->own_rows = rows;
    return weft_event_record(t->summed, t->comm_stream);
}

/* A pass that works on all rows, with the gradient of the residual stream in `dx`. */
static weft_pass_t on_all_rows(const weft_pass_t *pass, void *dx)
{
    weft_pass_t whole = *pass;
    whole.row_first = 0;
    whole.scratch.dx = dx;
    return whole;
}

/* ---- forward ------------------------------------------------------------------------------ */

weft_status_t weft__tensor_embed(weft_tensor_t *t, const weft_pass_t *pass, const int32_t *tokens,
                                 void *x)
{
    if (t->o.parts == 1) {
        return weft__embed_forward(pass, tokens, x);
    }
    void *all = t->o.sequence ? pass->scratch.y : x;
    weft_pass_t whole = on_all_rows(pass, pass->scratch.dx);
    WEFT_TRY(weft__embed_forward(&whole, tokens, all));
    return sum_now(t, pass, all, x);
}

/* Up to h2: what attention adds is in place, and normed; *early_p is for the MLP, and nothing
 * else. */
static weft_status_t attend(weft_tensor_t *t, const weft_pass_t *pass, int layer,
                            const weft_block_acts_t *acts, weft_pass_t *early_p)
{
    void *y = pass->scratch.y;
    void *rows = own_rows(t, pass, y);
    WEFT_TRY(weft__block_norm1(pass, layer, acts));
    WEFT_TRY(gather_beside(t, pass, acts->h1, acts->h1_all, early_p));
    WEFT_TRY(weft__block_attend(early_p, layer, acts, y));
    WEFT_TRY(sum_now(t, pass, y, rows));
    WEFT_TRY(weft__block_norm2(pass, layer, acts, rows));
    return gather_beside(t, pass, acts->h2, acts->h2_all, early_p);
}

weft_status_t weft__tensor_block(weft_tensor_t *t, const weft_pass_t *pass, int layer,
                                 const weft_block_acts_t *acts, void *out)
{
    void *y = pass->scratch.y;
    if (t->o.parts == 1) {
        return weft__block_forward(pass, layer, acts, out);
    }
    weft_pass_t early;
    WEFT_TRY(attend(t, pass, layer, acts, &early));
    WEFT_TRY(weft__block_mlp(&early, layer, acts, y));
    WEFT_TRY(sum_now(t, pass, y, own_rows(t, pass, y)));
    return weft__block_join(pass, layer, acts, own_rows(t, pass, y), out);
}

weft_status_t weft__tensor_block_again(weft_tensor_t *t, const weft_pass_t *pass, int layer,
                                       const weft_block_acts_t *acts, void *spare)
{
    if (t->o.parts > 1) {
        weft_pass_t early;
        WEFT_TRY(attend(t, pass, layer, acts, &early));
        return weft__block_mlp(&early, layer, acts, spare); /* its output is not needed again */
    }
    void *y = pass->fuse_residual ? acts->x2 : pass->scratch.y;
    WEFT_TRY(weft__block_norm1(pass, layer, acts));
    WEFT_TRY(weft__block_attend(pass, layer, acts, y));
    WEFT_TRY(weft__block_norm2(pass, layer, acts, y));
    return weft__block_mlp(pass, layer, acts, spare);
}

weft_status_t weft__tensor_head(weft_tensor_t *t, const weft_pass_t *pass,
                                const weft_head_acts_t *acts, const void *x, const int32_t *targets)
{
    if (t->o.parts == 1) {
        WEFT_TRY(weft__head_norm(pass, acts));
        return weft__head_loss(pass, acts, targets);
    }
    WEFT_TRY(gather_rows(t, pass, x, acts->x));
    WEFT_TRY(weft__head_norm(pass, acts));
    WEFT_TRY(weft__vocabulary_loss(t->vocabulary, pass, acts, targets));
    if (!pass->training) {
        return WEFT_OK;
    }
    int stretch = weft__meter_begin(t->o.meter, WEFT_STRETCH_TENSOR);
    weft_status_t status = weft_allreduce(acts->dh, acts->dh, all_count(pass), pass->model->type,
                                          WEFT_SUM, t->o.comm, pass->stream);
    weft__meter_end(t->o.meter, stretch);
    return status;
}

/* ---- backward ----------------------------------------------------------------------------- */

weft_status_t weft__tensor_head_backward(weft_tensor_t *t, const weft_pass_t *pass,
                                         const weft_head_acts_t *acts)
{
    if (!t->o.sequence) {
        return weft__head_backward(pass, acts);
    }
    weft_pass_t whole = on_all_rows(pass, pass->scratch.y);
    WEFT_TRY(weft__head_backward(&whole, acts));
    return weft_memcpy(pass->scratch.dx, own_rows(t, pass, whole.scratch.dx),
                       part_count(pass) * weft_dtype_size(pass->model->type), pass->stream);
}

/* Sum scratch.dh_all into scratch.dh while `weights` computes. */
static weft_status_t sum_beside(const weft_tensor_t *t, const weft_pass_t *pass, int layer,
                                const weft_block_acts_t *acts, const void *dy,
                                weft_status_t (*weights)(const weft_pass_t *, int,
                                                         const weft_block_acts_t *, const void *))
{
    void *all = pass->scratch.dh_all, *rows = pass->scratch.dh;
    size_t bytes = all_count(pass) * weft_dtype_size(pass->model->type);
    if (bytes < t->o.overlap_bytes) {
        WEFT_TRY(weights(pass, layer, acts, dy));
        return sum_now(t, pass, all, rows);
    }
    WEFT_TRY(weft_event_record(t->filled, pass->stream));
    WEFT_TRY(weft_stream_wait(t->comm_stream, t->filled));
    WEFT_TRY(sum_rows(t, pass, all, rows, t->comm_stream));
    WEFT_TRY(weft_event_record(t->summed, t->comm_stream));
    WEFT_TRY(weights(pass, layer, acts, dy));
    int stretch = weft__meter_begin(t->o.meter, WEFT_STRETCH_TENSOR);
    weft_status_t status = weft_stream_wait(pass->stream, t->summed);
    weft__meter_end(t->o.meter, stretch);
    return status;
}

/* The gradient of what a branch added, of all rows; *early_p as in gather_beside. */
static weft_status_t branch_gradient(weft_tensor_t *t, const weft_pass_t *pass, int layer,
                                     weft_branch_t branch, const void **dy_p, weft_pass_t *early_p)
{
    WEFT_TRY(weft__branch_gradient(pass, layer, branch, dy_p));
    WEFT_TRY(gather_beside(t, pass, *dy_p, pass->scratch.y, early_p));
    *dy_p = t->o.sequence ? pass->scratch.y : *dy_p;
    return WEFT_OK;
}

weft_status_t weft__tensor_block_backward(weft_tensor_t *t, const weft_pass_t *pass, int layer,
                                          const weft_block_acts_t *acts)
{
    const void *dy;
    weft_pass_t early;
    if (t->o.parts == 1) {
        return weft__block_backward(pass, layer, acts);
    }
    WEFT_TRY(branch_gradient(t, pass, layer, WEFT_BRANCH_MLP, &dy, &early));
    WEFT_TRY(weft__block_mlp_input(&early, layer, acts, dy));
    WEFT_TRY(sum_beside(t, pass, layer, acts, dy, weft__block_mlp_weights));
    WEFT_TRY(weft__block_norm2_backward(pass, layer, acts));
    WEFT_TRY(branch_gradient(t, pass, layer, WEFT_BRANCH_ATTEND, &dy, &early));
    WEFT_TRY(weft__block_attend_input(&early, layer, acts, dy));
    WEFT_TRY(sum_beside(t, pass, layer, acts, dy, weft__block_attend_weights));
    return weft__block_norm1_backward(pass, layer, acts);
}

weft_status_t weft__tensor_embed_backward(weft_tensor_t *t, const weft_pass_t *pass,
                                          const int32_t *tokens)
{
    if (!t->o.sequence) {
        return weft__embed_backward(pass, tokens);
    }
    weft_pass_t whole = on_all_rows(pass, pass->scratch.y);
    WEFT_TRY(gather_rows(t, pass, pass->scratch.dx, whole.scratch.dx));
    return weft__embed_backward(&whole, tokens);
}
