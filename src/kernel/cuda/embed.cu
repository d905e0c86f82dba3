/* Embedding. Backward adds rows with the same token in a fixed order: rows are sorted by token
 * (stable, so the order within a token is theirs) and cut into pieces of PIECE. A token that has
 * all its rows in one piece is added up there; of others, a part in each piece, and then the parts.
 * In texts, some tokens have a tenth of all rows: one block would be busy with them for longer than
 * with all else. */
#include <cub/device/device_radix_sort.cuh>

#include "kernel/cuda/common.cuh"

enum { THREADS = 128, FETCH = 4, PIECE = 64 };

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

int weft_cuda_embed_forward(const weft_cuda_exec_t *exec, const weft_embed_t *args)
{
    bool wide = is_wide(args->width, args->table, args->positions, args->out);
    int64_t chunks = ceil_div(args->width, LANE);
    unsigned grid = grid_of(args->batch * args->seq * chunks, THREADS);
    by_type(args->type, [&](auto zero) {
        look_up<decltype(zero)><<<grid, THREADS, 0, stream_of(exec)>>>(*args, chunks, wide);
    });
    return launched();
}

/* ---- backward ------------------------------------------------------------------------------ */

/* Parts of `work`. Keys are tokens' places in this slice; those that are not in it come last. A
 * piece has room for two sums: of a token that came from the piece before, and of one that goes on
 * in the next. */
struct sort_t {
    uint32_t *keys, *rows, *sorted_keys, *sorted_rows;
    float *sums;
    void *space;
    size_t space_bytes;
    int bits;
};

static int64_t sum_count(const weft_embed_t *args)
{
    return ceil_div(2 * ceil_div(args->batch * args->seq, PIECE) * args->width, 64) * 64;
}

static int plan_sort(const weft_embed_t *args, sort_t *sort)
{
    int64_t count = args->batch * args->seq, stride = ceil_div(count, 64) * 64;
    uint32_t *at = (uint32_t *)args->work;
    float *sums = (float *)(at + 4 * stride);
    *sort = {at, at + stride, at + 2 * stride, at + 3 * stride, sums, sums + sum_count(args), 0, 1};
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
           (size_t)sum_count(args) * sizeof(float) + sort.space_bytes;
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

/* The first of [from, end) whose key is another; keys are sorted. */
static __device__ __forceinline__ int64_t run_end(const uint32_t *keys, uint32_t key, int64_t from,
                                                  int64_t end, int64_t step)
{
    while (from < end) {
        int64_t middle = (from + end) / 2;
        if (keys[middle * step] == key) {
            from = middle + 1;
        } else {
            end = middle;
        }
    }
    return end;
}

/* One block for each place in the sorted order; those that start neither a token nor a piece have
 * nothing to do. Several rows are fetched at a time and added one by one. */
template <typename T, typename G>
static __global__ void __launch_bounds__(THREADS)
    add_tokens(weft_embed_t args, const uint32_t *keys, const uint32_t *rows, float *sums,
               bool wide)
{
    int64_t place = blockIdx.x, count = args.batch * args.seq, n = args.width;
    uint32_t key = keys[place];
    bool first = place == 0 || keys[place - 1] != key;
    if (key >= (uint64_t)args.vocab_count || (!first && place % PIECE != 0)) {
        return;
    }
    int64_t piece = place / PIECE, limit = piece * PIECE + PIECE;
    limit = limit < count ? limit : count;
    int64_t end = run_end(keys, key, place + 1, limit, 1);
    bool all = first && (end < limit || limit == count || keys[limit] != key);
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
        if (all) {
            add_to((G *)args.dtable + key * n + i, sum, left, wide);
        } else {
            store8(sums + (2 * piece + first) * n + i, sum, left, wide);
        }
    }
}

/* One block for each piece but the last: if a token starts in it and goes on in the next, the sum
 * of its parts. */
template <typename G>
static __global__ void __launch_bounds__(THREADS)
    join_pieces(weft_embed_t args, const uint32_t *keys, const float *sums, bool wide)
{
    int64_t piece = blockIdx.x, start = piece * PIECE, n = args.width;
    int64_t pieces = (args.batch * args.seq + PIECE - 1) / PIECE;
    uint32_t key = keys[start + PIECE];
    bool came = keys[start] == key && start > 0 && keys[start - 1] == key;
    if (key >= (uint64_t)args.vocab_count || keys[start + PIECE - 1] != key || came) {
        return;
    }
    int64_t end = run_end(keys, key, piece + 2, pieces, PIECE);
    for (int64_t i = (int64_t)threadIdx.x * LANE; i < n; i += THREADS * LANE) {
        lane8 sum = load8(sums + (2 * piece + 1) * n + i, n - i, wide);
#pragma unroll 4
        for (int64_t p = piece + 1; p < end; p++) {
            add8(sum, load8(sums + 2 * p * n + i, n - i, wide));
        }
        add_to((G *)args.dtable + key * n + i, sum, n - i, wide);
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
static int run_backward(const weft_cuda_exec_t *exec, const weft_embed_t *args)
{
    bool wide = is_wide(args->width, args->dout, args->dtable, args->dpositions, args->work);
    int64_t count = args->batch * args->seq;
    cudaStream_t stream = stream_of(exec);
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
                                                              sort.sorted_rows, sort.sums, wide);
    if (count > PIECE) {
        join_pieces<G><<<(unsigned)ceil_div(count, PIECE) - 1, THREADS, 0, stream>>>(
            *args, sort.sorted_keys, sort.sums, wide);
    }
    return launched();
}

int weft_cuda_embed_backward(const weft_cuda_exec_t *exec, const weft_embed_t *args)
{
    return by_types(args->type, args->grad_type, [&](auto zero, auto grad) {
        return run_backward<decltype(zero), decltype(grad)>(exec, args);
    });
}
