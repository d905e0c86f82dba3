/* Products of a warpgroup (four warps) on Hopper's tensor cores, with tiles of 64 bf16 or f16 a row
 * in shared memory. Compiled for sm_90a only.
 *
 * The swizzle of attention.cuh is the hardware's 128-byte one if a tile starts at a multiple of
 * 1024 bytes. Such a tile serves in both ways: with its rows along the product's inner dimension,
 * or across it ("turned"). A warp of the group has 16 rows of the result, in the layout of
 * attention.cuh's multiply; an A in registers has the layout of as_a. */
#ifndef WEFT_KERNEL_CUDA_WGMMA_CUH
#define WEFT_KERNEL_CUDA_WGMMA_CUH

#include "kernel/cuda/attention.cuh"

/* Rows of 128 bytes, eight of them in a group of 1024. */
static __device__ __forceinline__ uint64_t tile_at(uint32_t address)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)64 << 32 |
           (uint64_t)1 << 62;
}

/* From one step of 16 along the inner dimension to the next, in descriptors: 16 elements of a row,
 * or 16 rows. */
enum { STEP_ALONG = 32 >> 4, STEP_TURNED = 2048 >> 4 };

static __device__ __forceinline__ void group_start(void)
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void group_commit(void)
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most LEFT groups of products are under way. */
template <int LEFT> static __device__ __forceinline__ void group_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* Results in registers are changed behind the compiler's back until they are waited for: it must
 * not move what it does with them across this point. Before group_start and after group_wait. */
template <int N> static __device__ __forceinline__ void settle(float (&c)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])::"memory");
    }
}

/* The assembler likes to wait early. It does not move what comes before a branch behind it, so here
 * is one that is never taken: with `x` computed last, everything before it is. */
static __device__ __forceinline__ void hold_up(float x)
{
    if (x == -1.2345e38f) {
        asm volatile("nanosleep.u32 1;");
    }
}

/* What this thread has written to shared memory, the tensor cores may read after the next
 * barrier. */
static __device__ __forceinline__ void publish(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#define WGMMA_OUT_4(c, n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define WGMMA_OUT_32(c)                                                                            \
    WGMMA_OUT_4(c, 0), WGMMA_OUT_4(c, 1), WGMMA_OUT_4(c, 2), WGMMA_OUT_4(c, 3), WGMMA_OUT_4(c, 4), \
        WGMMA_OUT_4(c, 5), WGMMA_OUT_4(c, 6), WGMMA_OUT_4(c, 7)
#define WGMMA_LIST_32                                                                              \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,"  \
    "%25,%26,%27,%28,%29,%30,%31}"

/* c (64 x 64) += a b over 16, where b's rows are the inner dimension. */
template <typename T>
static __device__ __forceinline__ void group_multiply(float c[8][4], const uint32_t a[4],
                                                      uint64_t b);

/* c = a b^T or, with `add`, c += a b^T, both from shared memory with rows along the inner
 * dimension. */
template <typename T>
static __device__ __forceinline__ void group_multiply_tiles(float c[8][4], uint64_t a, uint64_t b,
                                                            int add);

#define WGMMA_MULTIPLY(T, type)                                                                    \
    template <>                                                                                    \
    __device__ __forceinline__ void group_multiply<T>(float c[8][4], const uint32_t a[4],          \
                                                      uint64_t b)                                  \
    {                                                                                              \
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " WGMMA_LIST_32 \
                     ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"                                       \
                     : WGMMA_OUT_32(c)                                                             \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                        \
    }                                                                                              \
    template <>                                                                                    \
    __device__ __forceinline__ void group_multiply_tiles<T>(float c[8][4], uint64_t a, uint64_t b, \
                                                            int add)                               \
    {                                                                                              \
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"                                  \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " " WGMMA_LIST_32 \
                     ", %32, %33, p, 1, 1, 0, 0;\n}"                                               \
                     : WGMMA_OUT_32(c)                                                             \
                     : "l"(a), "l"(b), "r"(add));                                                  \
    }
WGMMA_MULTIPLY(bf16_t, "bf16")
WGMMA_MULTIPLY(f16_t, "f16")
#undef WGMMA_MULTIPLY

/* A whole 64 x 64 result as A of the next products. */
template <typename T>
static __device__ __forceinline__ void as_tile(uint32_t a[4][4], const float c[8][4])
{
#pragma unroll
    for (int n = 0; n < 4; n++) {
        as_a<T>(a[n], c[2 * n], c[2 * n + 1]);
    }
}

/* c = a b^T over 64: two tiles of 64 rows. */
template <typename T>
static __device__ __forceinline__ void products_64(float c[8][4], uint32_t a, uint32_t b)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        group_multiply_tiles<T>(c, tile_at(a) + i * STEP_ALONG, tile_at(b) + i * STEP_ALONG, i > 0);
    }
}

/* sum += x b: x is 64 by 64 in registers, b a tile of 64 rows. */
template <typename T>
static __device__ __forceinline__ void gather_64(float sum[8][4], const uint32_t x[4][4],
                                                 uint32_t b)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        group_multiply<T>(sum, x[i], tile_at(b) + i * STEP_TURNED);
    }
}

#endif
