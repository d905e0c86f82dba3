/* Random numbers by position: the number at (seed, index) is the same wherever and in whatever
 * order it is asked for, so that every rank can make its own part of one sequence. */
#ifndef WEFT_BASE_RNG_H
#define WEFT_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

/* Philox 4x32 with 10 rounds (Salmon et al., SC 2011): a keyed bijection of 128-bit counters. */
void weft__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* 64 uniform bits for (seed, index). Not for secrets. */
uint64_t weft__rng_at(uint64_t seed, uint64_t index);

/* 0 to count-1 in a random order, by the `count` random numbers from (seed, first) on. */
void weft__shuffle(uint64_t seed, uint64_t first, int *order, int count);

/* Fill from the kernel's random source. For secrets, ids and seeds. */
weft_status_t weft__random_bytes(void *out, size_t bytes);

#endif
