/* Where ranks of several hosts meet, by what launchers say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "boot/master.h"

#define ENV(...) ((char *const[]){__VA_ARGS__, NULL})
#define TORCH "RANK=0", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"
#define SLURM                                                                                      \
    "SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_LOCALID=1", "SLURM_NODEID=1", "SLURM_JOB_ID=77",    \
        "SLURM_STEP_ID=0", "SLURM_STEP_TASKS_PER_NODE=2(x2)"

static weft_status_t find(char *const *environ_p, weft_master_t *master)
{
    weft_job_t job;
    assert_int_equal(weft__job_read(environ_p, &job), WEFT_OK);
    assert_int_equal(job.local_size, 2);
    return weft__master_find(environ_p, &job, master);
}

static weft_master_t find_good(char *const *environ_p)
{
    weft_master_t master;
    if (find(environ_p, &master) != WEFT_OK) {
        fail_msg("%s", weft_last_error());
    }
    return master;
}

static void find_bad(char *const *environ_p, const char *text)
{
    weft_master_t master;
    assert_int_equal(find(environ_p, &master), WEFT_ERR_INVALID);
    if (!strstr(weft_last_error(), text)) {
        fail_msg("\"%s\" is not in: %s", text, weft_last_error());
    }
}

static void torchrun_names_host_and_port(void **state)
{
    (void)state;
    weft_master_t master = find_good(ENV(TORCH, "MASTER_ADDR=gpu07", "MASTER_PORT=29500"));
    assert_string_equal(master.addr, "gpu07");
    assert_int_equal(master.port, 29501); /* torchrun has the other one */
    master = find_good(ENV(TORCH, "MASTER_ADDR=gpu07", "MASTER_PORT=65535"));
    assert_int_equal(master.port, 65534);
    find_bad(ENV(TORCH, "MASTER_PORT=29500"), "set WEFT_MASTER_ADDR");
    find_bad(ENV(TORCH, "MASTER_ADDR=gpu07", "MASTER_PORT=x"), "MASTER_PORT=x is not a port");
}

static void own_words_win(void **state)
{
    (void)state;
    weft_master_t master = find_good(ENV(TORCH, "MASTER_ADDR=a", "MASTER_PORT=1000",
                                         "WEFT_MASTER_ADDR=b", "WEFT_MASTER_PORT=2000",
                                         "WEFT_SECRET=000102030405060708090a0b0c0d0e0f"));
    assert_string_equal(master.addr, "b");
    assert_int_equal(master.port, 2000);
    for (int i = 0; i < WEFT_SECRET_BYTES; i++) {
        assert_int_equal(master.secret[i], i);
    }
    find_bad(ENV(TORCH, "MASTER_ADDR=a", "WEFT_MASTER_PORT=0"), "WEFT_MASTER_PORT=0 is not a port");
    find_bad(ENV(TORCH, "MASTER_ADDR=a", "WEFT_MASTER_PORT=70000"), "is not a port");
    find_bad(ENV(TORCH, "MASTER_ADDR=a", "MASTER_PORT=1", "WEFT_SECRET=12"), "not 32 hex digits");
}

static void slurm_has_rank_0_on_its_first_node(void **state)
{
    (void)state;
    static const struct {
        const char *list, *first;
    } nodes[] = {{"SLURM_STEP_NODELIST=gpu7", "gpu7"},
                 {"SLURM_STEP_NODELIST=gpu7,gpu8", "gpu7"},
                 {"SLURM_STEP_NODELIST=gpu[07-09,12]", "gpu07"},
                 {"SLURM_STEP_NODELIST=gpu[3,12]-ib0,login", "gpu3-ib0"},
                 {"SLURM_STEP_NODELIST=r[1-2]n[10-19]", "r1n10"},
                 {"SLURM_JOB_NODELIST=a-b,c", "a-b"}};
    for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        weft_master_t master = find_good(ENV(SLURM, (char *)nodes[i].list));
        assert_string_equal(master.addr, nodes[i].first);
        assert_in_range(master.port, 20000, 29999);
    }
    find_bad(ENV(SLURM), "set WEFT_MASTER_ADDR");
    find_bad(ENV(SLURM, "SLURM_STEP_NODELIST=gpu[7"), "set WEFT_MASTER_ADDR");
    find_bad(ENV(SLURM, "SLURM_STEP_NODELIST=,"), "set WEFT_MASTER_ADDR");
}

/* Rank 0 may be told another name of its own host. */
static void names_of_a_host_do_not_matter(void **state)
{
    (void)state;
    weft_master_t a = find_good(ENV(TORCH, "MASTER_ADDR=localhost", "MASTER_PORT=29500"));
    weft_master_t b = find_good(ENV(TORCH, "MASTER_ADDR=[::1]", "MASTER_PORT=29500"));
    assert_memory_equal(a.secret, b.secret, sizeof(a.secret));
    assert_string_equal(b.addr, "::1");
    b = find_good(ENV(TORCH, "MASTER_ADDR=localhost", "MASTER_PORT=29502"));
    assert_memory_not_equal(a.secret, b.secret, sizeof(a.secret));
}

static void long_names_are_refused(void **state)
{
    (void)state;
    char addr[400] = "MASTER_ADDR=";
    memset(addr + strlen(addr), 'x', 300);
    find_bad(ENV(TORCH, addr, "MASTER_PORT=29500"), "MASTER_ADDR is too long");
}

static void all_ranks_agree_and_jobs_differ(void **state)
{
    (void)state;
    weft_master_t a = find_good(ENV(SLURM, "SLURM_STEP_NODELIST=n[1-2]"));
    weft_master_t b = find_good(ENV(
        "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURM_JOB_ID=77",
        "SLURM_STEP_ID=0", "SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_STEP_NODELIST=n[1-2]"));
    assert_memory_equal(&a, &b, sizeof(a));
    b = find_good(ENV("SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_NODEID=0",
                      "SLURM_JOB_ID=78", "SLURM_STEP_ID=0", "SLURM_STEP_TASKS_PER_NODE=2(x2)",
                      "SLURM_STEP_NODELIST=n[1-2]"));
    assert_memory_not_equal(a.secret, b.secret, sizeof(a.secret));
}

/* The key of MPICH is that of a host. */
static void mpich_must_be_told(void **state)
{
    (void)state;
#define MPICH "PMI_RANK=0", "PMI_SIZE=4", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2"
    find_bad(ENV(MPICH), "set WEFT_MASTER_ADDR");
    find_bad(ENV(MPICH, "WEFT_MASTER_ADDR=a"), "set WEFT_MASTER_PORT to a port that is free on a");
    find_bad(ENV(MPICH, "WEFT_MASTER_ADDR=a", "WEFT_MASTER_PORT=5"),
             "set WEFT_SECRET to 32 random");
    weft_master_t master = find_good(ENV(MPICH, "WEFT_MASTER_ADDR=a", "WEFT_MASTER_PORT=5",
                                         "WEFT_SECRET=000102030405060708090a0b0c0d0e0f"));
    assert_int_equal(master.port, 5);
#undef MPICH
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torchrun_names_host_and_port),
        cmocka_unit_test(own_words_win),
        cmocka_unit_test(slurm_has_rank_0_on_its_first_node),
        cmocka_unit_test(names_of_a_host_do_not_matter),
        cmocka_unit_test(long_names_are_refused),
        cmocka_unit_test(all_ranks_agree_and_jobs_differ),
        cmocka_unit_test(mpich_must_be_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
