/* The communication of compressed gradients alone: what weft__compression_allreduce sends, with
 * fewer bits that were made beforehand and are not made into numbers again. */
#include <string.h>

#include "base/half.h"
#include "bench/compress.h"
#include "kernel/compress.h"
#include "parallel/compression.h"

typedef struct quantized {
    weft_compress_t kind;
    size_t count;     /* elements */
    size_t piece;     /* int8: bytes that a rank sends to another, with their scales */
    float *full, *to; /* of f32 */
    char *packed;     /* halves, or a piece for every rank */
    char *from;       /* ... and what comes of them; int8: pieces to add up, then the sums */
    float *peak;      /* fp16: what ranks agree on */
    void *host;
} quantized_t;

static weft_status_t open_quantized(weft_pair_run_t *run)
{
    quantized_t *q;
    WEFT_TRY(weft__pair_ctx(run, sizeof(*q), (void **)&q));
    q->kind = (weft_compress_t)weft__compress_named(run->pair->name);
    q->count = run->bytes / sizeof(float);
    size_t part = q->count / (size_t)run->size;
    q->piece = part + part / WEFT_QUANT_BLOCK * sizeof(float);
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&q->full));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&q->to));
    WEFT_TRY(weft__pair_device(run, run->bytes, (void **)&q->packed));
    WEFT_TRY(weft__pair_device(run, 2 * run->bytes, (void **)&q->from));
    WEFT_TRY(weft__pair_device(run, sizeof(float), (void **)&q->peak));
    WEFT_TRY(weft__pair_host(run, 2 * run->bytes, (void **)&q->host));
    WEFT_TRY(weft_memset(q->full, 0, run->bytes, NULL));
    WEFT_TRY(weft_memset(q->peak, 0, sizeof(float), NULL));
    return weft_memset(q->packed, 0, run->bytes, NULL);
}

static weft_status_t in_full(weft_pair_run_t *run, int rounds)
{
    const quantized_t *q = run->ctx;
    for (int i = 0; i < rounds; i++) {
        WEFT_TRY(
            weft_allreduce(q->full, q->to, q->count, WEFT_F32, WEFT_SUM, run->comm, run->stream));
    }
    return WEFT_OK;
}

static weft_status_t exchange_bytes(const weft_pair_run_t *run)
{
    const quantized_t *q = run->ctx;
    WEFT_TRY(weft_alltoall(q->packed, q->from, q->piece, WEFT_U8, run->comm, run->stream));
    return weft_allgather(q->packed, q->from + run->bytes, q->piece, WEFT_U8, run->comm,
                          run->stream);
}

static weft_status_t in_fewer_bits(weft_pair_run_t *run, int rounds)
{
    const quantized_t *q = run->ctx;
    weft_dtype_t type = q->kind == WEFT_COMPRESS_BF16 ? WEFT_BF16 : WEFT_F16;
    for (int i = 0; i < rounds; i++) {
        if (q->kind == WEFT_COMPRESS_INT8) {
            WEFT_TRY(exchange_bytes(run));
            continue;
        }
        if (q->kind == WEFT_COMPRESS_FP16) {
            WEFT_TRY(
                weft_allreduce(q->peak, q->peak, 1, WEFT_F32, WEFT_MAX, run->comm, run->stream));
        }
        WEFT_TRY(
            weft_allreduce(q->packed, q->from, q->count, type, WEFT_SUM, run->comm, run->stream));
    }
    return WEFT_OK;
}

/* ---- results ---------------------------------------------------------------------------- */

static uint16_t narrow(weft_compress_t kind, float value)
{
    return kind == WEFT_COMPRESS_BF16 ? weft__f32_to_bf16(value) : weft__f32_to_f16(value);
}

static float sum_of(const weft_pair_run_t *run, size_t i)
{
    float sum = 0;
    for (int r = 0; r < run->size; r++) {
        sum += weft__pair_value(run->seed, r, i);
    }
    return sum;
}

/* Sums are made in f32 and rounded once, so that their bits are known. */
static weft_status_t check_halves(weft_pair_run_t *run, size_t *wrong_p)
{
    quantized_t *q = run->ctx;
    uint16_t *host = q->host;
    for (size_t i = 0; i < q->count; i++) {
        host[i] = narrow(q->kind, weft__pair_value(run->seed, run->rank, i));
    }
    WEFT_TRY(weft_memcpy(q->packed, host, 2 * q->count, NULL));
    WEFT_TRY(weft_memset(q->from, 0xFF, 2 * q->count, NULL));
    WEFT_TRY(in_fewer_bits(run, 1));
    WEFT_TRY(weft__pair_settle(run));
    WEFT_TRY(weft_memcpy(host, q->from, 2 * q->count, NULL));
    for (size_t i = 0; i < q->count; i++) {
        *wrong_p += host[i] != narrow(q->kind, sum_of(run, i));
    }
    return WEFT_OK;
}

static uint8_t byte_of(const weft_pair_run_t *run, int rank, size_t i)
{
    return (uint8_t)((run->seed * 31 + (uint64_t)rank * 97 + i * 7 + (i >> 8) * 13) % 251);
}

/* Bytes are moved, not added: everybody's piece for this rank, then everybody's first piece. */
static weft_status_t check_bytes(weft_pair_run_t *run, size_t *wrong_p)
{
    quantized_t *q = run->ctx;
    uint8_t *host = q->host;
    size_t all = q->piece * (size_t)run->size;
    for (size_t i = 0; i < all; i++) {
        host[i] = byte_of(run, run->rank, i);
    }
    WEFT_TRY(weft_memcpy(q->packed, host, all, NULL));
    WEFT_TRY(weft_memset(q->from, 0xFF, 2 * run->bytes, NULL));
    WEFT_TRY(in_fewer_bits(run, 1));
    WEFT_TRY(weft__pair_settle(run));
    WEFT_TRY(weft_memcpy(host, q->from, 2 * run->bytes, NULL));
    for (int r = 0; r < run->size; r++) {
        const uint8_t *in = host + (size_t)r * q->piece, *sums = in + run->bytes;
        for (size_t i = 0; i < q->piece; i++) {
            *wrong_p += in[i] != byte_of(run, r, (size_t)run->rank * q->piece + i);
            *wrong_p += sums[i] != byte_of(run, r, i);
        }
    }
    return WEFT_OK;
}

static weft_status_t check(weft_pair_run_t *run, size_t *wrong_p)
{
    quantized_t *q = run->ctx;
    float *host = q->host;
    weft__pair_fill(host, run->seed, run->rank, q->count);
    WEFT_TRY(weft_memcpy(q->full, host, run->bytes, NULL));
    WEFT_TRY(weft_memset(q->to, 0xFF, run->bytes, NULL));
    WEFT_TRY(in_full(run, 1));
    WEFT_TRY(weft__pair_settle(run));
    WEFT_TRY(weft_memcpy(host, q->to, run->bytes, NULL));
    for (size_t i = 0; i < q->count; i++) {
        *wrong_p += host[i] != sum_of(run, i);
    }
    return q->kind == WEFT_COMPRESS_INT8 ? check_bytes(run, wrong_p) : check_halves(run, wrong_p);
}

/* clang-format off */
#define QUANTIZED(kind)                                                                            \
    {.target = "quantized", .name = kind, .group = "compression",                                  \
     .text = "communication alone, of gradients that have fewer bits already",                     \
     .bound = "one rounding of the sum",                                                           \
     .ways = {{"fp32", in_full}, {"fewer bits", in_fewer_bits}}, .min = 64 << 10, .max = 64 << 20, \
     .unit = WEFT_SUMSQ_CHUNK * sizeof(float), .shards = true, .ranks = 2, .gpu = true,            \
     .open = open_quantized, .check = check}
/* clang-format on */

const weft_pair_t weft__pair_quantized_bf16 = QUANTIZED("bf16");
const weft_pair_t weft__pair_quantized_fp16 = QUANTIZED("fp16");
const weft_pair_t weft__pair_quantized_int8 = QUANTIZED("int8");
