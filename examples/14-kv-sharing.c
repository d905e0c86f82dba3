/* ctest: ranks=4
 * KV sharing: a rank that has computed keys and values of a prompt's beginning publishes where they
 * are; others find them by hash and read them, instead of computing them again.
 *
 *     weft run -n 4 ./14-kv-sharing                                                           */
#include "pattern.h"
#include <weft/symm.h>

#define BLOCK 4096 /* floats of a block: keys and values of some tokens */
#define BLOCKS 8   /* that each rank has computed */
#define WANTED 20  /* that each rank needs */

typedef struct place {
    uint32_t rank, block;
} place_t;

static int rank, size;

static uint64_t hash(int of, int block)
{
    return ((uint64_t)of * BLOCKS + (uint64_t)block + 1) * 0x9e3779b97f4a7c15ull;
}

static float value(int of, int block, int i)
{
    return (float)(of * 100 + block * 10 + i % 10);
}

/* Which blocks a rank needs: of others, mostly. */
static place_t wanted(int by, int i)
{
    return (place_t){(uint32_t)((by + 1 + i) % size), (uint32_t)(by * 3 + i * 5) % BLOCKS};
}

static long long wrong_in(const float *block, place_t from)
{
    long long wrong = 0;
    for (int i = 0; i < BLOCK; i++) {
        wrong += block[i] != value((int)from.rank, (int)from.block, i);
    }
    return wrong;
}

static int by_get(weft_symm_h symm, weft_map_h map, float *pool, float *got, long long *wrong_p)
{
    for (int i = 0; i < WANTED; i++) {
        place_t want = wanted(rank, i), at;
        TRY(weft_map_find(map, hash((int)want.rank, (int)want.block), &at));
        TRY(weft_symm_get(symm, got, pool + (size_t)at.block * BLOCK, BLOCK * sizeof(float),
                          (int)at.rank, NULL));
        *wrong_p += wrong_in(got, want);
    }
    return 0;
}

int main(void)
{
    weft_comm_h comm;
    weft_symm_h symm;
    weft_map_h map;
    float *pool, *got;
    long long wrong = 0;
    TRY(weft_comm_init_job(&comm, NULL));
    TRY(weft_comm_rank(comm, &rank));
    TRY(weft_comm_size(comm, &size));
    TRY(weft_symm_create(comm, BLOCKS * BLOCK * sizeof(float) + (4 << 20), &symm));
    TRY(weft_symm_malloc(symm, BLOCKS * BLOCK * sizeof(float), (void **)&pool));
    TRY(weft_map_create(symm, (size_t)size * BLOCKS, sizeof(place_t), &map));
    TRY(weft_malloc((void **)&got, BLOCK * sizeof(float)));
    for (int b = 0; b < BLOCKS; b++) {
        for (int i = 0; i < BLOCK; i++) {
            pool[b * BLOCK + i] = value(rank, b, i);
        }
        place_t here = {(uint32_t)rank, (uint32_t)b};
        TRY(weft_map_insert(map, hash(rank, b), &here)); /* from now on it can be found */
    }
    TRY(weft_symm_barrier(symm, NULL));
    double start = now_us();
    int failed = by_get(symm, map, pool, got, &wrong);
    failed |= verdict("KV block", (now_us() - start) / WANTED, wrong, rank);
    TRY(weft_symm_barrier(symm, NULL)); /* others may still read from us */
    weft_free(got);
    weft_map_destroy(map);
    weft_symm_destroy(symm);
    weft_comm_destroy(comm);
    return failed;
}
