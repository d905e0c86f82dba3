/* What is known of addresses: memory that this library has allocated or registered, sorted by
 * address, found by halving. A thread remembers what it found last: programs copy from and to the
 * same buffers. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/cudart/state.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static weft_cudart_range_t *ranges;
static size_t range_count, range_room;
/* How often a range was taken: what a thread remembers holds until the next time. Pairs with the
 * loads in weft__cudart_range_find; a thread that frees memory which another one copies from is
 * wrong anyway. */
static _Atomic uint64_t taken;

/* Under the lock: the number of ranges that begin at or before `address`. */
static size_t count_until(uintptr_t address)
{
    size_t low = 0, high = range_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].base <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool holds(const weft_cudart_range_t *range, uintptr_t address)
{
    return address - range->base < range->bytes;
}

cudaError_t weft__cudart_range_add(const weft_cudart_range_t *range)
{
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&lock);
    size_t at = count_until(range->base);
    if (range_count == range_room) {
        size_t room = range_room == 0 ? 64 : 2 * range_room;
        weft_cudart_range_t *more = realloc(ranges, room * sizeof(*more));
        if (more != NULL) {
            ranges = more;
            range_room = room;
        } else {
            error = cudaErrorMemoryAllocation;
        }
    }
    if ((at > 0 && holds(&ranges[at - 1], range->base)) ||
        (at < range_count && ranges[at].base - range->base < range->bytes)) {
        error = cudaErrorHostMemoryAlreadyRegistered;
    }
    if (error == cudaSuccess) {
        memmove(&ranges[at + 1], &ranges[at], (range_count - at) * sizeof(*ranges));
        ranges[at] = *range;
        range_count++;
    }
    pthread_mutex_unlock(&lock);
    return weft__cudart_fail(error);
}

bool weft__cudart_range_find(const void *ptr, weft_cudart_range_t *range_p)
{
    static _Thread_local struct {
        uint64_t taken;
        weft_cudart_range_t range;
    } known[2];
    static _Thread_local unsigned next;
    uintptr_t address = (uintptr_t)ptr;
    uint64_t now = atomic_load_explicit(&taken, memory_order_acquire);
    for (int i = 0; i < 2; i++) {
        if (known[i].taken == now && holds(&known[i].range, address)) {
            *range_p = known[i].range;
            return true;
        }
    }
    pthread_mutex_lock(&lock);
    size_t at = count_until(address);
    bool found = at > 0 && holds(&ranges[at - 1], address);
    if (found) {
        *range_p = ranges[at - 1];
        known[next % 2].range = ranges[at - 1];
        known[next++ % 2].taken = atomic_load_explicit(&taken, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Under the lock. */
static void take(size_t at, weft_cudart_range_t *range_p)
{
    *range_p = ranges[at];
    range_count--;
    memmove(&ranges[at], &ranges[at + 1], (range_count - at) * sizeof(*ranges));
    atomic_fetch_add_explicit(&taken, 1, memory_order_release);
}

bool weft__cudart_range_take(const void *ptr, bool (*wanted)(const weft_cudart_range_t *range),
                             weft_cudart_range_t *range_p)
{
    pthread_mutex_lock(&lock);
    size_t at = count_until((uintptr_t)ptr);
    bool found = at > 0 && ranges[at - 1].base == (uintptr_t)ptr && wanted(&ranges[at - 1]);
    if (found) {
        take(at - 1, range_p);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool weft__cudart_range_take_any(int device, weft_cudart_range_t *range_p)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < range_count && !found; i++) {
        found = ranges[i].type != cudaMemoryTypeHost && ranges[i].device == device;
        if (found) {
            take(i, range_p);
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}
