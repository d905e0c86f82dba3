/* What the machine is said to be, and how ranks are spread over it. */
#define _GNU_SOURCE 1 /* sched_getaffinity */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "topo/topo.h"

static bool has_cpu(const weft_bind_t *bind, int rank, int cpu)
{
    size_t bits = 8 * sizeof(unsigned long);
    size_t word = (size_t)cpu / bits;
    return word < bind->words &&
           (bind->masks[(size_t)rank * bind->words + word] >> ((size_t)cpu % bits) & 1) != 0;
}

static int owners_of(const weft_bind_t *bind, int cpu)
{
    int owners = 0;
    for (int rank = 0; rank < bind->ranks; rank++) {
        owners += has_cpu(bind, rank, cpu);
    }
    return owners;
}

static void machine_is_described(void **state)
{
    (void)state;
    weft_topo_t topo;
    cpu_set_t allowed;
    assert_int_equal(weft__topo_read(&topo), WEFT_OK);
    assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
    assert_int_equal(topo.thread_count, CPU_COUNT(&allowed));
    assert_in_range(topo.core_count, 1, topo.thread_count);
    assert_true(topo.numa_count >= 1);
    for (int i = 0; i < topo.core_count; i++) {
        assert_true(topo.cores[i].cpus[0] != '\0');
        assert_true(topo.cores[i].numa < topo.numa_count);
    }
    for (int i = 0; i < topo.cache_count; i++) {
        assert_true(topo.caches[i].bytes > 0 && topo.caches[i].count > 0);
    }
    assert_null(getenv("HWLOC_PLUGINS_PATH"));
    weft__topo_cleanup(&topo);
    assert_null(topo.cores);
}

static void every_rank_gets_a_fair_share(void **state)
{
    (void)state;
    weft_topo_t topo;
    cpu_set_t allowed;
    assert_int_equal(weft__topo_read(&topo), WEFT_OK);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    for (int ranks = 1; ranks <= 2 * topo.core_count + 1; ranks++) {
        weft_bind_t bind;
        assert_int_equal(weft__bind_plan(ranks, NULL, &bind), WEFT_OK);
        assert_int_equal(bind.ranks, ranks);
        int most = (ranks + topo.core_count - 1) / topo.core_count;
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            int owners = owners_of(&bind, cpu);
            if (!CPU_ISSET(cpu, &allowed)) {
                assert_int_equal(owners, 0);
            } else {
                /* no core is left out, none has two ranks before all have one */
                assert_in_range(owners, 1, most);
            }
        }
        for (int rank = 0; rank < ranks; rank++) {
            char cpus[WEFT_TOPO_CPUS];
            weft__bind_print(&bind, rank, cpus);
            assert_true(cpus[0] != '\0');
        }
        weft__bind_cleanup(&bind);
    }
    weft__topo_cleanup(&topo);
}

/* A process that was given one CPU must not leave it. */
static void narrow_affinity_is_respected(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        cpu_set_t set;
        weft_bind_t bind;
        int last = 0;
        sched_getaffinity(0, sizeof(set), &set);
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            last = CPU_ISSET(cpu, &set) ? cpu : last;
        }
        CPU_ZERO(&set);
        CPU_SET(last, &set);
        int bad = sched_setaffinity(0, sizeof(set), &set) != 0 ||
                  weft__bind_plan(3, NULL, &bind) != WEFT_OK;
        for (int cpu = 0; !bad && cpu < CPU_SETSIZE; cpu++) {
            bad = owners_of(&bind, cpu) != (cpu == last ? 3 : 0);
        }
        _exit(bad);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* On a made-up /sys: none, one of a single CPU (so as many as there are CPUs), and a fourth level
 * that all share. */
static void last_cache_is_the_outermost(void **state)
{
    char root[] = "/tmp/weft-test-topo-XXXXXX", command[512];
    int count = -1;
    (void)state;
    assert_non_null(mkdtemp(root));
    assert_int_equal(weft__last_cache(root, &count), 0);
    assert_int_equal(count, 0);
    static const char *const levels[][2] = {{"3", "0"}, {"4", "0-4095"}};
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof(command),
                 "d=%s/sys/devices/system/cpu/cpu0/cache/index%s; mkdir -p $d && "
                 "echo %sK >$d/size && echo %s >$d/shared_cpu_list",
                 root, levels[i][0], levels[i][0], levels[i][1]);
        assert_int_equal(system(command), 0);
        assert_int_equal(weft__last_cache(root, &count), (i + 3) << 10);
        assert_int_equal(count, i == 0 ? sysconf(_SC_NPROCESSORS_CONF) : 1);
    }
    snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machine_is_described),
        cmocka_unit_test(every_rank_gets_a_fair_share),
        cmocka_unit_test(narrow_affinity_is_respected),
        cmocka_unit_test(last_cache_is_the_outermost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
