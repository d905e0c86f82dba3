/* Compression of gradients, without a training step around it:
 *
 *   compress             to fewer bits and back, on every rank by itself, against a plain copy
 *   compress-allreduce   the sum of gradients as --compress makes it, in small buckets and in one,
 *                        against an all-reduce of f32
 *   quantized            its communication alone, with fewer bits made beforehand (quantized.c)
 *
 * Least bytes of memory an element, where a copy has 8: bf16 12 (4 + 2, then 2 + 4), fp16 16 (the
 * largest magnitude comes first: 4 more), int8 18 (gradient and residual in, residual and byte out:
 * 13; then 1 + 4). */
#include "bench/compress.h"

#include <math.h>
#include <string.h>

#include "kernel/compress.h"
#include "parallel/compression.h"

#define CALLS 6  /* of a check */
#define SMALL 16 /* buckets, about */
#define SMALL_MOST 32
#define MOST 8.0f /* of weft__pair_value */

typedef struct compress {
    weft_compress_t kind;
    const weft_compute_t *compute;
    const weft_compress_ops_t *ops;
    int64_t count;          /* elements */
    float *grads, *back;    /* back: from fewer bits */
    float *residual, *peak; /* of int8, of fp16 */
    char *packed;           /* halves, or bytes and their scales */
    float *host;            /* where data is made and looked at */
    double *sums;           /* of all calls, and what they should be */
    weft_bucket_t small[SMALL_MOST], whole;
    weft_layout_t layouts[2]; /* of small buckets, of the whole */
    weft_compression_t *compressions[2];
} compress_t;

static weft_status_t open_compress(weft_pair_run_t *run)
{
    compress_t *c;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*c), (void **)&c));
    c->kind = (weft_compress_t)weft__compress_named(run->pair->name);
    c->count = (int64_t)(run->bytes / sizeof(float));
    weft__compute_threads(1); /* as the other kinds have */
    WEFT_TRY(weft__compute(&c->compute));
    WEFT_TRY(weft__compress_ops(&c->ops));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&c->grads));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&c->back));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&c->residual));
    WEFT_TRY(weft__pair_device(run, run->bytes / 2, (void **)&c->packed));
    WEFT_TRY(weft__pair_device(run, sizeof(float), (void **)&c->peak));
    WEFT_TRY(weft__pair_host(run, run->bytes, (void **)&c->host));
    return weft__pair_private(run, 2 * (size_t)c->count * sizeof(double), (void **)&c->sums);
}

/* Buckets of a 16th of all, or as small as they may be. */
static void cut(compress_t *c, int ranks)
{
    int64_t align = weft__compression_align(c->kind, ranks);
    int64_t each = c->count / SMALL / align * align, first = 0;
    each = each > 0 ? each : align;
    c->layouts[0] = (weft_layout_t){.total = c->count, .buckets = c->small};
    for (; first < c->count; first += each) {
        int64_t left = c->count - first;
        c->small[c->layouts[0].bucket_count++] = (weft_bucket_t){
            .first = first, .count = left < each ? left : each};
    }
    c->whole = (weft_bucket_t){.count = c->count};
    c->layouts[1] = (weft_layout_t){.total = c->count, .bucket_count = 1, .buckets = &c->whole};
}

static weft_status_t open_exchange(weft_pair_run_t *run)
{
    WEFT_TRY(open_compress(run));
    compress_t *c = run->ctx;
    cut(c, run->size);
    for (int i = 0; i < 2; i++) {
        WEFT_TRY(weft__compression_create(c->kind, false, &c->layouts[i], c->compute, run->comm,
                                          &c->compressions[i]));
    }
    return WEFT_OK;
}

static void close_compress(weft_pair_run_t *run)
{
    compress_t *c = run->ctx;
    weft__compression_destroy(c->compressions[0]);
    weft__compression_destroy(c->compressions[1]);
    weft__compute_threads(0);
}

static weft_status_t fill(const weft_pair_run_t *run, uint64_t seed)
{
    compress_t *c = run->ctx;
    weft__pair_fill(c->host, seed, run->rank, (size_t)c->count);
    return weft_memcpy(c->grads, c->host, run->bytes, NULL);
}

/* The most by which one rounding moves a number of `most` or less. */
static double rounding(weft_compress_t kind, double most)
{
    return most * (kind == WEFT_COMPRESS_BF16   ? 0x1p-9
                   : kind == WEFT_COMPRESS_FP16 ? 0x1p-12
                                                : 1.0 / 254);
}

/* ---- alone ------------------------------------------------------------------------------ */

static weft_status_t by_bf16(const compress_t *c, weft_stream_h stream)
{
    weft_cast_t narrow = {WEFT_F32, WEFT_BF16, c->count, c->grads, c->packed};
    weft_cast_t widen = {WEFT_BF16, WEFT_F32, c->count, c->packed, c->back};
    WEFT_TRY(c->compute->cast(&narrow, stream));
    return c->compute->cast(&widen, stream);
}

static weft_status_t by_fp16(const compress_t *c, weft_stream_h stream)
{
    weft_peak_t peak = {c->count, c->grads, c->peak};
    weft_f16_t narrow = {c->count, c->grads, c->packed, c->peak, 1};
    weft_f16_t widen = {c->count, c->packed, c->back, c->peak, 1};
    WEFT_TRY(c->ops->peak(&peak, stream));
    WEFT_TRY(c->ops->to_f16(&narrow, stream));
    return c->ops->from_f16(&widen, stream);
}

static weft_status_t by_int8(const compress_t *c, weft_stream_h stream)
{
    int8_t *bytes = (int8_t *)c->packed;
    float *scales = (float *)(c->packed + c->count);
    weft_quantize_t narrow = {c->count, c->grads, c->residual, bytes, scales};
    weft_dequantize_t widen = {c->count, 1, 0, bytes, scales, c->back};
    WEFT_TRY(c->ops->quantize(&narrow, stream));
    return c->ops->dequantize(&widen, stream);
}

static weft_status_t there_and_back(weft_pair_run_t *run, int rounds)
{
    const compress_t *c = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(c->kind == WEFT_COMPRESS_BF16   ? by_bf16(c, run->stream)
                 : c->kind == WEFT_COMPRESS_FP16 ? by_fp16(c, run->stream)
                                                 : by_int8(c, run->stream));
    }
    return WEFT_OK;
}

static weft_status_t plain_copy(weft_pair_run_t *run, int rounds)
{
    compress_t *c = run->ctx;
    return weft__pair_copy(run, c->back, c->grads, run->bytes, rounds);
}

static weft_status_t check_alone(weft_pair_run_t *run, size_t *wrong_p)
{
    compress_t *c = run->ctx;
    const weft_pair_loop_fn ways[] = {there_and_back, plain_copy};
    const double bounds[] = {rounding(c->kind, MOST), 0};
    for (int way = 0; way < 2; way++) {
        WEFT_TRY(fill(run, ++run->seed));
        WEFT_TRY(weft_memset(c->residual, 0, run->bytes, NULL));
        WEFT_TRY(weft_memset(c->back, 0xFF, run->bytes, NULL));
        WEFT_TRY(ways[way](run, 1));
        WEFT_TRY(weft__pair_settle(run));
        WEFT_TRY(weft_memcpy(c->host, c->back, run->bytes, NULL));
        for (int64_t i = 0; i < c->count; i++) {
            double want = weft__pair_value(run->seed, run->rank, (size_t)i);
            *wrong_p += !(fabs(c->host[i] - want) <= bounds[way] * 1.0001);
        }
    }
    return WEFT_OK;
}

/* ---- with the exchange ------------------------------------------------------------------ */

/* One sum of all gradients: in small buckets (0), in one (1). */
static weft_status_t sum_compressed(const weft_pair_run_t *run, int how)
{
    const compress_t *c = run->ctx;
    for (int b = 0; b < c->layouts[how].bucket_count; b++) {
        WEFT_TRY(weft__compression_allreduce(c->compressions[how], b, c->grads, run->stream));
    }
    return WEFT_OK;
}

static weft_status_t in_small_buckets(weft_pair_run_t *run, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(sum_compressed(run, 0));
    }
    return WEFT_OK;
}

static weft_status_t as_a_whole(weft_pair_run_t *run, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(sum_compressed(run, 1));
    }
    return WEFT_OK;
}

static weft_status_t in_full(weft_pair_run_t *run, int rounds)
{
    const compress_t *c = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(weft_allreduce(c->grads, c->grads, (size_t)c->count, WEFT_F32, WEFT_SUM, run->comm,
                                run->stream));
    }
    return WEFT_OK;
}

/* Results that are farther than `bound` from the sum over ranks; adds both up. */
static weft_status_t compare(const weft_pair_run_t *run, uint64_t seed, double bound,
                             size_t *wrong_p)
{
    compress_t *c = run->ctx;
    WEFT_TRY(weft__pair_settle(run));
    WEFT_TRY(weft_memcpy(c->host, c->grads, run->bytes, NULL));
    for (int64_t i = 0; i < c->count; i++) {
        double want = 0;
        for (int r = 0; r < run->size; r++) {
            want += weft__pair_value(seed, r, (size_t)i);
        }
        *wrong_p += !(fabs(c->host[i] - want) <= bound);
        c->sums[2 * i] += c->host[i];
        c->sums[2 * i + 1] += want;
    }
    return WEFT_OK;
}

/* Add up over ranks what is in grads, and add it to the results. */
static weft_status_t add_all(const weft_pair_run_t *run)
{
    compress_t *c = run->ctx;
    WEFT_TRY(weft_allreduce(c->grads, c->grads, (size_t)c->count, WEFT_F32, WEFT_SUM, run->comm,
                            run->stream));
    WEFT_TRY(weft__pair_settle(run));
    WEFT_TRY(weft_memcpy(c->host, c->grads, run->bytes, NULL));
    for (int64_t i = 0; i < c->count; i++) {
        c->sums[2 * i] += c->host[i];
    }
    return WEFT_OK;
}

/* Over all calls int8 loses nothing: what they have not brought is in the residuals, of what ranks
 * sent and, bucket by bucket, of each rank's part of the sum. */
static weft_status_t check_sums(const weft_pair_run_t *run, int how, size_t *wrong_p)
{
    compress_t *c = run->ctx;
    int64_t count;
    const float *sent = weft__compression_residuals(c->compressions[how], &count);
    WEFT_TRY(weft_memcpy(c->grads, sent, run->bytes, NULL));
    WEFT_TRY(add_all(run));
    WEFT_TRY(weft_memset(c->grads, 0, run->bytes, NULL));
    for (int i = 0; i < c->layouts[how].bucket_count; i++) {
        const weft_bucket_t *b = &c->layouts[how].buckets[i];
        int64_t part = b->count / run->size;
        WEFT_TRY(weft_memcpy(c->grads + b->first + run->rank * part,
                             sent + c->count + b->first / run->size, (size_t)part * sizeof(float),
                             NULL));
    }
    WEFT_TRY(add_all(run));
    for (int64_t i = 0; i < c->count; i++) {
        *wrong_p += !(fabs(c->sums[2 * i] - c->sums[2 * i + 1]) <= 1e-4 * run->size);
    }
    return WEFT_OK;
}

/* Both roundings of a call, of every rank's numbers and of their sum, and with int8 those of the
 * call before are in its result. */
static weft_status_t check_compressed(const weft_pair_run_t *run, int how, size_t *wrong_p)
{
    compress_t *c = run->ctx;
    double bound = 4 * rounding(c->kind, MOST * run->size) * 1.01;
    memset(c->sums, 0, 2 * (size_t)c->count * sizeof(double));
    for (uint64_t call = 0; call < CALLS; call++) {
        uint64_t seed = run->seed + call * 1000;
        WEFT_TRY(fill(run, seed));
        WEFT_TRY(sum_compressed(run, how));
        WEFT_TRY(compare(run, seed, bound, wrong_p));
    }
    if (c->kind == WEFT_COMPRESS_INT8) {
        WEFT_TRY(check_sums(run, how, wrong_p));
    }
    /* What is timed is summed in place again and again: other numbers would grow without end. */
    int64_t kept;
    float *residuals = weft__compression_residuals(c->compressions[how], &kept);
    return weft_memset(residuals, 0, (size_t)kept * sizeof(float), NULL);
}

static weft_status_t check_exchange(weft_pair_run_t *run, size_t *wrong_p)
{
    compress_t *c = run->ctx;
    WEFT_TRY(check_compressed(run, 0, wrong_p));
    WEFT_TRY(check_compressed(run, 1, wrong_p));
    WEFT_TRY(fill(run, run->seed));
    WEFT_TRY(in_full(run, 1));
    WEFT_TRY(compare(run, run->seed, 0, wrong_p));
    return weft_memset(c->grads, 0, run->bytes, NULL);
}

/* ---- the rows --------------------------------------------------------------------------- */

/* clang-format off */
#define FOR_ALL                                                                                    \
    .group = "compression", .min = 64 << 10, .max = 64 << 20,                                      \
    .unit = WEFT_SUMSQ_CHUNK * sizeof(float), .shards = true, .gpu = true,                         \
    .close = close_compress
#define ALONE(kind)                                                                                \
    {.target = "compress", .name = kind,                                                           \
     .text = "to fewer bits and back, without communication",                                      \
     .open = open_compress, .bound = "one rounding of the largest",                                \
     .ways = {{"memcpy", plain_copy}, {"compressed", there_and_back}},                             \
     .check = check_alone, FOR_ALL}
#define EXCHANGE(kind)                                                                             \
    {.target = "compress-allreduce", .name = kind,                                                 \
     .text = "sum of gradients, in place", .ranks = 2,                                             \
     .open = open_exchange, .bound = "four roundings of the largest",                              \
     .ways = {{"all-reduce", in_full}, {"small buckets", in_small_buckets},                        \
              {"whole buffer", as_a_whole}},                                                       \
     .check = check_exchange, FOR_ALL}
/* clang-format on */

const weft_pair_t weft__pair_compress_bf16 = ALONE("bf16");
const weft_pair_t weft__pair_compress_fp16 = ALONE("fp16");
const weft_pair_t weft__pair_compress_int8 = ALONE("int8");
const weft_pair_t weft__pair_exchange_bf16 = EXCHANGE("bf16");
const weft_pair_t weft__pair_exchange_fp16 = EXCHANGE("fp16");
const weft_pair_t weft__pair_exchange_int8 = EXCHANGE("int8");
