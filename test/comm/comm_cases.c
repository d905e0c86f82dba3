#include "comm/comm_cases.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/memory.h"
#include "device/cuda.h"

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
void comm_colours(team_t *team)
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

void comm_negative_colour(team_t *team)
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
void comm_keys(team_t *team)
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
void comm_split_of_split(team_t *team)
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
void comm_split_config(team_t *team)
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

/* What communicators may take and must give back. */
typedef struct usage {
    int files, leftovers;
    long resident;
    size_t in_use, reserved; /* of all pools */
    size_t gpu_free;
} usage_t;

static usage_t usage_now(void)
{
    usage_t usage = {0};
    int devices;
    CHECK_OK(weft_device_count(&devices));
    for (int d = 0; d < devices; d++) {
        weft_pool_stats_t stats;
        CHECK_OK(weft_pool_stats(d, &stats));
        usage.in_use += stats.in_use;
        usage.reserved += stats.reserved;
    }
    if (weft__device_is_cuda()) {
        size_t total;
        CHECK_EQ(weft__cuda()->memory(0, &usage.gpu_free, &total), 0);
    }
    usage.files = team_open_files(); /* asking for statistics may have opened some */
    usage.leftovers = team_leftovers();
    usage.resident = resident_bytes();
    return usage;
}

static void check_usage(const usage_t *before)
{
    /* The store closes connections in a thread of its own: soon, not at once, in `before` as
     * well. */
    for (int i = 0; i < 1000 && team_open_files() > before->files; i++) {
        team_sleep(0.01);
    }
    usage_t now = usage_now();
    bool cuda = weft__device_is_cuda();
    if (now.files > before->files) {
        FAIL("200 communicators left %d open files", now.files - before->files);
    }
    CHECK(!team_left_more(before->leftovers));
    CHECK_EQ(now.in_use, before->in_use);
    CHECK_EQ(now.reserved, before->reserved);
    /* The driver keeps something of its own now and then. */
    if (cuda && now.gpu_free + (16 << 20) < before->gpu_free) {
        FAIL("200 communicators left %zu bytes on the GPU", before->gpu_free - now.gpu_free);
    }
    long most = cuda ? 4 << 20 : 1 << 20;
    if (!UNDER_SANITIZER && now.resident - before->resident > most) { /* they keep what was freed */
        FAIL("200 communicators left %ld bytes", now.resident - before->resident);
    }
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
    CHECK_OK(weft_comm_destroy(comm));
    free(x);
}

void comm_growth(team_t *team)
{
    for (int i = 0; i < 80; i++) { /* handles in stock, pools and caches fill up first */
        make_and_destroy(team, i);
    }
    bool looks = team->rank % (team->size / team->procs) == 0; /* one rank of each process */
    usage_t before = {0};
    team_meet(team);
    team_sleep(0.2); /* the store notices a little later that its clients are gone */
    if (looks) {
        before = usage_now();
    }
    team_meet(team);
    for (int i = 0; i < 200; i++) {
        make_and_destroy(team, i);
    }
    team_meet(team);
    team_sleep(0.2);
    if (looks) {
        check_usage(&before);
    }
    team_meet(team);
}

void comm_growth_all(team_t *team)
{
    (void)team;
    weft_comm_h comms[8];
    usage_t before = {0};
    for (int i = 0; i < 280; i++) {
        if (i == 80) {
            before = usage_now();
        }
        team_note("communicators %d of init_all", i);
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
    check_usage(&before);
}

/* ---- calls of others meanwhile --------------------------------------------------------------- */

#define BUSY 3000

typedef struct busy {
    weft_comm_h comm;
    int rank, size;
    _Atomic int stop;
    int calls;
} busy_t;

/* All-reduces without end: until all ranks have seen that one wants to stop. */
static void *keep_calling(void *arg)
{
    busy_t *busy = arg;
    buffer_t in, out;
    int device;
    CHECK_OK(weft_comm_device(busy->comm, &device));
    CHECK_OK(weft_device_set(device));
    buffer_open(&in, BUSY * sizeof(int32_t), false);
    buffer_open(&out, BUSY * sizeof(int32_t), false);
    int32_t *give = (int32_t *)(void *)in.host, *got = (int32_t *)(void *)out.host;
    do {
        for (int i = 0; i < BUSY; i++) {
            give[i] = i ? busy->rank + i + busy->calls : atomic_load(&busy->stop);
        }
        buffer_push_all(&in);
        CHECK_OK(weft_allreduce(in.at, out.at, BUSY, WEFT_I32, WEFT_MAX, busy->comm, NULL));
        buffer_pull_all(&out);
        for (int i = 1; i < BUSY; i++) {
            CHECK_EQ(got[i], busy->size - 1 + i + busy->calls);
        }
        busy->calls++;
    } while (got[0] == 0);
    buffer_close(&in);
    buffer_close(&out);
    return NULL;
}

void comm_busy(team_t *team)
{
    pthread_t thread;
    busy_t busy = {.rank = team->rank, .size = team->size};
    CHECK_OK(weft_comm_split(team->comm, 0, team->rank, &busy.comm, NULL));
    CHECK_EQ(pthread_create(&thread, NULL, keep_calling, &busy), 0);
    for (int i = 0; i < 50; i++) {
        make_and_destroy(team, i);
    }
    atomic_store(&busy.stop, 1);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(busy.calls > 1);
    CHECK_OK(weft_comm_destroy(busy.comm));
}

/* What Weft itself takes, before the user allocates. */
void comm_memory(team_t *team)
{
    CHECK_EQ(sum_over(team->comm, 1), team->size);
    if (!UNDER_SANITIZER && resident_bytes() > 32 << 20) {
        FAIL("a rank of %d takes %ld bytes", team->size, resident_bytes());
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

void comm_destroyed(team_t *team)
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

/* One rule for all calls that take a device. */
static void check_devices_beyond(void)
{
    int count = 0;
    weft_comm_h comms[2] = {NULL};
    CHECK_OK(weft_device_count(&count));
    int beyond[2] = {0, count};
    CHECK_STATUS(weft_device_set(count), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_comm_init_all(comms, 2, beyond), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "WEFT_DEVICES");
    beyond[1] = count - 1;
    CHECK_OK(weft_comm_init_all(comms, 2, beyond));
    CHECK_OK(weft_comm_destroy(comms[0]));
    CHECK_OK(weft_comm_destroy(comms[1]));
}

void comm_arguments(team_t *team)
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
    weft_unique_id_t endless =
        team->id; /* behind magic, key, secret and port: the host, without its NUL */
    memset(endless.bytes + 36, 'x', sizeof(endless.bytes) - 36);
    CHECK_STATUS(weft_comm_init_rank(&comm, 1, endless, 0, NULL), WEFT_ERR_INVALID);
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
    check_devices_beyond();
    CHECK_STATUS(weft_comm_init_job(NULL, NULL), WEFT_ERR_INVALID);
    CHECK(comm == NULL);
    config.algo = NULL;
    CHECK_OK(weft_comm_init_rank(&comm, 1, team->id, 0, &config));
    CHECK_STATUS(weft_comm_rank(comm, NULL), WEFT_ERR_INVALID);
    CHECK_EQ(sum_over(comm, 5), 5);
    CHECK_OK(weft_comm_destroy(comm));
}

/* The third joins as ranks that are there already. */
void comm_duplicate(team_t *team)
{
    weft_comm_h comm = NULL;
    weft_comm_config_t config = team_config();
    if (team->rank == 2) {
        team_meet(team);
        for (int rank = 1; rank >= 0; rank--) {
            CHECK_STATUS(weft_comm_init_rank(&comm, 2, team->id, rank, &config), WEFT_ERR_INVALID);
            CHECK_TEXT(weft_last_error(), rank == 0 ? "rank 0" : "rank 1");
            CHECK_TEXT(weft_last_error(), "has joined already");
            CHECK(comm == NULL);
        }
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

/* Two are rank 0 before anybody is rank 1: one of them is told so at once, the other one joins. */
void comm_duplicate_first(team_t *team)
{
    _Atomic int *refused = (_Atomic int *)team->shared;
    weft_comm_h comm = NULL;
    weft_comm_config_t config = team_config();
    config.timeout_ms = 0; /* who waits, waits for ever */
    if (team->rank == 2) {
        while (atomic_load(refused) == 0) {
            team_sleep(1e-3);
        }
    }
    weft_status_t status = weft_comm_init_rank(&comm, 2, team->id, team->rank == 2, &config);
    if (status == WEFT_ERR_INVALID && team->rank != 2) {
        CHECK_TEXT(weft_last_error(), "rank 0 of this communicator has joined already");
        CHECK(comm == NULL);
        CHECK_EQ(atomic_fetch_add(refused, 1), 0);
    } else {
        CHECK_EQ(status, WEFT_OK);
        CHECK_EQ(sum_over(comm, 1), 2);
        CHECK_OK(weft_comm_destroy(comm));
    }
    team_meet(team); /* the id is of team rank 0's process */
}

/* A rank 0 that gave up, as nobody came, may try again with the same id. */
void comm_first_again(team_t *team)
{
    weft_comm_h comm = NULL;
    weft_comm_config_t config = team_config();
    const char *engine = getenv("WEFT_ENGINE");
    if (engine && strcmp(engine, "nccl") == 0) {
        puts("skipped: through NCCL nobody joins twice, as the first to give up ends it for all");
        return;
    }
    if (team->rank == 0) {
        config.timeout_ms = 50;
        CHECK_STATUS(weft_comm_init_rank(&comm, 2, team->id, 0, &config), WEFT_ERR_TIMEOUT);
    }
    team_meet(team);
    config = team_config();
    weft_status_t status = weft_comm_init_rank(&comm, 2, team->id, team->rank, &config);
    while (team->rank == 1 && status != WEFT_OK) { /* it found what is left of the first try */
        team_sleep(1e-3);
        status = weft_comm_init_rank(&comm, 2, team->id, 1, &config);
    }
    CHECK_EQ(status, WEFT_OK);
    CHECK_EQ(sum_over(comm, 1), 2);
    CHECK_OK(weft_comm_destroy(comm));
}

/* Rank 1 believes in three ranks, rank 0 in two: both are told, at once. */
void comm_sizes_differ(team_t *team)
{
    weft_comm_h comm = NULL;
    weft_comm_config_t config = team_config();
    double start = team_now();
    CHECK_STATUS(weft_comm_init_rank(&comm, 2 + team->rank, team->id, team->rank, &config),
                 WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "2");
    CHECK_TEXT(weft_last_error(), "3");
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK(comm == NULL);
}

/* Settings that must be the same on all ranks. */
void comm_settings_differ(team_t *team)
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
void comm_after_fork(team_t *team)
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

void comm_late(team_t *team)
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
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK(comm == NULL);
    team_meet(team);
}

void comm_first_late(team_t *team)
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

/* ---- other ways to make one --------------------------------------------------------------- */

void comm_job_of_one(team_t *team)
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
void comm_devices(team_t *team)
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
void comm_leaving(team_t *team)
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
