/* Every fault that the watch knows, as a table: from reports through judge and writer to the
 * sentence. All backends have these. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "comm/watch.h"

static uint64_t sig_of(weft_coll_t coll, weft_algo_t algo, int root)
{
    const weft_call_t call = {.coll = coll, .type = WEFT_F32, .op = WEFT_SUM, .root = root};
    return weft__sig_pack(&call, algo);
}

#define SUM sig_of(WEFT_COLL_ALLREDUCE, WEFT_ALGO_AUTO, 0)
#define SEND sig_of(WEFT_COLL_SEND, WEFT_ALGO_AUTO, 1)
#define RAGGED sig_of(WEFT_COLL_ALLTOALLV, WEFT_ALGO_AUTO, 0)

/* Rank 0 of 3, in its call 7. */
static weft_waiting_t in_call(void)
{
    return (weft_waiting_t){
        .peer = 2, .timeout_ms = 5000, .first = 7, .last = 7, .sig = SUM, .count = 8};
}

static weft_waiting_t in_send(void)
{
    return (weft_waiting_t){.peer = 1, .timeout_ms = 5000, .sig = SEND, .count = 3};
}

static weft_waiting_t joining(void)
{
    return (weft_waiting_t){.peer = 2, .timeout_ms = 300, .joining = true};
}

static weft_waiting_t doing(void)
{
    return (weft_waiting_t){.timeout_ms = 5000, .doing = "waiting for a record"};
}

static weft_waiting_t of_shmem(void)
{
    return (weft_waiting_t){.peer = 2, .timeout_ms = 5000, .in = "shmem_barrier_all", .pe = true};
}

typedef struct row {
    weft_waiting_t waiting;
    weft_seen_t seen; /* of rank 2 */
    weft_status_t status;
    const char *text;
} row_t;

/* Rank 1 has come, and nothing is wanted of it. */
static void judge(const row_t *row, const weft_seen_t *seen_of_2, weft_fault_t *fault_p)
{
    weft_seen_t seen[3] = {{.rank = 0}, {.rank = 1, .state = WEFT_SEEN_JOINED, .calls = 8}};
    seen[2] = *seen_of_2;
    seen[2].rank = 2;
    assert_true(weft__watch(&row->waiting, seen, 3, fault_p));
    assert_string_equal(fault_p->text, row->text);
    assert_int_equal(fault_p->status, row->status);
}

static void ranks_that_died(void **state)
{
    const row_t rows[] = {
        {in_call(),
         {.pid = 4711},
         WEFT_ERR_RANK_DEAD,
         "rank 2 (process 4711) died; rank 0 noticed in call 7, allreduce of 8 f32, sum"},
        {in_send(),
         {.pid = 4711},
         WEFT_ERR_RANK_DEAD,
         "rank 2 (process 4711) died; rank 0 noticed in send of 3 f32 to 1"},
        {joining(),
         {.pid = 4711},
         WEFT_ERR_RANK_DEAD,
         "rank 2 (process 4711) died; rank 0 noticed while joining"},
        {doing(),
         {.pid = 4711},
         WEFT_ERR_RANK_DEAD,
         "rank 2 (process 4711) died; rank 0 noticed while waiting for a record"},
        {in_call(),
         {.pid = 4711, .host = "node7"},
         WEFT_ERR_RANK_DEAD,
         "rank 2 (process 4711 on node7) died; rank 0 noticed in call 7, allreduce of 8 f32, sum"},
        {in_call(),
         {.served_store = true},
         WEFT_ERR_RANK_DEAD,
         "rank 2, which served the store, died; rank 0 noticed in call 7, allreduce of 8 f32, sum"},
        {of_shmem(),
         {.pid = 4711, .exit_status = 3},
         WEFT_ERR_RANK_DEAD,
         "PE 2 (process 4711) exited with status 3 before shmem_finalize; PE 0 noticed in "
         "shmem_barrier_all"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        weft_seen_t seen = rows[i].seen;
        weft_fault_t fault;
        seen.state = WEFT_SEEN_ENDED;
        seen.owes = WEFT_OWES_ALL;
        judge(&rows[i], &seen, &fault);
        assert_int_equal(fault.culprit, 2);
    }
}

static void ranks_that_left(void **state)
{
    const row_t rows[] = {
        {in_call(),
         {0},
         WEFT_ERR_RANK_LEFT,
         "rank 2 destroyed its handle while rank 0 waits for it in call 7, allreduce of 8 f32, "
         "sum"},
        {doing(),
         {0},
         WEFT_ERR_RANK_LEFT,
         "rank 2 destroyed its handle while rank 0 is waiting for a record"},
        {of_shmem(),
         {.pid = 4711},
         WEFT_ERR_RANK_LEFT,
         "PE 2 (process 4711) has called shmem_finalize or exited while PE 0 waits for it in "
         "shmem_barrier_all"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        weft_seen_t seen = rows[i].seen;
        weft_fault_t fault;
        seen.state = WEFT_SEEN_LEFT;
        seen.owes = WEFT_OWES_ALL;
        judge(&rows[i], &seen, &fault);
        assert_int_equal(fault.culprit, 2);
    }
}

static void ranks_that_are_late(void **state)
{
    weft_waiting_t several = in_call(), nobody = in_call(), anybody = of_shmem();
    weft_waiting_t unconnected = joining();
    several.last = 9;
    nobody.peer = anybody.peer = unconnected.peer = -1;
    unconnected.advice = "set NCCL_DEBUG=INFO";
    const row_t rows[] = {
        {in_call(),
         {.state = WEFT_SEEN_JOINED, .calls = 6, .sig = SUM, .count = 1},
         WEFT_ERR_TIMEOUT,
         "timed out after 5.0 s in call 7, allreduce of 8 f32, sum: not arrived: rank 2 (last seen "
         "in call 6, allreduce of 1 f32, sum); arrived: 0 1"},
        {in_call(),
         {.state = WEFT_SEEN_JOINED},
         WEFT_ERR_TIMEOUT,
         "timed out after 5.0 s in call 7, allreduce of 8 f32, sum: not arrived: rank 2 (made no "
         "call yet); arrived: 0 1"},
        {in_call(),
         {.state = WEFT_SEEN_UNKNOWN},
         WEFT_ERR_TIMEOUT,
         "timed out after 5.0 s in call 7, allreduce of 8 f32, sum: not arrived: rank 2 (it has "
         "not said where it is); arrived: 0 1"},
        {several,
         {.state = WEFT_SEEN_JOINED},
         WEFT_ERR_TIMEOUT,
         "timed out after 5.0 s in calls 7 to 9, from allreduce of 8 f32, sum on: not arrived: "
         "rank 2 (made no call yet); arrived: 0 1"},
        {in_call(),
         {.state = WEFT_SEEN_JOINED, .calls = 7},
         WEFT_ERR_TIMEOUT,
         "timed out after 5.0 s in call 7, allreduce of 8 f32, sum: all ranks arrived, but rank 2 "
         "does not go on"},
        {nobody,
         {.state = WEFT_SEEN_JOINED, .calls = 7},
         WEFT_ERR_TIMEOUT,
         "timed out after 5.0 s in call 7, allreduce of 8 f32, sum: all ranks arrived, but rank 0 "
         "does not finish"},
        {in_send(),
         {0},
         WEFT_ERR_TIMEOUT,
         "timed out after 5.0 s on rank 0 in send of 3 f32 to 1: rank 1 has not made the matching "
         "call"},
        {joining(),
         {.state = WEFT_SEEN_UNKNOWN},
         WEFT_ERR_TIMEOUT,
         "rank 2 did not join the communicator within 0.3 s"},
        {joining(),
         {.state = WEFT_SEEN_JOINED},
         WEFT_ERR_TIMEOUT, /* it came just then */
         "rank 2 did not join the communicator within 0.3 s"},
        {doing(), {0}, WEFT_ERR_TIMEOUT, "timed out after 5.0 s on rank 0, waiting for a record"},
        {unconnected,
         {.state = WEFT_SEEN_JOINED},
         WEFT_ERR_TIMEOUT,
         "timed out after 0.3 s in joining: all ranks arrived, but rank 0 does not finish; set "
         "NCCL_DEBUG=INFO"},
        {of_shmem(),
         {.state = WEFT_SEEN_JOINED, .pid = 4711},
         WEFT_ERR_TIMEOUT,
         "timed out after 5.0 s on PE 0 in shmem_barrier_all for PE 2 (process 4711)"},
        {of_shmem(),
         {.state = WEFT_SEEN_JOINED, .pid = 4711, .stopped = true},
         WEFT_ERR_TIMEOUT,
         "timed out after 5.0 s on PE 0 in shmem_barrier_all for PE 2 (process 4711, which is "
         "stopped)"},
        {anybody,
         {.state = WEFT_SEEN_JOINED, .pid = 4711, .stopped = true},
         WEFT_ERR_TIMEOUT,
         "timed out after 5.0 s on PE 0 in shmem_barrier_all; PE 2 (process 4711) is stopped"},
        {anybody,
         {.state = WEFT_SEEN_JOINED, .pid = 4711},
         WEFT_ERR_TIMEOUT,
         "timed out after 5.0 s on PE 0 in shmem_barrier_all"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        row_t row = rows[i];
        weft_fault_t fault;
        row.waiting.waited_ns = (uint64_t)row.waiting.timeout_ms * 1000000u;
        judge(&row, &row.seen, &fault);
        row.waiting.waited_ns--;
        assert_false(weft__watch(&row.waiting, &row.seen, 1, &fault));
    }
}

static void several_who_do_not_join(void **state)
{
    const weft_seen_t seen[3] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    weft_fault_t fault;
    (void)state;
    weft__watch_absent(0, false, seen, 3, 300, NULL, &fault);
    assert_string_equal(fault.text, "rank 1, rank 2 did not join the communicator within 0.3 s");
    assert_int_equal(fault.culprit, 1);
    weft__watch_absent(0, true, &seen[2], 1, 300, NULL, &fault);
    assert_string_equal(fault.text, "PE 2 did not call shmem_init within 0.3 s");
}

static void ranks_in_another_call(void **state)
{
    weft_waiting_t ring = in_call(), group = in_call(), ragged = in_call(), receives = in_send();
    ring.sig = sig_of(WEFT_COLL_ALLREDUCE, WEFT_ALGO_RING, 0);
    group.sig |= (uint64_t)4 << 56 | (uint64_t)5 << 32;
    ragged.sig = RAGGED;
    receives.peer = 2;
    const row_t rows[] = {
        {in_call(),
         {.sig = SUM, .count = 9},
         WEFT_ERR_MISMATCH,
         "ranks made different calls: call 7 is allreduce of 8 f32, sum on rank 0, but allreduce "
         "of "
         "9 f32, sum on rank 2; all ranks must make the same calls in the same order"},
        {group,
         {.sig = group.sig ^ (uint64_t)3 << 32, .count = 8},
         WEFT_ERR_MISMATCH,
         "ranks made different calls: call 7 is group of 4 allreduces of together 8 f32, sum on "
         "rank 0, but group of 4 allreduces of together 8 f32, sum on rank 2, with other counts in "
         "it; all ranks must make the same calls in the same order"},
        {ring,
         {.sig = sig_of(WEFT_COLL_ALLREDUCE, WEFT_ALGO_TREE, 0), .count = 8},
         WEFT_ERR_MISMATCH,
         "ranks chose different algorithms for call 7, allreduce of 8 f32, sum: rank 0 ring, rank "
         "2 "
         "tree; give all ranks the same WEFT_* settings"},
        {ragged,
         {.sig = RAGGED, .count = 11},
         WEFT_ERR_MISMATCH,
         "ranks disagree in call 7, alltoallv: rank 2 sends 11 elements to rank 0, which expects "
         "8"},
        {receives,
         {.sig = SEND, .count = 4},
         WEFT_ERR_MISMATCH,
         "ranks disagree: rank 2 sends 4 f32 to rank 0, which receives 3 f32"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        weft_seen_t seen = rows[i].seen;
        weft_fault_t fault;
        seen.state = WEFT_SEEN_JOINED;
        seen.calls = 7;
        seen.differs = true;
        judge(&rows[i], &seen, &fault);
        assert_int_equal(fault.culprit, 2);
    }
}

static void nothing_is_known(void **state)
{
    weft_waiting_t waiting = in_call();
    weft_fault_t fault;
    (void)state;
    waiting.waited_ns = UINT64_MAX;
    assert_true(weft__watch(&waiting, NULL, 0, &fault));
    assert_string_equal(fault.text,
                        "timed out after 5.0 s on rank 0 in call 7, allreduce of 8 f32, "
                        "sum: nothing is known of the other ranks");
    waiting.in = "ncclCommSplit";
    assert_true(weft__watch(&waiting, NULL, 0, &fault));
    assert_string_equal(fault.text, "timed out after 5.0 s on rank 0 in ncclCommSplit: nothing is "
                                    "known of the other ranks");
}

/* Somebody who is no rank, but was needed by all. */
static void others_that_died(void **state)
{
    const weft_waiting_t waiting = {.rank = 3, .joining = true};
    const weft_seen_t seen = {.rank = -1,
                              .name = "weft run",
                              .state = WEFT_SEEN_ENDED,
                              .owes = WEFT_OWES_ALL,
                              .served_store = true};
    weft_fault_t fault;
    (void)state;
    assert_true(weft__watch(&waiting, &seen, 1, &fault));
    assert_string_equal(fault.text,
                        "weft run, which served the store, died; rank 3 noticed while joining");
}

static void ranks_that_give_something_else(void **state)
{
    weft_fault_t fault;
    (void)state;
    weft__watch_unlike(false, "WEFT_CHUNK is", 0, "64", 2, "128", &fault);
    assert_string_equal(fault.text, "ranks disagree: WEFT_CHUNK is 64 on rank 0, but 128 on rank "
                                    "2; give all ranks the same");
    assert_int_equal(fault.status, WEFT_ERR_MISMATCH);
    assert_int_equal(fault.culprit, 2);
}

/* A sentence that does not fit is cut, and nothing else. */
static void many_ranks(void **state)
{
    static weft_seen_t seen[1000];
    weft_waiting_t waiting = in_call();
    weft_fault_t fault;
    (void)state;
    for (int p = 0; p < 1000; p++) {
        seen[p] = (weft_seen_t){.rank = p, .state = WEFT_SEEN_JOINED};
    }
    waiting.waited_ns = UINT64_MAX;
    assert_true(weft__watch(&waiting, seen, 1000, &fault));
    assert_true(strlen(fault.text) < sizeof(fault.text));
    assert_non_null(strstr(fault.text, "not arrived: rank 1 (made no call yet), rank 2 (made"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_died),
        cmocka_unit_test(ranks_that_left),
        cmocka_unit_test(ranks_that_are_late),
        cmocka_unit_test(several_who_do_not_join),
        cmocka_unit_test(ranks_in_another_call),
        cmocka_unit_test(many_ranks),
        cmocka_unit_test(nothing_is_known),
        cmocka_unit_test(others_that_died),
        cmocka_unit_test(ranks_that_give_something_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
