/* Large calls: everybody's buffers are read and written where they are.
 *
 *     announce, wait for all announcements     all have started, so their sources are there, and
 *                                              their destinations may be written
 *     move and reduce                          each rank its part, as docs/algorithms.md has it
 *     done, wait until all are done            nobody touches my buffers any more
 *
 * Every block waits for the announcements itself, and at the end for its counterparts on the other
 * ranks, so that nothing is gathered in one place.
 *
 * A large grid must not wait long: what it holds is missing to ranks that still compute, on this
 * GPU and on this stream's neighbours, and matrix products that need whole multiprocessors may not
 * find any. So a gate goes in front of it, a kernel of one warp that announces the call and ends
 * when all have announced it; the grid behind it finds all announcements. Whether a rank has a gate
 * is its own affair. */
#ifndef WEFT_COMM_CUDA_DIRECT_CUH
#define WEFT_COMM_CUDA_DIRECT_CUH

#include "comm/call.h"
#include "comm/cuda/move.cuh"
#include "comm/cuda/sync.cuh"

/* Everybody's buffers, in shared memory. */
typedef struct parties {
    char *src[WEFT_CUDA_RANKS], *dst[WEFT_CUDA_RANKS];
    uint64_t extra[WEFT_CUDA_RANKS]; /* alltoallv: bytes that this peer sends us */
    uint32_t word[WEFT_CUDA_RANKS][WEFT_CUDA_HEAD_WORDS]; /* announcements */
    int stop;
} parties_t;

/* The first warp meets the others; all threads of the block come out of it. False: give up. */
static __device__ __forceinline__ bool meet(const world_t &world, const call_t &call,
                                            uint64_t number, parties_t *parties)
{
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) {
            parties->src[world.rank] = (char *)call.src;
            parties->dst[world.rank] = (char *)call.dst;
            parties->stop = 0;
        }
        bool met = await_heads(world, call, number, [&](int p, int i, uint32_t data) {
            parties->word[p][i] = data;
        });
        __syncwarp();
        int p = threadIdx.x;
        if (met && p < world.size && p != world.rank) {
            const uint32_t *word = parties->word[p];
            parties->src[p] = resolve(world, p, (uint64_t)word[5] << 32 | word[4]);
            parties->extra[p] = (uint64_t)word[7] << 32 | word[6];
            parties->dst[p] = resolve(world, p, parties->extra[p]);
        }
        if (!met && threadIdx.x == 0) {
            parties->stop = 1;
        }
        fence(world); /* partner: the fence before the flag, here the end of the kernel before */
    }
    __syncthreads();
    return parties->stop == 0;
}

/* Called by all threads of a block when it is done with others' memory. Block b of every rank waits
 * for block b of all others; when all blocks have ended, nobody touches this rank's buffers. Grids
 * of one call are of the same size on all ranks. */
static __device__ __forceinline__ void part(const world_t &world, const call_t &call,
                                            uint64_t number, bool fine)
{
    mailbox_t *mine = world.mailbox[world.rank];
    int p = threadIdx.x;
    count_call(world, number); /* a barrier as well: the whole block is done */
    if (p >= 32 || !fine) { /* who gave up lets nobody believe that all is well */
        return;
    }
    if (p < world.size && p != world.rank) {
        bool stop = false;
        waiter_t waiter = {0, 0};
        fence(world);
        store64(&world.mailbox[p]->done[blockIdx.x][world.rank], number);
        while (!stop && acquire64(world, &mine->done[blockIdx.x][p]) < number) {
            stop = poll_failed(world, &waiter, (uint32_t)p, number, call.sig, call.count);
        }
    }
    __syncwarp();
    if (call.mark && p == 0 && last_block(world, &mine->blocks, gridDim.x)) {
        tell_host(world, call.mark);
    }
}

/* Elements [lo, hi) that `rank` reduces, in multiples of 128 bytes. */
static __device__ __forceinline__ void slice(uint64_t count, uint64_t element, int parts, int rank,
                                             uint64_t *lo_p, uint64_t *hi_p)
{
    uint64_t line = 128 / element, lines = (count + line - 1) / line;
    uint64_t each = (lines + parts - 1) / parts;
    uint64_t lo = each * rank * line, hi = lo + each * line;
    *lo_p = lo < count ? lo : count;
    *hi_p = hi < count ? hi : count;
}

template <int TYPE, int OP>
static __device__ __forceinline__ void reduce_part(const world_t &world, const call_t &call,
                                                   parties_t *parties)
{
    const uint64_t element = sizeof(typename weft_element<TYPE>::T);
    __shared__ char *src[WEFT_CUDA_RANKS], *dst[WEFT_CUDA_RANKS];
    uint64_t lo = 0, hi = call.count;
    bool scatter = call.coll == WEFT_COLL_REDUCE_SCATTER;
    if (!scatter) {
        slice(call.count, element, world.size, world.rank, &lo, &hi);
    }
    columns_t c = {src, dst, world.size, 1, world.size};
    if (threadIdx.x < world.size) {
        int p = threadIdx.x;
        uint64_t at = (scatter ? call.count * (uint64_t)world.rank : lo) * element;
        src[p] = parties->src[p] + at;
        /* Start with a different destination on each rank. */
        int q = world.rank + p < world.size ? world.rank + p : world.rank + p - world.size;
        dst[p] = parties->dst[q] + lo * element;
        if (p == 0) {
            dst[0] = scatter ? (char *)call.dst
                     : call.coll == WEFT_COLL_REDUCE
                         ? parties->dst[call.root] + lo * element
                         : parties->dst[world.rank] + lo * element;
        }
    }
    c.ndst = call.coll == WEFT_COLL_ALLREDUCE ? world.size : 1;
    __syncthreads();
    crew_t crew = {blockIdx.x, gridDim.x};
    crew_reduce<TYPE, OP>(c, hi - lo, crew);
}

/* Two ranks exchange a block each, and one of them is in place: its block is overwritten with what
 * it gets. So both blocks are read before either is written, by one of the two ranks; each does
 * half. */
static __device__ __forceinline__ void trade_part(const world_t &world, const parties_t *parties,
                                                  int peer, uint64_t bytes, const crew_t &crew)
{
    uint64_t here = (uint64_t)world.rank * bytes, there = (uint64_t)peer * bytes;
    uint64_t middle = bytes / 2 / 16 * 16;
    uint64_t from = world.rank < peer ? 0 : middle, to = world.rank < peer ? middle : bytes;
    crew_trade(parties->src[world.rank] + there + from, parties->dst[world.rank] + there + from,
               parties->src[peer] + here + from, parties->dst[peer] + here + from, to - from, crew);
}

static __device__ __forceinline__ bool is_in_place(const parties_t *parties, int rank)
{
    return parties->src[rank] == parties->dst[rank];
}

static __device__ __forceinline__ void move_part(const world_t &world, const call_t &call,
                                                 const parties_t *parties, uint64_t bytes)
{
    crew_t crew = {blockIdx.x, gridDim.x};
    char *dst = (char *)call.dst;
    uint64_t here = (uint64_t)world.rank * bytes;
    switch (call.coll) {
    case WEFT_COLL_BROADCAST:
        crew_copy(dst, parties->src[call.root], bytes, crew);
        return;
    case WEFT_COLL_SCATTER:
        crew_copy(dst, parties->src[call.root] + here, bytes, crew);
        return;
    case WEFT_COLL_GATHER:
        crew_copy(parties->dst[call.root] + here, (const char *)call.src, bytes, crew);
        return;
    default:
        break;
    }
    for (int k = 0; k < world.size; k++) {
        int p = world.rank + k < world.size ? world.rank + k : world.rank + k - world.size;
        if (call.coll == WEFT_COLL_ALLGATHER) {
            crew_copy(dst + (uint64_t)p * bytes, parties->src[p], bytes, crew);
        } else if (p == world.rank ||
                   (!is_in_place(parties, p) && !is_in_place(parties, world.rank))) {
            crew_copy(dst + (uint64_t)p * bytes, parties->src[p] + here, bytes, crew);
        } else {
            trade_part(world, parties, p, bytes, crew);
        }
    }
}

/* TYPE < 0: blocks are moved, not reduced. */
template <int TYPE, int OP> struct direct_work {
    static __device__ __forceinline__ void run(const world_t &world, const call_t &call,
                                               parties_t *parties, uint64_t)
    {
        reduce_part<TYPE, OP>(world, call, parties);
    }
};
template <int OP> struct direct_work<-1, OP> {
    static __device__ __forceinline__ void run(const world_t &world, const call_t &call,
                                               parties_t *parties, uint64_t bytes)
    {
        move_part(world, call, parties, bytes);
    }
};

/* In front of a large call. `tell(number)` announces it, with one warp. */
template <typename TELL>
static __device__ __forceinline__ void hold_gate(const world_t &world, const call_t &call,
                                                 TELL tell)
{
    await_before();
    uint64_t number = call_number(world);
    fence(world); /* what came before on this stream is seen by whoever sees the announcement */
    tell(number);
    await_heads(world, call, number,
                [](int, int, uint32_t) {}); /* the call finds out if it failed */
    let_next_come();
}

template <int TYPE, int OP>
static __global__ void __launch_bounds__(WEFT_CUDA_THREADS, WEFT_CUDA_BLOCKS_PER_SM)
    direct_kernel(const __grid_constant__ world_t world, const __grid_constant__ call_t call,
                  uint64_t bytes)
{
    if (world.size == 0) {
        return; /* only to be loaded */
    }
    await_turn();
    __shared__ parties_t parties;
    uint64_t number = call_number(world);
    if (!call.gate && blockIdx.x == 0 && threadIdx.x < 32) {
        announce(world, call, number);
    }
    bool met = meet(world, call, number, &parties);
    if (met) {
        direct_work<TYPE, OP>::run(world, call, &parties, bytes);
    }
    part(world, call, number, met);
}

#endif
