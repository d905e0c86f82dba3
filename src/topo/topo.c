/* hwloc, asked for no more than is used: without devices and with few kinds of objects a load
 * takes a few milliseconds, which the start of every job has to pay. */
#include "topo/topo.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hwloc.h>

#include "base/log.h"

static const hwloc_obj_type_t cache_types[] = {
    HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L1ICACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE,
};

#define CACHE_TYPES ((int)(sizeof(cache_types) / sizeof(cache_types[0])))

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

/* `all`: also packages and caches. */
static weft_status_t load(bool all, hwloc_topology_t *topology_p)
{
    hwloc_topology_t topology;
    if (init_without_plugins(&topology) != 0) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "topo: hwloc cannot start: %s", strerror(errno));
    }
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (all) {
        hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
        for (int i = 0; i < CACHE_TYPES; i++) {
            hwloc_topology_set_type_filter(topology, cache_types[i], HWLOC_TYPE_FILTER_KEEP_ALL);
        }
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

/* The CPUs this thread may run on: the machine's, less cgroups', less the caller's own choice. */
static hwloc_bitmap_t usable_cpus(hwloc_topology_t topology)
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

/* Cores, or CPUs where the machine does not say what its cores are. */
static hwloc_obj_type_t core_type(hwloc_topology_t topology)
{
    return hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

static hwloc_obj_t next_core(hwloc_topology_t topology, hwloc_const_bitmap_t usable,
                             hwloc_obj_t core)
{
    hwloc_obj_type_t type = core_type(topology);
    do {
        core = hwloc_get_next_obj_by_type(topology, type, core);
    } while (core != NULL && !hwloc_bitmap_intersects(core->cpuset, usable));
    return core;
}

static int count_cores(hwloc_topology_t topology, hwloc_const_bitmap_t usable)
{
    int count = 0;
    hwloc_obj_t core = NULL;
    while ((core = next_core(topology, usable, core)) != NULL) {
        count++;
    }
    return count;
}

static void print_cpus(hwloc_const_bitmap_t cpus, char text[WEFT_TOPO_CPUS])
{
    int length = hwloc_bitmap_list_snprintf(text, WEFT_TOPO_CPUS, cpus);
    if (length >= WEFT_TOPO_CPUS) {
        memcpy(text + WEFT_TOPO_CPUS - 4, "...", 4);
    }
}

/* ---- the description --------------------------------------------------------------------- */

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
        core = next_core(topology, usable, core);
        hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, core);
        topo->cores[i].package = package == NULL ? -1 : (int)package->logical_index;
        topo->cores[i].numa = find_numa(topology, core->cpuset);
        if (cpus != NULL) {
            hwloc_bitmap_and(cpus, core->cpuset, usable);
            print_cpus(cpus, topo->cores[i].cpus);
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
        print_cpus(node->cpuset, topo->numas[i].cpus);
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
                                                            core_type(topology));
    }
}

weft_status_t weft__topo_read(weft_topo_t *topo_p)
{
    weft_topo_t topo = {0};
    hwloc_topology_t topology;
    weft_status_t status = load(true, &topology);
    if (status != WEFT_OK) {
        return status;
    }
    hwloc_bitmap_t usable = usable_cpus(topology);
    if (usable == NULL) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "topo: no memory");
        goto out;
    }
    topo.package_count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE);
    topo.numa_count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE);
    topo.core_count = count_cores(topology, usable);
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

/* ---- binding ----------------------------------------------------------------------------- */

/* Add core `index`'s usable CPUs to the mask of every rank that has it. */
static void give_core(hwloc_const_bitmap_t cpus, int index, int cores, weft_bind_t *bind)
{
    for (int rank = 0; rank < bind->ranks; rank++) {
        bool has = bind->ranks > cores
                       ? rank % cores == index
                       : index >= (int)((int64_t)rank * cores / bind->ranks) &&
                             index < (int)((int64_t)(rank + 1) * cores / bind->ranks);
        if (!has) {
            continue;
        }
        unsigned long *mask = bind->masks + (size_t)rank * bind->words;
        for (int cpu = hwloc_bitmap_first(cpus); cpu >= 0; cpu = hwloc_bitmap_next(cpus, cpu)) {
            size_t bits = 8 * sizeof(unsigned long);
            mask[(size_t)cpu / bits] |= 1ul << (size_t)cpu % bits;
        }
    }
}

weft_status_t weft__bind_plan(int ranks, weft_bind_t *bind_p)
{
    weft_bind_t bind = {.ranks = ranks};
    hwloc_topology_t topology;
    hwloc_bitmap_t usable = NULL, cpus = NULL;
    weft_status_t status = load(false, &topology);
    if (status != WEFT_OK) {
        return status;
    }
    usable = usable_cpus(topology);
    cpus = hwloc_bitmap_alloc();
    int last = usable == NULL ? -1 : hwloc_bitmap_last(usable);
    if (cpus == NULL || last < 0) {
        status = weft__fail(WEFT_ERR_SYSTEM, "topo: there is no CPU that we may use");
        goto out;
    }
    bind.words = (size_t)last / (8 * sizeof(unsigned long)) + 1;
    bind.masks = calloc((size_t)ranks * bind.words, sizeof(unsigned long));
    if (bind.masks == NULL) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "topo: no memory for the masks of %d ranks", ranks);
        goto out;
    }
    int cores = count_cores(topology, usable);
    hwloc_obj_t core = NULL;
    for (int i = 0; i < cores; i++) {
        core = next_core(topology, usable, core);
        hwloc_bitmap_and(cpus, core->cpuset, usable);
        give_core(cpus, i, cores, &bind);
    }
    *bind_p = bind;
out:
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(usable);
    hwloc_topology_destroy(topology);
    return status;
}

void weft__bind_cleanup(weft_bind_t *bind)
{
    free(bind->masks);
    memset(bind, 0, sizeof(*bind));
}

void weft__bind_print(const weft_bind_t *bind, int rank, char cpus[WEFT_TOPO_CPUS])
{
    hwloc_bitmap_t bitmap = hwloc_bitmap_alloc();
    cpus[0] = '\0';
    if (bitmap == NULL) {
        return;
    }
    for (size_t i = 0; i < bind->words; i++) {
        hwloc_bitmap_set_ith_ulong(bitmap, (unsigned)i,
                                   bind->masks[(size_t)rank * bind->words + i]);
    }
    print_cpus(bitmap, cpus);
    hwloc_bitmap_free(bitmap);
}
