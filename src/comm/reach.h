/* For layers that reach other ranks' memory themselves: where it is, whether its owner lives, and
 * waits that end when it does not. Communicators whose ranks share a host have this. Processes and
 * idle waits (the two headers) are for those who reach memory without a communicator. */
#ifndef WEFT_COMM_REACH_H
#define WEFT_COMM_REACH_H

#include "comm/comm.h"
#include "comm/host/idle.h"
#include "comm/host/procs.h"

/* WEFT_ERR_UNSUPPORTED, with the reason, where ranks cannot reach each other's memory. */
weft_status_t weft__reach_check(weft_comm_h comm, const char *who);

/* A number by which the others find [ptr, ptr + bytes), which this rank has from weft_malloc.
 * Returns when all of them can; telling them the number is the caller's business. */
weft_status_t weft__reach_export(weft_comm_h comm, const void *ptr, size_t bytes, uint64_t *ref_p);

/* Where memory that `rank` exported is here. Stays so while the communicator lives. */
void *weft__reach_import(weft_comm_h comm, int rank, uint64_t ref);

/* Has `rank` died or left? Costs a system call. */
bool weft__reach_gone(weft_comm_h comm, int rank);

/* Break the communicator for all its ranks and return that error, or the one that came first. */
weft_status_t weft__reach_break(weft_comm_h comm, weft_status_t status, int culprit,
                                const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The same for those who do not talk to the caller. */
void weft__reach_fail(weft_comm_h comm, weft_status_t status, int culprit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* WEFT_OK, or what broke the communicator, as this thread's error. */
weft_status_t weft__reach_broken(weft_comm_h comm);

/* A wait for something that others do to memory. */
typedef struct weft_reach_wait {
    bool (*ready)(const void *arg); /* is it there? An acquire load, as a rule */
    const void *arg;
    const char *what; /* for sentences: "a record", ... */
    /* Optional, in place of `what`: says it when there is a sentence. Most waits have none, and are
     * in a hurry. */
    void (*describe)(const void *arg, char *text, size_t room);
    /* NULL: a rank that is gone breaks the communicator. Otherwise [size], false at first: it is
     * WEFT_ERR_RANK_DEAD once, noted here, and then no longer missed; nothing is broken. */
    bool *told;
    bool deaf; /* nobody's death matters: `ready` finds out itself about those it waits for */
} weft_reach_wait_t;

/* Spin, yield, then nap until ready. Errors: broken, gone, late. What a rank did before it went
 * away still counts. */
weft_status_t weft__reach_await(weft_comm_h comm, const weft_reach_wait_t *wait);

/* Whom `ready` found gone, where it finds out itself: the error of that, which breaks nothing.
 * WEFT_OK if it is not. */
weft_status_t weft__reach_missed(weft_comm_h comm, const weft_reach_wait_t *wait, int rank);

/* Somebody who is asked now and then, by the thread that watches GPUs, to look for trouble; and
 * from whose coming on every rank that dies or leaves breaks the communicator. On virtual GPUs
 * nobody is asked. When weft__reach_leave returns, the observer is not being asked any more. */
typedef struct weft_reach_observer {
    void (*look)(void *arg);
    void *arg;
    struct weft_reach_observer *next; /* of the communicator */
} weft_reach_observer_t;
void weft__reach_enter(weft_comm_h comm, weft_reach_observer_t *observer);
void weft__reach_leave(weft_comm_h comm, weft_reach_observer_t *observer);

/* ---- on GPUs ----------------------------------------------------------------------------- */

/* What kernels need that wait for other ranks. */
typedef struct weft_reach_gpu {
    int gpu;             /* CUDA's number */
    bool wide;           /* some peers are on other GPUs */
    uint64_t timeout_ns; /* 0: none */
    uint32_t *stop;      /* in pinned memory; not 0: do not wait any longer */
} weft_reach_gpu_t;
weft_reach_gpu_t weft__reach_gpu(weft_comm_h comm);

/* CUDA reports an error in something of the caller's. When a process dies its memory goes, and
 * kernels of others that were using it fail: so the rank that died is named if there is one, and
 * `what` otherwise. */
weft_status_t weft__reach_failed(weft_comm_h comm, int error, const char *what);

#endif
