/* From which size on which way is faster, per collective: measured by `weft bench --tune` and kept
 * in a file, one line per kind of GPU, number of ranks, whether they share GPUs, and collective:
 *
 *     NVIDIA_H200 8 shared allreduce ll 65536 nccl 0
 *
 * The file is $WEFT_TUNE_FILE, else weft/tune under $XDG_CONFIG_HOME or ~/.config. All ranks of a
 * communicator must read the same. */
#ifndef WEFT_COMM_CUDA_TUNE_H
#define WEFT_COMM_CUDA_TUNE_H

#include "comm/tuner.h"

typedef struct weft_cuda_tune {
    uint64_t ll_most[WEFT_COLL_COUNT]; /* blocks up to here travel by the LL protocol; 0: by rule */
    uint64_t nccl_min[WEFT_COLL_COUNT]; /* from here on NCCL takes them, where it can */
} weft_cuda_tune_t;

/* The rule where nothing was measured, then what the file has. Lines that make no sense are warned
 * of and skipped. */
void weft__tune_read(const char *gpu, int ranks, bool shared, weft_cuda_tune_t *tune_p);

/* Put the values of one collective into the file, in place of those it has for the same machine. */
weft_status_t weft__tune_write(const char *gpu, int ranks, bool shared, weft_coll_t coll,
                               uint64_t ll_most, uint64_t nccl_min, char *path, size_t room);

#endif
