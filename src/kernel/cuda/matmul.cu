/* Matrix products: cuBLASLt, and kernels for what its epilogues do not do for a shape. */
#include "kernel/cuda/blas.cuh"

enum {
    THREADS = 256,
    ACROSS = 32, /* threads side by side, with 8 columns each */
    DOWN = THREADS / ACROSS,
    BLOCKS = 528, /* that the sums of columns are cut into: 4 for each SM of an H200 */
    LEAST_ROWS = 64
};
static const size_t SUMS_BYTES = (size_t)4 << 20; /* of `space`; the rest is cuBLASLt's */

/* ---- the epilogue as a kernel of its own ----------------------------------------------------- */

/* y = c + bias; aux = y and c = gelu(y), or c = y gelu'(aux). */
template <typename T, typename C>
static __global__ void __launch_bounds__(THREADS) finish(weft_matmul_t args, int64_t chunks,
                                                         bool wide)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t row = at / chunks, i = at % chunks * LANE, left = args.n - i;
    if (row >= args.m) {
        return;
    }
    C *c = (C *)args.c + row * args.ldc + i;
    T *aux = (T *)args.aux + row * args.ldc + i;
    lane8 y = load8(c, left, wide);
    if (args.bias != NULL) {
        lane8 bias = load8((const T *)args.bias + i, left, wide);
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            y.x[j] += bias.x[j];
        }
    }
    if (args.epilogue == WEFT_EPILOGUE_GELU && args.aux != NULL) {
        store8(aux, y, left, wide);
    }
    lane8 slope = args.epilogue == WEFT_EPILOGUE_DGELU ? load8(aux, left, wide) : lane8{};
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        if (args.epilogue == WEFT_EPILOGUE_GELU) {
            y.x[j] = gelu_of(y.x[j]);
        } else if (args.epilogue == WEFT_EPILOGUE_DGELU) {
            y.x[j] *= gelu_slope(slope.x[j]);
        }
    }
    store8(c, y, left, wide);
}

static int run_finish(const weft_cuda_exec_t *exec, const weft_matmul_t *args)
{
    bool wide = is_wide(args->n, args->c, args->aux, args->bias) && args->ldc % LANE == 0;
    int64_t chunks = ceil_div(args->n, LANE);
    unsigned grid = grid_of(args->m * chunks, THREADS);
    cudaStream_t stream = stream_of(exec);
    by_types(args->type, args->c_type, [&](auto zero, auto c) {
        finish<decltype(zero), decltype(c)><<<grid, THREADS, 0, stream>>>(*args, chunks, wide);
    });
    return launched();
}

/* ---- the gradient of a bias ------------------------------------------------------------------ */

/* partial[part][column] = the sum of some rows of b. A block has 256 columns and its part of
 * rows. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) column_sums(const T *b, int64_t rows, int64_t n,
                                                              int64_t ld, float *partial, bool wide)
{
    __shared__ float sums[DOWN][ACROSS * LANE];
    int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
    int64_t i = ((int64_t)blockIdx.x * ACROSS + across) * LANE, left = n - i;
    int64_t end = rows * (blockIdx.y + 1) / gridDim.y;
    lane8 sum = {};
    if (left > 0) {
#pragma unroll 4
        for (int64_t r = rows * blockIdx.y / gridDim.y + down; r < end; r += DOWN) {
            lane8 x = load8(b + r * ld + i, left, wide);
#pragma unroll
            for (int j = 0; j < LANE; j++) {
                sum.x[j] += x.x[j];
            }
        }
    }
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        sums[down][across * LANE + j] = sum.x[j];
    }
    __syncthreads();
    int64_t column = (int64_t)blockIdx.x * ACROSS * LANE + threadIdx.x;
    if (column < n) {
        float total = 0;
#pragma unroll
        for (int d = 0; d < DOWN; d++) {
            total += sums[d][threadIdx.x];
        }
        partial[blockIdx.y * n + column] = total;
    }
}

/* out += the sums of parts, in order. */
template <typename C>
static __global__ void __launch_bounds__(THREADS) add_parts(const float *partial, int parts,
                                                            int64_t n, C *out)
{
    __shared__ float sums[DOWN][ACROSS];
    int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
    int64_t i = (int64_t)blockIdx.x * ACROSS + across;
    float sum = 0;
    if (i < n) {
#pragma unroll 8
        for (int p = down; p < parts; p += DOWN) {
            sum += partial[p * n + i];
        }
    }
    sums[down][across] = sum;
    __syncthreads();
    if (down != 0 || i >= n) {
        return;
    }
    for (int d = 1; d < DOWN; d++) {
        sum += sums[d][across];
    }
    out[i] = from_float<C>(to_float(out[i]) + sum);
}

static int run_bias_grad(const weft_cuda_exec_t *exec, const weft_matmul_t *args, float *partial)
{
    int64_t across = ceil_div(args->n, ACROSS * LANE), parts = ceil_div(BLOCKS, across);
    int64_t most = (int64_t)(SUMS_BYTES / sizeof(float)) / args->n;
    parts = parts < most ? parts : most;
    parts = parts < ceil_div(args->k, LEAST_ROWS) ? parts : ceil_div(args->k, LEAST_ROWS);
    if (parts < 1) {
        return WEFT_CUDA_UNSUPPORTED;
    }
    dim3 grid((unsigned)across, (unsigned)parts);
    bool wide = is_wide(args->n, args->b) && args->ldb % LANE == 0;
    cudaStream_t stream = stream_of(exec);
    by_type(args->type, [&](auto zero) {
        column_sums<<<grid, THREADS, 0, stream>>>((const decltype(zero) *)args->b, args->k, args->n,
                                                  args->ldb, partial, wide);
    });
    unsigned blocks = grid_of(args->n, ACROSS);
    by_type(args->c_type, [&](auto zero) {
        add_parts<<<blocks, THREADS, 0, stream>>>(partial, (int)parts, args->n,
                                                  (decltype(zero) *)args->bias_grad);
    });
    return launched();
}

int weft_cuda_matmul(const weft_cuda_exec_t *exec, const weft_matmul_t *given)
{
    weft_matmul_t args = *given;
    product_plan_t plan;
    size_t work_bytes = exec->space_bytes - SUMS_BYTES;
    void *sums = (char *)exec->space + work_bytes;
    args.lda = args.lda > 0 ? args.lda : args.trans_a ? args.m : args.k;
    args.ldb = args.ldb > 0 ? args.ldb : args.trans_b ? args.k : args.n;
    args.ldc = args.ldc > 0 ? args.ldc : args.n;
    if (args.m == 0 || args.n == 0) {
        return 0;
    }
    WEFT_TRY(weft_cuda_blas_plan(exec, &args, work_bytes, &plan));
    WEFT_TRY(weft_cuda_blas_run(exec, &args, &plan, work_bytes, 1.0f, sums));
    if (!plan.fused && (args.bias != NULL || args.epilogue != WEFT_EPILOGUE_NONE)) {
        WEFT_TRY(run_finish(exec, &args));
    }
    if (args.bias_grad != NULL) {
        WEFT_TRY(run_bias_grad(exec, &args, (float *)sums));
    }
    return 0;
}
