#include "bench/tune.h"

#include <stdio.h>

#include "base/log.h"
#include "comm/backends.h"

weft_status_t weft__bench_tune(weft_comm_h comm, weft_coll_t coll, weft_tune_time_fn time,
                               void *arg)
{
    weft_tuned_t tuned;
    char from[32] = "never";
    if (!comm->backend->tune) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "--tune is for Weft's own kernels on GPUs: give --device cuda, and not "
                          "WEFT_ENGINE=nccl");
    }
    WEFT_TRY(comm->backend->tune(comm->ctx, coll, time, arg, &tuned));
    if (comm->rank == 0) {
        if (tuned.nccl_min != WEFT_TUNE_NEVER) {
            snprintf(from, sizeof(from), "from %llu B", (unsigned long long)tuned.nccl_min);
        }
        printf("%-15s lines up to %llu B, NCCL %s; saved in %s\n", weft__coll_info[coll].name,
               (unsigned long long)tuned.ll_most, tuned.has_nccl ? from : "(not here)", tuned.path);
        fflush(stdout);
    }
    return WEFT_OK;
}
