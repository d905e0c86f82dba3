/* The table of device memories. See memory.h.
 *
 * A memory is one heap and one pool. They are made under a lock and then published in two tables,
 * which are read without it: by device, and (for weft__heap_find) as a dense list of address
 * ranges in the order they were made. Entries never change once they are published. */
#include "device/cpu/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/settings.h"
#include "device/sysmem.h"

typedef struct memory {
    weft_heap_t heap;
    weft_pool_t pool;
} memory_t;

typedef struct range {
    uintptr_t base;
    uint64_t bytes;
    int device;
} range_t;

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(memory_t *) memories[WEFT_MAX_DEVICES];
static range_t ranges[WEFT_MAX_DEVICES];
static atomic_int range_count;
static _Atomic uint64_t gap_serial = 1; /* of the gaps between ranges: changes when one is added */

/* ---- after a fork ----------------------------------------------------------------------- */

static atomic_bool forked;
static pthread_once_t guard_once = PTHREAD_ONCE_INIT;

static void in_child(void)
{
    /* Pairs with the load in weft__fork_guard; the child has one thread here. */
    atomic_store_explicit(&forked, true, memory_order_relaxed);
}

static void guard_start(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

weft_status_t weft__fork_guard(const char *call)
{
    pthread_once(&guard_once, guard_start);
    /* Pairs with the store in in_child. */
    if (atomic_load_explicit(&forked, memory_order_relaxed)) {
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "%s: this process was forked from one that had already used Weft; fork "
                          "before the first use, or start the program anew with exec",
                          call);
    }
    return WEFT_OK;
}

/* ---- making ----------------------------------------------------------------------------- */

static weft_status_t make_memory(int device, memory_t **memory_p)
{
    const weft_settings_t *settings = weft__settings();
    uint64_t capacity = settings->device_memory;
    memory_t *memory = calloc(1, sizeof(*memory));
    weft_status_t status;
    if (memory == NULL) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "device %d: no memory for its description", device);
    }
    if (capacity == 0) {
        capacity = weft__sysmem_total(weft__sysmem());
    }
    if (capacity == WEFT_SYSMEM_UNKNOWN) { /* a sandbox without /proc */
        capacity = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    status = weft__heap_create(device, capacity, &memory->heap);
    if (status != WEFT_OK) {
        goto err_free;
    }
    status = weft__pool_init(&memory->pool, &memory->heap, settings->pool_keep);
    if (status != WEFT_OK) {
        goto err_heap;
    }
    *memory_p = memory;
    return WEFT_OK;
err_heap:
    weft__heap_destroy(&memory->heap);
err_free:
    free(memory);
    return status;
}

static weft_status_t make_and_publish(int device, memory_t **memory_p)
{
    weft_status_t status = WEFT_OK;
    pthread_mutex_lock(&making);
    *memory_p = atomic_load_explicit(&memories[device], memory_order_relaxed);
    if (*memory_p == NULL) {
        status = make_memory(device, memory_p);
    }
    if (status == WEFT_OK && atomic_load(&memories[device]) == NULL) {
        int count = atomic_load_explicit(&range_count, memory_order_relaxed);
        ranges[count] = (range_t){.base = (uintptr_t)(*memory_p)->heap.base,
                                  .bytes = (*memory_p)->heap.bytes,
                                  .device = device};
        /* Pairs with the load in weft__heap_find: whoever sees the count sees the range. */
        atomic_store_explicit(&range_count, count + 1, memory_order_release);
        atomic_fetch_add(&gap_serial, 1); /* partner: weft__bounds_hold */
        /* Pairs with the loads in get_memory and made_memory. */
        atomic_store_explicit(&memories[device], *memory_p, memory_order_release);
    }
    pthread_mutex_unlock(&making);
    return status;
}

/* The memory of `device`, or NULL if it was not used yet. */
static memory_t *made_memory(int device)
{
    /* Pairs with the store in make_and_publish. */
    return atomic_load_explicit(&memories[device], memory_order_acquire);
}

static weft_status_t get_memory(const char *call, int device, memory_t **memory_p)
{
    WEFT_TRY(weft__fork_guard(call));
    if (device < 0 || device >= WEFT_MAX_DEVICES) {
        return weft__fail(WEFT_ERR_INVALID, "%s: there is no device %d", call, device);
    }
    *memory_p = made_memory(device);
    return *memory_p != NULL ? WEFT_OK : make_and_publish(device, memory_p);
}

/* ---- finding ---------------------------------------------------------------------------- */

bool weft__heap_find(const void *ptr, size_t bytes, int *device_p, uint64_t *offset_p)
{
    /* A rank mostly asks for its own device. */
    static _Thread_local __attribute__((tls_model("initial-exec"))) int last;
    /* Pairs with the store in make_and_publish. */
    int count = atomic_load_explicit(&range_count, memory_order_acquire);
    int at = last;
    for (int i = 0; i < count; i++) {
        uint64_t offset = (uintptr_t)ptr - ranges[at].base;
        if (offset < ranges[at].bytes && bytes <= ranges[at].bytes - offset) {
            *device_p = ranges[at].device;
            *offset_p = offset;
            last = at;
            return true;
        }
        at = at + 1 < count ? at + 1 : 0;
    }
    return false;
}

/* The gap between the memories of devices that `ptr` is in. */
static void find_gap(uintptr_t ptr, weft_bounds_t *bounds)
{
    uint64_t serial = atomic_load(&gap_serial);
    /* Pairs with the store in make_and_publish. */
    int count = atomic_load_explicit(&range_count, memory_order_acquire);
    uintptr_t from = 0, to = UINTPTR_MAX;
    for (int i = 0; i < count; i++) {
        uintptr_t base = ranges[i].base, end = base + ranges[i].bytes;
        from = end <= ptr && end > from ? end : from;
        to = base > ptr && base < to ? base : to;
    }
    weft__bounds_set(bounds, from, to, &gap_serial, serial);
}

weft_status_t weft__heap_bounds(const void *ptr, weft_bounds_t *bounds, int *device_p)
{
    uint64_t offset;
    if (!weft__heap_find(ptr, 1, device_p, &offset)) {
        find_gap((uintptr_t)ptr, bounds);
        return WEFT_PENDING;
    }
    memory_t *memory = made_memory(*device_p);
    weft_pool_allocation_t piece;
    if (!weft__pool_find(&memory->pool, offset, &piece)) {
        return WEFT_ERR_NOT_FOUND;
    }
    uintptr_t base = (uintptr_t)memory->heap.base + piece.offset;
    weft__bounds_set(bounds, base, base + piece.bytes, piece.serial_p, piece.serial);
    return WEFT_OK;
}

char *weft__memory_by_id(uint64_t id)
{
    for (int i = 0; i < WEFT_MAX_DEVICES; i++) {
        memory_t *memory = made_memory(i);
        if (memory != NULL && memory->heap.id == id) {
            return memory->heap.base;
        }
    }
    return NULL;
}

weft_status_t weft__heap_export(int device, weft_heap_handle_t *handle_p)
{
    memory_t *memory;
    WEFT_TRY(get_memory("sharing device memory", device, &memory));
    *handle_p = (weft_heap_handle_t){
        .id = memory->heap.id, .bytes = memory->heap.bytes, .pid = getpid(), .fd = memory->heap.fd};
    return WEFT_OK;
}

/* ---- handing out ------------------------------------------------------------------------ */

/* The sentence of a failed allocation. */
static weft_status_t fail_short(const memory_t *memory, size_t bytes,
                                const weft_pool_stats_t *stats, const weft_shortage_t *shortage)
{
    char asked[WEFT_BYTES_TEXT], has[WEFT_BYTES_TEXT], used[WEFT_BYTES_TEXT];
    char need[WEFT_BYTES_TEXT], room[WEFT_BYTES_TEXT];
    weft__bytes_text(bytes, asked);
    weft__bytes_text(stats->capacity, has);
    weft__bytes_text(stats->in_use, used);
    weft__bytes_text(shortage->need, need);
    weft__bytes_text(shortage->room, room);
    if (shortage->kind == WEFT_SHORT_DEVICE) {
        return weft__fail(WEFT_ERR_NO_MEMORY,
                          "weft_malloc: device %d cannot give %s: it has %s, %s in use, and the "
                          "largest free piece is %s; the setting WEFT_DEVICE_MEMORY is its size",
                          memory->heap.device, asked, has, used, room);
    }
    if (shortage->kind == WEFT_SHORT_SYSTEM) {
        return weft__fail(WEFT_ERR_NO_MEMORY,
                          "weft_malloc: device %d cannot give %s: it needs %s more from the "
                          "machine, which has %s left (MemAvailable and the limits of its control "
                          "groups); the device has %s in use of %s (WEFT_DEVICE_MEMORY)",
                          memory->heap.device, asked, need, room, used, has);
    }
    return weft__fail(WEFT_ERR_NO_MEMORY,
                      "weft_malloc: device %d cannot give %s: no memory for the bookkeeping",
                      memory->heap.device, asked);
}

/* Give back all that the pools of this process keep; whether that was anything. */
static bool trim_all(void)
{
    uint64_t given = 0;
    for (int i = 0; i < WEFT_MAX_DEVICES; i++) {
        memory_t *memory = made_memory(i);
        given += memory == NULL ? 0 : weft__pool_trim(&memory->pool, 0);
    }
    return given > 0;
}

weft_status_t weft__heap_malloc(int device, void **ptr_p, size_t bytes)
{
    memory_t *memory;
    weft_pool_stats_t stats;
    weft_shortage_t shortage = {.kind = WEFT_SHORT_NONE};
    WEFT_TRY(get_memory("weft_malloc", device, &memory));
    weft_status_t status = weft__pool_alloc(&memory->pool, bytes, ptr_p, &shortage);
    if (status == WEFT_ERR_NO_MEMORY && shortage.kind == WEFT_SHORT_SYSTEM && trim_all()) {
        status = weft__pool_alloc(&memory->pool, bytes, ptr_p, &shortage);
    }
    if (status == WEFT_ERR_NO_MEMORY) {
        weft__pool_stats(&memory->pool, &stats);
        return fail_short(memory, bytes, &stats, &shortage);
    }
    return status;
}

weft_status_t weft__heap_free(void *ptr)
{
    int device;
    uint64_t offset;
    WEFT_TRY(weft__fork_guard("weft_free"));
    if (!weft__heap_find(ptr, 1, &device, &offset)) {
        return weft__fail(WEFT_ERR_INVALID, "weft_free: %p is not memory of a device", ptr);
    }
    if (weft__pool_free(&made_memory(device)->pool, offset) != WEFT_OK) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_free: %p on device %d is not in use: freed already, or not the "
                          "address that weft_malloc gave",
                          ptr, device);
    }
    return WEFT_OK;
}

static atomic_int sharing = 1; /* processes that share the machine; relaxed: orders nothing */

void weft__device_share(int processes)
{
    atomic_store_explicit(&sharing, processes > 1 ? processes : 1, memory_order_relaxed);
}

weft_status_t weft__heap_stats(int device, weft_pool_stats_t *stats_p)
{
    memory_t *memory;
    WEFT_TRY(get_memory("weft_pool_stats", device, &memory));
    weft__pool_stats(&memory->pool, stats_p);
    if (weft__settings()->device_memory == 0) {
        size_t share = stats_p->capacity /
                       (size_t)atomic_load_explicit(&sharing, memory_order_relaxed);
        stats_p->capacity = share > stats_p->reserved ? share : stats_p->reserved;
    }
    return WEFT_OK;
}

weft_status_t weft__heap_trim(int device, uint64_t keep)
{
    weft_status_t status = weft__fork_guard("weft_pool_trim");
    memory_t *memory = made_memory(device);
    if (status == WEFT_OK && memory != NULL) {
        weft__pool_trim(&memory->pool, keep);
    }
    return status;
}
