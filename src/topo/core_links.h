/* How near two ranks are to each other, by the CPUs that they may run on.
 *
 * The machine is read once into a table of its CPUs; what follows from it is arithmetic, so that
 * any thread may ask. */
#ifndef WEFT_TOPO_CORE_LINKS_H
#define WEFT_TOPO_CORE_LINKS_H

#include <stddef.h>

#include <weft/status.h>

#define WEFT_CORE_MASK_WORDS ((int)(4096 / (8 * sizeof(unsigned long)))) /* of a CPU mask */

/* Near ones first. One row each: name, text. */
#define WEFT_CORE_LINK_TABLE(X)                                                                    \
    X(WEFT_CORE_LINK_CORE, "same core")                                                            \
    X(WEFT_CORE_LINK_SMT, "SMT siblings")                                                          \
    X(WEFT_CORE_LINK_CACHE, "same L3")                                                             \
    X(WEFT_CORE_LINK_NUMA, "same NUMA node")                                                       \
    X(WEFT_CORE_LINK_FAR, "other NUMA node")                                                       \
    X(WEFT_CORE_LINK_UNBOUND, "unbound")

typedef enum weft_core_link {
#define WEFT_CORE_LINK_ENUM(name, text) name,
    WEFT_CORE_LINK_TABLE(WEFT_CORE_LINK_ENUM)
#undef WEFT_CORE_LINK_ENUM
} weft_core_link_t;

/* Numbers of what a CPU belongs to; -1: the machine does not say, or has no such CPU. */
typedef struct weft_core_cpu {
    int core, cache, numa; /* cache: the L3 */
} weft_core_cpu_t;

typedef struct weft_core_map {
    int cores; /* of the machine, usable or not */
    int cpus;  /* length of `of`: 1 + the highest number of a CPU */
    weft_core_cpu_t *of;
} weft_core_map_t;

/* Changes the environment for a moment: to be called while no other thread may look at it. */
weft_status_t weft__core_map_read(weft_core_map_t *map_p);
void weft__core_map_cleanup(weft_core_map_t *map);

/* The CPUs of the calling thread. */
weft_status_t weft__core_mask_here(unsigned long mask[WEFT_CORE_MASK_WORDS]);

/* How ranks with these CPUs are connected. A rank that may run on all cores of a machine with
 * several, or on several NUMA nodes, is unbound; so is one with no CPU of the map. */
weft_core_link_t weft__core_link(const weft_core_map_t *map,
                                 const unsigned long a[WEFT_CORE_MASK_WORDS],
                                 const unsigned long b[WEFT_CORE_MASK_WORDS]);
const char *weft__core_link_text(weft_core_link_t near);

#endif
