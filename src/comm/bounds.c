/* Bounds of buffers: what is done once for each, and when they do not hold. */
#include "comm/bounds.h"

#include "base/log.h"

static weft_status_t refuse_short(weft_comm_h comm, const weft_bounds_t *bounds, const char *name,
                                  const char *what, const void *ptr, size_t bytes)
{
    uintptr_t base = atomic_load_explicit(&bounds->base, memory_order_relaxed);
    size_t has = atomic_load_explicit(&bounds->end, memory_order_relaxed) - base;
    size_t at = (uintptr_t)ptr - base;
    if (at > 0) {
        return weft__fail(
            WEFT_ERR_INVALID,
            "weft_%s: %s of rank %d needs %zu bytes at %p, but that is byte %zu of an "
            "allocation (weft_malloc) of %zu bytes",
            name, what, comm->rank, bytes, ptr, at, has);
    }
    return weft__fail(
        WEFT_ERR_INVALID,
        "weft_%s: %s of rank %d needs %zu bytes, but the allocation (weft_malloc) at %p "
        "has %zu",
        name, what, comm->rank, bytes, ptr, has);
}

static void copy_bounds(weft_bounds_t *to, const weft_bounds_t *from)
{
    weft__bounds_set(to, atomic_load_explicit(&from->base, memory_order_relaxed),
                     atomic_load_explicit(&from->end, memory_order_relaxed),
                     atomic_load_explicit(&from->serial_p, memory_order_relaxed),
                     atomic_load_explicit(&from->serial, memory_order_relaxed));
}

weft_status_t weft__bounds_refresh(weft_comm_h comm, const char *name, bool dst, const void *ptr,
                                   size_t bytes)
{
    const char *what = dst ? "dst" : "src";
    weft_bounds_t *bounds = dst ? &comm->dst_bounds : &comm->src_bounds;
    /* Buffers are often multiples of some power of two apart: all bits of the address count. */
    uint64_t hash = (uint64_t)(uintptr_t)ptr / 256 * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    weft_bounds_t *known = &comm->known[hash % WEFT_KNOWN_BOUNDS];
    int device = 0;
    if (bytes == 0) {
        return WEFT_OK;
    }
    if (!weft__bounds_hold(known, ptr, bytes)) {
        weft_status_t status = weft__bounds_find(ptr, known, &device);
        if (status == WEFT_ERR_NOT_FOUND) {
            return weft__fail(
                WEFT_ERR_INVALID,
                "weft_%s: %s of rank %d, %zu bytes at %p, is memory of device %d that is "
                "not in use: it was freed, or weft_malloc never gave it",
                name, what, comm->rank, bytes, ptr, device);
        }
        if (status == WEFT_PENDING) { /* nothing is known of it, however long it is */
            copy_bounds(bounds, known);
            return WEFT_OK;
        }
    }
    copy_bounds(bounds, known);
    return weft__bounds_hold(bounds, ptr, bytes)
               ? WEFT_OK
               : refuse_short(comm, bounds, name, what, ptr, bytes);
}
