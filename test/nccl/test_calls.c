/* ctest: timeout=60 tsan */
/* NCCL's collectives and messages on virtual GPUs, against sums in double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nccl/ranks.h"

enum { MOST = 5000 };

/* A random value that every rank can compute of every other, and small enough for all types. */
static double value(unsigned seed, int rank, size_t i)
{
    uint64_t x = (uint64_t)seed << 40 ^ (uint64_t)rank << 32 ^ i;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x >> 33) % 4) - 1; /* -1 to 2: products of five fit into 8 bits */
}

static size_t size_of(ncclDataType_t type)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return sizes[type];
}

/* Small integers in every type; of floats, those that even 8 bits hold exactly. */
static void store(void *at, size_t i, ncclDataType_t type, double v)
{
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    unsigned sign = bits >> 31;
    int exponent = (int)(bits >> 23 & 255) - 127;
    unsigned fraction = bits & 0x7fffff;
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        ((int8_t *)at)[i] = (int8_t)v;
        break;
    case ncclInt32:
    case ncclUint32:
        ((int32_t *)at)[i] = (int32_t)v;
        break;
    case ncclInt64:
    case ncclUint64:
        ((int64_t *)at)[i] = (int64_t)v;
        break;
    case ncclFloat16:
        ((uint16_t *)at)[i] = (uint16_t)(v == 0 ? 0
                                                : sign << 15 | (unsigned)(exponent + 15) << 10 |
                                                      fraction >> 13);
        break;
    case ncclBfloat16:
        ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
        break;
    case ncclFloat32:
        ((float *)at)[i] = f;
        break;
    case ncclFloat64:
        ((double *)at)[i] = v;
        break;
    case ncclFloat8e4m3:
        ((uint8_t *)at)[i] = (uint8_t)(v == 0 ? 0
                                              : sign << 7 | (unsigned)(exponent + 7) << 3 |
                                                    fraction >> 20);
        break;
    default:
        ((uint8_t *)at)[i] = (uint8_t)(v == 0 ? 0
                                              : sign << 7 | (unsigned)(exponent + 15) << 2 |
                                                    fraction >> 21);
    }
}

static double load(const void *at, size_t i, ncclDataType_t type)
{
    unsigned code, sign, exponent, fraction, bits = 0, bias = 0;
    uint32_t wide;
    float f;
    switch (type) {
    case ncclInt8:
        return ((const int8_t *)at)[i];
    case ncclUint8:
        return ((const uint8_t *)at)[i];
    case ncclInt32:
        return ((const int32_t *)at)[i];
    case ncclUint32:
        return ((const uint32_t *)at)[i];
    case ncclInt64:
        return (double)((const int64_t *)at)[i];
    case ncclUint64:
        return (double)((const uint64_t *)at)[i];
    case ncclFloat32:
        return ((const float *)at)[i];
    case ncclFloat64:
        return ((const double *)at)[i];
    case ncclBfloat16:
        wide = (uint32_t)((const uint16_t *)at)[i] << 16;
        memcpy(&f, &wide, 4);
        return f;
    case ncclFloat16:
        code = ((const uint16_t *)at)[i], bits = 10, bias = 15;
        sign = code >> 15, exponent = code >> 10 & 31;
        break;
    case ncclFloat8e4m3:
        code = ((const uint8_t *)at)[i], bits = 3, bias = 7;
        sign = code >> 7, exponent = code >> 3 & 15;
        break;
    default:
        code = ((const uint8_t *)at)[i], bits = 2, bias = 15;
        sign = code >> 7, exponent = code >> 2 & 31;
    }
    fraction = code & ((1u << bits) - 1);
    double v = exponent ? ldexp(1 + ldexp(fraction, -(int)bits), (int)exponent - (int)bias)
                        : ldexp(fraction, 1 - (int)bias - (int)bits);
    return sign ? -v : v;
}

static double reduced(unsigned seed, int size, size_t i, ncclRedOp_t op, bool natural, double scale)
{
    double r = 0;
    for (int rank = 0; rank < size; rank++) {
        double v = value(seed, rank, i);
        v = (natural && v < 0 ? -v : v) * (op >= ncclNumOps ? scale * (rank + 1) : 1);
        r = rank == 0        ? v
            : op == ncclProd ? r * v
            : op == ncclMax  ? fmax(r, v)
            : op == ncclMin  ? fmin(r, v)
                             : r + v;
    }
    return r;
}

static bool is_natural(ncclDataType_t type)
{
    return type == ncclUint8 || type == ncclUint32 || type == ncclUint64;
}

static void fill(void *at, size_t count, ncclDataType_t type, unsigned seed, int rank)
{
    for (size_t i = 0; i < count; i++) {
        double v = value(seed, rank, i);
        store(at, i, type, is_natural(type) && v < 0 ? -v : v);
    }
}

/* Half a unit in the last place: sums and products of small integers are exact but in types of 8
 * bits, averages are not. */
static void expect_near(double got, double expected, ncclDataType_t type)
{
    static const double halves[ncclNumTypes] = {
        [ncclFloat16] = 0x1p-11, [ncclFloat32] = 0x1p-24,   [ncclFloat64] = 0x1p-53,
        [ncclBfloat16] = 0x1p-8, [ncclFloat8e4m3] = 0x1p-4, [ncclFloat8e5m2] = 0x1p-3};
    double slack = halves[type] *
                   (expected == nearbyint(expected) && type < ncclFloat8e4m3 ? 0 : 1);
    if (!(fabs(got - expected) <= slack * fabs(expected))) {
        fprintf(stderr, "type %d: %g, not %g\n", (int)type, got, expected);
    }
    EXPECT(fabs(got - expected) <= slack * fabs(expected));
}

static void reduce_all_ways(nccl_rank_t *r)
{
    static const size_t counts[] = {0, 1, 7, 1000, MOST};
    char *src, *dst;
    EXPECT_OK(ncclMemAlloc((void **)&src, MOST * 8 * 8));
    EXPECT_OK(ncclMemAlloc((void **)&dst, MOST * 8));
    for (int t = 0; t < ncclNumTypes; t++) {
        ncclDataType_t type = (ncclDataType_t)t;
        for (int o = 0; o <= 5; o++) {
            ncclRedOp_t op = (ncclRedOp_t)o;
            unsigned char scalar[8];
            store(scalar, 0, type, r->rank + 1);
            if (o == ncclAvg && type < ncclFloat16) {
                continue; /* of integers: rounds, and is tried elsewhere */
            }
            if (o == 5) {
                EXPECT_OK(
                    ncclRedOpCreatePreMulSum(&op, scalar, type, ncclScalarHostImmediate, r->comm));
                memset(scalar, 0, sizeof(scalar));
            }
            size_t count = counts[(t + o) % 5];
            unsigned seed = (unsigned)(t * 10 + o + 1);
            double by = o == ncclAvg ? r->size : 1;
            /* All-reduce in place, reduce, reduce-scatter. */
            fill(src, count, type, seed, r->rank);
            memcpy(dst, src, count * size_of(type));
            EXPECT_OK(ncclAllReduce(dst, dst, count, type, op, r->comm, r->stream));
            await_stream(r->stream);
            for (size_t i = 0; i < count; i++) {
                expect_near(load(dst, i, type),
                            reduced(seed, r->size, i, op, is_natural(type), 1) / by, type);
            }
            int root = (t + o) % r->size;
            EXPECT_OK(ncclReduce(src, r->rank == root ? dst : NULL, count, type, op, root, r->comm,
                                 r->stream));
            await_stream(r->stream);
            for (size_t i = 0; i < count && r->rank == root; i++) {
                expect_near(load(dst, i, type),
                            reduced(seed, r->size, i, op, is_natural(type), 1) / by, type);
            }
            fill(src, count * (size_t)r->size, type, seed + 500, r->rank);
            EXPECT_OK(ncclReduceScatter(src, dst, count, type, op, r->comm, r->stream));
            await_stream(r->stream);
            for (size_t i = 0; i < count; i++) {
                size_t from = (size_t)r->rank * count + i;
                expect_near(load(dst, i, type),
                            reduced(seed + 500, r->size, from, op, is_natural(type), 1) / by, type);
            }
            if (o == 5) {
                EXPECT_OK(ncclRedOpDestroy(op, r->comm));
                EXPECT_RESULT(ncclAllReduce(src, dst, count, type, op, r->comm, r->stream),
                              ncclInvalidArgument);
            }
        }
    }
    EXPECT_OK(ncclMemFree(src));
    EXPECT_OK(ncclMemFree(dst));
}

static void test_reductions(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        run_ranks(size, reduce_all_ways, NULL);
    }
}

static void move_all_ways(nccl_rank_t *r)
{
    enum { N = 333 };
    const int size = r->size, rank = r->rank;
    for (int t = 0; t < ncclNumTypes; t++) {
        ncclDataType_t type = (ncclDataType_t)t;
        size_t bytes = N * size_of(type), all = bytes * (size_t)size;
        char *src = malloc(all), *dst = malloc(all);
        char *mine = src + (size_t)rank * bytes;
        for (size_t i = 0; i < all; i++) {
            src[i] = (char)(i * 7 + (size_t)rank * 31 + (size_t)t);
        }
#define AT(r, i) (char)((i)*7 + (size_t)(r)*31 + (size_t)t)
        EXPECT_OK(ncclAllGather(mine, dst, N, type, r->comm, r->stream));
        await_stream(r->stream);
        for (size_t i = 0; i < all; i++) {
            EXPECT(dst[i] == AT(i / bytes, i));
        }
        memset(dst, 0, all);
        EXPECT_OK(ncclAlltoAll(src, dst, N, type, r->comm, r->stream));
        await_stream(r->stream);
        for (size_t i = 0; i < all; i++) {
            EXPECT(dst[i] == AT(i / bytes, (size_t)rank * bytes + i % bytes));
        }
        int root = t % size;
        memset(dst, 0, all);
        EXPECT_OK(ncclGather(mine, dst, N, type, root, r->comm, r->stream));
        await_stream(r->stream);
        for (size_t i = 0; i < all && rank == root; i++) {
            EXPECT(dst[i] == AT(i / bytes, i));
        }
        EXPECT_OK(ncclScatter(src, dst, N, type, root, r->comm, r->stream));
        await_stream(r->stream);
        for (size_t i = 0; i < bytes; i++) {
            EXPECT(dst[i] == AT(root, (size_t)rank * bytes + i));
        }
        EXPECT_OK(ncclBroadcast(src, dst, N, type, root, r->comm, r->stream));
        await_stream(r->stream);
        for (size_t i = 0; i < bytes; i++) {
            EXPECT(dst[i] == AT(root, i));
        }
        memcpy(dst, src, bytes);
        EXPECT_OK(ncclBcast(dst, N, type, root, r->comm, r->stream));
        await_stream(r->stream);
        for (size_t i = 0; i < bytes; i++) {
            EXPECT(dst[i] == AT(root, i));
        }
        /* A ring of messages. */
        int to = (rank + 1) % size, from = (rank + size - 1) % size;
        EXPECT_OK(ncclGroupStart());
        EXPECT_OK(ncclSend(src, N, type, to, r->comm, r->stream));
        EXPECT_OK(ncclRecv(dst, N, type, from, r->comm, r->stream));
        EXPECT_OK(ncclGroupEnd());
        await_stream(r->stream);
        for (size_t i = 0; i < bytes; i++) {
            EXPECT(dst[i] == AT(from, i));
        }
#undef AT
        free(src);
        free(dst);
    }
}

static void test_moves(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        run_ranks(size, move_all_ways, NULL);
    }
}

/* Several reductions in one group, those through memory of their own among them. */
static void group_of_sums(nccl_rank_t *r)
{
    enum { N = 100 };
    ncclRedOp_t tenth;
    float factor = 0.5f * (float)(r->rank + 1), a[N], b[N], c[N];
    uint8_t d[N];
    EXPECT_OK(ncclRedOpCreatePreMulSum(&tenth, &factor, ncclFloat32, ncclScalarDevice, r->comm));
    for (int i = 0; i < N; i++) {
        a[i] = b[i] = c[i] = (float)(i + r->rank);
        store(d, (size_t)i, ncclFloat8e5m2, i % 4);
    }
    EXPECT_OK(ncclGroupStart());
    EXPECT_OK(ncclAllReduce(a, a, N, ncclFloat32, ncclSum, r->comm, r->stream));
    EXPECT_OK(ncclAllReduce(b, b, N, ncclFloat32, tenth, r->comm, r->stream));
    EXPECT_OK(ncclAllReduce(d, d, N, ncclFloat8e5m2, ncclMax, r->comm, r->stream));
    EXPECT_OK(ncclAllReduce(c, c, N, ncclFloat32, ncclMin, r->comm, r->stream));
    EXPECT_OK(ncclGroupEnd());
    await_stream(r->stream);
    for (int i = 0; i < N; i++) {
        float sum = 0, scaled = 0;
        for (int k = 0; k < r->size; k++) {
            sum += (float)(i + k);
            scaled += 0.5f * (float)(k + 1) * (float)(i + k);
        }
        EXPECT(a[i] == sum);
        EXPECT(b[i] == scaled);
        EXPECT(c[i] == (float)i);
        EXPECT(load(d, (size_t)i, ncclFloat8e5m2) == i % 4);
    }
}

static void test_group(void **state)
{
    (void)state;
    run_ranks(3, group_of_sums, NULL);
}

/* Every code of 8 bits, and every value of f32 near those: to nearest even, by a search. */
static void round_floats(nccl_rank_t *r)
{
    for (int t = ncclFloat8e4m3; t <= ncclFloat8e5m2; t++) {
        ncclDataType_t type = (ncclDataType_t)t;
        uint8_t codes[256], sums[256];
        for (int i = 0; i < 256; i++) {
            codes[i] = (uint8_t)i;
        }
        EXPECT_OK(ncclAllReduce(codes, sums, 256, type, ncclSum, r->comm, r->stream));
        await_stream(r->stream);
        int infinite = type == ncclFloat8e5m2, last = infinite ? 0x7b : 0x7e;
        for (int i = 0; i < 256; i++) {
            int magnitude = i & 127;
            if (magnitude > last) {
                continue; /* NaN, or infinite */
            }
            double exact = 2 * load(codes, (size_t)i, type), best = INFINITY;
            int nearest = 0;
            for (int k = 0; k <= last; k++) {
                uint8_t code = (uint8_t)((i & 128) | k);
                double distance = fabs(load(&code, 0, type) - exact);
                if (distance < best || (distance == best && k % 2 == 0)) {
                    best = distance;
                    nearest = code;
                }
            }
            double largest = load(&(uint8_t){(uint8_t)last}, 0, type);
            if (infinite && fabs(exact) > largest) {
                nearest = (i & 128) | 0x7c;
            }
            EXPECT(sums[i] == nearest);
        }
    }
}

static void test_float8(void **state)
{
    (void)state;
    run_ranks(2, round_floats, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reductions),
                                       cmocka_unit_test(test_moves), cmocka_unit_test(test_group),
                                       cmocka_unit_test(test_float8)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
