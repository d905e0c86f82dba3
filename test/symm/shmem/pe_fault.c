/* OpenSHMEM program: does one thing wrong, named by its argument. The last PE is the one that
 * dies. */
#include <signal.h>
#include <unistd.h>

#include "symm/shmem/pe.h"

static int word;
static long lock, flag;
static double values[20000], sums[20000];

static void die(void)
{
    if (me == pes - 1) {
        usleep(50000); /* the others wait by then */
        kill(getpid(), SIGKILL);
    }
}

static void heap_too_small(void)
{
    char *block = shmem_malloc(3 << 20);
    if (block != NULL) {
        block[(3 << 20) - 1] = 1;
        printf("PE %d has memory\n", me);
    }
    shmem_finalize();
    exit(block == NULL ? 42 : 0);
}

/* It fits into the heap, but not into the machine. What is asked for next can still be had. */
static void no_memory(void)
{
    void *much = shmem_malloc((size_t)20 << 40), *little = shmem_malloc(5000);
    shmem_finalize();
    exit(much == NULL && little != NULL ? 42 : 0);
}

static void killed_in_barrier(void)
{
    die();
    shmem_barrier_all();
}

static void killed_in_wait(void)
{
    die();
    shmem_long_wait_until(&flag, SHMEM_CMP_EQ, 1);
}

static void killed_in_wait_any(void)
{
    die();
    shmem_long_wait_until_any(&flag, 1, NULL, SHMEM_CMP_EQ, 1);
}

static void killed_with_lock(void)
{
    if (me == pes - 1) {
        shmem_set_lock(&lock);
    }
    shmem_barrier_all();
    die();
    shmem_set_lock(&lock);
}

static void killed_in_reduce(void)
{
    die();
    shmem_double_sum_reduce(SHMEM_TEAM_WORLD, sums, values, 20000);
}

static void killed_in_active_set(void)
{
    static long sync[SHMEM_SYNC_SIZE];
    die();
    shmem_fcollect64(sums, values, 10, 0, 0, pes, sync);
}

static void exits_early(void)
{
    if (me == pes - 1) {
        exit(9);
    }
    shmem_barrier_all();
}

/* One asks for the end while the others compute, and one of them waits. */
static void global_exit(void)
{
    printf("PE %d says this", me); /* in a buffer: to be flushed */
    if (me == pes - 1) {
        usleep(20000);
        shmem_global_exit(23);
    }
    if (me == 0) {
        shmem_barrier_all();
    }
    for (volatile long i = 0;; i++) {
    }
}

static void wrong_pe(void)
{
    shmem_int_p(&word, 1, pes);
}

static void wrong_pe_of_team(void)
{
    shmem_team_t team;
    shmem_ctx_t ctx;
    shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, 1, NULL, 0, &team);
    if (team != SHMEM_TEAM_INVALID) {
        shmem_team_create_ctx(team, 0, &ctx);
        shmem_ctx_int_p(ctx, &word, 1, 1);
    }
    shmem_barrier_all();
}

static void not_symmetric(void)
{
    int here = 0;
    shmem_int_put(&here, &word, 1, 0);
}

static void too_long(void)
{
    char *block = shmem_malloc(64);
    shmem_putmem(block, block, (size_t)1 << 40, 0);
}

static void wait_not_symmetric(void)
{
    long here = 0;
    shmem_long_wait_until(&here, SHMEM_CMP_EQ, 0);
}

static void wrong_ctx(void)
{
    shmem_ctx_int_p(SHMEM_CTX_INVALID, &word, 1, 0);
}

static void wrong_team(void)
{
    shmem_team_sync(SHMEM_TEAM_INVALID);
}

static void wrong_cmp(void)
{
    shmem_long_wait_until(&flag, 99, 1);
}

static void wrong_free(void)
{
    shmem_free(&word);
}

static void unlike_malloc(void)
{
    shmem_malloc(me == 0 ? 100 : 200);
}

static void malloc_or_barrier(void)
{
    for (int i = 0; i < 20; i++) {
        shmem_free(shmem_malloc(8));
    }
    if (me == 0) {
        shmem_barrier_all();
    } else {
        shmem_malloc(8);
    }
}

/* Its exit finalizes, which the others take for a barrier. */
static void leaves_early(void)
{
    if (me == pes - 1) {
        exit(0);
    }
    shmem_barrier_all();
    shmem_barrier_all();
}

static void killed_in_test(void)
{
    die();
    while (!shmem_long_test(&flag, SHMEM_CMP_EQ, 1)) {
    }
}

static void wrong_set(void)
{
    static long sync[SHMEM_SYNC_SIZE];
    shmem_barrier(0, 1, pes, sync);
}

/* PE 2 lies between the members, 0 and 4. */
static void outside_set(void)
{
    static long sync[SHMEM_SYNC_SIZE];
    if (me == 2) {
        shmem_barrier(0, 2, 2, sync);
    }
    shmem_barrier_all();
}

static void lock_twice(void)
{
    shmem_set_lock(&lock);
    shmem_set_lock(&lock);
}

/* It is set, but by another PE. */
static void clear_of_others(void)
{
    if (me == 0) {
        shmem_set_lock(&lock);
    }
    shmem_barrier_all();
    if (me != 0) {
        shmem_clear_lock(&lock);
    }
    shmem_barrier_all();
}

static void destroyed_team(void)
{
    shmem_team_t team;
    shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes, NULL, 0, &team);
    shmem_team_destroy(team);
    shmem_team_sync(team);
}

static void no_team(void)
{
    shmem_int_sum_reduce((shmem_team_t)(void *)&flag, &word, &word, 1);
}

/* More elements than there are bytes: their number of bytes, cut off, would be 16. */
static void too_many(void)
{
    shmem_double_put(sums, values, SIZE_MAX / sizeof(double) + 3, 0);
}

static void too_far_apart(void)
{
    shmem_double_iput(sums, values, (ptrdiff_t)1 << 60, 1, 3, 0);
}

/* All but the first element of the last block would lie behind the heap. */
static void blocks_too_long(void)
{
    size_t count = 1000;
    long *source = shmem_malloc((size_t)pes * count * sizeof(long));
    long *dest = shmem_malloc((size_t)pes * count * sizeof(long));
    char *end = (char *)dest;
    while (shmem_addr_accessible(end, 0)) {
        end += 4096;
    }
    dest = (long *)end - (size_t)(pes - 1) * 2 * count - 1;
    shmem_long_alltoalls(SHMEM_TEAM_WORLD, dest, source, 2, 1, count);
}

/* Does nothing any more, but lives. */
static void stop(void)
{
    if (me == pes - 1) {
        kill(getpid(), SIGSTOP);
    }
}

static void stopped_in_barrier(void)
{
    stop();
    shmem_barrier_all();
}

static void stopped_in_wait(void)
{
    stop();
    shmem_long_wait_until(&flag, SHMEM_CMP_EQ, 1);
}

static void other_program(void)
{
    long *heap = shmem_calloc(1, sizeof(long));
    shmem_long_atomic_inc(heap, 0);
    shmem_barrier_all();
    CHECK_INT(shmem_long_g(heap, 0), pes);
    shmem_barrier_all();
    shmem_int_p(&word, 1, (me + 1) % pes);
}

#define CASES(X)                                                                                   \
    X(heap_too_small)                                                                              \
    X(no_memory)                                                                                   \
    X(killed_in_barrier)                                                                           \
    X(killed_in_wait)                                                                              \
    X(killed_in_wait_any)                                                                          \
    X(killed_with_lock)                                                                            \
    X(killed_in_reduce)                                                                            \
    X(killed_in_active_set)                                                                        \
    X(exits_early)                                                                                 \
    X(global_exit)                                                                                 \
    X(wrong_pe)                                                                                    \
    X(wrong_pe_of_team)                                                                            \
    X(not_symmetric)                                                                               \
    X(too_long)                                                                                    \
    X(wait_not_symmetric)                                                                          \
    X(wrong_ctx)                                                                                   \
    X(wrong_team)                                                                                  \
    X(wrong_cmp)                                                                                   \
    X(wrong_free)                                                                                  \
    X(unlike_malloc)                                                                               \
    X(malloc_or_barrier)                                                                           \
    X(leaves_early)                                                                                \
    X(killed_in_test)                                                                              \
    X(outside_set)                                                                                 \
    X(wrong_set)                                                                                   \
    X(lock_twice)                                                                                  \
    X(clear_of_others)                                                                             \
    X(destroyed_team)                                                                              \
    X(no_team)                                                                                     \
    X(too_many)                                                                                    \
    X(too_far_apart)                                                                               \
    X(blocks_too_long)                                                                             \
    X(stopped_in_barrier)                                                                          \
    X(stopped_in_wait)                                                                             \
    X(other_program)

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
#define ROW(name) {#name, name},
    CASES(ROW)
#undef ROW
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "not_started") == 0) {
        shmem_int_p(&word, 1, 0);
    }
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    for (size_t i = 0; argc > 1 && i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
        }
    }
    shmem_finalize();
    return 0;
}
