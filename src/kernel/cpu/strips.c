/* Our own matrix product on a team: op(b) packed once by all threads, then rows of c by each.
 *
 * The other way (matmul.c) gives every thread a block of c, for which it packs its rows of a and
 * its columns of b itself: no waiting in between, but what threads have in common is packed by each
 * of them, and c goes to memory and back at every step of k. That is right where k is long and c
 * small, as in gradients of weights. Here every thread reads all of b, packed, from the cache that
 * threads share, and c is written once, finished: right where c has many rows, as in all other
 * products of a layer. */
#include "kernel/cpu/strips.h"

#include "base/log.h"
#include "kernel/cpu/launch.h"

enum {
    PACKED_MOST = 4 << 20, /* numbers of b packed at a time: stays in the shared cache */
    ROWS_MOST = 128,       /* of a task, so that its part of c is in the cache until finished */
    ROWS_LEAST = 16,
    ROW_NUMBERS = 3 << 16, /* of a task's rows of a */
    ROW_STEP = 8,
    PACK_STEPS = 64,       /* of k, at least, that are worth a task of packing */
    CACHED_MOST = 5 << 16, /* floats of c that stay in a thread's cache beside packed operands */
};

_Static_assert((size_t)(ROW_NUMBERS / 16 * 18) * sizeof(float) <= WEFT_OWN_SCRATCH,
               "a task's packed rows, padded from 16 to three panels of 6, fit the scratch");
_Static_assert((size_t)(ROW_NUMBERS + ROWS_MOST * 32) * 6 <= WEFT_OWN_SCRATCH,
               "packed to 6 bytes, and padded to whole steps of 32, they fit as well");

typedef struct strips {
    weft_own_product_t x; /* of the columns at hand */
    void *packed;
    int64_t rows;  /* of a task */
    int64_t steps; /* of k, of a task of packing */
} strips_t;

static int64_t row_step(void)
{
    return weft__most(ROW_STEP, weft__inner()->packing.panel);
}

/* As many tasks for every thread, and none so large that its rows leave the cache. */
static int64_t rows_of_task(int64_t m, int64_t k, int threads)
{
    int64_t step = row_step();
    int64_t most = weft__least(ROWS_MOST, ROW_NUMBERS / weft__most(k, 1) / step * step);
    int64_t tasks = weft__ceil_div(m, most * threads) * threads;
    return weft__ceil_div(weft__ceil_div(m, tasks), step) * step;
}

/* Compares the floats that the busiest thread moves to and from beyond its own cache. Those of c
 * count twice, as a line is fetched before it is written; those of packed strips an eighth, as they
 * are read in a row while others are multiplied. */
bool weft__strips_pay(const weft_matmul_t *args, int64_t block_rows, int64_t block_columns,
                      int threads)
{
    int64_t m = args->m, n = args->n, k = args->k;
    int64_t least = weft__most(ROWS_LEAST, row_step());
    if (m < least * threads || k < 1 || k > ROW_NUMBERS / least) {
        return false;
    }
    int64_t passes = weft__ceil_div(m, threads * rows_of_task(m, k, threads));
    int64_t strips = (m + 2 * n) * k / threads + passes * n * k / 8 + 2 * m * n / threads;
    int64_t across = weft__ceil_div(block_columns, WEFT_OWN_COLUMNS);
    int64_t c = block_rows * block_columns;
    int64_t times = c / across > CACHED_MOST ? weft__ceil_div(k, WEFT_OWN_DEPTH) : 1;
    return strips < (block_rows * across + block_columns) * k + 2 * c * times;
}

static void pack_task(const void *arg, int64_t task, void *scratch)
{
    const strips_t *s = arg;
    int64_t parts = weft__ceil_div(s->x.k, s->steps), first = task % parts * s->steps;
    (void)scratch;
    weft__inner()->pack_strip(&s->x, task / parts, first, weft__least(first + s->steps, s->x.k),
                              s->packed);
}

static void rows_task(const void *arg, int64_t task, void *scratch)
{
    const strips_t *s = arg;
    int64_t first = task * s->rows;
    weft__inner()->strip_rows(&s->x, s->packed, first, weft__least(first + s->rows, s->x.m),
                              scratch);
}

static weft_status_t run_columns(strips_t *s, int threads)
{
    weft_packing_t packing = weft__inner()->packing;
    int64_t count = weft__ceil_div(s->x.n, packing.strip);
    int64_t parts = weft__least(weft__ceil_div(2 * threads, count),
                                weft__ceil_div(s->x.k, PACK_STEPS));
    s->steps = weft__ceil_div(weft__ceil_div(s->x.k, weft__most(parts, 1)), packing.step) *
               packing.step;
    WEFT_TRY(weft__team_run(count * weft__ceil_div(s->x.k, s->steps), 0, pack_task, s));
    return weft__team_run(weft__ceil_div(s->x.m, s->rows), WEFT_OWN_SCRATCH, rows_task, s);
}

weft_status_t weft__run_strips(const weft_matmul_t *args, bool onto_c, bool plain)
{
    weft_packing_t packing = weft__inner()->packing;
    int64_t strip = packing.strip, n = args->n, k = args->k;
    int64_t padded_k = weft__ceil_div(k, packing.step) * packing.step;
    int64_t most = weft__most(PACKED_MOST / weft__most(k, 1) / strip, 1) * strip;
    int threads = weft__team_size();
    int64_t columns = weft__least(most, weft__ceil_div(n, strip) * strip);
    strips_t s = {.packed = weft__team_memory((size_t)(columns * padded_k) * packing.element),
                  .rows = rows_of_task(args->m, k, threads)};
    if (s.packed == NULL) {
        return WEFT_ERR_NO_MEMORY;
    }
    weft_status_t status = WEFT_OK;
    for (int64_t column = 0; column < n && status == WEFT_OK; column += columns) {
        s.x = (weft_own_product_t){.m = args->m,
                                   .n = weft__least(columns, n - column),
                                   .k = k,
                                   .a = args->a,
                                   .lda = args->lda,
                                   .trans_a = args->trans_a,
                                   .b = (const float *)args->b +
                                        (args->trans_b ? column * args->ldb : column),
                                   .ldb = args->ldb,
                                   .trans_b = args->trans_b,
                                   .c = (float *)args->c + column,
                                   .ldc = args->ldc,
                                   .add = onto_c,
                                   .ending = plain ? NULL : args,
                                   .column = column};
        status = run_columns(&s, threads);
    }
    return status;
}
