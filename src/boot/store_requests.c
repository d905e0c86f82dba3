/* What the store does for a request: values, sums, waiting gets and barriers. */
#include <stdlib.h>
#include <string.h>

#include "boot/store_net.h"
#include "boot/store_server.h"

static void reply_status(weft_store_server_t *server, weft_store_client_t *client,
                         weft_status_t status, int64_t number)
{
    const weft_store_reply_t reply = {.status = status, .number = number};
    weft__store_reply(server, client, &reply, NULL);
}

static void reply_value(weft_store_server_t *server, weft_store_client_t *client,
                        const weft_store_entry_t *entry)
{
    const weft_store_reply_t reply = {.status = WEFT_OK, .value_bytes = entry->value_bytes};
    weft__store_reply(server, client, &reply, entry->value);
}

static void park(weft_store_server_t *server, weft_store_client_t *client,
                 weft_store_entry_t *entry, int timeout_ms)
{
    client->state = WEFT_STORE_PARKED;
    client->deadline = weft__deadline(timeout_ms);
    client->entry = entry;
    client->wait_prev = NULL;
    client->wait_next = entry->waiters;
    if (entry->waiters != NULL) {
        entry->waiters->wait_prev = client;
    }
    entry->waiters = client;
    entry->arrived++;
    if (atomic_load(&server->abandoned)) {
        weft__store_give_up(server, client);
    } else {
        weft__store_watch(server, client);
    }
}

/* Leaves the entry in place even if nothing is left in it: the caller may still need it. */
static void unlink_waiter(weft_store_client_t *client)
{
    weft_store_entry_t *entry = client->entry;
    if (client->wait_prev != NULL) {
        client->wait_prev->wait_next = client->wait_next;
    } else {
        entry->waiters = client->wait_next;
    }
    if (client->wait_next != NULL) {
        client->wait_next->wait_prev = client->wait_prev;
    }
    entry->arrived--;
    client->entry = NULL;
    client->wait_prev = client->wait_next = NULL;
    client->deadline = WEFT_NEVER;
    client->state = WEFT_STORE_IDLE;
}

void weft__store_unpark(weft_store_server_t *server, weft_store_client_t *client)
{
    weft_store_entry_t *entry = client->entry;
    unlink_waiter(client);
    weft__store_table_tidy(&server->table, entry);
}

void weft__store_give_up(weft_store_server_t *server, weft_store_client_t *client)
{
    int arrived = client->entry->arrived; /* with the one that gives up: it did arrive */
    weft__store_unpark(server, client);
    reply_status(server, client,
                 atomic_load(&server->abandoned) ? WEFT_ERR_RANK_DEAD : WEFT_ERR_TIMEOUT, arrived);
}

/* Answer all who wait at `entry`, and `client` (may be NULL), who made it possible. Those in this
 * very process come last: it may end, and the store with it, as soon as they have their answer. */
static void release(weft_store_server_t *server, weft_store_entry_t *entry,
                    weft_store_client_t *client, const weft_store_reply_t *reply)
{
    const bool is_value = entry->kind == WEFT_STORE_VALUE;
    for (int own = 0; own <= 1; own++) {
        weft_store_client_t *next;
        for (weft_store_client_t *waiter = entry->waiters; waiter != NULL; waiter = next) {
            next = waiter->wait_next;
            if (waiter->own != (own != 0)) {
                continue;
            }
            unlink_waiter(waiter);
            if (is_value) {
                reply_value(server, waiter, entry);
            } else {
                weft__store_reply(server, waiter, reply, NULL);
            }
        }
        if (client != NULL && client->own == (own != 0)) {
            weft__store_reply(server, client, reply, NULL);
        }
    }
}

static void handle_set(weft_store_server_t *server, weft_store_client_t *client,
                       const weft_store_request_t *request)
{
    weft_store_entry_t *entry = weft__store_table_add(&server->table, WEFT_STORE_VALUE,
                                                      request->key, request->key_bytes);
    if (entry == NULL ||
        !weft__store_table_set(&server->table, entry, request->value, request->value_bytes)) {
        if (entry != NULL) {
            weft__store_table_tidy(&server->table, entry);
        }
        reply_status(server, client, WEFT_ERR_NO_MEMORY, 0);
        return;
    }
    release(server, entry, client, &(weft_store_reply_t){.status = WEFT_OK});
}

/* Set a value that is not there yet. false if there is no room. */
static bool set_new(weft_store_server_t *server, weft_store_entry_t *entry, const uint8_t *value,
                    size_t bytes)
{
    if (!weft__store_table_set(&server->table, entry, value, bytes)) {
        weft__store_table_tidy(&server->table, entry);
        return false;
    }
    return true;
}

static void handle_offer(weft_store_server_t *server, weft_store_client_t *client,
                         const weft_store_request_t *request)
{
    weft_store_entry_t *entry = weft__store_table_add(&server->table, WEFT_STORE_VALUE,
                                                      request->key, request->key_bytes);
    if (entry != NULL && entry->exists) {
        reply_value(server, client, entry);
    } else if (entry == NULL || !set_new(server, entry, request->value, request->value_bytes)) {
        reply_status(server, client, WEFT_ERR_NO_MEMORY, 0);
    } else {
        release(server, entry, client, &(weft_store_reply_t){.status = WEFT_OK, .number = 1});
    }
}

static void handle_last_will(weft_store_server_t *server, weft_store_client_t *client,
                             const weft_store_request_t *request)
{
    uint8_t *will = NULL;
    if (request->value_bytes > 0) {
        will = malloc(request->key_bytes + request->value_bytes);
        if (will == NULL) {
            reply_status(server, client, WEFT_ERR_NO_MEMORY, 0);
            return;
        }
        memcpy(will, request->key, request->key_bytes);
        memcpy(will + request->key_bytes, request->value, request->value_bytes);
    }
    free(client->last_will);
    client->last_will = will;
    client->last_will_key_bytes = request->key_bytes;
    client->last_will_value_bytes = request->value_bytes;
    reply_status(server, client, WEFT_OK, 0);
}

void weft__store_execute_last_will(weft_store_server_t *server, weft_store_client_t *client)
{
    if (client->last_will == NULL) {
        return;
    }
    weft_store_entry_t *entry = weft__store_table_add(
        &server->table, WEFT_STORE_VALUE, client->last_will, client->last_will_key_bytes);
    /* A reply may find that another client is gone, and execute its will in turn: that one leaves
     * this entry alone, because it has its value by then. */
    if (entry != NULL && !entry->exists &&
        set_new(server, entry, client->last_will + client->last_will_key_bytes,
                client->last_will_value_bytes)) {
        release(server, entry, NULL, NULL);
    }
}

static void handle_get(weft_store_server_t *server, weft_store_client_t *client,
                       const weft_store_request_t *request)
{
    weft_store_entry_t *entry = weft__store_table_find(&server->table, WEFT_STORE_VALUE,
                                                       request->key, request->key_bytes);
    if (entry != NULL && entry->exists) {
        reply_value(server, client, entry);
        return;
    }
    if (request->timeout_ms == 0) {
        reply_status(server, client, WEFT_ERR_NOT_FOUND, 0);
        return;
    }
    entry = weft__store_table_add(&server->table, WEFT_STORE_VALUE, request->key,
                                  request->key_bytes);
    if (entry == NULL) {
        reply_status(server, client, WEFT_ERR_NO_MEMORY, 0);
        return;
    }
    park(server, client, entry, request->timeout_ms);
}

static void handle_add(weft_store_server_t *server, weft_store_client_t *client,
                       const weft_store_request_t *request)
{
    int64_t sum = 0;
    weft_store_entry_t *entry = weft__store_table_add(&server->table, WEFT_STORE_VALUE,
                                                      request->key, request->key_bytes);
    if (entry == NULL) {
        reply_status(server, client, WEFT_ERR_NO_MEMORY, 0);
        return;
    }
    if (entry->exists) {
        if (entry->value_bytes != sizeof(sum)) {
            reply_status(server, client, WEFT_ERR_INVALID, 0);
            return;
        }
        memcpy(&sum, entry->value, sizeof(sum));
    }
    sum = (int64_t)((uint64_t)sum + (uint64_t)request->number);
    if (!weft__store_table_set(&server->table, entry, &sum, sizeof(sum))) {
        weft__store_table_tidy(&server->table, entry);
        reply_status(server, client, WEFT_ERR_NO_MEMORY, 0);
        return;
    }
    release(server, entry, client, &(weft_store_reply_t){.status = WEFT_OK, .number = sum});
}

static void handle_delete(weft_store_server_t *server, weft_store_client_t *client,
                          const weft_store_request_t *request)
{
    weft_store_entry_t *entry = weft__store_table_find(&server->table, WEFT_STORE_VALUE,
                                                       request->key, request->key_bytes);
    if (entry != NULL) {
        weft__store_table_unset(&server->table, entry);
        weft__store_table_tidy(&server->table, entry);
    }
    reply_status(server, client, WEFT_OK, 0);
}

static void handle_barrier(weft_store_server_t *server, weft_store_client_t *client,
                           const weft_store_request_t *request)
{
    weft_store_entry_t *entry = weft__store_table_add(&server->table, WEFT_STORE_MEETING,
                                                      request->key, request->key_bytes);
    if (entry == NULL) {
        reply_status(server, client, WEFT_ERR_NO_MEMORY, 0);
        return;
    }
    if (entry->arrived == 0) {
        entry->size = (int)request->number;
    }
    if (entry->size != request->number) {
        reply_status(server, client, WEFT_ERR_INVALID, entry->size);
        return;
    }
    if (entry->arrived + 1 < entry->size) {
        if (request->timeout_ms == 0) {
            int arrived = entry->arrived + 1;
            weft__store_table_tidy(&server->table, entry);
            reply_status(server, client, WEFT_ERR_TIMEOUT, arrived);
            return;
        }
        park(server, client, entry, request->timeout_ms);
        return;
    }
    release(server, entry, client, &(weft_store_reply_t){.status = WEFT_OK, .number = entry->size});
    weft__store_table_tidy(&server->table, entry);
}

void weft__store_handle(weft_store_server_t *server, weft_store_client_t *client,
                        const weft_store_request_t *request)
{
    switch (request->op) {
    case WEFT_STORE_SET:
        handle_set(server, client, request);
        break;
    case WEFT_STORE_GET:
        handle_get(server, client, request);
        break;
    case WEFT_STORE_ADD:
        handle_add(server, client, request);
        break;
    case WEFT_STORE_DELETE:
        handle_delete(server, client, request);
        break;
    case WEFT_STORE_BARRIER:
        handle_barrier(server, client, request);
        break;
    case WEFT_STORE_OFFER:
        handle_offer(server, client, request);
        break;
    case WEFT_STORE_WILL:
        handle_last_will(server, client, request);
        break;
    case WEFT_STORE_OP_END:
        break; /* the parser lets none through */
    }
}
