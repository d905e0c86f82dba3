/* Puts with a signal from inside kernels, timed on the GPU. */
#ifndef WEFT_BENCH_PUT_H
#define WEFT_BENCH_PUT_H

#include "bench/bench.h"

/* Sizes from bench->min to the smaller of bench->max and 64 KiB, between ranks 0 and 1; further
 * ranks only wait. WEFT_ERR_UNSUPPORTED on virtual GPUs. */
weft_status_t weft__bench_put_signal(const weft_bench_t *bench, weft_comm_h comm, size_t *wrong_p);

#endif
