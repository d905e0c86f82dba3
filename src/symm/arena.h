/* The allocator of a symmetric heap: offsets, the same on every rank.
 *
 * Each rank keeps an arena of its own. It knows nothing of memory or of other ranks; what it hands
 * out depends on nothing but the calls made before. So when all ranks make the same calls in the
 * same order, as symmetric allocation demands, they get the same offsets without a word being
 * exchanged.
 *
 * Best fit; neighbours merge when freed. Offsets and sizes are multiples of WEFT_ARENA_GRANULE, so
 * no two allocations share a cache line. Not thread-safe. */
#ifndef WEFT_SYMM_ARENA_H
#define WEFT_SYMM_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#include "device/space.h"

#define WEFT_ARENA_GRANULE 64u
#define WEFT_ARENA_NONE UINT64_MAX /* no offset */

typedef struct weft_arena {
    weft_space_t space;
    uint64_t bytes; /* what there is */
    uint64_t used;  /* of it, handed out */
    size_t count;   /* allocations that live */
} weft_arena_t;

/* Manage offsets 0 to `bytes` (rounded down to granules). */
weft_status_t weft__arena_init(weft_arena_t *arena, uint64_t bytes);

/* Forget everything, also what still lives. */
void weft__arena_cleanup(weft_arena_t *arena);

/* What an allocation of `bytes` takes: at least a granule. UINT64_MAX if that overflows. */
uint64_t weft__arena_need(uint64_t bytes);

/* An offset for `bytes`, a multiple of `align` (a power of two; less than a granule is a granule).
 * WEFT_ARENA_NONE if no free block has room; weft__arena_largest then says what there is. Memory is
 * not touched: for zeros the caller fills. */
uint64_t weft__arena_alloc(weft_arena_t *arena, uint64_t bytes, uint64_t align);

/* Room at an allocation, at least what was asked for; 0 if none starts at `offset`. */
uint64_t weft__arena_size(const weft_arena_t *arena, uint64_t offset);

/* Give the allocation at `offset` room for `bytes` without moving it. false, and nothing changes,
 * if what follows is taken; then allocate, copy and free. */
bool weft__arena_resize(weft_arena_t *arena, uint64_t offset, uint64_t bytes);

/* false if no allocation starts at `offset`. */
bool weft__arena_free(weft_arena_t *arena, uint64_t offset);

/* Bytes of the largest free block. */
uint64_t weft__arena_largest(const weft_arena_t *arena);

#endif
