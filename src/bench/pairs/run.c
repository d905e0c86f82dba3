/* weft pairs run and list. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "bench/pairs/internal.h"
#include "comm/comm.h"
#include "train/tracing.h"

static const char *const track_names[] = {"pairs", "loops"};

/* What a trace says of itself; `head` is that of the result. */
static void describe(weft_json_t *json, void *head)
{
    weft__result_head(json, head);
}

static weft_status_t run_pair(const weft_pair_plan_t *plan, int sizes, const weft_pair_t *pair,
                              weft_comm_h comm, weft_pairs_report_t *report)
{
    size_t bytes[WEFT_PAIRS_SIZES];
    int count = weft__pairs_sizes(pair, sizes, bytes);
    for (int i = 0; i < count; i++) {
        weft_pair_row_t row;
        uint64_t start = weft__now_ns();
        WEFT_TRY(weft__pair_measure(plan, pair, comm, bytes[i], &row));
        weft__trace_span(plan->trace, 0, pair->target, start, weft__now_ns(), -1,
                         (int64_t)row.bytes);
        if (report) {
            WEFT_TRY(weft__pairs_report_row(report, &row));
        }
    }
    return WEFT_OK;
}

static weft_status_t run_all(const weft_pairs_t *pairs, const weft_pair_plan_t *plan,
                             weft_comm_h comm, weft_pairs_report_t *report)
{
    int sizes = weft__pairs_profile(pairs->profile)->sizes, run = 0;
    char why[256] = "";
    for (const weft_pair_t *const *at = weft__pairs; *at; at++) {
        if (!weft__pairs_asked(pairs, *at)) {
            continue;
        }
        weft__pair_refusal(*at, comm, why, sizeof(why));
        if (why[0] == '\0') {
            WEFT_TRY(run_pair(plan, sizes, *at, comm, report));
            run++;
        } else if (report) {
            WEFT_TRY(weft__pairs_report_left_out(report, *at, why));
        }
    }
    return run > 0 ? WEFT_OK : weft__fail(WEFT_ERR_INVALID, "no pair can run here: %s", why);
}

/* The seed is of 32 bits, which readers of JSON keep exactly. */
static weft_status_t agree_on_seed(weft_comm_h comm, uint64_t *seed_p)
{
    uint32_t seed;
    WEFT_TRY(weft__random_bytes(&seed, sizeof(seed)));
    *seed_p = seed;
    return weft_broadcast(seed_p, seed_p, 1, WEFT_U64, 0, comm, NULL);
}

weft_status_t weft__pairs_run(const weft_pairs_t *pairs, weft_comm_h comm,
                              weft_pairs_outcome_t *outcome_p)
{
    weft_pair_plan_t plan = weft__pairs_profile(pairs->profile)->plan;
    weft_pairs_report_t lines = {.pairs = pairs}, *report = comm->rank == 0 ? &lines : NULL;
    char why[WEFT_ERROR_TEXT];
    plan.iters = pairs->iters;
    plan.check = true;
    *outcome_p = (weft_pairs_outcome_t){0};
    WEFT_TRY(agree_on_seed(comm, &plan.seed));
    lines.seed = plan.seed;
    if (report) {
        WEFT_TRY(weft__pairs_report_open(report, comm->size));
    }
    weft_result_head_t head = weft__pairs_head(pairs, "pairs", comm->size);
    const weft_tracks_t tracks = {
        .count = 2, .names = track_names, .about = describe, .ctx = &head};
    weft_status_t status = weft__tracing_open(pairs->trace, comm, &plan.trace);
    status = status == WEFT_OK ? run_all(pairs, &plan, comm, report) : status;
    status = weft__tracing_close(pairs->trace, &tracks, comm, plan.trace, status);
    snprintf(why, sizeof(why), "%s", status == WEFT_OK ? "" : weft_last_error());
    if (report) {
        weft_status_t closed = weft__pairs_report_close(report, status);
        status = status == WEFT_OK ? closed : status;
        *outcome_p = report->outcome;
    }
    if (status != WEFT_OK) {
        return why[0] == '\0' ? status : weft__fail(status, "%s", why);
    }
    return weft_broadcast(outcome_p, outcome_p, sizeof(*outcome_p) / sizeof(uint64_t), WEFT_U64, 0,
                          comm, NULL);
}
