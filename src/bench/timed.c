#include "bench/timed.h"

#include <stdint.h>

#include "base/clock.h"
#include "base/log.h"

#define MOST_ITERS 20000
#define TRIALS 4
#define LONG_NS 20e6
#define TRIAL_NS 3.75e6

weft_status_t weft__timed_loop(const weft_timed_t *timed, int iters, double *ns_p)
{
    iters = (iters + timed->unit - 1) / timed->unit * timed->unit;
    WEFT_TRY(weft_barrier(timed->comm, NULL));
    uint64_t start = weft__now_ns();
    WEFT_TRY(timed->loop(timed->ctx, iters));
    double ns = (double)(weft__now_ns() - start) / iters;
    WEFT_TRY(weft_allreduce(&ns, &ns, 1, WEFT_F64, WEFT_MAX, timed->comm, NULL));
    *ns_p = ns;
    return WEFT_OK;
}

/* A loop that takes so long tells how many iterations fill a timed one. */
static double trial_ns(const weft_timed_t *timed)
{
    return timed->target_ns < TRIAL_NS ? timed->target_ns : TRIAL_NS;
}

/* The least of some loops: on a busy machine a loop may be interrupted for a thousand times its own
 * length. One that takes LONG_NS is not worth repeating. */
static weft_status_t least_loop(const weft_timed_t *timed, int iters, double *ns_p)
{
    double ns = 0;
    for (int i = 0; i < TRIALS; i++) {
        WEFT_TRY(weft__timed_loop(timed, iters, &ns));
        *ns_p = i == 0 || ns < *ns_p ? ns : *ns_p;
        if (ns * iters < trial_ns(timed) || ns * iters > LONG_NS) {
            break; /* short: it need not be known well */
        }
    }
    return WEFT_OK;
}

weft_status_t weft__timed_fit(const weft_timed_t *timed, int *iters_p)
{
    double ns = 0;
    int iters = 1;
    WEFT_TRY(weft__timed_loop(timed, 1, &ns)); /* pages and caches are filled */
    for (;;) {
        WEFT_TRY(least_loop(timed, iters, &ns));
        if (ns * iters > trial_ns(timed) || iters >= MOST_ITERS / 4) {
            break;
        }
        iters *= 4;
    }
    double fit = ns > 0 ? timed->target_ns / ns : MOST_ITERS;
    *iters_p = fit < timed->least ? timed->least : fit > MOST_ITERS ? MOST_ITERS : (int)fit;
    return WEFT_OK;
}

weft_status_t weft__timed_wrong(weft_comm_h comm, size_t wrong, size_t *all_p)
{
    uint64_t all = wrong;
    WEFT_TRY(weft_allreduce(&all, &all, 1, WEFT_U64, WEFT_SUM, comm, NULL));
    *all_p = (size_t)all;
    return WEFT_OK;
}
