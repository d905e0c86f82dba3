/* Ranks that found each other by other means: rank 0 makes an id, a pipe carries it.
 *
 *     ./04-unique-id                                                                          */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

#define TRY(call)                                                                                  \
    if ((call) != WEFT_OK) {                                                                       \
        fprintf(stderr, "%s\n", weft_last_error());                                                \
        return 1;                                                                                  \
    }

static int rank_main(int rank, int size, weft_unique_id_t id)
{
    weft_comm_h comm;
    long long value = 10 + rank, all[8];
    TRY(weft_comm_init_rank(&comm, size, id, rank, NULL));
    TRY(weft_allgather(&value, all, 1, WEFT_I64, comm, NULL)); /* plain memory works as well */
    printf("rank %d sees %lld and %lld\n", rank, all[0], all[1]);
    weft_comm_destroy(comm);
    return 0;
}

int main(void)
{
    int pipes[2];
    weft_unique_id_t id;
    if (pipe(pipes) != 0) {
        return 1;
    }
    pid_t child = fork(); /* before the first Weft call: a used library does not survive fork */
    if (child == 0) {
        return read(pipes[0], &id, sizeof(id)) == sizeof(id) ? rank_main(1, 2, id) : 1;
    }
    TRY(weft_unique_id_create(&id));
    if (write(pipes[1], &id, sizeof(id)) != sizeof(id)) {
        return 1;
    }
    int failed = rank_main(0, 2, id), status = 1;
    waitpid(child, &status, 0);
    return failed || status != 0;
}
