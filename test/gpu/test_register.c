/* ctest: timeout=180 serial */
/* Memory that is not from weft_malloc, as another library would take it from CUDA: calls work on
 * it, and once it is registered they copy nothing. */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"

#include <cmocka.h>

#include "comm/comm.h"
#include "device/cuda.h"

#define LARGE ((size_t)(4 << 20) + 3) /* floats: beyond what travels by the LL protocol */
#define SMALL ((size_t)100)
#define MANY 20

static void *take(const team_t *team, size_t bytes)
{
    void *ptr = NULL;
    if (gpu_virtual()) {
        ptr = malloc(bytes);
        CHECK(ptr);
    } else {
        int gpu = weft__cuda_gpu(team->comm->device);
        CHECK_EQ(weft__cuda()->alloc(gpu, &ptr, bytes), 0);
    }
    return ptr;
}

static uint64_t allocs(const team_t *team)
{
    weft_pool_stats_t stats;
    CHECK_OK(weft_pool_stats(team->comm->device, &stats));
    return stats.allocs;
}

typedef struct memory {
    float *src, *dst, *host;
} memory_t;

/* Everything a call writes is compared. */
static void check_sum(team_t *team, const memory_t *m, float *dst, size_t count, const char *what)
{
    team_note("%s, %zu floats", what, count);
    for (size_t i = 0; i < count; i++) {
        m->host[i] = (float)((size_t)(team->rank + 1) * (i % 1000));
    }
    CHECK_OK(weft_memcpy(m->src, m->host, count * sizeof(float), NULL));
    CHECK_OK(weft_allreduce(m->src, dst, count, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_OK(weft_memcpy(m->host, dst, count * sizeof(float), NULL));
    size_t ranks = (size_t)(team->size * (team->size + 1) / 2);
    for (size_t i = 0; i < count; i++) {
        if (m->host[i] != (float)(ranks * (i % 1000))) {
            FAIL("element %zu is %g", i, (double)m->host[i]);
        }
    }
}

/* Small all-reduces of a group, each from and to a place of its own. */
static void check_group(team_t *team, const memory_t *m)
{
    team_note("a group");
    for (size_t i = 0; i < MANY * SMALL; i++) {
        m->host[i] = (float)((size_t)team->rank + i);
    }
    CHECK_OK(weft_memcpy(m->src, m->host, MANY * SMALL * sizeof(float), NULL));
    CHECK_OK(weft_group_start());
    for (size_t i = 0; i < MANY; i++) {
        CHECK_OK(weft_allreduce(m->src + i * SMALL, m->dst + i * SMALL, SMALL - i, WEFT_F32,
                                WEFT_MAX, team->comm, NULL));
    }
    CHECK_OK(weft_group_end());
    CHECK_OK(weft_memcpy(m->host, m->dst, MANY * SMALL * sizeof(float), NULL));
    for (size_t i = 0; i < MANY * SMALL; i++) {
        if (i % SMALL < SMALL - i / SMALL) {
            CHECK(m->host[i] == (float)((size_t)team->size - 1 + i));
        }
    }
}

static void check_messages(team_t *team, const memory_t *m)
{
    team_note("messages");
    int next = (team->rank + 1) % team->size, before = (team->rank + team->size - 1) % team->size;
    for (size_t i = 0; i < LARGE; i++) {
        m->host[i] = (float)((size_t)team->rank + i % 1000);
    }
    CHECK_OK(weft_memcpy(m->src, m->host, LARGE * sizeof(float), NULL));
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_send(m->src, LARGE, WEFT_F32, next, team->comm, NULL));
    CHECK_OK(weft_recv(m->dst, LARGE, WEFT_F32, before, team->comm, NULL));
    CHECK_OK(weft_group_end());
    CHECK_OK(weft_memcpy(m->host, m->dst, LARGE * sizeof(float), NULL));
    for (size_t i = 0; i < LARGE; i++) {
        if (m->host[i] != (float)((size_t)before + i % 1000)) {
            FAIL("element %zu is %g", i, (double)m->host[i]);
        }
    }
}

static bool staged(const team_t *team, uint64_t start)
{
    return !gpu_virtual() && allocs(team) > start;
}

static bool small_calls(team_t *team, const memory_t *m, const char *what)
{
    uint64_t start = allocs(team);
    check_sum(team, m, m->dst, SMALL, what);
    check_sum(team, m, m->src, SMALL, what);
    check_group(team, m);
    return staged(team, start);
}

/* Is something staged in such a call? */
static bool large_calls(team_t *team, const memory_t *m, const char *what)
{
    uint64_t start = allocs(team);
    check_sum(team, m, m->dst, LARGE, what);
    check_sum(team, m, m->src, LARGE, what);
    check_messages(team, m);
    return staged(team, start);
}

static void foreign_memory(team_t *team)
{
    size_t bytes = LARGE * sizeof(float);
    char *both = take(team, 2 * bytes);
    memory_t m = {(float *)both, (float *)(both + bytes), malloc(bytes)};
    bool several = team->arg != NULL; /* processes: others do not reach the memory */
    CHECK(m.host);
    /* Our own GPU reaches it: that is enough for small calls. */
    CHECK(!small_calls(team, &m, "not registered"));
    CHECK_EQ(large_calls(team, &m, "not registered"), several && !gpu_virtual());
    CHECK_OK(weft_register(m.src, bytes));
    CHECK_OK(weft_register(m.dst, bytes));
    CHECK(!small_calls(team, &m, "registered"));
    CHECK(!large_calls(team, &m, "registered"));
    CHECK_OK(weft_unregister(m.src));
    CHECK(!large_calls(team, &m, "registered once"));
    CHECK_OK(weft_unregister(m.dst));
    CHECK_EQ(large_calls(team, &m, "no more registered"), several && !gpu_virtual());
    /* Each rank for itself. */
    CHECK_OK(team->rank % 2 ? weft_register(both, 1) : WEFT_OK);
    large_calls(team, &m, "registered by odd ranks");
    team_meet(team);
    free(m.host);
}

static void host_memory(team_t *team)
{
    size_t bytes = LARGE * sizeof(float);
    memory_t m = {malloc(bytes), malloc(bytes), malloc(bytes)};
    CHECK(m.src && m.dst && m.host);
    CHECK(!small_calls(team, &m, "host memory")); /* the GPU works on pinned memory in its place */
    large_calls(team, &m, "host memory");
    CHECK_OK(weft_register(m.src, bytes));
    CHECK_OK(weft_register(m.dst, bytes));
    CHECK_OK(weft_register(m.src, bytes)); /* pinned already: counted */
    CHECK(!small_calls(team, &m, "pinned host memory"));
    large_calls(team, &m, "pinned host memory");
    team_meet(team);
    CHECK_OK(weft_unregister(m.src));
    CHECK_OK(weft_unregister(m.src));
    CHECK_OK(weft_unregister(m.dst));
    free(m.src);
    free(m.dst);
    free(m.host);
}

static void run(team_fn fn, int ranks, int procs)
{
    assert_true(team_run(
        &(team_plan_t){
            .ranks = ranks, .procs = procs, .limit_s = 60, .arg = procs > 1 ? &procs : NULL},
        fn));
}

static void threads(void **state)
{
    (void)state;
    run(foreign_memory, 1, 1);
    run(foreign_memory, 3, 1);
}

static void processes(void **state)
{
    (void)state;
    if (!gpu_processes()) {
        skip();
    }
    run(foreign_memory, 2, 2);
    run(foreign_memory, 4, 4);
    run(host_memory, 2, 2);
}

/* Only one GPU's worth of threads at a time may unregister host memory: it waits for the GPU. */
static void host_memory_of_one(void **state)
{
    (void)state;
    run(host_memory, 1, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads),
        cmocka_unit_test(processes),
        cmocka_unit_test(host_memory_of_one),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
