/* Test data and what collectives must make of it, computed one element at a time.
 *
 * Every sum, product and average is exact in its type, so results are compared bit by bit, and any
 * order of the operands gives the same. Integers use their full range (sums and products wrap). */
#ifndef WEFT_TEST_COMM_DATA_H
#define WEFT_TEST_COMM_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/types.h>

#define DATA_RAW WEFT_OP_COUNT /* for calls that only move data: random bits, NaNs and all */
#define DATA_REDUCED (-1)

typedef struct data {
    weft_dtype_t type;
    weft_op_t op; /* or DATA_RAW */
    int ranks;
    unsigned salt; /* another value, other data */
} data_t;

/* to[j] = element first + j of `rank`, for j < count. */
void data_fill(const data_t *data, int rank, size_t first, size_t count, void *to);

/* Are got[0..count) the elements from `first` on of `rank`, or (DATA_REDUCED) their reduction? If
 * not, *wrong_p is the first index that is not. */
bool data_check(const data_t *data, int rank, size_t first, size_t count, const void *got,
                size_t *wrong_p);

/* Elements of floating-point types as doubles, and back (rounded to nearest even). */
double data_to_double(weft_dtype_t type, const void *from);
void data_from_double(weft_dtype_t type, double value, void *to);

/* The code of the largest number; what follows it is infinite or NaN. */
uint8_t data_float8_largest(weft_dtype_t type);

uint64_t data_mix(uint64_t x); /* a hash */

#endif
