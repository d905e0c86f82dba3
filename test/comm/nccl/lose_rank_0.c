/* For test_hosts.sh: rank 0, which serves the store, is killed while the others wait for it. */
#include <signal.h>
#include <stdio.h>

#include <weft/weft.h>

int main(void)
{
    weft_comm_h comm;
    float one = 1;
    int rank;
    if (weft_comm_init_job(&comm, NULL) != WEFT_OK || weft_comm_rank(comm, &rank) != WEFT_OK ||
        weft_allreduce(&one, &one, 1, WEFT_F32, WEFT_SUM, comm, NULL) != WEFT_OK) {
        printf("%s\n", weft_last_error());
        return 2;
    }
    if (rank == 0) {
        raise(SIGKILL);
    }
    weft_status_t status = weft_allreduce(&one, &one, 1, WEFT_F32, WEFT_SUM, comm, NULL);
    printf("%s: %s\n", weft_status_name(status), weft_last_error());
    return status == WEFT_ERR_RANK_DEAD ? 1 : 2;
}
