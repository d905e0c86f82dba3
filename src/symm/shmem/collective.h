/* Collectives that move data, for teams and active sets alike. Sizes in bytes. */
#ifndef WEFT_SYMM_SHMEM_COLLECTIVE_H
#define WEFT_SYMM_SHMEM_COLLECTIVE_H

#include "symm/shmem/group.h"

/* `to_root`: the root's own dest is written too, as teams want it and active sets do not. */
void weft__shmem_broadcast(weft_shmem_team_t *team, void *dest, const void *source, size_t bytes,
                           int root, bool to_root, const char *call);
void weft__shmem_fcollect(weft_shmem_team_t *team, void *dest, const void *source, size_t bytes,
                          const char *call);
void weft__shmem_collect(weft_shmem_team_t *team, void *dest, const void *source, size_t bytes,
                         const char *call);
void weft__shmem_alltoall(weft_shmem_team_t *team, void *dest, const void *source, size_t bytes,
                          const char *call);
void weft__shmem_alltoalls(weft_shmem_team_t *team, void *dest, const void *source, ptrdiff_t dst,
                           ptrdiff_t sst, size_t nelems, size_t size, const char *call);

#endif
