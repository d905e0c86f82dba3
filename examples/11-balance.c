/* ctest: ranks=4
 * Dynamic load balancing in OpenSHMEM: tasks of unequal cost. PEs draw the number of the next task
 * from a counter by an atomic fetch-and-add, and put its result to PE 0.
 *
 *     oshrun -np 4 ./11-balance                                                               */
#include "pattern.h"
#include <shmem.h>

#define TASKS 256

static uint64_t results[TASKS]; /* PE 0's are the ones that count */
static long next;               /* PE 0's: the next task */

/* Steps until a number reaches 1 (3n+1 if odd, n/2 if even), over a range that grows with the
 * task. */
static uint64_t work(long task)
{
    uint64_t steps = 0;
    for (uint64_t n = 1; n <= 4 * (uint64_t)task; n++) {
        for (uint64_t x = n; x != 1; steps++) {
            x = x % 2 ? 3 * x + 1 : x / 2;
        }
    }
    return steps;
}

static void dynamic(void)
{
    long task;
    while ((task = shmem_long_atomic_fetch_inc(&next, 0)) < TASKS) {
        uint64_t result = work(task);
        shmem_put64(&results[task], &result, 1, 0);
    }
    shmem_barrier_all(); /* completes all puts */
}

int main(void)
{
    long long wrong = 0;
    shmem_init();
    int me = shmem_my_pe();
    shmem_barrier_all();
    double start = now_us();
    dynamic();
    double end = now_us();
    for (long t = 0; me == 0 && t < TASKS; t++) {
        wrong += results[t] != work(t);
    }
    int failed = verdict("load balancing", end - start, wrong, me);
    shmem_finalize();
    return failed;
}
