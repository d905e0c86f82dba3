/* The store's server: one thread, one epoll set, no call that waits for a client.
 *
 * A client has at most one request under way. It is read only while it owes us something (a proof
 * or a request) and has taken its last reply, so that what is kept for it is bounded by one request
 * and one reply; one that sends more than that, or something that is no request, is dropped. One
 * that has not proved itself gets room for a proof and nothing else, and not much time. */
#define _GNU_SOURCE 1 /* accept4, pthread_setname_np */
#include "boot/store_server.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "boot/store_net.h"

#define PROOF_LIMIT_MS 10000
/* Clients without proof at a time, and at most an eighth of all descriptors. When there are so
 * many, one that has taken longer than this has to go. */
#define PROVING_MOST 1024
#define PROVING_GRACE_MS 1000
#define COMPLAIN_MS 10000
#define LISTEN_PAUSE_MS 100 /* when there is no descriptor left for another client */
#define EVENTS_PER_STEP 64
#define ACCEPTS_PER_STEP 64
#define SMALL_BUFFER 4096 /* what an idle client keeps */

/* ---- buffers ----------------------------------------------------------------------------- */

static bool buffer_reserve(weft_store_buffer_t *buffer, size_t room)
{
    if (room <= buffer->room) {
        return true;
    }
    uint8_t *bytes = realloc(buffer->bytes, room);
    if (bytes == NULL) {
        return false;
    }
    buffer->bytes = bytes;
    buffer->room = room;
    return true;
}

static void buffer_free(weft_store_buffer_t *buffer)
{
    free(buffer->bytes);
    memset(buffer, 0, sizeof(*buffer));
}

/* Nothing in it is needed any more. */
static void buffer_empty(weft_store_buffer_t *buffer)
{
    buffer->count = 0;
    if (buffer->room > SMALL_BUFFER) {
        buffer_free(buffer);
    }
}

/* ---- clients ----------------------------------------------------------------------------- */

static void drop(weft_store_server_t *server, weft_store_client_t *client)
{
    if (client->state == WEFT_STORE_GONE) {
        return;
    }
    if (client->state == WEFT_STORE_PARKED) {
        weft__store_unpark(server, client);
    }
    if (client->state == WEFT_STORE_PROVING) {
        server->proving_count--;
    }
    client->state = WEFT_STORE_GONE;
    /* not left to close(): a process forked at this moment may still hold the descriptor */
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, client->fd, NULL);
    close(client->fd);
    if (client->prev != NULL) {
        client->prev->next = client->next;
    } else {
        server->clients = client->next;
    }
    if (client->next != NULL) {
        client->next->prev = client->prev;
    }
    server->client_count--;
    if (server->running) { /* else all are dropped, and none of them died */
        weft__store_execute_last_will(server, client);
    }
    /* events of this step may still point here */
    client->next = server->gone;
    server->gone = client;
}

static void free_gone_clients(weft_store_server_t *server)
{
    while (server->gone != NULL) {
        weft_store_client_t *client = server->gone;
        server->gone = client->next;
        buffer_free(&client->in);
        buffer_free(&client->out);
        free(client->last_will);
        free(client);
    }
}

/* Say what is wrong with this side of a connection: the client sees only that it is closed. */
static void complain(weft_store_server_t *server, const char *what, int error)
{
    if (weft__now_ns() >= server->complain_again) {
        weft__warn("store: %s: %s", what, strerror(error));
        server->complain_again = weft__deadline(COMPLAIN_MS);
    }
}

/* Tell epoll what this client may do next. */
void weft__store_watch(weft_store_server_t *server, weft_store_client_t *client)
{
    uint32_t events = EPOLLRDHUP;
    if (client->out.count > client->out_sent) {
        events |= EPOLLOUT;
    } else if (client->state != WEFT_STORE_PARKED) {
        events |= EPOLLIN;
    }
    if (client->deadline < server->next_deadline) {
        server->next_deadline = client->deadline;
    }
    if (events == client->events) {
        return;
    }
    struct epoll_event event = {.events = events, .data.ptr = client};
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, client->fd, &event) != 0) {
        complain(server, "cannot watch a client", errno);
        drop(server, client);
        return;
    }
    client->events = events;
}

/* Send what is queued, as far as the socket takes it. */
static void flush(weft_store_server_t *server, weft_store_client_t *client)
{
    weft_store_buffer_t *out = &client->out;
    while (client->out_sent < out->count) {
        ssize_t sent = send(client->fd, out->bytes + client->out_sent,
                            out->count - client->out_sent, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) {
                continue;
            }
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                drop(server, client);
                return;
            }
            break;
        }
        client->out_sent += (size_t)sent;
    }
    if (client->out_sent == out->count) {
        if (client->leaving) {
            drop(server, client);
            return;
        }
        buffer_empty(out);
        client->out_sent = 0;
    }
    weft__store_watch(server, client);
}

static void queue(weft_store_server_t *server, weft_store_client_t *client, const void *head,
                  size_t head_bytes, const void *value, size_t value_bytes)
{
    weft_store_buffer_t *out = &client->out;
    if (!buffer_reserve(out, out->count + head_bytes + value_bytes)) {
        complain(server, "cannot answer a client", ENOMEM);
        drop(server, client);
        return;
    }
    memcpy(out->bytes + out->count, head, head_bytes);
    if (value_bytes > 0) {
        memcpy(out->bytes + out->count + head_bytes, value, value_bytes);
    }
    out->count += head_bytes + value_bytes;
    flush(server, client);
}

void weft__store_reply(weft_store_server_t *server, weft_store_client_t *client,
                       const weft_store_reply_t *reply, const void *value)
{
    uint8_t head[WEFT_STORE_REPLY_BYTES];
    if (client->state == WEFT_STORE_GONE) {
        return;
    }
    weft__store_print_reply(reply, head);
    queue(server, client, head, sizeof(head), value, reply->value_bytes);
}

static void check_proof(weft_store_server_t *server, weft_store_client_t *client)
{
    const uint8_t *nonce = client->in.bytes;
    uint8_t mac[WEFT_MAC_BYTES];
    weft__store_proof(server->secret, 'C', client->nonce, nonce, mac);
    if (!weft__mac_equal(mac, nonce + WEFT_STORE_NONCE_BYTES)) {
        const weft_store_reply_t refusal = {.status = WEFT_ERR_REFUSED};
        weft__info("store: refused a client that does not know the secret");
        client->leaving = true;
        weft__store_reply(server, client, &refusal, NULL);
        return;
    }
    const weft_store_reply_t welcome = {.status = WEFT_OK, .value_bytes = WEFT_MAC_BYTES};
    weft__store_proof(server->secret, 'S', client->nonce, nonce, mac);
    client->state = WEFT_STORE_IDLE;
    client->deadline = WEFT_NEVER;
    server->welcomed++;
    server->proving_count--;
    client->in.count = 0;
    weft__store_reply(server, client, &welcome, mac);
}

/* Act on what came in, if it is whole. */
static void process(weft_store_server_t *server, weft_store_client_t *client)
{
    weft_store_buffer_t *in = &client->in;
    weft_store_request_t request;
    size_t frame = WEFT_STORE_PROOF_BYTES;
    weft_store_parsed_t parsed;
    if (client->state == WEFT_STORE_PROVING) {
        parsed = in->count < frame ? WEFT_STORE_MORE : WEFT_STORE_READY;
    } else {
        parsed = weft__store_parse_request(in->bytes, in->count, &request, &frame);
    }
    if (parsed == WEFT_STORE_BAD || in->count > frame) {
        weft__info("store: dropped a client that sent something else than a request");
        drop(server, client);
    } else if (parsed == WEFT_STORE_MORE) {
        return;
    } else if (client->state == WEFT_STORE_PROVING) {
        check_proof(server, client);
    } else {
        weft__store_handle(server, client, &request);
        buffer_empty(in);
    }
}

/* Room for the next piece: it grows with what has come, not with what was announced. */
static bool make_room(weft_store_client_t *client)
{
    weft_store_buffer_t *in = &client->in;
    if (client->state == WEFT_STORE_PROVING) {
        return buffer_reserve(in, WEFT_STORE_PROOF_BYTES + 1);
    }
    if (in->room < SMALL_BUFFER || in->count < in->room) {
        return buffer_reserve(in, SMALL_BUFFER);
    }
    size_t room = 2 * in->room;
    return buffer_reserve(in, room < WEFT_STORE_FRAME_MAX + 1 ? room : WEFT_STORE_FRAME_MAX + 1);
}

static void receive(weft_store_server_t *server, weft_store_client_t *client)
{
    weft_store_buffer_t *in = &client->in;
    if (!make_room(client)) {
        complain(server, "cannot read from a client", ENOMEM);
        drop(server, client);
        return;
    }
    ssize_t got = recv(client->fd, in->bytes + in->count, in->room - in->count, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) {
        return;
    }
    if (got <= 0) {
        drop(server, client);
        return;
    }
    in->count += (size_t)got;
    process(server, client);
}

static void client_event(weft_store_server_t *server, weft_store_client_t *client, uint32_t events)
{
    if (client->state == WEFT_STORE_GONE) {
        return;
    }
    if (events & (EPOLLERR | EPOLLHUP)) {
        drop(server, client);
    } else if (events & EPOLLIN) {
        receive(server, client);
    } else if (events & EPOLLRDHUP) {
        drop(server, client);
    } else if (events & EPOLLOUT) {
        flush(server, client);
    }
}

/* ---- new clients ------------------------------------------------------------------------- */

/* Whoever has taken longest over the proof makes way, if that was long: a flood of idle connections
 * must not keep ranks out, nor take the descriptors of the program that we are a thread of. */
static bool make_way(weft_store_server_t *server)
{
    weft_store_client_t *oldest = NULL;
    for (weft_store_client_t *client = server->clients; client != NULL; client = client->next) {
        if (client->state == WEFT_STORE_PROVING) {
            oldest = client;
        }
    }
    if (oldest != NULL && oldest->deadline > weft__deadline(PROOF_LIMIT_MS - PROVING_GRACE_MS)) {
        return false;
    }
    if (oldest != NULL) {
        drop(server, oldest);
    }
    return true;
}

weft_status_t weft__store_server_adopt(weft_store_server_t *server, int fd)
{
    uint8_t hello[WEFT_STORE_HELLO_BYTES];
    weft_store_client_t *client = calloc(1, sizeof(*client));
    weft_status_t status = WEFT_ERR_NO_MEMORY;
    if (client == NULL) {
        complain(server, "cannot accept a client", ENOMEM);
        goto err_close;
    }
    client->fd = fd;
    client->own = weft__net_peer_pid(fd) == getpid();
    client->state = WEFT_STORE_PROVING;
    client->deadline = weft__deadline(PROOF_LIMIT_MS);
    client->events = EPOLLIN | EPOLLRDHUP;
    status = weft__random_bytes(client->nonce, sizeof(client->nonce));
    if (status != WEFT_OK) {
        complain(server, "cannot draw a number for a client", errno);
        goto err_free;
    }
    struct epoll_event event = {.events = client->events, .data.ptr = client};
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        complain(server, "cannot watch a client", errno);
        status = WEFT_ERR_SYSTEM;
        goto err_free;
    }
    client->next = server->clients;
    if (server->clients != NULL) {
        server->clients->prev = client;
    }
    server->clients = client;
    server->client_count++;
    server->proving_count++;
    memcpy(hello, weft__store_magic, WEFT_STORE_MAGIC_BYTES);
    memcpy(hello + WEFT_STORE_MAGIC_BYTES, client->nonce, sizeof(client->nonce));
    queue(server, client, hello, sizeof(hello), NULL, 0);
    return WEFT_OK;
err_free:
    free(client);
err_close:
    close(fd);
    return status;
}

static void listen_on(weft_store_server_t *server, bool on)
{
    struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.ptr = &server->listen_fd};
    epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listen_fd, &event);
    server->listening = on;
    server->listen_again = on ? WEFT_NEVER : weft__deadline(LISTEN_PAUSE_MS);
    if (server->listen_again < server->next_deadline) {
        server->next_deadline = server->listen_again;
    }
}

static void accept_clients(weft_store_server_t *server)
{
    for (int i = 0; i < ACCEPTS_PER_STEP; i++) {
        if (server->proving_count >= server->proving_most && !make_way(server)) {
            listen_on(server, false); /* they wait in the queue */
            return;
        }
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK) {
                return;
            }
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                /* the connection stays in the queue, and epoll would report it for ever */
                complain(server, "cannot accept a client", errno);
                listen_on(server, false);
                return;
            }
            continue; /* that one connection failed before we got to it */
        }
        if (server->same_user && !weft__net_peer_is_us(fd)) {
            weft__info("store: refused a client of another user");
            close(fd);
            continue;
        }
        weft__net_tune(fd);
        weft__store_server_adopt(server, fd);
    }
}

/* ---- the loop ---------------------------------------------------------------------------- */

/* Deal with every deadline that has passed and find the next. */
static void expire(weft_store_server_t *server)
{
    uint64_t now = weft__now_ns();
    if (now < server->next_deadline) {
        return;
    }
    if (!server->listening && server->listen_again <= now) {
        listen_on(server, true);
    }
    server->next_deadline = server->listen_again;
    weft_store_client_t *next;
    for (weft_store_client_t *client = server->clients; client != NULL; client = next) {
        next = client->next;
        if (client->deadline > now) {
            if (client->deadline < server->next_deadline) {
                server->next_deadline = client->deadline;
            }
        } else if (client->state == WEFT_STORE_PARKED) {
            weft__store_give_up(server, client);
        } else {
            drop(server, client);
        }
    }
}

/* Another thread wants something. */
static void woken(weft_store_server_t *server)
{
    uint64_t times;
    if (read(server->wake_fd, &times, sizeof(times)) < 0) {
        return; /* seen already */
    }
    server->running = !atomic_load(&server->stopping);
    for (weft_store_client_t *client = server->clients; client != NULL; client = client->next) {
        if (client->state == WEFT_STORE_PARKED && atomic_load(&server->abandoned)) {
            client->deadline = 0; /* expire does the rest */
            server->next_deadline = 0;
        }
    }
}

bool weft__store_server_step(weft_store_server_t *server, int timeout_ms)
{
    struct epoll_event events[EVENTS_PER_STEP];
    int left = weft__deadline_left(server->next_deadline);
    int wait_ms = timeout_ms < 0 || (left >= 0 && left < timeout_ms) ? left : timeout_ms;
    int count = epoll_wait(server->epoll_fd, events, EVENTS_PER_STEP, wait_ms);
    if (count < 0 && errno != EINTR) {
        weft__warn("store: cannot wait for clients: %s", strerror(errno));
        return false;
    }
    for (int i = 0; i < count; i++) {
        if (events[i].data.ptr == &server->wake_fd) {
            woken(server);
        } else if (events[i].data.ptr == &server->listen_fd) {
            accept_clients(server);
        } else {
            client_event(server, events[i].data.ptr, events[i].events);
        }
    }
    expire(server);
    free_gone_clients(server);
    return server->running;
}

static void *serve(void *arg)
{
    weft_store_server_t *server = arg;
    while (weft__store_server_step(server, -1)) {
    }
    server->running = false;
    /* clients notice at once, whatever made us end */
    while (server->clients != NULL) {
        drop(server, server->clients);
    }
    return NULL;
}

/* ---- start and stop ---------------------------------------------------------------------- */

static int proving_most(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 8 > PROVING_MOST) {
        return PROVING_MOST;
    }
    return limit.rlim_cur / 8 > 8 ? (int)(limit.rlim_cur / 8) : 8;
}

weft_status_t weft__store_server_create(int listen_fd, const uint8_t secret[WEFT_SECRET_BYTES],
                                        bool same_user, weft_store_server_t **server_p)
{
    uint8_t hash_key[WEFT_MAC_KEY_BYTES];
    weft_status_t status = WEFT_ERR_NO_MEMORY;
    weft_store_server_t *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "store: no memory for a server");
        goto err_close_listen;
    }
    server->listen_fd = listen_fd;
    server->same_user = same_user;
    server->running = true;
    server->listening = true;
    server->proving_most = proving_most();
    server->listen_again = server->next_deadline = WEFT_NEVER;
    memcpy(server->secret, secret, WEFT_SECRET_BYTES);
    status = weft__random_bytes(hash_key, sizeof(hash_key));
    if (status != WEFT_OK) {
        goto err_free;
    }
    if (!weft__store_table_init(&server->table, hash_key)) {
        status = weft__fail(WEFT_ERR_NO_MEMORY, "store: no memory for a table of keys");
        goto err_free;
    }
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event wake = {.events = EPOLLIN, .data.ptr = &server->wake_fd};
    struct epoll_event news = {.events = EPOLLIN, .data.ptr = &server->listen_fd};
    if (server->epoll_fd < 0 || server->wake_fd < 0 ||
        epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->wake_fd, &wake) != 0 ||
        (listen_fd >= 0 && epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, listen_fd, &news) != 0)) {
        status = weft__fail(WEFT_ERR_SYSTEM, "store: cannot set up a server: %s", strerror(errno));
        goto err_close_fds;
    }
    *server_p = server;
    return WEFT_OK;
err_close_fds:
    if (server->wake_fd >= 0) {
        close(server->wake_fd);
    }
    if (server->epoll_fd >= 0) {
        close(server->epoll_fd);
    }
    weft__store_table_cleanup(&server->table);
err_free:
    free(server);
err_close_listen:
    if (listen_fd >= 0) {
        close(listen_fd);
    }
    return status;
}

void weft__store_server_destroy(weft_store_server_t *server)
{
    server->running = false;
    while (server->clients != NULL) {
        drop(server, server->clients);
    }
    free_gone_clients(server);
    weft__store_table_cleanup(&server->table);
    if (server->listen_fd >= 0) {
        close(server->listen_fd);
    }
    close(server->wake_fd);
    close(server->epoll_fd);
    free(server);
}

/* The thread takes no signals: they are the program's business. */
static weft_status_t start_thread(weft_store_server_t *server)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&server->thread, NULL, serve, server);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error != 0) {
        return weft__fail(WEFT_ERR_SYSTEM, "store: cannot start a thread: %s", strerror(error));
    }
    pthread_setname_np(server->thread, "weft-store");
    return WEFT_OK;
}

static weft_status_t start(int listen_fd, const uint8_t secret[WEFT_SECRET_BYTES], bool same_user,
                           weft_store_server_t **server_p)
{
    weft_store_server_t *server;
    WEFT_TRY(weft__store_server_create(listen_fd, secret, same_user, &server));
    weft_status_t status = start_thread(server);
    if (status != WEFT_OK) {
        weft__store_server_destroy(server);
        return status;
    }
    *server_p = server;
    return WEFT_OK;
}

weft_status_t weft__store_serve(const char *host, int port, const uint8_t secret[WEFT_SECRET_BYTES],
                                weft_store_server_t **server_p, int *port_p)
{
    int fd;
    int got_port;
    weft_status_t status = weft__net_listen_tcp(host, port, &fd, &got_port);
    if (status == WEFT_OK) {
        status = start(fd, secret, false, server_p);
    }
    if (status == WEFT_OK) {
        *port_p = got_port;
    }
    return status;
}

weft_status_t weft__store_serve_unix(const char *name, weft_store_server_t **server_p)
{
    const uint8_t no_secret[WEFT_SECRET_BYTES] = {0};
    int fd;
    WEFT_TRY(weft__net_listen_unix(name, &fd));
    return start(fd, no_secret, true, server_p);
}

int weft__store_clients(weft_store_server_t *server)
{
    return atomic_load_explicit(&server->client_count, memory_order_relaxed);
}

int weft__store_welcomed(weft_store_server_t *server)
{
    return atomic_load_explicit(&server->welcomed, memory_order_relaxed);
}

void weft__store_leave_running(weft_store_server_t *server)
{
    pthread_detach(server->thread);
}

static void wake(weft_store_server_t *server)
{
    const uint64_t one = 1;
    /* cannot fail: the counter is far from full */
    if (write(server->wake_fd, &one, sizeof(one)) != (ssize_t)sizeof(one)) {
        weft__warn("store: cannot wake the server: %s", strerror(errno));
    }
}

void weft__store_abandon(weft_store_server_t *server)
{
    atomic_store(&server->abandoned, true);
    wake(server);
}

void weft__store_stop(weft_store_server_t *server)
{
    if (server == NULL) {
        return;
    }
    atomic_store(&server->stopping, true);
    wake(server);
    pthread_join(server->thread, NULL);
    weft__store_server_destroy(server);
}
