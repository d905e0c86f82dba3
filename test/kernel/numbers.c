/* Arrays of random numbers, plain references' helpers. */
#include "kernel/numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/cpu/inner.h"
#include "kernel/cpu/tiles.h"
#include "kernel/reference.h"

enum { GUARD = 256, GUARD_BYTE = 0x5b };

static size_t bytes_of(const numbers_t *numbers)
{
    return (size_t)numbers->count * weft_dtype_size(numbers->type);
}

uint64_t numbers_seed(void)
{
    static uint64_t seed;
    const char *given = getenv("WEFT_TEST_SEED");
    if (seed == 0) {
        numbers_ok(weft__random_bytes(&seed, sizeof(seed)));
        char *end = NULL;
        seed = given != NULL ? strtoull(given, &end, 0) : seed;
        if (given != NULL && (end == given || *end != '\0' || seed == 0)) {
            fprintf(stderr, "WEFT_TEST_SEED is \"%s\", not a number above 0\n", given);
            exit(1);
        }
        printf("to repeat this run: WEFT_TEST_SEED=%llu\n", (unsigned long long)seed);
    }
    return seed;
}

static numbers_t make(int64_t count, weft_dtype_t type, int fill)
{
    numbers_t numbers = {.type = type, .count = count};
    size_t bytes = bytes_of(&numbers);
    numbers.base = malloc(bytes + 2 * GUARD);
    numbers.values = calloc((size_t)count + 1, sizeof(double));
    assert_non_null(numbers.base);
    assert_non_null(numbers.values);
    memset(numbers.base, GUARD_BYTE, bytes + 2 * GUARD);
    numbers.data = numbers.base + GUARD;
    memset(numbers.data, fill, bytes);
    return numbers;
}

static void put(numbers_t *numbers, int64_t i, double value)
{
    reference_put(numbers->data, (size_t)i, numbers->type, (float)value);
    numbers->values[i] = reference_value(numbers->data, (size_t)i, numbers->type);
}

numbers_t numbers_random(uint64_t seed, const char *what, int64_t count, weft_dtype_t type,
                         double scale)
{
    numbers_t numbers = make(count, type, 0);
    uint64_t key = weft__name_key(seed, what);
    for (int64_t i = 0; i < count; i++) {
        uint64_t bits = weft__rng_at(key, (uint64_t)i) >> 11;
        put(&numbers, i, ((double)bits / 4503599627370496.0 - 1.0) * scale);
    }
    return numbers;
}

numbers_t numbers_garbage(int64_t count, weft_dtype_t type)
{
    return make(count, type, 0x7f); /* large in f32 and in bf16, a NaN in f16 */
}

numbers_t numbers_zero(int64_t count, weft_dtype_t type)
{
    return make(count, type, 0);
}

void numbers_free(numbers_t *numbers)
{
    free(numbers->base);
    free(numbers->values);
}

void numbers_read(numbers_t *numbers)
{
    for (int64_t i = 0; i < numbers->count; i++) {
        numbers->values[i] = reference_value(numbers->data, (size_t)i, numbers->type);
    }
}

static void check_guards(const char *what, const numbers_t *numbers)
{
    size_t bytes = bytes_of(numbers);
    for (size_t i = 0; i < GUARD; i++) {
        if (numbers->base[i] != GUARD_BYTE || numbers->base[GUARD + bytes + i] != GUARD_BYTE) {
            fail_msg("%s: something was written outside of the array", what);
        }
    }
}

void numbers_check(const char *what, numbers_t *got, const double *expected, double limit)
{
    double largest = 1e-30, apart = 0;
    int64_t where = 0;
    numbers_read(got);
    for (int64_t i = 0; i < got->count; i++) {
        double difference = fabs(got->values[i] - expected[i]);
        largest = fabs(expected[i]) > largest ? fabs(expected[i]) : largest;
        if (!(difference <= apart)) {
            apart = difference;
            where = i;
        }
    }
    double unit = got->type == WEFT_BF16 ? 128 : got->type == WEFT_F16 ? 1024 : 0;
    limit = unit > 0 ? fmax(1.0 / unit, limit * unit) : limit;
    if (!(apart <= limit * largest)) {
        fail_msg("%s, %s, %s: element %lld is %.9g and not %.9g (off by %.2g of the largest)", what,
                 weft__inner()->name, weft_dtype_name(got->type), (long long)where,
                 got->values[where], expected[where], apart / largest);
    }
    check_guards(what, got);
}

void numbers_slope(double (*f)(void *arg), void *arg, double *x, int64_t count, double *slope)
{
    for (int64_t i = 0; i < count; i++) {
        double kept = x[i], step = 1e-4;
        x[i] = kept + step;
        double above = f(arg);
        x[i] = kept - step;
        slope[i] = (above - f(arg)) / (2 * step);
        x[i] = kept;
    }
}

double numbers_dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

void numbers_ok(weft_status_t status)
{
    if (status != WEFT_OK) {
        fail_msg("%s", weft_last_error());
    }
}

const weft_compute_t *numbers_table(void)
{
    const weft_compute_t *table = NULL;
    numbers_ok(weft__compute(&table));
    return table;
}

const weft_inner_t *const *numbers_inner_tables(void)
{
    static const char *const names[] = {"none", "avx2", "avx512", "amx"};
    static const weft_inner_t *tables[5];
    int count = 0;
    if (getenv("WEFT_TEST_SHORT") != NULL) {
        tables[0] = weft__inner();
        tables[1] = NULL;
        return tables;
    }
    for (int i = 0; i < 4; i++) {
        const weft_inner_t *table = weft__inner_named(names[i]);
        if (table == NULL && i == 3) {
            table = tiles_emulated();
        }
        if (table != NULL) {
            tables[count++] = table;
        } else {
            printf("this CPU cannot run %s\n", names[i]);
        }
    }
    tables[count] = NULL;
    return tables;
}

void numbers_everywhere(void (*test)(uint64_t seed, weft_dtype_t type))
{
    uint64_t seed = numbers_seed();
    for (const weft_inner_t *const *table = numbers_inner_tables(); *table != NULL; table++) {
        weft__inner_use(*table);
        for (int threads = 1; threads <= 3; threads += 2) {
            weft__compute_threads(threads);
            test(seed, WEFT_F32);
            test(seed, WEFT_BF16);
            test(seed, WEFT_F16);
        }
    }
    weft__inner_use(NULL);
    weft__compute_threads(0);
}
