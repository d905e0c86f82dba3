/* The environment of a job, whoever started it: which rank this is, and where the ranks meet.
 *
 *     NAME=VALUE a line
 *
 * reads: src/boot/job.c src/boot/master.c src/boot/store_secret.c
 * besides: read_once weft__job weft__job_check_ranks weft__job_ask_grace connect_to_launcher
 * make_name besides: weft__job_store linger listen_and_serve serve reach_ourselves
 * weft__master_store weft__secret_create besides: read_process mpich_key */
#include "fuzz/fuzz.h"

#include "boot/job.h"
#include "boot/master.h"

const long fuzz_runs = 40000;

enum { ENTRIES = 64 };

static void check_job(const weft_job_t *job)
{
    CHECK(job->size >= 1 && job->rank >= 0 && job->rank < job->size);
    CHECK(job->local_size >= 1 && job->local_rank >= 0 && job->local_rank < job->local_size);
    CHECK(strcmp(job->launcher, "slurm") == 0 || job->local_size <= job->size);
    CHECK(memchr(job->key, '\0', sizeof(job->key)) != NULL);
    CHECK(strcmp(job->launcher, "none") != 0 || job->size == 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_rest_t rest = {data, size};
    char *text = fuzz_text(&rest, FUZZ_ALL), *entries[ENTRIES];
    weft_job_t job;
    weft_master_t master;
    fuzz_lines(text, entries, ENTRIES);
    if (weft__job_read(entries, &job) != WEFT_OK) {
        CHECK(strncmp(weft_last_error(), "job: ", 5) == 0);
        free(text);
        return 0;
    }
    check_job(&job);
    if (weft__master_find(entries, &job, &master) == WEFT_OK) {
        char hex[2 * WEFT_SECRET_BYTES + 1];
        uint8_t secret[WEFT_SECRET_BYTES];
        CHECK(master.addr[0] != '\0' && memchr(master.addr, '\0', sizeof(master.addr)) != NULL);
        CHECK(master.port >= 1 && master.port <= 65535);
        weft__secret_print(master.secret, hex);
        CHECK(weft__secret_parse(hex, secret) == WEFT_OK);
        CHECK(memcmp(secret, master.secret, sizeof(secret)) == 0);
    } else {
        CHECK(strncmp(weft_last_error(), "job: ", 5) == 0);
    }
    free(text);
    return 0;
}

void fuzz_seeds(void)
{
    static const char *const words[] = {"WEFT_RANK=",
                                        "WEFT_SIZE=",
                                        "WEFT_LOCAL_RANK=",
                                        "WEFT_LOCAL_SIZE=",
                                        "RANK=",
                                        "WORLD_SIZE=",
                                        "LOCAL_RANK=",
                                        "LOCAL_WORLD_SIZE=",
                                        "MASTER_ADDR=",
                                        "MASTER_PORT=",
                                        "TORCHELASTIC_RUN_ID=",
                                        "OMPI_COMM_WORLD_RANK=",
                                        "OMPI_COMM_WORLD_SIZE=",
                                        "PMIX_NAMESPACE=",
                                        "PMI_RANK=",
                                        "PMI_SIZE=",
                                        "MPI_LOCALRANKID=",
                                        "SLURM_PROCID=",
                                        "SLURM_NTASKS=",
                                        "SLURM_LOCALID=",
                                        "SLURM_STEP_ID=",
                                        "SLURM_NODEID=",
                                        "SLURM_STEP_TASKS_PER_NODE=",
                                        "SLURM_STEP_NODELIST=",
                                        "SLURM_JOB_NODELIST=",
                                        "WEFT_MASTER_ADDR=",
                                        "WEFT_MASTER_PORT=",
                                        "WEFT_SECRET=",
                                        "4294967295",
                                        "2147483648",
                                        "(x2147483647)"};
    static const char *const seeds[] = {
        "WEFT_RANK=1\nWEFT_SIZE=4\nWEFT_LOCAL_RANK=1\nWEFT_LOCAL_SIZE=2\nWEFT_MASTER_ADDR=[::1]\n"
        "WEFT_MASTER_PORT=4000\nWEFT_SECRET=00112233445566778899aabbccddeeFF",
        "RANK=1\nWORLD_SIZE=4\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nMASTER_ADDR=host\nMASTER_PORT="
        "29500\n"
        "TORCHELASTIC_RUN_ID=none\nTORCHELASTIC_RESTART_COUNT=0",
        "OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_RANK=0\n"
        "OMPI_COMM_WORLD_LOCAL_SIZE=2\nPMIX_NAMESPACE=prterun-1@1",
        "PMI_RANK=0\nPMI_SIZE=2\nMPI_LOCALRANKID=0\nMPI_LOCALNRANKS=2",
        "SLURM_PROCID=3\nSLURM_NTASKS=7\nSLURM_LOCALID=1\nSLURM_NODEID=1\nSLURM_STEP_ID=0\nSLURM_"
        "JOB_ID=77\n"
        "SLURM_STEP_TASKS_PER_NODE=2(x3),1\nSLURM_STEP_NODELIST=gpu[07-09,12]-a,login1",
        "SLURM_PROCID=0\nSLURM_NTASKS=1\nSLURM_STEP_ID=4294967291",
        "PATH=/bin\nHOME=/root",
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        fuzz_word(words[i]);
    }
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        fuzz_seed_text(seeds[i]);
    }
    char long_key[600];
    memset(long_key, 'k', sizeof(long_key));
    int at = snprintf(long_key, sizeof(long_key),
                      "RANK=0\nWORLD_SIZE=2\nMASTER_PORT=1\nTORCHELASTIC_RUN_ID=");
    long_key[at] = 'k';
    fuzz_seed(long_key, sizeof(long_key));
}
