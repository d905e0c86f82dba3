/* ctest: timeout=120 */
/* The store's protocol against anything: the parsers alone, and a live server.
 *
 * The first byte of an input chooses. For the server, the rest is a script for four clients, of
 * which three have proved themselves:
 *     who and what[1]  then, by what:  raw bytes[1 + n], or a request[5], or close, or wait */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <unistd.h>

#include "boot/store_proto.h"
#include "boot/store_server.h"
#include "fuzz.h"

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
    weft__store_print_reply(&reply, again);
    CHECK(memcmp(again, data, sizeof(again)) == 0);
}

/* ---- a live server ----------------------------------------------------------------------- */

typedef struct bench {
    weft_store_server_t *server;
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

static void put(bench_t *bench, int who, const void *bytes, size_t count)
{
    if (bench->fds[who] >= 0 && count > 0) {
        (void)!send(bench->fds[who], bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    step(bench);
}

static void open_client(bench_t *bench, int who)
{
    int fds[2];
    uint8_t hello[WEFT_STORE_HELLO_BYTES];
    uint8_t proof[WEFT_STORE_PROOF_BYTES] = {(uint8_t)who};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    CHECK(weft__store_server_adopt(bench->server, fds[0]) == WEFT_OK);
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
    uint8_t frame[WEFT_STORE_REQUEST_BYTES + 4 + 256];
    weft_store_request_t request = {
        .op = (weft_store_op_t)(WEFT_STORE_SET + seed[0] % (WEFT_STORE_OP_END - WEFT_STORE_SET)),
        .key_bytes = 1 + seed[1] % 2,
    };
    if (request.op == WEFT_STORE_SET || request.op == WEFT_STORE_OFFER ||
        request.op == WEFT_STORE_WILL) {
        request.value_bytes = seed[2];
    }
    if (request.op == WEFT_STORE_GET || request.op == WEFT_STORE_BARRIER) {
        request.timeout_ms = timeouts[seed[3] % 4];
    }
    if (request.op == WEFT_STORE_ADD || request.op == WEFT_STORE_BARRIER) {
        request.number = numbers[seed[4] % 8];
    }
    weft__store_print_request(&request, frame);
    memset(frame + WEFT_STORE_REQUEST_BYTES, 'a' + seed[1] % 3, 4 + 256);
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

static void run_script(const uint8_t *data, size_t size)
{
    bench_t bench = {0};
    CHECK(weft__store_server_create(-1, secret, false, &bench.server) == WEFT_OK);
    for (int i = 0; i < CLIENTS; i++) {
        open_client(&bench, i);
    }
    while (size > 0) {
        int who = data[0] % CLIENTS;
        int what = data[0] / CLIENTS % 8;
        data++;
        size--;
        if (what == 0 && size > 0) {
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
    fuzz_data = data;
    fuzz_size = size;
    if (size > 0 && data[0] % 2 == 0) {
        check_request(data + 1, size - 1);
        check_reply(data + 1, size - 1);
    } else if (size > 0) {
        run_script(data + 1, size - 1);
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

static const fuzz_seed_t seeds[] = {
    {set_a, sizeof(set_a)},
    {barrier_b, sizeof(barrier_b)},
    {meeting, sizeof(meeting)},
    {waiting, sizeof(waiting)},
};

FUZZ_MAIN(seeds, sizeof(seeds) / sizeof(seeds[0]), 20000)
