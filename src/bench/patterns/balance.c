/* Dynamic load balancing: rows of a picture whose costs nobody knows beforehand. One-sided, rows
 * are tasks in queues that idle ranks steal from, and finished rows are put to rank 0. The baseline
 * deals rows out evenly beforehand and gathers them; it waits for the rank that got the expensive
 * ones. */
#include <string.h>

#include "bench/patterns/patterns.h"

#define ROWS_PER_RANK 16
#define WIDTH 64
#define MOST_STEPS 400

typedef struct balance {
    weft_work_h work;
    uint16_t *picture; /* symmetric: rank 0's is the result */
    uint16_t *mine;    /* two-sided: rows of this rank */
    size_t rows;
    double x, y; /* corner of the part of the plane that is drawn */
} balance_t;

static size_t heap_bytes(const weft_pair_run_t *run)
{
    size_t rows = (size_t)run->size * ROWS_PER_RANK;
    return rows * WIDTH * 2 + rows * 256 + (256 << 10);
}

static weft_status_t open_balance(weft_pair_run_t *run)
{
    balance_t *b;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*b), (void **)&b));
    b->rows = (size_t)run->size * ROWS_PER_RANK;
    WEFT_TRY(weft_symm_malloc(run->symm, b->rows * WIDTH * 2, (void **)&b->picture));
    WEFT_TRY(weft__pair_device(run, ROWS_PER_RANK * WIDTH * 2, (void **)&b->mine));
    return weft_work_create(run->symm, ROWS_PER_RANK, sizeof(uint64_t), &b->work);
}

static void close_balance(weft_pair_run_t *run)
{
    balance_t *b = run->ctx;
    if (b->work) {
        weft_work_destroy(b->work);
    }
}

/* A row of the Mandelbrot set: points inside take all steps, those outside few. */
static void draw(const balance_t *b, uint64_t row, uint16_t *out)
{
    double cy = b->y + 1.2 * (double)row / (double)b->rows;
    for (int i = 0; i < WIDTH; i++) {
        double cx = b->x + 2.0 * i / WIDTH, zx = 0, zy = 0;
        uint16_t steps = 0;
        while (steps < MOST_STEPS && zx * zx + zy * zy < 4) {
            double next = zx * zx - zy * zy + cx;
            zy = 2 * zx * zy + cy;
            zx = next;
            steps++;
        }
        out[i] = steps;
    }
}

static weft_status_t draw_all(weft_pair_run_t *run, balance_t *b)
{
    uint64_t row, first = (uint64_t)run->rank * ROWS_PER_RANK;
    uint16_t line[WIDTH];
    for (row = first; row < first + ROWS_PER_RANK; row++) {
        WEFT_TRY(weft_work_push(b->work, &row));
    }
    WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    for (;;) {
        weft_status_t status = weft_work_next(b->work, &row);
        if (status == WEFT_ERR_NOT_FOUND) {
            return weft_symm_barrier(run->symm, NULL); /* all rows are with rank 0 */
        }
        WEFT_TRY(status);
        draw(b, row, line);
        WEFT_TRY(weft_symm_put(run->symm, b->picture + row * WIDTH, line, sizeof(line), 0, NULL));
    }
}

static weft_status_t by_stealing(weft_pair_run_t *run, int rounds)
{
    balance_t *b = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(draw_all(run, b));
    }
    return WEFT_OK;
}

static weft_status_t by_dealing(weft_pair_run_t *run, int rounds)
{
    balance_t *b = run->ctx;
    uint64_t first = (uint64_t)run->rank * ROWS_PER_RANK;
    for (int i = 0; i < rounds; i++) {
        for (uint64_t row = 0; row < ROWS_PER_RANK; row++) {
            draw(b, first + row, b->mine + row * WIDTH);
        }
        WEFT_TRY(weft_gather(b->mine, b->picture, ROWS_PER_RANK * WIDTH * 2, WEFT_U8, 0, run->comm,
                             NULL));
    }
    return WEFT_OK;
}

static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    balance_t *b = run->ctx;
    const weft_pair_loop_fn ways[] = {by_stealing, by_dealing};
    for (int way = 0; way < 2; way++) {
        /* Another part of the plane each time; always cheap at one end, expensive at the other. */
        b->x = -1.6 - (double)((run->seed + (uint64_t)way) % 64) / 1024;
        b->y = -1.2;
        memset(b->picture, 0xFF, b->rows * WIDTH * 2);
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
        WEFT_TRY(ways[way](run, 1));
        for (uint64_t row = 0; run->rank == 0 && row < b->rows; row++) {
            uint16_t line[WIDTH];
            draw(b, row, line);
            *wrong_p += memcmp(line, b->picture + row * WIDTH, sizeof(line)) != 0;
        }
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    }
    return WEFT_OK;
}

const weft_pair_t weft__pair_balance = {
    .target = "balance",
    .text = "a picture whose rows have unequal costs, 16 rows per rank",
    .group = "one-sided",
    .ranks = 2,
    .heap = heap_bytes,
    .open = open_balance,
    .close = close_balance,
    .ways = {{"dealt out", by_dealing}, {"one-sided", by_stealing}},
    .check = check,
};
