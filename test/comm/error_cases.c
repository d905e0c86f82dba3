#include "comm/error_cases.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/log.h"
#include "comm/any_call.h"
#include "comm/comm.h"
#include "device/device.h"

#define ROOM 40000 /* elements per rank */

/* A child of the team's communicator to be broken; the team goes on. */
static weft_comm_h make_child(team_t *team, const char *algo)
{
    weft_comm_h child;
    weft_comm_config_t config = team_config();
    config.algo = algo;
    CHECK_OK(weft_comm_split(team->comm, 0, team->rank, &child, &config));
    return child;
}

/* All later calls fail at once, with the first error's text. */
static void check_broken(team_t *team, any_buffers_t *b, weft_comm_h comm, const char *why)
{
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        if (coll == WEFT_COLL_RECV && (team->rank ^ 1) >= team->size) {
            continue; /* has no partner */
        }
        double took = 1;
        for (int i = 0; i < 5 && took > 0.1; i++) { /* the machine may be busy */
            double start = team_now();
            CHECK_STATUS(any_call((weft_coll_t)coll, b, team, 1000, 0, comm), WEFT_ERR_BROKEN);
            took = team_now() - start;
        }
        CHECK_WITHIN(took, 0.1);
        CHECK_TEXT(weft_last_error(), why);
    }
}

/* ---- mismatches ------------------------------------------------------------------------------ */

/* What a rank calls. */
typedef struct request {
    weft_coll_t coll;
    size_t count;
    weft_dtype_t type;
    weft_op_t op;
    int root;
    const char *quote; /* how errors name it */
} request_t;

typedef struct dispute {
    const char *name;
    request_t usual, other; /* all ranks but one, and that one */
    const char *algo, *other_algo;
    bool plain;
} dispute_t;

static weft_status_t make_request(const request_t *r, any_buffers_t *b, weft_comm_h comm)
{
    switch (r->coll) {
    case WEFT_COLL_ALLREDUCE:
        return weft_allreduce(b->src, b->dst, r->count, r->type, r->op, comm, NULL);
    case WEFT_COLL_REDUCE:
        return weft_reduce(b->src, b->dst, r->count, r->type, r->op, r->root, comm, NULL);
    case WEFT_COLL_BROADCAST:
        return weft_broadcast(b->src, b->dst, r->count, r->type, r->root, comm, NULL);
    case WEFT_COLL_REDUCE_SCATTER:
        return weft_reduce_scatter(b->src, b->dst, r->count, r->type, r->op, comm, NULL);
    case WEFT_COLL_ALLGATHER:
        return weft_allgather(b->src, b->dst, r->count, r->type, comm, NULL);
    default:
        return weft_barrier(comm, NULL);
    }
}

#define SMALL_SUM                                                                                  \
    {                                                                                              \
        WEFT_COLL_ALLREDUCE, 4, WEFT_F32, WEFT_SUM, 0, "allreduce of 4 f32, sum"                   \
    }
#define LARGE_SUM                                                                                  \
    {                                                                                              \
        WEFT_COLL_ALLREDUCE, 30000, WEFT_F32, WEFT_SUM, 0, "allreduce of 30000 f32, sum"           \
    }

static const dispute_t disputes[] = {
    {"operation of the reduction",
     SMALL_SUM,
     {WEFT_COLL_ALLREDUCE, 4, WEFT_F32, WEFT_MAX, 0, "allreduce of 4 f32, max"},
     NULL,
     NULL,
     false},
    {"count",
     SMALL_SUM,
     {WEFT_COLL_ALLREDUCE, 5, WEFT_F32, WEFT_SUM, 0, "allreduce of 5 f32, sum"},
     NULL,
     NULL,
     false},
    {"type of the same size",
     SMALL_SUM,
     {WEFT_COLL_ALLREDUCE, 4, WEFT_I32, WEFT_SUM, 0, "allreduce of 4 i32, sum"},
     NULL,
     NULL,
     false},
    {"none and some",
     SMALL_SUM,
     {WEFT_COLL_ALLREDUCE, 0, WEFT_F32, WEFT_SUM, 0, "allreduce of 0 f32, sum"},
     NULL,
     NULL,
     false},
    {"large count",
     LARGE_SUM,
     {WEFT_COLL_ALLREDUCE, 30001, WEFT_F32, WEFT_SUM, 0, "allreduce of 30001 f32, sum"},
     NULL,
     NULL,
     false},
    {"large count in plain memory",
     LARGE_SUM,
     {WEFT_COLL_ALLREDUCE, 30001, WEFT_F32, WEFT_SUM, 0, "allreduce of 30001 f32, sum"},
     NULL,
     NULL,
     true},
    {"small and large", SMALL_SUM, LARGE_SUM, NULL, NULL, false},
    {"one and two slots",
     {WEFT_COLL_ALLREDUCE, 16384, WEFT_F32, WEFT_SUM, 0, "of 16384 f32"},
     {WEFT_COLL_ALLREDUCE, 32768, WEFT_F32, WEFT_SUM, 0, "of 32768 f32"},
     "oneshot",
     "oneshot",
     true},
    {"two and three slots",
     {WEFT_COLL_BROADCAST, 32768, WEFT_F32, WEFT_SUM, 0, "of 32768 f32"},
     {WEFT_COLL_BROADCAST, 39000, WEFT_F32, WEFT_SUM, 0, "of 39000 f32"},
     "oneshot",
     "oneshot",
     false},
    {"collective",
     SMALL_SUM,
     {WEFT_COLL_ALLGATHER, 4, WEFT_F32, WEFT_SUM, 0, "allgather of 4 f32"},
     NULL,
     NULL,
     false},
    {"large collective",
     LARGE_SUM,
     {WEFT_COLL_REDUCE_SCATTER, 30000, WEFT_F32, WEFT_SUM, 0, "reduce_scatter of 30000 f32, sum"},
     NULL,
     NULL,
     false},
    {"barrier and data",
     SMALL_SUM,
     {WEFT_COLL_BARRIER, 0, WEFT_F32, WEFT_SUM, 0, "barrier"},
     NULL,
     NULL,
     false},
    {"barrier and nothing",
     {WEFT_COLL_BARRIER, 0, WEFT_F32, WEFT_SUM, 0, "barrier"},
     {WEFT_COLL_ALLGATHER, 0, WEFT_U8, WEFT_SUM, 0, "allgather of 0 u8"},
     NULL,
     NULL,
     false},
    {"root",
     {WEFT_COLL_BROADCAST, 4, WEFT_F32, WEFT_SUM, 0, "broadcast of 4 f32, root 0"},
     {WEFT_COLL_BROADCAST, 4, WEFT_F32, WEFT_SUM, 1, "broadcast of 4 f32, root 1"},
     NULL,
     NULL,
     false},
    {"root of a large one",
     {WEFT_COLL_REDUCE, 30000, WEFT_F32, WEFT_MIN, 1, "min, root 1"},
     {WEFT_COLL_REDUCE, 30000, WEFT_F32, WEFT_MIN, 0, "min, root 0"},
     NULL,
     NULL,
     true},
    {"algorithm", LARGE_SUM, LARGE_SUM, "allreduce:ring", "allreduce:tree", false},
    {"algorithm of a small one", SMALL_SUM, SMALL_SUM, "oneshot", "direct", true},
};
#define DISPUTES (sizeof(disputes) / sizeof(disputes[0]))

static void settle_dispute(team_t *team, any_buffers_t *b, const dispute_t *d, int odd)
{
    const request_t *mine = team->rank == odd ? &d->other : &d->usual;
    const request_t good = SMALL_SUM;
    const char *text;
    team_note("dispute about %s, rank %d is odd", d->name, odd);
    weft_comm_h comm = make_child(team, team->rank == odd ? d->other_algo : d->algo);
    if (!d->algo) { /* something good first: the bad one is call 2 */
        CHECK_OK(make_request(&good, b, comm));
        team_meet(team);
    }
    if (odd % 2 && team->rank == team->size - 1) {
        team_sleep(0.02); /* one comes when the others know already */
    }
    CHECK_STATUS(make_request(mine, b, comm), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), d->algo ? "call 1" : "call 2");
    CHECK_TEXT(weft_last_error(), d->usual.quote);
    CHECK_TEXT(weft_last_error(), d->other.quote);
    if (d->algo && strcmp(d->algo, d->other_algo) != 0) {
        CHECK_TEXT(weft_last_error(), strchr(d->algo, ':') ? "ring" : "oneshot");
        CHECK_TEXT(weft_last_error(), strchr(d->algo, ':') ? "tree" : "direct");
    }
    CHECK_STATUS(weft_comm_error(comm, &text), WEFT_ERR_MISMATCH);
    CHECK_TEXT(text, d->other.quote);
    check_broken(team, b, comm, d->usual.quote);
    CHECK_OK(weft_comm_destroy(comm));
    CHECK_OK(weft_barrier(team->comm, NULL));
}

void error_disputes(team_t *team)
{
    for (size_t i = 0; i < DISPUTES; i++) {
        any_buffers_t b;
        if (weft__device_is_cuda() && disputes[i].algo && strchr(disputes[i].algo, ':')) {
            continue; /* rings and trees are the same on GPUs */
        }
        any_open(&b, team, ROOM, disputes[i].plain);
        settle_dispute(team, &b, &disputes[i], (int)i % team->size);
        any_close(&b);
    }
}

/* The same calls in another order. */
void error_order(team_t *team)
{
    any_buffers_t b;
    any_open(&b, team, ROOM, false);
    for (int odd = 0; odd < team->size; odd++) {
        weft_comm_h comm = make_child(team, NULL);
        weft_status_t status = team->rank == odd
                                   ? weft_broadcast(b.src, b.dst, 9, WEFT_U8, 0, comm, NULL)
                                   : weft_allreduce(b.src, b.dst, 9, WEFT_U8, WEFT_SUM, comm, NULL);
        CHECK_STATUS(status, WEFT_ERR_MISMATCH);
        CHECK_TEXT(weft_last_error(), "allreduce of 9 u8, sum");
        CHECK_TEXT(weft_last_error(), "broadcast of 9 u8, root 0");
        CHECK_TEXT(weft_last_error(), "order");
        CHECK_OK(weft_comm_destroy(comm));
    }
    any_close(&b);
}

/* After many equal calls: ranks that need nothing from the others may notice a few calls later, but
 * all do. */
void error_after_many(team_t *team)
{
    static const weft_coll_t colls[] = {WEFT_COLL_BROADCAST, WEFT_COLL_GATHER, WEFT_COLL_SCATTER,
                                        WEFT_COLL_REDUCE, WEFT_COLL_ALLREDUCE};
    any_buffers_t b;
    any_open(&b, team, ROOM, true);
    for (int i = 0; i < 10; i++) {
        int odd = i < 5 ? team->size - 1 : 0; /* root is 0 */
        weft_coll_t coll = colls[i % 5];
        char quotes[2][64];
        weft_comm_h comm = make_child(team, NULL);
        weft_status_t status = WEFT_OK;
        snprintf(quotes[0], sizeof(quotes[0]), "%s of 4 f32", weft__coll_info[coll].name);
        snprintf(quotes[1], sizeof(quotes[1]), "%s of 5 f32", weft__coll_info[coll].name);
        team_note("%s differs after many calls, rank %d is odd", weft__coll_info[coll].name, odd);
        for (int k = 0; k < 120 && status == WEFT_OK; k++) {
            size_t count = k == 50 && team->rank == odd ? 5 : 4;
            status = any_call(coll, &b, team, count, 0, comm);
        }
        CHECK_STATUS(status, WEFT_ERR_MISMATCH);
        CHECK_TEXT(weft_last_error(), "call 51 ");
        CHECK_TEXT(weft_last_error(), quotes[0]);
        CHECK_TEXT(weft_last_error(), quotes[1]);
        check_broken(team, &b, comm, quotes[1]);
        CHECK_OK(weft_comm_destroy(comm));
    }
    any_close(&b);
}

/* Groups of a different number of fused calls. */
void error_groups(team_t *team)
{
    float x[8] = {0};
    weft_comm_h comm = make_child(team, NULL);
    CHECK_OK(weft_group_start());
    for (int i = 0; i < (team->rank == 0 ? 4 : 2); i++) {
        size_t count = team->rank == 0 ? 1 : 2;
        CHECK_OK(weft_allreduce(&x[2 * i], &x[2 * i], count, WEFT_F32, WEFT_SUM, comm, NULL));
    }
    CHECK_STATUS(weft_group_end(), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "group of 4 allreduces");
    CHECK_TEXT(weft_last_error(), "group of 2 allreduces");
    CHECK_OK(weft_comm_destroy(comm));
    /* As many, and as many elements together, but not the same in each. */
    comm = make_child(team, NULL);
    CHECK_OK(weft_group_start());
    for (int i = 0; i < 2; i++) {
        size_t count = (team->rank == 0) == (i == 0) ? 1 : 3;
        CHECK_OK(weft_allreduce(&x[4 * i], &x[4 * i], count, WEFT_F32, WEFT_SUM, comm, NULL));
    }
    CHECK_STATUS(weft_group_end(), WEFT_ERR_MISMATCH);
    CHECK_TEXT(weft_last_error(), "with other counts in it");
    CHECK_OK(weft_comm_destroy(comm));
}

void error_ragged(team_t *team)
{
    size_t out[TEAM_MOST], in[TEAM_MOST], offsets[TEAM_MOST];
    for (int round = 0; round < 4; round++) {
        any_buffers_t b;
        int culprit = round < 2 ? team->size - 1 : 0; /* rank 0 may differ from itself, too */
        any_open(&b, team, ROOM, round % 2);
        weft_comm_h comm = make_child(team, NULL);
        for (int p = 0; p < team->size; p++) {
            offsets[p] = (size_t)p * 100;
            out[p] = in[p] = 10;
        }
        out[0] = team->rank == culprit ? 11 : 10; /* rank 0 expects 10 */
        CHECK_STATUS(weft_alltoallv(b.src, out, offsets, b.dst, in, offsets, WEFT_F32, comm, NULL),
                     WEFT_ERR_MISMATCH);
        CHECK_TEXT(weft_last_error(), "alltoallv");
        CHECK_TEXT(weft_last_error(), "sends 11 elements");
        CHECK_TEXT(weft_last_error(), "expects 10");
        check_broken(team, &b, comm, "alltoallv");
        CHECK_OK(weft_comm_destroy(comm));
        any_close(&b);
    }
}

/* Sender and receiver disagree about count or type; the others learn of it when they call. */
void error_messages(team_t *team)
{
    static const struct {
        size_t sent, received;
        weft_dtype_t type;
        const char *quotes[2];
    } cases[] = {
        {3, 4, WEFT_F32, {"sends 3 f32", "receives 4 f32"}},
        {4, 4, WEFT_I32, {"sends 4 f32", "receives 4 i32"}},
        {0, 1, WEFT_F32, {"sends 0 f32", "receives 1 f32"}},
        {30000, 30001, WEFT_F32, {"sends 30000 f32", "receives 30001 f32"}},
        {30000, 10, WEFT_F32, {"sends 30000 f32", "receives 10 f32"}},
        {10, 30000, WEFT_F32, {"sends 10 f32", "receives 30000 f32"}},
    };
    any_buffers_t b;
    any_open(&b, team, ROOM, true);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        weft_comm_h comm = make_child(team, NULL);
        weft_status_t status = WEFT_OK;
        team_note("messages differ, case %zu", i);
        if (team->rank == 0) {
            status = weft_send(b.src, cases[i].sent, WEFT_F32, 1, comm, NULL);
        } else if (team->rank == 1) {
            status = weft_recv(b.dst, cases[i].received, cases[i].type, 0, comm, NULL);
            CHECK_STATUS(status, WEFT_ERR_MISMATCH);
        }
        if (status == WEFT_OK) { /* a small message may be gone before it is compared */
            team_sleep(team->rank == 0 ? 0 : 0.01);
            status = weft_barrier(comm, NULL);
        }
        CHECK_STATUS(status, WEFT_ERR_MISMATCH);
        CHECK_TEXT(weft_last_error(), cases[i].quotes[0]);
        CHECK_TEXT(weft_last_error(), cases[i].quotes[1]);
        CHECK_OK(weft_comm_destroy(comm));
    }
    any_close(&b);
}

/* ---- leaving ------------------------------------------------------------------------------ */

void error_left(team_t *team)
{
    static const weft_coll_t colls[] = {WEFT_COLL_ALLREDUCE, WEFT_COLL_BARRIER, WEFT_COLL_ALLTOALLV,
                                        WEFT_COLL_SEND};
    any_buffers_t b;
    any_open(&b, team, ROOM, false);
    for (int i = 0; i < 4; i++) {
        char name[64];
        int leaver = i % team->size;
        size_t count = i == 0 ? 3 : ROOM;
        team_note("rank %d leaves", leaver);
        weft_comm_h comm = make_child(team, NULL);
        CHECK_OK(any_call(colls[i], &b, team, count, 0, comm));
        CHECK_OK(weft_barrier(comm, NULL)); /* messages alone do not keep the others together */
        team_meet(team);                    /* all have returned from it */
        if (team->rank != leaver) {
            double start = team_now();
            weft_status_t status;
            while ((status = any_call(colls[i], &b, team, count, 0, comm)) == WEFT_OK) {
            } /* messages between others may still get through */
            CHECK_STATUS(status, WEFT_ERR_RANK_LEFT);
            snprintf(name, sizeof(name), "rank %d destroyed its handle while rank ", leaver);
            CHECK_TEXT(weft_last_error(), name);
            CHECK_WITHIN(team_now() - start, SOON);
            check_broken(team, &b, comm, name);
        }
        CHECK_OK(weft_comm_destroy(comm));
        CHECK_OK(weft_barrier(team->comm, NULL));
    }
    any_close(&b);
}

/* ---- abort -------------------------------------------------------------------------------- */

typedef struct aborter {
    weft_comm_h comm;
    double after;
    int status;
    bool kept; /* the error before it, which is why one aborts */
} aborter_t;

static void *abort_soon(void *arg)
{
    aborter_t *a = arg;
    char before[256];
    team_sleep(a->after);
    weft_comm_rank(a->comm, NULL);
    snprintf(before, sizeof(before), "%s", weft_last_error());
    a->status = weft_comm_abort(a->comm);
    a->kept = strcmp(before, weft_last_error()) == 0;
    return NULL;
}

static pthread_t start_abort(aborter_t *a)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, abort_soon, a), 0);
    return thread;
}

static void end_abort(pthread_t thread, const aborter_t *a)
{
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(a->status, WEFT_OK);
    CHECK(a->kept);
}

/* Rank 0 is blocked in a call, as are others; a second thread of it gives up. The last rank does
 * not come at all and is told at its next call. */
void error_abort(team_t *team)
{
    _Atomic int *aborted = (_Atomic int *)team->shared;
    any_buffers_t b;
    any_open(&b, team, ROOM, true);
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        weft_comm_h comm = make_child(team, NULL);
        team_note("abort in %s", weft__coll_info[coll].name);
        bool last = team->rank == team->size - 1;
        if (team->rank == 0) {
            aborter_t a = {.comm = comm, .after = 0.02};
            pthread_t thread = start_abort(&a);
            weft_status_t status = WEFT_OK;
            while (status == WEFT_OK) { /* messages to those who are there get through */
                status = any_call((weft_coll_t)coll, &b, team, ROOM, 0, comm);
            }
            if (status != WEFT_ERR_INVALID) { /* it was before the call, or between two */
                CHECK_STATUS(status, WEFT_ERR_ABORTED);
                CHECK_TEXT(weft_last_error(), "rank 0 aborted");
            }
            end_abort(thread, &a);
            atomic_store(aborted, coll + 1);
            CHECK_STATUS(weft_barrier(comm, NULL), WEFT_ERR_INVALID); /* it is gone */
        } else {
            weft_status_t status = WEFT_OK;
            while (last && atomic_load(aborted) <= coll) {
                team_sleep(1e-3);
            }
            while (status == WEFT_OK) {
                status = last ? weft_barrier(comm, NULL)
                              : any_call((weft_coll_t)coll, &b, team, ROOM, 0, comm);
            }
            CHECK_STATUS(status, WEFT_ERR_ABORTED);
            CHECK_TEXT(weft_last_error(), "rank 0 aborted");
            check_broken(team, &b, comm, "rank 0 aborted");
            CHECK_OK(weft_comm_destroy(comm));
        }
    }
    any_close(&b);
}

/* The last rank fails at something of its own and breaks the communicator; the others wait for it
 * in a call. All of them, and it, are told why, and all destroy their handles. */
void error_break(team_t *team)
{
    any_buffers_t b;
    any_open(&b, team, ROOM, true);
    for (int coll = 0; coll < WEFT_COLL_COUNT; coll++) {
        weft_comm_h comm = make_child(team, NULL);
        team_note("a rank gives up, others are in %s", weft__coll_info[coll].name);
        double start = team_now();
        weft_status_t status = WEFT_OK;
        char reason[64];
        snprintf(reason, sizeof(reason), "rank %d gave up: no room for 7 apples", team->size - 1);
        if (team->rank == team->size - 1) {
            weft__fail(WEFT_ERR_SYSTEM, "no room for %d apples", 7);
            weft__comm_break(comm);
            CHECK(strcmp(weft_last_error(), "no room for 7 apples") == 0);
            weft__fail(WEFT_ERR_SYSTEM, "something else");
            weft__comm_break(comm); /* changes nothing: the first reason counts */
            weft__comm_break(NULL);
            status = weft_barrier(comm, NULL);
        }
        while (status == WEFT_OK) { /* messages to those who are there get through */
            status = any_call((weft_coll_t)coll, &b, team, ROOM, 0, comm);
            status = status == WEFT_OK ? weft_barrier(comm, NULL) : status;
        }
        CHECK_STATUS(status, WEFT_ERR_ABORTED);
        CHECK_TEXT(weft_last_error(), reason);
        CHECK_WITHIN(team_now() - start, SOON);
        check_broken(team, &b, comm, reason);
        CHECK_OK(weft_comm_destroy(comm));
        CHECK_STATUS(weft_comm_rank(comm, &(int){0}), WEFT_ERR_INVALID);
        weft__comm_break(comm); /* a dead handle is left alone */
    }
    any_close(&b);
}

/* Ranks call one after the other as fast as they can; each has a thread that aborts at some moment:
 * between calls, in one, on a stream, in a split. */
void error_abort_any_moment(team_t *team)
{
    weft_stream_h s;
    CHECK_OK(weft_stream_create(&s));
    for (int i = 0; i < (UNDER_SANITIZER ? 40 : 100); i++) {
        weft_comm_h comm = make_child(team, NULL), child;
        aborter_t a = {.comm = comm, .after = 50e-6 * (double)(i % 17)};
        float x = 0;
        weft_status_t status = WEFT_OK;
        team_note("abort at any moment, %d", i);
        pthread_t thread = start_abort(&a);
        while (status == WEFT_OK) {
            if (i % 3 == 0) {
                status = weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, comm, NULL);
            } else if (i % 3 == 1) {
                status = weft_allreduce(&x, &x, 1, WEFT_F32, WEFT_SUM, comm, s);
                weft_status_t later = weft_stream_synchronize(s);
                status = status == WEFT_OK ? later : status;
            } else {
                status = weft_comm_split(comm, 0, 0, &child, NULL);
                if (status == WEFT_OK) {
                    CHECK_OK(weft_comm_destroy(child));
                }
            }
        }
        if (status != WEFT_ERR_ABORTED && status != WEFT_ERR_RANK_LEFT &&
            status != WEFT_ERR_BROKEN && status != WEFT_ERR_INVALID) {
            FAIL("%s: %s", weft_status_name(status), weft_last_error());
        }
        end_abort(thread, &a);
    }
    CHECK_OK(weft_stream_destroy(s));
}

/* ---- wrong arguments ---------------------------------------------------------------------- */

#define REFUSED(call, part)                                                                        \
    do {                                                                                           \
        CHECK_STATUS(call, WEFT_ERR_INVALID);                                                      \
        CHECK_TEXT(weft_last_error(), part);                                                       \
    } while (0)

static void wrong_values(team_t *team, float *x, float *y)
{
    weft_comm_h c = team->comm;
    int n = team->size;
    REFUSED(weft_allreduce(NULL, y, 4, WEFT_F32, WEFT_SUM, c, NULL), "src is NULL");
    REFUSED(weft_allreduce(x, NULL, 4, WEFT_F32, WEFT_SUM, c, NULL), "dst is NULL");
    REFUSED(weft_allreduce(x, y, 4, (weft_dtype_t)99, WEFT_SUM, c, NULL), "type 99");
    REFUSED(weft_allreduce(x, y, 4, (weft_dtype_t)-1, WEFT_SUM, c, NULL), "type -1");
    REFUSED(weft_allreduce(x, y, 4, WEFT_F32, (weft_op_t)17, c, NULL), "operation 17");
    REFUSED(weft_allreduce(x, y, SIZE_MAX / 2, WEFT_F32, WEFT_SUM, c, NULL), "count");
    REFUSED(weft_allreduce(x, y, 4, WEFT_F32, WEFT_SUM, NULL, NULL), "communicator is NULL");
    REFUSED(weft_reduce(x, y, 4, WEFT_F32, WEFT_SUM, -1, c, NULL), "root -1");
    REFUSED(weft_reduce(x, y, 4, WEFT_F32, WEFT_SUM, n, c, NULL), "root");
    REFUSED(weft_broadcast(x, y, 4, WEFT_F32, 1 << 30, c, NULL), "root 1073741824");
    REFUSED(weft_gather(x, y, 4, WEFT_F32, -5, c, NULL), "root -5");
    REFUSED(weft_scatter(x, y, 4, WEFT_F32, n, c, NULL), "weft_scatter");
    REFUSED(weft_broadcast(x, NULL, 4, WEFT_F32, 0, c, NULL), "dst is NULL");
    REFUSED(weft_allgather(x, NULL, 4, WEFT_F32, c, NULL), "weft_allgather");
    REFUSED(weft_reduce_scatter(NULL, y, 4, WEFT_F32, WEFT_SUM, c, NULL), "src is NULL");
    REFUSED(weft_alltoall(NULL, y, 4, WEFT_F32, c, NULL), "src is NULL");
    REFUSED(weft_send(x, 4, WEFT_F32, n, c, NULL), "peer");
    REFUSED(weft_recv(y, 4, WEFT_F32, -1, c, NULL), "peer -1");
    REFUSED(weft_send(NULL, 4, WEFT_F32, (team->rank + 1) % n, c, NULL), "NULL");
    REFUSED(weft_barrier(NULL, NULL), "weft_barrier");
    if (team->rank == 0) {
        REFUSED(weft_broadcast(NULL, y, 4, WEFT_F32, 0, c, NULL), "src is NULL");
        REFUSED(weft_gather(x, NULL, 4, WEFT_F32, 0, c, NULL), "dst is NULL");
        REFUSED(weft_scatter(NULL, y, 4, WEFT_F32, 0, c, NULL), "src is NULL");
    }
}

static void wrong_overlaps(team_t *team, float *x)
{
    weft_comm_h c = team->comm;
    size_t r = (size_t)team->rank, n = (size_t)team->size;
    REFUSED(weft_allreduce(x, x + 1, 4, WEFT_F32, WEFT_SUM, c, NULL), "overlap");
    REFUSED(weft_allreduce(x + 3, x, 4, WEFT_F32, WEFT_SUM, c, NULL), "overlap");
    REFUSED(weft_alltoall(x, x + 1, 4, WEFT_F32, c, NULL), "overlap");
    if (n > 1) {
        size_t next = (r + 1) % n; /* in place, but at the place of another rank */
        REFUSED(weft_allgather(x + 4 * next, x, 4, WEFT_F32, c, NULL), "overlap");
        REFUSED(weft_reduce_scatter(x, x + 4 * next, 4, WEFT_F32, WEFT_SUM, c, NULL), "overlap");
    }
    if (team->rank == 0) {
        REFUSED(weft_broadcast(x + 1, x, 4, WEFT_F32, 0, c, NULL), "overlap");
        REFUSED(weft_gather(x + 1, x, 4, WEFT_F32, 0, c, NULL), "overlap");
        REFUSED(weft_scatter(x, x + 1, 4, WEFT_F32, 0, c, NULL), "overlap");
    }
}

static void wrong_vectors(team_t *team, float *x, float *y)
{
    weft_comm_h c = team->comm;
    size_t counts[TEAM_MOST], offsets[TEAM_MOST], huge[TEAM_MOST];
    for (int p = 0; p < team->size; p++) {
        counts[p] = 2;
        offsets[p] = 2 * (size_t)p;
        huge[p] = SIZE_MAX / 4;
    }
    REFUSED(weft_alltoallv(x, NULL, offsets, y, counts, offsets, WEFT_F32, c, NULL), "NULL");
    REFUSED(weft_alltoallv(x, counts, NULL, y, counts, offsets, WEFT_F32, c, NULL), "NULL");
    REFUSED(weft_alltoallv(x, counts, offsets, y, NULL, offsets, WEFT_F32, c, NULL), "NULL");
    REFUSED(weft_alltoallv(x, counts, offsets, y, counts, NULL, WEFT_F32, c, NULL), "NULL");
    REFUSED(weft_alltoallv(NULL, counts, offsets, y, counts, offsets, WEFT_F32, c, NULL), "src");
    REFUSED(weft_alltoallv(x, counts, offsets, NULL, counts, offsets, WEFT_F32, c, NULL), "dst");
    REFUSED(weft_alltoallv(x, huge, offsets, y, counts, offsets, WEFT_F32, c, NULL), "count");
    REFUSED(weft_alltoallv(x, counts, huge, y, counts, offsets, WEFT_F32, c, NULL), "offset");
    REFUSED(weft_alltoallv(x, counts, offsets, x, counts, offsets, WEFT_F32, c, NULL),
            "src and dst");
    REFUSED(weft_alltoallv(x, counts, offsets, x + 1, counts, offsets, WEFT_F32, c, NULL),
            "overlap");
    REFUSED(weft_alltoallv(x, counts, offsets, y, counts, offsets, (weft_dtype_t)50, c, NULL),
            "type");
    REFUSED(weft_alltoallv(x, counts, offsets, y, counts, offsets, WEFT_F32, NULL, NULL), "NULL");
}

void error_arguments(team_t *team)
{
    float x[4 * TEAM_MOST], y[4 * TEAM_MOST];
    for (int i = 0; i < 4 * TEAM_MOST; i++) {
        x[i] = 1;
        y[i] = -1;
    }
    for (int round = 0; round < 2; round++) {
        wrong_values(team, x, y);
        wrong_overlaps(team, x);
        wrong_vectors(team, x, y);
        for (int i = 0; i < 4 * TEAM_MOST; i++) {
            CHECK_EQ(x[i], 1);
            CHECK_EQ(y[i], round == 0 || i >= 4 ? -1 : team->size);
        }
        CHECK_OK(weft_comm_error(team->comm, NULL));
        CHECK_OK(weft_allreduce(x, y, 4, WEFT_F32, WEFT_SUM, team->comm, NULL));
        CHECK_EQ(y[3], team->size);
    }
}

/* Blocks that lie between each other do not overlap. */
void error_interleaved(team_t *team)
{
    float x[4 * TEAM_MOST];
    size_t counts[TEAM_MOST], offsets[TEAM_MOST];
    for (int p = 0; p < team->size; p++) {
        counts[p] = 2;
        offsets[p] = 4 * (size_t)p;
        x[4 * p] = x[4 * p + 1] = (float)(10 * team->rank + p);
    }
    CHECK_OK(
        weft_alltoallv(x, counts, offsets, x + 2, counts, offsets, WEFT_F32, team->comm, NULL));
    for (int p = 0; p < team->size; p++) {
        CHECK_EQ(x[4 * p + 3], 10 * p + team->rank);
    }
}

/* Not enough device memory to stage a call: all ranks are told who had none. */
void error_no_memory(team_t *team)
{
    any_buffers_t b;
    any_open(&b, team, 300000, true);
    CHECK_OK(any_call(WEFT_COLL_ALLREDUCE, &b, team, 10, 0, team->comm));
    CHECK_STATUS(any_call(WEFT_COLL_ALLREDUCE, &b, team, 300000, 0, team->comm),
                 WEFT_ERR_NO_MEMORY);
    CHECK_TEXT(weft_last_error(), "rank ");
    CHECK_TEXT(weft_last_error(), "weft_malloc");
    check_broken(team, &b, team->comm, "rank ");
    any_close(&b);
}
