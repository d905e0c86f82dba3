/* ctest: ranks=4
 * Parameter server in OpenSHMEM: parameters are cut into shards, every PE serves one and works with
 * all. A step: gradients are put to the servers of their shards, which apply the sum and put the
 * new parameters back to everybody.
 *
 *     oshrun -np 4 ./18-param-server                                                          */
#include "pattern.h"
#include <shmem.h>
#include <stdlib.h>

#define SHARD 512
#define STEPS 20

static int me, npes;

static float value(int pe, int step, int i)
{
    return (float)((pe * 7 + step * 3 + i) % 11 - 5);
}

static void fill(float *gradient, int step)
{
    for (int i = 0; i < SHARD * npes; i++) {
        gradient[i] = value(me, step, i);
    }
}

/* params: a replica of all; boxes: gradients of our shard, one from each PE; both symmetric. The
 * counters say how many gradients and how many new shards have come. */
static void step_by_put(float *params, float *boxes, uint64_t *pushed, uint64_t *published,
                        const float *gradient, uint64_t step)
{
    float *mine = params + me * SHARD;
    uint64_t pes = (uint64_t)npes;
    for (int n = 0; n < npes; n++) {
        int server = (me + n) % npes;
        shmem_putmem_signal(boxes + me * SHARD, gradient + server * SHARD, SHARD * sizeof(float),
                            pushed, 1, SHMEM_SIGNAL_ADD, server);
    }
    shmem_signal_wait_until(pushed, SHMEM_CMP_GE, pes * (step + 1));
    for (int pe = 0; pe < npes; pe++) {
        for (int i = 0; i < SHARD; i++) {
            mine[i] -= boxes[pe * SHARD + i];
        }
    }
    for (int n = 1; n < npes; n++) {
        shmem_putmem_signal(mine, mine, SHARD * sizeof(float), published, 1, SHMEM_SIGNAL_ADD,
                            (me + n) % npes);
    }
    /* With all shards here everybody's boxes are free again: their servers have read them. */
    shmem_signal_wait_until(published, SHMEM_CMP_GE, (pes - 1) * (step + 1));
}

static long long wrong_in(const float *params)
{
    long long wrong = 0;
    for (int i = 0; i < SHARD * npes; i++) {
        float want = 0;
        for (int n = 0; n < npes * STEPS; n++) {
            want -= value(n % npes, n / npes, i);
        }
        wrong += params[i] != want;
    }
    return wrong;
}

int main(void)
{
    double us = 0;
    shmem_init();
    me = shmem_my_pe();
    npes = shmem_n_pes();
    size_t bytes = (size_t)(SHARD * npes) * sizeof(float);
    float *params = shmem_calloc(1, bytes), *boxes = shmem_malloc(bytes), *gradient = malloc(bytes);
    uint64_t *counters = shmem_calloc(16, sizeof(uint64_t)); /* two, a cache line apart */
    if (!params || !boxes || !gradient || !counters) {
        shmem_global_exit(1);
    }
    for (int s = 0; s < STEPS; s++) {
        fill(gradient, s);
        double start = now_us();
        step_by_put(params, boxes, counters, counters + 8, gradient, (uint64_t)s);
        us += now_us() - start;
    }
    int failed = verdict("parameter server", us / STEPS, wrong_in(params), me);
    free(gradient);
    shmem_finalize();
    return failed;
}
