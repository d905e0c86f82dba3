/* ctest: timeout=120 tsan */
/* Groups: many calls as one, sends and receives in any order, several ranks driven by one thread. */
#include <setjmp.h>
#include <stdlib.h>

#include "comm/data.h"
#include "comm/harness.h"

#include <cmocka.h>

/* A call with its own buffers and data, and how to check it. */
typedef struct item {
    enum { ALLREDUCE, BROADCAST, ALLGATHER, REDUCE, SEND, RECV, KINDS } kind;
    size_t count;
    int peer; /* root, or the other rank */
    data_t data;
    char *src, *dst;
} item_t;

/* Every other buffer is plain memory. */
static void *get(unsigned i, size_t bytes)
{
    void *memory = NULL;
    if (i % 2) {
        CHECK_OK(weft_malloc(&memory, bytes));
    } else {
        memory = malloc(bytes + 1);
        CHECK(memory);
    }
    return memory;
}

static void put(unsigned i, void *memory)
{
    if (i % 2) {
        CHECK_OK(weft_free(memory));
    } else {
        free(memory);
    }
}

static void make_item(item_t *it, const team_t *team, unsigned i)
{
    size_t element = weft_dtype_size(it->data.type), bytes = it->count * element;
    it->src = get(i, bytes);
    it->dst = get(i / 2, bytes * (size_t)team->size);
    data_fill(&it->data, team->rank, 0, it->count, it->src);
    memset(it->dst, 0x77, bytes * (size_t)team->size);
}

static weft_status_t issue(const item_t *it, weft_comm_h comm, weft_stream_h stream)
{
    weft_dtype_t type = it->data.type;
    switch (it->kind) {
    case ALLREDUCE:
        return weft_allreduce(it->src, it->dst, it->count, type, it->data.op, comm, stream);
    case BROADCAST:
        return weft_broadcast(it->src, it->dst, it->count, type, it->peer, comm, stream);
    case ALLGATHER:
        return weft_allgather(it->src, it->dst, it->count, type, comm, stream);
    case REDUCE:
        return weft_reduce(it->src, it->dst, it->count, type, it->data.op, it->peer, comm, stream);
    case SEND:
        return weft_send(it->src, it->count, type, it->peer, comm, stream);
    default:
        return weft_recv(it->dst, it->count, type, it->peer, comm, stream);
    }
}

static void check_item(const item_t *it, const team_t *team, unsigned i)
{
    size_t wrong = 0, bytes = it->count * weft_dtype_size(it->data.type);
    bool good = true;
    switch (it->kind) {
    case ALLREDUCE:
        good = data_check(&it->data, DATA_REDUCED, 0, it->count, it->dst, &wrong);
        break;
    case REDUCE:
        good = team->rank != it->peer ||
               data_check(&it->data, DATA_REDUCED, 0, it->count, it->dst, &wrong);
        break;
    case ALLGATHER:
        for (int p = 0; p < team->size && good; p++) {
            good = data_check(&it->data, p, 0, it->count, it->dst + (size_t)p * bytes, &wrong);
        }
        break;
    case BROADCAST:
    case RECV:
        good = data_check(&it->data, it->peer, 0, it->count, it->dst, &wrong);
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

static void mixed_calls(team_t *team)
{
    for (unsigned salt = 0; salt < 5; salt++) {
        item_t items[MIXED];
        for (unsigned i = 0; i < MIXED; i++) {
            items[i] = mixed_item(team, i, salt);
            make_item(&items[i], team, i + salt);
        }
        team_note("a group of %d calls, %u", MIXED, salt);
        CHECK_OK(weft_group_start());
        for (unsigned i = 0; i < MIXED; i++) {
            CHECK_OK(issue(&items[i], team->comm, NULL));
        }
        CHECK_OK(weft_group_end());
        for (unsigned i = 0; i < MIXED; i++) {
            check_item(&items[i], team, i);
            put(i + salt, items[i].src);
            put((i + salt) / 2, items[i].dst);
        }
    }
}

/* ---- all-reduces that are fused ------------------------------------------------------------- */

#define FUSED 300

static void fused_calls(team_t *team)
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
        CHECK_OK(weft_group_start());
        for (unsigned i = 0; i < FUSED; i++) {
            const item_t *it = &items[i];
            if (it->count == 0) {
                CHECK_OK(
                    weft_allreduce(NULL, NULL, 0, it->data.type, it->data.op, team->comm, NULL));
            } else if (i % 3 == 0) { /* in place */
                memcpy(it->dst, it->src, it->count * 4);
                CHECK_OK(weft_allreduce(it->dst, it->dst, it->count, it->data.type, it->data.op,
                                        team->comm, NULL));
            } else {
                CHECK_OK(issue(it, team->comm, NULL));
            }
        }
        CHECK_OK(weft_group_end());
        for (unsigned i = 0; i < FUSED; i++) {
            check_item(&items[i], team, i);
            put(i, items[i].src);
            put(i / 2, items[i].dst);
        }
    }
}

/* ---- sends and receives --------------------------------------------------------------------- */

#define EACH 5

/* Several messages of different sizes between all pairs (oneself included), in a different order on
 * every rank; only the order within a pair is the same. */
static void every_order(team_t *team)
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
        put((unsigned)(i + i / 7), items[i].src);
        put((unsigned)(i + i / 7) / 2, items[i].dst);
    }
    free(items);
    free(next);
}

/* Everybody sends a large message to the right before it receives one from the left. */
static void large_ring(team_t *team)
{
    const size_t count = 1500001;
    int right = (team->rank + 1) % team->size, left = (team->rank + team->size - 1) % team->size;
    data_t data = {WEFT_F32, DATA_RAW, team->size, 9};
    size_t wrong;
    for (unsigned kind = 0; kind < 4; kind++) {
        float *out = get(kind, count * 4), *in = get(kind / 2 + (unsigned)team->rank, count * 4);
        team_note("ring of large messages, kind %u", kind);
        data_fill(&data, team->rank, 0, count, out);
        CHECK_OK(weft_group_start());
        CHECK_OK(weft_send(out, count, WEFT_F32, right, team->comm, NULL));
        CHECK_OK(weft_recv(in, count, WEFT_F32, left, team->comm, NULL));
        CHECK_OK(weft_group_end());
        CHECK(data_check(&data, left, 0, count, in, &wrong));
        put(kind, out);
        put(kind / 2 + (unsigned)team->rank, in);
    }
}

static void self_send(team_t *team)
{
    static const size_t counts[] = {0, 1, 32, 33, 8192, 8193, 500003};
    data_t data = {WEFT_U8, DATA_RAW, team->size, 4};
    char *out = get(0, 600000), *in = get(1, 600000);
    size_t wrong;
    CHECK_STATUS(weft_send(out, 3, WEFT_U8, team->rank, team->comm, NULL), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_last_error(), "weft_group_start");
    CHECK_STATUS(weft_recv(in, 3, WEFT_U8, team->rank, team->comm, NULL), WEFT_ERR_INVALID);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        team_note("%zu bytes to oneself", counts[i]);
        data_fill(&data, team->rank, i, counts[i], out);
        memset(in, 0, counts[i]);
        CHECK_OK(weft_group_start());
        CHECK_OK(weft_recv(in, counts[i], WEFT_U8, team->rank, team->comm, NULL));
        CHECK_OK(weft_send(out, counts[i], WEFT_U8, team->rank, team->comm, NULL));
        CHECK_OK(weft_group_end());
        CHECK(data_check(&data, team->rank, i, counts[i], in, &wrong));
    }
    put(0, out);
    put(1, in);
}

/* ---- nesting, refusals ---------------------------------------------------------------------- */

static void nested(team_t *team)
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

static void refused(team_t *team)
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
static void destroyed_inside(team_t *team)
{
    float a = 1, b = 0;
    weft_comm_h child;
    CHECK_OK(weft_comm_split(team->comm, 0, 0, &child, NULL));
    CHECK_OK(weft_group_start());
    CHECK_OK(weft_allreduce(&a, &b, 1, WEFT_F32, WEFT_SUM, child, NULL));
    CHECK_OK(weft_comm_destroy(child));
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
static void streams_of_a_batch(team_t *team)
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

/* ---- one thread drives all ranks --------------------------------------------------------------- */

#define DRIVEN 6
#define DRIVEN_COUNT 5000

typedef struct driven {
    weft_comm_h comms[DRIVEN];
    weft_stream_h streams[DRIVEN]; /* all NULL, or one each */
    char *src[DRIVEN], *dst[DRIVEN];
} driven_t;

static void drive_collectives(driven_t *d, const int *order)
{
    data_t data = {WEFT_F32, WEFT_SUM, DRIVEN, 3};
    size_t wrong;
    for (int i = 0; i < DRIVEN; i++) {
        data_fill(&data, i, 0, DRIVEN_COUNT, d->src[i]);
    }
    CHECK_OK(weft_group_start());
    for (int k = 0; k < DRIVEN; k++) {
        int i = order[k];
        CHECK_OK(weft_allreduce(d->src[i], d->dst[i], DRIVEN_COUNT, WEFT_F32, WEFT_SUM, d->comms[i],
                                d->streams[i]));
    }
    for (int k = 0; k < DRIVEN; k++) { /* in place, all elements are the same afterwards */
        int i = order[DRIVEN - 1 - k];
        CHECK_OK(weft_broadcast(d->src[i], d->src[i], 10, WEFT_F32, 2, d->comms[i], d->streams[i]));
        CHECK_OK(weft_barrier(d->comms[i], d->streams[i]));
    }
    CHECK_OK(weft_group_end());
    for (int i = 0; i < DRIVEN; i++) {
        CHECK_OK(d->streams[i] ? weft_stream_synchronize(d->streams[i]) : WEFT_OK);
        CHECK(data_check(&data, DATA_REDUCED, 0, DRIVEN_COUNT, d->dst[i], &wrong));
        CHECK(data_check(&data, 2, 0, 10, d->src[i], &wrong));
    }
}

static void drive_messages(driven_t *d, const int *order, size_t count)
{
    data_t data = {WEFT_U8, DATA_RAW, DRIVEN, 3};
    size_t wrong;
    CHECK_OK(weft_group_start());
    for (int k = 0; k < DRIVEN; k++) {
        int i = order[k];
        data_fill(&data, i, 0, count, d->src[i]);
        CHECK_OK(
            weft_send(d->src[i], count, WEFT_U8, (i + 2) % DRIVEN, d->comms[i], d->streams[i]));
        CHECK_OK(weft_recv(d->dst[i], count, WEFT_U8, (i + DRIVEN - 2) % DRIVEN, d->comms[i],
                           d->streams[i]));
    }
    CHECK_OK(weft_group_end());
    for (int i = 0; i < DRIVEN; i++) {
        CHECK_OK(d->streams[i] ? weft_stream_synchronize(d->streams[i]) : WEFT_OK);
        CHECK(data_check(&data, (i + DRIVEN - 2) % DRIVEN, 0, count, d->dst[i], &wrong));
    }
}

static void drive_all(driven_t *d)
{
    static const int orders[][DRIVEN] = {{0, 1, 2, 3, 4, 5}, {5, 3, 1, 0, 2, 4}};
    for (int i = 0; i < DRIVEN; i++) {
        d->src[i] = get((unsigned)i, DRIVEN_COUNT * 4);
        d->dst[i] = get((unsigned)i / 2, DRIVEN_COUNT * 4);
    }
    for (int streams = 0; streams < 2; streams++) {
        for (int round = 0; round < 10; round++) {
            team_note("one thread, %s, round %d", streams ? "streams" : "no streams", round);
            drive_collectives(d, orders[round % 2]);
            drive_messages(d, orders[round % 2], round % 3 == 0 ? 20 : DRIVEN_COUNT * 4);
        }
        for (int i = 0; i < DRIVEN && streams == 0; i++) {
            CHECK_OK(weft_device_set(i));
            CHECK_OK(weft_stream_create(&d->streams[i]));
        }
    }
    for (int i = 0; i < DRIVEN; i++) {
        CHECK_OK(weft_stream_destroy(d->streams[i]));
        CHECK_OK(weft_comm_destroy(d->comms[i]));
        put((unsigned)i, d->src[i]);
        put((unsigned)i / 2, d->dst[i]);
    }
}

static void driven_by_one_thread(team_t *team)
{
    driven_t d = {.streams = {NULL}};
    (void)team;
    CHECK_OK(weft_comm_init_all(d.comms, DRIVEN, NULL));
    drive_all(&d);
}

static void joined_by_one_thread(team_t *team)
{
    driven_t d = {.streams = {NULL}};
    CHECK_OK(weft_group_start());
    for (int i = DRIVEN - 1; i >= 0; i--) {
        CHECK_OK(weft_comm_init_rank(&d.comms[i], DRIVEN, team->id, i, NULL));
        CHECK(d.comms[i] == NULL); /* not before the end of the group */
    }
    CHECK_OK(weft_group_end());
    drive_all(&d);
}

/* Two processes, three ranks in each, all ranks of a process driven by its one thread. */
static void joined_by_two(team_t *team)
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

static void join_refused(team_t *team)
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

/* ---- the tests ------------------------------------------------------------------------------ */

/* As processes, as threads and mixed; only threads where races are looked for. */
static void run_teams(team_fn fn)
{
    if (!UNDER_TSAN) {
        assert_true(team_run(&(team_plan_t){.ranks = 2}, fn));
        assert_true(team_run(&(team_plan_t){.ranks = 5}, fn));
        assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 2}, fn));
    }
    assert_true(team_run(&(team_plan_t){.ranks = 4, .procs = 1}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 3, .procs = 1, .all = true}, fn));
    assert_true(team_run(&(team_plan_t){.ranks = 1}, fn));
}

#define TEAM_TEST(name, fn)                                                                        \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        run_teams(fn);                                                                             \
    }

#define BARE_TEST(name, n, fn)                                                                     \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_true(team_run(&(team_plan_t){.ranks = n, .bare = true}, fn));                       \
    }

TEAM_TEST(group_of_100_mixed_calls, mixed_calls)
TEAM_TEST(group_of_300_allreduces, fused_calls)
TEAM_TEST(messages_of_all_pairs_in_any_order, every_order)
TEAM_TEST(ring_exchange_of_large_messages, large_ring)
TEAM_TEST(send_to_self, self_send)
TEAM_TEST(groups_nest, nested)
TEAM_TEST(refused_call_runs_nothing, refused)
TEAM_TEST(comm_destroyed_inside_group, destroyed_inside)
TEAM_TEST(batch_on_different_streams, streams_of_a_batch)
BARE_TEST(one_thread_drives_init_all, 1, driven_by_one_thread)
BARE_TEST(one_thread_joins_all_ranks, 1, joined_by_one_thread)
BARE_TEST(two_processes_join_three_each, 2, joined_by_two)
BARE_TEST(refused_join_joins_nobody, 1, join_refused)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(group_of_100_mixed_calls),
        cmocka_unit_test(group_of_300_allreduces),
        cmocka_unit_test(messages_of_all_pairs_in_any_order),
        cmocka_unit_test(ring_exchange_of_large_messages),
        cmocka_unit_test(send_to_self),
        cmocka_unit_test(groups_nest),
        cmocka_unit_test(refused_call_runs_nothing),
        cmocka_unit_test(comm_destroyed_inside_group),
        cmocka_unit_test(batch_on_different_streams),
        cmocka_unit_test(one_thread_drives_init_all),
        cmocka_unit_test(one_thread_joins_all_ranks),
        cmocka_unit_test(two_processes_join_three_each),
        cmocka_unit_test(refused_join_joins_nobody),
    };
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
