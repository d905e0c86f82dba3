/* The product of a buffer and a scalar: arguments, and the work on virtual GPUs. */
#include "kernel/scale.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "device/device.h"
#include "kernel/cuda/scale.h"
#include "kernel/kernel.h"

/* Bytes of a buffer that holds the scalar again and again. */
#define BLOCK 4096

/* By the products of two buffers, which are fast and round as those of collectives. */
static void scale(const weft_scaling_t *s)
{
    char same[BLOCK] __attribute__((aligned(64)));
    size_t element = weft_dtype_size(s->type), most = BLOCK / element;
    size_t filled = s->count < most ? s->count : most;
    for (size_t i = 0; i < filled; i++) {
        memcpy(same + i * element, s->scalar != NULL ? s->scalar : s->value, element);
    }
    for (size_t at = 0; at < s->count; at += most) {
        size_t some = s->count - at < most ? s->count - at : most;
        weft__kernels()->combine((char *)s->dst + at * element, (const char *)s->src + at * element,
                                 same, some, s->type, WEFT_PROD);
    }
}

static weft_status_t run_queued(void *arg)
{
    scale(arg);
    free(arg);
    return WEFT_OK;
}

static weft_status_t scale_cpu(weft_scaling_t *s, const void *scalar, weft_stream_h stream)
{
    uint64_t offset;
    int device;
    size_t element = weft_dtype_size(s->type);
    if (weft__heap_find(scalar, element, &device, &offset)) {
        s->scalar = scalar;
    } else {
        memcpy(s->value, scalar, element);
    }
    if (stream == NULL) {
        scale(s);
        return WEFT_OK;
    }
    weft_scaling_t *queued = malloc(sizeof(*queued));
    if (queued == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "weft_scale: no memory to queue it");
    }
    *queued = *s;
    weft_status_t status = weft__stream_push(stream, run_queued, queued);
    if (status != WEFT_OK) {
        free(queued);
    }
    return status;
}

static weft_status_t check(const weft_scaling_t *s, const void *scalar, weft_stream_h stream)
{
    size_t element = weft_dtype_size(s->type);
    uintptr_t dst = (uintptr_t)s->dst, src = (uintptr_t)s->src;
    if (element == 0) {
        return weft__fail(WEFT_ERR_INVALID, "weft_scale: unknown element type %d", (int)s->type);
    }
    if (s->count >> 48) { /* below that no number of bytes overflows */
        return weft__fail(WEFT_ERR_INVALID, "weft_scale: count %zu is beyond the address space",
                          s->count);
    }
    if (s->count > 0 && scalar == NULL) {
        return weft__fail(WEFT_ERR_INVALID, "weft_scale: scalar is NULL and count is %zu",
                          s->count);
    }
    size_t bytes = s->count * element;
    WEFT_TRY(weft__device_check_copy("weft_scale", s->dst, s->src, bytes, stream));
    if (s->count > 0 && ((dst | src | (uintptr_t)scalar) & (element - 1)) != 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_scale: dst %p, src %p or scalar %p is not aligned to an element of "
                          "%zu bytes",
                          s->dst, s->src, scalar, element);
    }
    if (dst != src && dst < src + bytes && src < dst + bytes) {
        return weft__fail(WEFT_ERR_INVALID, "weft_scale: dst %p and src %p overlap in %zu bytes",
                          s->dst, s->src, bytes);
    }
    return WEFT_OK;
}

weft_status_t weft_scale(void *dst, const void *src, size_t count, weft_dtype_t type,
                         const void *scalar, weft_stream_h stream)
{
    weft_scaling_t s = {.dst = dst, .src = src, .count = count, .type = type};
    WEFT_TRY(check(&s, scalar, stream));
    if (count == 0) {
        return WEFT_OK;
    }
    return weft__device_is_cuda() ? weft__scale_cuda(&s, scalar, stream)
                                  : scale_cpu(&s, scalar, stream);
}
