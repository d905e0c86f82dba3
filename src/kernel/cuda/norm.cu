/* LayerNorm and RMSNorm, with the residual sum in front.
 *
 * Rows up to NARROW elements are held in the registers of one warp, so that a row is read once.
 * Wider ones have a block each and read from cache what they need again. In backward, gradients of
 * weight and bias are summed in two fixed steps: each block over its rows, then over blocks. */
#include "kernel/cuda/common.cuh"

enum {
    WARPS = 8,
    THREADS = 32 * WARPS,
    CHUNK = 32 * LANE,    /* elements that a warp holds at a time */
    NARROW = 8 * CHUNK,   /* of a row in registers */
    PARTS = 264,          /* partial sums of weight gradients: two blocks per SM of an H200 */
    FINISH_COLUMNS = 32,
    SHARED_MOST = 200 << 10
};

struct norm_t {
    weft_norm_t args;
    mask_t mask;
    bool wide;
};

/* x = residual + mask(branch), as it is stored and read again, or simply x. */
template <typename T>
static __device__ __forceinline__ lane8 norm_input(const norm_t &norm, int64_t row, int64_t i)
{
    const weft_norm_t &args = norm.args;
    int64_t at = row * args.width + i, left = args.width - i;
    lane8 x = load8((const T *)args.x + at, left, norm.wide);
    if (args.branch == NULL) {
        return x;
    }
    lane8 branch = load8((const T *)args.branch + at, left, norm.wide);
    drop8(norm.mask, row, i, branch);
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        x.x[j] = rounded<T>(x.x[j] + branch.x[j]);
    }
    store8((T *)args.sum + at, x, left, norm.wide);
    return x;
}

template <typename T>
static __device__ __forceinline__ void norm_output(const norm_t &norm, int64_t row, int64_t i,
                                                   lane8 x, float mean, float rstd)
{
    const weft_norm_t &args = norm.args;
    int64_t left = args.width - i;
    lane8 weight = load8((const T *)args.weight + i, left, norm.wide);
    lane8 bias = {};
    if (args.bias != NULL) {
        bias = load8((const T *)args.bias + i, left, norm.wide);
    }
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        x.x[j] = (x.x[j] - mean) * rstd * weight.x[j] + bias.x[j];
    }
    store8((T *)args.out + row * args.width + i, x, left, norm.wide);
}

static __device__ __forceinline__ float squares8(const lane8 &x, int64_t left, float mean)
{
    float sum = 0;
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        float d = j < left ? x.x[j] - mean : 0.0f;
        sum += d * d;
    }
    return sum;
}

static __device__ __forceinline__ float sum8(const lane8 &x)
{
    return ((x.x[0] + x.x[1]) + (x.x[2] + x.x[3])) + ((x.x[4] + x.x[5]) + (x.x[6] + x.x[7]));
}

static __device__ __forceinline__ void keep_statistics(const weft_norm_t &args, int64_t row,
                                                       float mean, float rstd)
{
    args.rstd[row] = rstd;
    if (!args.rms) {
        args.mean[row] = mean;
    }
}

/* ---- forward ------------------------------------------------------------------------------- */

template <typename T, int CHUNKS>
static __global__ void __launch_bounds__(THREADS) norm_narrow(norm_t norm)
{
    const weft_norm_t &args = norm.args;
    int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, n = args.width;
    int lane = (int)threadIdx.x % 32;
    lane8 x[CHUNKS];
    float sum = 0, squares = 0, mean = 0;
    if (row >= args.rows) {
        return;
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        x[c] = norm_input<T>(norm, row, c * CHUNK + lane * LANE);
        sum += sum8(x[c]);
    }
    mean = args.rms ? 0.0f : warp_sum(sum) / (float)n;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        squares += squares8(x[c], n - c * CHUNK - lane * LANE, mean);
    }
    float rstd = 1.0f / sqrtf(warp_sum(squares) / (float)n + args.eps);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        norm_output<T>(norm, row, c * CHUNK + lane * LANE, x[c], mean, rstd);
    }
    if (lane == 0) {
        keep_statistics(args, row, mean, rstd);
    }
}

template <typename T> static __global__ void __launch_bounds__(THREADS) norm_any(norm_t norm)
{
    __shared__ float slots[32];
    const weft_norm_t &args = norm.args;
    const T *x = (const T *)(args.branch != NULL ? args.sum : args.x);
    int64_t row = blockIdx.x, n = args.width, first = (int64_t)threadIdx.x * LANE;
    float sum = 0, squares = 0;
    for (int64_t i = first; i < n; i += THREADS * LANE) {
        sum += sum8(norm_input<T>(norm, row, i));
    }
    /* A thread reads again only what it wrote itself. */
    float mean = block_sum(sum, slots) / (float)n;
    mean = args.rms ? 0.0f : mean;
    for (int64_t i = first; i < n; i += THREADS * LANE) {
        squares += squares8(load8(x + row * n + i, n - i, norm.wide), n - i, mean);
    }
    float rstd = 1.0f / sqrtf(block_sum(squares, slots) / (float)n + args.eps);
    for (int64_t i = first; i < n; i += THREADS * LANE) {
        norm_output<T>(norm, row, i, load8(x + row * n + i, n - i, norm.wide), mean, rstd);
    }
    if (threadIdx.x == 0) {
        keep_statistics(args, row, mean, rstd);
    }
}

/* ---- backward ------------------------------------------------------------------------------ */

/* With y = (x - mean) rstd and g = dout weight: dx = rstd (g - mean(g) - y mean(g y)); RMSNorm has no
 * mean(g). */
struct row_t {
    float mean, rstd, mean_g, mean_gy;
};

template <typename T>
static __device__ __forceinline__ void norm_gradient(const norm_t &norm, int64_t at, int64_t left,
                                                     const lane8 &y, const lane8 &g,
                                                     const row_t &row)
{
    const weft_norm_t &args = norm.args;
    lane8 dx = {};
    if (args.dresidual != NULL) {
        dx = load8((const T *)args.dresidual + at, left, norm.wide);
    }
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        dx.x[j] += row.rstd * (g.x[j] - row.mean_g - y.x[j] * row.mean_gy);
    }
    store8((T *)args.dx + at, dx, left, norm.wide);
}

/* y, g and the products that are summed, of 8 elements of a row. */
template <typename T>
static __device__ __forceinline__ void norm_terms(const norm_t &norm, int64_t at, int64_t i,
                                                  const row_t &row, lane8 &y, lane8 &g, lane8 &dout)
{
    const weft_norm_t &args = norm.args;
    int64_t left = args.width - i;
    lane8 weight = load8((const T *)args.weight + i, left, norm.wide);
    y = load8((const T *)args.x + at, left, norm.wide);
    dout = load8((const T *)args.dout + at, left, norm.wide);
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        y.x[j] = j < left ? (y.x[j] - row.mean) * row.rstd : 0.0f;
        g.x[j] = dout.x[j] * weight.x[j];
    }
}

/* partial[block][dweight, dbias]: a block's warps put their sums together in order. */
template <typename T, int CHUNKS>
static __global__ void __launch_bounds__(THREADS, CHUNKS <= 3 ? 2 : 1)
    norm_backward_narrow(norm_t norm, float *partial)
{
    extern __shared__ float shared[]; /* 2 x width */
    const weft_norm_t &args = norm.args;
    int64_t n = args.width;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    lane8 dw[CHUNKS] = {}, db[CHUNKS] = {};
    for (int64_t r = (int64_t)blockIdx.x * WARPS + warp; r < args.rows;
         r += (int64_t)gridDim.x * WARPS) {
        row_t row = {args.rms ? 0.0f : args.mean[r], args.rstd[r], 0, 0};
        lane8 y[CHUNKS], g[CHUNKS];
        float sum_g = 0, sum_gy = 0;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            int64_t i = c * CHUNK + lane * LANE;
            lane8 dout;
            norm_terms<T>(norm, r * n + i, i, row, y[c], g[c], dout);
#pragma unroll
            for (int j = 0; j < LANE; j++) {
                dw[c].x[j] += dout.x[j] * y[c].x[j];
                db[c].x[j] += dout.x[j];
                sum_g += g[c].x[j];
                sum_gy += g[c].x[j] * y[c].x[j];
            }
        }
        row.mean_g = args.rms ? 0.0f : warp_sum(sum_g) / (float)n;
        row.mean_gy = warp_sum(sum_gy) / (float)n;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            int64_t i = c * CHUNK + lane * LANE;
            norm_gradient<T>(norm, r * n + i, n - i, y[c], g[c], row);
        }
    }
    for (int turn = 0; turn < WARPS; turn++) {
        if (turn == warp) {
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
                for (int j = 0; j < LANE; j++) {
                    int64_t i = c * CHUNK + lane * LANE + j;
                    if (i < n) {
                        shared[i] = (turn > 0 ? shared[i] : 0.0f) + dw[c].x[j];
                        shared[n + i] = (turn > 0 ? shared[n + i] : 0.0f) + db[c].x[j];
                    }
                }
            }
        }
        __syncthreads();
    }
    for (int64_t i = threadIdx.x; i < 2 * n; i += THREADS) {
        partial[blockIdx.x * 2 * n + i] = shared[i];
    }
}

/* Each thread has columns of its own, whose sums are in shared memory. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) norm_backward_any(norm_t norm, float *partial)
{
    extern __shared__ float shared[]; /* 2 x width */
    __shared__ float slots[32];
    const weft_norm_t &args = norm.args;
    int64_t n = args.width, first = (int64_t)threadIdx.x * LANE;
    for (int64_t i = threadIdx.x; i < 2 * n; i += THREADS) {
        shared[i] = 0;
    }
    for (int64_t r = blockIdx.x; r < args.rows; r += gridDim.x) {
        row_t row = {args.rms ? 0.0f : args.mean[r], args.rstd[r], 0, 0};
        float sum_g = 0, sum_gy = 0;
        lane8 y, g, dout;
        __syncthreads();
        for (int64_t i = first; i < n; i += THREADS * LANE) {
            norm_terms<T>(norm, r * n + i, i, row, y, g, dout);
            for (int j = 0; j < LANE && i + j < n; j++) {
                shared[i + j] += dout.x[j] * y.x[j];
                shared[n + i + j] += dout.x[j];
                sum_g += g.x[j];
                sum_gy += g.x[j] * y.x[j];
            }
        }
        row.mean_g = block_sum(sum_g, slots) / (float)n;
        row.mean_g = args.rms ? 0.0f : row.mean_g;
        row.mean_gy = block_sum(sum_gy, slots) / (float)n;
        for (int64_t i = first; i < n; i += THREADS * LANE) {
            norm_terms<T>(norm, r * n + i, i, row, y, g, dout);
            norm_gradient<T>(norm, r * n + i, n - i, y, g, row);
        }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < 2 * n; i += THREADS) {
        partial[blockIdx.x * 2 * n + i] = shared[i];
    }
}

/* dweight and dbias += the sums of blocks: 8 threads a column, each some of the blocks in order. */
template <typename G>
static __global__ void __launch_bounds__(THREADS)
    norm_finish(const float *partial, int parts, int64_t n, G *dweight, G *dbias)
{
    __shared__ float sums[THREADS / FINISH_COLUMNS][FINISH_COLUMNS];
    int column = (int)threadIdx.x % FINISH_COLUMNS, part = (int)threadIdx.x / FINISH_COLUMNS;
    int64_t i = (int64_t)blockIdx.x * FINISH_COLUMNS + column;
    float sum = 0;
    for (int p = part; p < parts && i < 2 * n; p += THREADS / FINISH_COLUMNS) {
        sum += partial[p * 2 * n + i];
    }
    sums[part][column] = sum;
    __syncthreads();
    G *out = i < n ? dweight : dbias;
    if (part != 0 || i >= 2 * n || out == NULL) {
        return;
    }
    for (int p = 1; p < THREADS / FINISH_COLUMNS; p++) {
        sum += sums[p][column];
    }
    out += i < n ? i : i - n;
    *out = from_float<G>(to_float(*out) + sum);
}

/* ---- launches ------------------------------------------------------------------------------ */

template <typename T>
static int run_forward(const weft_cuda_place_t *place, const norm_t &norm)
{
    unsigned grid = grid_of(norm.args.rows, WARPS);
    cudaStream_t stream = stream_of(place);
    switch (norm.args.width <= NARROW ? ceil_div(norm.args.width, CHUNK) : 0) {
#define CASE(chunks)                                                                               \
    case chunks: norm_narrow<T, chunks><<<grid, THREADS, 0, stream>>>(norm); break;
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
#undef CASE
    default: norm_any<T><<<(unsigned)norm.args.rows, THREADS, 0, stream>>>(norm); break;
    }
    return launched();
}

int weft_cuda_norm_forward(const weft_cuda_place_t *place, const weft_norm_t *args)
{
    norm_t norm = {*args, mask_of(&args->mask),
                   is_wide(args->width, args->x, args->branch, args->sum, args->weight, args->bias,
                           args->out)};
    if (args->rows == 0) {
        return 0;
    }
    return args->type == WEFT_F32 ? run_forward<float>(place, norm)
                                  : run_forward<bf16_t>(place, norm);
}

static int64_t parts_of(const weft_norm_t *args)
{
    int64_t each = args->width <= NARROW ? WARPS : 1, blocks = ceil_div(args->rows, each);
    return blocks < PARTS ? blocks : PARTS;
}

size_t weft_cuda_norm_work(int gpu, const weft_norm_t *args)
{
    (void)gpu;
    return (size_t)(parts_of(args) * 2 * args->width) * sizeof(float);
}

template <typename T>
static int run_backward(const weft_cuda_place_t *place, const norm_t &norm)
{
    typedef void (*kernel_fn)(norm_t, float *);
    static const kernel_fn kernels[] = {
        norm_backward_any<T>,       norm_backward_narrow<T, 1>, norm_backward_narrow<T, 2>,
        norm_backward_narrow<T, 3>, norm_backward_narrow<T, 4>, norm_backward_narrow<T, 5>,
        norm_backward_narrow<T, 6>, norm_backward_narrow<T, 7>, norm_backward_narrow<T, 8>};
    const weft_norm_t *args = &norm.args;
    kernel_fn kernel = kernels[args->width <= NARROW ? ceil_div(args->width, CHUNK) : 0];
    size_t shared = (size_t)(2 * args->width) * sizeof(float);
    int parts = (int)parts_of(args);
    if (shared > SHARED_MOST) {
        return WEFT_CUDA_UNSUPPORTED;
    }
    if (shared > 48 << 10) {
        WEFT_TRY(cudaFuncSetAttribute((const void *)kernel,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    }
    kernel<<<(unsigned)parts, THREADS, shared, stream_of(place)>>>(norm, (float *)args->work);
    unsigned grid = grid_of(2 * args->width, FINISH_COLUMNS);
    if (args->grad_type == WEFT_F32) {
        norm_finish<<<grid, THREADS, 0, stream_of(place)>>>((const float *)args->work, parts,
                                                            args->width, (float *)args->dweight,
                                                            (float *)args->dbias);
    } else {
        norm_finish<<<grid, THREADS, 0, stream_of(place)>>>((const float *)args->work, parts,
                                                            args->width, (bf16_t *)args->dweight,
                                                            (bf16_t *)args->dbias);
    }
    return launched();
}

int weft_cuda_norm_backward(const weft_cuda_place_t *place, const weft_norm_t *args)
{
    norm_t norm = {*args, mask_of(&args->mask),
                   is_wide(args->width, args->x, args->dout, args->dresidual, args->weight,
                           args->dx)};
    if (args->rows == 0) {
        return 0;
    }
    return args->type == WEFT_F32 ? run_backward<float>(place, norm)
                                  : run_backward<bf16_t>(place, norm);
}
