/* The store's client: one request, one reply, one after the other.
 *
 * Waiting happens at the server; here only the reply is awaited, a little longer than the server
 * needs to give up by itself. A connection whose reply did not come in full is of no more use: what
 * comes next on it would answer another question. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "base/settings.h"
#include "boot/store_net.h"
#include "boot/store_proto.h"
#include "boot/store_server.h"

#define ANSWER_SLACK_MS 10000

struct weft_store_conn {
    int fd;
    bool broken;
    char where[300];
};

/* ---- bytes ------------------------------------------------------------------------------- */

static weft_status_t lost(weft_store_conn_t *store, const char *why)
{
    store->broken = true;
    return weft__fail(WEFT_ERR_SYSTEM, "store: lost the connection to %s: %s", store->where, why);
}

/* Somebody who leaves while bytes of ours are on their way resets the connection, or breaks the
 * pipe: which of them, or a plain end, is a matter of moments, and means the same. */
static weft_status_t lost_by_error(weft_store_conn_t *store, int error)
{
    bool left = error == ECONNRESET || error == EPIPE;
    return lost(store, left ? "it was closed at the other end" : strerror(error));
}

static weft_status_t await(weft_store_conn_t *store, short events, uint64_t deadline)
{
    struct pollfd poller = {.fd = store->fd, .events = events};
    for (;;) {
        int ready = poll(&poller, 1, weft__deadline_left(deadline));
        if (ready > 0) {
            return WEFT_OK;
        }
        if (ready == 0) {
            store->broken = true;
            return weft__fail(WEFT_ERR_TIMEOUT, "store: %s does not answer", store->where);
        }
        if (errno != EINTR) {
            return lost(store, strerror(errno));
        }
    }
}

/* In one system call if the socket takes it all. Consumes `parts`. */
static weft_status_t send_parts(weft_store_conn_t *store, struct iovec *parts, int count,
                                uint64_t deadline)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
    while (message.msg_iovlen > 0) {
        ssize_t sent = sendmsg(store->fd, &message, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) {
                continue;
            }
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                return lost_by_error(store, errno);
            }
            WEFT_TRY(await(store, POLLOUT, deadline));
            continue;
        }
        while (message.msg_iovlen > 0 && (size_t)sent >= message.msg_iov->iov_len) {
            sent -= (ssize_t)message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen > 0) {
            message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
            message.msg_iov->iov_len -= (size_t)sent;
        }
    }
    return WEFT_OK;
}

static weft_status_t receive(weft_store_conn_t *store, void *bytes, size_t count, uint64_t deadline)
{
    uint8_t *at = bytes;
    while (count > 0) {
        WEFT_TRY(await(store, POLLIN, deadline));
        ssize_t got = recv(store->fd, at, count, 0);
        if (got == 0) {
            return lost(store, "it was closed at the other end");
        }
        if (got < 0) {
            if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK) {
                continue;
            }
            return lost_by_error(store, errno);
        }
        at += got;
        count -= (size_t)got;
    }
    return WEFT_OK;
}

static weft_status_t receive_reply(weft_store_conn_t *store, weft_store_reply_t *reply_p,
                                   uint64_t deadline)
{
    uint8_t head[WEFT_STORE_REPLY_BYTES];
    WEFT_TRY(receive(store, head, sizeof(head), deadline));
    return weft__store_parse_reply(head, reply_p) != WEFT_STORE_READY
               ? lost(store, "it sent something that is no reply")
               : WEFT_OK;
}

/* ---- connecting -------------------------------------------------------------------------- */

static weft_status_t refused(const weft_store_conn_t *store, const char *why)
{
    return weft__fail(WEFT_ERR_REFUSED, "store: %s %s", store->where, why);
}

/* Prove to the server that we know the secret, and have it prove the same. */
static weft_status_t authenticate(weft_store_conn_t *store, const uint8_t secret[WEFT_SECRET_BYTES],
                                  uint64_t deadline)
{
    uint8_t hello[WEFT_STORE_HELLO_BYTES];
    uint8_t proof[WEFT_STORE_PROOF_BYTES];
    uint8_t expected[WEFT_MAC_BYTES];
    uint8_t theirs[WEFT_MAC_BYTES];
    const uint8_t *nonce = hello + WEFT_STORE_MAGIC_BYTES;
    weft_store_reply_t reply;
    WEFT_TRY(receive(store, hello, sizeof(hello), deadline));
    if (memcmp(hello, weft__store_magic, WEFT_STORE_MAGIC_BYTES) != 0) {
        return refused(store, "is not a Weft store");
    }
    WEFT_TRY(weft__random_bytes(proof, WEFT_STORE_NONCE_BYTES));
    weft__store_proof(secret, 'C', nonce, proof, proof + WEFT_STORE_NONCE_BYTES);
    struct iovec part = {.iov_base = proof, .iov_len = sizeof(proof)};
    weft_status_t status = send_parts(store, &part, 1, deadline);
    if (status == WEFT_OK) {
        status = receive_reply(store, &reply, deadline);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (reply.status == WEFT_ERR_REFUSED) {
        return refused(store, "refused us: our secret is not the job's");
    }
    if (reply.status != WEFT_OK || reply.value_bytes != WEFT_MAC_BYTES) {
        return refused(store, "did not answer our proof as a Weft store does");
    }
    WEFT_TRY(receive(store, theirs, sizeof(theirs), deadline));
    weft__store_proof(secret, 'S', nonce, proof, expected);
    if (!weft__mac_equal(theirs, expected)) {
        return refused(store, "does not know the job's secret");
    }
    return WEFT_OK;
}

/* Takes `fd`, also on failure. */
static weft_status_t open_store(int fd, const char *where, const uint8_t secret[WEFT_SECRET_BYTES],
                                uint64_t deadline, weft_store_conn_t **store_p)
{
    weft_store_conn_t *store = calloc(1, sizeof(*store));
    if (store == NULL) {
        close(fd);
        return weft__fail(WEFT_ERR_NO_MEMORY, "store: no memory for a connection");
    }
    store->fd = fd;
    snprintf(store->where, sizeof(store->where), "%s", where);
    weft_status_t status = authenticate(store, secret, deadline);
    if (status != WEFT_OK) {
        weft__store_close(store);
        return status;
    }
    *store_p = store;
    return WEFT_OK;
}

weft_status_t weft__store_connect(const char *host, int port,
                                  const uint8_t secret[WEFT_SECRET_BYTES], int timeout_ms,
                                  weft_store_conn_t **store_p)
{
    uint64_t deadline = weft__deadline(timeout_ms);
    char where[300];
    int fd;
    WEFT_TRY(weft__net_connect_tcp(host, port, deadline, &fd));
    weft__net_tune(fd);
    snprintf(where, sizeof(where), "the store at %s port %d", host, port);
    return open_store(fd, where, secret, deadline, store_p);
}

weft_status_t weft__store_connect_unix(const char *name, int timeout_ms,
                                       weft_store_conn_t **store_p)
{
    const uint8_t no_secret[WEFT_SECRET_BYTES] = {0};
    uint64_t deadline = weft__deadline(timeout_ms);
    char where[128];
    int fd;
    WEFT_TRY(weft__net_connect_unix(name, deadline, &fd));
    snprintf(where, sizeof(where), "the store at '@%s'", name);
    return open_store(fd, where, no_secret, deadline, store_p);
}

void weft__store_close(weft_store_conn_t *store)
{
    if (store != NULL) {
        close(store->fd);
        free(store);
    }
}

/* ---- requests ---------------------------------------------------------------------------- */

/* Send `request` with `key` and read the fixed part of the reply. */
static weft_status_t ask(weft_store_conn_t *store, weft_store_request_t *request, const char *key,
                         weft_store_reply_t *reply_p, uint64_t *deadline_p)
{
    uint8_t head[WEFT_STORE_REQUEST_BYTES];
    int limit = weft__settings()->timeout;
    size_t key_bytes = strlen(key);
    if (store->broken) {
        return weft__fail(WEFT_ERR_SYSTEM, "store: the connection to %s was lost before",
                          store->where);
    }
    if (key_bytes < 1 || key_bytes > WEFT_STORE_KEY_MAX) {
        return weft__fail(WEFT_ERR_INVALID, "store: a key has 1 to %d bytes, this one has %zu",
                          WEFT_STORE_KEY_MAX, key_bytes);
    }
    request->key_bytes = key_bytes;
    if (request->timeout_ms < -1) {
        request->timeout_ms = -1;
    }
    if (request->op == WEFT_STORE_GET || request->op == WEFT_STORE_BARRIER) {
        limit = request->timeout_ms;
    } else if (limit == 0) {
        limit = -1; /* the setting's way to say: wait for ever */
    }
    uint64_t deadline = weft__deadline(limit);
    if (deadline != WEFT_NEVER) {
        deadline += (uint64_t)ANSWER_SLACK_MS * 1000000u;
    }
    weft__store_print_request(request, head);
    struct iovec parts[] = {
        {.iov_base = head, .iov_len = sizeof(head)},
        {.iov_base = (void *)key, .iov_len = key_bytes},
        {.iov_base = (void *)request->value, .iov_len = request->value_bytes},
    };
    weft_status_t status = send_parts(store, parts, request->value_bytes > 0 ? 3 : 2, deadline);
    if (status == WEFT_OK) {
        status = receive_reply(store, reply_p, deadline);
    }
    *deadline_p = deadline;
    return status;
}

/* Ask where no value is expected in the reply. *reply_p is set whenever WEFT_OK is returned. */
static weft_status_t ask_short(weft_store_conn_t *store, weft_store_request_t *request,
                               const char *key, weft_store_reply_t *reply_p)
{
    uint64_t deadline;
    WEFT_TRY(ask(store, request, key, reply_p, &deadline));
    return reply_p->value_bytes > 0 ? lost(store, "it sent a value that was not asked for")
                                    : WEFT_OK;
}

static weft_status_t no_room(const weft_store_conn_t *store, const char *key)
{
    return weft__fail(WEFT_ERR_NO_MEMORY, "store: %s has no room for key '%s'", store->where, key);
}

static weft_status_t abandoned(void)
{
    return weft__fail(WEFT_ERR_RANK_DEAD, "store: a rank of this job failed while others "
                                          "waited for it, or for each other");
}

static weft_status_t too_large(const char *key, size_t bytes, size_t most)
{
    return weft__fail(WEFT_ERR_INVALID,
                      "store: the value of key '%s' has %zu bytes; there it has at most %zu", key,
                      bytes, most);
}

weft_status_t weft__store_set(weft_store_conn_t *store, const char *key, const void *value,
                              size_t bytes)
{
    weft_store_request_t request = {.op = WEFT_STORE_SET, .value = value, .value_bytes = bytes};
    weft_store_reply_t reply;
    if (bytes > WEFT_STORE_VALUE_MAX) {
        return too_large(key, bytes, WEFT_STORE_VALUE_MAX);
    }
    weft_status_t status = ask_short(store, &request, key, &reply);
    if (status == WEFT_OK && reply.status != WEFT_OK) {
        status = no_room(store, key);
    }
    return status;
}

/* Read a value that does not fit, so that the next reply is in its place. */
static weft_status_t skip(weft_store_conn_t *store, size_t bytes, uint64_t deadline)
{
    uint8_t piece[4096];
    weft_status_t status = WEFT_OK;
    while (bytes > 0 && status == WEFT_OK) {
        size_t count = bytes < sizeof(piece) ? bytes : sizeof(piece);
        status = receive(store, piece, count, deadline);
        bytes -= count;
    }
    return status;
}

/* Read the value that comes with `reply` into a room of *bytes_p bytes. */
static weft_status_t take_value(weft_store_conn_t *store, const char *key,
                                const weft_store_reply_t *reply, void *value, size_t *bytes_p,
                                uint64_t deadline)
{
    size_t room = *bytes_p;
    *bytes_p = reply->value_bytes;
    if (reply->value_bytes <= room) {
        return receive(store, value, reply->value_bytes, deadline);
    }
    WEFT_TRY(skip(store, reply->value_bytes, deadline));
    return weft__fail(WEFT_ERR_INVALID,
                      "store: the value of key '%s' has %zu bytes; there "
                      "is room for %zu",
                      key, reply->value_bytes, room);
}

weft_status_t weft__store_get(weft_store_conn_t *store, const char *key, void *value,
                              size_t *bytes_p, int timeout_ms)
{
    weft_store_request_t request = {.op = WEFT_STORE_GET, .timeout_ms = timeout_ms};
    weft_store_reply_t reply;
    uint64_t deadline;
    weft_status_t status = ask(store, &request, key, &reply, &deadline);
    if (status != WEFT_OK) {
        return status;
    }
    switch (reply.status) {
    case WEFT_OK:
        break;
    case WEFT_ERR_NOT_FOUND:
        return weft__fail(WEFT_ERR_NOT_FOUND, "store: there is no key '%s'", key);
    case WEFT_ERR_TIMEOUT:
        return weft__fail(WEFT_ERR_TIMEOUT, "store: nobody set key '%s' within %d ms", key,
                          timeout_ms);
    case WEFT_ERR_RANK_DEAD:
        return abandoned();
    default:
        return no_room(store, key);
    }
    return take_value(store, key, &reply, value, bytes_p, deadline);
}

weft_status_t weft__store_look(weft_store_conn_t *store, const char *key, void *value,
                               size_t *bytes_p, bool *found_p)
{
    weft_store_request_t request = {.op = WEFT_STORE_GET};
    weft_store_reply_t reply;
    uint64_t deadline;
    weft_status_t status = ask(store, &request, key, &reply, &deadline);
    if (status != WEFT_OK) {
        return status;
    }
    *found_p = reply.status == WEFT_OK;
    return *found_p ? take_value(store, key, &reply, value, bytes_p, deadline) : WEFT_OK;
}

weft_status_t weft__store_offer(weft_store_conn_t *store, const char *key, const void *value,
                                size_t bytes, bool *taken_p, void *found, size_t *found_bytes_p)
{
    weft_store_request_t request = {.op = WEFT_STORE_OFFER, .value = value, .value_bytes = bytes};
    weft_store_reply_t reply;
    uint64_t deadline;
    if (bytes > WEFT_STORE_VALUE_MAX) {
        return too_large(key, bytes, WEFT_STORE_VALUE_MAX);
    }
    weft_status_t status = ask(store, &request, key, &reply, &deadline);
    if (status == WEFT_OK && reply.status != WEFT_OK) {
        status = no_room(store, key);
    }
    if (status != WEFT_OK) {
        return status;
    }
    *taken_p = reply.number == 1;
    if (*taken_p) {
        return reply.value_bytes == 0 ? WEFT_OK
                                      : lost(store, "it sent a value that was not asked for");
    }
    return take_value(store, key, &reply, found, found_bytes_p, deadline);
}

weft_status_t weft__store_last_will(weft_store_conn_t *store, const char *key, const void *value,
                                    size_t bytes)
{
    weft_store_request_t request = {.op = WEFT_STORE_WILL, .value = value, .value_bytes = bytes};
    weft_store_reply_t reply;
    if (bytes > WEFT_STORE_WILL_MAX) {
        return too_large(key, bytes, WEFT_STORE_WILL_MAX);
    }
    weft_status_t status = ask_short(store, &request, key, &reply);
    if (status == WEFT_OK && reply.status != WEFT_OK) {
        status = no_room(store, key);
    }
    return status;
}

weft_status_t weft__store_add(weft_store_conn_t *store, const char *key, int64_t delta,
                              int64_t *value_p)
{
    weft_store_request_t request = {.op = WEFT_STORE_ADD, .number = delta};
    weft_store_reply_t reply;
    weft_status_t status = ask_short(store, &request, key, &reply);
    if (status != WEFT_OK) {
        return status;
    }
    if (reply.status == WEFT_ERR_INVALID) {
        return weft__fail(WEFT_ERR_INVALID, "store: the value of key '%s' is not a number", key);
    }
    if (reply.status != WEFT_OK) {
        return no_room(store, key);
    }
    *value_p = reply.number;
    return WEFT_OK;
}

weft_status_t weft__store_delete(weft_store_conn_t *store, const char *key)
{
    weft_store_request_t request = {.op = WEFT_STORE_DELETE};
    weft_store_reply_t reply;
    return ask_short(store, &request, key, &reply);
}

weft_status_t weft__store_barrier(weft_store_conn_t *store, const char *key, int size,
                                  int timeout_ms)
{
    weft_store_request_t request = {
        .op = WEFT_STORE_BARRIER, .number = size, .timeout_ms = timeout_ms};
    weft_store_reply_t reply;
    if (size < 1) {
        return weft__fail(WEFT_ERR_INVALID,
                          "store: barrier '%s' of %d clients; it takes at least 1", key, size);
    }
    weft_status_t status = ask_short(store, &request, key, &reply);
    if (status != WEFT_OK) {
        return status;
    }
    switch (reply.status) {
    case WEFT_OK:
        return WEFT_OK;
    case WEFT_ERR_TIMEOUT:
        return weft__fail(WEFT_ERR_TIMEOUT, "store: %d of %d arrived at barrier '%s' within %d ms",
                          (int)reply.number, size, key, timeout_ms);
    case WEFT_ERR_INVALID:
        return weft__fail(WEFT_ERR_INVALID,
                          "store: barrier '%s' of %d clients, but others are "
                          "waiting there for %d",
                          key, size, (int)reply.number);
    case WEFT_ERR_RANK_DEAD:
        return abandoned();
    default:
        return no_room(store, key);
    }
}
