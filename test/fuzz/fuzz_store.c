/* What clients send to the store: requests alone, and a live server.
 *
 *     kind[1]  0: a request, or a reply; 1: a script for four clients of a server, three of which
 *              have proved themselves, and come by a pair of sockets or, with kind & 2, are
 *              accepted; kind & 4: the store is nearly full:
 *         who and what[1]   then, by what: raw bytes[1 + n], or a request[5], or close, or read
 *
 * reads: src/boot/store_proto.c src/boot/store_requests.c src/boot/store_server.c
 * src/boot/store_table.c besides: serve start start_thread weft__store_serve weft__store_serve_unix
 * weft__store_clients besides: weft__store_welcomed weft__store_leave_running weft__store_stop
 * weft__store_server_create proving_most besides: complain listen_on make_way accept_clients */
#define _GNU_SOURCE 1
#include "fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "boot/store_net.h"
#include "boot/store_proto.h"
#include "boot/store_server.h"

const long fuzz_runs = 1500;

#define CLIENTS 4
#define UNPROVEN 3 /* this one has not */

/* ---- parsers ----------------------------------------------------------------------------- */

static void check_request(const uint8_t *data, size_t size)
{
    weft_store_parsed_t before = WEFT_STORE_MORE;
    size_t frame_before = 0;
    for (size_t count = 0; count <= size; count++) {
        weft_store_request_t request = {0};
        size_t frame = 0;
        weft_store_parsed_t parsed = weft__store_parse_request(data, count, &request, &frame);
        CHECK(frame >= WEFT_STORE_REQUEST_BYTES && frame <= WEFT_STORE_FRAME_MAX);
        switch (parsed) {
        case WEFT_STORE_MORE:
            CHECK(before == WEFT_STORE_MORE && frame > count);
            break;
        case WEFT_STORE_READY: {
            uint8_t again[WEFT_STORE_REQUEST_BYTES];
            CHECK(before != WEFT_STORE_BAD && frame <= count);
            CHECK(before != WEFT_STORE_READY || frame == frame_before);
            CHECK(request.key == data + WEFT_STORE_REQUEST_BYTES);
            CHECK(request.value == request.key + request.key_bytes);
            CHECK(WEFT_STORE_REQUEST_BYTES + request.key_bytes + request.value_bytes == frame);
            weft__store_print_request(&request, again);
            CHECK(memcmp(again, data, sizeof(again)) == 0);
            break;
        }
        case WEFT_STORE_BAD:
            CHECK(count >= WEFT_STORE_REQUEST_BYTES && before != WEFT_STORE_READY);
            break;
        }
        CHECK(before != WEFT_STORE_BAD || parsed == WEFT_STORE_BAD);
        before = parsed;
        frame_before = frame;
    }
}

static void check_reply(const uint8_t *data, size_t size)
{
    weft_store_reply_t reply;
    uint8_t again[WEFT_STORE_REPLY_BYTES];
    if (size < WEFT_STORE_REPLY_BYTES ||
        weft__store_parse_reply(data, &reply) != WEFT_STORE_READY) {
        return;
    }
    CHECK(reply.value_bytes <= WEFT_STORE_VALUE_MAX && (int)reply.status <= 0);
    CHECK(reply.value_bytes == 0 || reply.status == WEFT_OK);
    weft__store_print_reply(&reply, again);
    CHECK(memcmp(again, data, sizeof(again)) == 0);
}

/* ---- a live server ----------------------------------------------------------------------- */

typedef struct bench {
    weft_store_server_t *server;
    char name[40]; /* of its socket; "": it has none */
    int fds[CLIENTS];
} bench_t;

static const uint8_t secret[WEFT_SECRET_BYTES] = {5, 4, 3, 2, 1};

static void step(bench_t *bench)
{
    CHECK(weft__store_server_step(bench->server, 0));
}

/* Read away what the server said. */
static void drain(bench_t *bench, int who)
{
    static uint8_t bytes[1 << 16];
    while (bench->fds[who] >= 0) {
        ssize_t got = recv(bench->fds[who], bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN)) {
            close(bench->fds[who]);
            bench->fds[who] = -1;
        }
        if (got <= 0) {
            return;
        }
    }
}

/* In as many pieces as the socket takes, the server reading in between. */
static void put(bench_t *bench, int who, const uint8_t *bytes, size_t count)
{
    int stuck = 0;
    while (bench->fds[who] >= 0 && count > 0 && stuck < 8) {
        ssize_t sent = send(bench->fds[who], bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        stuck = sent > 0 ? 0 : stuck + 1; /* closed, or not read while it waits for something */
        bytes += sent > 0 ? sent : 0;
        count -= sent > 0 ? (size_t)sent : 0;
        step(bench);
    }
    step(bench);
}

static void open_client(bench_t *bench, int who)
{
    int fds[2];
    uint8_t hello[WEFT_STORE_HELLO_BYTES];
    uint8_t proof[WEFT_STORE_PROOF_BYTES] = {(uint8_t)who};
    if (bench->name[0] != '\0') {
        CHECK(weft__net_connect_unix(bench->name, weft__deadline(5000), &fds[1]) == WEFT_OK);
        step(bench);
    } else {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
        CHECK(weft__store_server_adopt(bench->server, fds[0]) == WEFT_OK);
    }
    bench->fds[who] = fds[1];
    CHECK(recv(fds[1], hello, sizeof(hello), 0) == (ssize_t)sizeof(hello));
    if (who != UNPROVEN) {
        weft__store_proof(secret, 'C', hello + WEFT_STORE_MAGIC_BYTES, proof,
                          proof + WEFT_STORE_NONCE_BYTES);
        put(bench, who, proof, sizeof(proof));
        drain(bench, who);
        CHECK(bench->fds[who] >= 0);
    }
}

/* Five bytes make a request that is well-formed more often than not. */
static void put_request(bench_t *bench, int who, const uint8_t *seed)
{
    static const int64_t numbers[] = {0, 1, 2, 3, -1, INT64_MAX, INT64_MIN, INT_MAX};
    static const int timeouts[] = {0, 1, -1, 1000000};
    static uint8_t frame[WEFT_STORE_FRAME_MAX];
    weft_store_request_t request = {
        .op = (weft_store_op_t)(WEFT_STORE_SET + seed[0] % (WEFT_STORE_OP_END - WEFT_STORE_SET)),
        .key_bytes = 1 + seed[1] % 2 + 2 * (seed[3] % 4),
    };
    if (request.op == WEFT_STORE_SET || request.op == WEFT_STORE_OFFER ||
        request.op == WEFT_STORE_WILL) {
        request.value_bytes = (seed[3] & 0x80) != 0 ? (size_t)seed[2] << 12 : seed[2];
    }
    if (request.op == WEFT_STORE_GET || request.op == WEFT_STORE_BARRIER) {
        request.timeout_ms = timeouts[seed[3] % 4];
    }
    if (request.op == WEFT_STORE_ADD || request.op == WEFT_STORE_BARRIER) {
        request.number = numbers[seed[4] % 8];
    }
    weft__store_print_request(&request, frame);
    memset(frame + WEFT_STORE_REQUEST_BYTES, 'a' + seed[1] / 2, 8 + request.value_bytes);
    put(bench, who, frame,
        WEFT_STORE_REQUEST_BYTES + request.key_bytes + request.value_bytes + (seed[0] >= 250));
}

/* What the table says of those who wait must be true. */
static void check_table(const bench_t *bench)
{
    const weft_store_table_t *table = &bench->server->table;
    size_t entries = 0;
    int parked = 0;
    for (size_t i = 0; i < table->chain_count; i++) {
        for (weft_store_entry_t *entry = table->chains[i]; entry != NULL; entry = entry->next) {
            int waiters = 0;
            for (weft_store_client_t *c = entry->waiters; c != NULL; c = c->wait_next) {
                CHECK(c->state == WEFT_STORE_PARKED && c->entry == entry);
                waiters++;
            }
            CHECK(waiters == entry->arrived);
            CHECK(entry->exists ? waiters == 0 : waiters > 0);
            CHECK(entry->kind != WEFT_STORE_MEETING || waiters < entry->size);
            parked += waiters;
            entries++;
        }
    }
    CHECK(entries == table->entry_count && parked <= bench->server->client_count);
}

static void run_script(const uint8_t *data, size_t size, bool listens, bool full)
{
    bench_t bench = {0};
    int listen_fd = -1;
    if (listens) {
        snprintf(bench.name, sizeof(bench.name), "weft-fuzz-%d", (int)getpid());
        CHECK(weft__net_listen_unix(bench.name, &listen_fd) == WEFT_OK);
    }
    CHECK(weft__store_server_create(listen_fd, secret, listens, &bench.server) == WEFT_OK);
    bench.server->table.bytes = full ? WEFT_STORE_TABLE_MAX - 600
                                     : 0; /* as if others had that much */
    for (int i = 0; i < CLIENTS; i++) {
        open_client(&bench, i);
    }
    while (size > 0) {
        int who = data[0] % CLIENTS;
        int what = data[0] / CLIENTS % 8;
        data++;
        size--;
        if (data[-1] >= 0xfc) {
            nanosleep(&(struct timespec){.tv_nsec = 1500000},
                      NULL); /* longer than who waits 1 ms */
            step(&bench);
        } else if (what == 0 && size > 0) {
            size_t count = (size_t)data[0] < size - 1 ? data[0] : size - 1;
            put(&bench, who, data + 1, count);
            data += 1 + count;
            size -= 1 + count;
        } else if (what == 1 && bench.fds[who] >= 0) {
            close(bench.fds[who]);
            bench.fds[who] = -1;
            step(&bench);
        } else if (what == 2 && bench.fds[who] < 0) {
            step(&bench);
            open_client(&bench, who);
        } else if (what == 3) {
            drain(&bench, who);
        } else if (size >= 5) {
            put_request(&bench, who, data);
            data += 5;
            size -= 5;
        }
        check_table(&bench);
    }
    for (int i = 0; i < CLIENTS; i++) {
        if (bench.fds[i] >= 0) {
            close(bench.fds[i]);
        }
    }
    step(&bench);
    CHECK(bench.server->client_count == 0);
    check_table(&bench);
    weft__store_server_destroy(bench.server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] % 2 == 0) {
        check_request(data + 1, size - 1);
        check_reply(data + 1, size - 1);
    } else if (size > 0) {
        run_script(data + 1, size - 1, (data[0] & 2) != 0, (data[0] & 4) != 0);
    }
    return 0;
}

static const uint8_t set_a[] = {0, 1, 0, 1, 0, 3, 0, 0, 0, 0, 0,   0,   0,   0,  0,
                                0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'a', 'x', 'y', 'z'};
static const uint8_t barrier_b[] = {0, 5, 0, 2,    0,    0,    0,    0, 0, 2, 0, 0,   0,  0,
                                    0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 'b', 'b'};
/* two wait at a barrier of three and one leaves; then all three meet */
static const uint8_t meeting[] = {1,  16, 4, 0, 0, 2, 3,  17, 4, 0, 0, 2, 3,  5,  9,
                                  17, 4,  0, 0, 2, 3, 18, 4,  0, 0, 2, 3, 12, 13, 14};
/* gets that wait, a set that wakes them, a delete, a sum */
static const uint8_t waiting[] = {1, 16, 1,  0,  0,  2, 0, 17, 1, 0, 0,  1, 0, 18, 0, 0, 9,
                                  0, 0,  12, 13, 18, 3, 0, 0,  0, 0, 18, 2, 0, 0,  0, 1, 16,
                                  2, 0,  0,  0,  5,  3, 8, 1,  2, 3, 4,  5, 6, 7,  8};
/* a will, one who waits for it, and its owner leaves; an offer that is taken and one that is not */
static const uint8_t wills[] = {3,  16, 6, 0, 9, 0, 0,  17, 1, 0, 0, 2, 0,  4,
                                17, 5,  1, 4, 0, 0, 18, 5,  1, 4, 0, 0, 13, 14};

/* values of 1 MiB less a page and of 64 KiB, read by one who takes them late; one waits 1 ms in
 * vain */
static const uint8_t large[] = {1, 16, 0,    0, 255, 0x80, 0,  17, 1, 0, 0,  0,    0,  16, 0,
                                1, 16, 0x80, 0, 18,  1,    1,  0,  0, 0, 13, 13,   13, 14, 18,
                                1, 2,  0,    1, 0,   0xfc, 14, 17, 5, 0, 16, 0x80, 0,  13};

/* as many keys as make the table grow */
static void seed_keys(void)
{
    uint8_t keys[1 + 6 * 400] = {1};
    for (int i = 0; i < 400; i++) {
        const uint8_t request[] = {16, 2, (uint8_t)(i % 200), 0, (uint8_t)(i / 200), 1};
        memcpy(keys + 1 + 6 * i, request, sizeof(request));
    }
    fuzz_seed(keys, sizeof(keys));
}

/* of every kind of request, on keys of their own, until there is no room */
static const uint8_t full[] = {5, 16, 0, 0,  200, 0,  0,   17, 1,   2,  0, 2,  0, 18, 2,   4,
                               0, 0,  1, 16, 5,   6,  200, 0,  0,   17, 6, 8,  9, 0,  0,   18,
                               4, 10, 0, 2,  2,   16, 5,   12, 255, 0,  0, 16, 0, 14, 255, 0,
                               0, 16, 2, 16, 0,   0,  1,   18, 4,   18, 0, 2,  2, 16, 1,   20,
                               0, 2,  0, 16, 0,   22, 255, 0,  0,   16, 2, 24, 0, 0,  1};

void fuzz_seeds(void)
{
    static const uint8_t proof[1 + 2 + WEFT_STORE_PROOF_BYTES] = {1, 3, WEFT_STORE_PROOF_BYTES};
    fuzz_seed(set_a, sizeof(set_a));
    fuzz_seed(barrier_b, sizeof(barrier_b));
    fuzz_seed(meeting, sizeof(meeting));
    fuzz_seed(waiting, sizeof(waiting));
    fuzz_seed(wills, sizeof(wills));
    fuzz_seed(large, sizeof(large));
    fuzz_seed(full, sizeof(full));
    seed_keys();
    fuzz_seed(proof, sizeof(proof)); /* a wrong one */
}
