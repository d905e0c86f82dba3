/* For layers that reach other ranks' memory themselves: where it is, whether its owner lives, and waits
 * that end when it does not. Communicators whose ranks share a host have this (shm and cuda). */
#ifndef WEFT_COMM_REACH_H
#define WEFT_COMM_REACH_H

#include "comm/comm.h"

/* WEFT_ERR_UNSUPPORTED, with the reason, where ranks cannot reach each other's memory. */
weft_status_t weft__reach_check(weft_comm_h comm, const char *who);

/* A number by which the others find [ptr, ptr + bytes), which this rank has from weft_malloc. Returns
 * when all of them can; telling them the number is the caller's business. */
weft_status_t weft__reach_export(weft_comm_h comm, const void *ptr, size_t bytes, uint64_t *ref_p);

/* Where memory that `rank` exported is here. Stays so while the communicator lives. */
void *weft__reach_import(weft_comm_h comm, int rank, uint64_t ref);

/* Has `rank` died or left? Costs a system call. */
bool weft__reach_gone(weft_comm_h comm, int rank);

/* Break the communicator for all its ranks and return that error, or the one that came first. */
weft_status_t weft__reach_break(weft_comm_h comm, weft_status_t status, int culprit,
                                const char *format, ...) __attribute__((format(printf, 4, 5)));

/* WEFT_OK, or what broke the communicator, as this thread's error. */
weft_status_t weft__reach_broken(weft_comm_h comm);

/* A wait for something that others do to memory. */
typedef struct weft_reach_wait {
    bool (*ready)(const void *arg); /* is it there? An acquire load, as a rule */
    const void *arg;
    const char *what; /* for sentences: "a record", ... */
    /* Optional, in place of `what`: says it when there is a sentence. Most waits have none, and are in
     * a hurry. */
    void (*describe)(const void *arg, char *text, size_t room);
    /* NULL: a rank that is gone breaks the communicator. Otherwise [size], false at first: it is
     * WEFT_ERR_RANK_DEAD once, noted here, and then no longer missed; nothing is broken. */
    bool *told;
    bool deaf; /* nobody's death matters: `ready` finds out itself about those it waits for */
} weft_reach_wait_t;

/* Spin, yield, then nap until ready. Errors: broken, gone, late. What a rank did before it went away
 * still counts. */
weft_status_t weft__reach_await(weft_comm_h comm, const weft_reach_wait_t *wait);

/* Somebody who is asked now and then, by the thread that watches GPUs, to look for trouble; and from
 * whose coming on every rank that dies or leaves breaks the communicator. No guests on virtual GPUs. */
typedef struct weft_reach_guest {
    void (*look)(void *arg);
    void *arg;
    struct weft_reach_guest *next; /* of the communicator */
} weft_reach_guest_t;
void weft__reach_enter(weft_comm_h comm, weft_reach_guest_t *guest);
void weft__reach_leave(weft_comm_h comm, weft_reach_guest_t *guest);

#endif
