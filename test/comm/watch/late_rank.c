/* Rank 1 is late by as many milliseconds as the argument says, in a collective and as a sender. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <weft/weft.h>

static void nap(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static void must(weft_status_t status)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    long ms = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    weft_comm_h comm;
    int rank;
    float x = 1;
    must(weft_comm_init_job(&comm, NULL));
    must(weft_comm_rank(comm, &rank));
    if (rank == 1) {
        nap(ms);
    }
    must(weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, comm, NULL));
    if (rank == 1) {
        nap(ms);
        must(weft_send(&x, 1, WEFT_F32, 0, comm, NULL));
    } else if (rank == 0) {
        must(weft_recv(&x, 1, WEFT_F32, 1, comm, NULL));
    }
    must(weft_comm_destroy(comm));
    return 0;
}
