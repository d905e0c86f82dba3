/* Which ranks stand next to each other: a machine's links, and a grid laid over them.
 *
 * Tensor-parallel ranks talk several times a layer, data-parallel ranks once a step (with ZeRO-3
 * once a layer), pipeline stages pass on one activation. So the ranks with the fastest links
 * between them become rows of tp, the nearest of these rows of dp, and what is left follows in
 * stages:
 *
 *     ranks -> groups of tp -> rows of dp groups -> a chain of pp rows
 *
 * Each step takes the first that is left, in the order of the machine (hosts, then devices, then
 * ranks), and adds those that are nearest to all it has so far. Where all links are alike, the grid
 * is in the order of the machine. */
#ifndef WEFT_PARALLEL_PLACES_H
#define WEFT_PARALLEL_PLACES_H

#include <stddef.h>
#include <stdint.h>

#include <weft/comm.h>

#include "parallel/plan.h"

/* How near two ranks are, nearest last; one row each: name, text. NVLINK is that of one link and
 * goes up with their number, to just below SAME. */
#define WEFT_NEAR_TABLE(X)                                                                         \
    X(WEFT_NEAR_UNKNOWN, "unknown links")                                                          \
    X(WEFT_NEAR_NETWORK, "the network between hosts")                                              \
    X(WEFT_NEAR_SYSTEM, "the link between NUMA nodes")                                             \
    X(WEFT_NEAR_NODE, "one NUMA node")                                                             \
    X(WEFT_NEAR_BRIDGE, "a PCIe host bridge")                                                      \
    X(WEFT_NEAR_SWITCHES, "PCIe switches")                                                         \
    X(WEFT_NEAR_SWITCH, "a PCIe switch")                                                           \
    X(WEFT_NEAR_BOARD, "one board")                                                                \
    X(WEFT_NEAR_NVLINK, "NVLink")

typedef enum weft_near {
#define WEFT_NEAR_ENUM(name, text) name,
    WEFT_NEAR_TABLE(WEFT_NEAR_ENUM)
#undef WEFT_NEAR_ENUM
        WEFT_NEAR_SAME = 255 /* one device */
} weft_near_t;

/* Arrange `size` = dp x pp x tp ranks, given in the order of the machine: ranks[place] becomes the
 * rank that stands there (mesh.h). near[a x size + b] is how near rank b is to rank a. */
weft_status_t weft__places_arrange(const weft_plan_t *plan, int size, const uint8_t *near,
                                   int *ranks);

/* The ranks of `comm` in the order of the machine, and how near they are to each other: size and
 * size x size entries. Collective; all ranks get the same. What cannot be found out is
 * WEFT_NEAR_UNKNOWN. */
weft_status_t weft__places_find(weft_comm_h comm, int size, int *ranks, uint8_t *near);

/* "NVLink (18)"; returns text. */
const char *weft__near_text(uint8_t near, char *text, size_t room);

#endif
