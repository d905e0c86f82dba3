/* How entry points are written.
 *
 *     DEFINE(int, my_pe, void)
 *     {
 *         ...
 *     }
 *
 * defines pshmem_my_pe, and shmem_my_pe as a weak name of the same function: a profiler may define
 * shmem_my_pe itself, also when it is linked statically. */
#ifndef WEFT_SYMM_SHMEM_API_H
#define WEFT_SYMM_SHMEM_API_H

#include "symm/shmem/state.h"

#define DEFINE(result, name, ...)                                                                  \
    result shmem_##name(__VA_ARGS__) __attribute__((weak, alias("pshmem_" #name)));                \
    result pshmem_##name(__VA_ARGS__)

/* The name of the entry point we are in, for sentences. */
#define CALL (__func__ + 1)

/* ---- contexts (team.c) -------------------------------------------------------------------- */

typedef struct weft_shmem_team {
    int start, stride, size; /* member i is PE start + i * stride */
    int me;                  /* my number in it; -1: predefined before shmem_init */
    int slot;                /* in the control parts of its members */
    uint64_t calls;          /* collectives begun; the last one's number */
    uint64_t seen;           /* all members have begun this call, or a later one */
    shmem_team_config_t config;
    struct weft_shmem_ctx *contexts; /* that are not PRIVATE: go with the team */
} weft_shmem_team_t;

#define WEFT_SHMEM_CTX_MAGIC 0x78746377u /* "wctx" */

typedef struct weft_shmem_ctx {
    uint32_t magic;
    long options;
    weft_shmem_team_t *team;
    struct weft_shmem_ctx *next;
} weft_shmem_ctx_t;

extern HIDDEN weft_shmem_team_t weft__shmem_world, weft__shmem_shared;

/* Those that the program makes, by slot; `size` is 0 where there is none. In place, so that a
 * handle of a team that was destroyed can be told from one that is alive. */
extern HIDDEN weft_shmem_team_t weft__shmem_teams[WEFT_SHMEM_TEAMS];

_Noreturn void weft__shmem_bad_ctx(const char *call, shmem_ctx_t ctx);
_Noreturn void weft__shmem_bad_team(const char *call, shmem_team_t team);

/* The number in the world of PE `pe` of a context's team. */
FAST int weft__shmem_ctx_pe(shmem_ctx_t ctx, int pe, const char *call)
{
    if (likely(ctx == SHMEM_CTX_DEFAULT)) {
        return pe;
    }
    if (unlikely(ctx == SHMEM_CTX_INVALID || ctx->magic != WEFT_SHMEM_CTX_MAGIC)) {
        weft__shmem_bad_ctx(call, ctx);
    }
    const weft_shmem_team_t *team = ctx->team;
    if (unlikely((unsigned)pe >= (unsigned)team->size)) {
        weft__shmem_bad_pe(call, pe, team->size);
    }
    return team->start + pe * team->stride;
}

/* The team of a handle, which must be valid. */
FAST weft_shmem_team_t *weft__shmem_team(shmem_team_t team, const char *call)
{
    if (unlikely(weft__shmem.pes == 0)) {
        weft__shmem_bad_team(call, team);
    }
    if (team == SHMEM_TEAM_WORLD || team == SHMEM_TEAM_SHARED) {
        return team == SHMEM_TEAM_WORLD ? &weft__shmem_world : &weft__shmem_shared;
    }
    uintptr_t at = (uintptr_t)team - (uintptr_t)weft__shmem_teams;
    if (unlikely(at >= sizeof(weft__shmem_teams) || at % sizeof(*team) != 0 || team->size == 0)) {
        weft__shmem_bad_team(call, team);
    }
    return team;
}

#endif
