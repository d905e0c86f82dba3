/* OpenSHMEM program: one PE has no memory for a moment, which all are told; and what a program did
 * not give back, shmem_finalize does. Both need the C library's own allocator, so under sanitizers
 * it does nothing. */
#include <malloc.h>

#include "no_memory.h"
#include "symm/shmem/pe.h"

#if MEMORY_FAILS

#define MANY 2000

/* One that is not even a member cannot tell whether the others could: then nobody may. */
static void test_team(void)
{
    shmem_team_t team;
    for (int broke = pes - 1; broke >= 0 && pes > 1; broke--) {
        allocations_left = me == broke ? 0 : -1;
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes - 1, NULL, 0, &team) != 0,
              "there is a team, though PE %d had no memory", broke);
        CHECK(allocations_left < 0 && team == SHMEM_TEAM_INVALID, "PE %d had no memory", broke);
        CHECK_INT(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, pes - 1, NULL, 0, &team), 0);
        CHECK_INT(team != SHMEM_TEAM_INVALID, me < pes - 1);
        shmem_team_destroy(team);
    }
}

/* Contexts and symmetric allocations have to be remembered somewhere. */
static void fill(void)
{
    shmem_ctx_t ctx;
    for (int i = 0; i < MANY; i++) {
        CHECK_INT(shmem_ctx_create(0, &ctx), 0);
        CHECK(shmem_malloc(64) != NULL, "no symmetric memory");
    }
}

int main(int argc, char **argv)
{
    pe_start(argc, argv);
    test_team();
    size_t before = mallinfo2().uordblks;
    fill();
    size_t full = mallinfo2().uordblks;
    CHECK(full - before > 2 * MANY * 32, "%zu bytes", full - before);
    shmem_finalize();
    size_t after = mallinfo2().uordblks;
    if (after > before + MANY * 16) {
        fprintf(stderr, "PE %d: of %zu bytes, %zu were not given back\n", me, full - before,
                after - before);
        return 1;
    }
    return 0;
}

#else

int main(int argc, char **argv)
{
    pe_start(argc, argv);
    puts("skipped: has no say in who allocates under a sanitizer");
    return 0;
}

#endif
