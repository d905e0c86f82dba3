/* A BLAS, loaded when the first matrix product wants one. */
#ifndef WEFT_KERNEL_CPU_BLAS_H
#define WEFT_KERNEL_CPU_BLAS_H

/* The part of CBLAS that we call; its enums are plain ints in the binary interface. */
enum { WEFT_CBLAS_ROW_MAJOR = 101, WEFT_CBLAS_AS_IS = 111, WEFT_CBLAS_TRANSPOSED = 112 };

typedef void (*weft_sgemm_fn)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                              const float *a, int lda, const float *b, int ldb, float beta,
                              float *c, int ldc);

/* sgemm of the library that WEFT_BLAS chooses, set to one thread (the team's threads each call it),
 * or NULL where our own product is to be used: it was asked for, is the faster one here, or there
 * is no such library. */
weft_sgemm_fn weft__blas_sgemm(void);

#endif
