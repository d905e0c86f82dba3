/* The inner loops of the CPU's compute kernels: one thread's share of a kernel, one table per
 * instruction set. compute.c cuts kernels into these. Internal to this folder.
 *
 * Unlike the reductions of kernel.h these may contract a product and a sum into one rounding, so
 * the tables differ in last bits; a run stays on one table. */
#ifndef WEFT_KERNEL_CPU_INNER_H
#define WEFT_KERNEL_CPU_INNER_H

#include "kernel/compute.h"

/* c (m x n, f32) = a b, or += with `add`. Element (i, p) of a is a[i x a_row + p x a_column]; rows
 * of b and of c are contiguous. For operands that are in cache. */
typedef struct weft_tile {
    int64_t m, n, k;
    const float *a;
    int64_t a_row, a_column;
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool add;
    /* As many rows as a tile, as wide, that will be read soon: asked for while sums are made. NULL:
     * none */
    const float *soon;
    int64_t soon_ld;
} weft_tile_t;

/* c (m x n, f32) = op(a) op(b), or += with `add`, of any size, k at least 1; strides and
 * transposition as in weft_matmul_t. Operands are copied, block by block, into the order in which
 * they are read. */
typedef struct weft_own_product {
    int64_t m, n, k;
    const float *a;
    int64_t lda;
    bool trans_a;
    const float *b;
    int64_t ldb;
    bool trans_b;
    float *c;
    int64_t ldc;
    bool add;
    bool halves;    /* all numbers of a and b are bf16 that were widened */
    float *scratch; /* WEFT_OWN_SCRATCH bytes, aligned to 64 */
    float *sums;    /* n, or NULL: += the sums of op(b)'s columns over k */
    /* For rows of strips only: what becomes of c when a block of it is complete. NULL: nothing. c
     * is columns [column, column + n) of ending->c, a is its rows from 0 on. */
    const weft_matmul_t *ending;
    int64_t column;
} weft_own_product_t;

#define WEFT_OWN_SCRATCH ((size_t)5 << 18)
/* It goes over c once for so many steps of k, at most, and packs a once for so many columns. */
#define WEFT_OWN_DEPTH 192
#define WEFT_OWN_COLUMNS 672

/* What becomes of a block of a product: columns [column, column + n) and rows [row, row + m) of
 * args->c, whose f32 value before bias, add and epilogue is in `from`. */
typedef struct weft_finish {
    const weft_matmul_t *args;
    int64_t row, column, m, n;
    const float *from; /* may be where the result goes */
    int64_t ld_from;
} weft_finish_t;

/* Functions on a range do elements or rows [first, end). */
#define WEFT_INNER_RANGES(X)                                                                       \
    X(dropout, weft_dropout_t)          /* rows */                                                 \
    X(embed_forward, weft_embed_t)      /* rows */                                                 \
    X(embed_backward, weft_embed_t)     /* columns, of all rows */                                 \
    X(norm_forward, weft_norm_t)        /* rows */                                                 \
    X(gelu_forward, weft_gelu_t)        /* elements */                                             \
    X(gelu_backward, weft_gelu_t)       /* elements */                                             \
    X(swiglu_forward, weft_swiglu_t)    /* rows */                                                 \
    X(swiglu_backward, weft_swiglu_t)   /* rows */                                                 \
    X(classify, weft_classify_t)        /* rows */                                                 \
    X(classify_stats, weft_classify_t)  /* rows */                                                 \
    X(classify_finish, weft_classify_t) /* rows */                                                 \
    X(adamw, weft_adamw_t)              /* elements */                                             \
    X(sumsq, weft_sumsq_t)              /* chunks */                                               \
    X(cast, weft_cast_t)                /* elements */

/* How our own product packs its operands: op(b) in strips of so many columns, op(a) in panels of so
 * many rows, both with k in whole steps, and so many bytes for each number. */
typedef struct weft_packing {
    int64_t strip, panel, step;
    size_t element;
} weft_packing_t;

typedef struct weft_inner {
    const char *name;
    bool own_is_best; /* our own product is faster than a BLAS here (docs/performance.md) */
#define WEFT_INNER_SLOT(name, args_t) void (*name)(const args_t *args, int64_t first, int64_t end);
    WEFT_INNER_RANGES(WEFT_INNER_SLOT)
#undef WEFT_INNER_SLOT

    /* Rows [first, end); their share of dweight and dbias into partial[0..width) and [width..). */
    void (*norm_backward)(const weft_norm_t *args, int64_t first, int64_t end, float *partial);

    /* Tokens [first, end); sines and cosines of their positions: table[t][2][D / 2]. */
    void (*rope)(const weft_rope_t *args, const float *table, int64_t first, int64_t end);

    /* One head of one sequence, `head` = b x H + h; and one key/value head of one sequence,
     * `group` = b x G + g, with all query heads that use it. */
    void (*attention_forward)(const weft_attention_t *args, int64_t head, void *scratch);
    void (*attention_backward)(const weft_attention_t *args, int64_t group, void *scratch);
    size_t (*attention_scratch)(const weft_attention_t *args, bool backward);
    void (*decode)(const weft_decode_t *args, int64_t head, void *scratch);
    void (*decode_append)(const weft_decode_t *args, int64_t row); /* row = b x seq + t */

    void (*tile)(const weft_tile_t *args);
    void (*product)(const weft_own_product_t *args);
    /* The same product, cut for several threads: first op(b) is packed, [first, end) of k of one
     * strip a call, from whole steps to whole steps, into packed[strip][k]; then rows [first, end)
     * of c are made of it, as many as fit the scratch packed, with all of k. */
    weft_packing_t packing;
    void (*pack_strip)(const weft_own_product_t *args, int64_t strip, int64_t first, int64_t end,
                       void *packed);
    void (*strip_rows)(const weft_own_product_t *args, const void *packed, int64_t first,
                       int64_t end, void *scratch);
    void (*finish)(const weft_finish_t *args);

    /* sums[c - first] = sum over rows [row, row_end) of in[r][c], c in [first, end), in order. */
    void (*column_sums)(const void *in, int64_t ld, weft_dtype_t type, int64_t row, int64_t row_end,
                        int64_t first, int64_t end, float *sums);
    /* out[i] += sum of partial[p x stride + i] over p < parts, i in [0, count). */
    void (*add_partials)(const float *partial, int64_t parts, int64_t stride, void *out,
                         weft_dtype_t type, int64_t count);
} weft_inner_t;

extern const weft_inner_t weft__inner_none;
#if defined(__x86_64__)
extern const weft_inner_t weft__inner_avx2, weft__inner_avx512;
#if defined(WEFT_AMX)
extern const weft_inner_t weft__inner_amx; /* as avx512, but for products */
#endif
#endif

/* The table for this CPU; follows WEFT_SIMD as the reductions do. */
const weft_inner_t *weft__inner(void);
/* The table of that name if this CPU can run it, else NULL. For tests. */
const weft_inner_t *weft__inner_named(const char *name);
/* Use this table from now on; NULL: the usual one. For tests, while nothing computes. */
void weft__inner_use(const weft_inner_t *table);

#endif
