#include "comm/group_cases.h"

#include <stdlib.h>

#include "comm/data.h"
#include "comm/memory.h"

/* A call with its own buffers and data, and how to check it. */
typedef struct item {
    enum { ALLREDUCE, BROADCAST, ALLGATHER, REDUCE, SEND, RECV, KINDS } kind;
    size_t count;
    int peer; /* root, or the other rank */
    data_t data;
    buffer_t src, dst;
} item_t;

/* Every other buffer is plain memory. */
static void open_buffer(buffer_t *buffer, unsigned i, size_t bytes)
{
    buffer_open(buffer, bytes, i % 2 == 0);
}

static void make_item(item_t *it, const team_t *team, unsigned i)
{
    size_t element = weft_dtype_size(it->data.type), bytes = it->count * element;
    open_buffer(&it->src, i, bytes);
    open_buffer(&it->dst, i / 2, bytes * (size_t)team->size);
    data_fill(&it->data, team->rank, 0, it->count, it->src.host);
    memset(it->dst.host, 0x77, bytes * (size_t)team->size);
    buffer_push_all(&it->src);
    buffer_push_all(&it->dst);
}

static void drop_item(item_t *it)
{
    buffer_close(&it->src);
    buffer_close(&it->dst);
}

static weft_status_t issue(const item_t *it, weft_comm_h comm, weft_stream_h stream)
{
    weft_dtype_t type = it->data.type;
    switch (it->kind) {
    case ALLREDUCE:
        return weft_allreduce(it->src.at, it->dst.at, it->count, type, it->data.op, comm, stream);
    case BROADCAST:
        return weft_broadcast(it->src.at, it->dst.at, it->count, type, it->peer, comm, stream);
    case ALLGATHER:
        return weft_allgather(it->src.at, it->dst.at, it->count, type, comm, stream);
    case REDUCE:
        return weft_reduce(it->src.at, it->dst.at, it->count, type, it->data.op, it->peer, comm,
                           stream);
    case SEND:
        return weft_send(it->src.at, it->count, type, it->peer, comm, stream);
    default:
        return weft_recv(it->dst.at, it->count, type, it->peer, comm, stream);
    }
}

static void check_item(const item_t *it, const team_t *team, unsigned i)
{
    size_t wrong = 0, bytes = it->count * weft_dtype_size(it->data.type);
    bool good = true;
    buffer_pull_all(&it->dst);
    switch (it->kind) {
    case ALLREDUCE:
        good = data_check(&it->data, DATA_REDUCED, 0, it->count, it->dst.host, &wrong);
        break;
    case REDUCE:
        good = team->rank != it->peer ||
               data_check(&it->data, DATA_REDUCED, 0, it->count, it->dst.host, &wrong);
        break;
    case ALLGATHER:
        for (int p = 0; p < team->size && good; p++) {
            good = data_check(&it->data, p, 0, it->count, it->dst.host + (size_t)p * bytes, &wrong);
        }
        break;
    case BROADCAST:
    case RECV:
        good = data_check(&it->data, it->peer, 0, it->count, it->dst.host, &wrong);
        break;
    default:
        break;
    }
    if (!good) {
        FAIL("item %u (kind %d, %zu %s) is wrong from %zu on", i, it->kind, it->count,
             weft_dtype_name(it->data.type), wrong);
    }
}

/* ---- mixed calls -------------------------------------------------------------------------- */

#define MIXED 100

static item_t mixed_item(const team_t *team, unsigned i, unsigned salt)
{
    static const size_t counts[] = {1, 7, 100, 3000, 20000, 0};
    uint64_t x = data_mix(i + 1000 * (uint64_t)salt);
    item_t it = {.kind = (int)(x % SEND),
                 .count = counts[x / 16 % 6],
                 .peer = (int)(x / 128 % (unsigned)team->size)};
    weft_op_t op = it.kind == ALLREDUCE || it.kind == REDUCE ? WEFT_SUM : DATA_RAW;
    it.data = (data_t){(weft_dtype_t)(x / 1024 % 3), op, team->size, i};
    if (i % 4 == 3 && i < 96) { /* to the right, and from the left */
        int step = 1 + (int)(i / 8 % (unsigned)team->size);
        it.kind = i % 8 == 3 ? SEND : RECV;
        it.peer = it.kind == SEND ? (team->rank + step) % team->size
                                  : (team->rank - step + 8 * team->size) % team->size;
        it.data = (data_t){WEFT_F32, DATA_RAW, team->size, i / 8 + 5000};
        it.count = counts[i / 8 % 6] * 3;
    }
    return it;
}

void group_mixed(team_t *team)
{
    for (unsigned salt = 0; salt < 5; salt++) {
        item_t items[MIXED];
        for (unsigned i = 0; i < MIXED; i++) {
            items[i] = mixed_item(team, i, salt);
            make_item(&items[i], team, i + salt);
        }
        team_note("a group of %d calls, %u", MIXED, salt);
        team_meet(team);
        CHECK_OK(weft_group_start());
        for (unsigned i = 0; i < MIXED; i++) {
            CHECK_OK(issue(&items[i], team->comm, NULL));
        }
        CHECK_OK(weft_group_end());
        for (unsigned i = 0; i < MIXED; i++) {
            check_item(&items[i], team, i);
            drop_item(&items[i]);
        }
    }
}

/* ---- all-reduces that are fused ------------------------------------------------------------- */

#define FUSED 300

void group_fused(team_t *team)
{
    item_t items[FUSED];
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < FUSED; i++) {
            size_t count = round == 0 ? 5 : data_mix(i) % (round == 1 ? 40 : 3000);
            weft_dtype_t type = round == 2 && i % 50 > 40 ? WEFT_I32 : WEFT_F32;
            weft_op_t op = round == 2 && i % 70 > 60 ? WEFT_MAX : WEFT_SUM;
            items[i] = (item_t){.kind = ALLREDUCE,
                                .count = i % 10 == 9 ? 0 : count,
                                .data = {type, op, team->size, i}};
            make_item(&items[i], team, i);
        }
        team_note("fused, round %u", round);
        team_meet(team);
        CHECK_OK(weft_group_start());
        for (unsigned i = 0; i < FUSED; i++) {
            const item_t *it = &items[i];
            if (it->count == 0) {
                CHECK_OK(
                    weft_allreduce(NULL, NULL, 0, it->data.type, it->data.op, team->comm, NULL));
            } else if (i % 3 == 0) { /* in place */
                CHECK_OK(weft_memcpy(it->dst.at, it->src.at, it->count * 4, NULL));
                CHECK_OK(weft_allreduce(it->dst.at, it->dst.at, it->count, it->data.type,
                                        it->data.op, team->comm, NULL));
            } else {
                CHECK_OK(issue(it, team->comm, NULL));
            }
        }
        CHECK_OK(weft_group_end());
        for (unsigned i = 0; i < FUSED; i++) {
            check_item(&items[i], team, i);
            drop_item(&items[i]);
        }
    }
}

static const size_t piece_counts[] = {1, 3, 0, 8, 17, 64, 5, 2, 129};
#define PIECES ((int)(sizeof(piece_counts) / sizeof(piece_counts[0])))
#define GAP 3 /* elements between pieces, which nobody may touch */
#define PIECE_ROOM ((GAP + 129) * PIECES * 8)

/* Where piece i begins, in bytes. */
static size_t piece_at(int i, size_t element)
{
    size_t at = 1;
    for (int k = 0; k < i; k++) {
        at += piece_counts[k] + GAP;
    }
    return at * element;
}

static void check_pieces(const data_t *data, const buffer_t *dst)
{
    size_t element = weft_dtype_size(data->type), wrong, end = 0;
    buffer_pull_all(dst);
    for (int i = 0; i <= PIECES; i++) {
        size_t at = i < PIECES ? piece_at(i, element) : dst->bytes;
        for (; end < at; end++) {
            CHECK_EQ(dst->host[end], 0x55);
        }
        if (i < PIECES &&
            !data_check(data, DATA_REDUCED, at, piece_counts[i], dst->host + at, &wrong)) {
            FAIL("piece %d is wrong from element %zu on", i, wrong);
        }
        end = i < PIECES ? at + piece_counts[i] * element : end;
    }
}

void group_pieces(team_t *team)
{
    buffer_t src, dst;
    weft_stream_h stream;
    CHECK_OK(weft_stream_create(&stream));
    buffer_open(&src, PIECE_ROOM, false);
    buffer_open(&dst, PIECE_ROOM, false);
    for (int round = 0; round < WEFT_DTYPE_COUNT * WEFT_OP_COUNT * 2; round++) {
        data_t data = {(weft_dtype_t)(round / 2 / WEFT_OP_COUNT),
                       (weft_op_t)(round / 2 % WEFT_OP_COUNT), team->size, (unsigned)round};
        size_t element = weft_dtype_size(data.type);
        bool in_place = round % 2;
        const buffer_t *from = in_place ? &dst : &src;
        team_note("%s, %s%s", weft_dtype_name(data.type), weft_op_name(data.op),
                  in_place ? ", in place" : "");
        memset(dst.host, 0x55, dst.bytes);
        for (int i = 0; i < PIECES; i++) {
            size_t at = piece_at(i, element);
            data_fill(&data, team->rank, at, piece_counts[i], from->host + at);
        }
        buffer_push_all(&src);
        buffer_push_all(&dst);
        team_meet(team);
        CHECK_OK(weft_group_start());
        for (int i = 0; i < PIECES; i++) {
            size_t at = piece_at(i, element);
            CHECK_OK(weft_allreduce(from->at + at, dst.at + at, piece_counts[i], data.type, data.op,
                                    team->comm, round % 3 ? stream : NULL));
        }
        CHECK_OK(weft_group_end());
        CHECK_OK(weft_stream_synchronize(stream));
        check_pieces(&data, &dst);
        team_meet(team);
    }
    buffer_close(&src);
    buffer_close(&dst);
    CHECK_OK(weft_stream_destroy(stream));
}

/* ---- sends and receives --------------------------------------------------------------------- */

#define EACH 5

/* Several messages of different sizes between all pairs (oneself included), in a different order on
 * every rank; only the order within a pair is the same. */
void group_messages(team_t *team)
{
    static const size_t counts[EACH] = {10, 70000, 0, 3000, 3};
    int n = team->size * EACH * 2;
    item_t *items = calloc((size_t)n, sizeof(*items));
    int *next = calloc((size_t)team->size * 2, sizeof(*next));
    CHECK(items && next);
    for (int i = 0; i < n; i++) {
        bool send = i % 2;
        int peer = i / 2 % team->size, k = i / 2 / team->size;
        int from = send ? team->rank : peer, to = send ? peer : team->rank;
        unsigned salt = (unsigned)(from * 100 + to * 10 + k);
        items[i] = (item_t){.kind = send ? SEND : RECV,
                            .count = counts[(k + from) % EACH],
                            .peer = peer,
                            .data = {WEFT_F32, DATA_RAW, team->size, salt}};
        make_item(&items[i], team, (unsigned)(i + i / 7));
    }
    team_note("all pairs in any order");
    team_meet(team);
    CHECK_OK(weft_group_start());
    for (int done = 0, turn = 0; done < n; turn++) {
        uint64_t x = data_mix((uint64_t)turn * 100 + (uint64_t)team->rank);
        int peer = (int)(x % (unsigned)team->size), send = (int)(x >> 32 & 1);
        int k = next[2 * peer + send];
        if (k < EACH) {
            CHECK_OK(issue(&items[2 * (k * team->size + peer) + send], team->comm, NULL));
            next[2 * peer + send]++;
            done++;
        }
    }
    CHECK_OK(weft_group_end());
    for (int i = 0; i < n; i++) {
        check_item(&items[i], team, (unsigned)i);
        drop_item(&items[i]);
    }
    free(items);
    free(next);
}

/* Everybody sends a large message to the right before it receives one from the left. */
void group_ring(team_t *team)
{
    const size_t count = 1500001;
    int right = (team->rank + 1) % team->size, left = (team->rank + team->size - 1) % team->size;
    data_t data = {WEFT_F32, DATA_RAW, team->size, 9};
    size_t wrong;
    for (unsigned kind = 0; kind < 4; kind++) {
        buffer_t out, in;
        open_buffer(&out, kind, count * 4);
        open_buffer(&in, kind / 2 + (unsigned)team->rank, count * 4);
        team_note("ring of large messages, kind %u", kind);
        data_fill(&data, team->rank, 0, count, out.host);
        buffer_push_all(&out);
        team_meet(team);
        CHECK_OK(weft_group_start());
        CHECK_OK(weft_send(out.at, count, WEFT_F32, right, team->comm, NULL));
        CHECK_OK(weft_recv(in.at, count, WEFT_F32, left, team->comm, NULL));
        CHECK_OK(weft_group_end());
        buffer_pull_all(&in);
        CHECK(data_check(&data, left, 0, count, in.host, &wrong));
        buffer_close(&out);
        buffer_close(&in);
    }
}

void group_self(team_t *team)
{
    static const size_t counts[] = {0, 1, 32, 33, 8192, 8193, 500003};
    data_t data = {WEFT_U8, DATA_RAW, team->size, 4};
    buffer_t out, in;
    size_t wrong;
    open_buffer(&out, 0, 600000);
    open_buffer(&in, 1, 600000);
    CHECK_STATUS(weft_send(out.at, 3, WEFT_U8, team->rank, team->comm, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "weft_group_start");
    CHECK_STATUS(weft_recv(in.at, 3, WEFT_U8, team->rank, team->comm, NULL), WEFT_ERR_INVALID);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        team_note("%zu bytes to oneself", counts[i]);
        data_fill(&data, team->rank, i, counts[i], out.host);
        memset(in.host, 0, counts[i]);
        buffer_push_all(&out);
        buffer_push_all(&in);
        CHECK_OK(weft_group_start());
        CHECK_OK(weft_recv(in.at, counts[i], WEFT_U8, team->rank, team->comm, NULL));
        CHECK_OK(weft_send(out.at, counts[i], WEFT_U8, team->rank, team->comm, NULL));
        CHECK_OK(weft_group_end());
        buffer_pull_all(&in);
        CHECK(data_check(&data, team->rank, i, counts[i], in.host, &wrong));
    }
    buffer_close(&out);
    buffer_close(&in);
}

/* Memory that nobody has seen before. */
void group_self_anew(team_t *team)
{
    data_t data = {WEFT_U8, DATA_RAW, team->size, 4};
    for (size_t i = 0; i < 40; i++) {
        size_t count = 1000 + 300 * i, wrong;
        buffer_t out, in;
        open_buffer(&out, 0, count);
        open_buffer(&in, 0, count);
        team_note("new memory of %zu bytes to oneself", count);
        data_fill(&data, team->rank, i, count, out.host);
        buffer_push_all(&out);
        CHECK_OK(weft_group_start());
        CHECK_OK(weft_send(out.at, count, WEFT_U8, team->rank, team->comm, NULL));
        CHECK_OK(weft_recv(in.at, count, WEFT_U8, team->rank, team->comm, NULL));
        CHECK_OK(weft_group_end());
        buffer_pull_all(&in);
        CHECK(data_check(&data, team->rank, i, count, in.host, &wrong));
        buffer_close(&out);
        buffer_close(&in);
    }
    team_meet(team); /* new memory is for all, so nobody may be gone */
}

/* ---- nesting, refusals ---------------------------------------------------------------------- */

void group_nested(team_t *team)
{
    float a = (float)team->rank, b = 0, c = 2, d = 0;
    CHECK_STATUS(weft_group_end(), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "weft_group_start");
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_group_end()); /* an empty one */
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_allreduce(&a, &b, 1, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_allreduce(&c, &d, 1, WEFT_F32, WEFT_PROD, team->comm, NULL));
    CHECK_OK(weft_group_end());
    CHECK(b == 0 && d == 0); /* the outermost end runs them */
    CHECK_OK(weft_group_end());
    CHECK_EQ(b, team->size * (team->size - 1) / 2);
    CHECK_EQ(d, 1 << team->size);
}

void group_refused(team_t *team)
{
    float a = 1, b = 0, c[4] = {0};
    size_t one[TEAM_MOST] = {0};
    team_note("a group with a refused call");
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_allreduce(&a, &b, 1, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_OK(weft_alltoallv(NULL, one, one, NULL, one, one, WEFT_F32, team->comm, NULL));
    CHECK_STATUS(weft_broadcast(&a, &b, 1, WEFT_F32, -1, team->comm, NULL), WEFT_ERR_INVALID);
    CHECK_OK(weft_allreduce(&a, &b, 1, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_STATUS(weft_alltoallv(NULL, NULL, one, NULL, one, one, WEFT_F32, team->comm, NULL),
                 WEFT_ERR_INVALID);
    CHECK_STATUS(weft_group_end(), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "root -1"); /* the first one */
    CHECK(b == 0);
    team_note("after it");
    CHECK_OK(weft_allreduce(&a, &b, 1, WEFT_F32, WEFT_SUM, team->comm, NULL));
    CHECK_EQ(b, team->size);
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_group_start());
    CHECK_STATUS(weft_allreduce(c, c + 1, 2, WEFT_F32, WEFT_SUM, team->comm, NULL),
                 WEFT_ERR_INVALID);
    CHECK_OK(weft_group_end());
    CHECK_STATUS(weft_group_end(), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "overlap");
    CHECK_OK(weft_barrier(team->comm, NULL));
}

/* A communicator that is gone by the end of the group is refused, not followed. */
void group_destroyed(team_t *team)
{
    float a = 1, b = 0;
    weft_comm_h child;
    CHECK_OK(weft_comm_split(team->comm, 0, 0, &child, NULL));
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_allreduce(&a, &b, 1, WEFT_F32, WEFT_SUM, child, NULL));
    CHECK_STATUS(weft_comm_destroy(child), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "weft_group_end");
    CHECK_OK(weft_group_end());
    CHECK(b == (float)team->size);
    CHECK_OK(weft_comm_destroy(child));
    /* An abort takes it away all the same. */
    CHECK_OK(weft_comm_split(team->comm, 0, 0, &child, NULL));
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_allreduce(&a, &b, 1, WEFT_F32, WEFT_SUM, child, NULL));
    CHECK_OK(weft_comm_abort(child));
    b = 0;
    CHECK_STATUS(weft_group_end(), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "destroyed");
    CHECK(b == 0);
    CHECK_OK(weft_barrier(team->comm, NULL));
}

/* ---- streams in a group ---------------------------------------------------------------------- */

static void slow_fill(void *arg)
{
    team_sleep(0.1);
    *(float *)arg = 42;
}

/* Calls of one batch on different streams: each waits for what its stream holds, and what has no
 * stream is done at the end. */
void group_streams(team_t *team)
{
    int right = (team->rank + 1) % team->size, left = (team->rank + team->size - 1) % team->size;
    weft_stream_h s;
    CHECK_OK(weft_stream_create(&s));
    for (int order = 0; order < 2; order++) {
        float out = 0, in = 0, seen;
        team_note("send on a stream, receive on none, order %d", order);
        CHECK_OK(weft_stream_call(s, slow_fill, &out));
        CHECK_OK(weft_group_start());
        if (order == 0) {
            CHECK_OK(weft_send(&out, 1, WEFT_F32, right, team->comm, s));
        }
        CHECK_OK(weft_recv(&in, 1, WEFT_F32, left, team->comm, NULL));
        if (order == 1) {
            CHECK_OK(weft_send(&out, 1, WEFT_F32, right, team->comm, s));
        }
        CHECK_OK(weft_group_end());
        seen = in;
        CHECK_OK(weft_stream_synchronize(s));
        CHECK_EQ(seen, 42);
    }
    CHECK_OK(weft_stream_destroy(s));
}

/* ---- one thread drives all ranks ---------------------------------------------------------- */

#define DRIVEN_MOST 8
#define DRIVEN_COUNT 5000

typedef struct driven {
    int n;
    weft_comm_h comms[DRIVEN_MOST];
    weft_stream_h streams[DRIVEN_MOST]; /* all NULL, or one each */
    buffer_t src[DRIVEN_MOST], dst[DRIVEN_MOST];
} driven_t;

/* Ranks in their order, or (odd rounds) mixed up: 1 0 3 2 ..., from the end. */
static int in_turn(const driven_t *d, int round, int k)
{
    int i = d->n - 1 - k;
    return round % 2 == 0 ? k : (i ^ 1) < d->n ? i ^ 1 : i;
}

static void drive_collectives(driven_t *d, int round)
{
    data_t data = {WEFT_F32, WEFT_SUM, d->n, 3};
    int root = 2 % d->n;
    size_t wrong;
    for (int i = 0; i < d->n; i++) {
        data_fill(&data, i, 0, DRIVEN_COUNT, d->src[i].host);
        buffer_push_all(&d->src[i]);
    }
    CHECK_OK(weft_group_start());
    for (int k = 0; k < d->n; k++) {
        int i = in_turn(d, round, k);
        CHECK_OK(weft_allreduce(d->src[i].at, d->dst[i].at, DRIVEN_COUNT, WEFT_F32, WEFT_SUM,
                                d->comms[i], d->streams[i]));
    }
    for (int k = 0; k < d->n; k++) { /* in place, all elements are the same afterwards */
        int i = in_turn(d, round, d->n - 1 - k);
        CHECK_OK(weft_broadcast(d->src[i].at, d->src[i].at, 10, WEFT_F32, root, d->comms[i],
                                d->streams[i]));
        CHECK_OK(weft_barrier(d->comms[i], d->streams[i]));
    }
    CHECK_OK(weft_group_end());
    for (int i = 0; i < d->n; i++) {
        CHECK_OK(d->streams[i] ? weft_stream_synchronize(d->streams[i]) : WEFT_OK);
        buffer_pull_all(&d->src[i]);
        buffer_pull_all(&d->dst[i]);
        CHECK(data_check(&data, DATA_REDUCED, 0, DRIVEN_COUNT, d->dst[i].host, &wrong));
        CHECK(data_check(&data, root, 0, 10, d->src[i].host, &wrong));
    }
}

static void drive_messages(driven_t *d, int round, size_t count)
{
    data_t data = {WEFT_U8, DATA_RAW, d->n, 3};
    size_t wrong;
    for (int i = 0; i < d->n; i++) {
        data_fill(&data, i, 0, count, d->src[i].host);
        buffer_push_all(&d->src[i]);
    }
    CHECK_OK(weft_group_start());
    for (int k = 0; k < d->n; k++) {
        int i = in_turn(d, round, k), to = (i + 2) % d->n, from = (i + d->n - 2 % d->n) % d->n;
        CHECK_OK(weft_send(d->src[i].at, count, WEFT_U8, to, d->comms[i], d->streams[i]));
        CHECK_OK(weft_recv(d->dst[i].at, count, WEFT_U8, from, d->comms[i], d->streams[i]));
    }
    CHECK_OK(weft_group_end());
    for (int i = 0; i < d->n; i++) {
        CHECK_OK(d->streams[i] ? weft_stream_synchronize(d->streams[i]) : WEFT_OK);
        buffer_pull_all(&d->dst[i]);
        int from = (i + d->n - 2 % d->n) % d->n;
        CHECK(data_check(&data, from, 0, count, d->dst[i].host, &wrong));
    }
}

static void drive_all(driven_t *d)
{
    for (int i = 0; i < d->n; i++) {
        open_buffer(&d->src[i], (unsigned)i, DRIVEN_COUNT * 4);
        open_buffer(&d->dst[i], (unsigned)i / 2, DRIVEN_COUNT * 4);
    }
    for (int streams = 0; streams < 2; streams++) {
        for (int round = 0; round < 10; round++) {
            team_note("one thread, %d ranks, %s, round %d", d->n,
                      streams ? "streams" : "no streams", round);
            drive_collectives(d, round);
            drive_messages(d, round, round % 3 == 0 ? 20 : DRIVEN_COUNT * 4);
        }
        for (int i = 0; i < d->n && streams == 0; i++) {
            CHECK_OK(weft_device_set(i));
            CHECK_OK(weft_stream_create(&d->streams[i]));
        }
    }
    for (int i = 0; i < d->n; i++) {
        CHECK_OK(weft_stream_destroy(d->streams[i]));
        CHECK_OK(weft_comm_destroy(d->comms[i]));
        buffer_close(&d->src[i]);
        buffer_close(&d->dst[i]);
    }
}

void group_driven(team_t *team)
{
    driven_t d = {.n = *(const int *)team->arg};
    CHECK_OK(weft_comm_init_all(d.comms, d.n, NULL));
    drive_all(&d);
}

void group_joined(team_t *team)
{
    driven_t d = {.n = *(const int *)team->arg};
    CHECK_OK(weft_group_start());
    for (int i = d.n - 1; i >= 0; i--) {
        CHECK_OK(weft_comm_init_rank(&d.comms[i], d.n, team->id, i, NULL));
        CHECK(d.comms[i] == NULL); /* not before the end of the group */
    }
    CHECK_OK(weft_group_end());
    drive_all(&d);
}

/* Two processes, three ranks in each, all ranks of a process driven by its one thread. */
void group_joined_by_two(team_t *team)
{
    weft_comm_h comms[3] = {NULL};
    float in[3], out[3];
    CHECK_OK(weft_group_start());
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft_comm_init_rank(&comms[i], 6, team->id, 3 * team->rank + i, NULL));
    }
    CHECK_OK(weft_group_end());
    for (int round = 0; round < 20; round++) {
        team_note("three ranks of six, round %d", round);
        CHECK_OK(weft_group_start());
        for (int i = 0; i < 3; i++) {
            in[i] = (float)(round + 3 * team->rank + i);
            CHECK_OK(weft_allreduce(&in[i], &out[i], 1, WEFT_F32, WEFT_SUM, comms[i], NULL));
        }
        CHECK_OK(weft_group_end());
        for (int i = 0; i < 3; i++) {
            CHECK_EQ(out[i], 6 * round + 15);
        }
    }
    for (int i = 0; i < 3; i++) {
        CHECK_OK(weft_comm_destroy(comms[i]));
    }
}

void group_join_refused(team_t *team)
{
    weft_comm_h comms[2] = {NULL};
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_comm_init_rank(&comms[0], 2, team->id, 0, NULL));
    CHECK_STATUS(weft_comm_init_rank(&comms[1], 2, team->id, 2, NULL), WEFT_ERR_INVALID);
    CHECK_STATUS(weft_group_end(), WEFT_ERR_INVALID);
    CHECK(comms[0] == NULL && comms[1] == NULL);
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_comm_init_rank(&comms[0], 2, team->id, 0, NULL));
    CHECK_OK(weft_comm_init_rank(&comms[1], 2, team->id, 1, NULL));
    CHECK_OK(weft_group_end());
    CHECK_OK(weft_comm_destroy(comms[0]));
    CHECK_OK(weft_comm_destroy(comms[1]));
}
