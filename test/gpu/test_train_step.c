/* ctest: timeout=300 serial */
/* Training steps of whole models, on the GPU against the CPU: losses, every gradient, and
 * parameters after three steps of AdamW with clipping. GPT-2 and LLaMA; f32 exactly enough, bf16
 * and f16 as their digits allow. f16 is trained as weft train does: gradients in f32, of a loss
 * that is scaled. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <weft/weft.h>

#include "base/half.h"
#include "base/rng.h"
#include "gpu/gpu.h"
#include "kernel/compute.h"
#include "model/model.h"

enum { STEPS = 3 };

#define LOSS_SCALE 1024.0f /* of f16 */

static void check(weft_status_t status, const char *what)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "%s: %s\n", what, weft_last_error());
        exit(1);
    }
}

/* One of the two: its table, and the model's memory. All parameters are one array of f32; copies of
 * 16 bits are made of it. */
typedef struct side {
    const weft_compute_t *compute;
    bool device;
    const weft_model_t *model;
    weft_shape_t shape;
    weft_acts_t acts;
    weft_pass_t pass;
    void **params, **grads;
    void *flat, *flat_grads, *memory[10];
    float *master, *m, *v, *norm;
    double *partial;
    int memories;
} side_t;

static void *get(side_t *side, size_t bytes)
{
    void *memory = NULL;
    if (side->device) {
        check(weft_malloc(&memory, bytes + 256), "memory");
        check(weft_memset(memory, 0, bytes, NULL), "memory");
    } else {
        memory = aligned_alloc(256, (bytes + 511) / 256 * 256);
        memset(memory, 0, bytes);
    }
    side->memory[side->memories++] = memory;
    return memory;
}

static void copy(const side_t *side, void *to, const void *from, size_t bytes)
{
    if (side->device) {
        check(weft_stream_synchronize(side->pass.stream), "stream");
        check(weft_memcpy(to, from, bytes, NULL), "copy");
    } else {
        memcpy(to, from, bytes);
    }
}

static float loss_scale(const weft_model_t *model)
{
    return model->type == WEFT_F16 ? LOSS_SCALE : 1.0f;
}

/* Parameters of 16 bits are where f32 ones would be: the offsets are the same, in elements. */
static void open_side(side_t *side, const weft_model_t *model, const weft_shape_t *shape,
                      const float *values)
{
    size_t element = weft_dtype_size(model->type), count = (size_t)model->element_count;
    size_t grad_element = weft_dtype_size(model->grad_type);
    side->model = model;
    side->shape = *shape;
    if (side->device) {
        check(weft_stream_create(&side->pass.stream), "stream");
    }
    weft_stream_h stream = side->pass.stream;
    side->flat = get(side, count * element);
    side->flat_grads = get(side, count * grad_element);
    side->master = get(side, count * 4);
    side->m = get(side, count * 4);
    side->v = get(side, count * 4);
    side->norm = get(side, 8);
    side->partial = get(side, (count / WEFT_SUMSQ_CHUNK + 1) * 8);
    void *acts = get(side, weft__acts_bytes(model, shape));
    void *scratch = get(side, weft__scratch_bytes(model, side->compute, shape));
    side->params = calloc((size_t)model->param_count, sizeof(void *));
    side->grads = calloc((size_t)model->param_count, sizeof(void *));
    for (int64_t i = 0, at = 0; i < model->param_count; at += model->params[i++].count) {
        side->params[i] = (char *)side->flat + (size_t)at * element;
        side->grads[i] = (char *)side->flat_grads + (size_t)at * grad_element;
    }
    check(weft__acts_carve(model, shape, acts, &side->acts), "activations");
    side->pass = weft__pass_make(model, side->compute, shape);
    side->pass.stream = stream;
    side->pass.params = side->params;
    side->pass.grads = side->grads;
    side->pass.seed = 5;
    side->pass.loss_scale *= loss_scale(model);
    weft__scratch_carve(model, side->compute, shape, scratch, &side->pass.scratch);
    copy(side, side->master, values, count * 4);
    weft_cast_t cast = {WEFT_F32, model->type, (int64_t)count, side->master, side->flat};
    check(side->compute->cast(&cast, stream), "cast");
}

static void close_side(side_t *side)
{
    for (int i = 0; i < side->memories; i++) {
        if (side->device) {
            check(weft_free(side->memory[i]), "free");
        } else {
            free(side->memory[i]);
        }
    }
    if (side->device) {
        check(weft_stream_destroy(side->pass.stream), "stream");
    }
    free(side->params);
    free(side->grads);
    weft__acts_cleanup(&side->acts);
}

static double run(side_t *side, const int32_t *tokens, int64_t step)
{
    int64_t rows = side->shape.batch * side->shape.seq, count = side->model->element_count;
    float *losses = malloc((size_t)rows * sizeof(*losses));
    double sum = 0;
    copy(side, side->acts.tokens, tokens, (size_t)rows * 4);
    copy(side, side->acts.targets, tokens + 1, (size_t)rows * 4);
    side->pass.step = (uint64_t)step;
    if (side->device) {
        check(weft_memset(side->flat_grads, 0,
                          (size_t)count * weft_dtype_size(side->model->grad_type), NULL),
              "memset");
    } else {
        memset(side->flat_grads, 0, (size_t)count * weft_dtype_size(side->model->grad_type));
    }
    check(weft__model_forward(&side->pass, &side->acts), "forward");
    check(weft__model_backward(&side->pass, &side->acts), "backward");
    copy(side, losses, side->acts.head.losses, (size_t)rows * 4);
    for (int64_t i = 0; i < rows; i++) {
        sum += (double)losses[i];
    }
    free(losses);
    return sum / (double)rows;
}

static void update(side_t *side, int64_t step)
{
    int64_t count = side->model->element_count;
    weft_stream_h stream = side->pass.stream;
    weft_sumsq_t sumsq = {side->model->grad_type, count, side->flat_grads, side->partial};
    weft_clip_t clip = {side->partial, (count + WEFT_SUMSQ_CHUNK - 1) / WEFT_SUMSQ_CHUNK,
                        1.0f / loss_scale(side->model), 0.5f, side->norm};
    weft_adamw_t adamw = {.type = side->model->type,
                          .grad_type = side->model->grad_type,
                          .count = count,
                          .param = side->flat,
                          .master = side->master,
                          .grad = side->flat_grads,
                          .m = side->m,
                          .v = side->v,
                          .grad_scale = side->norm + 1,
                          .lr = 1e-3f,
                          .beta1 = 0.9f,
                          .beta2 = 0.95f,
                          .eps = 1e-4f,
                          .decay = 0.1f,
                          .step = step};
    check(side->compute->sumsq(&sumsq, stream), "sumsq");
    check(side->compute->clip(&clip, stream), "clip");
    check(side->compute->adamw(&adamw, stream), "adamw");
}

static double value(const void *data, int64_t i, weft_dtype_t type)
{
    return type == WEFT_F32 ? (double)((const float *)data)[i]
                            : (double)weft__bf16_to_f32(((const uint16_t *)data)[i]);
}

/* Root of the mean square of the difference over that of the first, of one tensor. */
static double apart(const void *a, const void *b, int64_t count, weft_dtype_t type)
{
    double difference = 0, squares = 1e-30;
    for (int64_t i = 0; i < count; i++) {
        double x = value(a, i, type), y = value(b, i, type);
        difference += (x - y) * (x - y);
        squares += x * x;
    }
    return sqrt(difference / squares);
}

/* Of all parameters' gradients, the one that is furthest apart. */
static double worst_gradient(const side_t *cpu, const side_t *gpu, const char **name_p)
{
    double worst = 0;
    size_t element = weft_dtype_size(cpu->model->grad_type);
    for (int i = 0; i < cpu->model->param_count; i++) {
        const weft_param_t *param = &cpu->model->params[i];
        void *found = malloc((size_t)param->count * element);
        copy(gpu, found, gpu->grads[i], (size_t)param->count * element);
        double difference = apart(cpu->grads[i], found, param->count, cpu->model->grad_type);
        if (!(difference <= worst)) {
            worst = difference;
            *name_p = param->name;
        }
        free(found);
    }
    return worst;
}

static bool compare(const char *preset, weft_dtype_t type, float dropout, uint64_t seed)
{
    weft_model_config_t config;
    weft_model_t *model;
    const char *name = "";
    check(weft__config_preset(preset, &config), "preset");
    config.embed_dropout = config.attention_dropout = config.residual_dropout = dropout;
    config.width = 192, config.heads = 3, config.head_dim = 64, config.vocab = 301;
    config.kv_heads = config.family == WEFT_LLAMA ? 1 : 3;
    config.ffn = 4 * config.width, config.context = 96, config.layers = 2, config.init_std = 0.1f;
    weft_slice_t slice = WEFT_SLICE_WHOLE(&config);
    weft_shape_t shape = WEFT_SHAPE(3, 91);
    slice.vocab_multiple = 8;
    weft_dtype_t grad_type = type == WEFT_F16 ? WEFT_F32 : type;
    check(weft__model_create(&config, &slice, type, grad_type, &model), "model");
    float *values = calloc((size_t)model->element_count, sizeof(*values)), *at = values;
    float *found = calloc((size_t)model->element_count, sizeof(*found));
    for (int i = 0; i < model->param_count; at += model->params[i++].count) {
        check(weft__param_init(&model->params[i], 0, seed, at), "initial values");
    }
    int32_t tokens[3 * 91 + 1];
    side_t cpu = {.compute = &weft__compute_cpu}, gpu = {.device = true};
    check(weft__compute(&gpu.compute), "compute");
    open_side(&cpu, model, &shape, values);
    open_side(&gpu, model, &shape, values);
    double limit = type == WEFT_F32 ? 1e-4 : type == WEFT_BF16 ? 4e-2 : 4e-2 / 8;
    double loss[2] = {0}, gradient = 0;
    for (int step = 1; step <= STEPS; step++) {
        for (int i = 0; i <= 3 * 91; i++) {
            tokens[i] = (int32_t)(weft__rng_at(seed + (uint64_t)step, (uint64_t)i) % 301);
        }
        loss[0] = run(&cpu, tokens, step);
        loss[1] = run(&gpu, tokens, step);
        double worst = worst_gradient(&cpu, &gpu, &name);
        gradient = !(worst <= gradient) ? worst : gradient;
        update(&cpu, step);
        update(&gpu, step);
    }
    copy(&gpu, found, gpu.master, (size_t)model->element_count * 4);
    double params = apart(cpu.master, found, model->element_count, WEFT_F32);
    double losses = fabs(loss[0] - loss[1]) / loss[0];
    bool good = losses <= limit && gradient <= limit && params <= limit;
    printf("%-12s %s, dropout %.1f: loss %.5f and %.5f (%.1e apart), gradients %.1e (%s), "
           "parameters %.1e: %s\n",
           preset, weft_dtype_name(type), (double)dropout, loss[0], loss[1], losses, gradient, name,
           params, good ? "good" : "TOO FAR APART");
    close_side(&cpu);
    close_side(&gpu);
    free(values);
    free(found);
    weft__model_destroy(model);
    return good;
}

int main(int argc, char **argv)
{
    uint64_t seed = (uint64_t)time(NULL);
    bool good = true;
    const char *asked = getenv("WEFT_TEST_SEED");
    seed = asked != NULL ? strtoull(asked, NULL, 10) : seed;
    gpu_start(argc, argv, false);
    printf("WEFT_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (int round = 0; round < 3; round++) {
        weft_dtype_t type = round == 0 ? WEFT_F32 : round == 1 ? WEFT_BF16 : WEFT_F16;
        good &= compare("tiny", type, 0.0f, seed);
        good &= compare("tiny", type, 0.1f, seed);
        good &= compare("llama-tiny", type, 0.0f, seed);
    }
    return good ? 0 : 1;
}
