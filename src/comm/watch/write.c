/* Every sentence about ranks that are gone, late or in another call: see comm/watch.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "comm/watch.h"

static void say(weft_fault_t *fault, weft_status_t status, int culprit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void say(weft_fault_t *fault, weft_status_t status, int culprit, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(fault->text, sizeof(fault->text), format, args);
    va_end(args);
    fault->status = status;
    fault->culprit = culprit;
}

static const char *noun_of(const weft_waiting_t *w)
{
    return w->noun ? w->noun : "rank";
}

static bool is_message(const weft_waiting_t *w)
{
    return weft__is_message((weft_coll_t)(w->sig & 0xff));
}

/* "call 7, allreduce of 8 f32, sum", "send of 3 f32 to 1", "joining": what is waited in. */
static void describe(const weft_waiting_t *w, char *text, size_t room)
{
    char call[160];
    weft__sig_describe(w->sig, w->count, call, sizeof(call));
    if (w->joining) {
        snprintf(text, room, "joining");
    } else if (w->in) {
        snprintf(text, room, "%s", w->in);
    } else if (is_message(w)) {
        snprintf(text, room, "%s", call);
    } else if (w->first != w->last) {
        snprintf(text, room, "calls %llu to %llu, from %s on", (unsigned long long)w->first,
                 (unsigned long long)w->last, call);
    } else {
        snprintf(text, room, "call %llu, %s", (unsigned long long)w->first, call);
    }
}

/* "rank 2 (process 4711)", "rank 0, which served the store,": somebody who is gone. */
static void name(const weft_waiting_t *w, int rank, const weft_seen_t *seen, char *text,
                 size_t room)
{
    if (seen->who) {
        snprintf(text, room, "%s %d, %s,", noun_of(w), rank, seen->who);
    } else if (seen->pid) {
        snprintf(text, room, "%s %d (process %d)", noun_of(w), rank, seen->pid);
    } else {
        snprintf(text, room, "%s %d", noun_of(w), rank);
    }
}

void weft__watch_dead(const weft_waiting_t *w, int rank, const weft_seen_t *seen,
                      weft_fault_t *fault_p)
{
    char who[128], where[240];
    name(w, rank, seen, who, sizeof(who));
    describe(w, where, sizeof(where));
    say(fault_p, WEFT_ERR_RANK_DEAD, rank, "%s %s; %s %d noticed %s %s", who,
        seen->how ? seen->how : "died", noun_of(w), w->rank, w->doing ? "while" : "in",
        w->doing ? w->doing : where);
}

void weft__watch_left(const weft_waiting_t *w, int rank, const weft_seen_t *seen,
                      weft_fault_t *fault_p)
{
    char who[128], where[240];
    name(w, rank, seen, who, sizeof(who));
    describe(w, where, sizeof(where));
    say(fault_p, WEFT_ERR_RANK_LEFT, rank, "%s %s while %s %d %s %s", who,
        seen->how ? seen->how : "destroyed its handle", noun_of(w), w->rank,
        w->doing ? "is" : "waits for it in", w->doing ? w->doing : where);
}

/* ---- late ---------------------------------------------------------------------------------- */

static void append(char *text, size_t room, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t room, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, room - used, format, args);
    va_end(args);
}

/* "rank 1, rank 3": those who have not come. */
static void list_absent(const weft_waiting_t *w, const weft_seen_t *seen, char *text, size_t room)
{
    text[0] = '\0';
    for (int p = 0; p < w->size; p++) {
        if (p != w->rank && seen[p].silent) {
            append(text, room, "%srank %d", text[0] ? ", " : "", p);
        }
    }
    if (!text[0]) { /* it came just now, and too late */
        append(text, room, "rank %d", w->peer);
    }
}

/* "rank 2 (last seen in call 17, ...), rank 3 (made no call yet)", and "0 1" for those who came. */
static void list_ranks(const weft_waiting_t *w, const weft_seen_t *seen, char *missing,
                       size_t missing_room, char *there, size_t there_room)
{
    missing[0] = there[0] = '\0';
    for (int p = 0; p < w->size; p++) {
        const char *comma = missing[0] ? ", " : "";
        char call[160];
        if (p == w->rank || (!seen[p].silent && seen[p].calls >= w->first)) {
            append(there, there_room, "%s%d", there[0] ? " " : "", p);
        } else if (seen[p].silent) {
            append(missing, missing_room, "%srank %d (it has not said where it is)", comma, p);
        } else if (seen[p].calls == 0) {
            append(missing, missing_room, "%srank %d (made no call yet)", comma, p);
        } else {
            weft__sig_describe(seen[p].sig, seen[p].count, call, sizeof(call));
            append(missing, missing_room, "%srank %d (last seen in call %llu, %s)", comma, p,
                   (unsigned long long)seen[p].calls, call);
        }
    }
}

/* "in call 7, allreduce of ...: not arrived: rank 2 (...); arrived: 0 1": what this rank waits for. */
static void describe_wait(const weft_waiting_t *w, const weft_seen_t *seen, const char *more,
                          char *text, size_t room)
{
    char where[240], missing[400], there[200];
    describe(w, where, sizeof(where));
    if (w->doing) {
        snprintf(text, room, "on %s %d, %s", noun_of(w), w->rank, w->doing);
    } else if (w->in) {
        snprintf(text, room, "on %s %d in %s%s", noun_of(w), w->rank, where, more);
    } else if (is_message(w)) {
        snprintf(text, room, "on rank %d in %s: rank %d has not made the matching call", w->rank,
                 where, w->peer);
    } else if (!seen) {
        snprintf(text, room, "on rank %d in %s: nothing is known of the other ranks", w->rank,
                 where);
    } else {
        list_ranks(w, seen, missing, sizeof(missing), there, sizeof(there));
        if (missing[0]) {
            snprintf(text, room, "in %s: not arrived: %s; arrived: %s", where, missing, there);
        } else if (w->peer >= 0) {
            snprintf(text, room, "in %s: all ranks arrived, but rank %d does not go on", where,
                     w->peer);
        } else {
            snprintf(text, room, "in %s: all ranks arrived, but it does not end on rank %d", where,
                     w->rank);
        }
    }
}

void weft__watch_late(const weft_waiting_t *w, const weft_seen_t *seen, const char *more,
                      weft_fault_t *fault_p)
{
    char wait[900];
    double seconds = w->timeout_ms / 1000.0;
    if (w->joining) {
        list_absent(w, seen, wait, sizeof(wait));
        say(fault_p, WEFT_ERR_TIMEOUT, w->peer, "%s did not join the communicator within %.1f s",
            wait, seconds);
        return;
    }
    describe_wait(w, seen, more, wait, sizeof(wait));
    say(fault_p, WEFT_ERR_TIMEOUT, w->peer, "timed out after %.1f s %s", seconds, wait);
}

void weft__watch_warn(const weft_waiting_t *w, const weft_seen_t *seen, double waited,
                      const char *more)
{
    char wait[900], until[80] = "for ever (WEFT_TIMEOUT is 0)";
    if (w->timeout_ms > 0) {
        snprintf(until, sizeof(until), "until %.0f s have passed (WEFT_TIMEOUT)",
                 w->timeout_ms / 1000.0);
    }
    if (w->joining) {
        list_absent(w, seen, wait, sizeof(wait));
        weft__warn("rank %d has waited %.0f s for %s to join the communicator, and waits %s",
                   w->rank, waited, wait, until);
        return;
    }
    if (w->in) {
        weft__warn("%s %d has waited %.0f s in %s%s", noun_of(w), w->rank, waited, w->in, more);
    } else if (w->doing) {
        weft__warn("%s %d has been %s for %.0f s, and waits %s", noun_of(w), w->rank, w->doing,
                   waited, until);
    } else {
        describe_wait(w, seen, more, wait, sizeof(wait));
        weft__warn("%.0f s of waiting %s; waits %s", waited, wait, until);
    }
}

/* ---- another call -------------------------------------------------------------------------- */

static weft_algo_t algo_of(uint64_t sig)
{
    return (weft_algo_t)(sig >> 24 & 0xff);
}

static const char *type_of(uint64_t sig)
{
    return weft_dtype_name((weft_dtype_t)(sig >> 8 & 0xff));
}

void weft__watch_differs(const weft_waiting_t *w, const weft_seen_t *theirs, weft_fault_t *fault_p)
{
    char ours[160], other[160];
    unsigned long long call = w->first, count = w->count, their_count = theirs->count;
    weft__sig_describe(w->sig, w->count, ours, sizeof(ours));
    weft__sig_describe(theirs->sig, theirs->count, other, sizeof(other));
    if (is_message(w)) {
        say(fault_p, WEFT_ERR_MISMATCH, w->peer,
            "ranks disagree: rank %d sends %llu %s to rank %d, which receives %llu %s", w->peer,
            their_count, type_of(theirs->sig), w->rank, count, type_of(w->sig));
    } else if ((w->sig & 0xff) == WEFT_COLL_ALLTOALLV && w->sig == theirs->sig) {
        say(fault_p, WEFT_ERR_MISMATCH, w->peer,
            "ranks disagree in call %llu, alltoallv: rank %d sends %llu elements to rank %d, "
            "which expects %llu",
            call, w->peer, their_count, w->rank, count);
    } else if (count == their_count && ((w->sig ^ theirs->sig) & ~(0xffull << 24)) == 0) {
        say(fault_p, WEFT_ERR_MISMATCH, w->peer,
            "ranks chose different algorithms for call %llu, %s: rank %d %s, rank %d %s; give "
            "all ranks the same WEFT_* settings",
            call, ours, w->rank, weft__algo_name(algo_of(w->sig)), w->peer,
            weft__algo_name(algo_of(theirs->sig)));
    } else {
        say(fault_p, WEFT_ERR_MISMATCH, w->peer,
            "ranks made different calls: call %llu is %s on rank %d, but %s on rank %d%s; all "
            "ranks must make the same calls in the same order",
            call, ours, w->rank, other, w->peer,
            strcmp(ours, other) == 0 ? ", with other counts in it" : "");
    }
}
