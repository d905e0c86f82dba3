/* Pools of CUDA devices. Locks: a pool's, then those of holds and of the list. */
#include "device/cuda/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/settings.h"
#include "device/cpu/memory.h"
#include "device/space.h"
#include "device/sysmem.h"

#define GRANULE 256u
#define SLAB_GRANULE ((size_t)2 << 20)
#define SLAB_LEAST ((size_t)32 << 20)
#define SLAB_MOST ((size_t)1 << 30) /* unless more is asked for at once */

typedef struct pool {
    pthread_mutex_t lock;
    bool made;
    int device;
    weft_space_t space; /* offsets are addresses; one region a slab */
    weft_cuda_slab_t slabs[WEFT_CUDA_SLABS];
    int slab_count; /* highest number in use + 1; a slab that was given back has no base */
    weft_pool_stats_t stats;
} pool_t;

static pool_t pools[WEFT_MAX_DEVICES];
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* All slabs of the process, by address. */
static struct {
    pthread_rwlock_t lock;
    weft_cuda_slab_t *at;
    int count, room;
    _Atomic uint64_t
        version; /* goes up with every change; released by end_change, acquired by find_known */
} list = {.lock = PTHREAD_RWLOCK_INITIALIZER, .version = 1};

/* What this thread found last, and in which version of the list. Threads that make calls at the
 * same time would otherwise meet at the lock in every one of them. */
#define KNOWN 4
static _Thread_local struct {
    uint64_t version;
    unsigned next;
    weft_cuda_slab_t slab[KNOWN];
} known;

static pthread_mutex_t hold_lock = PTHREAD_MUTEX_INITIALIZER;
static int holds;

/* ---- the list --------------------------------------------------------------------------- */

static void begin_change(void)
{
    pthread_rwlock_wrlock(&list.lock);
}

static void end_change(void)
{
    /* Partner: the acquire load in find_known. */
    atomic_fetch_add_explicit(&list.version, 1, memory_order_release);
    pthread_rwlock_unlock(&list.lock);
}

/* Index of the first slab that starts after `address`. Under the lock. */
static int list_after(uintptr_t address)
{
    int lo = 0, hi = list.count;
    while (lo < hi) {
        int middle = (lo + hi) / 2;
        if ((uintptr_t)list.at[middle].base > address) {
            hi = middle;
        } else {
            lo = middle + 1;
        }
    }
    return lo;
}

/* 0, or an errno: ENOMEM, or EEXIST if there is one at that place, which *other_p is then. */
static int list_add(const weft_cuda_slab_t *slab, weft_cuda_slab_t *other_p)
{
    bool added = true;
    begin_change();
    int before = list_after((uintptr_t)slab->base) - 1;
    if (before >= 0 && list.at[before].base == slab->base) {
        *other_p = list.at[before];
        end_change();
        return EEXIST;
    }
    if (list.count == list.room) {
        int room = list.room ? 2 * list.room : 64;
        weft_cuda_slab_t *at = realloc(list.at, (size_t)room * sizeof(*at));
        added = at != NULL;
        list.at = added ? at : list.at;
        list.room = added ? room : list.room;
    }
    if (added) {
        int i = before + 1;
        memmove(list.at + i + 1, list.at + i, (size_t)(list.count - i) * sizeof(*slab));
        list.at[i] = *slab;
        list.count++;
    }
    end_change();
    return added ? 0 : ENOMEM;
}

static void list_remove(const weft_cuda_slab_t *slab)
{
    begin_change();
    int i = list_after((uintptr_t)slab->base) - 1;
    memmove(list.at + i, list.at + i + 1, (size_t)(list.count - i - 1) * sizeof(*slab));
    list.count--;
    end_change();
}

static bool holds_range(const weft_cuda_slab_t *slab, uintptr_t address, size_t bytes)
{
    return address >= (uintptr_t)slab->base && bytes <= slab->bytes &&
           address - (uintptr_t)slab->base <= slab->bytes - bytes;
}

/* As good as the list under its lock: what changes after the load could as well have changed after
 * the lock was given back. */
static const weft_cuda_slab_t *find_known(uintptr_t address, size_t bytes)
{
    /* Partner: end_change. */
    uint64_t version = atomic_load_explicit(&list.version, memory_order_acquire);
    for (int i = 0; i < KNOWN && known.version == version; i++) {
        if (known.slab[i].base != NULL && holds_range(&known.slab[i], address, bytes)) {
            return &known.slab[i];
        }
    }
    return NULL;
}

/* Under the list's lock, which keeps the version. */
static void keep_known(const weft_cuda_slab_t *slab)
{
    uint64_t version = atomic_load_explicit(&list.version, memory_order_relaxed);
    if (known.version != version) {
        memset(&known, 0, sizeof(known));
        known.version = version;
    }
    known.slab[known.next++ % KNOWN] = *slab;
}

bool weft__cuda_find(const void *ptr, size_t bytes, weft_cuda_slab_t *slab_p)
{
    uintptr_t address = (uintptr_t)ptr;
    const weft_cuda_slab_t *slab = find_known(address, bytes);
    if (slab != NULL) {
        *slab_p = *slab;
        return true;
    }
    pthread_rwlock_rdlock(&list.lock);
    int i = list_after(address) - 1;
    bool found = i >= 0 && holds_range(&list.at[i], address, bytes);
    if (found) {
        *slab_p = list.at[i];
        keep_known(slab_p);
    }
    pthread_rwlock_unlock(&list.lock);
    return found;
}

int weft__cuda_where(const void *ptr, size_t bytes)
{
    weft_cuda_slab_t slab;
    int gpu = -2, end = -1;
    if (weft__cuda_find(ptr, bytes, &slab)) {
        return weft__cuda_gpu(slab.device);
    }
    int error = weft__cuda()->where(ptr, &gpu);
    if (error == 0 && gpu == -1) {
        error = weft__cuda()->where((const char *)ptr + bytes - 1, &end);
    }
    return error == 0 && end == -1 ? gpu : -2;
}

/* ---- pools ------------------------------------------------------------------------------ */

static weft_status_t get_pool(const char *call, int device, pool_t **pool_p)
{
    pool_t *pool = &pools[device];
    WEFT_TRY(weft__fork_guard(call));
    pthread_mutex_lock(&making);
    if (!pool->made) {
        pthread_mutex_init(&pool->lock, NULL);
        pool->device = device;
        weft__space_init(&pool->space);
        pool->made = true;
        size_t all = weft__cuda_props(weft__cuda_gpu(device))->memory;
        size_t asked = weft__settings()->device_memory;
        pool->stats.capacity = asked != 0 && asked < all ? asked : all;
    }
    pthread_mutex_unlock(&making);
    *pool_p = pool;
    return WEFT_OK;
}

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* A number for a slab; -1: `most` are taken. While slabs are held, others may know the old ones,
 * also as numbers without a slab: only new ones are given out. */
static int free_number(pool_t *pool, int most)
{
    int number = weft__cuda_held() ? pool->slab_count : 0;
    while (number < pool->slab_count && pool->slabs[number].base != NULL) {
        number++;
    }
    return number < most ? number : -1;
}

static bool name_slab(weft_cuda_slab_t *slab)
{
    while (slab->id == 0) {
        if (weft__random_bytes(&slab->id, sizeof(slab->id)) != WEFT_OK) {
            return false;
        }
    }
    return true;
}

static void keep_slab(pool_t *pool, const weft_cuda_slab_t *slab)
{
    pool->slabs[slab->number] = *slab;
    pool->slab_count = slab->number >= pool->slab_count ? slab->number + 1 : pool->slab_count;
}

/* Take a slab of `bytes` from the GPU; 0, a CUDA error, or -1 where the pool itself cannot. Without
 * a pool there may be more slabs than numbers: those that others have to know get one then. */
static int add_slab(pool_t *pool, size_t bytes)
{
    bool numbered = weft__settings()->pool;
    int number = numbered ? free_number(pool, WEFT_CUDA_SLABS) : -1;
    int gpu = weft__cuda_gpu(pool->device);
    void *base;
    if (numbered != (number >= 0) || bytes > pool->stats.capacity - pool->stats.reserved) {
        return -1;
    }
    int error = weft__cuda()->alloc(gpu, &base, bytes);
    if (error != 0) {
        return error;
    }
    weft_cuda_slab_t slab = {
        .device = pool->device, .number = number, .base = base, .bytes = bytes};
    weft_cuda_slab_t other;
    if (!name_slab(&slab) || list_add(&slab, &other) != 0) {
        weft__cuda()->release(gpu, base);
        return -1;
    }
    if (!weft__space_add(&pool->space, (uint64_t)(uintptr_t)base, bytes)) {
        list_remove(&slab);
        weft__cuda()->release(gpu, base);
        return -1;
    }
    if (numbered) {
        keep_slab(pool, &slab);
    }
    pool->stats.reserved += bytes;
    return 0;
}

/* Without a pool, what was freed while slabs were held is used again only if it is of that very
 * size. */
static bool may_reuse(const pool_t *pool, size_t need)
{
    const weft_block_t *block = weft__space_largest(&pool->space);
    while (!weft__settings()->pool && block != NULL && block->bytes != need) {
        block = weft__space_smaller(&pool->space, block);
    }
    return block != NULL;
}

/* First a slab with room for more, then one that just holds what is needed. */
static int grow(pool_t *pool, size_t need)
{
    if (!weft__settings()->pool) {
        return add_slab(pool, need);
    }
    size_t room = pool->stats.capacity - pool->stats.reserved, ample = pool->stats.reserved / 4;
    size_t least = round_up(need, SLAB_GRANULE);
    least = least > room && need <= room ? room : least; /* the last piece may be an odd one */
    ample = ample < SLAB_LEAST ? SLAB_LEAST : ample > SLAB_MOST ? SLAB_MOST : ample;
    ample = ample < least ? least : round_up(ample, SLAB_GRANULE);
    int error = add_slab(pool, ample);
    if (error != 0 && ample > least) {
        error = add_slab(pool, least);
    }
    return error;
}

static weft_status_t fail_short(const pool_t *pool, size_t bytes, int error)
{
    char asked[WEFT_BYTES_TEXT], has[WEFT_BYTES_TEXT], used[WEFT_BYTES_TEXT];
    char left[WEFT_BYTES_TEXT];
    bool full = weft__settings()->pool && pool->slab_count == WEFT_CUDA_SLABS;
    size_t room = 0, total = 0;
    int gpu = weft__cuda_gpu(pool->device);
    weft__cuda()->memory(gpu, &room, &total);
    weft__bytes_text(bytes, asked);
    weft__bytes_text(pool->stats.capacity, has);
    weft__bytes_text(pool->stats.in_use, used);
    weft__bytes_text(room, left);
    return weft__fail(WEFT_ERR_NO_MEMORY,
                      "weft_malloc: device %d on GPU %d cannot give %s: it has %s in use of %s "
                      "(WEFT_DEVICE_MEMORY), and the GPU has %s left%s%s",
                      pool->device, gpu, asked, used, has, left,
                      error > 0 ? "; CUDA says: "
                      : full    ? "; it has had as many pieces of memory as there are numbers for "
                                  "since communicators are open"
                                : "",
                      error > 0 ? weft__cuda()->error_text(error) : "");
}

weft_status_t weft__cuda_alloc(int device, void **ptr_p, size_t bytes)
{
    pool_t *pool;
    WEFT_TRY(get_pool("weft_malloc", device, &pool));
    if (bytes > pool->stats.capacity) {
        return fail_short(pool, bytes, 0);
    }
    size_t granule = !weft__settings()->pool ? 1 : GRANULE;
    size_t need = bytes == 0 ? granule : round_up(bytes, granule);
    int error = 0;
    pthread_mutex_lock(&pool->lock);
    weft_block_t *block = may_reuse(pool, need) ? weft__space_alloc(&pool->space, need) : NULL;
    pool->stats.reused += block != NULL;
    if (block == NULL && (error = grow(pool, need)) == 0) {
        block = weft__space_alloc(&pool->space, need);
    }
    if (block != NULL) {
        block->asked = bytes;
        *ptr_p = (void *)(uintptr_t)block->offset;
        pool->stats.allocs++;
        pool->stats.in_use += need;
        if (pool->stats.in_use > pool->stats.in_use_peak) {
            pool->stats.in_use_peak = pool->stats.in_use;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return block != NULL ? WEFT_OK : fail_short(pool, bytes, error);
}

weft_status_t weft__cuda_bounds(const void *ptr, weft_bounds_t *bounds, int *device_p)
{
    weft_cuda_slab_t slab;
    weft__bounds_clear(bounds);
    if (!weft__cuda_find(ptr, 1, &slab) || slab.uses > 0) { /* not Weft's, or registered */
        return WEFT_PENDING;
    }
    *device_p = slab.device;
    pool_t *pool = &pools[slab.device];
    pthread_mutex_lock(&pool->lock);
    const weft_block_t *block = weft__space_around(&pool->space, (uint64_t)(uintptr_t)ptr);
    if (block != NULL) {
        weft__bounds_set(bounds, block->offset, block->offset + block->asked, &block->serial,
                         atomic_load_explicit(&block->serial, memory_order_relaxed));
    }
    pthread_mutex_unlock(&pool->lock);
    return block != NULL ? WEFT_OK : WEFT_ERR_NOT_FOUND;
}

/* Give the slab that `block`, which is free, fills back to the GPU, unless slabs are held. Under
 * the pool's lock. */
static bool give_back(pool_t *pool, weft_block_t *block)
{
    bool given = false;
    weft_cuda_slab_t slab;
    pthread_mutex_lock(&hold_lock);
    if (holds == 0 && weft__cuda_find((void *)(uintptr_t)block->offset, block->bytes, &slab) &&
        slab.bytes == block->bytes) {
        weft__space_remove(&pool->space, block);
        list_remove(&slab);
        if (slab.number >= 0) {
            pool->slabs[slab.number] = (weft_cuda_slab_t){0};
        }
        pool->stats.reserved -= slab.bytes;
        given = weft__cuda()->release(weft__cuda_gpu(pool->device), slab.base) == 0;
    }
    pthread_mutex_unlock(&hold_lock);
    return given;
}

weft_status_t weft__cuda_free(void *ptr)
{
    weft_cuda_slab_t slab;
    WEFT_TRY(weft__fork_guard("weft_free"));
    if (!weft__cuda_find(ptr, 1, &slab)) {
        return weft__fail(WEFT_ERR_INVALID, "weft_free: %p is not memory of a device", ptr);
    }
    if (slab.uses > 0) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_free: %p is registered memory; free it where it is from", ptr);
    }
    pool_t *pool = &pools[slab.device];
    pthread_mutex_lock(&pool->lock);
    weft_block_t *block = weft__space_find(&pool->space, (uint64_t)(uintptr_t)ptr);
    if (block != NULL) {
        pool->stats.frees++;
        pool->stats.in_use -= block->bytes;
        block = weft__space_free(&pool->space, block);
        size_t keep = !weft__settings()->pool ? 0 : weft__settings()->pool_keep;
        if (pool->stats.reserved - pool->stats.in_use > keep) {
            give_back(pool, block);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    if (block == NULL) {
        return weft__fail(WEFT_ERR_INVALID,
                          "weft_free: %p on device %d is not in use: freed already, or not the "
                          "address that weft_malloc gave",
                          ptr, slab.device);
    }
    return WEFT_OK;
}

/* ---- memory of the program's ------------------------------------------------------------ */

/* Under the pool's lock. */
static weft_cuda_slab_t *find_adopted(pool_t *pool, const void *base)
{
    for (int i = 0; i < pool->slab_count; i++) {
        if (pool->slabs[i].uses > 0 && pool->slabs[i].base == base) {
            return &pool->slabs[i];
        }
    }
    return NULL;
}

/* Some numbers are left to the pool. */
#define ADOPTED_MOST (WEFT_CUDA_SLABS - 64)

static weft_status_t add_adopted(pool_t *pool, void *base, size_t bytes)
{
    weft_cuda_slab_t slab = {.device = pool->device, .base = base, .bytes = bytes, .uses = 1},
                     other;
    slab.number = free_number(pool, ADOPTED_MOST);
    if (slab.number < 0) {
        return weft__fail(
            WEFT_ERR_UNSUPPORTED,
            "weft_register: device %d has had %d pieces of memory while communicators "
            "are open, and takes no more; register memory once, not again and again. "
            "Calls copy it as before",
            pool->device, ADOPTED_MOST);
    }
    int error = name_slab(&slab) ? list_add(&slab, &other) : ENOMEM;
    if (error == EEXIST) {
        return weft__fail(
            WEFT_ERR_UNSUPPORTED,
            "weft_register: the memory at %p is registered for device %d, on the same "
            "GPU; calls of device %d copy it as before",
            base, other.device, pool->device);
    }
    if (error != 0) {
        return weft__fail(WEFT_ERR_NO_MEMORY, "weft_register: no memory to remember %p", base);
    }
    keep_slab(pool, &slab);
    return WEFT_OK;
}

weft_status_t weft__cuda_adopt(int device, void *base, size_t bytes)
{
    pool_t *pool;
    weft_status_t status = get_pool("weft_register", device, &pool);
    if (status != WEFT_OK) {
        return status;
    }
    pthread_mutex_lock(&pool->lock);
    weft_cuda_slab_t *slab = find_adopted(pool, base);
    if (slab != NULL) {
        slab->uses++;
    } else {
        status = add_adopted(pool, base, bytes);
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

void weft__cuda_disown(int device, void *base)
{
    pool_t *pool = &pools[device];
    pthread_mutex_lock(&pool->lock);
    weft_cuda_slab_t *slab = find_adopted(pool, base);
    if (slab != NULL && --slab->uses == 0) {
        list_remove(slab);
        *slab = (weft_cuda_slab_t){0};
    }
    pthread_mutex_unlock(&pool->lock);
}

weft_status_t weft__cuda_stats(int device, weft_pool_stats_t *stats_p)
{
    pool_t *pool;
    WEFT_TRY(get_pool("weft_pool_stats", device, &pool));
    pthread_mutex_lock(&pool->lock);
    *stats_p = pool->stats;
    pthread_mutex_unlock(&pool->lock);
    return WEFT_OK;
}

weft_status_t weft__cuda_trim(int device, uint64_t keep)
{
    pool_t *pool;
    WEFT_TRY(get_pool("weft_pool_trim", device, &pool));
    pthread_mutex_lock(&pool->lock);
    weft_block_t *block = weft__space_largest(&pool->space);
    while (block != NULL && pool->stats.reserved - pool->stats.in_use > keep) {
        weft_block_t *smaller = weft__space_smaller(&pool->space, block);
        give_back(pool, block);
        block = smaller;
    }
    pthread_mutex_unlock(&pool->lock);
    return WEFT_OK;
}

static bool is_made(const pool_t *pool)
{
    pthread_mutex_lock(&making);
    bool made = pool->made;
    pthread_mutex_unlock(&making);
    return made;
}

int weft__cuda_slab_count(int device)
{
    pool_t *pool = &pools[device];
    if (!is_made(pool)) {
        return 0;
    }
    pthread_mutex_lock(&pool->lock);
    int count = pool->slab_count;
    pthread_mutex_unlock(&pool->lock);
    return count;
}

weft_cuda_slab_t weft__cuda_slab(int device, int number)
{
    pool_t *pool = &pools[device];
    pthread_mutex_lock(&pool->lock);
    weft_cuda_slab_t slab = pool->slabs[number];
    pthread_mutex_unlock(&pool->lock);
    return slab;
}

/* In the list. Under the pool's lock and the list's. */
static void set_number(const char *base, int number)
{
    list.at[list_after((uintptr_t)base) - 1].number = number;
}

weft_status_t weft__cuda_number(const weft_cuda_slab_t *slab, int *number_p)
{
    pool_t *pool = &pools[slab->device];
    weft_cuda_slab_t now = *slab;
    if (slab->number < 0) {
        pthread_mutex_lock(&pool->lock);
        bool found = weft__cuda_find(slab->base, slab->bytes, &now);
        if (found && now.number < 0 && (now.number = free_number(pool, WEFT_CUDA_SLABS)) >= 0) {
            keep_slab(pool, &now);
            begin_change();
            set_number(now.base, now.number);
            end_change();
        }
        pthread_mutex_unlock(&pool->lock);
    }
    *number_p = now.number;
    return now.number >= 0
               ? WEFT_OK
               : weft__fail(
                     WEFT_ERR_SYSTEM,
                     "device %d has shared %d pieces of memory since communicators are open, "
                     "and has no numbers for more; with WEFT_POOL=1 few are enough",
                     slab->device, WEFT_CUDA_SLABS);
}

/* Nobody knows the numbers of slabs while none are held: number them anew, without gaps, and of
 * those that need none only what is registered. Under the pool's lock. */
static void renumber(pool_t *pool)
{
    int count = 0;
    pthread_mutex_lock(&hold_lock);
    begin_change();
    for (int i = 0; holds == 0 && i < pool->slab_count; i++) {
        weft_cuda_slab_t slab = pool->slabs[i];
        pool->slabs[i] = (weft_cuda_slab_t){0};
        if (slab.base == NULL) {
            continue;
        }
        slab.number = weft__settings()->pool || slab.uses > 0 ? count++ : -1;
        set_number(slab.base, slab.number);
        if (slab.number >= 0) {
            pool->slabs[slab.number] = slab;
        }
    }
    pool->slab_count = holds == 0 ? count : pool->slab_count;
    end_change();
    pthread_mutex_unlock(&hold_lock);
}

void weft__cuda_hold(void)
{
    for (int i = 0; i < WEFT_MAX_DEVICES; i++) {
        if (is_made(&pools[i])) {
            pthread_mutex_lock(&pools[i].lock);
            renumber(&pools[i]);
            pthread_mutex_unlock(&pools[i].lock);
        }
    }
    pthread_mutex_lock(&hold_lock);
    holds++;
    pthread_mutex_unlock(&hold_lock);
}

void weft__cuda_unhold(void)
{
    pthread_mutex_lock(&hold_lock);
    holds--;
    pthread_mutex_unlock(&hold_lock);
}

bool weft__cuda_held(void)
{
    pthread_mutex_lock(&hold_lock);
    bool held = holds > 0;
    pthread_mutex_unlock(&hold_lock);
    return held;
}
