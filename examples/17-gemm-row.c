/* ctest: ranks=4
 * Row-parallel GEMM: Y = X W, where each rank has some rows of W and the columns of X that belong
 * to them, so that Y is the sum of what the ranks compute. The one-sided all-reduce puts band b of
 * the summand to rank b as soon as it is computed; rank b adds the bands up and puts the sum to
 * all.
 *
 *     weft run -n 4 ./17-gemm-row                                                             */
#include "pattern.h"
#include <string.h>
#include <weft/symm.h>

#define BAND 16 /* rows of Y that a rank adds up */
#define K 16    /* of each rank */
#define N 128

static int rank, size;
static float x_at(int m, int k)
{
    return (float)((m * 3 + k) % 5 - 2);
}

static float w_at(int k, int n)
{
    return (float)((k + n * 7) % 9 - 4);
}

/* Rows [first, first + rows) of our summand. */
static void multiply(int first, int rows, float *part)
{
    memset(part + first * N, 0, (size_t)rows * N * sizeof(float));
    for (int m = first; m < first + rows; m++) {
        for (int k = rank * K; k < (rank + 1) * K; k++) {
            for (int n = 0; n < N; n++) {
                part[m * N + n] += x_at(m, k) * w_at(k, n);
            }
        }
    }
}

/* boxes: a band from every rank. came, sums: how many bands, and how many sums, have arrived. */
static int by_put(weft_symm_h symm, float *part, float *boxes, float *y, uint64_t *came,
                  uint64_t *sums)
{
    size_t band = BAND * N;
    for (int r = 1; r <= size; r++) { /* our own band last: the others' are waited for */
        int owner = (rank + r) % size;
        multiply(owner * BAND, BAND, part);
        TRY(weft_symm_put_signal(symm, boxes + (size_t)rank * band, part + (size_t)owner * band,
                                 band * sizeof(float), came, 1, WEFT_SIGNAL_ADD, owner, NULL));
    }
    TRY(weft_symm_signal_wait(symm, came, WEFT_CMP_GE, (uint64_t)size, NULL));
    float *mine = y + (size_t)rank * band;
    for (size_t i = 0; i < band; i++) {
        mine[i] = 0;
        for (int r = 0; r < size; r++) {
            mine[i] += boxes[(size_t)r * band + i];
        }
    }
    for (int r = 1; r < size; r++) {
        TRY(weft_symm_put_signal(symm, mine, mine, band * sizeof(float), sums, 1, WEFT_SIGNAL_ADD,
                                 (rank + r) % size, NULL));
    }
    TRY(weft_symm_signal_wait(symm, sums, WEFT_CMP_GE, (uint64_t)size - 1, NULL));
    return 0;
}

static long long wrong_in(const float *y)
{
    long long wrong = 0;
    for (int m = 0; m < size * BAND; m++) {
        for (int n = 0; n < N; n++) {
            float sum = 0;
            for (int k = 0; k < size * K; k++) {
                sum += x_at(m, k) * w_at(k, n); /* whole numbers: exact in any order */
            }
            wrong += y[m * N + n] != sum;
        }
    }
    return wrong;
}

int main(void)
{
    weft_comm_h comm;
    weft_symm_h symm;
    float *part, *boxes, *y;
    uint64_t *came, *sums;
    TRY(weft_comm_init_job(&comm, NULL));
    TRY(weft_comm_rank(comm, &rank));
    TRY(weft_comm_size(comm, &size));
    size_t bytes = (size_t)size * BAND * N * sizeof(float);
    TRY(weft_symm_create(comm, 2 * bytes + (1 << 20), &symm));
    TRY(weft_symm_malloc(symm, bytes, (void **)&boxes));
    TRY(weft_symm_malloc(symm, bytes, (void **)&y));
    TRY(weft_symm_malloc(symm, 8, (void **)&came));
    TRY(weft_symm_malloc(symm, 8, (void **)&sums));
    TRY(weft_malloc((void **)&part, bytes));
    TRY(weft_barrier(comm, NULL));
    double start = now_us();
    int failed = by_put(symm, part, boxes, y, came, sums);
    double end = now_us();
    failed |= verdict("GEMM by rows", end - start, wrong_in(y), rank);
    weft_free(part);
    weft_symm_destroy(symm);
    weft_comm_destroy(comm);
    return failed;
}
