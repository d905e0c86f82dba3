/* Four devices in one process, driven by one thread, as with ncclCommInitAll.
 *
 *     ./02-threads                                                                            */
#include <stdio.h>
#include <weft/weft.h>

#define N 4
#define TRY(call)                                                                                  \
    if ((call) != WEFT_OK) {                                                                       \
        fprintf(stderr, "%s\n", weft_last_error());                                                \
        return 1;                                                                                  \
    }

int main(void)
{
    weft_comm_h comms[N];
    float *x[N];
    TRY(weft_comm_init_all(comms, N, NULL));
    for (int d = 0; d < N; d++) {
        TRY(weft_device_set(d));
        TRY(weft_malloc((void **)&x[d], sizeof(float)));
        float mine = (float)(d + 1);
        TRY(weft_memcpy(x[d], &mine, sizeof(mine), NULL));
    }
    TRY(weft_group_start()); /* without a group the first call would wait for the others */
    for (int d = 0; d < N; d++) {
        TRY(weft_allreduce(x[d], x[d], 1, WEFT_F32, WEFT_SUM, comms[d], NULL));
    }
    TRY(weft_group_end());
    for (int d = 0; d < N; d++) {
        float sum;
        TRY(weft_memcpy(&sum, x[d], sizeof(sum), NULL));
        printf("device %d: %g\n", d, sum);
        weft_free(x[d]);
        weft_comm_destroy(comms[d]);
    }
    return 0;
}
