/* The seeds and words of a target, for who runs it. */
#ifndef WEFT_TEST_FUZZ_SEEDS_H
#define WEFT_TEST_FUZZ_SEEDS_H

#include <stddef.h>
#include <stdint.h>

typedef struct fuzz_input {
    uint8_t *bytes;
    size_t size;
} fuzz_input_t;

typedef struct fuzz_inputs {
    fuzz_input_t *at;
    size_t count;
} fuzz_inputs_t;

typedef struct fuzz_corpus {
    fuzz_inputs_t seeds, words;
} fuzz_corpus_t;

extern fuzz_corpus_t fuzz_corpus; /* what fuzz_seeds gave */
void fuzz_forget(void);

void fuzz_write_seeds(const char *folder);

#endif
