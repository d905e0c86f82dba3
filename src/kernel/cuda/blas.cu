/* cuBLASLt: loading it, describing a product to it, asking it for algorithms once per shape. */
#include "kernel/cuda/blas.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

static int blas_error(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? 0 : -(WEFT_CUDA_BLAS_ERROR + (int)status);
}

#define TRY_BLAS(call) WEFT_TRY(blas_error(call))

/* ---- loading ------------------------------------------------------------------------------- */

static const char *(*status_text)(cublasStatus_t);

const char *weft_cuda_blas_text(int status)
{
    return status_text != NULL ? status_text((cublasStatus_t)status) : "cuBLASLt";
}

static void *open_library(const char *library, char why[WEFT_CUDA_WHY])
{
    static const char *const usual[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                        "/usr/local/cuda/lib64/libcublasLt.so.13",
                                        "/usr/local/cuda/lib64/libcublasLt.so.12"};
    void *found = NULL;
    if (library[0] != '\0') {
        found = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    }
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]) && library[0] == '\0'; i++) {
        found = dlopen(usual[i], RTLD_NOW | RTLD_LOCAL);
        if (found != NULL) {
            return found;
        }
    }
    if (found == NULL) {
        snprintf(why, WEFT_CUDA_WHY, "cuBLASLt, which multiplies matrices, cannot be loaded (%s)",
                 dlerror());
    }
    return found;
}

static void name_chip(weft_cuda_blas_t *blas, int gpu)
{
    cudaDeviceProp props;
    bool known = cudaGetDeviceProperties(&props, gpu) == cudaSuccess;
    snprintf(blas->chip, sizeof(blas->chip), "%.90s, cuBLASLt %zu", known ? props.name : "?",
             blas->version());
}

int weft_cuda_blas_open(int gpu, const char *library, int tune, const weft_cuda_choices_t *choices,
                        weft_cuda_blas_t **blas_p, char why[WEFT_CUDA_WHY])
{
    void *found = open_library(library, why);
    if (found == NULL) {
        return (int)cudaErrorSharedObjectInitFailed;
    }
    weft_cuda_blas_t *blas = (weft_cuda_blas_t *)calloc(1, sizeof(*blas));
    if (blas == NULL) {
        snprintf(why, WEFT_CUDA_WHY, "there is no memory for the plans of matrix products");
        return (int)cudaErrorMemoryAllocation;
    }
#define FIND(symbol, field)                                                                        \
    blas->field = (__typeof__(&symbol))dlsym(found, #symbol);                                      \
    if (blas->field == NULL) {                                                                     \
        snprintf(why, WEFT_CUDA_WHY, "the cuBLASLt that was found has no " #symbol);               \
        free(blas);                                                                                \
        return (int)cudaErrorSharedObjectSymbolNotFound;                                           \
    }
    WEFT_BLAS_TABLE(FIND)
#undef FIND
    blas->tune = tune < WEFT_BLAS_ALGORITHMS ? tune : WEFT_BLAS_ALGORITHMS;
    blas->choices = choices;
    name_chip(blas, gpu);
    pthread_mutex_init(&blas->lock, NULL);
    status_text = blas->status_text;
    int error = (int)cudaSetDevice(gpu);
    cublasStatus_t status = error == 0 ? blas->create(&blas->handle) : CUBLAS_STATUS_SUCCESS;
    if (error != 0 || status != CUBLAS_STATUS_SUCCESS) {
        snprintf(why, WEFT_CUDA_WHY, "cuBLASLt does not start on GPU %d (%s)", gpu,
                 error != 0 ? cudaGetErrorString((cudaError_t)error) : blas->status_text(status));
        free(blas);
        return error != 0 ? error : blas_error(status);
    }
    *blas_p = blas;
    return 0;
}

/* ---- describing a product ------------------------------------------------------------------ */

static int32_t align_of(const void *at)
{
    uintptr_t low = (uintptr_t)at & (~(uintptr_t)at + 1);
    return at == NULL || low > 256 ? 256 : (int32_t)low;
}

static product_key_t key_of(const weft_matmul_t *args)
{
    product_key_t key;
    memset(&key, 0, sizeof(key));
    key.m = args->m, key.n = args->n, key.k = args->k;
    key.lda = args->lda, key.ldb = args->ldb, key.ldc = args->ldc;
    key.type = args->type, key.c_type = args->c_type;
    key.trans_a = args->trans_a, key.trans_b = args->trans_b;
    key.beta = args->accumulate || args->add != NULL;
    key.bias = args->bias != NULL, key.epilogue = args->epilogue, key.aux = args->aux != NULL;
    key.bias_grad = args->bias_grad != NULL;
    key.align_a = align_of(args->a), key.align_b = align_of(args->b);
    key.align_c = align_of(args->c), key.align_add = align_of(args->add);
    key.align_bias = align_of(args->bias), key.align_aux = align_of(args->aux);
    return key;
}

static cudaDataType type_of(int32_t type)
{
    return type == WEFT_F32 ? CUDA_R_32F : type == WEFT_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static int set(weft_cuda_blas_t *blas, product_plan_t *plan, cublasLtMatmulDescAttributes_t which,
               const void *value, size_t bytes)
{
    return blas_error(blas->desc_set(&plan->desc, which, value, bytes));
}

/* What runs after the product and in the same kernel. GELU there is for 16 bits only: it is
 * computed less exactly than f32 is. */
static cublasLtEpilogue_t epilogue_of(const product_plan_t *plan)
{
    const product_key_t *key = &plan->key;
    if (plan->fused_grad) {
        return CUBLASLT_EPILOGUE_BGRADA;
    }
    if (!plan->fused) {
        return CUBLASLT_EPILOGUE_DEFAULT;
    }
    if (key->epilogue == WEFT_EPILOGUE_DGELU) {
        return CUBLASLT_EPILOGUE_DGELU;
    }
    int epilogue = key->bias ? CUBLASLT_EPILOGUE_BIAS : 0;
    if (key->epilogue == WEFT_EPILOGUE_GELU) {
        epilogue |= key->aux ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
    }
    return epilogue != 0 ? (cublasLtEpilogue_t)epilogue : CUBLASLT_EPILOGUE_DEFAULT;
}

static int describe(weft_cuda_blas_t *blas, product_plan_t *plan)
{
    const product_key_t *key = &plan->key;
    cudaDataType type = type_of(key->type), result = type_of(key->c_type);
    cublasOperation_t first = key->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = key->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = epilogue_of(plan);
    TRY_BLAS(blas->desc_init(&plan->desc, sizeof(plan->desc), CUBLAS_COMPUTE_32F, CUDA_R_32F));
    WEFT_TRY(set(blas, plan, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first)));
    WEFT_TRY(set(blas, plan, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second)));
    WEFT_TRY(set(blas, plan, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
    if (epilogue & 128) {
        WEFT_TRY(
            set(blas, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &key->ldc, sizeof(key->ldc)));
    }
    TRY_BLAS(blas->layout_init(&plan->first, sizeof(plan->first), type,
                               (uint64_t)(key->trans_b ? key->k : key->n),
                               (uint64_t)(key->trans_b ? key->n : key->k), key->ldb));
    TRY_BLAS(blas->layout_init(&plan->second, sizeof(plan->second), type,
                               (uint64_t)(key->trans_a ? key->m : key->k),
                               (uint64_t)(key->trans_a ? key->k : key->m), key->lda));
    TRY_BLAS(blas->layout_init(&plan->result, sizeof(plan->result), result, (uint64_t)key->n,
                               (uint64_t)key->m, key->ldc));
    return 0;
}

/* The pointers that travel in the description. */
static int aim(weft_cuda_blas_t *blas, product_plan_t *plan, const weft_matmul_t *args,
               void *grad_sums)
{
    const void *bias = plan->fused_grad ? grad_sums : args->bias;
    cublasLtEpilogue_t epilogue = epilogue_of(plan);
    if (plan->fused_grad || (epilogue & CUBLASLT_EPILOGUE_BIAS)) {
        WEFT_TRY(set(blas, plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)));
    }
    if (epilogue & 128) {
        WEFT_TRY(set(blas, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &args->aux,
                     sizeof(args->aux)));
    }
    return 0;
}

/* ---- asking for algorithms ----------------------------------------------------------------- */

static int ask(weft_cuda_blas_t *blas, product_plan_t *plan, size_t work_bytes,
               cublasLtMatmulHeuristicResult_t *results, int most, int *count_p)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    const product_key_t *key = &plan->key;
    const struct {
        cublasLtMatmulPreferenceAttributes_t which;
        int32_t bytes;
    } aligned[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key->align_b},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key->align_a},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                    key->align_add < key->align_c ? key->align_add : key->align_c},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key->align_c}};
    const uint32_t in_f32 = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint64_t most_work = work_bytes;
    *count_p = 0;
    TRY_BLAS(blas->preference_init(&preference, sizeof(preference)));
    TRY_BLAS(blas->preference_set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most_work,
                                  sizeof(most_work)));
    if (key->c_type ==
        WEFT_F16) { /* parts of a sum, where it is cut, may overflow when it does not */
        TRY_BLAS(blas->preference_set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                      &in_f32, sizeof(in_f32)));
    }
    for (size_t i = 0; i < sizeof(aligned) / sizeof(aligned[0]); i++) {
        uint32_t bytes = (uint32_t)aligned[i].bytes;
        TRY_BLAS(blas->preference_set(&preference, aligned[i].which, &bytes, sizeof(bytes)));
    }
    return blas_error(blas->heuristic(blas->handle, &plan->desc, &plan->first, &plan->second,
                                      &plan->result, &plan->result, &preference, most, results,
                                      count_p));
}

/* A plan with as much in the epilogue as there is an algorithm for. */
static int make_plan(const weft_cuda_exec_t *exec, const weft_matmul_t *args, size_t work_bytes,
                     product_plan_t *plan)
{
    weft_cuda_blas_t *blas = exec->blas;
    cublasLtMatmulHeuristicResult_t results[WEFT_BLAS_ALGORITHMS];
    const product_key_t *key = &plan->key;
    int count = 0, most = blas->tune > 0 ? blas->tune : 1, error = 0;
    bool wanted = key->bias || key->epilogue != WEFT_EPILOGUE_NONE;
    bool possible = key->c_type == key->type && (key->epilogue == WEFT_EPILOGUE_NONE ||
                                                 (key->type != WEFT_F32 && key->ldc % 8 == 0));
    possible = possible && !(key->bias && key->epilogue == WEFT_EPILOGUE_DGELU);
    for (plan->fused = wanted && possible;; plan->fused = false) {
        WEFT_TRY(describe(blas, plan));
        WEFT_TRY(aim(blas, plan, args, NULL));
        error = ask(blas, plan, work_bytes, results, most, &count);
        if ((error == 0 && count > 0) || !plan->fused) {
            break;
        }
    }
    if (error != 0 || count == 0) {
        return error != 0 ? error : blas_error(CUBLAS_STATUS_NOT_SUPPORTED);
    }
    plan->algo = results[0].algo;
    if (blas->tune > 0) {
        weft_cuda_blas_choose(exec, args, work_bytes, results, count, plan);
    }
    return 0;
}

int weft_cuda_blas_plan(const weft_cuda_exec_t *exec, const weft_matmul_t *args,
                        size_t work_bytes, product_plan_t *plan_p)
{
    weft_cuda_blas_t *blas = exec->blas;
    product_key_t key = key_of(args);
    int error = 0, i;
    pthread_mutex_lock(&blas->lock);
    int known = blas->count < WEFT_BLAS_PLANS ? blas->count : WEFT_BLAS_PLANS;
    for (i = 0; i < known && memcmp(&blas->plans[i].key, &key, sizeof(key)) != 0; i++) {
    }
    if (i == known) {
        product_plan_t plan;
        memset(&plan, 0, sizeof(plan));
        plan.key = key;
        error = make_plan(exec, args, work_bytes, &plan);
        i = blas->count % WEFT_BLAS_PLANS; /* the oldest gives way */
        if (error == 0) {
            blas->plans[i] = plan;
            blas->count++;
        }
    }
    if (error == 0) {
        *plan_p = blas->plans[i];
    }
    pthread_mutex_unlock(&blas->lock);
    return error;
}

int weft_cuda_blas_run(const weft_cuda_exec_t *exec, const weft_matmul_t *args,
                       const product_plan_t *plan, size_t work_bytes, float alpha, void *grad_sums)
{
    product_plan_t mine = *plan;
    float beta = plan->key.beta ? 1.0f : 0.0f;
    const void *before = args->add != NULL ? args->add : args->c;
    WEFT_TRY(aim(exec->blas, &mine, args, grad_sums));
    return blas_error(exec->blas->matmul(exec->blas->handle, &mine.desc, &alpha, args->b,
                                          &mine.first, args->a, &mine.second, &beta, before,
                                          &mine.result, args->c, &mine.result, &mine.algo,
                                          exec->space, work_bytes, stream_of(exec)));
}
