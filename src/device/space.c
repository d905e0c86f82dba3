/* Best fit over offsets. See space.h.
 *
 * Blocks of a region form a list by address, so that neighbours merge in O(1):
 *
 *     region  | used | free | used | used | free          |
 *
 * Free blocks are also in a treap (a search tree by size and offset, a heap by a hash of the
 * offset), so that best fit takes O(log n) whatever the order of calls. Blocks in use are also in
 * a hash table by offset, which finds the block of a pointer that is freed. Two free blocks are
 * never neighbours. */
#include "device/space.h"

#include <stdlib.h>
#include <string.h>

#define TABLE_START 64

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* ---- the tree of free blocks ------------------------------------------------------------ */

static bool before(const weft_block_t *a, const weft_block_t *b)
{
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->offset < b->offset;
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

/* ---- the table of blocks in use --------------------------------------------------------- */

static weft_block_t **chain_of(const weft_space_t *space, uint64_t offset)
{
    return &space->table[mix(offset) & (space->table_size - 1)];
}

static void table_grow(weft_space_t *space)
{
    weft_block_t **old = space->table;
    size_t old_size = space->table_size;
    weft_block_t **table = calloc(2 * old_size, sizeof(weft_block_t *));
    if (table == NULL) {
        return; /* longer chains, nothing worse */
    }
    space->table = table;
    space->table_size = 2 * old_size;
    for (size_t i = 0; i < old_size; i++) {
        for (weft_block_t *block = old[i], *next; block != NULL; block = next) {
            weft_block_t **chain = chain_of(space, block->offset);
            next = block->left;
            block->left = *chain;
            *chain = block;
        }
    }
    free(old);
}

static void table_insert(weft_space_t *space, weft_block_t *block)
{
    if (space->used_count >= space->table_size) {
        table_grow(space);
    }
    weft_block_t **chain = chain_of(space, block->offset);
    block->used = true;
    block->left = *chain;
    *chain = block;
    space->used_count++;
}

static void table_remove(weft_space_t *space, weft_block_t *block)
{
    weft_block_t **at = chain_of(space, block->offset);
    while (*at != block) {
        at = &(*at)->left;
    }
    *at = block->left;
    block->used = false;
    space->used_count--;
}

/* ---- the space -------------------------------------------------------------------------- */

bool weft__space_init(weft_space_t *space)
{
    memset(space, 0, sizeof(*space));
    space->table_size = TABLE_START;
    space->table = calloc(TABLE_START, sizeof(weft_block_t *));
    return space->table != NULL;
}

void weft__space_cleanup(weft_space_t *space)
{
    for (size_t i = 0; i < space->table_size; i++) {
        while (space->table[i] != NULL) {
            weft__space_free(space, space->table[i]);
        }
    }
    while (space->tree != NULL) {
        weft__space_remove(space, space->tree);
    }
    free(space->table);
    memset(space, 0, sizeof(*space));
}

bool weft__space_add(weft_space_t *space, uint64_t offset, uint64_t bytes)
{
    weft_block_t *block = calloc(1, sizeof(*block));
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
    free(block);
}

/* Cut `block` after `bytes`: what follows becomes a block of its own, in neither tree nor table.
 * NULL: no memory. */
static weft_block_t *split(weft_block_t *block, uint64_t bytes)
{
    weft_block_t *rest = calloc(1, sizeof(*rest));
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
        weft_block_t *body = split(block, skip);
        tree_insert(&space->tree, block);
        if (body == NULL) {
            return NULL;
        }
        block = body;
    }
    block->region = false;
    table_insert(space, block);
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
    weft_block_t *block = *chain_of(space, offset);
    while (block != NULL && block->offset != offset) {
        block = block->left;
    }
    return block;
}

/* Append the free `second` to the `first` before it. */
static void join(weft_block_t *first, weft_block_t *second)
{
    first->bytes += second->bytes;
    first->next = second->next;
    if (first->next != NULL) {
        first->next->prev = first;
    }
    free(second);
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
        next = split(block, bytes);
        if (next == NULL) {
            return false;
        }
        tree_insert(&space->tree, next);
        return true;
    }
    /* The free neighbour moves its start, or goes when nothing is left of it. */
    tree_remove(&space->tree, next);
    if (bytes == most) {
        join(block, next);
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
    table_remove(space, block);
    if (block->next != NULL && !block->next->used) {
        tree_remove(&space->tree, block->next);
        join(block, block->next);
    }
    if (block->prev != NULL && !block->prev->used) {
        weft_block_t *first = block->prev;
        tree_remove(&space->tree, first);
        join(first, block);
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
