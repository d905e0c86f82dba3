/* Our own matrix product with op(b) packed once for all threads. Internal to this folder. */
#ifndef WEFT_KERNEL_CPU_STRIPS_H
#define WEFT_KERNEL_CPU_STRIPS_H

#include "kernel/compute.h"

/* Is that faster than a block of c for every thread, of which the largest is block_rows x
 * block_columns? */
bool weft__strips_pay(const weft_matmul_t *args, int64_t block_rows, int64_t block_columns,
                      int threads);

/* c = y, or c += y with `onto_c`, in f32; strides are filled in. `plain`: y is the product and
 * nothing else. Without bias_grad. */
weft_status_t weft__run_strips(const weft_matmul_t *args, bool onto_c, bool plain);

#endif
