/* How the members of a team, or of an active set, find each other in a collective.
 *
 * A collective is one or more numbered calls. A member *enters* a call, with something to say or
 * nothing, and *awaits* those others that it needs. To enter call k + 1 is to be done with call k.
 *
 * Teams: what a member says is in its own control part, in a ring of entries; the others look
 * there. One transfer of a cache line per reader carries the flag and up to 112 bytes, nobody
 * writes to anybody, and a member that awaits nobody may run up to WEFT_SHMEM_RING calls ahead.
 *
 * Active sets have no place of their own, since any of them may be used at any time. There a member
 * counts signals to each other member, in the other's control part; all sets that two PEs share
 * count together, which works because both call them in the same order. pSync is not needed. */
#ifndef WEFT_SYMM_SHMEM_GROUP_H
#define WEFT_SYMM_SHMEM_GROUP_H

#include "symm/shmem/api.h"
#include "symm/shmem/wait.h"

#define WEFT_SHMEM_NO_SLOT (-1) /* an active set */

/* An active set as a team. Ends the job if this PE is not in it or it is none. */
void weft__shmem_active_set(int start, int log_stride, int size, const char *call,
                            weft_shmem_team_t *team_p);

/* Largest thing to be said. */
static inline size_t weft__shmem_room(const weft_shmem_team_t *team)
{
    return team->slot == WEFT_SHMEM_NO_SLOT ? sizeof(uint64_t) : WEFT_SHMEM_BULK;
}

/* Begin the next call and say `bytes` of `data` (0: nothing). */
void weft__shmem_enter(weft_shmem_team_t *team, const void *data, size_t bytes, const char *call);

/* Return when member `i` has entered the call that we are in. */
void weft__shmem_await(weft_shmem_team_t *team, int i, const char *call);
void weft__shmem_await_all(weft_shmem_team_t *team, const char *call);

/* Where PEs share cores, await those that need ours. Whoever is going to await everybody does this
 * first: then all cores change hands at the same time, and the rest need only be polled for. */
void weft__shmem_await_near(weft_shmem_team_t *team, const char *call);

/* What member `i`, who has been awaited, said in this call; until the next call is entered. `bytes`
 * as it gave them. */
const void *weft__shmem_said(const weft_shmem_team_t *team, int i, size_t bytes);

/* Enter and await all. */
void weft__shmem_sync(weft_shmem_team_t *team, const char *call);

/* The k-th member to turn to: everybody begins with itself, so that not all turn to the same
 * one. */
static inline int weft__shmem_turn(const weft_shmem_team_t *team, int k)
{
    int i = team->me + k;
    return i < team->size ? i : i - team->size;
}

static inline int weft__shmem_member(const weft_shmem_team_t *team, int i)
{
    return team->start + i * team->stride;
}

#endif
