/* LayerNorm and RMSNorm, with the residual sum in front.
 *
 * Rows of 16 bits up to NARROW elements are held in the registers of one warp, so that a row is
 * read once. All others have a block each and read from cache what they need again. In backward,
 * gradients of weight and bias are summed in two fixed steps: each block over its rows, then over
 * blocks. */
#include "kernel/cuda/common.cuh"

enum {
    WARPS = 8,
    THREADS = 32 * WARPS,
    CHUNK = 32 * LANE,  /* elements that a warp holds at a time */
    NARROW = 8 * CHUNK, /* of a row in registers */
    LIGHT = 3 * CHUNK,  /* of a row, so that an SM has two blocks in backward */
    PARTS = 264,        /* partial sums of weight gradients: two blocks per SM of an H200 */
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
static __global__ void __launch_bounds__(THREADS) norm_narrow(norm_t given)
{
    const norm_t norm = {given.args, given.mask, true};
    const weft_norm_t &args = given.args;
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

/* With y = (x - mean) rstd and g = dout weight: dx = rstd (g - mean(g) - y mean(g y)); RMSNorm has
 * no mean(g). */
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

/* What a warp has summed over its rows. */
template <int CHUNKS> struct sums_t {
    lane8 dw[CHUNKS], db[CHUNKS];
};

/* partial[block][dweight, dbias] = the sums of a block's warps: half of them add those of the other
 * half, until one is left. `shared` is for the sums of WARPS / 2. */
template <int CHUNKS>
static __device__ __forceinline__ void join_warps(sums_t<CHUNKS> &sums, float *shared,
                                                  float *partial, int64_t n)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int half = WARPS / 2; half > 0; half /= 2) {
        float *slot = shared + warp % half * (2 * CHUNKS * CHUNK) + lane * LANE;
        if (warp >= half && warp < 2 * half) {
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                store_wide(slot + c * CHUNK, sums.dw[c]);
                store_wide(slot + (CHUNKS + c) * CHUNK, sums.db[c]);
            }
        }
        __syncthreads();
        if (warp < half) {
#pragma unroll
            for (int c = 0; c < CHUNKS; c++) {
                lane8 dw = load_wide(slot + c * CHUNK), db = load_wide(slot + (CHUNKS + c) * CHUNK);
#pragma unroll
                for (int j = 0; j < LANE; j++) {
                    sums.dw[c].x[j] += dw.x[j];
                    sums.db[c].x[j] += db.x[j];
                }
            }
        }
        __syncthreads();
    }
    partial += blockIdx.x * 2 * n + lane * LANE;
#pragma unroll
    for (int c = 0; c < CHUNKS && warp == 0; c++) {
        store8(partial + c * CHUNK, sums.dw[c], n - c * CHUNK - lane * LANE, true);
        store8(partial + n + c * CHUNK, sums.db[c], n - c * CHUNK - lane * LANE, true);
    }
}

/* What a warp reads of a row, as it is in memory: half the registers, so that the next row is under
 * way while this one is computed. */
template <int CHUNKS> struct raw_t {
    uint4 x[CHUNKS], dout[CHUNKS], dresidual[CHUNKS];
    float mean, rstd;
};

static __device__ __forceinline__ uint4 raw_of(const void *tensor, int64_t at, bool there)
{
    return there ? *reinterpret_cast<const uint4 *>((const uint16_t *)tensor + at) : uint4{};
}

template <int CHUNKS>
static __device__ __forceinline__ void fetch_row(const weft_norm_t &args, int64_t r,
                                                 raw_t<CHUNKS> &raw)
{
    int lane = (int)threadIdx.x % 32;
    bool there = r < args.rows;
    raw.mean = there && !args.rms ? args.mean[r] : 0.0f;
    raw.rstd = there ? args.rstd[r] : 0.0f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int64_t i = c * CHUNK + lane * LANE, at = r * args.width + i;
        bool inside = there && i < args.width;
        raw.x[c] = raw_of(args.x, at, inside);
        raw.dout[c] = raw_of(args.dout, at, inside);
        raw.dresidual[c] = raw_of(args.dresidual, at, inside && args.dresidual != NULL);
    }
}

/* y and g of 8 elements. Past the end of a row dout and weight are 0, and so are g and what is
 * summed. */
template <typename T>
static __device__ __forceinline__ void raw_terms(const weft_norm_t &args, const uint4 &x,
                                                 const lane8 &dout, int64_t i, const row_t &row,
                                                 lane8 &y, lane8 &g)
{
    lane8 weight = load8((const T *)args.weight + i, args.width - i, true);
    y = unpack<T>(x);
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        y.x[j] = (y.x[j] - row.mean) * row.rstd;
        g.x[j] = dout.x[j] * weight.x[j];
    }
}

/* A row's part of the sums, and its dx. */
template <typename T, int CHUNKS>
static __device__ __forceinline__ void take_row(const weft_norm_t &args, int64_t r,
                                                const raw_t<CHUNKS> &raw, sums_t<CHUNKS> &sums)
{
    int lane = (int)threadIdx.x % 32;
    row_t row = {raw.mean, raw.rstd, 0, 0};
    float sum_g = 0, sum_gy = 0;
    lane8 y, g;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        lane8 dout = unpack<T>(raw.dout[c]);
        raw_terms<T>(args, raw.x[c], dout, c * CHUNK + lane * LANE, row, y, g);
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            sums.dw[c].x[j] += dout.x[j] * y.x[j];
            sums.db[c].x[j] += dout.x[j];
            sum_g += g.x[j];
            sum_gy += g.x[j] * y.x[j];
        }
    }
    row.mean_g = args.rms ? 0.0f : warp_sum(sum_g) / (float)args.width;
    row.mean_gy = warp_sum(sum_gy) / (float)args.width;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        int64_t i = c * CHUNK + lane * LANE;
        lane8 dx = unpack<T>(raw.dresidual[c]);
        raw_terms<T>(args, raw.x[c], unpack<T>(raw.dout[c]), i, row, y, g);
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            dx.x[j] += row.rstd * (g.x[j] - row.mean_g - y.x[j] * row.mean_gy);
        }
        store8((T *)args.dx + r * args.width + i, dx, args.width - i, true);
    }
}

/* Where an SM has two blocks, they hide each other's latency; else a warp has the next row on its
 * way. */
template <typename T, int CHUNKS>
static __global__ void __launch_bounds__(THREADS, CHUNKS *CHUNK <= LIGHT ? 2 : 1)
    norm_backward_narrow(norm_t given, float *partial)
{
    extern __shared__ __align__(16) float shared[];
    const bool ahead = CHUNKS * CHUNK > LIGHT && CHUNKS <= 5; /* as far as registers go */
    const weft_norm_t &args = given.args;
    const int64_t stride = (int64_t)gridDim.x * WARPS;
    int64_t r = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    sums_t<CHUNKS> sums = {};
    raw_t<CHUNKS> raw;
    if (ahead) {
        fetch_row<CHUNKS>(args, r, raw);
    }
    for (; r < args.rows; r += stride) {
        if (ahead) {
            raw_t<CHUNKS> next;
            fetch_row<CHUNKS>(args, r + stride, next);
            take_row<T, CHUNKS>(args, r, raw, sums);
            raw = next;
        } else {
            fetch_row<CHUNKS>(args, r, raw);
            take_row<T, CHUNKS>(args, r, raw, sums);
        }
    }
    join_warps<CHUNKS>(sums, shared, partial, args.width);
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
    if (i < 2 * n) {
#pragma unroll 8
        for (int p = part; p < parts; p += THREADS / FINISH_COLUMNS) {
            sum += partial[p * 2 * n + i];
        }
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

/* Has this kernel a warp for a row? */
static bool is_narrow(const norm_t &norm)
{
    return norm.args.type != WEFT_F32 && norm.wide && norm.args.width <= NARROW;
}

typedef void (*forward_fn)(norm_t);
typedef void (*backward_fn)(norm_t, float *);

/* By type (is it f16?) and chunks of a row, less one. Rows of f16 have those of the next power of
 * two: bf16 is what models are trained in, and each instance takes its time to compile. */
#define INSTANCES(name)                                                                            \
    {                                                                                              \
        {name<bf16_t, 1>, name<bf16_t, 2>, name<bf16_t, 3>, name<bf16_t, 4>, name<bf16_t, 5>,      \
         name<bf16_t, 6>, name<bf16_t, 7>, name<bf16_t, 8>},                                       \
        {                                                                                          \
            name<f16_t, 1>, name<f16_t, 2>, NULL, name<f16_t, 4>, NULL, NULL, NULL, name<f16_t, 8> \
        }                                                                                          \
    }
static const forward_fn narrow_forward[2][NARROW / CHUNK] = INSTANCES(norm_narrow);
static const backward_fn narrow_backward[2][NARROW / CHUNK] = INSTANCES(norm_backward_narrow);
#undef INSTANCES

static int64_t chunks_held(const weft_norm_t *args)
{
    int64_t chunks = ceil_div(args->width, CHUNK);
    return args->type != WEFT_F16 || chunks <= 2 ? chunks : chunks <= 4 ? 4 : 8;
}

int weft_cuda_norm_forward(const weft_cuda_exec_t *exec, const weft_norm_t *args)
{
    norm_t norm = {*args, mask_of(&args->mask),
                   is_wide(args->width, args->x, args->branch, args->sum, args->weight, args->bias,
                           args->out)};
    cudaStream_t stream = stream_of(exec);
    if (args->rows == 0) {
        return 0;
    }
    if (is_narrow(norm)) {
        forward_fn kernel = narrow_forward[args->type == WEFT_F16][chunks_held(args) - 1];
        kernel<<<grid_of(args->rows, WARPS), THREADS, 0, stream>>>(norm);
    } else {
        by_type(args->type, [&](auto zero) {
            norm_any<decltype(zero)><<<(unsigned)args->rows, THREADS, 0, stream>>>(norm);
        });
    }
    return launched();
}

/* As many as either kind of kernel has blocks: whether rows can be read 8 at a time is not known
 * when room is made. */
static int64_t parts_of(const weft_norm_t *args)
{
    return args->rows < PARTS ? args->rows : PARTS;
}

static unsigned narrow_parts(const weft_norm_t *args)
{
    int64_t most = chunks_held(args) * CHUNK <= LIGHT ? PARTS : PARTS / 2,
            blocks = ceil_div(args->rows, WARPS);
    return (unsigned)(blocks < most ? blocks : most);
}

size_t weft_cuda_norm_work(int gpu, const weft_norm_t *args)
{
    (void)gpu;
    return (size_t)(parts_of(args) * 2 * args->width) * sizeof(float);
}

int weft_cuda_norm_backward(const weft_cuda_exec_t *exec, const weft_norm_t *args)
{
    norm_t norm = {*args, mask_of(&args->mask),
                   is_wide(args->width, args->x, args->dout, args->dresidual, args->weight,
                           args->dx, args->work)};
    cudaStream_t stream = stream_of(exec);
    backward_fn kernel = by_type(
        args->type, [](auto zero) -> backward_fn { return norm_backward_any<decltype(zero)>; });
    size_t shared = (size_t)(2 * args->width) * sizeof(float);
    unsigned parts = (unsigned)parts_of(args), grid = grid_of(2 * args->width, FINISH_COLUMNS);
    if (args->rows == 0) {
        return 0;
    }
    if (is_narrow(norm)) {
        int64_t chunks = chunks_held(args);
        kernel = narrow_backward[args->type == WEFT_F16][chunks - 1];
        shared = (size_t)(WARPS / 2 * 2 * chunks * CHUNK) * sizeof(float);
        parts = narrow_parts(args);
    }
    if (shared > SHARED_MOST) {
        return WEFT_CUDA_UNSUPPORTED;
    }
    if (shared > 48 << 10) {
        WEFT_TRY(cudaFuncSetAttribute((const void *)kernel,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    }
    kernel<<<parts, THREADS, shared, stream>>>(norm, (float *)args->work);
    by_type(args->grad_type, [&](auto zero) {
        typedef decltype(zero) G;
        norm_finish<<<grid, THREADS, 0, stream>>>((const float *)args->work, (int)parts,
                                                  args->width, (G *)args->dweight,
                                                  (G *)args->dbias);
    });
    return launched();
}
