/* Algorithms over a window whose waits fail: each ends at once, with the status of that wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "comm/coll/window.h"

#define RANKS 5
#define COUNT 40000 /* of f32: several times what fits into half a scratch, and many chunks */
#define CHUNK 32768

typedef struct patience {
    int waits, last; /* the wait that fails; 0: none does */
    bool failed;
    int after; /* waits and signals after that */
} patience_t;

static weft_status_t wait_or_fail(weft_window_t *window, int peer, uint32_t step)
{
    patience_t *p = window->ctx;
    (void)step;
    assert_in_range(peer, 0, RANKS - 1);
    p->after += p->failed;
    p->failed |= ++p->waits == p->last;
    return p->failed ? WEFT_ERR_RANK_DEAD : WEFT_OK;
}

static void count_signal(weft_window_t *window, uint32_t step)
{
    patience_t *p = window->ctx;
    (void)step;
    p->after += p->failed;
}

static char *src[RANKS], *dst[RANKS], *tmp[RANKS];

/* All ranks at the same addresses: what comes out is of no interest. */
static int open_buffers(void **state)
{
    size_t bytes = (size_t)RANKS * COUNT * sizeof(float);
    (void)state;
    src[0] = calloc(1, bytes);
    dst[0] = calloc(1, bytes);
    tmp[0] = calloc(1, WEFT_TMP_BYTES);
    assert_true(src[0] != NULL && dst[0] != NULL && tmp[0] != NULL);
    for (int p = 1; p < RANKS; p++) {
        src[p] = src[0];
        dst[p] = dst[0];
        tmp[p] = tmp[0];
    }
    return 0;
}

static int close_buffers(void **state)
{
    (void)state;
    free(src[0]);
    free(dst[0]);
    free(tmp[0]);
    return 0;
}

static weft_status_t carry_out(weft_algo_fn algo, weft_coll_t coll, int rank, patience_t *patience)
{
    weft_call_t call = {.coll = coll, .type = WEFT_F32, .op = WEFT_SUM, .count = COUNT};
    weft_window_t window = {.rank = rank,
                            .size = RANKS,
                            .call = &call,
                            .src = src,
                            .dst = dst,
                            .tmp = tmp,
                            .kernels = weft__kernels(),
                            .store = WEFT_STORE_CACHED,
                            .chunk = CHUNK,
                            .ctx = patience,
                            .signal = count_signal,
                            .wait = wait_or_fail};
    call.src = src[0];
    call.dst = dst[0];
    return algo(&window);
}

/* Every rank, and every wait in turn. */
static void each_wait_fails(weft_algo_fn algo, weft_coll_t coll)
{
    for (int rank = 0; rank < RANKS; rank++) {
        patience_t all = {0};
        assert_int_equal(carry_out(algo, coll, rank, &all), WEFT_OK);
        for (int last = 1; last <= all.waits; last++) {
            patience_t some = {.last = last};
            assert_int_equal(carry_out(algo, coll, rank, &some), WEFT_ERR_RANK_DEAD);
            assert_int_equal(some.waits, last);
            assert_int_equal(some.after, 0);
        }
    }
}

static void rings_end(void **state)
{
    (void)state;
    each_wait_fails(weft__ring, WEFT_COLL_ALLREDUCE);
    each_wait_fails(weft__ring, WEFT_COLL_REDUCE_SCATTER);
    each_wait_fails(weft__ring, WEFT_COLL_ALLGATHER);
    each_wait_fails(weft__ring, WEFT_COLL_BROADCAST);
}

static void trees_end(void **state)
{
    (void)state;
    each_wait_fails(weft__tree, WEFT_COLL_ALLREDUCE);
    each_wait_fails(weft__tree, WEFT_COLL_REDUCE);
    each_wait_fails(weft__tree, WEFT_COLL_BROADCAST);
}

static void doublings_end(void **state)
{
    (void)state;
    each_wait_fails(weft__doubling, WEFT_COLL_ALLREDUCE);
    each_wait_fails(weft__doubling, WEFT_COLL_ALLGATHER);
}

static void direct_ones_end(void **state)
{
    static const weft_coll_t colls[] = {
        WEFT_COLL_ALLREDUCE, WEFT_COLL_REDUCE, WEFT_COLL_BROADCAST, WEFT_COLL_REDUCE_SCATTER,
        WEFT_COLL_ALLGATHER, WEFT_COLL_GATHER, WEFT_COLL_SCATTER,   WEFT_COLL_ALLTOALL};
    (void)state;
    for (size_t i = 0; i < sizeof(colls) / sizeof(colls[0]); i++) {
        each_wait_fails(weft__direct, colls[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_end),
        cmocka_unit_test(trees_end),
        cmocka_unit_test(doublings_end),
        cmocka_unit_test(direct_ones_end),
    };
    return cmocka_run_group_tests(tests, open_buffers, close_buffers);
}
