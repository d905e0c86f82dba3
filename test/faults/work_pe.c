/* A PE for faults to strike: variables, the heap, a team and a sum. */
#include <errno.h>
#include <shmem.h>
#include <stdio.h>
#include <string.h>

static long variable = 7;

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), pes = shmem_n_pes(), next = (me + 1) % pes, last = (me + pes - 1) % pes;
    long *heap = shmem_malloc(2 * sizeof(long));
    if (heap == NULL) {
        fprintf(stderr, "PE %d: no memory by shmem_malloc\n", me);
        shmem_global_exit(1);
    }
    shmem_team_t team;
    heap[0] = me + 1;
    shmem_barrier_all();
    shmem_long_p(&variable, 100 + me, next);
    int made = shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes, NULL, 0, &team);
    int summed = made != 0 ? 1 : shmem_long_sum_reduce(team, &heap[1], &heap[0], 1);
    shmem_barrier_all();
    if (summed != 0 || variable != 100 + last || heap[1] != (long)pes * (pes + 1) / 2) {
        fprintf(stderr, "PE %d: team %d, sum %d, variable %ld, sum %ld\n", me, made, summed,
                variable, heap[1]);
        shmem_global_exit(1);
    }
    shmem_team_destroy(team);
    shmem_free(heap);
    if (printf("PE %d of %d\n", me, pes) < 0 || fflush(stdout) != 0) {
        fprintf(stderr, "cannot write to stdout: %s\n", strerror(errno));
        shmem_global_exit(1);
    }
    shmem_finalize();
    return 0;
}
