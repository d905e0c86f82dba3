/* Fuzzing a function of bytes, in two ways from one source:
 *
 *   with libFuzzer:  clang -fsanitize=fuzzer,address,undefined -DWEFT_LIBFUZZER ...
 *   as a test:       FUZZ_MAIN(seeds, count, runs) makes a main that runs a fixed number of random
 *                    inputs and of mutated seeds, the same in every run.
 * An input that breaks a CHECK is written to stderr in hex before the abort. */
#ifndef WEFT_TEST_FUZZ_H
#define WEFT_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const uint8_t *fuzz_data;
static size_t fuzz_size;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fuzz_abort(#condition, __FILE__, __LINE__);                                            \
        }                                                                                          \
    } while (0)

static inline void fuzz_abort(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: not so: %s\ninput of %zu bytes:", file, line, condition, fuzz_size);
    for (size_t i = 0; i < fuzz_size && i < 4096; i++) {
        fprintf(stderr, "%s%02x", i % 32 == 0 ? "\n" : " ", fuzz_data[i]);
    }
    fprintf(stderr, "\n");
    abort();
}

static inline uint32_t fuzz_random(uint64_t *state, uint32_t below)
{
    return (uint32_t)(weft__rng_at(20, (*state)++) % below);
}

/* Flip, replace, insert, remove, repeat or cut: what real corruption and fuzzers do. */
static inline size_t fuzz_mutate(uint64_t *state, uint8_t *bytes, size_t size, size_t room)
{
    static const uint8_t telling[] = {0, 1, 0x7f, 0x80, 0xff, '=', '-', '0', '9', '.'};
    size_t at = size > 0 ? fuzz_random(state, (uint32_t)size) : 0;
    switch (fuzz_random(state, 6)) {
    case 0:
        if (size > 0) {
            bytes[at] ^= (uint8_t)(1u << fuzz_random(state, 8));
        }
        return size;
    case 1:
        if (size > 0) {
            bytes[at] = telling[fuzz_random(state, sizeof(telling))];
        }
        return size;
    case 2:
        if (size < room) {
            memmove(bytes + at + 1, bytes + at, size - at);
            bytes[at] = (uint8_t)fuzz_random(state, 256);
            return size + 1;
        }
        return size;
    case 3:
        if (size > 0) {
            memmove(bytes + at, bytes + at + 1, size - at - 1);
            return size - 1;
        }
        return size;
    case 4: {
        size_t count = size - at < room - size ? size - at : room - size;
        memcpy(bytes + size, bytes + at, count);
        return size + count;
    }
    default:
        return fuzz_random(state, 4) == 0 ? at : size;
    }
}

typedef struct fuzz_seed {
    const void *bytes;
    size_t size;
} fuzz_seed_t;

static inline int fuzz_run(const fuzz_seed_t *seeds, size_t count, long runs)
{
    static uint8_t bytes[4096];
    uint64_t state = 1;
    const char *asked = getenv("WEFT_FUZZ_RUNS");
    runs = asked != NULL ? strtol(asked, NULL, 10) : runs;
    for (long run = 0; run < runs; run++) {
        size_t size = 0;
        if (run % 4 == 0) {
            size = fuzz_random(&state, 200);
            for (size_t i = 0; i < size; i++) {
                bytes[i] = (uint8_t)fuzz_random(&state, 256);
            }
        } else {
            const fuzz_seed_t *seed = &seeds[fuzz_random(&state, (uint32_t)count)];
            size = seed->size;
            memcpy(bytes, seed->bytes, size);
            for (uint32_t i = fuzz_random(&state, 8); i > 0; i--) {
                size = fuzz_mutate(&state, bytes, size, sizeof(bytes));
            }
        }
        /* a copy of exactly that size, so that a sanitizer sees one byte too many */
        uint8_t *copy = malloc(size > 0 ? size : 1);
        memcpy(copy, bytes, size);
        LLVMFuzzerTestOneInput(copy, size);
        free(copy);
    }
    printf("%ld inputs\n", runs);
    return 0;
}

#ifdef WEFT_LIBFUZZER
#define FUZZ_MAIN(seeds, count, runs) const fuzz_seed_t *fuzz_seeds_unused = (seeds);
#else
#define FUZZ_MAIN(seeds, count, runs)                                                              \
    int main(void)                                                                                 \
    {                                                                                              \
        return fuzz_run(seeds, count, runs);                                                       \
    }
#endif

#endif
