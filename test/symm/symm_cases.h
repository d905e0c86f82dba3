/* Functions for teams that try a symmetric heap, on virtual GPUs and real ones. The host reaches
 * what is in the heap by puts and gets alone. */
#ifndef WEFT_TEST_SYMM_SYMM_CASES_H
#define WEFT_TEST_SYMM_SYMM_CASES_H

#include "comm/harness.h"

#include <weft/symm.h>

/* A heap of `bytes` for this rank, and memory in it. */
weft_symm_h symm_open(team_t *team, size_t bytes);
void *symm_take(weft_symm_h symm, size_t bytes);

/* Random numbers that all ranks have alike: a fresh seed a run, which rank 0 prints and hands
 * out. */
uint64_t symm_seed(team_t *team);
uint64_t symm_random(uint64_t *state);

void symm_alloc(team_t *team);           /* offsets, zeros, freeing, statistics, random orders */
void symm_refused(team_t *team);         /* wrong ranks, addresses, sizes, alignments; too small */
void symm_freed(team_t *team);           /* memory that is freed, or was never allocated */
void symm_sizes_differ(team_t *team);    /* heaps and allocations of different sizes */
void symm_put_get(team_t *team);         /* random sizes and offsets against a copy */
void symm_ring_of_signals(team_t *team); /* put with signal round and round */
void symm_on_streams(team_t *team);      /* the same, queued */
void symm_atomics(team_t *team);         /* all of them, by all ranks on one word */
void symm_views(team_t *team);
void symm_settings(team_t *team);        /* with WEFT_SYMM_SIZE=3M WEFT_DEVICE_MEMORY=32M */
void symm_killed(team_t *team);          /* rank 1 dies while the others wait for a signal */
void symm_late(team_t *team);            /* a signal that does not come */
void symm_left_in_barrier(team_t *team); /* rank 1 dies before weft_symm_destroy */

#endif
