/* ctest: ranks=4
 * Halo exchange in OpenSHMEM: a ring of cells cut into bands; before each step a PE needs the cells
 * next to its own. It puts its edge straight into its neighbours' ghost cells and tells them with a
 * signal. Two grids in turns make acknowledgements unnecessary.
 *
 *     oshrun -np 4 ./10-halo          or: weft run -n 4 ./10-halo                             */
#include "pattern.h"
#include <shmem.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 8
#define WIDTH 256
#define STEPS 50

/* Static variables are symmetric: every PE has them, and reaches those of others. */
static float grid[2][ROWS + 2][WIDTH];
static uint64_t above, below; /* steps for which the ghost row has come */
static int me, npes, up, down;

static float initial(int row, int column)
{
    return (float)((row * 31 + column * 17) % 97);
}

static void reset(void)
{
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < WIDTH; c++) {
            grid[0][r + 1][c] = initial(me * ROWS + r, c);
        }
    }
}

static void blend(float *out, const float *a, const float *b, const float *c)
{
    for (int i = 0; i < WIDTH; i++) {
        out[i] = 0.25f * a[i] + 0.5f * b[i] + 0.25f * c[i];
    }
}

static void compute(int s)
{
    for (int r = 1; r <= ROWS; r++) {
        blend(grid[(s + 1) % 2][r], grid[s % 2][r - 1], grid[s % 2][r], grid[s % 2][r + 1]);
    }
}

static void one_sided(void)
{
    for (int s = 0; s < STEPS; s++) {
        float(*now)[WIDTH] = grid[s % 2];
        shmem_putmem_signal(now[ROWS + 1], now[1], sizeof(now[0]), &below, (uint64_t)s + 1,
                            SHMEM_SIGNAL_SET, up);
        shmem_putmem_signal(now[0], now[ROWS], sizeof(now[0]), &above, (uint64_t)s + 1,
                            SHMEM_SIGNAL_SET, down);
        shmem_signal_wait_until(&above, SHMEM_CMP_GE, (uint64_t)s + 1);
        shmem_signal_wait_until(&below, SHMEM_CMP_GE, (uint64_t)s + 1);
        compute(s);
    }
}

/* Our rows against the whole ring computed here alone. */
static long long wrong_rows(void)
{
    int rows = ROWS * npes;
    long long wrong = 0;
    float(*all[2])[WIDTH] = {malloc((size_t)rows * sizeof(*all[0])),
                             malloc((size_t)rows * sizeof(*all[0]))};
    if (!all[0] || !all[1]) {
        return 1;
    }
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < WIDTH; c++) {
            all[0][r][c] = initial(r, c);
        }
    }
    for (int s = 0; s < STEPS; s++) {
        for (int r = 0; r < rows; r++) {
            blend(all[(s + 1) % 2][r], all[s % 2][(r + rows - 1) % rows], all[s % 2][r],
                  all[s % 2][(r + 1) % rows]);
        }
    }
    for (int r = 0; r < ROWS; r++) {
        wrong += memcmp(grid[STEPS % 2][r + 1], all[STEPS % 2][me * ROWS + r], sizeof(*all[0])) !=
                 0;
    }
    free(all[0]);
    free(all[1]);
    return wrong;
}

int main(void)
{
    shmem_init();
    me = shmem_my_pe();
    npes = shmem_n_pes();
    up = (me + npes - 1) % npes;
    down = (me + 1) % npes;
    reset();
    shmem_barrier_all();
    double start = now_us();
    one_sided();
    double end = now_us();
    int failed = verdict("halo exchange", (end - start) / STEPS, wrong_rows(), me);
    shmem_finalize();
    return failed;
}
