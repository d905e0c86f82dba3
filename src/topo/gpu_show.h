/* The GPUs as tables and as JSON. */
#ifndef WEFT_TOPO_GPU_SHOW_H
#define WEFT_TOPO_GPU_SHOW_H

#include <stdio.h>

#include "base/json.h"
#include "topo/gpu.h"

/* A row a GPU, then two matrices of the pairs: the connection as nvidia-smi topo -m has it, and
 * what peers may do. One line if there are no GPUs. */
void weft__gpus_print(const weft_gpus_t *gpus, FILE *out);

/* One object with everything in *gpus; what is unknown is null. The key, if any, is the
 * caller's. */
void weft__gpus_json(const weft_gpus_t *gpus, const char *key, weft_json_t *json);

#endif
