#include "comm/data.h"

#include <math.h>
#include <string.h>

/* Elements repeat with a period that has nothing in common with slices or chunks. */
#define PERIOD 509

uint64_t data_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static bool is_float(weft_dtype_t type)
{
    return type == WEFT_F64 || type == WEFT_F32 || type == WEFT_F16 || type == WEFT_BF16 ||
           type == WEFT_F8E4M3 || type == WEFT_F8E5M2;
}

static bool is_signed(weft_dtype_t type)
{
    return type == WEFT_I8 || type == WEFT_I32 || type == WEFT_I64;
}

/* ---- f16 and bf16, by way of double ------------------------------------------------------ */

static double small_to_double(uint16_t bits, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
    int fraction = bits & ((1 << fraction_bits) - 1);
    double value;
    if (exponent == (1 << exponent_bits) - 1) {
        value = fraction ? NAN : INFINITY;
    } else if (exponent == 0) {
        value = ldexp(fraction, 1 - bias - fraction_bits);
    } else {
        value = ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    }
    return bits >> 15 ? -value : value;
}

static uint16_t small_from_double(double value, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    int exponent = value == 0 ? 1 - bias : ilogb(value);
    exponent = exponent < 1 - bias ? 1 - bias : exponent;
    /* In units of the last place; nearbyint rounds to even. */
    double units = nearbyint(ldexp(fabs(value), fraction_bits - exponent));
    unsigned bits = ((unsigned)(exponent + bias - 1) << fraction_bits) + (unsigned)units;
    return (uint16_t)(sign | bits);
}

/* ---- float8, by what its codes stand for -------------------------------------------------- */

/* Codes without a sign are in the order of their values. */
static double float8_to_double(weft_dtype_t type, uint8_t code)
{
    int fraction_bits = type == WEFT_F8E4M3 ? 3 : 2, bias = type == WEFT_F8E4M3 ? 7 : 15;
    int size = code & 0x7f, exponent = size >> fraction_bits;
    int fraction = size & ((1 << fraction_bits) - 1);
    double value = exponent == 0
                       ? ldexp(fraction, 1 - bias - fraction_bits)
                       : ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    if (size > data_float8_largest(type)) {
        value = type == WEFT_F8E5M2 && size == 0x7c ? INFINITY : NAN;
    }
    return code & 0x80 ? -value : value;
}

uint8_t data_float8_largest(weft_dtype_t type)
{
    return type == WEFT_F8E4M3 ? 0x7e : 0x7b;
}

/* The nearest of all codes, by search; of two the even one. */
static uint8_t float8_from_double(weft_dtype_t type, double value)
{
    uint8_t sign = signbit(value) ? 0x80 : 0, low = 0, high = data_float8_largest(type);
    double size = fabs(value);
    if (isnan(value)) {
        return 0x7f;
    }
    while (low < high) { /* the largest that is not above it */
        uint8_t middle = (uint8_t)((low + high + 1) / 2);
        bool above = float8_to_double(type, middle) > size;
        high = above ? (uint8_t)(middle - 1) : high;
        low = above ? low : middle;
    }
    double here = float8_to_double(type, low);
    if (low == data_float8_largest(type)) {
        double step = here - float8_to_double(type, (uint8_t)(low - 1));
        bool fits = type == WEFT_F8E4M3 || size - here < step / 2;
        return (uint8_t)(sign | (fits ? low : low + 1));
    }
    double next = float8_to_double(type, (uint8_t)(low + 1));
    bool up = next - size < size - here || (next - size == size - here && low % 2 == 1);
    return (uint8_t)(sign | (up ? low + 1 : low));
}

double data_to_double(weft_dtype_t type, const void *from)
{
    double f64;
    float f32;
    uint16_t half;
    switch (type) {
    case WEFT_F64:
        memcpy(&f64, from, 8);
        return f64;
    case WEFT_F32:
        memcpy(&f32, from, 4);
        return (double)f32;
    case WEFT_F8E4M3:
    case WEFT_F8E5M2:
        return float8_to_double(type, *(const uint8_t *)from);
    default:
        memcpy(&half, from, 2);
        return small_to_double(half, type == WEFT_F16 ? 5 : 8);
    }
}

void data_from_double(weft_dtype_t type, double value, void *to)
{
    float f32 = (float)value;
    uint16_t half;
    switch (type) {
    case WEFT_F64:
        memcpy(to, &value, 8);
        break;
    case WEFT_F32:
        memcpy(to, &f32, 4);
        break;
    case WEFT_F8E4M3:
    case WEFT_F8E5M2:
        *(uint8_t *)to = float8_from_double(type, value);
        break;
    default:
        half = small_from_double(value, type == WEFT_F16 ? 5 : 8);
        memcpy(to, &half, 2);
    }
}

/* ---- elements ---------------------------------------------------------------------------- */

static uint64_t noise(const data_t *d, int rank, size_t i)
{
    return data_mix((uint64_t)(i % PERIOD) << 32 | (uint64_t)d->salt << 8 | (uint64_t)rank);
}

static double float_element(const data_t *d, int rank, size_t i)
{
    static const double factors[] = {1, -1, 2, 0.5};
    uint64_t x = noise(d, rank, i);
    bool float8 = d->type == WEFT_F8E4M3 || d->type == WEFT_F8E5M2;
    if (float8 && (d->op == WEFT_SUM || d->op == WEFT_AVG || d->op == WEFT_PROD)) {
        /* e5m2 has the whole numbers up to 8, e4m3 the powers of two from 2^-9 to 2^8: no more than
         * 8 ranks have what changes a result. */
        size_t every = ((size_t)d->ranks + 7) / 8;
        bool counts = ((size_t)rank + i) % every == 0;
        return d->op == WEFT_PROD ? factors[x % (counts ? 4 : 2)]
               : counts           ? (double)(x % 3) - 1
                                  : 0;
    }
    switch (d->op) {
    case WEFT_PROD:
        return factors[x % 4];
    case WEFT_MIN:
    case WEFT_MAX:
        return (double)(x % 201) - 100;
    default:
        return (double)(x % 17) - 8;
    }
}

/* Sign-extended (or not) to 64 bits. */
static uint64_t extend(weft_dtype_t type, uint64_t x)
{
    unsigned bits = 8 * (unsigned)weft_dtype_size(type);
    if (bits == 64) {
        return x;
    }
    uint64_t low = x & ((1ull << bits) - 1);
    bool negative = is_signed(type) && (low >> (bits - 1)) != 0;
    return negative ? low | ~((1ull << bits) - 1) : low;
}

static uint64_t int_element(const data_t *d, int rank, size_t i)
{
    uint64_t x = noise(d, rank, i);
    if (d->op == WEFT_AVG) { /* the sum must not wrap */
        return is_signed(d->type) ? x % 15 - 7 : x % 16;
    }
    return extend(d->type, x);
}

static double reduce_floats(const data_t *d, size_t i)
{
    double r = float_element(d, 0, i);
    for (int p = 1; p < d->ranks; p++) {
        double x = float_element(d, p, i);
        switch (d->op) {
        case WEFT_PROD:
            r *= x;
            break;
        case WEFT_MIN:
            r = x < r ? x : r;
            break;
        case WEFT_MAX:
            r = x > r ? x : r;
            break;
        default:
            r += x;
        }
    }
    if (d->op == WEFT_AVG) {
        /* f16 and bf16 are averaged in f32, then rounded. */
        return d->type == WEFT_F64 ? r / d->ranks : (double)((float)r / (float)d->ranks);
    }
    return r;
}

static bool less(weft_dtype_t type, uint64_t a, uint64_t b)
{
    return is_signed(type) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t reduce_ints(const data_t *d, size_t i)
{
    uint64_t r = int_element(d, 0, i);
    for (int p = 1; p < d->ranks; p++) {
        uint64_t x = int_element(d, p, i);
        switch (d->op) {
        case WEFT_PROD:
            r *= x;
            break;
        case WEFT_MIN:
            r = less(d->type, x, r) ? x : r;
            break;
        case WEFT_MAX:
            r = less(d->type, r, x) ? x : r;
            break;
        default:
            r += x;
        }
    }
    if (d->op == WEFT_AVG) {
        return is_signed(d->type) ? (uint64_t)((int64_t)r / d->ranks) : r / (uint64_t)d->ranks;
    }
    return r;
}

static void make_element(const data_t *d, int rank, size_t i, char *to)
{
    uint64_t bits;
    if (d->op == DATA_RAW) {
        bits = noise(d, rank, i);
    } else if (is_float(d->type)) {
        double value = rank < 0 ? reduce_floats(d, i) : float_element(d, rank, i);
        data_from_double(d->type, value, to);
        return;
    } else {
        bits = rank < 0 ? reduce_ints(d, i) : int_element(d, rank, i);
    }
    memcpy(to, &bits, weft_dtype_size(d->type)); /* little endian: the low bytes */
}

/* Elements `first` to first + n of a period, n <= PERIOD, into `to`. */
static void make_period(const data_t *d, int rank, size_t first, size_t n, char *to)
{
    size_t element = weft_dtype_size(d->type);
    for (size_t j = 0; j < n; j++) {
        make_element(d, rank, first + j, to + j * element);
    }
}

void data_fill(const data_t *d, int rank, size_t first, size_t count, void *to)
{
    char period[PERIOD * 8];
    size_t element = weft_dtype_size(d->type);
    make_period(d, rank, first, count < PERIOD ? count : PERIOD, period);
    for (size_t done = 0; done < count; done += PERIOD) {
        size_t n = count - done < PERIOD ? count - done : PERIOD;
        memcpy((char *)to + done * element, period, n * element);
    }
}

bool data_check(const data_t *d, int rank, size_t first, size_t count, const void *got,
                size_t *wrong_p)
{
    char period[PERIOD * 8];
    size_t element = weft_dtype_size(d->type);
    make_period(d, rank, first, count < PERIOD ? count : PERIOD, period);
    for (size_t done = 0; done < count; done += PERIOD) {
        size_t n = count - done < PERIOD ? count - done : PERIOD;
        const char *at = (const char *)got + done * element;
        if (memcmp(at, period, n * element) == 0) {
            continue;
        }
        size_t j = 0;
        while (memcmp(at + j * element, period + j * element, element) == 0) {
            j++;
        }
        *wrong_p = done + j;
        return false;
    }
    return true;
}
