/* Choosing between shared memory and NCCL. */
#include "comm/route.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "comm/shm/segment.h"
#include "device/device.h"

weft_status_t weft__route(weft_route_t *route_p)
{
    static const struct {
        const char *engine;
        weft_route_t route;
    } routes[] = {{"auto", WEFT_ROUTE_VOTE}, {"weft", WEFT_ROUTE_HOST}, {"nccl", WEFT_ROUTE_NCCL}};
    const char *engine = weft__settings()->engine;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (strcmp(engine, routes[i].engine) == 0) {
            *route_p = weft__device_is_cuda() ? routes[i].route : WEFT_ROUTE_HOST;
            return WEFT_OK;
        }
    }
    return weft__fail(WEFT_ERR_INVALID, "WEFT_ENGINE=%s is not auto, weft or nccl", engine);
}

/* Votes are counted in the lower half of one number, those from other hosts in the upper half. */
#define FAR ((int64_t)1 << 32)

weft_status_t weft__route_vote(weft_store_conn_t *store, const char *key, int rank, int size,
                               int timeout_ms)
{
    char name[128];
    uint64_t mine = weft__host_id(), first = mine;
    size_t bytes = sizeof(first);
    int64_t votes;
    snprintf(name, sizeof(name), "%s/host", key);
    weft_status_t status = rank == 0 ? weft__store_set(store, name, &mine, sizeof(mine))
                                     : weft__store_get(store, name, &first, &bytes, timeout_ms);
    if (status == WEFT_ERR_TIMEOUT) {
        return weft__fail(status, "rank 0 did not open the communicator within %.1f s",
                          timeout_ms / 1000.0);
    }
    if (status == WEFT_OK) { /* to be named if others are missed */
        const uint8_t here = 1;
        snprintf(name, sizeof(name), "%s/voter/%d", key, rank);
        status = weft__store_set(store, name, &here, sizeof(here));
    }
    if (status == WEFT_OK) {
        snprintf(name, sizeof(name), "%s/votes", key);
        status = weft__store_add(store, name, 1 + (first != mine ? FAR : 0), &votes);
    }
    if (status == WEFT_OK && votes % FAR == size) {
        const int32_t route = votes >= FAR ? WEFT_ROUTE_NCCL : WEFT_ROUTE_HOST;
        snprintf(name, sizeof(name), "%s/route", key);
        status = weft__store_set(store, name, &route, sizeof(route));
    }
    return status;
}

/* "rank 2, rank 5": those who have not voted. */
static void list_missing(weft_store_conn_t *store, const char *key, int size, char *text,
                         size_t room)
{
    size_t used = 0;
    text[0] = '\0';
    for (int r = 0; r < size && used < room; r++) {
        char name[128];
        uint8_t here;
        size_t bytes = sizeof(here);
        bool found = false;
        snprintf(name, sizeof(name), "%s/voter/%d", key, r);
        if (weft__store_look(store, name, &here, &bytes, &found) == WEFT_OK && !found) {
            int n = snprintf(text + used, room - used, "%srank %d", used ? ", " : "", r);
            used += n > 0 ? (size_t)n : 0;
        }
    }
}

weft_status_t weft__route_count(weft_store_conn_t *store, const char *key, int size, int timeout_ms,
                                weft_route_t *route_p)
{
    char name[128];
    int32_t route = WEFT_ROUTE_HOST;
    size_t bytes = sizeof(route);
    snprintf(name, sizeof(name), "%s/route", key);
    weft_status_t status = weft__store_get(store, name, &route, &bytes, timeout_ms);
    if (status == WEFT_ERR_TIMEOUT) {
        char missing[400];
        list_missing(store, key, size, missing, sizeof(missing));
        return weft__fail(status, "did not join the communicator of %d ranks within %.1f s: %s",
                          size, timeout_ms / 1000.0, missing);
    }
    *route_p = (weft_route_t)route;
    return status;
}
