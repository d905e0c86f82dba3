/* ctest: ranks=4
 * Adapter hot swap: rank 0 replaces the parameters of all ranks while they work with theirs. A
 * reader holds one version, whole, and never waits.
 *
 *     weft run -n 4 ./20-adapter-swap                                                         */
#include "pattern.h"
#include <weft/symm.h>

#define COUNT 65536
#define SWAPS 20

/* Version v is v in every element: a mixture of two is seen at once. */
static long long torn(const float *params)
{
    long long wrong = 0;
    for (int i = 1; i < COUNT; i++) {
        wrong += params[i] != params[0];
    }
    return wrong;
}

static void fill(float *params, int version)
{
    for (int i = 0; i < COUNT; i++) {
        params[i] = (float)version;
    }
}

static int writer(weft_params_h params, float *next, double *us_p)
{
    for (int v = 1; v <= SWAPS; v++) {
        fill(next, v);
        double start = now_us();
        TRY(weft_params_swap(params, next, NULL));
        *us_p += now_us() - start;
    }
    return 0;
}

/* Serve requests with whatever is current, until the last version has come. */
static int reader(weft_params_h params, long long *wrong_p)
{
    const float *now;
    const struct timespec pause = {.tv_nsec = 200000};
    for (uint64_t version = 0; version < SWAPS;) {
        TRY(weft_params_acquire(params, (const void **)&now, &version));
        *wrong_p += torn(now) + (now[0] != (float)version);
        TRY(weft_params_release(params, version));
        nanosleep(&pause, NULL); /* until the next request */
    }
    return 0;
}

int main(void)
{
    weft_comm_h comm;
    weft_symm_h symm;
    weft_params_h params;
    float *next;
    int rank, failed;
    long long wrong = 0;
    double swap_us = 0;
    TRY(weft_comm_init_job(&comm, NULL));
    TRY(weft_comm_rank(comm, &rank));
    TRY(weft_symm_create(comm, 2 * COUNT * sizeof(float) + (1 << 20), &symm));
    TRY(weft_params_create(symm, COUNT * sizeof(float), &params));
    TRY(weft_malloc((void **)&next, COUNT * sizeof(float)));
    failed = rank == 0 ? writer(params, next, &swap_us) : reader(params, &wrong);
    failed |= verdict("adapter swap", swap_us / SWAPS, wrong, rank);
    weft_free(next);
    weft_params_destroy(params);
    weft_symm_destroy(symm);
    weft_comm_destroy(comm);
    return failed;
}
