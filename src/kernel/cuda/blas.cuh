/* cuBLASLt, loaded at run time, and what is known about products: kernel/cuda/blas.cu. */
#ifndef WEFT_KERNEL_CUDA_BLAS_CUH
#define WEFT_KERNEL_CUDA_BLAS_CUH

#include <cublasLt.h>
#include <pthread.h>

#include "kernel/cuda/common.cuh"

/* The functions of cuBLASLt that are used. */
#define WEFT_BLAS_TABLE(X)                                                                         \
    X(cublasLtCreate, create)                                                                      \
    X(cublasLtGetStatusString, status_text)                                                        \
    X(cublasLtGetVersion, version)                                                                 \
    X(cublasLtMatmul, matmul)                                                                      \
    X(cublasLtMatmulAlgoGetHeuristic, heuristic)                                                   \
    X(cublasLtMatmulDescInit_internal, desc_init)                                                  \
    X(cublasLtMatmulDescSetAttribute, desc_set)                                                    \
    X(cublasLtMatmulPreferenceInit_internal, preference_init)                                      \
    X(cublasLtMatmulPreferenceSetAttribute, preference_set)                                        \
    X(cublasLtMatrixLayoutInit_internal, layout_init)

/* All that the choice of an algorithm depends on. Compared as bytes: made from zeros. */
typedef struct product_key {
    int64_t m, n, k, lda, ldb, ldc;
    int32_t type, c_type, trans_a, trans_b;
    int32_t beta, bias, epilogue, aux, bias_grad;
    int32_t align_a, align_b, align_c, align_add, align_bias, align_aux; /* bytes, at most 256 */
} product_key_t;

/* A product as cuBLASLt wants it: column by column, so that everything is transposed, and its first
 * matrix is our second. What is plain memory is copied for a call, and gets that call's
 * pointers. */
typedef struct product_plan {
    product_key_t key;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t first, second, result;
    cublasLtMatmulAlgo_t algo;
    bool fused;      /* bias, GELU and its gradient are in the epilogue */
    bool fused_grad; /* so is the gradient of the bias */
} product_plan_t;

enum { WEFT_BLAS_PLANS = 256 };

struct weft_cuda_blas {
#define WEFT_BLAS_FIELD(symbol, field) __typeof__(&symbol) field;
    WEFT_BLAS_TABLE(WEFT_BLAS_FIELD)
#undef WEFT_BLAS_FIELD
    cublasLtHandle_t handle;
    int tune;
    const weft_cuda_choices_t *choices;
    char chip[128]; /* the GPU and the version of cuBLASLt: what choices are for */
    pthread_mutex_t lock;
    int count;
    product_plan_t plans[WEFT_BLAS_PLANS];
};

enum { WEFT_BLAS_ALGORITHMS = 32 }; /* that are asked for at most */

int weft_cuda_blas_open(int gpu, const char *library, int tune, const weft_cuda_choices_t *choices,
                        weft_cuda_blas_t **blas_p, char why[WEFT_CUDA_WHY]);
const char *weft_cuda_blas_text(int status);

/* The plan for a product whose strides are filled in. `work` is what a call may use. */
int weft_cuda_blas_plan(const weft_cuda_exec_t *exec, const weft_matmul_t *args,
                        size_t work_bytes, product_plan_t *plan_p);

/* Run it. grad_sums: n elements of c_type that a fused bias gradient goes to. */
int weft_cuda_blas_run(const weft_cuda_exec_t *exec, const weft_matmul_t *args,
                       const product_plan_t *plan, size_t work_bytes, float alpha, void *grad_sums);

/* Choose among what the library proposes, by what was chosen before or by timing. The plan has the
 * first already. */
void weft_cuda_blas_choose(const weft_cuda_exec_t *exec, const weft_matmul_t *args,
                           size_t work_bytes, const cublasLtMatmulHeuristicResult_t *results,
                           int count, product_plan_t *plan);

#endif
