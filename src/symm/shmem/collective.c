/* Collectives that move data.
 *
 * Small: what a member gives travels with its flag (group.h), and is copied out on its way into the
 * call, so one call is enough and `source` may be used again at once. Large: everybody reads
 * directly from everybody's `source`, each starting with the member after itself, and a second call
 * says that the reading is done. */
#include "symm/shmem/collective.h"

#include <string.h>

#include "symm/shmem/copy.h"

/* `bytes` at `address` of member `i`. */
static const void *of_member(const weft_shmem_team_t *team, int i, const void *address,
                             size_t bytes, const char *call)
{
    return weft__shmem_remote(address, bytes, weft__shmem_member(team, i), call);
}

static void be_done(weft_shmem_team_t *team, const char *call)
{
    weft__shmem_sync(team, call);
}

void weft__shmem_broadcast(weft_shmem_team_t *team, void *dest, const void *source, size_t bytes,
                           int root, bool to_root, const char *call)
{
    bool small = bytes <= weft__shmem_room(team) && team->slot != WEFT_SHMEM_NO_SLOT;
    bool is_root = team->me == root;
    if (unlikely(root < 0 || root >= team->size)) {
        weft__shmem_die("%s on PE %d: PE_root %d is not one of %d PEs", call, weft__shmem.me, root,
                        team->size);
    }
    if (bytes == 0) {
        return;
    }
    weft__shmem_check(dest, bytes, call);
    weft__shmem_check(source, bytes, call);
    weft__shmem_enter(team, source, small && is_root ? bytes : 0, call);
    if (!is_root) {
        weft__shmem_await(team, root, call);
        weft__shmem_copy(dest,
                         small ? weft__shmem_said(team, root, bytes)
                               : of_member(team, root, source, bytes, call),
                         bytes);
    } else if (to_root && dest != source) {
        weft__shmem_copy(dest, source, bytes);
    }
    if (small) {
        return;
    }
    weft__shmem_enter(team, NULL, 0, call);
    if (is_root) {
        weft__shmem_await_all(team, call);
    }
}

void weft__shmem_fcollect(weft_shmem_team_t *team, void *dest, const void *source, size_t bytes,
                          const char *call)
{
    bool small = bytes <= weft__shmem_room(team) && team->slot != WEFT_SHMEM_NO_SLOT;
    if (bytes == 0) {
        return;
    }
    weft__shmem_check(dest, bytes * (size_t)team->size, call);
    weft__shmem_check(source, bytes, call);
    weft__shmem_enter(team, source, small ? bytes : 0, call);
    weft__shmem_await_near(team, call);
    for (int k = 0; k < team->size; k++) {
        int i = weft__shmem_turn(team, k);
        weft__shmem_await(team, i, call);
        weft__shmem_copy((char *)dest + (size_t)i * bytes,
                         small ? weft__shmem_said(team, i, bytes)
                               : of_member(team, i, source, bytes, call),
                         bytes);
    }
    if (!small) {
        be_done(team, call);
    }
}

void weft__shmem_collect(weft_shmem_team_t *team, void *dest, const void *source, size_t bytes,
                         const char *call)
{
    uint64_t mine = bytes;
    size_t at = 0;
    weft__shmem_enter(team, &mine, sizeof(mine), call);
    weft__shmem_await_all(team, call);
    for (int i = 0; i < team->size; i++) {
        uint64_t theirs = mine;
        if (i != team->me) {
            memcpy(&theirs, weft__shmem_said(team, i, sizeof(theirs)), sizeof(theirs));
        }
        if (theirs > 0) {
            weft__shmem_check((char *)dest + at, theirs, call);
            weft__shmem_copy((char *)dest + at, of_member(team, i, source, theirs, call), theirs);
        }
        at += theirs;
    }
    be_done(team, call);
}

void weft__shmem_alltoall(weft_shmem_team_t *team, void *dest, const void *source, size_t bytes,
                          const char *call)
{
    size_t all = bytes * (size_t)team->size, mine = bytes * (size_t)team->me;
    bool small = all <= weft__shmem_room(team) && team->slot != WEFT_SHMEM_NO_SLOT;
    if (bytes == 0) {
        return;
    }
    weft__shmem_check(dest, all, call);
    weft__shmem_check(source, all, call);
    weft__shmem_enter(team, source, small ? all : 0, call);
    weft__shmem_await_near(team, call);
    for (int k = 0; k < team->size; k++) {
        int i = weft__shmem_turn(team, k);
        weft__shmem_await(team, i, call);
        const char *from = small ? weft__shmem_said(team, i, all)
                                 : of_member(team, i, source, all, call);
        weft__shmem_copy((char *)dest + (size_t)i * bytes, from + mine, bytes);
    }
    if (!small) {
        be_done(team, call);
    }
}

void weft__shmem_alltoalls(weft_shmem_team_t *team, void *dest, const void *source, ptrdiff_t dst,
                           ptrdiff_t sst, size_t nelems, size_t size, const char *call)
{
    if (dst < 1 || sst < 1) {
        weft__shmem_die("%s on PE %d: strides are 1 or more, not dst %td and sst %td", call,
                        weft__shmem.me, dst, sst);
    }
    if (nelems == 0) {
        return;
    }
    size_t to_block = nelems * (size_t)dst * size, from_block = nelems * (size_t)sst * size;
    size_t to_reach = weft__shmem_reach(dst, nelems, size);
    size_t from_reach = weft__shmem_reach(sst, nelems, size);
    const char *mine = (const char *)source + (size_t)team->me * from_block;
    weft__shmem_check(dest, (size_t)(team->size - 1) * to_block + to_reach, call);
    weft__shmem_enter(team, NULL, 0, call);
    weft__shmem_await_near(team, call);
    for (int k = 0; k < team->size; k++) {
        int i = weft__shmem_turn(team, k);
        weft__shmem_await(team, i, call);
        weft__shmem_copy_strided((char *)dest + (size_t)i * to_block, dst,
                                 of_member(team, i, mine, from_reach, call), sst, nelems, size);
    }
    be_done(team, call);
}

/* ---- entry points ------------------------------------------------------------------------- */

DEFINE(void, sync_all, void)
{
    weft__shmem_sync(weft__shmem_team(SHMEM_TEAM_WORLD, CALL), CALL);
}

/* The release with which a call is entered is all the quiet that is needed: see group.c. */
DEFINE(void, barrier_all, void)
{
    weft__shmem_sync(weft__shmem_team(SHMEM_TEAM_WORLD, CALL), CALL);
}

DEFINE(int, team_sync, shmem_team_t team)
{
    weft__shmem_sync(weft__shmem_team(team, CALL), CALL);
    return 0;
}

#define TEAM weft__shmem_team(team, CALL)

#define DEFINE_COLLECTIVES(prefix, suffix, type, size)                                             \
    DEFINE(int, prefix##broadcast##suffix, shmem_team_t team, type *dest, const type *source,      \
           size_t nelems, int PE_root)                                                             \
    {                                                                                              \
        weft__shmem_broadcast(TEAM, dest, source, weft__shmem_bytes(nelems, size), PE_root, true,  \
                              CALL);                                                               \
        return 0;                                                                                  \
    }                                                                                              \
    DEFINE(int, prefix##collect##suffix, shmem_team_t team, type *dest, const type *source,        \
           size_t nelems)                                                                          \
    {                                                                                              \
        weft__shmem_collect(TEAM, dest, source, weft__shmem_bytes(nelems, size), CALL);            \
        return 0;                                                                                  \
    }                                                                                              \
    DEFINE(int, prefix##fcollect##suffix, shmem_team_t team, type *dest, const type *source,       \
           size_t nelems)                                                                          \
    {                                                                                              \
        weft__shmem_fcollect(TEAM, dest, source, weft__shmem_bytes(nelems, size), CALL);           \
        return 0;                                                                                  \
    }                                                                                              \
    DEFINE(int, prefix##alltoall##suffix, shmem_team_t team, type *dest, const type *source,       \
           size_t nelems)                                                                          \
    {                                                                                              \
        weft__shmem_alltoall(TEAM, dest, source, weft__shmem_bytes(nelems, size), CALL);           \
        return 0;                                                                                  \
    }                                                                                              \
    DEFINE(int, prefix##alltoalls##suffix, shmem_team_t team, type *dest, const type *source,      \
           ptrdiff_t dst, ptrdiff_t sst, size_t nelems)                                            \
    {                                                                                              \
        weft__shmem_alltoalls(TEAM, dest, source, dst, sst, nelems, size, CALL);                   \
        return 0;                                                                                  \
    }
#define DEFINE_TYPE(name, type) DEFINE_COLLECTIVES(name##_, , type, sizeof(type))

SHMEM_TYPES_RMA(DEFINE_TYPE)
DEFINE_COLLECTIVES(, mem, void, 1)
