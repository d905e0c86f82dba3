/* Moving bytes: see copy.h. */
#include "symm/shmem/copy.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdbool.h>
#include <stdint.h>

#define FSRM (1u << 4) /* "fast short rep mov", of leaf 7 */

/* Beyond this a copy does not fit in a cache beside its source: storing past the cache saves the
 * reading of what is overwritten. */
#define STREAM_MIN ((size_t)8 << 20)

/* Intel's processors say that they copy short pieces fast; others' do, too, but not at all
 * distances (see kernel/cpu/cpu.h). */
void weft__shmem_copy_init(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    __builtin_cpu_init();
    if (__builtin_cpu_is("intel") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & FSRM) != 0) {
        atomic_store_explicit(&weft__shmem.copy_range,
                              WEFT_SHMEM_COPY_LARGE - WEFT_SHMEM_COPY_WHOLE, memory_order_relaxed);
    }
#endif
}

void weft__shmem_copy_large(void *to, const void *from, size_t bytes)
{
    uintptr_t distance = (uintptr_t)to > (uintptr_t)from ? (uintptr_t)to - (uintptr_t)from
                                                         : (uintptr_t)from - (uintptr_t)to;
    if (distance < bytes) {
        memmove(to, from, bytes);
        return;
    }
    /* Not weft__shmem.kernels: heaps of communicators come this way too, without shmem_init. */
    weft__kernels()->copy(to, from, bytes,
                          bytes >= STREAM_MIN ? WEFT_STORE_STREAM : WEFT_STORE_CACHED);
}

#define STRIDED(type)                                                                              \
    for (size_t i = 0; i < count; i++) {                                                           \
        memcpy((char *)to + (ptrdiff_t)i * to_stride * (ptrdiff_t)sizeof(type),                    \
               (const char *)from + (ptrdiff_t)i * from_stride * (ptrdiff_t)sizeof(type),          \
               sizeof(type));                                                                      \
    }

typedef struct two_words {
    uint64_t words[2];
} two_words_t;

void weft__shmem_copy_strided(void *to, ptrdiff_t to_stride, const void *from,
                              ptrdiff_t from_stride, size_t count, size_t size)
{
    if (to_stride == 1 && from_stride == 1) {
        weft__shmem_copy(to, from, count * size);
        return;
    }
    switch (size) {
    case 1:
        STRIDED(uint8_t)
        break;
    case 2:
        STRIDED(uint16_t)
        break;
    case 4:
        STRIDED(uint32_t)
        break;
    case 8:
        STRIDED(uint64_t)
        break;
    default:
        STRIDED(two_words_t)
        break;
    }
}
