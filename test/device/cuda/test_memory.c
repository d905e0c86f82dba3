/* Memory of a GPU that is made of threads, where the host has none to remember it by. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <weft/device.h>

#define MALLOC_SUCCEEDS
#include "no_memory.h"

#if MEMORY_FAILS

#define SLABS 100 /* so many that the list of them must grow */

static size_t reserved(void)
{
    weft_pool_stats_t stats;
    assert_int_equal(weft_pool_stats(0, &stats), WEFT_OK);
    return stats.reserved;
}

/* Each allocation of the host fails in turn: then there is none on the GPU either, nothing is lost,
 * and the next time there is. */
static void host_memory_runs_out(void **state)
{
    void *slabs[SLABS];
    int failures = 0;
    (void)state;
    for (int i = 0; i < SLABS; i++) {
        weft_status_t status = WEFT_ERR_NO_MEMORY;
        for (int left = 0; status != WEFT_OK; left++) {
            size_t before = reserved();
            allocations_left = left;
            status = weft_malloc(&slabs[i], (size_t)(i + 1) * 4096);
            bool failed = allocations_left < 0;
            allocations_left = -1;
            assert_int_equal(status, failed ? WEFT_ERR_NO_MEMORY : WEFT_OK);
            assert_true(!failed || reserved() == before);
            failures += failed;
        }
    }
    assert_true(failures > SLABS);
    for (int i = 0; i < SLABS; i++) {
        assert_int_equal(weft_free(slabs[i]), WEFT_OK);
    }
}
#endif

int main(void)
{
    char module[4096];
    const char *build = getenv("WEFT_BUILD");
    snprintf(module, sizeof(module), "%s/test/soft_gpu/soft_gpu.so", build != NULL ? build : ".");
#if MEMORY_FAILS
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_memory_runs_out),
    };
    if (access(module, R_OK) == 0) {
        setenv("WEFT_CUDA_MODULE", module, 1);
        setenv("WEFT_DEVICE", "cuda", 1);
        setenv("WEFT_POOL", "0", 1); /* a slab for each */
        return cmocka_run_group_tests(tests, NULL, NULL);
    }
#endif
    printf("skipped: under a sanitizer memory does not fail, and without a C++ compiler there is "
           "no %s\n",
           module);
    return 77;
}
