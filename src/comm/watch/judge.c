/* Who is to blame for what does not end: see comm/watch.h. */
#include "comm/watch/write.h"

#define MS 1000000ull
#define ODD_NS (500 * MS)
#define ODD_FAILED_NS (50 * MS)

typedef bool (*blame_fn)(const weft_waiting_t *w, const weft_seen_t *seen);

static bool time_is_up(const weft_waiting_t *w)
{
    return w->timeout_ms > 0 && w->waited_ns >= (uint64_t)w->timeout_ms * MS;
}

static bool is_numbered(const weft_waiting_t *w)
{
    return !w->joining && !w->in && !w->doing && !weft__is_message((weft_coll_t)(w->sig & 0xff)) &&
           w->last != 0;
}

static bool owes_all(const weft_waiting_t *w, const weft_seen_t *seen)
{
    return seen->owes == WEFT_OWES_ALL || (is_numbered(w) && seen->calls < w->last);
}

static bool is_dead(const weft_waiting_t *w, const weft_seen_t *seen)
{
    return seen->state == WEFT_SEEN_ENDED &&
           (owes_all(w, seen) ||
            (seen->owes == WEFT_OWES_REST && (seen->gone_ns >= w->lag_ns || time_is_up(w))));
}

static bool has_left(const weft_waiting_t *w, const weft_seen_t *seen)
{
    return seen->state == WEFT_SEEN_LEFT && owes_all(w, seen);
}

/* For how long neither this rank nor that one has moved. */
static uint64_t still_ns(const weft_waiting_t *w, int rank)
{
    const uint64_t *since = w->arrivals->since;
    return w->now_ns - (since[rank] > since[w->rank] ? since[rank] : since[w->rank]);
}

/* Has it made another call of this number? Messages have none: one that was made since hides the
 * call. In ragged calls each has counts of its own. */
static bool is_different(const weft_waiting_t *w, const weft_seen_t *seen)
{
    bool ragged = (w->sig & 0xff) == WEFT_COLL_ALLTOALLV;
    bool same = w->sig == seen->sig && (ragged || w->count == seen->count);
    if (seen->differs || !w->compare) {
        return seen->differs;
    }
    if (same || !is_numbered(w) || seen->state == WEFT_SEEN_UNKNOWN || seen->calls != w->first ||
        weft__is_message((weft_coll_t)(seen->sig & 0xff))) {
        return false;
    }
    return !w->arrivals || (w->arrivals->seen[w->rank].calls == w->first &&
                            still_ns(w, seen->rank) > (w->failed ? ODD_FAILED_NS : ODD_NS));
}

static bool is_late(const weft_waiting_t *w, const weft_seen_t *seen)
{
    return w->arrivals && w->timeout_ms > 0 && seen->calls < w->first &&
           still_ns(w, seen->rank) > (uint64_t)w->timeout_ms * MS;
}

static const weft_seen_t *find(blame_fn blame, const weft_waiting_t *w, const weft_seen_t *seen,
                               int n)
{
    const weft_seen_t *found = NULL;
    for (int i = 0; i < n; i++) {
        bool own = seen[i].rank == w->rank, awaited = seen[i].rank == w->peer;
        /* A rank can differ from itself: messages and blocks that it sends to itself. */
        if ((!own || seen[i].differs) && (!found || awaited) && blame(w, &seen[i])) {
            found = &seen[i];
        }
    }
    return found;
}

static void note(const weft_waiting_t *w, const weft_seen_t *seen, int n)
{
    for (int i = 0; i < n; i++) {
        weft_seen_t *before = &w->arrivals->seen[seen[i].rank];
        uint64_t *since = &w->arrivals->since[seen[i].rank];
        bool as_before = before->calls == seen[i].calls && before->sig == seen[i].sig &&
                         before->count == seen[i].count;
        if (*since == 0 || !as_before) {
            *before = seen[i];
            *since = w->now_ns;
        }
    }
}

bool weft__watch(const weft_waiting_t *w, const weft_seen_t *seen, int n, weft_fault_t *fault_p)
{
    const weft_seen_t *blamed;
    if (w->arrivals) {
        note(w, seen, n);
    }
    if ((blamed = find(is_dead, w, seen, n))) {
        weft__write_dead(w, blamed, fault_p);
    } else if ((blamed = find(has_left, w, seen, n))) {
        weft__write_left(w, blamed, fault_p);
    } else if ((blamed = find(is_different, w, seen, n))) {
        weft__write_different(w, blamed, fault_p);
    } else if ((blamed = find(is_late, w, seen, n)) || time_is_up(w)) {
        weft__write_late(w, blamed ? blamed->rank : w->peer, seen, n, fault_p);
    } else {
        return false;
    }
    return true;
}

void weft__watch_absent(int rank, bool pe, const weft_seen_t *seen, int n, int timeout_ms,
                        const char *advice, weft_fault_t *fault_p)
{
    const weft_waiting_t waiting = {.rank = rank,
                                    .peer = -1,
                                    .pe = pe,
                                    .joining = true,
                                    .advice = advice,
                                    .timeout_ms = timeout_ms,
                                    .waited_ns = UINT64_MAX};
    weft__watch(&waiting, seen, n, fault_p);
}
