/* The allocator of device memory.
 *
 * Two levels, both best fit (space.h). Large allocations are whole pages. Small ones share
 * regions, which are large allocations themselves and go back when their last piece is freed:
 *
 *     pages | large      | region: s s . s . . | free ... | large | free ........... |
 *
 * All bookkeeping is in the process's own memory, so that no peer can damage it. The heap knows
 * which pages exist: those in use always do, free ones until they are given back. Unused pages are
 *     reserved (pages that exist) - in_use
 * and a free that leaves more than `keep` of them gives some back at once: those of the free block
 * it made, from its end on, because the next allocation starts at its beginning. */
#include "device/cpu/pool.h"

#include <string.h>

#include "base/log.h"

#define REGION_MOST (UINT64_C(2) << 20)
#define REGION_LEAST (UINT64_C(2) * WEFT_POOL_LARGE)
#define AHEAD_LEAST (UINT64_C(2) << 20)
#define AHEAD_MOST (UINT64_C(64) << 20)

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

weft_status_t weft__pool_init(weft_pool_t *pool, weft_heap_t *heap, uint64_t keep)
{
    memset(pool, 0, sizeof(*pool));
    pool->heap = heap;
    pool->keep = keep;
    pool->capacity = heap->bytes - heap->page;
    pool->region = round_up(pool->capacity / 64, heap->page);
    pool->region = pool->region > REGION_MOST ? REGION_MOST : pool->region;
    pool->region = pool->region < REGION_LEAST ? REGION_LEAST : pool->region;
    pool->stats.capacity = pool->capacity;
    weft__space_init(&pool->pages);
    weft__space_init(&pool->small);
    if (!weft__space_add(&pool->pages, heap->page, pool->capacity)) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "device %d: no memory for the pool's bookkeeping",
                          heap->device);
    }
    pthread_mutex_init(&pool->lock, NULL);
    return WEFT_OK;
}

void weft__pool_cleanup(weft_pool_t *pool)
{
    weft__space_cleanup(&pool->small);
    weft__space_cleanup(&pool->pages);
    pthread_mutex_destroy(&pool->lock);
}

static uint64_t unused(const weft_pool_t *pool)
{
    return pool->heap->reserved - pool->stats.in_use;
}

/* ---- the two levels --------------------------------------------------------------------- */

/* A new region of `bytes` for small allocations. */
static bool add_region(weft_pool_t *pool, uint64_t bytes)
{
    weft_block_t *block = weft__space_alloc(&pool->pages, bytes);
    if (block == NULL) {
        return false;
    }
    if (!weft__space_add(&pool->small, block->offset, block->bytes)) {
        weft__space_free(&pool->pages, block);
        return false;
    }
    block->region = true;
    return true;
}

static weft_block_t *take_small(weft_pool_t *pool, uint64_t bytes)
{
    weft_block_t *block = weft__space_alloc(&pool->small, bytes);
    /* Close to full, a region of just the size still fits into a hole. */
    if (block == NULL &&
        (add_region(pool, pool->region) || add_region(pool, round_up(bytes, pool->heap->page)))) {
        block = weft__space_alloc(&pool->small, bytes);
    }
    return block;
}

static weft_block_t *take(weft_pool_t *pool, uint64_t bytes, bool small,
                          weft_shortage_t *shortage_p)
{
    weft_block_t *block = small ? take_small(pool, bytes) : weft__space_alloc(&pool->pages, bytes);
    if (block == NULL) {
        weft_block_t *largest = weft__space_largest(&pool->pages);
        weft_block_t *piece = weft__space_largest(&pool->small);
        *shortage_p = (weft_shortage_t){.kind = WEFT_SHORT_DEVICE, .need = bytes};
        shortage_p->room = largest == NULL ? 0 : largest->bytes;
        if (small && piece != NULL && piece->bytes > shortage_p->room) {
            shortage_p->room = piece->bytes;
        }
        if (shortage_p->room >= bytes) {
            shortage_p->kind = WEFT_SHORT_BOOKKEEPING;
        }
    }
    return block;
}

/* Put a block back; the free block of whole pages that it made, or NULL if its region stays. */
static weft_block_t *put_back(weft_pool_t *pool, weft_block_t *block, bool small)
{
    if (!small) {
        return weft__space_free(&pool->pages, block);
    }
    block = weft__space_free(&pool->small, block);
    if (block->prev != NULL || block->next != NULL) {
        return NULL;
    }
    weft_block_t *region = weft__space_find(&pool->pages, block->offset);
    weft__space_remove(&pool->small, block);
    return weft__space_free(&pool->pages, region);
}

/* Give back what is more than `keep`, as far as the free block `pages` has it. */
static void give_back(weft_pool_t *pool, const weft_block_t *pages, uint64_t keep)
{
    if (pages != NULL && unused(pool) > keep) {
        weft__heap_release(pool->heap, pages->offset, pages->offset + pages->bytes,
                           unused(pool) - keep);
    }
}

/* How far to make pages ahead of the end of `block`, so that many allocations share one look at
 * what the machine has left: to a multiple of 2 MiB or, in a pool that holds much, of a 16th of
 * that; never past the free block behind, nor past what the pool may keep. */
static uint64_t ahead_of(const weft_pool_t *pool, const weft_block_t *block)
{
    uint64_t end = block->offset + block->bytes, step = AHEAD_LEAST;
    uint64_t most = pool->keep > unused(pool) ? pool->keep - unused(pool) : 0;
    uint64_t behind = block->next != NULL && !block->next->used ? block->next->bytes : 0;
    while (step < AHEAD_MOST && step < pool->heap->reserved / 16) {
        step *= 2;
    }
    uint64_t ahead = round_up(end, step) - end;
    ahead = ahead < behind ? ahead : behind;
    return end + (ahead < most ? ahead : most);
}

/* ---- the pool --------------------------------------------------------------------------- */

weft_status_t weft__pool_alloc(weft_pool_t *pool, size_t bytes, void **ptr_p,
                               weft_shortage_t *shortage_p)
{
    bool small = bytes < WEFT_POOL_LARGE, fresh;
    weft_status_t status = WEFT_ERR_NO_MEMORY;
    pthread_mutex_lock(&pool->lock);
    if (bytes > pool->capacity) {
        weft_block_t *largest = weft__space_largest(&pool->pages);
        *shortage_p = (weft_shortage_t){.kind = WEFT_SHORT_DEVICE, .need = bytes};
        shortage_p->room = largest == NULL ? 0 : largest->bytes;
        goto out;
    }
    uint64_t size = bytes == 0 ? 1 : bytes;
    size = round_up(size, small ? WEFT_POOL_GRANULE : pool->heap->page);
    weft_block_t *block = take(pool, size, small, shortage_p);
    if (block == NULL) {
        goto out;
    }
    uint64_t before = unused(pool);
    status = weft__heap_reserve(pool->heap, block->offset, block->offset + block->bytes,
                                ahead_of(pool, block), &fresh, shortage_p);
    if (status != WEFT_OK) {
        give_back(pool, put_back(pool, block, small), before);
        goto out;
    }
    pool->stats.in_use += size;
    if (pool->stats.in_use > pool->stats.in_use_peak) {
        pool->stats.in_use_peak = pool->stats.in_use;
    }
    pool->stats.allocs++;
    pool->stats.reused += fresh ? 0 : 1;
    block->asked = bytes;
    *ptr_p = pool->heap->base + block->offset;
out:
    pthread_mutex_unlock(&pool->lock);
    return status;
}

weft_status_t weft__pool_free(weft_pool_t *pool, uint64_t offset)
{
    pthread_mutex_lock(&pool->lock);
    weft_block_t *block = weft__space_find(&pool->small, offset);
    bool small = block != NULL;
    if (!small) {
        block = weft__space_find(&pool->pages, offset);
    }
    if (block == NULL || block->region) {
        pthread_mutex_unlock(&pool->lock);
        return WEFT_ERR_INVALID;
    }
    pool->stats.in_use -= block->bytes;
    pool->stats.frees++;
    give_back(pool, put_back(pool, block, small), pool->keep);
    pthread_mutex_unlock(&pool->lock);
    return WEFT_OK;
}

bool weft__pool_find(weft_pool_t *pool, uint64_t offset, weft_pool_allocation_t *piece_p)
{
    pthread_mutex_lock(&pool->lock);
    weft_block_t *block = weft__space_around(&pool->pages, offset);
    if (block != NULL && block->region) {
        block = weft__space_around(&pool->small, offset);
    }
    if (block != NULL) {
        *piece_p = (weft_pool_allocation_t){.offset = block->offset,
                                            .bytes = block->asked,
                                            .serial_p = &block->serial,
                                            .serial = atomic_load(&block->serial)};
    }
    pthread_mutex_unlock(&pool->lock);
    return block != NULL;
}

uint64_t weft__pool_trim(weft_pool_t *pool, uint64_t keep)
{
    pthread_mutex_lock(&pool->lock);
    uint64_t before = pool->heap->reserved;
    /* Largest first: the most memory for the fewest system calls. */
    weft_block_t *block = weft__space_largest(&pool->pages);
    while (block != NULL && unused(pool) > keep) {
        give_back(pool, block, keep);
        block = weft__space_smaller(&pool->pages, block);
    }
    uint64_t given = before - pool->heap->reserved;
    pthread_mutex_unlock(&pool->lock);
    return given;
}

void weft__pool_stats(weft_pool_t *pool, weft_pool_stats_t *stats_p)
{
    pthread_mutex_lock(&pool->lock);
    *stats_p = pool->stats;
    stats_p->reserved = pool->heap->reserved;
    pthread_mutex_unlock(&pool->lock);
}
