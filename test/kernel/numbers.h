/* Arrays of random numbers for tests of the compute kernels: as the kernels store them, and the
 * very same values as doubles for plain references; and derivatives of such a reference. */
#ifndef WEFT_TEST_KERNEL_NUMBERS_H
#define WEFT_TEST_KERNEL_NUMBERS_H

#include "kernel/compute.h"
#include "kernel/cpu/inner.h"

/* Between guards: what is written outside is noticed by numbers_check. */
typedef struct numbers {
    weft_dtype_t type;
    int64_t count;
    void *data;     /* of that type */
    double *values; /* what was put in; numbers_read: what is there now */
    char *base;
} numbers_t;

/* A seed that differs from run to run, or WEFT_TEST_SEED; printed. */
uint64_t numbers_seed(void);

/* Uniform in [-scale, scale], exact in `type`. `what` tells arrays of one test apart. */
numbers_t numbers_random(uint64_t seed, const char *what, int64_t count, weft_dtype_t type,
                         double scale);
/* Filled with something that a kernel has to overwrite. */
numbers_t numbers_garbage(int64_t count, weft_dtype_t type);
numbers_t numbers_zero(int64_t count, weft_dtype_t type);
void numbers_free(numbers_t *numbers);

/* Bring `values` up to date with `data`. */
void numbers_read(numbers_t *numbers);

/* Fail the test unless data is within `limit` of what is expected, relative to the largest expected
 * value, and the guards are whole. For bf16 the limit is 2^7 times larger than for f32, and 2^-7
 * at least; for f16 the same with 2^10. */
void numbers_check(const char *what, numbers_t *got, const double *expected, double limit);

/* slope[i] = d f / d x[i], by central differences. f is smooth and computed in double. */
void numbers_slope(double (*f)(void *arg), void *arg, double *x, int64_t count, double *slope);

/* Sum of a[i] b[i]. */
double numbers_dot(const double *a, const double *b, int64_t count);

/* One step of a table that must succeed. */
void numbers_ok(weft_status_t status);

/* The tables of inner loops that this CPU has, and NULL; AMX is emulated where it is only AMX that
 * is missing. With WEFT_TEST_SHORT only the one in force. */
const weft_inner_t *const *numbers_inner_tables(void);

/* Run `test(seed, type)` for f32, bf16 and f16, all tables of inner loops that this CPU has, with 1
 * and 3 threads. */
void numbers_everywhere(void (*test)(uint64_t seed, weft_dtype_t type));

const weft_compute_t *numbers_table(void);

#endif
