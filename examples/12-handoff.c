/* ctest: ranks=4
 * Pipeline hand-off: every rank is a stage; activations of micro-batches go from stage to stage.
 * A put with a signal brings data and news of it in one call; the receiver sends nothing but a
 * credit when a buffer is free again.
 *
 *     weft run -n 4 ./12-handoff                                                              */
#include "pattern.h"
#include <string.h>
#include <weft/symm.h>

#define COUNT 4096 /* activations of a micro-batch */
#define BATCHES 32
#define BUFFERS 2 /* micro-batches that may wait at a stage */

static int rank, size;

/* What a stage computes. */
static void compute(float *x)
{
    for (int i = 0; i < COUNT; i++) {
        x[i] = x[i] * 0.5f + (float)rank;
    }
}

static void load(float *x, int batch)
{
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(batch * 64 + i % 64);
    }
}

/* What comes out of the last stage. */
static float expected(int batch, int i)
{
    float x = (float)(batch * 64 + i % 64);
    for (int r = 0; r < size; r++) {
        x = x * 0.5f + (float)r;
    }
    return x;
}

static long long wrong_in(const float *x, int batch)
{
    long long wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += x[i] != expected(batch, i);
    }
    return wrong;
}

static int by_put(weft_symm_h symm, long long *wrong_p)
{
    float *inbox, *x;
    uint64_t *arrived, *credit; /* batches that came to us; buffers that the next stage gave back */
    TRY(weft_symm_malloc(symm, BUFFERS * COUNT * sizeof(float), (void **)&inbox));
    TRY(weft_symm_malloc(symm, 8, (void **)&arrived));
    TRY(weft_symm_malloc(symm, 8, (void **)&credit));
    TRY(weft_malloc((void **)&x, COUNT * sizeof(float)));
    for (int b = 0; b < BATCHES; b++) {
        float *slot = inbox + b % BUFFERS * COUNT;
        if (rank == 0) {
            load(x, b);
        } else {
            TRY(weft_symm_signal_wait(symm, arrived, WEFT_CMP_GE, (uint64_t)b + 1, NULL));
            memcpy(x, slot, COUNT * sizeof(float));
            TRY(weft_symm_signal_op(symm, credit, 1, WEFT_SIGNAL_ADD, rank - 1, NULL));
        }
        compute(x);
        if (rank == size - 1) {
            *wrong_p += wrong_in(x, b);
            continue;
        }
        if (b >= BUFFERS) { /* the slot that we are about to fill must have been emptied */
            TRY(weft_symm_signal_wait(symm, credit, WEFT_CMP_GE, (uint64_t)(b - BUFFERS + 1),
                                      NULL));
        }
        TRY(weft_symm_put_signal(symm, slot, x, COUNT * sizeof(float), arrived, (uint64_t)b + 1,
                                 WEFT_SIGNAL_SET, rank + 1, NULL));
    }
    weft_free(x);
    return 0;
}

int main(void)
{
    weft_comm_h comm;
    weft_symm_h symm;
    long long wrong = 0;
    TRY(weft_comm_init_job(&comm, NULL));
    TRY(weft_comm_rank(comm, &rank));
    TRY(weft_comm_size(comm, &size));
    TRY(weft_symm_create(comm, 1 << 20, &symm));
    TRY(weft_barrier(comm, NULL));
    double start = now_us();
    int failed = by_put(symm, &wrong);
    TRY(weft_barrier(comm, NULL));
    failed |= verdict("hand-off", (now_us() - start) / BATCHES, wrong, rank);
    weft_symm_destroy(symm);
    weft_comm_destroy(comm);
    return failed;
}
