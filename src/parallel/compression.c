/* All-reduce of gradients in fewer bits: see compression.h. */
#include "parallel/compression.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/log.h"
#include "kernel/compress.h"

struct weft_compression {
    weft_compress_t kind;
    bool scatters;
    const weft_layout_t *layout;
    const weft_compute_t *compute;
    const weft_compress_ops_t *ops; /* fp16 and int8 */
    weft_comm_h comm;
    int rank, ranks;
    char *memory;          /* one allocation, cut into what follows */
    char *out;             /* halves, or pieces for everybody */
    char *in;              /* int8: pieces from everybody */
    float *sum;            /* int8, all-reduce: this rank's part, summed */
    float *peak;           /* fp16 */
    float *residual;       /* int8: of all buckets ... */
    float *owner_residual; /* ... and, all-reduce, of this rank's parts of them, behind it */
};

static const char *const names[] = {"none", "bf16", "fp16", "int8"};

int weft__compress_named(const char *name)
{
    for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    return -1;
}

int64_t weft__compression_align(weft_compress_t kind, int ranks)
{
    /* Every rank owns the same number of whole blocks of each bucket. */
    bool divides = WEFT_SUMSQ_CHUNK % (ranks * WEFT_QUANT_BLOCK) == 0;
    return kind != WEFT_COMPRESS_INT8 || divides ? WEFT_SUMSQ_CHUNK
                                                 : (int64_t)WEFT_SUMSQ_CHUNK * ranks;
}

static int64_t largest_bucket(const weft_layout_t *layout)
{
    int64_t most = 0;
    for (int i = 0; i < layout->bucket_count; i++) {
        most = layout->buckets[i].count > most ? layout->buckets[i].count : most;
    }
    return most;
}

/* A piece: the 8-bit values of one rank's part of a bucket, then their scales. */
static int64_t piece_bytes(int64_t part)
{
    return part + part / WEFT_QUANT_BLOCK * (int64_t)sizeof(float);
}

/* Elements of both residuals. */
static int64_t residual_count(const weft_compression_t *s, const weft_layout_t *layout)
{
    if (s->kind != WEFT_COMPRESS_INT8) {
        return 0;
    }
    return layout->total + (s->scatters ? 0 : layout->total / s->ranks);
}

/* Cut `memory` (NULL: only count) into buffers; returns the bytes. */
static size_t carve(weft_compression_t *s, const weft_layout_t *layout, char *memory)
{
    enum { OUT, IN, SUM, RESIDUAL, PEAK, BUFFERS };
    int64_t most = largest_bucket(layout), part = most / s->ranks;
    size_t sizes[BUFFERS] = {0}, offsets[BUFFERS], used = 0;
    if (s->kind == WEFT_COMPRESS_INT8) {
        sizes[OUT] = sizes[IN] = (size_t)(piece_bytes(part) * s->ranks);
        sizes[RESIDUAL] = (size_t)residual_count(s, layout) * sizeof(float);
        sizes[SUM] = s->scatters ? 0 : (size_t)part * sizeof(float);
    } else if (s->kind != WEFT_COMPRESS_NONE) {
        sizes[OUT] = (size_t)most * 2;
        sizes[PEAK] = sizeof(float);
    }
    for (int i = 0; i < BUFFERS; i++) {
        offsets[i] = used;
        used += (sizes[i] + 255) / 256 * 256;
    }
    if (memory != NULL) {
        s->out = memory + offsets[OUT];
        s->in = memory + offsets[IN];
        s->sum = (float *)(memory + offsets[SUM]);
        s->residual = (float *)(memory + offsets[RESIDUAL]);
        s->owner_residual = s->residual + layout->total;
        s->peak = (float *)(memory + offsets[PEAK]);
    }
    return used;
}

size_t weft__compression_bytes(weft_compress_t kind, bool scatters, const weft_layout_t *layout,
                               int ranks)
{
    weft_compression_t compression = {.kind = kind, .scatters = scatters, .ranks = ranks};
    return carve(&compression, layout, NULL);
}

size_t weft__compression_residual_bytes(weft_compress_t kind, bool scatters,
                                        const weft_layout_t *layout, int ranks)
{
    weft_compression_t compression = {.kind = kind, .scatters = scatters, .ranks = ranks};
    return (size_t)residual_count(&compression, layout) * sizeof(float);
}

float *weft__compression_residuals(const weft_compression_t *s, int64_t *count_p)
{
    *count_p = s != NULL ? residual_count(s, s->layout) : 0;
    return *count_p > 0 ? s->residual : NULL;
}

static weft_status_t allocate(weft_compression_t *s)
{
    size_t bytes = carve(s, s->layout, NULL);
    weft_status_t status = WEFT_OK;
    if (s->kind == WEFT_COMPRESS_FP16 || s->kind == WEFT_COMPRESS_INT8) {
        status = weft__compress_ops(&s->ops);
    }
    if (status == WEFT_OK && bytes > 0) {
        status = weft_malloc((void **)&s->memory, bytes);
    }
    if (status == WEFT_OK && bytes > 0) {
        carve(s, s->layout, s->memory);
        status = weft_memset(s->memory, 0, bytes, NULL);
    }
    return status;
}

/* Every kernel once, on a block of zeros. A GPU loads a kernel when it is first launched, and may
 * wait for the process to be idle there to do so; where ranks are threads, another rank's exchange
 * would by then wait for this one. */
static weft_status_t rehearse(const weft_compression_t *s, float *zeros)
{
    const int64_t n = WEFT_QUANT_BLOCK;
    float *back = zeros + n, *residual = back + n, *one = residual + n;
    char *packed = (char *)(one + n);
    if (s->kind == WEFT_COMPRESS_BF16) {
        WEFT_TRY(s->compute->cast(&(weft_cast_t){WEFT_F32, WEFT_BF16, n, zeros, packed}, NULL));
        return s->compute->cast(&(weft_cast_t){WEFT_BF16, WEFT_F32, n, packed, back}, NULL);
    }
    if (s->kind == WEFT_COMPRESS_FP16) {
        WEFT_TRY(s->ops->peak(&(weft_peak_t){n, zeros, one}, NULL));
        WEFT_TRY(s->ops->to_f16(&(weft_f16_t){n, zeros, packed, one, 1}, NULL));
        return s->ops->from_f16(&(weft_f16_t){n, packed, back, one, 1}, NULL);
    }
    int8_t *bytes = (int8_t *)packed;
    WEFT_TRY(s->ops->quantize(&(weft_quantize_t){n, zeros, residual, bytes, one}, NULL));
    return s->ops->dequantize(&(weft_dequantize_t){n, 1, 0, bytes, one, back}, NULL);
}

static weft_status_t load_kernels(const weft_compression_t *s)
{
    static pthread_mutex_t lock =
        PTHREAD_MUTEX_INITIALIZER; /* so that the next one finds them loaded */
    const size_t bytes = 5 * WEFT_QUANT_BLOCK * sizeof(float);
    float *zeros;
    if (s->kind == WEFT_COMPRESS_NONE) {
        return WEFT_OK;
    }
    WEFT_TRY(weft_malloc((void **)&zeros, bytes));
    pthread_mutex_lock(&lock);
    weft_status_t status = weft_memset(zeros, 0, bytes, NULL);
    status = status == WEFT_OK ? rehearse(s, zeros) : status;
    status = status == WEFT_OK ? weft_memset(zeros, 0, bytes, NULL)
                               : status; /* behind all of them */
    pthread_mutex_unlock(&lock);
    weft_free(zeros);
    return status;
}

weft_status_t weft__compression_create(weft_compress_t kind, bool scatters,
                                       const weft_layout_t *layout, const weft_compute_t *compute,
                                       weft_comm_h comm, weft_compression_t **compression_p)
{
    weft_compression_t *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory to compress gradients");
    }
    *s = (weft_compression_t){
        .kind = kind, .scatters = scatters, .layout = layout, .compute = compute, .comm = comm};
    weft_status_t status = weft_comm_size(comm, &s->ranks);
    if (status == WEFT_OK) {
        status = weft_comm_rank(comm, &s->rank);
    }
    if (status == WEFT_OK) {
        status = allocate(s);
    }
    if (status == WEFT_OK) {
        status = load_kernels(s);
    }
    if (status != WEFT_OK) {
        weft__compression_destroy(s);
        return status;
    }
    *compression_p = s;
    return WEFT_OK;
}

void weft__compression_destroy(weft_compression_t *compression)
{
    if (compression != NULL) {
        weft_free(compression->memory);
        free(compression);
    }
}

/* ---- one bucket ----------------------------------------------------------------------------- */

/* Sum `count` halves in s->out over ranks. Those that this rank gets, *count_p of them, are at
 * *sums_p: all, or its part. */
static weft_status_t sum_halves(weft_compression_t *s, weft_dtype_t type, int64_t count,
                                weft_stream_h stream, char **sums_p, int64_t *count_p)
{
    int64_t part = count / s->ranks;
    *sums_p = s->scatters ? s->out + s->rank * part * 2 : s->out;
    *count_p = s->scatters ? part : count;
    return s->scatters
               ? weft_reduce_scatter(s->out, *sums_p, (size_t)part, type, WEFT_SUM, s->comm, stream)
               : weft_allreduce(s->out, s->out, (size_t)count, type, WEFT_SUM, s->comm, stream);
}

static weft_status_t by_bf16(weft_compression_t *s, const float *x, int64_t count, float *out,
                             weft_stream_h stream)
{
    weft_cast_t narrow = {WEFT_F32, WEFT_BF16, count, x, s->out};
    char *sums;
    WEFT_TRY(s->compute->cast(&narrow, stream));
    WEFT_TRY(sum_halves(s, WEFT_BF16, count, stream, &sums, &count));
    weft_cast_t widen = {WEFT_BF16, WEFT_F32, count, sums, out};
    return s->compute->cast(&widen, stream);
}

static weft_status_t by_fp16(weft_compression_t *s, const float *x, int64_t count, float *out,
                             weft_stream_h stream)
{
    weft_peak_t peak = {count, x, s->peak};
    weft_f16_t narrow = {count, x, s->out, s->peak, s->ranks};
    char *sums;
    WEFT_TRY(s->ops->peak(&peak, stream));
    WEFT_TRY(weft_allreduce(s->peak, s->peak, 1, WEFT_F32, WEFT_MAX, s->comm, stream));
    WEFT_TRY(s->ops->to_f16(&narrow, stream));
    WEFT_TRY(sum_halves(s, WEFT_F16, count, stream, &sums, &count));
    weft_f16_t widen = {count, sums, out, s->peak, s->ranks};
    return s->ops->from_f16(&widen, stream);
}

/* This rank's part of the sum, in f32. */
static weft_status_t sum_bytes(weft_compression_t *s, const float *x, int64_t first, int64_t part,
                               float *sum, weft_stream_h stream)
{
    int64_t piece = piece_bytes(part);
    for (int p = 0; p < s->ranks; p++) {
        char *out = s->out + p * piece;
        weft_quantize_t quantize = {part, x + p * part, s->residual + first + p * part,
                                    (int8_t *)out, (float *)(out + part)};
        WEFT_TRY(s->ops->quantize(&quantize, stream));
    }
    WEFT_TRY(weft_alltoall(s->out, s->in, (size_t)piece, WEFT_U8, s->comm, stream));
    weft_dequantize_t add = {
        part, s->ranks, piece, (const int8_t *)s->in, (const float *)(s->in + part), sum};
    return s->ops->dequantize(&add, stream);
}

static weft_status_t by_int8(weft_compression_t *s, float *x, int64_t first, int64_t count,
                             weft_stream_h stream)
{
    int64_t part = count / s->ranks, piece = piece_bytes(part);
    WEFT_TRY(sum_bytes(s, x, first, part, s->sum, stream));
    weft_quantize_t again = {part, s->sum, s->owner_residual + first / s->ranks, (int8_t *)s->out,
                             (float *)(s->out + part)};
    WEFT_TRY(s->ops->quantize(&again, stream));
    WEFT_TRY(weft_allgather(s->out, s->in, (size_t)piece, WEFT_U8, s->comm, stream));
    for (int p = 0; p < s->ranks; p++) {
        const char *in = s->in + p * piece;
        weft_dequantize_t spread = {
            part, 1, 0, (const int8_t *)in, (const float *)(in + part), x + p * part};
        WEFT_TRY(s->ops->dequantize(&spread, stream));
    }
    return WEFT_OK;
}

weft_status_t weft__compression_allreduce(weft_compression_t *s, int bucket, float *grads,
                                          weft_stream_h stream)
{
    const weft_bucket_t *b = &s->layout->buckets[bucket];
    float *x = grads + b->first;
    switch (s->kind) {
    case WEFT_COMPRESS_BF16:
        return by_bf16(s, x, b->count, x, stream);
    case WEFT_COMPRESS_FP16:
        return by_fp16(s, x, b->count, x, stream);
    case WEFT_COMPRESS_INT8:
        return by_int8(s, x, b->first, b->count, stream);
    default:
        return weft_allreduce(x, x, (size_t)b->count, WEFT_F32, WEFT_SUM, s->comm, stream);
    }
}

weft_status_t weft__compression_scatter(weft_compression_t *s, int bucket, float *grads, float *out,
                                        weft_stream_h stream)
{
    const weft_bucket_t *b = &s->layout->buckets[bucket];
    int64_t part = b->count / s->ranks;
    switch (s->kind) {
    case WEFT_COMPRESS_BF16:
        return by_bf16(s, grads, b->count, out, stream);
    case WEFT_COMPRESS_FP16:
        return by_fp16(s, grads, b->count, out, stream);
    case WEFT_COMPRESS_INT8:
        return sum_bytes(s, grads, b->first, part, out, stream);
    default:
        return weft_reduce_scatter(grads, out, (size_t)part, WEFT_F32, WEFT_SUM, s->comm, stream);
    }
}
