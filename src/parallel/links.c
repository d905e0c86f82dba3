/* How near the ranks of a communicator are to each other: see places.h. */
#include <stdlib.h>
#include <string.h>

#include <weft/device.h>

#include "base/log.h"
#include "parallel/places.h"
#include "topo/gpu.h"
#include "topo/host.h"
#include "topo/topo.h"

/* What a rank tells about where it is. */
typedef struct position {
    uint64_t host;
    int64_t device;
    int64_t numa; /* the node that all of its CPUs belong to; -1: several, or unknown */
} position_t;

/* ---- the order of the machine ------------------------------------------------------------- */

/* Hosts in the order of their first ranks, ranks of a host by device, then by rank. */
static bool sits_before(const position_t *positions, const int *host, int a, int b)
{
    if (host[a] != host[b]) {
        return host[a] < host[b];
    }
    return positions[a].device != positions[b].device ? positions[a].device < positions[b].device
                                                      : a < b;
}

/* host[r] becomes the first rank on the host of rank r. */
static void order_positions(const position_t *positions, int size, int *host, int *ranks)
{
    for (int r = 0; r < size; r++) {
        host[r] = r;
        for (int before = 0; before < r && host[r] == r; before++) {
            host[r] = positions[before].host == positions[r].host ? host[before] : r;
        }
    }
    for (int r = 0; r < size; r++) {
        int place = 0;
        for (int other = 0; other < size; other++) {
            place += other != r && sits_before(positions, host, other, r);
        }
        ranks[place] = r;
    }
}

/* ---- links -------------------------------------------------------------------------------- */

static uint8_t near_gpus(const weft_gpus_t *gpus, const position_t *a, const position_t *b)
{
    static const uint8_t paths[] = {
        [WEFT_PATH_SAME] = WEFT_NEAR_BOARD,        [WEFT_PATH_SWITCH] = WEFT_NEAR_SWITCH,
        [WEFT_PATH_SWITCHES] = WEFT_NEAR_SWITCHES, [WEFT_PATH_BRIDGE] = WEFT_NEAR_BRIDGE,
        [WEFT_PATH_NODE] = WEFT_NEAR_NODE,         [WEFT_PATH_SYSTEM] = WEFT_NEAR_SYSTEM};
    int from = weft__gpu_of_rank(gpus, (int)a->device),
        to = weft__gpu_of_rank(gpus, (int)b->device);
    if (from < 0 || to < 0) {
        return WEFT_NEAR_UNKNOWN;
    }
    if (from == to) {
        return WEFT_NEAR_SAME;
    }
    const weft_gpu_pair_t *pair = weft__gpu_pair(gpus, from, to);
    if (pair->links > 0) {
        int near = WEFT_NEAR_NVLINK + pair->links - 1;
        return (uint8_t)(near < WEFT_NEAR_SAME ? near : WEFT_NEAR_SAME - 1);
    }
    return pair->path == WEFT_PATH_UNKNOWN ? (uint8_t)WEFT_NEAR_UNKNOWN : paths[pair->path];
}

static uint8_t near_cores(const position_t *a, const position_t *b)
{
    if (a->numa < 0 || b->numa < 0) {
        return WEFT_NEAR_UNKNOWN;
    }
    return a->numa == b->numa ? WEFT_NEAR_NODE : WEFT_NEAR_SYSTEM;
}

/* All pairs that rank `rank` speaks for: it is the first of its host, so that one rank of a host
 * asks the driver. Pairs of different hosts are rank 0's. */
static void fill_near(const position_t *positions, const int *host, int rank, int size,
                      const weft_gpus_t *gpus, uint8_t *near)
{
    for (int a = 0; a < size; a++) {
        for (int b = 0; b < size; b++) {
            uint8_t *here = &near[(size_t)a * (size_t)size + (size_t)b];
            if (host[a] != host[b]) {
                *here = rank == 0 ? WEFT_NEAR_NETWORK : 0;
            } else if (host[a] == rank) {
                *here = a == b         ? WEFT_NEAR_SAME
                        : gpus != NULL ? near_gpus(gpus, &positions[a], &positions[b])
                                       : near_cores(&positions[a], &positions[b]);
            }
        }
    }
}

static weft_status_t read_links(const position_t *positions, const int *host, int rank, int size,
                                uint8_t *near)
{
    const char *kind;
    weft_gpus_t gpus;
    WEFT_TRY(weft_device_kind(&kind));
    bool cuda = strcmp(kind, "cuda") == 0 && host[rank] == rank;
    if (cuda) {
        WEFT_TRY(weft__gpus_read(&gpus));
    }
    fill_near(positions, host, rank, size, cuda ? &gpus : NULL, near);
    if (cuda) {
        weft__gpus_cleanup(&gpus);
    }
    return WEFT_OK;
}

static weft_status_t find(weft_comm_h comm, int size, position_t *positions, int *host, int *ranks,
                          uint8_t *near)
{
    int rank, device;
    WEFT_TRY(weft_comm_rank(comm, &rank));
    WEFT_TRY(weft_comm_device(comm, &device));
    position_t mine = {.device = device, .numa = weft__numa_here("")};
    WEFT_TRY(weft__host_id(&mine.host));
    WEFT_TRY(weft_allgather(&mine, positions, sizeof(mine), WEFT_U8, comm, NULL));
    order_positions(positions, size, host, ranks);
    memset(near, 0, (size_t)size * (size_t)size);
    WEFT_TRY(read_links(positions, host, rank, size, near));
    return weft_allreduce(near, near, (size_t)size * (size_t)size, WEFT_U8, WEFT_MAX, comm, NULL);
}

weft_status_t weft__places_find(weft_comm_h comm, int size, int *ranks, uint8_t *near)
{
    position_t *positions = calloc((size_t)size, sizeof(*positions));
    int *host = calloc((size_t)size, sizeof(int));
    weft_status_t status = positions != NULL && host != NULL
                               ? find(comm, size, positions, host, ranks, near)
                               : weft__fail(WEFT_ERR_NO_MEMORY, "no memory to find %d ranks", size);
    free(positions);
    free(host);
    return status;
}
