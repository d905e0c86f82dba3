/* All-reduce of gradients in fewer bits, or with ZeRO reduce-scatter.
 *
 *   bf16   cast, all-reduce (summed in f32), cast back
 *   fp16   the same, times a power of two that all ranks agree on for each bucket
 *   int8   quantize, all-to-all, sum in f32, quantize, all-gather. Both roundings leave a residual,
 *          which this rank adds to the next gradients (error feedback):
 *
 *            grads + residual --8 bits--> owner: sum + residual --8 bits--> everybody
 *
 *          A reduce-scatter ends with the owner's sum, in f32: it rounds once.
 *
 * All ranks get the same bits. Residuals are state of a rank, of which checkpoints hold a copy
 * (train/residuals.h); the others have none. */
#ifndef WEFT_PARALLEL_COMPRESSION_H
#define WEFT_PARALLEL_COMPRESSION_H

#include <stdbool.h>

#include <weft/comm.h>

#include "parallel/layout.h"

typedef enum weft_compress {
    WEFT_COMPRESS_NONE,
    WEFT_COMPRESS_BF16,
    WEFT_COMPRESS_FP16,
    WEFT_COMPRESS_INT8
} weft_compress_t;

/* By name: "none", "bf16", "fp16", "int8"; -1 if there is none such. */
int weft__compress_named(const char *name);

/* What buckets must be aligned to, in elements. */
int64_t weft__compression_align(weft_compress_t kind, int ranks);

typedef struct weft_compression weft_compression_t;

/* Memory for compressed copies of the largest bucket and, with int8, for the residuals of all. NONE
 * needs none and does what weft_allreduce does. `scatters`: it will be used for reduce-scatter,
 * else for all-reduce. */
weft_status_t weft__compression_create(weft_compress_t kind, bool scatters,
                                       const weft_layout_t *layout, const weft_compute_t *compute,
                                       weft_comm_h comm, weft_compression_t **compression_p);
void weft__compression_destroy(weft_compression_t *compression);

/* Bytes of device memory that create takes. */
size_t weft__compression_bytes(weft_compress_t kind, bool scatters, const weft_layout_t *layout,
                               int ranks);

/* What both roundings have left so far, on the device, for those who save or restore it between
 * steps: of all that this rank sends, in the order of the layout, and of an all-reduce behind that
 * of this rank's parts of the sums. NULL and 0 where nothing is kept; `compression` may be NULL. */
float *weft__compression_residuals(const weft_compression_t *compression, int64_t *count_p);

/* Bytes of it. */
size_t weft__compression_residual_bytes(weft_compress_t kind, bool scatters,
                                        const weft_layout_t *layout, int ranks);

/* Sum bucket `bucket` of `grads` (the whole row, f32) over all ranks, in place, in the order of
 * `stream`. All calls must be on one stream. Collective. */
weft_status_t weft__compression_allreduce(weft_compression_t *compression, int bucket, float *grads,
                                          weft_stream_h stream);

/* The same, but each rank gets its own of `ranks` equal parts of the bucket, in `out`, which may be
 * that part of `grads` itself. `grads` is where the bucket starts, and may be changed. */
weft_status_t weft__compression_scatter(weft_compression_t *compression, int bucket, float *grads,
                                        float *out, weft_stream_h stream);

#endif
