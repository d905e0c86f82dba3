/* A BLAS for machines without one: slow, and it tells at its end what it did. */
#include <stdatomic.h>
#include <stdio.h>

#include "kernel/cpu/blas.h"

static _Atomic long products;
static int threads;

/* Both are found by their names. */
void openblas_set_num_threads(int count);
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

void openblas_set_num_threads(int count)
{
    threads = count;
}

void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc)
{
    int turned_a = trans_a == WEFT_CBLAS_TRANSPOSED, turned_b = trans_b == WEFT_CBLAS_TRANSPOSED;
    long a_row = turned_a ? 1 : lda, a_column = turned_a ? lda : 1;
    long b_row = turned_b ? 1 : ldb, b_column = turned_b ? ldb : 1;
    products += order == WEFT_CBLAS_ROW_MAJOR;
    for (long i = 0; i < m; i++) {
        for (long j = 0; j < n; j++) {
            float sum = 0;
            for (long q = 0; q < k; q++) {
                sum += a[i * a_row + q * a_column] * b[q * b_row + j * b_column];
            }
            float *out = &c[i * ldc + j];
            *out = alpha * sum + (beta == 0 ? 0 : beta * *out);
        }
    }
}

static __attribute__((destructor)) void tell(void)
{
    fprintf(stderr, "fake blas: %ld products by %d thread\n", products, threads);
}
