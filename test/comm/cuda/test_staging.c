/* ctest: timeout=60 */
/* Memory of calls that is replaced by pinned memory or the device's and brought back, and what
 * decides when, on the fake GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "comm/cuda/cuda.h"

#define COUNT 100

static weft_cuda_report_t report;
static uint32_t stop;
static weft_cuda_t cuda;
static struct weft_comm comm; /* waits without a limit */
static weft_stream_h stream;

static int set_up(void **state)
{
    (void)state;
    memset(&cuda, 0, sizeof(cuda));
    memset(&report, 0, sizeof(report));
    cuda.comm = &comm;
    cuda.size = 2;
    cuda.report = &report;
    cuda.stop = &stop;
    assert_int_equal(weft_stream_create(&cuda.own), WEFT_OK);
    assert_int_equal(weft_stream_create(&stream), WEFT_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    void *events[] = {cuda.order, cuda.pace};
    weft__cuda_reclaim(&cuda, true);
    for (int i = 0; i < 2; i++) {
        if (events[i]) {
            weft__cuda()->event_destroy(0, events[i]);
        }
    }
    weft_stream_destroy(cuda.own);
    weft_stream_destroy(stream);
    return 0;
}

static weft_call_t sum(const void *src, void *dst, size_t count)
{
    return (weft_call_t){.coll = WEFT_COLL_ALLREDUCE, .src = src, .dst = dst, .count = count};
}

/* As a kernel would: each result is its source, and one more. */
static void work(weft_call_t *calls, int n)
{
    for (int i = 0; i < n; i++) {
        for (size_t k = 0; k < calls[i].count; k++) {
            ((double *)calls[i].dst)[k] = ((const double *)calls[i].src)[k] + 1;
        }
    }
}

static void fill(double *x)
{
    for (int i = 0; i < COUNT; i++) {
        x[i] = i;
    }
}

static bool is(const double *x, int from, int to, double more)
{
    for (int i = from; i < to; i++) {
        if (x[i] != i + more) {
            return false;
        }
    }
    return true;
}

/* Ours, the program's, in place, none: only what the GPU does not reach is replaced. */
static void replaced_and_brought_back(void **state)
{
    (void)state;
    double a[COUNT], b[COUNT] = {0}, *ours;
    assert_int_equal(weft_malloc((void **)&ours, sizeof(a)), WEFT_OK);
    for (int on_own = 0; on_own < 2; on_own++) {
        weft_cuda_pinned_t pinned = {0};
        weft_stream_h on = on_own ? cuda.own : stream;
        fill(a);
        memset(ours, 0, sizeof(a));
        memset(b, 0, sizeof(b));
        weft_call_t calls[] = {sum(a, b, 40), sum(a + 40, a + 40, 60), sum(a, ours, 7),
                               sum(NULL, NULL, 0)};
        assert_int_equal(weft__cuda_pin_in(&cuda, calls, 4, on, &pinned), WEFT_OK);
        assert_non_null(pinned.loan);
        assert_ptr_not_equal(calls[0].src, a);
        assert_ptr_not_equal(calls[0].dst, b);
        assert_ptr_equal(calls[2].dst, ours);
        assert_null(calls[3].dst);
        work(calls, 4);
        assert_true(is(calls[0].src, 0, 40, 0)); /* sources have places of their own */
        assert_true(is(a, 0, COUNT, 0));         /* nothing comes back before the end */
        report.finished = 5;
        uint64_t mark = on_own ? 5 : 0;
        assert_int_equal(weft__cuda_pin_out(&cuda, &pinned, on, false, mark, WEFT_OK), WEFT_OK);
        assert_true(is(b, 0, 40, 1) && is(a, 0, 40, 0) && is(a, 40, COUNT, 1) && is(ours, 0, 7, 1));
        assert_true(b[40] == 0);
        assert_true((cuda.loans == NULL) == (on_own == 1)); /* who waited needs it no more */
        weft__cuda_reclaim(&cuda, true);
    }
    assert_int_equal(weft_free(ours), WEFT_OK);
}

/* What nobody writes of an alltoallv's destination stays as it is. */
static void ragged_destinations_keep_the_rest(void **state)
{
    (void)state;
    double a[COUNT], b[COUNT];
    size_t counts[] = {0, 10}, offsets[] = {0, COUNT - 10};
    weft_vectors_t vectors = {counts, offsets, counts, offsets};
    weft_cuda_pinned_t pinned = {0};
    weft_call_t call = sum(a, b, 0);
    fill(a);
    fill(b);
    call.coll = WEFT_COLL_ALLTOALLV;
    call.vectors = &vectors;
    assert_int_equal(weft__cuda_pin_in(&cuda, &call, 1, stream, &pinned), WEFT_OK);
    ((double *)call.dst)[COUNT - 1] = -1;
    assert_int_equal(weft__cuda_pin_out(&cuda, &pinned, stream, false, 0, WEFT_OK), WEFT_OK);
    assert_true(is(b, 0, COUNT - 1, 0) && b[COUNT - 1] == -1);
}

/* Found out on the GPU, after all was queued. */
static void what_gives_up_brings_nothing(void **state)
{
    (void)state;
    double a[COUNT];
    for (int how = 0; how < 2; how++) {
        weft_cuda_pinned_t pinned = {0};
        weft_call_t calls[] = {sum(a, a, COUNT)};
        fill(a);
        assert_int_equal(weft__cuda_pin_in(&cuda, calls, 1, stream, &pinned), WEFT_OK);
        work(calls, 1);
        stop = how == 0;
        report.ready = how == 1;
        assert_int_equal(weft__cuda_pin_out(&cuda, &pinned, stream, false, 0, WEFT_OK), WEFT_OK);
        assert_true(is(a, 0, COUNT, 0));
    }
    stop = 0;
}

static void what_failed_brings_nothing_and_keeps_its_error(void **state)
{
    (void)state;
    double a[COUNT];
    weft_cuda_pinned_t pinned = {0};
    weft_call_t calls[] = {sum(a, a, COUNT)};
    fill(a);
    assert_int_equal(weft__cuda_pin_in(&cuda, calls, 1, stream, &pinned), WEFT_OK);
    work(calls, 1);
    weft__fail(WEFT_ERR_RANK_DEAD, "rank 2 died");
    assert_int_equal(weft__cuda_pin_out(&cuda, &pinned, stream, false, 5, WEFT_ERR_RANK_DEAD),
                     WEFT_ERR_RANK_DEAD);
    assert_string_equal(weft_last_error(), "rank 2 died");
    assert_true(is(a, 0, COUNT, 0));
    assert_non_null(cuda.loans);
    assert_null(cuda.loans->event); /* no call of CUDA's, which would fail in its turn */
}

static void what_is_reached_is_not_replaced(void **state)
{
    (void)state;
    void *ours;
    weft_cuda_pinned_t pinned = {0};
    assert_int_equal(weft_malloc(&ours, 1000), WEFT_OK);
    weft_call_t calls[] = {sum(ours, ours, 100)};
    assert_int_equal(weft__cuda_pin_in(&cuda, calls, 1, stream, &pinned), WEFT_OK);
    assert_null(pinned.loan);
    assert_ptr_equal(calls[0].src, ours);
    assert_int_equal(weft__cuda_pin_out(&cuda, &pinned, stream, false, 0, WEFT_OK), WEFT_OK);
    assert_int_equal(weft_free(ours), WEFT_OK);
}

/* ---- memory of the device ----------------------------------------------------------------- */

/* One that goes well, one that fails. */
static void staged_and_brought_back(void **state)
{
    (void)state;
    void *from, *to;
    assert_int_equal(weft__cuda()->alloc(0, &from, COUNT * sizeof(double)), 0);
    assert_int_equal(weft__cuda()->alloc(0, &to, COUNT * sizeof(double)), 0);
    for (int fails = 0; fails < 2; fails++) {
        weft_status_t status = fails ? WEFT_ERR_RANK_DEAD : WEFT_OK;
        weft_cuda_staging_t staging = {0};
        weft_call_t call = sum(from, to, COUNT);
        fill(from);
        fill(to);
        assert_int_equal(weft__cuda_staging_in(&cuda, &call, true, true, stream, &staging),
                         WEFT_OK);
        assert_ptr_not_equal(call.src, from);
        assert_ptr_not_equal(call.dst, to);
        work(&call, 1);
        assert_true(is(to, 0, COUNT, 0));
        assert_int_equal(
            weft__cuda_staging_end(&cuda, &call, &staging, 1, stream, false, 0, status), status);
        assert_true(is(to, 0, COUNT, fails ? 0 : 1) && is(from, 0, COUNT, 0));
    }
    assert_int_equal(weft__cuda()->release(0, from), 0);
    assert_int_equal(weft__cuda()->release(0, to), 0);
}

static void staged_ragged_destinations_keep_the_rest(void **state)
{
    (void)state;
    double *to;
    size_t counts[] = {0, 10}, offsets[] = {0, COUNT - 10};
    weft_vectors_t vectors = {counts, offsets, counts, offsets};
    weft_cuda_staging_t staging = {0};
    assert_int_equal(weft__cuda()->alloc(0, (void **)&to, COUNT * sizeof(double)), 0);
    weft_call_t call = sum(NULL, to, 0);
    for (int i = 0; i < COUNT; i++) { /* not what the pool's memory may hold from before */
        to[i] = i + 7;
    }
    call.coll = WEFT_COLL_ALLTOALLV;
    call.vectors = &vectors;
    assert_int_equal(weft__cuda_staging_in(&cuda, &call, false, true, stream, &staging), WEFT_OK);
    ((double *)call.dst)[COUNT - 1] = -1;
    assert_int_equal(weft__cuda_staging_end(&cuda, &call, &staging, 1, stream, false, 0, WEFT_OK),
                     WEFT_OK);
    assert_true(is(to, 0, COUNT - 1, 7) && to[COUNT - 1] == -1);
    assert_int_equal(weft__cuda()->release(0, to), 0);
}

/* ---- order -------------------------------------------------------------------------------- */

static weft_cuda_peer_info_t info;

static void call_on(weft_stream_h on)
{
    bool capturing = true;
    assert_int_equal(weft__cuda_in_order(&cuda, on, &capturing), WEFT_OK);
    assert_false(capturing);
}

/* Until somebody has waited, all that follows a call on another stream is behind it. */
static void behind_stays_behind(void **state)
{
    (void)state;
    cuda.size = 1;
    cuda.infos[0] = &info;
    call_on(cuda.own);
    call_on(cuda.own);
    assert_false(cuda.behind);
    call_on(stream);
    call_on(cuda.own);
    assert_true(cuda.behind);
    call_on(cuda.own);
    assert_true(cuda.behind);
}

static void pace_is_kept(void **state)
{
    (void)state;
    cuda.size = 1;
    cuda.infos[0] = &info;
    for (int i = 0; i < WEFT_CUDA_PACE / 2; i++) {
        call_on(stream);
    }
    assert_null(cuda.pace);
    call_on(stream);
    assert_non_null(cuda.pace);
    assert_int_equal(cuda.queued, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/test/comm/nccl/fake_cuda.so", getenv("WEFT_BUILD"));
    setenv("WEFT_DEVICE", "cuda", 1);
    setenv("WEFT_CUDA_MODULE", path, 1);
    if (!weft__cuda_load(NULL)) {
        fprintf(stderr, "the fake GPU cannot be loaded\n");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        TEST(replaced_and_brought_back),
        TEST(ragged_destinations_keep_the_rest),
        TEST(what_gives_up_brings_nothing),
        TEST(what_failed_brings_nothing_and_keeps_its_error),
        TEST(what_is_reached_is_not_replaced),
        TEST(staged_and_brought_back),
        TEST(staged_ragged_destinations_keep_the_rest),
        TEST(behind_stays_behind),
        TEST(pace_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
