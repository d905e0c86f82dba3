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

#include "kernel/cpu/elementwise_impl.h"
#include "kernel/cpu/tile_impl.h"

enum {
    STRIP = TILE_VECTORS * LANES,
    DEPTH = WEFT_OWN_DEPTH,      /* DEPTH x STRIP floats fit the first-level cache */
    BLOCK_ROWS = 16 * TILE_ROWS, /* BLOCK_ROWS x DEPTH and DEPTH x BLOCK_COLUMNS ... */
    BLOCK_COLUMNS = WEFT_OWN_COLUMNS / STRIP * STRIP, /* ... fit the second */
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

/* Rows of packed panels with one packed strip, both `depth` steps deep. */
static void multiply_strip(const weft_own_product_t *x, int64_t depth, int64_t row, int64_t rows,
                           int64_t column, int64_t width, bool add, const float *a, const float *b,
                           const float *soon)
{
    for (int64_t up = 0; up < rows; up += TILE_ROWS) {
        int64_t height = rows - up < TILE_ROWS ? rows - up : TILE_ROWS;
        weft_tile_t t = {height,
                         width,
                         depth,
                         a + up * depth,
                         1,
                         TILE_ROWS,
                         b,
                         STRIP,
                         x->c + (row + up) * x->ldc + column,
                         x->ldc,
                         add,
                         soon != NULL ? soon + up * x->ldc : NULL};
        if (height == TILE_ROWS && width == STRIP) {
            tile_block(&t, 0, 0, TILE_ROWS, TILE_VECTORS, true);
        } else {
            tile(&t);
        }
    }
}

/* `count` in pieces of at most `most`, as even as they come in multiples of `unit`: how large they are. */
static int64_t even_part(int64_t count, int64_t most, int64_t unit)
{
    int64_t parts = (count + most - 1) / most;
    return parts > 0 ? ((count + parts - 1) / parts + unit - 1) / unit * unit : 1;
}

static void product(const weft_own_product_t *x)
{
    int64_t even = even_part(x->k, DEPTH, 1), block = even_part(x->n, BLOCK_COLUMNS, STRIP);
    float *a = x->scratch, *b = x->scratch + BLOCK_ROWS * DEPTH;
    for (int64_t column = 0; column < x->n; column += block) {
        int64_t columns = x->n - column < block ? x->n - column : block;
        for (int64_t p0 = 0; p0 < x->k; p0 += even) {
            int64_t depth = x->k - p0 < even ? x->k - p0 : even;
            pack_columns(x, p0, depth, column, columns, b);
            for (int64_t row = 0; row < x->m; row += BLOCK_ROWS) {
                int64_t rows = x->m - row < BLOCK_ROWS ? x->m - row : BLOCK_ROWS;
                pack_rows(x, p0, depth, row, rows, a);
                for (int64_t at = 0; at < columns; at += STRIP) {
                    multiply_strip(x, depth, row, rows, column + at,
                                   columns - at < STRIP ? columns - at : STRIP, x->add || p0 > 0, a,
                                   b + at * depth, NULL);
                }
            }
        }
    }
}

/* ---- the end of a matrix product ---------------------------------------------------------- */

INLINE void finish_row(const weft_finish_t *f, int64_t r, weft_dtype_t type, weft_dtype_t c_type)
{
    const weft_matmul_t *a = f->args;
    const float *from = f->from + r * f->ld_from;
    int64_t at = (f->row + r) * a->ldc + f->column;
    for (int64_t i = 0; i < f->n; i += LANES) {
        int64_t left = f->n - i;
        lanes_t y = load(from, i, left, WEFT_F32);
        if (a->bias != NULL) {
            y += load(a->bias, f->column + i, left, type);
        }
        if (a->add != NULL) {
            y += load(a->add, at + i, left, type);
        }
        if (a->epilogue == WEFT_EPILOGUE_GELU) {
            if (a->aux != NULL) {
                store(a->aux, at + i, left, y, type);
            }
            y = gelu_lanes(y);
        } else if (a->epilogue == WEFT_EPILOGUE_DGELU) {
            y *= gelu_slope(load(a->aux, at + i, left, type));
        }
        if (a->accumulate) {
            y += load(a->c, at + i, left, c_type);
        }
        store(a->c, at + i, left, y, c_type);
    }
}

static void finish(const weft_finish_t *f)
{
    for (int64_t r = 0; r < f->m; r++) {
        if (f->args->type == WEFT_F32) {
            finish_row(f, r, WEFT_F32, WEFT_F32);
        } else if (f->args->c_type == WEFT_F32) {
            finish_row(f, r, WEFT_BF16, WEFT_F32);
        } else {
            finish_row(f, r, WEFT_BF16, WEFT_BF16);
        }
    }
}

/* ---- the same, for several threads ---------------------------------------------------------- */

static void pack_strip(const weft_own_product_t *x, int64_t strip, int64_t first, int64_t end,
                       float *packed)
{
    int64_t column = strip * STRIP, left = x->n - column;
    pack_columns(x, first, end - first, column, left < STRIP ? left : STRIP,
                 packed + (strip * x->k + first) * STRIP);
}

/* What the ending reads beside c, so far away that it should be asked for ahead; NULL: nothing. */
static const float *read_by_ending(const weft_own_product_t *x)
{
    const weft_matmul_t *e = x->ending;
    const float *from = e == NULL ? NULL : e->epilogue == WEFT_EPILOGUE_DGELU ? e->aux : e->add;
    return from != NULL ? from + x->column : NULL;
}

/* All of k before the next strip: a block of c is complete while it is in the cache, and is then
 * finished there. */
static void strip_rows(const weft_own_product_t *x, const float *packed, int64_t first, int64_t end,
                       float *scratch)
{
    int64_t even = even_part(x->k, DEPTH, 1), rows = end - first;
    int64_t padded_rows = (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    const float *soon = read_by_ending(x);
    /* Panel by panel where rows lie in a row in memory. */
    int64_t panel = x->trans_a ? padded_rows : TILE_ROWS;
    for (int64_t up = 0; up < rows; up += panel) {
        for (int64_t p0 = 0; p0 < x->k; p0 += even) {
            int64_t depth = x->k - p0 < even ? x->k - p0 : even;
            pack_rows(x, p0, depth, first + up, rows - up < panel ? rows - up : panel,
                      scratch + p0 * padded_rows + up * depth);
        }
    }
    for (int64_t at = 0; at < x->n; at += STRIP) {
        int64_t width = x->n - at < STRIP ? x->n - at : STRIP;
        for (int64_t p0 = 0; p0 < x->k; p0 += even) {
            int64_t depth = x->k - p0 < even ? x->k - p0 : even;
            multiply_strip(x, depth, first, rows, at, width, x->add || p0 > 0,
                           scratch + p0 * padded_rows, packed + (at / STRIP * x->k + p0) * STRIP,
                           soon != NULL && p0 + depth == x->k ? soon + first * x->ldc + at : NULL);
        }
        if (x->ending != NULL) {
            finish(&(weft_finish_t){x->ending, first, x->column + at, rows, width,
                                    x->c + first * x->ldc + at, x->ldc});
        }
    }
}

#endif
