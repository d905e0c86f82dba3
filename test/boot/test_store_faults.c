/* ctest: timeout=120 tsan */
/* The rendezvous store: whom it refuses, what it survives and what it forgets. */
#define _GNU_SOURCE 1 /* setresuid */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "boot/store_fixture.h"
#include "boot/store_net.h"
#include "boot/store_proto.h"
#include "boot/store_server.h"

/* ---- who may come in --------------------------------------------------------------------- */

static void wrong_secret_is_refused(void **state)
{
    (void)state;
    uint8_t wrong[WEFT_SECRET_BYTES];
    weft_store_conn_t *store = NULL;
    memcpy(wrong, secret, sizeof(wrong));
    wrong[15] ^= 1;
    assert_int_equal(weft__store_connect(HOST, port, wrong, LIMIT_MS, &store), WEFT_ERR_REFUSED);
    assert_null(store);
    assert_non_null(strstr(weft_last_error(), "secret"));
}

/* A server whose secret is another must not be believed: made of the server's parts, but lying. */
static void server_without_the_secret_is_not_believed(void **state)
{
    (void)state;
    int fd, fake_port;
    weft_store_conn_t *store = NULL;
    assert_int_equal(weft__net_listen_tcp(HOST, 0, &fd, &fake_port), WEFT_OK);
    pid_t pid = fork();
    if (pid == 0) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        uint8_t hello[WEFT_STORE_HELLO_BYTES] = {0};
        uint8_t proof[WEFT_STORE_PROOF_BYTES];
        uint8_t answer[WEFT_STORE_REPLY_BYTES + WEFT_MAC_BYTES] = {0};
        const weft_store_reply_t reply = {.status = WEFT_OK, .value_bytes = WEFT_MAC_BYTES};
        poll(&poller, 1, LIMIT_MS);
        int peer = accept(fd, NULL, NULL);
        memcpy(hello, weft__store_magic, WEFT_STORE_MAGIC_BYTES);
        weft__store_print_reply(&reply, answer);
        int bad = write(peer, hello, sizeof(hello)) != (ssize_t)sizeof(hello) ||
                  recv(peer, proof, sizeof(proof), MSG_WAITALL) != (ssize_t)sizeof(proof);
        /* the client's own proof, sent back */
        memcpy(answer + WEFT_STORE_REPLY_BYTES, proof + WEFT_STORE_NONCE_BYTES, WEFT_MAC_BYTES);
        bad = bad || write(peer, answer, sizeof(answer)) != (ssize_t)sizeof(answer);
        _exit(bad);
    }
    assert_int_equal(weft__store_connect(HOST, fake_port, secret, LIMIT_MS, &store),
                     WEFT_ERR_REFUSED);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    close(fd);
}

static int raw_connect(void)
{
    int fd = -1;
    uint8_t hello[WEFT_STORE_HELLO_BYTES];
    assert_int_equal(weft__net_connect_tcp(HOST, port, weft__deadline(LIMIT_MS), &fd), WEFT_OK);
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&poller, 1, LIMIT_MS), 1);
    assert_int_equal(recv(fd, hello, sizeof(hello), 0), sizeof(hello));
    return fd;
}

/* Wait for the server to close `fd`; everything it says before that is counted. */
static size_t read_to_end(int fd)
{
    size_t total = 0;
    for (;;) {
        char bytes[256];
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&poller, 1, LIMIT_MS), 1);
        ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
        if (got <= 0) {
            close(fd);
            return total;
        }
        total += (size_t)got;
    }
}

static void request_without_proof_is_refused_unread(void **state)
{
    (void)state;
    int fd = raw_connect();
    uint8_t bytes[WEFT_STORE_REQUEST_BYTES + 8] = {0};
    const weft_store_request_t request = {.op = WEFT_STORE_DELETE, .key_bytes = 8};
    weft__store_print_request(&request, bytes);
    assert_int_equal(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
    assert_int_equal(read_to_end(fd), WEFT_STORE_REPLY_BYTES);

    fd = raw_connect();
    char flood[4096] = {0};
    assert_true(send(fd, flood, sizeof(flood), MSG_NOSIGNAL) > 0);
    assert_int_equal(read_to_end(fd), 0);
}

/* Strangers who connect and say nothing neither keep ranks out nor take more than an eighth of the
 * descriptors of the process that serves, or eight where that is less. */
static void crowd_a_store(rlim_t descriptors, int room)
{
    enum { STRANGERS = 60 };
    struct rlimit usual, less;
    weft_store_server_t *small = NULL;
    weft_store_conn_t *store = NULL;
    int fds[STRANGERS], small_port, most = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &usual), 0);
    less = usual;
    less.rlim_cur = descriptors;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &less), 0);
    assert_int_equal(weft__store_serve(HOST, 0, secret, &small, &small_port), WEFT_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &usual), 0);
    for (int i = 0; i < STRANGERS; i++) {
        assert_int_equal(weft__net_connect_tcp(HOST, small_port, weft__deadline(LIMIT_MS), &fds[i]),
                         WEFT_OK);
        int now = weft__store_clients(small);
        most = now > most ? now : most;
    }
    assert_int_equal(weft__store_connect(HOST, small_port, secret, LIMIT_MS, &store), WEFT_OK);
    assert_true(most <= room && weft__store_clients(small) <= room + 1);
    weft__store_close(store);
    for (int i = 0; i < STRANGERS; i++) {
        close(fds[i]);
    }
    weft__store_stop(small);
}

static void silent_strangers_do_not_crowd_the_store(void **state)
{
    (void)state;
    crowd_a_store(160, 160 / 8);
    crowd_a_store(32, 8);
}

/* ---- what goes wrong --------------------------------------------------------------------- */

static double cpu_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* The fork has the server's descriptor of the client too, so that close() alone does not end it. */
static void client_that_a_fork_still_holds_is_forgotten(void **state)
{
    (void)state;
    weft_store_conn_t *store = NULL;
    int fd = raw_connect(), before = weft__store_clients(server);
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    assert_int_equal(shutdown(fd, SHUT_RDWR), 0);
    for (int ms = 0; weft__store_clients(server) == before && ms < LIMIT_MS; ms++) {
        usleep(1000);
    }
    assert_int_equal(weft__store_clients(server), before - 1);
    double start = cpu_seconds();
    usleep(300000);
    assert_true(cpu_seconds() - start < 0.03); /* the server sleeps */
    assert_int_equal(weft__store_connect(HOST, port, secret, LIMIT_MS, &store), WEFT_OK);
    weft__store_close(store);
    close(fd);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void nobody_listens_then_somebody_does(void **state)
{
    (void)state;
    weft_store_conn_t *store = NULL;
    weft_store_server_t *late = NULL;
    int fd, free_port, got;
    assert_int_equal(weft__net_listen_tcp(HOST, 0, &fd, &free_port), WEFT_OK);
    close(fd);
    uint64_t start = weft__now_ns();
    assert_int_equal(weft__store_connect(HOST, free_port, secret, 150, &store), WEFT_ERR_TIMEOUT);
    assert_true(ms_since(start) >= 149 && ms_since(start) < LIMIT_MS);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(weft__store_connect(HOST, free_port, secret, LIMIT_MS, &store) != WEFT_OK ||
              weft__store_set(store, "k", "v", 1) != WEFT_OK);
    }
    usleep(100000);
    assert_int_equal(weft__store_serve(HOST, free_port, secret, &late, &got), WEFT_OK);
    assert_int_equal(got, free_port);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_not_equal(weft__store_serve(HOST, free_port, secret, &server, &got), WEFT_OK);
    weft__store_stop(late);
}

static void bad_addresses_are_refused(void **state)
{
    (void)state;
    weft_store_conn_t *store = NULL;
    weft_store_server_t *none = NULL;
    int got;
    assert_int_equal(weft__store_connect(HOST, 70000, secret, 10, &store), WEFT_ERR_INVALID);
    assert_int_equal(weft__store_serve(HOST, -1, secret, &none, &got), WEFT_ERR_INVALID);
    assert_int_not_equal(weft__store_serve("192.0.2.1", 0, secret, &none, &got), WEFT_OK);
    assert_int_not_equal(weft__store_serve("no host has spaces", 0, secret, &none, &got), WEFT_OK);
    assert_null(none);
}

static void client_killed_while_waiting_is_forgotten(void **state)
{
    (void)state;
    weft_store_conn_t *store = connect_store();
    pid_t pid = fork();
    if (pid == 0) {
        weft_store_conn_t *mine = connect_store();
        weft__store_last_will(mine, "forgotten", "x", 1);
        weft__store_set(mine, "about to wait", "x", 1);
        weft__store_barrier(mine, "kill", 2, -1);
        _exit(0);
    }
    char value[8];
    size_t bytes = sizeof(value);
    assert_int_equal(weft__store_get(store, "about to wait", value, &bytes, LIMIT_MS), WEFT_OK);
    usleep(100000); /* it waits by now, most likely; what follows holds either way */
    kill(pid, SIGKILL);
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status));
    bytes = sizeof(value);
    assert_int_equal(weft__store_get(store, "forgotten", value, &bytes, LIMIT_MS), WEFT_OK);
    assert_int_equal(weft__store_barrier(store, "kill", 2, 100), WEFT_ERR_TIMEOUT);
    assert_non_null(strstr(weft_last_error(), "1 of 2"));
    weft__store_close(store);
}

static void will_of_a_killed_client_reaches_those_who_wait(void **state)
{
    (void)state;
    weft_store_conn_t *store = connect_store();
    pid_t pid = fork();
    if (pid == 0) {
        weft_store_conn_t *mine = connect_store();
        weft__store_last_will(mine, "gone", "killed", 6);
        weft__store_set(mine, "ready", NULL, 0);
        pause();
    }
    char value[8];
    size_t bytes = 0;
    assert_int_equal(weft__store_get(store, "ready", NULL, &bytes, LIMIT_MS), WEFT_OK);
    kill(pid, SIGKILL);
    bytes = sizeof(value);
    assert_int_equal(weft__store_get(store, "gone", value, &bytes, LIMIT_MS), WEFT_OK);
    assert_int_equal(bytes, 6);
    assert_memory_equal(value, "killed", 6);
    waitpid(pid, NULL, 0);
    weft__store_close(store);
}

static void *wait_for_ever(void *arg)
{
    worker_t *worker = arg;
    weft_store_conn_t *store = connect_store();
    char value[8];
    size_t bytes = sizeof(value);
    weft__store_set(store, "here", "x", 1);
    worker_fails(worker, weft__store_get(store, "no such key", value, &bytes, -1));
    /* the connection is of no more use, and says so */
    if (weft__store_set(store, "x", "x", 1) == WEFT_OK) {
        worker->status = WEFT_OK;
    }
    weft__store_close(store);
    return NULL;
}

static void stopping_the_server_ends_those_who_wait(void **state)
{
    worker_t worker = {0};
    weft_store_conn_t *store = connect_store();
    char value[8];
    size_t bytes = sizeof(value);
    pthread_create(&worker.thread, NULL, wait_for_ever, &worker);
    assert_int_equal(weft__store_get(store, "here", value, &bytes, LIMIT_MS), WEFT_OK);
    weft__store_close(store);
    usleep(50000);
    stop_server(state);
    pthread_join(worker.thread, NULL);
    assert_int_equal(worker.status, WEFT_ERR_SYSTEM);
    assert_int_equal(start_server(state), 0);
}

static int raw_client(void)
{
    int fd = -1;
    uint8_t hello[WEFT_STORE_HELLO_BYTES];
    uint8_t proof[WEFT_STORE_PROOF_BYTES] = {1};
    uint8_t reply[WEFT_STORE_REPLY_BYTES + WEFT_MAC_BYTES];
    assert_int_equal(weft__net_connect_tcp(HOST, port, weft__deadline(LIMIT_MS), &fd), WEFT_OK);
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&poller, 1, LIMIT_MS), 1);
    assert_int_equal(recv(fd, hello, sizeof(hello), 0), sizeof(hello));
    weft__store_proof(secret, 'C', hello + WEFT_STORE_MAGIC_BYTES, proof,
                      proof + WEFT_STORE_NONCE_BYTES);
    assert_int_equal(send(fd, proof, sizeof(proof), MSG_NOSIGNAL), sizeof(proof));
    assert_int_equal(poll(&poller, 1, LIMIT_MS), 1);
    assert_int_equal(recv(fd, reply, sizeof(reply), 0), sizeof(reply));
    return fd;
}

static void malformed_requests_drop_the_client(void **state)
{
    (void)state;
    static const struct {
        int offset;
        uint8_t byte;
    } bad[] = {
        {0, 0},   {0, WEFT_STORE_OP_END},
        {0, 255}, {1, 1},
        {3, 2}, /* 513 bytes of key */
        {7, 1}, /* 16 MiB of value */
        {4, 1}, /* a value where none belongs */
        {8, 1}, /* a number where none belongs */
        {16, 1},  {23, 1},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int fd = raw_client();
        uint8_t bytes[WEFT_STORE_REQUEST_BYTES] = {0};
        const weft_store_request_t request = {.op = WEFT_STORE_DELETE, .key_bytes = 1};
        weft__store_print_request(&request, bytes);
        bytes[bad[i].offset] = bad[i].byte;
        assert_int_equal(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
        assert_int_equal(read_to_end(fd), 0);
    }
}

/* A client that asks for megabytes and never reads must not hold up anybody. */
static void slow_reader_holds_up_nobody(void **state)
{
    (void)state;
    weft_store_conn_t *store = connect_store();
    char *value = calloc(1, WEFT_STORE_VALUE_MAX);
    uint8_t bytes[WEFT_STORE_REQUEST_BYTES + 4];
    int fds[8];
    const weft_store_request_t request = {.op = WEFT_STORE_GET, .key_bytes = 4};
    assert_int_equal(weft__store_set(store, "slow", value, WEFT_STORE_VALUE_MAX), WEFT_OK);
    weft__store_print_request(&request, bytes);
    memcpy(bytes + WEFT_STORE_REQUEST_BYTES, "slow", 4);
    for (int i = 0; i < 8; i++) {
        fds[i] = raw_client();
        assert_int_equal(send(fds[i], bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
    }
    uint64_t start = weft__now_ns();
    for (int i = 0; i < 100; i++) {
        int64_t sum;
        assert_int_equal(weft__store_add(store, "busy", 1, &sum), WEFT_OK);
    }
    assert_true(ms_since(start) < 5000);
    for (int i = 0; i < 8; i++) {
        size_t total = 0;
        /* the rest arrives when it is read at last, all of it */
        while (total < WEFT_STORE_REPLY_BYTES + WEFT_STORE_VALUE_MAX) {
            struct pollfd poller = {.fd = fds[i], .events = POLLIN};
            assert_int_equal(poll(&poller, 1, LIMIT_MS), 1);
            ssize_t got = recv(fds[i], value, WEFT_STORE_VALUE_MAX, 0);
            assert_true(got > 0);
            total += (size_t)got;
        }
        assert_int_equal(total, WEFT_STORE_REPLY_BYTES + WEFT_STORE_VALUE_MAX);
        close(fds[i]);
    }
    assert_int_equal(weft__store_delete(store, "slow"), WEFT_OK);
    weft__store_close(store);
    free(value);
}

/* A reply in many pieces, seen from inside: the server keeps what the socket does not take. */
static void reply_is_sent_in_pieces_as_room_comes(void **state)
{
    (void)state;
    weft_store_server_t *stepped = NULL;
    int fds[2], small = 8192;
    uint8_t hello[WEFT_STORE_HELLO_BYTES], proof[WEFT_STORE_PROOF_BYTES] = {9};
    size_t bytes = WEFT_STORE_REQUEST_BYTES + 1 + WEFT_STORE_VALUE_MAX;
    uint8_t *frame = malloc(bytes);
    weft_store_request_t set = {.op = WEFT_STORE_SET, .key_bytes = 1};
    const weft_store_request_t get = {.op = WEFT_STORE_GET, .key_bytes = 1};
    set.value_bytes = WEFT_STORE_VALUE_MAX;
    assert_int_equal(weft__store_server_create(-1, secret, false, &stepped), WEFT_OK);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    assert_int_equal(weft__store_server_adopt(stepped, fds[0]), WEFT_OK);
    assert_int_equal(recv(fds[1], hello, sizeof(hello), 0), sizeof(hello));
    weft__store_proof(secret, 'C', hello + WEFT_STORE_MAGIC_BYTES, proof,
                      proof + WEFT_STORE_NONCE_BYTES);
    assert_int_equal(send(fds[1], proof, sizeof(proof), 0), sizeof(proof));
    assert_true(weft__store_server_step(stepped, 0));
    assert_int_equal(recv(fds[1], frame, 64, 0), WEFT_STORE_REPLY_BYTES + WEFT_MAC_BYTES);

    weft__store_print_request(&set, frame);
    frame[WEFT_STORE_REQUEST_BYTES] = 'k';
    for (size_t i = 0; i < WEFT_STORE_VALUE_MAX; i++) {
        frame[WEFT_STORE_REQUEST_BYTES + 1 + i] = (uint8_t)(i % 253);
    }
    for (size_t sent = 0; sent < bytes;) {
        ssize_t got = send(fds[1], frame + sent, bytes - sent, MSG_NOSIGNAL);
        assert_true(got > 0 || errno == EAGAIN);
        sent += got > 0 ? (size_t)got : 0;
        assert_true(weft__store_server_step(stepped, 0));
    }
    while (recv(fds[1], frame, WEFT_STORE_REPLY_BYTES, 0) != WEFT_STORE_REPLY_BYTES) {
        assert_true(weft__store_server_step(stepped, 100));
    }
    weft__store_print_request(&get, frame);
    frame[WEFT_STORE_REQUEST_BYTES] = 'k';
    assert_int_equal(send(fds[1], frame, WEFT_STORE_REQUEST_BYTES + 1, 0),
                     WEFT_STORE_REQUEST_BYTES + 1);
    assert_true(weft__store_server_step(stepped, 100));
    size_t total = 0, pieces = 0;
    while (total < WEFT_STORE_REPLY_BYTES + WEFT_STORE_VALUE_MAX) {
        ssize_t got = recv(fds[1], frame + total, bytes - total, 0);
        assert_true(got > 0 || errno == EAGAIN);
        total += got > 0 ? (size_t)got : 0;
        pieces += got > 0;
        assert_true(weft__store_server_step(stepped, 0));
    }
    assert_true(pieces > 8);
    for (size_t i = 0; i < WEFT_STORE_VALUE_MAX; i++) {
        assert_int_equal(frame[WEFT_STORE_REPLY_BYTES + i], i % 253);
    }
    close(fds[1]);
    assert_true(weft__store_server_step(stepped, 100));
    assert_int_equal(stepped->client_count, 0);
    weft__store_server_destroy(stepped);
    free(frame);
}

/* ---- unix sockets ------------------------------------------------------------------------ */

static void unix_store_serves_and_keeps_its_name(void **state)
{
    (void)state;
    char name[64], value[8];
    size_t bytes = sizeof(value);
    weft_store_server_t *first = NULL, *second = NULL;
    weft_store_conn_t *store = NULL;
    snprintf(name, sizeof(name), "weft-test-%d", (int)getpid());
    assert_int_equal(weft__store_connect_unix(name, 50, &store), WEFT_ERR_TIMEOUT);
    assert_int_equal(weft__store_serve_unix(name, &first), WEFT_OK);
    assert_int_equal(weft__store_serve_unix(name, &second), WEFT_ERR_SYSTEM);
    assert_int_equal(weft__store_connect_unix(name, LIMIT_MS, &store), WEFT_OK);
    assert_int_equal(weft__store_set(store, "k", "value", 5), WEFT_OK);
    assert_int_equal(weft__store_get(store, "k", value, &bytes, 0), WEFT_OK);
    assert_memory_equal(value, "value", 5);
    weft__store_close(store);
    weft__store_stop(first);
    assert_int_equal(weft__store_serve_unix(name, &second), WEFT_OK);
    weft__store_stop(second);
    assert_int_equal(weft__store_serve_unix("", &second), WEFT_ERR_INVALID);
}

static void unix_store_of_another_user_is_refused(void **state)
{
    (void)state;
    char name[64];
    weft_store_server_t *mine = NULL;
    weft_store_conn_t *store = NULL;
    if (geteuid() != 0) {
        print_message("skipped: only root can become another user\n");
        skip();
    }
    snprintf(name, sizeof(name), "weft-test-user-%d", (int)getpid());
    assert_int_equal(weft__store_serve_unix(name, &mine), WEFT_OK);
    pid_t pid = fork();
    if (pid == 0) {
        int bad = setresuid(65534, 65534, 65534) != 0 ||
                  weft__store_connect_unix(name, 2000, &store) != WEFT_ERR_REFUSED;
        /* and past our own client's check, the server closes at once */
        int fd = -1;
        uint8_t hello[WEFT_STORE_HELLO_BYTES];
        struct sockaddr_storage raw = {.ss_family = AF_UNIX};
        memcpy((char *)&raw + sizeof(raw.ss_family) + 1, name, strlen(name));
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        bad = bad || connect(fd, (struct sockaddr *)&raw,
                             (socklen_t)(sizeof(raw.ss_family) + 1 + strlen(name))) != 0;
        bad = bad || recv(fd, hello, sizeof(hello), 0) != 0;
        _exit(bad);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    weft__store_stop(mine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_secret_is_refused),
        cmocka_unit_test(server_without_the_secret_is_not_believed),
        cmocka_unit_test(request_without_proof_is_refused_unread),
        cmocka_unit_test(silent_strangers_do_not_crowd_the_store),
        cmocka_unit_test(client_that_a_fork_still_holds_is_forgotten),
        cmocka_unit_test(nobody_listens_then_somebody_does),
        cmocka_unit_test(bad_addresses_are_refused),
        cmocka_unit_test(client_killed_while_waiting_is_forgotten),
        cmocka_unit_test(will_of_a_killed_client_reaches_those_who_wait),
        cmocka_unit_test(stopping_the_server_ends_those_who_wait),
        cmocka_unit_test(malformed_requests_drop_the_client),
        cmocka_unit_test(slow_reader_holds_up_nobody),
        cmocka_unit_test(reply_is_sent_in_pieces_as_room_comes),
        cmocka_unit_test(unix_store_serves_and_keeps_its_name),
        cmocka_unit_test(unix_store_of_another_user_is_refused),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
