/* The bubble of a pipeline: by the formula, by playing the schedule through, and as it was
 * measured. */
#include <math.h>
#include <stdlib.h>

#include "parallel/schedule.h"

double weft__schedule_bubble(const weft_plan_t *plan)
{
    double idle = plan->pp - 1;
    return idle / (idle + (double)plan->micro_batches * plan->virtual_stages);
}

/* ---- played through ----------------------------------------------------------------------- */

/* When each entry of each rank's list ends, if an entry waits for the one in front of it and for
 * what it reads. */
typedef struct play {
    const weft_plan_t *plan;
    int count;          /* entries of a list */
    weft_action_t *ops; /* pp lists */
    double *ends;       /* of micro-batches on stages, forward, then backward; 0: not yet */
    const double *all;  /* what each rank computes in a step */
} play_t;

static double *end_of(const play_t *p, bool backward, int stage, int micro)
{
    int stages = p->plan->pp * p->plan->virtual_stages;
    return &p->ends[((backward ? stages : 0) + stage) * p->plan->micro_batches + micro];
}

/* When what an entry reads is there; negative: not known yet. */
static double ready_at(const play_t *p, int stage, const weft_action_t *op)
{
    int last = p->plan->pp * p->plan->virtual_stages - 1;
    if (!op->backward && stage == 0) {
        return 0.0;
    }
    double own = *end_of(p, false, stage, op->micro);
    double near = !op->backward   ? *end_of(p, false, stage - 1, op->micro)
                  : stage == last ? own
                                  : *end_of(p, true, stage + 1, op->micro);
    bool there = near > 0.0 && (!op->backward || own > 0.0);
    return there ? fmax(near, op->backward ? own : 0.0) : -1.0;
}

/* As far as rank `rank` gets from entry *at_p and time *now_p on; did it get on? */
static bool advance(const play_t *p, int rank, int *at_p, double *now_p)
{
    const weft_plan_t *plan = p->plan;
    double forward = p->all[rank] / 3.0 / ((double)plan->micro_batches * plan->virtual_stages);
    int began = *at_p;
    for (; *at_p < p->count; ++*at_p) {
        const weft_action_t *op = &p->ops[rank * p->count + *at_p];
        int stage = op->chunk * plan->pp + rank;
        double ready = ready_at(p, stage, op);
        if (ready < 0.0) {
            break;
        }
        *now_p = fmax(*now_p, ready) + forward * (op->backward ? 2.0 : 1.0);
        *end_of(p, op->backward, stage, op->micro) = *now_p;
    }
    return *at_p > began;
}

static double play(const play_t *p, int *at, double *now)
{
    double end = 0.0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < p->plan->pp; rank++) {
            moved = advance(p, rank, &at[rank], &now[rank]) || moved;
            end = fmax(end, now[rank]);
        }
    }
    return end;
}

double weft__schedule_uneven(const weft_plan_t *plan, const double *busy_s)
{
    size_t pp = (size_t)plan->pp, micros = (size_t)plan->micro_batches;
    play_t p = {.plan = plan, .count = weft__schedule_length(plan, true), .all = busy_s};
    p.ops = calloc(pp * (size_t)p.count, sizeof(weft_action_t));
    p.ends = calloc(2 * pp * (size_t)plan->virtual_stages * micros, sizeof(double));
    int *at = calloc(pp, sizeof(int));
    double *now = calloc(pp, sizeof(double)), sum = 0.0, bubble = NAN;
    if (p.ops != NULL && p.ends != NULL && at != NULL && now != NULL) {
        for (int rank = 0; rank < plan->pp; rank++) {
            weft__schedule_fill(plan, rank, true, p.ops + rank * p.count);
            sum += busy_s[rank];
        }
        bubble = 1.0 - sum / (double)pp / play(&p, at, now);
    }
    free(p.ops);
    free(p.ends);
    free(at);
    free(now);
    return bubble;
}

/* ---- measured ----------------------------------------------------------------------------- */

double weft__schedule_measured(const double *run_s, const double *waited_s, int ranks)
{
    double longest = 0.0, busy = 0.0;
    for (int i = 0; i < ranks; i++) {
        longest = run_s[i] > longest ? run_s[i] : longest;
        busy += run_s[i] - waited_s[i];
    }
    return longest > 0.0 ? 1.0 - busy / (longest * ranks) : 0.0;
}
