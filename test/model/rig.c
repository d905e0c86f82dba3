/* A model with its memory, for tests. */
#include "model/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

void rig_check(weft_status_t status, const char *what)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", what, weft_last_error());
        exit(1);
    }
}

static void *memory(rig_t *rig, size_t bytes)
{
    void *block = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (block == NULL || rig->block_count == 8) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    memset(block, 0, (bytes + 255) / 256 * 256);
    rig->blocks[rig->block_count++] = block;
    return block;
}

/* One tensor behind the other, as in a trainer's buckets. */
static void **tensors(rig_t *rig, size_t element, int64_t gap)
{
    void **list = calloc((size_t)rig->model->param_count, sizeof(*list));
    int64_t total = rig->model->element_count + gap * rig->model->param_count;
    char *at = memory(rig, (size_t)total * element);
    for (int i = 0; list != NULL && i < rig->model->param_count; i++) {
        list[i] = at;
        at += (size_t)(rig->model->params[i].count + gap) * element;
    }
    return list;
}

void rig_open(rig_t *rig, const rig_options_t *options)
{
    weft_dtype_t type = options->type == WEFT_F64 ? WEFT_F32 : options->type;
    weft_dtype_t grad_type = options->grad_type == WEFT_F64 ? WEFT_F32 : options->grad_type;
    weft_slice_t slice = options->slice;
    int64_t gap = options->spread ? 5 : 0;
    if (slice.parts == 0) {
        slice = WEFT_SLICE_WHOLE(&options->config);
    }
    *rig = (rig_t){.shape = options->shape};
    rig_check(weft__compute(&rig->compute), "compute");
    rig_check(weft__model_create(&options->config, &slice, type, grad_type, &rig->model), "model");
    rig->params = tensors(rig, weft_dtype_size(type), gap);
    rig->grads = tensors(rig, weft_dtype_size(grad_type), gap);
    rig->m = (float **)tensors(rig, sizeof(float), gap);
    rig->v = (float **)tensors(rig, sizeof(float), gap);
    void *acts = memory(rig, weft__acts_bytes(rig->model, &rig->shape));
    void *scratch = memory(rig, weft__scratch_bytes(rig->model, rig->compute, &rig->shape));
    rig_check(weft__acts_carve(rig->model, &rig->shape, acts, &rig->acts), "activations");
    rig->pass = weft__pass_make(rig->model, rig->compute, &rig->shape);
    rig->pass.params = rig->params;
    rig->pass.grads = rig->grads;
    weft__scratch_carve(rig->model, rig->compute, &rig->shape, scratch, &rig->pass.scratch);
}

void rig_close(rig_t *rig)
{
    for (int i = 0; i < rig->block_count; i++) {
        free(rig->blocks[i]);
    }
    free(rig->params);
    free(rig->grads);
    free(rig->m);
    free(rig->v);
    weft__acts_cleanup(&rig->acts);
    weft__model_destroy(rig->model);
}

void rig_init(rig_t *rig, uint64_t seed, float scale)
{
    for (int i = 0; i < rig->model->param_count; i++) {
        weft_param_t param = rig->model->params[i];
        float *values = malloc((size_t)param.count * sizeof(*values));
        bool ones = param.std < 0;
        /* Norms and biases too: zeros and ones would hide mistakes. */
        param.std = scale != 1.0f && param.std <= 0 ? 0.02f : param.std;
        rig_check(weft__param_init(&param, rig->model->slice.part, seed, values), "initial values");
        for (int64_t j = 0; j < param.count && scale != 1.0f; j++) {
            values[j] = values[j] * scale + (ones ? 1.0f : 0.0f);
        }
        weft_cast_t cast = {WEFT_F32, rig->model->type, param.count, values, rig->params[i]};
        rig_check(rig->compute->cast(&cast, NULL), "cast");
        free(values);
    }
}

void rig_zero_grads(rig_t *rig)
{
    for (int i = 0; i < rig->model->param_count; i++) {
        memset(rig->grads[i], 0,
               (size_t)rig->model->params[i].count * weft_dtype_size(rig->model->grad_type));
    }
}

void rig_tokens(rig_t *rig, uint64_t seed)
{
    uint64_t vocab = (uint64_t)rig->model->config.vocab;
    int64_t rows = rig->shape.batch * rig->shape.seq;
    for (int64_t i = 0; i < rows; i++) {
        if (rig->acts.tokens != NULL) {
            rig->acts.tokens[i] = (int32_t)(weft__rng_at(seed, (uint64_t)i) % vocab);
        }
        if (rig->acts.targets != NULL) {
            rig->acts.targets[i] = (int32_t)(weft__rng_at(seed, (uint64_t)(i + 1)) % vocab);
        }
    }
}

double rig_run(rig_t *rig)
{
    int64_t rows = rig->shape.batch * rig->shape.seq;
    double sum = 0;
    rig_check(weft__model_forward(&rig->pass, &rig->acts), "forward");
    for (int64_t i = 0; i < rows; i++) {
        sum += (double)rig->acts.head.losses[i];
    }
    if (rig->pass.training) {
        rig_check(weft__model_backward(&rig->pass, &rig->acts), "backward");
    }
    return sum / (double)rows;
}

float rig_step(rig_t *rig, int64_t step, const weft_adamw_t *settings, float max_norm)
{
    int64_t chunks = 0;
    float norm[2];
    for (int i = 0; i < rig->model->param_count; i++) {
        chunks += (rig->model->params[i].count + WEFT_SUMSQ_CHUNK - 1) / WEFT_SUMSQ_CHUNK;
    }
    double *partial = malloc((size_t)chunks * sizeof(*partial)), *at = partial;
    for (int i = 0; i < rig->model->param_count; i++) {
        int64_t count = rig->model->params[i].count;
        weft_sumsq_t args = {rig->model->grad_type, count, rig->grads[i], at};
        rig_check(rig->compute->sumsq(&args, NULL), "sumsq");
        at += (count + WEFT_SUMSQ_CHUNK - 1) / WEFT_SUMSQ_CHUNK;
    }
    weft_clip_t clip = {partial, chunks, 1.0f, max_norm, norm};
    rig_check(rig->compute->clip(&clip, NULL), "clip");
    free(partial);
    for (int i = 0; i < rig->model->param_count; i++) {
        weft_adamw_t args = *settings;
        args.type = rig->model->type;
        args.grad_type = rig->model->grad_type;
        args.count = rig->model->params[i].count;
        args.param = rig->params[i];
        args.grad = rig->grads[i];
        args.m = rig->m[i];
        args.v = rig->v[i];
        args.grad_scale = &norm[1];
        args.decay = rig->model->params[i].decay ? settings->decay : 0.0f;
        args.step = step;
        rig_check(rig->compute->adamw(&args, NULL), "adamw");
    }
    return norm[0];
}

double rig_apart(const float *a, const float *b, int64_t count)
{
    double apart = 0, largest = 1e-30;
    for (int64_t i = 0; i < count; i++) {
        double difference = fabs((double)a[i] - (double)b[i]);
        apart = !(difference <= apart) ? difference : apart;
        largest = fabs((double)b[i]) > largest ? fabs((double)b[i]) : largest;
    }
    return apart / largest;
}
