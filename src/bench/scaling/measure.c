/* The rounds. */
#include <stdio.h>

#include "base/log.h"
#include "base/rng.h"
#include "bench/scaling/points.h"
#include "boot/job.h"
#include "comm/comm.h"
#include "train/benchmark.h"

#define WARM_UP 2
#define ORDER_SEED 0x5ca1e /* the same on all ranks, who must agree on the order */

typedef struct measuring {
    const weft_scaling_t *scaling;
    weft_comm_h comm;
    int rank, size;
    weft_store_conn_t *store;
    weft_comm_h groups[WEFT_POINTS_MOST]; /* by point: of its ranks; NULL where this one is none */
} measuring_t;

/* ---- who takes part ----------------------------------------------------------------------- */

/* Points with as many ranks share a communicator. */
static weft_status_t open_groups(measuring_t *m, const weft_points_t *points)
{
    for (int i = 0; i < points->count; i++) {
        int ranks = points->list[i].ranks, same = 0;
        while (points->list[same].ranks != ranks) {
            same++;
        }
        if (same < i) {
            m->groups[i] = m->groups[same];
            continue;
        }
        int color = m->rank < ranks ? 0 : -1;
        WEFT_TRY(weft_comm_split(m->comm, color, m->rank, &m->groups[i], NULL));
    }
    return WEFT_OK;
}

static void close_groups(measuring_t *m, const weft_points_t *points)
{
    for (int i = 0; i < points->count; i++) {
        bool shared = false;
        for (int k = 0; k < i; k++) {
            shared = shared || m->groups[k] == m->groups[i];
        }
        if (!shared) {
            weft_comm_destroy(m->groups[i]);
        }
    }
}

/* Others may wait for this rank in any of them: in this measurement, in the next, or asleep. */
static void break_all(const measuring_t *m, const weft_points_t *points)
{
    for (int i = 0; i < points->count; i++) {
        weft__comm_break(m->groups[i]);
    }
    weft__comm_break(m->comm);
}

/* Sleep until rank 0, which takes part in every point, is done with measurement `number`. At the
 * store and not in a call: a call waits on the device, and a kernel that waits disturbs its
 * neighbours. */
static weft_status_t sleep_through(const measuring_t *m, int number)
{
    char key[64], value[8];
    snprintf(key, sizeof(key), "weft/scaling/%d", number);
    for (;;) {
        size_t bytes = sizeof(value);
        weft_status_t status = weft__store_get(m->store, key, value, &bytes, 1000);
        if (status != WEFT_ERR_TIMEOUT) {
            return status;
        }
        WEFT_TRY(weft_comm_error(m->comm, NULL));
    }
}

static weft_status_t wake_others(const measuring_t *m, int number)
{
    char key[64];
    snprintf(key, sizeof(key), "weft/scaling/%d", number);
    return weft__store_set(m->store, key, "done", 4);
}

/* ---- one measurement ---------------------------------------------------------------------- */

static weft_status_t measure_point(const measuring_t *m, weft_point_t *point, weft_comm_h group,
                                   int round)
{
    weft_benchmark_options_t options = {.setup = &point->setup};
    weft_benchmark_t *benchmark;
    WEFT_TRY(weft__benchmark_open(&options, group, &benchmark));
    weft_status_t status = weft__benchmark_run(benchmark, WARM_UP);
    if (status == WEFT_OK) {
        status = weft__benchmark_run(benchmark, m->scaling->steps);
    }
    if (status == WEFT_OK) {
        const weft_benchmark_result_t *result = weft__benchmark_result(benchmark);
        point->tokens = result->tokens;
        point->rate[round] = result->tokens_per_s;
        point->time[round] = result->time;
    } else {
        weft__comm_break(group); /* before closing, which leaves */
    }
    weft__benchmark_close(benchmark);
    return status;
}

static weft_status_t measure_next(const measuring_t *m, weft_points_t *points, int index, int round,
                                  int number)
{
    weft_point_t *point = &points->list[index];
    if (m->rank >= point->ranks) {
        return sleep_through(m, number);
    }
    weft_status_t status = measure_point(m, point, m->groups[index], round);
    if (status != WEFT_OK) {
        char why[1024];
        snprintf(why, sizeof(why), "%s", weft_last_error());
        return weft__fail(status, "%s on %d rank%s: %s", point->plan, point->ranks,
                          point->ranks == 1 ? "" : "s", why);
    }
    return m->rank == 0 && point->ranks < m->size ? wake_others(m, number) : WEFT_OK;
}

/* ---- rounds ------------------------------------------------------------------------------- */

/* The round with the median rate; of two the slower. */
static int median_round(const weft_point_t *point, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        int below = 0;
        for (int k = 0; k < rounds; k++) {
            below += point->rate[k] < point->rate[i] || (point->rate[k] == point->rate[i] && k < i);
        }
        if (below == (rounds - 1) / 2) {
            return i;
        }
    }
    return 0;
}

static void judge(weft_points_t *points, int rounds)
{
    for (int i = 0; i < points->count; i++) {
        points->list[i].median = median_round(&points->list[i], rounds);
    }
    for (int i = 0; i < points->count; i++) {
        weft_point_t *point = &points->list[i];
        const weft_point_t *one = &points->list[point->one];
        weft__lost(&one->time[one->median], one->tokens, &point->time[point->median], point->tokens,
                   point->ranks / one->ranks, &point->lost);
    }
}

static weft_status_t measure_all(measuring_t *m, weft_points_t *points, int *number)
{
    int order[WEFT_POINTS_MOST];
    WEFT_TRY(open_groups(m, points));
    for (int round = 0; round < m->scaling->rounds; round++) {
        weft__shuffle(ORDER_SEED, (uint64_t)round * WEFT_POINTS_MOST, order, points->count);
        for (int i = 0; i < points->count; i++) {
            WEFT_TRY(measure_next(m, points, order[i], round, (*number)++));
        }
    }
    return WEFT_OK;
}

weft_status_t weft__points_measure(const weft_scaling_t *scaling, weft_comm_h comm,
                                   weft_points_t *points, int *number)
{
    measuring_t m = {.scaling = scaling, .comm = comm};
    WEFT_TRY(weft_comm_rank(comm, &m.rank));
    WEFT_TRY(weft_comm_size(comm, &m.size));
    WEFT_TRY(weft__job_store(0, &m.store));
    weft_status_t status = measure_all(&m, points, number);
    if (status == WEFT_OK && m.rank == 0) {
        judge(points, scaling->rounds);
    }
    if (status != WEFT_OK) {
        break_all(&m, points);
    }
    close_groups(&m, points);
    weft__store_close(m.store);
    return status;
}
