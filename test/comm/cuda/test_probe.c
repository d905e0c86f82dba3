/* Which ranks can use our own kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/cuda/probe.h"
#include "topo/made_up.h"

/* GPU i of the made-up machines, as CUDA names it. */
static weft_member_t gpu_of(int i)
{
    return (weft_member_t){.gpu = {0x1a, (uint8_t)i}};
}

static void add_gpu(int i)
{
    machine_add("gpu 0000:%02x:00.0 name=L4 uuid=GPU-1a%02x0000-0000-0000-0000-000000000000\n",
                i + 1, i);
}

static void gpus_out_of_reach_need_nccl(void **state)
{
    (void)state;
    weft_gpus_t known;
    weft_member_t gpus[] = {gpu_of(0), gpu_of(1), gpu_of(0), gpu_of(2)};
    machine_open(NULL);
    for (int i = 0; i < 3; i++) {
        add_gpu(i);
    }
    machine_add("peer 0 1 0 0 5 5\npeer 1 0 0 0 5 5\npeer 0 2 0 0 5 5\npeer 2 0 0 0 5 5\n"
                "peer 1 2 0 0 5 5\npeer 2 1 0 1 5 5\n"); /* it may read, but not write */
    machine_read(&known);
    assert_true(weft__cuda_reach_by(&known, gpus, 3));
    assert_false(weft__cuda_reach_by(&known, gpus, 4));
    assert_true(weft__cuda_reach_by(&known, gpus + 2, 2));
    gpus[3] = gpu_of(9); /* the driver does not know it: CUDA will say */
    assert_true(weft__cuda_reach_by(&known, gpus, 4));
    weft__gpus_cleanup(&known);
    machine_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_out_of_reach_need_nccl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
