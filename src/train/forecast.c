/* What a run is going to take: see forecast.h. The constants are upper bounds of what was measured
 * (docs/memory.md). */
#include "train/forecast.h"

#include <string.h>

#include "base/log.h"
#include "train/checkpoint_parts.h"
#include "train/param_read.h"
#include "train/run_folder.h"
#include "train/run_plan.h"

#define MIB ((uint64_t)1 << 20)
#define PROCESS_BYTES (16 * MIB) /* of a rank on a virtual GPU: code's data, stacks, operands */
#define CUDA_PROCESS_BYTES (256 * MIB) /* of one with a CUDA context, on the host */
#define CUDA_CONTEXT_BYTES (600 * MIB) /* of the context and of cuBLASLt, on the GPU */
#define AHEAD_MOST (64 * MIB)          /* pages that a virtual GPU's pool makes ahead of its use */
#define STAGING_MOST (64 * MIB)        /* host memory on its way to other ranks, in the same pool */

/* ---- checkpoints -------------------------------------------------------------------------- */

/* Tensors, their entries in the headers (name, type, shape, place), and the texts. */
static uint64_t checkpoint_bytes(const weft_setup_t *setup, const weft_model_t *whole)
{
    uint64_t params = (uint64_t)weft__config_params(&setup->model);
    uint64_t element = weft_dtype_size(setup->type);
    int copies = setup->type == WEFT_F32 ? 3 : 4; /* weights, two moments, f32 copies of weights */
    size_t tokenizer = 0;
    if (setup->tokenizer != NULL) {
        weft__tokenizer_json(setup->tokenizer, &tokenizer);
    }
    return params * (element + 4 * (uint64_t)(copies - 1)) +
           (uint64_t)whole->param_count * (uint64_t)copies * 192 + tokenizer + (MIB >> 4);
}

/* What ranks keep of compressed gradients (residuals.h), with its entries. */
static weft_status_t add_residuals(const weft_setup_t *setup, weft_forecast_t *out)
{
    const weft_train_config_t *config = setup->config;
    uint64_t bytes,
        rows = (uint64_t)config->ranks * (uint64_t)weft__run_plan(config).virtual_stages;
    WEFT_TRY(weft__run_plan_residuals(setup, &bytes));
    out->checkpoint += bytes > 0 ? bytes + rows * 192 : 0;
    return WEFT_OK;
}

static uint64_t saves_of(const weft_setup_t *setup)
{
    const weft_train_config_t *config = setup->config;
    uint64_t from = setup->resumed ? setup->loaded.state.step : 0, end = (uint64_t)config->steps;
    if (config->out[0] == '\0' || config->save_every < 0 || from >= end) {
        return 0;
    }
    uint64_t every = (uint64_t)config->save_every;
    return every == 0 ? 1 : end / every - from / every + (end % every != 0);
}

/* Those of this run that are there already. */
static uint64_t saved_before(const weft_setup_t *setup)
{
    const char *out = setup->config->out;
    uint64_t count = 0;
    int64_t number = INT64_MAX;
    while (setup->goes_on && (number = weft__checkpoint_newest(out, number)) >= 0) {
        bool wrote;
        count += weft__run_wrote(out, setup->loaded.run, (uint64_t)number, &wrote) == WEFT_OK &&
                 wrote;
    }
    return count;
}

/* An old one goes when a new one is there: one more than are kept. */
static uint64_t more_at_once(const weft_setup_t *setup, uint64_t saves)
{
    uint64_t before = saved_before(setup), all = saves + before;
    uint64_t most = (uint64_t)setup->config->keep + 1;
    all = setup->config->keep > 0 && all > most ? most : all;
    return all > before ? all - before : saves > 0;
}

/* ---- memory ------------------------------------------------------------------------------- */

static uint64_t at_most(uint64_t bytes, uint64_t most)
{
    return bytes < most ? bytes : most;
}

/* What the pool of a device holds more than it hands out, and what host memory goes through. */
static uint64_t ahead_of(uint64_t bytes)
{
    return at_most(bytes / 8, AHEAD_MOST) + at_most(bytes / 32, STAGING_MOST) + 2 * MIB;
}

/* Besides the device: the process, tokens and losses of steps under way, the tokenizer. */
static uint64_t process_bytes(const weft_setup_t *setup, bool gpus)
{
    const weft_train_config_t *config = setup->config;
    uint64_t tokens = (uint64_t)config->micro_batch * (uint64_t)config->accumulate *
                      (uint64_t)config->length;
    size_t tokenizer = 0;
    if (setup->tokenizer != NULL) {
        weft__tokenizer_json(setup->tokenizer, &tokenizer);
    }
    return (gpus ? CUDA_PROCESS_BYTES : PROCESS_BYTES) + tokens * 8 * sizeof(float) +
           (uint64_t)tokenizer * 4;
}

/* Does rank 0 have all weights (and else: has it all state)? What it has is not gathered. */
static bool has_all(const weft_train_config_t *config, bool state)
{
    return config->pp * config->tp == 1 && (config->dp == 1 || config->zero < (state ? 1 : 3));
}

/* What rank 0 has while it saves, or writes text, and others for it; or all have while they start:
 * whole tensors, a few each. Where it gathers, rank 0 has three more, and others only their part of
 * the largest. */
static uint64_t copy_bytes(const weft_setup_t *setup, const weft_model_t *whole,
                           const weft_forecast_t *forecast)
{
    const weft_train_config_t *config = setup->config;
    uint64_t largest = (uint64_t)weft__param_most(whole) * sizeof(float);
    uint64_t parts = (uint64_t)(config->dp < forecast->ranks ? config->dp : forecast->ranks);
    uint64_t start = (setup->has_loaded ? 3 : 1) * largest * (uint64_t)forecast->ranks;
    uint64_t gathered = has_all(config, true) ? largest : (2 + 2 * parts) * largest;
    uint64_t save = forecast->saves > 0 ? forecast->checkpoint + gathered : 0;
    uint64_t text = config->sample_every > 0 && !has_all(config, false)
                        ? 2 * (uint64_t)whole->element_count * sizeof(float)
                        : 0;
    return (start > save ? start : save) + text;
}

/* The disk's part, and what rank 0 has in memory for it. */
static weft_status_t add_copies(const weft_setup_t *setup, weft_forecast_t *out)
{
    weft_slice_t slice = weft__setup_slice(setup);
    weft_model_t *whole;
    WEFT_TRY(weft__model_create(&setup->model, &slice, setup->type, WEFT_F32, &whole));
    out->saves = saves_of(setup);
    out->at_once = more_at_once(setup, out->saves);
    out->checkpoint = out->saves > 0 ? checkpoint_bytes(setup, whole) : 0;
    weft_status_t status = out->saves > 0 ? add_residuals(setup, out) : WEFT_OK;
    out->copy = copy_bytes(setup, whole, out);
    weft__model_destroy(whole);
    return status;
}

weft_status_t weft__forecast_disk(const weft_setup_t *setup, weft_forecast_t *out)
{
    *out = (weft_forecast_t){.ranks = setup->config->ranks};
    return add_copies(setup, out);
}

weft_status_t weft__forecast(const weft_setup_t *setup, int ranks, weft_forecast_t *out)
{
    bool gpus = strcmp(setup->device, "cuda") == 0;
    uint64_t offloaded, all = (uint64_t)setup->config->ranks, here = (uint64_t)ranks;
    *out = (weft_forecast_t){.ranks = ranks};
    WEFT_TRY(weft__run_plan_bytes(setup, &out->device, &out->device_most, &offloaded));
    WEFT_TRY(add_copies(setup, out));
    out->device = out->device / all * here; /* other hosts have the rest */
    out->host = offloaded / all * here + here * process_bytes(setup, gpus);
    if (gpus) {
        out->device += here * CUDA_CONTEXT_BYTES;
        out->device_most += CUDA_CONTEXT_BYTES;
    } else {
        out->device += here * ahead_of(out->device / here);
        out->device_most += ahead_of(out->device_most);
        out->host += out->device / 128; /* the system's tables of pages, of ours and of others' */
    }
    out->total = out->host + out->copy + (gpus ? 0 : out->device);
    return WEFT_OK;
}
