/* Creating, mapping and sharing control segments. */
#include "comm/host/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "topo/host.h"

#define SEGMENT_MAGIC 0x5745465453454731ull /* "WEFTSEG1" */

_Static_assert(offsetof(weft_slot_t, payload) == 64, "the flag and its data are one line");

/* All segments of this process. Ranks that are threads share one mapping. */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static weft_segment_t *table;

#define PAGE ((size_t)4096)
#define HEAD_BYTES ((sizeof(weft_segment_head_t) + PAGE - 1) / PAGE * PAGE)

/* From one block to the next. Moves those of neighbouring ranks apart modulo the page size, so that
 * the flags of all ranks do not compete for one set of the first-level cache. */
static size_t stride(weft_layout_t layout)
{
    return (sizeof(weft_rank_block_t) + layout.rank_bytes + PAGE - 1) / PAGE * PAGE + 128;
}

/* Blocks may end anywhere; pairs begin on a page. */
static size_t pairs_at(size_t size, weft_layout_t layout)
{
    return (HEAD_BYTES + size * stride(layout) + PAGE - 1) / PAGE * PAGE;
}

weft_rank_block_t *weft__segment_block(const weft_segment_t *segment, int rank)
{
    char *blocks = (char *)segment->head + HEAD_BYTES;
    return (weft_rank_block_t *)(blocks + (size_t)rank * stride(segment->head->layout));
}

void *weft__segment_rank(const weft_segment_t *segment, int rank)
{
    return weft__segment_block(segment, rank) + 1;
}

void *weft__segment_pair(const weft_segment_t *segment, int from, int to)
{
    const weft_segment_head_t *head = segment->head;
    char *pairs = (char *)segment->head + pairs_at(head->size, head->layout);
    return pairs + ((size_t)from * head->size + (size_t)to) * head->layout.pair_bytes;
}

static weft_status_t map_segment(int fd, size_t bytes, weft_segment_t **segment_p)
{
    weft_segment_t *segment = calloc(1, sizeof(*segment));
    if (!segment) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "no memory for a control segment's handle");
    }
    segment->head = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (segment->head == MAP_FAILED) {
        free(segment);
        return weft__fail(WEFT_ERR_NO_MEMORY, "mapping a control segment of %zu bytes failed: %s",
                          bytes, strerror(errno));
    }
    segment->fd = -1;
    segment->refs = 1;
    *segment_p = segment;
    return WEFT_OK;
}

static void table_add(weft_segment_t *segment)
{
    segment->next = table;
    table = segment;
}

weft_status_t weft__segment_create(int size, weft_layout_t layout, weft_segment_t **segment_p)
{
    size_t n = (size_t)size, bytes = pairs_at(n, layout) + n * n * layout.pair_bytes;
    uint64_t id = 0, host;
    weft_status_t status = weft__random_bytes(&id, sizeof(id));
    status = status == WEFT_OK ? weft__host_id(&host) : status;
    if (status != WEFT_OK) {
        return status;
    }
    int fd = memfd_create("weft-comm", MFD_CLOEXEC);
    if (fd < 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "memfd_create for a control segment failed: %s",
                          strerror(errno));
    }
    if (ftruncate(fd, (off_t)bytes) != 0) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "a control segment of %zu bytes for %d ranks: %s",
                            bytes, size, strerror(errno));
        goto err_close;
    }
    weft_segment_t *segment;
    status = map_segment(fd, bytes, &segment);
    if (status != WEFT_OK) {
        goto err_close;
    }
    segment->fd = fd;
    segment->handle = (weft_segment_handle_t){
        .id = id, .bytes = bytes, .host = host, .pid = getpid(), .fd = fd};
    segment->head->magic = SEGMENT_MAGIC;
    segment->head->id = id;
    segment->head->bytes = bytes;
    segment->head->layout = layout;
    segment->head->size = (uint32_t)size;
    pthread_mutex_lock(&table_lock);
    table_add(segment);
    pthread_mutex_unlock(&table_lock);
    *segment_p = segment;
    return WEFT_OK;
err_close:
    close(fd);
    return status;
}

static weft_status_t open_fd(const weft_segment_handle_t *handle, int *fd_p)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return weft__fail(
            WEFT_ERR_SYSTEM,
            "opening the control segment of process %d (%s) failed: %s; it has ended, "
            "or it runs as another user or sees another /proc",
            handle->pid, path, strerror(errno));
    }
    struct stat info;
    int error = fstat(fd, &info) == 0 ? 0 : errno;
    if (error != 0 || (uint64_t)info.st_size != handle->bytes) {
        close(fd);
        return error != 0 ? weft__fail(WEFT_ERR_SYSTEM,
                                       "looking at the control segment of process %d (%s) failed: "
                                       "%s",
                                       handle->pid, path, strerror(error))
                          : weft__fail(WEFT_ERR_SYSTEM,
                                       "%s is not the control segment that was announced", path);
    }
    *fd_p = fd;
    return WEFT_OK;
}

static weft_status_t open_locked(const weft_segment_handle_t *handle, weft_segment_t **segment_p)
{
    for (weft_segment_t *s = table; s; s = s->next) {
        if (s->handle.id == handle->id) {
            s->refs++;
            *segment_p = s;
            return WEFT_OK;
        }
    }
    int fd = -1;
    WEFT_TRY(open_fd(handle, &fd));
    weft_segment_t *segment;
    weft_status_t status = map_segment(fd, handle->bytes, &segment);
    close(fd);
    if (status != WEFT_OK) {
        return status;
    }
    segment->handle = *handle;
    if (segment->head->magic != SEGMENT_MAGIC || segment->head->id != handle->id) {
        munmap(segment->head, handle->bytes);
        free(segment);
        return weft__fail(WEFT_ERR_SYSTEM,
                          "process %d offers another segment than it announced (it may have ended)",
                          handle->pid);
    }
    table_add(segment);
    *segment_p = segment;
    return WEFT_OK;
}

weft_status_t weft__segment_open(const weft_segment_handle_t *handle, weft_segment_t **segment_p)
{
    uint64_t host;
    WEFT_TRY(weft__host_id(&host));
    if (handle->host != host) {
        return weft__fail(
            WEFT_ERR_UNSUPPORTED,
            "this rank is on another host than rank 0, or in another pid name space, or one of "
            "them may not read /proc/sys/kernel/random/boot_id; shared memory reaches only ranks "
            "of one host");
    }
    pthread_mutex_lock(&table_lock);
    weft_status_t status = open_locked(handle, segment_p);
    pthread_mutex_unlock(&table_lock);
    return status;
}

weft_segment_t *weft__segment_share(weft_segment_t *segment)
{
    pthread_mutex_lock(&table_lock);
    segment->refs++;
    pthread_mutex_unlock(&table_lock);
    return segment;
}

void weft__segment_seal(weft_segment_t *segment)
{
    pthread_mutex_lock(&table_lock);
    if (segment->fd >= 0) {
        close(segment->fd);
        segment->fd = -1;
    }
    pthread_mutex_unlock(&table_lock);
}

void weft__segment_close(weft_segment_t *segment)
{
    pthread_mutex_lock(&table_lock);
    if (--segment->refs > 0) {
        pthread_mutex_unlock(&table_lock);
        return;
    }
    for (weft_segment_t **link = &table; *link; link = &(*link)->next) {
        if (*link == segment) {
            *link = segment->next;
            break;
        }
    }
    pthread_mutex_unlock(&table_lock);
    if (segment->fd >= 0) {
        close(segment->fd);
    }
    munmap(segment->head, segment->handle.bytes);
    free(segment);
}
