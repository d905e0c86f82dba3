/* What the kernels must compute, one element at a time in plain C, and guarded buffers. */
#ifndef WEFT_TEST_KERNEL_REFERENCE_H
#define WEFT_TEST_KERNEL_REFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/kernel.h"

/* The tables this CPU can run, NULL at the end. */
const weft_kernels_t *const *reference_tables(void);

/* Numbers around 1 of both signs, every `special`-th one an extreme: zeros, infinities, NaNs,
 * subnormals, the largest and smallest. special == 0: none. */
void reference_fill(void *data, size_t count, weft_dtype_t type, uint64_t seed, unsigned special);

/* out[i] = srcs[0][i] op srcs[1][i] op ..., AVG divided by nsrc. */
void reference_reduce(void *out, const void *const *srcs, int nsrc, size_t count, weft_dtype_t type,
                      weft_op_t op);

/* out[i] = src[i] / n */
void reference_divide(void *out, const void *src, size_t count, weft_dtype_t type, int n);

/* Index of the first element whose bits differ, or count. Any NaN equals any other. */
size_t reference_differs(const void *a, const void *b, size_t count, weft_dtype_t type);

/* One element as a double; exact but for large 64-bit integers. */
double reference_value(const void *data, size_t index, weft_dtype_t type);
/* Write a float, rounded to nearest; `type` is a type of floats, not f64. */
void reference_put(void *data, size_t index, weft_dtype_t type, float value);

/* Memory between guard bytes. `data` lies `misalign` bytes above a multiple of 64. */
typedef struct box {
    unsigned char *base;
    unsigned char *data;
    size_t bytes;
} box_t;

box_t box_create(size_t bytes, size_t misalign);
void box_destroy(box_t *box);

/* Whether all guard bytes are as they were made. */
bool box_intact(const box_t *box);

#endif
