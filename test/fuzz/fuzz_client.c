/* What a store answers to its client. A thread stands for the store: it proves that it knows the
 * secret, or tries to, sends bytes of the input, and hangs up.
 *
 *     kind[1]  kind & 1: the hello and the proof are the input's too
 *     calls[1]  that many calls are made, of ops[1] each
 *     then all that the store sends
 *
 * reads: src/boot/store_client.c
 * besides: weft__store_connect await send_parts */
#define _GNU_SOURCE 1
#include "fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot/store_net.h"
#include "boot/store_proto.h"
#include "boot/store_server.h"

const long fuzz_runs = 6000;

enum { CALLS = 8 };

static struct {
    char name[40];
    int listen_fd;
    sem_t go, done;
    const uint8_t *bytes; /* of the input, for the thread between go and done */
    size_t size;
    bool honest;
} server;

/* Read what the client proves itself with, and prove the same. */
static void prove(int fd)
{
    const uint8_t secret[WEFT_SECRET_BYTES] = {0}, nonce[WEFT_STORE_NONCE_BYTES] = {1, 2, 3};
    uint8_t hello[WEFT_STORE_HELLO_BYTES], proof[WEFT_STORE_PROOF_BYTES];
    uint8_t reply[WEFT_STORE_REPLY_BYTES + WEFT_MAC_BYTES];
    const weft_store_reply_t welcome = {.status = WEFT_OK, .value_bytes = WEFT_MAC_BYTES};
    memcpy(hello, weft__store_magic, WEFT_STORE_MAGIC_BYTES);
    memcpy(hello + WEFT_STORE_MAGIC_BYTES, nonce, sizeof(nonce));
    CHECK(send(fd, hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t)sizeof(hello));
    CHECK(recv(fd, proof, sizeof(proof), MSG_WAITALL) == (ssize_t)sizeof(proof));
    weft__store_print_reply(&welcome, reply);
    weft__store_proof(secret, 'S', nonce, proof, reply + WEFT_STORE_REPLY_BYTES);
    CHECK(send(fd, reply, sizeof(reply), MSG_NOSIGNAL) == (ssize_t)sizeof(reply));
}

/* libFuzzer's clock interrupts it. */
static void await_post(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) {
        CHECK(errno == EINTR);
    }
}

static void *serve(void *unused)
{
    (void)unused;
    for (;;) {
        await_post(&server.go);
        int fd = accept(server.listen_fd, NULL, NULL);
        CHECK(fd >= 0);
        if (server.honest) {
            prove(fd);
        }
        (void)!send(fd, server.bytes, server.size, MSG_NOSIGNAL | MSG_DONTWAIT);
        shutdown(fd, SHUT_WR); /* requests are still taken, and not answered */
        await_post(&server.go);
        close(fd);
        sem_post(&server.done);
    }
    return NULL;
}

static void start(void)
{
    pthread_t thread;
    snprintf(server.name, sizeof(server.name), "weft-fuzz-%d", (int)getpid());
    CHECK(weft__net_listen_unix(server.name, &server.listen_fd) == WEFT_OK);
    int flags = fcntl(server.listen_fd, F_GETFL);
    CHECK(fcntl(server.listen_fd, F_SETFL, flags & ~O_NONBLOCK) ==
          0); /* the thread waits in accept */
    CHECK(sem_init(&server.go, 0, 0) == 0 && sem_init(&server.done, 0, 0) == 0);
    sigset_t all, old;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &old) == 0); /* its calls wait undisturbed */
    CHECK(pthread_create(&thread, NULL, serve, NULL) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
    pthread_detach(thread);
}

static weft_status_t call(weft_store_conn_t *store, uint8_t op)
{
    uint8_t value[40] = {0};
    char long_key[300];
    size_t bytes = op & 0x80 ? 4 : sizeof(value);
    int64_t sum;
    bool flag;
    weft_status_t status = WEFT_OK;
    switch (op % 12) {
    case 0:
        return weft__store_set(store, "key", "value", 5);
    case 1:
        status = weft__store_get(store, "key", value, &bytes, op & 0x40 ? -5 : 7);
        CHECK(status != WEFT_OK || bytes <= sizeof(value));
        return status;
    case 2:
        status = weft__store_look(store, "key", value, &bytes, &flag);
        CHECK(status != WEFT_OK || bytes <= sizeof(value));
        return status;
    case 3:
        status = weft__store_offer(store, "key", "value", 5, &flag, value, &bytes);
        CHECK(status != WEFT_OK || bytes <= sizeof(value));
        return status;
    case 4:
        return weft__store_last_will(store, "key", "value", 5);
    case 5:
        return weft__store_add(store, "key", 3, &sum);
    case 6:
        return weft__store_delete(store, "key");
    case 7:
        return weft__store_barrier(store, "key", 4, 7);
    case 8:
        memset(long_key, 'k', sizeof(long_key) - 1);
        long_key[sizeof(long_key) - 1] = '\0';
        CHECK(weft__store_delete(store, long_key) != WEFT_OK);
        return WEFT_ERR_INVALID;
    case 9:
        CHECK(weft__store_set(store, "key", value, (size_t)2 << 20) != WEFT_OK);
        CHECK(weft__store_offer(store, "key", value, (size_t)2 << 20, &flag, value, &bytes) !=
              WEFT_OK);
        return weft__store_last_will(store, "key", value, 8192);
    default:
        return weft__store_barrier(store, "key", 0, 7);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool started;
    fuzz_rest_t rest = {data, size};
    uint8_t kind = fuzz_byte(&rest), calls = fuzz_byte(&rest) % CALLS, ops[CALLS];
    weft_store_conn_t *store;
    if (!started) {
        start();
        started = true;
    }
    for (int i = 0; i < calls; i++) {
        ops[i] = fuzz_byte(&rest);
    }
    server.honest = (kind & 1) == 0;
    server.bytes = rest.at;
    server.size = rest.left;
    sem_post(&server.go);
    if (weft__store_connect_unix(server.name, 5000, &store) == WEFT_OK) {
        CHECK(server.honest);
        for (int i = 0; i < calls; i++) {
            if (call(store, ops[i]) != WEFT_OK) {
                CHECK(strncmp(weft_last_error(), "store: ", 7) == 0);
            }
        }
        weft__store_close(store);
    } else {
        CHECK(!server.honest && strncmp(weft_last_error(), "store: ", 7) == 0);
    }
    sem_post(&server.go);
    await_post(&server.done);
    return 0;
}

static void put_reply(uint8_t *bytes, size_t *size_p, weft_status_t status, int64_t number,
                      size_t value)
{
    const weft_store_reply_t reply = {.status = status, .number = number, .value_bytes = value};
    weft__store_print_reply(&reply, bytes + *size_p);
    memset(bytes + *size_p + WEFT_STORE_REPLY_BYTES, 'v', value);
    *size_p += WEFT_STORE_REPLY_BYTES + value;
}

void fuzz_seeds(void)
{
    uint8_t all[1024] = {0, 7, 0, 1, 2, 3, 5, 6, 7}, refused[64] = {1, 1, 0};
    size_t size = 9;
    const weft_status_t wrong[] = {WEFT_ERR_NOT_FOUND, WEFT_ERR_TIMEOUT, WEFT_ERR_INVALID,
                                   WEFT_ERR_NO_MEMORY, WEFT_ERR_RANK_DEAD};
    put_reply(all, &size, WEFT_OK, 0, 0);
    put_reply(all, &size, WEFT_OK, 0, 12);
    put_reply(all, &size, WEFT_OK, 0, 12);
    put_reply(all, &size, WEFT_OK, 0, 12);
    put_reply(all, &size, WEFT_OK, 12, 0);
    put_reply(all, &size, WEFT_OK, 0, 0);
    put_reply(all, &size, WEFT_OK, 4, 0);
    fuzz_seed(all, size);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        size = 9;
        for (int r = 0; r < 7; r++) {
            put_reply(all, &size, wrong[i], 2, 0);
        }
        fuzz_seed(all, size);
    }
    size = 3;
    memcpy(refused + size, weft__store_magic, WEFT_STORE_MAGIC_BYTES);
    size += WEFT_STORE_HELLO_BYTES;
    put_reply(refused, &size, WEFT_ERR_REFUSED, 0, 0);
    fuzz_seed(refused, size);
    const uint8_t misused[] = {0, 7, 8, 9, 10, 0x81, 4, 0x82, 11};
    memcpy(all, misused, sizeof(misused));
    size = sizeof(misused);
    put_reply(all, &size, WEFT_OK, 0, 30);
    put_reply(all, &size, WEFT_OK, 0, 0);
    put_reply(all, &size, WEFT_OK, 0, 5000 < sizeof(all) ? 5000 : 100);
    fuzz_seed(all, size);
}
