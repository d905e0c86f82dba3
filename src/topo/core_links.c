#include "topo/core_links.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "topo/cores.h"

#define WORD_BITS (8 * (int)sizeof(unsigned long))
#define CPUS_MOST (WEFT_CORE_MASK_WORDS * WORD_BITS)

/* Note `number` for all CPUs of `object`, in the field at `offset` of their rows. */
static void note(const weft_core_map_t *map, hwloc_obj_t object, size_t offset, int number)
{
    int cpu;
    hwloc_bitmap_foreach_begin(cpu, object->cpuset)
    {
        if (cpu < map->cpus) {
            memcpy((char *)&map->of[cpu] + offset, &number, sizeof(number));
        }
    }
    hwloc_bitmap_foreach_end();
}

static void note_all(const weft_core_map_t *map, hwloc_topology_t topology, hwloc_obj_type_t type,
                     size_t offset)
{
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_obj_by_type(topology, type, object)) != NULL) {
        note(map, object, offset, (int)object->logical_index);
    }
}

weft_status_t weft__core_map_read(weft_core_map_t *map_p)
{
    weft_core_map_t map = {.cores = 0};
    hwloc_topology_t topology;
    WEFT_TRY(weft__cores_load(true, &topology));
    weft_status_t status = WEFT_OK;
    int last = hwloc_bitmap_last(hwloc_topology_get_complete_cpuset(topology));
    map.cpus = last < 0 ? 0 : last >= CPUS_MOST ? CPUS_MOST : last + 1;
    map.of = malloc(((size_t)map.cpus + 1) * sizeof(*map.of));
    if (map.of == NULL) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "topo: no memory for %d CPUs", map.cpus);
        goto out;
    }
    for (int cpu = 0; cpu < map.cpus; cpu++) {
        map.of[cpu] = (weft_core_cpu_t){-1, -1, -1};
    }
    hwloc_obj_type_t core = weft__cores_type(topology);
    map.cores = hwloc_get_nbobjs_by_type(topology, core);
    note_all(&map, topology, core, offsetof(weft_core_cpu_t, core));
    note_all(&map, topology, HWLOC_OBJ_L3CACHE, offsetof(weft_core_cpu_t, cache));
    note_all(&map, topology, HWLOC_OBJ_NUMANODE, offsetof(weft_core_cpu_t, numa));
    *map_p = map;
out:
    hwloc_topology_destroy(topology);
    return status;
}

void weft__core_map_cleanup(weft_core_map_t *map)
{
    free(map->of);
    *map = (weft_core_map_t){.cores = 0};
}

weft_status_t weft__core_mask_here(unsigned long mask[WEFT_CORE_MASK_WORDS])
{
    memset(mask, 0, WEFT_CORE_MASK_WORDS * sizeof(*mask));
    if (sched_getaffinity(0, WEFT_CORE_MASK_WORDS * sizeof(*mask), (cpu_set_t *)mask) != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "topo: the CPUs of this thread are not known: %s",
                          strerror(errno));
    }
    return WEFT_OK;
}

/* ---- what a set of CPUs has in common --------------------------------------------------- */

enum { NONE = -1, SEVERAL = -2 };

typedef struct common {
    int cpus, cores;       /* how many */
    int core, cache, numa; /* its number, or NONE, or SEVERAL */
} common_t;

static bool has(const unsigned long *mask, int cpu)
{
    return (mask[cpu / WORD_BITS] >> cpu % WORD_BITS & 1) != 0;
}

static int merge(bool first, int so_far, int number)
{
    return first || so_far == number ? number : SEVERAL;
}

static common_t look(const weft_core_map_t *map, const unsigned long *mask)
{
    common_t common = {0, 0, NONE, NONE, NONE};
    int last_core = NONE;
    for (int cpu = 0; cpu < map->cpus; cpu++) {
        const weft_core_cpu_t *of = &map->of[cpu];
        if (!has(mask, cpu) || of->core < 0) {
            continue;
        }
        bool first = common.cpus++ == 0;
        common.core = merge(first, common.core, of->core);
        common.cache = merge(first, common.cache, of->cache);
        common.numa = merge(first, common.numa, of->numa);
        bool counted = of->core == last_core;
        for (int before = 0; before < cpu && !counted; before++) {
            counted = has(mask, before) && map->of[before].core == of->core;
        }
        common.cores += !counted;
        last_core = of->core;
    }
    return common;
}

static bool is_unbound(const weft_core_map_t *map, const common_t *common)
{
    return common->cpus == 0 || common->numa == SEVERAL ||
           (map->cores > 1 && common->cores == map->cores);
}

weft_core_link_t weft__core_link(const weft_core_map_t *map,
                                 const unsigned long a[WEFT_CORE_MASK_WORDS],
                                 const unsigned long b[WEFT_CORE_MASK_WORDS])
{
    unsigned long both[WEFT_CORE_MASK_WORDS];
    bool overlap = false;
    for (int i = 0; i < WEFT_CORE_MASK_WORDS; i++) {
        both[i] = a[i] | b[i];
        overlap = overlap || (a[i] & b[i]) != 0;
    }
    common_t of_a = look(map, a), of_b = look(map, b), all = look(map, both);
    if (is_unbound(map, &of_a) || is_unbound(map, &of_b)) {
        return WEFT_CORE_LINK_UNBOUND;
    }
    if (all.core >= 0) {
        return overlap ? WEFT_CORE_LINK_CORE : WEFT_CORE_LINK_SMT;
    }
    if (all.cache >= 0) {
        return WEFT_CORE_LINK_CACHE;
    }
    return all.numa == SEVERAL ? WEFT_CORE_LINK_FAR : WEFT_CORE_LINK_NUMA;
}

const char *weft__core_link_text(weft_core_link_t near)
{
#define WEFT_CORE_LINK_NAME(name, text) [name] = text,
    static const char *const texts[] = {WEFT_CORE_LINK_TABLE(WEFT_CORE_LINK_NAME)};
#undef WEFT_CORE_LINK_NAME
    return texts[near];
}
