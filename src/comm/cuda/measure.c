/* Measuring from which size on which way is faster. */
#include "comm/cuda/cuda.h"

#define SIZES 17 /* 1 KiB to 64 MiB */

enum { LL, DIRECT, NCCL, WAYS };

/* Let all calls go one way. */
static void force(weft_cuda_t *cuda, weft_coll_t coll, int way)
{
    cuda->comm->tuner.forced[coll] = way == LL ? WEFT_ALGO_ONESHOT : WEFT_ALGO_DIRECT;
    cuda->tune.nccl_min[coll] = way == NCCL ? 0 : WEFT_TUNE_NEVER;
}

/* Largest size up to which LL is no slower; 1: at none (0 would leave it to the rule). */
static uint64_t lines_until(double us[WAYS][SIZES], int last)
{
    uint64_t most = 1;
    for (int i = 0; i <= last && us[LL][i] <= us[DIRECT][i]; i++) {
        most = (uint64_t)1024 << i;
    }
    return most;
}

/* Smallest size from which on NCCL is always faster. */
static uint64_t nccl_from(double us[WAYS][SIZES], int last)
{
    uint64_t least = WEFT_TUNE_NEVER;
    for (int i = SIZES - 1; i >= 0; i--) {
        double ours = i <= last && us[LL][i] < us[DIRECT][i] ? us[LL][i] : us[DIRECT][i];
        if (us[NCCL][i] >= ours) {
            break;
        }
        least = (uint64_t)1024 << i;
    }
    return least;
}

weft_status_t weft__cuda_tune(void *ctx, weft_coll_t coll, weft_tune_time_fn time, void *arg,
                              weft_tuned_t *tuned_p)
{
    weft_cuda_t *cuda = ctx;
    weft_algo_t forced = cuda->comm->tuner.forced[coll];
    uint64_t nccl_min = cuda->tune.nccl_min[coll];
    double us[WAYS][SIZES];
    int last = -1; /* of the sizes that LL has room for */
    weft_status_t status = WEFT_OK;
    for (int i = 0; i < SIZES && status == WEFT_OK; i++) {
        size_t bytes = (size_t)1024 << i;
        last = bytes <= weft__cuda_ll_bytes(cuda) ? i : last;
        for (int way = 0; way < (cuda->nccl ? WAYS : NCCL) && status == WEFT_OK; way++) {
            if (way == LL && i > last) {
                continue;
            }
            force(cuda, coll, way);
            status = time(arg, bytes, &us[way][i]);
        }
    }
    cuda->comm->tuner.forced[coll] = forced;
    cuda->tune.nccl_min[coll] = nccl_min;
    if (status != WEFT_OK || cuda->rank != 0) {
        return status;
    }
    tuned_p->has_nccl = cuda->nccl != NULL;
    tuned_p->ll_most = lines_until(us, last);
    tuned_p->nccl_min = cuda->nccl ? nccl_from(us, last) : WEFT_TUNE_NEVER;
    return weft__tune_write(weft__cuda_props(cuda->gpu)->name, cuda->size,
                            weft__cuda_shares_gpu(cuda), coll, tuned_p->ll_most, tuned_p->nccl_min,
                            tuned_p->path, sizeof(tuned_p->path));
}
