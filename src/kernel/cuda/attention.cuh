/* Attention on tensor cores: tiles in shared memory, and the instructions that work on them.
 *
 * Tiles hold rows of D elements, bf16 or f16, in units of 16 bytes. Unit u of row r is kept at u ^
 * (r % 8), so that the eight rows that a fragment is loaded from are in different banks. */
#ifndef WEFT_KERNEL_CUDA_ATTENTION_CUH
#define WEFT_KERNEL_CUDA_ATTENTION_CUH

#include "kernel/cuda/common.cuh"

static const float LOG2E = 1.4426950408889634f;

/* The layout of compute.h, in elements: where head h of token t starts in queries, keys, values. */
struct heads_t {
    int64_t batch, seq, row; /* row: elements from a token to the next in qkv */
    int heads, kv_heads, head_dim, group; /* group: query heads per key/value head */
    float scale;
    mask_t mask;
};

static inline heads_t heads_of(const weft_attention_t *args)
{
    return {args->batch, args->seq,
            (int64_t)(args->heads + 2 * args->kv_heads) * args->head_dim,
            args->heads, args->kv_heads, args->head_dim, args->heads / args->kv_heads,
            args->scale, mask_of(&args->mask)};
}

/* The first element of the row of probabilities of (b, h, t) among all that dropout numbers. */
static __device__ __forceinline__ int64_t mask_row(const heads_t &at, int64_t b, int h, int64_t t)
{
    int64_t head = (at.mask.row0 + b) * at.mask.width + at.mask.column0 + h;
    return (head * at.seq + t) * at.seq;
}

/* Own kernels without tensor cores, for f32 and for heads of any size. */
int weft_cuda_attention_forward_plain(const weft_cuda_exec_t *exec, const weft_attention_t *args);
int weft_cuda_attention_backward_plain(const weft_cuda_exec_t *exec,
                                       const weft_attention_t *args);
/* delta[b][h][t] = sum of dout x out over the head; `flags` (if not NULL) become 0. */
int weft_cuda_attention_delta(const weft_cuda_exec_t *exec, const weft_attention_t *args,
                              float *delta, uint32_t *flags, int64_t flag_count);

/* With tensor cores: bf16 and f16, heads of a multiple of 8 up to 128, aligned to 16 bytes. Tiles
 * have rows of 64 or 128 elements; those past the end of a head are 0 in them, and are not
 * written. */
enum { NARROW_HEAD = 64, BROAD_HEAD = 128 };
static inline bool attention_has_tiles(const weft_attention_t *args)
{
    return args->type != WEFT_F32 && args->head_dim % LANE == 0 && args->head_dim <= BROAD_HEAD;
}
static inline bool attention_is_fast(const weft_cuda_exec_t *exec, const weft_attention_t *args)
{
    return exec->attention != WEFT_CUDA_ATTENTION_PLAIN && attention_has_tiles(args) &&
           is_wide(LANE, args->qkv, args->out, args->dout, args->dqkv, args->work);
}
int weft_cuda_attention_backward_fast(const weft_cuda_exec_t *exec, const weft_attention_t *args);
size_t weft_cuda_attention_fast_work(const weft_attention_t *args);

/* With Hopper's, which only sm_90 has: heads of 64. */
bool attention_is_hopper(const weft_cuda_exec_t *exec, const weft_attention_t *args);
int weft_cuda_attention_forward_hopper(const weft_cuda_exec_t *exec,
                                       const weft_attention_t *args);
int weft_cuda_attention_backward_hopper(const weft_cuda_exec_t *exec,
                                        const weft_attention_t *args);
size_t weft_cuda_attention_hopper_work(const weft_attention_t *args);

/* ---- fragments ------------------------------------------------------------------------------ */

__device__ __forceinline__ uint32_t shared_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* Byte offset of unit `unit` of row `row` in a tile with rows of D. */
template <int D> __device__ __forceinline__ uint32_t unit_at(int row, int unit)
{
    return (uint32_t)((row * (D / LANE) + (unit ^ (row & 7))) * 16);
}

__device__ __forceinline__ void load_matrices(uint32_t out[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
}

__device__ __forceinline__ void load_matrices_transposed(uint32_t out[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(address));
}

/* The four kinds of fragments of 16 x 16, from a tile with rows of D elements:
 *
 *   rows_a   A of row..row+15 and columns unit, unit + 1                       (16 x k)
 *   rows_b   B whose columns are the tile's rows: two of 8 columns each        (k x 16, transposed)
 *   cols_b   B whose rows are the tile's rows, columns unit and unit + 1       (k x 16)
 *   cols_a   A whose columns are the tile's rows, rows are columns of it       (16 x k,
 *                                                                              transposed) */
template <int D>
__device__ __forceinline__ void rows_a(uint32_t out[4], uint32_t tile, int row, int unit)
{
    int lane = (int)threadIdx.x % 32;
    load_matrices(out, tile + unit_at<D>(row + lane % 16, unit + lane / 16));
}

template <int D>
__device__ __forceinline__ void rows_b(uint32_t out[4], uint32_t tile, int row, int unit)
{
    int lane = (int)threadIdx.x % 32;
    load_matrices(out, tile + unit_at<D>(row + lane % 8 + lane / 16 * 8, unit + lane / 8 % 2));
}

template <int D>
__device__ __forceinline__ void cols_b(uint32_t out[4], uint32_t tile, int row, int unit)
{
    int lane = (int)threadIdx.x % 32;
    load_matrices_transposed(out, tile + unit_at<D>(row + lane % 16, unit + lane / 16));
}

template <int D>
__device__ __forceinline__ void cols_a(uint32_t out[4], uint32_t tile, int row, int unit)
{
    int lane = (int)threadIdx.x % 32;
    load_matrices_transposed(
        out, tile + unit_at<D>(row + lane % 8 + lane / 16 * 8, unit + lane / 8 % 2));
}

/* c += a b: 16 x 16 times 16 x 8, in f32. A thread holds c of rows lane / 4 and + 8, columns
 * 2 (lane % 4) and + 1. T is what a and b are made of. */
template <typename T>
__device__ __forceinline__ void multiply(float c[4], const uint32_t a[4], const uint32_t b[2]);

#define WEFT_MULTIPLY(T, type)                                                                     \
    template <>                                                                                    \
    __device__ __forceinline__ void multiply<T>(float c[4], const uint32_t a[4],                   \
                                                const uint32_t b[2])                               \
    {                                                                                              \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, " \
                     "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                      \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));          \
    }
WEFT_MULTIPLY(bf16_t, "bf16")
WEFT_MULTIPLY(f16_t, "f16")
#undef WEFT_MULTIPLY

/* Two neighbouring accumulators as the A of the next product. */
template <typename T>
__device__ __forceinline__ void as_a(uint32_t out[4], const float left[4], const float right[4])
{
    out[0] = pack2<T>(left[0], left[1]);
    out[1] = pack2<T>(left[2], left[3]);
    out[2] = pack2<T>(right[0], right[1]);
    out[3] = pack2<T>(right[2], right[3]);
}

/* ---- tiles ---------------------------------------------------------------------------------- */

/* Start copying rows [first, first + ROWS) of a head of `dim` elements into a tile; rows from `end`
 * on, and elements from `dim` on, become 0. */
template <int D, int ROWS, int THREADS, typename T>
__device__ __forceinline__ void fetch_tile(uint32_t tile, const T *from, int64_t stride,
                                           int64_t first, int64_t end, int dim)
{
    const int units = D / LANE;
    static_assert(ROWS * units % THREADS == 0, "every thread copies as much");
#pragma unroll
    for (int i = 0; i < ROWS * units / THREADS; i++) {
        int at = i * THREADS + (int)threadIdx.x, row = at / units, unit = at % units;
        bool inside = first + row < end && unit * LANE < dim;
        const T *source = from + (inside ? (first + row) * stride + unit * LANE : 0);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         tile + unit_at<D>(row, unit)),
                     "l"(source), "r"(inside ? 16 : 0));
    }
}

__device__ __forceinline__ void fetch_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Wait until at most `LEFT` of the groups that were committed are under way. */
template <int LEFT> __device__ __forceinline__ void fetch_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#endif
