/* ctest: timeout=120 serial */
/* GPUs as devices: which kind, their memory and its pool, copies. */
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/data.h"
#include "device/cuda.h"
#include "gpu/gpu.h"

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

static weft_pool_stats_t stats_of(int device)
{
    weft_pool_stats_t stats;
    CHECK_OK(weft_pool_stats(device, &stats));
    return stats;
}

static void *get(size_t bytes)
{
    void *memory = NULL;
    CHECK_OK(weft_malloc(&memory, bytes));
    CHECK(memory);
    return memory;
}

static size_t gpu_free(void)
{
    size_t room, total;
    CHECK_EQ(weft__cuda()->memory(0, &room, &total), 0);
    return room;
}

/* ---- which kind --------------------------------------------------------------------------- */

/* arg: the kind that is expected, or NULL */
static void kind_is(team_t *team)
{
    const char *kind = "";
    if (team->arg) {
        CHECK_OK(weft_device_kind(&kind));
        CHECK(strcmp(kind, team->arg) == 0);
        CHECK_STATUS(weft_device_kind(NULL), WEFT_ERR_INVALID);
        CHECK_OK(weft_free(get(100)));
        return;
    }
    void *memory = NULL;
    weft_stream_h stream = NULL;
    CHECK_STATUS(weft_device_kind(&kind), WEFT_ERR_UNSUPPORTED);
    CHECK_TEXT(weft_last_error(), "WEFT_DEVICE");
    CHECK_STATUS(weft_malloc(&memory, 100), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_stream_create(&stream), WEFT_ERR_UNSUPPORTED);
    CHECK(memory == NULL && stream == NULL);
}

static void kind_with(const char *env, const char *kind)
{
    team_plan_t plan = {.ranks = 1, .bare = true, .env = env, .arg = kind};
    if (!team_run(&plan, kind_is)) {
        fail_msg("with %s", env);
    }
}

static void setting_chooses_the_kind(void **state)
{
    (void)state;
    if (gpu_virtual()) {
        skip();
    }
    kind_with("WEFT_DEVICE=cuda", "cuda");
    kind_with("WEFT_DEVICE=auto", "cuda");
    kind_with("WEFT_DEVICE=cpu", "cpu");
    kind_with("WEFT_DEVICE=gpu", NULL);
    kind_with("WEFT_DEVICE=cuda CUDA_VISIBLE_DEVICES=-1", NULL);
    kind_with("WEFT_DEVICE=auto CUDA_VISIBLE_DEVICES=-1", "cpu");
    kind_with("WEFT_DEVICE=cuda WEFT_CUDA_MODULE=/nowhere.so", NULL);
    kind_with("WEFT_DEVICE=auto WEFT_CUDA_MODULE=/nowhere.so", "cpu");
}

static void devices(team_t *team)
{
    int count = 0, device = -1;
    (void)team;
    CHECK_OK(weft_device_count(&count));
    CHECK(count >= 8);
    CHECK_OK(weft_device_get(&device));
    CHECK_EQ(device, 0);
    CHECK_STATUS(weft_device_set(count), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_device_set(-1), WEFT_ERR_INVALID);
    CHECK_OK(weft_device_set(count - 1));
    CHECK_OK(weft_free(get(1000)));
    CHECK_EQ(stats_of(count - 1).allocs, 1);
    CHECK_EQ(stats_of(0).allocs, 0); /* each has a pool of its own, also on one GPU */
}

/* ---- the pool ------------------------------------------------------------------------------ */

static void statistics(team_t *team)
{
    static const size_t sizes[] = {0, 1, 256, 257, 1000, MIB, MIB + 1, 100 * MIB};
    enum { N = sizeof(sizes) / sizeof(sizes[0]) };
    void *memory[N];
    weft_pool_stats_t stats = stats_of(0);
    size_t in_use = 0;
    (void)team;
    if (!gpu_virtual()) {
        CHECK_EQ(stats.capacity, weft__cuda_props(0)->memory);
    }
    CHECK_EQ(stats.in_use, 0);
    for (int i = 0; i < N; i++) {
        memory[i] = get(sizes[i]);
        CHECK_EQ((uintptr_t)memory[i] % 256, 0);
        in_use += sizes[i] == 0 ? 256 : (sizes[i] + 255) / 256 * 256;
        stats = stats_of(0);
        if (!gpu_virtual()) { /* which round to pages */
            CHECK_EQ(stats.in_use, in_use);
        }
        CHECK_EQ(stats.allocs, i + 1);
        CHECK(stats.reserved >= stats.in_use && stats.reserved <= stats.capacity);
    }
    for (int i = 0; i < N; i++) { /* they do not overlap */
        CHECK_OK(weft_memset(memory[i], i + 1, sizes[i], NULL));
    }
    for (int i = 0; i < N; i++) {
        char ends[2] = {(char)(i + 1), (char)(i + 1)};
        if (sizes[i] > 0) {
            CHECK_OK(weft_memcpy(&ends[0], memory[i], 1, NULL));
            CHECK_OK(weft_memcpy(&ends[1], (char *)memory[i] + sizes[i] - 1, 1, NULL));
        }
        CHECK(ends[0] == i + 1 && ends[1] == i + 1);
        CHECK_OK(weft_free(memory[i]));
    }
    size_t peak = stats.in_use;
    stats = stats_of(0);
    CHECK_EQ(stats.in_use, 0);
    CHECK_EQ(stats.in_use_peak, peak);
    CHECK_EQ(stats.frees, N);
    CHECK_OK(weft_free(NULL));
    CHECK_STATUS(weft_pool_stats(-1, &stats), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_pool_stats(0, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_malloc(NULL, 1), WEFT_ERR_INVALID);
}

static void reuse_and_trim(team_t *team)
{
    (void)team;
    CHECK_OK(weft_free(get(1)));
    CHECK_OK(weft_pool_trim(0, 0));
    CHECK_EQ(stats_of(0).reserved, 0);
    size_t room = gpu_free();
    CHECK_OK(weft_free(get(300 * MIB)));
    weft_pool_stats_t kept = stats_of(0);
    CHECK(kept.reserved >= 300 * MIB); /* for reuse */
    CHECK(gpu_free() + 300 * MIB <= room);
    for (int i = 0; i < 10; i++) {
        CHECK_OK(weft_free(get((size_t)(300 - i) * MIB)));
    }
    CHECK_EQ(stats_of(0).reused, kept.reused + 10);
    CHECK_EQ(stats_of(0).reserved, kept.reserved);
    void *memory = get(MIB);
    CHECK_OK(weft_pool_trim(0, 0)); /* what is in use stays */
    CHECK(stats_of(0).reserved >= MIB);
    CHECK_OK(weft_free(memory));
    CHECK_OK(weft_pool_trim(0, 0));
    CHECK_EQ(stats_of(0).reserved, 0);
    CHECK(gpu_free() + 2 * MIB >= room);
    CHECK_STATUS(weft_pool_trim(-1, 0), WEFT_ERR_INVALID);
}

/* While there is a communicator nothing goes back: freeing would wait for kernels that may wait. */
static void trim_beside_comm(team_t *team)
{
    weft_comm_h comm;
    CHECK_OK(weft_comm_init_rank(&comm, 1, team->id, 0, NULL));
    CHECK_OK(weft_free(get(300 * MIB)));
    CHECK_OK(weft_pool_trim(0, 0));
    CHECK(stats_of(0).reserved >= 300 * MIB);
    CHECK_OK(weft_free(get(300 * MIB))); /* and is still good */
    CHECK_OK(weft_comm_destroy(comm));
    CHECK_EQ(stats_of(0).in_use, 0);
    CHECK_OK(weft_pool_trim(0, 0));
    CHECK_EQ(stats_of(0).reserved, 0);
}

/* With WEFT_POOL_KEEP=0 */
static void nothing_kept(team_t *team)
{
    (void)team;
    CHECK_OK(weft_free(get(300 * MIB)));
    CHECK_EQ(stats_of(0).reserved, 0);
    CHECK_EQ(stats_of(0).reused, 0);
}

/* With WEFT_POOL=0 */
static void no_pool(team_t *team)
{
    weft_unique_id_t id;
    weft_comm_h comm;
    (void)team;
    char *a = get(1000), *b = get(1000);
    CHECK_EQ(stats_of(0).reserved, 2 * 1000);
    CHECK_OK(weft_free(a));
    CHECK_EQ(stats_of(0).reserved, 1000);
    CHECK_OK(weft_unique_id_create(&id));
    CHECK_OK(weft_comm_init_rank(&comm, 1, id, 0, NULL));
    size_t reserved = stats_of(0).reserved;
    CHECK_OK(weft_free(b)); /* kept, as a communicator is open, ... */
    CHECK_EQ(stats_of(0).reserved, reserved);
    CHECK(get(500) != b); /* ... for what is of its size ... */
    CHECK(get(1000) == b);
    CHECK_OK(weft_allreduce(b, b, 250, WEFT_F32, WEFT_SUM, comm, NULL));
    CHECK_OK(weft_free(b));
    CHECK_OK(weft_comm_destroy(comm));
    CHECK_OK(weft_pool_trim(0, 0)); /* ... or until somebody tidies up */
    CHECK_EQ(stats_of(0).reserved, 500);
}

static int64_t number_of(const char *at)
{
    weft_cuda_slab_t slab;
    CHECK(weft__cuda_find(at, 1, &slab));
    return slab.number;
}

static void *free_it(void *memory)
{
    CHECK_OK(weft_free(memory));
    return NULL;
}

/* What a thread has looked up before is what there is now, also when others change it. With
 * WEFT_POOL=0, where every buffer is a slab. */
static void lookups(team_t *team)
{
    weft_cuda_slab_t slab;
    pthread_t thread;
    char *at[10];
    int number;
    (void)team;
    for (int i = 0; i < 10; i++) {
        at[i] = get(1000 + (size_t)i);
    }
    for (int i = 0; i < 30; i++) { /* more than are remembered, some of them again */
        size_t bytes = 1000 + (size_t)(i % 10);
        char *first = at[i % 10], *last = first + bytes - 1;
        CHECK(weft__cuda_find(first, bytes, &slab) && slab.base == first && slab.bytes == bytes);
        CHECK(weft__cuda_find(last, 1, &slab) && slab.base == first);
        CHECK(!weft__cuda_find(first, bytes + 1, &slab) && !weft__cuda_find(last, 2, &slab));
        CHECK(!weft__cuda_find(first - 1, 2, &slab));
    }
    CHECK(weft__cuda_find(at[3], 1, &slab));
    uint64_t id = slab.id;
    CHECK_OK(weft_free(at[3]));
    CHECK(!weft__cuda_find(at[3], 1, &slab));
    at[3] = get(1003);
    CHECK(weft__cuda_find(at[3], 1, &slab) && slab.id != id);
    CHECK(weft__cuda_find(at[4], 1, &slab));
    CHECK(pthread_create(&thread, NULL, free_it, at[4]) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(weft__cuda_find(at[5], 1, &slab));  /* this one is remembered anew, ... */
    CHECK(!weft__cuda_find(at[4], 1, &slab)); /* ... and with it nothing from before */
    at[4] = get(1004);

    weft__cuda_hold();
    CHECK_EQ(number_of(at[0]), -1);
    CHECK(weft__cuda_find(at[0], 1, &slab));
    CHECK_OK(weft__cuda_number(&slab, &number));
    CHECK(number >= 0);
    CHECK_EQ(number_of(at[0]), number);
    weft__cuda_unhold();
    weft__cuda_hold(); /* numbers begin anew */
    CHECK_EQ(number_of(at[0]), -1);
    weft__cuda_unhold();
    for (int i = 0; i < 10; i++) {
        CHECK_OK(weft_free(at[i]));
    }
}

/* More slabs than the list of them begins with. With WEFT_POOL=0. */
static void many_slabs(team_t *team)
{
    enum { MANY = 300 };
    weft_cuda_slab_t slab;
    char *at[MANY];
    (void)team;
    for (int i = 0; i < MANY; i++) {
        at[i] = get(1000);
    }
    for (int i = 0; i < MANY; i++) {
        CHECK(weft__cuda_find(at[i], 1000, &slab) && slab.base == at[i]);
    }
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(weft_free(at[i]));
        CHECK(!weft__cuda_find(at[i], 1000, &slab));
    }
}

/* Ranks of a host share the 64 queues that work under MPS; none needs more than 32. */
static void queues(team_t *team)
{
    const char *variable = "CUDA_DEVICE_MAX_CONNECTIONS", *ranks = getenv("LOCAL_WORLD_SIZE");
    (void)team;
    unsetenv(variable);
    CHECK_OK(weft_free(get(1000)));
    CHECK(getenv(variable) && strcmp(getenv(variable), ranks ? "16" : "32") == 0);
}

static void check_short(size_t bytes, const char *asked)
{
    void *memory = (void *)(uintptr_t)1;
    CHECK_STATUS(weft_malloc(&memory, bytes), WEFT_ERR_NO_MEMORY);
    CHECK(memory == (void *)(uintptr_t)1);
    CHECK_TEXT(weft_last_error(), "weft_malloc");
    CHECK_TEXT(weft_last_error(), "device 0");
    CHECK_TEXT(weft_last_error(), asked);
}

static void shortage(team_t *team)
{
    size_t all = stats_of(0).capacity;
    (void)team;
    check_short(SIZE_MAX / 2, "EiB");
    check_short(all + 1, "GiB");
    if (!gpu_virtual()) {
        check_short(all, "CUDA says"); /* CUDA itself takes some of it */
        CHECK_TEXT(weft_last_error(), "WEFT_DEVICE_MEMORY");
    }
    CHECK_EQ(stats_of(0).in_use, 0);
    CHECK_OK(weft_free(get(MIB)));
}

/* With WEFT_DEVICE_MEMORY=64M */
static void small_device(team_t *team)
{
    (void)team;
    void *memory = get(40 * MIB);
    check_short(40 * MIB, "40 MiB");
    CHECK_TEXT(weft_last_error(), "64 MiB");
    if (!gpu_virtual()) { /* the limit is the setting's, not the GPU's */
        CHECK_TEXT(weft_last_error(), "and the GPU has ");
        CHECK(strstr(weft_last_error(), "and the GPU has 0 ") == NULL);
    }
    CHECK_OK(weft_free(memory));
    CHECK_OK(weft_free(get(40 * MIB)));
}

static void wrong_frees(team_t *team)
{
    char plain[16];
    void *pinned;
    char *memory = get(1000), *other = get(5 * MIB);
    (void)team;
    CHECK_STATUS(weft_free(plain), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "not memory of a device");
    CHECK_STATUS(weft_free(memory + 256), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_free(memory + 1), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_free(other + 2 * MIB), WEFT_ERR_INVALID);
    CHECK_OK(weft_host_malloc(&pinned, 1000));
    CHECK_STATUS(weft_free(pinned), WEFT_ERR_INVALID);
    CHECK_OK(weft_host_free(pinned));
    CHECK_OK(weft_free(memory));
    CHECK_STATUS(weft_free(memory), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "device 0");
    CHECK_OK(weft_free(other));
    CHECK_EQ(stats_of(0).in_use, 0);
    CHECK_EQ(stats_of(0).frees, 2);
}

/* Memory of all devices, taken and given back by many threads at once. */
static void *churn(void *arg)
{
    int me = (int)(intptr_t)arg;
    enum { HELD = 8 };
    struct {
        void *at;
        size_t bytes;
        int value;
    } held[HELD] = {{0}};
    CHECK_OK(weft_device_set(me % 4));
    for (int i = 0; i < 400 + HELD; i++) {
        uint64_t x = data_mix((uint64_t)me << 32 | (uint64_t)i);
        char *ends[2], seen[2];
        if (held[i % HELD].at) {
            ends[0] = held[i % HELD].at;
            ends[1] = ends[0] + held[i % HELD].bytes - 1;
            for (int k = 0; k < 2; k++) {
                CHECK_OK(weft_memcpy(&seen[k], ends[k], 1, NULL));
                CHECK_EQ(seen[k], held[i % HELD].value);
            }
            CHECK_OK(weft_free(held[i % HELD].at));
            held[i % HELD].at = NULL;
        }
        if (i < 400) {
            held[i % HELD].bytes = x % (x & 64 ? 3 * MIB : 5000) + 1;
            held[i % HELD].value = (int)(x >> 40 & 127);
            held[i % HELD].at = get(held[i % HELD].bytes);
            CHECK_OK(
                weft_memset(held[i % HELD].at, held[i % HELD].value, held[i % HELD].bytes, NULL));
        }
    }
    return NULL;
}

static void many_threads(team_t *team)
{
    pthread_t threads[8];
    (void)team;
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, churn, (void *)(intptr_t)i), 0);
    }
    for (int i = 0; i < 8; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    }
    for (int d = 0; d < 4; d++) {
        CHECK_EQ(stats_of(d).in_use, 0);
        CHECK_EQ(stats_of(d).allocs, 800);
        CHECK_EQ(stats_of(d).frees, 800);
    }
}

/* ---- copies -------------------------------------------------------------------------------- */

/* There and back again by all roads. */
static void round_trip(char *plain, char *back, size_t bytes, weft_stream_h stream)
{
    char *a = get(bytes + 64), *b = get(bytes + 64);
    void *pinned;
    CHECK_OK(weft_host_malloc(&pinned, bytes));
    memset(pinned, 0, bytes);
    memset(back, 0, bytes);
    CHECK_OK(weft_memcpy(a + 3, plain, bytes, stream)); /* odd addresses */
    CHECK_OK(weft_memcpy(b + 8, a + 3, bytes, stream));
    CHECK_OK(weft_memcpy(pinned, b + 8, bytes, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK(memcmp(pinned, plain, bytes) == 0);
    CHECK_OK(weft_memset(a, 0, bytes + 64, stream));
    CHECK_OK(weft_memcpy(a + 1, pinned, bytes, stream));
    CHECK_OK(weft_memcpy(back, a + 1, bytes, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK(memcmp(back, plain, bytes) == 0);
    CHECK_OK(weft_host_free(pinned));
    CHECK_OK(weft_free(a));
    CHECK_OK(weft_free(b));
}

static void copies(team_t *team)
{
    static const size_t sizes[] = {1, 3, 255, 4096, 65537, 1000003, 50000017};
    weft_stream_h stream;
    size_t most = sizes[sizeof(sizes) / sizeof(sizes[0]) - 1];
    char *plain = malloc(most), *back = malloc(most);
    (void)team;
    CHECK(plain && back);
    for (size_t i = 0; i < most; i++) {
        plain[i] = (char)(i * 7 + i / 251);
    }
    CHECK_OK(weft_stream_create(&stream));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        team_note("%zu bytes", sizes[i]);
        round_trip(plain, back, sizes[i], NULL);
        round_trip(plain, back, sizes[i], stream);
    }
    memset(back, 0, 1000);
    CHECK_OK(weft_memcpy(back, plain, 1000, NULL)); /* all on the host */
    CHECK(memcmp(back, plain, 1000) == 0);
    CHECK_OK(weft_stream_destroy(stream));
    free(plain);
    free(back);
}

static void check_moved(char *memory, size_t from, size_t to, size_t bytes, weft_stream_h stream)
{
    unsigned char *seen = malloc(MIB);
    CHECK(seen);
    for (size_t i = 0; i < MIB; i++) {
        seen[i] = (unsigned char)(i / 3);
    }
    CHECK_OK(weft_memcpy(memory, seen, MIB, NULL));
    CHECK_OK(weft_memcpy(memory + to, memory + from, bytes, stream));
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK_OK(weft_memcpy(seen, memory, MIB, NULL));
    for (size_t i = 0; i < MIB; i++) {
        size_t was = i >= to && i < to + bytes ? i - to + from : i;
        CHECK_EQ(seen[i], (unsigned char)(was / 3));
    }
    free(seen);
}

static void overlapping_copies(team_t *team)
{
    weft_stream_h stream;
    char *memory = get(MIB);
    (void)team;
    CHECK_OK(weft_stream_create(&stream));
    size_t used = stats_of(0).in_use;
    for (int i = 0; i < 2; i++) {
        weft_stream_h on = i ? stream : NULL;
        check_moved(memory, 0, 100, 900000, on);
        check_moved(memory, 100, 0, 900000, on);
        check_moved(memory, 500, 500, 1000, on);
        check_moved(memory, 1, 2, 3, on);
    }
    CHECK_EQ(stats_of(0).in_use, used); /* what was between is given back */
    CHECK_OK(weft_stream_destroy(stream));
    CHECK_OK(weft_free(memory));
}

static void fills(team_t *team)
{
    weft_stream_h stream;
    char *memory = get(10000), seen[10000], plain[100];
    void *pinned;
    (void)team;
    CHECK_OK(weft_stream_create(&stream));
    CHECK_OK(weft_host_malloc(&pinned, 100));
    for (int i = 0; i < 2; i++) {
        weft_stream_h on = i ? stream : NULL;
        CHECK_OK(weft_memset(memory, 1, 10000, on));
        CHECK_OK(weft_memset(memory + 3, 2 + i, 9990, on));
        CHECK_OK(weft_memset(pinned, 3 + i, 100, on));
        CHECK_OK(weft_stream_synchronize(on));
        CHECK_OK(weft_memcpy(seen, memory, 10000, NULL));
        for (int k = 0; k < 10000; k++) {
            CHECK_EQ(seen[k], k >= 3 && k < 9993 ? 2 + i : 1);
        }
        CHECK_EQ(((char *)pinned)[99], 3 + i);
        memset(plain, 0, sizeof(plain));
        CHECK_OK(weft_memset(plain, 4 + i, 99, on)); /* any memory, says device.h */
        CHECK_OK(weft_stream_synchronize(on));
        CHECK(plain[0] == 4 + i && plain[98] == 4 + i && plain[99] == 0);
    }
    CHECK_OK(weft_memcpy(NULL, NULL, 0, NULL));
    CHECK_OK(weft_memset(NULL, 1, 0, stream));
    CHECK_STATUS(weft_memcpy(memory, NULL, 4, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_memset(NULL, 1, 4, stream), WEFT_ERR_INVALID);
    CHECK_OK(weft_host_free(pinned));
    CHECK_OK(weft_host_free(NULL));
    CHECK_OK(weft_stream_destroy(stream));
    CHECK_OK(weft_free(memory));
}

/* CUDA does not survive a fork: the child is refused, and the parent goes on. */
static void forked(team_t *team)
{
    void *memory = get(1000), *more = NULL;
    weft_stream_h stream = NULL;
    (void)team;
    pid_t pid = fork();
    if (pid == 0) {
        bool refused = weft_malloc(&more, 10) == WEFT_ERR_UNSUPPORTED &&
                       weft_free(memory) == WEFT_ERR_UNSUPPORTED &&
                       weft_stream_create(&stream) == WEFT_ERR_UNSUPPORTED;
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    CHECK(pid > 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK_OK(weft_memset(memory, 1, 1000, NULL));
    CHECK_OK(weft_free(memory));
}

/* ---- the tests ------------------------------------------------------------------------------ */

#define DEVICE_TEST(name, fn, settings)                                                            \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.ranks = 1, .bare = true, .env = settings}, fn));      \
    }

/* The same, of what virtual GPUs do otherwise. */
#define GPU_TEST(name, fn, settings)                                                               \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        if (gpu_virtual()) {                                                                       \
            skip();                                                                                \
        }                                                                                          \
        assert_true(team_run(&(team_plan_t){.ranks = 1, .bare = true, .env = settings}, fn));      \
    }

DEVICE_TEST(devices_have_pools_of_their_own, devices, NULL)
DEVICE_TEST(pool_counts_what_it_hands_out, statistics, NULL)
GPU_TEST(pool_reuses_and_trims, reuse_and_trim, NULL)
GPU_TEST(pool_gives_nothing_back_beside_a_comm, trim_beside_comm, NULL)
GPU_TEST(pool_keeps_nothing_if_told_so, nothing_kept, "WEFT_POOL_KEEP=0")
GPU_TEST(without_a_pool_each_has_its_own, no_pool, "WEFT_POOL=0")
GPU_TEST(lookups_follow_every_change, lookups, "WEFT_POOL=0")
GPU_TEST(slabs_may_be_many, many_slabs, "WEFT_POOL=0")
GPU_TEST(one_rank_has_queues_enough, queues, NULL)
GPU_TEST(four_ranks_share_the_queues, queues, "LOCAL_WORLD_SIZE=4")
GPU_TEST(lack_of_memory_is_told, shortage, NULL)
DEVICE_TEST(limit_of_a_device_is_told, small_device, "WEFT_DEVICE_MEMORY=64M")
DEVICE_TEST(wrong_pointers_are_not_freed, wrong_frees, NULL)
DEVICE_TEST(threads_share_the_pools, many_threads, NULL)
DEVICE_TEST(copies_by_all_roads, copies, NULL)
DEVICE_TEST(copies_may_overlap, overlapping_copies, NULL)
DEVICE_TEST(fills_any_memory, fills, NULL)
DEVICE_TEST(forked_child_is_refused, forked, NULL)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_chooses_the_kind),
        cmocka_unit_test(devices_have_pools_of_their_own),
        cmocka_unit_test(pool_counts_what_it_hands_out),
        cmocka_unit_test(pool_reuses_and_trims),
        cmocka_unit_test(pool_gives_nothing_back_beside_a_comm),
        cmocka_unit_test(pool_keeps_nothing_if_told_so),
        cmocka_unit_test(without_a_pool_each_has_its_own),
        cmocka_unit_test(lookups_follow_every_change),
        cmocka_unit_test(slabs_may_be_many),
        cmocka_unit_test(one_rank_has_queues_enough),
        cmocka_unit_test(four_ranks_share_the_queues),
        cmocka_unit_test(lack_of_memory_is_told),
        cmocka_unit_test(limit_of_a_device_is_told),
        cmocka_unit_test(wrong_pointers_are_not_freed),
        cmocka_unit_test(threads_share_the_pools),
        cmocka_unit_test(copies_by_all_roads),
        cmocka_unit_test(copies_may_overlap),
        cmocka_unit_test(fills_any_memory),
        cmocka_unit_test(forked_child_is_refused),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
