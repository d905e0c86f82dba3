#include "kernel/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 256
#define GUARD_BYTE 0xa5

const weft_kernels_t *const *reference_tables(void)
{
    static const char *const names[] = {"none", "avx2", "avx512"};
    static const weft_kernels_t *tables[4];
    int count = 0;
    for (int i = 0; i < 3; i++) {
        const weft_kernels_t *table = weft__kernels_named(names[i]);
        if (table != NULL) {
            tables[count++] = table;
        }
    }
    tables[count] = NULL;
    return tables;
}

/* ---- halves, by arithmetic on values rather than on bits -------------------------------- */

static float from_f16(uint16_t bits)
{
    int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    float size;
    if (exponent == 31) {
        size = fraction != 0 ? NAN : INFINITY;
    } else if (exponent == 0) {
        size = ldexpf((float)fraction, -24);
    } else {
        size = ldexpf((float)(1024 + fraction), exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -size : size;
}

static uint16_t to_f16(float value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    float size = fabsf(value);
    int exponent;
    if (isnan(value)) {
        return 0x7e00;
    }
    if (size >= 65520) {
        return sign | 0x7c00;
    }
    if (size < 0x1p-14f) {
        return sign | (uint16_t)nearbyintf(ldexpf(size, 24));
    }
    float fraction = nearbyintf(ldexpf(frexpf(size, &exponent), 11)); /* 1024 to 2048 */
    return (uint16_t)(sign + ((exponent + 14) << 10) + (int)fraction - 1024);
}

static float from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

static uint16_t to_bf16(float value)
{
    uint32_t wide;
    memcpy(&wide, &value, 4);
    if (isnan(value)) {
        return 0x7fc0;
    }
    uint16_t high = (uint16_t)(wide >> 16);
    uint32_t cut = wide & 0xffff;
    bool up = cut > 0x8000 || (cut == 0x8000 && (high & 1) != 0);
    return (uint16_t)(high + up);
}

/* A float8 by its bits of fraction: 3 is e4m3, 2 is e5m2. */
static float from_f8(uint8_t bits, int fraction_bits)
{
    int bias = fraction_bits == 3 ? 7 : 15, ones = (1 << fraction_bits) - 1;
    int exponent = (bits & 0x7f) >> fraction_bits, fraction = bits & ones;
    float size;
    if (fraction_bits == 2 && exponent == 31) {
        size = fraction != 0 ? NAN : INFINITY;
    } else if (fraction_bits == 3 && (bits & 0x7f) == 0x7f) {
        size = NAN;
    } else if (exponent == 0) {
        size = ldexpf((float)fraction, 1 - bias - fraction_bits);
    } else {
        size = ldexpf((float)(1 + ones + fraction), exponent - bias - fraction_bits);
    }
    return (bits & 0x80) != 0 ? -size : size;
}

static uint8_t to_f8(float value, int fraction_bits)
{
    int largest = fraction_bits == 3 ? 0x7e : 0x7b;
    int bias = fraction_bits == 3 ? 7 : 15, exponent;
    uint8_t sign = signbit(value) ? 0x80 : 0;
    float size = fabsf(value);
    if (isnan(value)) {
        return 0x7f;
    }
    if (isinf(value)) {
        return sign | (fraction_bits == 3 ? 0x7e : 0x7c);
    }
    frexpf(size, &exponent);
    exponent = size == 0 || exponent < 2 - bias ? 1 - bias : exponent - 1;
    int units = (int)nearbyintf(ldexpf(size, fraction_bits - exponent));
    int code = ((exponent + bias - 1) << fraction_bits) + units;
    return sign | (uint8_t)(code <= largest ? code : fraction_bits == 3 ? largest : largest + 1);
}

/* ---- one element ------------------------------------------------------------------------ */

/* Halves and float8 are held as f32 while they are reduced. */
typedef union number {
    double f64;
    float f32;
    int64_t i64;
    uint64_t u64;
} number_t;

static bool is_signed(weft_dtype_t type)
{
    return type == WEFT_I8 || type == WEFT_I32 || type == WEFT_I64;
}

static bool is_f32(weft_dtype_t type)
{
    return type == WEFT_F32 || type == WEFT_F16 || type == WEFT_BF16 || type == WEFT_F8E4M3 ||
           type == WEFT_F8E5M2;
}

#define READ(type, data, index)                                                                    \
    (__extension__({                                                                               \
        type value_;                                                                               \
        memcpy(&value_, (const char *)(data) + (index) * sizeof(type), sizeof(type));              \
        value_;                                                                                    \
    }))

static number_t get(const void *data, size_t index, weft_dtype_t type)
{
    number_t number = {0};
    switch (type) {
    case WEFT_F64:
        number.f64 = READ(double, data, index);
        break;
    case WEFT_F32:
        number.f32 = READ(float, data, index);
        break;
    case WEFT_F16:
        number.f32 = from_f16(READ(uint16_t, data, index));
        break;
    case WEFT_BF16:
        number.f32 = from_bf16(READ(uint16_t, data, index));
        break;
    case WEFT_F8E4M3:
        number.f32 = from_f8(READ(uint8_t, data, index), 3);
        break;
    case WEFT_F8E5M2:
        number.f32 = from_f8(READ(uint8_t, data, index), 2);
        break;
    case WEFT_I8:
        number.i64 = READ(int8_t, data, index);
        break;
    case WEFT_U8:
        number.u64 = READ(uint8_t, data, index);
        break;
    case WEFT_I32:
        number.i64 = READ(int32_t, data, index);
        break;
    case WEFT_U32:
        number.u64 = READ(uint32_t, data, index);
        break;
    default:
        number.u64 = READ(uint64_t, data, index);
        break;
    }
    return number;
}

static void put(void *data, size_t index, weft_dtype_t type, number_t number)
{
    size_t size = weft_dtype_size(type);
    char *to = (char *)data + index * size;
    uint16_t half;
    switch (type) {
    case WEFT_F16:
        half = to_f16(number.f32);
        memcpy(to, &half, 2);
        break;
    case WEFT_BF16:
        half = to_bf16(number.f32);
        memcpy(to, &half, 2);
        break;
    case WEFT_F8E4M3:
        *(uint8_t *)to = to_f8(number.f32, 3);
        break;
    case WEFT_F8E5M2:
        *(uint8_t *)to = to_f8(number.f32, 2);
        break;
    default: /* little-endian: the low bytes of the wide value */
        memcpy(to, &number, size);
        break;
    }
}

void reference_put(void *data, size_t index, weft_dtype_t type, float value)
{
    put(data, index, type, (number_t){.f32 = value});
}

/* Integers as in their own type: cut to its width, with its sign. */
static number_t wrap(number_t number, weft_dtype_t type)
{
    switch (type) {
    case WEFT_I8:
        number.i64 = (int8_t)number.u64;
        break;
    case WEFT_U8:
        number.u64 = (uint8_t)number.u64;
        break;
    case WEFT_I32:
        number.i64 = (int32_t)number.u64;
        break;
    case WEFT_U32:
        number.u64 = (uint32_t)number.u64;
        break;
    default:
        break;
    }
    return number;
}

#define APPLY(field)                                                                               \
    (op == WEFT_PROD  ? a.field * b.field                                                          \
     : op == WEFT_MIN ? (a.field < b.field ? a.field : b.field)                                    \
     : op == WEFT_MAX ? (a.field > b.field ? a.field : b.field)                                    \
                      : a.field + b.field)

static number_t apply(number_t a, number_t b, weft_dtype_t type, weft_op_t op)
{
    number_t out = {0};
    if (type == WEFT_F64) {
        out.f64 = APPLY(f64);
    } else if (is_f32(type)) {
        out.f32 = APPLY(f32);
    } else if (is_signed(type) && (op == WEFT_MIN || op == WEFT_MAX)) {
        out.i64 = APPLY(i64);
    } else {
        out.u64 = APPLY(u64);
    }
    return wrap(out, type);
}

static number_t quotient(number_t a, weft_dtype_t type, int n)
{
    if (type == WEFT_F64) {
        a.f64 /= n;
    } else if (is_f32(type)) {
        a.f32 /= (float)n;
    } else if (is_signed(type)) {
        a.i64 /= n;
    } else {
        a.u64 /= (unsigned)n;
    }
    return a;
}

/* ---- arrays ----------------------------------------------------------------------------- */

void reference_reduce(void *out, const void *const *srcs, int nsrc, size_t count, weft_dtype_t type,
                      weft_op_t op)
{
    if (nsrc == 1) { /* no arithmetic: not even a signalling NaN changes */
        memcpy(out, srcs[0], count * weft_dtype_size(type));
        return;
    }
    for (size_t i = 0; i < count; i++) {
        number_t result = get(srcs[0], i, type);
        for (int k = 1; k < nsrc; k++) {
            result = apply(result, get(srcs[k], i, type), type, op);
        }
        if (op == WEFT_AVG) {
            result = quotient(result, type, nsrc);
        }
        put(out, i, type, result);
    }
}

void reference_divide(void *out, const void *src, size_t count, weft_dtype_t type, int n)
{
    for (size_t i = 0; i < count; i++) {
        put(out, i, type, quotient(get(src, i, type), type, n));
    }
}

double reference_value(const void *data, size_t index, weft_dtype_t type)
{
    number_t number = get(data, index, type);
    return type == WEFT_F64  ? number.f64
           : is_f32(type)    ? (double)number.f32
           : is_signed(type) ? (double)number.i64
                             : (double)number.u64;
}

static bool is_nan(const void *data, size_t index, weft_dtype_t type)
{
    return (type == WEFT_F64 || is_f32(type)) && isnan(reference_value(data, index, type));
}

size_t reference_differs(const void *a, const void *b, size_t count, weft_dtype_t type)
{
    size_t size = weft_dtype_size(type);
    if (memcmp(a, b, count * size) == 0) {
        return count;
    }
    for (size_t i = 0; i < count; i++) {
        if (memcmp((const char *)a + i * size, (const char *)b + i * size, size) != 0 &&
            !(is_nan(a, i, type) && is_nan(b, i, type))) {
            return i;
        }
    }
    return count;
}

/* ---- values ----------------------------------------------------------------------------- */

static uint64_t next(uint64_t *state)
{
    uint64_t x = (*state += 0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static const uint64_t extremes_64[] = {0,
                                       1,
                                       UINT64_MAX,
                                       INT64_MAX,
                                       0x8000000000000000,
                                       0x8000000000000001,
                                       0x7ff0000000000000,
                                       0xfff0000000000000,
                                       0x7ff8000000000000,
                                       0x7ff0000000000001,
                                       0x7fefffffffffffff,
                                       0x0010000000000000,
                                       0x800fffffffffffff};
static const uint32_t extremes_32[] = {0,          1,          UINT32_MAX, INT32_MAX,  0x80000000,
                                       0x80000001, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
                                       0x7f7fffff, 0x00800000, 0x807fffff};
static const uint16_t extremes_f16[] = {0,      1,      0xffff, 0x7fff, 0x8000, 0x8001, 0x7c00,
                                        0xfc00, 0x7e00, 0x7c01, 0x7bff, 0x0400, 0x83ff};
static const uint16_t extremes_bf16[] = {0,      1,      0xffff, 0x7fff, 0x8000, 0x8001, 0x7f80,
                                         0xff80, 0x7fc0, 0x7f81, 0x7f7f, 0x0080, 0x807f};
static const uint8_t extremes_8[] = {0, 1, 255, 127, 128, 129, 2};
static const uint8_t extremes_f8[] = {0,    1,    0xff, 0x7f, 0x80, 0x81, 0x7e, 0xfe,
                                      0x7c, 0xfc, 0x7b, 0x08, 0x87, 0x04, 0x83, 0x78};

#define PICK(table) (&(table)[pick % (sizeof(table) / sizeof((table)[0]))])

static const void *extreme(weft_dtype_t type, uint64_t pick)
{
    switch (weft_dtype_size(type)) {
    case 8:
        return PICK(extremes_64);
    case 4:
        return PICK(extremes_32);
    case 2:
        return type == WEFT_F16 ? PICK(extremes_f16) : PICK(extremes_bf16);
    default:
        return is_f32(type) ? PICK(extremes_f8) : PICK(extremes_8);
    }
}

void reference_fill(void *data, size_t count, weft_dtype_t type, uint64_t seed, unsigned special)
{
    uint64_t state = seed * 0x2545f4914f6cdd1d + (uint64_t)type;
    size_t size = weft_dtype_size(type);
    for (size_t i = 0; i < count; i++) {
        uint64_t random = next(&state);
        number_t number = {.u64 = random};
        double value = ((double)(random >> 12) * 0x1p-52 + 0.5) * ((random & 1) != 0 ? -1 : 1);
        if (type == WEFT_F64) {
            number.f64 = value;
        } else if (is_f32(type)) {
            number.f32 = (float)value;
        }
        if (special != 0 && next(&state) % special == 0) {
            memcpy((char *)data + i * size, extreme(type, random >> 8), size);
        } else {
            put(data, i, type, number);
        }
    }
}

/* ---- guarded buffers -------------------------------------------------------------------- */

box_t box_create(size_t bytes, size_t misalign)
{
    box_t box = {.bytes = bytes};
    size_t all = (bytes + 64 + 2 * GUARD + 63) / 64 * 64;
    box.base = aligned_alloc(64, all);
    if (box.base == NULL) {
        abort();
    }
    memset(box.base, GUARD_BYTE, all);
    box.data = box.base + GUARD + misalign % 64;
    return box;
}

void box_destroy(box_t *box)
{
    free(box->base);
    *box = (box_t){0};
}

bool box_intact(const box_t *box)
{
    for (const unsigned char *p = box->base; p < box->data; p++) {
        if (*p != GUARD_BYTE) {
            return false;
        }
    }
    for (size_t i = 0; i < GUARD; i++) {
        if (box->data[box->bytes + i] != GUARD_BYTE) {
            return false;
        }
    }
    return true;
}
