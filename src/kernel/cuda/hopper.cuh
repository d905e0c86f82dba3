/* What Hopper has for kernels that never stop: barriers in shared memory, an engine that copies
 * tiles, and the pattern of use. A block stays on its SM and draws pieces of work until there are
 * none; one thread (the feeder) asks for tiles ahead of time, warpgroups take them:
 *
 *     feeder                              a warp that takes
 *     wait until `free` of the slot       wait until `full` of the slot
 *     announce bytes to `full`, copy      use the tiles
 *     next slot                           arrive at `free`, next slot
 *
 * There are two rings: pieces of work with the tiles that stay for all of their steps, and steps.
 * So the first tiles of a piece arrive while the one before is computed, and a warpgroup may be
 * ahead of another one by some steps: one has the tensor cores while the other one takes
 * exponentials. Compiled for sm_90a only. */
#ifndef WEFT_KERNEL_CUDA_HOPPER_CUH
#define WEFT_KERNEL_CUDA_HOPPER_CUH

#include <cuda.h>

#include "kernel/cuda/attention.cuh"

/* Blocks an SM has at the same time: for whoever includes this to say. */
#ifndef WEFT_HOPPER_BLOCKS
#define WEFT_HOPPER_BLOCKS 1
#endif

enum {
    GROUPS = 2,          /* warpgroups that take, beside one that feeds them */
    TAKERS = 4 * GROUPS, /* in warps */
    HOPPER_THREADS = 128 * (GROUPS + 1),
    SIDE = 64, /* a tile is SIDE rows of SIDE elements of 16 bits */
    TILE_BYTES = SIDE * SIDE * 2,
    BLOCK_ROWS = SIDE * GROUPS, /* of a piece of work */
    PIECES = 2,                 /* slots of the rings */
    STEPS = 4,
    /* Of a thread. A block starts with as many for each; then the feeders give theirs to those that
     * take. Asking for more than there are in the block would wait forever. */
    START_REGISTERS = 65536 / (WEFT_HOPPER_BLOCKS * HOPPER_THREADS) / 8 * 8,
    FEEDER_REGISTERS = WEFT_HOPPER_BLOCKS == 1 ? 40 : 32,
    TAKER_REGISTERS = (START_REGISTERS * (GROUPS + 1) - FEEDER_REGISTERS) / GROUPS / 8 * 8
};

/* Other chips are compiled for too: their code must be without the instructions. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HOPPER 1
#else
#define HOPPER 0
#endif

/* The map of a tensor of tokens by features, for tile_load and tile_store: x is a feature, then
 * position, then sequence (attention_hopper.cu). */
int weft_cuda_tile_map(CUtensorMap *map, weft_dtype_t type, const void *tensor, int64_t batch,
                       int64_t seq, int64_t width);

/* As many blocks as there is room for, or one for each piece if there are fewer. */
static inline unsigned blocks_of(uint32_t pieces, int room)
{
    return pieces < (uint32_t)room ? pieces : (unsigned)room;
}

/* ---- barriers ------------------------------------------------------------------------------- */

static __device__ __forceinline__ void barrier_make(uint32_t at, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}

/* Barriers that were just made are known to the copy engine too; a __syncthreads must follow. */
static __device__ __forceinline__ void barriers_made(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrive, and let the barrier wait for that many bytes besides. */
static __device__ __forceinline__ void barrier_announce(uint32_t at, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
}

/* Without a branch: products that are under way do not bear one. */
static __device__ __forceinline__ void barrier_arrive(uint32_t at, bool wanted)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n"
                 "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(at),
                 "r"((int)wanted)
                 : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint32_t at, uint32_t parity)
{
    uint32_t passed;
    do {
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(passed)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (passed == 0);
}

/* The warps of one group. */
static __device__ __forceinline__ void group_sync(int group)
{
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}

/* ---- copies of tiles ---------------------------------------------------------------------- */

/* SIDE rows from position t on; those past the end become 0. `full` hears of the bytes. */
static __device__ __forceinline__ void tile_load(uint32_t tile, const CUtensorMap &map, int x,
                                                 int t, int b, uint32_t full)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(tile),
                 "l"(&map), "r"(x), "r"(t), "r"(b), "r"(full)
                 : "memory");
}

/* Plain memory: address and size are multiples of 16. */
static __device__ __forceinline__ void plain_load(uint32_t to, const void *from, int bytes,
                                                  uint32_t full)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(full)
                 : "memory");
}

/* Rows past the end are left out. Shared memory may be written again after tile_stored. */
static __device__ __forceinline__ void tile_store(const CUtensorMap &map, int x, int t, int b,
                                                  uint32_t tile)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
                 "[%0, {%1, %2, %3}], [%4];\n"
                 "cp.async.bulk.commit_group;" ::"l"(&map),
                 "r"(x), "r"(t), "r"(b), "r"(tile)
                 : "memory");
}

static __device__ __forceinline__ void tile_stored(void)
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* A group's 64 x 64 results, times a factor and rounded, into a tile. */
template <typename T>
static __device__ __forceinline__ void put_tile(const float c[8][4], float factor, char *tile)
{
    int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; half++, row += 8) {
#pragma unroll
        for (int n = 0; n < SIDE / 8; n++) {
            *reinterpret_cast<uint32_t *>(tile + unit_at<SIDE>(row, n) + lane % 4 * 4) = pack2<T>(
                c[n][2 * half] * factor, c[n][2 * half + 1] * factor);
        }
    }
}

/* For all threads of a warpgroup, at the start of what it does until the end. */
static __device__ __forceinline__ void feeder_starts(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)FEEDER_REGISTERS));
}

static __device__ __forceinline__ void taker_starts(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)TAKER_REGISTERS));
}

/* ---- rings ---------------------------------------------------------------------------------- */

/* A place in a ring of N slots: goes round and round, and knows which round it is. */
template <int N> struct cursor_t {
    int at;
    uint32_t parity;
    __device__ __forceinline__ void next(void)
    {
        at++;
        if (at == N) {
            at = 0;
            parity ^= 1;
        }
    }
};

/* Behind the tiles in shared memory. */
struct rings_t {
    uint64_t piece_full[PIECES], piece_free[PIECES], step_full[STEPS], step_free[STEPS];
    uint32_t drawn[PIECES]; /* the number of the piece of work */
};

static __device__ __forceinline__ uint32_t bar(const uint64_t *barrier)
{
    return shared_address(barrier);
}

/* For all threads of a block. */
static __device__ __forceinline__ void rings_open(rings_t *rings)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < PIECES; i++) {
            barrier_make(bar(&rings->piece_full[i]), 1);
            barrier_make(bar(&rings->piece_free[i]), TAKERS);
        }
        for (int i = 0; i < STEPS; i++) {
            barrier_make(bar(&rings->step_full[i]), 1);
            barrier_make(bar(&rings->step_free[i]), TAKERS);
        }
        barriers_made();
    }
    __syncthreads();
}

/* The feeder: put number `drawn` into the next slot, or tell that there is no more. */
static __device__ __forceinline__ bool piece_offer(rings_t *rings, const cursor_t<PIECES> &piece,
                                                   uint32_t drawn, uint32_t count, int bytes)
{
    barrier_wait(bar(&rings->piece_free[piece.at]), piece.parity ^ 1);
    rings->drawn[piece.at] = drawn;
    barrier_announce(bar(&rings->piece_full[piece.at]), drawn < count ? bytes : 0);
    return drawn < count;
}

/* A warp that takes: its number, or false if there is no more. */
static __device__ __forceinline__ bool
piece_take(const rings_t *rings, const cursor_t<PIECES> &piece, uint32_t count, uint32_t *drawn_p)
{
    barrier_wait(bar(&rings->piece_full[piece.at]), piece.parity);
    *drawn_p = rings->drawn[piece.at];
    return *drawn_p < count;
}

/* This warp needs the slot no longer. */
static __device__ __forceinline__ void step_release(const rings_t *rings, int slot)
{
    barrier_arrive(bar(&rings->step_free[slot]), threadIdx.x % 32 == 0);
}

/* Wait for the step behind `count` others that this group has no use for. */
static __device__ __forceinline__ void steps_skip(const rings_t *rings, cursor_t<STEPS> &step,
                                                  int count)
{
    barrier_wait(bar(&rings->step_full[step.at]), step.parity);
    for (; count > 0; count--) {
        step_release(rings, step.at);
        step.next();
        barrier_wait(bar(&rings->step_full[step.at]), step.parity);
    }
}

#endif
