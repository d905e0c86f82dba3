/* Matrix products: cut into one block per thread, each a call of a single-threaded sgemm, unless
 * strips.h is the better way. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "kernel/cpu/blas.h"
#include "kernel/cpu/launch.h"
#include "kernel/cpu/strips.h"

/* Blocks are cut at multiples of these where that leaves enough of them; our own product has its
 * own width of columns. */
enum { ROW_STEP = 16, COLUMN_STEP = 64, K_STEP = 2048, SUM_ROWS = 8, SUM_COLUMNS = 256 };

/* Where k is very long, as in gradients of weights over many tokens, threads take parts of it: each
 * row of a and b is then read by one of them or few. Parts of this length, whatever the number of
 * threads, so that sums have the same order; and no more than so many floats of sums beside c. */
enum { PART = 2048, PARTIAL_MOST = 16 << 20, SUM_ELEMENTS = 8192 };

typedef struct product {
    weft_matmul_t args; /* with strides filled in */
    weft_sgemm_fn sgemm;
    int64_t grid_columns, blocks;
    int64_t rows, columns; /* of a block */
    int64_t parts;         /* of k; the first one's sums go to c ... */
    float *partial;        /* ... and the others' here: (parts - 1) x m x n */
    bool onto_c;           /* f32: the product is added to what c holds */
    bool sums_beside;      /* for bias_grad, by the blocks themselves, in `sums` */
    float *sums;           /* for bias_grad: parts x n, or SUM_ROWS x n */
} product_t;

/* One block of the result, over [k, k_end), which is one of the parts. */
typedef struct block {
    int64_t row, column, m, n, part, k, k_end;
} block_t;

static bool is_plain(const weft_matmul_t *a)
{
    return a->bias == NULL && a->add == NULL && a->epilogue == WEFT_EPILOGUE_NONE;
}

/* ---- cutting ------------------------------------------------------------------------------- */

/* A thread packs its rows of a and its columns of b before it multiplies them, so the best grid has
 * the smallest sum of the two. */
static void choose_grid(product_t *p, int blocks)
{
    int64_t best = -1, column_step = COLUMN_STEP, row_step = ROW_STEP;
    if (p->sgemm == NULL) {
        column_step = weft__inner()->packing.strip;
        row_step = weft__most(ROW_STEP, weft__inner()->packing.panel);
    }
    for (int across = 1; across <= blocks; across++) {
        int64_t down = blocks / across;
        int64_t rows = weft__ceil_div(p->args.m, down), columns = weft__ceil_div(p->args.n, across);
        rows = weft__least(weft__ceil_div(rows, row_step) * row_step, p->args.m);
        columns = weft__least(weft__ceil_div(columns, column_step) * column_step, p->args.n);
        /* What the slowest thread has to do: its products, and copying at some 32 of them each. */
        int64_t cost = rows * columns + 32 * (rows + columns);
        if (best < 0 || cost < best) {
            best = cost;
            p->rows = rows;
            p->columns = columns;
        }
    }
    p->grid_columns = weft__ceil_div(p->args.n, p->columns);
    p->blocks = weft__ceil_div(p->args.m, p->rows) * p->grid_columns;
}

static int64_t choose_parts(const product_t *p)
{
    const weft_matmul_t *a = &p->args;
    bool of_weights = a->accumulate || (a->trans_a && is_plain(a));
    if (a->type != WEFT_F32 || !of_weights || a->ldc != a->n || a->k < 2 * PART) {
        return 1;
    }
    return weft__most(weft__least(a->k / PART, PARTIAL_MOST / (a->m * a->n) + 1), 1);
}

/* As few blocks as keep nine of ten threads busy until the end. With few threads, two blocks for
 * each: the exchange of gradients also runs on these cores, and a thread that has its core for
 * itself takes blocks over from one that has to share. */
static int blocks_of_part(int64_t parts, int threads)
{
    int least = threads > 1 && threads <= 4 ? 2 * threads : threads;
    int blocks = (int)weft__ceil_div(least, parts);
    while (blocks < threads) {
        int64_t tasks = parts * blocks, rounds = weft__ceil_div(tasks, threads);
        if (10 * tasks >= 9 * rounds * threads) {
            break;
        }
        blocks++;
    }
    return blocks;
}

static block_t block_of(const product_t *p, int64_t task)
{
    int64_t part = task / p->blocks, at = task % p->blocks, k = p->args.k;
    int64_t row = at / p->grid_columns * p->rows, column = at % p->grid_columns * p->columns;
    return (block_t){.row = row,
                     .column = column,
                     .m = weft__least(p->rows, p->args.m - row),
                     .n = weft__least(p->columns, p->args.n - column),
                     .part = part,
                     .k = k * part / p->parts,
                     .k_end = k * (part + 1) / p->parts};
}

/* ---- one block ----------------------------------------------------------------------------- */

static void multiply(const product_t *p, const weft_own_product_t *x)
{
    if (x->k < 1) { /* a sum of nothing */
        for (int64_t r = 0; r < x->m && !x->add; r++) {
            memset(x->c + r * x->ldc, 0, (size_t)x->n * sizeof(float));
        }
        return;
    }
    if (p->sgemm == NULL) {
        weft__inner()->product(x);
        return;
    }
    p->sgemm(WEFT_CBLAS_ROW_MAJOR, x->trans_a ? WEFT_CBLAS_TRANSPOSED : WEFT_CBLAS_AS_IS,
             x->trans_b ? WEFT_CBLAS_TRANSPOSED : WEFT_CBLAS_AS_IS, (int)x->m, (int)x->n, (int)x->k,
             1.0f, x->a, (int)x->lda, x->b, (int)x->ldb, x->add ? 1.0f : 0.0f, x->c, (int)x->ldc);
}

/* As many floats, and up to where the next ones are aligned. */
static int64_t padded(int64_t floats)
{
    enum { LINE_FLOATS = 16 };
    return weft__ceil_div(floats, LINE_FLOATS) * LINE_FLOATS;
}

/* `rows` rows of `columns` halves, with stride ld, as dense f32. */
static void widen(const uint16_t *from, weft_dtype_t type, int64_t ld, int64_t rows,
                  int64_t columns, float *to)
{
    for (int64_t r = 0; r < rows; r++) {
        weft_cast_t cast = {type, WEFT_F32, columns, from + r * ld, to + r * columns};
        weft__inner()->cast(&cast, 0, columns);
    }
}

/* bf16 and f16: K_STEP of k at a time through f32 copies. */
static void multiply_halves(const product_t *p, const block_t *block, float *c, float *scratch)
{
    const weft_matmul_t *args = &p->args;
    const uint16_t *a = args->a, *b = args->b;
    for (int64_t from = 0; from == 0 || from < args->k; from += K_STEP) {
        int64_t k = weft__least(K_STEP, args->k - from), m = block->m, n = block->n;
        float *wide_a = scratch, *wide_b = wide_a + padded(m * k);
        if (args->trans_a) {
            widen(a + from * args->lda + block->row, args->type, args->lda, k, m, wide_a);
        } else {
            widen(a + block->row * args->lda + from, args->type, args->lda, m, k, wide_a);
        }
        if (args->trans_b) {
            widen(b + block->column * args->ldb + from, args->type, args->ldb, n, k, wide_b);
        } else {
            widen(b + from * args->ldb + block->column, args->type, args->ldb, k, n, wide_b);
        }
        multiply(p, &(weft_own_product_t){.m = m,
                                          .n = n,
                                          .k = k,
                                          .a = wide_a,
                                          .lda = args->trans_a ? m : k,
                                          .trans_a = args->trans_a,
                                          .b = wide_b,
                                          .ldb = args->trans_b ? k : n,
                                          .trans_b = args->trans_b,
                                          .c = c,
                                          .ldc = n,
                                          .add = from > 0,
                                          .halves = args->type == WEFT_BF16,
                                          .scratch = wide_b + padded(n * k)});
    }
}

/* Into c, or for all parts of k but the first beside it. */
static void multiply_f32(const product_t *p, const block_t *block, float *scratch)
{
    const weft_matmul_t *args = &p->args;
    const float *a = args->a, *b = args->b;
    float *c = block->part == 0 ? args->c : p->partial + (block->part - 1) * args->m * args->n;
    a += args->trans_a ? block->k * args->lda + block->row : block->row * args->lda + block->k;
    b += args->trans_b ? block->column * args->ldb + block->k
                       : block->k * args->ldb + block->column;
    c += block->row * args->ldc + block->column;
    bool first = p->sums != NULL && block->row == 0; /* of the blocks that see these columns of b */
    float *sums = first ? p->sums + block->part * args->n + block->column : NULL;
    multiply(p, &(weft_own_product_t){.m = block->m,
                                      .n = block->n,
                                      .k = block->k_end - block->k,
                                      .a = a,
                                      .lda = args->lda,
                                      .trans_a = args->trans_a,
                                      .b = b,
                                      .ldb = args->ldb,
                                      .trans_b = args->trans_b,
                                      .c = c,
                                      .ldc = args->ldc,
                                      .add = block->part == 0 && p->onto_c,
                                      .scratch = scratch,
                                      .sums = sums});
}

static void block_task(const void *arg, int64_t task, void *scratch)
{
    const product_t *p = arg;
    const weft_matmul_t *args = &p->args;
    block_t block = block_of(p, task);
    weft_finish_t finish = {args, block.row, block.column, block.m, block.n, scratch, block.n};
    if (args->type != WEFT_F32) {
        multiply_halves(p, &block, scratch, (float *)scratch + padded(block.m * block.n));
        weft__inner()->finish(&finish);
        return;
    }
    multiply_f32(p, &block, scratch);
    if (!is_plain(args)) {
        finish.from = (float *)args->c + block.row * args->ldc + block.column;
        finish.ld_from = args->ldc;
        weft__inner()->finish(&finish);
    }
}

/* c += the sums of all parts but the first, in order. */
static void add_parts_task(const void *arg, int64_t task, void *scratch)
{
    const product_t *p = arg;
    int64_t count = p->args.m * p->args.n, first = task * SUM_ELEMENTS;
    (void)scratch;
    weft__inner()->add_partials(p->partial + first, p->parts - 1, count, (float *)p->args.c + first,
                                WEFT_F32, weft__least(SUM_ELEMENTS, count - first));
}

static size_t block_scratch(const product_t *p)
{
    int64_t k = weft__least(p->args.k, K_STEP);
    size_t own = p->sgemm == NULL ? WEFT_OWN_SCRATCH : 0;
    if (p->args.type == WEFT_F32) {
        return own;
    }
    int64_t floats = padded(p->rows * p->columns) + padded(k * p->rows) + padded(k * p->columns);
    return (size_t)floats * sizeof(float) + own;
}

/* ---- the gradient of a bias: sums of b's columns ------------------------------------------- */

static void sums_task(const void *arg, int64_t task, void *scratch)
{
    const product_t *p = arg;
    int64_t across = weft__ceil_div(p->args.n, SUM_COLUMNS);
    int64_t part = task / across, first = task % across * SUM_COLUMNS;
    (void)scratch;
    weft__inner()->column_sums(p->args.b, p->args.ldb, p->args.type, p->args.k * part / SUM_ROWS,
                               p->args.k * (part + 1) / SUM_ROWS, first,
                               weft__least(first + SUM_COLUMNS, p->args.n),
                               p->sums + part * p->args.n + first);
}

/* In a pass of its own. */
static weft_status_t sum_columns(product_t *p)
{
    int64_t n = p->args.n;
    p->sums = weft__team_memory((size_t)(SUM_ROWS * n) * sizeof(float));
    if (p->sums == NULL) {
        return WEFT_ERR_NO_MEMORY;
    }
    WEFT_TRY(weft__team_run(SUM_ROWS * weft__ceil_div(n, SUM_COLUMNS), 0, sums_task, p));
    weft__inner()->add_partials(p->sums, SUM_ROWS, n, p->args.bias_grad, p->args.c_type, n);
    return WEFT_OK;
}

/* ---- the kernel ----------------------------------------------------------------------------- */

static bool in_strips(const product_t *p, int threads)
{
    return p->sgemm == NULL && p->args.type == WEFT_F32 && p->parts == 1 &&
           weft__strips_pay(&p->args, p->rows, p->columns, threads);
}

/* Memory for sums of parts, and of columns where blocks take these beside. */
static weft_status_t take_memory(product_t *p)
{
    int64_t beside = (p->parts - 1) * p->args.m * p->args.n;
    int64_t sums = p->sums_beside ? p->parts * p->args.n : 0;
    if (beside + sums == 0) {
        return WEFT_OK;
    }
    p->partial = weft__team_memory((size_t)(beside + sums) * sizeof(float));
    if (p->partial == NULL) {
        return WEFT_ERR_NO_MEMORY;
    }
    if (p->sums_beside) {
        p->sums = p->partial + beside;
        memset(p->sums, 0, (size_t)sums * sizeof(float));
    }
    return WEFT_OK;
}

static weft_status_t in_blocks(product_t *p)
{
    const weft_matmul_t *args = &p->args;
    p->sums_beside = args->bias_grad != NULL && args->type == WEFT_F32 && p->sgemm == NULL;
    weft_status_t status = take_memory(p);
    if (status == WEFT_OK) {
        status = weft__team_run(p->parts * p->blocks, block_scratch(p), block_task, p);
    }
    if (status == WEFT_OK && p->parts > 1) {
        int64_t tasks = weft__ceil_div(args->m * args->n, SUM_ELEMENTS);
        status = weft__team_run(tasks, 0, add_parts_task, p);
    }
    if (status == WEFT_OK && p->sums_beside) {
        weft__inner()->add_partials(p->sums, p->parts, args->n, args->bias_grad, WEFT_F32, args->n);
    }
    return status;
}

weft_status_t weft__run_matmul(const void *arg)
{
    product_t p = {.args = *(const weft_matmul_t *)arg, .sgemm = weft__blas_sgemm()};
    weft_matmul_t *args = &p.args;
    args->lda = args->lda > 0 ? args->lda : args->trans_a ? args->m : args->k;
    args->ldb = args->ldb > 0 ? args->ldb : args->trans_b ? args->k : args->n;
    args->ldc = args->ldc > 0 ? args->ldc : args->n;
    p.onto_c = args->accumulate || args->add == args->c;
    if (args->type == WEFT_F32 && args->add == args->c) {
        args->add = NULL;
    }
    int threads = weft__team_size();
    p.parts = choose_parts(&p);
    choose_grid(&p, blocks_of_part(p.parts, threads));
    WEFT_TRY(in_strips(&p, threads) ? weft__run_strips(args, p.onto_c, is_plain(args))
                                    : in_blocks(&p));
    return (args->bias_grad != NULL && !p.sums_beside) ? sum_columns(&p) : WEFT_OK;
}
