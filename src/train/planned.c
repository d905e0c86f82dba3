/* Runs whose plan is more than data parallel: see planned.h. */
#include "train/planned.h"

#include <math.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/try.h"
#include "parallel/schedule.h"
#include "train/model_load.h"

/* ---- the plan -------------------------------------------------------------------------------------- */

weft_plan_t weft__planned_plan(const weft_train_config_t *c)
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

bool weft__planned(const weft_train_config_t *c)
{
    return c->pp > 1 || c->tp > 1 || c->zero > 0 || strcmp(c->recompute, "none") != 0 ||
           strcmp(c->offload, "none") != 0 || strcmp(c->grad_precision, "fp32") != 0;
}

/* On virtual GPUs the copies of a gather need a core of their own: with two in all, products that are
 * cut for it lose more than it hides (docs/performance.md). */
static size_t gather_bytes(const weft_setup_t *setup)
{
    cpu_set_t cpus;
    bool spare = strcmp(setup->device, "cuda") == 0 ||
                 (sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) > 2);
    return spare ? WEFT_WORKER_OVERLAP_BYTES : SIZE_MAX;
}

static weft_worker_options_t options_of(const weft_setup_t *setup)
{
    const weft_train_config_t *config = setup->config;
    return (weft_worker_options_t){
        .plan = weft__planned_plan(config),
        .model = setup->model,
        .type = setup->type,
        .grad_type = strcmp(config->grad_precision, "bf16") == 0 ? WEFT_BF16 : WEFT_F32,
        .vocab_multiple = weft__setup_slice(setup).vocab_multiple,
        .bucket_bytes = config->bucket,
        .overlap = config->overlap,
        .overlap_bytes = WEFT_WORKER_OVERLAP_BYTES,
        .gather_bytes = gather_bytes(setup),
        .compress = (weft_compress_t)weft__compress_named(config->compress),
        .seed = (uint64_t)config->seed};
}

weft_status_t weft__planned_check(const weft_setup_t *setup)
{
    const weft_train_config_t *config = setup->config;
    weft_plan_t plan = weft__planned_plan(config);
    if (!weft__planned(config)) {
        return WEFT_OK;
    }
    if (strcmp(config->dp_style, "buckets") != 0) {
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

weft_status_t weft__planned_suggest(const weft_setup_t *setup, weft_status_t status)
{
    const weft_train_config_t *config = setup->config;
    int64_t ranks = config->ranks, batch = config->batch > 0 ? config->batch : 8 * ranks;
    weft_plan_t plan = weft__planned_plan(config), nearest;
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

static weft_status_t print_memory(const weft_setup_t *setup, const weft_mesh_t *mesh, FILE *out,
                                  const double *measured)
{
    weft_worker_options_t options = options_of(setup);
    const weft_compute_t *compute;
    WEFT_TRY(weft__compute(&compute));
    weft_bill_t row = {0};
    int first = 0; /* of the ranks of a row */
    weft__bill_print_head(out, measured != NULL);
    for (int rank = 0; rank < mesh->size; rank++) {
        weft_bill_t bill;
        size_t peak = measured != NULL ? (size_t)measured[rank] : 0;
        WEFT_TRY(weft__worker_predict(&options, compute, weft__mesh_place(mesh, rank), &bill));
        if (measured != NULL) {
            weft__bill_print(out, rank, rank, &bill, &peak);
            continue;
        }
        if (rank > 0 && memcmp(row.bytes, bill.bytes, sizeof(row.bytes)) != 0) {
            weft__bill_print(out, first, rank - 1, &row, NULL);
            first = rank;
        }
        row = bill;
    }
    if (measured == NULL) {
        weft__bill_print(out, first, mesh->size - 1, &row, NULL);
    }
    return WEFT_OK;
}

weft_status_t weft__planned_bytes(const weft_setup_t *setup, uint64_t *all_p, uint64_t *most_p,
                                  uint64_t *host_p)
{
    weft_worker_options_t options = options_of(setup);
    int row = options.plan.dp * options.plan.tp; /* ranks of a stage */
    const weft_compute_t *compute;
    *all_p = *most_p = *host_p = 0;
    WEFT_TRY(weft__compute(&compute));
    for (int stage = 0; stage < options.plan.pp; stage++) {
        weft_bill_t bill;
        WEFT_TRY(weft__worker_predict(&options, compute, stage * row, &bill));
        uint64_t bytes = weft__bill_total(&bill);
        *all_p += bytes * (uint64_t)row;
        *most_p = bytes > *most_p ? bytes : *most_p;
        *host_p += bill.bytes[WEFT_MEMORY_HOST] * (uint64_t)row;
    }
    return WEFT_OK;
}

weft_status_t weft__planned_residuals(const weft_setup_t *setup, uint64_t *bytes_p)
{
    weft_worker_options_t options = options_of(setup);
    return weft__worker_residual_bytes(&options, bytes_p);
}

weft_status_t weft__planned_print(const weft_setup_t *setup, FILE *out)
{
    weft_plan_t plan = weft__planned_plan(setup->config);
    weft_mesh_t mesh;
    char picture[4096];
    WEFT_TRY(weft__mesh_arrange(&plan, 0, setup->config->ranks, NULL, &mesh));
    fputs(weft__mesh_picture(&mesh, picture, sizeof(picture)), out);
    weft_status_t status = print_memory(setup, &mesh, out, NULL);
    weft__mesh_destroy(&mesh, false);
    return status;
}

weft_status_t weft__planned_print_memory(const weft_trainer_t *t, FILE *out, const double *measured)
{
    return print_memory(t->setup, weft__worker_mesh(t->worker), out, measured);
}

/* ---- opening --------------------------------------------------------------------------------------- */

weft_status_t weft__planned_open(weft_trainer_t *t)
{
    weft_worker_options_t options = options_of(t->setup);
    options.stream = t->stream;
    options.timeline = t->timeline;
    t->shape = WEFT_SHAPE(t->config->micro_batch, t->config->length);
    WEFT_TRY(weft__worker_create(&options, t->comm, t->compute, &t->worker));
    t->part = weft__worker_mesh(t->worker)->dp_index;
    t->parts = t->config->dp;
    return WEFT_OK;
}

/* Whole tensors of a checkpoint. */
typedef struct source {
    const weft_trainer_t *t;
    float *room; /* of the largest parameter */
} source_t;

static weft_status_t read_whole(void *arg, const weft_param_t *param, weft_state_kind_t what,
                                float *whole)
{
    static const char *const prefixes[] = {"master.", "exp_avg.", "exp_avg_sq."};
    const source_t *source = arg;
    const weft_loaded_t *loaded = &source->t->setup->loaded;
    const weft_model_t *model = weft__worker_whole(source->t->worker);
    const weft_param_t *all = &model->params[weft__model_find(model, param->name)];
    char name[WEFT_PARAM_NAME + 32];
    snprintf(name, sizeof(name), "%s%s", prefixes[what], param->name);
    bool there = source->t->setup->resumed && weft__tensors_find(loaded->optimizer, name) != NULL;
    if (what == WEFT_STATE_WEIGHTS && !there) {
        return weft__param_read(loaded->model, loaded->path, param->name, all, source->room, whole);
    }
    return weft__param_read(loaded->optimizer, loaded->path, name, all, source->room, whole);
}

weft_status_t weft__planned_start(weft_trainer_t *t)
{
    const weft_model_t *whole = weft__worker_whole(t->worker);
    source_t source = {.t = t};
    if (!t->setup->has_loaded) {
        return weft__worker_start(t->worker, (uint64_t)t->config->seed);
    }
    if (t->setup->resumed && t->setup->loaded.optimizer == NULL) {
        return weft__fail(WEFT_ERR_INVALID, "%s has no optimizer.safetensors to go on with",
                          t->setup->loaded.path);
    }
    source.room = malloc((size_t)weft__param_most(whole) * sizeof(float));
    if (source.room == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to read a checkpoint");
    }
    weft_status_t status = weft__worker_load(t->worker, read_whole, &source, t->setup->resumed);
    free(source.room);
    return status;
}

/* ---- steps ----------------------------------------------------------------------------------------- */

weft_status_t weft__planned_queue(weft_trainer_t *t, const int32_t *inputs, const int32_t *targets,
                                  weft_flight_t *flight)
{
    const weft_train_config_t *config = t->config;
    weft_worker_input_t input = {.step = flight->step,
                                 .hyper = {.lr = (float)flight->lr,
                                           .beta1 = (float)config->beta1,
                                           .beta2 = (float)config->beta2,
                                           .eps = (float)config->eps,
                                           .decay = (float)config->weight_decay,
                                           .max_norm = (float)config->clip,
                                           .loss_scale = (float)flight->loss_scale,
                                           .step = weft__trainer_updates(t, flight->step)},
                                 .tokens = inputs,
                                 .targets = targets};
    WEFT_TRY(weft__worker_queue(t->worker, &input));
    return weft__worker_settle(t->worker, &flight->result);
}

/* Whole batches, so that all ranks do the same; what is too much counts for nothing. */
weft_status_t weft__planned_validate(weft_trainer_t *t, uint64_t samples, double *sum_p)
{
    size_t mine = (size_t)weft__trainer_sequences(t), length = (size_t)t->config->length;
    size_t tokens = mine * length;
    int32_t *host;
    weft_status_t status = WEFT_OK;
    WEFT_TRY(weft_host_malloc((void **)&host, 2 * tokens * sizeof(int32_t)));
    for (uint64_t at = 0; at < samples && status == WEFT_OK; at += (uint64_t)t->config->batch) {
        double sum;
        uint64_t first = at + (uint64_t)t->part * mine;
        status = weft__step_samples(t, first, samples, (int64_t)mine, host, host + tokens);
        status = status == WEFT_OK ? weft__worker_evaluate(t->worker, host, host + tokens, &sum)
                                   : status;
        *sum_p += status == WEFT_OK ? sum : 0.0;
    }
    weft_host_free(host);
    return status;
}

/* What the bubble should be if stages take as long as these did: each as its average rank. */
static double uneven_bubble(const weft_trainer_t *t)
{
    weft_plan_t plan = weft__planned_plan(t->config);
    const weft_mesh_t *mesh = weft__worker_mesh(t->worker);
    int row = plan.dp * plan.tp;
    double *busy_s = calloc((size_t)plan.pp, sizeof(double));
    for (int place = 0; busy_s != NULL && place < mesh->size; place++) {
        const weft_vote_t *vote = &t->votes[mesh->rank_at[place]];
        busy_s[place / row] += (vote->run - vote->waited) / row;
    }
    double bubble = busy_s != NULL ? weft__schedule_uneven(&plan, busy_s) : NAN;
    free(busy_s);
    return bubble;
}

void weft__planned_times(const weft_trainer_t *t, weft_plan_times_t *times_p)
{
    double *run_s = calloc(2 * (size_t)t->size, sizeof(double)), *waited_s = run_s + t->size;
    weft_plan_times_t times = {.bubble = NAN, .uneven = NAN};
    for (int i = 0; i < t->size; i++) {
        times.tensor += t->votes[i].tensor / t->size;
        times.exchange += t->votes[i].exchange / t->size;
        times.update += t->votes[i].update / t->size;
        if (run_s != NULL) {
            run_s[i] = t->votes[i].run;
            waited_s[i] = t->votes[i].waited;
        }
    }
    if (run_s != NULL && t->config->pp > 1) {
        times.bubble = weft__schedule_measured(run_s, waited_s, t->size);
        times.uneven = uneven_bubble(t);
    }
    free(run_s);
    *times_p = times;
}
