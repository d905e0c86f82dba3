/* A rank for faults to strike: does one thing with others, checks what came out, and says so.
 *
 *     weft run -n 3 work join|split|symm                                                       */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weft/weft.h>

#define COUNT 5000
#define TRY(call)                                                                                  \
    if ((call) != WEFT_OK) {                                                                       \
        fprintf(stderr, "%s\n", weft_last_error());                                                \
        return 1;                                                                                  \
    }

static int unwritten(void)
{
    fprintf(stderr, "cannot write to stdout: %s\n", strerror(errno));
    return 1;
}

/* Every rank of `comm` adds its number and one, in memory of the device and in its own. */
static int add_up(weft_comm_h comm, const char *what)
{
    int rank, size;
    static float mine[COUNT];
    float *x;
    TRY(weft_comm_rank(comm, &rank));
    TRY(weft_comm_size(comm, &size));
    TRY(weft_malloc((void **)&x, sizeof(mine)));
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++) {
            mine[i] = (float)(rank + 1);
        }
        TRY(weft_memcpy(x, mine, sizeof(mine), NULL));
        TRY(weft_allreduce(round == 0 ? x : mine, x, COUNT, WEFT_F32, WEFT_SUM, comm, NULL));
        TRY(weft_memcpy(mine, x, sizeof(mine), NULL));
        for (int i = 0; i < COUNT; i++) {
            if (mine[i] != (float)(size * (size + 1) / 2)) {
                fprintf(stderr, "%s: element %d of rank %d is %g\n", what, i, rank, mine[i]);
                return 1;
            }
        }
    }
    TRY(weft_free(x));
    return printf("%s: rank %d of %d\n", what, rank, size) < 0 ? unwritten() : 0;
}

static int split(weft_comm_h comm)
{
    int rank;
    weft_comm_h part;
    TRY(weft_comm_rank(comm, &rank));
    TRY(weft_comm_split(comm, rank % 2, -rank, &part, NULL));
    if (add_up(part, "split") != 0) {
        return 1;
    }
    TRY(weft_comm_destroy(part));
    return add_up(comm, "whole");
}

static int symm(weft_comm_h comm)
{
    int rank, size;
    weft_symm_h heap;
    long *slots;
    TRY(weft_comm_rank(comm, &rank));
    TRY(weft_comm_size(comm, &size));
    TRY(weft_symm_create(comm, 1 << 20, &heap));
    TRY(weft_symm_malloc(heap, (size_t)size * sizeof(long), (void **)&slots));
    for (int pe = 0; pe < size; pe++) {
        long value = 100 + rank;
        TRY(weft_symm_put(heap, &slots[rank], &value, sizeof(value), pe, NULL));
    }
    TRY(weft_symm_barrier(heap, NULL));
    for (int pe = 0; pe < size; pe++) {
        if (slots[pe] != 100 + pe) {
            fprintf(stderr, "slot %d of rank %d is %ld\n", pe, rank, slots[pe]);
            return 1;
        }
    }
    TRY(weft_symm_free(heap, slots));
    TRY(weft_symm_destroy(heap));
    return printf("symm: rank %d of %d\n", rank, size) < 0 ? unwritten() : 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "join";
    weft_comm_h comm;
    TRY(weft_comm_init_job(&comm, NULL));
    int result = strcmp(what, "split") == 0  ? split(comm)
                 : strcmp(what, "symm") == 0 ? symm(comm)
                                             : add_up(comm, "join");
    if (result == 0) {
        TRY(weft_comm_destroy(comm));
    }
    return fflush(stdout) != 0 && result == 0 ? unwritten() : result;
}
