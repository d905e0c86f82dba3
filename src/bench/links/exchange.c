/* Two ranks at once: both ways, and latency. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/median.h"
#include "base/rng.h"
#include "bench/links/judge.h"
#include "bench/links/run.h"
#include "bench/patterns/gpu.h"
#include "comm/comm.h"

#define BOTH_NS 600e3    /* transfers of one direction take about so long */
#define BOTH_CUDA_NS 4e6 /* ... on GPUs, where meeting takes longer */
#define BOTH_MOST 256    /* transfers */
#define ROUNDS 100       /* to and fro */
#define PING_BYTES 8

typedef struct exchange {
    double *both_ns;    /* of this rank as leader, [to]: of one transfer each way */
    double *latency_ns; /* likewise, one way */
    int iters;
    weft_symm_view_t view; /* GPUs: of the heap, for kernels */
    bool kernels;          /* latency is measured inside kernels */
    double *result;        /* pinned: of a kernel */
} exchange_t;

static int other_of(const weft_links_run_t *run, const weft_links_step_t *step)
{
    return run->rank == step->leader ? step->partner : step->leader;
}

/* ---- both ways -------------------------------------------------------------------------- */

static weft_status_t swap_messages(weft_links_run_t *run, int other, int iters)
{
    for (int i = 0; i < iters; i++) {
        WEFT_TRY(weft_group_start());
        weft_status_t status = weft_send(run->src, run->bytes, WEFT_U8, other, run->comm,
                                         run->stream);
        status = status == WEFT_OK
                     ? weft_recv(run->dst, run->bytes, WEFT_U8, other, run->comm, run->stream)
                     : status;
        weft_status_t ended = weft_group_end();
        WEFT_TRY(status);
        WEFT_TRY(ended);
    }
    return weft__links_settle(run);
}

/* From when both are ready until both are done, by the leader's clock. It starts before the second
 * handshake: where the two share a core, the partner may have done everything before the leader
 * gets to look at the clock after it. */
static weft_status_t both_ways(weft_links_run_t *run, const weft_links_step_t *step)
{
    exchange_t *exchange = step->ctx;
    int other = other_of(run, step);
    double unused;
    WEFT_TRY(weft__links_handshake(run, step, 1));
    uint64_t began = weft__now_ns();
    WEFT_TRY(weft__links_handshake(run, step, 2));
    if (run->symm) {
        WEFT_TRY(weft__links_put(run, other, run->bytes, exchange->iters, &unused));
    } else {
        WEFT_TRY(swap_messages(run, other, exchange->iters));
    }
    WEFT_TRY(weft__links_handshake(run, step, 3));
    if (run->rank == step->leader) {
        exchange->both_ns[other] = (double)(weft__now_ns() - began) / exchange->iters;
    }
    return WEFT_OK;
}

/* ---- latency ---------------------------------------------------------------------------- */

/* Inside a kernel, which knows ranks 0 and 1: to it the heap is that of the two. */
static weft_status_t ping_kernel(weft_links_run_t *run, const weft_links_step_t *step, double *ns_p)
{
    exchange_t *exchange = step->ctx;
    weft_symm_view_t view = exchange->view;
    view.rank = run->rank == step->partner;
    view.size = 2;
    view.base[0] = exchange->view.base[step->leader];
    view.base[1] = exchange->view.base[step->partner];
    weft_bench_ping_t ping = {.bytes = PING_BYTES,
                              .rounds = ROUNDS,
                              .base = run->ticks,
                              .buffer = run->dst,
                              .signal = run->ping,
                              .result = exchange->result};
    int error = weft__bench_kernels()->ping(weft__bench_gpu(run->comm), &view, &ping,
                                            weft__cuda_stream(run->stream));
    WEFT_TRY(weft__cuda_status(error, "the kernel of a ping"));
    WEFT_TRY(weft__links_settle(run));
    *ns_p = exchange->result[0];
    return WEFT_OK;
}

/* One message of the ping-pong; `sends`: from here. */
static weft_status_t ping(weft_links_run_t *run, int other, bool sends, uint64_t value)
{
    if (!run->symm) {
        return sends ? weft_send(run->src, PING_BYTES, WEFT_U8, other, run->comm, run->stream)
                     : weft_recv(run->dst, PING_BYTES, WEFT_U8, other, run->comm, run->stream);
    }
    return sends ? weft_symm_put_signal(run->symm, run->dst, run->src, PING_BYTES, run->ping, value,
                                        WEFT_SIGNAL_SET, other, run->stream)
                 : weft_symm_signal_wait(run->symm, run->ping, WEFT_CMP_GE, value, run->stream);
}

static weft_status_t latency(weft_links_run_t *run, const weft_links_step_t *step)
{
    exchange_t *exchange = step->ctx;
    bool leads = run->rank == step->leader;
    int other = other_of(run, step);
    WEFT_TRY(weft__links_handshake(run, step, 1));
    uint64_t began = weft__now_ns();
    double ns = 0;
    if (exchange->kernels) {
        WEFT_TRY(ping_kernel(run, step, &ns));
    } else {
        for (int i = 0; i < ROUNDS; i++) {
            uint64_t value = run->ticks + 1 + (uint64_t)i;
            WEFT_TRY(ping(run, other, leads, value));
            WEFT_TRY(ping(run, other, !leads, value));
        }
        WEFT_TRY(weft__links_settle(run));
        ns = (double)(weft__now_ns() - began) / ROUNDS / 2;
    }
    if (leads) {
        exchange->latency_ns[other] = ns;
    }
    return WEFT_OK;
}

/* ---- all links -------------------------------------------------------------------------- */

/* Every link once, in random order. */
static weft_status_t each_link(weft_links_run_t *run, exchange_t *exchange, int *order,
                               weft_links_step_t step)
{
    int n = run->size, last = -1;
    weft__shuffle(run->seed + (run->steps << 20), 0, order, n * n);
    step.ctx = exchange;
    WEFT_TRY(weft__links_meet(run));
    for (int i = 0; i < n * n; i++) {
        if (order[i] / n == order[i] % n) {
            continue;
        }
        if (last >= 0) {
            step.leader = last / n;
            step.partner = last % n;
            step.next = order[i] / n;
            WEFT_TRY(weft__links_step(run, &step));
        }
        last = order[i];
    }
    step.leader = last / n;
    step.partner = last % n;
    step.next = -1;
    return weft__links_step(run, &step);
}

/* Kernels must be there before one of them waits for another. */
static weft_status_t load_kernels(weft_links_run_t *run, exchange_t *exchange)
{
    exchange->kernels = run->stream && run->symm && run->size <= WEFT_SYMM_VIEW_RANKS &&
                        weft__bench_kernels() != NULL;
    if (!exchange->kernels) {
        return WEFT_OK;
    }
    WEFT_TRY(weft__bench_load(run->comm));
    WEFT_TRY(weft_symm_view(run->symm, &exchange->view));
    return weft_host_malloc((void **)&exchange->result, 2 * sizeof(double));
}

/* The median over repeats, of every link, from all ranks. */
static weft_status_t collect(const weft_links_run_t *run, double *mine, int repeats, double *all,
                             double *room)
{
    int n = run->size;
    for (int to = 0; to < n; to++) {
        for (int i = 0; i < repeats; i++) {
            room[i] = mine[(size_t)i * (size_t)n + (size_t)to];
        }
        mine[to] = weft__median(room, (size_t)repeats);
    }
    return weft__links_gather(run, mine, all, (size_t)n * sizeof(*mine));
}

static weft_status_t measure(weft_links_run_t *run, exchange_t *exchange, int repeats, int *order,
                             double *rows)
{
    size_t n = (size_t)run->size;
    double *both = rows, *late = rows + (size_t)repeats * n;
    WEFT_TRY(load_kernels(run, exchange));
    for (int i = 0; i < repeats; i++) {
        weft_links_step_t both_step = {.ticks = 3, .work = both_ways};
        weft_links_step_t late_step = {.ticks = 1 + ROUNDS, .work = latency};
        exchange->both_ns = both + (size_t)i * n;
        exchange->latency_ns = late + (size_t)i * n;
        WEFT_TRY(each_link(run, exchange, order, both_step));
        WEFT_TRY(each_link(run, exchange, order, late_step));
    }
    return WEFT_OK;
}

weft_status_t weft__links_exchange(weft_links_run_t *run, int repeats,
                                   weft_links_results_t *results)
{
    size_t n = (size_t)run->size, row = (size_t)repeats * n;
    double *rows = calloc(2 * row + n * n + (size_t)repeats, sizeof(*rows));
    int *order = calloc(n * n, sizeof(*order));
    double *all = rows + 2 * row, *room = all + n * n;
    exchange_t exchange = {.iters = run->iters};
    double fit = run->ns > 0 ? (run->stream ? BOTH_CUDA_NS : BOTH_NS) / run->ns : 1;
    exchange.iters = fit < 1 ? 1 : fit > BOTH_MOST ? BOTH_MOST : (int)fit;
    weft_status_t status = rows && order
                               ? measure(run, &exchange, repeats, order, rows)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu ranks", n);
    status = status == WEFT_OK ? collect(run, rows, repeats, all, room) : status;
    for (size_t i = 0; i < n * n && status == WEFT_OK; i++) {
        results->links[i].both_ways_gbs = all[i] > 0 ? 2 * (double)run->bytes / all[i] : 0;
    }
    status = status == WEFT_OK ? collect(run, rows + row, repeats, all, room) : status;
    for (size_t i = 0; i < n * n && status == WEFT_OK; i++) {
        results->links[i].latency_us = all[i] / 1e3;
    }
    weft_host_free(exchange.result);
    free(rows);
    free(order);
    return status;
}
