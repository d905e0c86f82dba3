/* What the shared structures have in common: words, and locks that outlive their holders. */
#ifndef WEFT_SYMM_SHARED_H
#define WEFT_SYMM_SHARED_H

#include "symm/symm.h"

typedef _Atomic uint64_t weft_word_t;

/* A lock in symmetric memory of any rank: 0, or rank + 1 of its holder. A holder that died has lost
 * it: *inherited_p then says that what it guards may have been left in the middle of a change. */
weft_status_t weft__symm_lock(weft_symm_h symm, weft_word_t *lock, const char *what,
                              bool *inherited_p);
void weft__symm_unlock(weft_word_t *lock);

/* Copy words that others may change or read at the same time: the caller finds out afterwards.
 * Acquire loads and release stores, so that the word which tells is read after, and written before.
 * `bytes` need not be a multiple of 8; the shared side has room for whole words. */
void weft__words_load(void *dst, const weft_word_t *src, size_t bytes);
void weft__words_store(weft_word_t *dst, const void *src, size_t bytes);

static inline size_t weft__words(size_t bytes)
{
    return (bytes + 7) / 8;
}

/* The smallest power of two that is at least `n`. */
size_t weft__power_of_two(size_t n);

/* "weft_<who>: the <what> is NULL" */
weft_status_t weft__refuse_null(const char *who, const char *what);

#endif
