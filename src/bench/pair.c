#include "bench/pair.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/settings.h"
#include "bench/statistics.h"
#include "bench/timed.h"
#include "comm/comm.h"
#include "device/device.h"

#define ALIKE 4          /* ways whose times differ by less than that have the same rounds */
#define TRIAL_SHARE 0.25 /* of the budget, for finding out how many rounds fill a loop */
#define MOST_ROUNDS 100000
#define WIDTH_EVERY 4         /* blocks: how often it is asked whether intervals are narrow */
#define HEAP_SLACK (64 << 10) /* granules, heads of structures */

/* A way of a pair, as the timed loop runs it. */
typedef struct way {
    weft_pair_run_t *run;
    weft_pair_loop_fn loop;
    const char *name;
    double slower; /* for tests: it takes so much longer, as a part of its time */
    weft_trace_t *trace;
} way_t;

static weft_status_t run_way(void *ctx, int iters)
{
    way_t *way = ctx;
    uint64_t start = weft__now_ns();
    WEFT_TRY(way->loop(way->run, iters));
    WEFT_TRY(weft__pair_settle(way->run));
    uint64_t end = weft__now_ns();
    uint64_t until = end + (uint64_t)(way->slower * (double)(end - start));
    while (end < until) {
        end = weft__now_ns();
    }
    weft__trace_span(way->trace, WEFT_PAIR_TRACK, way->name, start, end, iters,
                     (int64_t)way->run->bytes);
    return WEFT_OK;
}

typedef struct contest {
    weft_pair_run_t *run;
    const weft_pair_plan_t *plan;
    weft_pair_row_t *row;
    int count; /* contestants: the ways that are not absent, and the floor */
    way_t ways[WEFT_PAIR_WAYS + 1];
    weft_timed_t timed[WEFT_PAIR_WAYS + 1];
    weft_sample_t *samples[WEFT_PAIR_WAYS + 1];
} contest_t;

static weft_status_t enter(contest_t *c, way_t way, weft_sample_t *sample)
{
    int i = c->count++;
    c->ways[i] = way;
    c->timed[i] = (weft_timed_t){c->run->comm, run_way, &c->ways[i], c->plan->loop_ns, 1, 1};
    c->samples[i] = sample;
    sample->iters = c->plan->iters;
    return sample->iters == 0 ? weft__timed_fit(&c->timed[i], &sample->iters) : WEFT_OK;
}

/* One loop of every contestant, in an order of its own: whatever the machine does meanwhile, it
 * does to all of them, and nobody always comes after the same one. */
static weft_status_t run_block(contest_t *c, int64_t block, double *spent_ns)
{
    int order[WEFT_PAIR_WAYS + 1] = {0};
    weft__shuffle(c->plan->seed, (uint64_t)block * (WEFT_PAIR_WAYS + 1), order, c->count);
    for (int n = 0; n < c->count; n++) {
        int i = order[n];
        weft_sample_t *sample = c->samples[i];
        double ns;
        WEFT_TRY(weft__timed_loop(&c->timed[i], sample->iters, &ns));
        sample->us[sample->repeats++] = ns / c->run->parts / 1e3;
        *spent_ns += ns * sample->iters;
    }
    return WEFT_OK;
}

/* The least time of a round over some blocks, by contestant. */
static weft_status_t try_blocks(contest_t *c, int seed, double least_us[WEFT_PAIR_WAYS + 1])
{
    double spent_ns = 0, most_ns = c->plan->budget_ns * TRIAL_SHARE;
    for (int block = 0; block < c->plan->trials && spent_ns <= most_ns; block++) {
        WEFT_TRY(run_block(c, -1 - seed * c->plan->trials - block, &spent_ns));
    }
    for (int i = 0; i < c->count; i++) {
        weft_sample_t *sample = c->samples[i];
        least_us[i] = sample->us[0];
        for (int n = 1; n < sample->repeats; n++) {
            least_us[i] = sample->us[n] < least_us[i] ? sample->us[n] : least_us[i];
        }
        sample->repeats = 0;
    }
    return WEFT_OK;
}

/* Rounds of a loop. What begins and ends a loop costs time as well, so ways that are about equally
 * fast get the same number: otherwise the one with the longer loops would seem to be faster. A busy
 * machine makes rounds look long, the shorter the loop the longer; so it is done again where it
 * shows that loops were far too short. */
static weft_status_t set_rounds(contest_t *c)
{
    double us[WEFT_PAIR_WAYS + 1], target_us = c->plan->loop_ns / 1e3 / c->run->parts;
    bool again = c->plan->iters == 0 && c->plan->trials > 0;
    for (int seed = 0; again && seed < 4; seed++) {
        WEFT_TRY(try_blocks(c, seed, us));
        again = false;
        for (int i = 0; i < c->count; i++) {
            bool alike = us[i] < us[0] * ALIKE && us[0] < us[i] * ALIKE;
            double rounds = target_us / (alike ? us[0] : us[i]);
            int before = c->samples[i]->iters;
            int iters = rounds < 1 ? 1 : rounds > MOST_ROUNDS ? MOST_ROUNDS : (int)rounds;
            again = again || iters > 2 * before;
            c->samples[i]->iters = iters;
        }
    }
    return WEFT_OK;
}

/* Times are the same on all ranks, so they all come to the same end. */
static bool enough(const contest_t *c, int blocks, double spent_ns)
{
    const weft_pair_plan_t *plan = c->plan;
    if (blocks < plan->least) {
        return false;
    }
    if (blocks >= plan->most || spent_ns > plan->budget_ns) {
        return true;
    }
    bool narrow = blocks % WIDTH_EVERY == 0;
    const weft_sample_t *baseline = &c->row->ways[0];
    for (int i = 1; i < WEFT_PAIR_WAYS && narrow; i++) {
        const weft_sample_t *way = &c->row->ways[i];
        narrow = way->repeats == 0 ||
                 weft__ratio_half_width(baseline->us, way->us, blocks) <= plan->half_width;
    }
    return narrow;
}

/* WEFT_PAIRS_TEST: all ways run the baseline, and may take longer than it. -1: it is not set. */
static weft_status_t read_test(double *slower_p)
{
    const char *test = weft__settings()->pairs_test;
    double percent = -100;
    if (test[0] != '\0' && (!weft__parse_real(test, &percent) || percent < 0)) {
        return weft__fail(WEFT_ERR_INVALID,
                          "WEFT_PAIRS_TEST is \"%.100s\", not a number of percent, as 0 or 10",
                          test);
    }
    *slower_p = percent / 100;
    return WEFT_OK;
}

static way_t way_of(weft_pair_run_t *run, int i, const weft_pair_plan_t *plan, double slower)
{
    const weft_pair_t *pair = run->pair;
    bool tested = i > 0 && slower >= 0;
    return (way_t){run, pair->ways[tested ? 0 : i].loop, pair->ways[i].name, tested ? slower : 0,
                   plan->trace};
}

static weft_status_t time_ways(weft_pair_run_t *run, const weft_pair_plan_t *plan,
                               weft_pair_row_t *row)
{
    contest_t contest = {.run = run, .plan = plan, .row = row};
    double spent_ns = 0, slower = -1;
    WEFT_TRY(read_test(&slower));
    for (int i = 0; i < weft__pair_ways(run->pair); i++) {
        row->absent[i] = run->pair->absent[i] ? run->pair->absent[i](run) : NULL;
        if (!row->absent[i]) {
            WEFT_TRY(enter(&contest, way_of(run, i, plan, slower), &row->ways[i]));
        }
    }
    if (run->pair->copy) {
        WEFT_TRY(
            enter(&contest, (way_t){run, run->pair->copy, "copy", 0, plan->trace}, &row->copy));
    }
    WEFT_TRY(set_rounds(&contest));
    for (int block = 0; !enough(&contest, block, spent_ns); block++) {
        WEFT_TRY(run_block(&contest, block, &spent_ns));
    }
    return weft_allreduce(run->held, row->held, WEFT_PAIR_WAYS, WEFT_U64, WEFT_MAX, run->comm,
                          NULL);
}

static weft_status_t check(weft_pair_run_t *run, const weft_pair_plan_t *plan, weft_pair_row_t *row)
{
    size_t wrong = 0;
    if (!plan->check) {
        return WEFT_OK;
    }
    run->seed++;
    WEFT_TRY(weft_barrier(run->comm, NULL));
    WEFT_TRY(run->pair->check(run, &wrong));
    WEFT_TRY(weft__timed_wrong(run->comm, wrong, &wrong));
    row->wrong += wrong;
    return WEFT_OK;
}

static weft_status_t measure_open(weft_pair_run_t *run, const weft_pair_plan_t *plan,
                                  weft_pair_row_t *row)
{
    WEFT_TRY(run->pair->open(run));
    WEFT_TRY(check(run, plan, row));
    WEFT_TRY(time_ways(run, plan, row));
    return check(run, plan, row);
}

static size_t round_up(const weft_pair_t *pair, int ranks, size_t bytes)
{
    size_t unit = pair->unit ? pair->unit * (pair->shards ? (size_t)ranks : 1) : 1;
    return pair->max == 0 ? 0 : (bytes + unit - 1) / unit * unit;
}

weft_status_t weft__pair_measure(const weft_pair_plan_t *plan, const weft_pair_t *pair,
                                 weft_comm_h comm, size_t bytes, weft_pair_row_t *row_p)
{
    weft_pair_run_t run = {.pair = pair,
                           .comm = comm,
                           .rank = comm->rank,
                           .size = comm->size,
                           .bytes = round_up(pair, comm->size, bytes),
                           .seed = plan->seed,
                           .parts = 1};
    char why[WEFT_ERROR_TEXT]; /* cleaning up may fail as well */
    *row_p = (weft_pair_row_t){.pair = pair, .ranks = run.size, .bytes = run.bytes};
    weft_status_t status = WEFT_OK;
    if (pair->heap) {
        status = weft_symm_create(comm, pair->heap(&run) + HEAP_SLACK, &run.symm);
    }
    if (status == WEFT_OK && weft__device_is_cuda()) {
        status = weft_stream_create(&run.stream);
    }
    status = status == WEFT_OK ? measure_open(&run, plan, row_p) : status;
    snprintf(why, sizeof(why), "%s", status == WEFT_OK ? "" : weft_last_error());
    if (status != WEFT_OK) {
        weft__comm_break(comm); /* others wait for this rank, and closing would wait for them */
    }
    if (run.ctx && pair->close) {
        pair->close(&run);
    }
    while (run.owned_count > 0) {
        run.owned_count--;
        run.owned[run.owned_count].release(run.owned[run.owned_count].memory);
    }
    free(run.ctx);
    weft_stream_destroy(run.stream);
    weft_symm_destroy(run.symm);
    return status == WEFT_OK ? status : weft__fail(status, "%s", why);
}

/* ---- which ------------------------------------------------------------------------------ */

const char *weft__pair_target(int i)
{
    const char *last = NULL;
    for (const weft_pair_t *const *at = weft__pairs; *at; at++) {
        if (last && strcmp(last, (*at)->target) == 0) {
            continue; /* rows of a target follow each other */
        }
        last = (*at)->target;
        if (i-- == 0) {
            return last;
        }
    }
    return NULL;
}

bool weft__pair_knows(const char *target)
{
    const char *name;
    for (int i = 0; (name = weft__pair_target(i)) != NULL; i++) {
        if (strcmp(name, target) == 0) {
            return true;
        }
    }
    return false;
}

bool weft__pair_sized(const char *target)
{
    for (const weft_pair_t *const *at = weft__pairs; *at; at++) {
        if (strcmp((*at)->target, target) == 0 && (*at)->max > 0) {
            return true;
        }
    }
    return false;
}

void weft__pair_label(const weft_pair_t *pair, char label[WEFT_PAIR_LABEL])
{
    snprintf(label, WEFT_PAIR_LABEL, "%s%s%s", pair->target, pair->name ? "/" : "",
             pair->name ? pair->name : "");
}

int weft__pair_ways(const weft_pair_t *pair)
{
    int count = 0;
    while (count < WEFT_PAIR_WAYS && pair->ways[count].loop) {
        count++;
    }
    return count;
}

double weft__pair_ratio(const weft_pair_row_t *row, int i)
{
    double us = weft__sample_median(&row->ways[i]);
    return us > 0 ? weft__sample_median(&row->ways[0]) / us : 0;
}

void weft__pair_refusal(const weft_pair_t *pair, weft_comm_h comm, char *text, size_t room)
{
    text[0] = '\0';
    if (comm->size < pair->ranks) {
        snprintf(text, room, "%s needs %d ranks or more, and there %s %d: give -n %d", pair->target,
                 pair->ranks, comm->size == 1 ? "is" : "are", comm->size, pair->ranks);
    } else if (weft__device_is_cuda() && !pair->gpu) {
        snprintf(text, room, "%s runs on virtual GPUs only: leave --device cuda out", pair->target);
    }
}

/* ---- all sizes -------------------------------------------------------------------------- */

void weft__pair_range(const weft_bench_t *bench, const weft_pair_t *pair, size_t *first_p,
                      size_t *last_p)
{
    *first_p = bench->min ? bench->min : pair->min;
    *last_p = bench->max ? bench->max : pair->max;
    if (*first_p > *last_p && bench->max == 0) {
        *last_p = *first_p;
    } else if (*first_p > *last_p) {
        *first_p = *last_p;
    }
}

weft_status_t weft__pair_plan(const weft_bench_t *bench, weft_comm_h comm, weft_pair_plan_t *plan_p)
{
    *plan_p = (weft_pair_plan_t){.iters = bench->iters,
                                 .loop_ns = 15e6,
                                 .least = bench->repeat,
                                 .most = bench->repeat,
                                 .check = bench->check};
    WEFT_TRY(weft__random_bytes(&plan_p->seed, sizeof(plan_p->seed)));
    return weft_broadcast(&plan_p->seed, &plan_p->seed, 1, WEFT_U64, 0, comm, NULL);
}

static weft_status_t bench_pair(const weft_bench_t *bench, const weft_pair_t *pair,
                                weft_comm_h comm, weft_pair_table_t *table, size_t *wrong_p)
{
    size_t bytes, last;
    char why[256];
    weft_pair_plan_t plan;
    weft__pair_refusal(pair, comm, why, sizeof(why));
    if (why[0] != '\0') {
        return weft__fail(comm->size < pair->ranks ? WEFT_ERR_INVALID : WEFT_ERR_UNSUPPORTED, "%s",
                          why);
    }
    WEFT_TRY(weft__pair_plan(bench, comm, &plan));
    weft__pair_range(bench, pair, &bytes, &last);
    for (bool sized = pair->max > 0; bytes <= last || !sized;) {
        weft_pair_row_t row;
        WEFT_TRY(weft__pair_measure(&plan, pair, comm, bytes, &row));
        *wrong_p += row.wrong;
        if (table) {
            weft__pair_table_row(table, &row);
        }
        if (!sized) {
            break;
        }
        size_t next = (size_t)ceil((double)bytes * bench->factor);
        bytes = next > bytes ? next : bytes + 1;
    }
    return WEFT_OK;
}

/* On GPUs a row that does not run there is left out, if the target has another that does. */
static bool left_out(const weft_pair_t *const *pair)
{
    bool other = false;
    for (const weft_pair_t *const *at = weft__pairs; *at; at++) {
        other = other || (strcmp((*at)->target, (*pair)->target) == 0 && (*at)->gpu);
    }
    return weft__device_is_cuda() && !(*pair)->gpu && other;
}

weft_status_t weft__pair_bench(const weft_bench_t *bench, weft_comm_h comm, size_t *wrong_p)
{
    char why[WEFT_ERROR_TEXT];
    weft_pair_table_t lines = {.bench = bench}, *table = comm->rank == 0 ? &lines : NULL;
    weft_status_t status = WEFT_OK;
    *wrong_p = 0;
    if (table) {
        WEFT_TRY(weft__samples_open(&table->result, bench, comm->size));
    }
    for (const weft_pair_t *const *at = weft__pairs; *at && status == WEFT_OK; at++) {
        if (strcmp((*at)->target, bench->collective) == 0 && !left_out(at)) {
            status = bench_pair(bench, *at, comm, table, wrong_p);
        }
    }
    snprintf(why, sizeof(why), "%s", status == WEFT_OK ? "" : weft_last_error());
    if (table) {
        weft_status_t closed = weft__pair_table_close(table, status, *wrong_p);
        status = status == WEFT_OK ? closed : status;
    }
    return status == WEFT_OK || why[0] == '\0' ? status : weft__fail(status, "%s", why);
}
