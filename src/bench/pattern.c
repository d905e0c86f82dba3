#include "bench/pattern.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/float8.h"

static bool is_float8(weft_dtype_t type)
{
    return type == WEFT_F8E4M3 || type == WEFT_F8E5M2;
}

/* Few bits hold few numbers: every sum of some ranks' elements is between -8 and 8, since at most 8
 * ranks have one that is not 0. */
static int64_t small_element(const weft_pattern_t *p, unsigned r, size_t i)
{
    unsigned every = ((unsigned)p->ranks + 7) / 8;
    int64_t value = (int64_t)((i * 3 + (size_t)r * 7) % 11 % 3) - 1;
    return (r + i % 64) % every == 0 ? value : 0;
}

static int64_t element(const weft_pattern_t *p, int rank, size_t i)
{
    unsigned r = (unsigned)rank + p->salt;
    if (p->op == WEFT_PROD) {
        return (i + r) % 5 == 0 ? 2 : 1;
    }
    if (is_float8(p->type) && p->op != WEFT_MIN && p->op != WEFT_MAX) {
        return small_element(p, r, i);
    }
    int64_t value = (int64_t)((i * 3 + (size_t)r * 7) % 11);
    bool is_unsigned = p->type == WEFT_U8 || p->type == WEFT_U32 || p->type == WEFT_U64;
    return is_unsigned ? value : value - 5;
}

static int64_t wrap(weft_dtype_t type, int64_t value)
{
    switch (type) {
    case WEFT_I8:
        return (int8_t)value;
    case WEFT_U8:
        return (uint8_t)value;
    default:
        return value;
    }
}

/* The exact reduction as a whole number; AVG is divided by the caller. */
static int64_t reduced(const weft_pattern_t *p, size_t i)
{
    int64_t value = element(p, 0, i);
    for (int r = 1; r < p->ranks; r++) {
        int64_t next = element(p, r, i);
        switch (p->op) {
        case WEFT_PROD:
            value = wrap(p->type, value * next);
            break;
        case WEFT_MIN:
            value = next < value ? next : value;
            break;
        case WEFT_MAX:
            value = next > value ? next : value;
            break;
        default:
            value = wrap(p->type, value + next);
        }
    }
    return value;
}

/* Round to the 11 (f16) or 8 (bf16) significant bits, to nearest even; values here are normal and
 * far from overflow. */
static uint16_t narrow(weft_dtype_t type, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint32_t sign = bits >> 31 << 15;
    unsigned drop = type == WEFT_BF16 ? 16 : 13;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude == 0) {
        return (uint16_t)sign;
    }
    magnitude += ((1u << (drop - 1)) - 1) + (magnitude >> drop & 1);
    magnitude >>= drop;
    if (type == WEFT_F16) {
        magnitude -= 112u << 10; /* exponent bias 127 -> 15 */
    }
    return (uint16_t)(sign | magnitude);
}

static void store(weft_dtype_t type, int64_t value, int divide_by, void *to)
{
    double exact = (double)value;
    float f32 = divide_by > 1 ? (float)value / (float)divide_by : (float)value;
    double f64 = divide_by > 1 ? exact / divide_by : exact;
    int64_t whole = divide_by > 1 ? value / divide_by : value;
    uint16_t half;
    uint8_t code;
    switch (type) {
    case WEFT_F64:
        memcpy(to, &f64, 8);
        break;
    case WEFT_F32:
        memcpy(to, &f32, 4);
        break;
    case WEFT_F16:
    case WEFT_BF16:
        half = narrow(type, f32);
        memcpy(to, &half, 2);
        break;
    case WEFT_F8E4M3:
    case WEFT_F8E5M2:
        code = type == WEFT_F8E4M3 ? weft__f32_to_e4m3(f32) : weft__f32_to_e5m2(f32);
        memcpy(to, &code, 1);
        break;
    default:
        memcpy(to, &whole, weft_dtype_size(type)); /* little endian: the low bytes */
    }
}

/* One period of elements (or of their reduction, rank -1), in `type`. */
static void make_period(const weft_pattern_t *p, int rank, char *period)
{
    size_t size = weft_dtype_size(p->type);
    for (size_t i = 0; i < WEFT_PATTERN_PERIOD; i++) {
        int64_t value = rank >= 0 ? element(p, rank, i) : reduced(p, i);
        store(p->type, value, rank < 0 && p->op == WEFT_AVG ? p->ranks : 1, period + i * size);
    }
}

void weft__pattern_fill(const weft_pattern_t *p, int rank, size_t first, size_t count, void *data)
{
    char period[WEFT_PATTERN_PERIOD * 8];
    size_t size = weft_dtype_size(p->type);
    make_period(p, rank, period);
    for (size_t done = 0; done < count;) {
        size_t at = (first + done) % WEFT_PATTERN_PERIOD;
        size_t n = WEFT_PATTERN_PERIOD - at < count - done ? WEFT_PATTERN_PERIOD - at
                                                           : count - done;
        memcpy((char *)data + done * size, period + at * size, n * size);
        done += n;
    }
}

static size_t count_wrong(const char *a, const char *b, size_t n, size_t size)
{
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        wrong += memcmp(a + i * size, b + i * size, size) != 0;
    }
    return wrong;
}

size_t weft__pattern_check(const weft_pattern_t *p, int rank, size_t first, size_t count,
                           const void *data)
{
    char period[WEFT_PATTERN_PERIOD * 8];
    size_t size = weft_dtype_size(p->type), wrong = 0;
    make_period(p, rank, period);
    for (size_t done = 0; done < count;) {
        size_t at = (first + done) % WEFT_PATTERN_PERIOD;
        size_t n = WEFT_PATTERN_PERIOD - at < count - done ? WEFT_PATTERN_PERIOD - at
                                                           : count - done;
        const char *got = (const char *)data + done * size;
        if (memcmp(got, period + at * size, n * size) != 0) {
            wrong += count_wrong(got, period + at * size, n, size);
        }
        done += n;
    }
    return wrong;
}
