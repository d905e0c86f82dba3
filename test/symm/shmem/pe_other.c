/* Another OpenSHMEM program than pe_fault, with other variables, to run beside it. */
#include "symm/shmem/pe.h"

static int words[5000] = {1};

int main(void)
{
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    long *heap = shmem_calloc(1, sizeof(long));
    shmem_long_atomic_inc(heap, 0);
    shmem_barrier_all();
    CHECK_INT(shmem_long_g(heap, 0), pes);
    CHECK_INT(shmem_addr_accessible(words, (me + 1) % pes), 0);
    shmem_barrier_all();
    shmem_barrier_all(); /* the other one does not come */
    return words[0];
}
