/* Schedules of a pipeline: see schedule.h. */
#include "parallel/schedule.h"

/* The k-th forward of a rank: pp micro-batches through the first chunk, the same through the
 * second,
 * ..., then the next pp micro-batches. Backward goes through chunks the other way. */
static weft_action_t entry(const weft_plan_t *plan, int k, bool backward)
{
    int v = plan->virtual_stages, group = plan->pp * v;
    if (v == 1) {
        return (weft_action_t){backward, k, 0};
    }
    int chunk = k % group / plan->pp;
    return (weft_action_t){backward, k / group * plan->pp + k % plan->pp,
                           backward ? v - 1 - chunk : chunk};
}

/* Forward runs before the first backward. */
static int warmup(const weft_plan_t *plan, int rank, int total)
{
    int ahead;
    switch (plan->schedule) {
    case WEFT_GPIPE:
        return total;
    case WEFT_1F1B:
        ahead = plan->pp - 1 - rank;
        break;
    default:
        if (plan->micro_batches == plan->pp) {
            return total;
        }
        ahead = 2 * (plan->pp - 1 - rank) + (plan->virtual_stages - 1) * plan->pp;
    }
    return ahead < total ? ahead : total;
}

int weft__schedule_length(const weft_plan_t *plan, bool training)
{
    return plan->micro_batches * plan->virtual_stages * (training ? 2 : 1);
}

void weft__schedule_fill(const weft_plan_t *plan, int rank, bool training, weft_action_t *ops)
{
    int total = plan->micro_batches * plan->virtual_stages, at = 0;
    int first = training ? warmup(plan, rank, total) : total;
    for (int k = 0; k < first; k++) {
        ops[at++] = entry(plan, k, false);
    }
    for (int k = first; k < total; k++) {
        ops[at++] = entry(plan, k, false);
        ops[at++] = entry(plan, k - first, true);
    }
    for (int k = total - first; training && k < total; k++) {
        ops[at++] = entry(plan, k, true);
    }
}

int weft__schedule_depth(const weft_action_t *ops, int count, int chunk)
{
    int now = 0, most = 0;
    for (int i = 0; i < count; i++) {
        if (ops[i].chunk == chunk) {
            now += ops[i].backward ? -1 : 1;
            most = now > most ? now : most;
        }
    }
    return most;
}
