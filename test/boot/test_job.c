/* ctest: timeout=120 tsan */
/* The rank environment of every launcher, and what contradicts itself. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "boot/job.h"

#define ENV(...) ((char *const[]){__VA_ARGS__, NULL})

static weft_job_t read_good(char *const *environ_p)
{
    weft_job_t job = {0};
    weft_status_t status = weft__job_read(environ_p, &job);
    if (status != WEFT_OK) {
        fail_msg("%s", weft_last_error());
    }
    return job;
}

static void check_job(weft_job_t job, const char *launcher, int rank, int size, int local_rank,
                      int local_size)
{
    assert_string_equal(job.launcher, launcher);
    assert_int_equal(job.rank, rank);
    assert_int_equal(job.size, size);
    assert_int_equal(job.local_rank, local_rank);
    assert_int_equal(job.local_size, local_size);
}

static void no_launcher_is_a_job_of_one(void **state)
{
    (void)state;
    weft_job_t job = read_good(ENV("HOME=/", "RANKS=3", "RANK", "WEFT_LOG=info"));
    check_job(job, "none", 0, 1, 0, 1);
    assert_string_equal(job.key, "");
}

static void another_number_of_ranks_is_a_contradiction(void **state)
{
    (void)state;
    weft_job_t job = read_good(ENV("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2"));
    assert_int_equal(weft__job_check_ranks(&job, 2), WEFT_OK);
    assert_int_equal(weft__job_check_ranks(&job, 4), WEFT_ERR_INVALID);
    assert_string_equal(weft_last_error(),
                        "-n 4 contradicts mpirun, which started 2 ranks: leave -n out, or give "
                        "both the same number");
    job = read_good(ENV("HOME=/"));
    assert_int_equal(weft__job_check_ranks(&job, 4), WEFT_OK);
}

static void weft_wins_over_all_others(void **state)
{
    (void)state;
    weft_job_t job = read_good(ENV("SLURM_PROCID=9", "SLURM_NTASKS=10", "SLURM_STEP_ID=0", "RANK=1",
                                   "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=7",
                                   "OMPI_COMM_WORLD_SIZE=8", "WEFT_RANK=3", "WEFT_SIZE=16",
                                   "WEFT_LOCAL_RANK=1", "WEFT_LOCAL_SIZE=8"));
    check_job(job, "weft", 3, 16, 1, 8);
    assert_string_equal(job.key, "");
}

static void torchrun_is_read_and_keyed_by_restart(void **state)
{
    (void)state;
    weft_job_t first = read_good(ENV("RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4",
                                     "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500",
                                     "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=0"));
    weft_job_t again = read_good(ENV("RANK=0", "WORLD_SIZE=8", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=4",
                                     "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500",
                                     "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=1"));
    weft_job_t other = read_good(ENV("RANK=0", "WORLD_SIZE=8", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=4",
                                     "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29501",
                                     "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=0"));
    check_job(first, "torchrun", 5, 8, 1, 4);
    assert_string_not_equal(first.key, again.key);
    assert_string_not_equal(first.key, other.key);
    assert_non_null(strstr(first.key, "29500"));
    weft_job_t same = read_good(ENV("RANK=2", "WORLD_SIZE=8", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=4",
                                    "TORCHELASTIC_RESTART_COUNT=0", "MASTER_PORT=29500",
                                    "MASTER_ADDR=10.0.0.1", "TORCHELASTIC_RUN_ID=none"));
    assert_string_equal(first.key, same.key);
    /* by hand, without anything to meet by */
    weft_job_t bare = read_good(ENV("RANK=0", "WORLD_SIZE=2"));
    check_job(bare, "torchrun", 0, 2, 0, 2);
    assert_string_equal(bare.key, "");
}

static void openmpi_is_read(void **state)
{
    (void)state;
    weft_job_t job = read_good(ENV("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4",
                                   "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                                   "PMIX_NAMESPACE=190840833", "SLURM_PROCID=0", "SLURM_NTASKS=1",
                                   "SLURM_STEP_ID=0"));
    check_job(job, "openmpi", 3, 4, 1, 2);
    assert_non_null(strstr(job.key, "190840833"));
}

static void mpich_is_read_and_keyed_by_its_parent(void **state)
{
    (void)state;
    weft_job_t job = read_good(
        ENV("PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"));
    char parent[16];
    snprintf(parent, sizeof(parent), "%d", (int)getppid());
    check_job(job, "mpich", 3, 4, 1, 2);
    assert_true(job.key[0] != '\0');
    if (strchr(job.key, '.') == NULL) { /* no hydra above this test */
        assert_string_equal(job.key, parent);
    }
}

static void slurm_step_is_read_but_not_a_batch_script(void **state)
{
    (void)state;
    weft_job_t job = read_good(ENV("SLURM_PROCID=6", "SLURM_NTASKS=7", "SLURM_LOCALID=0",
                                   "SLURM_NODEID=3", "SLURM_STEP_TASKS_PER_NODE=2(x3),1",
                                   "SLURM_TASKS_PER_NODE=9", "SLURM_JOB_ID=77", "SLURM_STEP_ID=2"));
    check_job(job, "slurm", 6, 7, 0, 1);
    assert_non_null(strstr(job.key, "77/2"));
    job = read_good(ENV("SLURM_PROCID=3", "SLURM_NTASKS=7", "SLURM_LOCALID=1", "SLURM_NODEID=1",
                        "SLURM_TASKS_PER_NODE=2(x3),1", "SLURM_JOB_ID=77", "SLURM_STEP_ID=2"));
    check_job(job, "slurm", 3, 7, 1, 2);
    /* PMI from srun: its words for the place on this host are Slurm's */
    job = read_good(ENV("PMI_RANK=1", "PMI_SIZE=2", "SLURM_PROCID=1", "SLURM_NTASKS=2",
                        "SLURM_LOCALID=1", "SLURM_JOB_ID=77", "SLURM_STEP_ID=0"));
    check_job(job, "slurm", 1, 2, 1, 2);
    job = read_good(ENV("SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_LOCALID=0", "SLURM_JOB_ID=77"));
    check_job(job, "none", 0, 1, 0, 1);
    job = read_good(ENV("SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_LOCALID=0", "SLURM_JOB_ID=77",
                        "SLURM_STEP_ID=4294967290"));
    check_job(job, "none", 0, 1, 0, 1);
    job = read_good(ENV("SLURM_NTASKS=8", "SLURM_JOB_ID=77"));
    check_job(job, "none", 0, 1, 0, 1);
}

static void contradictions_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second, *third, *fourth;
        const char *named; /* must be in the sentence */
    } rows[] = {
        {"WEFT_RANK=0", "A=1", "A=1", "A=1", "WEFT_SIZE"},
        {"WEFT_SIZE=2", "A=1", "A=1", "A=1", "WEFT_RANK"},
        {"WEFT_SIZE=2", "WEFT_RANK=", "A=1", "A=1", "WEFT_RANK"},
        {"WEFT_SIZE=2", "WEFT_RANK=2", "A=1", "A=1", "WEFT_RANK=2"},
        {"WEFT_SIZE=2", "WEFT_RANK=-1", "A=1", "A=1", "WEFT_RANK=-1"},
        {"WEFT_SIZE=2x", "WEFT_RANK=1", "A=1", "A=1", "WEFT_SIZE=2x"},
        {"WEFT_SIZE=0", "WEFT_RANK=0", "A=1", "A=1", "WEFT_SIZE=0"},
        {"WEFT_SIZE=99999999999", "WEFT_RANK=0", "A=1", "A=1", "WEFT_SIZE=99999999999"},
        {"WEFT_SIZE=2", "WEFT_RANK=0", "WEFT_LOCAL_RANK=0", "A=1", "WEFT_LOCAL_SIZE"},
        {"WEFT_SIZE=2", "WEFT_RANK=0", "WEFT_LOCAL_RANK=2", "WEFT_LOCAL_SIZE=2", "LOCAL_RANK=2"},
        {"WEFT_SIZE=2", "WEFT_RANK=0", "WEFT_LOCAL_RANK=0", "WEFT_LOCAL_SIZE=3", "LOCAL_SIZE=3"},
        {"RANK=1", "A=1", "A=1", "A=1", "WORLD_SIZE"},
        {"OMPI_COMM_WORLD_RANK=1", "A=1", "A=1", "A=1", "OMPI_COMM_WORLD_SIZE"},
        {"PMI_SIZE=1", "PMI_RANK=1", "A=1", "A=1", "PMI_RANK=1"},
        {"SLURM_PROCID=1", "SLURM_STEP_ID=0", "A=1", "A=1", "SLURM_NTASKS"},
        {"SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=x", "SLURM_LOCALID"},
        {"SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_NTASKS=2", "SLURM_TASKS_PER_NODE=2(y",
         "SLURM_TASKS_PER_NODE"},
        {"SLURM_PROCID=1", "SLURM_STEP_ID=0", "SLURM_NTASKS=2", "SLURM_NODEID=-1", "SLURM_NODEID"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        weft_job_t job = {.rank = 12345};
        char *const list[] = {(char *)rows[i].first, (char *)rows[i].second, (char *)rows[i].third,
                              (char *)rows[i].fourth, NULL};
        assert_int_equal(weft__job_read(list, &job), WEFT_ERR_INVALID);
        assert_int_equal(job.rank, 12345);
        if (strstr(weft_last_error(), rows[i].named) == NULL) {
            fail_msg("row %zu: '%s' does not name %s", i, weft_last_error(), rows[i].named);
        }
    }
}

static void long_keys_are_shortened_but_differ(void **state)
{
    (void)state;
    char id[600];
    memset(id, 'x', sizeof(id));
    memcpy(id, "TORCHELASTIC_RUN_ID=", 20);
    id[sizeof(id) - 1] = '\0';
    weft_job_t a = read_good(ENV("RANK=0", "WORLD_SIZE=2", id));
    id[sizeof(id) - 2] = 'y';
    weft_job_t b = read_good(ENV("RANK=0", "WORLD_SIZE=2", id));
    assert_true(strlen(a.key) > 0 && strlen(a.key) < sizeof(a.key));
    assert_string_not_equal(a.key, b.key);
}

/* ---- the store of a job, in processes of their own --------------------------------------- */

/* Two connections, a set and a get, a barrier of the job. */
static int meet(void)
{
    const weft_job_t *job;
    weft_store_conn_t *one = NULL, *two = NULL;
    char value[8];
    size_t bytes = sizeof(value);
    if (weft__job(&job) != WEFT_OK || weft__job_store(0, &one) != WEFT_OK ||
        weft__job_store(0, &two) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
        return 1;
    }
    if (job->rank == 0 && weft__store_set(one, "k", "v", 1) != WEFT_OK) {
        return 2;
    }
    if (weft__store_get(two, "k", value, &bytes, 60000) != WEFT_OK || bytes != 1) {
        return 3;
    }
    if (weft__store_barrier(one, "end", job->size, 60000) != WEFT_OK) {
        return 4;
    }
    weft__store_close(one);
    weft__store_close(two);
    return 0;
}

static void clear_launchers(void)
{
    static const char *const names[] = {
        "WEFT_RANK",
        "WEFT_SIZE",
        "RANK",
        "WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "PMI_RANK",
        "PMI_SIZE",
        "SLURM_STEP_ID",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsetenv(names[i]);
    }
}

static void wait_good(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void job_of_one_has_a_store(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        clear_launchers();
        _exit(meet());
    }
    wait_good(pid);
}

#define THREADS 8

static pthread_barrier_t line;

static void *connect_and_set(void *arg)
{
    weft_store_conn_t *store = NULL;
    pthread_barrier_wait(&line);
    weft_status_t status = weft__job_store(0, &store);
    if (status == WEFT_OK) {
        int64_t sum;
        status = weft__store_add(store, "threads", 1, &sum);
        weft__store_close(store);
    }
    if (status != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
    }
    *(weft_status_t *)arg = status;
    return NULL;
}

/* All at once ask for the store that the first of them starts: it is one store. */
static int meet_as_threads(void)
{
    pthread_t threads[THREADS];
    weft_status_t statuses[THREADS];
    weft_store_conn_t *store = NULL;
    int64_t sum = 0;
    pthread_barrier_init(&line, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, connect_and_set, &statuses[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        if (statuses[i] != WEFT_OK) {
            return 1;
        }
    }
    if (weft__job_store(0, &store) != WEFT_OK ||
        weft__store_add(store, "threads", 0, &sum) != WEFT_OK) {
        return 2;
    }
    weft__store_close(store);
    return sum == THREADS ? 0 : 3;
}

static void threads_that_ask_at_once_share_a_store(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) { /* who comes first is chance */
        pid_t pid = fork();
        if (pid == 0) {
            clear_launchers();
            _exit(meet_as_threads());
        }
        wait_good(pid);
    }
}

static void foreign_ranks_meet_at_rank_0(void **state)
{
    (void)state;
    pid_t pids[4];
    char port[16], rank[16];
    snprintf(port, sizeof(port), "%d", (int)getpid());
    for (int i = 3; i >= 0; i--) { /* rank 0 comes last: the others must wait for it */
        pids[i] = fork();
        if (pids[i] == 0) {
            clear_launchers();
            snprintf(rank, sizeof(rank), "%d", i);
            setenv("RANK", rank, 1);
            setenv("WORLD_SIZE", "4", 1);
            setenv("MASTER_ADDR", "localhost", 1);
            setenv("MASTER_PORT", port, 1);
            unsetenv("LOCAL_RANK");
            unsetenv("LOCAL_WORLD_SIZE");
            _exit(meet());
        }
        usleep(10000);
    }
    for (int i = 0; i < 4; i++) {
        wait_good(pids[i]);
    }
}

static void weft_ranks_meet_at_their_launcher(void **state)
{
    (void)state;
    uint8_t secret[WEFT_SECRET_BYTES];
    char hex[2 * WEFT_SECRET_BYTES + 1], text[16];
    weft_store_server_t *server;
    int port;
    pid_t pids[2];
    assert_int_equal(weft__secret_create(secret), WEFT_OK);
    assert_int_equal(weft__store_serve("127.0.0.1", 0, secret, &server, &port), WEFT_OK);
    weft__secret_print(secret, hex);
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            setenv("WEFT_RANK", i == 0 ? "0" : "1", 1);
            setenv("WEFT_SIZE", "2", 1);
            setenv("WEFT_MASTER_ADDR", "127.0.0.1", 1);
            snprintf(text, sizeof(text), "%d", port);
            setenv("WEFT_MASTER_PORT", text, 1);
            setenv("WEFT_SECRET", hex, 1);
            _exit(meet());
        }
    }
    wait_good(pids[0]);
    wait_good(pids[1]);
    weft__store_stop(server);
}

static void store_that_cannot_be_found_is_explained(void **state)
{
    (void)state;
    static const struct {
        const char *name[6], *value[6];
        const char *named;
    } rows[] = {
        {{"WEFT_RANK", "WEFT_SIZE"}, {"0", "2"}, "WEFT_MASTER_ADDR"},
        {{"WEFT_RANK", "WEFT_SIZE", "WEFT_MASTER_ADDR", "WEFT_MASTER_PORT", "WEFT_SECRET"},
         {"0", "2", "127.0.0.1", "1", "beef"},
         "WEFT_SECRET"},
        {{"RANK", "WORLD_SIZE"}, {"0", "2"}, "MASTER_ADDR"},
        {{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT"},
         {"0", "4", "0", "2", "1"},
         "WEFT_MASTER_ADDR"},
        {{"RANK", "WORLD_SIZE"}, {"4", "2"}, "RANK=4"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            weft_store_conn_t *store = NULL;
            clearenv();
            for (int k = 0; rows[i].name[k] != NULL; k++) {
                setenv(rows[i].name[k], rows[i].value[k], 1);
            }
            /* twice: the second answer must be as good as the first */
            for (int k = 0; k < 2; k++) {
                if (weft__job_store(0, &store) == WEFT_OK || store != NULL ||
                    strstr(weft_last_error(), rows[i].named) == NULL) {
                    fprintf(stderr, "row %zu: %s\n", i, weft_last_error());
                    _exit(1);
                }
            }
            _exit(0);
        }
        wait_good(pid);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_launcher_is_a_job_of_one),
        cmocka_unit_test(another_number_of_ranks_is_a_contradiction),
        cmocka_unit_test(weft_wins_over_all_others),
        cmocka_unit_test(torchrun_is_read_and_keyed_by_restart),
        cmocka_unit_test(openmpi_is_read),
        cmocka_unit_test(mpich_is_read_and_keyed_by_its_parent),
        cmocka_unit_test(slurm_step_is_read_but_not_a_batch_script),
        cmocka_unit_test(contradictions_are_refused_by_name),
        cmocka_unit_test(long_keys_are_shortened_but_differ),
        cmocka_unit_test(job_of_one_has_a_store),
        cmocka_unit_test(threads_that_ask_at_once_share_a_store),
        cmocka_unit_test(foreign_ranks_meet_at_rank_0),
        cmocka_unit_test(weft_ranks_meet_at_their_launcher),
        cmocka_unit_test(store_that_cannot_be_found_is_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
