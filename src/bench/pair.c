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

#define TARGET_NS 15e6 /* length of a timed loop */
#define MOST_ROUNDS 20000
#define LEAST_ROUNDS 3
#define HEAP_SLACK (64 << 10) /* granules, heads of structures */

/* ---- timing ----------------------------------------------------------------------------- */

/* Nanoseconds of a part of a round, by the slowest rank; the same on all. */
static weft_status_t time_loop(weft_pair_run_t *run, weft_pair_loop_fn loop, int rounds,
                               double *ns_p)
{
    WEFT_TRY(weft_barrier(run->comm, NULL));
    uint64_t start = weft__now_ns();
    WEFT_TRY(loop(run, rounds));
    WEFT_TRY(weft__pair_settle(run));
    double ns = (double)(weft__now_ns() - start) / rounds;
    WEFT_TRY(weft_allreduce(&ns, &ns, 1, WEFT_F64, WEFT_MAX, run->comm, NULL));
    *ns_p = ns / run->parts;
    return WEFT_OK;
}

static weft_status_t fit_rounds(weft_pair_run_t *run, weft_pair_loop_fn loop, int *rounds_p)
{
    double ns = 0;
    int rounds = 1;
    WEFT_TRY(time_loop(run, loop, 2, &ns));
    for (;;) {
        WEFT_TRY(time_loop(run, loop, rounds, &ns));
        ns *= run->parts;
        if (ns * rounds > TARGET_NS / 4 || rounds >= MOST_ROUNDS / 4) {
            break;
        }
        rounds *= 4;
    }
    double fit = ns > 0 ? TARGET_NS / ns : MOST_ROUNDS;
    *rounds_p = fit < LEAST_ROUNDS ? LEAST_ROUNDS : fit > MOST_ROUNDS ? MOST_ROUNDS : (int)fit;
    return WEFT_OK;
}

/* One loop of each way after the other, and that several times: whatever the machine does meanwhile,
 * it does to both. */
static weft_status_t time_both(weft_pair_run_t *run, const weft_bench_t *bench,
                               weft_pair_row_t *row)
{
    const weft_pair_t *pair = run->pair;
    const weft_pair_loop_fn loops[] = {pair->one_sided, pair->two_sided, pair->copy};
    weft_sample_t *const samples[] = {&row->one_sided, &row->two_sided, &row->copy};
    for (int way = 0; way < 3; way++) {
        samples[way]->iters = bench->iters;
        if (loops[way] && bench->iters == 0) {
            WEFT_TRY(fit_rounds(run, loops[way], &samples[way]->iters));
        }
    }
    for (int i = 0; i < bench->repeat; i++) {
        for (int way = 0; way < 3; way++) {
            double ns;
            if (loops[way]) {
                WEFT_TRY(time_loop(run, loops[way], samples[way]->iters, &ns));
                samples[way]->us[samples[way]->repeats++] = ns / 1e3;
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
    uint64_t all = wrong;
    WEFT_TRY(weft_allreduce(&all, &all, 1, WEFT_U64, WEFT_SUM, run->comm, NULL));
    row->wrong += (size_t)all;
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
    if (run.ctx) {
        pair->close(&run);
    }
    free(run.ctx);
    if (run.stream) {
        weft_stream_destroy(run.stream);
    }
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
    weft_pair_table_t *table = NULL;
    weft_status_t status = WEFT_OK;
    *wrong_p = 0;
    if (comm->rank == 0) {
        WEFT_TRY(weft__pair_table_open(bench, comm->size, &table));
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

weft_status_t weft__pair_private(size_t bytes, void **memory_p)
{
    size_t room = (bytes + 4095) / 4096 * 4096 + 4096;
    *memory_p = aligned_alloc(4096, room);
    if (!*memory_p) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for %zu bytes of data", bytes);
    }
    memset(*memory_p, 0, room);
    return WEFT_OK;
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
