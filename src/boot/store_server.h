/* Inside of the store's server, for its own files and its tests. */
#ifndef WEFT_BOOT_STORE_SERVER_H
#define WEFT_BOOT_STORE_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "boot/store.h"
#include "boot/store_proto.h"
#include "boot/store_table.h"

/* Serve on an abstract unix socket instead of TCP. Whoever runs under our user id may come in; the
 * kernel vouches for it, so that no secret is needed. */
weft_status_t weft__store_serve_unix(const char *name, weft_store_server_t **server_p);
weft_status_t weft__store_connect_unix(const char *name, int timeout_ms,
                                       weft_store_conn_t **store_p);

/* Nobody will stop this server: it ends with the process. */
void weft__store_leave_running(weft_store_server_t *server);

/* Clients that are connected now, and how many have proved themselves so far; any thread. */
int weft__store_clients(weft_store_server_t *server);
int weft__store_welcomed(weft_store_server_t *server);

/* ---- the server without its thread: whoever calls step is the server --------------------- */

/* `listen_fd` (-1: none) is the server's from here on, also on failure. `same_user`: refuse peers
 * of a unix socket that run under another user id. */
weft_status_t weft__store_server_create(int listen_fd, const uint8_t secret[WEFT_SECRET_BYTES],
                                        bool same_user, weft_store_server_t **server_p);
/* Serve a connected, non-blocking socket as if it had been accepted; closes it on failure. */
weft_status_t weft__store_server_adopt(weft_store_server_t *server, int fd);
/* Handle what is there, waiting at most timeout_ms (-1: for ever) for something to come. false
 * once asked to stop, or if the server cannot go on. */
bool weft__store_server_step(weft_store_server_t *server, int timeout_ms);
void weft__store_server_destroy(weft_store_server_t *server);

/* ---- state, all of it the server's thread's alone ---------------------------------------- */

typedef struct weft_store_buffer {
    uint8_t *bytes;
    size_t count, room;
} weft_store_buffer_t;

typedef enum weft_store_state {
    WEFT_STORE_PROVING, /* said hello, waits for the proof */
    WEFT_STORE_IDLE,    /* waits for a request */
    WEFT_STORE_PARKED,  /* its request waits for others */
    WEFT_STORE_GONE     /* closed; freed at the end of the step */
} weft_store_state_t;

typedef struct weft_store_client {
    struct weft_store_client *prev, *next; /* of all clients, newest first */
    int fd;
    weft_store_state_t state;
    bool own;        /* this process is its own client (known of unix sockets only) */
    bool leaving;    /* to be dropped once `out` is sent */
    uint32_t events; /* what epoll was told to watch for */
    uint64_t deadline;
    uint8_t nonce[WEFT_STORE_NONCE_BYTES];
    weft_store_buffer_t in, out;
    size_t out_sent;
    weft_store_entry_t *entry; /* where it is parked, and its place among those there */
    struct weft_store_client *wait_prev, *wait_next;
    uint8_t *last_will; /* what to offer when it is gone: the key, then the value; NULL: nothing */
    size_t last_will_key_bytes, last_will_value_bytes;
} weft_store_client_t;

struct weft_store_server {
    int listen_fd, epoll_fd, wake_fd;
    bool same_user, running;
    _Atomic bool abandoned, stopping; /* set by others, who then write to wake_fd */
    bool listening;                   /* false while we are out of descriptors */
    uint64_t listen_again;            /* when to look whether there are some again */
    uint64_t next_deadline;           /* no deadline is earlier */
    uint8_t secret[WEFT_SECRET_BYTES];
    weft_store_table_t table;
    weft_store_client_t *clients, *gone;
    _Atomic int client_count, welcomed; /* relaxed: others read them for information */
    int proving_count, proving_most;
    uint64_t complain_again; /* when to warn once more that clients cannot be accepted */
    pthread_t thread;
};

/* store_requests.c: answer `request`, or park the client until it can be answered. */
void weft__store_handle(weft_store_server_t *server, weft_store_client_t *client,
                        const weft_store_request_t *request);
/* Its deadline passed while it was parked, or the server is abandoned. */
void weft__store_give_up(weft_store_server_t *server, weft_store_client_t *client);
/* Take a parked client out of the list it waits in. */
void weft__store_unpark(weft_store_server_t *server, weft_store_client_t *client);

/* It is gone: offer what it left behind for that. */
void weft__store_execute_last_will(weft_store_server_t *server, weft_store_client_t *client);

/* store_server.c: queue a reply and send what the socket takes. The client may be gone after it. */
void weft__store_reply(weft_store_server_t *server, weft_store_client_t *client,
                       const weft_store_reply_t *reply, const void *value);
/* Let the client wait; its reply comes later. */
void weft__store_watch(weft_store_server_t *server, weft_store_client_t *client);

#endif
