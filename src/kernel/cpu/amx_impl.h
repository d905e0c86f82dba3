/* The product of amx.h. The including file says what tiles are:
 *
 *   TILES_BEGIN(), TILES_END()      around all use of tiles, by every thread
 *   TILE_ZERO(t), TILE_LOAD(t, from, stride), TILE_STORE(t, to, stride)
 *   TILE_PRODUCT(c, a, b)           c += a b; all tiles have 16 rows of 64 bytes
 *   NARROW(low, high)               two vectors of f32 as one of bf16, to nearest
 *
 * Tiles are numbered by literals. A tile of a is 16 rows of 32 steps of k; one of b is 16 pairs of
 * steps, in each of them 16 columns, the two steps of a column beside each other. Packed operands
 * are these tiles:
 *
 *   packed[panel of 32 rows or strip of 32 columns][step of 32 k][part 1 to 3][half of 16][16][32]
 */
#ifndef WEFT_KERNEL_CPU_AMX_IMPL_H
#define WEFT_KERNEL_CPU_AMX_IMPL_H

#include <string.h>

#include "kernel/cpu/amx.h"
#include "kernel/cpu/launch.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    SIDE = 16,              /* rows of a tile */
    STEP = 32,              /* of k */
    WIDE = 2 * SIDE,        /* rows of a panel, columns of a strip */
    PARTS = 3,              /* of a float */
    TILE = SIDE * STEP,     /* numbers of a tile */
    PART = 2 * TILE,        /* of one part of a panel or strip, a step of k */
    GROUP = PARTS * PART,   /* of all parts */
    DEPTH = WEFT_OWN_DEPTH, /* DEPTH steps of a strip fit the first-level cache */
    BLOCK_ROWS = 384,       /* BLOCK_ROWS x DEPTH and DEPTH x BLOCK_COLUMNS fit the second */
    BLOCK_COLUMNS = WEFT_OWN_COLUMNS / WIDE * WIDE,
};

_Static_assert(DEPTH % STEP == 0 && BLOCK_ROWS % WIDE == 0, "blocks are made of tiles");
_Static_assert((size_t)(DEPTH *(BLOCK_ROWS + BLOCK_COLUMNS)) * PARTS * 2 <= WEFT_OWN_SCRATCH,
               "packed blocks fit the scratch");

INLINE int64_t steps_of(int64_t k)
{
    return (k + STEP - 1) / STEP;
}

/* Of the numbers of a product. */
INLINE int parts_of(const weft_own_product_t *x)
{
    return x->halves ? 1 : PARTS;
}

/* ---- floats in three parts ---------------------------------------------------------------- */

/* The first `left` of 16 floats; the others are zero. */
INLINE __m512 load_left(const float *from, int64_t left)
{
    if (left >= SIDE) {
        return _mm512_loadu_ps(from);
    }
    return _mm512_maskz_loadu_ps(left > 0 ? (__mmask16)((1u << left) - 1) : 0, from);
}

/* 32 steps of k of one row of a, as so many parts: `to` is its row in the tile of the first one. */
INLINE void store_row(__m512 low, __m512 high, int parts, uint16_t *to)
{
#pragma GCC unroll 3
    for (int part = 0; part < PARTS; part++) {
        __m512i both = NARROW(low, high);
        _mm512_store_si512(to + part * PART, both);
        if (part + 1 == parts) {
            return;
        }
        __m512i first = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
        __m512i second = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
        low = _mm512_sub_ps(low, _mm512_castsi512_ps(_mm512_slli_epi32(first, 16)));
        high = _mm512_sub_ps(high, _mm512_castsi512_ps(_mm512_slli_epi32(second, 16)));
    }
}

/* Two steps of k of 16 columns of b. */
INLINE void store_pair(__m512 low, __m512 high, int parts, uint16_t *to)
{
    static const uint16_t beside[32] __attribute__((aligned(64))) = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    __m512i order = _mm512_load_si512(beside), upper = _mm512_set1_epi32((int)0xffff0000);
#pragma GCC unroll 3
    for (int part = 0; part < PARTS; part++) {
        __m512i both = _mm512_permutexvar_epi16(order, NARROW(low, high));
        _mm512_store_si512(to + part * PART, both);
        if (part + 1 == parts) {
            return;
        }
        low = _mm512_sub_ps(low, _mm512_castsi512_ps(_mm512_slli_epi32(both, 16)));
        high = _mm512_sub_ps(high, _mm512_castsi512_ps(_mm512_and_si512(both, upper)));
    }
}

/* 16 rows of 16 floats, of which `rows` and `columns` are there, as columns. */
INLINE void transposed(const float *from, int64_t ld, int64_t rows, int64_t columns,
                       __m512 out[SIDE])
{
    __m512 r[SIDE], s[SIDE];
#pragma GCC unroll 16
    for (int i = 0; i < SIDE; i++) {
        r[i] = i < rows ? load_left(from + i * ld, columns) : _mm512_setzero_ps();
    }
    /* Pairs of floats of two rows, then fours of four rows, in every quarter of a vector ... */
#pragma GCC unroll 4
    for (int i = 0; i < SIDE; i += 4) {
        __m512d a = _mm512_castps_pd(_mm512_unpacklo_ps(r[i], r[i + 1]));
        __m512d b = _mm512_castps_pd(_mm512_unpackhi_ps(r[i], r[i + 1]));
        __m512d c = _mm512_castps_pd(_mm512_unpacklo_ps(r[i + 2], r[i + 3]));
        __m512d d = _mm512_castps_pd(_mm512_unpackhi_ps(r[i + 2], r[i + 3]));
        s[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        s[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        s[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        s[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    /* ... and quarters to their places. */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512 a = _mm512_shuffle_f32x4(s[i], s[i + 4], 0x88);
        __m512 b = _mm512_shuffle_f32x4(s[i], s[i + 4], 0xdd);
        __m512 c = _mm512_shuffle_f32x4(s[i + 8], s[i + 12], 0x88);
        __m512 d = _mm512_shuffle_f32x4(s[i + 8], s[i + 12], 0xdd);
        out[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        out[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        out[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        out[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

INLINE void load_transposed(const float *from, int64_t ld, int64_t rows, int64_t columns,
                            __m512 out[SIDE])
{
    if (rows >= SIDE && columns >= SIDE) {
        transposed(from, ld, SIDE, SIDE, out);
    } else {
        transposed(from, ld, rows, columns, out);
    }
}

/* ---- packing ------------------------------------------------------------------------------ */

/* `rows` rows of op(a) from `row` on, `depth` steps of k from p0 on, into panels that are `steps`
 * groups long. Edges are filled up with zeros. */
static __attribute__((noinline)) void pack_a(const weft_own_product_t *x, int64_t p0, int64_t depth,
                                             int64_t row, int64_t rows, uint16_t *packed,
                                             int64_t steps)
{
    int64_t whole = (rows + WIDE - 1) / WIDE * WIDE;
    if (!x->trans_a) { /* along the rows of memory */
        for (int64_t r = 0; r < whole; r++) {
            const float *from = x->a + (row + r) * x->lda + p0;
            uint16_t *to = packed + r / WIDE * steps * GROUP + r % WIDE * STEP;
            for (int64_t p = 0; p < depth; p += STEP, to += GROUP) {
                int64_t left = r < rows ? depth - p : 0;
                store_row(load_left(from + p, left), load_left(from + p + SIDE, left - SIDE),
                          parts_of(x), to);
            }
        }
        return;
    }
    for (int64_t p = 0; p < depth; p += STEP) {
        for (int64_t r = 0; r < whole; r += SIDE) {
            const float *from = x->a + (p0 + p) * x->lda + row + r;
            uint16_t *to = packed + (r / WIDE * steps + p / STEP) * GROUP + r % WIDE * STEP;
            __m512 low[SIDE], high[SIDE];
            load_transposed(from, x->lda, depth - p, rows - r, low);
            load_transposed(from + SIDE * x->lda, x->lda, depth - p - SIDE, rows - r, high);
            for (int i = 0; i < SIDE; i++) {
                store_row(low[i], high[i], parts_of(x), to + i * STEP);
            }
        }
    }
}

/* Two steps of k beside each other, of all columns. */
INLINE void pack_pair(const weft_own_product_t *x, int64_t p, int64_t left, int64_t column,
                      int64_t columns, uint16_t *to, int64_t steps, float *sums)
{
    const float *from = x->b + p * x->ldb + column;
    for (int64_t c = 0; c < (columns + WIDE - 1) / WIDE * WIDE; c += SIDE) {
        __m512 low = load_left(from + c, columns - c);
        __m512 high = left > 1 ? load_left(from + x->ldb + c, columns - c) : _mm512_setzero_ps();
        store_pair(low, high, parts_of(x), to + c / WIDE * steps * GROUP + c % WIDE * STEP);
        if (sums != NULL && c < columns) {
            __mmask16 mask = columns - c < SIDE ? (__mmask16)((1u << (columns - c)) - 1) : 0xffff;
            __m512 sum = _mm512_add_ps(load_left(sums + c, columns - c), _mm512_add_ps(low, high));
            _mm512_mask_storeu_ps(sums + c, mask, sum);
        }
    }
}

/* The same of op(b)'s columns; sums of them over k are added to `sums` unless that is NULL. */
static __attribute__((noinline)) void pack_b(const weft_own_product_t *x, int64_t p0, int64_t depth,
                                             int64_t column, int64_t columns, uint16_t *packed,
                                             int64_t steps, float *sums)
{
    int64_t whole = (columns + WIDE - 1) / WIDE * WIDE;
    if (!x->trans_b) {
        for (int64_t p = 0; p < steps_of(depth) * STEP; p += 2) {
            uint16_t *to = packed + p / STEP * GROUP + p % STEP * SIDE;
            /* Behind the end of k nothing is read: no column is there. */
            pack_pair(x, p0 + p, depth - p, column, p < depth ? columns : 0, to, steps, sums);
            for (int64_t c = p < depth ? whole : 0; c < whole; c += SIDE) {
                store_pair(_mm512_setzero_ps(), _mm512_setzero_ps(), parts_of(x),
                           to + c / WIDE * steps * GROUP + c % WIDE * STEP);
            }
        }
        return;
    }
    for (int64_t c = 0; c < whole; c += SIDE) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t p = 0; p < depth; p += STEP) {
            const float *from = x->b + (column + c) * x->ldb + p0 + p;
            uint16_t *to = packed + (c / WIDE * steps + p / STEP) * GROUP + c % WIDE * STEP;
            for (int half = 0; half < 2; half++) {
                __m512 k[SIDE];
                load_transposed(from + half * SIDE, x->ldb, columns - c, depth - p - half * SIDE,
                                k);
                for (int i = 0; i < SIDE; i += 2) {
                    store_pair(k[i], k[i + 1], parts_of(x), to + (half * SIDE + i) * SIDE);
                    sum = _mm512_add_ps(sum, _mm512_add_ps(k[i], k[i + 1]));
                }
            }
        }
        if (sums != NULL && c < columns) {
            __mmask16 mask = columns - c < SIDE ? (__mmask16)((1u << (columns - c)) - 1) : 0xffff;
            _mm512_mask_storeu_ps(sums + c, mask,
                                  _mm512_add_ps(load_left(sums + c, columns - c), sum));
        }
    }
}

/* ---- multiplying -------------------------------------------------------------------------- */

/* Tiles: 0 to 3 are c, 4 and 5 of a, 6 and 7 of b. From one product of parts to the next only one
 * of the two operands changes, so that six take 14 loads. */
#define FOUR_PRODUCTS()                                                                            \
    TILE_PRODUCT(0, 4, 6);                                                                         \
    TILE_PRODUCT(1, 4, 7);                                                                         \
    TILE_PRODUCT(2, 5, 6);                                                                         \
    TILE_PRODUCT(3, 5, 7)
#define TAKE_A(part)                                                                               \
    TILE_LOAD(4, a + (part - 1) * PART, 64);                                                       \
    TILE_LOAD(5, a + (part - 1) * PART + TILE, 64)
#define TAKE_B(part)                                                                               \
    TILE_LOAD(6, b + (part - 1) * PART, 64);                                                       \
    TILE_LOAD(7, b + (part - 1) * PART + TILE, 64)

/* One of the tiles of the next group of each, asked for ahead: tiles come from the second-level
 * cache faster than the processor foresees. */
INLINE void ask_ahead(const uint16_t *a, const uint16_t *b, int tile)
{
#pragma GCC unroll 16
    for (int row = 0; row < SIDE; row++) {
        __builtin_prefetch(a + GROUP + tile * TILE + row * STEP, 0, 3);
        __builtin_prefetch(b + GROUP + tile * TILE + row * STEP, 0, 3);
    }
}

/* A group of each, three parts or only the first. */
#define MULTIPLY_PARTS()                                                                           \
    TAKE_A(3);                                                                                     \
    TAKE_B(1);                                                                                     \
    FOUR_PRODUCTS();                                                                               \
    ask_ahead(a, b, 0);                                                                            \
    TAKE_A(1);                                                                                     \
    FOUR_PRODUCTS();                                                                               \
    ask_ahead(a, b, 1);                                                                            \
    TAKE_A(2);                                                                                     \
    FOUR_PRODUCTS();                                                                               \
    ask_ahead(a, b, 2);                                                                            \
    TAKE_B(2);                                                                                     \
    FOUR_PRODUCTS();                                                                               \
    ask_ahead(a, b, 3);                                                                            \
    TAKE_A(1);                                                                                     \
    FOUR_PRODUCTS();                                                                               \
    ask_ahead(a, b, 4);                                                                            \
    TAKE_B(3);                                                                                     \
    FOUR_PRODUCTS();                                                                               \
    ask_ahead(a, b, 5)
#define MULTIPLY_HALVES()                                                                          \
    TAKE_A(1);                                                                                     \
    TAKE_B(1);                                                                                     \
    ask_ahead(a, b, 0);                                                                            \
    ask_ahead(a, b, 1);                                                                            \
    FOUR_PRODUCTS()

/* c (32 x 32) = a panel times a strip, `steps` groups of each; or += with `add`. */
static __attribute__((noinline)) void multiply_whole(const uint16_t *a, const uint16_t *b,
                                                     int64_t steps, int parts, float *c,
                                                     int64_t ldc, bool add)
{
    size_t stride = (size_t)ldc * sizeof(float);
    __asm__ volatile("" ::: "memory"); /* tiles are loaded behind the compiler's back */
    if (add) {
        TILE_LOAD(0, c, stride);
        TILE_LOAD(1, c + SIDE, stride);
        TILE_LOAD(2, c + SIDE * ldc, stride);
        TILE_LOAD(3, c + SIDE * ldc + SIDE, stride);
    } else {
        for (int r = 0; r < WIDE; r++) { /* c is wanted when the sums are done */
            __builtin_prefetch(c + r * ldc, 1, 3);
            __builtin_prefetch(c + r * ldc + SIDE, 1, 3);
        }
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    for (const uint16_t *end = a + steps * GROUP; a < end; a += GROUP, b += GROUP) {
        if (parts == PARTS) {
            MULTIPLY_PARTS();
        } else {
            MULTIPLY_HALVES();
        }
    }
    TILE_STORE(0, c, stride);
    TILE_STORE(1, c + SIDE, stride);
    TILE_STORE(2, c + SIDE * ldc, stride);
    TILE_STORE(3, c + SIDE * ldc + SIDE, stride);
}

/* The same where c ends within the block. */
static void multiply(const uint16_t *a, const uint16_t *b, int64_t steps, int parts, float *c,
                     int64_t ldc, int64_t rows, int64_t columns, bool add)
{
    if (rows >= WIDE && columns >= WIDE) {
        multiply_whole(a, b, steps, parts, c, ldc, add);
        return;
    }
    float edge[WIDE * WIDE] __attribute__((aligned(64)));
    size_t bytes = (size_t)weft__least(columns, WIDE) * sizeof(float);
    memset(edge, 0, sizeof(edge));
    rows = weft__least(rows, WIDE);
    for (int64_t r = 0; r < rows && add; r++) {
        memcpy(edge + r * WIDE, c + r * ldc, bytes);
    }
    multiply_whole(a, b, steps, parts, edge, WIDE, add);
    for (int64_t r = 0; r < rows; r++) {
        memcpy(c + r * ldc, edge + r * WIDE, bytes);
    }
}

/* ---- whole products ----------------------------------------------------------------------- */

static void product(const weft_own_product_t *x)
{
    int64_t deep = weft__even_part(x->k, DEPTH, STEP),
            wide = weft__even_part(x->n, BLOCK_COLUMNS, WIDE);
    int64_t high = weft__even_part(x->m, BLOCK_ROWS, WIDE);
    uint16_t *a = (uint16_t *)x->scratch, *b = a + BLOCK_ROWS * DEPTH * PARTS;
    TILES_BEGIN();
    for (int64_t column = 0; column < x->n; column += wide) {
        int64_t columns = weft__least(x->n - column, wide);
        for (int64_t p0 = 0; p0 < x->k; p0 += deep) {
            int64_t depth = weft__least(x->k - p0, deep), steps = steps_of(depth);
            pack_b(x, p0, depth, column, columns, b, steps,
                   x->sums != NULL ? x->sums + column : NULL);
            for (int64_t row = 0; row < x->m; row += high) {
                int64_t rows = weft__least(x->m - row, high);
                pack_a(x, p0, depth, row, rows, a, steps);
                for (int64_t at = 0; at < columns; at += WIDE) {
                    for (int64_t up = 0; up < rows; up += WIDE) {
                        multiply(a + up / WIDE * steps * GROUP, b + at / WIDE * steps * GROUP,
                                 steps, parts_of(x), x->c + (row + up) * x->ldc + column + at,
                                 x->ldc, rows - up, columns - at, x->add || p0 > 0);
                    }
                }
            }
        }
    }
    TILES_END();
}

static void pack_strip(const weft_own_product_t *x, int64_t strip, int64_t first, int64_t end,
                       void *packed)
{
    int64_t steps = steps_of(x->k), column = strip * WIDE;
    pack_b(x, first, end - first, column, weft__least(x->n - column, WIDE),
           (uint16_t *)packed + (strip * steps + first / STEP) * GROUP, steps, NULL);
}

static void strip_rows(const weft_own_product_t *x, const void *packed, int64_t first, int64_t end,
                       void *scratch)
{
    int64_t steps = steps_of(x->k), rows = end - first;
    int64_t deep = weft__even_part(x->k, DEPTH, STEP) / STEP;
    uint16_t *a = scratch;
    pack_a(x, 0, x->k, first, rows, a, steps);
    TILES_BEGIN();
    for (int64_t at = 0; at < x->n; at += WIDE) {
        const uint16_t *b = (const uint16_t *)packed + at / WIDE * steps * GROUP;
        float *c = x->c + first * x->ldc + at;
        for (int64_t s = 0; s < steps; s += deep) {
            for (int64_t up = 0; up < rows; up += WIDE) {
                multiply(a + (up / WIDE * steps + s) * GROUP, b + s * GROUP,
                         weft__least(steps - s, deep), parts_of(x), c + up * x->ldc, x->ldc,
                         rows - up, x->n - at, x->add || s > 0);
            }
        }
        if (x->ending != NULL) {
            weft__inner_avx512.finish(&(weft_finish_t){x->ending, first, x->column + at, rows,
                                                       weft__least(x->n - at, WIDE), c, x->ldc});
        }
    }
    TILES_END();
}

#endif
