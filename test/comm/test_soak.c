/* ctest: timeout=900 soak slow */
/* Random collectives, with random sizes, types, roots, memory and ranks, against a reference.
 *
 * WEFT_SOAK_SECONDS says how long (10), WEFT_SOAK_SEED with which numbers (the clock's). The seed
 * is printed: the same one makes the same calls again. */
#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>
#include <time.h>

#include "comm/call.h"
#include "comm/data.h"
#include "comm/harness.h"
#include "comm/tuner.h"

#include <cmocka.h>

#define ROOM ((size_t)6 << 20) /* bytes of each buffer */
#define COMMS 3

typedef struct soak {
    uint64_t seed;
    double seconds;
} soak_t;

/* The same numbers on every rank. */
typedef struct dice {
    uint64_t state;
} dice_t;

static uint64_t roll(dice_t *dice, uint64_t below)
{
    dice->state = data_mix(dice->state);
    return (dice->state >> 8) % below;
}

typedef struct player {
    team_t *team;
    dice_t dice;
    weft_comm_h comms[COMMS]; /* other algorithms, other subsets of the ranks */
    char *memory[4];          /* two of the device, two plain */
    weft_stream_h stream;
    uint64_t calls;
} player_t;

/* One call, as drawn. */
typedef struct draw {
    weft_coll_t coll;
    weft_comm_h comm;
    int rank, size, root;
    size_t count;
    weft_dtype_t type;
    weft_op_t op;
    weft_stream_h stream;
    char *src, *dst;
    bool in_place;
    data_t data;
} draw_t;

/* Mostly small, sometimes large, now and then none at all. */
static size_t draw_count(dice_t *dice, size_t most)
{
    uint64_t bits = roll(dice, 24), count = roll(dice, (uint64_t)2 << bits);
    return count < most ? (size_t)count : (size_t)roll(dice, most + 1);
}

/* Where this rank's buffers are is its own affair. */
static char *draw_memory(player_t *p, int which, size_t element)
{
    uint64_t x = data_mix(p->dice.state + (uint64_t)p->team->rank * 77 + (uint64_t)which);
    return p->memory[(x >> 10 & 1) * 2 + (uint64_t)which] + 64 + x % 5 * element;
}

static draw_t draw_call(player_t *p)
{
    draw_t d = {.coll = (weft_coll_t)roll(&p->dice, WEFT_COLL_COUNT)};
    d.comm = p->comms[roll(&p->dice, COMMS)];
    d.type = (weft_dtype_t)roll(&p->dice, WEFT_DTYPE_COUNT);
    d.op = (weft_op_t)roll(&p->dice, WEFT_OP_COUNT);
    d.in_place = roll(&p->dice, 3) == 0;
    d.stream = roll(&p->dice, 5) == 0 ? p->stream : NULL;
    uint64_t counts = roll(&p->dice, UINT64_MAX >> 8), root = roll(&p->dice, 1 << 20);
    if (!d.comm) {
        return d; /* the others play */
    }
    CHECK_OK(weft_comm_rank(d.comm, &d.rank));
    CHECK_OK(weft_comm_size(d.comm, &d.size));
    size_t element = weft_dtype_size(d.type);
    dice_t of_count = {counts};
    d.count = draw_count(&of_count, (ROOM - 256) / element / (size_t)d.size);
    d.root = (int)(root % (uint64_t)d.size);
    d.src = draw_memory(p, 0, element);
    d.dst = draw_memory(p, 1, element);
    d.data = (data_t){d.type, weft__coll_info[d.coll].reduces ? d.op : DATA_RAW, d.size,
                      (unsigned)p->calls};
    return d;
}

/* ---- collectives -------------------------------------------------------------------------- */

typedef struct shape {
    size_t src_blocks, dst_blocks;
} shape_t;

static shape_t shape_of(const draw_t *d)
{
    weft_call_t call = {.coll = d->coll, .root = d->root};
    return (shape_t){(size_t)weft__call_src_blocks(&call, d->rank, d->size),
                     (size_t)weft__call_dst_blocks(&call, d->rank, d->size)};
}

static void place_in(draw_t *d, const shape_t *shape)
{
    size_t block = d->count * weft_dtype_size(d->type);
    if (d->in_place && shape->src_blocks && shape->dst_blocks) {
        d->dst = d->src;
        d->dst += shape->src_blocks > shape->dst_blocks ? (size_t)d->rank * block : 0;
        d->src += shape->dst_blocks > shape->src_blocks ? (size_t)d->rank * block : 0;
    }
}

static weft_status_t call_collective(const draw_t *d)
{
    switch (d->coll) {
    case WEFT_COLL_ALLREDUCE:
        return weft_allreduce(d->src, d->dst, d->count, d->type, d->op, d->comm, d->stream);
    case WEFT_COLL_REDUCE:
        return weft_reduce(d->src, d->dst, d->count, d->type, d->op, d->root, d->comm, d->stream);
    case WEFT_COLL_BROADCAST:
        return weft_broadcast(d->src, d->dst, d->count, d->type, d->root, d->comm, d->stream);
    case WEFT_COLL_REDUCE_SCATTER:
        return weft_reduce_scatter(d->src, d->dst, d->count, d->type, d->op, d->comm, d->stream);
    case WEFT_COLL_ALLGATHER:
        return weft_allgather(d->src, d->dst, d->count, d->type, d->comm, d->stream);
    case WEFT_COLL_GATHER:
        return weft_gather(d->src, d->dst, d->count, d->type, d->root, d->comm, d->stream);
    case WEFT_COLL_SCATTER:
        return weft_scatter(d->src, d->dst, d->count, d->type, d->root, d->comm, d->stream);
    case WEFT_COLL_ALLTOALL:
        return weft_alltoall(d->src, d->dst, d->count, d->type, d->comm, d->stream);
    default:
        return weft_barrier(d->comm, d->stream);
    }
}

static void check_part(const draw_t *d, size_t block, int rank, size_t first)
{
    size_t wrong, bytes = d->count * weft_dtype_size(d->type);
    if (!data_check(&d->data, rank, first, d->count, d->dst + block * bytes, &wrong)) {
        FAIL("dst is wrong from element %zu of block %zu on", wrong, block);
    }
}

static void check_collective(const draw_t *d)
{
    size_t me = (size_t)d->rank;
    switch (d->coll) {
    case WEFT_COLL_BARRIER:
        break;
    case WEFT_COLL_ALLREDUCE:
    case WEFT_COLL_REDUCE:
        check_part(d, 0, DATA_REDUCED, 0);
        break;
    case WEFT_COLL_REDUCE_SCATTER:
        check_part(d, 0, DATA_REDUCED, me * d->count);
        break;
    case WEFT_COLL_BROADCAST:
        check_part(d, 0, d->root, 0);
        break;
    case WEFT_COLL_SCATTER:
        check_part(d, 0, d->root, me * d->count);
        break;
    default:
        for (int p = 0; p < d->size; p++) {
            check_part(d, (size_t)p, p, d->coll == WEFT_COLL_ALLTOALL ? me * d->count : 0);
        }
    }
}

static void play_collective(draw_t *d)
{
    shape_t shape = shape_of(d);
    place_in(d, &shape);
    data_fill(&d->data, d->rank, 0, shape.src_blocks * d->count, d->src);
    CHECK_OK(call_collective(d));
    CHECK_OK(d->stream ? weft_stream_synchronize(d->stream) : WEFT_OK);
    if (shape.dst_blocks) {
        check_collective(d);
    }
}

/* ---- ragged blocks and messages ------------------------------------------------------------- */

static size_t share(const draw_t *d, int from, int to)
{
    uint64_t x = data_mix(d->data.salt * 1000ull + (uint64_t)(from * 37 + to));
    return x % 3 == 0 ? 0 : x / 3 % (d->count + 1);
}

static void play_ragged(draw_t *d)
{
    size_t out[TEAM_MOST], in[TEAM_MOST], offsets[TEAM_MOST], wrong;
    size_t element = weft_dtype_size(d->type);
    for (int p = 0; p < d->size; p++) {
        out[p] = share(d, d->rank, p);
        in[p] = share(d, p, d->rank);
        offsets[p] = (size_t)p * d->count;
        data_fill(&d->data, d->rank, (size_t)p, out[p], d->src + offsets[p] * element);
    }
    CHECK_OK(
        weft_alltoallv(d->src, out, offsets, d->dst, in, offsets, d->type, d->comm, d->stream));
    CHECK_OK(d->stream ? weft_stream_synchronize(d->stream) : WEFT_OK);
    for (int p = 0; p < d->size; p++) {
        CHECK(
            data_check(&d->data, p, (size_t)d->rank, in[p], d->dst + offsets[p] * element, &wrong));
    }
}

/* Everybody to somebody, in a group; a random shift, itself included. */
static void play_messages(draw_t *d)
{
    size_t wrong;
    int to = (d->rank + d->root) % d->size, from = (d->rank + d->size - d->root) % d->size;
    data_fill(&d->data, d->rank, 0, d->count, d->src);
    CHECK_OK(weft_group_start());
    if (d->in_place) { /* the order within the group does not matter */
        CHECK_OK(weft_recv(d->dst, d->count, d->type, from, d->comm, d->stream));
    }
    CHECK_OK(weft_send(d->src, d->count, d->type, to, d->comm, d->stream));
    if (!d->in_place) {
        CHECK_OK(weft_recv(d->dst, d->count, d->type, from, d->comm, d->stream));
    }
    CHECK_OK(weft_group_end());
    CHECK_OK(d->stream ? weft_stream_synchronize(d->stream) : WEFT_OK);
    CHECK(data_check(&d->data, from, 0, d->count, d->dst, &wrong));
}

/* ---- a game ------------------------------------------------------------------------------- */

/* Comm 0 is for all, 1 for a random half, 2 for all with an algorithm of its own. */
static void make_comms(player_t *p)
{
    weft_comm_config_t config = team_config();
    uint64_t members = roll(&p->dice, 1u << p->team->size);
    uint64_t order = roll(&p->dice, 1000);
    int color = members >> p->team->rank & 1 ? 1 : -1;
    int key = (int)(data_mix(order + (uint64_t)p->team->rank) % 100);
    config.algo = weft__algo_name((weft_algo_t)roll(&p->dice, WEFT_ALGO_COUNT));
    p->comms[0] = p->team->comm;
    CHECK_OK(weft_comm_split(p->team->comm, color, key, &p->comms[1], NULL));
    CHECK_OK(weft_comm_split(p->team->comm, 0, key, &p->comms[2], &config));
}

static void open_player(player_t *p, team_t *team, uint64_t seed)
{
    *p = (player_t){.team = team, .dice = {seed}};
    for (int i = 0; i < 4; i++) {
        if (i < 2) {
            void *memory;
            CHECK_OK(weft_malloc(&memory, ROOM));
            p->memory[i] = memory;
        } else {
            CHECK((p->memory[i] = malloc(ROOM)));
        }
    }
    CHECK_OK(weft_stream_create(&p->stream));
    make_comms(p);
}

static void close_player(player_t *p)
{
    CHECK_OK(weft_comm_destroy(p->comms[1]));
    CHECK_OK(weft_comm_destroy(p->comms[2]));
    CHECK_OK(weft_stream_destroy(p->stream));
    for (int i = 0; i < 4; i++) {
        if (i < 2) {
            CHECK_OK(weft_free(p->memory[i]));
        } else {
            free(p->memory[i]);
        }
    }
}

static void play(player_t *p)
{
    draw_t d = draw_call(p);
    p->calls++;
    if (!d.comm) {
        return;
    }
    team_note("call %llu: %s of %zu %s, %s, root %d of %d%s%s", (unsigned long long)p->calls,
              weft__coll_info[d.coll].name, d.count, weft_dtype_name(d.type), weft_op_name(d.op),
              d.root, d.size, d.in_place ? ", in place" : "", d.stream ? ", on a stream" : "");
    if (d.coll == WEFT_COLL_ALLTOALLV) {
        play_ragged(&d);
    } else if (d.coll == WEFT_COLL_SEND || d.coll == WEFT_COLL_RECV) {
        play_messages(&d);
    } else {
        play_collective(&d);
    }
}

static void soak_rank(team_t *team)
{
    const soak_t *soak = team->arg;
    player_t p;
    int32_t more = 1;
    double end = team_now() + soak->seconds;
    open_player(&p, team, soak->seed);
    while (more) {
        for (int i = 0; i < 50; i++) {
            play(&p);
        }
        more = team_now() < end; /* rank 0 decides for all */
        CHECK_OK(weft_broadcast(&more, &more, 1, WEFT_I32, 0, team->comm, NULL));
        if (more && roll(&p.dice, 8) == 0) {
            CHECK_OK(weft_comm_destroy(p.comms[1]));
            CHECK_OK(weft_comm_destroy(p.comms[2]));
            make_comms(&p);
        }
    }
    if (team->rank == 0) {
        *(uint64_t *)team->shared = p.calls;
        fprintf(stderr, "%llu calls\n", (unsigned long long)p.calls);
    }
    close_player(&p);
}

/* A number from the environment. */
static double number_from(const char *name, double otherwise)
{
    const char *text = getenv(name);
    char *rest;
    errno = 0;
    double value = text ? strtod(text, &rest) : otherwise;
    if (text && (errno || rest == text || *rest)) {
        fprintf(stderr, "%s=%s is no number\n", name, text);
        exit(1);
    }
    return value;
}

static void random_calls_against_reference(void **state)
{
    /* Ranks, and the processes they are spread over. */
    static const int teams[][2] = {{2, 2}, {3, 3}, {8, 8}, {4, 1}, {7, 1}, {6, 2}, {5, 5}};
    double seconds = number_from("WEFT_SOAK_SECONDS", 10);
    uint64_t seed = (uint64_t)number_from("WEFT_SOAK_SEED", (double)(time(NULL) % 1000000));
    double start = team_now();
    (void)state;
    unsetenv("WEFT_SOAK_SECONDS"); /* no settings of Weft's */
    unsetenv("WEFT_SOAK_SEED");
    fprintf(stderr, "WEFT_SOAK_SEED=%llu\n", (unsigned long long)seed);
    const int n = sizeof(teams) / sizeof(teams[0]);
    for (int i = 0; i < n; i++) {
        soak_t soak = {data_mix(seed + (uint64_t)i), seconds / n};
        fprintf(stderr, "%d ranks, %d processes: ", teams[i][0], teams[i][1]);
        assert_true(team_run(&(team_plan_t){.ranks = teams[i][0],
                                            .procs = teams[i][1],
                                            .limit_s = (int)(seconds / n) + 30,
                                            .arg = &soak},
                             soak_rank));
    }
    fprintf(stderr, "%.1f s\n", team_now() - start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_calls_against_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
