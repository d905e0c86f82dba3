/* Small matrix products in cache, by outer products: per step of k, TILE_ROWS values of a are
 * multiplied with TILE_VECTORS vectors of b into accumulators that stay in registers. */
#ifndef WEFT_KERNEL_CPU_TILE_IMPL_H
#define WEFT_KERNEL_CPU_TILE_IMPL_H

#include "kernel/cpu/lanes.h"

/* Accumulators + vectors of b + one value of a must fit the registers: 32 with AVX-512, else 16. */
#if LANES == 16
#define TILE_ROWS 8
#define TILE_VECTORS 3
#else
#define TILE_ROWS 6
#define TILE_VECTORS 2
#endif

/* A line of memory is asked for every so many steps of k: more at a time would have to queue up,
 * and the sums with them. */
enum { ASK_EVERY = 8, LINE_FLOATS = 16, ASK_LINES = (TILE_VECTORS * LANES + 15) / LINE_FLOATS };

/* `rows`, `vectors` and `whole` are constants; unless `whole`, the last vector stands over the
 * edge. */
INLINE void tile_block(const weft_tile_t *t, int64_t i, int64_t j, const int rows,
                       const int vectors, const bool whole)
{
    lanes_t sum[TILE_ROWS][TILE_VECTORS];
    const float *a = t->a + i * t->a_row, *b = t->b + j;
    int64_t edge = whole ? LANES : t->n - j - (vectors - 1) * LANES;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            sum[r][v] = splat(0);
        }
    }
    /* c is wanted when the sums are done; it may be far away until then. */
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            __builtin_prefetch(t->c + (i + r) * t->ldc + j + v * LANES, 1, 3);
        }
    }
    int asked = 0;
    for (int64_t p = 0; p < t->k;) {
        int64_t end = t->k - p < ASK_EVERY ? t->k : p + ASK_EVERY;
        if (t->soon != NULL && asked < rows * ASK_LINES) {
            __builtin_prefetch(
                t->soon + asked / ASK_LINES * t->soon_ld + asked % ASK_LINES * LINE_FLOATS, 0, 2);
            asked++;
        }
        for (; p < end; p++, b += t->ldb, a += t->a_column) {
            lanes_t row[TILE_VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) {
                row[v] = load(b, v * LANES, v == vectors - 1 ? edge : LANES, WEFT_F32);
            }
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                lanes_t value = splat(a[r * t->a_row]);
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++) {
                    sum[r][v] = multiply_add(value, row[v], sum[r][v]);
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        float *c = t->c + (i + r) * t->ldc + j;
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            int64_t here = v == vectors - 1 ? edge : LANES;
            lanes_t value = sum[r][v];
            if (t->add) {
                value += load(c, v * LANES, here, WEFT_F32);
            }
            store(c, v * LANES, here, value, WEFT_F32);
        }
    }
}

/* A tile of one vector loads as much as it computes, so four vectors are taken as two and two. */
INLINE void tile_columns(const weft_tile_t *t, int64_t i, const int rows)
{
    int64_t j = 0, whole = t->n / LANES * LANES;
    for (; j + TILE_VECTORS * LANES <= whole && (TILE_VECTORS == 2 || whole - j != 4 * LANES);
         j += TILE_VECTORS * LANES) {
        tile_block(t, i, j, rows, TILE_VECTORS, true);
    }
    for (; j + 2 * LANES <= whole; j += 2 * LANES) {
        tile_block(t, i, j, rows, 2, true);
    }
    if (j + LANES <= whole) {
        tile_block(t, i, j, rows, 1, true);
        j += LANES;
    }
    if (j < t->n) {
        tile_block(t, i, j, rows, 1, false);
    }
}

static void tile(const weft_tile_t *t)
{
    int64_t i = 0;
    for (; i + TILE_ROWS <= t->m; i += TILE_ROWS) {
        tile_columns(t, i, TILE_ROWS);
    }
    for (; i + 4 <= t->m; i += 4) {
        tile_columns(t, i, 4);
    }
    for (; i < t->m; i++) {
        tile_columns(t, i, 1);
    }
}

/* ---- transposing -------------------------------------------------------------------------- */

typedef float four_t __attribute__((vector_size(16)));

/* Four rows of four, transposed. */
INLINE void transpose_four(const float *from, int64_t from_ld, float *to, int64_t to_ld)
{
    four_t a, b, c, d;
    memcpy(&a, from, 16);
    memcpy(&b, from + from_ld, 16);
    memcpy(&c, from + 2 * from_ld, 16);
    memcpy(&d, from + 3 * from_ld, 16);
    four_t ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    four_t ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    four_t cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    four_t cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    four_t out[4] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                     __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                     __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                     __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
    for (int i = 0; i < 4; i++) {
        memcpy(to + i * to_ld, &out[i], 16);
    }
}

/* to (columns x rows) = transposed from (rows x columns) */
INLINE void transpose(const float *from, int64_t from_ld, int64_t rows, int64_t columns, float *to,
                      int64_t to_ld)
{
    int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
    for (int64_t r = 0; r < whole_rows; r += 4) {
        for (int64_t c = 0; c < whole_columns; c += 4) {
            transpose_four(from + r * from_ld + c, from_ld, to + c * to_ld + r, to_ld);
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c++) {
            to[c * to_ld + r] = from[r * from_ld + c];
        }
    }
}

#endif
