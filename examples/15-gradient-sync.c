/* ctest: ranks=4
 * Small-gradient sync in OpenSHMEM: every PE puts its gradient with a signal into a slot that each
 * other PE keeps for it, and adds up what came. One trip, no call that all have to be in at the
 * same time.
 *
 *     oshrun -np 4 ./15-gradient-sync                                                         */
#include "pattern.h"
#include <shmem.h>
#include <string.h>

#define COUNT 256 /* 1 KiB */
#define STEPS 50
#define MOST_PES 64
#define LINE 8 /* words of a cache line: signals of different PEs do not share one */

/* Two sets of slots in turns: a PE that has all signals of step s knows that all have done step
 * s-1. */
static float slots[2][MOST_PES][COUNT];
static uint64_t signals[MOST_PES][LINE];

static float value(int pe, int step, int i)
{
    return (float)((pe * 7 + step * 3 + i) % 11 - 5);
}

static void fill(float *gradient, int pe, int step)
{
    for (int i = 0; i < COUNT; i++) {
        gradient[i] = value(pe, step, i);
    }
}

static void sync_by_put(const float *gradient, float *sum, int step, int me, int npes)
{
    float(*here)[COUNT] = slots[step % 2];
    for (int n = 1; n < npes; n++) { /* starting behind us: not all to the same PE at once */
        shmem_putmem_signal(here[me], gradient, sizeof(here[me]), signals[me], (uint64_t)step + 1,
                            SHMEM_SIGNAL_SET, (me + n) % npes);
    }
    memcpy(here[me], gradient, sizeof(here[me]));
    memset(sum, 0, sizeof(here[me]));
    for (int pe = 0; pe < npes; pe++) { /* in order of PEs: the same bits everywhere */
        if (pe != me) {
            shmem_signal_wait_until(signals[pe], SHMEM_CMP_GE, (uint64_t)step + 1);
        }
        for (int i = 0; i < COUNT; i++) {
            sum[i] += here[pe][i];
        }
    }
}

static long long wrong_in(const float *sum, int step, int npes)
{
    long long wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        float want = 0;
        for (int pe = 0; pe < npes; pe++) {
            want += value(pe, step, i);
        }
        wrong += sum[i] != want;
    }
    return wrong;
}

int main(void)
{
    float gradient[COUNT], sum[COUNT];
    long long wrong = 0;
    double us = 0;
    shmem_init();
    int me = shmem_my_pe(), npes = shmem_n_pes();
    if (npes > MOST_PES) {
        fprintf(stderr, "15-gradient-sync: at most %d PEs\n", MOST_PES);
        shmem_global_exit(1);
    }
    for (int s = 0; s < STEPS; s++) {
        fill(gradient, me, s);
        double start = now_us();
        sync_by_put(gradient, sum, s, me, npes);
        us += now_us() - start;
        wrong += wrong_in(sum, s, npes);
    }
    int failed = verdict("gradient sync", us / STEPS, wrong, me);
    shmem_finalize();
    return failed;
}
