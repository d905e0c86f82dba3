/* How near ranks are that have GPUs: those of a made-up machine, whose work threads do. And what a
 * host is. */
#include <sched.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/harness.h"

#include <cmocka.h>

#include "parallel/places.h"
#include "topo/made_up.h"

enum { RANKS = 6 };

/* GPUs 0 and 1, and 2 and 3, have four NVLinks; ranks 4 and 5 take turns with 0 and 1. */
static void look_around(team_t *team)
{
    uint8_t near[RANKS * RANKS];
    int ranks[RANKS];
    CHECK_OK(weft__places_find(team->comm, RANKS, ranks, near));
    for (int a = 0; a < RANKS; a++) {
        CHECK_EQ(ranks[a], a);
        for (int b = 0; b < RANKS; b++) {
            int from = a % 4, to = b % 4;
            int want = from == to           ? WEFT_NEAR_SAME
                       : from / 2 == to / 2 ? WEFT_NEAR_NVLINK + 4 - 1
                                            : WEFT_NEAR_SYSTEM;
            team_note("from rank %d to rank %d", a, b);
            CHECK_EQ(near[a * RANKS + b], want);
        }
    }
}

static void gpus_are_near_by_their_links(void **state)
{
    static char env[8192];
    (void)state;
    machine_add_pcie();
    snprintf(env, sizeof(env),
             "WEFT_DEVICE=cuda WEFT_ENGINE=weft SOFT_GPUS=4 "
             "WEFT_CUDA_MODULE=%s/test/soft_gpu/soft_gpu.so "
             "WEFT_NVML=%s",
             getenv("WEFT_BUILD"), machine_library("fake_nvml.so"));
    assert_true(team_run(&(team_plan_t){.ranks = RANKS, .procs = 1, .env = env}, look_around));
}

/* One host, though the ranks have it by different names, as in containers that share a machine. */
static bool rename_host(void)
{
    return unshare(CLONE_NEWUTS) == 0 && sethostname("elsewhere", 9) == 0;
}

static void look_at_names(team_t *team)
{
    uint8_t near[4];
    int ranks[2];
    CHECK(team->rank != 1 || rename_host());
    CHECK_OK(weft__places_find(team->comm, 2, ranks, near));
    CHECK(near[1] != WEFT_NEAR_NETWORK);
    CHECK(near[2] != WEFT_NEAR_NETWORK);
}

static void host_is_no_name(void **state)
{
    (void)state;
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        _exit(!rename_host());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status != 0) {
        print_message("skipped: only root may give a process another name for its host\n");
        skip();
    }
    assert_true(
        team_run(&(team_plan_t){.ranks = 2, .procs = 2, .env = "WEFT_DEVICE=cpu"}, look_at_names));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gpus_are_near_by_their_links, machine_open, machine_close),
        cmocka_unit_test(host_is_no_name),
    };
    char module[4096];
    const char *build = getenv("WEFT_BUILD");
    snprintf(module, sizeof(module), "%s/test/soft_gpu/soft_gpu.so", build != NULL ? build : ".");
    if (build == NULL || access(module, R_OK) != 0) {
        printf("skipped: %s is not there, for lack of a C++ compiler or of WEFT_BUILD\n", module);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
