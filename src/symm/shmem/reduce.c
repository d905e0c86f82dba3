/* Reductions.
 *
 * Small: every member says its elements with its flag and combines everybody's for itself. Large:
 * member r is responsible for slice r; it combines that slice of all sources and stores it to all
 * dests. All is read once and written once, in blocks that stay in the core's cache. Nobody else
 * touches a slice, so dest may be source. */
#include "symm/shmem/reduce.h"

#include <stdlib.h>
#include <string.h>

#include "symm/shmem/copy.h"

#define BLOCK_BYTES 16384u
#define FEW 32u /* elements: not worth the call of a kernel */
#define FEW_MEMBERS 64

typedef weft_shmem_reduction_t reduction_t;

/* The members' buffers, at addresses valid here. */
typedef struct buffers {
    const char **sources;
    char **dests;
    const void **from; /* those of a block */
    void **to;
} buffers_t;

static bool has_kernel(const reduction_t *reduction)
{
    return reduction->type != WEFT_DTYPE_COUNT;
}

/* ---- small -------------------------------------------------------------------------------- */

static void reduce_small(weft_shmem_team_t *team, void *dest, const void *source, size_t count,
                         const reduction_t *reduction, const char *call)
{
    size_t bytes = count * reduction->size;
    weft__shmem_enter(team, source, bytes, call);
    weft__shmem_await_near(team, call);
    for (int i = 0; i < team->size; i++) {
        weft__shmem_await(team, i, call);
        const void *said = weft__shmem_said(team, i, bytes);
        if (i == 0) {
            memcpy(dest, said, bytes);
        } else if (count > FEW && has_kernel(reduction)) {
            weft__shmem.kernels->combine(dest, dest, said, count, reduction->type, reduction->op);
        } else {
            reduction->combine(dest, said, count);
        }
    }
    team->seen = team->calls;
}

/* Everybody reads what everybody says: the more PEs, the sooner slices win, although they take a
 * second exchange. Where PEs share cores an exchange costs a turn of all of them: spare it. (As
 * comm/tuner.c, where it was measured.) */
static size_t small_limit(const weft_shmem_team_t *team)
{
    if (team->slot == WEFT_SHMEM_NO_SLOT) {
        return 0;
    }
    if (weft__shmem.oversubscribed) {
        return weft__shmem_room(team);
    }
    return team->size <= 2 ? 1024 : team->size <= 4 ? 256 : WEFT_SHMEM_INLINE;
}

/* ---- large -------------------------------------------------------------------------------- */

static void reduce_block(const buffers_t *buffers, int size, size_t at, size_t count,
                         const reduction_t *reduction)
{
    _Alignas(64) char sum[BLOCK_BYTES];
    size_t bytes = count * reduction->size;
    if (has_kernel(reduction)) {
        for (int i = 0; i < size; i++) {
            buffers->from[i] = buffers->sources[i] + at;
            buffers->to[i] = buffers->dests[i] + at;
        }
        weft__shmem.kernels->reduce(buffers->to, size, buffers->from, size, count, reduction->type,
                                    reduction->op, WEFT_STORE_CACHED);
        return;
    }
    memcpy(sum, buffers->sources[0] + at, bytes);
    for (int i = 1; i < size; i++) {
        reduction->combine(sum, buffers->sources[i] + at, count);
    }
    for (int i = 0; i < size; i++) {
        memcpy(buffers->dests[i] + at, sum, bytes);
    }
}

static void find_buffers(const weft_shmem_team_t *team, void *dest, const void *source,
                         size_t bytes, const char *call, buffers_t *buffers)
{
    for (int i = 0; i < team->size; i++) {
        int pe = weft__shmem_member(team, i);
        int turn = weft__shmem_member(team, weft__shmem_turn(team, i)); /* in any order */
        buffers->sources[i] = weft__shmem_remote(source, bytes, pe, call);
        buffers->dests[i] = weft__shmem_remote(dest, bytes, turn, call);
    }
}

static void reduce_large(weft_shmem_team_t *team, void *dest, const void *source, size_t count,
                         const reduction_t *reduction, const char *call)
{
    size_t size = (size_t)team->size;
    void *few[4 * FEW_MEMBERS];
    void **pointers = size <= FEW_MEMBERS ? few : malloc(4 * size * sizeof(*pointers));
    if (pointers == NULL) {
        weft__shmem_die("%s on PE %d: no memory for the addresses of %zu PEs", call, weft__shmem.me,
                        size);
    }
    buffers_t buffers = {(const char **)pointers, (char **)pointers + size,
                         (const void **)pointers + 2 * size, pointers + 3 * size};
    /* slices end at cache lines, so that no two members write to one */
    size_t line = 64 / reduction->size > 0 ? 64 / reduction->size : 1;
    size_t slice = (count + size - 1) / size;
    slice = (slice + line - 1) / line * line;
    size_t at = (size_t)team->me * slice, end = at + slice < count ? at + slice : count;
    size_t block = BLOCK_BYTES / reduction->size;
    find_buffers(team, dest, source, count * reduction->size, call, &buffers);
    weft__shmem_sync(team, call);
    for (; at < end; at += block) {
        size_t left = end - at;
        reduce_block(&buffers, team->size, at * reduction->size, left < block ? left : block,
                     reduction);
    }
    weft__shmem_sync(team, call);
    if (pointers != few) {
        free(pointers);
    }
}

void weft__shmem_reduce(weft_shmem_team_t *team, void *dest, const void *source, size_t count,
                        const weft_shmem_reduction_t *reduction, const char *call)
{
    size_t bytes = weft__shmem_bytes(count, reduction->size);
    if (count == 0) {
        return;
    }
    weft__shmem_check(dest, bytes, call);
    weft__shmem_check(source, bytes, call);
    if (bytes <= small_limit(team)) {
        reduce_small(team, dest, source, count, reduction, call);
    } else {
        reduce_large(team, dest, source, count, reduction, call);
    }
}

/* ---- entry points ------------------------------------------------------------------------- */

#define DEFINE_REDUCTION(name, op, type)                                                           \
    DEFINE(int, name##_##op##_reduce, shmem_team_t team, type *dest, const type *source,           \
           size_t nreduce)                                                                         \
    {                                                                                              \
        weft__shmem_reduce(weft__shmem_team(team, CALL), dest, source, nreduce,                    \
                           WEFT_SHMEM_REDUCTION(op, type), CALL);                                  \
        return 0;                                                                                  \
    }

SHMEM_TYPES_INTEGER(DEFINE_INTEGER)
SHMEM_TYPES_REAL(DEFINE_REAL)
DEFINE_ARITHMETIC(complexf, shmem_complexf_t)
DEFINE_ARITHMETIC(complexd, shmem_complexd_t)
