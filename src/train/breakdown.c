/* Where the time of a step goes: see breakdown.h. */
#include "train/breakdown.h"

#include <math.h>

static double compute_of(const weft_rank_times_t *t)
{
    return t->run - t->pipeline - t->tensor - t->weights;
}

static double optimizer_of(const weft_rank_times_t *t)
{
    return t->update - t->exchange - t->norm;
}

static double work_of(const weft_rank_times_t *t)
{
    return compute_of(t) + optimizer_of(t) + t->data;
}

/* Mean and most of the work of the ranks of a stage. */
static void look_at_stage(const weft_rank_times_t *ranks, int count, int stage, double *mean_p,
                          double *most_p)
{
    int there = 0;
    *mean_p = *most_p = 0.0;
    for (int i = 0; i < count; i++) {
        if (ranks[i].stage == stage) {
            double work = work_of(&ranks[i]);
            *mean_p += work;
            *most_p = fmax(*most_p, work);
            there++;
        }
    }
    *mean_p = there > 0 ? *mean_p / there : 0.0;
}

/* How long the mean rank would wait for others if waiting were all that communication takes: within
 * stages, and between them. */
static void find_imbalance(const weft_rank_times_t *ranks, int count, int stages, double *within_p,
                           double *between_p)
{
    double most = 0.0, mean = 0.0;
    *within_p = 0.0;
    for (int stage = 0; stage < stages; stage++) {
        double stage_mean, stage_most;
        look_at_stage(ranks, count, stage, &stage_mean, &stage_most);
        *within_p += (stage_most - stage_mean) / stages;
        mean += stage_mean / stages;
        most = fmax(most, stage_mean);
    }
    *between_p = most - mean;
}

/* How long the mean rank is done with forward and backward before the last one is. */
static double done_early(const weft_rank_times_t *ranks, int count)
{
    double most = 0.0, mean = 0.0;
    for (int i = 0; i < count; i++) {
        most = fmax(most, ranks[i].run);
        mean += ranks[i].run / count;
    }
    return most - mean;
}

void weft__breakdown(const weft_rank_times_t *ranks, int count, int stages,
                     weft_breakdown_t *parts_p)
{
    weft_breakdown_t parts = {0};
    double calls = 0.0, pipeline = 0.0, within, between;
    for (int i = 0; i < count; i++) {
        const weft_rank_times_t *t = &ranks[i];
        parts.step += t->step / count;
        parts.compute += compute_of(t) / count;
        parts.optimizer += optimizer_of(t) / count;
        parts.data += t->data / count;
        calls += (t->tensor + t->weights + t->exchange + t->norm + t->told) / count;
        pipeline += t->pipeline / count;
    }
    parts.rest = parts.step - parts.compute - parts.optimizer - parts.data - calls - pipeline;
    if (stages > 1) {
        double early = fmin(done_early(ranks, count), calls);
        pipeline += early;
        calls -= early;
    }
    find_imbalance(ranks, count, stages, &within, &between);
    within = fmin(within, calls);
    between = fmin(between, pipeline);
    parts.imbalance = within + between;
    parts.communication = calls - within;
    parts.bubble = pipeline - between;
    *parts_p = parts;
}

void weft__breakdown_add(weft_breakdown_t *sum, const weft_breakdown_t *more, double factor)
{
    sum->step += more->step * factor;
#define ADD(field, name, text) sum->field += more->field * factor;
    WEFT_BREAKDOWN_TABLE(ADD)
#undef ADD
}

void weft__breakdown_write(const weft_breakdown_t *parts, const char *key, weft_json_t *json)
{
    weft__json_object(json, key);
#define WRITE(field, name, text) weft__json_double(json, name, parts->field);
    WEFT_BREAKDOWN_TABLE(WRITE)
#undef WRITE
    weft__json_end(json);
}
