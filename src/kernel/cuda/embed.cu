/* Embedding. Backward adds rows with the same token in their order: rows are sorted by token (stable,
 * so the order within a token is theirs), and each token's first row owns the sum. */
#include <cub/device/device_radix_sort.cuh>

#include "kernel/cuda/common.cuh"

enum { THREADS = 128, FETCH = 4 };

template <typename T>
static __global__ void __launch_bounds__(THREADS) look_up(weft_embed_t args, int64_t chunks,
                                                          bool wide)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, n = args.width;
    int64_t row = at / chunks, i = at % chunks * LANE, left = n - i;
    if (row >= args.batch * args.seq) {
        return;
    }
    int64_t id = args.tokens[row] - args.vocab_first;
    lane8 x = {};
    if (id >= 0 && id < args.vocab_count) {
        x = load8((const T *)args.table + id * n + i, left, wide);
    }
    if (args.positions != NULL) {
        int64_t position = args.position_first + row % args.seq;
        lane8 p = load8((const T *)args.positions + position * n + i, left, wide);
#pragma unroll
        for (int j = 0; j < LANE; j++) {
            x.x[j] += p.x[j];
        }
    }
    store8((T *)args.out + row * n + i, x, left, wide);
}

int weft_cuda_embed_forward(const weft_cuda_place_t *place, const weft_embed_t *args)
{
    bool wide = is_wide(args->width, args->table, args->positions, args->out);
    int64_t chunks = ceil_div(args->width, LANE);
    unsigned grid = grid_of(args->batch * args->seq * chunks, THREADS);
    by_type(args->type, [&](auto zero) {
        look_up<decltype(zero)><<<grid, THREADS, 0, stream_of(place)>>>(*args, chunks, wide);
    });
    return launched();
}

/* ---- backward ------------------------------------------------------------------------------ */

/* Parts of `work`. Keys are tokens' places in this slice; those that are not in it come last. */
struct sort_t {
    uint32_t *keys, *rows, *sorted_keys, *sorted_rows;
    void *space;
    size_t space_bytes;
    int bits;
};

static int plan_sort(const weft_embed_t *args, sort_t *sort)
{
    int64_t count = args->batch * args->seq, stride = ceil_div(count, 64) * 64;
    uint32_t *at = (uint32_t *)args->work;
    *sort = {at, at + stride, at + 2 * stride, at + 3 * stride, at + 4 * stride, 0, 1};
    while (args->vocab_count >> sort->bits != 0) {
        sort->bits++;
    }
    return (int)cub::DeviceRadixSort::SortPairs(
        NULL, sort->space_bytes, sort->keys, sort->sorted_keys, sort->rows, sort->sorted_rows,
        (int)count, 0, sort->bits);
}

size_t weft_cuda_embed_work(int gpu, const weft_embed_t *args)
{
    sort_t sort;
    weft_embed_t without = *args;
    without.work = NULL;
    if (cudaSetDevice(gpu) != cudaSuccess || plan_sort(&without, &sort) != 0) {
        (void)cudaGetLastError();
        return 0;
    }
    return (size_t)(ceil_div(args->batch * args->seq, 64) * 64) * 4 * sizeof(uint32_t) +
           sort.space_bytes;
}

static __global__ void __launch_bounds__(THREADS) make_keys(weft_embed_t args, uint32_t *keys,
                                                            uint32_t *rows)
{
    int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (row < args.batch * args.seq) {
        int64_t id = args.tokens[row] - args.vocab_first;
        bool here = id >= 0 && id < args.vocab_count;
        keys[row] = (uint32_t)(here ? id : args.vocab_count);
        rows[row] = (uint32_t)row;
    }
}

template <typename G>
static __device__ __forceinline__ void add_to(G *out, lane8 sum, int64_t left, bool wide)
{
    lane8 before = load8(out, left, wide);
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        sum.x[j] += before.x[j];
    }
    store8(out, sum, left, wide);
}

static __device__ __forceinline__ void add8(lane8 &sum, const lane8 &x)
{
#pragma unroll
    for (int j = 0; j < LANE; j++) {
        sum.x[j] += x.x[j];
    }
}

/* One block for each place in the sorted order; those that do not start a token have nothing to do.
 * Several rows are fetched at a time and added one by one. */
template <typename T, typename G>
static __global__ void __launch_bounds__(THREADS) add_tokens(weft_embed_t args, const uint32_t *keys,
                                                             const uint32_t *rows, bool wide)
{
    int64_t place = blockIdx.x, count = args.batch * args.seq, n = args.width;
    uint32_t key = keys[place];
    if (key >= (uint64_t)args.vocab_count || (place > 0 && keys[place - 1] == key)) {
        return;
    }
    int64_t end = place + 1, beyond = count; /* the first place of another token is in between */
    while (end < beyond) {
        int64_t middle = (end + beyond) / 2;
        if (keys[middle] == key) {
            end = middle + 1;
        } else {
            beyond = middle;
        }
    }
    for (int64_t i = (int64_t)threadIdx.x * LANE; i < n; i += THREADS * LANE) {
        const T *dout = (const T *)args.dout + i;
        int64_t left = n - i, p = place;
        lane8 sum = {};
        for (; p + FETCH <= end; p += FETCH) {
            lane8 x[FETCH];
#pragma unroll
            for (int f = 0; f < FETCH; f++) {
                x[f] = load8(dout + rows[p + f] * n, left, wide);
            }
#pragma unroll
            for (int f = 0; f < FETCH; f++) {
                add8(sum, x[f]);
            }
        }
        for (; p < end; p++) {
            add8(sum, load8(dout + rows[p] * n, left, wide));
        }
        add_to((G *)args.dtable + key * n + i, sum, left, wide);
    }
}

/* One block per position, over all sequences. */
template <typename T, typename G>
static __global__ void __launch_bounds__(THREADS) add_positions(weft_embed_t args, bool wide)
{
    int64_t t = blockIdx.x, n = args.width;
    for (int64_t i = (int64_t)threadIdx.x * LANE; i < n; i += THREADS * LANE) {
        lane8 sum = {};
        for (int64_t b = 0; b < args.batch; b++) {
            add8(sum, load8((const T *)args.dout + (b * args.seq + t) * n + i, n - i, wide));
        }
        add_to((G *)args.dpositions + (args.position_first + t) * n + i, sum, n - i, wide);
    }
}

template <typename T, typename G>
static int run_backward(const weft_cuda_place_t *place, const weft_embed_t *args)
{
    bool wide = is_wide(args->width, args->dout, args->dtable, args->dpositions);
    int64_t count = args->batch * args->seq;
    cudaStream_t stream = stream_of(place);
    sort_t sort;
    if (count == 0) {
        return 0;
    }
    if (args->dpositions != NULL) {
        add_positions<T, G><<<(unsigned)args->seq, THREADS, 0, stream>>>(*args, wide);
    }
    WEFT_TRY(plan_sort(args, &sort));
    make_keys<<<grid_of(count, THREADS), THREADS, 0, stream>>>(*args, sort.keys, sort.rows);
    WEFT_TRY(cub::DeviceRadixSort::SortPairs(sort.space, sort.space_bytes, sort.keys,
                                             sort.sorted_keys, sort.rows, sort.sorted_rows,
                                             (int)count, 0, sort.bits, stream));
    add_tokens<T, G><<<(unsigned)count, THREADS, 0, stream>>>(*args, sort.sorted_keys,
                                                              sort.sorted_rows, wide);
    return launched();
}

int weft_cuda_embed_backward(const weft_cuda_place_t *place, const weft_embed_t *args)
{
    return by_types(args->type, args->grad_type, [&](auto zero, auto grad) {
        return run_backward<decltype(zero), decltype(grad)>(place, args);
    });
}
