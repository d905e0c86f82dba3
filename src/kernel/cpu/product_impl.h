/* Weft's own matrix product, for one thread.
 *
 * The usual scheme (Goto and van de Geijn): DEPTH steps of k at a time; b's columns packed in
 * strips as wide as a tile, of which one stays in the first-level cache while blocks of a, packed
 * in panels as high as a tile, pass by from the second.
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
#include "kernel/cpu/launch.h"
#include "kernel/cpu/tile_impl.h"

enum {
    STRIP = TILE_VECTORS * LANES,
    DEPTH = WEFT_OWN_DEPTH, /* DEPTH x STRIP floats fit the first-level cache */
    BLOCK_ROWS = 384,       /* BLOCK_ROWS x DEPTH and DEPTH x BLOCK_COLUMNS ... */
    BLOCK_COLUMNS = WEFT_OWN_COLUMNS / STRIP * STRIP, /* ... fit the second */
};

_Static_assert((size_t)(DEPTH *(BLOCK_ROWS + BLOCK_COLUMNS)) * sizeof(float) <= WEFT_OWN_SCRATCH,
               "packed blocks fit the scratch");

/* One row of op(b) into all strips; the last one is filled up with zeros. */
INLINE void pack_row(const float *from, int64_t columns, float *packed, int64_t strip_size)
{
    int64_t at = 0;
    for (; at + STRIP <= columns; at += STRIP, packed += strip_size) {
#pragma GCC unroll 4
        for (int v = 0; v < TILE_VECTORS; v++) {
            store(packed, v * LANES, LANES, load(from, at + v * LANES, LANES, WEFT_F32), WEFT_F32);
        }
    }
    for (int64_t i = 0; i < STRIP && at < columns; i += LANES) {
        int64_t left = columns - at - i;
        lanes_t value = left > 0 ? load(from, at + i, left, WEFT_F32) : splat(0);
        store(packed, i, LANES, value, WEFT_F32);
    }
}

/* packed[strip][p][STRIP]. Along the rows of memory, which is read once and in its order. */
static void pack_columns(const weft_own_product_t *x, int64_t p0, int64_t depth, int64_t column,
                         int64_t columns, float *packed)
{
    if (!x->trans_b) {
        for (int64_t p = 0; p < depth; p++) {
            pack_row(x->b + (p0 + p) * x->ldb + column, columns, packed + p * STRIP, depth * STRIP);
        }
        return;
    }
    for (int64_t at = 0; at < columns; at += STRIP, packed += depth * STRIP) {
        int64_t width = columns - at < STRIP ? columns - at : STRIP;
        if (width < STRIP) {
            memset(packed, 0, (size_t)(depth * STRIP) * sizeof(*packed));
        }
        transpose(x->b + (column + at) * x->ldb + p0, x->ldb, width, depth, packed, STRIP);
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

/* What will be read next, in pieces of TILE_ROWS rows by a strip's width: a tile asks for one each,
 * in turn, so that memory works while sums are made. `groups` pieces lie below each other. */
typedef struct ahead {
    const float *base[2];
    int64_t ld[2];
    int64_t strips[2]; /* 0: none */
    int64_t groups, next;
} ahead_t;

static void ask_next(ahead_t *ahead, weft_tile_t *t)
{
    int64_t at = ahead->next++;
    for (int i = 0; i < 2; i++) {
        int64_t count = ahead->groups * ahead->strips[i];
        if (at < count) {
            t->soon = ahead->base[i] + at % ahead->groups * TILE_ROWS * ahead->ld[i] +
                      at / ahead->groups * STRIP;
            t->soon_ld = ahead->ld[i];
            return;
        }
        at -= count;
    }
}

/* Rows of packed panels with one packed strip, both `depth` steps deep. */
static void multiply_strip(const weft_own_product_t *x, int64_t depth, int64_t row, int64_t rows,
                           int64_t column, int64_t width, bool add, const float *a, const float *b,
                           ahead_t *ahead)
{
    for (int64_t up = 0; up < rows; up += TILE_ROWS) {
        int64_t height = rows - up < TILE_ROWS ? rows - up : TILE_ROWS;
        weft_tile_t t = {.m = height,
                         .n = width,
                         .k = depth,
                         .a = a + up * depth,
                         .a_row = 1,
                         .a_column = TILE_ROWS,
                         .b = b,
                         .ldb = STRIP,
                         .c = x->c + (row + up) * x->ldc + column,
                         .ldc = x->ldc,
                         .add = add};
        if (height == TILE_ROWS && width == STRIP) {
            ask_next(ahead, &t);
            tile_block(&t, 0, 0, TILE_ROWS, TILE_VECTORS, true);
        } else {
            tile(&t);
        }
    }
}

/* sums[c] += the sum over `depth` steps of column c of packed strips. */
static void add_columns(const float *packed, int64_t depth, int64_t columns, float *sums)
{
    for (int64_t at = 0; at < columns; at += STRIP, packed += depth * STRIP) {
        lanes_t sum[TILE_VECTORS] = {{0}};
        for (int64_t p = 0; p < depth; p++) {
            for (int v = 0; v < TILE_VECTORS; v++) {
                sum[v] += load(packed, p * STRIP + v * LANES, LANES, WEFT_F32);
            }
        }
        for (int v = 0; v < TILE_VECTORS && at + v * LANES < columns; v++) {
            int64_t left = columns - at - v * LANES;
            lanes_t whole = load(sums, at + v * LANES, left, WEFT_F32) + sum[v];
            store(sums, at + v * LANES, left, whole, WEFT_F32);
        }
    }
}

/* The operands of the next `depth` steps of k, from p0 on, where they lie in rows: of b, which is
 * packed before the first rows of a block, and of these rows. */
static ahead_t ahead_in_k(const weft_own_product_t *x, int64_t p0, int64_t depth, int64_t row,
                          int64_t rows, int64_t column, int64_t columns)
{
    ahead_t ahead = {.groups = depth / TILE_ROWS, .ld = {x->ldb, x->lda}};
    if (!x->trans_b && row == 0) {
        ahead.base[0] = x->b + p0 * x->ldb + column;
        ahead.strips[0] = columns / STRIP;
    }
    if (x->trans_a) {
        ahead.base[1] = x->a + p0 * x->lda + row;
        ahead.strips[1] = rows / STRIP;
    }
    return ahead;
}

static void product(const weft_own_product_t *x)
{
    int64_t even = weft__even_part(x->k, DEPTH, 1),
            block = weft__even_part(x->n, BLOCK_COLUMNS, STRIP);
    int64_t high = weft__even_part(x->m, BLOCK_ROWS, TILE_ROWS);
    float *a = x->scratch, *b = x->scratch + BLOCK_ROWS * DEPTH;
    for (int64_t column = 0; column < x->n; column += block) {
        int64_t columns = x->n - column < block ? x->n - column : block;
        for (int64_t p0 = 0; p0 < x->k; p0 += even) {
            int64_t depth = x->k - p0 < even ? x->k - p0 : even;
            pack_columns(x, p0, depth, column, columns, b);
            if (x->sums != NULL) {
                add_columns(b, depth, columns, x->sums + column);
            }
            for (int64_t row = 0; row < x->m; row += high) {
                int64_t rows = x->m - row < high ? x->m - row : high;
                int64_t left = x->k - p0 - depth;
                ahead_t ahead = ahead_in_k(x, p0 + depth, left < even ? left : even, row, rows,
                                           column, columns);
                pack_rows(x, p0, depth, row, rows, a);
                for (int64_t at = 0; at < columns; at += STRIP) {
                    multiply_strip(x, depth, row, rows, column + at,
                                   columns - at < STRIP ? columns - at : STRIP, x->add || p0 > 0, a,
                                   b + at * depth, &ahead);
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
        } else if (f->args->type == WEFT_F16 && f->args->c_type == WEFT_F32) {
            finish_row(f, r, WEFT_F16, WEFT_F32);
        } else if (f->args->type == WEFT_F16) {
            finish_row(f, r, WEFT_F16, WEFT_F16);
        } else if (f->args->c_type == WEFT_F32) {
            finish_row(f, r, WEFT_BF16, WEFT_F32);
        } else {
            finish_row(f, r, WEFT_BF16, WEFT_BF16);
        }
    }
}

/* ---- the same, for several threads ---------------------------------------------------------- */

static void pack_strip(const weft_own_product_t *x, int64_t strip, int64_t first, int64_t end,
                       void *packed)
{
    int64_t column = strip * STRIP, left = x->n - column;
    pack_columns(x, first, end - first, column, left < STRIP ? left : STRIP,
                 (float *)packed + (strip * x->k + first) * STRIP);
}

/* What the ending reads beside c, of rows from `row` on in one strip. */
static ahead_t ahead_of_ending(const weft_own_product_t *x, int64_t row, int64_t rows, int64_t at)
{
    const weft_matmul_t *e = x->ending;
    const float *from = e == NULL ? NULL : e->epilogue == WEFT_EPILOGUE_DGELU ? e->aux : e->add;
    if (from == NULL) {
        return (ahead_t){.groups = 1};
    }
    return (ahead_t){.base = {from + row * x->ldc + x->column + at},
                     .ld = {x->ldc},
                     .strips = {1},
                     .groups = rows / TILE_ROWS};
}

/* All of k before the next strip: a block of c is complete while it is in the cache, and is then
 * finished there. */
static void strip_rows(const weft_own_product_t *x, const void *packed, int64_t first, int64_t end,
                       void *scratch)
{
    float *a = scratch;
    const float *b = packed;
    int64_t even = weft__even_part(x->k, DEPTH, 1), rows = end - first;
    int64_t padded_rows = (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    /* Panel by panel where rows lie in a row in memory. */
    int64_t panel = x->trans_a ? padded_rows : TILE_ROWS;
    for (int64_t up = 0; up < rows; up += panel) {
        for (int64_t p0 = 0; p0 < x->k; p0 += even) {
            int64_t depth = x->k - p0 < even ? x->k - p0 : even;
            pack_rows(x, p0, depth, first + up, rows - up < panel ? rows - up : panel,
                      a + p0 * padded_rows + up * depth);
        }
    }
    for (int64_t at = 0; at < x->n; at += STRIP) {
        int64_t width = x->n - at < STRIP ? x->n - at : STRIP;
        ahead_t ahead = ahead_of_ending(x, first, rows, at);
        for (int64_t p0 = 0; p0 < x->k; p0 += even) {
            int64_t depth = x->k - p0 < even ? x->k - p0 : even;
            multiply_strip(x, depth, first, rows, at, width, x->add || p0 > 0, a + p0 * padded_rows,
                           b + (at / STRIP * x->k + p0) * STRIP, &ahead);
        }
        if (x->ending != NULL) {
            finish(&(weft_finish_t){x->ending, first, x->column + at, rows, width,
                                    x->c + first * x->ldc + at, x->ldc});
        }
    }
}

#endif
