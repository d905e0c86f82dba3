/* Weft's own matrix product, for one thread.
 *
 * The usual scheme (Goto and van de Geijn): DEPTH steps of k at a time; b's columns packed in strips as
 * wide as a tile, of which one stays in the first-level cache while blocks of a, packed in panels as
 * high as a tile, pass by from the second.
 *
 *        strip of b: DEPTH x STRIP, contiguous
 *       +-----+-----+-----+
 *       |     |     |     |         panel of a: TILE_ROWS of every step of k, contiguous
 *       +-----+-----+-----+
 *  ===  | tile: in registers over DEPTH steps
 *  ===  |
 */
#ifndef WEFT_KERNEL_CPU_PRODUCT_IMPL_H
#define WEFT_KERNEL_CPU_PRODUCT_IMPL_H

#include "kernel/cpu/tile_impl.h"

enum {
    STRIP = TILE_VECTORS * LANES,
    DEPTH = LANES == 16 ? 192 : 256,     /* DEPTH x STRIP floats fit the first-level cache */
    BLOCK_ROWS = 16 * TILE_ROWS,         /* BLOCK_ROWS x DEPTH and DEPTH x BLOCK_COLUMNS ... */
    BLOCK_COLUMNS = 672 / STRIP * STRIP, /* ... fit the second */
};

_Static_assert((size_t)(DEPTH *(BLOCK_ROWS + BLOCK_COLUMNS)) * sizeof(float) <= WEFT_OWN_SCRATCH,
               "packed blocks fit the scratch");

/* packed[strip][p][STRIP]; the last strip is filled up with zeros. */
static void pack_columns(const weft_own_product_t *x, int64_t p0, int64_t depth, int64_t column,
                         int64_t columns, float *packed)
{
    for (int64_t at = 0; at < columns; at += STRIP, packed += depth * STRIP) {
        int64_t width = columns - at < STRIP ? columns - at : STRIP;
        if (width < STRIP) {
            memset(packed, 0, (size_t)(depth * STRIP) * sizeof(*packed));
        }
        if (x->trans_b) {
            transpose(x->b + (column + at) * x->ldb + p0, x->ldb, width, depth, packed, STRIP);
            continue;
        }
        const float *from = x->b + p0 * x->ldb + column + at;
        for (int64_t p = 0; p < depth; p++) {
            for (int64_t i = 0; i < width; i += LANES) {
                store(packed, p * STRIP + i, width - i,
                      load(from, p * x->ldb + i, width - i, WEFT_F32), WEFT_F32);
            }
        }
    }
}

/* Where a's rows are columns: row by row of memory, TILE_ROWS to every panel in turn. */
static void pack_columns_of_a(const weft_own_product_t *x, int64_t p0, int64_t depth, int64_t row,
                              int64_t rows, float *packed)
{
    for (int64_t p = 0; p < depth; p++) {
        const float *from = x->a + (p0 + p) * x->lda + row;
        float *to = packed + p * TILE_ROWS;
        int64_t at = 0;
        for (; at + TILE_ROWS <= rows; at += TILE_ROWS, to += depth * TILE_ROWS) {
            memcpy(to, from + at, TILE_ROWS * sizeof(*to));
        }
        for (int64_t i = 0; i < TILE_ROWS && at < rows; i++) {
            to[i] = at + i < rows ? from[at + i] : 0.0f;
        }
    }
}

/* packed[panel][p][TILE_ROWS]; the last panel is filled up with zeros. */
static void pack_rows(const weft_own_product_t *x, int64_t p0, int64_t depth, int64_t row,
                      int64_t rows, float *packed)
{
    if (x->trans_a) {
        pack_columns_of_a(x, p0, depth, row, rows, packed);
        return;
    }
    for (int64_t at = 0; at < rows; at += TILE_ROWS, packed += depth * TILE_ROWS) {
        int64_t height = rows - at < TILE_ROWS ? rows - at : TILE_ROWS;
        if (height < TILE_ROWS) {
            memset(packed, 0, (size_t)(depth * TILE_ROWS) * sizeof(*packed));
        }
        transpose(x->a + (row + at) * x->lda + p0, x->lda, height, depth, packed, TILE_ROWS);
    }
}

/* A block of packed rows with all packed strips. */
static void multiply_packed(const weft_own_product_t *x, int64_t depth, int64_t row, int64_t rows,
                            int64_t column, int64_t columns, bool add, const float *a,
                            const float *b)
{
    for (int64_t at = 0; at < columns; at += STRIP) {
        int64_t width = columns - at < STRIP ? columns - at : STRIP;
        for (int64_t up = 0; up < rows; up += TILE_ROWS) {
            int64_t height = rows - up < TILE_ROWS ? rows - up : TILE_ROWS;
            weft_tile_t t = {height,         width, depth,
                             a + up * depth, 1,     TILE_ROWS,
                             b + at * depth, STRIP, x->c + (row + up) * x->ldc + column + at,
                             x->ldc,         add};
            if (height == TILE_ROWS && width == STRIP) {
                tile_block(&t, 0, 0, TILE_ROWS, TILE_VECTORS, true);
            } else {
                tile(&t);
            }
        }
    }
}

static void product(const weft_own_product_t *x)
{
    int64_t steps = (x->k + DEPTH - 1) / DEPTH, even = steps > 0 ? (x->k + steps - 1) / steps : 1;
    float *a = x->scratch, *b = x->scratch + BLOCK_ROWS * DEPTH;
    for (int64_t column = 0; column < x->n; column += BLOCK_COLUMNS) {
        int64_t columns = x->n - column < BLOCK_COLUMNS ? x->n - column : BLOCK_COLUMNS;
        for (int64_t p0 = 0; p0 < x->k; p0 += even) {
            int64_t depth = x->k - p0 < even ? x->k - p0 : even;
            pack_columns(x, p0, depth, column, columns, b);
            for (int64_t row = 0; row < x->m; row += BLOCK_ROWS) {
                int64_t rows = x->m - row < BLOCK_ROWS ? x->m - row : BLOCK_ROWS;
                pack_rows(x, p0, depth, row, rows, a);
                multiply_packed(x, depth, row, rows, column, columns, x->add || p0 > 0, a, b);
            }
        }
    }
}

#endif
