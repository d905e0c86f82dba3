/* ctest: timeout=120 serial */
/* Buffers times a scalar on GPUs, also in graphs. */
#include <setjmp.h>

#include "bench/graph.h"
#include "gpu/gpu.h"
#include "kernel/scale_cases.h"

#include <cmocka.h>

static void cases(team_t *team)
{
    const char *(*const fns[])(void) = {scale_values, scale_order, scale_arguments};
    (void)team;
    for (int i = 0; i < 3; i++) {
        const char *why = fns[i]();
        if (why) {
            FAIL("%s", why);
        }
    }
}

/* Memory that the GPU does not reach is refused, but for the scalar. */
static void plain_memory(team_t *team)
{
    float x[4] = {1, 2, 3, 4}, two = 2, *device, *pinned;
    (void)team;
    CHECK_OK(weft_malloc((void **)&device, sizeof(x)));
    CHECK_OK(weft_host_malloc((void **)&pinned, sizeof(x)));
    CHECK_STATUS(weft_scale(x, device, 4, WEFT_F32, &two, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "plain host memory");
    CHECK_STATUS(weft_scale(device, x, 4, WEFT_F32, &two, NULL), WEFT_ERR_INVALID);
    memcpy(pinned, x, sizeof(x));
    CHECK_OK(weft_scale(device, pinned, 4, WEFT_F32, &two, NULL));
    CHECK_OK(weft_scale(pinned, device, 4, WEFT_F32, pinned + 1, NULL));
    for (int i = 0; i < 4; i++) {
        CHECK(pinned[i] == 4 * x[i]);
    }
    CHECK_OK(weft_free(device));
    CHECK_OK(weft_host_free(pinned));
}

/* A graph reads the scalar of the device each time, and keeps that of the host. */
static void in_a_graph(team_t *team)
{
    float one = 1, factor = 2, x = 0, *device;
    int capturing = 7;
    void *graph;
    weft_stream_h stream;
    (void)team;
    CHECK_OK(weft_stream_create(&stream));
    CHECK_OK(weft_malloc((void **)&device, 2 * sizeof(float)));
    CHECK_OK(weft_memcpy(device, &one, sizeof(one), stream));
    CHECK_OK(weft_stream_capturing(stream, &capturing));
    CHECK_EQ(capturing, 0);
    CHECK_OK(weft__bench_record(stream));
    CHECK_OK(weft_stream_capturing(stream, &capturing));
    CHECK_EQ(capturing, 1);
    CHECK_OK(weft_scale(device, device, 1, WEFT_F32, &factor, stream));
    CHECK_OK(weft_scale(device, device, 1, WEFT_F32, device + 1, stream));
    CHECK_OK(weft__bench_recorded(stream, &graph));
    CHECK_OK(weft_stream_capturing(stream, &capturing));
    CHECK_EQ(capturing, 0);
    for (int i = 0; i < 2; i++) {
        factor = i == 0 ? 3 : 5;
        CHECK_OK(weft_memcpy(device + 1, &factor, sizeof(factor), stream));
        CHECK_OK(weft__bench_replay(graph, stream));
    }
    CHECK_OK(weft_memcpy(&x, device, sizeof(x), stream));
    CHECK_OK(weft_stream_synchronize(stream));
    CHECK(x == 2 * 3 * 2 * 5);
    weft__bench_forget(graph, stream);
    CHECK_OK(weft_free(device));
    CHECK_OK(weft_stream_destroy(stream));
}

#define ON_GPU(name, fn, needs_true)                                                               \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        if (needs_true && gpu_virtual()) {                                                         \
            skip();                                                                                \
        }                                                                                          \
        assert_true(team_run(&(team_plan_t){.ranks = 1, .limit_s = 60}, fn));                      \
    }

ON_GPU(values_order_and_arguments, cases, false)
ON_GPU(memory_that_gpus_do_not_reach, plain_memory, true)
ON_GPU(captured, in_a_graph, true)

int main(int argc, char **argv)
{
    gpu_start(argc, argv, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_order_and_arguments),
        cmocka_unit_test(memory_that_gpus_do_not_reach),
        cmocka_unit_test(captured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
