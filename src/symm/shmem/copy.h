/* Moving bytes between PEs. */
#ifndef WEFT_SYMM_SHMEM_COPY_H
#define WEFT_SYMM_SHMEM_COPY_H

#include <stddef.h>
#include <string.h>

#include "symm/shmem/state.h"

#define WEFT_SHMEM_COPY_LARGE 32768u
#define WEFT_SHMEM_COPY_WHOLE 4096u

/* From COPY_WHOLE to COPY_LARGE the processor's own copy is the fastest, if it is good: what libc
 * does as well, but after looking at ends and overlaps, which at 4 KiB is a tenth of the time. Find
 * out whether it is; weft__shmem.copy_range is COPY_LARGE - COPY_WHOLE then, and 0 before. Again
 * does no harm. */
void weft__shmem_copy_init(void);

/* As weft__shmem_copy; for what is large. */
void weft__shmem_copy_large(void *to, const void *from, size_t bytes);

/* Can it go forwards, in whole cache lines? */
FAST bool weft__shmem_copy_fits(const void *to, const void *from, size_t bytes)
{
    return (((uintptr_t)to | (uintptr_t)from) & 63) == 0 &&
           (uintptr_t)to - (uintptr_t)from >= bytes;
}

/* Copy. Stores of the caller that come after it are seen after it. */
FAST void weft__shmem_copy(void *to, const void *from, size_t bytes)
{
#if defined(__x86_64__)
    if (bytes - WEFT_SHMEM_COPY_WHOLE <
            atomic_load_explicit(&weft__shmem.copy_range, memory_order_relaxed) &&
        weft__shmem_copy_fits(to, from, bytes)) {
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
        return;
    }
#endif
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
