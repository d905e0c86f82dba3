/* ctest: ranks=4
 * A grid of ranks: rows and columns are communicators of their own. Sums along rows, then messages
 * along columns.
 *
 *     weft run -n 4 ./06-split                                                                */
#include <stdio.h>
#include <weft/weft.h>

#define TRY(call)                                                                                  \
    if ((call) != WEFT_OK) {                                                                       \
        fprintf(stderr, "%s\n", weft_last_error());                                                \
        return 1;                                                                                  \
    }

int main(void)
{
    weft_comm_h world, row, column;
    int rank, size, rows, me;
    TRY(weft_comm_init_job(&world, NULL));
    TRY(weft_comm_rank(world, &rank));
    TRY(weft_comm_size(world, &size));
    int width = size % 2 == 0 ? 2 : 1;
    TRY(weft_comm_split(world, rank / width, rank, &row, NULL)); /* same color: same row */
    TRY(weft_comm_split(world, rank % width, rank, &column, NULL));

    long long sum = rank;
    TRY(weft_allreduce(&sum, &sum, 1, WEFT_I64, WEFT_SUM, row, NULL));

    /* Around the column: what is sent down comes from above. In a group nobody waits for the
     * other. */
    long long above = -1;
    TRY(weft_comm_rank(column, &me));
    TRY(weft_comm_size(column, &rows));
    TRY(weft_group_start());
    weft_send(&sum, 1, WEFT_I64, (me + 1) % rows, column, NULL); /* an error is in group_end */
    weft_recv(&above, 1, WEFT_I64, (me + rows - 1) % rows, column, NULL);
    TRY(weft_group_end());

    long long first = (long long)((me + rows - 1) % rows) * width, expected = 0;
    for (int i = 0; i < width; i++) {
        expected += first + i;
    }
    printf("rank %d: row %d sums to %lld, the row above to %lld\n", rank, rank / width, sum, above);
    weft_comm_destroy(row);
    weft_comm_destroy(column);
    weft_comm_destroy(world);
    return above != expected;
}
