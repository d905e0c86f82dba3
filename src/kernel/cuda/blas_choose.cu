/* Which of cuBLASLt's algorithms a product takes. Its first proposal is often 10% slower than
 * another one of the list (a product with a bias 8192 x 1280 x 1280 on an H200: 66 us, the next one
 * 47), so large products are timed, once: the choice is kept for later processes, and whoever comes
 * first decides for all ranks of a machine.
 *
 * Timing must neither wait for the caller's stream (a rank that waits there for another one that
 * times as well would wait forever) nor touch its tensors: it has a stream and memory of its
 * own. */
#include "kernel/cuda/blas.cuh"

#include <cmath>
#include <cstring>

enum { TIMED_RUNS = 4, FILL_BLOCKS = 528, FILL_THREADS = 256 };

static const double LEAST_OPERATIONS = 2e9; /* smaller products are not worth it */
static const float MOST_MS = 100.0f;        /* spent on one shape, or a candidate more */
static const float WORTH = 0.98f;           /* of the first proposal's time, to be preferred */

/* What a choice is for, compared as bytes: made from zeros. */
struct choice_key_t {
    product_key_t product;
    uint64_t work_bytes;
    int32_t fused, asked;
    char chip[sizeof(weft_cuda_blas_t::chip)];
};

/* The product on memory that means nothing. */
struct trial_t {
    weft_cuda_exec_t exec;
    weft_matmul_t args;
    cudaStream_t stream;
    cudaEvent_t event[2];
    char *memory;
};

/* Pairs of random bf16 in [-1, 1), which as f32 are of that size too and as f16 below 2: a product
 * of equal numbers takes less power, and runs faster, than it ever will. */
static __global__ void __launch_bounds__(FILL_THREADS) fill(uint32_t *words, size_t count)
{
    size_t i = (size_t)blockIdx.x * FILL_THREADS + threadIdx.x;
    for (; i < count; i += (size_t)FILL_BLOCKS * FILL_THREADS) {
        uint32_t bits = ((uint32_t)i + 1) * 0x9e3779b9u;
        bits = (bits ^ bits >> 15) * 0x2c1b3c6du;
        bits ^= bits >> 12;
        words[i] = pack2<bf16_t>((float)(int16_t)(bits & 0xffff) * 0x1p-15f,
                         (float)(int16_t)(bits >> 16) * 0x1p-15f);
    }
}

static size_t element_size(int type)
{
    return type == WEFT_F32 ? 4 : 2;
}

static size_t rounded_up(int64_t rows, int64_t columns, size_t element)
{
    return ((size_t)(rows * columns) * element + 255) / 256 * 256;
}

static int trial_start(const weft_cuda_exec_t *exec, const weft_matmul_t *args, size_t work_bytes,
                       trial_t *trial)
{
    size_t element = element_size(args->type);
    size_t a = rounded_up(args->trans_a ? args->k : args->m, args->lda, element);
    size_t b = rounded_up(args->trans_b ? args->n : args->k, args->ldb, element);
    size_t c = rounded_up(args->m, args->ldc, element_size(args->c_type));
    size_t aux = args->aux != NULL ? rounded_up(args->m, args->ldc, element) : 0;
    size_t bias = rounded_up(1, args->n, element), all = a + b + 2 * c + aux + bias + work_bytes;
    WEFT_TRY(cudaMallocAsync((void **)&trial->memory, all, trial->stream));
    fill<<<FILL_BLOCKS, FILL_THREADS, 0, trial->stream>>>((uint32_t *)trial->memory, all / 4);
    WEFT_TRY(launched());
    char *at = trial->memory;
    trial->exec = *exec;
    trial->exec.stream = trial->stream;
    trial->args = *args;
    trial->args.a = at, at += a;
    trial->args.b = at, at += b;
    trial->args.c = at, at += c;
    trial->args.add = args->add == NULL ? NULL : args->add == args->c ? trial->args.c : at;
    at += c;
    trial->args.aux = args->aux != NULL ? at : NULL, at += aux;
    trial->args.bias = args->bias != NULL ? at : NULL, at += bias;
    trial->exec.space = at;
    return 0;
}

/* Milliseconds of one run; INFINITY if it cannot be run. */
static float time_plan(const trial_t *trial, const product_plan_t *plan, size_t work_bytes,
                       int runs)
{
    float ms = INFINITY;
    int error = weft_cuda_blas_run(&trial->exec, &trial->args, plan, work_bytes, 1.0f, NULL);
    error = error != 0 ? error : (int)cudaEventRecord(trial->event[0], trial->stream);
    for (int i = 0; i < runs && error == 0; i++) {
        error = weft_cuda_blas_run(&trial->exec, &trial->args, plan, work_bytes, 1.0f, NULL);
    }
    error = error != 0 ? error : (int)cudaEventRecord(trial->event[1], trial->stream);
    error = error != 0 ? error : (int)cudaEventSynchronize(trial->event[1]);
    error = error != 0 ? error : (int)cudaEventElapsedTime(&ms, trial->event[0], trial->event[1]);
    return error == 0 ? ms / (float)runs : INFINITY;
}

/* The plan gets the fastest. */
static void time_all(const trial_t *trial, size_t work_bytes,
                     const cublasLtMatmulHeuristicResult_t *results, int count,
                     product_plan_t *plan)
{
    product_plan_t tried = *plan;
    float spent = time_plan(trial, &tried, work_bytes, 1); /* warms up */
    int runs = spent < 1.0f ? TIMED_RUNS : 1;
    float best = INFINITY;
    for (int i = 0; i < count && spent < MOST_MS; i++) {
        tried.algo = results[i].algo;
        float ms = time_plan(trial, &tried, work_bytes, runs);
        spent += std::isinf(ms) ? 0.0f : ms * (float)(runs + 1);
        if (ms < best * (i == 0 ? 1.0f : WORTH)) {
            best = ms;
            plan->algo = results[i].algo;
        }
    }
}

static void time_plans(const weft_cuda_exec_t *exec, const weft_matmul_t *args, size_t work_bytes,
                       const cublasLtMatmulHeuristicResult_t *results, int count,
                       product_plan_t *plan)
{
    trial_t trial;
    memset(&trial, 0, sizeof(trial));
    if (cudaStreamCreateWithFlags(&trial.stream, cudaStreamNonBlocking) == cudaSuccess) {
        if (cudaEventCreate(&trial.event[0]) == cudaSuccess &&
            cudaEventCreate(&trial.event[1]) == cudaSuccess &&
            trial_start(exec, args, work_bytes, &trial) == 0) {
            time_all(&trial, work_bytes, results, count, plan);
        }
        if (trial.memory != NULL) {
            cudaFreeAsync(trial.memory, trial.stream);
        }
        cudaStreamSynchronize(trial.stream);
        cudaStreamDestroy(trial.stream);
    }
    for (int i = 0; i < 2; i++) {
        if (trial.event[i] != NULL) {
            cudaEventDestroy(trial.event[i]);
        }
    }
    (void)cudaGetLastError(); /* without memory for it, the first proposal is fine */
}

void weft_cuda_blas_choose(const weft_cuda_exec_t *exec, const weft_matmul_t *args,
                           size_t work_bytes, const cublasLtMatmulHeuristicResult_t *results,
                           int count, product_plan_t *plan)
{
    const weft_cuda_blas_t *blas = exec->blas;
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    double operations = 2.0 * (double)args->m * (double)args->n * (double)args->k;
    choice_key_t key;
    if (count < 2 || operations < LEAST_OPERATIONS) {
        return;
    }
    memset(&key, 0, sizeof(key));
    key.product = plan->key;
    key.work_bytes = work_bytes;
    key.fused = plan->fused, key.asked = blas->tune;
    memcpy(key.chip, blas->chip, sizeof(key.chip));
    if (blas->choices->find(&key, sizeof(key), &plan->algo, sizeof(plan->algo)) ||
        cudaStreamIsCapturing(stream_of(exec), &capturing) != cudaSuccess ||
        capturing != cudaStreamCaptureStatusNone) {
        return;
    }
    time_plans(exec, args, work_bytes, results, count, plan);
    blas->choices->offer(&key, sizeof(key), &plan->algo, sizeof(plan->algo));
}
