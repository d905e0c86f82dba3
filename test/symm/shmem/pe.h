/* For the OpenSHMEM programs that tests start: checks, and random data that every PE can compute
 * for every other. A program takes a seed as its first argument; without one it takes the clock's,
 * and all PEs that of PE 0. A failed check prints both values and the seed, and ends the job. */
#ifndef TEST_SYMM_SHMEM_PE_H
#define TEST_SYMM_SHMEM_PE_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shmem.h>

static uint64_t pe_seed;
static int me, pes;

static inline uint64_t pe_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* What PE `pe` has as number `i` of round `round`. */
static inline uint64_t pe_value(int pe, uint64_t round, uint64_t i)
{
    return pe_mix(pe_seed ^ pe_mix((uint64_t)pe * 1000003 + round * 7919 + i));
}

/* A number below `limit` that all PEs draw alike. */
static inline size_t pe_draw(uint64_t round, uint64_t what, size_t limit)
{
    return (size_t)(pe_value(-1, round, what) % limit);
}

/* Small enough to be exact in every type, and of either sign where there is one. */
#define PE_VALUE(type, pe, round, i) ((type)(pe_value(pe, round, i) % 113))

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: PE %d of %d, seed %" PRIu64 ": %s: ", __FILE__, __LINE__, me,  \
                    pes, pe_seed, #condition);                                                     \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            shmem_global_exit(1);                                                                  \
        }                                                                                          \
    } while (0)

#define CHECK_INT(a, b)                                                                            \
    CHECK((long long)(a) == (long long)(b), "%lld is not %lld", (long long)(a), (long long)(b))

static inline void pe_start(int argc, char **argv)
{
    static uint64_t seed;
    shmem_init();
    me = shmem_my_pe();
    pes = shmem_n_pes();
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    pe_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec;
    seed = pe_seed;
    shmem_barrier_all();
    pe_seed = shmem_uint64_g(&seed, 0);
    shmem_barrier_all();
}

#endif
