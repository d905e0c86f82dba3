/* Allocations that fail when told to, for the one source of a program that includes this.
 * Sanitizers have allocators of their own: MEMORY_FAILS is 0 under them, and nothing fails. */
#ifndef WEFT_TEST_NO_MEMORY_H
#define WEFT_TEST_NO_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MEMORY_FAILS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MEMORY_FAILS 0
#endif
#endif
#ifndef MEMORY_FAILS
#define MEMORY_FAILS 1
#endif

#if MEMORY_FAILS

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);

/* How many more allocations of this thread succeed before one fails; -1: all do, as after that
 * one. */
static _Thread_local int allocations_left = -1;

static bool allocation_fails(void)
{
    return allocations_left >= 0 && allocations_left-- == 0;
}

#ifndef MALLOC_SUCCEEDS /* said before by those who use C++ beneath Weft, which would end over it */
void *malloc(size_t bytes)
{
    return allocation_fails() ? NULL : __libc_malloc(bytes);
}
#endif

void *calloc(size_t count, size_t bytes)
{
    return allocation_fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return allocation_fails() ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return allocation_fails() ? NULL : __libc_memalign(align, bytes);
}

#endif

#endif
