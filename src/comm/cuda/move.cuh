/* Moving and reducing ranges of memory with a whole grid: 16 bytes an access where the addresses
 * allow it, several in flight per thread. */
#ifndef WEFT_COMM_CUDA_MOVE_CUH
#define WEFT_COMM_CUDA_MOVE_CUH

#include "kernel/element.cuh"

/* The threads that share a piece of work: those of `blocks` blocks, of which this one is
 * `block`. */
typedef struct crew {
    uint32_t block, blocks;
} crew_t;

static __device__ __forceinline__ uint64_t crew_first(const crew_t &crew)
{
    return (uint64_t)crew.block * blockDim.x + threadIdx.x;
}

static __device__ __forceinline__ uint64_t crew_step(const crew_t &crew)
{
    return (uint64_t)crew.blocks * blockDim.x;
}

/* ---- copies ----------------------------------------------------------------------------- */

#define COPY_UNROLL 8

template <typename V>
static __device__ __forceinline__ void copy_as(char *dst, const char *src, uint64_t count,
                                               const crew_t &crew)
{
    V *to = (V *)dst;
    const V *from = (const V *)src;
    uint64_t step = crew_step(crew), i = crew_first(crew);
    for (; i + (COPY_UNROLL - 1) * step < count; i += COPY_UNROLL * step) {
        V v[COPY_UNROLL];
#pragma unroll
        for (int k = 0; k < COPY_UNROLL; k++) {
            v[k] = from[i + k * step];
        }
#pragma unroll
        for (int k = 0; k < COPY_UNROLL; k++) {
            to[i + k * step] = v[k];
        }
    }
    for (; i < count; i += step) {
        to[i] = from[i];
    }
}

static __device__ __noinline__ void copy_odd(char *dst, const char *src, uint64_t bytes,
                                             const crew_t &crew)
{
    if ((((uintptr_t)dst | (uintptr_t)src | bytes) & 3) == 0) {
        copy_as<uint32_t>(dst, src, bytes / 4, crew);
    } else {
        copy_as<uint8_t>(dst, src, bytes, crew);
    }
}

/* `bytes` from src to dst, which do not overlap. */
static __device__ __forceinline__ void crew_copy(char *dst, const char *src, uint64_t bytes,
                                                 const crew_t &crew)
{
    if (bytes == 0 || dst == src) {
        return;
    }
    uint64_t even = (((uintptr_t)dst | (uintptr_t)src) & 15) == 0 ? bytes / 16 * 16 : 0;
    if (even > 0) {
        copy_as<uint4>(dst, src, even / 16, crew);
    }
    if (even < bytes) {
        copy_odd(dst + even, src + even, bytes - even, crew);
    }
}

template <typename V>
static __device__ __forceinline__ void trade_as(const char *a_src, char *a_dst, const char *b_src,
                                                char *b_dst, uint64_t count, const crew_t &crew)
{
    for (uint64_t i = crew_first(crew); i < count; i += crew_step(crew)) {
        V x = ((const V *)a_src)[i], y = ((const V *)b_src)[i];
        ((V *)a_dst)[i] = y;
        ((V *)b_dst)[i] = x;
    }
}

/* a_dst gets what b_src has and b_dst what a_src has; sources may be destinations. */
static __device__ __noinline__ void crew_trade(const char *a_src, char *a_dst, const char *b_src,
                                               char *b_dst, uint64_t bytes, const crew_t &crew)
{
    if ((((uintptr_t)a_src | (uintptr_t)a_dst | (uintptr_t)b_src | (uintptr_t)b_dst | bytes) &
         15) == 0) {
        trade_as<uint4>(a_src, a_dst, b_src, b_dst, bytes / 16, crew);
    } else {
        trade_as<uint8_t>(a_src, a_dst, b_src, b_dst, bytes, crew);
    }
}

/* ---- reductions ------------------------------------------------------------------------- */

/* Sources and destinations in shared memory; `at` is added to all of them. */
typedef struct columns {
    char *const *src, *const *dst;
    int nsrc, ndst, ranks;
} columns_t;

/* Vectors that a thread has in flight from one source. Halves need twice the registers, and float8
 * four times as many. */
template <int TYPE> struct reduce_unroll {
    typedef weft_element<TYPE> E;
    static const int SPREAD = (int)(sizeof(typename E::A) / sizeof(typename E::T));
    static const int U = SPREAD == 4 ? 1 : sizeof(typename E::T) <= 2 ? 2 : 4;
};

template <int TYPE, int OP, int U>
static __device__ __forceinline__ void reduce_vectors(const columns_t &c, uint64_t i, uint64_t step,
                                                      uint64_t count)
{
    weft_pack<TYPE, OP, 16> sum[U];
#pragma unroll 2
    for (int p = 0; p < c.nsrc; p++) {
        const uint4 *src = (const uint4 *)c.src[p];
        uint4 v[U];
#pragma unroll
        for (int k = 0; k < U; k++) {
            v[k] = i + k * step < count ? src[i + k * step] : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < U; k++) {
            const uint32_t words[4] = {v[k].x, v[k].y, v[k].z, v[k].w};
            if (p == 0) {
                sum[k].set(words);
            } else {
                sum[k].combine(words);
            }
        }
    }
#pragma unroll
    for (int k = 0; k < U; k++) {
        uint32_t out[4];
        sum[k].get(c.ranks, out);
        if (i + k * step < count) {
            uint4 v = make_uint4(out[0], out[1], out[2], out[3]);
            for (int p = 0; p < c.ndst; p++) {
                ((uint4 *)c.dst[p])[i + k * step] = v;
            }
        }
    }
}

/* One element at a time, for odd addresses and rests. Code that is rarely needed stays out of the
 * way: a small call takes hardly longer than to fetch its instructions. */
template <int TYPE, int OP>
static __device__ __noinline__ void reduce_elements(const columns_t &c, uint64_t i, uint64_t step,
                                                    uint64_t count)
{
    typedef weft_element<TYPE> E;
    typedef typename E::T T;
    for (; i < count; i += step) {
        typename E::A sum = E::load(((const T *)c.src[0])[i]);
#pragma unroll 1
        for (int p = 1; p < c.nsrc; p++) {
            sum = weft_combine<OP>(sum, E::load(((const T *)c.src[p])[i]));
        }
        T out = E::store(OP == WEFT_AVG ? weft_divide(sum, c.ranks) : sum);
#pragma unroll 1
        for (int p = 0; p < c.ndst; p++) {
            ((T *)c.dst[p])[i] = out;
        }
    }
}

/* `count` elements of all columns. */
template <int TYPE, int OP>
static __device__ __forceinline__ void crew_reduce(const columns_t &c, uint64_t count,
                                                   const crew_t &crew)
{
    const int PER = 16 / (int)sizeof(typename weft_element<TYPE>::T);
    const int U = reduce_unroll<TYPE>::U;
    uintptr_t together = 0;
#pragma unroll 1
    for (int p = 0; p < c.nsrc; p++) {
        together |= (uintptr_t)c.src[p] | (uintptr_t)c.dst[p < c.ndst ? p : 0];
    }
    uint64_t step = crew_step(crew), vectors = together % 16 == 0 ? count / PER : 0;
    for (uint64_t i = crew_first(crew); i < vectors; i += U * step) {
        reduce_vectors<TYPE, OP, U>(c, i, step, vectors);
    }
    if (vectors * PER < count) {
        reduce_elements<TYPE, OP>(c, vectors * PER + crew_first(crew), step, count);
    }
}

#endif
