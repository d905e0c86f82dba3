/* A store of their own for the tests of the store. */
#ifndef WEFT_TEST_BOOT_STORE_FIXTURE_H
#define WEFT_TEST_BOOT_STORE_FIXTURE_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "boot/store.h"

#define HOST "127.0.0.1"
#define LIMIT_MS 60000

static weft_store_server_t *server;
static uint8_t secret[WEFT_SECRET_BYTES];
static int port;

static inline int start_server(void **state)
{
    (void)state;
    return weft__secret_create(secret) != WEFT_OK ||
           weft__store_serve(HOST, 0, secret, &server, &port) != WEFT_OK;
}

static inline int stop_server(void **state)
{
    (void)state;
    weft__store_stop(server);
    server = NULL;
    return 0;
}

static inline weft_store_conn_t *connect_store(void)
{
    weft_store_conn_t *store = NULL;
    if (weft__store_connect(HOST, port, secret, LIMIT_MS, &store) != WEFT_OK) {
        fprintf(stderr, "%s\n", weft_last_error());
        return NULL;
    }
    return store;
}

static inline double ms_since(uint64_t start)
{
    return (double)(weft__now_ns() - start) / 1e6;
}

/* A thread with a connection of its own. */
typedef struct worker {
    pthread_t thread;
    int index, count;
    weft_status_t status;
    char sentence[256];
    int64_t number;
} worker_t;

static inline void worker_fails(worker_t *worker, weft_status_t status)
{
    worker->status = status;
    snprintf(worker->sentence, sizeof(worker->sentence), "%s", weft_last_error());
}

#endif
