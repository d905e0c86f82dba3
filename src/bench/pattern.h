/* Test data whose reductions are exact in every type, and their check.
 *
 * Element i of rank r is a small whole number that depends on r and on i modulo a period, so that a
 * buffer of any size is filled and compared at the speed of memory, and a byte in the wrong place
 * or a contribution counted twice or not at all is seen. */
#ifndef WEFT_BENCH_PATTERN_H
#define WEFT_BENCH_PATTERN_H

#include <stddef.h>

#include <weft/types.h>

#define WEFT_PATTERN_PERIOD 3520 /* 5 x 11 x 64 */

typedef struct weft_pattern {
    weft_dtype_t type;
    weft_op_t op;
    int ranks;
    unsigned salt; /* another value, other data */
} weft_pattern_t;

/* data[j] = element first + j of `rank`, for j < count. */
void weft__pattern_fill(const weft_pattern_t *pattern, int rank, size_t first, size_t count,
                        void *data);

/* How many of data[0..count) differ from elements first + j of `rank`, or, with rank -1, from their
 * reduction over all ranks. */
size_t weft__pattern_check(const weft_pattern_t *pattern, int rank, size_t first, size_t count,
                           const void *data);

#endif
