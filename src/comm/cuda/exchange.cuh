/* Messages: sends and receives of a group, and the blocks of different sizes of an alltoallv.
 *
 * A lane is one direction of one pair of ranks; each has blocks of its own, so lanes do not wait
 * for each other. The sender announces where the message is and waits; the receiver copies it with
 * all blocks of its lane and acknowledges. One announcement per pair is enough, since the next one
 * only follows the acknowledgement. */
#ifndef WEFT_COMM_CUDA_EXCHANGE_CUH
#define WEFT_COMM_CUDA_EXCHANGE_CUH

#include "comm/cuda/direct.cuh"

typedef weft_cuda_message_t message_t;
typedef weft_cuda_exchange_t exchange_t;

/* One warp. */
static __device__ __forceinline__ bool send_message(const world_t &world, const message_t &m,
                                                    uint32_t number)
{
    mailbox_t *mine = world.mailbox[world.rank];
    int lane = threadIdx.x;
    bool stop = false;
    if (lane < WEFT_CUDA_HEAD_WORDS) {
        word_store(&world.mailbox[m.peer]->chan[world.rank][lane],
                   head_word(lane, m.sig, m.count, m.ref, m.bytes), number);
    }
    if (lane == 0) {
        waiter_t waiter = {0, 0};
        while (!stop && (int32_t)((uint32_t)acquire64(world, &mine->ack[m.peer]) - number) < 0) {
            stop = poll_failed(world, &waiter, (uint32_t)m.peer, 0, m.call_sig, m.count);
        }
    }
    return !__any_sync(0xffffffffu, stop);
}

/* The first warp waits for the message and compares it with what is expected; the address goes to
 * *from_p in shared memory, NULL: give up. */
static __device__ __forceinline__ void await_message(const world_t &world, const message_t &m,
                                                     uint32_t number, char **from_p)
{
    mailbox_t *mine = world.mailbox[world.rank];
    int lane = threadIdx.x, i = lane % WEFT_CUDA_HEAD_WORDS;
    uint32_t data = 0;
    bool stop = false;
    waiter_t waiter = {0, 0};
    while (!stop && !word_load(&mine->chan[m.peer][i], number, &data)) {
        stop = poll_failed(world, &waiter, (uint32_t)m.peer, 0, m.call_sig, m.count);
    }
    stop = __any_sync(0xffffffffu, stop);
    head_t head = gather_head(data);
    if (lane == 0) {
        if (!stop && (head.sig != m.sig || head.count != m.count)) {
            send_report(world, WEFT_CUDA_MISMATCH, (uint32_t)m.peer, 0, m.call_sig, m.count,
                        head.sig, head.count);
            stop = true;
        }
        *from_p = stop ? NULL : m.bytes ? resolve(world, m.peer, head.src) : (char *)mine;
    }
    fence(world);
}

/* All blocks of the lane. False: give up. */
static __device__ __forceinline__ bool take_message(const world_t &world, const message_t &m,
                                                    uint32_t number, const crew_t &crew)
{
    mailbox_t *mine = world.mailbox[world.rank];
    __shared__ char *from;
    if (threadIdx.x < 32) {
        await_message(world, m, number, &from);
    }
    __syncthreads();
    char *src = from;
    if (!src) {
        return false;
    }
    crew_copy(m.at, src, m.bytes, crew);
    __syncthreads();
    if (threadIdx.x == 0 && last_block(world, &mine->lane_blocks[m.lane], crew.blocks)) {
        *(volatile uint32_t *)&mine->taken[m.peer] = number;
        store64(&world.mailbox[m.peer]->ack[world.rank], number);
    }
    return true;
}

static __global__ void __launch_bounds__(WEFT_CUDA_THREADS, WEFT_CUDA_BLOCKS_PER_SM)
    exchange_kernel(const __grid_constant__ world_t world,
                    const __grid_constant__ exchange_t exchange)
{
    if (world.size == 0) {
        return; /* only to be loaded */
    }
    mailbox_t *mine = world.mailbox[world.rank];
    int lane = blockIdx.x / exchange.lane_blocks;
    crew_t crew = {blockIdx.x % exchange.lane_blocks, (uint32_t)exchange.lane_blocks};
    int index = exchange.first[lane];
    bool fine = true;
    const message_t *messages = exchange.messages ? exchange.messages : exchange.few;
    message_t m = messages[index];
    /* Read by all blocks of the lane before any of them can be the last to finish a message. */
    uint32_t number = *(volatile uint32_t *)(m.sends ? &mine->sent[m.peer] : &mine->taken[m.peer]);
    if (m.sends && (crew.block > 0 || threadIdx.x >= 32)) {
        index = -1;
    }
    while (index >= 0 && fine) {
        m = messages[index];
        number++;
        fine = m.sends ? send_message(world, m, number) : take_message(world, m, number, crew);
        if (m.sends && fine && threadIdx.x == 0) {
            *(volatile uint32_t *)&mine->sent[m.peer] = number;
        }
        index = m.next;
    }
    if (exchange.mark) {
        __syncthreads();
        if (threadIdx.x == 0 && last_block(world, &mine->blocks, gridDim.x)) {
            tell_host(world, exchange.mark);
        }
    }
}

/* One warp tells each peer where its block is and how long it is. */
static __device__ __forceinline__ void announce_ragged(const world_t &world, const call_t &call,
                                                       const weft_cuda_ragged_t &ragged,
                                                       uint64_t number)
{
    int lane = threadIdx.x, i = lane % WEFT_CUDA_HEAD_WORDS;
    for (int k = lane / WEFT_CUDA_HEAD_WORDS; k < world.size; k += 4) {
        if (k != world.rank) {
            word_store(&world.mailbox[k]->head[number & 1][world.rank][i],
                       head_word(i, call.sig, call.count, call.src_ref + ragged.send_at[k],
                                 ragged.send_bytes[k]),
                       (uint32_t)number);
        }
    }
}

static __global__ void gate_kernel(const __grid_constant__ world_t world,
                                   const __grid_constant__ call_t call)
{
    if (world.size == 0) {
        return; /* only to be loaded */
    }
    hold_gate(world, call, [&](uint64_t number) { announce(world, call, number); });
}

static __global__ void ragged_gate_kernel(const __grid_constant__ world_t world,
                                          const __grid_constant__ call_t call,
                                          const __grid_constant__ weft_cuda_ragged_t ragged)
{
    if (world.size == 0) {
        return; /* only to be loaded */
    }
    hold_gate(world, call,
              [&](uint64_t number) { announce_ragged(world, call, ragged, number); });
}

/* The receiver takes what it was told of. */
static __global__ void __launch_bounds__(WEFT_CUDA_THREADS, WEFT_CUDA_BLOCKS_PER_SM)
    ragged_kernel(const __grid_constant__ world_t world, const __grid_constant__ call_t call,
                  const __grid_constant__ weft_cuda_ragged_t ragged)
{
    if (world.size == 0) {
        return; /* only to be loaded */
    }
    await_turn();
    __shared__ parties_t parties;
    uint64_t number = call_number(world);
    if (!call.gate && blockIdx.x == 0 && threadIdx.x < 32) {
        announce_ragged(world, call, ragged, number);
    }
    bool met = meet(world, call, number, &parties);
    if (met && threadIdx.x == 0) {
        parties.src[world.rank] = (char *)call.src + ragged.send_at[world.rank];
        parties.extra[world.rank] = ragged.send_bytes[world.rank];
    }
    __syncthreads();
    crew_t crew = {blockIdx.x, gridDim.x};
    for (int k = 0; k < world.size && met; k++) {
        int p = world.rank + k < world.size ? world.rank + k : world.rank + k - world.size;
        if (parties.extra[p] != ragged.recv_bytes[p]) {
            if (threadIdx.x == 0) {
                send_report(world, WEFT_CUDA_MISMATCH, (uint32_t)p, number, call.sig,
                            ragged.recv_bytes[p], call.sig, parties.extra[p]);
            }
            met = false;
        } else {
            crew_copy((char *)call.dst + ragged.recv_at[p], parties.src[p], ragged.recv_bytes[p],
                      crew);
        }
    }
    part(world, call, number, met);
}

#endif
