/* Who is to blame for a call that does not end: see comm/watch.h. */
#include "comm/watch.h"

#define ODD_NS 500000000u
#define ODD_FAILED_NS 50000000u

static bool same_call(const weft_waiting_t *ours, const weft_seen_t *theirs)
{
    bool ragged = (ours->sig & 0xff) == WEFT_COLL_ALLTOALLV; /* each has counts of its own */
    return ours->sig == theirs->sig && (ragged || ours->count == theirs->count);
}

/* Messages have no numbers: one that was made since hides the call. */
static bool makes_other(const weft_waiting_t *ours, const weft_seen_t *theirs)
{
    return !theirs->silent && theirs->calls == ours->first &&
           !weft__is_message((weft_coll_t)(theirs->sig & 0xff)) && !same_call(ours, theirs);
}

int weft__judge_other(const weft_waiting_t *waiting, const weft_seen_t *seen)
{
    for (int p = 0; p < waiting->size; p++) {
        if (p != waiting->rank && makes_other(waiting, &seen[p])) {
            return p;
        }
    }
    return -1;
}

static void note(weft_arrivals_t *arrivals, const weft_seen_t *seen, int size, uint64_t now)
{
    for (int p = 0; p < size; p++) {
        const weft_seen_t *before = &arrivals->seen[p];
        bool as_before = before->calls == seen[p].calls && before->sig == seen[p].sig &&
                         before->count == seen[p].count;
        if (arrivals->since[p] == 0 || !as_before) {
            arrivals->seen[p] = seen[p];
            arrivals->since[p] = now;
        }
    }
}

int weft__judge(weft_arrivals_t *arrivals, const weft_waiting_t *waiting, const weft_seen_t *seen,
                bool failed, uint64_t now, bool *other_p)
{
    uint64_t timeout_ns = (uint64_t)waiting->timeout_ms * 1000000u;
    uint64_t odd_ns = failed ? ODD_FAILED_NS : ODD_NS;
    bool ours_is_last = seen[waiting->rank].calls == waiting->first;
    note(arrivals, seen, waiting->size, now);
    for (int p = 0; p < waiting->size; p++) {
        uint64_t own = arrivals->since[waiting->rank];
        uint64_t since = arrivals->since[p] > own ? arrivals->since[p] : own;
        bool late = seen[p].calls < waiting->first && timeout_ns > 0 && now - since > timeout_ns;
        bool other = ours_is_last && makes_other(waiting, &seen[p]) && now - since > odd_ns;
        if (p != waiting->rank && (late || other)) {
            *other_p = other;
            return p;
        }
    }
    return -1;
}
