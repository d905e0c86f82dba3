/* The file of a PE. See segment.h. */
#define _GNU_SOURCE 1 /* memfd_create, fallocate */
#include "symm/shmem/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "device/sysmem.h"
#include "topo/host.h"

/* "WFTSHM01"; PEs that lay out their control parts differently must not meet. */
#define PEER_INFO_MAGIC (UINT64_C(0x31304d4853544657) + sizeof(weft_shmem_control_t))
#define ALIGN_MOST (UINT64_C(1) << 30) /* of the heap: what shmem_align can promise */
#define ALIGN_LEAST (UINT64_C(1) << 21)
#define ROOM_MIN (UINT64_C(1) << 20)  /* less is not worth looking at what the machine has left */
#define ROOM_STEP (UINT64_C(1) << 26) /* pages to make between two looks */

static struct {
    int fd;
    char *base;
    uint64_t heap_at, data_at, file_bytes, program;
    pid_t pid;
} file = {.fd = -1};

static uint64_t page_size(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

/* ---- the program's variables -------------------------------------------------------------- */

/* What walks over pages meets what a sanitizer keeps between variables. */
#define ALL_BYTES __attribute__((no_sanitize("address", "thread")))

ALL_BYTES static bool is_zero(const char *page, size_t bytes)
{
    const volatile uint64_t *words = (const volatile uint64_t *)page;
    for (size_t i = 0; i < bytes / sizeof(*words); i++) {
        if (words[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Copy the variables into the file and map it over them. Pages of zeros stay holes, so that a large
 * array that nobody has used costs nothing. Plain system calls: nothing here may write to a
 * variable of the program or, linked statically, of ours, once its page has been copied. */
static weft_status_t share_data(const weft_shmem_span_t *data)
{
    char *from = (char *)data->base;
    size_t page = page_size();
    for (size_t at = 0; at < data->bytes; at += page) {
        size_t done = is_zero(from + at, page) ? page : 0;
        while (done < page) {
            long wrote = syscall(SYS_pwrite64, file.fd, from + at + done, page - done,
                                 file.data_at + at + done);
            done += wrote > 0 ? (size_t)wrote : 0;
            if (wrote == 0 || (wrote < 0 && errno != EINTR)) {
                break;
            }
        }
        if (done < page) {
            return weft__fail(WEFT_ERR_NO_MEMORY,
                              "no memory to make %zu bytes of global variables symmetric: %s",
                              data->bytes, strerror(errno));
        }
    }
    if (mmap(from, data->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.fd,
             (off_t)file.data_at) == MAP_FAILED) {
        return weft__fail(WEFT_ERR_SYSTEM,
                          "mapping shared memory over the program's %zu bytes of global variables "
                          "failed: %s",
                          data->bytes, strerror(errno));
    }
    return WEFT_OK;
}

/* A child of fork must not write to the variables of its parent. Touching each page makes it its
 * own. */
ALL_BYTES static void own_data(void)
{
    const weft_shmem_span_t *data = &weft__shmem.data;
    size_t page = page_size();
    if (data->bytes == 0 ||
        mmap((void *)data->base, data->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
             file.fd, (off_t)file.data_at) == MAP_FAILED) {
        return;
    }
    for (size_t at = 0; at < data->bytes; at += page) {
        volatile char *byte = (volatile char *)data->base + at;
        *byte = *byte;
    }
}

/* ---- making ------------------------------------------------------------------------------- */

/* Address space for `bytes`, so that what lies `at` in it is a multiple of `align`. NULL: none. */
static char *reserve(uint64_t bytes, uint64_t at, uint64_t align)
{
    char *all = mmap(NULL, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                     -1, 0);
    if (all == MAP_FAILED) {
        return NULL;
    }
    uintptr_t start = round_up((uintptr_t)all + at, align) - at;
    size_t before = start - (uintptr_t)all;
    if (before > 0) {
        munmap(all, before);
    }
    if (align > before) {
        munmap((char *)start + bytes, align - before);
    }
    return (char *)start;
}

static char *map_file(int fd, uint64_t bytes, uint64_t at, uint64_t align)
{
    char *base = reserve(bytes, at, align);
    if (base == NULL && align > ALIGN_LEAST) {
        base = reserve(bytes, at, ALIGN_LEAST);
    }
    if (base == NULL) {
        return NULL;
    }
    if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        munmap(base, bytes);
        return NULL;
    }
    return base;
}

static weft_status_t create_file(uint64_t heap_bytes)
{
    char size[WEFT_BYTES_TEXT];
    struct rlimit limit;
    file.fd = memfd_create("weft-shmem", MFD_CLOEXEC);
    if (file.fd < 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "memfd_create for symmetric memory failed: %s",
                          strerror(errno));
    }
    /* going over this limit is a signal, not an error: never try */
    bool allowed = getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
                   limit.rlim_cur > file.file_bytes;
    errno = EFBIG;
    if (!allowed || file.file_bytes > INT64_MAX ||
        ftruncate(file.fd, (off_t)file.file_bytes) != 0 ||
        (file.base = map_file(file.fd, file.file_bytes, file.heap_at, ALIGN_MOST)) == NULL) {
        weft_status_t status = weft__fail(
            WEFT_ERR_NO_MEMORY,
            "a symmetric heap of %s cannot be mapped: %s; set SHMEM_SYMMETRIC_SIZE to less, or see "
            "ulimit -v and ulimit -f",
            weft__bytes_text(heap_bytes, size), strerror(errno));
        close(file.fd);
        file.fd = -1;
        return status;
    }
    return WEFT_OK;
}

static weft_status_t fill_peer_info(weft_shmem_peer_info_t *info)
{
    cpu_set_t cpus;
    uint64_t host;
    WEFT_TRY(weft__host_id(&host));
    *info = (weft_shmem_peer_info_t){.magic = PEER_INFO_MAGIC,
                                     .host = host,
                                     .program = file.program,
                                     .file_bytes = file.file_bytes,
                                     .heap_at = file.heap_at,
                                     .heap_bytes = weft__shmem.heap.bytes,
                                     .data_at = file.data_at,
                                     .data_bytes = weft__shmem.data.bytes,
                                     .pid = getpid(),
                                     .fd = file.fd};
    CPU_ZERO(&cpus);
    if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) {
        memcpy(info->cpus, &cpus,
               sizeof(cpus) < sizeof(info->cpus) ? sizeof(cpus) : sizeof(info->cpus));
    }
    return WEFT_OK;
}

weft_status_t weft__shmem_segment_create(int pes, size_t heap_bytes, weft_shmem_peer_info_t *info_p)
{
    weft_shmem_state_t *s = &weft__shmem;
    weft_shmem_span_t data;
    uint64_t page = page_size();
    weft__shmem_find_data(&data, &file.program);
    uint64_t control = offsetof(weft_shmem_control_t, pairs) +
                       (uint64_t)pes * sizeof(weft_shmem_pair_t);
    if (heap_bytes > UINT64_MAX / 4) {
        heap_bytes = UINT64_MAX / 4;
    }
    file.heap_at = round_up(control, ALIGN_LEAST);
    file.data_at = file.heap_at + round_up(heap_bytes, page);
    file.file_bytes = file.data_at + data.bytes;
    weft_status_t status = create_file(heap_bytes);
    if (status != WEFT_OK) {
        return status;
    }
    file.pid = getpid();
    s->heap = (weft_shmem_span_t){(uintptr_t)file.base + file.heap_at, round_up(heap_bytes, page)};
    s->mine = (weft_shmem_control_t *)file.base;
    s->mine->magic = PEER_INFO_MAGIC;
    if (data.bytes > 0) {
        s->data = data;
        pthread_atfork(NULL, NULL, own_data);
        status = share_data(&data);
    }
    return status == WEFT_OK ? fill_peer_info(info_p) : status;
}

/* ---- pages of the heap -------------------------------------------------------------------- */

/* The first piece of [at, end) that has no pages: false if there is none. */
static bool find_hole(uint64_t at, uint64_t end, uint64_t *from_p, uint64_t *to_p)
{
    off_t hole = lseek(file.fd, (off_t)at, SEEK_HOLE);
    if (hole < 0 || (uint64_t)hole >= end) {
        return false;
    }
    off_t data = lseek(file.fd, hole, SEEK_DATA);
    *from_p = (uint64_t)hole;
    *to_p = data < 0 || (uint64_t)data > end ? end : (uint64_t)data;
    return true;
}

static bool has_room(uint64_t bytes)
{
    return bytes < ROOM_MIN || bytes + bytes / 64 <= weft__sysmem_room(weft__sysmem());
}

/* Make pages of [from, to). Looks again and again at what the machine has left: other PEs do the
 * same, and who takes more than there is is killed. */
static bool make_pages(uint64_t from, uint64_t to, uint64_t *missing)
{
    while (from < to) {
        uint64_t bytes = to - from < ROOM_STEP ? to - from : ROOM_STEP;
        if (!has_room(*missing)) {
            return false;
        }
        if (fallocate(file.fd, 0, (off_t)from, (off_t)bytes) == 0) {
            from += bytes;
            *missing -= bytes;
        } else if (errno != EINTR) {
            return errno == EOPNOTSUPP;
        }
    }
    return true;
}

bool weft__shmem_segment_back(uint64_t offset, uint64_t bytes)
{
    uint64_t at = file.heap_at + offset, end = at + bytes, from, to, missing = 0;
    for (uint64_t look = at; find_hole(look, end, &from, &to); look = to) {
        missing += to - from;
    }
    uint64_t first = end; /* from here on nothing is in use yet */
    while (find_hole(at, end, &from, &to)) {
        first = from < first ? from : first;
        if (!make_pages(from, to, &missing)) {
            fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)first,
                      (off_t)(end - first));
            return false;
        }
        at = to;
    }
    return true;
}

void weft__shmem_segment_cleanup(void)
{
    uint64_t bytes = file.data_at - file.heap_at;
    if (file.fd >= 0 && file.pid == getpid()) {
        if (bytes > 0) {
            fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)file.heap_at,
                      (off_t)bytes);
        }
        munmap(file.base, file.file_bytes);
    }
}

/* ---- mapping others' ---------------------------------------------------------------------- */

weft_status_t weft__shmem_segment_open(const weft_shmem_peer_info_t *info, int pe,
                                       weft_shmem_peer_t *peer_p)
{
    const weft_shmem_state_t *s = &weft__shmem;
    char path[64], size[WEFT_BYTES_TEXT];
    struct stat found;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", info->pid, info->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return weft__fail(
            WEFT_ERR_SYSTEM,
            "opening the memory of PE %d (%s) failed: %s; PEs must run as the same user "
            "and see the same /proc",
            pe, path, strerror(errno));
    }
    char *base = NULL;
    int error = fstat(fd, &found) == 0 ? 0 : errno;
    bool same = error != 0 || (uint64_t)found.st_size == info->file_bytes;
    if (error == 0 && same) {
        base = map_file(fd, info->file_bytes, info->heap_at, ALIGN_LEAST);
        error = base == NULL ? errno : 0;
    }
    close(fd);
    if (base == NULL) {
        return weft__fail(
            WEFT_ERR_NO_MEMORY, "mapping %s of memory of PE %d failed: %s",
            weft__bytes_text(info->file_bytes, size), pe,
            !same ? "it is not the file that was announced"
            : error == ENOMEM
                ? "no address space; set SHMEM_SYMMETRIC_SIZE to less, or see ulimit -v"
                : strerror(error));
    }
    bool apart = info->data_bytes != s->data.bytes || info->program != file.program;
    *peer_p = (weft_shmem_peer_t){.heap = (intptr_t)(base + info->heap_at) - (intptr_t)s->heap.base,
                                  .data = apart ? WEFT_SHMEM_APART
                                                : (intptr_t)(base + info->data_at) -
                                                      (intptr_t)s->data.base,
                                  .control = (weft_shmem_control_t *)base,
                                  .pid = info->pid,
                                  .pidfd = -1};
    if (peer_p->control->magic != PEER_INFO_MAGIC) {
        munmap(base, info->file_bytes);
        return weft__fail(WEFT_ERR_SYSTEM,
                          "process %d offers another file than it announced as PE %d", info->pid,
                          pe);
    }
    return WEFT_OK;
}

void weft__shmem_segment_close(const weft_shmem_peer_info_t *info, const weft_shmem_peer_t *peer)
{
    munmap(peer->control, info->file_bytes);
}
