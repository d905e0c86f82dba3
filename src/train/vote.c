/* What ranks tell each other in every step. */
#include <math.h>
#include <stdlib.h>

#include <weft/device.h>

#include "base/log.h"
#include "parallel/schedule.h"
#include "train/run_plan.h"
#include "train/trainer.h"

#define DOUBLES (sizeof(weft_vote_t) / sizeof(double))

weft_status_t weft__vote(weft_trainer_t *t, const weft_vote_t *mine)
{
    weft_vote_t *all = t->vote_memory + 1, *host = t->votes + t->size;
    *host = *mine; /* behind everybody's, in memory that a GPU reaches */
    WEFT_TRY(weft_memcpy(t->vote_memory, host, sizeof(*mine), t->side));
    WEFT_TRY(weft_allgather(t->vote_memory, all, DOUBLES, WEFT_F64, t->comm, t->side));
    WEFT_TRY(weft_memcpy(t->votes, all, (size_t)t->size * sizeof(*mine), t->side));
    return weft_stream_synchronize(t->side);
}

/* What the bubble should be if stages take as long as these did: each as its average rank. */
static double uneven_bubble(const weft_trainer_t *t)
{
    weft_plan_t plan = weft__run_plan(t->config);
    const weft_mesh_t *mesh = weft__worker_mesh(t->worker);
    int row = mesh->ranks / plan.pp;
    double *busy_s = calloc((size_t)plan.pp, sizeof(double));
    for (int place = 0; busy_s != NULL && place < mesh->ranks; place++) {
        const weft_vote_t *vote = &t->votes[mesh->rank_at[place]];
        int index[WEFT_AXES];
        weft__mesh_index(mesh, place, index);
        busy_s[index[WEFT_AXIS_PIPELINE]] += (vote->run - vote->waited) / row;
    }
    double bubble = busy_s != NULL ? weft__schedule_uneven(&plan, busy_s) : NAN;
    free(busy_s);
    return bubble;
}

void weft__vote_times(const weft_trainer_t *t, weft_plan_times_t *times_p)
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
