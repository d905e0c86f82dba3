/* Halo exchange: a grid cut into bands of rows, one per rank, in a ring. Before every step of the
 * stencil a rank needs the rows next to its own.
 *
 * One-sided, a rank puts its edge rows straight into its neighbours' ghost rows, with a signal.
 * There are two grids, the one that is read and the one that is written, which is why nothing has
 * to be acknowledged: a neighbour puts into the grid of step s+2 only after it has our rows of step
 * s+1, which we send when we no longer read those of step s. */
#include <string.h>

#include "bench/patterns/patterns.h"

#define ROWS 4 /* of a band */

typedef struct halo {
    float *grid[2];     /* symmetric; ROWS + 2 rows of `width` */
    uint64_t *above;    /* symmetric: steps for which the ghost row above has come */
    uint64_t *below;    /* ... and below */
    size_t width;       /* elements of a row */
    uint64_t ticks;     /* one-sided steps so far */
    int now;            /* which grid is read next */
    float *start, *ref; /* of the whole ring, for the check */
} halo_t;

static size_t heap_bytes(const weft_pair_run_t *run)
{
    return 2 * (ROWS + 2) * run->bytes + 4096;
}

static weft_status_t open_halo(weft_pair_run_t *run)
{
    halo_t *h;
    size_t band = (ROWS + 2) * run->bytes, ring = (size_t)run->size * ROWS * run->bytes;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*h), (void **)&h));
    h->width = run->bytes / sizeof(float);
    WEFT_TRY(weft_symm_malloc(run->symm, band, (void **)&h->grid[0]));
    WEFT_TRY(weft_symm_malloc(run->symm, band, (void **)&h->grid[1]));
    WEFT_TRY(weft_symm_malloc(run->symm, 8, (void **)&h->above));
    WEFT_TRY(weft_symm_malloc(run->symm, 8, (void **)&h->below));
    WEFT_TRY(weft__pair_private(run, ring, (void **)&h->start));
    return weft__pair_private(run, ring, (void **)&h->ref);
}

static void stencil_row(float *out, const float *above, const float *here, const float *below,
                        size_t width)
{
    for (size_t i = 0; i < width; i++) {
        out[i] = 0.25f * above[i] + 0.5f * here[i] + 0.25f * below[i];
    }
}

static void compute(halo_t *h)
{
    const float *from = h->grid[h->now];
    float *to = h->grid[!h->now];
    for (size_t row = 1; row <= ROWS; row++) {
        stencil_row(to + row * h->width, from + (row - 1) * h->width, from + row * h->width,
                    from + (row + 1) * h->width, h->width);
    }
    h->now = !h->now;
}

static weft_status_t by_put(weft_pair_run_t *run, int rounds)
{
    halo_t *h = run->ctx;
    int up = (run->rank + run->size - 1) % run->size, down = (run->rank + 1) % run->size;
    for (int i = 0; i < rounds; i++) {
        float *grid = h->grid[h->now];
        h->ticks++;
        WEFT_TRY(weft_symm_put_signal(run->symm, grid + (ROWS + 1) * h->width, grid + h->width,
                                      run->bytes, h->below, h->ticks, WEFT_SIGNAL_SET, up, NULL));
        WEFT_TRY(weft_symm_put_signal(run->symm, grid, grid + ROWS * h->width, run->bytes, h->above,
                                      h->ticks, WEFT_SIGNAL_SET, down, NULL));
        WEFT_TRY(weft_symm_signal_wait(run->symm, h->above, WEFT_CMP_GE, h->ticks, NULL));
        WEFT_TRY(weft_symm_signal_wait(run->symm, h->below, WEFT_CMP_GE, h->ticks, NULL));
        compute(h);
    }
    return WEFT_OK;
}

static weft_status_t by_messages(weft_pair_run_t *run, int rounds)
{
    halo_t *h = run->ctx;
    weft_comm_h comm = run->comm;
    int up = (run->rank + run->size - 1) % run->size, down = (run->rank + 1) % run->size;
    for (int i = 0; i < rounds; i++) {
        float *grid = h->grid[h->now];
        /* With two ranks both neighbours are one: its first message is for our row below. */
        WEFT_TRY(weft_group_start());
        weft_send(grid + h->width, h->width, WEFT_F32, up, comm, NULL);
        weft_send(grid + ROWS * h->width, h->width, WEFT_F32, down, comm, NULL);
        weft_recv(grid + (ROWS + 1) * h->width, h->width, WEFT_F32, down, comm, NULL);
        weft_recv(grid, h->width, WEFT_F32, up, comm, NULL);
        WEFT_TRY(weft_group_end());
        compute(h);
    }
    return WEFT_OK;
}

/* The whole ring, by one rank alone. */
static void serial(const halo_t *h, int ranks, int steps, float *grid, float *other)
{
    size_t rows = (size_t)ranks * ROWS, width = h->width;
    for (int s = 0; s < steps; s++) {
        for (size_t row = 0; row < rows; row++) {
            stencil_row(other + row * width, grid + (row + rows - 1) % rows * width,
                        grid + row * width, grid + (row + 1) % rows * width, width);
        }
        memcpy(grid, other, rows * width * sizeof(float));
    }
}

static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    halo_t *h = run->ctx;
    const weft_pair_loop_fn ways[] = {by_put, by_messages};
    const int steps = 7;
    size_t band = ROWS * h->width, ring = (size_t)run->size * band;
    for (int way = 0; way < 2; way++) {
        weft__pair_fill(h->start, run->seed + (uint64_t)way, 0, ring);
        for (size_t i = 0; i < ring; i++) {
            h->start[i] += 8; /* above 0, or long runs end in denormal numbers, which are slow */
        }
        memset(h->grid[h->now], 0xFF, (ROWS + 2) * run->bytes);
        memcpy(h->grid[h->now] + h->width, h->start + (size_t)run->rank * band,
               band * sizeof(float));
        WEFT_TRY(weft_symm_barrier(run->symm, NULL)); /* ghosts are filled from here on */
        WEFT_TRY(ways[way](run, steps));
        serial(h, run->size, steps, h->start, h->ref);
        const float *got = h->grid[h->now] + h->width, *want = h->start + (size_t)run->rank * band;
        for (size_t i = 0; i < band; i++) {
            *wrong_p += got[i] != want[i];
        }
        WEFT_TRY(weft_symm_barrier(run->symm, NULL));
    }
    return WEFT_OK;
}

const weft_pair_t weft__pair_halo = {
    .target = "halo",
    .text = "a step of a stencil: rows of so many bytes to both neighbours, then 4 rows computed",
    .group = "one-sided",
    .advise = "neighbour exchange",
    .min = 256,
    .max = 256 << 10,
    .unit = 4,
    .heap = heap_bytes,
    .open = open_halo,
    .ways = {{"send/recv", by_messages}, {"one-sided", by_put}},
    .check = check,
};
