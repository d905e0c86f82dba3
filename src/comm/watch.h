/* The watch: who is alive, who is late, who called something else. Whoever waits for other ranks reports what it has
 * seen of them and what it waits in; judge.c decides who is to blame, and write.c makes the sentence, the same for the
 * same fault on every backend. */
#ifndef WEFT_COMM_WATCH_H
#define WEFT_COMM_WATCH_H

#include "comm/comm.h"

/* What was seen of a rank. */
typedef struct weft_seen {
    uint64_t calls;      /* collectives that it has entered so far */
    uint64_t sig, count; /* of the last one, weft__sig_pack */
    bool silent;         /* it has not said where it is; while joining: it has not come */
    int pid;             /* 0: not known */
    const char
        *who; /* of one that is gone: more about it, "which served the store"; NULL: nothing */
    const char *how; /* of one that is gone, how it went; NULL: it died, or destroyed its handle */
} weft_seen_t;

/* What this rank waits in. One of `in` and `doing` where it is no call. */
typedef struct weft_waiting {
    int rank, size;
    int peer; /* whom it waits for; -1: not known */
    int timeout_ms;
    bool joining;
    uint64_t first, last; /* the numbers of collectives that it is in; 0: messages have none */
    uint64_t sig, count;  /* of the first one, or of the message */
    const char *in;       /* a function of another interface */
    const char *doing;    /* "waiting for a record" */
    const char *noun;     /* NULL: "rank" */
} weft_waiting_t;

/* What there is to say, and of whom. */
typedef struct weft_fault {
    weft_status_t status;
    int culprit;
    char text[WEFT_ERROR_TEXT];
} weft_fault_t;

/* Rank `rank` has died, or left, before it did what is waited for. */
void weft__watch_dead(const weft_waiting_t *waiting, int rank, const weft_seen_t *seen,
                      weft_fault_t *fault_p);
void weft__watch_left(const weft_waiting_t *waiting, int rank, const weft_seen_t *seen,
                      weft_fault_t *fault_p);

/* Time is up, or will be (a warning). `seen` [size]: only looked at in collectives and while joining; NULL: nothing
 * is known of them. `more`: what else is known, with `in`; "": nothing. */
void weft__watch_late(const weft_waiting_t *waiting, const weft_seen_t *seen, const char *more,
                      weft_fault_t *fault_p);
void weft__watch_warn(const weft_waiting_t *waiting, const weft_seen_t *seen, double waited,
                      const char *more);

/* waiting->peer made another call than this rank; also of the same, if it is an alltoallv whose counts differ. */
void weft__watch_differs(const weft_waiting_t *waiting, const weft_seen_t *theirs,
                         weft_fault_t *fault_p);

/* ---- the judge ----------------------------------------------------------------------------- */

#define WEFT_JUDGED_RANKS 32

/* What was seen last, and since when. Starts as {0}, and again whenever nothing is waited for. */
typedef struct weft_arrivals {
    weft_seen_t seen[WEFT_JUDGED_RANKS];
    uint64_t since[WEFT_JUDGED_RANKS]; /* ns */
} weft_arrivals_t;

/* The rank that has made another call of the number waiting->first; -1: none. */
int weft__judge_other(const weft_waiting_t *waiting, const weft_seen_t *seen);

/* This rank waits in call waiting->first, and `seen` are all ranks now. Returns the rank to blame, or -1: one
 * that has not made the call, and none since the timeout (0: none is ever late), or one that has made another call
 * of that number (*other_p). The latter is only said when it has been so for half a second, or for 50 ms if the
 * call has `failed`, which needs a reason soon: numbers and calls are not read at the same instant. */
int weft__judge(weft_arrivals_t *arrivals, const weft_waiting_t *waiting, const weft_seen_t *seen,
                bool failed, uint64_t now, bool *other_p);

#endif
