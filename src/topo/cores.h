/* The cores of this machine as hwloc has them, asked for no more than is used: without devices and
 * with few kinds of objects a load takes a few milliseconds, which the start of every job has to
 * pay. */
#ifndef WEFT_TOPO_CORES_H
#define WEFT_TOPO_CORES_H

#include <stdbool.h>

#include <hwloc.h>

#include "topo/topo.h"

/* `all`: also packages and caches. hwloc_topology_destroy undoes it. */
weft_status_t weft__cores_load(bool all, hwloc_topology_t *topology_p);

/* The CPUs this thread may run on: the machine's, less cgroups', less the caller's own choice. NULL
 * without memory; freed with hwloc_bitmap_free. */
hwloc_bitmap_t weft__cores_usable(hwloc_topology_t topology);

/* Cores, or CPUs where the machine does not say what its cores are. */
hwloc_obj_type_t weft__cores_type(hwloc_topology_t topology);

/* The next core after `core` (NULL: the first) with a CPU of `usable`; NULL after the last. */
hwloc_obj_t weft__cores_next(hwloc_topology_t topology, hwloc_const_bitmap_t usable,
                             hwloc_obj_t core);
int weft__cores_count(hwloc_topology_t topology, hwloc_const_bitmap_t usable);

/* "0-3,8"; cut with "..." */
void weft__cores_print(hwloc_const_bitmap_t cpus, char text[WEFT_TOPO_CPUS]);

#endif
