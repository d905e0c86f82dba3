/* Tensor parallelism on symmetric memory: Y = X W with X of M x K, W of K x N, and
 *
 *   column   W cut by columns: rank r has N/p of them and computes that panel of Y. All-gather:
 *            each band of rows is put to everybody as soon as it is computed, while the next one is
 *            computed.
 *   row      X cut by columns and W by rows: every rank computes a summand of all of Y. All-reduce:
 *            when a rank has band b of its summand it tells rank b, which adds the bands up where
 *            they lie and stores the sum to everybody, while others still compute theirs.
 *
 * The baseline computes everything, then calls the collective. Whole numbers: sums are exact in any
 * order. Y lies as p panels of M x N/p behind each other (column), or as M x N (row); run->bytes
 * are those of Y. */
#include <string.h>

#include "bench/patterns/patterns.h"
#include "kernel/kernel.h"

#define M 32
#define K 32
#define BANDS 4 /* of rows, in the column-parallel form */

typedef struct gemm {
    float *x, *w; /* this rank's parts */
    float *y[2];  /* symmetric, in turns */
    float *part;  /* symmetric, row: this rank's summand */
    uint64_t
        *signal; /* symmetric: a line per rank, bands it has put (row: calls whose band is there) */
    uint64_t *sums; /* symmetric, row: a line per rank, sums it has put */
    uint64_t calls;
    const void **srcs; /* room for lists of sources and destinations */
    void **dsts;
    size_t n, k; /* columns of Y, and of X, that this rank computes with */
} gemm_t;

static size_t heap_bytes(const weft_pair_run_t *run)
{
    return 3 * run->bytes + 2 * (size_t)run->size * 64 + (16 << 10);
}

static bool by_rows(const weft_pair_run_t *run)
{
    return run->pair == &weft__pair_gemm_row;
}

static weft_status_t open_gemm(weft_pair_run_t *run)
{
    gemm_t *g;
    size_t ranks = (size_t)run->size, lines = ranks * WEFT_PAIR_LINE * 8;
    size_t n = run->bytes / sizeof(float) / M;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*g), (void **)&g));
    g->n = by_rows(run) ? n : n / ranks;
    g->k = by_rows(run) ? (K + ranks - 1) / ranks : K;
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(weft_symm_malloc(run->symm, run->bytes, (void **)&g->y[i]));
    }
    WEFT_TRY(weft_symm_malloc(run->symm, run->bytes, (void **)&g->part));
    WEFT_TRY(weft_symm_malloc(run->symm, lines, (void **)&g->signal));
    WEFT_TRY(weft_symm_malloc(run->symm, lines, (void **)&g->sums));
    WEFT_TRY(weft__pair_private(run, M * g->k * sizeof(float), (void **)&g->x));
    WEFT_TRY(weft__pair_private(run, ranks * sizeof(void *), (void **)&g->srcs));
    WEFT_TRY(weft__pair_private(run, ranks * sizeof(void *), (void **)&g->dsts));
    return weft__pair_private(run, g->k * g->n * sizeof(float), (void **)&g->w);
}

/* Rows [first, first + rows) of out (as wide as w) = those of x times w. */
static void multiply(const gemm_t *g, size_t first, size_t rows, float *out)
{
    for (size_t m = first; m < first + rows; m++) {
        float *y = out + m * g->n;
        memset(y, 0, g->n * sizeof(float));
        for (size_t k = 0; k < g->k; k++) {
            const float a = g->x[m * g->k + k], *w = g->w + k * g->n;
            for (size_t n = 0; n < g->n; n++) {
                y[n] += a * w[n];
            }
        }
    }
}

/* ---- column-parallel -------------------------------------------------------------------- */

static weft_status_t column_by_put(weft_pair_run_t *run, int rounds)
{
    gemm_t *g = run->ctx;
    for (int i = 0; i < rounds; i++) {
        float *panel = g->y[++g->calls % 2] + (size_t)run->rank * M * g->n;
        for (size_t band = 0; band < BANDS; band++) {
            size_t rows = M / BANDS;
            float *mine = panel + band * rows * g->n;
            multiply(g, band * rows, rows, panel);
            for (int n = 1; n < run->size; n++) {
                WEFT_TRY(weft_symm_put_signal(run->symm, mine, mine, rows * g->n * sizeof(float),
                                              g->signal + run->rank * WEFT_PAIR_LINE,
                                              (g->calls - 1) * BANDS + band + 1, WEFT_SIGNAL_SET,
                                              (run->rank + n) % run->size, NULL));
            }
        }
        WEFT_TRY(weft__pair_await(run, g->signal, g->calls * BANDS));
    }
    return WEFT_OK;
}

static weft_status_t column_by_allgather(weft_pair_run_t *run, int rounds)
{
    gemm_t *g = run->ctx;
    for (int i = 0; i < rounds; i++) {
        float *y = g->y[g->calls % 2], *panel = y + (size_t)run->rank * M * g->n;
        multiply(g, 0, M, panel);
        WEFT_TRY(weft_allgather(panel, y, M * g->n, WEFT_F32, run->comm, NULL));
    }
    return WEFT_OK;
}

/* ---- row-parallel ----------------------------------------------------------------------- */

/* Rows of Y that `rank` adds up. */
static size_t band_first(const weft_pair_run_t *run, int rank)
{
    return (size_t)M * (size_t)rank / (size_t)run->size;
}

/* Whoever has all sums of the call before knows that all ranks have read its summand. */
static weft_status_t compute_bands(weft_pair_run_t *run, gemm_t *g)
{
    for (int n = 1; n <= run->size; n++) { /* our own band last: the others' are waited for */
        int owner = (run->rank + n) % run->size;
        size_t first = band_first(run, owner), rows = band_first(run, owner + 1) - first;
        multiply(g, first, rows, g->part);
        WEFT_TRY(weft_symm_signal_op(run->symm, g->signal + run->rank * WEFT_PAIR_LINE, g->calls,
                                     WEFT_SIGNAL_SET, owner, NULL));
    }
    return WEFT_OK;
}

static weft_status_t add_up(weft_pair_run_t *run, gemm_t *g, float *y)
{
    size_t first = band_first(run, run->rank), rows = band_first(run, run->rank + 1) - first;
    WEFT_TRY(weft__pair_await(run, g->signal, g->calls));
    for (int r = 0; r < run->size; r++) {
        g->srcs[r] = weft_symm_ptr(run->symm, g->part + first * g->n, r);
        g->dsts[r] = weft_symm_ptr(run->symm, y + first * g->n, (run->rank + r) % run->size);
    }
    weft__kernels()->reduce(g->dsts, run->size, g->srcs, run->size, rows * g->n, WEFT_F32, WEFT_SUM,
                            WEFT_STORE_CACHED);
    for (int n = 1; n < run->size; n++) {
        WEFT_TRY(weft_symm_signal_op(run->symm, g->sums + run->rank * WEFT_PAIR_LINE, g->calls,
                                     WEFT_SIGNAL_SET, (run->rank + n) % run->size, NULL));
    }
    return WEFT_OK;
}

static weft_status_t row_one_sided(weft_pair_run_t *run, int rounds)
{
    gemm_t *g = run->ctx;
    for (int i = 0; i < rounds; i++) {
        g->calls++;
        WEFT_TRY(compute_bands(run, g));
        WEFT_TRY(add_up(run, g, g->y[g->calls % 2]));
        WEFT_TRY(weft__pair_await(run, g->sums, g->calls));
    }
    return WEFT_OK;
}

static weft_status_t row_by_allreduce(weft_pair_run_t *run, int rounds)
{
    gemm_t *g = run->ctx;
    for (int i = 0; i < rounds; i++) {
        multiply(g, 0, M, g->part);
        WEFT_TRY(weft_allreduce(g->part, g->y[g->calls % 2], M * g->n, WEFT_F32, WEFT_SUM,
                                run->comm, NULL));
    }
    return WEFT_OK;
}

/* ---- check ------------------------------------------------------------------------------ */

/* Element (row, column) of a matrix that all ranks agree on. */
static float entry(uint64_t seed, size_t row, size_t column)
{
    return weft__pair_value(seed, (int)row, column);
}

static void make_parts(weft_pair_run_t *run, gemm_t *g)
{
    size_t me = (size_t)run->rank;
    size_t k0 = by_rows(run) ? me * g->k : 0, n0 = by_rows(run) ? 0 : me * g->n;
    for (size_t m = 0; m < M; m++) {
        for (size_t k = 0; k < g->k; k++) {
            g->x[m * g->k + k] = entry(run->seed, m, k0 + k);
        }
    }
    for (size_t k = 0; k < g->k; k++) {
        for (size_t n = 0; n < g->n; n++) {
            g->w[k * g->n + n] = entry(run->seed + 1, k0 + k, n0 + n);
        }
    }
}

/* A sample of Y from X and W as a whole: all of it would take p times as long as the product. */
static size_t compare(const weft_pair_run_t *run, const gemm_t *g, const float *y)
{
    size_t all = by_rows(run) ? g->n : g->n * (size_t)run->size, wrong = 0;
    size_t depth = by_rows(run) ? g->k * (size_t)run->size : g->k;
    size_t step = all > 512 ? all / 512 : 1;
    for (size_t m = 0; m < M; m++) {
        for (size_t n = m % step; n < all; n += step) {
            float want = 0;
            for (size_t k = 0; k < depth; k++) {
                want += entry(run->seed, m, k) * entry(run->seed + 1, k, n);
            }
            size_t at = by_rows(run) ? m * all + n : n / g->n * M * g->n + m * g->n + n % g->n;
            wrong += y[at] != want;
        }
    }
    return wrong;
}

static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    gemm_t *g = run->ctx;
    for (int way = 0; way < 2; way++) {
        run->seed += 2;
        make_parts(run, g);
        memset(g->y[0], 0xFF, run->bytes);
        memset(g->y[1], 0xFF, run->bytes);
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
        WEFT_TRY(way == 0 ? run->pair->ways[1].loop(run, 3) : run->pair->ways[0].loop(run, 1));
        *wrong_p += compare(run, g, g->y[g->calls % 2]);
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    }
    return WEFT_OK;
}

/* clang-format off */
#define GEMM(name, what, versus, loop, collective)                                                 \
    {.target = name, .text = what, .group = "one-sided", .min = 16 << 10, .max = 1 << 20,          \
     .unit = 4 * M * 16, .shards = true, .heap = heap_bytes, .open = open_gemm,                    \
     .ways = {{versus, collective}, {"one-sided", loop}}, .check = check}
/* clang-format on */

const weft_pair_t weft__pair_gemm_column = GEMM(
    "gemm-column", "Y = XW with W cut by columns, bands of Y put to all ranks as they are computed",
    "all-gather", column_by_put, column_by_allgather);
const weft_pair_t weft__pair_gemm_row = GEMM(
    "gemm-row", "Y = XW with W cut by rows, bands of the summands added up as they are computed",
    "all-reduce", row_one_sided, row_by_allreduce);
