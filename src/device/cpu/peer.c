/* Mapping the heaps of other processes.
 *
 * A handle travels through the rendezvous, so by the time it is opened its process may be gone and
 * its pid and descriptor may be another's. Hence the checks, from the harmless to the certain:
 * the descriptor's name before it is opened, its size, then the id inside. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "device/cpu/memory.h"
#include "device/sysmem.h"

typedef struct peer {
    uint64_t id;
    uint64_t bytes;
    char *base;
    int opens; /* less closes; unmapped at 0 */
    struct peer *next;
} peer_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static peer_t *peers;

static weft_status_t open_file(const weft_heap_handle_t *handle, int *fd_p)
{
    static const char name[] = "/memfd:weft-device-";
    char path[64], target[PATH_MAX];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->fd);
    ssize_t length = readlink(path, target, sizeof(target) - 1);
    if (length < 0) {
        const char *hint = errno == ENOENT ? ": it has ended, or this process cannot see it" : "";
        return weft__fail(WEFT_ERR_SYSTEM,
                          "cannot reach the device memory of process %d: readlink %s: %s%s",
                          handle->pid, path, strerror(errno), hint);
    }
    target[length] = '\0';
    if (strncmp(target, name, sizeof(name) - 1) != 0) {
        return weft__fail(WEFT_ERR_SYSTEM,
                          "cannot reach the device memory of process %d: its descriptor %d is %s",
                          handle->pid, handle->fd, target);
    }
    do {
        *fd_p = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    } while (*fd_p < 0 && errno == EINTR);
    if (*fd_p < 0) {
        return weft__fail(WEFT_ERR_SYSTEM,
                          "cannot reach the device memory of process %d: open %s: %s", handle->pid,
                          path, strerror(errno));
    }
    return WEFT_OK;
}

static weft_status_t check_file(const weft_heap_handle_t *handle, int fd)
{
    weft_heap_header_t header = {0};
    struct stat stat;
    ssize_t got;
    size_t have = 0;
    if (fstat(fd, &stat) != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "device memory of process %d: fstat: %s", handle->pid,
                          strerror(errno));
    }
    if (!S_ISREG(stat.st_mode) || (uint64_t)stat.st_size != handle->bytes) {
        return weft__fail(WEFT_ERR_SYSTEM,
                          "device memory of process %d: %" PRIu64 " bytes expected, the file has "
                          "%" PRId64,
                          handle->pid, handle->bytes, (int64_t)stat.st_size);
    }
    do {
        got = pread(fd, (char *)&header + have, sizeof(header) - have, (off_t)have);
        have += got > 0 ? (size_t)got : 0;
    } while ((got < 0 && errno == EINTR) || (got > 0 && have < sizeof(header)));
    if (got < 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "cannot read the device memory of process %d: %s",
                          handle->pid, strerror(errno));
    }
    if (have < sizeof(header) || header.magic != WEFT_HEAP_MAGIC || header.id != handle->id ||
        header.bytes != handle->bytes) {
        return weft__fail(WEFT_ERR_SYSTEM,
                          "process %d has other device memory than it had when it was announced: "
                          "its pid was probably used again",
                          handle->pid);
    }
    return WEFT_OK;
}

static weft_status_t map_peer(const weft_heap_handle_t *handle, peer_t *peer)
{
    int fd;
    char text[WEFT_BYTES_TEXT];
    WEFT_TRY(open_file(handle, &fd));
    weft_status_t status = check_file(handle, fd);
    if (status != WEFT_OK) {
        goto out;
    }
    peer->base = mmap(NULL, handle->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                      0);
    if (peer->base == MAP_FAILED) {
        status = weft__fail(WEFT_ERR_NO_MEMORY,
                            "cannot map the device memory of process %d, %s of address space: %s; "
                            "see ulimit -v and the setting WEFT_DEVICE_MEMORY",
                            handle->pid, weft__bytes_text(handle->bytes, text), strerror(errno));
        goto out;
    }
    peer->id = handle->id;
    peer->bytes = handle->bytes;
out:
    close(fd);
    return status;
}

/* Under the lock. */
static weft_status_t add_peer(const weft_heap_handle_t *handle, peer_t **peer_p)
{
    weft_status_t status;
    peer_t *peer = calloc(1, sizeof(*peer));
    if (peer == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY,
                          "no memory to describe the device memory of "
                          "process %d",
                          handle->pid);
    }
    status = map_peer(handle, peer);
    if (status != WEFT_OK) {
        free(peer);
        return status;
    }
    peer->next = peers;
    peers = peer;
    *peer_p = peer;
    return WEFT_OK;
}

static peer_t **find_peer(uint64_t id)
{
    peer_t **at = &peers;
    while (*at != NULL && (*at)->id != id) {
        at = &(*at)->next;
    }
    return at;
}

weft_status_t weft__heap_open(const weft_heap_handle_t *handle, char **base_p)
{
    weft_status_t status = weft__fork_guard("sharing device memory");
    if (status != WEFT_OK) {
        return status;
    }
    if (handle->pid == getpid()) {
        char *base = weft__memory_by_id(handle->id);
        if (base == NULL) {
            return weft__fail(WEFT_ERR_SYSTEM,
                              "process %d, this one, has no such device memory: the handle is of "
                              "a process that had this pid before, or has it elsewhere",
                              handle->pid);
        }
        *base_p = base;
        return WEFT_OK;
    }
    pthread_mutex_lock(&lock);
    peer_t *peer = *find_peer(handle->id);
    if (peer == NULL) {
        status = add_peer(handle, &peer);
    }
    if (status == WEFT_OK) {
        peer->opens++;
        *base_p = peer->base;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void weft__heap_close(const weft_heap_handle_t *handle)
{
    if (handle->pid == getpid()) {
        return;
    }
    pthread_mutex_lock(&lock);
    peer_t **at = find_peer(handle->id);
    peer_t *peer = *at;
    if (peer != NULL && --peer->opens == 0) {
        *at = peer->next;
        munmap(peer->base, peer->bytes);
        free(peer);
    }
    pthread_mutex_unlock(&lock);
}
