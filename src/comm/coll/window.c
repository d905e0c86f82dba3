/* Verbs where a peer's memory is not mapped. */
#include "comm/coll/window.h"

#include "base/log.h"

weft_status_t weft__reduce_far(weft_window_t *w, void *to, const void *mine, weft_buffer_t from,
                               int peer, size_t offset, size_t count, weft_side_t side)
{
    size_t element = weft_dtype_size(w->call->type), most = w->landing_bytes / element;
    for (size_t at = 0; at < count; at += most) {
        size_t n = count - at < most ? count - at : most;
        const char *own = (const char *)mine + at * element, *theirs = w->landing;
        WEFT_TRY(w->get(w, w->landing, from, peer, offset + at * element, n * element));
        w->kernels->combine((char *)to + at * element, side == WEFT_LEFT ? theirs : own,
                            side == WEFT_LEFT ? own : theirs, n, w->call->type, w->call->op);
    }
    return WEFT_OK;
}
