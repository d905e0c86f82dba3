/* A rank that is killed in the middle of training is named to those that wait for it, and nobody
 * hangs, whatever the plan. */
/* ctest: timeout=90 labels=plans */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "parallel/plans.h"

static void killed(team_t *team)
{
    const weft_plan_t *plan = team->arg;
    plan_run_t run = {.model = PLAN_GPT2, .plan = *plan, .bucket_bytes = 1};
    weft_worker_options_t options = plan_options(&run);
    int32_t tokens[2][PLAN_BATCH * PLAN_LENGTH];
    const weft_compute_t *compute;
    weft_worker_t *worker;
    weft_status_t status = WEFT_OK;
    weft__compute_threads(1);
    CHECK_OK(weft__compute(&compute));
    CHECK_OK(weft__worker_create(&options, team->comm, compute, &worker));
    CHECK_OK(weft__worker_start(worker, 1));
    plan_tokens(&options.model, 0, 0, PLAN_BATCH / plan->dp, tokens[0], tokens[1]);
    for (int step = 0; step < 1000 && status == WEFT_OK; step++) {
        weft_worker_input_t input = {.step = (uint64_t)step,
                                     .hyper = plan_hyper(step),
                                     .tokens = tokens[0],
                                     .targets = tokens[1]};
        weft_worker_result_t result;
        if (step == 3 && team->rank == 3) {
            usleep((useconds_t)(team_now() * 1e6) % 2000);
            kill(getpid(), SIGKILL);
        }
        status = weft__worker_queue(worker, &input);
        status = status == WEFT_OK ? weft__worker_settle(worker, &result) : status;
    }
    /* Those next to it see it dead; others see that one of those has given up. */
    const char *said = weft_last_error();
    CHECK(status == WEFT_ERR_RANK_DEAD || status == WEFT_ERR_RANK_LEFT ||
          status == WEFT_ERR_ABORTED || status == WEFT_ERR_BROKEN);
    CHECK_TEXT(said, "rank");
    team_note("destroying after: %s", said);
    weft__worker_destroy(worker);
    weft_comm_abort(team->comm);
    team->comm = NULL;
}

int main(void)
{
    const int grids[][4] = {{4, 1, 1, 0}, {4, 1, 1, 3}, {1, 4, 1, 0},
                            {1, 1, 4, 0}, {2, 2, 1, 2}, {1, 2, 2, 0}};
    bool ok = true;
    for (size_t i = 0; i < sizeof(grids) / sizeof(grids[0]); i++) {
        weft_plan_t plan = weft__plan_single(1, PLAN_LENGTH);
        plan.dp = grids[i][0];
        plan.pp = grids[i][1];
        plan.tp = grids[i][2];
        plan.zero = grids[i][3];
        plan.micro_batches = PLAN_BATCH / plan.dp;
        team_plan_t team = {.ranks = 4, .may_die = 1u << 3, .limit_s = 60, .arg = &plan};
        ok = team_run(&team, killed) && ok;
    }
    return ok ? 0 : 1;
}
