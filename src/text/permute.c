/* A Feistel network on as many bits as the size needs: each round mixes a keyed hash of one part
 * into the other, which can be undone, so the whole is a permutation of 0..2^bits-1 whatever the
 * hash. Results that are too large are put through again until one fits ("cycle walking"): fewer
 * than half are, and what is left is a permutation of 0..size-1. */
#include "text/permute.h"

#include "base/rng.h"

#define ROUNDS 8

void weft__permutation_init(weft_permutation_t *permutation, uint64_t size, uint64_t seed,
                            uint64_t epoch)
{
    int bits = 0;
    while (bits < 64 && (size - 1) >> bits != 0) {
        bits++;
    }
    permutation->size = size;
    permutation->left = bits / 2;
    permutation->right = bits - bits / 2;
    /* Keys of different epochs come from different places of one sequence, the seed's. */
    for (int i = 0; i < ROUNDS; i++) {
        permutation->keys[i] = weft__rng_at(seed, epoch * ROUNDS + (uint64_t)i);
    }
}

static uint64_t mix(uint64_t x, uint64_t key)
{
    x = (x + key) * 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint64_t scramble(const weft_permutation_t *permutation, uint64_t value)
{
    uint64_t left_mask = ((uint64_t)1 << permutation->left) - 1; /* 32 bits at most */
    uint64_t right_mask = ((uint64_t)1 << permutation->right) - 1;
    uint64_t left = value >> permutation->right & left_mask, right = value & right_mask;
    for (int i = 0; i < ROUNDS; i += 2) {
        left ^= mix(right, permutation->keys[i]) & left_mask;
        right ^= mix(left, permutation->keys[i + 1]) & right_mask;
    }
    return left << permutation->right | right;
}

uint64_t weft__permutation_at(const weft_permutation_t *permutation, uint64_t index)
{
    do {
        index = scramble(permutation, index);
    } while (index >= permutation->size);
    return index;
}
