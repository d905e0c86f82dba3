#include "topo/topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "topo/cores.h"

static const hwloc_obj_type_t cache_types[] = {
    HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L1ICACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE,
};

#define CACHE_TYPES ((int)(sizeof(cache_types) / sizeof(cache_types[0])))

static int find_numa(hwloc_topology_t topology, hwloc_const_bitmap_t cpus)
{
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (hwloc_bitmap_intersects(node->cpuset, cpus)) {
            return (int)node->logical_index;
        }
    }
    return -1;
}

static void describe_cores(hwloc_topology_t topology, hwloc_const_bitmap_t usable,
                           weft_topo_t *topo)
{
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    hwloc_obj_t core = NULL;
    for (int i = 0; i < topo->core_count; i++) {
        core = weft__cores_next(topology, usable, core);
        hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, core);
        topo->cores[i].package = package == NULL ? -1 : (int)package->logical_index;
        topo->cores[i].numa = find_numa(topology, core->cpuset);
        if (cpus != NULL) {
            hwloc_bitmap_and(cpus, core->cpuset, usable);
            weft__cores_print(cpus, topo->cores[i].cpus);
        }
    }
    hwloc_bitmap_free(cpus);
}

static void describe_numas(hwloc_topology_t topology, weft_topo_t *topo)
{
    hwloc_obj_t node = NULL;
    for (int i = 0; i < topo->numa_count; i++) {
        node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node);
        topo->numas[i].memory = node->attr->numanode.local_memory;
        topo->numas[i].node = (int)node->os_index;
        weft__cores_print(node->cpuset, topo->numas[i].cpus);
    }
}

/* Machines with caches of several sizes at one level (big and little cores) show the first. */
static void describe_caches(hwloc_topology_t topology, weft_topo_t *topo)
{
    for (int i = 0; i < CACHE_TYPES && topo->cache_count < WEFT_TOPO_CACHES; i++) {
        hwloc_obj_t cache = hwloc_get_next_obj_by_type(topology, cache_types[i], NULL);
        if (cache == NULL) {
            continue;
        }
        weft_topo_cache_t *out = &topo->caches[topo->cache_count++];
        out->level = (int)cache->attr->cache.depth;
        out->kind = cache->attr->cache.type == HWLOC_OBJ_CACHE_DATA          ? 'd'
                    : cache->attr->cache.type == HWLOC_OBJ_CACHE_INSTRUCTION ? 'i'
                                                                             : 'u';
        out->bytes = cache->attr->cache.size;
        out->count = hwloc_get_nbobjs_by_type(topology, cache_types[i]);
        out->cores = hwloc_get_nbobjs_inside_cpuset_by_type(topology, cache->cpuset,
                                                            weft__cores_type(topology));
    }
}

weft_status_t weft__topo_read(weft_topo_t *topo_p)
{
    weft_topo_t topo = {0};
    hwloc_topology_t topology;
    weft_status_t status = weft__cores_load(true, &topology);
    if (status != WEFT_OK) {
        return status;
    }
    hwloc_bitmap_t usable = weft__cores_usable(topology);
    if (usable == NULL) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "topo: no memory");
        goto out;
    }
    topo.package_count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
    topo.numa_count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
    topo.core_count = weft__cores_count(topology, usable);
    topo.thread_count = hwloc_bitmap_weight(usable);
    topo.cores = calloc((size_t)topo.core_count + 1, sizeof(*topo.cores));
    topo.numas = calloc((size_t)topo.numa_count + 1, sizeof(*topo.numas));
    if (topo.cores == NULL || topo.numas == NULL) {
        weft__topo_cleanup(&topo);
        status = weft__fail(WEFT_ERR_NO_MEMORY, "topo: no memory for %d cores", topo.core_count);
        goto out;
    }
    describe_cores(topology, usable, &topo);
    describe_numas(topology, &topo);
    describe_caches(topology, &topo);
    hwloc_obj_t package = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, NULL);
    const char *model = package == NULL ? NULL : hwloc_obj_get_info_by_name(package, "CPUModel");
    snprintf(topo.model, sizeof(topo.model), "%s", model == NULL ? "" : model);
    *topo_p = topo;
out:
    hwloc_bitmap_free(usable);
    hwloc_topology_destroy(topology);
    return status;
}

void weft__topo_cleanup(weft_topo_t *topo)
{
    free(topo->cores);
    free(topo->numas);
    memset(topo, 0, sizeof(*topo));
}
