/* The smallest useful program: every rank contributes its number, all get the sum.
 *
 *     weft run -n 4 ./01-allreduce                                                           */
#include <stdio.h>
#include <weft/weft.h>

#define TRY(call)                                                                                  \
    if ((call) != WEFT_OK) {                                                                       \
        fprintf(stderr, "%s\n", weft_last_error());                                                \
        return 1;                                                                                  \
    }

int main(void)
{
    int rank, size;
    weft_comm_h comm;
    float host[1024], *x;
    TRY(weft_comm_init_job(&comm, NULL)); /* who am I? weft run, torchrun, mpirun or srun says */
    TRY(weft_comm_rank(comm, &rank));
    TRY(weft_comm_size(comm, &size));
    TRY(weft_malloc((void **)&x, sizeof(host))); /* device memory, which all ranks can reach */
    for (int i = 0; i < 1024; i++) {
        host[i] = (float)rank;
    }
    TRY(weft_memcpy(x, host, sizeof(host), NULL));
    TRY(weft_allreduce(x, x, 1024, WEFT_F32, WEFT_SUM, comm, NULL));
    TRY(weft_memcpy(host, x, sizeof(host), NULL));
    printf("rank %d of %d: the sum of all ranks is %g\n", rank, size, host[1023]);
    weft_free(x);
    weft_comm_destroy(comm);
    return 0;
}
