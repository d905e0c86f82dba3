/* ctest: timeout=120 */
/* Making, splitting and destroying communicators. */
#include <setjmp.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/harness.h"

#include <cmocka.h>

/* The sum of the ranks of the parent over this communicator, as a check that it works. */
static int sum_over(weft_comm_h comm, int value)
{
    int32_t in = value, out = -1;
    CHECK_OK(weft_allreduce(&in, &out, 1, WEFT_I32, WEFT_SUM, comm, NULL));
    return out;
}

static void check_place(weft_comm_h comm, int rank, int size)
{
    int value;
    CHECK_OK(weft_comm_rank(comm, &value));
    CHECK_EQ(value, rank);
    CHECK_OK(weft_comm_size(comm, &value));
    CHECK_EQ(value, size);
}

/* ---- split ------------------------------------------------------------------------------- */

/* 1, 2, 3 ... colours at once, all children used at the same time as each other and the parent. */
static void many_colours(team_t *team)
{
    for (int colours = 1; colours <= team->size; colours++) {
        int color = team->rank % colours, rank = team->rank / colours, sum = 0, size = 0;
        weft_comm_h child;
        team_note("split in %d colours", colours);
        for (int p = color; p < team->size; p += colours) {
            sum += p;
            size++;
        }
        CHECK_OK(weft_comm_split(team->comm, color, team->rank, &child, NULL));
        check_place(child, rank, size);
        for (int i = 0; i < 20; i++) {
            CHECK_EQ(sum_over(child, team->rank), sum);
        }
        CHECK_EQ(sum_over(team->comm, 1), team->size);
        CHECK_EQ(sum_over(child, 1), size);
        CHECK_OK(weft_comm_destroy(child));
    }
}

static void negative_colour(team_t *team)
{
    weft_comm_h child = (weft_comm_h)(uintptr_t)1;
    bool joins = team->rank % 2 == 0;
    CHECK_OK(weft_comm_split(team->comm, joins ? 7 : -1 - team->rank, 0, &child, NULL));
    if (joins) {
        check_place(child, team->rank / 2, (team->size + 1) / 2);
        CHECK_EQ(sum_over(child, 1), (team->size + 1) / 2);
        CHECK_OK(weft_comm_destroy(child));
    } else {
        CHECK(child == NULL);
    }
    CHECK_OK(weft_comm_split(team->comm, -5, 0, &child, NULL)); /* nobody joins */
    CHECK(child == NULL);
    CHECK_EQ(sum_over(team->comm, 1), team->size);
}

/* Ordered by key, then by rank; keys may be anything. */
static void keys_order_ranks(team_t *team)
{
    int last = team->size - 1;
    weft_comm_h child;
    CHECK_OK(weft_comm_split(team->comm, 0, -1000000 * team->rank, &child, NULL));
    check_place(child, last - team->rank, team->size);
    int32_t at_root = team->rank;
    CHECK_OK(weft_broadcast(&at_root, &at_root, 1, WEFT_I32, 0, child, NULL));
    CHECK_EQ(at_root, last);
    CHECK_OK(weft_comm_destroy(child));
    CHECK_OK(weft_comm_split(team->comm, 0, 42, &child, NULL));
    check_place(child, team->rank, team->size);
    CHECK_OK(weft_comm_destroy(child));
    int key = team->rank == last ? INT32_MIN : INT32_MAX; /* the last one comes first */
    CHECK_OK(weft_comm_split(team->comm, INT32_MAX, key, &child, NULL));
    check_place(child, team->rank == last ? 0 : team->rank + 1, team->size);
    CHECK_OK(weft_comm_destroy(child));
}

/* Halves of halves; a child outlives its parent. */
static void split_of_split(team_t *team)
{
    weft_comm_h comm, child;
    int rank = team->rank, size = team->size;
    CHECK_OK(weft_comm_split(team->comm, 0, 0, &comm, NULL));
    while (size > 1) {
        int half = size / 2, color = rank >= half;
        CHECK_OK(weft_comm_split(comm, color, rank, &child, NULL));
        CHECK_OK(weft_comm_destroy(comm));
        comm = child;
        rank -= color ? half : 0;
        size = color ? size - half : half;
        check_place(comm, rank, size);
        CHECK_EQ(sum_over(comm, 1), size);
    }
    CHECK_OK(weft_comm_destroy(comm));
}

/* The configuration of a child is its own. */
static void split_config(team_t *team)
{
    weft_comm_config_t config = team_config();
    weft_comm_h child = NULL;
    config.algo = "allreduce:ring,broadcast:tree";
    CHECK_OK(weft_comm_split(team->comm, 0, 0, &child, &config));
    CHECK_EQ(sum_over(child, 1), team->size);
    CHECK_OK(weft_comm_destroy(child));
    child = NULL;
    config.algo = "allreduce:rings";
    CHECK_STATUS(weft_comm_split(team->comm, 0, 0, &child, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "rings");
    CHECK_STATUS(weft_comm_split(team->comm, 0, 0, NULL, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_split(NULL, 0, 0, &child, NULL), WEFT_ERR_INVALID);
    CHECK(child == NULL);
    CHECK_EQ(sum_over(team->comm, 1), team->size); /* nothing has changed */
}

/* ---- nothing grows ------------------------------------------------------------------------- */

static long resident_bytes(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file);
    CHECK_EQ(fscanf(file, "%ld %ld", &pages, &resident), 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

static void make_and_destroy(team_t *team, int i)
{
    weft_comm_h comm;
    weft_unique_id_t id;
    team_note("communicator %d", i);
    if (i % 2) {
        CHECK_OK(weft_comm_split(team->comm, i % 3 == 0 ? team->rank : 0, 0, &comm, NULL));
    } else {
        if (team->rank == 0) {
            CHECK_OK(weft_unique_id_create(&id));
        }
        CHECK_OK(weft_broadcast(&id, &id, sizeof(id), WEFT_U8, 0, team->comm, NULL));
        CHECK_OK(weft_comm_init_rank(&comm, team->size, id, team->rank, NULL));
    }
    float *x = malloc(100000 * sizeof(float)); /* staged: takes device memory */
    CHECK(x);
    memset(x, 0, 100000 * sizeof(float));
    CHECK_OK(weft_allreduce(x, x, 100000, WEFT_F32, WEFT_SUM, comm, NULL));
    sum_over(comm, 1);
    free(x);
    CHECK_OK(weft_comm_destroy(comm));
}

static void nothing_grows(team_t *team)
{
    for (int i = 0; i < 80; i++) { /* handles in stock, pools and caches fill up first */
        make_and_destroy(team, i);
    }
    team_meet(team);
    team_sleep(0.2); /* the store notices a little later that its clients are gone */
    int files = team_open_files(), leftovers = team_leftovers();
    long resident = resident_bytes();
    team_meet(team);
    for (int i = 0; i < 200; i++) {
        make_and_destroy(team, i);
    }
    team_meet(team);
    team_sleep(0.2);
    CHECK_EQ(team_open_files(), files);
    CHECK_EQ(team_leftovers(), leftovers);
    if (!UNDER_SANITIZER) { /* which keep what was freed */
        long grown = resident_bytes() - resident;
        if (grown > 1 << 20) {
            FAIL("200 communicators left %ld bytes", grown);
        }
    }
    team_meet(team);
}

static void init_all_does_not_grow(team_t *team)
{
    (void)team;
    weft_comm_h comms[8];
    int files = 0;
    long resident = 0;
    for (int i = 0; i < 280; i++) {
        if (i == 80) {
            files = team_open_files();
            resident = resident_bytes();
        }
        CHECK_OK(weft_comm_init_all(comms, 8, NULL));
        CHECK_OK(weft_group_start());
        for (int r = 0; r < 8; r++) {
            CHECK_OK(weft_barrier(comms[r], NULL));
        }
        CHECK_OK(weft_group_end());
        for (int r = 0; r < 8; r++) {
            CHECK_OK(weft_comm_destroy(comms[r]));
        }
    }
    CHECK_EQ(team_open_files(), files);
    if (!UNDER_SANITIZER && resident_bytes() - resident > 1 << 20) {
        FAIL("200 communicators left %ld bytes", resident_bytes() - resident);
    }
}

/* What Weft itself takes, before the user allocates. */
static void memory_of_a_rank(team_t *team)
{
    CHECK_EQ(sum_over(team->comm, 1), team->size);
    if (!UNDER_SANITIZER && resident_bytes() > 32 << 20) {
        FAIL("a rank of %d takes %ld bytes", team->size, resident_bytes());
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void destroyed_is_refused(team_t *team)
{
    weft_comm_h child, none = NULL;
    const char *text = NULL;
    float x = 0;
    size_t zero[TEAM_MOST] = {0};
    int value;
    CHECK_OK(weft_comm_split(team->comm, 0, 0, &child, NULL));
    CHECK_OK(weft_comm_destroy(child));
    CHECK_STATUS(weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, child, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "weft_allreduce");
    CHECK_TEXT(weft_last_error(), "destroyed");
    CHECK_STATUS(weft_barrier(child, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_send(&x, 1, WEFT_F32, 0, child, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_alltoallv(NULL, zero, zero, NULL, zero, zero, WEFT_F32, child, NULL),
                 WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_split(child, 0, 0, &none, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_rank(child, &value), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_size(child, &value), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_device(child, &value), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_error(child, &text), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_abort(child), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_destroy(child), WEFT_ERR_INVALID);
    CHECK_OK(weft_comm_destroy(NULL));
    CHECK_STATUS(weft_comm_abort(NULL), WEFT_ERR_INVALID);
    CHECK_EQ(sum_over(team->comm, 1), team->size);
}

static void wrong_arguments_to_join(team_t *team)
{
    weft_comm_h comm = NULL;
    weft_unique_id_t garbage = {"not an id"};
    weft_comm_config_t config = WEFT_COMM_CONFIG_INIT;
    int devices[2] = {0, -1};
    CHECK_STATUS(weft_unique_id_create(NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_init_rank(NULL, 1, team->id, 0, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_init_rank(&comm, 0, team->id, 0, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_init_rank(&comm, 100000, team->id, 0, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_init_rank(&comm, 2, team->id, 2, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_init_rank(&comm, 2, team->id, -1, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_init_rank(&comm, 1, garbage, 0, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "weft_unique_id_create");
    config.size = 0;
    CHECK_STATUS(weft_comm_init_rank(&comm, 1, team->id, 0, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "WEFT_COMM_CONFIG_INIT");
    config.size = sizeof(config);
    config.timeout_ms = -7;
    CHECK_STATUS(weft_comm_init_rank(&comm, 1, team->id, 0, &config), WEFT_ERR_INVALID);
    config.timeout_ms = 1000;
    config.algo = "carrier_pigeon";
    CHECK_STATUS(weft_comm_init_rank(&comm, 1, team->id, 0, &config), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "carrier_pigeon");
    CHECK_STATUS(weft_comm_init_all(NULL, 1, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_init_all(&comm, 0, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_init_all(&comm, 100000, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_init_all(&comm, 2, devices), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_init_job(NULL, NULL), WEFT_ERR_INVALID);
    CHECK(comm == NULL);
    config.algo = NULL;
    CHECK_OK(weft_comm_init_rank(&comm, 1, team->id, 0, &config));
    CHECK_STATUS(weft_comm_rank(comm, NULL), WEFT_ERR_INVALID);
    CHECK_EQ(sum_over(comm, 5), 5);
    CHECK_OK(weft_comm_destroy(comm));
}

/* The third joins as a rank that is there already. */
static void duplicate_rank(team_t *team)
{
    weft_comm_h comm = NULL;
    weft_comm_config_t config = team_config();
    if (team->rank == 2) {
        team_meet(team);
        CHECK_STATUS(weft_comm_init_rank(&comm, 2, team->id, 1, &config), WEFT_ERR_INVALID);
        CHECK_TEXT(weft_last_error(), "rank 1");
        CHECK(comm == NULL);
        team_meet(team);
        return;
    }
    if (team->rank == 1 && team->procs == 1) {
        team_sleep(0.05); /* rank 0 waits for us meanwhile */
    }
    CHECK_OK(weft_comm_init_rank(&comm, 2, team->id, team->rank, &config));
    team_meet(team);
    CHECK_EQ(sum_over(comm, 1), 2); /* the two do not mind */
    team_meet(team);
    CHECK_EQ(sum_over(comm, 1), 2);
    CHECK_OK(weft_comm_destroy(comm));
}

/* Rank 1 believes in three ranks, rank 0 in two: both are told, at once. */
static void sizes_differ(team_t *team)
{
    weft_comm_h comm = NULL;
    weft_comm_config_t config = team_config();
    double start = team_now();
    CHECK_STATUS(weft_comm_init_rank(&comm, 2 + team->rank, team->id, team->rank, &config),
                 WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "2");
    CHECK_TEXT(weft_last_error(), "3");
    CHECK_WITHIN(team_now() - start, 2.0);
    CHECK(comm == NULL);
}

/* Settings that must be the same on all ranks. */
static void settings_differ(team_t *team)
{
    weft_comm_h comm = NULL;
    weft_comm_config_t config = team_config();
    if (team->rank == 1) {
        setenv("WEFT_CHUNK", "64K", 1);
    }
    CHECK_STATUS(weft_comm_init_rank(&comm, 3, team->id, team->rank, &config), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "WEFT_CHUNK");
    CHECK_TEXT(weft_last_error(), "65536");
    CHECK(comm == NULL);
}

/* A child of a fork has no part in its parent's communicator, and does it no harm. */
static void handle_after_fork(team_t *team)
{
    CHECK_EQ(sum_over(team->comm, 1), team->size);
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_STATUS(weft_barrier(team->comm, NULL), WEFT_ERR_UNSUPPORTED);
        CHECK_TEXT(weft_last_error(), "forked");
        CHECK_STATUS(weft_comm_destroy(team->comm), WEFT_ERR_UNSUPPORTED);
        _exit(0);
    }
    int status = -1;
    CHECK(pid > 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK_EQ(sum_over(team->comm, 1), team->size);
}

static void late_to_join(team_t *team)
{
    weft_comm_h comm = NULL;
    weft_comm_config_t config = team_config();
    double start = team_now();
    config.timeout_ms = 1000;
    if (team->rank == 2) {
        team_meet(team);
        return;
    }
    CHECK_STATUS(weft_comm_init_rank(&comm, 3, team->id, team->rank, &config), WEFT_ERR_TIMEOUT);
    CHECK_TEXT(weft_last_error(), "rank 2");
    CHECK(team_now() - start > 0.9);
    CHECK_WITHIN(team_now() - start, 2.0);
    CHECK(comm == NULL);
    team_meet(team);
}

static void first_is_late_to_join(team_t *team)
{
    weft_comm_h comm = NULL;
    weft_comm_config_t config = team_config();
    config.timeout_ms = 1000;
    if (team->rank > 0) {
        CHECK_STATUS(weft_comm_init_rank(&comm, 3, team->id, team->rank, &config),
                     WEFT_ERR_TIMEOUT);
        CHECK_TEXT(weft_last_error(), "rank 0");
    }
    team_meet(team);
}

/* ---- other ways to make one -------------------------------------------------------------------- */

static void job_of_one(team_t *team)
{
    int rank = -1, size = -1, local_rank = -1, local_size = -1;
    weft_comm_h a, b;
    (void)team;
    CHECK_OK(weft_job_info(&rank, &size, &local_rank, &local_size));
    CHECK_OK(weft_job_info(NULL, NULL, NULL, NULL));
    CHECK(rank == 0 && size == 1 && local_rank == 0 && local_size == 1);
    CHECK_OK(weft_comm_init_job(&a, NULL));
    CHECK_OK(weft_comm_init_job(&b, NULL));
    check_place(a, 0, 1);
    CHECK_EQ(sum_over(a, 3), 3);
    CHECK_EQ(sum_over(b, 4), 4);
    CHECK_OK(weft_comm_destroy(a));
    CHECK_OK(weft_comm_destroy(b));
}

/* Devices are the caller's, or those asked for, also one for several ranks. */
static void devices_of_ranks(team_t *team)
{
    static const int devices[4] = {3, 1, 1, 0};
    weft_comm_h comms[4];
    int device;
    (void)team;
    CHECK_OK(weft_comm_init_all(comms, 4, devices));
    for (int i = 0; i < 4; i++) {
        CHECK_OK(weft_comm_device(comms[i], &device));
        CHECK_EQ(device, devices[i]);
        CHECK_OK(weft_comm_destroy(comms[i]));
    }
    CHECK_OK(weft_device_set(5));
    CHECK_OK(weft_comm_init_rank(&comms[0], 1, team->id, 0, NULL));
    CHECK_OK(weft_comm_device(comms[0], &device));
    CHECK_EQ(device, 5);
    CHECK_OK(weft_comm_destroy(comms[0]));
}

/* One of a process's threads leaves; the others stay in another communicator and go on. */
static void leaving_is_not_collective(team_t *team)
{
    weft_comm_h child;
    CHECK_OK(weft_comm_split(team->comm, 0, 0, &child, NULL));
    CHECK_EQ(sum_over(child, 1), team->size);
    if (team->rank == 0) {
        CHECK_OK(weft_comm_destroy(child)); /* at once, while others may still read the last call */
        CHECK_EQ(sum_over(team->comm, 1), team->size);
    } else {
        CHECK_EQ(sum_over(team->comm, 1), team->size);
        CHECK_OK(weft_comm_destroy(child));
    }
}

/* ---- the tests --------------------------------------------------------------------------------- */

static void run_teams(team_fn fn)
{
    assert_true(team_run(&(team_plan_t){.ranks = 8}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 3}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 2}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 6, .procs = 1}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 1}, fn));
}

#define TEAM_TEST(name, fn)                                                                        \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run_teams(fn);                                                                             \
    }

#define PLAN_TEST(name, fn, ...)                                                                   \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){__VA_ARGS__}, fn));                                    \
    }

TEAM_TEST(split_in_many_colours_at_once, many_colours)
TEAM_TEST(split_with_negative_colour, negative_colour)
TEAM_TEST(split_orders_by_key, keys_order_ranks)
TEAM_TEST(split_a_split_comm, split_of_split)
TEAM_TEST(split_has_its_own_configuration, split_config)
TEAM_TEST(destroyed_comm_is_refused, destroyed_is_refused)
TEAM_TEST(destroy_is_not_collective, leaving_is_not_collective)
PLAN_TEST(two_hundred_comms_of_processes, nothing_grows, .ranks = 4, .limit_s = 60)
PLAN_TEST(two_hundred_comms_of_init_all, init_all_does_not_grow, .ranks = 1, .bare = true)
PLAN_TEST(eight_ranks_take_little_memory, memory_of_a_rank, .ranks = 8)
PLAN_TEST(wrong_arguments_are_refused, wrong_arguments_to_join, .ranks = 1, .bare = true)
PLAN_TEST(duplicate_rank_is_refused, duplicate_rank, .ranks = 3, .bare = true)
PLAN_TEST(duplicate_rank_of_threads_is_refused, duplicate_rank, .ranks = 3, .procs = 1,
          .bare = true)
PLAN_TEST(sizes_must_agree, sizes_differ, .ranks = 2, .bare = true)
PLAN_TEST(settings_must_agree, settings_differ, .ranks = 3, .bare = true)
PLAN_TEST(handle_of_the_parent_is_refused, handle_after_fork, .ranks = 2)
PLAN_TEST(missing_rank_is_named, late_to_join, .ranks = 3, .bare = true)
PLAN_TEST(missing_first_rank_is_named, first_is_late_to_join, .ranks = 3, .bare = true)
PLAN_TEST(job_of_one_process, job_of_one, .ranks = 1, .bare = true)
PLAN_TEST(ranks_have_their_devices, devices_of_ranks, .ranks = 1, .bare = true)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split_in_many_colours_at_once),
        cmocka_unit_test(split_with_negative_colour),
        cmocka_unit_test(split_orders_by_key),
        cmocka_unit_test(split_a_split_comm),
        cmocka_unit_test(split_has_its_own_configuration),
        cmocka_unit_test(destroyed_comm_is_refused),
        cmocka_unit_test(destroy_is_not_collective),
        cmocka_unit_test(two_hundred_comms_of_processes),
        cmocka_unit_test(two_hundred_comms_of_init_all),
        cmocka_unit_test(eight_ranks_take_little_memory),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(duplicate_rank_is_refused),
        cmocka_unit_test(duplicate_rank_of_threads_is_refused),
        cmocka_unit_test(sizes_must_agree),
        cmocka_unit_test(settings_must_agree),
        cmocka_unit_test(handle_of_the_parent_is_refused),
        cmocka_unit_test(missing_rank_is_named),
        cmocka_unit_test(missing_first_rank_is_named),
        cmocka_unit_test(job_of_one_process),
        cmocka_unit_test(ranks_have_their_devices),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
