/* Buffers, transfers, and who may measure now. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/settings.h"
#include "bench/links/run.h"
#include "comm/comm.h"

#define HEAP_SLACK (64 << 10)
#define LINE 8 /* words of a cache line */

/* ---- buffers ---------------------------------------------------------------------------- */

/* "2:5:30": transfers from rank 2 to rank 5 take 30% longer. */
static weft_status_t read_planted(weft_links_run_t *run)
{
    const char *text = weft__settings()->test_slow_link;
    int *const fields[] = {&run->slow_from, &run->slow_to, &run->slow_percent};
    char copy[64], *rest = copy;
    bool good = strlen(text) < sizeof(copy);
    run->slow_from = run->slow_to = -1;
    if (text[0] == '\0') {
        return WEFT_OK;
    }
    snprintf(copy, sizeof(copy), "%s", text);
    for (int i = 0; i < 3 && good; i++) {
        const char *field = strsep(&rest, ":");
        good = field != NULL && weft__parse_int(field, fields[i]) && *fields[i] >= 0;
    }
    if (!good || rest != NULL) {
        return weft__fail(WEFT_ERR_INVALID,
                          "WEFT_TEST_SLOW_LINK is \"%.100s\", not FROM:TO:PERCENT, as 2:5:30",
                          text);
    }
    if (run->slow_from >= run->comm->size || run->slow_to >= run->comm->size ||
        run->slow_from == run->slow_to) {
        return weft__fail(WEFT_ERR_INVALID,
                          "WEFT_TEST_SLOW_LINK is \"%.100s\", and there is no such link: ranks are "
                          "0 to %d",
                          text, run->comm->size - 1);
    }
    return WEFT_OK;
}

static weft_status_t open_symmetric(weft_links_run_t *run)
{
    void *words;
    weft_status_t status = weft_symm_create(run->comm, run->slots * run->bytes + HEAP_SLACK,
                                            &run->symm);
    if (status == WEFT_ERR_UNSUPPORTED) {
        run->symm = NULL; /* messages, then */
        return weft_malloc((void **)&run->dst, run->slots * run->bytes);
    }
    WEFT_TRY(status);
    WEFT_TRY(weft_symm_malloc(run->symm, run->slots * run->bytes, (void **)&run->dst));
    WEFT_TRY(weft_symm_malloc(run->symm, 3 * LINE * sizeof(uint64_t), &words));
    run->go = words;
    run->tick = run->go + LINE;
    run->ping = run->tick + LINE;
    return WEFT_OK;
}

weft_status_t weft__links_open(weft_links_run_t *run)
{
    WEFT_TRY(read_planted(run));
    WEFT_TRY(weft__random_bytes(&run->seed, sizeof(run->seed)));
    WEFT_TRY(weft_broadcast(&run->seed, &run->seed, 1, WEFT_U64, 0, run->comm, NULL));
    if (weft__device_is_cuda()) {
        WEFT_TRY(weft_stream_create(&run->stream));
        WEFT_TRY(weft_event_create(&run->begin));
        WEFT_TRY(weft_event_create(&run->end));
    }
    WEFT_TRY(open_symmetric(run));
    WEFT_TRY(weft_malloc((void **)&run->src, run->bytes));
    WEFT_TRY(weft_host_malloc((void **)&run->host, run->bytes));
    memset(run->host, 1, run->bytes);
    WEFT_TRY(weft_memcpy(run->src, run->host, run->bytes, NULL));
    for (size_t i = 0; i < run->slots; i++) { /* its pages become real, near their owner */
        WEFT_TRY(weft_memcpy(run->dst + i * run->bytes, run->host, run->bytes, NULL));
    }
    run->slot = (size_t)run->rank;
    return weft__links_meet(run);
}

void weft__links_close(weft_links_run_t *run)
{
    weft_stream_destroy(run->stream);
    weft_event_destroy(run->begin);
    weft_event_destroy(run->end);
    weft_host_free(run->host);
    weft_free(run->src);
    weft_free(run->all[0]);
    weft_free(run->all[1]);
    if (run->symm) {
        weft_symm_destroy(run->symm);
    } else {
        weft_free(run->dst);
    }
}

/* ---- who works now ---------------------------------------------------------------------- */

weft_status_t weft__links_meet(weft_links_run_t *run)
{
    run->met = true;
    return weft_barrier(run->comm, NULL);
}

static weft_status_t await(const weft_links_run_t *run, const uint64_t *word, uint64_t value)
{
    return weft_symm_signal_wait(run->symm, word, WEFT_CMP_GE, value, NULL);
}

static weft_status_t tell(const weft_links_run_t *run, uint64_t *word, uint64_t value, int rank)
{
    return weft_symm_signal_op(run->symm, word, value, WEFT_SIGNAL_SET, rank, NULL);
}

/* The leader wakes its partner, and when both are done whoever leads the next step. */
static weft_status_t step_by_signals(weft_links_run_t *run, const weft_links_step_t *step, bool met)
{
    if (run->rank == step->partner) {
        WEFT_TRY(await(run, run->tick, run->ticks));
        return step->work(run, step);
    }
    if (run->rank != step->leader) {
        return WEFT_OK;
    }
    if (!met) {
        WEFT_TRY(await(run, run->go, run->steps));
    }
    if (step->partner >= 0) {
        WEFT_TRY(tell(run, run->tick, run->ticks, step->partner));
    }
    WEFT_TRY(step->work(run, step));
    return step->next < 0 ? WEFT_OK : tell(run, run->go, run->steps + 1, step->next);
}

weft_status_t weft__links_step(weft_links_run_t *run, const weft_links_step_t *step)
{
    weft_status_t status = WEFT_OK;
    bool met = run->met;
    run->met = false;
    run->steps++;
    run->ticks++;
    if (run->symm) {
        status = step_by_signals(run, step, met);
    } else {
        status = weft_barrier(run->comm, NULL);
        if (status == WEFT_OK && (run->rank == step->leader || run->rank == step->partner)) {
            status = step->work(run, step);
        }
    }
    run->ticks += (uint64_t)step->ticks;
    return status;
}

weft_status_t weft__links_handshake(weft_links_run_t *run, const weft_links_step_t *step, int tick)
{
    bool leads = run->rank == step->leader;
    int other = leads ? step->partner : step->leader;
    uint64_t value = run->ticks + (uint64_t)tick;
    if (run->symm) {
        WEFT_TRY(tell(run, run->tick, value, other));
        return await(run, run->tick, value);
    }
    WEFT_TRY(weft_group_start());
    weft_status_t status = weft_send(run->src, 1, WEFT_U8, other, run->comm, run->stream);
    status = status == WEFT_OK ? weft_recv(run->dst, 1, WEFT_U8, other, run->comm, run->stream)
                               : status;
    weft_status_t ended = weft_group_end();
    WEFT_TRY(status);
    WEFT_TRY(ended);
    return weft__links_settle(run);
}

/* ---- transfers -------------------------------------------------------------------------- */

weft_status_t weft__links_settle(const weft_links_run_t *run)
{
    if (!run->stream) {
        return WEFT_OK;
    }
    WEFT_TRY(weft_stream_synchronize(run->stream));
    return run->symm ? weft_symm_error(run->symm) : WEFT_OK;
}

/* A stopwatch: events of the stream on GPUs, where launching is not what is timed. */
static weft_status_t start(const weft_links_run_t *run, uint64_t *start_p)
{
    *start_p = weft__now_ns();
    return run->stream ? weft_event_record(run->begin, run->stream) : WEFT_OK;
}

static weft_status_t stop(const weft_links_run_t *run, uint64_t began, double *ns_p)
{
    double ms;
    if (!run->stream) {
        *ns_p = (double)(weft__now_ns() - began);
        return WEFT_OK;
    }
    WEFT_TRY(weft_event_record(run->end, run->stream));
    WEFT_TRY(weft__links_settle(run));
    WEFT_TRY(weft_event_elapsed(run->begin, run->end, &ms));
    *ns_p = ms * 1e6;
    return WEFT_OK;
}

/* What the planted link takes longer, really spent. */
static double dawdle(double ns)
{
    uint64_t began = weft__now_ns();
    while ((double)(weft__now_ns() - began) < ns) {
    }
    return (double)(weft__now_ns() - began);
}

weft_status_t weft__links_put(weft_links_run_t *run, int to, size_t bytes, int iters, double *ns_p)
{
    uint64_t began;
    double ns;
    WEFT_TRY(start(run, &began));
    for (int i = 0; i < iters; i++) {
        if (run->symm) {
            char *dst = run->dst + run->slot++ % run->slots * run->bytes;
            WEFT_TRY(weft_symm_put(run->symm, dst, run->src, bytes, to, run->stream));
        } else {
            WEFT_TRY(weft_send(run->src, bytes, WEFT_U8, to, run->comm, run->stream));
        }
    }
    if (run->symm) {
        WEFT_TRY(weft_symm_quiet(run->symm, run->stream));
    }
    WEFT_TRY(stop(run, began, &ns));
    if (run->rank == run->slow_from && to == run->slow_to) {
        ns += dawdle(ns * run->slow_percent / 100);
    }
    *ns_p = ns / iters;
    return WEFT_OK;
}

weft_status_t weft__links_take(weft_links_run_t *run, int from, size_t bytes, int iters)
{
    for (int i = 0; i < iters; i++) {
        WEFT_TRY(weft_recv(run->dst, bytes, WEFT_U8, from, run->comm, run->stream));
    }
    return weft__links_settle(run);
}

weft_status_t weft__links_copy(weft_links_run_t *run, void *dst, const void *src, size_t bytes,
                               int iters, double *ns_p)
{
    uint64_t began;
    double ns;
    WEFT_TRY(start(run, &began));
    for (int i = 0; i < iters; i++) {
        WEFT_TRY(weft_memcpy(dst, src, bytes, run->stream));
    }
    WEFT_TRY(stop(run, began, &ns));
    *ns_p = ns / iters;
    return WEFT_OK;
}

weft_status_t weft__links_gather(const weft_links_run_t *run, const void *mine, void *all,
                                 size_t bytes)
{
    return weft_allgather(mine, all, bytes, WEFT_U8, run->comm, NULL);
}
