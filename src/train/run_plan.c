/* The plan of a run: see run_plan.h. */
#include "train/run_plan.h"

#include <sched.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"

/* ---- the plan ----------------------------------------------------------------------------- */

weft_plan_t weft__run_plan(const weft_train_config_t *c)
{
    weft_plan_t plan = {.dp = c->dp,
                        .pp = c->pp,
                        .tp = c->tp,
                        .zero = c->zero,
                        .schedule = (weft_schedule_t)weft__schedule_named(c->schedule),
                        .virtual_stages = 1,
                        .micro_batches = c->accumulate,
                        .micro_batch = c->micro_batch,
                        .length = c->length,
                        .recompute = (weft_recompute_t)weft__recompute_named(c->recompute),
                        .offload = strcmp(c->offload, "optimizer") == 0,
                        .sequence_parallel = c->sequence_parallel,
                        .lean = c->lean};
    if (plan.schedule == WEFT_INTERLEAVED) {
        plan.virtual_stages = c->virtual_stages;
    }
    return plan;
}

bool weft__run_plan_plain(const weft_train_config_t *c)
{
    return c->pp == 1 && c->tp == 1 && c->zero == 0 && strcmp(c->recompute, "none") == 0 &&
           strcmp(c->offload, "none") == 0 && strcmp(c->grad_precision, "fp32") == 0;
}

static bool is_naive(const weft_train_config_t *c)
{
    return strcmp(c->dp_style, "naive") == 0;
}

/* On virtual GPUs the copies of a gather need a core of their own: with two in all, products that
 * are cut for it lose more than it hides (docs/performance.md). */
static size_t gather_bytes(const weft_setup_t *setup)
{
    cpu_set_t cpus;
    bool spare = setup->gathers_beside || strcmp(setup->device, "cuda") == 0 ||
                 (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 2);
    return spare ? WEFT_WORKER_OVERLAP_BYTES : SIZE_MAX;
}

weft_worker_options_t weft__run_plan_options(const weft_setup_t *setup)
{
    const weft_train_config_t *config = setup->config;
    return (weft_worker_options_t){
        .plan = weft__run_plan(config),
        .model = setup->model,
        .type = setup->type,
        .grad_type = strcmp(config->grad_precision, "bf16") == 0 ? WEFT_BF16 : WEFT_F32,
        .vocab_multiple = weft__setup_slice(setup).vocab_multiple,
        .bucket_bytes = config->bucket,
        .overlap = config->overlap,
        .overlap_bytes = WEFT_WORKER_OVERLAP_BYTES,
        .gather_bytes = gather_bytes(setup),
        .compress = (weft_compress_t)weft__compress_named(config->compress),
        .naive = is_naive(config),
        .seed = (uint64_t)config->seed};
}

weft_status_t weft__run_plan_check(const weft_setup_t *setup)
{
    const weft_train_config_t *config = setup->config;
    weft_plan_t plan = weft__run_plan(config);
    if (is_naive(config) && !weft__run_plan_plain(config)) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "--dp-style %s is for comparison with plain data parallelism only",
                          config->dp_style);
    }
    if (strcmp(config->grad_precision, "bf16") == 0 && strcmp(config->compress, "none") != 0) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "--compress %s is for gradients in fp32; with --grad-precision bf16 they "
                          "travel in 16 bits already: leave one of the two out",
                          config->compress);
    }
    return weft__plan_check(&plan, &setup->model, config->ranks, config->batch);
}

weft_status_t weft__run_plan_suggest(const weft_setup_t *setup, weft_status_t status)
{
    const weft_train_config_t *config = setup->config;
    int64_t ranks = config->ranks, batch = config->batch > 0 ? config->batch : 8 * ranks;
    weft_plan_t plan = weft__run_plan(config), nearest;
    char why[512], text[256];
    plan.dp = plan.dp > 0 ? plan.dp : 1;
    if (plan.micro_batches == 0) { /* left open: as weft__train_resolve has them */
        plan.micro_batches = plan.pp > 1 ? config->ranks : 1;
    }
    plan.length = plan.length > 0 ? plan.length : setup->model.context;
    if (!weft__plan_nearest(&plan, &setup->model, config->ranks, batch, &nearest)) {
        batch = (batch + ranks - 1) / ranks * ranks; /* then plain data parallelism does it */
        if (!weft__plan_nearest(&plan, &setup->model, config->ranks, batch, &nearest)) {
            return status;
        }
    }
    snprintf(why, sizeof(why), "%s", weft_last_error());
    return weft__fail(status, "%s; the nearest plan for %d ranks is %s --batch %lld", why,
                      config->ranks, weft__plan_text(&nearest, text, sizeof(text)),
                      (long long)batch);
}

weft_status_t weft__run_plan_print_memory(const weft_setup_t *setup, const weft_mesh_t *mesh,
                                          FILE *out, const double *measured)
{
    weft_worker_options_t options = weft__run_plan_options(setup);
    const weft_compute_t *compute;
    WEFT_TRY(weft__compute(&compute));
    weft_ledger_t row = {0};
    int first = 0; /* of the ranks of a row */
    weft__ledger_print_head(out, measured != NULL);
    for (int rank = 0; rank < mesh->ranks; rank++) {
        weft_ledger_t ledger;
        size_t peak = measured != NULL ? (size_t)measured[rank] : 0;
        WEFT_TRY(weft__worker_predict(&options, compute, weft__mesh_place(mesh, rank), &ledger));
        if (measured != NULL) {
            weft__ledger_print(out, rank, rank, &ledger, &peak);
            continue;
        }
        if (rank > 0 && memcmp(row.bytes, ledger.bytes, sizeof(row.bytes)) != 0) {
            weft__ledger_print(out, first, rank - 1, &row, NULL);
            first = rank;
        }
        row = ledger;
    }
    if (measured == NULL) {
        weft__ledger_print(out, first, mesh->ranks - 1, &row, NULL);
    }
    return WEFT_OK;
}

weft_status_t weft__run_plan_bytes(const weft_setup_t *setup, uint64_t *all_p, uint64_t *most_p,
                                   uint64_t *host_p)
{
    weft_worker_options_t options = weft__run_plan_options(setup);
    /* ranks of a stage */
    int row = (int)weft__axes_ranks(options.plan.size) / options.plan.pp;
    const weft_compute_t *compute;
    *all_p = *most_p = *host_p = 0;
    WEFT_TRY(weft__compute(&compute));
    for (int stage = 0; stage < options.plan.pp; stage++) {
        weft_ledger_t ledger;
        WEFT_TRY(weft__worker_predict(&options, compute, stage * row, &ledger));
        uint64_t bytes = weft__ledger_total(&ledger);
        *all_p += bytes * (uint64_t)row;
        *most_p = bytes > *most_p ? bytes : *most_p;
        *host_p += ledger.bytes[WEFT_MEMORY_HOST] * (uint64_t)row;
    }
    return WEFT_OK;
}

weft_status_t weft__run_plan_residuals(const weft_setup_t *setup, uint64_t *bytes_p)
{
    weft_worker_options_t options = weft__run_plan_options(setup);
    return weft__worker_residual_bytes(&options, bytes_p);
}

/* "34720", "124.4 M" */
static const char *print_count(char *out, size_t room, double count)
{
    snprintf(out, room, count < 1e5 ? "%.0f" : "%.1f M", count < 1e5 ? count : count / 1e6);
    return out;
}

static void print_model(const weft_setup_t *setup, FILE *out)
{
    char count[32];
    const weft_train_config_t *config = setup->config;
    const weft_model_config_t *m = &setup->model;
    fprintf(out, "model     %s: %d layers of %d, %d heads, vocabulary %d: %s parameters\n",
            m->family == WEFT_GPT2 ? "gpt2" : "llama", m->layers, m->width, m->heads, m->vocab,
            print_count(count, sizeof(count), (double)weft__config_params(m)));
    fprintf(out, "batch     %d sequences of %d tokens = dp %d x %d micro-batch%s of %d\n",
            config->batch, config->length, config->dp, config->accumulate,
            config->accumulate == 1 ? "" : "es", config->micro_batch);
    fprintf(out, "ranks     %d on %s, in %s\n", config->ranks,
            strcmp(setup->device, "cuda") == 0 ? "GPUs" : "virtual GPUs", config->precision);
    double flops = weft__config_flops(m, config->length) * config->batch * config->length;
    fprintf(out, flops < 1e12 ? "compute   %.3g GFLOP a step\n" : "compute   %.1f TFLOP a step\n",
            flops < 1e12 ? flops / 1e9 : flops / 1e12);
}

weft_status_t weft__run_plan_print(const weft_setup_t *setup, FILE *out)
{
    weft_plan_t plan = weft__run_plan(setup->config);
    weft_mesh_t mesh;
    char picture[4096];
    WEFT_TRY(weft__mesh_arrange(&plan, 0, setup->config->ranks, NULL, &mesh));
    print_model(setup, out);
    if (mesh.ranks > 1) {
        fputs(weft__mesh_picture(&mesh, picture, sizeof(picture)), out);
    }
    weft_status_t status = weft__run_plan_print_memory(setup, &mesh, out, NULL);
    weft__mesh_destroy(&mesh, false);
    return status;
}
