/* The control part of a PE's file: everything that is not the user's.
 *
 * A PE writes only to its own, except for `pairs` (each word has one writer) and `end` (of PE 0,
 * first come). */
#ifndef WEFT_SYMM_SHMEM_CONTROL_H
#define WEFT_SYMM_SHMEM_CONTROL_H

#include <stdatomic.h>
#include <stdint.h>

#define WEFT_SHMEM_TEAMS                                                                           \
    64 /* that a PE can be in at the same time, the two predefined ones included */
#define WEFT_SHMEM_RING 8 /* calls of a team that may be under way at the same time */
#define WEFT_SHMEM_INLINE 112
#define WEFT_SHMEM_BULK 4096

/* What a PE says in call number `call` of a team. Partner: readers acquire `call`, then read data.
 * Two lines, because processors fetch lines in pairs. */
typedef struct weft_shmem_entry {
    _Alignas(128) _Atomic uint64_t call;
    _Alignas(16) unsigned char data[WEFT_SHMEM_INLINE]; /* of any type */
} weft_shmem_entry_t;

_Static_assert(sizeof(weft_shmem_entry_t) == 128, "a pair of cache lines");

/* Signals from one PE to another, for collectives on active sets, with a value beside every one.
 * Signal number k has its value in values[k % 2]: see group.c for why two are enough. */
typedef struct weft_shmem_pair {
    _Alignas(64) _Atomic uint64_t signals;
    uint64_t values[2];
} weft_shmem_pair_t;

enum { WEFT_SHMEM_RUNS = 0, WEFT_SHMEM_LEFT = 1, WEFT_SHMEM_EXITED = 2 };

typedef struct weft_shmem_control {
    uint64_t magic;
    _Atomic int state;       /* WEFT_SHMEM_*; release, before the process ends. Partner: watches */
    _Atomic int exit_status; /* of one that EXITED */
    /* Of PE 0: 0, or 1 << 32 | the status all are to exit with. Who changes it has the say. */
    _Alignas(64) _Atomic uint64_t end;
    weft_shmem_entry_t entries[WEFT_SHMEM_TEAMS][WEFT_SHMEM_RING];
    _Alignas(64) unsigned char bulk[WEFT_SHMEM_TEAMS][WEFT_SHMEM_RING][WEFT_SHMEM_BULK];
    weft_shmem_pair_t pairs[]; /* one per PE: what that PE has signalled to this one */
} weft_shmem_control_t;

#endif
