/* Calls that all ranks make: every rank announces its own in a slot (segment.h), and compares
 * everybody's. */
#include <string.h>

#include "comm/host/announce.h"

weft_status_t weft__verify_each(weft_host_t *host, int p, uint64_t through)
{
    for (uint64_t k = host->verified; k <= through; k++) {
        if (!weft__same_call(weft__host_slot_of(host, p, k),
                             weft__host_slot_of(host, host->rank, k))) {
            return weft__host_mismatch(host, p, k);
        }
    }
    return WEFT_OK;
}

weft_status_t weft__verify_far(weft_host_t *host)
{
    return weft__verify_all(host, host->seq - WEFT_LAG / 2);
}

weft_status_t weft__host_announce(weft_host_t *host, const weft_call_t *call, weft_algo_t algo,
                                  size_t bytes)
{
    return weft__announce(host, weft__sig_pack(call, algo), call->count, call->src, bytes);
}

weft_status_t weft__host_gather(weft_host_t *host, bool first, const void *mine, void *all,
                                size_t bytes)
{
    weft_call_t call = {.coll = WEFT_COLL_ALLGATHER,
                        .type = WEFT_U8,
                        .count = bytes,
                        .src = mine,
                        .dst = all,
                        .comm = host->comm};
    if (weft__host_is_broken(host)) {
        return weft__host_refuse(host);
    }
    if (first) {
        weft__host_begin(host, &call);
    }
    host->current = &call;
    weft_status_t status = weft__host_announce(host, &call, WEFT_ALGO_ONESHOT, bytes);
    if (status != WEFT_OK) {
        weft__host_drain(host);
        return status;
    }
    for (int p = 0; p < host->size; p++) {
        memcpy((char *)all + (size_t)p * bytes, weft__slot_payload(weft__host_slot(host, p)),
               bytes);
    }
    host->seq++;
    return WEFT_OK;
}
