/* Small calls: the data travels with its flags. Every rank writes what its peers need into their
 * boxes and takes what it needs from its own; one trip, no fence.
 *
 * A thread moves units of 8 bytes. Unit u of every block that is sent and received is one thread's,
 * which sends all it has before it receives anything: that is what makes calls in place right, for a
 * thread only overwrites what it has sent itself. The first warp of block 0 announces the call and
 * compares announcements meanwhile. */
#ifndef WEFT_COMM_CUDA_LINES_CUH
#define WEFT_COMM_CUDA_LINES_CUH

#include "comm/call.h"
#include "comm/cuda/sync.cuh"
#include "kernel/cuda/element.cuh"

#define LINE_THREADS (WEFT_CUDA_THREADS + 32)
#define POLL_FAN 8 /* lines that a thread asks for at once */

/* What moves in a call, seen from one rank. */
typedef struct route {
    uint64_t bytes;      /* of a block */
    int send_from;       /* peers [send_from, send_to) get something; this rank is left out */
    int send_to;
    uint64_t send_step;  /* from the block for one peer to that for the next; 0: all get the same */
    int recv_from, recv_to; /* ranks that something is taken from, this one included */
    uint64_t recv_step;
} route_t;

static __device__ __forceinline__ route_t find_route(const world_t &world, const call_t &call,
                                                     uint64_t bytes)
{
    const int all = world.size;
    bool root = call.root == world.rank;
    route_t r = {bytes, 0, all, 0, 0, all, 0};
    switch (call.coll) {
    case WEFT_COLL_REDUCE:
        r.send_from = call.root;
        r.send_to = call.root + 1;
        r.recv_to = root ? all : 0;
        break;
    case WEFT_COLL_BROADCAST:
        r.send_to = root ? all : 0;
        r.recv_from = call.root;
        r.recv_to = call.root + 1;
        break;
    case WEFT_COLL_REDUCE_SCATTER:
        r.send_step = bytes;
        break;
    case WEFT_COLL_ALLGATHER:
        r.recv_step = bytes;
        break;
    case WEFT_COLL_GATHER:
        r.send_from = call.root;
        r.send_to = call.root + 1;
        r.recv_to = root ? all : 0;
        r.recv_step = bytes;
        break;
    case WEFT_COLL_SCATTER:
        r.send_to = root ? all : 0;
        r.send_step = bytes;
        r.recv_from = call.root;
        r.recv_to = call.root + 1;
        break;
    case WEFT_COLL_ALLTOALL:
        r.send_step = r.recv_step = bytes;
        break;
    case WEFT_COLL_BARRIER:
        r.send_to = r.recv_to = 0;
        break;
    default: /* allreduce */
        break;
    }
    return r;
}

/* ---- units ------------------------------------------------------------------------------ */

/* Bytes of a unit that lie inside a block, and whether 8 can be moved at once. */
static __device__ __forceinline__ int unit_bytes(uint64_t at, uint64_t bytes)
{
    return bytes - at < 8 ? (int)(bytes - at) : 8;
}

/* By elements of ELEMENT bytes where the address or the end does not allow more. */
template <int ELEMENT>
static __device__ __forceinline__ void unit_load(const char *from, int bytes, uint32_t (&data)[2])
{
    if (bytes == 8 && ((uintptr_t)from & 7) == 0) {
        uint2 both = *(const uint2 *)from;
        data[0] = both.x;
        data[1] = both.y;
        return;
    }
    uint64_t value = 0;
    for (int i = 0; i < bytes; i += ELEMENT) {
        uint64_t part = ELEMENT == 1   ? *(const uint8_t *)(from + i)
                        : ELEMENT == 2 ? *(const uint16_t *)(from + i)
                        : ELEMENT == 4 ? *(const uint32_t *)(from + i)
                                       : *(const uint64_t *)(from + i);
        value |= part << (8 * i);
    }
    data[0] = (uint32_t)value;
    data[1] = (uint32_t)(value >> 32);
}

template <int ELEMENT>
static __device__ __forceinline__ void unit_store(char *to, int bytes, const uint32_t (&data)[2])
{
    if (bytes == 8 && ((uintptr_t)to & 7) == 0) {
        *(uint2 *)to = make_uint2(data[0], data[1]);
        return;
    }
    uint64_t value = (uint64_t)data[1] << 32 | data[0];
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

static __device__ __forceinline__ weft_cuda_word_t *line_of(const world_t &world, int in, int from,
                                                            uint64_t number, uint64_t unit)
{
    uint64_t which = (number & 1) * (uint64_t)world.size + (uint64_t)from;
    return world.box[in]->line + which * world.line_words + 2 * unit;
}

template <int ELEMENT>
static __device__ __forceinline__ void send_unit(const world_t &world, const call_t &call,
                                                 const route_t &route, uint64_t number,
                                                 uint64_t unit)
{
    uint64_t at = 8 * unit;
    int bytes = unit_bytes(at, route.bytes);
    const char *src = (const char *)call.src + at;
    uint32_t data[2];
    if (route.send_step == 0 && route.send_from < route.send_to) {
        unit_load<ELEMENT>(src, bytes, data);
    }
    for (int p = route.send_from; p < route.send_to; p++) {
        if (p == world.rank) {
            continue;
        }
        if (route.send_step) {
            unit_load<ELEMENT>(src + (uint64_t)p * route.send_step, bytes, data);
        }
        line_store(line_of(world, p, world.rank, number, unit), data, (uint32_t)number);
    }
}

/* Lines of ranks first .. first + POLL_FAN - 1, asked for together; this rank's own unit comes from
 * its source. False: give up. */
template <int ELEMENT>
static __device__ __forceinline__ bool take_units(const world_t &world, const call_t &call,
                                                  const route_t &route, uint64_t number,
                                                  uint64_t unit, int first,
                                                  uint32_t (&data)[POLL_FAN][2])
{
    waiter_t waiter = {0, 0};
    for (;;) {
        int missing = -1;
#pragma unroll
        for (int i = 0; i < POLL_FAN; i++) {
            int p = first + i;
            if (p < route.recv_to && p != world.rank &&
                !line_load(line_of(world, world.rank, p, number, unit), (uint32_t)number,
                           data[i])) {
                missing = p;
            }
        }
        if (missing < 0) {
            break;
        }
        if (poll_failed(world, &waiter, (uint32_t)missing, number, call.sig, call.count)) {
            return false;
        }
    }
    int own = world.rank - first;
    if (own >= 0 && own < POLL_FAN && world.rank < route.recv_to) {
        uint32_t mine[2];
        unit_load<ELEMENT>((const char *)call.src + 8 * unit +
                               (uint64_t)world.rank * route.send_step,
                           unit_bytes(8 * unit, route.bytes), mine);
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

/* TYPE < 0: blocks are moved, not reduced. */
template <int TYPE> struct line_work {
    static const int ELEMENT = (int)sizeof(typename weft_element<TYPE>::T);

    static __device__ __forceinline__ bool receive(const world_t &world, const call_t &call,
                                                   const route_t &route, uint64_t number,
                                                   uint64_t unit)
    {
        weft_pack<TYPE, 8> sum;
        uint32_t data[POLL_FAN][2];
        if (route.recv_from == route.recv_to) {
            return true;
        }
        for (int first = 0; first < route.recv_to; first += POLL_FAN) {
            if (!take_units<ELEMENT>(world, call, route, number, unit, first, data)) {
                return false;
            }
#pragma unroll
            for (int i = 0; i < POLL_FAN; i++) {
                if (first + i == 0) {
                    sum.set(data[i]);
                } else if (first + i < route.recv_to) {
                    sum.combine(call.op, data[i]);
                }
            }
        }
        uint32_t out[2];
        sum.get(call.op, world.size, out);
        unit_store<ELEMENT>((char *)call.dst + 8 * unit, unit_bytes(8 * unit, route.bytes), out);
        return true;
    }
};

template <> struct line_work<-1> {
    static const int ELEMENT = 1;

    static __device__ __forceinline__ bool receive(const world_t &world, const call_t &call,
                                                   const route_t &route, uint64_t number,
                                                   uint64_t unit)
    {
        uint32_t data[POLL_FAN][2];
        for (int first = route.recv_from; first < route.recv_to; first += POLL_FAN) {
            if (!take_units<ELEMENT>(world, call, route, number, unit, first, data)) {
                return false;
            }
#pragma unroll
            for (int i = 0; i < POLL_FAN; i++) {
                if (first + i < route.recv_to) {
                    char *to = (char *)call.dst + 8 * unit + (uint64_t)(first + i) * route.recv_step;
                    unit_store<ELEMENT>(to, unit_bytes(8 * unit, route.bytes), data[i]);
                }
            }
        }
        return true;
    }
};

template <int TYPE>
static __global__ void __launch_bounds__(LINE_THREADS, WEFT_CUDA_BLOCKS_PER_SM)
    line_kernel(const __grid_constant__ world_t world, const __grid_constant__ call_t call,
                uint64_t bytes)
{
    if (world.size == 0) {
        return; /* only to be loaded */
    }
    uint64_t number = call_number(world);
    if (threadIdx.x < 32) {
        if (blockIdx.x == 0) {
            announce(world, call, number);
            await_heads(world, call, number, [](int, const head_t &) {});
        }
    } else {
        typedef line_work<TYPE> work;
        route_t route = find_route(world, call, bytes);
        uint64_t units = (bytes + 7) / 8, step = (uint64_t)gridDim.x * WEFT_CUDA_THREADS;
        bool more = true;
        for (uint64_t u = (uint64_t)blockIdx.x * WEFT_CUDA_THREADS + threadIdx.x - 32;
             u < units && more; u += step) {
            send_unit<work::ELEMENT>(world, call, route, number, u);
            more = work::receive(world, call, route, number, u);
        }
    }
    count_call(world, number);
    if (call.mark && threadIdx.x == 0 &&
        (gridDim.x == 1 || last_block(world, &world.box[world.rank]->blocks, gridDim.x))) {
        tell_host(world, call.mark);
    }
}

#endif
