/* Where the calling thread is: asked of the kernel alone, so that it may be done at any time. */
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "topo/cpu_list.h"
#include "topo/topo.h"

enum { NODES_MOST = 256, WORD_BITS = 8 * sizeof(unsigned long), WORDS = CPU_SETSIZE / WORD_BITS };

/* Is one of this thread's CPUs on the node? */
static bool runs_on(const char *root, int node, const cpu_set_t *mine)
{
    char path[4096], line[4096];
    unsigned long cpus[WORDS];
    bool found = false;
    snprintf(path, sizeof(path), "%s/sys/devices/system/node/node%d/cpulist", root, node);
    FILE *file = fopen(path, "re");
    if (file != NULL && fgets(line, sizeof(line), file) != NULL &&
        weft__cpu_list_read(line, cpus, WORDS)) {
        for (int cpu = 0; cpu < CPU_SETSIZE && !found; cpu++) {
            found = CPU_ISSET(cpu, mine) && (cpus[cpu / WORD_BITS] >> cpu % WORD_BITS & 1) != 0;
        }
    }
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

/* A file of the cache `index` of CPU 0. */
static bool read_cache(const char *root, int index, const char *name, char *line, size_t room)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/cpu0/cache/index%d/%s", root, index,
             name);
    FILE *file = fopen(path, "re");
    bool found = file != NULL && fgets(line, (int)room, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    return found;
}

size_t weft__last_cache(const char *root, int *count_p)
{
    char line[4096];
    unsigned long cpus[WORDS];
    int index = 4; /* the kernel lists them from the first level on, data and instructions apart */
    while (index > 1 && !read_cache(root, index, "size", line, sizeof(line))) {
        index--;
    }
    *count_p = 0;
    size_t bytes = index > 1 ? (size_t)strtoul(line, NULL, 10) << 10 : 0; /* "32768K" */
    if (bytes == 0 || !read_cache(root, index, "shared_cpu_list", line, sizeof(line)) ||
        !weft__cpu_list_read(line, cpus, WORDS)) {
        return 0;
    }
    long sharing = 0, all = sysconf(_SC_NPROCESSORS_ONLN);
    for (int word = 0; word < (int)WORDS; word++) {
        sharing += __builtin_popcountl(cpus[word]);
    }
    *count_p = all > sharing ? (int)(all / sharing) : 1;
    return bytes;
}
