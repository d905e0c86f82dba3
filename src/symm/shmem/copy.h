/* Moving bytes between PEs. */
#ifndef WEFT_SYMM_SHMEM_COPY_H
#define WEFT_SYMM_SHMEM_COPY_H

#include <stddef.h>
#include <string.h>

#include "symm/shmem/state.h"

#define WEFT_SHMEM_COPY_LARGE 32768u

/* As weft__shmem_copy; for what is large. */
void weft__shmem_copy_large(void *to, const void *from, size_t bytes);

/* Copy. Stores of the caller that come after it are seen after it. */
FAST void weft__shmem_copy(void *to, const void *from, size_t bytes)
{
    if (bytes < WEFT_SHMEM_COPY_LARGE) {
        memmove(to, from, bytes);
    } else {
        weft__shmem_copy_large(to, from, bytes);
    }
}

/* Copy `count` elements of `size` bytes, which lie `to_stride` and `from_stride` elements apart. */
void weft__shmem_copy_strided(void *to, ptrdiff_t to_stride, const void *from,
                              ptrdiff_t from_stride, size_t count, size_t size);

#endif
