/* Plans: what is possible, and what is near. */
#include "parallel/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { REASON = 256, MICRO_BATCHES_MOST = 1 << 20 };

static const char *const schedules[] = {"gpipe", "1f1b", "interleaved"};
static const char *const recomputes[] = {"none", "selective", "full"};

const weft_axis_info_t weft__axes[WEFT_AXES] = {
#define AXIS_INFO(name, field, ranks, chain) {#field, ranks, chain},
    WEFT_AXIS_TABLE(AXIS_INFO)
#undef AXIS_INFO
};

/* Tensor-parallel ranks talk several times a layer, data-parallel ones once a step (with ZeRO-3
 * once a layer), pipeline stages pass on one activation. */
const weft_axis_t weft__axis_order[WEFT_AXES] = {WEFT_AXIS_TENSOR, WEFT_AXIS_DATA,
                                                 WEFT_AXIS_PIPELINE};

int64_t weft__axes_ranks(const int size[WEFT_AXES])
{
    int64_t ranks = 1;
    for (int a = 0; a < WEFT_AXES; a++) {
        ranks = size[a] < 1 || ranks > INT32_MAX ? 0 : ranks * size[a];
    }
    return ranks;
}

/* Each size behind the option or name of its axis. */
static const char *sizes_text(const int size[WEFT_AXES], const char *prefix, const char *between,
                              char *text, size_t room)
{
    size_t used = 0;
    for (int a = 0; a < WEFT_AXES && used < room; a++) {
        int more = snprintf(text + used, room - used, "%s%s%s %d", a > 0 ? between : "", prefix,
                            weft__axes[a].option, size[a]);
        used += more > 0 ? (size_t)more : 0;
    }
    return text;
}

const char *weft__axes_text(const int size[WEFT_AXES], char *text, size_t room)
{
    return sizes_text(size, "", " x ", text, room);
}

static int named(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

int weft__schedule_named(const char *name)
{
    return named(schedules, 3, name);
}

int weft__recompute_named(const char *name)
{
    return named(recomputes, 3, name);
}

const char *weft__schedule_name(weft_schedule_t schedule)
{
    return schedules[schedule];
}

const char *weft__recompute_name(weft_recompute_t recompute)
{
    return recomputes[recompute];
}

weft_plan_t weft__plan_single(int64_t sequences, int64_t length)
{
    return (weft_plan_t){.dp = 1,
                         .pp = 1,
                         .tp = 1,
                         .schedule = WEFT_1F1B,
                         .virtual_stages = 1,
                         .micro_batches = 1,
                         .micro_batch = sequences,
                         .length = length};
}

void weft__plan_layers(int layers, int stages, int number, int *first_p, int *count_p)
{
    int first = (int)((int64_t)layers * number / stages);
    *first_p = first;
    *count_p = (int)((int64_t)layers * (number + 1) / stages) - first;
}

/* ---- what is possible --------------------------------------------------------------------- */

#define REFUSE(...)                                                                                \
    do {                                                                                           \
        snprintf(reason, REASON, __VA_ARGS__);                                                     \
        return false;                                                                              \
    } while (0)

static bool grid_fits(const weft_plan_t *p, int ranks, char *reason)
{
    char text[96];
    if (weft__axes_ranks(p->size) != ranks) {
        REFUSE("%s does not make %d ranks", weft__axes_text(p->size, text, sizeof(text)), ranks);
    }
    if (p->zero < 0 || p->zero > 3) {
        REFUSE("there is no ZeRO stage %d, only 0 to 3", p->zero);
    }
    return true;
}

static bool tensors_fit(const weft_plan_t *p, const weft_model_config_t *m, char *reason)
{
    const struct {
        const char *what;
        int64_t count;
    } cuts[] = {{"heads", m->heads}, {"key/value heads", m->kv_heads}, {"MLP columns", m->ffn}};
    for (int i = 0; i < 3; i++) {
        if (cuts[i].count % p->tp != 0) {
            REFUSE("%lld %s cannot be split evenly among %d tensor-parallel ranks",
                   (long long)cuts[i].count, cuts[i].what, p->tp);
        }
    }
    if (p->sequence_parallel && p->micro_batch * p->length % p->tp != 0) {
        REFUSE("%lld tokens of a micro-batch cannot be split evenly among %d tensor-parallel ranks",
               (long long)(p->micro_batch * p->length), p->tp);
    }
    return true;
}

static bool stages_fit(const weft_plan_t *p, const weft_model_config_t *m, char *reason)
{
    bool interleaved = p->schedule == WEFT_INTERLEAVED;
    if (interleaved && (p->pp < 2 || p->virtual_stages < 2)) {
        REFUSE("an interleaved pipeline needs 2 ranks and 2 stages on each, not %d and %d", p->pp,
               p->virtual_stages);
    }
    if (!interleaved && p->virtual_stages != 1) {
        REFUSE("a rank has %d stages with the interleaved schedule only", p->virtual_stages);
    }
    if ((int64_t)p->pp * p->virtual_stages > m->layers) {
        REFUSE("%d layers are too few for %d pipeline stages", m->layers,
               p->pp * p->virtual_stages);
    }
    if (interleaved && p->micro_batches % p->pp != 0) {
        REFUSE("an interleaved pipeline of %d ranks needs a multiple of %d micro-batches, not %d",
               p->pp, p->pp, p->micro_batches);
    }
    return true;
}

static bool batch_fits(const weft_plan_t *p, const weft_model_config_t *m, int64_t batch,
                       char *reason)
{
    if (p->length < 1 || p->length > m->context) {
        REFUSE("sequences of %lld tokens do not fit the model, which takes 1 to %d",
               (long long)p->length, m->context);
    }
    if (p->micro_batches < 1 || p->micro_batch < 1 ||
        p->micro_batch * p->micro_batches * p->dp != batch) {
        REFUSE("a batch of %lld sequences is not %d data-parallel ranks x %d micro-batches x %lld",
               (long long)batch, p->dp, p->micro_batches, (long long)p->micro_batch);
    }
    return true;
}

static bool possible(const weft_plan_t *p, const weft_model_config_t *m, int ranks, int64_t batch,
                     char *reason)
{
    return grid_fits(p, ranks, reason) && tensors_fit(p, m, reason) && stages_fit(p, m, reason) &&
           batch_fits(p, m, batch, reason);
}

bool weft__plan_possible(const weft_plan_t *plan, const weft_model_config_t *model, int ranks,
                         int64_t batch)
{
    char reason[REASON];
    return possible(plan, model, ranks, batch, reason);
}

/* ---- what is near ------------------------------------------------------------------------- */

static double apart(double a, double b)
{
    return fabs(log2(a > 0 ? a : 0.25) - log2(b > 0 ? b : 0.25));
}

static double distance(const weft_plan_t *a, const weft_plan_t *b)
{
    /* Ranks that have to go somewhere go to dp, which needs the least communication. */
    double grid = 0.9 * apart(a->dp, b->dp) + apart(a->pp, b->pp) + apart(a->tp, b->tp);
    double rest = apart(a->micro_batches, b->micro_batches) + (a->schedule != b->schedule) +
                  (a->sequence_parallel != b->sequence_parallel) +
                  apart(a->virtual_stages, b->virtual_stages);
    return 100.0 * grid + rest; /* the grid decides, the rest breaks ties */
}

/* The nearest with this grid and number of micro-batches, with and without what may be given up. */
static void try_cut(const weft_plan_t *wanted, weft_plan_t grid, const weft_model_config_t *model,
                    int ranks, int64_t batch, weft_plan_t *best, double *least)
{
    char reason[REASON];
    for (int give_up = 0; give_up < 4; give_up++) {
        weft_plan_t plan = grid;
        if (give_up & 1) {
            plan.schedule = WEFT_1F1B;
            plan.virtual_stages = 1;
        }
        plan.sequence_parallel = plan.sequence_parallel && !(give_up & 2);
        double far = distance(wanted, &plan);
        if (far < *least && possible(&plan, model, ranks, batch, reason)) {
            *least = far;
            *best = plan;
        }
    }
}

/* Every way to cut the grid's part of the batch: divisors come in pairs. */
static void try_grid(const weft_plan_t *wanted, weft_plan_t grid, const weft_model_config_t *model,
                     int ranks, int64_t batch, weft_plan_t *best, double *least)
{
    int64_t part = batch / grid.dp;
    for (int64_t divisor = 1; divisor * divisor <= part; divisor++) {
        for (int other = 0; other < 2 && part % divisor == 0; other++) {
            int64_t count = other == 0 ? divisor : part / divisor;
            grid.micro_batches = count <= MICRO_BATCHES_MOST ? (int)count : 0; /* 0: impossible */
            grid.micro_batch = part / count;
            try_cut(wanted, grid, model, ranks, batch, best, least);
        }
    }
}

bool weft__plan_nearest(const weft_plan_t *plan, const weft_model_config_t *model, int ranks,
                        int64_t batch, weft_plan_t *nearest_p)
{
    double least = INFINITY;
    for (int tp = 1; tp <= ranks; tp++) {
        for (int pp = 1; pp <= ranks / tp; pp++) {
            weft_plan_t grid = *plan;
            grid.tp = tp;
            grid.pp = pp;
            grid.dp = ranks / (tp * pp);
            grid.zero = plan->zero < 0 ? 0 : plan->zero > 3 ? 3 : plan->zero;
            if (grid.dp * tp * pp == ranks && batch % grid.dp == 0) {
                try_grid(plan, grid, model, ranks, batch, nearest_p, &least);
            }
        }
    }
    return isfinite(least);
}

weft_status_t weft__plan_check(const weft_plan_t *plan, const weft_model_config_t *model, int ranks,
                               int64_t batch)
{
    char reason[REASON], text[REASON];
    weft_plan_t nearest;
    if (possible(plan, model, ranks, batch, reason)) {
        return WEFT_OK;
    }
    if (!weft__plan_nearest(plan, model, ranks, batch, &nearest)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s, and no other plan for %d ranks and a batch of %lld works either",
                          reason, ranks, (long long)batch);
    }
    return weft__fail(WEFT_ERR_INVALID, "%s; the nearest plan that works is %s", reason,
                      weft__plan_text(&nearest, text, sizeof(text)));
}

const char *weft__plan_text(const weft_plan_t *plan, char *text, size_t room)
{
    char axes[96], schedule[64] = "", stages[32] = "";
    if (plan->schedule == WEFT_INTERLEAVED) {
        snprintf(stages, sizeof(stages), " --virtual-stages %d", plan->virtual_stages);
    }
    if (plan->pp > 1) {
        snprintf(schedule, sizeof(schedule), " --schedule %s%s",
                 weft__schedule_name(plan->schedule), stages);
    }
    snprintf(text, room, "%s --zero %d%s --micro-batch %lld --micro-batches %d%s%s%s%s%s",
             sizes_text(plan->size, "--", " ", axes, sizeof(axes)), plan->zero, schedule,
             (long long)plan->micro_batch, plan->micro_batches,
             plan->sequence_parallel ? " --sequence-parallel" : "",
             plan->recompute != WEFT_RECOMPUTE_NONE ? " --recompute " : "",
             plan->recompute != WEFT_RECOMPUTE_NONE ? weft__recompute_name(plan->recompute) : "",
             plan->offload ? " --offload optimizer" : "", plan->lean ? " --lean" : "");
    return text;
}
