/* The rendezvous store: a small key-value server over TCP, for meeting, never for data.
 *
 * The server runs as a thread of one process (the launcher, rank 0, or whoever made a unique id).
 * It listens on WEFT_STORE_HOST (unless asked otherwise, loopback, or all addresses where rank 0 of
 * a job on several hosts serves). A client proves that it knows the job's secret before anything
 * else, without sending the secret itself; one that does not is refused and learns nothing. Keys
 * are up to 256 bytes, values up to 1 MiB. */
#ifndef WEFT_BOOT_STORE_H
#define WEFT_BOOT_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weft/status.h>

#define WEFT_SECRET_BYTES 16 /* random; 32 hex digits in the environment */

typedef struct weft_store_server weft_store_server_t;
typedef struct weft_store_conn weft_store_conn_t; /* a connection; used by one thread at a time */

/* Fill `secret` from the kernel's random source. */
weft_status_t weft__secret_create(uint8_t secret[WEFT_SECRET_BYTES]);
void weft__secret_print(const uint8_t secret[WEFT_SECRET_BYTES],
                        char hex[2 * WEFT_SECRET_BYTES + 1]);
/* WEFT_ERR_INVALID unless `hex` is exactly 32 hex digits. */
weft_status_t weft__secret_parse(const char *hex, uint8_t secret[WEFT_SECRET_BYTES]);

/* Start a server on `host`:`port` (0: any free port); *port_p is the port it got. */
weft_status_t weft__store_serve(const char *host, int port, const uint8_t secret[WEFT_SECRET_BYTES],
                                weft_store_server_t **server_p, int *port_p);
/* A rank has failed, so others that are waited for may never come: whoever waits for a key or in a
 * barrier now or later gets WEFT_ERR_RANK_DEAD at once. Any thread. */
void weft__store_abandon(weft_store_server_t *server);
/* Close all connections and stop. */
void weft__store_stop(weft_store_server_t *server);

/* Connect, trying again until timeout_ms while nobody listens. WEFT_ERR_REFUSED if the secret is
 * wrong. */
weft_status_t weft__store_connect(const char *host, int port,
                                  const uint8_t secret[WEFT_SECRET_BYTES], int timeout_ms,
                                  weft_store_conn_t **store_p);
void weft__store_close(weft_store_conn_t *store);

weft_status_t weft__store_set(weft_store_conn_t *store, const char *key, const void *value,
                              size_t bytes);

/* Wait until `key` exists, then copy its value. *bytes_p: in, room at `value`; out, the size.
 * WEFT_ERR_TIMEOUT after timeout_ms (0: only look, WEFT_ERR_NOT_FOUND if it is not there; -1: wait
 * for ever), WEFT_ERR_INVALID if there is not enough room. */
weft_status_t weft__store_get(weft_store_conn_t *store, const char *key, void *value,
                              size_t *bytes_p, int timeout_ms);

/* As get without waiting, where the absence of `key` is no failure: *found_p tells. */
weft_status_t weft__store_look(weft_store_conn_t *store, const char *key, void *value,
                               size_t *bytes_p, bool *found_p);

/* Set `key` unless it has a value. *taken_p: was it set? If not, what it has is copied as by
 * get. */
weft_status_t weft__store_offer(weft_store_conn_t *store, const char *key, const void *value,
                                size_t bytes, bool *taken_p, void *found, size_t *found_bytes_p);

/* Have the store offer `value` (at most 4 KiB) when this connection ends, however it ends: so do
 * others learn that this process is gone. One per connection; 0 bytes take it back. */
weft_status_t weft__store_last_will(weft_store_conn_t *store, const char *key, const void *value,
                                    size_t bytes);

/* Add `delta` to the number at `key` (0 if absent); *value_p is the sum. */
weft_status_t weft__store_add(weft_store_conn_t *store, const char *key, int64_t delta,
                              int64_t *value_p);

/* Remove `key`; no error if it is absent. */
weft_status_t weft__store_delete(weft_store_conn_t *store, const char *key);

/* Return when `size` clients have called this with the same key. A key serves any number of
 * barriers in turn. The timeout's sentence says how many of how many arrived. */
weft_status_t weft__store_barrier(weft_store_conn_t *store, const char *key, int size,
                                  int timeout_ms);

#endif
