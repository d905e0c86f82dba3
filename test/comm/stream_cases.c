#include "comm/stream_cases.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "comm/data.h"
#include "comm/memory.h"

#define COUNT 20000

/* `count` floats of device memory; *host_p is where the test sees them. */
static buffer_t device_floats(size_t count, float **host_p)
{
    buffer_t buffer;
    buffer_open(&buffer, count * sizeof(float), false);
    *host_p = (float *)(void *)buffer.host;
    return buffer;
}

/* ---- one stream, many calls --------------------------------------------------------------- */

/* Each call works on the result of the one before. */
void stream_row(team_t *team)
{
    weft_stream_h s;
    float plain[100], *x;
    buffer_t memory = device_floats(COUNT, &x);
    CHECK_OK(weft_stream_create(&s));
    for (int i = 0; i < COUNT; i++) {
        x[i] = 1;
    }
    for (int i = 0; i < 100; i++) {
        plain[i] = 2;
    }
    buffer_push_all(&memory);
    team_note("a row of calls");
    team_meet(team);
    for (int k = 0; k < 8; k++) {
        CHECK_OK(weft_allreduce(memory.at, memory.at, COUNT, WEFT_F32, WEFT_SUM, team->comm, s));
        CHECK_OK(weft_allreduce(plain, plain, 100, WEFT_F32, WEFT_AVG, team->comm, s));
        CHECK_OK(weft_barrier(team->comm, s));
    }
    CHECK_OK(weft_stream_synchronize(s));
    CHECK_OK(weft_stream_query(s));
    buffer_pull_all(&memory);
    double expected = 1;
    for (int k = 0; k < 8; k++) {
        expected *= team->size;
    }
    for (int i = 0; i < COUNT; i++) {
        if ((double)x[i] != expected) {
            FAIL("element %d is %g, not %g", i, (double)x[i], expected);
        }
    }
    CHECK_EQ(plain[99], 2);
    buffer_close(&memory);
    CHECK_OK(weft_stream_destroy(s));
}

/* ---- it only queues ------------------------------------------------------------------------- */

void stream_queues(team_t *team)
{
    float a = 1, b = 0;
    weft_stream_h s;
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_barrier(team->comm, NULL));
    team_meet(team);
    if (team->rank == 0) {
        double start = team_now();
        CHECK_OK(weft_allreduce(&a, &b, 1, WEFT_F32, WEFT_SUM, team->comm, s));
        CHECK_WITHIN(team_now() - start, SOON); /* not until the others come, or time is up */
        CHECK_STATUS(weft_stream_query(s), WEFT_PENDING);
        CHECK_OK(weft_comm_error(team->comm, NULL));
        team_meet(team);
    } else {
        team_meet(team); /* so the others have certainly not arrived before */
        CHECK_OK(weft_allreduce(&a, &b, 1, WEFT_F32, WEFT_SUM, team->comm, s));
    }
    CHECK_OK(weft_stream_synchronize(s));
    CHECK_EQ(b, team->size);
    CHECK_OK(weft_stream_destroy(s));
}

#define AHEAD 3000

/* Far ahead of rank 0, which comes late: with memory of the device, and with the host's. */
void stream_ahead(team_t *team)
{
    float *in, *out, *host = calloc(2 * AHEAD, sizeof(float));
    buffer_t in_memory = device_floats(AHEAD, &in), out_memory = device_floats(AHEAD, &out);
    int sum = team->size * (team->size - 1) / 2;
    weft_stream_h s;
    CHECK(host);
    CHECK_OK(weft_stream_create(&s));
    for (int i = 0; i < AHEAD; i++) {
        in[i] = host[i] = (float)(team->rank + i);
    }
    buffer_push_all(&in_memory);
    for (int own = 0; own < 2; own++) {
        const char *from = own ? (char *)host : in_memory.at;
        char *to = own ? (char *)(host + AHEAD) : out_memory.at;
        team_note("%s", own ? "host memory" : "device memory");
        team_meet(team);
        team_sleep(team->rank == 0 ? 0.5 : 0);
        for (size_t i = 0; i < AHEAD; i++) {
            CHECK_OK(
                weft_allreduce(from + 4 * i, to + 4 * i, 1, WEFT_F32, WEFT_SUM, team->comm, s));
        }
        CHECK_OK(weft_stream_synchronize(s));
        buffer_pull_all(&out_memory);
        for (int i = 0; i < AHEAD; i++) {
            CHECK((own ? host[AHEAD + i] : out[i]) == (float)(sum + team->size * i));
        }
    }
    CHECK_OK(weft_stream_destroy(s));
    buffer_close(&in_memory);
    buffer_close(&out_memory);
    free(host);
}

/* What a call on a stream writes, a large group on none reads: in its turn, also where it takes
 * several launches. */
void stream_then_group(team_t *team)
{
    enum { GROUP = 150 };
    float x = 1, y = 0, all[2 * GROUP] = {0};
    weft_stream_h s;
    CHECK_OK(weft_stream_create(&s));
    for (int round = 0; round < 5; round++) {
        x = (float)(round + 1);
        team_meet(team);
        team_sleep(team->rank == 0 ? 0.05 : 0); /* the call is not done when the group is made */
        CHECK_OK(weft_allreduce(&x, &y, 1, WEFT_F32, WEFT_SUM, team->comm, s));
        CHECK_OK(weft_group_start());
        for (int i = 0; i < GROUP; i++) {
            float *src = i == GROUP - 1 ? &y : &all[i];
            CHECK_OK(weft_allreduce(src, &all[GROUP + i], 1, WEFT_F32, WEFT_MAX, team->comm, NULL));
        }
        CHECK_OK(weft_group_end());
        CHECK_EQ(all[2 * GROUP - 1], team->size * (round + 1));
    }
    CHECK_OK(weft_stream_destroy(s));
}

/* ---- several streams ---------------------------------------------------------------------- */

#define STREAMS 3
#define CALLS 60

/* Which stream a call goes to differs from rank to rank; the order on the communicator does not. */
void stream_order(team_t *team)
{
    weft_stream_h streams[STREAMS + 1] = {NULL};
    float *in, *out;
    buffer_t in_memory = device_floats(CALLS * 50, &in);
    buffer_t out_memory = device_floats(CALLS * 50, &out);
    for (int i = 0; i < STREAMS; i++) {
        CHECK_OK(weft_stream_create(&streams[i]));
    }
    for (int i = 0; i < CALLS * 50; i++) {
        in[i] = (float)(team->rank + i / 50);
    }
    buffer_push_all(&in_memory);
    team_meet(team);
    for (int k = 0; k < CALLS; k++) {
        weft_stream_h s = streams[(k * 7 + team->rank * (k + 1)) % (STREAMS + 1)];
        size_t n = (size_t)k % 50 + 1;
        void *from = buffer_at(&in_memory, in + k * 50);
        void *to = buffer_at(&out_memory, out + k * 50);
        team_note("call %d on stream %p", k, (void *)s);
        if (k % 3 == 0) {
            CHECK_OK(weft_broadcast(from, to, n, WEFT_F32, k % team->size, team->comm, s));
        } else {
            CHECK_OK(weft_allreduce(from, to, n, WEFT_F32, WEFT_MAX, team->comm, s));
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK_OK(weft_stream_synchronize(streams[i]));
    }
    buffer_pull_all(&out_memory);
    for (int k = 0; k < CALLS; k++) {
        int expected = k + (k % 3 == 0 ? k % team->size : team->size - 1);
        CHECK_EQ(out[k * 50], expected);
        CHECK_EQ(out[k * 50 + k % 50], expected);
    }
    for (int i = 0; i < STREAMS; i++) {
        CHECK_OK(weft_stream_destroy(streams[i]));
    }
    buffer_close(&in_memory);
    buffer_close(&out_memory);
}

/* One call on each of two communicators and streams; their order differs from rank to rank. */
static void crossed_calls(team_t *team, weft_comm_h other, size_t count)
{
    weft_stream_h s, t;
    float *a, *b;
    buffer_t a_memory = device_floats(count, &a), b_memory = device_floats(count, &b);
    bool first = team->rank % 2 == 0;
    for (size_t i = 0; i < count; i++) {
        a[i] = b[i] = 1;
    }
    buffer_push_all(&a_memory);
    buffer_push_all(&b_memory);
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_stream_create(&t));
    team_note("crossed calls of %zu floats", count);
    team_meet(team);
    CHECK_OK(weft_allreduce(a_memory.at, a_memory.at, count, WEFT_F32, WEFT_SUM,
                            first ? team->comm : other, s));
    CHECK_OK(weft_allreduce(b_memory.at, b_memory.at, count, WEFT_F32, WEFT_SUM,
                            first ? other : team->comm, t));
    CHECK_OK(weft_stream_synchronize(s));
    CHECK_OK(weft_stream_synchronize(t));
    buffer_pull_all(&a_memory);
    buffer_pull_all(&b_memory);
    for (size_t i = 0; i < count; i++) {
        CHECK(a[i] == (float)team->size && b[i] == (float)team->size);
    }
    CHECK_OK(weft_stream_destroy(s));
    CHECK_OK(weft_stream_destroy(t));
    buffer_close(&a_memory);
    buffer_close(&b_memory);
}

/* Two communicators on two streams do not wait for each other, neither small nor large calls. */
void stream_comms(team_t *team)
{
    const char *kind;
    weft_comm_h other;
    CHECK_OK(weft_device_kind(&kind));
    CHECK_OK(weft_comm_split(team->comm, 0, team->rank, &other, NULL));
    crossed_calls(team, other, 1);
    crossed_calls(team, other, strcmp(kind, "cuda") == 0 ? (size_t)4 << 20 : (size_t)1 << 17);
    CHECK_OK(weft_comm_destroy(other));
}

/* ---- events ------------------------------------------------------------------------------- */

/* A step of a trainer: something is made, copied to the device, reduced, copied back and looked
 * at. */
typedef struct work {
    buffer_t data;
    float *in, *out; /* pinned */
    float value, seen;
} work_t;

static void work_open(work_t *work, float value)
{
    void *in, *out;
    float *unused;
    *work = (work_t){.data = device_floats(COUNT, &unused), .value = value};
    CHECK_OK(weft_host_malloc(&in, COUNT * sizeof(float)));
    CHECK_OK(weft_host_malloc(&out, COUNT * sizeof(float)));
    work->in = in;
    work->out = out;
}

static void work_close(work_t *work)
{
    buffer_close(&work->data);
    CHECK_OK(weft_host_free(work->in));
    CHECK_OK(weft_host_free(work->out));
}

static void produce(void *arg)
{
    work_t *work = arg;
    team_sleep(0.02);
    for (int i = 0; i < COUNT; i++) {
        work->in[i] = work->value;
    }
}

static void consume(void *arg)
{
    work_t *work = arg;
    work->seen = work->out[COUNT - 1];
}

/* Compute on one stream, communicate on another, tied by events, as a trainer does. */
void stream_overlap(team_t *team)
{
    enum { STEPS = 6 };
    const size_t bytes = COUNT * sizeof(float);
    weft_stream_h compute, comms;
    weft_event_h made[STEPS], reduced[STEPS];
    work_t work[STEPS];
    CHECK_OK(weft_stream_create(&compute));
    CHECK_OK(weft_stream_create(&comms));
    for (int k = 0; k < STEPS; k++) {
        work_open(&work[k], (float)(k + team->rank));
        CHECK_OK(weft_event_create(&made[k]));
        CHECK_OK(weft_event_create(&reduced[k]));
    }
    team_note("overlap");
    team_meet(team);
    for (int k = 0; k < STEPS; k++) {
        char *x = work[k].data.at;
        CHECK_OK(weft_stream_call(compute, produce, &work[k]));
        CHECK_OK(weft_memcpy(x, work[k].in, bytes, compute));
        CHECK_OK(weft_event_record(made[k], compute));
        CHECK_OK(weft_stream_wait(comms, made[k]));
        CHECK_OK(weft_allreduce(x, x, COUNT, WEFT_F32, WEFT_SUM, team->comm, comms));
        CHECK_OK(weft_event_record(reduced[k], comms));
    }
    for (int k = 0; k < STEPS; k++) {
        CHECK_OK(weft_stream_wait(compute, reduced[k]));
        CHECK_OK(weft_memcpy(work[k].out, work[k].data.at, bytes, compute));
        CHECK_OK(weft_stream_call(compute, consume, &work[k]));
    }
    CHECK_STATUS(weft_event_query(reduced[STEPS - 1]), WEFT_PENDING);
    CHECK_OK(weft_stream_synchronize(compute));
    CHECK_OK(weft_event_query(reduced[STEPS - 1]));
    for (int k = 0; k < STEPS; k++) {
        CHECK_EQ(work[k].seen, team->size * k + team->size * (team->size - 1) / 2);
        work_close(&work[k]);
        CHECK_OK(weft_event_destroy(made[k]));
        CHECK_OK(weft_event_destroy(reduced[k]));
    }
    CHECK_OK(weft_stream_destroy(compute));
    CHECK_OK(weft_stream_destroy(comms));
}

/* ---- other calls -------------------------------------------------------------------------- */

void stream_messages(team_t *team)
{
    weft_stream_h s, t;
    size_t wrong;
    int right = (team->rank + 1) % team->size, left = (team->rank + team->size - 1) % team->size;
    data_t data = {WEFT_F32, DATA_RAW, team->size, 1};
    float *out, *in;
    buffer_t out_memory = device_floats(COUNT, &out), in_memory = device_floats(COUNT, &in);
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_stream_create(&t));
    data_fill(&data, team->rank, 0, COUNT, out);
    buffer_push_all(&out_memory);
    team_meet(team);
    for (int k = 0; k < 10; k++) {
        team_note("messages, round %d", k);
        size_t n = k % 2 ? COUNT : 5;
        memset(in, 0, COUNT * 4);
        buffer_push_all(&in_memory);
        CHECK_OK(weft_group_start());
        CHECK_OK(weft_send(out_memory.at, n, WEFT_F32, right, team->comm, s));
        CHECK_OK(weft_recv(in_memory.at, n, WEFT_F32, left, team->comm, t));
        CHECK_OK(weft_group_end());
        CHECK_OK(weft_stream_synchronize(t));
        buffer_pull_all(&in_memory);
        CHECK(data_check(&data, left, 0, n, in, &wrong));
        CHECK_OK(weft_stream_synchronize(s));
    }
    CHECK_OK(weft_stream_destroy(s));
    CHECK_OK(weft_stream_destroy(t));
    buffer_close(&out_memory);
    buffer_close(&in_memory);
}

static void hold(void *arg)
{
    while (!atomic_load((_Atomic int *)arg)) {
        team_sleep(1e-3);
    }
}

/* The counts of an alltoallv are copied by the call; the caller may reuse them at once. */
void stream_vectors(team_t *team)
{
    weft_stream_h s;
    _Atomic int go = 0;
    float in[TEAM_MOST], out[TEAM_MOST] = {0};
    size_t counts[TEAM_MOST], offsets[TEAM_MOST];
    CHECK_OK(weft_stream_create(&s));
    for (int p = 0; p < team->size; p++) {
        in[p] = (float)(100 * team->rank + p);
        counts[p] = 1;
        offsets[p] = (size_t)p;
    }
    CHECK_OK(weft_stream_call(s, hold, &go));
    CHECK_OK(weft_alltoallv(in, counts, offsets, out, counts, offsets, WEFT_F32, team->comm, s));
    memset(counts, 0xff, sizeof(counts));
    memset(offsets, 0xff, sizeof(offsets));
    atomic_store(&go, 1);
    CHECK_OK(weft_stream_synchronize(s));
    for (int p = 0; p < team->size; p++) {
        CHECK_EQ(out[p], 100 * p + team->rank);
    }
    CHECK_OK(weft_stream_destroy(s));
}

void stream_destroy(team_t *team)
{
    weft_stream_h s;
    weft_comm_h child;
    float a = 1, b[20] = {0};
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_comm_split(team->comm, 0, 0, &child, NULL));
    for (int k = 0; k < 20; k++) {
        CHECK_OK(weft_allreduce(&a, &b[k], 1, WEFT_F32, WEFT_SUM, child, s));
    }
    CHECK_OK(weft_comm_destroy(child));
    CHECK_EQ(b[19], team->size);
    CHECK_OK(weft_stream_synchronize(s));
    CHECK_OK(weft_stream_destroy(s));
}

/* ---- errors ------------------------------------------------------------------------------- */

/* The error of a call on a stream. One that is known already is told by the call itself where calls
 * are launched by the caller, and by the stream where the stream makes them. */
static weft_status_t outcome(weft_status_t call, weft_status_t stream)
{
    return call != WEFT_OK ? call : stream;
}

void stream_errors(team_t *team)
{
    weft_stream_h s;
    weft_comm_h child;
    float a[8] = {0}, b[8];
    const char *text;
    CHECK_OK(weft_stream_create(&s));
    CHECK_OK(weft_comm_split(team->comm, 0, team->rank, &child, NULL));
    size_t count = team->rank == 1 ? 5 : 4;
    weft_status_t call = weft_allreduce(a, b, count, WEFT_F32, WEFT_SUM, child, s);
    CHECK_STATUS(call != WEFT_OK ? call : weft_stream_synchronize(s), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "allreduce of 5 f32, sum");
    CHECK_TEXT(weft_last_error(), "allreduce of 4 f32, sum");
    CHECK_STATUS(weft_comm_error(child, &text), WEFT_ERR_MISMATCH);
    CHECK_TEXT(text, "allreduce of 5 f32, sum");
    CHECK_OK(weft_stream_synchronize(s)); /* told once */
    call = weft_allreduce(a, b, 4, WEFT_F32, WEFT_SUM, child, s);
    CHECK_STATUS(outcome(call, weft_stream_synchronize(s)), WEFT_ERR_BROKEN);
    call = weft_allreduce(a, b, 4, WEFT_F32, WEFT_SUM, child, s);
    CHECK_STATUS(outcome(call, weft_stream_destroy(s)), WEFT_ERR_BROKEN);
    CHECK_OK(weft_comm_destroy(child));
    CHECK_OK(weft_barrier(team->comm, NULL)); /* the parent is whole */
}

void stream_many(team_t *team)
{
    enum { MANY = 12 };
    weft_stream_h s;
    weft_comm_h comms[MANY];
    float a[8] = {1, 1, 1, 1}, b[8];
    CHECK_OK(weft_stream_create(&s));
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(weft_comm_split(team->comm, 0, team->rank, &comms[i], NULL));
    }
    weft_status_t call = weft_allreduce(a, b, team->rank == 1 ? 5 : 4, WEFT_F32, WEFT_SUM, comms[0],
                                        s);
    for (int i = 1; i < MANY; i++) {
        CHECK_OK(weft_allreduce(a, b, 4, WEFT_F32, WEFT_SUM, comms[i], s));
    }
    CHECK_STATUS(outcome(call, weft_stream_synchronize(s)), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "allreduce of 5 f32, sum");
    CHECK_OK(weft_stream_synchronize(s));
    CHECK(b[3] == (float)team->size);
    for (int i = 0; i < MANY; i++) {
        CHECK_OK(weft_comm_destroy(comms[i]));
    }
    CHECK_OK(weft_stream_destroy(s));
}
