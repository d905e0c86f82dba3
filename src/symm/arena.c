/* The symmetric allocator: a space (device/space.h) in granules. */
#include "symm/arena.h"

#include <string.h>

#include "base/log.h"

weft_status_t weft__arena_init(weft_arena_t *arena, uint64_t bytes)
{
    memset(arena, 0, sizeof(*arena));
    arena->bytes = bytes / WEFT_ARENA_GRANULE * WEFT_ARENA_GRANULE;
    weft__space_init(&arena->space);
    if (arena->bytes > 0 && !weft__space_add(&arena->space, 0, arena->bytes)) {
        weft__space_cleanup(&arena->space);
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for the books of a symmetric heap");
    }
    return WEFT_OK;
}

void weft__arena_cleanup(weft_arena_t *arena)
{
    weft__space_cleanup(&arena->space);
    memset(arena, 0, sizeof(*arena));
}

uint64_t weft__arena_need(uint64_t bytes)
{
    if (bytes > UINT64_MAX - WEFT_ARENA_GRANULE) {
        return UINT64_MAX;
    }
    bytes = bytes == 0 ? 1 : bytes;
    return (bytes + WEFT_ARENA_GRANULE - 1) / WEFT_ARENA_GRANULE * WEFT_ARENA_GRANULE;
}

uint64_t weft__arena_alloc(weft_arena_t *arena, uint64_t bytes, uint64_t align)
{
    align = align < WEFT_ARENA_GRANULE ? WEFT_ARENA_GRANULE : align;
    weft_block_t *block = weft__space_alloc_aligned(&arena->space, weft__arena_need(bytes), align);
    if (block == NULL) {
        return WEFT_ARENA_NONE;
    }
    arena->used += block->bytes;
    arena->count++;
    return block->offset;
}

uint64_t weft__arena_size(const weft_arena_t *arena, uint64_t offset)
{
    const weft_block_t *block = weft__space_find(&arena->space, offset);
    return block == NULL ? 0 : block->bytes;
}

bool weft__arena_resize(weft_arena_t *arena, uint64_t offset, uint64_t bytes)
{
    weft_block_t *block = weft__space_find(&arena->space, offset);
    uint64_t before = block == NULL ? 0 : block->bytes;
    if (block == NULL || !weft__space_resize(&arena->space, block, weft__arena_need(bytes))) {
        return false;
    }
    arena->used = arena->used - before + block->bytes;
    return true;
}

bool weft__arena_free(weft_arena_t *arena, uint64_t offset)
{
    weft_block_t *block = weft__space_find(&arena->space, offset);
    if (block == NULL) {
        return false;
    }
    arena->used -= block->bytes;
    arena->count--;
    weft__space_free(&arena->space, block);
    return true;
}

uint64_t weft__arena_largest(const weft_arena_t *arena)
{
    const weft_block_t *block = weft__space_largest(&arena->space);
    return block == NULL ? 0 : block->bytes;
}
