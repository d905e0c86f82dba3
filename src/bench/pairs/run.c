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

/* ---- measuring -------------------------------------------------------------------------- */

static bool is_noisy(const weft_pair_row_t *row, uint64_t seed)
{
    const weft_sample_t *baseline = &row->ways[0];
    bool noisy = false;
    for (int i = 1; i < weft__pair_ways(row->pair); i++) {
        const weft_sample_t *way = &row->ways[i];
        noisy = noisy || (!row->absent[i] &&
                          weft__ratio_of(baseline->us, way->us, way->repeats, seed).verdict ==
                              WEFT_VERDICT_NOISY);
    }
    return noisy;
}

static int twice(int blocks)
{
    return blocks < WEFT_SAMPLE_MOST / 2 ? 2 * blocks : WEFT_SAMPLE_MOST;
}

weft_status_t weft__pairs_measure(const weft_pair_plan_t *plan, bool keep, const weft_pair_t *pair,
                                  weft_comm_h comm, size_t bytes, weft_pair_row_t *row_p)
{
    weft_pair_plan_t longer = *plan;
    int32_t again = 1; /* rank 0's word: all measure again, or none */
    size_t wrong = 0;
    for (int i = 0; again; i++) {
        WEFT_TRY(weft__pair_measure(&longer, pair, comm, bytes, row_p));
        wrong += row_p->wrong;
        again = keep && i < WEFT_PAIRS_AGAIN && is_noisy(row_p, plan->seed);
        if (keep) {
            WEFT_TRY(weft_broadcast(&again, &again, 1, WEFT_I32, 0, comm, NULL));
        }
        longer.least = twice(longer.least);
        longer.most = twice(longer.most);
        longer.loop_ns *= 2;
        longer.budget_ns *= 2;
    }
    row_p->wrong = wrong;
    return WEFT_OK;
}

static weft_status_t run_pair(const weft_pairs_t *pairs, const weft_pair_plan_t *plan,
                              const weft_pair_t *pair, weft_comm_h comm,
                              weft_pairs_report_t *report)
{
    size_t bytes[WEFT_PAIRS_SIZES];
    int count = weft__pairs_sizes(pair, weft__pairs_profile(pairs->profile)->sizes, bytes);
    for (int i = 0; i < count; i++) {
        weft_pair_row_t row;
        uint64_t start = weft__now_ns();
        WEFT_TRY(weft__pairs_measure(plan, pairs->update, pair, comm, bytes[i], &row));
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
    int run = 0;
    char why[256] = "";
    for (const weft_pair_t *const *at = weft__pairs; *at; at++) {
        if (!weft__pairs_asked(pairs, *at)) {
            continue;
        }
        weft__pair_refusal(*at, comm, why, sizeof(why));
        if (why[0] == '\0') {
            WEFT_TRY(run_pair(pairs, plan, *at, comm, report));
            run++;
        } else if (report) {
            WEFT_TRY(weft__pairs_report_left_out(report, *at, why));
        }
    }
    return run > 0 ? WEFT_OK : weft__fail(WEFT_ERR_INVALID, "no pair can run here: %s", why);
}

/* ---- all of it, on all ranks ------------------------------------------------------------ */

/* The seed is of 32 bits, which readers of JSON keep exactly. */
static weft_status_t agree_on_seed(weft_comm_h comm, uint64_t *seed_p)
{
    uint32_t seed;
    WEFT_TRY(weft__random_bytes(&seed, sizeof(seed)));
    *seed_p = seed;
    return weft_broadcast(seed_p, seed_p, 1, WEFT_U64, 0, comm, NULL);
}

/* What rank 0 knows, for all. */
typedef struct ending {
    int64_t status;
    weft_pairs_outcome_t outcome;
    char why[WEFT_ERROR_TEXT];
} ending_t;

/* Files and tables are rank 0's: what becomes of them is every rank's status. A failure of this
 * rank's own comes first. */
static weft_status_t agree(weft_comm_h comm, weft_status_t status, weft_pairs_outcome_t *outcome_p)
{
    ending_t ending = {.status = status, .outcome = *outcome_p};
    char why[WEFT_ERROR_TEXT];
    snprintf(why, sizeof(why), "%s", status == WEFT_OK ? "" : weft_last_error());
    memcpy(ending.why, why, sizeof(why));
    weft_status_t told = weft_broadcast(&ending, &ending, sizeof(ending), WEFT_U8, 0, comm, NULL);
    if (status != WEFT_OK) {
        return weft__fail(status, "%s", why);
    }
    WEFT_TRY(told);
    *outcome_p = ending.outcome;
    return ending.status == WEFT_OK ? WEFT_OK
                                    : weft__fail((weft_status_t)ending.status, "%s", ending.why);
}

static weft_status_t run_traced(const weft_pairs_t *pairs, weft_pair_plan_t *plan, weft_comm_h comm,
                                weft_pairs_report_t *report)
{
    weft_result_head_t head = weft__pairs_head(pairs, "pairs", comm->size);
    const weft_tracks_t tracks = {
        .count = 2, .names = track_names, .about = describe, .ctx = &head};
    weft_status_t status = weft__tracing_open(pairs->trace, comm, &plan->trace);
    status = status == WEFT_OK ? run_all(pairs, plan, comm, report) : status;
    if (status != WEFT_OK) {
        weft__comm_break(comm); /* the others may be measuring, and wait for this rank */
    }
    return weft__tracing_close(pairs->trace, &tracks, comm, plan->trace, status);
}

weft_status_t weft__pairs_run(const weft_pairs_t *pairs, weft_comm_h comm,
                              weft_pairs_outcome_t *outcome_p)
{
    weft_pair_plan_t plan = weft__pairs_profile(pairs->profile)->plan;
    weft_pairs_report_t lines = {.pairs = pairs}, *report = comm->rank == 0 ? &lines : NULL;
    plan.iters = pairs->iters;
    plan.check = true;
    *outcome_p = (weft_pairs_outcome_t){0};
    WEFT_TRY(agree_on_seed(comm, &plan.seed));
    lines.seed = plan.seed;
    WEFT_TRY(
        agree(comm, report ? weft__pairs_report_open(report, comm->size) : WEFT_OK, outcome_p));
    weft_status_t status = run_traced(pairs, &plan, comm, report);
    if (report) {
        char why[WEFT_ERROR_TEXT]; /* closing may fail as well */
        snprintf(why, sizeof(why), "%s", status == WEFT_OK ? "" : weft_last_error());
        weft_status_t closed = weft__pairs_report_close(report, status);
        status = status == WEFT_OK ? closed : weft__fail(status, "%s", why);
        *outcome_p = report->outcome;
    }
    return agree(comm, status, outcome_p);
}
