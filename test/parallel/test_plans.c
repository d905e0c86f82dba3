/* ctest: timeout=120 labels=plans */
/* Every plan trains as one rank does: dp x pp x tp with ZeRO, schedules, recomputation, both
 * families. A random sample of all plans (--seed repeats one); --all takes all, which `make
 * test-plans` does, and
 * --part I/N every Nth of them from the Ith on, so that a large machine can run several at once. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "parallel/plans.h"

/* ---- all plans ---------------------------------------------------------------------------- */

static int digit(uint64_t *number, int base)
{
    int digit = (int)(*number % (uint64_t)base);
    *number /= (uint64_t)base;
    return digit;
}

/* What the grid, ZeRO, the schedule and recomputation leave open is drawn by lot. */
static void draw_rest(uint64_t lot, plan_run_t *run)
{
    weft_plan_t *plan = &run->plan;
    int most = PLAN_BATCH / plan->dp;
    plan->micro_batches = 1 << digit(&lot, 4);
    while (plan->micro_batches > most) {
        plan->micro_batches /= 2;
    }
    if (plan->schedule == WEFT_INTERLEAVED && plan->micro_batches < plan->pp) {
        plan->micro_batches = plan->pp;
    }
    plan->micro_batch = most / plan->micro_batches;
    plan->sequence_parallel = digit(&lot, 2) && plan->tp > 1;
    plan->offload = digit(&lot, 4) == 0;
    plan->lean = digit(&lot, 2) && plan->zero >= 2 && plan->micro_batches > 1;
    run->bucket_bytes = digit(&lot, 2) ? 1 : 100 << 10;
    run->no_overlap = digit(&lot, 4) == 0;
    run->streamed = digit(&lot, 2);
    if (digit(&lot, 3) == 0) {
        run->model = run->model == PLAN_GPT2 ? PLAN_DROPOUT : PLAN_LLAMA_TIED;
    }
    while (plan->pp * plan->virtual_stages > plan_config(run->model).layers) {
        run->model = (plan_model_t)(run->model + PLAN_DEEP);
    }
}

enum { PLANS = 4 * 4 * 4 * 3 * 3 * 2 };

/* Plan number `number` of PLANS for `ranks` ranks; false if there is none such. */
static bool plan_number(uint64_t number, uint64_t seed, int ranks, plan_run_t *run)
{
    uint64_t lot = weft__rng_at(seed, number);
    weft_plan_t plan = {.length = PLAN_LENGTH, .tp = 1 << digit(&number, 4)};
    plan.pp = 1 << digit(&number, 4);
    plan.zero = digit(&number, 4);
    plan.schedule = (weft_schedule_t)digit(&number, 3);
    plan.recompute = (weft_recompute_t)digit(&number, 3);
    plan.virtual_stages = plan.schedule == WEFT_INTERLEAVED ? 2 : 1;
    plan.dp = ranks / (plan.tp * plan.pp);
    bool whole = plan.dp * plan.tp * plan.pp == ranks;
    /* What differs in name only is left out. */
    bool same = (plan.pp == 1 && plan.schedule != WEFT_1F1B) || (plan.dp == 1 && plan.zero > 0);
    if (!whole || same) {
        return false;
    }
    *run = (plan_run_t){.model = (plan_model_t)digit(&number, 2), .plan = plan};
    draw_rest(lot, run);
    weft_model_config_t config = plan_config(run->model);
    return weft__plan_check(&run->plan, &config, ranks, PLAN_BATCH) == WEFT_OK;
}

/* ---- running ------------------------------------------------------------------------------ */

typedef struct tour {
    uint64_t seed;
    int count; /* of plans; 0: all */
    int steps;
    int part, parts; /* which of the plans, in turn */
} tour_t;

static void tour(team_t *team)
{
    const tour_t *t = team->arg;
    static plan_numbers_t references[PLAN_MODELS];
    int done = 0, seen = 0;
    weft__compute_threads(1);
    uint64_t draws = t->count == 0 ? PLANS : 20 * PLANS;
    for (uint64_t i = 0; i < draws && (t->count == 0 || done < t->count); i++) {
        plan_run_t run;
        char name[320];
        plan_numbers_t numbers;
        uint64_t number = t->count == 0 ? i : weft__rng_at(t->seed, i) % PLANS;
        if (!plan_number(number, t->seed, team->size, &run) || seen++ % t->parts != t->part) {
            continue;
        }
        run.steps = t->steps;
        team_note("%s", plan_name(&run, name, sizeof(name)));
        plan_train(&run, team->comm, &numbers);
        if (team->rank == 0 && references[run.model].loss[0] == 0.0) {
            plan_reference(run.model, t->steps, &references[run.model]);
        }
        if (team->rank == 0) {
            plan_compare(&run, &numbers, &references[run.model]);
        }
        done++;
    }
    if (team->rank == 0) {
        printf("%d ranks: %d plans agree with one rank over %d steps\n", team->size, done,
               t->steps);
    }
}

/* The value of an option, or NULL. */
static const char *option(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            return argv[i + 1];
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    bool every = argc > 1 && strcmp(argv[1], "--all") == 0;
    const char *given = option(argc, argv, "--seed"), *part = option(argc, argv, "--part");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : weft__now_ns() % 1000000;
    int sample = UNDER_SANITIZER ? 4 : 10, mine = 1, parts = 1;
    bool ok = part == NULL || sscanf(part, "%d/%d", &mine, &parts) == 2;
    printf("--seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    for (int ranks = 1; ranks <= 8; ranks *= 2) {
        tour_t t = {seed + (uint64_t)ranks, every ? 0 : sample,
                    UNDER_SANITIZER && !every ? 4 : PLAN_STEPS, mine - 1, parts};
        team_plan_t plan = {
            .ranks = ranks, .procs = ranks == 4 ? 0 : 1, .limit_s = every ? 7200 : 60, .arg = &t};
        ok = team_run(&plan, tour) && ok;
    }
    return ok ? 0 : 1;
}
