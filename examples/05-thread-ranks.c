/* ctest: tsan
 * Ranks as threads: each joins by itself, as a process would, and drives its own device.
 *
 *     ./05-thread-ranks                                                                       */
#include <pthread.h>
#include <stdio.h>
#include <weft/weft.h>

#define RANKS 4
#define COUNT 1000
#define TRY(call)                                                                                  \
    if ((call) != WEFT_OK) {                                                                       \
        fprintf(stderr, "%s\n", weft_last_error());                                                \
        return "failed";                                                                           \
    }

static weft_unique_id_t id; /* made by main before the threads start */

static void *rank_main(void *arg)
{
    int rank = *(int *)arg, wrong = 0;
    weft_comm_h comm;
    float *x;
    TRY(weft_device_set(rank)); /* of this thread: memory and communicator will be on it */
    TRY(weft_comm_init_rank(&comm, RANKS, id, rank, NULL)); /* returns when all have joined */
    TRY(weft_malloc((void **)&x, COUNT * sizeof(float)));
    for (int i = 0; i < COUNT; i++) {
        x[i] = (float)(rank + i); /* a virtual GPU's memory; on real ones use weft_memcpy */
    }
    TRY(weft_allreduce(x, x, COUNT, WEFT_F32, WEFT_SUM, comm, NULL));
    for (int i = 0; i < COUNT; i++) {
        wrong += x[i] != (float)(RANKS * (RANKS - 1) / 2 + RANKS * i);
    }
    weft_free(x);
    weft_comm_destroy(comm);
    return wrong ? "wrong sums" : NULL;
}

int main(void)
{
    pthread_t threads[RANKS];
    int ranks[RANKS], failed = 0;
    if (weft_unique_id_create(&id) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
        return 1;
    }
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = r;
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]) != 0) {
            return 1;
        }
    }
    for (int r = 0; r < RANKS; r++) {
        void *why;
        pthread_join(threads[r], &why);
        if (why) {
            fprintf(stderr, "rank %d: %s\n", r, (const char *)why);
            failed = 1;
        }
    }
    printf("%d threads, each a rank: sums of %d elements %s\n", RANKS, COUNT,
           failed ? "WRONG" : "are right");
    return failed;
}
