/* What ranks tell each other in every step. */
#include <math.h>
#include <stdlib.h>

#include <weft/device.h>

#include "base/clock.h"
#include "base/log.h"
#include "parallel/schedule.h"
#include "train/run_plan.h"
#include "train/trainer.h"

#define DOUBLES (sizeof(weft_step_stats_t) / sizeof(double))

weft_status_t weft__step_stats_gather(weft_trainer_t *t, const weft_step_stats_t *mine)
{
    weft_step_stats_t *all = t->stats_memory + 1, *host = t->stats + t->size;
    uint64_t start = weft__now_ns();
    *host = *mine; /* behind everybody's, in memory that a GPU reaches */
    WEFT_TRY(weft_memcpy(t->stats_memory, host, sizeof(*mine), t->side));
    WEFT_TRY(weft_allgather(t->stats_memory, all, DOUBLES, WEFT_F64, t->comm, t->side));
    WEFT_TRY(weft_memcpy(t->stats, all, (size_t)t->size * sizeof(*mine), t->side));
    WEFT_TRY(weft_stream_synchronize(t->side));
    t->told_s = (double)(weft__now_ns() - start) / 1e9;
    return WEFT_OK;
}

/* What the bubble should be if stages take as long as these did: each as its average rank. */
static double uneven_bubble(const weft_trainer_t *t)
{
    weft_plan_t plan = weft__run_plan(t->config);
    const weft_mesh_t *mesh = weft__worker_mesh(t->worker);
    int row = mesh->ranks / plan.pp;
    double *busy_s = calloc((size_t)plan.pp, sizeof(double));
    for (int place = 0; busy_s != NULL && place < mesh->ranks; place++) {
        const weft_step_stats_t *mine = &t->stats[mesh->rank_at[place]];
        int index[WEFT_AXES];
        weft__mesh_index(mesh, place, index);
        busy_s[index[WEFT_AXIS_PIPELINE]] += (mine->run - mine->waited) / row;
    }
    double bubble = busy_s != NULL ? weft__schedule_uneven(&plan, busy_s) : NAN;
    free(busy_s);
    return bubble;
}

void weft__step_stats_times(const weft_trainer_t *t, weft_plan_times_t *times_p)
{
    double *run_s = calloc(2 * (size_t)t->size, sizeof(double)), *waited_s = run_s + t->size;
    weft_plan_times_t times = {.bubble = NAN, .uneven = NAN};
    for (int i = 0; i < t->size; i++) {
        times.tensor += t->stats[i].tensor / t->size;
        times.exchange += t->stats[i].exchange / t->size;
        times.update += t->stats[i].update / t->size;
        if (run_s != NULL) {
            run_s[i] = t->stats[i].run;
            waited_s[i] = t->stats[i].waited;
        }
    }
    if (run_s != NULL && t->config->pp > 1) {
        times.bubble = weft__schedule_measured(run_s, waited_s, t->size);
        times.uneven = uneven_bubble(t);
    }
    free(run_s);
    *times_p = times;
}
