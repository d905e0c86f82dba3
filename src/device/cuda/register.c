/* Memory that is not ours: allocations of a GPU become slabs, host memory is pinned. */
#include <pthread.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/cuda/memory.h"

/* Of GPU memory one for each registration; host memory that several registrations lie in is pinned
 * once. */
typedef struct entry {
    int device;
    char *base; /* of the allocation; or what was pinned */
    size_t bytes;
    bool host;
    int uses; /* of host memory, under the lock */
    struct entry *next;
} entry_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry_t *pinned;

/* What was pinned and holds all of it; under the lock. */
static entry_t *find_pinned(const char *ptr, size_t bytes)
{
    entry_t *entry = pinned;
    while (entry && (ptr < entry->base || ptr + bytes > entry->base + entry->bytes)) {
        entry = entry->next;
    }
    return entry;
}

/* Pin it, unless it is. */
static weft_status_t pin_host(char *ptr, size_t bytes, entry_t **entry_p)
{
    int error = 0;
    pthread_mutex_lock(&lock);
    entry_t *entry = find_pinned(ptr, bytes);
    if (!entry && (entry = calloc(1, sizeof(*entry)))) {
        error = weft__cuda()->host_register(ptr, bytes);
        *entry = (entry_t){.base = ptr, .bytes = bytes, .host = true, .next = pinned};
        if (error == 0) {
            pinned = entry;
        } else {
            free(entry);
            entry = NULL;
        }
    }
    if (entry) {
        entry->uses++;
    }
    pthread_mutex_unlock(&lock);
    *entry_p = entry;
    if (error != 0) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "weft_register: %zu bytes of host memory at %p cannot be pinned: CUDA "
                          "says: %s",
                          bytes, (void *)ptr, weft__cuda()->error_text(error));
    }
    return entry ? WEFT_OK
                 : weft__fail(WEFT_ERR_NO_MEMORY, "weft_register: no memory to remember %p",
                              (void *)ptr);
}

/* Outside the lock, as it waits for the GPU: for a rank, perhaps, that is about to register
 * something. */
static int unpin_host(entry_t *entry)
{
    pthread_mutex_lock(&lock);
    bool last = --entry->uses == 0;
    for (entry_t **at = &pinned; last && *at; at = &(*at)->next) {
        if (*at == entry) {
            *at = entry->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    int error = last ? weft__cuda()->host_unregister(entry->base) : 0;
    if (last) {
        free(entry);
    }
    return error;
}

static weft_status_t adopt(int device, void *ptr, size_t bytes, char **base_p)
{
    char *base, *at = ptr;
    void *found;
    size_t room;
    bool shares = false;
    int gpu = weft__cuda_gpu(device);
    int error = weft__cuda()->range(gpu, ptr, &found, &room, &shares);
    if (error != 0) {
        return weft__cuda_status(error, "weft_register: the allocation is not known");
    }
    base = found;
    if (bytes > room || (size_t)(at - base) > room - bytes) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_register: %zu bytes at %p go beyond their allocation, %zu bytes at "
                          "%p",
                          bytes, ptr, room, found);
    }
    if (!shares) {
        return weft__fail(
            WEFT_ERR_UNSUPPORTED,
            "weft_register: CUDA does not share the memory at %p with other processes, "
            "only what is from cudaMalloc; calls copy it as before",
            ptr);
    }
    *base_p = base;
    return weft__cuda_adopt(device, found, room);
}

static bool is_pinned(const char *ptr, size_t bytes)
{
    pthread_mutex_lock(&lock);
    bool found = find_pinned(ptr, bytes) != NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

static weft_status_t enlist_device(int device, int gpu, void *ptr, size_t bytes, entry_t **entry_p)
{
    if (gpu != weft__cuda_gpu(device)) {
        return weft__fail(
            WEFT_ERR_INVALID,
            "weft_register: %p is memory of GPU %d, and the current device, %d, is on "
            "GPU %d",
            ptr, gpu, device, weft__cuda_gpu(device));
    }
    entry_t *entry = calloc(1, sizeof(*entry));
    if (!entry) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "weft_register: no memory to remember %p", ptr);
    }
    entry->device = device;
    weft_status_t status = adopt(device, ptr, bytes, &entry->base);
    if (status != WEFT_OK) {
        free(entry);
        entry = NULL;
    }
    *entry_p = entry;
    return status;
}

weft_status_t weft__cuda_enlist(int device, void *ptr, size_t bytes, void **entry_p)
{
    weft_cuda_slab_t slab;
    entry_t *entry = NULL;
    int gpu = -2;
    if (weft__cuda_find(ptr, bytes, &slab) && slab.uses == 0) {
        return WEFT_OK; /* from weft_malloc */
    }
    weft_status_t status = weft__cuda_status(weft__cuda()->where(ptr, &gpu), "weft_register");
    bool others = gpu == -1 && !is_pinned(ptr, bytes) && weft__cuda_where(ptr, bytes) == -1;
    if (status != WEFT_OK || others) { /* pinned by somebody else: there is nothing to do */
        return status;
    }
    status = gpu >= 0 ? enlist_device(device, gpu, ptr, bytes, &entry)
                      : pin_host(ptr, bytes, &entry);
    *entry_p = entry;
    return status;
}

weft_status_t weft__cuda_delist(void *arg)
{
    entry_t *entry = arg;
    if (entry->host) {
        return weft__cuda_status(unpin_host(entry), "weft_unregister");
    }
    weft__cuda_disown(entry->device, entry->base);
    free(entry);
    return WEFT_OK;
}
