/* ctest: timeout=120 tsan */
/* Parameters that are swapped while others read, on virtual GPUs. */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "symm/shared_cases.h"

#include <cmocka.h>

/* Readers hold a version without copying it; the swap after next waits for them. */
static void held(team_t *team)
{
    enum { BYTES = 5000 };
    weft_symm_h symm = symm_open(team, 1 << 16);
    weft_params_h params;
    char data[BYTES];
    const char *now;
    uint64_t version;
    CHECK_STATUS(weft_params_create(NULL, BYTES, &params), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_params_create(symm, 0, &params), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_params_create(symm, BYTES, NULL), WEFT_ERR_INVALID);
    CHECK_OK(weft_params_create(symm, BYTES, &params));
    for (int i = 1; i <= 40; i++) {
        if (team->rank == 0) {
            memset(data, i, sizeof(data));
            CHECK_OK(weft_params_swap(params, data, NULL));
        }
        CHECK_OK(weft_params_acquire(params, (const void **)&now, &version));
        for (int k = 0; k < BYTES; k++) {
            CHECK_EQ(now[k], (char)version);
        }
        CHECK_OK(weft_params_release(params, version));
        CHECK_STATUS(weft_params_release(params, version), WEFT_ERR_INVALID); /* only once */
    }
    CHECK_OK(weft_symm_barrier(symm, NULL));
    CHECK_OK(weft_params_destroy(params));
    CHECK_OK(weft_symm_destroy(symm));
}

static void on_streams(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 16);
    weft_params_h params;
    weft_stream_h stream;
    uint64_t data[64], back[64] = {0}, version = 0;
    CHECK_OK(weft_params_create(symm, sizeof(data), &params));
    CHECK_OK(weft_stream_create(&stream));
    for (int i = 0; i < 64; i++) {
        data[i] = (uint64_t)team->rank + 1;
    }
    CHECK_OK(weft_params_swap(params, data, stream));
    CHECK_OK(weft_params_read(params, team->rank, 0, sizeof(data), back, &version, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK(version >= 1 && version <= (uint64_t)team->size);
    for (int i = 1; i < 64; i++) {
        CHECK_EQ(back[i], back[0]);
    }
    CHECK_OK(weft_stream_destroy(stream));
    CHECK_OK(weft_params_destroy(params));
    CHECK_OK(weft_symm_destroy(symm));
}

/* Rank 1 swaps until it is killed, wherever that is; rank 2 holds a version when it is. The others
 * read whole versions all the time, and afterwards swap themselves. */
static void dies_swapping(team_t *team)
{
    enum { BYTES = 400000 };
    weft_symm_h symm = symm_open(team, 4 << 20);
    weft_params_h params;
    char *data = malloc(BYTES);
    const char *now;
    uint64_t version;
    CHECK(data);
    CHECK_OK(weft_params_create(symm, BYTES, &params));
    CHECK_OK(weft_symm_barrier(symm, NULL));
    if (team->rank == 2) {
        CHECK_OK(weft_params_acquire(params, (const void **)&now, &version));
        team_meet(team);
        raise(SIGKILL);
    }
    team_meet(team);
    if (team->rank == 1) {
        for (int i = 1;; i++) {
            memset(data, i, BYTES);
            CHECK_OK(weft_params_swap(params, data, NULL));
            *(volatile int *)team->shared = getpid();
        }
    }
    for (int i = 0; i < 300; i++) {
        CHECK_OK(weft_params_read(params, i % team->size, 0, BYTES, data, &version, NULL));
        for (int k = 1; k < BYTES; k += 97) {
            CHECK_EQ(data[k], data[0]);
        }
        if (team->rank == 0 && i == 100) {
            while (*(volatile int *)team->shared == 0) {
                team_sleep(1e-3);
            }
            kill(*(volatile int *)team->shared, SIGKILL);
        }
    }
    for (int i = 0; i < 5; i++) {
        memset(data, 200 + team->rank, BYTES);
        CHECK_OK(weft_params_swap(params, data, NULL));
    }
    uint64_t newest = 0;
    for (int p = 0; p < team->size; p++) { /* the dead ranks' replicas too are whole */
        CHECK_OK(weft_params_read(params, p, 0, BYTES, data, &version, NULL));
        for (int k = 1; k < BYTES; k++) {
            CHECK_EQ(data[k], data[0]);
        }
        newest = version > newest ? version : newest;
    }
    CHECK(newest >= 5);
    free(data);
    CHECK(weft_params_destroy(params) != WEFT_OK);
    CHECK(weft_symm_destroy(symm) != WEFT_OK);
}

static const team_fn all[] = {params_swapped, params_writers, held, on_streams, NULL};

/* Under TSan some are not run. */
#define PLAN_TEST(name, fn, ...)                                                                   \
    static __attribute__((unused)) void name(void **state)                                         \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.limit_s = 30, __VA_ARGS__}, fn));                     \
    }

PLAN_TEST(one_rank, gpu_in_a_row, .ranks = 1, .arg = all)
PLAN_TEST(four_threads, gpu_in_a_row, .ranks = 4, .procs = 1, .arg = all)
PLAN_TEST(two_processes, gpu_in_a_row, .ranks = 2, .arg = all)
PLAN_TEST(seven_processes, gpu_in_a_row, .ranks = 7, .arg = all)
PLAN_TEST(killed_in_a_swap, dies_swapping, .ranks = 4, .may_die = 6)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank),
        cmocka_unit_test(four_threads),
#if !UNDER_TSAN /* which sees one process at a time */
        cmocka_unit_test(two_processes),
        cmocka_unit_test(seven_processes),
        cmocka_unit_test(killed_in_a_swap),
#endif
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
