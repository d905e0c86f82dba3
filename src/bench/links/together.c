/* All ranks at work: shifted permutations, all-to-all, and all-reduce by different algorithms. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/median.h"
#include "bench/links/judge.h"
#include "bench/links/run.h"
#include "comm/backends.h"
#include "comm/comm.h"

#define LOOP_NS 2e6
#define LOOP_MOST 256
#define REPEATS_MOST 64
#define BLOCK_MOST ((size_t)8 << 20) /* all-to-all: to each rank */

typedef struct loop {
    weft_status_t (*work)(weft_links_run_t *run, const struct loop *loop);
    int shift;    /* permutations */
    size_t bytes; /* all-reduce: all of it; all-to-all: of a block */
    char *src, *dst;
} loop_t;

typedef struct together {
    weft_links_run_t *run;
    weft_links_results_t *results;
    int repeats;
    int rows;       /* that are still to come, at most */
    double left_ns; /* for them */
} together_t;

/* ---- one round -------------------------------------------------------------------------- */

static weft_status_t permute(weft_links_run_t *run, const loop_t *loop)
{
    int to = (run->rank + loop->shift) % run->size,
        from = (run->rank + run->size - loop->shift) % run->size;
    if (run->symm) {
        char *dst = run->dst + run->slot++ % run->slots * run->bytes;
        WEFT_TRY(weft_symm_put(run->symm, dst, run->src, run->bytes, to, run->stream));
        return weft_symm_quiet(run->symm, run->stream);
    }
    WEFT_TRY(weft_group_start());
    weft_status_t status = weft_send(run->src, run->bytes, WEFT_U8, to, run->comm, run->stream);
    status = status == WEFT_OK
                 ? weft_recv(run->dst, run->bytes, WEFT_U8, from, run->comm, run->stream)
                 : status;
    weft_status_t ended = weft_group_end();
    WEFT_TRY(status);
    return ended;
}

static weft_status_t exchange_all(weft_links_run_t *run, const loop_t *loop)
{
    return weft_alltoall(loop->src, loop->dst, loop->bytes, WEFT_U8, run->comm, run->stream);
}

static weft_status_t reduce_all(weft_links_run_t *run, const loop_t *loop)
{
    return weft_allreduce(loop->src, loop->dst, loop->bytes / sizeof(float), WEFT_F32, WEFT_SUM,
                          run->comm, run->stream);
}

/* ---- timing ----------------------------------------------------------------------------- */

/* From the first barrier to the second, which no rank leaves before all are done. Whoever left the
 * first one earliest knows how long it took: ranks that share a core begin one after the other. */
static weft_status_t time_loop(weft_links_run_t *run, const loop_t *loop, int iters, double *own_p,
                               double *all_p)
{
    WEFT_TRY(weft_barrier(run->comm, NULL));
    uint64_t began = weft__now_ns();
    for (int i = 0; i < iters; i++) {
        WEFT_TRY(loop->work(run, loop));
    }
    WEFT_TRY(weft__links_settle(run));
    *own_p = (double)(weft__now_ns() - began) / iters;
    WEFT_TRY(weft_barrier(run->comm, NULL));
    double ns = (double)(weft__now_ns() - began) / iters;
    return weft_allreduce(&ns, all_p, 1, WEFT_F64, WEFT_MAX, run->comm, NULL);
}

/* Medians over up to `repeats` loops: of this rank's own time, and of all ranks' together. On a
 * machine that others use a collective of many ranks may take a hundred times as long as usual, so
 * each row has its share of the time that is left: it is spent as all ranks saw it, and all of them
 * stop at the same loop. */
static weft_status_t time_median(together_t *t, const loop_t *loop, double *mine_p, double *all_p)
{
    double first, mine[REPEATS_MOST], all[REPEATS_MOST];
    double share = t->left_ns / (t->rows > 0 ? t->rows : 1), spent;
    int count = 0, repeats = t->repeats > REPEATS_MOST ? REPEATS_MOST : t->repeats;
    WEFT_TRY(time_loop(t->run, loop, 1, mine, &first));
    spent = first;
    double target = share / (repeats + 1) < LOOP_NS ? share / (repeats + 1) : LOOP_NS;
    double fit = first > 0 ? target / first : LOOP_MOST;
    int iters = fit < 1 ? 1 : fit > LOOP_MOST ? LOOP_MOST : (int)fit;
    do {
        WEFT_TRY(time_loop(t->run, loop, iters, &mine[count], &all[count]));
        spent += all[count] * iters;
    } while (++count < repeats && spent < share);
    t->left_ns = t->left_ns > spent ? t->left_ns - spent : 0;
    t->rows--;
    *mine_p = weft__median(mine, (size_t)count);
    *all_p = weft__median(all, (size_t)count);
    return WEFT_OK;
}

/* ---- all-to-all ------------------------------------------------------------------------- */

static unsigned char block_byte(const weft_links_run_t *run, int from, int to, size_t i)
{
    return (unsigned char)((run->seed + (uint64_t)from * 31 + (uint64_t)to * 7 + i) % 251);
}

/* Blocks from everybody, each with bytes that only this link has. */
static weft_status_t check_alltoall(weft_links_run_t *run, const loop_t *loop, char *host,
                                    weft_links_results_t *results)
{
    uint64_t wrong = 0;
    for (int to = 0; to < run->size; to++) {
        for (size_t i = 0; i < loop->bytes; i++) {
            host[(size_t)to * loop->bytes + i] = (char)block_byte(run, run->rank, to, i);
        }
    }
    size_t all = loop->bytes * (size_t)run->size;
    WEFT_TRY(weft_memcpy(loop->src, host, all, NULL));
    WEFT_TRY(exchange_all(run, loop));
    WEFT_TRY(weft__links_settle(run));
    WEFT_TRY(weft_memcpy(host, loop->dst, all, NULL));
    for (int from = 0; from < run->size; from++) {
        for (size_t i = 0; i < loop->bytes; i++) {
            unsigned char got = (unsigned char)host[(size_t)from * loop->bytes + i];
            wrong += got != block_byte(run, from, run->rank, i);
        }
    }
    return weft_allreduce(&wrong, &results->alltoall_wrong, 1, WEFT_U64, WEFT_SUM, run->comm, NULL);
}

static weft_status_t measure_alltoall(together_t *t)
{
    weft_links_run_t *run = t->run;
    weft_links_results_t *results = t->results;
    loop_t loop = {.work = exchange_all,
                   .bytes = run->bytes < BLOCK_MOST ? run->bytes : BLOCK_MOST};
    double mine, slowest, others = (double)loop.bytes * (run->size - 1);
    size_t all = loop.bytes * (size_t)run->size;
    void *host = NULL;
    WEFT_TRY(weft_malloc((void **)&run->all[0], all));
    WEFT_TRY(weft_malloc((void **)&run->all[1], all));
    loop.src = run->all[0];
    loop.dst = run->all[1];
    WEFT_TRY(weft_host_malloc(&host, all));
    weft_status_t status = check_alltoall(run, &loop, host, results);
    weft_host_free(host);
    WEFT_TRY(status);
    WEFT_TRY(time_median(t, &loop, &mine, &slowest));
    double gbs = others / mine;
    results->alltoall_sum = others * run->size / slowest;
    return weft__links_gather(run, &gbs, results->alltoall, sizeof(gbs));
}

/* ---- all-reduce ------------------------------------------------------------------------- */

/* Whole numbers: their sums are exact in any order. */
static weft_status_t check_allreduce(weft_links_run_t *run, const loop_t *loop, float *host,
                                     uint64_t *wrong_p)
{
    size_t count = loop->bytes / sizeof(float);
    uint64_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        host[i] = (float)(run->rank + 1) + (float)(i % 5);
    }
    WEFT_TRY(weft_memcpy(loop->src, host, loop->bytes, NULL));
    WEFT_TRY(reduce_all(run, loop));
    WEFT_TRY(weft__links_settle(run));
    WEFT_TRY(weft_memcpy(host, loop->dst, loop->bytes, NULL));
    for (size_t i = 0; i < count; i++) {
        int n = run->size;
        wrong += host[i] != (float)(n * (n + 1) / 2) + (float)n * (float)(i % 5);
    }
    return weft_allreduce(&wrong, wrong_p, 1, WEFT_U64, WEFT_SUM, run->comm, NULL);
}

static weft_status_t measure_row(together_t *t, const loop_t *loop, const char *name)
{
    weft_links_reduce_t *row = &t->results->reduce[t->results->reduces];
    double mine, all;
    void *host;
    *row = (weft_links_reduce_t){.algo = name, .bytes = loop->bytes};
    WEFT_TRY(weft_host_malloc(&host, loop->bytes));
    weft_status_t status = check_allreduce(t->run, loop, host, &row->wrong);
    weft_host_free(host);
    WEFT_TRY(status);
    WEFT_TRY(time_median(t, loop, &mine, &all));
    row->us = all / 1e3;
    t->results->reduces++;
    return WEFT_OK;
}

/* Every algorithm that this communicator has for the size; if its library chooses, that one. */
static weft_status_t measure_size(together_t *t, const loop_t *loop)
{
    static const weft_algo_t algos[WEFT_LINKS_ALGOS] = {WEFT_ALGO_RING, WEFT_ALGO_TREE,
                                                        WEFT_ALGO_DIRECT, WEFT_ALGO_ONESHOT};
    weft_links_run_t *run = t->run;
    weft_tuner_t *tuner = &run->comm->tuner, kept = *tuner;
    weft_status_t status = WEFT_OK;
    if (!run->comm->host) {
        return measure_row(t, loop, run->comm->backend->name);
    }
    for (int i = 0; i < WEFT_LINKS_ALGOS && status == WEFT_OK; i++) {
        tuner->forced[WEFT_COLL_ALLREDUCE] = algos[i];
        weft__tuner_settle(tuner, run->size, kept.oversubscribed);
        weft_choice_t choice = weft__comm_choose(run->comm, WEFT_COLL_ALLREDUCE, loop->bytes);
        bool fits = algos[i] != WEFT_ALGO_ONESHOT || loop->bytes <= WEFT_SLOT_BYTES;
        if (choice.algo == algos[i] && fits) { /* kernels of GPUs do not know all of them */
            status = measure_row(t, loop, weft__algo_name(algos[i]));
        }
    }
    *tuner = kept;
    return status;
}

static weft_status_t measure_allreduces(together_t *t)
{
    static const size_t sizes[WEFT_LINKS_SIZES] = {32 << 10, 1 << 20, 8 << 20};
    void *buffers[2] = {NULL, NULL};
    size_t most = sizes[WEFT_LINKS_SIZES - 1];
    weft_status_t status = weft_malloc(&buffers[0], most);
    status = status == WEFT_OK ? weft_malloc(&buffers[1], most) : status;
    for (int size = 0; size < WEFT_LINKS_SIZES && status == WEFT_OK; size++) {
        loop_t loop = {
            .work = reduce_all, .bytes = sizes[size], .src = buffers[0], .dst = buffers[1]};
        status = measure_size(t, &loop);
    }
    weft_free(buffers[0]);
    weft_free(buffers[1]);
    return status;
}

weft_status_t weft__links_together(weft_links_run_t *run, int repeats, double seconds,
                                   weft_links_results_t *results)
{
    together_t t = {run, results, repeats, run->size + WEFT_LINKS_ALGOS * WEFT_LINKS_SIZES,
                    seconds * 1e9};
    double mine, all;
    for (int shift = 1; shift < run->size; shift++) {
        loop_t loop = {.work = permute, .shift = shift};
        WEFT_TRY(time_median(&t, &loop, &mine, &all));
        results->permutations[shift - 1] = (double)run->bytes * run->size / all;
    }
    WEFT_TRY(measure_alltoall(&t));
    return measure_allreduces(&t);
}
