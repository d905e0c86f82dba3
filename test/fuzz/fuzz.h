/* What fuzz targets have in common. A target is one file, fuzz_<reader>.c, that feeds bytes to a
 * reader and has two functions:
 *
 *     int LLVMFuzzerTestOneInput(data, size)    reads one input; a CHECK that does not hold ends it
 *     void fuzz_seeds(void)                     gives inputs to start from, made by Weft's own
 *                                               writers where there are some, and words that occur
 *                                               in such inputs
 *
 * It runs in two ways: with libFuzzer (tools/fuzz, clang), which follows coverage, and as a test of
 * any build (main.c), which mutates the seeds a fixed number of times, the same in every run. In
 * both
 *
 *     fuzz_<reader> --seeds DIR     writes the seeds to DIR/seeds and the words to DIR/words.dict
 *     fuzz_<reader> FILE...         reads these inputs once
 *
 * The comment at its head says what is read, for tools/fuzz --coverage:
 *
 *     reads: SOURCE...          sources whose lines are counted
 *     besides: FUNCTION...      functions in them that read nothing of it, and are not */
#ifndef WEFT_TEST_FUZZ_FUZZ_H
#define WEFT_TEST_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The target's. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void fuzz_seeds(void);
extern const long fuzz_runs; /* inputs of a test; a second or so of them */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fuzz_abort(#condition, __FILE__, __LINE__);                                            \
        }                                                                                          \
    } while (0)

_Noreturn void fuzz_abort(const char *condition, const char *file, int line);

/* From fuzz_seeds. */
void fuzz_seed(const void *bytes, size_t size);
void fuzz_seed_text(const char *text);
/* One byte before the text. */
void fuzz_seed_kind(uint8_t kind, const char *text);
void fuzz_word(const char *word);

/* ---- for targets ---------------------------------------------------------------------------- */

/* What is left of an input. */
typedef struct fuzz_rest {
    const uint8_t *at;
    size_t left;
} fuzz_rest_t;

/* The next byte; 0 after the last. */
uint8_t fuzz_byte(fuzz_rest_t *rest);

/* Up to the next `end` (not with it) or all, with a NUL after it, for the caller to free. */
char *fuzz_text(fuzz_rest_t *rest, int end);

#define FUZZ_ALL (-1) /* an `end` that does not occur */

/* As many lines of `text` (cut in place) as there is room for, then a NULL; returns their
 * number. */
int fuzz_lines(char *text, char **lines, int room);

/* A file in memory with these bytes: its path, which the next call reuses. */
const char *fuzz_file(const void *bytes, size_t size);

/* A folder of this process, in memory where possible, removed at the end; "FOLDER/name", valid
 * until the 16th call after this one. */
const char *fuzz_folder(void);
const char *fuzz_path(const char *name);

/* Write "FOLDER/name"; returns its path. */
const char *fuzz_put(const char *name, const void *bytes, size_t size);

/* Somewhere to print to. */
FILE *fuzz_nowhere(void);

#endif
