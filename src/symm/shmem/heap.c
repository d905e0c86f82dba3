/* The symmetric heap.
 *
 * Every PE keeps an arena (symm/arena.h), which gives the same offsets for the same calls. That the
 * calls are the same is checked: the barrier that each of them is to have carries what was asked
 * for. */
#include "symm/shmem/heap.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "comm/watch.h"
#include "device/sysmem.h"
#include "symm/arena.h"
#include "symm/shmem/copy.h"
#include "symm/shmem/env.h"
#include "symm/shmem/group.h"
#include "symm/shmem/segment.h"

/* What a PE asks for, as it tells the others. */
typedef struct request {
    char call[24];
    uint64_t bytes, align;
    uint64_t offset; /* of what is freed or changed */
    uint64_t failed; /* for want of memory here */
} request_t;

_Static_assert(sizeof(request_t) <= WEFT_SHMEM_INLINE, "goes with the flag");

static weft_arena_t arena;

weft_status_t weft__shmem_heap_init(void)
{
    return weft__arena_init(&arena, weft__shmem.heap.bytes);
}

void weft__shmem_heap_cleanup(void)
{
    weft__arena_cleanup(&arena);
}

static char *base(void)
{
    return (char *)weft__shmem.heap.base;
}

/* Two sizes that may be of several GiB in one sentence, so exact bytes as well. The same on all
 * PEs, so one says it. */
static void say_too_small(const char *call, uint64_t bytes, uint64_t align)
{
    char need[WEFT_BYTES_TEXT], free[WEFT_BYTES_TEXT], all[WEFT_BYTES_TEXT], advice[96];
    uint64_t largest = weft__arena_largest(&arena), heap = weft__shmem.heap.bytes;
    uint64_t enough = heap + weft__arena_need(bytes) + (align > WEFT_ARENA_GRANULE ? align : 0);
    snprintf(advice, sizeof(advice), "set SHMEM_SYMMETRIC_SIZE to at least %llu",
             (unsigned long long)(enough > largest ? enough - largest : enough));
    if (weft__shmem.me == 0) {
        weft__log_write(
            WEFT_LOG_ERROR,
            "%s on PE 0 and all others: %llu bytes (%s) do not fit into the symmetric heap of %s, "
            "whose largest free block is %s; %s",
            call, (unsigned long long)bytes, weft__bytes_text(bytes, need),
            weft__bytes_text(heap, all), weft__bytes_text(largest, free),
            bytes < WEFT_SHMEM_HEAP_MOST ? advice : "no heap can be as large as that");
    }
}

/* By the first PE that it concerns. */
static void say_no_memory(const char *call, uint64_t bytes)
{
    char need[WEFT_BYTES_TEXT], room[WEFT_BYTES_TEXT];
    weft__log_write(WEFT_LOG_ERROR, "%s on PE %d: the machine has no memory for %s; it has %s left",
                    call, weft__shmem.me, weft__bytes_text(bytes, need),
                    weft__bytes_text(weft__sysmem_room(weft__sysmem()), room));
}

static void describe(const request_t *request, char text[80])
{
    snprintf(text, 80, "%.23s for %llu bytes", request->call, (unsigned long long)request->bytes);
}

static _Noreturn void say_unlike(const request_t *mine, const request_t *theirs, int pe)
{
    char here[80], there[80] = "another collective";
    bool allocates = strncmp(theirs->call, "shmem_", 6) == 0;
    weft_fault_t fault;
    describe(mine, here);
    if (allocates) {
        describe(theirs, there);
    }
    weft__watch_unlike(true,
                       allocates && mine->offset != theirs->offset ? "the call, of other memory, is"
                                                                   : "the call is",
                       weft__shmem.me, here, pe, there, &fault);
    weft__shmem_die("%s", fault.text);
}

/* A barrier with all PEs, which ends the job unless all ask for the same. False: one of them has no
 * memory. */
static bool agree(request_t *mine, const char *call)
{
    weft_shmem_team_t *world = weft__shmem_team(SHMEM_TEAM_WORLD, call);
    int failed = -1; /* the first PE without memory */
    snprintf(mine->call, sizeof(mine->call), "%s", call);
    weft__shmem_enter(world, mine, sizeof(*mine), call);
    weft__shmem_await_all(world, call);
    for (int pe = 0; pe < world->size; pe++) {
        request_t theirs;
        memcpy(&theirs, weft__shmem_said(world, pe, sizeof(theirs)), sizeof(theirs));
        failed = failed < 0 && theirs.failed != 0 ? pe : failed;
        if (memcmp(mine->call, theirs.call, sizeof(theirs.call)) != 0 ||
            mine->bytes != theirs.bytes || mine->align != theirs.align ||
            mine->offset != theirs.offset) {
            say_unlike(mine, &theirs, pe);
        }
    }
    if (failed == weft__shmem.me) {
        say_no_memory(call, mine->bytes);
    }
    return failed < 0;
}

/* An offset with pages behind it; WEFT_ARENA_NONE, and *failed_p if the reason is here alone. */
static uint64_t take(uint64_t bytes, uint64_t align, const char *call, uint64_t *failed_p)
{
    uint64_t offset = weft__arena_alloc(&arena, bytes, align);
    if (offset == WEFT_ARENA_NONE) {
        say_too_small(call, bytes, align);
    } else if (!weft__shmem_segment_back(offset, weft__arena_size(&arena, offset))) {
        *failed_p = 1;
    }
    return offset;
}

static void *allocate(size_t bytes, size_t align, bool zero, const char *call)
{
    request_t request = {.bytes = bytes, .align = align};
    weft__shmem_team(SHMEM_TEAM_WORLD, call); /* says if shmem_init was not called */
    if (bytes == 0) {
        return NULL;
    }
    uint64_t offset = take(bytes, align, call, &request.failed);
    if (offset != WEFT_ARENA_NONE && request.failed == 0 && zero) {
        memset(base() + offset, 0, bytes);
    }
    bool all = agree(&request, call);
    if (offset == WEFT_ARENA_NONE) {
        return NULL;
    }
    if (!all) {
        weft__arena_free(&arena, offset);
        return NULL;
    }
    return base() + offset;
}

DEFINE(void *, malloc, size_t size)
{
    return allocate(size, 1, false, CALL);
}

/* All of the heap is as good as any for atomics and signals: hints are noted and change nothing. */
DEFINE(void *, malloc_with_hints, size_t size, long hints)
{
    (void)hints;
    return allocate(size, 1, false, CALL);
}

DEFINE(void *, calloc, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        bytes = SIZE_MAX - WEFT_ARENA_GRANULE;
    }
    return allocate(bytes, 1, true, CALL);
}

DEFINE(void *, align, size_t alignment, size_t size)
{
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 ||
        ((uintptr_t)weft__shmem.heap.base & (alignment - 1)) != 0) {
        weft__log_write(
            WEFT_LOG_ERROR,
            "%s on PE %d: %zu is no alignment; it must be a power of two, at most 1 GiB", CALL,
            weft__shmem.me, alignment);
        return NULL;
    }
    return allocate(size, alignment, false, CALL);
}

/* The offset of an allocation. Ends the job if `ptr` is none. */
static uint64_t offset_of(const void *ptr, const char *call)
{
    uint64_t offset = (uintptr_t)ptr - weft__shmem.heap.base;
    weft__shmem_team(SHMEM_TEAM_WORLD, call);
    if (weft__arena_size(&arena, offset) == 0) {
        weft__shmem_die("%s on PE %d: %p is not what shmem_malloc returned, or was freed before",
                        call, weft__shmem.me, ptr);
    }
    return offset;
}

DEFINE(void, free, void *ptr)
{
    if (ptr != NULL) {
        request_t request = {.offset = offset_of(ptr, CALL)};
        agree(&request, CALL);
        weft__arena_free(&arena, request.offset);
    }
}

/* Somewhere else, with what is in it. */
static void *move(uint64_t from, size_t bytes, const char *call)
{
    request_t request = {.bytes = bytes, .offset = from};
    uint64_t old = weft__arena_size(&arena, from);
    uint64_t to = take(bytes, 1, call, &request.failed);
    if (to != WEFT_ARENA_NONE && request.failed == 0) {
        weft__shmem_copy(base() + to, base() + from, bytes < old ? bytes : old);
    }
    bool all = agree(&request, call);
    if (to == WEFT_ARENA_NONE) {
        return NULL;
    }
    weft__arena_free(&arena, all ? from : to);
    return all ? base() + to : NULL;
}

DEFINE(void *, realloc, void *ptr, size_t size)
{
    if (ptr == NULL) {
        return allocate(size, 1, false, CALL);
    }
    uint64_t offset = offset_of(ptr, CALL);
    request_t request = {.bytes = size, .offset = offset};
    agree(&request, CALL);
    if (size == 0) {
        weft__arena_free(&arena, offset);
        return NULL;
    }
    uint64_t old = weft__arena_size(&arena, offset);
    if (!weft__arena_resize(&arena, offset, size)) {
        return move(offset, size, CALL);
    }
    request.failed = !weft__shmem_segment_back(offset, weft__arena_size(&arena, offset));
    if (!agree(&request, CALL)) {
        weft__arena_resize(&arena, offset, old);
        return NULL;
    }
    return ptr;
}
