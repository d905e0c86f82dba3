/* Small calls: the data travels with its flags. Every rank writes what its peers need into their
 * mailboxes and takes what it needs from its own; one trip, no fence.
 *
 * A thread moves units of 8 bytes. Unit u of every block that is sent and received is one thread's,
 * which sends all it has before it receives anything: that is what makes calls in place right, for
 * a thread only overwrites what it has sent itself. The first warp of block 0 announces the call
 * and compares announcements meanwhile. */
#ifndef WEFT_COMM_CUDA_LL_CUH
#define WEFT_COMM_CUDA_LL_CUH

#include "comm/cuda/sync.cuh"
#include "kernel/element.cuh"

#define LINE_THREADS (WEFT_CUDA_THREADS + 32)
#define POLL_FAN WEFT_CUDA_POLL_FAN /* ranks whose words a thread asks for at once */

/* ---- units ------------------------------------------------------------------------------ */

/* Bytes of a unit that lie inside a block, and whether 8 can be moved at once. */
static __device__ __forceinline__ int unit_bytes(uint64_t at, uint64_t bytes)
{
    return bytes - at < 8 ? (int)(bytes - at) : 8;
}

/* By elements of ELEMENT bytes where the address or the end does not allow more. */
template <int ELEMENT>
static __device__ __noinline__ uint2 odd_load(const char *from, int bytes)
{
    uint64_t value = 0;
#pragma unroll 1
    for (int i = 0; i < bytes; i += ELEMENT) {
        uint64_t part = ELEMENT == 1   ? *(const uint8_t *)(from + i)
                        : ELEMENT == 2 ? *(const uint16_t *)(from + i)
                        : ELEMENT == 4 ? *(const uint32_t *)(from + i)
                                       : *(const uint64_t *)(from + i);
        value |= part << (8 * i);
    }
    return make_uint2((uint32_t)value, (uint32_t)(value >> 32));
}

template <int ELEMENT>
static __device__ __noinline__ void odd_store(char *to, int bytes, uint2 data)
{
    uint64_t value = (uint64_t)data.y << 32 | data.x;
#pragma unroll 1
    for (int i = 0; i < bytes; i += ELEMENT) {
        uint64_t part = value >> (8 * i);
        switch (ELEMENT) {
        case 1:
            *(uint8_t *)(to + i) = (uint8_t)part;
            break;
        case 2:
            *(uint16_t *)(to + i) = (uint16_t)part;
            break;
        case 4:
            *(uint32_t *)(to + i) = (uint32_t)part;
            break;
        default:
            *(uint64_t *)(to + i) = part;
        }
    }
}

/* EVEN: everything is known to be made of whole, aligned units. */
template <int ELEMENT, bool EVEN>
static __device__ __forceinline__ void unit_load(const char *from, int bytes, uint32_t (&data)[2])
{
    uint2 both = EVEN || (bytes == 8 && ((uintptr_t)from & 7) == 0)
                     ? *(const uint2 *)from
                     : odd_load<ELEMENT>(from, bytes);
    data[0] = both.x;
    data[1] = both.y;
}

template <int ELEMENT, bool EVEN>
static __device__ __forceinline__ void unit_store(char *to, int bytes, const uint32_t (&data)[2])
{
    if (EVEN || (bytes == 8 && ((uintptr_t)to & 7) == 0)) {
        *(uint2 *)to = make_uint2(data[0], data[1]);
    } else {
        odd_store<ELEMENT>(to, bytes, make_uint2(data[0], data[1]));
    }
}

/* The words that rank `from` writes in the mailbox of rank `in`, in the half of this call, at
 * `unit`. */
static __device__ __forceinline__ weft_cuda_word_t *ll_of(const world_t &world, int in, int from,
                                                            uint64_t number, uint32_t unit)
{
    uint32_t words = (uint32_t)world.ll_words;
    uint32_t which = ((uint32_t)number & 1) * (uint32_t)world.size + (uint32_t)from;
    return world.mailbox[in]->ll + (which * words + 2 * unit);
}

template <int ELEMENT, bool EVEN>
static __device__ __forceinline__ void send_unit(const world_t &world, const call_t &call,
                                                 uint64_t bytes, uint64_t number, uint32_t unit)
{
    const weft_cuda_route_t &route = call.route;
    int here = unit_bytes(8ull * unit, bytes);
    const char *src = (const char *)call.src + 8ull * unit;
    uint32_t data[2];
    if (route.send_step == 0 && route.send_from < route.send_to) {
        unit_load<ELEMENT, EVEN>(src, here, data);
    }
#pragma unroll 1
    for (int p = route.send_from; p < route.send_to; p++) {
        if (p == world.rank) {
            continue;
        }
        if (route.send_step) {
            unit_load<ELEMENT, EVEN>(src + (uint64_t)p * route.send_step, here, data);
        }
        ll_store(ll_of(world, p, world.rank, number, unit), data, (uint32_t)number);
    }
}

/* Words of ranks first .. first + POLL_FAN - 1, asked for together; this rank's own unit comes from
 * its source. False: give up. */
template <int ELEMENT, bool EVEN>
static __device__ __forceinline__ bool take_units(const world_t &world, const call_t &call,
                                                  uint64_t bytes, uint64_t number, uint32_t unit,
                                                  int first, uint32_t (&data)[POLL_FAN][2])
{
    waiter_t waiter = {0, 0};
    const weft_cuda_word_t *words = ll_of(world, world.rank, first, number, unit);
    int last = call.route.recv_to - first, own = world.rank - first;
    for (;;) {
        int missing = -1;
#pragma unroll
        for (int i = 0; i < POLL_FAN; i++) {
            if (i < last && i != own &&
                !ll_load(words + (uint32_t)i * (uint32_t)world.ll_words, (uint32_t)number,
                           data[i])) {
                missing = i;
            }
        }
        if (missing < 0) {
            break;
        }
        if (poll_failed(world, &waiter, (uint32_t)(first + missing), number, call.sig,
                        call.count)) {
            return false;
        }
    }
    if (own >= 0 && own < POLL_FAN && own < last) {
        uint32_t mine[2];
        unit_load<ELEMENT, EVEN>((const char *)call.src + 8ull * unit +
                               (uint64_t)world.rank * call.route.send_step,
                           unit_bytes(8ull * unit, bytes), mine);
#pragma unroll
        for (int i = 0; i < POLL_FAN; i++) {
            if (i == own) {
                data[i][0] = mine[0];
                data[i][1] = mine[1];
            }
        }
    }
    return true;
}

/* ---- kernels ---------------------------------------------------------------------------- */

/* TYPE < 0: blocks are moved, not reduced. EVEN: also no more than POLL_FAN ranks. */
template <int TYPE, int OP, bool EVEN> struct line_work {
    static const int ELEMENT = (int)sizeof(typename weft_element<TYPE>::T);

    static __device__ __forceinline__ bool receive(const world_t &world, const call_t &call,
                                                   uint64_t bytes, uint64_t number, uint32_t unit)
    {
        weft_pack<TYPE, OP, 8> sum;
        uint32_t data[POLL_FAN][2];
        if (call.route.recv_to == 0) {
            return true;
        }
#pragma unroll 1
        for (int first = 0; first < (EVEN ? 1 : call.route.recv_to); first += POLL_FAN) {
            if (!take_units<ELEMENT, EVEN>(world, call, bytes, number, unit, first, data)) {
                return false;
            }
#pragma unroll
            for (int i = 0; i < POLL_FAN; i++) {
                if (first + i == 0) {
                    sum.set(data[i]);
                } else if (first + i < call.route.recv_to) {
                    sum.combine(data[i]);
                }
            }
        }
        uint32_t out[2];
        sum.get(world.size, out);
        unit_store<ELEMENT, EVEN>((char *)call.dst + 8ull * unit, unit_bytes(8ull * unit, bytes),
                                  out);
        return true;
    }
};

template <int OP, bool EVEN> struct line_work<-1, OP, EVEN> {
    static const int ELEMENT = 1;

    static __device__ __forceinline__ bool receive(const world_t &world, const call_t &call,
                                                   uint64_t bytes, uint64_t number, uint32_t unit)
    {
        uint32_t data[POLL_FAN][2];
        const weft_cuda_route_t &route = call.route;
#pragma unroll 1
        for (int first = route.recv_from; first < route.recv_to; first += POLL_FAN) {
            if (!take_units<ELEMENT, EVEN>(world, call, bytes, number, unit, first, data)) {
                return false;
            }
#pragma unroll
            for (int i = 0; i < POLL_FAN; i++) {
                if (first + i < route.recv_to) {
                    char *to = (char *)call.dst + 8ull * unit +
                               (uint64_t)(first + i) * route.recv_step;
                    unit_store<ELEMENT, EVEN>(to, unit_bytes(8ull * unit, bytes), data[i]);
                }
            }
        }
        return true;
    }
};

/* The first warp of a block: block 0 announces the call and waits for the others' announcements. */
static __device__ __forceinline__ void meet(const world_t &world, const call_t &call,
                                            uint64_t number)
{
    if (blockIdx.x == 0) {
        announce(world, call, number);
        await_heads(world, call, number, [](int, int, uint32_t) {});
    }
}

static __device__ __forceinline__ void end_call(const world_t &world, const call_t &call,
                                                uint64_t number)
{
    count_call(world, number);
    if (call.mark && threadIdx.x == 0 &&
        (gridDim.x == 1 || last_block(world, &world.mailbox[world.rank]->blocks, gridDim.x))) {
        tell_host(world, call.mark);
    }
}

/* The first unit of a thread, and how far it is to its next. */
static __device__ __forceinline__ uint32_t first_unit()
{
    return blockIdx.x * WEFT_CUDA_THREADS + threadIdx.x - 32;
}

static __device__ __forceinline__ uint32_t next_unit()
{
    return gridDim.x * WEFT_CUDA_THREADS;
}

template <int TYPE, int OP, bool EVEN>
static __global__ void __launch_bounds__(LINE_THREADS, WEFT_CUDA_BLOCKS_PER_SM)
    line_kernel(const __grid_constant__ world_t world, const __grid_constant__ call_t call,
                uint64_t bytes)
{
    if (world.size == 0) {
        return; /* only to be loaded */
    }
    await_turn();
    uint64_t number = call_number(world);
    if (threadIdx.x < 32) {
        meet(world, call, number);
    } else {
        typedef line_work<TYPE, OP, EVEN> work;
        uint32_t units = (uint32_t)((bytes + 7) / 8);
        bool more = true;
#pragma unroll 1
        for (uint32_t u = first_unit(); u < units && more; u += next_unit()) {
            send_unit<work::ELEMENT, EVEN>(world, call, bytes, number, u);
            more = work::receive(world, call, bytes, number, u);
        }
    }
    end_call(world, call, number);
}

/* ---- several calls as one --------------------------------------------------------------- */

/* The piece that unit u is in. */
static __device__ __forceinline__ int piece_of(const weft_cuda_batch_t &batch, uint32_t u)
{
    int low = 0, high = batch.n - 1;
#pragma unroll 1
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (batch.piece[middle].first <= u) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* To the functions above, a piece is a call whose buffers start so far before its own that its
 * first unit is where it should be. */
template <int TYPE, int OP>
static __global__ void __launch_bounds__(LINE_THREADS, WEFT_CUDA_BLOCKS_PER_SM)
    batch_kernel(const __grid_constant__ world_t world, const __grid_constant__ call_t call,
                 const __grid_constant__ weft_cuda_batch_t batch)
{
    if (world.size == 0) {
        return; /* only to be loaded */
    }
    await_turn();
    uint64_t number = call_number(world);
    if (threadIdx.x < 32) {
        meet(world, call, number);
    } else {
        typedef line_work<TYPE, OP, false> work;
        bool more = true;
#pragma unroll 1
        for (uint32_t u = first_unit(); u < batch.units && more; u += next_unit()) {
            const weft_cuda_batched_t &piece = batch.piece[piece_of(batch, u)];
            uint64_t before = 8ull * piece.first;
            call_t part = call;
            part.src = (const char *)piece.src - before;
            part.dst = (char *)piece.dst - before;
            send_unit<work::ELEMENT, false>(world, part, before + piece.bytes, number, u);
            more = work::receive(world, part, before + piece.bytes, number, u);
        }
    }
    end_call(world, call, number);
}

#endif
