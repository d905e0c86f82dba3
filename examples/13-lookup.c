/* ctest: ranks=4
 * Parameter lookup: an embedding table is spread over the ranks, and each rank needs the rows of
 * its tokens. It reads them from their owners, who need not know.
 *
 *     weft run -n 4 ./13-lookup                                                               */
#include "pattern.h"
#include <weft/symm.h>

#define ROWS 1000 /* of the table */
#define WIDTH 64  /* of a row */
#define TOKENS 50 /* of each rank */

static int rank;

static float value(size_t row, size_t column)
{
    return (float)(row * 7 + column);
}

/* The tokens of a rank: as good as random. */
static size_t token(int of, size_t i)
{
    return ((size_t)of * 7919 + i * 104729) % ROWS;
}

static long long wrong_in(float rows[TOKENS][WIDTH])
{
    long long wrong = 0;
    for (size_t t = 0; t < TOKENS; t++) {
        for (size_t c = 0; c < WIDTH; c++) {
            wrong += rows[t][c] != value(token(rank, t), c);
        }
    }
    return wrong;
}

static int by_get(weft_dtensor_h table, float rows[TOKENS][WIDTH])
{
    for (size_t t = 0; t < TOKENS; t++) {
        TRY(weft_dtensor_get(table, token(rank, t), 1, rows[t], NULL));
    }
    return 0;
}

int main(void)
{
    weft_comm_h comm;
    weft_symm_h symm;
    weft_dtensor_h table;
    static float rows[TOKENS][WIDTH];
    float *own;
    size_t first, count;
    TRY(weft_comm_init_job(&comm, NULL));
    TRY(weft_comm_rank(comm, &rank));
    TRY(weft_symm_create(comm, ROWS * WIDTH * sizeof(float) + (1 << 20), &symm));
    TRY(weft_dtensor_create(symm, ROWS, WIDTH * sizeof(float), NULL, &table));
    TRY(weft_dtensor_local(table, (void **)&own, &first, &count));
    for (size_t i = 0; i < count * WIDTH; i++) {
        own[i] = value(first + i / WIDTH, i % WIDTH);
    }
    TRY(weft_symm_barrier(symm, NULL));
    double start = now_us();
    int failed = by_get(table, rows);
    double end = now_us();
    failed |= verdict("lookup of a row", (end - start) / TOKENS, wrong_in(rows), rank);
    TRY(weft_symm_barrier(symm, NULL)); /* others may still read from us */
    weft_dtensor_destroy(table);
    weft_symm_destroy(symm);
    weft_comm_destroy(comm);
    return failed;
}
