/* Best fit over offsets. See space.h.
 *
 * Blocks of a region form a list by address, so that neighbours merge in O(1):
 *
 *     region  | used | free | used | used | free          |
 *
 * Free blocks are also in a treap (a search tree by size and offset, a heap by a hash of the
 * offset), so that best fit takes O(log n) whatever the order of calls. Blocks in use are in
 * another one, by offset, which finds the block that a pointer is in. Two free blocks are never
 * neighbours.
 *
 * Descriptions of blocks are used again, and given back only when the space ends: who has seen a
 * block in use may look at its serial later without a lock. */
#include "device/space.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* ---- the trees: free blocks by size, blocks in use by offset ------------------------------ */

static bool before(const weft_block_t *a, const weft_block_t *b)
{
    return !a->used && a->bytes != b->bytes ? a->bytes < b->bytes : a->offset < b->offset;
}

static bool above(const weft_block_t *a, const weft_block_t *b)
{
    return mix(a->offset) > mix(b->offset);
}

static void tree_insert(weft_block_t **at, weft_block_t *block)
{
    while (*at != NULL && above(*at, block)) {
        at = before(block, *at) ? &(*at)->left : &(*at)->right;
    }
    weft_block_t *rest = *at;
    weft_block_t **less = &block->left;
    weft_block_t **more = &block->right;
    *at = block;
    while (rest != NULL) {
        if (before(rest, block)) {
            *less = rest;
            less = &rest->right;
            rest = rest->right;
        } else {
            *more = rest;
            more = &rest->left;
            rest = rest->left;
        }
    }
    *less = *more = NULL;
}

static void tree_remove(weft_block_t **at, weft_block_t *block)
{
    while (*at != block) {
        at = before(block, *at) ? &(*at)->left : &(*at)->right;
    }
    weft_block_t *less = block->left;
    weft_block_t *more = block->right;
    while (less != NULL && more != NULL) {
        if (above(less, more)) {
            *at = less;
            at = &less->right;
            less = less->right;
        } else {
            *at = more;
            at = &more->left;
            more = more->left;
        }
    }
    *at = less != NULL ? less : more;
}

static weft_block_t *tree_best(weft_block_t *tree, uint64_t bytes)
{
    weft_block_t *best = NULL;
    while (tree != NULL) {
        if (tree->bytes >= bytes) {
            best = tree;
            tree = tree->left;
        } else {
            tree = tree->right;
        }
    }
    return best;
}

/* The last block of `tree`, which is by offset, that does not start behind `offset`. */
static weft_block_t *tree_floor(weft_block_t *tree, uint64_t offset)
{
    weft_block_t *best = NULL;
    while (tree != NULL) {
        if (tree->offset <= offset) {
            best = tree;
            tree = tree->right;
        } else {
            tree = tree->left;
        }
    }
    return best;
}

/* ---- descriptions of blocks ------------------------------------------------------------- */

static weft_block_t *new_block(weft_space_t *space)
{
    weft_block_t *block = space->spare;
    if (block == NULL) {
        return calloc(1, sizeof(*block));
    }
    space->spare = block->left;
    block->prev = block->next = block->left = block->right = NULL;
    block->region = false;
    return block;
}

static void drop_block(weft_space_t *space, weft_block_t *block)
{
    block->left = space->spare;
    space->spare = block;
}

static void begin_use(weft_space_t *space, weft_block_t *block)
{
    block->used = true;
    tree_insert(&space->in_use, block);
    /* Partner: who saw the block under the owner's lock, and looks again without it. */
    atomic_store_explicit(&block->serial, ++space->serials, memory_order_relaxed);
}

static void end_use(weft_space_t *space, weft_block_t *block)
{
    atomic_store_explicit(&block->serial, 0, memory_order_relaxed);
    tree_remove(&space->in_use, block);
    block->used = false;
}

/* ---- the space -------------------------------------------------------------------------- */

void weft__space_init(weft_space_t *space)
{
    memset(space, 0, sizeof(*space));
}

void weft__space_cleanup(weft_space_t *space)
{
    while (space->in_use != NULL) {
        weft__space_free(space, space->in_use);
    }
    while (space->tree != NULL) {
        weft__space_remove(space, space->tree);
    }
    for (weft_block_t *block = space->spare, *next; block != NULL; block = next) {
        next = block->left;
        free(block);
    }
    memset(space, 0, sizeof(*space));
}

bool weft__space_add(weft_space_t *space, uint64_t offset, uint64_t bytes)
{
    weft_block_t *block = new_block(space);
    if (block == NULL) {
        return false;
    }
    block->offset = offset;
    block->bytes = bytes;
    tree_insert(&space->tree, block);
    return true;
}

void weft__space_remove(weft_space_t *space, weft_block_t *block)
{
    tree_remove(&space->tree, block);
    drop_block(space, block);
}

/* Cut `block` after `bytes`: what follows becomes a block of its own, in no tree.
 * NULL: no memory. */
static weft_block_t *split(weft_space_t *space, weft_block_t *block, uint64_t bytes)
{
    weft_block_t *rest = new_block(space);
    if (rest == NULL) {
        return NULL;
    }
    rest->offset = block->offset + bytes;
    rest->bytes = block->bytes - bytes;
    rest->prev = block;
    rest->next = block->next;
    if (rest->next != NULL) {
        rest->next->prev = rest;
    }
    block->next = rest;
    block->bytes = bytes;
    return rest;
}

/* Bytes before the first multiple of `align` in a block. */
static uint64_t skipped(const weft_block_t *block, uint64_t align)
{
    return (0 - block->offset) & (align - 1);
}

static weft_block_t *tree_larger(weft_block_t *at, const weft_block_t *block)
{
    weft_block_t *best = NULL;
    while (at != NULL) {
        if (before(block, at)) {
            best = at;
            at = at->left;
        } else {
            at = at->right;
        }
    }
    return best;
}

weft_block_t *weft__space_alloc_aligned(weft_space_t *space, uint64_t bytes, uint64_t align)
{
    weft_block_t *block = tree_best(space->tree, bytes);
    while (block != NULL && block->bytes - bytes < skipped(block, align)) {
        block = tree_larger(space->tree, block);
    }
    if (block == NULL) {
        return NULL;
    }
    uint64_t skip = skipped(block, align);
    tree_remove(&space->tree, block);
    if (skip > 0) {
        weft_block_t *body = split(space, block, skip);
        tree_insert(&space->tree, block);
        if (body == NULL) {
            return NULL;
        }
        block = body;
    }
    block->region = false;
    begin_use(space, block);
    if (!weft__space_resize(space, block, bytes)) {
        weft__space_free(space, block);
        return NULL;
    }
    return block;
}

weft_block_t *weft__space_alloc(weft_space_t *space, uint64_t bytes)
{
    return weft__space_alloc_aligned(space, bytes, 1);
}

weft_block_t *weft__space_find(const weft_space_t *space, uint64_t offset)
{
    weft_block_t *block = tree_floor(space->in_use, offset);
    return block != NULL && block->offset == offset ? block : NULL;
}

weft_block_t *weft__space_around(const weft_space_t *space, uint64_t offset)
{
    weft_block_t *block = tree_floor(space->in_use, offset);
    return block != NULL && offset - block->offset < block->bytes ? block : NULL;
}

/* Append the free `second` to the `first` before it. */
static void join(weft_space_t *space, weft_block_t *first, weft_block_t *second)
{
    first->bytes += second->bytes;
    first->next = second->next;
    if (first->next != NULL) {
        first->next->prev = first;
    }
    drop_block(space, second);
}

bool weft__space_resize(weft_space_t *space, weft_block_t *block, uint64_t bytes)
{
    weft_block_t *next = block->next != NULL && !block->next->used ? block->next : NULL;
    uint64_t most = block->bytes + (next != NULL ? next->bytes : 0);
    if (bytes > most) {
        return false;
    }
    if (bytes == block->bytes) {
        return true;
    }
    if (next == NULL) {
        next = split(space, block, bytes);
        if (next == NULL) {
            return false;
        }
        tree_insert(&space->tree, next);
        return true;
    }
    /* The free neighbour moves its start, or goes when nothing is left of it. */
    tree_remove(&space->tree, next);
    if (bytes == most) {
        join(space, block, next);
        return true;
    }
    next->offset = block->offset + bytes;
    next->bytes = most - bytes;
    block->bytes = bytes;
    tree_insert(&space->tree, next);
    return true;
}

weft_block_t *weft__space_free(weft_space_t *space, weft_block_t *block)
{
    end_use(space, block);
    if (block->next != NULL && !block->next->used) {
        tree_remove(&space->tree, block->next);
        join(space, block, block->next);
    }
    if (block->prev != NULL && !block->prev->used) {
        weft_block_t *first = block->prev;
        tree_remove(&space->tree, first);
        join(space, first, block);
        block = first;
    }
    tree_insert(&space->tree, block);
    return block;
}

weft_block_t *weft__space_largest(const weft_space_t *space)
{
    weft_block_t *block = space->tree;
    while (block != NULL && block->right != NULL) {
        block = block->right;
    }
    return block;
}

weft_block_t *weft__space_smaller(const weft_space_t *space, const weft_block_t *block)
{
    weft_block_t *best = NULL;
    weft_block_t *at = space->tree;
    while (at != NULL) {
        if (before(at, block)) {
            best = at;
            at = at->right;
        } else {
            at = at->left;
        }
    }
    return best;
}
