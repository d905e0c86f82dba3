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
static __global__ void __launch_bounds__(THREADS)
    finish(weft_matmul_t args, int64_t chunks, bool wide)
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

static int run_finish(const weft_cuda_place_t *place, const weft_matmul_t *args)
{
    bool wide = is_wide(args->n, args->c, args->aux, args->bias) && args->ldc % LANE == 0;
    int64_t chunks = ceil_div(args->n, LANE);
    unsigned grid = grid_of(args->m * chunks, THREADS);
    cudaStream_t stream = stream_of(place);
    if (args->type == WEFT_F32) {
        finish<float, float><<<grid, THREADS, 0, stream>>>(*args, chunks, wide);
    } else if (args->c_type == WEFT_F32) {
        finish<bf16_t, float><<<grid, THREADS, 0, stream>>>(*args, chunks, wide);
    } else {
        finish<bf16_t, bf16_t><<<grid, THREADS, 0, stream>>>(*args, chunks, wide);
    }
    return launched();
}

/* ---- the gradient of a bias ------------------------------------------------------------------ */

/* Sums of 8 columns each, joined over the DOWN threads of a column: the one of column threadIdx.x. */
static __device__ __forceinline__ float join_columns(const lane8 &sum, float (*sums)[ACROSS * LANE])
{
    int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
    float total = 0;
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        sums[down][across * LANE + j] = sum.x[j];
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < DOWN; d++) {
        total += sums[d][threadIdx.x];
    }
    __syncthreads();
    return total;
}

static __device__ __forceinline__ lane8 load_part(const float *at, int64_t left, bool wide)
{
    lane8 x;
    if (wide) {
        float4 a = __ldcg((const float4 *)at), b = __ldcg((const float4 *)at + 1);
        return {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    }
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        x.x[j] = j < left ? __ldcg(at + j) : 0.0f;
    }
    return x;
}

static __device__ __forceinline__ void add8(lane8 &sum, const lane8 &x)
{
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        sum.x[j] += x.x[j];
    }
}

/* Am I the last of the blocks with these columns? Then what the others have written can be read. */
static __device__ __forceinline__ bool is_last(uint32_t *counter)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1) + 1 == gridDim.y;
        if (last) {
            *counter = 0; /* for the next launch */
        }
    }
    __syncthreads();
    __threadfence();
    return last;
}

/* out += the sum of all rows of b. A block has 256 columns and its part of the rows; the last one to end
 * adds up what they leave in partial[part][column], always in the same order. */
template <typename T, typename C>
static __global__ void __launch_bounds__(THREADS)
    column_sums(const T *b, int64_t rows, int64_t n, int64_t ld, float *partial, uint32_t *counters,
                C *out, bool wide)
{
    __shared__ float sums[DOWN][ACROSS * LANE];
    int across = (int)threadIdx.x % ACROSS, down = (int)threadIdx.x / ACROSS;
    int64_t i = ((int64_t)blockIdx.x * ACROSS + across) * LANE, left = n - i;
    int64_t end = rows * (blockIdx.y + 1) / gridDim.y, column = i - across * LANE + threadIdx.x;
    lane8 sum = {};
    if (left > 0) {
#pragma unroll 8
        for (int64_t r = rows * blockIdx.y / gridDim.y + down; r < end; r += DOWN) {
            add8(sum, load8(b + r * ld + i, left, wide));
        }
    }
    float total = join_columns(sum, sums);
    if (column < n) {
        partial[blockIdx.y * n + column] = total;
    }
    if (!is_last(&counters[blockIdx.x])) {
        return;
    }
    sum = lane8{};
    if (left > 0) {
#pragma unroll 8
        for (int p = down; p < (int)gridDim.y; p += DOWN) {
            add8(sum, load_part(partial + p * n + i, left, n % LANE == 0));
        }
    }
    total = join_columns(sum, sums);
    if (column < n) {
        out[column] = from_float<C>(to_float(out[column]) + total);
    }
}

static int run_bias_grad(const weft_cuda_place_t *place, const weft_matmul_t *args, float *partial)
{
    int64_t across = ceil_div(args->n, ACROSS * LANE), parts = ceil_div(BLOCKS, across);
    int64_t room = (int64_t)(SUMS_BYTES - WEFT_CUDA_COUNTERS), most = room / 4 / args->n;
    uint32_t *counters = (uint32_t *)((char *)partial + room);
    parts = parts < most ? parts : most;
    parts = parts < ceil_div(args->k, LEAST_ROWS) ? parts : ceil_div(args->k, LEAST_ROWS);
    if (parts < 1 || across > WEFT_CUDA_COUNTERS / 4) {
        return WEFT_CUDA_UNSUPPORTED;
    }
    dim3 grid((unsigned)across, (unsigned)parts);
    bool wide = is_wide(args->n, args->b) && args->ldb % LANE == 0;
    cudaStream_t stream = stream_of(place);
    if (args->type == WEFT_F32) {
        column_sums<<<grid, THREADS, 0, stream>>>((const float *)args->b, args->k, args->n,
                                                  args->ldb, partial, counters,
                                                  (float *)args->bias_grad, wide);
    } else if (args->c_type == WEFT_F32) {
        column_sums<<<grid, THREADS, 0, stream>>>((const bf16_t *)args->b, args->k, args->n,
                                                  args->ldb, partial, counters,
                                                  (float *)args->bias_grad, wide);
    } else {
        column_sums<<<grid, THREADS, 0, stream>>>((const bf16_t *)args->b, args->k, args->n,
                                                  args->ldb, partial, counters,
                                                  (bf16_t *)args->bias_grad, wide);
    }
    return launched();
}

int weft_cuda_matmul(const weft_cuda_place_t *place, const weft_matmul_t *given)
{
    weft_matmul_t args = *given;
    product_plan_t plan;
    size_t work_bytes = place->space_bytes - SUMS_BYTES;
    void *sums = (char *)place->space + work_bytes;
    args.lda = args.lda > 0 ? args.lda : args.trans_a ? args.m : args.k;
    args.ldb = args.ldb > 0 ? args.ldb : args.trans_b ? args.k : args.n;
    args.ldc = args.ldc > 0 ? args.ldc : args.n;
    if (args.m == 0 || args.n == 0) {
        return 0;
    }
    WEFT_TRY(weft_cuda_blas_plan(place, &args, work_bytes, &plan));
    WEFT_TRY(weft_cuda_blas_run(place, &args, &plan, work_bytes, 1.0f, sums));
    if (!plan.fused && (args.bias != NULL || args.epilogue != WEFT_EPILOGUE_NONE)) {
        WEFT_TRY(run_finish(place, &args));
    }
    if (args.bias_grad != NULL) {
        WEFT_TRY(run_bias_grad(place, &args, (float *)sums));
    }
    return 0;
}
