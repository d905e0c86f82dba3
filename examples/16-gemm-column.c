/* ctest: ranks=4
 * Column-parallel GEMM: Y = X W, where each rank has some columns of W and computes that panel of
 * Y. The one-sided all-gather puts each band of rows to all ranks as soon as it is computed, so
 * that most of it is on its way while the rest is computed.
 *
 *     weft run -n 4 ./16-gemm-column                                                          */
#include "pattern.h"
#include <string.h>
#include <weft/symm.h>

#define M 64
#define K 48
#define N 32    /* columns of each rank */
#define BAND 16 /* rows that are sent together */

static int rank, size;
static float x[M][K], w[K][N];

static float x_at(int m, int k)
{
    return (float)((m * 3 + k) % 5 - 2);
}

static float w_at(int k, int n)
{
    return (float)((k + n * 7) % 9 - 4);
}

/* Rows [first, first + rows) of our panel, M x N. */
static void multiply(int first, int rows, float *panel)
{
    for (int m = first; m < first + rows; m++) {
        float *y = panel + m * N;
        memset(y, 0, N * sizeof(float));
        for (int k = 0; k < K; k++) {
            for (int n = 0; n < N; n++) {
                y[n] += x[m][k] * w[k][n];
            }
        }
    }
}

static int by_put(weft_symm_h symm, float *y, uint64_t *bands)
{
    float *panel = y + (size_t)rank * M * N; /* of everybody's Y, which is panel after panel */
    for (int first = 0; first < M; first += BAND) {
        multiply(first, BAND, panel);
        for (int r = 1; r < size; r++) { /* starting behind us: not all to the same rank at once */
            TRY(weft_symm_put_signal(symm, panel + first * N, panel + first * N,
                                     BAND * N * sizeof(float), bands, 1, WEFT_SIGNAL_ADD,
                                     (rank + r) % size, NULL));
        }
    }
    uint64_t all = (uint64_t)(M / BAND * (size - 1)); /* bands of all other ranks */
    TRY(weft_symm_signal_wait(symm, bands, WEFT_CMP_GE, all, NULL));
    return 0;
}

/* Whole numbers: the products are exact, so the reference can be compared bit by bit. */
static long long wrong_in(const float *y)
{
    long long wrong = 0;
    for (int m = 0; m < M; m++) {
        for (int n = 0; n < N * size; n++) {
            float sum = 0;
            for (int k = 0; k < K; k++) {
                sum += x_at(m, k) * w_at(k, n);
            }
            wrong += y[(size_t)(n / N) * M * N + (size_t)(m * N + n % N)] != sum;
        }
    }
    return wrong;
}

int main(void)
{
    weft_comm_h comm;
    weft_symm_h symm;
    float *y;
    uint64_t *bands;
    TRY(weft_comm_init_job(&comm, NULL));
    TRY(weft_comm_rank(comm, &rank));
    TRY(weft_comm_size(comm, &size));
    size_t bytes = (size_t)size * M * N * sizeof(float);
    TRY(weft_symm_create(comm, bytes + (1 << 20), &symm));
    TRY(weft_symm_malloc(symm, bytes, (void **)&y));
    TRY(weft_symm_malloc(symm, 8, (void **)&bands));
    for (int k = 0; k < K; k++) {
        for (int m = 0; m < M; m++) {
            x[m][k] = x_at(m, k);
        }
        for (int n = 0; n < N; n++) {
            w[k][n] = w_at(k, rank * N + n);
        }
    }
    TRY(weft_barrier(comm, NULL));
    double start = now_us();
    int failed = by_put(symm, y, bands);
    double end = now_us();
    failed |= verdict("GEMM by columns", end - start, wrong_in(y), rank);
    weft_symm_destroy(symm);
    weft_comm_destroy(comm);
    return failed;
}
