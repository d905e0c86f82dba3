/* The file of a PE: made, mapped, shared. The drawing is in state.h. */
#ifndef WEFT_SYMM_SHMEM_SEGMENT_H
#define WEFT_SYMM_SHMEM_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#include "symm/shmem/state.h"

/* What a PE tells the others about itself. */
typedef struct weft_shmem_peer_info {
    uint64_t magic, host, program; /* program: equal where executables are */
    uint64_t file_bytes, heap_at, heap_bytes, data_at, data_bytes;
    int32_t pid, fd;
    uint64_t cpus[16]; /* that it may run on, a bit each */
} weft_shmem_peer_info_t;

/* Where the variables of the program lie: whole pages. None: 0 bytes. *program_p identifies it. */
void weft__shmem_find_data(weft_shmem_span_t *span_p, uint64_t *program_p);

/* Make this PE's file with a heap of `heap_bytes`, map it, and put the program's variables into it.
 * Fills `heap` and `data` of the state, and the peer info. */
weft_status_t weft__shmem_segment_create(int pes, size_t heap_bytes,
                                         weft_shmem_peer_info_t *info_p);

/* Map the file of another PE. `pe` is for sentences. */
weft_status_t weft__shmem_segment_open(const weft_shmem_peer_info_t *info, int pe,
                                       weft_shmem_peer_t *peer_p);
void weft__shmem_segment_close(const weft_shmem_peer_info_t *info, const weft_shmem_peer_t *peer);

/* Give the heap back. Variables stay where they are. */
void weft__shmem_segment_cleanup(void);

/* Have pages behind `bytes` at `offset` of the heap, of which none is in use after the first that
 * has no pages yet. False: there is no memory for them. */
bool weft__shmem_segment_back(uint64_t offset, uint64_t bytes);

#endif
