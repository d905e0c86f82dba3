/* Training of tiny models under plans: see plans.h. */
#include "parallel/plans.h"

#include <math.h>
#include <stdlib.h>

#include "base/checksum.h"
#include "base/rng.h"
#include "model/rig.h"

enum { WIDTH = 32, VOCAB = 67, SEED = 11 };

weft_model_config_t plan_config(plan_model_t model)
{
    weft_model_config_t config;
    int layers = 4 << model / PLAN_DEEP;
    model = (plan_model_t)(model % PLAN_KINDS);
    CHECK_OK(weft__config_preset("tiny", &config));
    bool gpt2 = model == PLAN_GPT2 || model == PLAN_DROPOUT;
    config.family = gpt2 ? WEFT_GPT2 : WEFT_LLAMA;
    config.layers = layers;
    config.width = WIDTH;
    config.heads = gpt2 ? 8 : 16;
    config.kv_heads = 8;
    config.head_dim = 4;
    config.ffn = 64;
    config.vocab = VOCAB;
    config.context = PLAN_LENGTH + 1;
    config.norm_eps = 1e-5f;
    config.rope_theta = 10000.0f;
    config.tied = model != PLAN_LLAMA;
    config.init_std = 0.08f;
    config.embed_dropout = config.attention_dropout = config.residual_dropout = model ==
                                                                                        PLAN_DROPOUT
                                                                                    ? 0.1f
                                                                                    : 0.0f;
    return config;
}

void plan_tokens(const weft_model_config_t *config, int step, int64_t first, int64_t count,
                 int32_t *tokens, int32_t *targets)
{
    for (int64_t i = 0; i < count; i++) {
        for (int t = 0; t < PLAN_LENGTH; t++) {
            /* Words follow each other by a rule with some noise: there is something to learn. */
            uint64_t at = (uint64_t)((step * PLAN_BATCH + first + i) * (PLAN_LENGTH + 1) + t);
            uint64_t start = weft__rng_at(SEED, (uint64_t)(step * PLAN_BATCH + first + i));
            uint64_t word = start + (uint64_t)t * 5 + (weft__rng_at(SEED + 1, at) % 8 == 0);
            tokens[i * PLAN_LENGTH + t] = (int32_t)(word % (uint64_t)config->vocab);
            targets[i * PLAN_LENGTH + t] = (int32_t)((word + 5) % (uint64_t)config->vocab);
        }
    }
    if (first == 0 && count > 0) {
        targets[1] = -1; /* one that does not count */
    }
}

weft_hyper_t plan_hyper(int step)
{
    return (weft_hyper_t){.lr = 3e-3f,
                          .beta1 = 0.9f,
                          .beta2 = 0.95f,
                          .eps = 1e-4f, /* large: rounding of gradients near 0 stays small */
                          .decay = 0.1f,
                          .max_norm = 0.5f,
                          .step = step + 1};
}

void plan_reference(plan_model_t model, int steps, plan_numbers_t *numbers)
{
    rig_t rig;
    rig_options_t options = {.config = plan_config(model),
                             .shape = WEFT_SHAPE(PLAN_BATCH, PLAN_LENGTH)};
    *numbers = (plan_numbers_t){0};
    rig_open(&rig, &options);
    rig_init(&rig, SEED, 1.0f);
    rig.pass.seed = SEED;
    for (int step = 0; step < steps; step++) {
        weft_hyper_t hyper = plan_hyper(step);
        weft_adamw_t adamw = {.lr = hyper.lr,
                              .beta1 = hyper.beta1,
                              .beta2 = hyper.beta2,
                              .eps = hyper.eps,
                              .decay = hyper.decay};
        plan_tokens(&options.config, step, 0, PLAN_BATCH, rig.acts.tokens, rig.acts.targets);
        rig.pass.step = (uint64_t)step;
        rig_zero_grads(&rig);
        numbers->loss[step] = rig_run(&rig);
        numbers->norm[step] = (double)rig_step(&rig, hyper.step, &adamw, hyper.max_norm);
    }
    rig_close(&rig);
}

weft_worker_options_t plan_options(const plan_run_t *run)
{
    return (weft_worker_options_t){.plan = run->plan,
                                   .model = plan_config(run->model),
                                   .type = run->type == WEFT_F64 ? WEFT_F32 : run->type,
                                   .grad_type = run->grad_type == WEFT_F64 ? WEFT_F32
                                                                           : run->grad_type,
                                   .bucket_bytes = run->bucket_bytes,
                                   .overlap = !run->no_overlap,
                                   .overlap_bytes = 0, /* always: that is what is tested */
                                   .gather_bytes = 0,
                                   .compress = run->compress,
                                   .seed = SEED};
}

/* A checksum of everything, on rank 0. */
static uint64_t checksum_of(weft_worker_t *worker, int rank)
{
    const weft_model_t *whole = weft__worker_whole(worker);
    uint32_t crc = 0;
    for (int i = 0; i < whole->param_count; i++) {
        for (int what = WEFT_STATE_WEIGHTS; what <= WEFT_STATE_V; what++) {
            size_t bytes = (size_t)whole->params[i].count * sizeof(float);
            float *values = rank == 0 ? calloc(1, bytes) : NULL;
            CHECK_OK(weft__worker_gather(worker, i, (weft_state_kind_t)what, values));
            crc = rank == 0 ? weft__crc32c(crc, values, bytes) : 0;
            free(values);
        }
    }
    return crc;
}

/* The loss of the batch from everybody's part. */
static double sum_all(double mine, weft_comm_h comm)
{
    double sum = 0;
    CHECK_OK(weft_allreduce(&mine, &sum, 1, WEFT_F64, WEFT_SUM, comm, NULL));
    return sum / (PLAN_BATCH * PLAN_LENGTH);
}

void plan_train(const plan_run_t *run, weft_comm_h comm, plan_numbers_t *numbers)
{
    weft_worker_options_t options = plan_options(run);
    const weft_compute_t *compute;
    weft_worker_t *worker;
    int32_t tokens[2][2][PLAN_BATCH * PLAN_LENGTH];
    int rank;
    *numbers = (plan_numbers_t){0};
    CHECK_OK(weft__compute(&compute));
    CHECK_OK(weft_comm_rank(comm, &rank));
    if (run->streamed) {
        CHECK_OK(weft_stream_create(&options.stream));
    }
    CHECK_OK(weft__worker_create(&options, comm, compute, &worker));
    CHECK_OK(weft__worker_start(worker, SEED));
    int64_t count = PLAN_BATCH / run->plan.dp;
    int64_t first = weft__worker_mesh(worker)->index[WEFT_AXIS_DATA] * count;
    /* A step is settled when the next one has been queued. */
    for (int step = 0; step <= run->steps; step++) {
        weft_worker_result_t result;
        int32_t(*at)[PLAN_BATCH * PLAN_LENGTH] = tokens[step % 2];
        if (step < run->steps) {
            plan_tokens(&options.model, step, first, count, at[0], at[1]);
            weft_worker_input_t input = {.step = (uint64_t)step,
                                         .hyper = plan_hyper(step),
                                         .tokens = at[0],
                                         .targets = at[1]};
            CHECK_OK(weft__worker_queue(worker, &input));
        }
        if (step > 0) {
            CHECK_OK(weft__worker_settle(worker, &result));
            numbers->loss[step - 1] = sum_all(result.loss_sum, comm);
            numbers->norm[step - 1] = result.norm;
        }
    }
    numbers->state = checksum_of(worker, rank);
    weft__worker_destroy(worker);
    if (run->streamed) {
        CHECK_OK(weft_stream_destroy(options.stream));
    }
}

const char *plan_name(const plan_run_t *run, char *text, size_t room)
{
    static const char *const names[] = {"gpt2", "llama", "llama tied", "gpt2 with dropout"};
    char plan[256];
    snprintf(text, room, "%s of %d layers %s", names[run->model % PLAN_KINDS],
             plan_config(run->model).layers, weft__plan_text(&run->plan, plan, sizeof(plan)));
    return text;
}

void plan_compare(const plan_run_t *run, const plan_numbers_t *numbers,
                  const plan_numbers_t *reference)
{
    char name[320];
    for (int step = 0; step < run->steps; step++) {
        double loss = fabs(numbers->loss[step] / reference->loss[step] - 1);
        double norm = fabs(numbers->norm[step] / reference->norm[step] - 1);
        if (!(loss < 1e-4) || !(norm < 1e-3)) {
            FAIL("%s, step %d: loss %.8g and norm %.8g, but %.8g and %.8g by one rank",
                 plan_name(run, name, sizeof(name)), step, numbers->loss[step], numbers->norm[step],
                 reference->loss[step], reference->norm[step]);
        }
    }
}
