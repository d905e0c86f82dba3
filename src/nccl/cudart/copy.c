/* Copies and fills.
 *
 * When a call may return is CUDA's rule, by what the memory is. Host memory that is not pinned
 * ("pageable") is the program's again when the call returns:
 *
 *     cudaMemcpy         when the copy is done; between device memory when it is queued
 *     cudaMemcpyAsync    from pageable memory when the data is put aside, to pageable memory and
 *                        between host memory when the copy is done, else when it is queued
 *
 * Where the stream is idle the caller copies itself if it has to wait or to put data aside anyway,
 * and if the copy is small: that is sooner than a hand-off to the stream's worker.
 *
 * With cudaMemcpyDefault memory of which nothing is known may be the host's, or a device's from
 * weft_malloc: only waiting is right for both. */
#include <stdlib.h>
#include <string.h>

#include "nccl/cudart/state.h"

#define SMALL ((size_t)16384)

/* `height` rows of `width` bytes; plain copies have one. */
typedef struct rows {
    char *dst;
    const char *src; /* NULL: filled with `value` */
    size_t dst_pitch, src_pitch, width, height;
    int value;
} rows_t;

typedef enum mode { QUEUE, WAIT, STAGE } copy_mode_t;

static bool is_flat(const rows_t *rows)
{
    return rows->height == 1 || (rows->dst_pitch == rows->width &&
                                 (rows->src == NULL || rows->src_pitch == rows->width));
}

static void run_rows(const rows_t *rows)
{
    for (size_t i = 0; i < rows->height; i++) {
        if (rows->src != NULL) {
            memmove(rows->dst + i * rows->dst_pitch, rows->src + i * rows->src_pitch, rows->width);
        } else {
            memset(rows->dst + i * rows->dst_pitch, rows->value, rows->width);
        }
    }
}

static void run_queued(void *arg)
{
    run_rows(arg);
    free(arg);
}

/* On `stream`, or now if that is NULL. */
static weft_status_t submit(const rows_t *rows, weft_stream_h stream)
{
    if (is_flat(rows)) {
        size_t bytes = rows->width * rows->height;
        return rows->src != NULL ? weft_memcpy(rows->dst, rows->src, bytes, stream)
                                 : weft_memset(rows->dst, rows->value, bytes, stream);
    }
    if (stream == NULL) {
        run_rows(rows);
        return WEFT_OK;
    }
    rows_t *queued = malloc(sizeof(*queued));
    if (queued == NULL) {
        return WEFT_ERR_NO_MEMORY;
    }
    *queued = *rows;
    weft_status_t status = weft_stream_call(stream, run_queued, queued);
    if (status != WEFT_OK) {
        free(queued);
    }
    return status;
}

static cudaError_t submit_and_wait(const char *call, const rows_t *rows, weft_stream_h stream)
{
    cudaError_t error = weft__cudart_from(submit(rows, stream));
    return error != cudaSuccess ? error
                                : weft__cudart_from_work(call, weft_stream_synchronize(stream));
}

/* Copy the source aside, so that the caller may change it when we return. */
static cudaError_t submit_staged(const char *call, const rows_t *rows, weft_stream_h stream)
{
    rows_t aside = *rows;
    char *block = malloc(rows->width * rows->height);
    if (block == NULL) {
        return submit_and_wait(call, rows, stream);
    }
    aside.dst = block;
    aside.dst_pitch = rows->width;
    run_rows(&aside);
    aside.dst = rows->dst;
    aside.dst_pitch = rows->dst_pitch;
    aside.src = block;
    aside.src_pitch = rows->width;
    weft_status_t status = submit(&aside, stream);
    if (status != WEFT_OK) {
        free(block);
        return weft__cudart_from(status);
    }
    status = weft_stream_call(stream, free, block);
    if (status != WEFT_OK) {
        weft_stream_synchronize(stream);
        free(block);
    }
    return weft__cudart_from(status);
}

static cudaError_t run(const char *call, const rows_t *rows, copy_mode_t mode, cudaStream_t handle)
{
    weft_cudart_stream_t *stream;
    cudaError_t error = weft__cudart_enter(handle, &stream);
    if (error != cudaSuccess || rows->width == 0 || rows->height == 0) {
        return error;
    }
    if ((mode != QUEUE || rows->width * rows->height <= SMALL) && weft__cudart_idle(stream)) {
        error = weft__cudart_from(submit(rows, NULL));
        return error != cudaSuccess || mode != WAIT ? error
                                                    : weft__cudart_after_wait(call, stream->device);
    }
    switch (mode) {
    case WAIT:
        error = submit_and_wait(call, rows, stream->stream);
        return error != cudaSuccess ? error : weft__cudart_after_wait(call, stream->device);
    case STAGE:
        return submit_staged(call, rows, stream->stream);
    default:
        return weft__cudart_from(submit(rows, stream->stream));
    }
}

/* ---- arguments -------------------------------------------------------------------------- */

/* Do the rows that begin at `ptr` end inside of the range? */
static bool fits(const weft_cudart_range_t *range, const void *ptr, size_t pitch,
                 const rows_t *rows)
{
    size_t room = range->bytes - ((uintptr_t)ptr - range->base);
    return rows->width <= room && (rows->height - 1) <= (room - rows->width) / pitch;
}

/* What is known of both sides; `call_waits`: of cudaMemcpy, not of cudaMemcpyAsync. */
static cudaError_t choose(const rows_t *rows, enum cudaMemcpyKind kind, bool call_waits,
                          copy_mode_t *mode_p)
{
    weft_cudart_range_t dst, src;
    bool dst_known = weft__cudart_range_find(rows->dst, &dst);
    bool src_known = weft__cudart_range_find(rows->src, &src);
    if ((dst_known && !fits(&dst, rows->dst, rows->dst_pitch, rows)) ||
        (src_known && !fits(&src, rows->src, rows->src_pitch, rows))) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    bool dst_device = dst_known && dst.type == cudaMemoryTypeDevice;
    bool src_device = src_known && src.type == cudaMemoryTypeDevice;
    /* Two arguments in the wrong order. */
    if ((kind == cudaMemcpyHostToDevice && src_device && !dst_known) ||
        (kind == cudaMemcpyDeviceToHost && dst_device && !src_known)) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    if (call_waits) {
        bool inside = kind == cudaMemcpyDeviceToDevice ||
                      (kind == cudaMemcpyDefault && dst_device && src_device);
        *mode_p = inside ? QUEUE : WAIT;
        return cudaSuccess;
    }
    switch (kind) {
    case cudaMemcpyHostToDevice:
        *mode_p = src_known ? QUEUE : STAGE;
        break;
    case cudaMemcpyDeviceToHost:
        *mode_p = dst_known ? QUEUE : WAIT;
        break;
    case cudaMemcpyDeviceToDevice:
        *mode_p = QUEUE;
        break;
    case cudaMemcpyDefault:
        *mode_p = dst_known && src_known ? QUEUE : WAIT;
        break;
    default:
        *mode_p = WAIT;
    }
    return cudaSuccess;
}

static cudaError_t check(const rows_t *rows)
{
    if (rows->width == 0 || rows->height == 0) {
        return cudaSuccess;
    }
    if (rows->dst == NULL || rows->width > SIZE_MAX / rows->height) {
        return weft__cudart_fail(cudaErrorInvalidValue);
    }
    if (rows->dst_pitch < rows->width || (rows->src != NULL && rows->src_pitch < rows->width)) {
        return weft__cudart_fail(cudaErrorInvalidPitchValue);
    }
    return cudaSuccess;
}

static cudaError_t copy(const char *call, const rows_t *rows, enum cudaMemcpyKind kind,
                        bool call_waits, cudaStream_t stream)
{
    copy_mode_t mode = QUEUE;
    cudaError_t error = check(rows);
    if ((unsigned)kind > cudaMemcpyDefault) {
        return weft__cudart_fail(cudaErrorInvalidMemcpyDirection);
    }
    if (error == cudaSuccess && rows->width > 0 && rows->height > 0) {
        error = rows->src == NULL ? weft__cudart_fail(cudaErrorInvalidValue)
                                  : choose(rows, kind, call_waits, &mode);
    }
    return error != cudaSuccess ? error : run(call, rows, mode, stream);
}

static rows_t flat(void *dst, const void *src, size_t bytes)
{
    return (rows_t){.dst = dst,
                    .src = src,
                    .dst_pitch = bytes,
                    .src_pitch = bytes,
                    .width = bytes,
                    .height = 1};
}

/* ---- copies ----------------------------------------------------------------------------- */

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    rows_t rows = flat(dst, src, bytes);
    return copy("cudaMemcpy", &rows, kind, true, NULL);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    rows_t rows = flat(dst, src, bytes);
    return copy("cudaMemcpyAsync", &rows, kind, false, stream);
}

cudaError_t cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                         size_t width, size_t height, enum cudaMemcpyKind kind)
{
    return copy("cudaMemcpy2D",
                &(rows_t){.dst = dst,
                          .src = src,
                          .dst_pitch = dst_pitch,
                          .src_pitch = src_pitch,
                          .width = width,
                          .height = height},
                kind, true, NULL);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    return copy("cudaMemcpy2DAsync",
                &(rows_t){.dst = dst,
                          .src = src,
                          .dst_pitch = dst_pitch,
                          .src_pitch = src_pitch,
                          .width = width,
                          .height = height},
                kind, false, stream);
}

static cudaError_t check_peers(int dst_device, int src_device)
{
    cudaError_t error = weft__cudart_check_device(dst_device);
    return error != cudaSuccess ? error : weft__cudart_check_device(src_device);
}

/* In order with all work of both devices: both are idle when it begins, and it is done when the
 * call returns, as copies between host memory are. */
cudaError_t cudaMemcpyPeer(void *dst, int dst_device, const void *src, int src_device, size_t bytes)
{
    cudaError_t error = check_peers(dst_device, src_device);
    if (error == cudaSuccess) {
        error = weft__cudart_synchronize("cudaMemcpyPeer", src_device);
    }
    if (error == cudaSuccess && dst_device != src_device) {
        error = weft__cudart_synchronize("cudaMemcpyPeer", dst_device);
    }
    rows_t rows = flat(dst, src, bytes);
    return error != cudaSuccess
               ? error
               : copy("cudaMemcpyPeer", &rows, cudaMemcpyHostToHost, true, cudaStreamLegacy);
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
                                size_t bytes, cudaStream_t stream)
{
    rows_t rows = flat(dst, src, bytes);
    cudaError_t error = check_peers(dst_device, src_device);
    return error != cudaSuccess
               ? error
               : copy("cudaMemcpyPeerAsync", &rows, cudaMemcpyDeviceToDevice, false, stream);
}

/* A __device__ variable is a variable of the program. */
cudaError_t cudaGetSymbolAddress(void **ptr, const void *symbol)
{
    if (ptr == NULL || symbol == NULL) {
        return weft__cudart_fail(ptr == NULL ? cudaErrorInvalidValue : cudaErrorInvalidSymbol);
    }
    *ptr = (void *)(uintptr_t)symbol;
    return cudaSuccess;
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *src, size_t bytes, size_t offset,
                               enum cudaMemcpyKind kind)
{
    return symbol == NULL ? weft__cudart_fail(cudaErrorInvalidSymbol)
                          : cudaMemcpy((char *)(uintptr_t)symbol + offset, src, bytes, kind);
}

cudaError_t cudaMemcpyFromSymbol(void *dst, const void *symbol, size_t bytes, size_t offset,
                                 enum cudaMemcpyKind kind)
{
    return symbol == NULL ? weft__cudart_fail(cudaErrorInvalidSymbol)
                          : cudaMemcpy(dst, (const char *)symbol + offset, bytes, kind);
}

/* ---- fills ------------------------------------------------------------------------------ */

static cudaError_t fill(const char *call, const rows_t *rows, cudaStream_t stream)
{
    weft_cudart_range_t range;
    cudaError_t error = check(rows);
    if (error == cudaSuccess && rows->width > 0 && rows->height > 0 &&
        weft__cudart_range_find(rows->dst, &range) &&
        !fits(&range, rows->dst, rows->dst_pitch, rows)) {
        error = weft__cudart_fail(cudaErrorInvalidValue);
    }
    return error != cudaSuccess ? error : run(call, rows, QUEUE, stream);
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    rows_t rows = flat(dst, NULL, bytes);
    rows.value = value;
    return fill("cudaMemsetAsync", &rows, stream);
}

cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    return cudaMemsetAsync(dst, value, bytes, NULL);
}

cudaError_t cudaMemset2DAsync(void *dst, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    return fill(
        "cudaMemset2DAsync",
        &(rows_t){.dst = dst, .dst_pitch = pitch, .width = width, .height = height, .value = value},
        stream);
}

cudaError_t cudaMemset2D(void *dst, size_t pitch, int value, size_t width, size_t height)
{
    return cudaMemset2DAsync(dst, pitch, value, width, height, NULL);
}
