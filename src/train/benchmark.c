/* Training steps on made-up tokens, to be timed: see benchmark.h. */
#include "train/benchmark.h"

#include <math.h>
#include <stdlib.h>

#include <weft/device.h>

#include "base/log.h"
#include "train/peak.h"
#include "train/run_plan.h"
#include "train/scale.h"
#include "train/trainer.h"

struct weft_benchmark {
    weft_trainer_t t;
    weft_setup_t *setup;
    bool opened;
    double peak;   /* operations per second of all devices; 0: not asked for */
    uint64_t next; /* step */
    weft_rank_times_t *ranks;
    double *step_s, *loss; /* of the run */
    weft_benchmark_result_t result;
};

/* ---- opening ------------------------------------------------------------------------------ */

static weft_status_t open_feed(weft_benchmark_t *b)
{
    const weft_train_config_t *config = b->setup->config;
    const weft_mesh_t *mesh = weft__worker_mesh(b->t.worker);
    weft_feed_options_t options = {.data = b->setup->data,
                                   .batch = (uint64_t)config->batch,
                                   .length = (uint32_t)config->length,
                                   .steps = UINT64_MAX};
    weft__data_share(options.batch, mesh->index[WEFT_AXIS_DATA], mesh->size[WEFT_AXIS_DATA],
                     &options.begin, &options.end);
    return weft__feed_open(&options, &b->t.feed);
}

/* Of all ranks. */
static weft_status_t add_peaks(weft_benchmark_t *b, double flops)
{
    weft_step_stats_t mine = {.loss = flops};
    WEFT_TRY(weft__step_stats_gather(&b->t, &mine));
    for (int i = 0; i < b->t.size; i++) {
        b->peak += b->t.stats[i].loss;
    }
    return WEFT_OK;
}

/* The ledger of the rank that has most. */
static weft_status_t find_memory(weft_benchmark_t *b)
{
    enum { KINDS = WEFT_MEMORY_KINDS, ROW = WEFT_MEMORY_KINDS + 1 };
    const weft_ledger_t *ledger = weft__worker_ledger(b->t.worker);
    uint64_t mine[ROW], most = 0;
    uint64_t *all = malloc((size_t)b->t.size * sizeof(mine));
    if (all == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the figures of %d ranks", b->t.size);
    }
    for (int k = 0; k < KINDS; k++) {
        mine[k] = ledger->bytes[k];
    }
    mine[KINDS] = weft__ledger_total(ledger);
    weft_status_t status = weft_allgather(mine, all, ROW, WEFT_U64, b->t.comm, NULL);
    for (int i = 0; i < b->t.size && status == WEFT_OK; i++) {
        const uint64_t *row = all + (size_t)i * ROW;
        if (row[KINDS] > most) {
            most = row[KINDS];
            for (int k = 0; k < KINDS; k++) {
                b->result.memory[k] = row[k];
            }
        }
    }
    free(all);
    return status;
}

/* The stage of each rank never changes. */
static weft_status_t find_stages(weft_benchmark_t *b)
{
    const weft_mesh_t *mesh = weft__worker_mesh(b->t.worker);
    b->ranks = calloc((size_t)b->t.size, sizeof(*b->ranks));
    if (b->ranks == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the figures of %d ranks", b->t.size);
    }
    for (int place = 0; place < mesh->ranks; place++) {
        int index[WEFT_AXES];
        weft__mesh_index(mesh, place, index);
        b->ranks[mesh->rank_at[place]].stage = index[WEFT_AXIS_PIPELINE];
    }
    return WEFT_OK;
}

static weft_status_t open_all(weft_benchmark_t *b, const weft_benchmark_options_t *options,
                              weft_comm_h comm)
{
    double flops = 0.0;
    if (options->mfu) {
        WEFT_TRY(weft__peak_find(b->setup, comm, &flops));
    }
    WEFT_TRY(weft__setup_data(b->setup));
    b->opened = true;
    WEFT_TRY(weft__trainer_open(b->setup, comm, options->trace, &b->t));
    if (options->mfu) {
        WEFT_TRY(add_peaks(b, flops));
    }
    WEFT_TRY(find_stages(b));
    WEFT_TRY(find_memory(b));
    return open_feed(b);
}

weft_status_t weft__benchmark_open(const weft_benchmark_options_t *options, weft_comm_h comm,
                                   weft_benchmark_t **benchmark_p)
{
    weft_benchmark_t *b = calloc(1, sizeof(*b));
    if (b == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a benchmark");
    }
    b->setup = options->setup;
    weft_status_t status = open_all(b, options, comm);
    if (status != WEFT_OK) {
        weft__benchmark_close(b);
        return status;
    }
    *benchmark_p = b;
    return WEFT_OK;
}

void weft__benchmark_close(weft_benchmark_t *b)
{
    if (b == NULL) {
        return;
    }
    if (b->opened) {
        weft__trainer_close(&b->t);
    }
    weft__data_close(b->setup->data);
    b->setup->data = NULL;
    free(b->ranks);
    free(b->step_s);
    free(b->loss);
    free(b);
}

/* ---- running ------------------------------------------------------------------------------ */

static weft_status_t more_room(weft_benchmark_t *b, int steps)
{
    free(b->step_s);
    free(b->loss);
    b->step_s = calloc((size_t)steps, sizeof(double));
    b->loss = calloc((size_t)steps, sizeof(double));
    return b->step_s != NULL && b->loss != NULL
               ? WEFT_OK
               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the figures of %d steps", steps);
}

static weft_status_t check_numbers(weft_benchmark_t *b, uint64_t step, double loss)
{
    double norm = b->t.stats[0].grad_norm;
    bool goes_on = weft__scale_used(b->setup) ? weft__scale_update(&b->t.state, norm)
                                              : isfinite(norm);
    if (isfinite(loss) && goes_on) {
        return WEFT_OK;
    }
    return weft__fail(WEFT_ERR_INVALID,
                      "the %s is not a number in step %llu: what is timed would not train; a lower "
                      "--lr (now %g) may help",
                      isfinite(loss) ? "gradient" : "loss", (unsigned long long)step + 1,
                      b->setup->config->lr);
}

/* What all ranks say about a step, as number `index` of the run. */
static weft_status_t note_step(weft_benchmark_t *b, uint64_t step, int index)
{
    const weft_trainer_t *t = &b->t;
    weft_breakdown_t parts;
    double loss = 0.0;
    for (int i = 0; i < t->size; i++) {
        const weft_step_stats_t *s = &t->stats[i];
        b->ranks[i] = (weft_rank_times_t){.step = s->step,
                                          .run = s->run,
                                          .pipeline = s->waited,
                                          .tensor = s->tensor,
                                          .weights = s->weights,
                                          .update = s->update,
                                          .exchange = s->exchange,
                                          .norm = s->norm,
                                          .data = s->data,
                                          .told = s->told,
                                          .stage = b->ranks[i].stage};
        loss += s->loss;
        b->result.memory_peak = s->memory > (double)b->result.memory_peak ? (uint64_t)s->memory
                                                                          : b->result.memory_peak;
    }
    weft__breakdown(b->ranks, t->size, t->config->pp, &parts);
    weft__breakdown_add(&b->result.time, &parts, 1.0 / b->result.steps);
    b->step_s[index] = parts.step;
    b->loss[index] = loss / ((double)t->config->batch * t->config->length);
    return check_numbers(b, step, b->loss[index]);
}

static weft_status_t settle(weft_benchmark_t *b, uint64_t first, weft_inflight_step_t *queued)
{
    if (!queued->there) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__step_settle(&b->t, queued, 0));
    b->t.paused = false;
    return note_step(b, queued->step, (int)(queued->step - first));
}

/* As the loop of training does it: on a GPU the host is a step ahead. */
static weft_status_t run_steps(weft_benchmark_t *b, int steps)
{
    weft_trainer_t *t = &b->t;
    uint64_t first = b->next, end = first + (uint64_t)steps;
    weft_inflight_step_t *before = NULL;
    t->paused = true;
    for (; b->next < end; b->next++) {
        weft_inflight_step_t *now = &t->inflight[b->next % WEFT_INFLIGHT_STEPS];
        if (before != NULL && weft__scale_used(b->setup)) {
            WEFT_TRY(settle(b, first, before));
        }
        WEFT_TRY(weft__step_queue(t, b->next, now));
        if (before != NULL) {
            WEFT_TRY(settle(b, first, before));
        }
        if (t->stream == NULL) { /* it is over */
            WEFT_TRY(settle(b, first, now));
        }
        before = now;
    }
    return before != NULL ? settle(b, first, before) : WEFT_OK;
}

weft_status_t weft__benchmark_run(weft_benchmark_t *b, int steps)
{
    weft_benchmark_result_t *result = &b->result;
    const weft_train_config_t *config = b->setup->config;
    WEFT_TRY(more_room(b, steps));
    result->steps = steps;
    result->step_s = b->step_s;
    result->loss = b->loss;
    result->tokens = (double)config->batch * config->length;
    result->time = (weft_breakdown_t){0};
    WEFT_TRY(weft_barrier(b->t.comm, NULL)); /* nobody's first step waits for one that is late */
    WEFT_TRY(run_steps(b, steps));
    result->tokens_per_s = result->tokens / result->time.step;
    double rate = weft__config_flops(&b->setup->model, config->length) * result->tokens_per_s;
    result->mfu = weft__benchmark_mfu(rate, b->peak);
    return WEFT_OK;
}

double weft__benchmark_mfu(double rate, double peak)
{
    return peak > 0.0 ? rate / peak : NAN;
}

const weft_benchmark_result_t *weft__benchmark_result(const weft_benchmark_t *b)
{
    return &b->result;
}
