/* Who started us, and as which rank.
 *
 * Each launcher is a row of names. Ranks of one job must agree on something that no other job on
 * this host has: that is the key. It is made of what the launcher says alike to all its ranks and
 * to nobody else's. */
#include "boot/job.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mac.h"
#include "base/rng.h"
#include "base/settings.h"
#include "boot/master.h"
#include "boot/store_server.h"
#include "device/device.h"

#define KEY_PARTS 4

typedef struct launcher {
    const char *name;
    const char *rank, *size, *local_rank, *local_size;
    const char *key[KEY_PARTS]; /* variables; what the parts make together is the key */
} launcher_t;

enum { LAUNCHER_WEFT, LAUNCHER_TORCHRUN, LAUNCHER_OPENMPI, LAUNCHER_MPICH, LAUNCHER_SLURM };

/* In order of precedence. torchrun's run id is often "none", but the port is taken. */
static const launcher_t launchers[] = {
    [LAUNCHER_WEFT] = {"weft", "WEFT_RANK", "WEFT_SIZE", "WEFT_LOCAL_RANK", "WEFT_LOCAL_SIZE", {0}},
    [LAUNCHER_TORCHRUN] = {"torchrun",
                           "RANK",
                           "WORLD_SIZE",
                           "LOCAL_RANK",
                           "LOCAL_WORLD_SIZE",
                           {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                            "TORCHELASTIC_RESTART_COUNT"}},
    [LAUNCHER_OPENMPI] = {"openmpi",
                          "OMPI_COMM_WORLD_RANK",
                          "OMPI_COMM_WORLD_SIZE",
                          "OMPI_COMM_WORLD_LOCAL_RANK",
                          "OMPI_COMM_WORLD_LOCAL_SIZE",
                          {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    [LAUNCHER_MPICH] = {"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {0}},
    [LAUNCHER_SLURM] = {"slurm",
                        "SLURM_PROCID",
                        "SLURM_NTASKS",
                        "SLURM_LOCALID",
                        NULL,
                        {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
};

extern char **environ;

const char *weft__job_variable(char *const *environ_p, const char *name)
{
    size_t length = strlen(name);
    for (; *environ_p != NULL; environ_p++) {
        if (strncmp(*environ_p, name, length) == 0 && (*environ_p)[length] == '=') {
            const char *value = *environ_p + length + 1;
            return *value == '\0' ? NULL : value;
        }
    }
    return NULL;
}

/* ---- the numbers ------------------------------------------------------------------------- */

/* Two variables that belong together. *found_p tells whether they are there. */
static weft_status_t read_pair(char *const *environ_p, const char *rank_name, const char *size_name,
                               int *rank_p, int *size_p, bool *found_p)
{
    const char *rank = weft__job_variable(environ_p, rank_name);
    const char *size = weft__job_variable(environ_p, size_name);
    *found_p = rank != NULL && size != NULL;
    if (rank == NULL && size == NULL) {
        return WEFT_OK;
    }
    if (!*found_p) {
        return weft__fail(WEFT_ERR_INVALID, "job: %s is set but %s is not; set both or neither",
                          rank != NULL ? rank_name : size_name,
                          rank != NULL ? size_name : rank_name);
    }
    if (!weft__parse_int(rank, rank_p) || *rank_p < 0) {
        return weft__fail(WEFT_ERR_INVALID, "job: %s=%s is not a rank", rank_name, rank);
    }
    if (!weft__parse_int(size, size_p) || *size_p < 1) {
        return weft__fail(WEFT_ERR_INVALID, "job: %s=%s is not a number of ranks", size_name, size);
    }
    if (*rank_p >= *size_p) {
        return weft__fail(WEFT_ERR_INVALID, "job: %s=%d is not below %s=%d", rank_name, *rank_p,
                          size_name, *size_p);
    }
    return WEFT_OK;
}

/* Slurm's "2(x3),1" is 2, 2, 2, 1 tasks on nodes 0 to 3. false if it is malformed or too short. */
static bool tasks_of_node(const char *list, int node, int *tasks_p)
{
    while (node >= 0) {
        char *end;
        long tasks = strtol(list, &end, 10);
        long times = 1;
        if (end == list || tasks < 1 || tasks > INT_MAX) {
            return false;
        }
        if (strncmp(end, "(x", 2) == 0) {
            times = strtol(end + 2, &end, 10);
            if (times < 1 || times > INT_MAX || *end != ')') {
                return false;
            }
            end++;
        }
        *tasks_p = (int)tasks;
        node -= (int)times;
        if (*end == '\0') {
            return node < 0;
        }
        if (*end != ',') {
            return false;
        }
        list = end + 1;
    }
    return true;
}

static weft_status_t slurm_local(char *const *environ_p, weft_job_t *job)
{
    const char *local = weft__job_variable(environ_p, "SLURM_LOCALID");
    const char *node_text = weft__job_variable(environ_p, "SLURM_NODEID");
    const char *list_name = "SLURM_STEP_TASKS_PER_NODE";
    const char *list = weft__job_variable(environ_p, list_name);
    int node = 0;
    job->local_rank = job->rank;
    job->local_size = job->size;
    if (list == NULL) {
        list_name = "SLURM_TASKS_PER_NODE";
        list = weft__job_variable(environ_p, list_name);
    }
    if (local != NULL && (!weft__parse_int(local, &job->local_rank) || job->local_rank < 0)) {
        return weft__fail(WEFT_ERR_INVALID, "job: SLURM_LOCALID=%s is not a rank", local);
    }
    if (node_text != NULL && (!weft__parse_int(node_text, &node) || node < 0)) {
        return weft__fail(WEFT_ERR_INVALID, "job: SLURM_NODEID=%s is not a node", node_text);
    }
    if (list != NULL && !tasks_of_node(list, node, &job->local_size)) {
        return weft__fail(WEFT_ERR_INVALID, "job: %s=%s does not say how many tasks node %d has",
                          list_name, list, node);
    }
    if (job->local_rank >= job->local_size) {
        return weft__fail(WEFT_ERR_INVALID, "job: SLURM_LOCALID=%d is not below the %d tasks of %s",
                          job->local_rank, job->local_size,
                          list != NULL ? list_name : "SLURM_NTASKS");
    }
    return WEFT_OK;
}

/* A batch script sees the variables of a task 0 too, but is no task of a step; nor is an
 * interactive shell, whose step has one of the highest ids. */
static bool is_slurm_step(char *const *environ_p)
{
    const char *step = weft__job_variable(environ_p, "SLURM_STEP_ID");
    return step != NULL && weft__job_variable(environ_p, "SLURM_PROCID") != NULL &&
           strtoull(step, NULL, 10) < 0xfffffff0u;
}

/* ---- the key ----------------------------------------------------------------------------- */

/* Name, parent and start time of a process. */
static bool read_process(pid_t pid, char name[32], pid_t *parent_p, unsigned long long *start_p)
{
    char path[64], line[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    size_t got = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[got] = '\0';
    /* the name may hold anything, ')' too: the last one ends it */
    char *open = strchr(line, '(');
    char *close = strrchr(line, ')');
    int parent;
    if (open == NULL || close == NULL || close < open) {
        return false;
    }
    snprintf(name, 32, "%.*s", (int)(close - open - 1), open + 1);
    if (sscanf(close + 1,
               " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &parent, start_p) != 2) {
        return false;
    }
    *parent_p = parent;
    return true;
}

/* Hydra says nothing that tells two jobs apart, but all ranks of a host have one proxy above them,
 * be it with a shell in between. */
static void mpich_key(char *key, size_t room)
{
    char name[32];
    unsigned long long start;
    pid_t parent = getppid();
    pid_t pid = parent;
    snprintf(key, room, "%d", (int)parent);
    for (int i = 0; i < 32 && pid > 1; i++) {
        pid_t above;
        if (!read_process(pid, name, &above, &start)) {
            return;
        }
        if (strcmp(name, "hydra_pmi_proxy") == 0) {
            snprintf(key, room, "%d.%llu", (int)pid, start);
            return;
        }
        pid = above;
    }
}

/* "" if the launcher said nothing that could serve. */
static void make_key(char *const *environ_p, int which, weft_job_t *job)
{
    char text[1024] = "";
    bool any = false;
    size_t used = 0;
    if (which == LAUNCHER_MPICH) {
        mpich_key(job->key, sizeof(job->key));
        return;
    }
    for (int i = 0; i < KEY_PARTS && launchers[which].key[i] != NULL; i++) {
        const char *value = weft__job_variable(environ_p, launchers[which].key[i]);
        any = any || value != NULL;
        int length = snprintf(text + used, sizeof(text) - used, "%s%s", i > 0 ? "/" : "",
                              value != NULL ? value : "");
        used += (size_t)length < sizeof(text) - used ? (size_t)length : sizeof(text) - used - 1;
    }
    if (!any) {
        return;
    }
    if (used < sizeof(job->key)) {
        memcpy(job->key, text, used + 1);
        return;
    }
    const uint8_t no_key[WEFT_MAC_KEY_BYTES] = {0};
    uint8_t mac[WEFT_MAC_BYTES];
    weft__mac(no_key, text, used, mac);
    weft__secret_print(mac, job->key);
}

/* ---- reading ----------------------------------------------------------------------------- */

static weft_status_t read_launcher(char *const *environ_p, int which, weft_job_t *job,
                                   bool *found_p)
{
    const launcher_t *launcher = &launchers[which];
    bool local;
    weft_status_t status = read_pair(environ_p, launcher->rank, launcher->size, &job->rank,
                                     &job->size, found_p);
    if (status != WEFT_OK || !*found_p) {
        return status;
    }
    job->launcher = launcher->name;
    make_key(environ_p, which, job);
    if (which == LAUNCHER_SLURM) {
        return slurm_local(environ_p, job);
    }
    WEFT_TRY(read_pair(environ_p, launcher->local_rank, launcher->local_size, &job->local_rank,
                       &job->local_size, &local));
    if (!local) {
        job->local_rank = job->rank;
        job->local_size = job->size;
    }
    if (job->local_size > job->size) {
        return weft__fail(WEFT_ERR_INVALID, "job: %s=%d is more than %s=%d", launcher->local_size,
                          job->local_size, launcher->size, job->size);
    }
    return WEFT_OK;
}

weft_status_t weft__job_read(char *const *environ_p, weft_job_t *job_p)
{
    if (environ_p == NULL) {
        environ_p = environ;
    }
    for (int which = LAUNCHER_WEFT; which <= LAUNCHER_SLURM; which++) {
        weft_job_t job = {0};
        bool found = false;
        if (which == LAUNCHER_SLURM && !is_slurm_step(environ_p)) {
            continue;
        }
        /* srun also speaks PMI, but says only in its own words which ranks are on this host */
        if (which == LAUNCHER_MPICH && is_slurm_step(environ_p) &&
            weft__job_variable(environ_p, launchers[which].local_rank) == NULL) {
            continue;
        }
        WEFT_TRY(read_launcher(environ_p, which, &job, &found));
        if (found) {
            *job_p = job;
            return WEFT_OK;
        }
    }
    *job_p = (weft_job_t){.rank = 0, .size = 1, .local_rank = 0, .local_size = 1};
    job_p->launcher = "none";
    return WEFT_OK;
}

static weft_job_t the_job;
static weft_status_t the_job_status;
static char the_job_error[512];

static void read_once(void)
{
    the_job_status = weft__job_read(NULL, &the_job);
    if (the_job_status != WEFT_OK) {
        snprintf(the_job_error, sizeof(the_job_error), "%s", weft_last_error());
        return;
    }
    if (strcmp(the_job.launcher, "none") != 0) {
        if (!weft__settings()->prefixed) {
            weft__log_set_rank(the_job.rank);
        }
        weft__device_set_default(the_job.local_rank);
        weft__device_share(the_job.local_size);
    }
    weft__debug("job: rank %d of %d, %d of %d here, started by %s", the_job.rank, the_job.size,
                the_job.local_rank, the_job.local_size, the_job.launcher);
}

weft_status_t weft__job(const weft_job_t **job_pp)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_once);
    if (the_job_status != WEFT_OK) {
        return weft__fail(the_job_status, "%s", the_job_error);
    }
    *job_pp = &the_job;
    return WEFT_OK;
}

weft_status_t weft__job_check_ranks(const weft_job_t *job, int asked)
{
    static const char *const commands[] = {[LAUNCHER_WEFT] = "weft run",
                                           [LAUNCHER_TORCHRUN] = "torchrun",
                                           [LAUNCHER_OPENMPI] = "mpirun",
                                           [LAUNCHER_MPICH] = "mpirun",
                                           [LAUNCHER_SLURM] = "srun"};
    for (int which = LAUNCHER_WEFT; which <= LAUNCHER_SLURM; which++) {
        if (strcmp(job->launcher, launchers[which].name) == 0 && asked != job->size) {
            return weft__fail(
                WEFT_ERR_INVALID,
                "-n %d contradicts %s, which started %d rank%s: leave -n out, or give "
                "both the same number",
                asked, commands[which], job->size, job->size == 1 ? "" : "s");
        }
    }
    return WEFT_OK;
}

/* ---- the store --------------------------------------------------------------------------- */

static weft_status_t connect_to_launcher(int timeout_ms, weft_store_conn_t **store_p)
{
    uint8_t secret[WEFT_SECRET_BYTES];
    weft_settings_t settings;
    const char *missing = NULL;
    /* as the environment is now, like the rank, not as it was when somebody first looked */
    weft__settings_parse(environ, &settings, NULL);
    if (settings.master_addr[0] == '\0') {
        missing = "WEFT_MASTER_ADDR";
    } else if (settings.master_port < 1) {
        missing = "WEFT_MASTER_PORT";
    } else if (settings.secret[0] == '\0') {
        missing = "WEFT_SECRET";
    }
    if (missing != NULL) {
        return weft__fail(WEFT_ERR_INVALID,
                          "job: WEFT_RANK is set, but %s is not; start ranks with weft run",
                          missing);
    }
    weft_status_t status = weft__secret_parse(settings.secret, secret);
    if (status != WEFT_OK) {
        return weft__fail(status, "job: WEFT_SECRET is not %d hex digits", 2 * WEFT_SECRET_BYTES);
    }
    return weft__store_connect(settings.master_addr, settings.master_port, secret, timeout_ms,
                               store_p);
}

void weft__job_mac(const weft_job_t *job, const char *key, uint8_t mac[WEFT_MAC_BYTES])
{
    const uint8_t no_key[WEFT_MAC_KEY_BYTES] = {0};
    char text[sizeof(job->key) + 64];
    int length = snprintf(text, sizeof(text), "%s/%d/%s", job->launcher, job->size, key);
    weft__mac(no_key, text, (size_t)length, mac);
}

/* The socket's name: the user's id, because the name space is everybody's, and the job's key. */
static weft_status_t make_name(const weft_job_t *job, char *name, size_t room)
{
    uint8_t mac[WEFT_MAC_BYTES];
    char hex[2 * WEFT_MAC_BYTES + 1];
    if (job->size == 1) {
        /* for us alone: no name that another could know */
        WEFT_TRY(weft__random_bytes(mac, sizeof(mac)));
    } else {
        weft__job_mac(job, job->key, mac);
    }
    weft__secret_print(mac, hex);
    snprintf(name, room, "weft-%u-%s", (unsigned)geteuid(), hex);
    return WEFT_OK;
}

weft_status_t weft__job_store(int timeout_ms, weft_store_conn_t **store_p)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static weft_store_server_t *server; /* under the lock, like the name; never stopped */
    static char name[80];
    const weft_job_t *job;
    weft_status_t status = weft__job(&job);
    if (status != WEFT_OK) {
        return status;
    }
    if (timeout_ms == 0) {
        timeout_ms = weft__settings()->timeout == 0 ? -1 : weft__settings()->timeout;
    }
    if (strcmp(job->launcher, "weft") == 0) {
        return connect_to_launcher(timeout_ms, store_p);
    }
    if (job->local_size != job->size) {
        return weft__master_store(job, timeout_ms, store_p);
    }
    if (job->size > 1 && job->key[0] == '\0') {
        return weft__fail(WEFT_ERR_INVALID,
                          "job: nothing tells this job of %d ranks apart from "
                          "another; set MASTER_ADDR and MASTER_PORT",
                          job->size);
    }
    pthread_mutex_lock(&lock);
    if (name[0] == '\0') {
        status = make_name(job, name, sizeof(name));
    }
    if (status == WEFT_OK && job->rank == 0 && server == NULL) {
        status = weft__store_serve_unix(name, &server);
        if (status == WEFT_OK) {
            weft__store_leave_running(server);
        }
    }
    pthread_mutex_unlock(&lock);
    if (status != WEFT_OK) {
        return status;
    }
    return weft__store_connect_unix(name, timeout_ms, store_p);
}

weft_status_t weft__job_ask_grace(double seconds)
{
    const weft_job_t *job;
    weft_store_conn_t *store;
    double most = WEFT_JOB_GRACE_MOST_MS;
    int64_t ms = (int64_t)(seconds * 1e3 < most ? seconds * 1e3 : most);
    weft_status_t status = weft__job(&job);
    if (status != WEFT_OK || strcmp(job->launcher, "weft") != 0) {
        return status;
    }
    WEFT_TRY(weft__job_store(0, &store));
    status = weft__store_set(store, WEFT_JOB_GRACE_KEY, &ms, sizeof(ms));
    weft__store_close(store);
    return status;
}
