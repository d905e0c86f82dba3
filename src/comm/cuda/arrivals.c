#include "comm/cuda/arrivals.h"

#include "comm/call.h"

#define ODD_NS 500000000u
#define ODD_FAILED_NS 50000000u

static bool same_call(const weft_arrival_t *a, const weft_arrival_t *b)
{
    bool ragged = (a->sig & 0xff) == WEFT_COLL_ALLTOALLV; /* each has counts of its own */
    return a->sig == b->sig && (ragged || a->count == b->count);
}

static void note(weft_arrivals_t *arrivals, const weft_arrival_t *ranks, int size, uint64_t now)
{
    for (int p = 0; p < size; p++) {
        const weft_arrival_t *seen = &arrivals->seen[p];
        bool as_before = seen->calls == ranks[p].calls && seen->sig == ranks[p].sig &&
                         seen->count == ranks[p].count;
        if (arrivals->since[p] == 0 || !as_before) {
            arrivals->seen[p] = ranks[p];
            arrivals->since[p] = now;
        }
    }
}

int weft__arrivals_judge(weft_arrivals_t *arrivals, const weft_arrival_t *ranks, int size, int rank,
                         uint64_t call, uint64_t timeout_ns, bool failed, uint64_t now,
                         bool *mismatch_p)
{
    const weft_arrival_t *ours = &ranks[rank];
    uint64_t odd_ns = failed ? ODD_FAILED_NS : ODD_NS;
    note(arrivals, ranks, size, now);
    for (int p = 0; p < size; p++) {
        uint64_t since = arrivals->since[p] > arrivals->since[rank] ? arrivals->since[p]
                                                                    : arrivals->since[rank];
        bool late = ranks[p].calls < call && timeout_ns > 0 && now - since > timeout_ns;
        /* Messages have no numbers: one that was made since hides the call. */
        bool message = weft__is_message((weft_coll_t)(ranks[p].sig & 0xff));
        bool other = ranks[p].calls == call && ours->calls == call && !message &&
                     !same_call(&ranks[p], ours) && now - since > odd_ns;
        if (p != rank && (late || other)) {
            *mismatch_p = other;
            return p;
        }
    }
    return -1;
}
