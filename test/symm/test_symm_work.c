/* ctest: timeout=120 tsan */
/* Stealing: every task is done exactly once, and all ranks learn when there is none left. */
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "symm/symm_cases.h"

#include <cmocka.h>

/* A task: a number, and a check of it, so that a torn copy shows. */
typedef struct task {
    uint64_t number, again, more;
} task_t;

static task_t make_task(uint64_t number, uint64_t depth)
{
    return (task_t){number, number * 31 + depth, depth};
}

/* Count the task in the word that stands for it on rank 0. */
static void do_task(weft_symm_h symm, const task_t *task, uint64_t *done, uint64_t most)
{
    CHECK_EQ(task->again, task->number * 31 + task->more);
    CHECK(task->number < most);
    CHECK_OK(weft_symm_atomic_add(symm, done + task->number, 1, 0, NULL));
}

/* A tree of tasks: task t makes 2t + 1 and 2t + 2. All begins on rank 0, the others live by
 * stealing. */
static void tree(team_t *team)
{
    uint64_t most = team_slow() > 1 ? 1023 : 8191, mine = 0, old;
    weft_symm_h symm = symm_open(team, 1 << 20);
    uint64_t *done = symm_take(symm, most * 8);
    weft_work_h work;
    task_t task;
    CHECK_OK(weft_work_create(symm, 60, sizeof(task), &work)); /* 64, so it is full now and then */
    for (int round = 1; round <= 2; round++) {
        if (team->rank == 0) {
            task = make_task(0, 0);
            CHECK_OK(weft_work_push(work, &task));
        }
        CHECK_OK(weft_symm_barrier(symm, NULL));
        weft_status_t status;
        while ((status = weft_work_next(work, &task)) == WEFT_OK) {
            uint64_t number = task.number, depth = task.more;
            do_task(symm, &task, done, most);
            mine++;
            for (uint64_t child = 2 * number + 1; child <= 2 * number + 2 && child < most;
                 child++) {
                task = make_task(child, depth + 1);
                CHECK_OK(weft_work_push(work, &task));
            }
        }
        CHECK_EQ(status, WEFT_ERR_NOT_FOUND);
        CHECK_OK(weft_symm_barrier(symm, NULL));
        for (uint64_t i = (uint64_t)team->rank; i < most; i += (uint64_t)team->size) {
            CHECK_OK(weft_symm_atomic_fetch(symm, done + i, &old, 0, NULL));
            CHECK_EQ(old, round);
        }
        CHECK_OK(weft_symm_barrier(symm, NULL));
    }
    CHECK_OK(weft_allreduce(&mine, &mine, 1, WEFT_U64, WEFT_SUM, team->comm, NULL));
    CHECK_EQ(mine, 2 * most);
    CHECK_OK(weft_work_destroy(work));
    CHECK_OK(weft_symm_destroy(symm));
}

/* The race for the last task: the owner pushes and pops one at a time, all others steal. */
static void last_task(team_t *team)
{
    uint64_t most = team_slow() > 1 ? 500 : 5000, old, over = 0;
    weft_symm_h symm = symm_open(team, 1 << 20);
    uint64_t *done = symm_take(symm, most * 8), *end = symm_take(symm, 8);
    weft_work_h work;
    task_t task;
    CHECK_OK(weft_work_create(symm, 2, sizeof(task), &work));
    for (uint64_t i = 0; i < most && team->rank == 0; i++) {
        task = make_task(i, 7);
        while (weft_work_push(work, &task) == WEFT_PENDING) {
            sched_yield();
        }
        if (i % 3 != 0 && weft_work_pop(work, &task) == WEFT_OK) {
            do_task(symm, &task, done, most);
        }
    }
    while (team->rank == 0 && weft_work_pop(work, &task) == WEFT_OK) {
        do_task(symm, &task, done, most);
    }
    if (team->rank == 0) {
        CHECK_OK(weft_symm_atomic_set(symm, end, 1, 0, NULL));
    }
    while (team->rank != 0 && !over) {
        CHECK_OK(weft_symm_atomic_fetch(symm, end, &over, 0, NULL));
        if (weft_work_steal(work, 0, &task) == WEFT_OK) {
            do_task(symm, &task, done, most);
        } else {
            sched_yield(); /* the owner may need this core */
        }
    }
    CHECK_OK(weft_symm_barrier(symm, NULL));
    for (uint64_t i = (uint64_t)team->rank; i < most; i += (uint64_t)team->size) {
        CHECK_OK(weft_symm_atomic_fetch(symm, done + i, &old, 0, NULL));
        CHECK_EQ(old, 1);
    }
    CHECK_STATUS(weft_work_steal(work, team->size, &task), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_work_pop(work, &task), WEFT_PENDING);
    CHECK_OK(weft_symm_barrier(symm, NULL));
    CHECK_OK(weft_work_destroy(work));
    CHECK_OK(weft_symm_destroy(symm));
}

/* Rank 1 has all tasks and dies while it works on one. The others do the rest, are told once that
 * it died, and end; at most its own task is missing. */
static void owner_dies(team_t *team)
{
    enum { MOST = 600 };
    weft_symm_h symm = symm_open(team, 1 << 18);
    uint64_t *done = symm_take(symm, MOST * 8), old, missing = 0;
    weft_work_h work;
    task_t task;
    CHECK_OK(weft_work_create(symm, MOST, sizeof(task), &work));
    for (uint64_t i = 0; i < MOST && team->rank == 1; i++) {
        task = make_task(i, 1);
        CHECK_OK(weft_work_push(work, &task));
    }
    CHECK_OK(weft_symm_barrier(symm, NULL));
    double start = team_now();
    int told = 0, tasks = 0;
    weft_status_t status;
    while ((status = weft_work_next(work, &task)) != WEFT_ERR_NOT_FOUND) {
        if (status == WEFT_ERR_RANK_DEAD) {
            CHECK_TEXT(weft_last_error(), "rank 1 (process");
            told++;
            continue;
        }
        CHECK_STATUS(status, WEFT_OK);
        if (team->rank == 1 && ++tasks == 3) {
            raise(SIGKILL);
        }
        team_sleep(50e-6); /* leave it some */
        do_task(symm, &task, done, MOST);
    }
    CHECK_EQ(told, 1);
    CHECK_WITHIN(team_now() - start, SOON);
    team->shared[team->rank] = 1;
    for (int r = 0; r < team->size; r++) {
        while (r != 1 && !*(volatile char *)&team->shared[r]) {
            team_sleep(1e-3);
        }
    }
    for (uint64_t i = 0; i < MOST; i++) {
        CHECK_OK(weft_symm_atomic_fetch(symm, done + i, &old, 0, NULL));
        CHECK(old <= 1);
        missing += old == 0;
    }
    CHECK_EQ(missing, 1);
    CHECK(weft_work_destroy(work) != WEFT_OK);
    CHECK(weft_symm_destroy(symm) != WEFT_OK);
}

static const team_fn all[] = {tree, last_task, NULL};

/* Under TSan some are not run. */
#define PLAN_TEST(name, fn, ...)                                                                   \
    static __attribute__((unused)) void name(void **state)                                         \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.limit_s = 60, __VA_ARGS__}, fn));                     \
    }

PLAN_TEST(one_rank, gpu_in_a_row, .ranks = 1, .arg = (const team_fn[]){tree, NULL})
PLAN_TEST(four_threads, gpu_in_a_row, .ranks = 4, .procs = 1, .arg = all)
PLAN_TEST(two_processes, gpu_in_a_row, .ranks = 2, .arg = all)
PLAN_TEST(seven_processes, gpu_in_a_row, .ranks = 7, .arg = all)
PLAN_TEST(owner_that_dies, owner_dies, .ranks = 4, .may_die = 2)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(four_threads),
#if !UNDER_TSAN /* which sees one process at a time */
        cmocka_unit_test(two_processes),
        cmocka_unit_test(seven_processes),
        cmocka_unit_test(owner_that_dies),
#endif
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
