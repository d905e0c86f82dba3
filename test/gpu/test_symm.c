/* ctest: timeout=240 serial */
/* Symmetric heaps on GPUs: calls of the host, and a user's own kernels. Prints what it measured. */
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/cuda.h"
#include "gpu/gpu.h"
#include "gpu/kernels_symm.h"
#include "symm/shared_cases.h"

#include <cmocka.h>

#define PINNED(type, name, count)                                                                  \
    type *name;                                                                                    \
    CHECK_OK(weft_host_malloc((void **)&name, (count) * sizeof(type)));                            \
    memset(name, 0, (count) * sizeof(type))

/* What a rank needs to run kernels of its own. */
typedef struct rig {
    weft_symm_h symm;
    weft_symm_view_t view;
    weft_stream_h stream;
    void *native;
    const symm_kernels_t *kernels;
} rig_t;

static void rig_open(rig_t *rig, team_t *team, size_t bytes)
{
    char path[4096];
    int device;
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 32);
    CHECK(length > 0);
    path[length] = '\0';
    char *slash = strrchr(path, '/'); /* the library lies beside this program */
    snprintf(slash + 1, 32, "kernels_symm.so");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        FAIL("the kernels of this test cannot be loaded: %s", dlerror());
    }
    rig->kernels = dlsym(library, "symm_kernels");
    CHECK(rig->kernels);
    CHECK_OK(weft_comm_device(team->comm, &device));
    CHECK_EQ(rig->kernels->load(weft__cuda_gpu(device)), 0);
    rig->symm = symm_open(team, bytes);
    CHECK_OK(weft_symm_view(rig->symm, &rig->view));
    CHECK_OK(weft_stream_create(&rig->stream));
    CHECK_OK(weft_stream_native(rig->stream, &rig->native));
    CHECK_OK(weft_barrier(team->comm, NULL));
}

static void rig_close(rig_t *rig)
{
    CHECK_OK(weft_stream_destroy(rig->stream));
    CHECK_OK(weft_symm_destroy(rig->symm));
}

/* ---- kernels ---------------------------------------------------------------------------- */

static void all_scopes(team_t *team)
{
    rig_t rig;
    PINNED(uint32_t, errors, 2);
    rig_open(&rig, team, 1 << 20);
    symm_check_t check = {.areas = symm_take(rig.symm, SYMM_CHECK_AREAS * SYMM_CHECK_BYTES),
                          .flags = symm_take(rig.symm, 3 * 8),
                          .words = symm_take(rig.symm, 8 * 8),
                          .rounds = team_short() ? 6 : 60,
                          .seed = symm_seed(team),
                          .errors = errors};
    CHECK_EQ(rig.kernels->check(&rig.view, &check, rig.native), 0);
    CHECK_OK(weft_stream_synchronize(rig.stream));
    CHECK_OK(weft_symm_error(rig.symm));
    if (errors[0] != 0) {
        FAIL("%u errors, the first one at %u", errors[0], errors[1]);
    }
    CHECK_OK(weft_host_free(errors));
    rig_close(&rig);
}

static void tensor_in_kernel(team_t *team)
{
    enum { ROWS = 1000, WORDS = 6 };
    rig_t rig;
    weft_dtensor_h tensor;
    weft_dtensor_view_t view;
    uint64_t row[WORDS], want = 0;
    PINNED(uint64_t, sum, 1);
    rig_open(&rig, team, 1 << 20);
    CHECK_OK(weft_dtensor_create(rig.symm, ROWS, sizeof(row), NULL, &tensor));
    for (uint64_t i = 0; i < ROWS; i++) {
        for (uint64_t k = 0; k < WORDS; k++) {
            row[k] = i * 1000 + k;
            want += row[k];
        }
        if (i % (uint64_t)team->size == (uint64_t)team->rank) {
            CHECK_OK(weft_dtensor_put(tensor, i, 1, row, NULL));
        }
    }
    CHECK_OK(weft_symm_barrier(rig.symm, NULL));
    CHECK_OK(weft_dtensor_view(tensor, &view));
    CHECK_EQ(rig.kernels->sum(&rig.view, &view, ROWS, sum, rig.native), 0);
    CHECK_OK(weft_stream_synchronize(rig.stream));
    CHECK_EQ(*sum, want);
    CHECK_OK(weft_symm_barrier(rig.symm, NULL));
    CHECK_OK(weft_dtensor_destroy(tensor));
    CHECK_OK(weft_host_free(sum));
    rig_close(&rig);
}

/* What only virtual GPUs have says so. */
static void host_structures(team_t *team)
{
    weft_symm_h symm = symm_open(team, 1 << 16);
    weft_map_h map;
    weft_ring_h ring;
    weft_work_h work;
    weft_params_h params;
    const void *ptr;
    uint64_t version;
    char plain[64];
    CHECK_STATUS(weft_map_create(symm, 10, 8, &map), WEFT_ERR_UNSUPPORTED);
    CHECK_TEXT(weft_last_error(), "virtual GPUs only");
    CHECK_STATUS(weft_ring_create(symm, 10, 8, &ring), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_work_create(symm, 10, 8, &work), WEFT_ERR_UNSUPPORTED);
    CHECK_OK(weft_params_create(symm, sizeof(plain), &params));
    CHECK_STATUS(weft_params_acquire(params, &ptr, &version), WEFT_ERR_UNSUPPORTED);
    CHECK_STATUS(weft_params_swap(params, plain, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "weft_host_malloc");
    CHECK_OK(weft_params_destroy(params));
    CHECK_OK(weft_symm_destroy(symm));
}

/* ---- measurements ----------------------------------------------------------------------- */

#define HANDOFF ((size_t)64 << 10)
#define ROUNDS 500
#define REPEATS 7

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void say(team_t *team, const char *what, double *us, const char *target)
{
    qsort(us, REPEATS, sizeof(*us), compare_doubles);
    if (team->rank == 0) {
        printf("measured, %d ranks, %s: %-44s %8.3f us (%.3f to %.3f)%s%s\n", team->size,
               team->procs == 1 ? "threads" : "processes", what, us[REPEATS / 2], us[0],
               us[REPEATS - 1], target[0] ? ", target " : "", target);
        fflush(stdout);
    }
}

static void measure_handoffs(team_t *team, rig_t *rig, double *ns)
{
    static const struct {
        size_t bytes;
        int threads;
        const char *target;
    } plan[] = {{8, 1, "1"},       {8, 32, "1"},      {8, 256, "1"},     {8, -256, ""},
                {1024, 32, "1"},   {1024, 256, "1"},  {4096, 128, "1"},  {4096, 256, "1"},
                {4096, -256, ""},  {4096, 1024, "1"}, {16384, 1024, ""}, {65536, 256, ""},
                {65536, 1024, "5"}};
    char *buffer = symm_take(rig->symm, 2 * HANDOFF);
    uint64_t *flag = symm_take(rig->symm, 8), base = 0;
    for (size_t i = 0; i < sizeof(plan) / sizeof(plan[0]); i++) {
        double us[REPEATS] = {0};
        char what[80];
        snprintf(what, sizeof(what), "put with signal, %zu bytes, %d threads%s", plan[i].bytes,
                 abs(plan[i].threads), plan[i].threads < 0 ? ", relaxed" : "");
        for (int k = 0; k < REPEATS; k++) {
            CHECK_OK(weft_barrier(team->comm, NULL));
            if (team->rank < 2) {
                CHECK_EQ(rig->kernels->handoff(&rig->view, buffer, flag, base, plan[i].bytes,
                                               plan[i].threads, ROUNDS, ns, rig->native),
                         0);
                CHECK_OK(weft_stream_synchronize(rig->stream));
            }
            base += ROUNDS + 1;
            us[k] = *ns / 1e3;
        }
        CHECK_OK(weft_symm_error(rig->symm));
        say(team, what, us, plan[i].target);
    }
}

static void measure_lookups(team_t *team, rig_t *rig, double *ns)
{
    weft_params_h params;
    weft_params_view_t view;
    CHECK_OK(weft_params_create(rig->symm, 1 << 20, &params));
    CHECK_OK(weft_params_view(params, &view));
    for (size_t bytes = 256; bytes <= 16384; bytes *= 8) {
        double us[REPEATS] = {0};
        char what[80];
        snprintf(what, sizeof(what), "parameter lookup from a peer, %zu bytes", bytes);
        for (int k = 0; k < REPEATS; k++) {
            CHECK_OK(weft_barrier(team->comm, NULL));
            CHECK_EQ(rig->kernels->lookup(&rig->view, &view, (team->rank + 1) % team->size, bytes,
                                          ROUNDS, ns, rig->native),
                     0);
            CHECK_OK(weft_stream_synchronize(rig->stream));
            CHECK(*ns > 0);
            us[k] = *ns / 1e3;
        }
        say(team, what, us, bytes <= 4096 ? "2" : "");
    }
    CHECK_OK(weft_params_destroy(params));
}

static void measure_swaps(team_t *team, rig_t *rig)
{
    enum { BYTES = 8 << 20, SWAPS = 20 };
    weft_params_h params;
    weft_event_h from, to;
    double us[REPEATS] = {0}, ms;
    void *adapter;
    CHECK_OK(weft_malloc(&adapter, BYTES));
    CHECK_OK(weft_params_create(rig->symm, BYTES, &params));
    CHECK_OK(weft_event_create(&from));
    CHECK_OK(weft_event_create(&to));
    for (int k = 0; k < REPEATS && team->rank == 0; k++) {
        CHECK_OK(weft_event_record(from, rig->stream));
        for (int i = 0; i < SWAPS; i++) {
            CHECK_OK(weft_params_swap(params, adapter, rig->stream));
        }
        CHECK_OK(weft_event_record(to, rig->stream));
        CHECK_OK(weft_event_synchronize(to));
        CHECK_OK(weft_event_elapsed(from, to, &ms));
        us[k] = ms * 1e3 / SWAPS;
    }
    say(team, "swap of 8 MiB on all ranks", us, "100 (8 ranks)");
    CHECK_OK(weft_symm_barrier(rig->symm, NULL));
    uint64_t version;
    CHECK_OK(weft_params_version(params, &version));
    CHECK_EQ(version, REPEATS * SWAPS);
    CHECK_OK(weft_event_destroy(from));
    CHECK_OK(weft_event_destroy(to));
    CHECK_OK(weft_params_destroy(params));
    CHECK_OK(weft_free(adapter));
}

static void measure(team_t *team)
{
    rig_t rig;
    double us[REPEATS];
    if (team_short()) {
        return;
    }
    PINNED(double, ns, 1);
    rig_open(&rig, team, 32 << 20);
    measure_handoffs(team, &rig, ns);
    measure_lookups(team, &rig, ns);
    measure_swaps(team, &rig);
    for (int k = 0; k < REPEATS; k++) {
        CHECK_OK(weft_barrier(team->comm, NULL));
        CHECK_EQ(rig.kernels->barrier(&rig.view, ROUNDS, ns, rig.native), 0);
        CHECK_OK(weft_stream_synchronize(rig.stream));
        CHECK(*ns > 0);
        us[k] = *ns / 1e3;
    }
    say(team, "barrier of blocks", us, "");
    CHECK_OK(weft_host_free(ns));
    rig_close(&rig);
}

/* ---- ranks that die ---------------------------------------------------------------------- */

/* A kernel of the user's own waits for a rank that dies: it ends, and the host learns who. MPS may
 * end it before we do: when a process dies inside a kernel, CUDA fails in all that share the
 * GPU. */
static void kernel_misses_rank(team_t *team)
{
    rig_t rig;
    PINNED(uint32_t, result, 1);
    rig_open(&rig, team, 1 << 16);
    uint64_t *flag = symm_take(rig.symm, 8);
    CHECK_EQ(rig.kernels->wait(&rig.view, flag, 1, result, rig.native), 0);
    team_meet(team);
    if (team->rank == 1) {
        raise(SIGKILL);
    }
    double start = team_now();
    weft_status_t waited = weft_stream_synchronize(rig.stream);
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK(*result == 2 || waited != WEFT_OK);
    CHECK_STATUS(weft_symm_error(rig.symm), WEFT_ERR_RANK_DEAD);
    CHECK_TEXT(weft_last_error(), "rank 1 (process");
    weft_stream_destroy(rig.stream);
    CHECK(weft_symm_destroy(rig.symm) != WEFT_OK);
}

/* A signal that does not come ends the kernel when time is up, and breaks the communicator for
 * all. */
static void kernel_is_late(team_t *team)
{
    rig_t rig;
    PINNED(uint32_t, result, 1);
    rig_open(&rig, team, 1 << 16);
    uint64_t *flag = symm_take(rig.symm, 8);
    double start = team_now();
    CHECK_EQ(rig.kernels->wait(&rig.view, flag, 7, result, rig.native), 0);
    weft_stream_synchronize(rig.stream);
    CHECK_WITHIN(team_now() - start, SOON);
    CHECK_EQ(*result, 2);
    CHECK_STATUS(weft_symm_error(rig.symm), WEFT_ERR_TIMEOUT);
    CHECK_TEXT(weft_last_error(), "waiting in a kernel for a signal");
    CHECK_TEXT(weft_last_error(), ">= 7, it is 0");
    weft_stream_destroy(rig.stream);
    CHECK(weft_symm_destroy(rig.symm) != WEFT_OK);
}

/* ---- the tests -------------------------------------------------------------------------- */

static const team_fn host[] = {symm_alloc,      symm_refused,
                               symm_freed,      symm_sizes_differ,
                               symm_put_get,    symm_ring_of_signals,
                               symm_on_streams, symm_atomics,
                               symm_views,      tensor_slices,
                               tensor_refused,  params_swapped,
                               params_writers,  NULL};
static const team_fn kernels[] = {all_scopes, tensor_in_kernel, host_structures, measure, NULL};

#define PLAN_TEST(name, fn, ...)                                                                   \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.limit_s = 60, __VA_ARGS__}, fn));                     \
    }

#define KERNEL_TEST(name, fn, ...)                                                                 \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        if (gpu_virtual()) {                                                                       \
            skip(); /* there are no kernels */                                                     \
        }                                                                                          \
        assert_true(team_run(&(team_plan_t){.limit_s = 60, __VA_ARGS__}, fn));                     \
    }

#define PROCESS_TEST(name, fn, ...)                                                                \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        if (!gpu_processes() || (gpu_virtual() && (fn) == kernel_misses_rank)) {                   \
            skip();                                                                                \
        }                                                                                          \
        assert_true(team_run(&(team_plan_t){.limit_s = 60, __VA_ARGS__}, fn));                     \
    }

PLAN_TEST(calls_of_one_rank, gpu_in_a_row, .ranks = 1, .arg = host)
PLAN_TEST(calls_of_threads, gpu_in_a_row, .ranks = 4, .procs = 1, .arg = host)
PLAN_TEST(late_call_of_threads, symm_late, .ranks = 2, .procs = 1, .timeout_ms = 2000)
PROCESS_TEST(calls_of_processes, gpu_in_a_row, .ranks = 2, .arg = host)
PROCESS_TEST(calls_of_both, gpu_in_a_row, .ranks = 4, .procs = 2, .arg = host)
PROCESS_TEST(killed_before_a_signal, symm_killed, .ranks = 3, .may_die = 2)
PROCESS_TEST(killed_before_the_end, symm_left_in_barrier, .ranks = 3, .may_die = 2)
PROCESS_TEST(killed_under_a_kernel, kernel_misses_rank, .ranks = 3, .may_die = 2)
KERNEL_TEST(late_kernel, kernel_is_late, .ranks = 2, .procs = 1, .timeout_ms = 2000)
KERNEL_TEST(kernels_of_one_rank, gpu_in_a_row, .ranks = 1,
            .arg = (const team_fn[]){all_scopes, NULL})
KERNEL_TEST(kernels_of_two_threads, gpu_in_a_row, .ranks = 2, .procs = 1, .arg = kernels)
KERNEL_TEST(kernels_of_four_threads, gpu_in_a_row, .ranks = 4, .procs = 1, .arg = kernels)
KERNEL_TEST(kernels_of_eight_threads, gpu_in_a_row, .ranks = 8, .procs = 1, .arg = kernels)

static void kernels_of_processes(void **state)
{
    (void)state;
    if (gpu_virtual() || !gpu_processes()) {
        skip();
    }
    for (int ranks = 2; ranks <= (team_short() ? 2 : 8); ranks *= 2) {
        assert_true(
            team_run(&(team_plan_t){.limit_s = 90, .ranks = ranks, .arg = kernels}, gpu_in_a_row));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_of_one_rank),        cmocka_unit_test(calls_of_threads),
        cmocka_unit_test(late_call_of_threads),     cmocka_unit_test(kernels_of_one_rank),
        cmocka_unit_test(kernels_of_two_threads),   cmocka_unit_test(kernels_of_four_threads),
        cmocka_unit_test(kernels_of_eight_threads), cmocka_unit_test(late_kernel),
        cmocka_unit_test(calls_of_processes),       cmocka_unit_test(calls_of_both),
        cmocka_unit_test(kernels_of_processes),     cmocka_unit_test(killed_before_a_signal),
        cmocka_unit_test(killed_before_the_end),    cmocka_unit_test(killed_under_a_kernel),
    };
    gpu_start(argc, argv, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
