/* The memory of one virtual GPU: a sparse memfd, mapped once, and which of its pages exist.
 *
 *     offset 0          page                                        bytes
 *            | header   | handed out by the pool (pool.h)           |
 *            | magic id | pages exist where the bit in `backed` is set |
 *
 * Pages are taken from the system before they are handed out (reserve) and given back with holes
 * (release), so that a lack of memory is an error of weft_malloc and never a SIGBUS later. Not
 * thread-safe; the pool locks. */
#ifndef WEFT_DEVICE_CPU_HEAP_H
#define WEFT_DEVICE_CPU_HEAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "device/device.h"

#define WEFT_HEAP_MAGIC UINT64_C(0x3170616568746677) /* "wftheap1" */

/* The start of the first page: lets a peer make sure that it mapped what it was told of. */
typedef struct weft_heap_header {
    uint64_t magic;
    uint64_t id;
    uint64_t bytes;
} weft_heap_header_t;

typedef struct weft_heap {
    int device;
    int fd;
    dev_t file_dev; /* identity of the memfd: a program may close what is not its own */
    ino_t file_ino;
    uint64_t id;
    char *base;
    uint64_t bytes;    /* of the file and the mapping; offsets from `page` on are handed out */
    uint64_t page;     /* bytes of a page */
    uint64_t reserved; /* bytes of pages that exist, without the header's */
    uint64_t *backed;  /* one bit a page */
} weft_heap_t;

/* Why there was no memory. */
typedef struct weft_shortage {
    enum { WEFT_SHORT_NONE, WEFT_SHORT_DEVICE, WEFT_SHORT_SYSTEM, WEFT_SHORT_BOOKKEEPING } kind;
    uint64_t need; /* DEVICE: contiguous bytes; SYSTEM: bytes that do not exist yet */
    uint64_t room; /* DEVICE: the largest free piece; SYSTEM: what the machine has left */
} weft_shortage_t;

/* Make a heap that can hand out `capacity` bytes. Where a limit of the process refuses that much
 * address space or file size, half of it, and so on down to 64 MiB. */
weft_status_t weft__heap_create(int device, uint64_t capacity, weft_heap_t *heap);
void weft__heap_destroy(weft_heap_t *heap);

/* Make sure that the pages of [from, to) exist; where some have to be made, also make those up to
 * `ahead` >= to if they can be had easily. *fresh_p: whether any had to be made. WEFT_ERR_NO_MEMORY
 * sets *shortage_p and leaves the sentence to the caller; pages made until then stay. */
weft_status_t weft__heap_reserve(weft_heap_t *heap, uint64_t from, uint64_t to, uint64_t ahead,
                                 bool *fresh_p, weft_shortage_t *shortage_p);

/* Give back whole pages of [from, to), which nobody uses, from the end on, until `most` bytes are
 * given back (rounded up to a page) or none is left. */
void weft__heap_release(weft_heap_t *heap, uint64_t from, uint64_t to, uint64_t most);

#endif
