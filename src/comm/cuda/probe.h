/* Whether ranks can use the cuda backend. */
#ifndef WEFT_COMM_CUDA_PROBE_H
#define WEFT_COMM_CUDA_PROBE_H

#include "comm/backends.h"
#include "topo/gpu.h"

weft_probe_t weft__cuda_probe(const weft_members_t *members);

/* Do these GPUs, of one host, reach each other's memory, for all that `known` says? */
bool weft__cuda_reach_by(const weft_gpus_t *known, const weft_member_t *members, int n);

#endif
