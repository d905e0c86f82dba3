/* All stages of ZeRO give the same bits: losses, norms, weights and moments. */
/* ctest: timeout=120 labels=plans */
#include <math.h>

#include "parallel/plans.h"

typedef struct base {
    int dp, pp, tp;
    int micro_batches;
    bool sequence, lean, offload, no_overlap;
    weft_schedule_t schedule;
    weft_recompute_t recompute;
    plan_model_t model;
    weft_dtype_t type;
    weft_compress_t compress;
} base_t;

static const base_t bases[] = {
    {.dp = 2, .pp = 1, .tp = 1, .micro_batches = 1, .schedule = WEFT_1F1B, .type = WEFT_F32},
    {.dp = 4, .pp = 1, .tp = 1, .micro_batches = 2, .schedule = WEFT_1F1B, .type = WEFT_F32},
    {.dp = 4,
     .pp = 1,
     .tp = 1,
     .micro_batches = 1,
     .schedule = WEFT_1F1B,
     .type = WEFT_BF16,
     .compress = WEFT_COMPRESS_FP16},
    {.dp = 8,
     .pp = 1,
     .tp = 1,
     .micro_batches = 2,
     .schedule = WEFT_1F1B,
     .model = PLAN_DROPOUT,
     .type = WEFT_F32,
     .no_overlap = true},
    {.dp = 4,
     .pp = 1,
     .tp = 2,
     .micro_batches = 1,
     .sequence = true,
     .schedule = WEFT_1F1B,
     .model = PLAN_LLAMA,
     .type = WEFT_F32},
    {.dp = 4,
     .pp = 2,
     .tp = 1,
     .micro_batches = 4,
     .schedule = WEFT_INTERLEAVED,
     .model = PLAN_GPT2,
     .type = WEFT_F32,
     .offload = true,
     .compress = WEFT_COMPRESS_BF16},
    {.dp = 2,
     .pp = 2,
     .tp = 2,
     .micro_batches = 4,
     .sequence = true,
     .schedule = WEFT_GPIPE,
     .recompute = WEFT_RECOMPUTE_FULL,
     .model = PLAN_LLAMA_TIED,
     .type = WEFT_F32},
    {.dp = 4,
     .pp = 2,
     .tp = 1,
     .micro_batches = 4,
     .lean = true,
     .schedule = WEFT_1F1B,
     .recompute = WEFT_RECOMPUTE_SELECTIVE,
     .type = WEFT_F32},
};

static void stages(team_t *team)
{
    const base_t *base = team->arg;
    plan_numbers_t first, numbers;
    /* Gradients that are exchanged after every micro-batch are summed in another order. */
    int from = base->lean ? 2 : 0;
    weft__compute_threads(1);
    for (int stage = from; stage <= 3; stage++) {
        plan_run_t run = {.model = base->model,
                          .plan = {.dp = base->dp,
                                   .pp = base->pp,
                                   .tp = base->tp,
                                   .zero = stage,
                                   .schedule = base->schedule,
                                   .virtual_stages = base->schedule == WEFT_INTERLEAVED ? 2 : 1,
                                   .micro_batches = base->micro_batches,
                                   .micro_batch = PLAN_BATCH / base->dp / base->micro_batches,
                                   .length = PLAN_LENGTH,
                                   .recompute = base->recompute,
                                   .offload = base->offload,
                                   .sequence_parallel = base->sequence,
                                   .lean = base->lean},
                          .steps = 3,
                          .type = base->type,
                          .bucket_bytes = 1,
                          .compress = base->compress,
                          .no_overlap = base->no_overlap,
                          .streamed = stage % 2 == 1};
        char name[320];
        team_note("%s", plan_name(&run, name, sizeof(name)));
        plan_train(&run, team->comm, &numbers);
        first = stage == from ? numbers : first;
        for (int step = 0; step < run.steps; step++) {
            if (memcmp(&numbers.loss[step], &first.loss[step], sizeof(double)) != 0 ||
                memcmp(&numbers.norm[step], &first.norm[step], sizeof(double)) != 0) {
                FAIL("stage %d, step %d: loss %.17g and norm %.17g, stage %d has %.17g and %.17g",
                     stage, step, numbers.loss[step], numbers.norm[step], from, first.loss[step],
                     first.norm[step]);
            }
        }
        CHECK_EQ(numbers.state, first.state);
    }
}

/* With int8 sums are rounded once under ZeRO and twice without it, so bits differ. */
static void bytes_stay_near(team_t *team)
{
    plan_numbers_t full, squeezed;
    weft__compute_threads(1);
    for (int stage = 1; stage <= 3; stage++) {
        plan_run_t run = {.model = PLAN_LLAMA,
                          .plan = weft__plan_single(2, PLAN_LENGTH),
                          .steps = 4,
                          .bucket_bytes = 1};
        run.plan.dp = team->size;
        run.plan.micro_batches = PLAN_BATCH / 2 / team->size;
        run.plan.zero = stage;
        run.plan.lean = stage > 1;
        team_note("ZeRO-%d, int8", stage);
        plan_train(&run, team->comm, &full);
        run.compress = WEFT_COMPRESS_INT8;
        plan_train(&run, team->comm, &squeezed);
        bool same = true;
        for (int step = 0; step < run.steps; step++) {
            double off = fabs(squeezed.loss[step] / full.loss[step] - 1);
            same = same && squeezed.norm[step] == full.norm[step];
            if (!(off < 1e-3)) {
                FAIL("step %d: loss %.9g, but %.9g in full", step, squeezed.loss[step],
                     full.loss[step]);
            }
        }
        CHECK(!same); /* it was compressed at all */
    }
}

int main(void)
{
    bool ok = true;
    for (size_t i = 0; i < sizeof(bases) / sizeof(bases[0]); i++) {
        int ranks = bases[i].dp * bases[i].pp * bases[i].tp;
        team_plan_t plan = {.ranks = ranks, .procs = i % 2 ? 0 : 1, .arg = &bases[i]};
        ok = team_run(&plan, stages) && ok;
    }
    ok = team_run(&(team_plan_t){.ranks = 4, .procs = 1}, bytes_stay_near) && ok;
    return ok ? 0 : 1;
}
