/* Attention, backward, with Hopper's products of warpgroups, for heads of 64. Two kernels, in the
 * manner of hopper.cuh; a piece of work is 128 rows of a head, a warpgroup has 64 of them:
 *
 *   slopes of queries   rows are queries, steps are tiles of keys up to the diagonal
 *       s = q k^T      p = exp(s - lse)      dp = do v^T      ds = p (dp - delta)      dq += ds k
 *   slopes of keys      rows are keys, steps are tiles of queries from the diagonal on, by head
 *       s^T = k q^T    p^T = exp(s^T - lse)  dp^T = v do^T    ds^T = p^T (dp^T - delta)
 *       dv += p^T do   dk += ds^T q
 *
 * That is 7 products where one kernel would do with 5. But what is multiplied next is then always
 * in the registers of the warpgroup that made it, sums have one owner, so that they are the same in
 * every run, and no warpgroup ever waits for another one. One kernel has to send ds through shared
 * memory and dq through the L2 cache, in turns: it took twice the time.
 *
 * The first kernel also finds delta = sum of do x out, and leaves it with lse to the second. */
#include "kernel/cuda/hopper.cuh"
#include "kernel/cuda/wgmma.cuh"

struct slopes_t {
    heads_t at;
    const float *lse;
    float *statistics; /* B x H x tiles x {lse in powers of 2, delta} x SIDE; past the end 0 */
    uint32_t *tickets; /* of the two kernels */
    int tiles, blocks; /* of a sequence: of SIDE rows; of BLOCK_ROWS */
    uint32_t query_pieces, key_pieces;
};

struct slope_maps_t {
    CUtensorMap qkv, out, dout, dqkv;
};

/* Where tiles and barriers are in shared memory, in bytes. */
enum {
    /* queries: q, do, out stay; k, v come in steps; dq goes */
    QUERY_PIECE = 3 * GROUPS * TILE_BYTES,
    QUERY_STEP = 2 * TILE_BYTES,
    QUERY_STEPS_AT = PIECES * QUERY_PIECE,
    QUERY_OUT_AT = QUERY_STEPS_AT + STEPS * QUERY_STEP,
    QUERY_RINGS_AT = QUERY_OUT_AT + GROUPS * TILE_BYTES,
    QUERY_SHARED = QUERY_RINGS_AT + (int)sizeof(rings_t),
    /* keys: k, v stay; q, do and their statistics come in steps; dk, dv go */
    STATISTICS_BYTES = 2 * SIDE * 4,
    KEY_PIECE = 2 * GROUPS * TILE_BYTES,
    KEY_STEP = 2 * TILE_BYTES + 1024, /* tiles start at multiples of 1024 */
    KEY_STEPS_AT = PIECES * KEY_PIECE,
    KEY_OUT_AT = KEY_STEPS_AT + STEPS * KEY_STEP,
    KEY_RINGS_AT = KEY_OUT_AT + 2 * GROUPS * TILE_BYTES,
    KEY_SHARED = KEY_RINGS_AT + (int)sizeof(rings_t)
};

#if HOPPER

/* A piece of work: which rows, and the steps that they need. */
struct piece_t {
    int b, head, first; /* sequence; head of the rows; first row */
    int from, each;     /* tiles of the other kind: first, and how many (by head) */
};

/* Of the queries: the last ones of a head have most keys and come first, then the others of the
 * same head, which find its keys and values in the cache. */
static __device__ __forceinline__ piece_t query_piece(const slopes_t &args, uint32_t drawn)
{
    int head = (int)drawn / args.blocks, block = args.blocks - 1 - (int)drawn % args.blocks;
    int last = block * BLOCK_ROWS + BLOCK_ROWS < args.at.seq ? block * BLOCK_ROWS + BLOCK_ROWS
                                                             : (int)args.at.seq;
    return {head / args.at.heads, head % args.at.heads, block * BLOCK_ROWS, 0,
            (last + SIDE - 1) / SIDE};
}

static __device__ __forceinline__ piece_t key_piece(const slopes_t &args, uint32_t drawn)
{
    int head = (int)drawn / args.blocks, first = (int)drawn % args.blocks * BLOCK_ROWS;
    return {head / args.at.kv_heads, head % args.at.kv_heads, first, first / SIDE,
            args.tiles - first / SIDE};
}

/* ---- queries ------------------------------------------------------------------------------ */

static __device__ __forceinline__ void feed_queries(const slope_maps_t &maps, const slopes_t &args,
                                                    uint32_t shared, rings_t *rings)
{
    cursor_t<PIECES> piece = {};
    cursor_t<STEPS> step = {};
    uint32_t drawn = atomicAdd(args.tickets, 1);
    for (; piece_offer(rings, piece, drawn, args.query_pieces, QUERY_PIECE); piece.next()) {
        piece_t work = query_piece(args, drawn);
        int k = (args.at.heads + work.head / args.at.group) * SIDE, v = k + args.at.kv_heads * SIDE;
        uint32_t full = bar(&rings->piece_full[piece.at]);
        for (int i = 0; i < GROUPS; i++) {
            uint32_t to = shared + (uint32_t)(piece.at * QUERY_PIECE + i * TILE_BYTES);
            int t = work.first + i * SIDE, x = work.head * SIDE;
            tile_load(to, maps.qkv, x, t, work.b, full);
            tile_load(to + GROUPS * TILE_BYTES, maps.dout, x, t, work.b, full);
            tile_load(to + 2 * GROUPS * TILE_BYTES, maps.out, x, t, work.b, full);
        }
        drawn = atomicAdd(args.tickets, 1);
        for (int i = 0; i < work.each; i++, step.next()) {
            uint32_t to = shared + (uint32_t)(QUERY_STEPS_AT + step.at * QUERY_STEP);
            full = bar(&rings->step_full[step.at]);
            barrier_wait(bar(&rings->step_free[step.at]), step.parity ^ 1);
            barrier_announce(full, QUERY_STEP);
            int t = (work.each - 1 - i) * SIDE; /* the diagonal first */
            tile_load(to, maps.qkv, k, t, work.b, full);
            tile_load(to + TILE_BYTES, maps.qkv, v, t, work.b, full);
        }
    }
}

/* Of a thread's two rows. */
struct rows_t {
    float lse2[2], delta[2];
};

/* A quarter of a row's do x out each, then the sum; left to the other kernel as well. */
template <typename T>
static __device__ __forceinline__ rows_t find_rows(const slopes_t &args, const piece_t &work,
                                                   int first, const char *dout, const char *out)
{
    int lane = (int)threadIdx.x % 32, local = (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
    int64_t head = (int64_t)work.b * args.at.heads + work.head;
    float *keep = args.statistics + (head * args.tiles + first / SIDE) * 2 * SIDE;
    rows_t rows;
#pragma unroll
    for (int half = 0; half < 2; half++, local += 8) {
        bool inside = first + local < args.at.seq;
        float lse = inside ? args.lse[head * args.at.seq + first + local] : 0.0f, sum = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t at = unit_at<SIDE>(local, lane % 4 * 2 + i);
            lane8 x = unpack<T>(*reinterpret_cast<const uint4 *>(dout + at));
            lane8 y = unpack<T>(*reinterpret_cast<const uint4 *>(out + at));
#pragma unroll
            for (int j = 0; j < LANE; j++) {
                sum += x.x[j] * y.x[j];
            }
        }
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        rows.lse2[half] = lse * LOG2E;
        rows.delta[half] = sum;
        if (lane % 4 == 0 && first < args.tiles * SIDE) {
            keep[local] = rows.lse2[half];
            keep[SIDE + local] = sum;
        }
    }
    return rows;
}

/* Rows are queries from `query` on, columns keys from `key` on: those after a query do not
 * count. */
template <bool ROWS_ARE_KEYS> static __device__ __forceinline__ void hide_after(float s[8][4])
{
    int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int r = row + j / 2 * 8, column = 8 * n + lane % 4 * 2 + j % 2;
            bool hidden = ROWS_ARE_KEYS ? r > column : column > r;
            s[n][j] = hidden ? -INFINITY : s[n][j];
        }
    }
}

/* What dropout multiplied a probability with. */
static __device__ __forceinline__ float dropped(const heads_t &at, int b, int h, int query, int key)
{
    return mask_factor(at.mask, mask_row(at, b, h, query) + key);
}

/* ds = p (dp - delta), in place of dp. */
template <bool DROP>
static __device__ __forceinline__ void query_slopes(const slopes_t &args, const piece_t &work,
                                                    int query, int key, const rows_t &rows,
                                                    const float s[8][4], float dp[8][4])
{
    const int lane = (int)threadIdx.x % 32, local = (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
    const float scale_log2 = args.at.scale * LOG2E;
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float p = exp2_fast(s[n][j] * scale_log2 - rows.lse2[j / 2]);
            float factor = !DROP ? 1.0f
                                 : dropped(args.at, work.b, work.head, query + local + j / 2 * 8,
                                           key + 8 * n + lane % 4 * 2 + j % 2);
            dp[n][j] = p * (dp[n][j] * factor - rows.delta[j / 2]);
        }
    }
}

/* Products of the next step are started before those that need this one's result, so that dq's sum
 * runs while the next exponentials are taken. */
template <typename T, bool DROP>
static __device__ __forceinline__ void take_queries(const slope_maps_t &maps, const slopes_t &args,
                                                    char *memory, rings_t *rings)
{
    const uint32_t shared = shared_address(memory);
    const int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 128;
    char *leave = memory + QUERY_OUT_AT + group * TILE_BYTES;
    cursor_t<PIECES> piece = {};
    cursor_t<STEPS> step = {};
    uint32_t drawn;
    for (; piece_take(rings, piece, args.query_pieces, &drawn); piece.next()) {
        const piece_t work = query_piece(args, drawn);
        const int first = work.first + group * SIDE;
        /* Queries past the end go with the first keys, for nothing. */
        int tile = first < args.at.seq ? first / SIDE : 0;
        const int piece_at = piece.at * QUERY_PIECE + group * TILE_BYTES;
        const uint32_t q = shared + (uint32_t)piece_at, dout = q + GROUPS * TILE_BYTES;
        const rows_t rows = find_rows<T>(args, work, first, memory + piece_at + GROUPS * TILE_BYTES,
                                         memory + piece_at + 2 * GROUPS * TILE_BYTES);
        float s[8][4], dp[8][4], dq[8][4] = {};
        uint32_t slopes[4][4];
        steps_skip(rings, step, work.each - 1 - tile);
        uint32_t k = shared + (uint32_t)(QUERY_STEPS_AT + step.at * QUERY_STEP);
        group_start();
        products_64<T>(s, q, k);
        products_64<T>(dp, dout, k + TILE_BYTES);
        group_commit();
        group_wait<0>();
        settle(s);
        settle(dp);
        hide_after<false>(s);
        query_slopes<DROP>(args, work, first, tile * SIDE, rows, s, dp);
        as_tile<T>(slopes, dp);
        for (; tile > 0; tile--) {
            const uint32_t k_now = k;
            const int slot = step.at;
            step.next();
            steps_skip(rings, step, 0);
            k = shared + (uint32_t)(QUERY_STEPS_AT + step.at * QUERY_STEP);
            settle(dq);
            group_start();
            products_64<T>(s, q, k);
            products_64<T>(dp, dout, k + TILE_BYTES);
            group_commit();
            gather_64<T>(dq, slopes, k_now);
            group_commit();
            group_wait<1>();
            settle(s);
            settle(dp);
            query_slopes<DROP>(args, work, first, (tile - 1) * SIDE, rows, s, dp);
            hold_up(dp[7][3]); /* all of that before the wait */
            group_wait<0>();
            settle(dq);
            step_release(rings, slot);
            as_tile<T>(slopes, dp);
        }
        settle(dq);
        group_start();
        gather_64<T>(dq, slopes, k);
        group_commit();
        group_wait<0>();
        settle(dq);
        step_release(rings, step.at);
        step.next();
        barrier_arrive(bar(&rings->piece_free[piece.at]), lane == 0);
        tile_stored(); /* the one of the piece before, by the thread that has sent it */
        group_sync(group);
        put_tile<T>(dq, args.at.scale, leave);
        publish();
        group_sync(group);
        if (threadIdx.x % 128 == 0 && first < args.at.seq) {
            tile_store(maps.dqkv, work.head * SIDE, first, work.b, shared_address(leave));
        }
    }
    tile_stored();
}

/* ---- keys --------------------------------------------------------------------------------- */

static __device__ __forceinline__ void feed_keys(const slope_maps_t &maps, const slopes_t &args,
                                                 uint32_t shared, rings_t *rings)
{
    cursor_t<PIECES> piece = {};
    cursor_t<STEPS> step = {};
    uint32_t drawn = atomicAdd(args.tickets + 1, 1);
    for (; piece_offer(rings, piece, drawn, args.key_pieces, KEY_PIECE); piece.next()) {
        piece_t work = key_piece(args, drawn);
        int k = (args.at.heads + work.head) * SIDE, v = k + args.at.kv_heads * SIDE;
        uint32_t full = bar(&rings->piece_full[piece.at]);
        for (int i = 0; i < GROUPS; i++) {
            uint32_t to = shared + (uint32_t)(piece.at * KEY_PIECE + i * TILE_BYTES);
            int t = work.first + i * SIDE;
            tile_load(to, maps.qkv, k, t, work.b, full);
            tile_load(to + GROUPS * TILE_BYTES, maps.qkv, v, t, work.b, full);
        }
        drawn = atomicAdd(args.tickets + 1, 1);
        for (int i = 0; i < work.each * args.at.group; i++, step.next()) {
            uint32_t to = shared + (uint32_t)(KEY_STEPS_AT + step.at * KEY_STEP);
            int h = work.head * args.at.group + i / work.each, tile = work.from + i % work.each;
            int64_t head = (int64_t)work.b * args.at.heads + h;
            full = bar(&rings->step_full[step.at]);
            barrier_wait(bar(&rings->step_free[step.at]), step.parity ^ 1);
            barrier_announce(full, 2 * TILE_BYTES + STATISTICS_BYTES);
            tile_load(to, maps.qkv, h * SIDE, tile * SIDE, work.b, full);
            tile_load(to + TILE_BYTES, maps.dout, h * SIDE, tile * SIDE, work.b, full);
            plain_load(to + 2 * TILE_BYTES, args.statistics + (head * args.tiles + tile) * 2 * SIDE,
                       STATISTICS_BYTES, full);
        }
    }
}

/* s^T and dp^T become p^T and ds^T. */
template <bool DROP>
static __device__ __forceinline__ void key_slopes(const slopes_t &args, const piece_t &work, int h,
                                                  int query, int key, const float *statistics,
                                                  float s[8][4], float dp[8][4])
{
    const int lane = (int)threadIdx.x % 32, local = (int)threadIdx.x % 128 / 32 * 16 + lane / 4;
    const float scale_log2 = args.at.scale * LOG2E;
#pragma unroll
    for (int n = 0; n < SIDE / 8; n++) {
        int column = 8 * n + lane % 4 * 2;
        float2 lse2 = *reinterpret_cast<const float2 *>(statistics + column);
        float2 delta = *reinterpret_cast<const float2 *>(statistics + SIDE + column);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float p = exp2_fast(s[n][j] * scale_log2 - (j % 2 == 0 ? lse2.x : lse2.y));
            float factor = !DROP ? 1.0f
                                 : dropped(args.at, work.b, h, query + column + j % 2,
                                           key + local + j / 2 * 8);
            dp[n][j] = p * (dp[n][j] * factor - (j % 2 == 0 ? delta.x : delta.y));
            s[n][j] = p * factor;
        }
    }
}

template <typename T, bool DROP>
static __device__ __forceinline__ void take_keys(const slope_maps_t &maps, const slopes_t &args,
                                                 char *memory, rings_t *rings)
{
    const uint32_t shared = shared_address(memory);
    const int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 128;
    char *leave = memory + KEY_OUT_AT + group * 2 * TILE_BYTES;
    cursor_t<PIECES> piece = {};
    cursor_t<STEPS> step = {};
    uint32_t drawn;
    for (; piece_take(rings, piece, args.key_pieces, &drawn); piece.next()) {
        const piece_t work = key_piece(args, drawn);
        const int first = work.first + group * SIDE;
        /* Keys past the end go with the last queries, for nothing. */
        const int diagonal = first < args.at.seq ? first / SIDE : args.tiles - 1;
        const uint32_t k = shared + (uint32_t)(piece.at * KEY_PIECE + group * TILE_BYTES);
        const uint32_t v = k + GROUPS * TILE_BYTES;
        float s[8][4], dp[8][4], dk[8][4] = {}, dv[8][4] = {};
        uint32_t weights[4][4], slopes[4][4];
        for (int h = work.head * args.at.group; h < (work.head + 1) * args.at.group; h++) {
            int tile = diagonal;
            steps_skip(rings, step, diagonal - work.from);
            int step_at = KEY_STEPS_AT + step.at * KEY_STEP;
            uint32_t q = shared + (uint32_t)step_at;
            group_start();
            products_64<T>(s, k, q);
            products_64<T>(dp, v, q + TILE_BYTES);
            group_commit();
            group_wait<0>();
            settle(s);
            settle(dp);
            hide_after<true>(s);
            key_slopes<DROP>(args, work, h, tile * SIDE, first,
                             (const float *)(memory + step_at + 2 * TILE_BYTES), s, dp);
            as_tile<T>(weights, s);
            as_tile<T>(slopes, dp);
            for (tile++; tile < args.tiles; tile++) {
                const uint32_t q_now = q;
                const int slot = step.at;
                step.next();
                steps_skip(rings, step, 0);
                step_at = KEY_STEPS_AT + step.at * KEY_STEP;
                q = shared + (uint32_t)step_at;
                settle(dk);
                settle(dv);
                group_start();
                products_64<T>(s, k, q);
                products_64<T>(dp, v, q + TILE_BYTES);
                group_commit();
                gather_64<T>(dv, weights, q_now + TILE_BYTES);
                gather_64<T>(dk, slopes, q_now);
                group_commit();
                group_wait<1>();
                settle(s);
                settle(dp);
                key_slopes<DROP>(args, work, h, tile * SIDE, first,
                                 (const float *)(memory + step_at + 2 * TILE_BYTES), s, dp);
                hold_up(dp[7][3]); /* all of that before the wait */
                group_wait<0>();
                settle(dk);
                settle(dv);
                step_release(rings, slot);
                as_tile<T>(weights, s);
                as_tile<T>(slopes, dp);
            }
            settle(dk);
            settle(dv);
            group_start();
            gather_64<T>(dv, weights, q + TILE_BYTES);
            gather_64<T>(dk, slopes, q);
            group_commit();
            group_wait<0>();
            settle(dk);
            settle(dv);
            step_release(rings, step.at);
            step.next();
        }
        barrier_arrive(bar(&rings->piece_free[piece.at]), lane == 0);
        tile_stored(); /* those of the piece before, by the thread that has sent them */
        group_sync(group);
        put_tile<T>(dk, args.at.scale, leave);
        put_tile<T>(dv, 1.0f, leave + TILE_BYTES);
        publish();
        group_sync(group);
        if (threadIdx.x % 128 == 0 && first < args.at.seq) {
            int x = (args.at.heads + work.head) * SIDE;
            tile_store(maps.dqkv, x, first, work.b, shared_address(leave));
            tile_store(maps.dqkv, x + args.at.kv_heads * SIDE, first, work.b,
                       shared_address(leave + TILE_BYTES));
        }
    }
    tile_stored();
}

#endif

/* ---- launches ----------------------------------------------------------------------------- */

template <typename T, bool DROP>
static __global__ void __launch_bounds__(HOPPER_THREADS, 1)
    slopes_of_queries(const __grid_constant__ slope_maps_t maps, const slopes_t args)
{
#if HOPPER
    extern __shared__ __align__(1024) char shared[];
    rings_t *rings = (rings_t *)(shared + QUERY_RINGS_AT);
    rings_open(rings);
    if (threadIdx.x < 128 * GROUPS) {
        taker_starts();
        take_queries<T, DROP>(maps, args, shared, rings);
    } else {
        feeder_starts();
        if (threadIdx.x == 128 * GROUPS) {
            feed_queries(maps, args, shared_address(shared), rings);
        }
    }
#endif
}

template <typename T, bool DROP>
static __global__ void __launch_bounds__(HOPPER_THREADS, 1)
    slopes_of_keys(const __grid_constant__ slope_maps_t maps, const slopes_t args)
{
#if HOPPER
    extern __shared__ __align__(1024) char shared[];
    rings_t *rings = (rings_t *)(shared + KEY_RINGS_AT);
    rings_open(rings);
    if (threadIdx.x < 128 * GROUPS) {
        taker_starts();
        take_keys<T, DROP>(maps, args, shared, rings);
    } else {
        feeder_starts();
        if (threadIdx.x == 128 * GROUPS) {
            feed_keys(maps, args, shared_address(shared), rings);
        }
    }
#endif
}

static int make_maps(const weft_attention_t *args, slope_maps_t *maps)
{
    int64_t b = args->batch, t = args->seq, width = (int64_t)args->heads * SIDE;
    int64_t row = width + 2 * (int64_t)args->kv_heads * SIDE;
    WEFT_TRY(weft_cuda_tile_map(&maps->qkv, args->type, args->qkv, b, t, row));
    WEFT_TRY(weft_cuda_tile_map(&maps->dqkv, args->type, args->dqkv, b, t, row));
    WEFT_TRY(weft_cuda_tile_map(&maps->out, args->type, args->out, b, t, width));
    return weft_cuda_tile_map(&maps->dout, args->type, args->dout, b, t, width);
}

/* Statistics, and a ticket for each kernel. */
static int64_t statistics_of(const weft_attention_t *args)
{
    return args->batch * args->heads * ceil_div(args->seq, SIDE) * 2 * SIDE;
}

size_t weft_cuda_attention_hopper_work(const weft_attention_t *args)
{
    return (size_t)(statistics_of(args) + 2) * sizeof(float);
}

template <typename T, bool DROP>
static int launch(const weft_cuda_exec_t *exec, const slope_maps_t &maps, const slopes_t &all)
{
    int sms = 0;
    WEFT_TRY(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, exec->gpu));
    WEFT_TRY(cudaFuncSetAttribute((const void *)slopes_of_queries<T, DROP>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, QUERY_SHARED));
    WEFT_TRY(cudaFuncSetAttribute((const void *)slopes_of_keys<T, DROP>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, KEY_SHARED));
    unsigned queries = blocks_of(all.query_pieces, sms), keys = blocks_of(all.key_pieces, sms);
    cudaStream_t stream = stream_of(exec);
    slopes_of_queries<T, DROP><<<queries, HOPPER_THREADS, QUERY_SHARED, stream>>>(maps, all);
    slopes_of_keys<T, DROP><<<keys, HOPPER_THREADS, KEY_SHARED, stream>>>(maps, all);
    return launched();
}

int weft_cuda_attention_backward_hopper(const weft_cuda_exec_t *exec,
                                        const weft_attention_t *args)
{
    slope_maps_t maps;
    float *statistics = (float *)args->work;
    uint32_t *tickets = (uint32_t *)(statistics + statistics_of(args));
    int blocks = (int)ceil_div(args->seq, BLOCK_ROWS);
    slopes_t all = {heads_of(args),
                    args->lse,
                    statistics,
                    tickets,
                    (int)ceil_div(args->seq, SIDE),
                    blocks,
                    (uint32_t)(args->batch * args->heads * blocks),
                    (uint32_t)(args->batch * args->kv_heads * blocks)};
    WEFT_TRY(make_maps(args, &maps));
    WEFT_TRY(cudaMemsetAsync(tickets, 0, 2 * sizeof(*tickets), stream_of(exec)));
    bool drops = args->mask.rate != 0.0f;
    if (args->type == WEFT_F16) {
        return drops ? launch<f16_t, true>(exec, maps, all) : launch<f16_t, false>(exec, maps, all);
    }
    return drops ? launch<bf16_t, true>(exec, maps, all) : launch<bf16_t, false>(exec, maps, all);
}
