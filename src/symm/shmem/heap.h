/* The symmetric heap: start and end. */
#ifndef WEFT_SYMM_SHMEM_HEAP_H
#define WEFT_SYMM_SHMEM_HEAP_H

#include <weft/status.h>

weft_status_t weft__shmem_heap_init(void);
void weft__shmem_heap_cleanup(void);

#endif
