/* weft links: how fast every rank reaches every other, what connects them, and which links are
 * slower than they should be.
 *
 * Ranks move data as programs do: puts into each other's symmetric memory, or messages where ranks
 * cannot reach each other's memory. Only the two ranks that are measured are at work.
 *
 *     links.c         the order of things; rank 0 judges
 *       links/kinds.c       what connects two ranks; expected.h: what such a link should reach
 *       links/run.c         buffers; one transfer; who may measure now
 *       links/one_way.c     samples of all links, in random order, many short ones
 *       links/exchange.c    both ways at once; latency
 *       links/together.c    all ranks at work: permutations, all-to-all, all-reduce
 *       links/memory.c      memory of the device, of a peer, of the host
 *       links/judge.c       statistics: which links are slow
 *       links/show.c, write.c   the matrix in the terminal; JSON */
#ifndef WEFT_BENCH_LINKS_H
#define WEFT_BENCH_LINKS_H

#include <stdbool.h>
#include <stddef.h>

#include <weft/weft.h>

#include "topo/core_links.h"
#include "topo/gpu.h"
#include "topo/machine.h"

/* name, sweeps of one-way samples, seconds that these may take, seconds for all ranks at once,
 * repeats of all but sweeps */
#define WEFT_LINKS_PROFILES(X)                                                                     \
    X("quick", 120, 3, 1, 3)                                                                       \
    X("standard", 240, 8, 2, 5)                                                                    \
    X("thorough", 960, 60, 20, 15)

typedef struct weft_links {
    int profile;          /* row of the table above */
    size_t bytes;         /* of a transfer; 0: by the kind of device */
    double min_gbs;       /* what every link must reach; 0: what its kind should */
    int ranks_here;       /* on this host */
    bool threads;         /* ranks are threads of one process */
    bool colour;          /* rank 0: stdout is a terminal that takes it */
    const char *json;     /* file, or NULL */
    char *const *command; /* as it was typed, ended by NULL */
    weft_machine_t machine;
    weft_core_map_t cores; /* of this host; cores.cpus == 0: not read yet */
    weft_gpus_t gpus;      /* of this host, where ranks are on GPUs */
} weft_links_t;

/* The row of WEFT_LINKS_PROFILES with this name; -1 if there is none. Name of a row; NULL after the
 * last. */
int weft__links_profile(const char *name);
const char *weft__links_profile_name(int row);

/* Read the machine for ranks of this process: once, by one thread, before weft__links_run. */
void weft__links_read_machine(weft_links_t *links);
void weft__links_cleanup(weft_links_t *links);

/* Measure as one rank of `comm`; called by all of them. Rank 0 prints and writes the file.
 * *findings_p, the same on all ranks: problems that were found. */
weft_status_t weft__links_run(const weft_links_t *links, weft_comm_h comm, int *findings_p);

#endif
