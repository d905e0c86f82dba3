/* Ranks whose backend depends on where they are tell each other, by way of the store. */
#ifndef WEFT_COMM_PLACEMENT_H
#define WEFT_COMM_PLACEMENT_H

#include "comm/backends.h"

/* Every rank says where it is (if one thread does so for several, for all of them first), then
 * learns which backend is theirs. `key` is the communicator's. A rank that gives up waiting takes
 * back what it said, and may try again. */
weft_status_t weft__placement_tell(weft_store_conn_t *store, const char *key, int rank, int size,
                                   const weft_member_t *me, int timeout_ms);
weft_status_t weft__placement_await(weft_store_conn_t *store, const char *key, int rank, int size,
                                    int timeout_ms, const weft_backend_ops_t **backend_p);

#endif
