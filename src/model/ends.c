/* The two ends of a model: embedding, and the last norm with the classifier. */
#include "model/parts.h"

/* ---- embedding ---------------------------------------------------------------------------- */

static weft_embed_t embed_args(const weft_pass_t *pass, const int32_t *tokens)
{
    const weft_model_t *model = pass->model;
    return (weft_embed_t){.type = model->type,
                          .grad_type = model->grad_type,
                          .batch = pass->shape.batch,
                          .seq = pass->shape.seq,
                          .width = model->config.width,
                          .position_first = pass->position_first,
                          .ragged = pass->ragged,
                          .vocab_first = model->vocab_first,
                          .vocab_count = model->vocab_count,
                          .tokens = tokens,
                          .table = weft__param_of(pass, WEFT_KEY(-1, WEFT_TOKENS)),
                          .positions = weft__param_of(pass, WEFT_KEY(-1, WEFT_POSITIONS)),
                          .work = pass->scratch.work};
}

/* In place, on the whole stream at the model's input. */
static weft_status_t embed_dropout(const weft_pass_t *pass, void *x)
{
    weft_dropout_t args = {
        .type = pass->model->type,
        .rows = weft__rows(pass),
        .width = pass->model->config.width,
        .in = x,
        .out = x,
        .mask = weft__stream_mask(pass, -1, "embed", pass->model->config.embed_dropout)};
    return args.mask.rate == 0.0f ? WEFT_OK : pass->compute->dropout(&args, pass->stream);
}

weft_status_t weft__embed_forward(const weft_pass_t *pass, const int32_t *tokens, void *x)
{
    weft_embed_t args = embed_args(pass, tokens);
    args.out = x;
    if (!pass->row_bias) {
        args.positions = NULL; /* the sum over parts has them once */
    }
    WEFT_TRY(pass->compute->embed_forward(&args, pass->stream));
    return embed_dropout(pass, x);
}

weft_status_t weft__embed_backward(const weft_pass_t *pass, const int32_t *tokens)
{
    weft_embed_t args = embed_args(pass, tokens);
    WEFT_TRY(embed_dropout(pass, pass->scratch.dx));
    args.dout = pass->scratch.dx;
    args.dtable = weft__grad_of(pass, WEFT_KEY(-1, WEFT_TOKENS));
    args.dpositions = weft__grad_of(pass, WEFT_KEY(-1, WEFT_POSITIONS));
    WEFT_TRY(pass->compute->embed_backward(&args, pass->stream));
    weft__tell_ready(pass, -1, WEFT_TOKENS, WEFT_POSITIONS);
    return WEFT_OK;
}

/* ---- head --------------------------------------------------------------------------------- */

static weft_role_t head_role(const weft_pass_t *pass)
{
    return pass->model->config.tied ? WEFT_TOKENS : WEFT_HEAD_WEIGHT;
}

weft_status_t weft__head_norm(const weft_pass_t *pass, const weft_head_acts_t *acts)
{
    weft_norm_t args = weft__norm_args(pass, weft__rows(pass), -1, WEFT_FINAL_WEIGHT,
                                       WEFT_FINAL_BIAS);
    args.x = acts->x;
    args.out = acts->h;
    args.mean = acts->mean;
    args.rstd = acts->rstd;
    return pass->compute->norm_forward(&args, pass->stream);
}

weft_status_t weft__head_logits(const weft_pass_t *pass, const weft_head_acts_t *acts,
                                int64_t first, int64_t count)
{
    int64_t width = pass->model->config.width;
    weft_matmul_t args = {.type = pass->model->type,
                          .c_type = pass->model->type,
                          .m = count,
                          .n = pass->model->vocab_rows,
                          .k = width,
                          .a = weft__offset(pass, acts->h, first * width),
                          .b = weft__param_of(pass, WEFT_KEY(-1, head_role(pass))),
                          .trans_b = true,
                          .c = pass->scratch.logits};
    return pass->compute->matmul(&args, pass->stream);
}

weft_status_t weft__head_dlogits(const weft_pass_t *pass, const weft_head_acts_t *acts,
                                 int64_t first, int64_t count)
{
    const weft_model_t *model = pass->model;
    int64_t width = model->config.width;
    weft_matmul_t input = {.type = model->type,
                           .c_type = model->type,
                           .m = count,
                           .n = width,
                           .k = model->vocab_rows,
                           .a = pass->scratch.logits,
                           .b = weft__param_of(pass, WEFT_KEY(-1, head_role(pass))),
                           .c = weft__offset(pass, acts->dh, first * width)};
    weft_matmul_t weights = {.type = model->type,
                             .c_type = model->grad_type,
                             .m = model->vocab_rows,
                             .n = width,
                             .k = count,
                             .a = pass->scratch.logits,
                             .trans_a = true,
                             .b = weft__offset(pass, acts->h, first * width),
                             .c = weft__grad_of(pass, WEFT_KEY(-1, head_role(pass))),
                             .accumulate = !pass->fresh || first > 0};
    WEFT_TRY(pass->compute->matmul(&input, pass->stream));
    return pass->compute->matmul(&weights, pass->stream);
}

weft_status_t weft__head_loss(const weft_pass_t *pass, const weft_head_acts_t *acts,
                              const int32_t *targets)
{
    const weft_model_t *model = pass->model;
    int64_t rows = weft__rows(pass), chunk = weft__head_rows(model, pass->compute, &pass->shape);
    for (int64_t first = 0; first < rows; first += chunk) {
        int64_t count = rows - first < chunk ? rows - first : chunk;
        weft_classify_t classify = {.type = model->type,
                                    .rows = count,
                                    .vocab = model->vocab_count,
                                    .ld = model->vocab_rows,
                                    .logits = pass->scratch.logits,
                                    .targets = targets + first,
                                    .losses = acts->losses + first,
                                    .scale = pass->training ? pass->loss_scale : 0.0f};
        WEFT_TRY(weft__head_logits(pass, acts, first, count));
        WEFT_TRY(pass->compute->classify(&classify, pass->stream));
        if (pass->training) {
            WEFT_TRY(weft__head_dlogits(pass, acts, first, count));
        }
    }
    return WEFT_OK;
}

weft_status_t weft__head_backward(const weft_pass_t *pass, const weft_head_acts_t *acts)
{
    weft_norm_t args = weft__norm_args(pass, weft__rows(pass), -1, WEFT_FINAL_WEIGHT,
                                       WEFT_FINAL_BIAS);
    args.x = acts->x;
    args.mean = acts->mean;
    args.rstd = acts->rstd;
    args.dout = acts->dh;
    args.dx = pass->scratch.dx;
    WEFT_TRY(pass->compute->norm_backward(&args, pass->stream));
    weft__tell_ready(pass, -1, WEFT_FINAL_WEIGHT, WEFT_HEAD_WEIGHT);
    if (pass->model->config.tied && !pass->model->slice.embed) {
        weft__tell_ready(pass, -1, WEFT_TOKENS, WEFT_TOKENS); /* its other use is elsewhere */
    }
    return WEFT_OK;
}
