/* One heap: file, mapping, pages. See heap.h. */
#define _GNU_SOURCE 1 /* memfd_create, fallocate */
#include "device/cpu/heap.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/sysmem.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

#define LEAST_CAPACITY (UINT64_C(64) << 20)
#define MAKE_STEP (UINT64_C(4) << 20)    /* pages made by one system call */
#define CHECK_STEP (UINT64_C(256) << 20) /* pages made on one look at what the machine has left */
#define NO_PAGE UINT64_MAX

/* ---- the file --------------------------------------------------------------------------- */

static int create_file(int device)
{
    char name[32];
    snprintf(name, sizeof(name), "weft-device-%d", device);
    /* Some machines refuse memory files that could be executed; older kernels do not know the
     * flag that says this one is not to be. */
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) {
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    return fd;
}

static uint64_t random_id(void)
{
    uint64_t id = 0;
    if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != (ssize_t)sizeof(id) || id == 0) {
        id = (weft__now_ns() << 20) ^ ((uint64_t)getpid() << 1) ^ 1;
    }
    return id;
}

/* Give the file its size and map it. On failure nothing is mapped and errno says why. */
static bool map_file(weft_heap_t *heap, uint64_t bytes)
{
    int saved;
    if (bytes > INT64_MAX) {
        errno = EFBIG;
        return false;
    }
    if (ftruncate(heap->fd, (off_t)bytes) != 0) {
        return false;
    }
    heap->backed = calloc(bytes / heap->page / 64 + 1, sizeof(uint64_t));
    if (heap->backed == NULL) {
        return false;
    }
    heap->base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, heap->fd, 0);
    if (heap->base == MAP_FAILED) {
        saved = errno;
        free(heap->backed);
        heap->backed = NULL;
        errno = saved;
        return false;
    }
    heap->bytes = bytes;
    return true;
}

/* Map as much of `capacity` as the process is allowed to. */
static weft_status_t map_most(weft_heap_t *heap, uint64_t capacity)
{
    char asked[WEFT_BYTES_TEXT], got[WEFT_BYTES_TEXT];
    struct rlimit limit;
    uint64_t most = UINT64_MAX, bytes = capacity;
    /* Going over this limit is a signal (SIGXFSZ), not an error: never try. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        most = limit.rlim_cur > heap->page ? limit.rlim_cur - heap->page : 0;
    }
    for (;;) {
        errno = EFBIG;
        if (bytes <= most && map_file(heap, bytes + heap->page)) {
            break;
        }
        if ((errno != ENOMEM && errno != EFBIG && errno != EINVAL && errno != EAGAIN) ||
            bytes / 2 < LEAST_CAPACITY) {
            return weft__fail(
                errno == ENOMEM || errno == EFBIG ? WEFT_ERR_NO_MEMORY : WEFT_ERR_SYSTEM,
                "device %d: %s of memory were asked for and not even %s can be mapped: %s; see "
                "ulimit -v and ulimit -f, and the setting WEFT_DEVICE_MEMORY",
                heap->device, weft__bytes_text(capacity, asked), weft__bytes_text(bytes, got),
                strerror(errno));
        }
        bytes = bytes / 2 / heap->page * heap->page;
    }
    if (bytes < capacity) {
        weft__info("device %d: a limit of this process refuses %s of memory, %s it is",
                   heap->device, weft__bytes_text(capacity, asked), weft__bytes_text(bytes, got));
    }
    return WEFT_OK;
}

/* A closed descriptor may by now be another file's, which we must not cut holes into. */
static weft_status_t check_file(const weft_heap_t *heap)
{
    struct stat stat;
    int error = fstat(heap->fd, &stat) == 0 ? 0 : errno;
    if (error != 0 && error != EBADF) {
        return weft__fail(WEFT_ERR_SYSTEM,
                          "device %d: its memory file (descriptor %d) cannot be looked at: %s",
                          heap->device, heap->fd, strerror(error));
    }
    if (error == EBADF || stat.st_dev != heap->file_dev || stat.st_ino != heap->file_ino) {
        return weft__fail(WEFT_ERR_SYSTEM,
                          "device %d: its memory file (descriptor %d) was closed by the program",
                          heap->device, heap->fd);
    }
    return WEFT_OK;
}

weft_status_t weft__heap_create(int device, uint64_t capacity, weft_heap_t *heap)
{
    weft_status_t status;
    struct stat stat;
    memset(heap, 0, sizeof(*heap));
    heap->device = device;
    heap->page = (uint64_t)sysconf(_SC_PAGESIZE);
    heap->id = random_id();
    if (capacity > INT64_MAX) {
        capacity = INT64_MAX;
    }
    capacity = (capacity + heap->page - 1) / heap->page * heap->page;
    heap->fd = create_file(device);
    if (heap->fd < 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "device %d: memfd_create failed: %s", device,
                          strerror(errno));
    }
    status = map_most(heap, capacity);
    if (status != WEFT_OK) {
        goto err_close;
    }
    /* Nobody, peers included, can now make the file shorter than what is mapped. Without it (a
     * kernel or a sandbox that cannot) everything else still works. */
    fcntl(heap->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    if (fstat(heap->fd, &stat) != 0 || fallocate(heap->fd, 0, 0, (off_t)heap->page) != 0) {
        status = weft__fail(WEFT_ERR_SYSTEM, "device %d: not even one page of memory: %s", device,
                            strerror(errno));
        goto err_unmap;
    }
    heap->file_dev = stat.st_dev;
    heap->file_ino = stat.st_ino;
    *(weft_heap_header_t *)heap->base = (weft_heap_header_t){
        .magic = WEFT_HEAP_MAGIC, .id = heap->id, .bytes = heap->bytes};
    weft__debug("device %d: heap of %" PRIu64 " bytes at %p", device, heap->bytes,
                (void *)heap->base);
    return WEFT_OK;
err_unmap:
    munmap(heap->base, heap->bytes);
    free(heap->backed);
err_close:
    close(heap->fd);
    return status;
}

void weft__heap_destroy(weft_heap_t *heap)
{
    munmap(heap->base, heap->bytes);
    if (check_file(heap) == WEFT_OK) {
        close(heap->fd);
    }
    free(heap->backed);
}

/* ---- the bits: which pages exist -------------------------------------------------------- */

/* The first page of [from, to) that exists (or does not), or NO_PAGE. */
static uint64_t first_page(const weft_heap_t *heap, uint64_t from, uint64_t to, bool exists)
{
    while (from < to) {
        uint64_t word = exists ? heap->backed[from / 64] : ~heap->backed[from / 64];
        word &= UINT64_MAX << (from % 64);
        if (word != 0) {
            uint64_t page = from / 64 * 64 + (uint64_t)__builtin_ctzll(word);
            return page < to ? page : NO_PAGE;
        }
        from = (from / 64 + 1) * 64;
    }
    return NO_PAGE;
}

/* The last such page. */
static uint64_t last_page(const weft_heap_t *heap, uint64_t from, uint64_t to, bool exists)
{
    while (from < to) {
        uint64_t last = to - 1;
        uint64_t word = exists ? heap->backed[last / 64] : ~heap->backed[last / 64];
        word &= UINT64_MAX >> (63 - last % 64);
        if (word != 0) {
            uint64_t page = last / 64 * 64 + 63 - (uint64_t)__builtin_clzll(word);
            return page >= from ? page : NO_PAGE;
        }
        to = last / 64 * 64;
    }
    return NO_PAGE;
}

static uint64_t count_missing(const weft_heap_t *heap, uint64_t from, uint64_t to)
{
    uint64_t missing = 0;
    while ((from = first_page(heap, from, to, false)) != NO_PAGE) {
        uint64_t end = first_page(heap, from, to, true);
        end = end == NO_PAGE ? to : end;
        missing += end - from;
        from = end;
    }
    return missing;
}

/* [from, to) all change, from not existing to existing or back. */
static void mark_pages(weft_heap_t *heap, uint64_t from, uint64_t to, bool exist)
{
    uint64_t bytes = (to - from) * heap->page;
    heap->reserved = exist ? heap->reserved + bytes : heap->reserved - bytes;
    while (from < to) {
        uint64_t count = 64 - from % 64;
        count = count < to - from ? count : to - from;
        uint64_t mask = (UINT64_MAX >> (64 - count)) << (from % 64);
        if (exist) {
            heap->backed[from / 64] |= mask;
        } else {
            heap->backed[from / 64] &= ~mask;
        }
        from += count;
    }
}

/* ---- making and giving back pages ------------------------------------------------------- */

/* Make the pages [from, to), none of which exists. Returns 0 or an errno. */
static int make_pages(weft_heap_t *heap, uint64_t from, uint64_t to)
{
    uint64_t step = MAKE_STEP / heap->page;
    while (from < to) {
        uint64_t count = to - from < step ? to - from : step;
        if (fallocate(heap->fd, 0, (off_t)(from * heap->page), (off_t)(count * heap->page)) == 0) {
            mark_pages(heap, from, from + count, true);
            from += count;
        } else if (errno == EINTR) {
            /* A signal undoes the whole call: under a profiler's timer only short ones finish. */
            step = step > 1 ? step / 2 : 1;
        } else {
            return errno;
        }
    }
    return 0;
}

/* Can `pages` more be had, with what it takes to map them? */
static bool fits(const weft_heap_t *heap, uint64_t pages, uint64_t room)
{
    uint64_t bytes = pages * heap->page;
    return bytes + bytes / 64 <= room;
}

static weft_status_t lack(weft_shortage_t *shortage_p, uint64_t need, uint64_t room)
{
    *shortage_p = (weft_shortage_t){.kind = WEFT_SHORT_SYSTEM, .need = need, .room = room};
    return WEFT_ERR_NO_MEMORY;
}

/* Make the missing pages of [from, to), `missing` of them, looking again and again at what the
 * machine has left: other ranks may be doing the same. */
static weft_status_t make_missing(weft_heap_t *heap, uint64_t from, uint64_t to, uint64_t missing,
                                  weft_shortage_t *shortage_p)
{
    uint64_t need = missing * heap->page, unchecked = 0;
    while ((from = first_page(heap, from, to, false)) != NO_PAGE) {
        uint64_t end = first_page(heap, from, to, true);
        end = end == NO_PAGE ? to : end;
        if (end - from > CHECK_STEP / heap->page) {
            end = from + CHECK_STEP / heap->page;
        }
        if (unchecked * heap->page >= CHECK_STEP) {
            uint64_t room = weft__sysmem_room(weft__sysmem());
            if (!fits(heap, missing, room)) {
                return lack(shortage_p, need, room + (need - missing * heap->page));
            }
            unchecked = 0;
        }
        int error = make_pages(heap, from, end);
        if (error == ENOMEM || error == ENOSPC) {
            return lack(shortage_p, need, weft__sysmem_room(weft__sysmem()));
        }
        if (error != 0) {
            return weft__fail(WEFT_ERR_SYSTEM, "device %d: fallocate of memory failed: %s",
                              heap->device, strerror(error));
        }
        missing -= end - from;
        unchecked += end - from;
        from = end;
    }
    return WEFT_OK;
}

weft_status_t weft__heap_reserve(weft_heap_t *heap, uint64_t from, uint64_t to, uint64_t ahead,
                                 bool *fresh_p, weft_shortage_t *shortage_p)
{
    from /= heap->page;
    to = (to + heap->page - 1) / heap->page;
    ahead = (ahead + heap->page - 1) / heap->page;
    *fresh_p = first_page(heap, from, to, false) != NO_PAGE;
    if (!*fresh_p) {
        return WEFT_OK;
    }
    WEFT_TRY(check_file(heap));
    uint64_t room = weft__sysmem_room(weft__sysmem());
    uint64_t missing = count_missing(heap, from, to);
    if (!fits(heap, missing, room)) {
        return lack(shortage_p, missing * heap->page, room);
    }
    if (ahead > to) {
        uint64_t more = missing + count_missing(heap, to, ahead);
        if (fits(heap, more, room / 2)) {
            missing = more;
            to = ahead;
        }
    }
    return make_missing(heap, from, to, missing, shortage_p);
}

void weft__heap_release(weft_heap_t *heap, uint64_t from, uint64_t to, uint64_t most)
{
    uint64_t pages = (most + heap->page - 1) / heap->page;
    from = (from + heap->page - 1) / heap->page;
    to /= heap->page;
    if (pages == 0 || check_file(heap) != WEFT_OK) {
        return;
    }
    while (pages > 0 && (to = last_page(heap, from, to, true)) != NO_PAGE) {
        uint64_t end = to + 1;
        uint64_t start = last_page(heap, from, end, false);
        start = start == NO_PAGE ? from : start + 1;
        start = end - start > pages ? end - pages : start;
        if (fallocate(heap->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      (off_t)(start * heap->page), (off_t)((end - start) * heap->page)) != 0) {
            if (errno == EINTR) {
                to = end;
                continue;
            }
            weft__debug("device %d: cannot give memory back: %s", heap->device, strerror(errno));
            return;
        }
        mark_pages(heap, start, end, false);
        pages -= end - start;
        to = start;
    }
}
