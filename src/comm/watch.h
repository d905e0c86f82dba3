/* The watch: who is alive, who is late, who called something else.
 *
 *     a backend, or who waits          watch/judge.c                      watch/write.c
 *     reports of each rank         ->  decides who is to blame,       ->  makes the sentence
 *     what it entered, its state       and for what
 *
 * Backends decide nothing and write nothing: the same fault has the same sentence on all of them.
 * All of it runs after waiting, or when something has failed. */
#ifndef WEFT_COMM_WATCH_H
#define WEFT_COMM_WATCH_H

#include "comm/comm.h"

/* ---- reports --------------------------------------------------------------------------------- */

typedef enum weft_state {
    WEFT_SEEN_UNKNOWN, /* it has not said where it is; while joining: it has not come */
    WEFT_SEEN_JOINED,
    WEFT_SEEN_LEFT, /* it destroyed its handle, or called shmem_finalize */
    WEFT_SEEN_ENDED /* its process has ended, and it had not left */
} weft_state_t;

/* What this rank still needs of another one, beside calls that it has not entered. */
typedef enum weft_debt {
    WEFT_OWES_NOTHING,
    WEFT_OWES_REST, /* it has entered the call, and may have to do more in it before it ends */
    WEFT_OWES_ALL   /* it has not done what this rank waits for */
} weft_debt_t;

/* What was seen of a rank. `state` is looked at before the rest: what a rank did before it went
 * still counts. */
typedef struct weft_seen {
    int rank; /* -1: none of the communicator, but `name` */
    weft_state_t state;
    weft_debt_t owes;
    uint64_t calls; /* collectives that it has entered so far */
    uint64_t sig,
        count;    /* of the last one, weft__sig_pack; or of what it sends, where it differs */
    bool differs; /* that was compared with what this rank expects of it, and is something else */
    bool stopped; /* by a signal */
    bool served_store;
    uint64_t gone_ns; /* for how long it has been gone and this rank has waited */
    int pid;          /* 0: not known */
    int exit_status;  /* 0: not known, or killed */
    const char *host; /* NULL: this one */
    const char *name;
} weft_seen_t;

/* What was seen in earlier looks, and since when. Starts as {0}, and again whenever nothing is
 * waited for. */
#define WEFT_JUDGED_RANKS 32
typedef struct weft_arrivals {
    weft_seen_t seen[WEFT_JUDGED_RANKS];
    uint64_t since[WEFT_JUDGED_RANKS]; /* ns */
} weft_arrivals_t;

/* What this rank waits in: joining, a call, or one of `in` and `doing`. */
typedef struct weft_waiting {
    int rank;
    int peer; /* whom it waits for; -1: not known */
    bool pe;  /* ranks are PEs of OpenSHMEM */
    bool joining;
    uint64_t first, last; /* the numbers of collectives that it is in; 0: messages have none */
    uint64_t sig, count;  /* of the first one, or of the message */
    const char *in;       /* a function of another interface */
    const char *doing;    /* "waiting for a record" */
    const char *advice;   /* what to do if all came and the call still does not end; or NULL */

    int timeout_ms; /* 0: none is ever late */
    uint64_t waited_ns;
    uint64_t lag_ns; /* what a rank did before it went may take this long to show here */
    bool compare;    /* nobody else compares calls: the judge does, by what ranks say of theirs */
    /* For a rank that does not wait itself, as its calls are on a stream: since when each rank has
     * not moved takes the place of waited_ns. NULL: it does wait. */
    weft_arrivals_t *arrivals;
    uint64_t now_ns; /* with arrivals */
    bool failed;     /* the call has failed, and needs a reason soon */
} weft_waiting_t;

/* What there is to say, and of whom (-1: not known). */
typedef struct weft_fault {
    weft_status_t status;
    int culprit;
    char text[WEFT_ERROR_TEXT];
} weft_fault_t;

/* ---- the judge ------------------------------------------------------------------------------- */

/* Is there a fault? `seen` are `n` reports, in the order of ranks, of those of which something is
 * known or should be; this rank may be among them. The first of these that holds for a rank is the
 * fault, and waiting->peer goes before others:
 *
 *     dead       It ended, and owes what is waited for, or has entered fewer calls than
 *                waiting->last; or it owes the rest of a call, and lag_ns or the time is up.
 *     left       It left, and owes what is waited for, or has entered fewer calls than that.
 *     different  It `differs`, or (compare) has made another call number waiting->first. With
 *                arrivals, numbers and calls are not read at the same instant, so this must last
 *                for half a second, or for 50 ms if the call has failed.
 *     late       Time is up. With arrivals: for one that has not entered waiting->first, nor any
 *                other call since the timeout. */
bool weft__watch(const weft_waiting_t *waiting, const weft_seen_t *seen, int n,
                 weft_fault_t *fault_p);

/* The same for a rank that has waited in vain at a rendezvous: `seen` are those who should have
 * come. `advice`: what to do if all have, or NULL. */
void weft__watch_absent(int rank, bool pe, const weft_seen_t *seen, int n, int timeout_ms,
                        const char *advice, weft_fault_t *fault_p);

/* ---- the writer ------------------------------------------------------------------------------ */

/* Time will be up: a warning, of the same words. */
void weft__watch_warn(const weft_waiting_t *waiting, const weft_seen_t *seen, int n);

/* Ranks give something else where all must give the same: `what`, "WEFT_CHUNK is", and its values
 * on two of them. */
void weft__watch_unlike(bool pe, const char *what, int rank, const char *value, int other,
                        const char *other_value, weft_fault_t *fault_p);
/* The same of the number of ranks, `size` on rank 0. */
void weft__watch_unlike_size(int size, int other, int other_size, weft_fault_t *fault_p);

#endif
