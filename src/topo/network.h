/* The fastest network of this host. */
#ifndef WEFT_TOPO_NETWORK_H
#define WEFT_TOPO_NETWORK_H

#include <stdbool.h>

/* Gb/s of the fastest port that is up, of InfiniBand if there is one, else of Ethernet cards; 0:
 * the kernel does not say. *infiniband_p: which of them. `root` is put before /sys: "" for the real
 * one. */
int weft__network_rate(const char *root, bool *infiniband_p);

#endif
