#include "comm/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/watch.h"

#define NAME_ROOM 128 /* of a key in the store */

static void rank_key(const char *key, int rank, char name[NAME_ROOM])
{
    snprintf(name, NAME_ROOM, "%s/rank/%d", key, rank);
}

/* The last one to tell decides for all. */
static weft_status_t decide(weft_store_conn_t *store, const char *key, int size, int timeout_ms)
{
    const weft_backend_ops_t *backend = NULL;
    weft_member_t *members = calloc((size_t)size, sizeof(*members));
    weft_status_t status = members ? WEFT_OK
                                   : weft__fail(WEFT_ERR_NO_MEMORY,
                                                "no memory for a communicator of %d ranks", size);
    char name[NAME_ROOM];
    for (int r = 0; r < size && status == WEFT_OK; r++) {
        size_t bytes = sizeof(members[r]);
        rank_key(key, r, name);
        status = weft__store_get(store, name, &members[r], &bytes, timeout_ms);
    }
    if (status == WEFT_OK) {
        status = weft__backend_choose(&(weft_members_t){.size = size, .list = members}, &backend);
    }
    free(members);
    if (status == WEFT_OK) {
        snprintf(name, sizeof(name), "%s/backend", key);
        status = weft__store_set(store, name, backend->name, strlen(backend->name) + 1);
    }
    return status;
}

weft_status_t weft__placement_tell(weft_store_conn_t *store, const char *key, int rank, int size,
                                   const weft_member_t *me, int timeout_ms)
{
    char name[NAME_ROOM];
    weft_member_t there;
    bool taken = true;
    size_t bytes = sizeof(there);
    int64_t told;
    rank_key(key, rank, name);
    WEFT_TRY(weft__store_offer(store, name, me, sizeof(*me), &taken, &there, &bytes));
    if (!taken) { /* before it tells twice */
        return weft__fail(WEFT_ERR_INVALID, "rank %d of this communicator has joined already",
                          rank);
    }
    snprintf(name, sizeof(name), "%s/told", key);
    WEFT_TRY(weft__store_add(store, name, 1, &told));
    return told == size ? decide(store, key, size, timeout_ms) : WEFT_OK;
}

/* Name those who have not told. */
static weft_status_t say_missing(weft_store_conn_t *store, const char *key, int rank, int size,
                                 int timeout_ms)
{
    weft_seen_t *seen = calloc((size_t)size, sizeof(*seen));
    weft_fault_t fault;
    for (int r = 0; r < size && seen; r++) {
        char name[NAME_ROOM];
        weft_member_t member;
        size_t bytes = sizeof(member);
        bool found = false;
        rank_key(key, r, name);
        bool absent = weft__store_look(store, name, &member, &bytes, &found) == WEFT_OK && !found;
        seen[r] = (weft_seen_t){.rank = r, .state = absent ? WEFT_SEEN_UNKNOWN : WEFT_SEEN_JOINED};
    }
    weft__watch_absent(rank, false, seen, seen ? size : 0, timeout_ms, NULL, &fault);
    free(seen);
    return weft__fail(fault.status, "%s", fault.text);
}

/* The rank gives up. Without it the others still wait for it, and name it if it does not come
 * back. */
static void withdraw(weft_store_conn_t *store, const char *key, int rank)
{
    char name[NAME_ROOM];
    int64_t told;
    snprintf(name, sizeof(name), "%s/told", key);
    weft__store_add(store, name, -1, &told);
    rank_key(key, rank, name);
    weft__store_delete(store, name);
}

weft_status_t weft__placement_await(weft_store_conn_t *store, const char *key, int rank, int size,
                                    int timeout_ms, const weft_backend_ops_t **backend_p)
{
    char name[NAME_ROOM], backend[32] = "";
    size_t bytes = sizeof(backend) - 1;
    snprintf(name, sizeof(name), "%s/backend", key);
    weft_status_t status = weft__store_get(store, name, backend, &bytes, timeout_ms);
    if (status == WEFT_ERR_TIMEOUT) {
        status = say_missing(store, key, rank, size, timeout_ms);
        withdraw(store, key, rank);
        return status;
    }
    *backend_p = weft__backend_named(backend);
    return status != WEFT_OK || *backend_p
               ? status
               : weft__fail(WEFT_ERR_MISMATCH,
                            "ranks have different versions of Weft: there is no backend \"%s\"",
                            backend);
}
