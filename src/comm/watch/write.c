/* Every sentence about ranks that are gone, late or in another call: see comm/watch.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "comm/watch/write.h"

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
    return w->pe ? "PE" : "rank";
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

/* "rank 2 (process 4711 on node7)", "rank 0, which served the store,": somebody who is gone. */
static void name(const weft_waiting_t *w, const weft_seen_t *seen, char *text, size_t room)
{
    text[0] = '\0';
    if (seen->rank < 0) {
        append(text, room, "%s", seen->name);
    } else {
        append(text, room, "%s %d", noun_of(w), seen->rank);
    }
    if (seen->pid) {
        append(text, room, " (process %d%s%s)", seen->pid, seen->host ? " on " : "",
               seen->host ? seen->host : "");
    }
    if (seen->served_store) {
        append(text, room, ", which served the store,");
    }
}

void weft__write_dead(const weft_waiting_t *w, const weft_seen_t *dead, weft_fault_t *fault_p)
{
    char who[160], where[240], how[64] = "died";
    name(w, dead, who, sizeof(who));
    describe(w, where, sizeof(where));
    if (dead->exit_status != 0) {
        snprintf(how, sizeof(how), "exited with status %d before shmem_finalize",
                 dead->exit_status);
    }
    say(fault_p, WEFT_ERR_RANK_DEAD, dead->rank, "%s %s; %s %d noticed %s %s", who, how, noun_of(w),
        w->rank, w->doing || w->joining ? "while" : "in", w->doing ? w->doing : where);
}

void weft__write_left(const weft_waiting_t *w, const weft_seen_t *left, weft_fault_t *fault_p)
{
    char who[160], where[240];
    name(w, left, who, sizeof(who));
    describe(w, where, sizeof(where));
    say(fault_p, WEFT_ERR_RANK_LEFT, left->rank, "%s %s while %s %d %s %s", who,
        w->pe ? "has called shmem_finalize or exited" : "destroyed its handle", noun_of(w), w->rank,
        w->doing ? "is" : "waits for it in", w->doing ? w->doing : where);
}

/* ---- late ---------------------------------------------------------------------------------- */

/* "rank 1, rank 3": those who have not come; returns the first, -1: all have. */
static int list_absent(const weft_waiting_t *w, const weft_seen_t *seen, int n, char *text,
                       size_t room)
{
    int first = -1;
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        if (seen[i].rank != w->rank && seen[i].state == WEFT_SEEN_UNKNOWN) {
            append(text, room, "%s%s %d", text[0] ? ", " : "", noun_of(w), seen[i].rank);
            first = first < 0 ? seen[i].rank : first;
        }
    }
    if (first < 0 && w->peer >= 0) { /* it came just now, and too late */
        append(text, room, "%s %d", noun_of(w), w->peer);
        first = w->peer;
    }
    return first;
}

/* "rank 2 (last seen in call 17, ...), rank 3 (made no call yet)", and "0 1" for those who came. */
static void list_ranks(const weft_waiting_t *w, const weft_seen_t *seen, int n, char *missing,
                       size_t missing_room, char *there, size_t there_room)
{
    missing[0] = there[0] = '\0';
    for (int i = 0; i < n; i++) {
        const char *comma = missing[0] ? ", " : "";
        bool silent = seen[i].state == WEFT_SEEN_UNKNOWN;
        char call[160];
        if (seen[i].rank == w->rank || (!silent && seen[i].calls >= w->first)) {
            append(there, there_room, "%s%d", there[0] ? " " : "", seen[i].rank);
        } else if (silent) {
            append(missing, missing_room, "%srank %d (it has not said where it is)", comma,
                   seen[i].rank);
        } else if (seen[i].calls == 0) {
            append(missing, missing_room, "%srank %d (made no call yet)", comma, seen[i].rank);
        } else {
            weft__sig_describe(seen[i].sig, seen[i].count, call, sizeof(call));
            append(missing, missing_room, "%srank %d (last seen in call %llu, %s)", comma,
                   seen[i].rank, (unsigned long long)seen[i].calls, call);
        }
    }
}

/* " for PE 3 (process 4711, which is stopped)", "; PE 3 (process 4711) is stopped": as much as is
 * known of whom is waited for in a function of another interface. */
static void describe_others(const weft_waiting_t *w, const weft_seen_t *seen, int n, char *text,
                            size_t room)
{
    text[0] = '\0';
    for (int i = 0; i < n && !text[0]; i++) {
        if (seen[i].rank == w->peer) {
            append(text, room, " for %s %d (process %d%s)", noun_of(w), w->peer, seen[i].pid,
                   seen[i].stopped ? ", which is stopped" : "");
        } else if (w->peer < 0 && seen[i].stopped) {
            append(text, room, "; %s %d (process %d) is stopped", noun_of(w), seen[i].rank,
                   seen[i].pid);
        }
    }
    if (n == 0 && !w->pe) {
        append(text, room, ": nothing is known of the other ranks");
    }
}

/* "in call 7, allreduce of ...: not arrived: rank 2 (...); arrived: 0 1": what this rank waits
 * for. */
static void describe_wait(const weft_waiting_t *w, const weft_seen_t *seen, int n, char *text,
                          size_t room)
{
    char where[240], missing[400], there[200];
    describe(w, where, sizeof(where));
    if (w->doing) {
        snprintf(text, room, "on %s %d, %s", noun_of(w), w->rank, w->doing);
    } else if (w->in || (n == 0 && !is_message(w))) {
        describe_others(w, seen, n, missing, sizeof(missing));
        snprintf(text, room, "on %s %d in %s%s", noun_of(w), w->rank, where, missing);
    } else if (is_message(w)) {
        snprintf(text, room, "on rank %d in %s: rank %d has not made the matching call", w->rank,
                 where, w->peer);
    } else {
        list_ranks(w, seen, n, missing, sizeof(missing), there, sizeof(there));
        if (missing[0] && !w->joining) {
            snprintf(text, room, "in %s: not arrived: %s; arrived: %s", where, missing, there);
        } else if (w->peer >= 0) {
            snprintf(text, room, "in %s: all ranks arrived, but rank %d does not go on", where,
                     w->peer);
        } else {
            snprintf(text, room, "in %s: all ranks arrived, but rank %d does not finish%s%s", where,
                     w->rank, w->advice ? "; " : "", w->advice ? w->advice : "");
        }
    }
}

void weft__write_late(const weft_waiting_t *w, int culprit, const weft_seen_t *seen, int n,
                      weft_fault_t *fault_p)
{
    char wait[900];
    double seconds = w->timeout_ms / 1000.0;
    int absent = w->joining ? list_absent(w, seen, n, wait, sizeof(wait)) : -1;
    if (absent >= 0) {
        say(fault_p, WEFT_ERR_TIMEOUT, absent, "%s did not %s within %.1f s", wait,
            w->pe ? "call shmem_init" : "join the communicator", seconds);
        return;
    }
    describe_wait(w, seen, n, wait, sizeof(wait));
    say(fault_p, WEFT_ERR_TIMEOUT, culprit, "timed out after %.1f s %s", seconds, wait);
}

void weft__watch_warn(const weft_waiting_t *w, const weft_seen_t *seen, int n)
{
    char wait[900], until[80] = "for ever (WEFT_TIMEOUT is 0)";
    double waited = (double)w->waited_ns / 1e9;
    if (w->timeout_ms > 0) {
        snprintf(until, sizeof(until), "until %.0f s have passed (WEFT_TIMEOUT)",
                 w->timeout_ms / 1000.0);
    }
    if (w->joining) {
        list_absent(w, seen, n, wait, sizeof(wait));
        weft__warn("rank %d has waited %.0f s for %s to join the communicator, and waits %s",
                   w->rank, waited, wait, until);
    } else if (w->in) {
        describe_others(w, seen, n, wait, sizeof(wait));
        weft__warn("%s %d has waited %.0f s in %s%s", noun_of(w), w->rank, waited, w->in, wait);
    } else if (w->doing) {
        weft__warn("%s %d has been %s for %.0f s, and waits %s", noun_of(w), w->rank, w->doing,
                   waited, until);
    } else {
        describe_wait(w, seen, n, wait, sizeof(wait));
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

void weft__write_different(const weft_waiting_t *w, const weft_seen_t *theirs,
                           weft_fault_t *fault_p)
{
    char ours[160], other[160];
    unsigned long long call = w->first, count = w->count, their_count = theirs->count;
    weft__sig_describe(w->sig, w->count, ours, sizeof(ours));
    weft__sig_describe(theirs->sig, theirs->count, other, sizeof(other));
    if (is_message(w)) {
        say(fault_p, WEFT_ERR_MISMATCH, theirs->rank,
            "ranks disagree: rank %d sends %llu %s to rank %d, which receives %llu %s",
            theirs->rank, their_count, type_of(theirs->sig), w->rank, count, type_of(w->sig));
    } else if ((w->sig & 0xff) == WEFT_COLL_ALLTOALLV && w->sig == theirs->sig) {
        say(fault_p, WEFT_ERR_MISMATCH, theirs->rank,
            "ranks disagree in call %llu, alltoallv: rank %d sends %llu elements to rank %d, "
            "which expects %llu",
            call, theirs->rank, their_count, w->rank, count);
    } else if (count == their_count && ((w->sig ^ theirs->sig) & ~(0xffull << 24)) == 0) {
        say(fault_p, WEFT_ERR_MISMATCH, theirs->rank,
            "ranks chose different algorithms for call %llu, %s: rank %d %s, rank %d %s; give "
            "all ranks the same WEFT_* settings",
            call, ours, w->rank, weft__algo_name(algo_of(w->sig)), theirs->rank,
            weft__algo_name(algo_of(theirs->sig)));
    } else {
        say(fault_p, WEFT_ERR_MISMATCH, theirs->rank,
            "ranks made different calls: call %llu is %s on rank %d, but %s on rank %d%s; all "
            "ranks must make the same calls in the same order",
            call, ours, w->rank, other, theirs->rank,
            strcmp(ours, other) == 0 ? ", with other counts in it" : "");
    }
}

void weft__watch_unlike(bool pe, const char *what, int rank, const char *value, int other,
                        const char *other_value, weft_fault_t *fault_p)
{
    const char *noun = pe ? "PE" : "rank";
    say(fault_p, WEFT_ERR_MISMATCH, other,
        "%ss disagree: %s %s on %s %d, but %s on %s %d; give all %ss the same", noun, what, value,
        noun, rank, other_value, noun, other, noun);
}

void weft__watch_unlike_size(int size, int other, int other_size, weft_fault_t *fault_p)
{
    char first[16], second[16];
    snprintf(first, sizeof(first), "%d", size);
    snprintf(second, sizeof(second), "%d", other_size);
    weft__watch_unlike(false, "the number of ranks is", 0, first, other, second, fault_p);
}
