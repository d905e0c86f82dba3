/* What a rank of a run needs: computed, not measured, so that it is known before any rank starts. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/try.h"
#include "device/sysmem.h"
#include "parallel/dp.h"
#include "train/planned.h"
#include "train/setup.h"

weft_status_t weft__setup_sizes(const weft_setup_t *setup, weft_setup_sizes_t *sizes_p)
{
    const weft_train_config_t *config = setup->config;
    const weft_compute_t *compute;
    weft_model_t *model;
    weft_slice_t slice = weft__setup_slice(setup);
    weft_setup_sizes_t sizes = {.params = weft__config_params(&setup->model)};
    weft_dp_options_t options = {
        .bucket_bytes = config->bucket,
        .overlap = config->overlap,
        .compress = (weft_compress_t)weft__compress_named(config->compress)};
    WEFT_TRY(weft__compute(&compute));
    WEFT_TRY(weft__model_create(&setup->model, &slice, setup->type, WEFT_F32, &model));
    weft_shape_t shape = WEFT_SHAPE(config->micro_batch, config->length);
    weft_status_t status = weft__dp_bytes(model, &options, config->dp, &sizes.gradients);
    size_t elements = (size_t)model->element_count;
    sizes.weights = elements * weft_dtype_size(setup->type);
    sizes.optimizer = elements * sizeof(float) * (setup->type == WEFT_F32 ? 2 : 3);
    sizes.activations = weft__acts_bytes(model, &shape);
    sizes.scratch = weft__scratch_bytes(model, compute, &shape);
    sizes.total = sizes.weights + sizes.gradients + sizes.optimizer + sizes.activations +
                  sizes.scratch;
    weft__model_destroy(model);
    *sizes_p = sizes;
    return status;
}

static void print_bytes(FILE *out, const char *what, size_t bytes)
{
    char text[WEFT_BYTES_TEXT];
    fprintf(out, "  %-14s %12s\n", what, weft__bytes_text(bytes, text));
}

/* "34720", "124.4 M" */
static const char *print_count(char *out, size_t room, double count)
{
    snprintf(out, room, count < 1e5 ? "%.0f" : "%.1f M", count < 1e5 ? count : count / 1e6);
    return out;
}

weft_status_t weft__setup_print(const weft_setup_t *setup, FILE *out)
{
    char count[32];
    const weft_train_config_t *config = setup->config;
    const weft_model_config_t *m = &setup->model;
    weft_setup_sizes_t sizes;
    WEFT_TRY(weft__setup_sizes(setup, &sizes));
    fprintf(out, "model     %s: %d layers of %d, %d heads, vocabulary %d: %s parameters\n",
            m->family == WEFT_GPT2 ? "gpt2" : "llama", m->layers, m->width, m->heads, m->vocab,
            print_count(count, sizeof(count), (double)sizes.params));
    fprintf(out, "batch     %d sequences of %d tokens = dp %d x %d micro-batch%s of %d\n",
            config->batch, config->length, config->dp, config->accumulate,
            config->accumulate == 1 ? "" : "es", config->micro_batch);
    fprintf(out, "ranks     %d on %s, in %s\n", config->ranks,
            strcmp(setup->device, "cuda") == 0 ? "GPUs" : "virtual GPUs", config->precision);
    double flops = weft__config_flops(m, config->length) * config->batch * config->length;
    fprintf(out, flops < 1e12 ? "compute   %.3g GFLOP a step\n" : "compute   %.1f TFLOP a step\n",
            flops < 1e12 ? flops / 1e9 : flops / 1e12);
    if (weft__planned(config)) {
        return weft__planned_print(setup, out);
    }
    fprintf(out, "memory of a rank's device:\n");
    print_bytes(out, "parameters", sizes.weights);
    print_bytes(out, "gradients", sizes.gradients);
    print_bytes(out, "optimizer", sizes.optimizer);
    print_bytes(out, "activations", sizes.activations);
    print_bytes(out, "scratch", sizes.scratch);
    print_bytes(out, "together", sizes.total);
    return WEFT_OK;
}
