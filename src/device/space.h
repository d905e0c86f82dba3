/* A space of offsets that is handed out in pieces: best fit, neighbours merged when freed.
 *
 * It knows nothing of memory: the pool (pool.h) keeps one for pages and one for the small pieces
 * inside of pages. Not thread-safe; the pool locks. */
#ifndef WEFT_DEVICE_SPACE_H
#define WEFT_DEVICE_SPACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct weft_block {
    uint64_t offset, bytes;
    struct weft_block *prev, *next;  /* neighbours in its region, by address */
    struct weft_block *left, *right; /* in its tree: of free blocks, or of blocks in use */
    uint64_t asked;                  /* for the owner: bytes that it was asked for */
    _Atomic uint64_t serial; /* in use: never given before, else 0. May be read without a lock */
    bool used;
    bool region; /* for the owner of the space: in use as a region of another space */
} weft_block_t;

typedef struct weft_space {
    weft_block_t *tree;   /* free blocks, by size, then by offset */
    weft_block_t *in_use; /* blocks in use, by offset */
    weft_block_t *spare;  /* descriptions without a block */
    uint64_t serials;     /* given so far */
} weft_space_t;

/* Start empty. */
void weft__space_init(weft_space_t *space);

/* Forget everything, also blocks still in use. */
void weft__space_cleanup(weft_space_t *space);

/* Add a free region, which never merges with another. false: no memory for the bookkeeping. */
bool weft__space_add(weft_space_t *space, uint64_t offset, uint64_t bytes);

/* Take back a region whose only block is `block`, which is free. */
void weft__space_remove(weft_space_t *space, weft_block_t *block);

/* Hand out `bytes` > 0 from the start of the smallest free block that has them (of several, the
 * lowest). NULL if there is none, or no memory for the bookkeeping. */
weft_block_t *weft__space_alloc(weft_space_t *space, uint64_t bytes);

/* The same, at an offset that is a multiple of `align`, a power of two. */
weft_block_t *weft__space_alloc_aligned(weft_space_t *space, uint64_t bytes, uint64_t align);

/* Make a block in use shorter or longer without moving it. false, and nothing changes, if what
 * follows it is not free for that long, or no memory for the bookkeeping. */
bool weft__space_resize(weft_space_t *space, weft_block_t *block, uint64_t bytes);

/* The block in use that starts at `offset`, or NULL. */
weft_block_t *weft__space_find(const weft_space_t *space, uint64_t offset);

/* The block in use that `offset` is in, or NULL. */
weft_block_t *weft__space_around(const weft_space_t *space, uint64_t offset);

/* Free a block in use; the free block that it is now part of. Never fails. */
weft_block_t *weft__space_free(weft_space_t *space, weft_block_t *block);

/* The largest free block, and the next smaller one; NULL if there is none. */
weft_block_t *weft__space_largest(const weft_space_t *space);
weft_block_t *weft__space_smaller(const weft_space_t *space, const weft_block_t *block);

#endif
