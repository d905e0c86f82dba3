/* Where the calling thread is: asked of the kernel alone, so that it may be done at any time. */
#include <hwloc.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>

#include "topo/topo.h"

enum { NODES_MOST = 256 };

/* Is one of this thread's CPUs on the node? */
static bool runs_on(const char *root, int node, const cpu_set_t *mine)
{
    char path[4096], line[4096];
    bool found = false;
    snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%d/cpulist", root, node);
    FILE *file = fopen(path, "re");
    hwloc_bitmap_t cpus = file != NULL ? hwloc_bitmap_alloc() : NULL;
    if (cpus != NULL && fgets(line, sizeof(line), file) != NULL &&
        hwloc_bitmap_list_sscanf(cpus, line) == 0) {
        for (int cpu = 0; cpu < CPU_SETSIZE && !found; cpu++) {
            found = CPU_ISSET(cpu, mine) && hwloc_bitmap_isset(cpus, (unsigned)cpu);
        }
    }
    hwloc_bitmap_free(cpus);
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

int weft__numa_here(const char *root)
{
    cpu_set_t mine;
    int found = -1;
    if (sched_getaffinity(0, sizeof(mine), &mine) != 0) {
        return -1;
    }
    for (int node = 0; node < NODES_MOST; node++) {
        if (runs_on(root, node, &mine)) {
            if (found >= 0) {
                return -1;
            }
            found = node;
        }
    }
    return found;
}
