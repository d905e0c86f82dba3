#include "bench/pair.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "device/device.h"

#define MOST_ITERS 20000
#define TRIAL_NS 3.75e6 /* a loop that takes so long tells how many iterations fill a timed one */
#define HEAP_SLACK (64 << 10) /* granules, heads of structures */

/* ---- timing ----------------------------------------------------------------------------- */

weft_status_t weft__timed_loop(const weft_timed_t *timed, int iters, double *ns_p)
{
    iters = (iters + timed->unit - 1) / timed->unit * timed->unit;
    WEFT_TRY(weft_barrier(timed->comm, NULL));
    uint64_t start = weft__now_ns();
    WEFT_TRY(timed->loop(timed->ctx, iters));
    double ns = (double)(weft__now_ns() - start) / iters;
    WEFT_TRY(weft_allreduce(&ns, &ns, 1, WEFT_F64, WEFT_MAX, timed->comm, NULL));
    *ns_p = ns;
    return WEFT_OK;
}

weft_status_t weft__timed_fit(const weft_timed_t *timed, int *iters_p)
{
    double ns = 0;
    int iters = 1;
    WEFT_TRY(weft__timed_loop(timed, 2, &ns));
    for (;;) {
        WEFT_TRY(weft__timed_loop(timed, iters, &ns));
        if (ns * iters > TRIAL_NS || iters >= MOST_ITERS / 4) {
            break;
        }
        iters *= 4;
    }
    double fit = ns > 0 ? timed->target_ns / ns : MOST_ITERS;
    *iters_p = fit < timed->least ? timed->least : fit > MOST_ITERS ? MOST_ITERS : (int)fit;
    return WEFT_OK;
}

weft_status_t weft__timed_wrong(weft_comm_h comm, size_t wrong, size_t *all_p)
{
    uint64_t all = wrong;
    WEFT_TRY(weft_allreduce(&all, &all, 1, WEFT_U64, WEFT_SUM, comm, NULL));
    *all_p = (size_t)all;
    return WEFT_OK;
}

/* A way of a pair, as the timed loop runs it. */
typedef struct way {
    weft_pair_run_t *run;
    weft_pair_loop_fn loop;
} way_t;

static weft_status_t run_way(void *ctx, int iters)
{
    way_t *way = ctx;
    WEFT_TRY(way->loop(way->run, iters));
    return weft__pair_settle(way->run);
}

/* One loop of each way after the other, and that several times: whatever the machine does
 * meanwhile, it does to both. */
static weft_status_t time_both(weft_pair_run_t *run, const weft_bench_t *bench,
                               weft_pair_row_t *row)
{
    const weft_pair_t *pair = run->pair;
    const weft_pair_loop_fn loops[] = {pair->one_sided, pair->two_sided, pair->copy};
    weft_sample_t *const samples[] = {&row->one_sided, &row->two_sided, &row->copy};
    weft_timed_t timed[3];
    way_t ways[3];
    for (int i = 0; i < 3; i++) {
        ways[i] = (way_t){run, loops[i]};
        timed[i] = (weft_timed_t){run->comm, run_way, &ways[i], 15e6, 3, 1};
        samples[i]->iters = bench->iters;
        if (loops[i] && bench->iters == 0) {
            WEFT_TRY(weft__timed_fit(&timed[i], &samples[i]->iters));
        }
    }
    for (int n = 0; n < bench->repeat; n++) {
        for (int i = 0; i < 3; i++) {
            double ns;
            if (loops[i]) {
                WEFT_TRY(weft__timed_loop(&timed[i], samples[i]->iters, &ns));
                samples[i]->us[samples[i]->repeats++] = ns / run->parts / 1e3;
            }
        }
    }
    return WEFT_OK;
}

static weft_status_t check(weft_pair_run_t *run, const weft_bench_t *bench, weft_pair_row_t *row)
{
    size_t wrong = 0;
    if (!bench->check) {
        return WEFT_OK;
    }
    run->seed++;
    WEFT_TRY(weft_barrier(run->comm, NULL));
    WEFT_TRY(run->pair->check(run, &wrong));
    WEFT_TRY(weft__timed_wrong(run->comm, wrong, &wrong));
    row->wrong += wrong;
    return WEFT_OK;
}

/* The same on all ranks, another one in every run. */
static weft_status_t agree_on_seed(weft_pair_run_t *run)
{
    WEFT_TRY(weft__random_bytes(&run->seed, sizeof(run->seed)));
    return weft_broadcast(&run->seed, &run->seed, 1, WEFT_U64, 0, run->comm, NULL);
}

static weft_status_t measure_open(weft_pair_run_t *run, const weft_bench_t *bench,
                                  weft_pair_row_t *row)
{
    WEFT_TRY(agree_on_seed(run));
    WEFT_TRY(run->pair->open(run));
    WEFT_TRY(check(run, bench, row));
    WEFT_TRY(time_both(run, bench, row));
    return check(run, bench, row);
}

static size_t round_up(const weft_pair_t *pair, int ranks, size_t bytes)
{
    size_t unit = pair->unit ? pair->unit * (pair->shards ? (size_t)ranks : 1) : 1;
    return pair->max == 0 ? 0 : (bytes + unit - 1) / unit * unit;
}

weft_status_t weft__pair_measure(const weft_bench_t *bench, const weft_pair_t *pair,
                                 weft_comm_h comm, size_t bytes, weft_pair_row_t *row_p)
{
    weft_pair_run_t run = {.pair = pair,
                           .comm = comm,
                           .rank = comm->rank,
                           .size = comm->size,
                           .bytes = round_up(pair, comm->size, bytes),
                           .parts = 1};
    char why[WEFT_ERROR_TEXT]; /* cleaning up may fail as well */
    *row_p = (weft_pair_row_t){.pair = pair, .ranks = run.size, .bytes = run.bytes};
    WEFT_TRY(weft_symm_create(comm, (pair->heap ? pair->heap(&run) : 0) + HEAP_SLACK, &run.symm));
    weft_status_t status = weft__device_is_cuda() ? weft_stream_create(&run.stream) : WEFT_OK;
    status = status == WEFT_OK ? measure_open(&run, bench, row_p) : status;
    snprintf(why, sizeof(why), "%s", status == WEFT_OK ? "" : weft_last_error());
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

static weft_status_t refuse(const weft_pair_t *pair, weft_comm_h comm)
{
    if (comm->size < pair->ranks) {
        return weft__fail(WEFT_ERR_INVALID,
                          "%s needs %d ranks or more, and there %s %d: give -n %d", pair->target,
                          pair->ranks, comm->size == 1 ? "is" : "are", comm->size, pair->ranks);
    }
    if (weft__device_is_cuda() && !pair->gpu) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "%s runs on virtual GPUs only: leave --device cuda out", pair->target);
    }
    return WEFT_OK;
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

static weft_status_t bench_pair(const weft_bench_t *bench, const weft_pair_t *pair,
                                weft_comm_h comm, weft_pair_table_t *table, size_t *wrong_p)
{
    size_t bytes, last;
    WEFT_TRY(refuse(pair, comm));
    weft__pair_range(bench, pair, &bytes, &last);
    for (bool sized = pair->max > 0; bytes <= last || !sized;) {
        weft_pair_row_t row;
        WEFT_TRY(weft__pair_measure(bench, pair, comm, bytes, &row));
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

/* ---- for pairs -------------------------------------------------------------------------- */

weft_status_t weft__pair_settle(const weft_pair_run_t *run)
{
    if (!run->stream) {
        return WEFT_OK;
    }
    WEFT_TRY(weft_stream_synchronize(run->stream));
    return weft_symm_error(run->symm);
}

weft_status_t weft__pair_copy(const weft_pair_run_t *run, void *dst, const void *src, size_t bytes,
                              int rounds)
{
    for (int i = 0; i < rounds; i++) {
        if (run->stream) {
            WEFT_TRY(weft_memcpy(dst, src, bytes, run->stream));
        } else {
            memcpy(dst, src, bytes);
            __asm__ volatile("" ::: "memory"); /* all of them count, not just the last */
        }
    }
    return WEFT_OK;
}

weft_status_t weft__pair_await(const weft_pair_run_t *run, const uint64_t *lines, uint64_t value)
{
    for (int n = 1; n < run->size; n++) {
        int from = (run->rank + run->size - n) % run->size;
        WEFT_TRY(weft_symm_signal_wait(run->symm, lines + from * WEFT_PAIR_LINE, WEFT_CMP_GE, value,
                                       NULL));
    }
    return WEFT_OK;
}

weft_status_t weft__pair_ctx(weft_pair_run_t *run, size_t bytes, void **ctx_p)
{
    *ctx_p = run->ctx = calloc(1, bytes);
    return run->ctx ? WEFT_OK : weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a benchmark's state");
}

static weft_status_t own(weft_pair_run_t *run, void *memory, weft_status_t (*release)(void *))
{
    if (run->owned_count == WEFT_PAIR_OWNED) {
        release(memory);
        return weft__fail(WEFT_ERR_INVALID, "%s allocates more than %d buffers", run->pair->target,
                          WEFT_PAIR_OWNED);
    }
    run->owned[run->owned_count].memory = memory;
    run->owned[run->owned_count++].release = release;
    return WEFT_OK;
}

weft_status_t weft__pair_device(weft_pair_run_t *run, size_t bytes, void **memory_p)
{
    WEFT_TRY(weft_malloc(memory_p, bytes));
    return own(run, *memory_p, weft_free);
}

weft_status_t weft__pair_host(weft_pair_run_t *run, size_t bytes, void **memory_p)
{
    WEFT_TRY(weft_host_malloc(memory_p, bytes));
    return own(run, *memory_p, weft_host_free);
}

static weft_status_t free_private(void *memory)
{
    free(memory);
    return WEFT_OK;
}

weft_status_t weft__pair_private(weft_pair_run_t *run, size_t bytes, void **memory_p)
{
    size_t room = (bytes + 4095) / 4096 * 4096 + 4096;
    *memory_p = aligned_alloc(4096, room);
    if (!*memory_p) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes of data", bytes);
    }
    memset(*memory_p, 0, room);
    return own(run, *memory_p, free_private);
}

float weft__pair_value(uint64_t seed, int rank, size_t i)
{
    uint64_t mixed = (seed + (uint64_t)rank * 40503u + i) * 0x9e3779b97f4a7c15ull;
    return (float)(mixed >> 60) - 7.0f;
}

void weft__pair_fill(float *to, uint64_t seed, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = weft__pair_value(seed, rank, i);
    }
}
