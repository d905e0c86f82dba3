/* ctest: ranks=4
 * Asynchronous gradient aggregation: workers push gradients into rank 0's queue when they have them
 * and go on; nobody waits for the slowest.
 *
 *     weft run -n 4 ./19-async-gradients                                                      */
#include "pattern.h"
#include <weft/symm.h>

#define COUNT 256
#define STEPS 20
#define SLOTS 32 /* gradients that may wait: how far workers may be ahead */

static int rank, size;

static float value(int of, int step, int i)
{
    return (float)((of * 5 + step * 3 + i) % 13 - 6);
}

/* A step whose length differs from rank to rank and from step to step, as if a GPU worked on it. */
static void compute(float *gradient, int step)
{
    struct timespec busy = {.tv_nsec = ((rank * 7 + step * 3) % 5) * 60000};
    nanosleep(&busy, NULL);
    for (int i = 0; i < COUNT; i++) {
        gradient[i] = value(rank, step, i);
    }
}

static void add(float *sum, const float *gradient)
{
    for (int i = 0; i < COUNT; i++) {
        sum[i] += gradient[i];
    }
}

static int asynchronous(weft_ring_h queue, float *sum)
{
    float gradient[COUNT];
    size_t bytes;
    if (rank > 0) {
        for (int s = 0; s < STEPS; s++) {
            compute(gradient, s);
            TRY(weft_ring_push_wait(queue, 0, gradient, sizeof(gradient)));
        }
        return 0;
    }
    for (int n = 0; n < STEPS * (size - 1); n++) {
        TRY(weft_ring_pop_wait(queue, gradient, &bytes, NULL)); /* whoever comes first */
        add(sum, gradient);
    }
    return 0;
}

/* Whole numbers: in whatever order they were added, the sum is the same. */
static long long wrong_in(const float *sum)
{
    long long wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        float want = 0;
        for (int r = 1; r < size; r++) {
            for (int s = 0; s < STEPS; s++) {
                want += value(r, s, i);
            }
        }
        wrong += sum[i] != want;
    }
    return wrong;
}

int main(void)
{
    weft_comm_h comm;
    weft_symm_h symm;
    weft_ring_h queue;
    float sum[COUNT] = {0};
    TRY(weft_comm_init_job(&comm, NULL));
    TRY(weft_comm_rank(comm, &rank));
    TRY(weft_comm_size(comm, &size));
    TRY(weft_symm_create(comm, 1 << 20, &symm));
    TRY(weft_ring_create(symm, SLOTS, COUNT * sizeof(float), &queue));
    TRY(weft_barrier(comm, NULL));
    double start = now_us();
    int failed = asynchronous(queue, sum);
    TRY(weft_barrier(comm, NULL));
    failed |= verdict("async gradients", (now_us() - start) / STEPS, rank == 0 ? wrong_in(sum) : 0,
                      rank);
    weft_ring_destroy(queue);
    weft_symm_destroy(symm);
    weft_comm_destroy(comm);
    return failed;
}
