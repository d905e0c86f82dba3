#include "topo/cores.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* hwloc's plugins look for devices, which are not asked for; loading them takes several times as
 * long as all the rest. There is no other way to say so than its environment variable. */
static int init_without_plugins(hwloc_topology_t *topology_p)
{
    bool set = getenv("HWLOC_PLUGINS_PATH") == NULL && setenv("HWLOC_PLUGINS_PATH", "", 0) == 0;
    int result = hwloc_topology_init(topology_p);
    if (set) {
        unsetenv("HWLOC_PLUGINS_PATH");
    }
    return result;
}

weft_status_t weft__cores_load(bool all, hwloc_topology_t *topology_p)
{
    hwloc_topology_t topology;
    if (init_without_plugins(&topology) != 0) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "topo: hwloc cannot start: %s", strerror(errno));
    }
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (all) {
        hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
        hwloc_topology_set_cache_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
        hwloc_topology_set_type_filter(topology, HWLOC_OBJ_L1ICACHE, HWLOC_TYPE_FILTER_KEEP_ALL);
    }
#if HWLOC_API_VERSION >= 0x00020100
    /* it asks every CPU in turn by moving there; the kernel has told us all we need */
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
#endif
    if (hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        return weft__fail(WEFT_ERR_SYSTEM, "topo: hwloc cannot read this machine: %s",
                          strerror(errno));
    }
    *topology_p = topology;
    return WEFT_OK;
}

hwloc_bitmap_t weft__cores_usable(hwloc_topology_t topology)
{
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    if (cpus == NULL) {
        return NULL;
    }
    if (hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_THREAD) != 0) {
        hwloc_bitmap_copy(cpus, hwloc_topology_get_allowed_cpuset(topology));
    }
    hwloc_bitmap_and(cpus, cpus, hwloc_topology_get_allowed_cpuset(topology));
    return cpus;
}

hwloc_obj_type_t weft__cores_type(hwloc_topology_t topology)
{
    return hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

hwloc_obj_t weft__cores_next(hwloc_topology_t topology, hwloc_const_bitmap_t usable,
                             hwloc_obj_t core)
{
    hwloc_obj_type_t type = weft__cores_type(topology);
    do {
        core = hwloc_get_next_obj_by_type(topology, type, core);
    } while (core != NULL && !hwloc_bitmap_intersects(core->cpuset, usable));
    return core;
}

int weft__cores_count(hwloc_topology_t topology, hwloc_const_bitmap_t usable)
{
    int count = 0;
    hwloc_obj_t core = NULL;
    while ((core = weft__cores_next(topology, usable, core)) != NULL) {
        count++;
    }
    return count;
}

void weft__cores_print(hwloc_const_bitmap_t cpus, char text[WEFT_TOPO_CPUS])
{
    int length = hwloc_bitmap_list_snprintf(text, WEFT_TOPO_CPUS, cpus);
    if (length >= WEFT_TOPO_CPUS) {
        memcpy(text + WEFT_TOPO_CPUS - 4, "...", 4);
    }
}
