/* Kernels that work element by element: activations, dropout, casts, RoPE. */
#include "kernel/cuda/common.cuh"

enum { THREADS = 256 };

/* ---- GELU ---------------------------------------------------------------------------------- */

template <typename T, bool BACKWARD>
static __global__ void __launch_bounds__(THREADS) gelu(weft_gelu_t args, bool wide)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * LANE, left = args.count - i;
    if (left <= 0) {
        return;
    }
    wide = wide && left >= LANE;
    lane8 x = load8((const T *)args.in + i, left, wide);
    if (BACKWARD) {
        lane8 dout = load8((const T *)args.dout + i, left, wide);
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            x.x[j] = dout.x[j] * gelu_slope(x.x[j]);
        }
        store8((T *)args.din + i, x, left, wide);
    } else {
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            x.x[j] = gelu_of(x.x[j]);
        }
        store8((T *)args.out + i, x, left, wide);
    }
}

template <bool BACKWARD>
static int run_gelu(const weft_cuda_exec_t *exec, const weft_gelu_t *args)
{
    bool wide = BACKWARD ? is_wide(LANE, args->in, args->dout, args->din)
                         : is_wide(LANE, args->in, args->out);
    unsigned grid = grid_of(args->count, THREADS * LANE);
    by_type(args->type, [&](auto zero) {
        gelu<decltype(zero), BACKWARD><<<grid, THREADS, 0, stream_of(exec)>>>(*args, wide);
    });
    return launched();
}

int weft_cuda_gelu_forward(const weft_cuda_exec_t *exec, const weft_gelu_t *args)
{
    return run_gelu<false>(exec, args);
}

int weft_cuda_gelu_backward(const weft_cuda_exec_t *exec, const weft_gelu_t *args)
{
    return run_gelu<true>(exec, args);
}

/* ---- SwiGLU -------------------------------------------------------------------------------- */

template <typename T, bool BACKWARD>
static __global__ void __launch_bounds__(THREADS) swiglu(weft_swiglu_t args, int64_t chunks,
                                                         bool wide)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, n = args.width;
    int64_t row = at / chunks, i = at % chunks * LANE, left = n - i;
    if (row >= args.rows) {
        return;
    }
    const T *in = (const T *)args.in + row * 2 * n + i;
    lane8 gate = load8(in, left, wide), up = load8(in + n, left, wide), result;
    if (!BACKWARD) {
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            result.x[j] = gate.x[j] * sigmoid(gate.x[j]) * up.x[j];
        }
        store8((T *)args.out + row * n + i, result, left, wide);
        return;
    }
    lane8 dout = load8((const T *)args.dout + row * n + i, left, wide);
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        float g = gate.x[j], s = sigmoid(g);
        result.x[j] = dout.x[j] * up.x[j] * s * (1.0f + g * (1.0f - s));
        up.x[j] = dout.x[j] * g * s;
    }
    T *din = (T *)args.din + row * 2 * n + i;
    store8(din, result, left, wide);
    store8(din + n, up, left, wide);
}

template <bool BACKWARD>
static int run_swiglu(const weft_cuda_exec_t *exec, const weft_swiglu_t *args)
{
    bool wide = BACKWARD ? is_wide(args->width, args->in, args->dout, args->din)
                         : is_wide(args->width, args->in, args->out);
    int64_t chunks = ceil_div(args->width, LANE);
    unsigned grid = grid_of(args->rows * chunks, THREADS);
    by_type(args->type, [&](auto zero) {
        swiglu<decltype(zero), BACKWARD>
            <<<grid, THREADS, 0, stream_of(exec)>>>(*args, chunks, wide);
    });
    return launched();
}

int weft_cuda_swiglu_forward(const weft_cuda_exec_t *exec, const weft_swiglu_t *args)
{
    return run_swiglu<false>(exec, args);
}

int weft_cuda_swiglu_backward(const weft_cuda_exec_t *exec, const weft_swiglu_t *args)
{
    return run_swiglu<true>(exec, args);
}

/* ---- dropout ------------------------------------------------------------------------------- */

template <typename T>
static __global__ void __launch_bounds__(THREADS) drop(weft_dropout_t args, mask_t mask,
                                                       int64_t chunks, bool wide)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, n = args.width;
    int64_t row = at / chunks, i = at % chunks * LANE, left = n - i;
    if (row >= args.rows) {
        return;
    }
    lane8 x = load8((const T *)args.in + row * n + i, left, wide);
    drop8(mask, row, i, x);
    if (args.residual != NULL) {
        lane8 residual = load8((const T *)args.residual + row * n + i, left, wide);
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            x.x[j] += residual.x[j];
        }
    }
    store8((T *)args.out + row * n + i, x, left, wide);
}

int weft_cuda_dropout(const weft_cuda_exec_t *exec, const weft_dropout_t *args)
{
    bool wide = is_wide(args->width, args->in, args->residual, args->out);
    int64_t chunks = ceil_div(args->width, LANE);
    unsigned grid = grid_of(args->rows * chunks, THREADS);
    mask_t mask = mask_of(&args->mask);
    by_type(args->type, [&](auto zero) {
        drop<decltype(zero)><<<grid, THREADS, 0, stream_of(exec)>>>(*args, mask, chunks, wide);
    });
    return launched();
}

/* ---- casts --------------------------------------------------------------------------------- */

template <typename IN, typename OUT>
static __global__ void __launch_bounds__(THREADS) convert(const IN *in, OUT *out, int64_t count,
                                                          bool wide)
{
    int64_t i = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * LANE, left = count - i;
    if (left > 0) {
        wide = wide && left >= LANE;
        store8(out + i, load8(in + i, left, wide), left, wide);
    }
}

template <typename IN>
static void run_cast(const weft_cuda_exec_t *exec, const weft_cast_t *args)
{
    bool wide = is_wide(LANE, args->in, args->out);
    unsigned grid = grid_of(args->count, THREADS * LANE);
    by_type(args->out_type, [&](auto zero) {
        convert<<<grid, THREADS, 0, stream_of(exec)>>>(
            (const IN *)args->in, (decltype(zero) *)args->out, args->count, wide);
    });
}

int weft_cuda_cast(const weft_cuda_exec_t *exec, const weft_cast_t *args)
{
    by_type(args->in_type, [&](auto zero) { run_cast<decltype(zero)>(exec, args); });
    return launched();
}

/* ---- RoPE ---------------------------------------------------------------------------------- */

/* A thread turns one pair of elements of all heads of a token. Angles as in the CPU's kernel: the
 * turn per position in f64, its product with the position in f32. */
template <typename T> static __global__ void __launch_bounds__(THREADS) turn(weft_rope_t args)
{
    int half = args.head_dim / 2, heads = args.heads + args.kv_heads;
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    int64_t row = at / half, i = at % half;
    if (row >= args.batch * args.seq) {
        return;
    }
    double per_position = pow((double)args.theta, -2.0 * (double)i / args.head_dim);
    float angle = (float)(args.position_first + row % args.seq) * (float)per_position, c, s;
    sincosf(angle, &s, &c);
    s = args.inverse ? -s : s;
    T *x = (T *)args.qkv + row * (args.heads + 2 * args.kv_heads) * args.head_dim + i;
    for (int head = 0; head < heads; head++, x += args.head_dim) {
        float a = to_float(x[0]), b = to_float(x[half]);
        x[0] = from_float<T>(a * c - b * s);
        x[half] = from_float<T>(b * c + a * s);
    }
}

int weft_cuda_rope(const weft_cuda_exec_t *exec, const weft_rope_t *args)
{
    unsigned grid = grid_of(args->batch * args->seq * (args->head_dim / 2), THREADS);
    by_type(args->type, [&](auto zero) {
        turn<decltype(zero)><<<grid, THREADS, 0, stream_of(exec)>>>(*args);
    });
    return launched();
}
