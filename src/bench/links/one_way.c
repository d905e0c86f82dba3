/* One way: many short samples of every link, in random order.
 *
 * A machine is never quiet. What slows it down for a while must meet all links alike, so a sweep
 * takes one sample of each link, in an order of its own, and links are compared within sweeps
 * (judge.c). A sample is short against the tick of a scheduler: most are not interrupted, and those
 * that are stand out. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "bench/links/run.h"
#include "comm/comm.h"
#include "device/device.h"

#define SAMPLE_NS 60e3     /* virtual GPUs: a sample takes about so long */
#define SAMPLE_CUDA_NS 1e6 /* GPUs: nobody interrupts a copy, and starting one takes long */
#define ITERS_MOST 64
#define SWEEPS_LEAST 5
#define TRIES 5
#define STEP_NS 300e3 /* until the next rank is awake */

typedef struct sweep {
    const int *targets; /* this rank's order */
    double *row;        /* [to] of this rank */
} sweep_t;

static weft_status_t sample_one(weft_links_run_t *run, const sweep_t *sweep, int to)
{
    return to != run->rank ? weft__links_put(run, to, run->bytes, run->iters, &sweep->row[to])
                           : WEFT_OK;
}

/* When it may go: a sample of each of this rank's links. The first copy finds the caches as the
 * rank before left them, and is not timed. */
static weft_status_t sample_row(weft_links_run_t *run, const weft_links_step_t *step)
{
    const sweep_t *sweep = step->ctx;
    double unused;
    if (step->partner >= 0) {
        return run->rank == step->leader
                   ? sample_one(run, sweep, step->partner)
                   : weft__links_take(run, step->leader, run->bytes, run->iters);
    }
    WEFT_TRY(weft__links_put(run, run->rank, run->bytes, 1, &unused));
    for (int i = 0; i < run->size; i++) {
        WEFT_TRY(sample_one(run, sweep, sweep->targets[i]));
    }
    return WEFT_OK;
}

/* Messages need both ends: link by link. */
static weft_status_t sweep_links(weft_links_run_t *run, sweep_t *sweep, uint64_t salt)
{
    int all = run->size * run->size;
    int *order = malloc((size_t)all * sizeof(*order));
    weft_status_t status = order ? WEFT_OK : weft__fail(WEFT_ERR_NO_MEMORY, "no memory");
    if (order) {
        weft__shuffle(run->seed + salt, 0, order, all);
    }
    for (int i = 0; i < all && status == WEFT_OK; i++) {
        weft_links_step_t step = {
            order[i] / run->size, order[i] % run->size, -1, 0, sample_row, sweep};
        if (step.leader != step.partner) {
            status = weft__links_step(run, &step);
        }
    }
    free(order);
    return status;
}

static weft_status_t sweep_once(weft_links_run_t *run, sweep_t *sweep, uint64_t salt, int *order,
                                int *next)
{
    int *targets = (int *)sweep->targets;
    if (!run->symm) {
        return sweep_links(run, sweep, salt);
    }
    weft__shuffle(run->seed + salt, 0, order, run->size);
    weft__shuffle(run->seed + salt + 1, 0, next, run->size);
    weft__shuffle(run->seed + salt + 7919 * (uint64_t)(run->rank + 1), 0, targets, run->size);
    for (int i = 0; i < run->size; i++) {
        weft_links_step_t step = {order[i], -1,         i + 1 < run->size ? order[i + 1] : next[0],
                                  0,        sample_row, sweep};
        WEFT_TRY(weft__links_step(run, &step));
    }
    return WEFT_OK;
}

weft_status_t weft__links_one_way(weft_links_run_t *run, int sweeps, double **ns_p)
{
    size_t n = (size_t)run->size, row = (size_t)sweeps * n;
    double *mine = calloc(row, sizeof(*mine)), *rows = calloc(row * n, sizeof(*rows)),
           *ns = calloc(row * n, sizeof(*ns));
    int *orders = calloc(3 * n, sizeof(*orders));
    uint64_t salt = (run->steps + 1) << 20;
    weft_status_t status = mine && rows && ns && orders
                               ? weft__links_meet(run)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %d sweeps", sweeps);
    for (int i = 0; i < sweeps && status == WEFT_OK; i++) {
        sweep_t sweep = {.targets = orders + 2 * n, .row = mine + (size_t)i * n};
        status = sweep_once(run, &sweep, salt + (uint64_t)i, orders, orders + n);
    }
    status = status == WEFT_OK ? weft__links_gather(run, mine, rows, row * sizeof(*mine)) : status;
    for (size_t from = 0; from < n; from++) {
        for (size_t i = 0; i < (size_t)sweeps; i++) {
            memcpy(ns + (i * n + from) * n, rows + from * row + i * n, n * sizeof(*ns));
        }
    }
    free(mine);
    free(rows);
    free(orders);
    if (status != WEFT_OK) {
        free(ns);
        return status;
    }
    *ns_p = ns;
    return WEFT_OK;
}

/* ---- how many --------------------------------------------------------------------------- */

/* Every rank in turn times some transfers to its neighbour. */
static weft_status_t try_transfers(weft_links_run_t *run, const weft_links_step_t *step)
{
    double *best = step->ctx, ns;
    int to = (step->leader + 1) % run->size;
    for (int i = 0; i < TRIES; i++) {
        if (run->rank == step->leader) {
            WEFT_TRY(weft__links_put(run, to, run->bytes, 1, &ns));
            *best = i == 0 || ns < *best ? ns : *best;
        } else {
            WEFT_TRY(weft__links_take(run, step->leader, run->bytes, 1));
        }
    }
    return WEFT_OK;
}

weft_status_t weft__links_plan(weft_links_run_t *run, double seconds, int most, int *sweeps_p)
{
    double ns = 0;
    WEFT_TRY(weft__links_meet(run));
    for (int rank = 0; rank < run->size; rank++) {
        int next = rank + 1 < run->size ? rank + 1 : -1;
        weft_links_step_t step = {
            rank, run->symm ? -1 : (rank + 1) % run->size, next, 0, try_transfers, &ns};
        WEFT_TRY(weft__links_step(run, &step));
    }
    WEFT_TRY(weft_allreduce(&ns, &ns, 1, WEFT_F64, WEFT_MIN, run->comm, NULL));
    run->ns = ns;
    double sample = weft__device_is_cuda() ? SAMPLE_CUDA_NS : SAMPLE_NS;
    double iters = ns > 0 ? sample / ns : ITERS_MOST;
    run->iters = iters < 1 ? 1 : iters > ITERS_MOST ? ITERS_MOST : (int)iters;
    double sweep = ns * run->iters * run->size * (run->size - 1) + STEP_NS * run->size;
    double sweeps = seconds * 1e9 / sweep;
    *sweeps_p = sweeps < SWEEPS_LEAST ? SWEEPS_LEAST : sweeps > most ? most : (int)sweeps;
    return WEFT_OK;
}

/* ---- do bytes arrive? ------------------------------------------------------------------- */

static unsigned char byte_of(const weft_links_run_t *run, int from, int to, size_t i)
{
    uint64_t mixed = (run->seed + (uint64_t)from * 7919 + (uint64_t)to * 104729 + i) *
                     0x9e3779b97f4a7c15ull;
    return (unsigned char)(mixed >> 56);
}

/* Pairs go one after the other, each through the host: 64 MiB of every one of 56 would take longer
 * than all measurements. All-to-all and all-reduces verify what they move as well. */
#define VERIFY_MOST ((size_t)1 << 20)

typedef struct verify {
    size_t bytes;
    uint64_t *wrong; /* [from] of this rank */
} verify_t;

/* The leader sends what only this link has; its partner looks. */
static weft_status_t verify_link(weft_links_run_t *run, const weft_links_step_t *step)
{
    const verify_t *verify = step->ctx;
    size_t bytes = verify->bytes;
    double unused;
    if (run->rank == step->leader) {
        for (size_t i = 0; i < bytes; i++) {
            run->host[i] = (char)byte_of(run, step->leader, step->partner, i);
        }
        WEFT_TRY(weft_memcpy(run->src, run->host, bytes, NULL));
        run->slot = 0;
        if (run->symm) {
            WEFT_TRY(weft__links_put(run, step->partner, bytes, 1, &unused));
            return weft__links_handshake(run, step, 1);
        }
        return weft__links_put(run, step->partner, bytes, 1, &unused);
    }
    if (run->symm) {
        WEFT_TRY(weft__links_handshake(run, step, 1));
    } else {
        WEFT_TRY(weft__links_take(run, step->leader, bytes, 1));
    }
    WEFT_TRY(weft_memcpy(run->host, run->dst, bytes, NULL));
    for (size_t i = 0; i < bytes; i++) {
        verify->wrong[step->leader] += (unsigned char)run->host[i] !=
                                       byte_of(run, step->leader, step->partner, i);
    }
    return WEFT_OK;
}

weft_status_t weft__links_verify(weft_links_run_t *run, weft_links_results_t *results)
{
    size_t n = (size_t)run->size;
    uint64_t *wrong = calloc(n + n * n, sizeof(*wrong));
    verify_t verify = {run->bytes < VERIFY_MOST ? run->bytes : VERIFY_MOST, wrong};
    results->verified = verify.bytes;
    weft_status_t status = wrong ? weft__links_meet(run)
                                 : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu ranks", n);
    for (int shift = 1; shift < run->size; shift++) {
        for (int from = 0; from < run->size && status == WEFT_OK; from++) {
            bool last = shift == run->size - 1 && from == run->size - 1;
            weft_links_step_t step = {from,
                                      (from + shift) % run->size,
                                      last ? -1 : (from + 1) % run->size,
                                      1,
                                      verify_link,
                                      &verify};
            status = weft__links_step(run, &step);
        }
    }
    status = status == WEFT_OK ? weft__links_gather(run, wrong, wrong + n, n * sizeof(*wrong))
                               : status;
    for (size_t i = 0; i < n * n && status == WEFT_OK; i++) {
        results->links[i].wrong = wrong[n + (i % n) * n + i / n];
    }
    free(wrong);
    return status;
}
