#include "train/checkpoint_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

static const char config[] = "{\"model_type\": \"gpt2\"}\n";
static const char settings[] = "batch = 8\nprompt = a \"quoted\" one\n";

static weft_tensor_source_t source(const char *name, weft_dtype_t dtype, uint64_t rows,
                                   uint64_t columns, const void *data)
{
    weft_tensor_source_t made = {.data = data};
    made.form.name = name;
    made.form.dtype = dtype;
    made.form.dims = columns > 0 ? 2 : 1;
    made.form.shape[0] = rows;
    made.form.shape[1] = columns;
    return made;
}

void small_run_init(small_run_t *run, size_t count)
{
    memset(run, 0, sizeof(*run));
    run->count = count;
    run->weights = malloc(count * sizeof(float));
    run->moments = malloc(count * sizeof(float));
    run->model[0] = source("wte.weight", WEFT_F32, count / 4, 4, run->weights);
    run->model[1] = source("h.0.ln_1.weight", WEFT_BF16, 33, 0, run->halves);
    run->model[2] = source("none", WEFT_F32, 0, 0, run->weights);
    run->optimizer[0] = source("exp_avg.wte.weight", WEFT_F32, count / 4, 4, run->moments);
    run->optimizer[1] = source("exp_avg_sq.wte.weight", WEFT_F32, count / 4, 4, run->moments);
    run->optimizer[2] = source("exp_avg.h.0.ln_1.weight", WEFT_F32, 33, 0, run->moments);
    run->optimizer[3] = source("master.h.0.ln_1.weight", WEFT_F32, 33, 0, run->weights);
    run->residuals[0] = source("stage-0.dp-0", WEFT_F32, 64, 0, run->moments);
    run->residuals[1] = source("stage-0.dp-1", WEFT_F32, 64, 0, run->weights);
    run->checkpoint = (weft_checkpoint_t){.model = run->model,
                                          .model_count = 3,
                                          .optimizer = run->optimizer,
                                          .optimizer_count = 4,
                                          .residuals = run->residuals,
                                          .residual_count = 2,
                                          .config_json = config,
                                          .settings = settings};
    small_run_set(run, 0);
}

void small_run_set(small_run_t *run, uint64_t step)
{
    for (size_t i = 0; i < run->count; i++) {
        run->weights[i] = (float)(step * 1000 + i % 1000);
        run->moments[i] = (float)weft__rng_at(step, i / 64) * 1e-19f + (float)(i % 64);
    }
    for (int i = 0; i < 33; i++) {
        run->halves[i] = (uint16_t)weft__rng_at(step + 77, (uint64_t)i);
    }
    run->checkpoint.state = (weft_train_state_t){.step = step,
                                                 .samples = step * 8,
                                                 .tokens = step << 33,
                                                 .seed = UINT64_MAX - step,
                                                 .loss_scale = 65536,
                                                 .loss_scale_steps = 3,
                                                 .loss = 1.0 / (double)(step + 3)};
}

void small_run_free(small_run_t *run)
{
    free(run->weights);
    free(run->moments);
}

static bool same_tensors(const weft_tensor_source_t *sources, int count,
                         const weft_tensors_t *loaded)
{
    for (int i = 0; i < count; i++) {
        const weft_tensor_t *tensor = weft__tensors_find(loaded, sources[i].form.name);
        if (tensor == NULL || tensor->form.dtype != sources[i].form.dtype ||
            tensor->form.dims != sources[i].form.dims ||
            tensor->bytes != weft__tensor_bytes(&sources[i].form) ||
            memcmp(tensor->data, sources[i].data, tensor->bytes) != 0) {
            fprintf(stderr, "tensor %s differs\n", sources[i].form.name);
            return false;
        }
    }
    return weft__tensors_count(loaded) == count;
}

bool small_run_same(small_run_t *run, const weft_loaded_t *loaded)
{
    const weft_train_state_t *a = &run->checkpoint.state, *b = &loaded->state;
    small_run_set(run, loaded->state.step);
    if (a->samples != b->samples || a->tokens != b->tokens || a->seed != b->seed ||
        a->loss_scale != b->loss_scale || a->loss_scale_steps != b->loss_scale_steps ||
        a->loss != b->loss) {
        fprintf(stderr, "the state of step %llu differs\n", (unsigned long long)b->step);
        return false;
    }
    if (loaded->foreign || loaded->settings == NULL || strcmp(loaded->settings, settings) != 0) {
        fprintf(stderr, "the settings differ\n");
        return false;
    }
    return same_tensors(run->model, 3, loaded->model) &&
           same_tensors(run->optimizer, 4, loaded->optimizer) &&
           same_tensors(run->residuals, 2, loaded->residuals);
}
