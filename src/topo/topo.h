/* What this machine is: packages, NUMA nodes, cores and caches, as far as this process may use
 * them, and how ranks are spread over the cores.
 *
 * Reading and planning change the environment for a moment: to be called while there is no other
 * thread that might look at it. */
#ifndef WEFT_TOPO_TOPO_H
#define WEFT_TOPO_TOPO_H

#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#define WEFT_TOPO_CPUS 96 /* room for a list of CPUs as text; cut with "..." if longer */
#define WEFT_TOPO_CACHES 8

typedef struct weft_topo_core {
    int package, numa;         /* index among those here; -1 if unknown */
    char cpus[WEFT_TOPO_CPUS]; /* the kernel's numbers of its hardware threads: "0,32" */
} weft_topo_core_t;

typedef struct weft_topo_numa {
    uint64_t memory; /* bytes */
    int node;        /* the kernel's number */
    char cpus[WEFT_TOPO_CPUS];
} weft_topo_numa_t;

typedef struct weft_topo_cache {
    int level;
    char kind;      /* 'd' data, 'i' instructions, 'u' both */
    uint64_t bytes; /* of one */
    int count;
    int cores; /* that share one */
} weft_topo_cache_t;

typedef struct weft_topo {
    char model[96]; /* of the processor; "" if unknown */
    int package_count, numa_count, core_count, thread_count, cache_count;
    weft_topo_core_t *cores;
    weft_topo_numa_t *numas;
    weft_topo_cache_t caches[WEFT_TOPO_CACHES]; /* smallest level first */
} weft_topo_t;

weft_status_t weft__topo_read(weft_topo_t *topo_p);
void weft__topo_cleanup(weft_topo_t *topo);

/* The NUMA node, by the kernel's number, that all CPUs of the calling thread belong to; -1: to
 * several, or the kernel does not say. `root` is put before /sys: "" for the real one. Any thread
 * may ask. */
int weft__numa_here(const char *root);

/* Bytes of a last-level cache of this machine, and in *count_p how many of them it has; 0: the
 * kernel does not say. `root` as above. Two small files are read. Any thread may ask. */
size_t weft__last_cache(const char *root, int *count_p);

/* One CPU mask a rank, as sched_setaffinity takes it: rank r's is at masks + r x words. */
typedef struct weft_bind {
    int ranks;
    size_t words;
    unsigned long *masks;
} weft_bind_t;

/* Spread `ranks` over the physical cores that this process may use. No two ranks share a core as
 * long as there are enough: each gets the same share of neighbouring cores, with room for the
 * threads that it starts itself. With more ranks than cores, rank r gets core r modulo their
 * number. A rank may use all hardware threads of its cores.
 *
 * `near`, if not NULL, has for each rank the CPUs near to what it uses. A rank then gets cores with
 * such a CPU only, spread likewise among those who want the same. One whose mask is empty, or out
 * of what this process may use, gets its share of the cores that no other wants, or of all. */
weft_status_t weft__bind_plan(int ranks, const weft_bind_t *near, weft_bind_t *bind_p);
void weft__bind_cleanup(weft_bind_t *bind);
/* The mask of `rank` as a list: "0-3,8". */
void weft__bind_print(const weft_bind_t *bind, int rank, char cpus[WEFT_TOPO_CPUS]);

#endif
