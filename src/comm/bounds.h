/* Are the buffers of a call in use, and large enough? Asked at the API edge, of memory that is
 * weft_malloc's: of other memory nothing is known.
 *
 * A communicator keeps what it learned of its buffers. An allocation that is freed changes its
 * serial, so what is kept is as good as asking again, and as a rule costs three comparisons a
 * buffer. */
#ifndef WEFT_COMM_BOUNDS_H
#define WEFT_COMM_BOUNDS_H

#include "comm/comm.h"

/* The rest of the way: look it up, keep it, or refuse it with a sentence. `name` is the call
 * without weft_. */
weft_status_t weft__bounds_refresh(weft_comm_h comm, const char *name, bool dst, const void *ptr,
                                   size_t bytes);

static inline weft_status_t weft__bounds_check(weft_comm_h comm, const char *name, bool dst,
                                               const void *ptr, size_t bytes)
{
    const weft_bounds_t *bounds = dst ? &comm->dst_bounds : &comm->src_bounds;
    return __builtin_expect(weft__bounds_hold(bounds, ptr, bytes), 1)
               ? WEFT_OK
               : weft__bounds_refresh(comm, name, dst, ptr, bytes);
}

#endif
