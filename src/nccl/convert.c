/* Elements, one at a time: what premultiplied sums and types of 8 bits need on virtual GPUs. */
#include <math.h>
#include <string.h>

#include "nccl/handle.h"

size_t weft__nccl_type_size(ncclDataType_t type)
{
    static const unsigned char sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return (unsigned)type < ncclNumTypes ? sizes[type] : 0;
}

/* A float of few bits: `exponent` bits with `bias`, `fraction` bits; 0 and what follows the largest
 * exponent aside, as IEEE 754 has them. */
typedef struct format {
    int exponent, fraction, bias;
    bool infinite; /* has infinities; else the all-ones code alone is NaN, and values saturate */
} format_t;

static const format_t half = {5, 10, 15, true}, e4m3 = {4, 3, 7, false}, e5m2 = {5, 2, 15, true};

static float decode(unsigned code, const format_t *f)
{
    unsigned fraction = code & ((1u << f->fraction) - 1);
    unsigned exponent = code >> f->fraction & ((1u << f->exponent) - 1);
    float sign = code >> (f->fraction + f->exponent) & 1 ? -1.0f : 1.0f;
    unsigned last = (1u << f->exponent) - 1;
    if (exponent == last && f->infinite) {
        return fraction ? NAN : sign * INFINITY;
    }
    if (!f->infinite && exponent == last && fraction == (1u << f->fraction) - 1) {
        return NAN;
    }
    if (exponent == 0) {
        return sign * ldexpf((float)fraction, 1 - f->bias - f->fraction);
    }
    return sign *
           ldexpf((float)(fraction | 1u << f->fraction), (int)exponent - f->bias - f->fraction);
}

/* To nearest even. */
static unsigned encode(double value, const format_t *f)
{
    unsigned sign = signbit(value) ? 1u << (f->exponent + f->fraction) : 0;
    unsigned last = (1u << f->exponent) - 1, ones = (1u << f->fraction) - 1;
    unsigned infinity = last << f->fraction;
    unsigned largest = f->infinite ? infinity - 1 : infinity + ones - 1;
    if (isnan(value)) {
        return sign | (f->infinite ? infinity | 1u << (f->fraction - 1) : infinity + ones);
    }
    if (isinf(value)) {
        return sign | (f->infinite ? infinity : largest);
    }
    double size = fabs(value);
    if (size == 0) {
        return sign;
    }
    int exponent;
    frexp(size, &exponent);
    exponent -= 1; /* size = 1.xxx x 2^exponent */
    int least = 1 - f->bias;
    int unit = (exponent < least ? least : exponent) - f->fraction;
    double units = nearbyint(ldexp(size, -unit)); /* the mode is to nearest even */
    /* Rounding may carry into the exponent: the codes follow each other, so adding does it. */
    double code = units + (exponent < least ? 0 : ldexp(exponent - least, f->fraction));
    if (code > largest) {
        return sign | (f->infinite ? infinity : largest);
    }
    return sign | (unsigned)code;
}

static float load_bf16(uint16_t code)
{
    uint32_t bits = (uint32_t)code << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static uint16_t store_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (isnan(value)) {
        return (uint16_t)(bits >> 16 | 0x40);
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define SCALE(T)                                                                                   \
    {                                                                                              \
        T factor;                                                                                  \
        memcpy(&factor, scalar, sizeof(factor));                                                   \
        for (size_t i = 0; i < count; i++) {                                                       \
            ((T *)to)[i] = (T)(((const T *)from)[i] * factor);                                     \
        }                                                                                          \
        break;                                                                                     \
    }

#define SCALE_BY(T, load, store)                                                                   \
    {                                                                                              \
        T code;                                                                                    \
        memcpy(&code, scalar, sizeof(code));                                                       \
        const float factor = load(code);                                                           \
        for (size_t i = 0; i < count; i++) {                                                       \
            ((T *)to)[i] = (T)store(load(((const T *)from)[i]) * factor);                          \
        }                                                                                          \
        break;                                                                                     \
    }

#define LOAD_HALF(code) decode(code, &half)
#define STORE_HALF(value) encode(value, &half)
#define LOAD_E4M3(code) decode(code, &e4m3)
#define STORE_E4M3(value) encode(value, &e4m3)
#define LOAD_E5M2(code) decode(code, &e5m2)
#define STORE_E5M2(value) encode(value, &e5m2)

void weft__nccl_scale(void *to, const void *from, size_t count, ncclDataType_t type,
                      const void *scalar)
{
    switch (type) {
    case ncclInt8: /* signed products wrap as unsigned ones do, and are defined */
    case ncclUint8:
        SCALE(uint8_t)
    case ncclInt32:
    case ncclUint32:
        SCALE(uint32_t)
    case ncclInt64:
    case ncclUint64:
        SCALE(uint64_t)
    case ncclFloat32:
        SCALE(float)
    case ncclFloat64:
        SCALE(double)
    case ncclFloat16:
        SCALE_BY(uint16_t, LOAD_HALF, STORE_HALF)
    case ncclBfloat16:
        SCALE_BY(uint16_t, load_bf16, store_bf16)
    case ncclFloat8e4m3:
        SCALE_BY(uint8_t, LOAD_E4M3, STORE_E4M3)
    case ncclFloat8e5m2:
        SCALE_BY(uint8_t, LOAD_E5M2, STORE_E5M2)
    default:
        break;
    }
}

void weft__nccl_widen(float *to, const void *from, size_t count, ncclDataType_t type)
{
    const format_t *format = type == ncclFloat8e4m3 ? &e4m3 : &e5m2;
    float values[256];
    for (unsigned code = 0; code < 256; code++) {
        values[code] = decode(code, format);
    }
    for (size_t i = 0; i < count; i++) {
        to[i] = values[((const unsigned char *)from)[i]];
    }
}

void weft__nccl_narrow(void *to, const float *from, size_t count, ncclDataType_t type)
{
    const format_t *format = type == ncclFloat8e4m3 ? &e4m3 : &e5m2;
    for (size_t i = 0; i < count; i++) {
        ((unsigned char *)to)[i] = (unsigned char)encode(from[i], format);
    }
}
