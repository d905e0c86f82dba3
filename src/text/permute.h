/* A random order of n things that takes no memory: a keyed permutation of 0..n-1. */
#ifndef WEFT_TEXT_PERMUTE_H
#define WEFT_TEXT_PERMUTE_H

#include <stdint.h>

typedef struct weft_permutation {
    uint64_t size;
    uint64_t keys[8]; /* one per round */
    int left, right;  /* bits of the halves */
} weft_permutation_t;

/* The permutation of `size` >= 1 things for (seed, epoch). */
void weft__permutation_init(weft_permutation_t *permutation, uint64_t size, uint64_t seed,
                            uint64_t epoch);

/* What stands at place `index` < size. O(1) on average. */
uint64_t weft__permutation_at(const weft_permutation_t *permutation, uint64_t index);

#endif
