/* What links of each kind should reach, in GB/s (10^9 bytes a second) of large transfers. `weft
 * links` flags a link below the number for one way; --min gives another one.
 *
 *   one way     the least that a healthy link reaches, not its peak
 *   both ways   the sum of the two directions; 0 where none is known. Shown, not judged: whether
 *               both directions share something is a property of the machine
 *
 * NVLink rows are for a GPU's full number of links; links with fewer are scaled by their number.
 * PCIe rows are for 16 lanes, scaled likewise. "by share" is an estimate: the specification times
 * the share of it that the nearest measured row reaches. */
#ifndef WEFT_BENCH_LINKS_EXPECTED_H
#define WEFT_BENCH_LINKS_EXPECTED_H

#include "bench/links/run.h"

/*    kind, generation or Gb/s, links or lanes, one way, both ways, where the numbers are from */
#define WEFT_LINK_EXPECTATIONS(X)                                                                  \
    X(NVLINK, 2, 6, 115, 0, "V100: 150 by specification; by share of NVLink 3")                    \
    X(NVLINK, 3, 12, 230, 0,                                                                       \
      "A100: 300 by specification, 276 by nvbandwidth; change cables below 230")                   \
    X(NVLINK, 4, 18, 335, 670,                                                                     \
      "H100, H200: 450 by specification, 396 and 784 by nvbandwidth; Azure's health check wants "  \
      "335")                                                                                       \
    X(NVLINK, 5, 18, 670, 0, "B200: 900 by specification; by share of NVLink 4")                   \
    X(PCIE, 3, 16, 11, 0, "host copies: 15.8 by specification; by share of PCIe 4")                \
    X(PCIE, 4, 16, 23, 0,                                                                          \
      "host copies: 31.5 by specification, 26.0 by nvbandwidth (A100); Azure's health check "      \
      "wants 23")                                                                                  \
    X(PCIE, 5, 16, 52, 0,                                                                          \
      "host copies: 63 by specification, 55.4 by nvbandwidth (H200); Azure's health check wants "  \
      "52")                                                                                        \
    X(PCIE, 6, 16, 100, 0, "host copies: 121 by specification; by share of PCIe 5")                \
    X(INFINIBAND, 100, 1, 11.2, 0, "EDR: 12.5 by specification; by share of HDR")                  \
    X(INFINIBAND, 200, 1, 22.5, 0,                                                                 \
      "HDR: 25 by specification; Azure's health check wants 180 Gb/s")                             \
    X(INFINIBAND, 400, 1, 47.5, 0,                                                                 \
      "NDR: 50 by specification; Azure's health check wants 380 Gb/s")                             \
    X(INFINIBAND, 800, 1, 95, 0, "XDR: 100 by specification; by share of NDR")                     \
    X(ETHERNET, 10, 1, 1.0, 0, "1.25 by specification; by share, TCP takes more of it")            \
    X(ETHERNET, 25, 1, 2.6, 0, "3.1 by specification; by share")                                   \
    X(ETHERNET, 40, 1, 4.2, 0, "5 by specification; by share")                                     \
    X(ETHERNET, 50, 1, 5.3, 0, "6.2 by specification; by share")                                   \
    X(ETHERNET, 100, 1, 10.6, 0, "RoCE: 12.5 by specification, about 11 measured")                 \
    X(ETHERNET, 200, 1, 21, 0, "25 by specification; by share of 100")                             \
    X(ETHERNET, 400, 1, 42, 0, "50 by specification; by share of 100")

/* Between GPUs over PCIe, as a share of host copies: bridges and sockets forward less than they
 * take. Estimates on the safe side; a machine that does better is not flagged. */
#define WEFT_LINK_PATH_SHARES(X)                                                                   \
    X(WEFT_PATH_SAME, 0.8)                                                                         \
    X(WEFT_PATH_SWITCH, 0.8)                                                                       \
    X(WEFT_PATH_SWITCHES, 0.8)                                                                     \
    X(WEFT_PATH_BRIDGE, 0.6)                                                                       \
    X(WEFT_PATH_NODE, 0.6)                                                                         \
    X(WEFT_PATH_SYSTEM, 0.4)

typedef enum weft_link_kind {
    WEFT_LINK_NVLINK,
    WEFT_LINK_PCIE,
    WEFT_LINK_INFINIBAND,
    WEFT_LINK_ETHERNET
} weft_link_kind_t;

/* GB/s one way of `count` links or lanes; 0 if the table has no such row. *source_p may be NULL. */
double weft__link_expected(weft_link_kind_t kind, int generation, int count, const char **source_p);

/* Name and expectation of the link between two GPUs, by their places in `gpus`; -1: not known. */
void weft__link_of_gpus(const weft_gpus_t *gpus, int from, int to, weft_link_info_t *link);

/* Name and expectation of a network: `rate` in Gb/s, 0: not known. */
void weft__link_of_network(bool infiniband, int rate, weft_link_info_t *link);

#endif
