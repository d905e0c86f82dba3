/* weft_scale, inside: the product of a buffer and a scalar (device.h has the contract). */
#ifndef WEFT_KERNEL_SCALE_H
#define WEFT_KERNEL_SCALE_H

#include <stddef.h>

#include <weft/status.h>
#include <weft/types.h>

/* Arguments that were checked; count > 0. */
typedef struct weft_scaling {
    void *dst;
    const void *src;
    size_t count;
    weft_dtype_t type;
    const void *scalar; /* read when its turn comes; NULL: `value` */
    unsigned char value[8];
} weft_scaling_t;

/* Load its kernels on a GPU. A kernel is loaded when it is run first, and that waits for kernels
 * that wait for other ranks: to be done before there are any. */
weft_status_t weft__scale_load(int gpu);

#endif
