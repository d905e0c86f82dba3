/* How kernels of different ranks wait for each other, and give up. launch.h has the picture. */
#ifndef WEFT_COMM_CUDA_SYNC_CUH
#define WEFT_COMM_CUDA_SYNC_CUH

#include "comm/cuda/machine.cuh"

typedef weft_cuda_call_t call_t;
typedef weft_cuda_mailbox_t mailbox_t;

/* ---- giving up -------------------------------------------------------------------------- */

/* What a thread knows about its waiting. */
typedef struct waiter {
    uint32_t polls;
    uint64_t since; /* 0: not long yet */
} waiter_t;

/* Of all threads of a rank that find something wrong, one reports. Partner: every other thread's
 * look at `stopped` in stop_now; the host's look at `ready`. */
static __device__ __forceinline__ bool first_to_stop(mailbox_t *mine)
{
    return atomicCAS(&mine->stopped, 0u, 1u) == 0u;
}

static __device__ __noinline__ void send_report(const world_t &world, uint32_t kind, uint32_t peer,
                                                uint64_t call, uint64_t sig, uint64_t count,
                                                uint64_t peer_sig, uint64_t peer_count)
{
    mailbox_t *mine = world.mailbox[world.rank];
    volatile weft_cuda_report_t *report = world.report;
    if (!first_to_stop(mine)) {
        return;
    }
    report->kind = kind;
    report->peer = peer;
    report->call = call;
    report->sig = sig;
    report->count = count;
    report->peer_sig = peer_sig;
    report->peer_count = peer_count;
    for (int p = 0; p < world.size; p++) {
        uint64_t word[2][4];
        for (int half = 0; half < 2; half++) {
            for (int i = 0; i < 4; i++) {
                word[half][i] = load64(&mine->head[half][p][i]);
            }
        }
        uint32_t a = (uint32_t)(word[0][0] >> 32), b = (uint32_t)(word[1][0] >> 32);
        int newer = (int32_t)(b - a) > 0;
        report->arrived[p] = newer ? b : a;
        report->last_sig[p] = (word[newer][1] << 32) | (uint32_t)word[newer][0];
        report->last_count[p] = (word[newer][3] << 32) | (uint32_t)word[newer][2];
    }
    __threadfence_system();
    report->ready = 1;
}

/* Called now and then by a thread that waits for `peer` in `call`. */
static __device__ __noinline__ bool stop_now(const world_t &world, waiter_t *waiter, uint32_t peer,
                                             uint64_t call, uint64_t sig, uint64_t count)
{
    mailbox_t *mine = world.mailbox[world.rank];
    uint64_t now = now_ns();
    if (*(volatile uint32_t *)&mine->stopped) {
        return true;
    }
    if (*(const volatile uint32_t *)world.stop) {
        *(volatile uint32_t *)&mine->stopped = 1;
        return true;
    }
    waiter->since = waiter->since ? waiter->since : now;
    if (world.timeout_ns && now - waiter->since > world.timeout_ns) {
        send_report(world, WEFT_CUDA_LATE, peer, call, sig, count, 0, 0);
        return true;
    }
    return false;
}

/* A poll failed. True: give up. */
static __device__ __forceinline__ bool poll_failed(const world_t &world, waiter_t *waiter,
                                                   uint32_t peer, uint64_t call, uint64_t sig,
                                                   uint64_t count)
{
    return ++waiter->polls % POLLS_PER_CHECK == 0 &&
           stop_now(world, waiter, peer, call, sig, count);
}

/* ---- announcements ---------------------------------------------------------------------- */

/* Both, in this order, so that never more than one of them waits on the GPU. */
static __device__ __forceinline__ void await_turn()
{
    await_before();
    let_next_come();
}

/* The number of this call. */
static __device__ __forceinline__ uint64_t call_number(const world_t &world)
{
    return load64(&world.mailbox[world.rank]->calls[blockIdx.x]) + 1;
}

/* Called by all threads of a block that have read the number: the next call has the next one. */
static __device__ __forceinline__ void count_call(const world_t &world, uint64_t number)
{
    uint64_t *calls = world.mailbox[world.rank]->calls;
    __syncthreads();
    if (threadIdx.x == 0) {
        calls[blockIdx.x] = number;
    }
    for (unsigned b = gridDim.x + threadIdx.x; blockIdx.x == 0 && b < WEFT_CUDA_BLOCKS;
         b += blockDim.x) {
        calls[b] = number;
    }
}

static __device__ __forceinline__ uint32_t half_word(uint64_t value, int upper)
{
    return (uint32_t)(upper ? value >> 32 : value);
}

/* Word `i` of an announcement. */
static __device__ __forceinline__ uint32_t head_word(int i, uint64_t sig, uint64_t count,
                                                     uint64_t src, uint64_t dst)
{
    uint64_t value = i < 2 ? sig : i < 4 ? count : i < 6 ? src : dst;
    return half_word(value, i & 1);
}

/* One warp announces the call to all others: 8 lanes a peer. */
static __device__ __forceinline__ void announce(const world_t &world, const call_t &call,
                                                uint64_t number)
{
    int lane = threadIdx.x % 32, i = lane % WEFT_CUDA_HEAD_WORDS;
    uint32_t data = head_word(i, call.sig, call.count, call.src_ref, call.dst_ref);
    for (int k = lane / WEFT_CUDA_HEAD_WORDS; k < world.size - 1; k += 4) {
        int p = world.rank + 1 + k;
        p -= p >= world.size ? world.size : 0;
        word_store(&world.mailbox[p]->head[number & 1][world.rank][i], data, (uint32_t)number);
    }
}

/* 64 bits from the lanes of a group of 8 that hold words i and i + 1. */
static __device__ __forceinline__ uint64_t gather64(uint32_t data, int i)
{
    uint32_t low = __shfl_sync(0xffffffffu, data, i, 8);
    uint32_t high = __shfl_sync(0xffffffffu, data, i + 1, 8);
    return (uint64_t)high << 32 | low;
}

/* An announcement, as the 8 lanes of a group see it after gather_head. */
typedef struct head {
    uint64_t sig, count, src, dst;
} head_t;

static __device__ __forceinline__ head_t gather_head(uint32_t data)
{
    head_t head;
    head.sig = gather64(data, 0);
    head.count = gather64(data, 2);
    head.src = gather64(data, 4);
    head.dst = gather64(data, 6);
    return head;
}

/* Rank `peer` announced another call: report both. */
static __device__ __noinline__ void report_mismatch(const world_t &world, const call_t &call,
                                                    uint64_t number, int peer)
{
    const weft_cuda_word_t *word = world.mailbox[world.rank]->head[number & 1][peer];
    uint64_t value[4];
    for (int i = 0; i < 4; i++) {
        value[i] = load64(&word[i]);
    }
    send_report(world, WEFT_CUDA_MISMATCH, (uint32_t)peer, number, call.sig, call.count,
                value[1] << 32 | (uint32_t)value[0], value[3] << 32 | (uint32_t)value[2]);
}

/* One warp waits for the announcements of all others, 8 lanes a peer, and compares them with its
 * own. Each lane hands its word to `use(peer, i, word)`. False: give up. */
template <typename USE>
static __device__ __forceinline__ bool await_heads(const world_t &world, const call_t &call,
                                                   uint64_t number, USE use)
{
    mailbox_t *mine = world.mailbox[world.rank];
    int lane = threadIdx.x % 32, i = lane % WEFT_CUDA_HEAD_WORDS;
    uint32_t expected = head_word(i, call.sig, call.count, 0, 0);
    bool stop = false;
#pragma unroll 1
    for (int k = lane / WEFT_CUDA_HEAD_WORDS; k < world.size - 1 && !stop; k += 4) {
        int p = world.rank + 1 + k;
        p -= p >= world.size ? world.size : 0;
        uint32_t data = 0;
        waiter_t waiter = {0, 0};
        const weft_cuda_word_t *word = &mine->head[number & 1][p][i];
        while (!stop && !word_load(word, (uint32_t)number, &data)) {
            stop = poll_failed(world, &waiter, (uint32_t)p, number, call.sig, call.count);
        }
        if (!stop && i < 4 && data != expected) {
            /* The other words of it may still be on their way. */
            for (int w = 0; w < 4 && !stop; w++) {
                uint32_t ignored;
                while (!stop && !word_load(word - i + w, (uint32_t)number, &ignored)) {
                    stop = poll_failed(world, &waiter, (uint32_t)p, number, call.sig, call.count);
                }
            }
            report_mismatch(world, call, number, p);
            stop = true;
        } else if (!stop) {
            use(p, i, data);
        }
    }
    return !__any_sync(0xffffffffu, stop);
}

/* Where a buffer that rank `peer` announced is mapped here; NULL if it has none. */
static __device__ __forceinline__ char *resolve(const world_t &world, int peer, weft_cuda_ref_t ref)
{
    if (!world.slabs || ref >> 48 == 0) {
        return (char *)ref;
    }
    size_t at = (size_t)peer * WEFT_CUDA_SLABS + (ref >> 48) - 1;
    uint64_t base = load64(&world.slabs[at]);
    if (base == 0) { /* mapped while this kernel was queued; its owner waited until it was */
        base = load64(&world.new_slabs[at]);
    }
    return (char *)(base + (ref & 0xffffffffffffull));
}

/* ---- the end of a call ------------------------------------------------------------------ */

/* Somebody waits for the end of this kernel; called by one thread, after all blocks are done. */
static __device__ __forceinline__ void tell_host(const world_t &world, uint64_t mark)
{
    if (mark) {
        __threadfence_system();
        store64(&world.report->finished, mark);
    }
}

/* Called by one thread of each block after the block's last access: true in the last block. */
static __device__ __forceinline__ bool last_block(const world_t &world, uint32_t *counter,
                                                  uint32_t blocks)
{
    fence(world);
    if (atomicAdd(counter, 1u) != blocks - 1) {
        return false;
    }
    *(volatile uint32_t *)counter = 0;
    fence(world);
    return true;
}

#endif
