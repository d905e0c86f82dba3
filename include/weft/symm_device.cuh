/* Weft: symmetric memory inside CUDA kernels.
 *
 *     __global__ void step(const __grid_constant__ weft_symm_view_t heap, float *inbox, ...)
 *     {
 *         ...
 *         weft_symm_put_signal_block(heap, inbox, mine, bytes, flag, round, WEFT_SIGNAL_SET, next);
 *         if (!weft_symm_signal_wait_block(heap, flag, WEFT_CMP_GE, round)) return;
 *         ...
 *
 * Names and arguments are those of <weft/symm.h>, with the view of the heap (weft_symm_view, made
 * by the host) in place of its handle, and no stream. Everything is in this header; nothing is
 * linked. Pass views as __grid_constant__ parameters, so that they stay in constant memory.
 *
 *  - Calls without a suffix are made by one thread, alone. `_warp`: by all 32 threads of a warp,
 *    `_block`: by all threads of a block (of any shape), with the same arguments; they share the
 *    work, and return when all of them are done.
 *  - Symmetric pointers point into this rank's heap; that is not checked here.
 *  - Copies move 16 bytes at a time where both addresses are multiples of 16.
 *  - Order is that of the whole system where ranks are on several GPUs, and that of the GPU where
 *    they share one, which is cheaper. The view knows.
 *  - Waits return false when they give up, because a rank died or time is up: end the kernel then;
 *    the host learns the reason from weft_symm_error. A kernel that waits must not keep those from
 *    running that it waits for: launch no more blocks than the GPU holds at once, on all ranks
 *    together.
 *
 * Included by a C or C++ compiler that knows no CUDA, this header declares nothing but
 * <weft/symm.h>. */
#ifndef WEFT_SYMM_DEVICE_CUH
#define WEFT_SYMM_DEVICE_CUH

#include <weft/symm.h>

#ifdef __CUDACC__

#define WEFT__DEVICE static __device__ __forceinline__

/* Behind the heap of every rank: where the barriers of kernels meet. */
typedef struct weft_symm_head {
    uint64_t epoch;       /* barriers that this rank's kernels have passed */
    uint64_t gave_up; /* a wait of this rank was in vain, and has been reported */
    uint64_t unused[14];
    uint64_t arrived[WEFT_SYMM_VIEW_RANKS]; /* [from]: the barrier that rank `from` has reached */
} weft_symm_head_t;

/* ---- addresses -------------------------------------------------------------------------- */

/* Where the symmetric address `addr` of this rank is on `rank`. */
template <typename T> WEFT__DEVICE T *weft_symm_ptr(const weft_symm_view_t &heap, T *addr, int rank)
{
    return (T *)(heap.base[rank] + ((const char *)addr - heap.base[heap.rank]));
}

WEFT__DEVICE weft_symm_head_t *weft__symm_head(const weft_symm_view_t &heap, int rank)
{
    return (weft_symm_head_t *)(heap.base[rank] + heap.bytes);
}

WEFT__DEVICE uint32_t weft__symm_thread()
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

WEFT__DEVICE uint32_t weft__symm_threads()
{
    return blockDim.x * blockDim.y * blockDim.z;
}

/* ---- order ------------------------------------------------------------------------------ */

/* What this thread wrote (and what it has seen, so also what others wrote before a __syncthreads)
 * is seen by whoever sees what it writes later. */
WEFT__DEVICE void weft_symm_fence(const weft_symm_view_t &heap)
{
    if (heap.wide) {
        asm volatile("fence.acq_rel.sys;" ::: "memory");
    } else {
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    }
}

/* Puts of this thread are complete. */
WEFT__DEVICE void weft_symm_quiet(const weft_symm_view_t &heap)
{
    if (heap.wide) {
        __threadfence_system();
    } else {
        __threadfence();
    }
}

WEFT__DEVICE uint64_t weft__symm_acquire(const weft_symm_view_t &heap, const uint64_t *from)
{
    uint64_t value;
    if (heap.wide) {
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    } else {
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    }
    return value;
}

WEFT__DEVICE void weft__symm_store(uint64_t *to, uint64_t value)
{
    *(volatile uint64_t *)to = value; /* neither cached nor torn */
}

WEFT__DEVICE uint64_t weft__symm_load(const uint64_t *from)
{
    return *(const volatile uint64_t *)from;
}

/* ---- copies ----------------------------------------------------------------------------- */

/* Thread `first` of `step` copies its part of `count` elements; several are under way at once. */
template <typename V>
WEFT__DEVICE void weft__symm_copy_as(void *dst, const void *src, uint64_t count, uint32_t first,
                                     uint32_t step)
{
    const int DEPTH = 8;
    V *to = (V *)dst;
    const V *from = (const V *)src;
    uint64_t i = first;
    for (; i + (uint64_t)(DEPTH - 1) * step < count; i += (uint64_t)DEPTH * step) {
        V part[DEPTH];
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            part[k] = from[i + (uint64_t)k * step];
        }
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            to[i + (uint64_t)k * step] = part[k];
        }
    }
    for (; i < count; i += step) {
        to[i] = from[i];
    }
}

static __device__ __noinline__ void weft__symm_copy_odd(void *dst, const void *src, uint64_t bytes,
                                                        uint32_t first, uint32_t step)
{
    if ((((uintptr_t)dst | (uintptr_t)src | bytes) & 3) == 0) {
        weft__symm_copy_as<uint32_t>(dst, src, bytes / 4, first, step);
    } else {
        weft__symm_copy_as<uint8_t>(dst, src, bytes, first, step);
    }
}

WEFT__DEVICE void weft__symm_copy(void *dst, const void *src, uint64_t bytes, uint32_t first,
                                  uint32_t step)
{
    uint64_t even = (((uintptr_t)dst | (uintptr_t)src) & 15) == 0 ? bytes / 16 * 16 : 0;
    if (even > 0) {
        weft__symm_copy_as<uint4>(dst, src, even / 16, first, step);
    }
    if (even < bytes) {
        weft__symm_copy_odd((char *)dst + even, (const char *)src + even, bytes - even, first,
                            step);
    }
}

/* One element, by value. */
template <typename T>
WEFT__DEVICE void weft_symm_p(const weft_symm_view_t &heap, T *dst, T value, int rank)
{
    *weft_symm_ptr(heap, dst, rank) = value;
}

template <typename T>
WEFT__DEVICE T weft_symm_g(const weft_symm_view_t &heap, const T *src, int rank)
{
    return *(const volatile T *)weft_symm_ptr(heap, src, rank);
}

WEFT__DEVICE void weft_symm_put(const weft_symm_view_t &heap, void *dst, const void *src,
                                uint64_t bytes, int rank)
{
    weft__symm_copy(weft_symm_ptr(heap, (char *)dst, rank), src, bytes, 0, 1);
}

WEFT__DEVICE void weft_symm_put_warp(const weft_symm_view_t &heap, void *dst, const void *src,
                                     uint64_t bytes, int rank)
{
    weft__symm_copy(weft_symm_ptr(heap, (char *)dst, rank), src, bytes, weft__symm_thread() % 32,
                    32);
    __syncwarp();
}

WEFT__DEVICE void weft_symm_put_block(const weft_symm_view_t &heap, void *dst, const void *src,
                                      uint64_t bytes, int rank)
{
    weft__symm_copy(weft_symm_ptr(heap, (char *)dst, rank), src, bytes, weft__symm_thread(),
                    weft__symm_threads());
    __syncthreads();
}

WEFT__DEVICE void weft_symm_get(const weft_symm_view_t &heap, void *dst, const void *src,
                                uint64_t bytes, int rank)
{
    weft__symm_copy(dst, weft_symm_ptr(heap, (const char *)src, rank), bytes, 0, 1);
}

WEFT__DEVICE void weft_symm_get_warp(const weft_symm_view_t &heap, void *dst, const void *src,
                                     uint64_t bytes, int rank)
{
    weft__symm_copy(dst, weft_symm_ptr(heap, (const char *)src, rank), bytes,
                    weft__symm_thread() % 32, 32);
    __syncwarp();
}

WEFT__DEVICE void weft_symm_get_block(const weft_symm_view_t &heap, void *dst, const void *src,
                                      uint64_t bytes, int rank)
{
    weft__symm_copy(dst, weft_symm_ptr(heap, (const char *)src, rank), bytes, weft__symm_thread(),
                    weft__symm_threads());
    __syncthreads();
}

/* ---- signals ---------------------------------------------------------------------------- */

WEFT__DEVICE void weft__symm_signal(const weft_symm_view_t &heap, uint64_t *word, uint64_t value,
                                    weft_signal_op_t op)
{
    unsigned long long *at = (unsigned long long *)word;
    weft_symm_fence(heap); /* partner: the acquire load of whoever waits for the word */
    if (op == WEFT_SIGNAL_SET) {
        weft__symm_store(word, value);
    } else if (heap.wide) {
        atomicAdd_system(at, (unsigned long long)value);
    } else {
        atomicAdd(at, (unsigned long long)value);
    }
}

WEFT__DEVICE void weft_symm_signal_op(const weft_symm_view_t &heap, uint64_t *signal,
                                      uint64_t value, weft_signal_op_t op, int rank)
{
    weft__symm_signal(heap, weft_symm_ptr(heap, signal, rank), value, op);
}

/* 8 bytes are one store, by the thread that signals: nobody else need be waited for. */
WEFT__DEVICE bool weft__symm_is_word(const void *dst, const void *src, uint64_t bytes)
{
    return bytes == 8 && (((uintptr_t)dst | (uintptr_t)src) & 7) == 0;
}

WEFT__DEVICE void weft_symm_put_signal(const weft_symm_view_t &heap, void *dst, const void *src,
                                       uint64_t bytes, uint64_t *signal, uint64_t value,
                                       weft_signal_op_t op, int rank)
{
    weft_symm_put(heap, dst, src, bytes, rank);
    weft_symm_signal_op(heap, signal, value, op, rank);
}

WEFT__DEVICE void weft_symm_put_signal_warp(const weft_symm_view_t &heap, void *dst,
                                            const void *src, uint64_t bytes, uint64_t *signal,
                                            uint64_t value, weft_signal_op_t op, int rank)
{
    weft_symm_put_warp(heap, dst, src, bytes, rank);
    if (weft__symm_thread() % 32 == 0) {
        weft_symm_signal_op(heap, signal, value, op, rank);
    }
    __syncwarp();
}

/* The signal is seen after the data: every thread's stores come before the barrier of the block,
 * and the fence of the one that signals covers them. */
WEFT__DEVICE void weft_symm_put_signal_block(const weft_symm_view_t &heap, void *dst,
                                             const void *src, uint64_t bytes, uint64_t *signal,
                                             uint64_t value, weft_signal_op_t op, int rank)
{
    char *to = weft_symm_ptr(heap, (char *)dst, rank);
    uint32_t thread = weft__symm_thread();
    if (weft__symm_is_word(to, src, bytes)) {
        if (thread == 0) {
            *(uint64_t *)to = *(const uint64_t *)src;
        }
    } else {
        weft__symm_copy(to, src, bytes, thread, weft__symm_threads());
        __syncthreads();
    }
    if (thread == 0) {
        weft_symm_signal_op(heap, signal, value, op, rank);
    }
}

WEFT__DEVICE bool weft__symm_holds(uint64_t word, weft_cmp_t cmp, uint64_t value)
{
    return cmp == WEFT_CMP_GE   ? word >= value
           : cmp == WEFT_CMP_EQ ? word == value
           : cmp == WEFT_CMP_NE ? word != value
           : cmp == WEFT_CMP_GT ? word > value
           : cmp == WEFT_CMP_LT ? word < value
                                : word <= value;
}

#define WEFT__SYMM_POLLS 256 /* between looks at the host's memory: about 150 us */

/* A thread has polled in vain for a while. True: give up. */
static __device__ __noinline__ bool weft__symm_give_up(const weft_symm_view_t &heap,
                                                       const uint64_t *word, weft_cmp_t cmp,
                                                       uint64_t value, uint64_t *since)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (*(const volatile uint32_t *)heap.stop) {
        return true;
    }
    *since = *since ? *since : now;
    if (heap.timeout_ns == 0 || now - *since <= heap.timeout_ns) {
        return false;
    }
    volatile weft_symm_report_t *report = heap.report;
    unsigned long long *first = (unsigned long long *)&weft__symm_head(heap, heap.rank)->gave_up;
    if (atomicExch(first, 1ull) == 0) {
        report->cmp = cmp;
        report->offset = (uint64_t)((const char *)word - heap.base[heap.rank]);
        report->wanted = value;
        report->found = weft__symm_load(word);
        __threadfence_system(); /* partner: the host's acquire load of `ready` */
        report->ready = 1;
    }
    return true;
}

/* Wait until `*signal cmp value` holds, for this rank's own word. */
WEFT__DEVICE bool weft_symm_signal_wait(const weft_symm_view_t &heap, const uint64_t *signal,
                                        weft_cmp_t cmp, uint64_t value)
{
    uint32_t polls = 0;
    uint64_t since = 0;
    while (!weft__symm_holds(weft__symm_acquire(heap, signal), cmp, value)) {
        if (++polls % WEFT__SYMM_POLLS == 0 &&
            weft__symm_give_up(heap, signal, cmp, value, &since)) {
            return false;
        }
    }
    return true;
}

WEFT__DEVICE bool weft_symm_signal_wait_warp(const weft_symm_view_t &heap, const uint64_t *signal,
                                             weft_cmp_t cmp, uint64_t value)
{
    int fine = 1;
    if (weft__symm_thread() % 32 == 0) {
        fine = weft_symm_signal_wait(heap, signal, cmp, value);
    }
    return __shfl_sync(0xffffffffu, fine, 0) != 0;
}

WEFT__DEVICE bool weft_symm_signal_wait_block(const weft_symm_view_t &heap, const uint64_t *signal,
                                              weft_cmp_t cmp, uint64_t value)
{
    int late = 0;
    if (weft__symm_thread() == 0) {
        late = !weft_symm_signal_wait(heap, signal, cmp, value);
    }
    return !__syncthreads_or(late);
}

/* ---- barriers --------------------------------------------------------------------------- */

/* Threads `first`, `first + step`, ... of those that enter together; each meets some of the
 * ranks. */
WEFT__DEVICE bool weft__symm_meet(const weft_symm_view_t &heap, uint64_t epoch, uint32_t first,
                                  uint32_t step)
{
    const uint64_t *arrived = weft__symm_head(heap, heap.rank)->arrived;
    bool fine = true;
    for (int p = (int)first; p < heap.size; p += (int)step) {
        if (p != heap.rank) {
            weft_symm_fence(heap); /* partner: the acquire load in the wait below, on rank p */
            weft__symm_store(&weft__symm_head(heap, p)->arrived[heap.rank], epoch);
        }
    }
    for (int p = (int)first; p < heap.size && fine; p += (int)step) {
        fine = p == heap.rank || weft_symm_signal_wait(heap, &arrived[p], WEFT_CMP_GE, epoch);
    }
    return fine;
}

/* Wait for all ranks: what they wrote before can be read then. Of each rank one thread (warp,
 * block) takes part, in one barrier at a time. */
WEFT__DEVICE bool weft_symm_barrier(const weft_symm_view_t &heap)
{
    uint64_t *epoch = &weft__symm_head(heap, heap.rank)->epoch, next = weft__symm_load(epoch) + 1;
    bool fine = weft__symm_meet(heap, next, 0, 1);
    weft__symm_store(epoch, next);
    return fine;
}

WEFT__DEVICE bool weft_symm_barrier_warp(const weft_symm_view_t &heap)
{
    uint32_t lane = weft__symm_thread() % 32;
    __syncwarp();
    uint64_t *epoch = &weft__symm_head(heap, heap.rank)->epoch, next = weft__symm_load(epoch) + 1;
    bool fine = __all_sync(0xffffffffu, weft__symm_meet(heap, next, lane, 32));
    if (lane == 0) {
        weft__symm_store(epoch, next);
    }
    __syncwarp();
    return fine;
}

WEFT__DEVICE bool weft_symm_barrier_block(const weft_symm_view_t &heap)
{
    uint32_t thread = weft__symm_thread();
    __syncthreads();
    uint64_t *epoch = &weft__symm_head(heap, heap.rank)->epoch, next = weft__symm_load(epoch) + 1;
    bool late = !weft__symm_meet(heap, next, thread, weft__symm_threads());
    late = __syncthreads_or(late);
    if (thread == 0) {
        weft__symm_store(epoch, next);
    }
    return !late;
}

/* ---- atomics ---------------------------------------------------------------------------- */

/* On a symmetric word of `rank`, by one thread. They order nothing: signals and fences do. T:
 * int32_t, uint32_t, int64_t, uint64_t; add also float and double. */
#define WEFT__SYMM_ATOMIC(name, T, W, call)                                                        \
    WEFT__DEVICE T weft_symm_atomic_##name(const weft_symm_view_t &heap, T *target, T value,       \
                                           int rank)                                               \
    {                                                                                              \
        W *at = (W *)weft_symm_ptr(heap, target, rank);                                            \
        return (T)(heap.wide ? call##_system(at, (W)value) : call(at, (W)value));                  \
    }

#define WEFT__SYMM_ATOMICS(T, W)                                                                   \
    WEFT__SYMM_ATOMIC(fetch_add, T, W, atomicAdd)                                                  \
    WEFT__SYMM_ATOMIC(fetch_and, T, W, atomicAnd)                                                  \
    WEFT__SYMM_ATOMIC(fetch_or, T, W, atomicOr)                                                    \
    WEFT__SYMM_ATOMIC(fetch_xor, T, W, atomicXor)                                                  \
    WEFT__SYMM_ATOMIC(swap, T, W, atomicExch)                                                      \
    WEFT__DEVICE T weft_symm_atomic_cswap(const weft_symm_view_t &heap, T *target, T expected,     \
                                          T value, int rank)                                       \
    {                                                                                              \
        W *at = (W *)weft_symm_ptr(heap, target, rank);                                            \
        return (T)(heap.wide ? atomicCAS_system(at, (W)expected, (W)value)                         \
                             : atomicCAS(at, (W)expected, (W)value));                              \
    }                                                                                              \
    WEFT__DEVICE void weft_symm_atomic_set(const weft_symm_view_t &heap, T *target, T value,       \
                                           int rank)                                               \
    {                                                                                              \
        (void)weft_symm_atomic_swap(heap, target, value, rank);                                    \
    }                                                                                              \
    WEFT__DEVICE T weft_symm_atomic_fetch(const weft_symm_view_t &heap, const T *target, int rank) \
    {                                                                                              \
        return *(const volatile T *)weft_symm_ptr(heap, target, rank);                             \
    }

WEFT__SYMM_ATOMICS(int32_t, unsigned)
WEFT__SYMM_ATOMICS(uint32_t, unsigned)
WEFT__SYMM_ATOMICS(int64_t, unsigned long long)
WEFT__SYMM_ATOMICS(uint64_t, unsigned long long)
WEFT__SYMM_ATOMIC(fetch_add, float, float, atomicAdd)
WEFT__SYMM_ATOMIC(fetch_add, double, double, atomicAdd)

#define WEFT__SYMM_WITHOUT(name)                                                                   \
    template <typename T>                                                                          \
    WEFT__DEVICE void weft_symm_atomic_##name(const weft_symm_view_t &heap, T *target, T value,    \
                                              int rank)                                            \
    {                                                                                              \
        (void)weft_symm_atomic_fetch_##name(heap, target, value, rank);                            \
    }

WEFT__SYMM_WITHOUT(add)
WEFT__SYMM_WITHOUT(and)
WEFT__SYMM_WITHOUT(or)
WEFT__SYMM_WITHOUT(xor)

/* ---- distributed tensor ----------------------------------------------------------------- */

/* Row `row`, wherever it is; its owner in *rank_p (may be NULL). NULL: there is no such row. */
WEFT__DEVICE char *weft_dtensor_row(const weft_symm_view_t &heap, const weft_dtensor_view_t &tensor,
                                    uint64_t row, int *rank_p)
{
    for (int p = 0; p < heap.size; p++) {
        if (row < tensor.first[p + 1]) {
            if (rank_p) {
                *rank_p = p;
            }
            return heap.base[p] + tensor.offset + (row - tensor.first[p]) * tensor.row_bytes;
        }
    }
    return NULL;
}

/* ---- parameters with hot swap ----------------------------------------------------------- */

/* What is current on a rank, at view.head of its heap. Version v is in buffer v % 2. */
typedef struct weft_params_words {
    uint64_t current; /* version to read */
    uint64_t writing; /* version that is being, or was last, written */
} weft_params_words_t;

/* Past the caches of the multiprocessor: a swap may write at the same time. */
WEFT__DEVICE void weft__params_load(void *dst, const void *src, uint64_t bytes, uint32_t first,
                                    uint32_t step)
{
    uint64_t even = (((uintptr_t)dst | (uintptr_t)src) & 15) == 0 ? bytes / 16 : 0;
#pragma unroll 4
    for (uint64_t i = first; i < even; i += step) {
        ((uint4 *)dst)[i] = __ldcg((const uint4 *)src + i);
    }
    for (uint64_t i = even * 16 + first; i < bytes; i += step) {
        ((char *)dst)[i] = __ldcg((const char *)src + i);
    }
}

/* Copy `bytes` from `offset` on of the replica on `rank` to dst, all of one version, which
 * *version_p gets (may be NULL). By a block. It never waits: it reads again if two swaps began
 * meanwhile. False: the communicator is broken. */
WEFT__DEVICE bool weft_params_read_block(const weft_symm_view_t &heap,
                                         const weft_params_view_t &params, int rank,
                                         uint64_t offset, uint64_t bytes, void *dst,
                                         uint64_t *version_p)
{
    const weft_params_words_t *words = (const weft_params_words_t *)(heap.base[rank] + params.head);
    uint32_t thread = weft__symm_thread();
    for (;;) {
        __shared__ uint64_t current;
        __syncthreads(); /* those who still look at the one before */
        if (thread == 0) {
            current = weft__symm_acquire(heap, &words->current);
        }
        __syncthreads();
        uint64_t seen = current;
        const char *from = heap.base[rank] + params.buffer[seen & 1] + offset;
        weft__params_load(dst, from, bytes, thread, weft__symm_threads());
        __syncthreads(); /* every load has its value: it was stored */
        int torn = 0, stop = 0;
        if (thread == 0) {
            weft_symm_fence(heap); /* partner: the fence between `writing` and the data of a swap */
            uint64_t writing = weft__symm_load(&words->writing);
            torn = writing >= seen + 2; /* which goes to the same buffer */
            stop = torn && *(const volatile uint32_t *)heap.stop;
        }
        if (!__syncthreads_or(torn)) {
            if (version_p && thread == 0) {
                *version_p = seen;
            }
            return true;
        }
        if (__syncthreads_or(stop)) {
            return false;
        }
    }
}

#endif
#endif
