/* Which way to go, one-sided or by a collective: measured here, size by size. */
#ifndef WEFT_BENCH_ADVISE_H
#define WEFT_BENCH_ADVISE_H

#include "bench/bench.h"

/* Measure every operation that exists both ways, with 2, 4, 8, ... ranks up to those of `comm`, and
 * let rank 0 print for each from which size on the other way is faster. Called by all ranks.
 * *wrong_p: wrong results on the way. */
weft_status_t weft__bench_advise(const weft_bench_t *bench, weft_comm_h comm, size_t *wrong_p);

#endif
